"""How exact every family is, measured against the slow oracles: makes docs/families.md.

    python -m tests.families_measured > docs/families.md

In: the tiny models that the tests use. Out: a page whose numbers are relative to the largest score
of a map: the worst of both engines, two distances and all stacks for Value Zeroing; of all heads
for attention. Takes about a minute.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
import transformers

import speechmix
from speechmix.adapters import families
from tests import oracle, oracle_by_path
from tests.conftest import ALL_FAMILIES, inputs_of, tiny
from tests.models.more_families import MORE_FAMILIES, built

HEAD = """# Models, and how exact each is

Made by `python -m tests.families_measured`; do not edit. Every table is tried on tiny models with random weights in float64
against an oracle that shares no code with the package: a hook sets rows of the value projection's output to zero and the whole
layer runs again, all rows. Numbers are the largest difference from it beside the largest score: for Value Zeroing the worst of
both engines, of cosine and Euclidean distance and of all stacks; for attention, beside the model's own eager attention weights.
Where norms or softmax compute in float32 whatever they are given, differences of 1e-7 are that rounding.

Stacks: e encoder, d decoder, c cross-attention. *Replayed* layers are run again row by row, which is slower; in a *window*,
changes are carried through a convolution; *beside*: attention and feed-forward run side by side, so that measures that count
the residual stream refuse.

| `model_type` | stacks | layers | Value Zeroing | attention |
|---|---|---|---|---|"""

FOOT = """
A model of one's own, or of another family: [A new architecture](howto/new_architecture.md).

- **Conformers.** Value Zeroing of a Conformer counts all that reaches the target in the layer: what its own attention loses,
  and what its neighbours' attention loses and the convolution behind it brings. Attention, its norms and ALTI are of the
  attention block alone: how the convolution mixes frames is in none of them, nor in their rollout.
- **Granite-speech** attends within blocks of 200 frames (4 s), SeamlessM4T v2 and the encoder of Qwen2.5-Omni (100 frames, 2 s)
  within chunks: a source of another block is 0, but for what a convolution brings over the border.
- **Moonshine, Speech2Text, SpeechT5:** a clip with its text (or what the model writes) is scored in all three stacks, as
  Whisper's is. The decoder begins with its start token and what the tokenizer puts in front of a text, such as the language
  of a multilingual Speech2Text (`tokenizer.tgt_lang`); a letter that the tokenizer has no token for is refused. A model that
  translates speech is scored on prepared inputs with `decoder_input_ids`. `align` places no words by their cross-attention.
- **SpeechT5:** the model that hears and writes (`SpeechT5ForSpeechToText`). Its terms for the distance of two frames are in
  the attention that is read, so in every measure; its decoder's own attention is replayed.
- **SeamlessM4T v2:** the speech encoder alone.
- **Gemma 3** that sees images (`gemma3`) holds the language model of `gemma3_text` and gives the same maps; it is fed text
  alone.
- **Qwen2-Audio, Qwen2.5-Omni, Voxtral, Granite-speech:** encoder and decoder, with sound, prompt and answer in one map
  ([Audio language models](howto/audio_language_models.md)). Qwen2-Audio and Qwen2.5-Omni (its thinker) average pairs of
  frames in front of the encoder's norm: frames of the last layer are compared behind the norm, each by itself.
  Granite-speech's decoder is carried or replayed, as its config multiplies what blocks add by one or not.
- **AST:** positions are patches of time and frequency, so that a word is no range of them: prepared inputs, patch by patch.
- **Falcon with ALiBi, SeamlessM4T v2 in chunks:** the eager path of transformers {version} computes something else than its
  default path. Each is measured as the model was loaded.
- **Attention sinks (GPT-OSS, MiMo-V2-Flash, Granite with sliding windows, Flint):** not in the tables; `register` them with
  Llama's table and `feed_forwards=()`. Sinks are read: a row of attention sums to less than one.
- **BLOOM, XLNet:** attention cannot be read; the error says so."""


def row_of_first(name: str) -> tuple:
    """Families of `conftest`, against `tests.oracle`."""
    model = tiny(name)
    inputs = inputs_of(model)
    units = [(0, 2), (2, 3), (4, 8)]
    words, tokens = [list(range(*span)) for span in units], [[place] for place in range(7)]
    alone = "cross" not in model.stacks
    worst: list[float] = []
    for distance in ("cosine", "euclidean"):
        for engine in ("delta", "replay"):
            maps = speechmix.mix(model, inputs, spans=units, distance=distance, engine=engine)
            for stack in model.stacks:
                rows = words if alone or stack == "encoder" else tokens
                columns = words if alone or stack != "decoder" else tokens
                expected = oracle.value_zeroing(
                    model.module, inputs, stack, rows, columns, distance
                )
                worst.append(apart(maps["value_zeroing", stack].scores, expected))
    shown = not name.startswith("wavlm")  # transformers returns the mean over its heads
    weights = lambda stack: oracle.attention_weights(model.module, inputs, stack).numpy()  # noqa: E731
    return model, max(worst), attention_apart(model, inputs, weights) if shown else None


def row_of_more(name: str) -> tuple:
    """Families of `tests.models.more_families`, against `tests.oracle_by_path`."""
    from tests.measures.test_oracle_families import fed, lists_of, sides

    entry, model = MORE_FAMILIES[name], speechmix.load(built(name))
    inputs, worst = entry.inputs(entry.length), []
    for distance in ("cosine", "euclidean"):
        for engine in ("delta", "replay"):
            maps = speechmix.mix(
                model,
                fed(entry),
                spans=sides(entry, "encoder")[0],
                distance=distance,
                engine=engine,
            )
            for stack, where in entry.stacks.items():
                rows, columns = lists_of(entry, maps["value_zeroing", stack])
                expected = oracle_by_path.value_zeroing(
                    model.module, inputs, where, rows, columns, distance
                )
                worst.append(apart(maps["value_zeroing", stack].scores, expected))

    def weights(stack):
        where = entry.stacks[stack]
        return (
            None
            if where.attentions is None
            else oracle_by_path.attention_weights(model.module, inputs, where)
        )

    return model, max(worst), attention_apart(model, fed(entry), weights) if entry.shown else None


def attention_apart(model, inputs, weights) -> float:
    from tests.measures.test_oracle_families import by_units

    maps = speechmix.mix(model, inputs, measures=["attention"], heads="each")
    shown = {stack: weights(stack) for stack in model.stacks}
    return max(
        apart(maps["attention", stack].scores, by_units(expected, maps["attention", stack]))
        for stack, expected in shown.items()
        if expected is not None
    )


def apart(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def row(name: str, model, value_zeroing: float, attention: float | None) -> str:
    """A line of the table; what a variant is follows its model type."""
    layer = next(iter(model.stacks.values())).layers[0]
    how = "carried"
    if layer.parallel:
        how = "beside"
    elif layer.rest is None:
        how = "replayed"
    elif layer.convolution is not None:
        how = "window"
    of_type = model.config.model_type
    variant = (
        name.removeprefix(of_type).lstrip("-") if name in ALL_FAMILIES else name.partition(", ")[2]
    )
    kind = f"`{of_type}`" + (f" ({variant})" if variant else "")
    stacks = "".join(stack[0] for stack in model.stacks)
    return (
        f"| {kind} | {stacks} | {how} | {value_zeroing:.0e} | "
        f"{'' if attention is None else f'{attention:.0e}'} |"
    )


def page() -> str:
    rows = [row(name, *row_of_first(name)) for name in ALL_FAMILIES]
    rows += [row(name, *row_of_more(name)) for name in MORE_FAMILIES]
    named = "\n".join(rows)
    others = [
        f"`{kind}`"
        for family in families()
        for kind in family.model_types
        if f"`{kind}`" not in named
    ]
    same = f"\nThe same tables serve {', '.join(sorted(others))}."
    return "\n".join([HEAD, *rows, same, FOOT.replace("{version}", transformers.__version__)])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    print(page())
