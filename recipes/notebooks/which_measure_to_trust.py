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
# # Which measure to trust?
#
# Measures disagree about which words matter. This notebook evaluates their faithfulness: it removes
# words, measures how much the model's decision changes, and checks which measure had ranked those
# words first. Each measure is compared with random scores, with the longest word first, with the
# nearest word first, and with the reference perturbation itself.
#
# The model and the clips come with the package: a tiny recogniser and **synthetic** speech. What
# wins here says **nothing about** real models; the notebook shows the method.

# %%
# On Colab, or wherever speechmix is missing: install it from a checkout (or a git URL, or a wheel).
import importlib.util
import subprocess
import sys

SPEECHMIX = "."  # where to install speechmix from
if importlib.util.find_spec("speechmix") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", SPEECHMIX], check=True)

# %%
import transformers

import speechmix
from speechmix.extensions.faithfulness.reliability import cascading_randomisation
from speechmix.inputs import bundled

transformers.utils.logging.disable_progress_bar()

# %% [markdown]
# ## What to change
#
# Set `MODEL` to a hub id for a real model, and read your own clips. Clips need words, a target and
# its other spelling. A clip needs at least three words besides the target: with two, any order is
# right half of the time. Patching needs both members of a pair (`meta["pair"]`).

# %%
MODEL = "bundled:tiny-french-whisper"  # a hub id, such as "openai/whisper-small"
model = speechmix.load(MODEL)
clips = [
    clip for clip in bundled.clips() if len(clip.words) >= 4
]  # speechmix.read_clips("clips.tsv")
print(len(clips), "clips, such as", clips[0])

# %% [markdown]
# ## Evaluate the measures
#
# Each reference perturbation is independent of the measures. It replaces the audio of a word (`mute`,
# here by digital silence and by noise), or takes the word from the other member of the pair
# (`patch`). `trial.to_dataframe()` has all values; a sentence states what you can conclude.
#
# Four of the measures are layer-wise and are combined over layers in several ways. The others are
# **attributions to the output**: they explain the margin that the perturbations change. Shapley
# values mute words themselves, here by digital silence. The reference perturbation that does the
# same does not rank them.

# %%
measures = [
    "value_zeroing",
    "attention",
    "attention_norm",
    "alti",
    "gradient_input",
    "chefer",
    "alti_logit",
    "lrp",
    "shapley",
]
trial = speechmix.faithfulness(
    model,
    clips,
    measures=measures,
    perturbations=["mute (zeros)", "mute (noise)", "patch"],
    metrics=["spearman", "top_1"],
    aggregations=["last", "rollout", "composed", "to the output"],
)
for perturbation in trial.perturbations:
    print(trial.sentence(perturbation=perturbation), end="\n\n")

# %% [markdown]
# ## The leaderboard of one reference perturbation
#
# `over_length` is the gain over ranking the longest word first, paired within groups of clips. `p`
# is the largest of the three p-values against the baselines, corrected for multiple comparisons.

# %%
board = trial.leaderboard(perturbation="mute (zeros)")
shown = [
    "stack",
    "measure",
    "aggregation",
    "value",
    "low",
    "high",
    "over_random",
    "over_length",
    "over_position",
    "p",
]
print(board[shown].head(16).to_string(index=False, na_rep="", float_format="{:.2f}".format))

# %% [markdown]
# ## Do the reference perturbations agree?
#
# Each fill takes the audio out of the training distribution in a different way. The agreement of two
# reference perturbations about the words of a clip limits how far you can trust a measure. A measure
# that wins under one of them only is no winner.

# %%
agreement = trial.perturbation_agreement()
print(agreement[agreement["stack"] == "composed"].round(2).to_string(index=False))

# %%
table = trial.to_dataframe()[
    (trial.to_dataframe()["metric"] == "spearman")
    & ~trial.to_dataframe()["measure"].isin(["oracle", "random"])
]
wide = table.pivot_table(
    index=["stack", "measure", "aggregation"], columns="perturbation", values="value"
)
print(wide.round(2).to_string())

# %% [markdown]
# ## Does a measure depend on the model at all?
#
# The layers of a copy get random weights, from the last to the first. Each time, the new maps are
# compared with the maps before. A measure that does not change does not depend on those layers.

# %%
steps = cascading_randomisation(model, clips[:4], measures=["value_zeroing", "attention"])
print(
    steps.pivot_table(index="randomised", columns=["stack", "measure"], values="rho", sort=False)
    .round(2)
    .to_string()
)

# %% [markdown]
# ## What not to conclude
#
# - From this notebook as it is: nothing about Whisper, nothing about speech.
# - From an evaluation of real clips: the winner ranks words well *for this model's decisions on clips
# like these*, in this stack, by this reference perturbation. It was the best of many rows, so its
# value is a little too high.
# - That a measure is wrong because it loses: Value Zeroing measures which sources contribute to one
# layer's state, not what the output needs.
