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
# Measures disagree about which words count. This notebook puts some of them on trial: it takes
# words away, reads what the model's decision loses, and asks which measure had ranked those words
# first. Beside each measure: random scores, the longest word first, the nearest word first, and the
# judge itself.
#
# The model and the clips come with the package: a tiny recogniser and **synthetic** speech. What
# wins here says **nothing about** real models; the notebook shows how to ask.

# %%
import transformers

import speechmix
from speechmix.evaluation.faithfulness.sanity import cascading_randomisation
from speechmix.inputs import bundled

transformers.utils.logging.disable_progress_bar()

# %% [markdown]
# ## What to change
#
# A model with its head, and clips with words, a target and its other spelling. A clip needs at
# least three words besides the target: with two, any order is right half of the time. Members of
# one pair (`meta["pair"]`) judge each other by patching.

# %%
model = speechmix.load(bundled.models()["tiny-french-whisper"])  # "openai/whisper-small"
clips = [
    clip for clip in bundled.clips() if len(clip.words) >= 4
]  # speechmix.read_clips("clips.tsv")
print(len(clips), "clips, such as", clips[0])

# %% [markdown]
# ## The trial
#
# Judges that know nothing of the measures: the word's sound is replaced (`mute`, here by digital
# silence and by noise), or taken from the other member of the pair (`patch`). `trial.to_dataframe()` has
# everything; a sentence says what may be said.
#
# Four of the measures are maps of layers, put together in several ways. The others go **to the
# output**: they explain the margin that the judges read. Shapley values take words away themselves,
# here by digital silence: by the judge that does the same they are shown and not judged.

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
# ## The leaderboard of one judge
#
# `over_length` is how much better a row is than ranking the longest word first, paired within
# groups of clips; `p` is the largest of the three baselines', corrected for all rows.

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
# ## Do the judges agree?
#
# Each filler is off what the model was trained on in a way of its own. How far two judges agree
# about the words of a clip bounds what a measure can be trusted for; a measure that one judge
# crowns and another does not is no winner.

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
# ## Is a measure reading the model at all?
#
# The layers of a copy are given random weights from the last to the first, and the maps are
# compared with those of before. What does not change is not read.

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
# - From a trial of real clips: the winner ranks words well *for this model's decisions on clips
# like these*, in this stack, by this judge. It was the best of many rows, so its own number is a
# little too good.
# - That a measure is wrong because it loses: Value Zeroing says what one layer's state is made of,
# not what the output needs.
