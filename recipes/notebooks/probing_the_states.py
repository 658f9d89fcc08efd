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
# # Probe the states of a model, and compare its layers
#
# What do the hidden states of a layer contain? A *probe* predicts a label or a number from them. A
# *similarity* compares them as a whole: with other layers, with another model, with the spectrum.
# Both need a null, so each model stands beside its *untrained twin* (the same architecture with
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
# ## 1. Probe a label
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
# ## 2. Probe a number
#
# A ridge regression predicts the intensity (dB) of each word from its state in the encoder, on
# held-out sentences. `r2` is the share of its variance that is predicted. Spelling does not need
# the intensity.

# %%
options = {"level": "word", "stacks": "encoder", "method": "ridge", "shuffles": 19}
more = bundled.clips()[::2]
numbers = speechmix.probe(models, more, label="intensity", **options).to_dataframe()
print(numbers[["init", "layer", "r2", "low", "high", "p"]].round(2).to_string(index=False))

# %% [markdown]
# In the trained model, `r2` falls from layer to layer. In the untrained twin it hardly falls.
#
# ## 3. Compare layers, and the layers with the spectrum
#
# Linear CKA (debiased) of the states of words: 1 means that two layers order the words alike, 0
# that they have nothing in common. The dotted line is the value for shuffled words.

# %%
speechmix.similarity(models[0], clips=more).show()

# %%
result = speechmix.similarity(models[0], "mel", clips=more, twins=models[1:])
print(result.summary)
result.show()

# %% [markdown]
# ## What not to conclude
#
# A probe shows that the states contain a label. It does not show that the model *uses* it. For
# that, remove the cue and measure the effect (`speechmix.ablate`). A similarity does not say what
# two layers have in common. One twin is a picture; a conclusion about training needs 5.
