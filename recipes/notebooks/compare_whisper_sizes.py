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
# # Compare Whisper sizes
#
# Six Whispers, one question: in which layers, and in which stack, does the cue reach the target?
# And before that: which of them can your machine do, and how long will it take? Layers of models of
# different depth are compared at their relative depth (0 is the first layer, 1 the last).
#
# **What is executed here.** No checkpoint is downloaded. The real sizes are present as *random
# twins of their shapes*: the published width, heads, feed-forward, number of layers (4 + 4 for
# tiny, 32 + 4 for large-v3-turbo) and window of 30 s, but random weights, and the letters of the
# package's tiny tokenizer for a vocabulary. All six are scored, on **one** synthetic clip, one twin
# each, target rows alone; one model is in memory at a time, 6.2 GB for large-v3 (`SIZES` below is
# the list). The one trained model is the tiny Whisper-style one of the package (3 layers, synthetic
# French). What follows shows what a model of a shape does without training. It says nothing about
# the checkpoints.

# %%
# On Colab, or wherever speechmix is missing: install it from a checkout (or a git URL, or a wheel).
import importlib.util
import subprocess
import sys

SPEECHMIX = "."  # where to install speechmix from
if importlib.util.find_spec("speechmix") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", SPEECHMIX], check=True)

# %%
import tempfile
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import transformers

import speechmix
from speechmix.inputs import bundled
from speechmix.reporting import plots
from speechmix.runs.score_clips import score_clips

transformers.utils.logging.disable_progress_bar()
work = Path(tempfile.mkdtemp())

# %% [markdown]
# ## What to change
#
# For the real comparison edit this cell; it is the only one.

# %%
HUB_IDS = {
    "tiny": "openai/whisper-tiny",
    "base": "openai/whisper-base",
    "small": "openai/whisper-small",
    "medium": "openai/whisper-medium",
    "turbo": "openai/whisper-large-v3-turbo",
    "large-v3": "openai/whisper-large-v3",
}
TRAINED = False  # True: the checkpoints behind the hub ids, each with its twins
SIZES = ["tiny", "base", "small", "medium", "turbo", "large-v3"]  # what is scored
SEEDS = [0]  # of the random twins; a claim needs several, say range(10)
CLIPS = None  # None: clips of the package. Or "clips.tsv": speechmix.read_clips
RUNS = None  # folder for the runs, one a size; None: a temporary one

# %% [markdown]
# ## What it costs
#
# `speechmix.estimate` needs a config alone: of a hub id nothing else is downloaded. Parameters,
# layers and operations are counted, memory and seconds are computed. `speechmix estimate --model
# openai/whisper-small --clips
# 200` prints the same, with the rate of your machine measured; here a fixed rate stands in the
# table, so that it is the same table everywhere.

# %%
SHAPES = {  # width, encoder layers, decoder layers, heads, mel bins, vocabulary
    "tiny": (384, 4, 4, 6, 80, 51_865),
    "base": (512, 6, 6, 8, 80, 51_865),
    "small": (768, 12, 12, 12, 80, 51_865),
    "medium": (1024, 24, 24, 16, 80, 51_865),
    "turbo": (1280, 32, 4, 20, 128, 51_866),
    "large-v3": (1280, 32, 32, 20, 128, 51_866),
}


def config_of(size, like=None):
    """Config of a published size; `like` another model in its vocabulary."""
    width, encoder_layers, decoder_layers, heads, mels, vocabulary = SHAPES[size]
    config = (
        transformers.WhisperConfig.from_pretrained(like)
        if like
        else transformers.WhisperConfig(vocab_size=vocabulary)
    )
    config.update(
        {
            "d_model": width,
            "num_mel_bins": mels,
            "max_source_positions": 1500,
            "max_target_positions": 448,
        }
    )
    config.update({"encoder_layers": encoder_layers, "decoder_layers": decoder_layers})
    for side in ("encoder", "decoder"):
        config.update({f"{side}_attention_heads": heads, f"{side}_ffn_dim": 4 * width})
    return config


costs = {}
for size in SHAPES:
    config_of(size).save_pretrained(work / "configs" / size)
    costs[size] = speechmix.estimate(work / "configs" / size, targets="target", device="cpu")
rows = []
for size, cost in costs.items():
    of_size = cost.row
    rows.append(
        {
            "Whisper": size,
            "layers": f"{cost.stacks['encoder'][0]} + {cost.stacks['decoder'][0]}",
            "million parameters": of_size["million parameters"],
            "memory (GB)": of_size["memory (GB)"],
            "GFLOP a clip": of_size["GFLOP a clip"],
            "s on a CPU of 100 GFLOP/s": round(
                cost.operations.total / 75e9, 1
            ),  # 75 % of the rate are reached
            "s on an A100": of_size["s a clip, NVIDIA A100"],
        }
    )
print(
    "counted: layers, parameters, GFLOP; computed: memory, seconds (Value Zeroing, target rows, a "
    "clip of 5 s)\n"
)
print(pd.DataFrame(rows).to_string(index=False))

# %% [markdown]
# All six have the same three stacks: `encoder`, `decoder` and `cross` (the decoder's layers,
# attention to the sound). Of the operations nine in ten are the forward pass, most of it in the
# encoder, which always takes 30 s of audio. Turbo has an eighth of large-v3's decoder layers: it
# needs 59 % of the memory and 12 % fewer operations. Seconds can differ by more than operations do:
# the last figure compares the estimate with a measurement.
#
# ## The models

# %%
tiny_french = bundled.models()["tiny-french-whisper"]


def shaped(size):
    """Folder with the config of a size, and the letters of the bundled model."""
    folder = work / "shapes" / size
    config_of(size, like=tiny_french).save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(tiny_french).save_pretrained(folder)
    transformers.WhisperFeatureExtractor(feature_size=SHAPES[size][4]).save_pretrained(folder)
    return folder


def loaders_of(size):
    """Functions that load the models of a size, so that only one is in memory at a time."""
    source = HUB_IDS[size] if TRAINED else shaped(size)
    twins = [partial(speechmix.load, source, init="random", seed=seed) for seed in SEEDS]
    return [partial(speechmix.load, source), *twins] if TRAINED else twins


# %% [markdown]
# ## The clips
#
# Pairs such as *notre maison* / *nos maisons*: the noun sounds the same, only the determiner tells
# the number. One clip will do for
# weights that are random.

# %%
if CLIPS:
    clips = speechmix.read_clips(CLIPS)
else:
    left = [
        clip
        for clip in bundled.clips()
        if clip.meta["side"] == "left" and clip.meta["control"] == "no"
    ]
    clips = left[:1]
for clip in clips[:6]:
    cue, target = " ".join(clip.words[i].text for i in clip.cue_words), clip.words[clip.target].text
    print(f"{clip.name:12} {clip.text:24} cue: {cue:7} target: {target}")

# %% [markdown]
# ## Scoring
#
# A run for each size, one model in memory at a time, and only the target's rows: the cue
# contribution needs no more. Given a folder (`RUNS`), a stopped run goes on where it was, and a
# size can be added later.


# %%
def score(name, loaders):
    """Score the clips into a folder of the name's own."""
    return score_clips(
        loaders,
        clips,
        Path(RUNS or work / "runs") / name,
        measures=["value_zeroing", "attention", "attention_norm"],
        targets="target",
        figures=0,
        progress=False,
        report=lambda line: None,
    )


trained_here = [
    partial(speechmix.load, tiny_french),
    partial(speechmix.load, tiny_french, init="random", seed=0),
]
runs = [] if TRAINED else [score("tiny French", trained_here)]
for size in SIZES:
    runs.append(score(size, loaders_of(size)))
for run in runs:
    print(f"{run.out.name:12} {run.done} scored, {len(run.skipped)} skipped")

# %% [markdown]
# ## By depth
#
# A panel for each model. Solid is trained, dashed random. In decoder and cross-attention the row is
# the one that decides the spelling, where the clips have a foil.

# %%
table = (
    speechmix.compare(*runs).to_dataframe()
    if TRAINED
    else pd.concat([run.contributions for run in runs])
)
plots.model_panels(table, measure="value_zeroing", band="none")

# %%
plots.model_panels(table, measure="attention", band="none")

# %% [markdown]
# How to read it:
#
# - Dashed lines are flat, at whatever depth and width: without training no layer is special. Only a
# trained line that leaves its own
#   dashed line says something about what was learned.
# - Relative depth makes 4 + 4 and 32 + 4 layers comparable, but a point of turbo's decoder is a
# quarter of its depth, one of its
#   encoder a thirty-second part: a peak in one layer of a deep stack is narrow.
# - The measures have different floors. Attention is a mean per frame, Value Zeroing takes a whole
# word, and the determiner is short.
#   The next table sets the floors beside what the word's length alone would give.

# %%
untrained = table[(table["init"] == "random") & (table["stack"] == "encoder")]
floors = (
    100
    * untrained.groupby(["measure", "model"], observed=True)[
        ["contribution", "length_matched"]
    ].mean()
)
print("encoder, without training: cue contribution, and what the cue's length alone gives (%)\n")
print(floors.round(0).astype(int).to_string())

# %% [markdown]
# ## What it took
#
# `times.csv` in a run's folder says how long each phase took. The figure compares this with the
# estimate, on the machine that executed the notebook (two cores shared with other work, one thread,
# one clip a size). The estimate is for Value Zeroing in a clip of 5 s; three measures were computed
# in a clip of one second. In both, most of the time is the forward pass. One clip on a shared
# machine is a rough measurement. Where turbo takes less time here than its operations say, measure
# it on your own machine before you rely on it.

# %%
rate = max(
    cost.rate for cost in costs.values()
)  # one machine: what it reached while nothing else kept it busy
figure, ax = plt.subplots(figsize=(6, 2.4), layout="constrained")
for place, (size, run) in enumerate(zip(SIZES, runs[-len(SIZES) :], strict=True)):
    times = speechmix.open_run(run.out).times
    seconds = times[
        times["phase"].isin(["forward", "maps", "value_zeroing", "attention", "attention_norm"])
    ]["seconds"].sum()
    seconds /= run.done
    ax.plot(
        costs[size].seconds_per_clip,
        place,
        "o",
        mfc="white",
        color="black",
        label="estimated" if not place else None,
    )
    ax.plot(seconds, place, "o", color="black", label="measured" if not place else None)
ax.set_yticks(range(len(SIZES)), SIZES)
ax.set_xscale("log")
ax.set_xlabel("seconds a clip")
ax.legend(frameon=False)
plt.show()

# %% [markdown]
# With checkpoints (`TRAINED = True`) `speechmix.compare(*runs)` has the rest: `headline` (trained
# less random, with intervals), `pairs`
# (one model against another, on the same clips) and `by_depth`; `write(folder)` makes a page of it.
#
# ## What not to conclude
#
# - From this notebook as it is: nothing about Whisper. The shapes are untrained, and one clip is no
# sample.
# - From the real sizes: a larger model with a lower curve need not use the cue less. It may use it
# in another stack, or in one layer instead of three. Look at all stacks, and ablate
# (`speechmix.ablate`).
# - From the seconds on a GPU: they are arithmetic at 40 % of the card's peak, computed and not
# measured.
# - The encoder hears 30 s, and most of it is padding for a short clip. Word maps leave padding out
# before rows are normalised; `include=["padding"]` shows how much it takes.
