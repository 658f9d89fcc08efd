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
# # Find out why a classifier of speech gave a label
#
# An *attribution* says how much each word of the audio contributes to the label. This notebook
# compares one attribution, LRP, with the *effect of removal*: each word is
# muted, and the classifier runs again.
#
# The classifier says whether a French phrase is singular or plural. Its encoder is the small
# recogniser that comes with the package, its head is fitted below. The clips are **synthetic**
# speech. The result says **nothing about** real models; the notebook shows the method.

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
import torch
import transformers
from sklearn.linear_model import LogisticRegression

import speechmix
from speechmix.inputs import bundled

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

# %% [markdown]
# ## A classifier
#
# With a trained classifier, one line replaces the next two cells, for example
# `model = speechmix.load("superb/wav2vec2-base-superb-er")` for emotions. Read your own clips with
# `speechmix.read_clips("clips.tsv")`.
#
# The head reads the mean of the last states. Its weights come from a logistic regression on 16
# phrases. The other 16 phrases show how often it is right.

# %%
PATH = bundled.models()["tiny-french-ctc"]
number = {0: "singular", 1: "plural"}
clips = [c for c in bundled.clips() if c.name.startswith("left") and c.meta["control"] == "no"]
labels = [int(clip.meta["number"] == "pl") for clip in clips]
processor = transformers.AutoProcessor.from_pretrained(PATH)
module = transformers.AutoModelForAudioClassification.from_pretrained(
    PATH, dtype=torch.float32, classifier_proj_size=144, id2label=number
)

# %%
with torch.no_grad():
    options = {"sampling_rate": 16_000, "return_tensors": "pt"}
    sounds = [processor(clip.audio(16_000), **options) for clip in clips]
    states = torch.cat([module.wav2vec2(**sound).last_hidden_state.mean(1) for sound in sounds])
    head = LogisticRegression(C=100, max_iter=2_000).fit(states[:16], labels[:16])
    module.projector.load_state_dict({"weight": torch.eye(144), "bias": torch.zeros(144)})
    weights = torch.tensor(head.coef_).float()
    module.classifier.weight.copy_(torch.cat([-weights, weights]) / 2)
    module.classifier.bias.copy_(torch.tensor([-1.0, 1.0]) * head.intercept_[0] / 2)
model = speechmix.load(module, processor=processor)
print(f"right for {head.score(states[16:], labels[16:]):.0%} of the phrases it was not fitted on")

# %% [markdown]
# ## Attribution and effect of removal
#
# What is explained is the margin: the logit of the phrase's label minus that of the other label.
# LRP splits it into contributions of words. `ablate_input` replaces each word by noise of the same
# level and spectrum, and reads how far the margin drops. A positive number speaks for the label.


# %%
def explain(clip):
    is_plural = clip.meta["number"] == "pl"
    options = {"objective": ("plural", "singular") if is_plural else ("singular", "plural")}
    drops = speechmix.ablate_input(model, clip, fills=["noise"], **options)
    lrp = speechmix.logit_contributions(model, clip, measure="lrp", **options)
    table = drops.to_dataframe()[["item", "label", "drop"]]
    return drops, table.assign(lrp=lrp.scores["encoder"][0])


drops, table = explain(clips[17])
table.round(2)

# %%
ax = drops.plot()

# %% [markdown]
# ## All held-out phrases
#
# One phrase proves nothing. Each row below is the share of the held-out phrases in which the
# determiner (the only word that differs in sound) speaks more for the label than the noun does.

# %%
tables = pd.concat(explain(clip)[1] for clip in clips[16:])
words = tables.groupby("item")[["drop", "lrp"]]
(words.first() > words.last()).mean().round(2)

# %% [markdown]
# ## What not to conclude
#
# An effect of removal belongs to one way to remove a word. Try other fills (`fills=["zeros",
# "noise", "word"]`) before you trust an order. Sixteen phrases of two words are too few to compare
# measures; `speechmix.faithfulness` has intervals and baselines for that.
