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
# # Context mixing in five steps
#
# A Transformer layer builds the new state of one position (the **target**) out of the states of
# many (the **sources**). A *measure* says how much each source contributes to each target.
#
# In *mes dessins brillent* ("my drawings shine"), *dessins* sounds like the singular *dessin*. Only
# *mes* tells that it is plural: *mes* is the **cue**, *dessins* the **target**. In which layer does
# the cue contribute to the target?
#
# The clip is **synthetic** speech, and the models are two tiny recognisers trained on such speech.
# The numbers say **nothing about** real models; the notebook shows the method.

# %%
# On Colab, or wherever speechmix is missing: install it from a checkout (or a git URL, or a wheel).
import importlib.util
import subprocess
import sys

SPEECHMIX = "."  # where to install speechmix from
if importlib.util.find_spec("speechmix") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", SPEECHMIX], check=True)

# %%
import matplotlib.pyplot as plt
import pandas as pd
import transformers

import speechmix
from speechmix import plots
from speechmix.inputs import bundled

transformers.utils.logging.disable_progress_bar()

# %% [markdown]
# ## 1. A model and a clip
#
# Set `MODEL` to a hub id, such as `"jonatasgrosman/wav2vec2-large-xlsr-53-french"` or
# `"openai/whisper-small"`. For your own clip:
# `speechmix.Clip.from_file("a.wav", words="a.TextGrid", cue="mes", target="dessins")`.

# %%
MODEL = "bundled:tiny-french-whisper"
model = speechmix.load(MODEL)
twin = speechmix.load(MODEL, init="random", seed=0)
clip = next(clip for clip in bundled.clips() if clip.name == "left_18_pl")
print(model.describe(), clip, sep="\n")

# %% [markdown]
# ## 2. Maps
#
# *Value Zeroing* sets the value vectors of one source to zero in one attention block, and measures
# how far the layer's output of each target moves. A map has one row per target and one column per
# source. Rows are shown as shares that sum to 100 %.

# %%
MEASURES = ["value_zeroing", "attention", "attention_norm", "alti", "gradient_input", "random"]
maps = speechmix.mix(model, clip, measures=MEASURES)
plots.sound_and_map(clip, maps["value_zeroing", "encoder"], layer=1)

# %%
maps["value_zeroing", "encoder"].show()

# %% [markdown]
# ## 3. Cue contribution, layer by layer
#
# The *cue contribution* is the share of the cue's columns in the target's rows. Measures count
# different things, so compare the shape of their columns and not their heights. `random` knows
# nothing about the model: it is the floor. Gradient measures explain one number that the model
# puts out, so they have no row for each target.


# %%
def contribution(maps, stack):
    layers = {
        name: speechmix.cue_contribution(m, cue=clip.cue, target=clip.target)
        for (name, of), m in maps.items()
        if of == stack
    }
    return pd.DataFrame(layers, dtype=float).mul(100).round(1).rename_axis("layer")


contribution(maps, "encoder")

# %% [markdown]
# ## 4. The untrained twin
#
# The same architecture with random weights shows what the architecture alone does. A study needs
# many twins and many clips (`speechmix study`).

# %%
twin_maps = speechmix.mix(twin, clip, measures="value_zeroing")
both = {"trained": maps, "untrained twin": twin_maps}
columns = {name: contribution(found, "encoder")["value_zeroing"] for name, found in both.items()}
ax = pd.DataFrame(columns).plot(
    xticks=range(3), ylabel="contribution of the cue (%)", figsize=(4, 3)
)

# %% [markdown]
# ## 5. From the sound to each letter
#
# A Whisper model has three stacks. `composed` multiplies them: how much do the words of the audio
# and the letters already written contribute to each letter, through all layers?

# %%
ax = plots.heat_map(
    maps.composed("alti"), ax=plt.subplots(figsize=(7, 5.2), layout="constrained")[1]
)

# %% [markdown]
# ## What not to conclude
#
# - This is one clip. Claims need groups of clips and many twins.
# - Attention is not contribution: a source with a large weight may have a short value vector.
# - A large share says that the state was built from the cue. It does not say that the *number* of
#   the cue was used. `speechmix.ablate` tests that.
