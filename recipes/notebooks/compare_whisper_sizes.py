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
# Five sizes of Whisper, one question: in which layers, and in which stack, does the cue reach the target? Layers of models of
# different depth are compared at their relative depth (0 is the first layer, 1 the last).
#
# **What is executed here.** No checkpoint is downloaded. The only trained model below is the tiny Whisper-style one that comes
# with the package (3 layers, synthetic French). The real sizes are present as *random twins of their shapes*: right width,
# number of heads and feed-forward size, but random weights, 3 layers instead of 4 to 32, and a window of 3 s instead of 30 s.
# They show what a model of this shape does without training. They say nothing about the checkpoints.

# %%
import tempfile
from functools import partial
from pathlib import Path

import pandas as pd
import transformers

import speechmix
from speechmix import bundled, plots
from speechmix.experiments.run import score_clips

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
    "large": "openai/whisper-large-v3",
}
TRAINED = []  # the sizes to load: ["tiny", "base", "small", "medium", "large"]
SEEDS = [0]  # of the random twins; a claim needs several, say range(10)
CLIPS = None  # None: clips of the package. Or "clips.tsv": speechmix.read_clips
RUN = None  # folder for maps and tables; None: a temporary one

# %% [markdown]
# ## The models
#
# A random model is made from a config alone. Those below have the published sizes, cut to 3 layers.

# %%
SHAPES = {  # width, heads, feed-forward, mel bins
    "tiny": (384, 6, 1536, 80),
    "base": (512, 8, 2048, 80),
    "small": (768, 12, 3072, 80),
    "medium": (1024, 16, 4096, 80),
    "large": (1280, 20, 5120, 128),
}
tiny_french = bundled.models()["tiny-french-whisper"]


def shaped(size):
    """Folder with the config of a size, cut to 3 layers and 3 s, and the tokenizer of the bundled model."""
    width, heads, inner, mels = SHAPES[size]
    config = transformers.WhisperConfig.from_pretrained(tiny_french)
    for side in ("encoder", "decoder"):
        config.update({f"{side}_attention_heads": heads, f"{side}_ffn_dim": inner})
    config.update({"d_model": width, "num_mel_bins": mels})
    folder = work / f"whisper-{size} shape, 3 layers"
    config.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(tiny_french).save_pretrained(folder)
    transformers.WhisperFeatureExtractor(feature_size=mels, chunk_length=3).save_pretrained(folder)
    return folder


described = []


def load(source, **options):
    """Load a model and note what it is; only one is in memory at a time."""
    model = speechmix.load(source, **options)
    million = sum(weight.numel() for weight in model.module.parameters()) / 1e6
    sizes = {stack.name: f"{len(stack)} x {stack.heads}" for stack in model.stacks.values()}
    width = model.stacks["encoder"].width
    described.append({"model": model.label, "width": width, "million weights": round(million, 1), **sizes})
    return model


trained = [HUB_IDS[size] for size in TRAINED] or [tiny_french]
shapes = [] if TRAINED else [shaped(size) for size in SHAPES]
loaders = [partial(load, source) for source in trained]
for source in [*trained, *shapes]:
    loaders += [partial(load, source, init="random", seed=seed) for seed in SEEDS]

# %% [markdown]
# ## The clips
#
# Pairs such as *notre maison* / *nos maisons*: the noun sounds the same, only the determiner tells the number. In the bundled
# clips the noun is the same sound, bit by bit.

# %%
if CLIPS:
    clips = speechmix.read_clips(CLIPS)
else:
    left = [clip for clip in bundled.clips() if clip.meta["side"] == "left" and clip.meta["control"] == "no"]
    clips = left[:6]
for clip in clips[:6]:
    cue, target = " ".join(clip.words[i].text for i in clip.cue_words), clip.words[clip.target].text
    print(f"{clip.name:12} {clip.text:24} cue: {cue:7} target: {target}")

# %% [markdown]
# ## Scoring
#
# One model after the other, so that only one is in memory. Only the target's rows are computed: the cue contribution needs no
# more. Given a folder (`RUN`), a stopped run goes on where it was.

# %%
run = score_clips(
    loaders,
    clips,
    RUN or work / "run",
    measures=["value_zeroing", "attention", "attention_norm"],
    targets="target",
    figures=0,
    progress=False,
    report=lambda line: None,
)
print(f"{run.done} pairs of clip and model scored, {len(run.skipped)} skipped")
for row in run.skipped[:5]:
    print(row)
print("\nencoder, decoder, cross: layers x heads\n")
print(pd.DataFrame(described).to_string(index=False))

# %% [markdown]
# ## By depth
#
# `speechmix.compare` puts models side by side. Solid lines are trained, dashed lines random. In decoder and cross-attention the
# row is the one that decides the spelling, where the clips have a foil.

# %%
comparison = speechmix.compare(run)
comparison.figure()

# %% [markdown]
# How to read it:
#
# - The dashed lines of all widths lie on top of each other and are flat. Without training, width and number of heads do not
#   matter, and no layer is special.
# - Only a trained line that leaves its own dashed line says something about what was learned.
# - The three measures have different floors. Attention and attention norm are means per frame, so in an untrained model each
#   of two words gets about one half. Value Zeroing zeroes a whole word, and the determiner is short. The next table sets the
#   floors beside what the word's length alone would give.

# %%
table = run.contributions
untrained = table[(table["init"] == "random") & (table["stack"] == "encoder")]
floors = 100 * untrained.groupby(["measure", "model"])[["contribution", "length_matched"]].mean()
print("encoder, without training: cue contribution, and what the cue's length alone gives (%)\n")
print(floors.round(0).astype(int).to_string())

# %% [markdown]
# ## Layer by layer
#
# The look of the published figures: trained beside random, for each stack and measure.

# %%
names = set(comparison.table.query("init == 'trained'").model)
plots.cue_heat_map(comparison.table[comparison.table.model.isin(names)])

# %% [markdown]
# ## With an interval
#
# Trained less random, at the best layer. The layer is chosen on one half of the clips and read on the other, so that choosing
# does not help. The interval is a bootstrap over pairs of clips; **with three pairs it only shows what the table looks like.**
# With several twins there are `low` and `high` too, over clips and twins, and `claim`. With one, nothing can be claimed.

# %%
shown = ["model", "stack", "measure", "trained", "random", "difference", "clips_low", "clips_high", "groups"]
head = comparison.headline[comparison.headline.model.isin(names)]
print(head[shown].round(0).to_string(index=False, float_format="{:.0f}".format))

# %% [markdown]
# With several trained sizes there is also `comparison.pairs` (one model against another, on the same clips) and
# `comparison.by_depth` (each quarter of the depth). `comparison.write(folder)` writes a page with all of it.
#
# ## What not to conclude
#
# - From this notebook as it is: nothing about Whisper. The shapes are untrained and cut to 3 layers.
# - From the real sizes: a larger model with a lower curve need not use the cue less. It may use it in another stack, or in one
#   layer instead of three. Look at all stacks, and ablate (`speechmix.ablate`).
# - The encoder hears 30 s, and most of it is padding for a short clip. Word maps leave padding out before rows are normalised;
#   `include=["padding"]` shows how much it takes.
