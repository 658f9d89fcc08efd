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
# # Lenses: what would the model have written from an earlier layer?
#
# A *lens* feeds the states behind an earlier layer to what follows the last one: the final norm and
# the output layer, or a whole decoder. This notebook reads every layer of two recognisers.
#
# The clips are **synthetic** speech that comes with the package, and the models are two tiny
# recognisers trained on such speech. The numbers say **nothing about** real models.

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
from speechmix import plots
from speechmix.inputs import bundled

# %% [markdown]
# ## Encoder lens
#
# Set the names to hub ids, such as `"openai/whisper-small"` and
# `"jonatasgrosman/wav2vec2-large-xlsr-53-french"`. Read your own clips with
# `speechmix.read_clips("clips.tsv")`.
#
# The decoder reads the output of an earlier encoder layer, and writes. Layer -1 is the input of the
# first layer.

# %%
WHISPER, CTC = "bundled:tiny-french-whisper", "bundled:tiny-french-ctc"
model = speechmix.load(WHISPER)
clip = next(clip for clip in bundled.clips() if clip.name == "left_18_pl")
result = speechmix.lens(model, clip, kind="encoder")
print(f"said: {clip.text}")
for layer, text in zip(result.layers, result.texts, strict=True):
    print(f"{layer:2}: {text}")

# %% [markdown]
# ## Logit lens of the decoder
#
# The output layer reads the states of each decoder layer, which is fed the text of the clip. A
# colour is the margin of a word: its log-probability minus that of its foil, or of the likeliest
# other token. A dot marks the layer from which on the word is decided.

# %%
plots.lens_panel(speechmix.lens(model, clip)).get_figure()

# %% [markdown]
# ## Logit lens of a CTC encoder
#
# Each frame writes its likeliest letter. The text becomes right in the last layers.

# %%
ctc = speechmix.load(CTC)
plots.lens_panel(speechmix.lens(ctc, clip)).get_figure()

# %% [markdown]
# ## Many clips, and an untrained twin
#
# In these clips each spelling is as often right as wrong, so a constant preference reaches 0.5
# (`chance`). A layer `decides` if the interval of its accuracy is above chance and above all
# untrained twins, in this layer and in all later ones. `error_rate` is the character error rate of
# the text that the model would have written.

# %%
twin = speechmix.load(CTC, init="random", seed=0)
clips = [clip for clip in bundled.clips() if clip.meta["control"] == "no"][:16]
tables = [speechmix.lens(each, clip).to_dataframe() for each in (ctc, twin) for clip in clips]
curves = speechmix.lens_curves(pd.concat(tables), clips)
columns = ["layer", "chance", "accuracy", "accuracy_low", "twin_accuracy", "decides", "error_rate"]
curves[columns].round(2)

# %%
plots.lens_curve_panel(curves, value="error_rate").get_figure()

# %% [markdown]
# ## What not to conclude
#
# - A lens shows what the *output layer* can read. A word may be decided earlier in a form that it
#   does not read: a tuned lens (`recipes/fit_tuned_lens.py`) or a probe may find it.
# - A lens does not show what the model uses. For that, intervene (`speechmix.knock_out`).
# - One twin and sixteen clips only show the form of such a study.
