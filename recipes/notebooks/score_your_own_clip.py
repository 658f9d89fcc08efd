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
# # Score a clip of your own
#
# A recording, what is said in it, and a model: which words does the model use to build which, in
# which layer?
#
# The notebook reads a sound file; it records nothing and sends nothing anywhere. Without a change
# it uses a synthetic clip and a tiny model that come with the package, and the numbers then say
# **nothing about real speech models**.

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
from pathlib import Path

import pandas as pd
import transformers
from IPython.display import Audio, display

import speechmix
from speechmix.adapters.generation.greedy_generation import transcribe
from speechmix.evaluation.cue_contribution import length_matched_share
from speechmix.inputs import bundled
from speechmix.reporting import plots

transformers.utils.logging.disable_progress_bar()

# %% [markdown]
# ## What to change
#
# - `SOUND`: WAV, FLAC, MP3 or OGG, any sample rate. For Whisper at most 30 s (`clip.cut(start,
# end)` takes a part).
# - `TEXT`: what is said, with its words in the order they are said.
# - `CUE` and `TARGET`: the two words you ask about. A word that occurs twice: `"les:2"`. For the
# maps alone, both `None`.
# - `FOIL`: the other spelling of the target, which a model that misses the cue would write. `None`
# if there is none.
# - `WORDS`: a TextGrid, CTM, JSON or table with word times, if you have one. `None` aligns the clip
# below.
# - `MODEL`: a hub id or a folder.

# %%
SOUND = next(
    clip.path for clip in bundled.clips() if clip.name == "left_00_pl"
)  # "my_recording.wav"
TEXT = "nos maisons"
CUE, TARGET, FOIL = "nos", "maisons", "maison"
LANGUAGE = "fr"
WORDS = None  # "my_recording.TextGrid"
MODEL = "bundled:tiny-french-whisper"  # "openai/whisper-small"

# %%
clip = speechmix.Clip.from_file(
    SOUND, text=TEXT, words=WORDS, cue=CUE, target=TARGET, foil=FOIL, language=LANGUAGE
)
clip.validate()
print(f"{clip.name}: {clip.duration:.2f} s, {clip.text!r}")
Audio(clip.audio(16_000), rate=16_000)

# %% [markdown]
# ## Where each word is
#
# A clip without word times is aligned. Three ways:
#
# - `method="ctc"`: forced alignment with a CTC model of the language;
# - `method="whisper"`: from the cross-attention of a Whisper model;
# - `method="synthesis"`: espeak-ng speaks the text and dynamic time warping carries its word times
# over. No model is needed, only the extra `synthesis`.

# %%
# For real French speech: aligner = speechmix.load("jonatasgrosman/wav2vec2-large-xlsr-53-french")
aligner = speechmix.load(bundled.models()["tiny-french-ctc"])
clip = speechmix.align(clip, model=aligner, method="ctc")
for word in clip.words:
    score = "" if word.score is None else f"   score {word.score:.2f}"
    print(f"{word.start:6.2f} to {word.end:5.2f} s   {word.text}{score}")
print("doubts:", *clip.doubts or ["none"])

# %% [markdown]
# Always listen to the words that you ask about. If a boundary is wrong, the scores of both its
# words are wrong. (Edit the times in Praat, save the TextGrid, and give it as `WORDS`.)

# %%
for index in [i for i in (*clip.cue_words, clip.target) if i is not None]:
    word, samples = clip.words[index], clip.audio(16_000)
    print(word.text)
    display(Audio(samples[int(word.start * 16_000) : int(word.end * 16_000)], rate=16_000))

# %% [markdown]
# ## Does the model understand the clip?
#
# If it does not, its maps are of little interest.

# %%
model = speechmix.load(MODEL)
print(model.describe())
print(f"\nsaid:    {clip.text}\nwritten: {transcribe(model, clip)}")

# %% [markdown]
# ## The maps
#
# One forward pass gives the maps of all stacks. Rows are targets (they receive), columns are
# sources (they give).

# %%
maps = speechmix.mix(model, clip, measures=["value_zeroing", "attention", "attention_norm"])
plots.sound_and_map(clip, maps["value_zeroing", "encoder"], layer=1)

# %%
plots.clip_figure(clip, {key: m for key, m in maps.items() if key[0] == "value_zeroing"})

# %% [markdown]
# Outlined is what the cue gives to the target. Any map can be seen alone and layer by layer:

# %%
maps["attention_norm", "encoder"].show()

# %% [markdown]
# ### Silence and padding
#
# Whisper hears a window of fixed length (30 s; 3 s in this tiny model) and has no mask. What lies
# behind the clip takes part in mixing. Word maps leave it out unless you ask:

# %%
with_rest = speechmix.mix(model, clip, stacks="encoder", include=["silence", "padding"])[
    "value_zeroing", "encoder"
]
ax = with_rest.plot(layer=2)

# %% [markdown]
# ## Cue contribution
#
# The share of the cue's columns in the target's row, layer by layer. By itself the number says
# little. Two baselines belong beside it: the same architecture with random weights, and what a word
# of the cue's length gets anyway.


# %%
def contributions(model, maps):
    """One row for each stack, measure and layer."""
    for (measure, stack), m in maps.items():
        shares = speechmix.cue_contribution(m, cue=clip.cue, target=clip.target)
        expected = length_matched_share(m, cue=clip.cue)
        for layer, share in zip(m.layers, shares, strict=True):
            yield {
                "model": model.label,
                "init": model.init,
                "clip": clip.name,
                "stack": stack,
                "measure": measure,
                "layer": layer,
                "contribution": share,
                "length_matched": expected,
            }


if clip.cue is not None and clip.target is not None:
    twins = [speechmix.load(MODEL, init="random", seed=seed) for seed in range(3)]
    rows = list(contributions(model, maps))
    for twin in twins:
        rows += contributions(
            twin,
            speechmix.mix(twin, clip, measures=["value_zeroing", "attention", "attention_norm"]),
        )
    table = pd.DataFrame(rows)
    wide = (
        (100 * table.pivot_table("contribution", ["stack", "measure", "layer"], "init"))
        .round(0)
        .astype(int)
    )
    wide["length-matched"] = (
        (100 * table.groupby(["stack", "measure", "layer"]).length_matched.first())
        .round(0)
        .astype(int)
    )
    print("cue contribution in %; random: mean of three seeds\n")
    print(wide[["trained", "random", "length-matched"]].to_string())

# %% [markdown]
# Read along a row: *trained* against *random*. Do not compare the heights of two measures.
#
# In a decoder that spells letter by letter, the number of a noun is decided in its last letter
# alone. With a `FOIL` that row is known:

# %%
if clip.foil:
    for stack in ("cross", "decoder"):
        if ("value_zeroing", stack) in maps:
            m = maps["value_zeroing", stack]
            shares = speechmix.cue_contribution(
                m, cue=clip.cue, target=clip.target, rows="deciding"
            )
            print(
                f"{stack:8} value zeroing, deciding row, by layer: "
                + ", ".join(f"{100 * share:.0f} %" for share in shares)
            )

# %% [markdown]
# ## Does it matter?
#
# A map says what went into a state. Whether the model *uses* it is another question.
# `speechmix.ablate` silences the cue in one stack after the other and reads whether the target is
# still preferred to its foil (a positive margin).

# %%
if clip.foil:
    print(
        speechmix.ablate(model, clip)[["ablated", "margin", "right"]]
        .round(2)
        .to_string(index=False)
    )

# %% [markdown]
# ## Keep it
#
# Maps go to files with labels and provenance, scores to any table. Here into a temporary folder;
# name one of your own.

# %%
with tempfile.TemporaryDirectory() as folder:
    for (measure, stack), m in maps.items():
        m.save(Path(folder) / f"{clip.name}.{measure}.{stack}.safetensors")
    scores = pd.concat([m.to_dataframe() for m in maps.values()])
    scores.to_csv(Path(folder) / "scores.csv", index=False)
    print(*sorted(path.name for path in Path(folder).iterdir()), sep="\n")
columns = ["stack", "measure", "layer", "target_label", "source_label", "score"]
print("\n" + scores[columns].head(4).to_string(index=False))
m = maps["value_zeroing", "encoder"]
print(
    "\nprovenance:",
    {
        key: m.provenance[key]
        for key in ("model", "weights", "alignment", "dtype", "distance", "rounding")
    },
)

# %% [markdown]
# Many clips, several models, resumable: `speechmix score --clips clips.tsv` on the command line.
