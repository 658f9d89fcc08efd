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
# # From your own 40 clips to a figure for a paper
#
# Forty recordings in which one word decides how another is spelled; at the end a figure of one
# column with the sentence that goes with it. The steps are: a manifest, a look at the alignment,
# scores of a model and of nine untrained twins, what may be claimed, the figure.
#
# **What is executed here.** In the place of your own clips stand the synthetic clips of the
# package, and in that of a Whisper the tiny model that was trained on such clips. The figure shows
# how to make one. It says nothing about real speech models.

# %%
# On Colab, or wherever speechmix is missing: install it from a checkout (or a git URL, or a wheel).
import importlib.util
import subprocess
import sys

SPEECHMIX = "."  # where to install speechmix from
if importlib.util.find_spec("speechmix") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", SPEECHMIX], check=True)

# %%
import shutil
import tempfile
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import transformers
from matplotlib.lines import Line2D

import speechmix
from speechmix.inputs import bundled
from speechmix.reporting import plots
from speechmix.reporting.pages.result_sentences import result_sentences
from speechmix.runs.score_clips import score_clips

transformers.utils.logging.disable_progress_bar()
work = Path(tempfile.mkdtemp())

# %% [markdown]
# ## What to change

# %%
MANIFEST = None  # "clips.tsv"; None: one is written below, of the package's clips
MODEL = "bundled:tiny-french-whisper"  # "openai/whisper-small"
ALIGNER = "bundled:tiny-french-ctc"  # "jonatasgrosman/wav2vec2-large-xlsr-53-french"
SEEDS = range(9)  # of the untrained twins: with fewer than five nothing is concluded
MEASURE = "value_zeroing"
OUT = work  # a folder of your own: the run can be stopped and goes on

# %% [markdown]
# ## The manifest
#
# One row a clip: where the sound is, what is said, which word is the cue, which the target, how the
# target would be spelled otherwise. `pair` says which clips belong together; clips that share a
# pair, a sentence or a target word are one *group*, and all that follows counts groups, not clips:
# two recordings of one noun are not two pieces of evidence.

# %%
if MANIFEST is None:
    rows = [
        {
            "path": Path(shutil.copy(clip.path, work)).name,
            "name": clip.name,
            "text": clip.text,
            "language": "fr",
            "pair": clip.meta["pair"],
            "cue": clip.words[clip.cue_words[0]].text,
            "target": clip.words[clip.target].text,
            "foil": clip.foil,
        }
        for clip in bundled.clips()
        if clip.meta["side"] == "left" and clip.meta["control"] == "no"
    ]
    MANIFEST = work / "clips.tsv"
    pd.DataFrame(rows).to_csv(MANIFEST, sep="\t", index=False)
clips = speechmix.read_clips(MANIFEST)
print(len(clips), "clips")
print(
    pd.read_csv(MANIFEST, sep="\t")
    .drop(columns=["path", "language"])
    .head(4)
    .to_string(index=False)
)

# %% [markdown]
# ## Is each word where the aligner says?
#
# A wrong boundary is a wrong score. `doubts` names what the aligner itself finds odd; and some
# clips have to be looked at (in Praat)
# or listened to. Of the synthetic clips the true times are known, so the error can be told; of your
# own, correct ten by hand and
# do the same.

# %%
aligner = speechmix.load(ALIGNER)
clips = [speechmix.align(clip, model=aligner, method="ctc") for clip in clips]
doubtful = [clip.name for clip in clips if clip.doubts]
print("doubts:", ", ".join(doubtful) or "none")
known = {clip.name: clip for clip in bundled.clips()}
errors = [
    abs(word.start - true.start)
    for clip in clips
    if clip.name in known
    for word, true in zip(clip.words[1:], known[clip.name].words[1:], strict=True)
]
if errors:
    print(
        f"beginnings of words: half are within {1000 * np.median(errors):.0f} ms of the truth, "
        f"the worst {1000 * max(errors):.0f} ms"
    )

# %% [markdown]
# ## The scores
#
# What it will cost can be asked first (`speechmix.estimate`). Then the trained model and its twins:
# the same architecture with random weights, ten draws of it. Without them a number means nothing,
# for even an untrained model gives a share to every word.

# %%
cost = speechmix.estimate(
    MODEL, seconds=1, clips=len(clips), targets="target", twins=len(SEEDS), device="cpu"
)
print(
    f"{cost.parameters / 1e6:.1f} million parameters, {cost.operations.total / 1e9:.2f} GFLOP a "
    "clip"
)
loaders = [partial(speechmix.load, MODEL)]
loaders += [partial(speechmix.load, MODEL, init="random", seed=seed) for seed in SEEDS]
run = score_clips(
    loaders,
    clips,
    OUT / "run",
    measures=[MEASURE],
    targets="target",
    figures=0,
    progress=False,
    report=lambda line: None,
)
print(f"{run.done} pairs of clip and model scored, {len(run.skipped)} skipped")

# %% [markdown]
# ## What may be claimed
#
# Fixed before looking: trained minus untrained, over whole stacks, each layer weighted by its
# mixing strength. `low` and `high` are the interval of the difference to *one more untrained model*,
# over groups of clips and twins, 95 % together over all rows. `claim` is empty where it includes
# zero, or where there are fewer than 15 groups or 5 twins. `length_matched` is what a word of the
# cue's length would contribute.

# %%
comparison = speechmix.compare(run)
head = comparison.headline
columns = [
    "stack",
    "trained",
    "random",
    "difference",
    "low",
    "high",
    "claim",
    "groups",
    "twins",
    "length_matched",
]
print(head[columns].round(3).to_string(index=False))

# %% [markdown]
# ## The figure
#
# One column (8.5 cm), letters of 7 points and more, black against grey with other dashes, so that
# it can be read in print without colour. Lines are means over groups. The band of the trained model
# is the interval of the mean. The band of the twins is where one more untrained model is expected.
# Each holds for all layers of its curve together, 95 of 100 times.

# %%
STACKS = ["encoder", "decoder", "cross"]
table = comparison.to_dataframe().query("measure == @MEASURE")
style = {"font.size": 7, "font.family": "DejaVu Sans", "pdf.fonttype": 42, "axes.linewidth": 0.6}
with plt.rc_context(style):
    figure, axes = plt.subplots(
        1, 3, figsize=(8.5 / 2.54, 5.2 / 2.54), sharey=True, layout="constrained"
    )
    for ax, stack in zip(axes, STACKS, strict=True):
        panel = table[table["stack"] == stack]
        for init, color in (("random", "#888888"), ("trained", "#000000")):
            plots.layer_curves(
                panel[panel["init"] == init],
                ax=ax,
                colors=dict.fromkeys(panel["model"].unique(), color),
            )
        ax.set_title({"cross": "cross-attention"}.get(stack, stack), size=7)
        ax.set(xlabel="", ylabel="", ylim=(0, None))
    axes[0].set_ylabel("cue contribution (%)", size=7)
    figure.supxlabel("layer (counted from 0)", size=7)
    handles = [
        Line2D([], [], color="#000000", linewidth=1.4, label="trained"),
        Line2D(
            [],
            [],
            color="#888888",
            linestyle="--",
            linewidth=1.4,
            label=f"{len(SEEDS)} untrained twins",
        ),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=2, frameon=False, fontsize=7)
    figure.savefig(OUT / "figure.pdf", metadata={"CreationDate": None})
    figure.savefig(OUT / "figure.png", dpi=300)
    plt.show()

# %% [markdown]
# And the words for it, as the page of a study writes them; what it does not claim you cannot claim
# either:

# %%
for sentence in result_sentences(head):
    print(sentence, end="\n\n")

# %%
groups, twins = int(head["groups"].max()), int(head["twins"].max())
print(
    f"Figure 1. Share of the cue in building the target ({MEASURE.replace('_', ' ')}), by layer, "
    f"{len(clips)} clips "
    f"in {groups} groups that share no pair, sentence or word. Solid: trained model, with the 95 % "
    "interval of "
    f"the mean over groups. Dashed: mean of {twins} untrained twins, and where one more untrained "
    "model is expected. Bands: 95 % over all layers of a curve together. "
    "In decoder and cross-attention the row is the token that decides the spelling."
)

# %% [markdown]
# ## Before it is sent
#
# - **Say how many groups and twins**, not only how many clips. With fewer than 15 groups, or 5
# twins, nothing is claimed.
# - **Do not choose the stack or the measure after looking**: the table corrects over its rows, not
# over those you left out.
# - **Do not compare heights of two measures**, nor a cue's height with that of a longer word
# (`length_matched`).
# - **A map is no proof of use.** `speechmix score --ablate` silences the cue and reads whether the
# target is still spelled right.
# - `speechmix.compare(run).write(folder)` keeps all tables beside the figure; `run.json` has
# versions and options.
