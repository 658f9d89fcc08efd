# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Interventions and patching
#
# A map shows what a state is made of. It does not show what the *output* depends on. This notebook
# changes something inside a recogniser, or in its input, and reads how its decision changes.
#
# In *nos maisons* ("our houses"), the determiner decides the spelling: *maison* or *maisons*. It is
# the **cue**. The clips are **synthetic** speech that comes with the package, and the model is a
# tiny recogniser trained on such speech. The numbers say **nothing about** real models.

# %%
# On Colab, or wherever speechmix is missing: install it from a checkout (or a git URL, or a wheel).
import importlib.util
import subprocess
import sys

SPEECHMIX = "."  # where to install speechmix from
if importlib.util.find_spec("speechmix") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", SPEECHMIX], check=True)

# %%
import pandas as pd

import speechmix
from speechmix.evaluation.statistics.intervals import mean_interval
from speechmix.inputs import bundled

# %% [markdown]
# ## A model and minimal pairs
#
# Set `MODEL` to a hub id, such as `"openai/whisper-small"`. Read your own clips with
# `speechmix.read_clips("clips.tsv")`; the columns `cue`, `target` and `foil` name the words.

# %%
MODEL = "bundled:tiny-french-whisper"
model = speechmix.load(MODEL)
clips = {clip.name: clip for clip in bundled.clips()}
singular, plural = clips["left_00_sg"], clips["left_00_pl"]
print(singular.text, "/", plural.text)

# %% [markdown]
# ## 1. Knock out: does the output need what a word contributes in a layer?
#
# The value vectors of a word are set to zero in one layer. The **margin** is log p(target) minus
# log p(foil), in nats. A cell is how far it drops.

# %%
speechmix.knock_out(model, singular).show()

# %% [markdown]
# ## 2. Ablate the input: does it need the word at all?
#
# The sound of the cue is muted, or its token is replaced. Each fill is a different intervention,
# and each is unlike the training data in its own way. So look at several.

# %%
need = speechmix.ablate_input(model, singular, words=[singular.cue])
need.to_dataframe()[["intervention", "label", "drop", "flipped"]].round(1)

# %% [markdown]
# ## 3. Patch: is it the information that counts?
#
# The states of a word are replaced by those of the other member of the pair. A cell is again the
# drop of the margin: twice the margin turns the decision.

# %%
speechmix.patch(model, singular, plural).show()

# %% [markdown]
# ## All pairs
#
# One pair proves nothing. Below, the cue is patched in eight pairs of different nouns. `carried` is
# the share of the difference between the margins of both clips that the patch produces: 1 means all
# of it. `low` and `high` are a 95 % confidence interval over nouns.

# %%
names = [f"left_{number:02d}" for number in range(16)]
pairs = [(clips[f"{name}_sg"], clips[f"{name}_pl"]) for name in names if f"{name}_sg" in clips]
tables = [
    speechmix.patch(model, *pair).to_dataframe().assign(noun=pair[0].meta["noun"]) for pair in pairs
]
table = pd.concat(tables)
cues = table[table["word"] == 0]
carried = cues.groupby(["stack", "layer", "noun"])["carried"].mean().unstack("noun")
rows = [(row.mean(), *mean_interval(row.to_numpy())) for _, row in carried.iterrows()]
print(carried.shape[1], "nouns,", len(pairs), "pairs")
pd.DataFrame(rows, carried.index, ["carried", "low", "high"]).round(2)

# %% [markdown]
# The states of the cue in the first decoder layer carry most of the decision. Those of its sound in
# the encoder hardly matter, because the decoder also reads the determiner in its text.
#
# ## What not to conclude
#
# - An intervention takes the model off the data that it was trained on. A drop can come from that.
# - Words that say the same can replace each other: each alone seems unnecessary.
#   `speechmix.shapley` divides the effect among them.
# - Eight nouns of one synthetic voice are few. A study compares many clips and trainings.
