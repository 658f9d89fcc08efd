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
# # Probe the states of a model
#
# A *probe* is a simple classifier that predicts a label from the hidden states of one layer. This
# notebook asks from which layer on the states of a decoder contain the grammatical number of a
# word. The models are a small trained model and its *untrained twin* (the same architecture with
# random weights).
#
# The clips are **synthetic** speech that comes with the package. The result says **nothing about**
# real models; the notebook shows the method.

# %%
# On Colab, or wherever speechmix is missing: install it from a checkout (or a git URL, or a wheel).
import importlib.util
import subprocess
import sys

SPEECHMIX = "."  # where to install speechmix from
if importlib.util.find_spec("speechmix") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", SPEECHMIX], check=True)

# %%
import speechmix
from speechmix.inputs import bundled
from speechmix.reporting import plots

# %% [markdown]
# ## What to change
#
# Set `MODEL` to a hub id, and read your own clips with `speechmix.read_clips("clips.tsv")`. The
# label is a column of that table. In these clips, the target is *quel(s)*. It sounds the same in
# singular and plural, and only the words after it show the number.

# %%
MODEL = "bundled:tiny-french-whisper"  # "openai/whisper-small"
clips = [
    clip
    for clip in bundled.clips()
    if clip.meta["side"] == "right" and clip.meta["control"] == "no"
][:20]
models = [speechmix.load(MODEL), speechmix.load(MODEL, init="random", seed=0)]

# %% [markdown]
# ## Fit the probes
#
# `position="deciding"` is the position that predicts the first token in which singular and plural
# differ. `low` and `high` are the confidence interval of the held-out accuracy. `control` is the
# accuracy for random labels.

# %%
probes = speechmix.probe(models, clips, label="number", position="deciding", controls=1)
table = probes.to_dataframe()
columns = ["init", "stack", "layer", "accuracy", "low", "high", "majority", "control"]
print(table[columns].round(2).to_string(index=False))

# %%
plots.probe_figure(table)

# %% [markdown]
# Layer -1 is the input of the first layer. There the decoder does not know the number. Its
# accuracy rises in the trained model only, because cross-attention adds what the encoder
# contributes.
#
# ## What not to conclude
#
# A probe shows that the states contain a label. It does not show that the model *uses* it. For
# that, remove the cue and measure the effect (`speechmix.ablate`).
