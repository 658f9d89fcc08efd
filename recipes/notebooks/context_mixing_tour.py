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
# # A tour of the measures
#
# *Context mixing* is what a Transformer layer does: it builds the new state of one position (the
# **target**, a row) out of the states of many (the **sources**, the columns). A *measure* says how
# much of each source goes into each target.
#
# This notebook draws every measure that speechmix has, on one sentence and on one spoken clip.
#
# **What is real here.** The text models are tiny, random and made in this notebook: their maps show
# what a measure looks like, and nothing about language. The speech models are the two tiny
# recognisers that come with the package; they are trained, but on synthetic French. One line each
# is all there is to change for real models; it is marked.

# %%
# On Colab, or wherever speechmix is missing: install it from a checkout (or a git URL, or a wheel).
import importlib.util
import subprocess
import sys

SPEECHMIX = "."  # where to install speechmix from
if importlib.util.find_spec("speechmix") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", SPEECHMIX], check=True)

# %%
import textwrap
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import transformers
from IPython.display import Audio

import speechmix
from speechmix.inputs import bundled
from speechmix.mixing.measures import MEASURES
from speechmix.reporting import plots

transformers.utils.logging.disable_progress_bar()
warnings.simplefilter("ignore")  # what integrated gradients miss is printed below

# %% [markdown]
# ## The measures
#
# A measure of one layer needs only what happens inside that layer. The gradient measures (and
# `hta_input`) look at the whole model. Gradient measures explain one number, such as the logit of
# the target, so their maps have a single row.

# %%
for measure in MEASURES.values():
    lines = textwrap.wrap(measure.description, 84) + textwrap.wrap(measure.citation, 84)
    print(measure.name, *lines, sep="\n    ", end="\n\n")

# %% [markdown]
# ## 1. A sentence
#
# A BERT-style encoder: post-norm, three layers. **Random weights, a vocabulary of seven words.**

# %%
words = "either you win lose the game or .".split()
special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
tokenizer = transformers.BertTokenizer(
    vocab={word: index for index, word in enumerate(special + words)}
)

shape = {
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "hidden_size": 48,
    "intermediate_size": 96,
}
config = transformers.BertConfig(vocab_size=len(tokenizer), initializer_range=0.3, **shape)
module = transformers.BertForMaskedLM(config)

# The one line to change for a real model: text_model = speechmix.load("bert-base-uncased")
text_model = speechmix.load(module, init="random", seed=0, processor=tokenizer)
print(text_model.describe())

# %% [markdown]
# The word *win* tells that the masked verb should be *lose*. So *win* is the **cue** and the mask
# is the **target**. The gradient measures explain the contrast of two spellings: the logit of
# *lose* less the logit of
# *win*.

# %%
sentence = speechmix.Sentence(
    "Either you win the game or you <mask> the game.", cue="win", target="<mask>"
)


def score_all(model, item, names=MEASURES, **options):
    """Maps of every measure that the model has; and for the others, the reason why not."""
    maps, refused = {}, {}
    for name in names:
        try:
            maps.update(speechmix.mix(model, item, measures=name, **options))
        except speechmix.SpeechmixError as error:
            refused[name] = str(error)
    return maps, refused


text_maps, refused = score_all(text_model, sentence, objective=("lose", "win"))
print(f"{len(text_maps)} measures, refused: {refused or 'none'}")


# %% [markdown]
# ### Every measure in every layer
#
# Rows of a panel are targets, columns are sources, both in the order of the sentence. Each row is
# shown as shares that sum to 100 %. All panels have one colour scale, which ends at 40 %.


# %%
def label_both(ax, m, size=6):
    ax.set_yticks(range(len(m.targets)), [span.label for span in m.targets], size=size)
    ax.set_xticks(range(len(m.sources)), [span.label for span in m.sources], rotation=90, size=size)


def facets(maps, stack, top=40):
    """Panels: measures downwards, layers to the right."""
    square = {name: m for (name, of), m in maps.items() if of == stack and len(m.targets) > 1}
    layers = sorted({layer for m in square.values() for layer in m.layers})
    size = (1.25 * len(layers) + 3, 1.1 * len(square) + 0.8)
    figure, axes = plt.subplots(
        len(square),
        len(layers),
        figsize=size,
        layout="constrained",
        squeeze=False,
        sharex=True,
        sharey="row",
    )
    for row, (name, m) in zip(axes, square.items(), strict=True):
        row[0].set_ylabel(name.replace("_", "\n"), rotation=0, ha="right", va="center", size=8)
        for ax, layer in zip(row, layers, strict=True):
            values = 100 * m.normalized().layer(layer)
            image = ax.imshow(values, vmin=0, vmax=top, cmap="magma_r", aspect="auto")
            label_both(ax, m)
    for ax, layer in zip(axes[0], layers, strict=True):
        ax.set_title(f"layer {layer}", size=9)
    extend = "max" if top < 100 else "neither"
    figure.colorbar(image, ax=axes, label="share of row (%)", extend=extend, shrink=0.3)
    return figure


facets(text_maps, "encoder").suptitle("random BERT-style model", size=9)
plt.show()

# %% [markdown]
# Some things to see, which the architecture explains and not the weights:
#
# - Measures that count the residual stream (`attention_norm_residual`, `globenc`, `hta`) show the
# diagonal: a part of each state stays where it was. `alti` counts it too, but here a few sources
# outweigh it. `attention` and `attention_norm` leave it out. `value_zeroing` does not show it
# either: zeroing a value never removes what the residual stream carries.
# - `hta_input` looks through all layers below. In layer 0 it is the same as `hta`; higher up it is
# nearly even.
# - `random` knows nothing. It is the floor for any statistic that you compute.
#
# ### The row of the target
#
# What did each source give to the mask? Here the gradient measures join in, because this row is the
# only one they have.


# %%
def target_rows(maps, stack, item, top=40, shift=0):
    """One panel a layer: measures downwards, sources to the right; the row of the target."""
    rows = {}
    for (name, of), m in maps.items():
        if of == stack:
            chosen = [i for i, span in enumerate(m.targets) if span.word == item.target]
            if len(m.targets) > 1:
                chosen = [i - shift for i in chosen]
            rows[name] = m, 100 * m.normalized().scores[:, chosen].mean(axis=1)
    m = next(iter(rows.values()))[0]
    size = (2.4 * len(m.layers) + 2, 3.6)
    figure, axes = plt.subplots(1, len(m.layers), figsize=size, layout="constrained", sharey=True)
    for ax, layer in zip(axes, m.layers, strict=True):
        missing = np.full(len(m.sources), np.nan)  # not computed in this layer
        shares = [
            row[of.layers.index(layer)] if layer in of.layers else missing
            for of, row in rows.values()
        ]
        image = ax.imshow(shares, vmin=0, vmax=top, cmap="magma_r", aspect="auto")
        ax.set_facecolor("0.85")
        ax.set_yticks(range(len(rows)), [name.replace("_", " ") for name in rows], size=7)
        ax.set_xticks(
            range(len(m.sources)), [span.label for span in m.sources], rotation=90, size=7
        )
        for label, span in zip(ax.get_xticklabels(), m.sources, strict=True):
            if span.word is not None and span.word in (*item.cue_words, item.target):
                label.set(
                    color="#0072B2" if span.word in item.cue_words else "#D55E00", fontweight="bold"
                )
        ax.set_title(f"layer {layer}", size=9)
    figure.colorbar(
        image, ax=axes, label="share of row (%)", extend="max" if top < 100 else "neither"
    )
    return figure


target_rows(text_maps, "encoder", sentence)
plt.show()

# %% [markdown]
# The cue is blue, the target orange. In a trained model you would now ask which measure puts its
# weight on the cue, in which layer. `speechmix.cue_contribution` gives that number: the share of
# the cue's columns in the target's row.

# %%
found = {
    name: 100 * speechmix.cue_contribution(m, cue=sentence.cue, target=sentence.target)
    for (name, _), m in text_maps.items()
}
print(pd.DataFrame(found).T.round(1).rename(columns="layer {}".format).to_string())

# %% [markdown]
# There are 13 columns, so a measure that knows nothing gives 8 % on average. These numbers mean no
# more than that: the model is random.
#
# ### From layer to layer
#
# A map speaks of one layer. *Rollout* multiplies the maps of all layers, *flow* solves a
# maximum-flow problem through them: what do the input tokens give to the last layer? For measures
# that leave the residual stream out, both add it (say `residual=` to decide yourself). `hta_input`
# answers the same question directly.

# %%
chosen = ("attention", "attention_norm", "value_zeroing", "globenc", "alti", "hta")
rolled = {f"rollout of {name}": text_maps[name, "encoder"].rollout() for name in chosen}
rolled["flow of attention"] = text_maps["attention", "encoder"].flow()
rolled["hta_input"] = text_maps["hta_input", "encoder"]
figure, axes = plt.subplots(2, 4, figsize=(9.5, 5), layout="constrained", sharex=True, sharey=True)
for ax, (name, m) in zip(axes.flat, rolled.items(), strict=True):
    image = ax.imshow(100 * m.normalized().layer(2), vmin=0, vmax=40, cmap="magma_r")
    ax.set_title(name.replace("_", " "), size=8)
    label_both(ax, m)
figure.colorbar(image, ax=axes, label="share of row (%)", extend="max")
plt.show()

# %% [markdown]
# The *mixing ratio* is one number for each target: how much of its state comes from other
# positions. It depends on the vectors that are compared.

# %%
names = [f"mixing_ratio_{of}" for of in ("attention_norm", "attention_norm_residual", "globenc")]
for (name, _), m in speechmix.mix(text_model, sentence, measures=names).items():
    layers = ", ".join(f"{100 * ratio:.0f} %" for ratio in m.mixing_ratio().mean(axis=-1))
    print(f"{name:38} layers 0, 1, 2: {layers}")

# %% [markdown]
# ### Where a measure is not defined, it says so
#
# A GPT-style decoder is causal and pre-norm. Random too. No layer norm follows its residual sums,
# so two measures refuse and name what to use instead.

# %%
shape = {"n_layer": 3, "n_head": 4, "n_embd": 48, "bos_token_id": 2, "eos_token_id": 3}
config = transformers.GPT2Config(vocab_size=len(tokenizer), initializer_range=0.3, **shape)
module = transformers.GPT2LMHeadModel(config)

# For a real model: decoder_model = speechmix.load("gpt2")
decoder_model = speechmix.load(module, init="random", seed=0, processor=tokenizer)
text = "Either you win the game or you lose the game."
plain = speechmix.Sentence(text, cue="win", target="lose", foil="win")
decoder_maps, refused = score_all(decoder_model, plain)
for reason in refused.values():
    print(textwrap.fill(reason, 96), end="\n\n")

# %% [markdown]
# A decoder predicts a word one position before the one that holds it. So the row to look at is that
# of *you*, which predicts
# *lose*; nothing comes from later words.

# %%
target_rows(decoder_maps, "decoder", plain, shift=1).suptitle("random GPT-style model", size=9)
plt.show()

# %% [markdown]
# ## 2. A spoken clip
#
# *mes dessins brillent* ("my drawings shine"). *Dessins* sounds like the singular *dessin*; only
# *mes* tells that it is plural. So *mes* is the cue and *dessins* the target. The clip is synthetic
# speech and comes with the package.

# %%
# For a clip of your own: speechmix.Clip.from_file("a.wav", words="a.TextGrid", cue=..., target=...)
clip = next(clip for clip in bundled.clips() if clip.name == "left_18_pl")
print(clip)
Audio(clip.audio(16_000), rate=16_000)

# %% [markdown]
# The first model is a CTC recogniser of XLSR's shape: an encoder of 4 pre-norm layers. It hears the
# clip as frames of 20 ms; maps are made of words. The two Jacobian measures need a backward pass
# for every dimension of every frame of a target, so they are asked for in one layer only, and for
# the target's row alone.

# %%
# For a real model: ctc = speechmix.load("jonatasgrosman/wav2vec2-large-xlsr-53-french")
ctc = speechmix.load(bundled.models()["tiny-french-ctc"])
print(ctc.describe(), end="\n\n")

jacobians = ("hta", "hta_input")
others = [name for name in MEASURES if name not in jacobians]
speech_maps, refused = score_all(ctc, clip, others)
speech_maps |= score_all(ctc, clip, jacobians, layers=[1], targets="target")[0]
for reason in refused.values():
    print(textwrap.fill(reason, 96), end="\n\n")

missed = speech_maps["integrated_gradients", "encoder"].provenance["completeness"]["missed"]
print(f"integrated gradients miss up to {max(missed):.2%} of what they should add up to")

# %% [markdown]
# One map, each column under the sound that it stands for:

# %%
plots.sound_and_map(clip, speech_maps["value_zeroing", "encoder"], layer=2)

# %% [markdown]
# All measures, then the row of the target.

# %%
facets(speech_maps, "encoder", top=100).suptitle("tiny-french-ctc, mes dessins brillent", size=9)
plt.show()

# %%
target_rows(speech_maps, "encoder", clip, top=100)
plt.show()

# %% [markdown]
# Grey rows were not computed in that layer. Mind one difference before you compare rows:
# `value_zeroing` and `alti` take a word as a whole, so a long word gets more. Attention, attention
# norms, Jacobians and gradients are means per frame. *mes* is the shortest of the three words.
#
# ## 3. Encoder, cross-attention, decoder
#
# The second model is Whisper-style and has three stacks. In the decoder the units are tokens (this
# one spells letter by letter), in cross-attention tokens listen to words. The measures that are
# defined in all three:

# %%
# For a real model: whisper = speechmix.load("openai/whisper-small")
whisper = speechmix.load(bundled.models()["tiny-french-whisper"])
print(whisper.describe())

names = ("value_zeroing", "attention", "attention_norm", "alti", "gradient_input", "random")
whisper_maps = speechmix.mix(whisper, clip, measures=names)
plots.clip_figure(clip, {key: m for key, m in whisper_maps.items() if key[0] == "value_zeroing"})

# %% [markdown]
# Outlined is what the cue gives to the target. In the last decoder layer the *s* of *dessins* is
# written from the *s* of *mes*: the row that decides the number looks at the one letter that tells
# it. The mean over all letters of the word hides most of that, so ask for the deciding row.

# %%
asked = [
    ("encoder", "target"),
    ("cross", "target"),
    ("cross", "deciding"),
    ("decoder", "target"),
    ("decoder", "deciding"),
]
found = {}
for stack, which in asked:
    for name in names:
        if which == "target" or name != "gradient_input":  # its one row is the deciding one already
            m = whisper_maps[name, stack]
            share = 100 * speechmix.cue_contribution(
                m, cue=clip.cue, target=clip.target, rows=which
            )
            found |= {(name, f"{stack}, {which} rows", layer): share[layer] for layer in m.layers}
table = pd.Series(found).unstack([1, 2]).loc[list(names)]
print("cue contribution in %, by layer\n")
for title in dict.fromkeys(table.columns.get_level_values(0)):
    print(
        title,
        table[title].to_string(float_format="{:.0f}".format, na_rep="-"),
        sep="\n",
        end="\n\n",
    )

# %% [markdown]
# ### One map from sound to letters
#
# The three stacks can be composed into one: what do the words of the audio, and the letters already
# written, give to each letter? Below, ALTI, composed up to the last decoder layer.

# %%
composed = whisper_maps.composed("alti")
print(composed)
figure, ax = plt.subplots(figsize=(7, 5.2), layout="constrained")
plots.heat_map(composed, ax=ax)
plt.show()

# %% [markdown]
# ## What not to conclude
#
# - These are one sentence and one clip. A study needs many, beside random twins of each model
# (`init="random"`).
# - Heights of different measures cannot be compared: they count different things, and word length
# enters some of them.
# - Attention is not contribution: a source with a large weight may have a value vector of no
# length.
# - A high share says that the state was built from the cue, not that the cue's *number* was used.
# `speechmix.ablate` asks that.
