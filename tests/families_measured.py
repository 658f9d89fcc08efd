"""How exact every family is, measured against the slow oracles: makes docs/families.md.

    python -m tests.mapping_coverage --out tests/mapping_coverage.json
    python -m tests.abilities --out tests/abilities.json
    python -m tests.families_measured > docs/families.md

In: the tiny models that the tests use; which speech models of transformers load (`tests.mapping_coverage`). Out: a page
whose numbers are relative to the largest score of a map: the worst of both engines, two distances and all stacks for Value
Zeroing; of all heads for attention. Takes about a minute.
"""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import numpy as np
import torch
import transformers

import speechmix
from speechmix.adapters import families
from tests import oracle, oracle_by_path
from tests.conftest import ALL_FAMILIES, inputs_of, tiny
from tests.mapping_coverage import LOADS, NOT_BUILT, UNDEFINED
from tests.models.more_families import MORE_FAMILIES, built

COVERAGE_FILE = Path(__file__).parent / "mapping_coverage.json"
ABILITIES_FILE = Path(__file__).parent / "abilities.json"

HEAD = """# Supported models and their precision

Made by `python -m tests.families_measured`; do not edit.

{count}

## Precision of the written tables

Each family is tested with tiny models with random weights in float64. The reference is an *oracle*: an independent
implementation that shares no code with the package. It sets rows of the value projection's output to zero with a hook
and runs the whole layer again.

Each number is the largest difference from the oracle, divided by the largest score. For Value Zeroing, it is the largest
difference over all stacks, both engines (`delta` and `replay`), and cosine and Euclidean distance. For attention, the
reference is the model's own eager attention. Differences of about 1e-7 are rounding errors, in models whose norms or
softmax always compute in float32.

| term | meaning |
|---|---|
| e, d, c | encoder, decoder, cross-attention |
| delta | speechmix computes how a change propagates through the layer, which is fast |
| replay | speechmix runs the modules of the layer again for each row, which is slower |
| convolution | as delta; the change also propagates through a convolution in the layer |
| parallel | as delta; attention and feed-forward run in parallel, so measures with the residual stream raise an error |

The column `layers` describes the first stack of a model.

| `model_type` | stacks | layers | Value Zeroing | attention |
|---|---|---|---|---|"""

COVERAGE = """
## Speech models of transformers {version}

transformers lists the model types for each task in its auto classes. We loaded each type as a tiny model with random
weights. The last column says what happened:

- *written*: speechmix contains a table for this type.
- *traced*: [`speechmix.load` finds the table](howto/new_architecture.md). Before it uses the table, it compares it with
  the definition of Value Zeroing.
- *refused*: `speechmix.load` raises an error.
- *refused: not defined*: the same, because Value Zeroing is not defined in some layers. They run no attention (state-space
  layers), their values contain neighbouring positions (a convolution behind the value projection), or they change the number of
  positions.
- *not tried*: we could not make a tiny model automatically, for example because the default config is too large.

| kind | `model_type` | stacks | table |
|---|---|---|---|"""

ABILITIES = """
## What can be done with each type

Measured with a tiny model with random weights, the feature extractor of the type, a tokenizer of letters and a clip
of three words. Each number is the largest difference from a reference, divided by the largest change.

- **maps**: Value Zeroing of three sources in all stacks and layers. By hand, values are zeroed in torch's attention call.
- **interventions**: `knock_out`, `patch` and `ablate_input`. By hand, hooks change values and states, and samples are
  set to zero.
- **explain**: attributions of the written words (or the label) are finite, and Shapley values add up to the effect of
  removing all words together. Here speechmix computes both numbers; there is no run by hand.
- **output attributions**: parts of a logit add up to the logit of the model (ALTI-Logit, DecompX, LRP). Gradients are finite;
  no number tests them here. A measure that is missing is not defined for the type.
- **long files**: maps as above, of a sound at least four times as long. "In parts" means that the clip is refused with the
  length of the window, and that a part of it gives the same map as the part alone.

{abilities}
"""

FOOT = """
For another model, see [Use a new architecture](howto/new_architecture.md).

- **Conformers.** In a layer, a source reaches the target in two ways. The target attends to the source. Or a
  neighbour of the target attends to the source, and the convolution passes this on to the target. Value Zeroing
  includes both. Attention, attention norms and ALTI ([Choose a measure](choosing_a_measure.md)) describe only the
  attention block. Neither they nor their rollout include the convolution.
- **Granite-speech** attends within blocks of 200 frames (4 s). SeamlessM4T v2 and the encoder of Qwen2.5-Omni (100
  frames, 2 s) attend within chunks. A source in another block or chunk has a score of zero, unless a convolution
  crosses the boundary.
- **Moonshine, Speech2Text, SpeechT5:** maps of a clip have all three stacks, as in Whisper. The text is the
  clip's text, or else the model's transcript. The decoder begins with its start token and the tokenizer's prefix, such
  as the language of a multilingual Speech2Text (`tokenizer.tgt_lang`). The provenance records it (`decoder_prefix`).
    - These models, and an English-only Whisper, do not use a clip's `language`. A warning says so once.
    - A letter without a token raises an error.
    - For a model that translates speech, give `speechmix.mix` a dictionary of model inputs with `decoder_input_ids`.
    - `align` does not use their cross-attention.
- **SpeechT5:** speechmix supports the speech-to-text model (`SpeechT5ForSpeechToText`). Its attention weights include
  relative positions, so every measure includes them. For the self-attention of its decoder, Value Zeroing uses replay.
- **SeamlessM4T v2:** speechmix measures only the speech encoder.
- **Gemma 3** with images (`gemma3`) contains the language model of `gemma3_text` and has the same maps; it gets only
  text.
- **Qwen2-Audio, Qwen2.5-Omni, Voxtral, Granite-speech:** there are maps of the encoder and of the decoder. The
  decoder's map contains audio, prompt and answer ([Study an audio language model](howto/audio_language_models.md)).
  Qwen2-Audio and Qwen2.5-Omni (its thinker) average pairs of frames before the final norm of the encoder.
  Value Zeroing of the last layer does not average: it applies the norm to each frame. Granite-speech's decoder
  uses delta if `residual_multiplier` is 1, and replay otherwise.
- **AST:** its positions are patches of time and frequency, so words have no positions of their own. For maps, give
  `speechmix.mix` a dictionary of model inputs; each patch is then one unit.
  `recipes/music_patches.py` does this for a model of music. No model of music was tested.
- **ViT** (images): `recipes/image_patches.py` registers its table, which is that of AST, and maps patches to patches. `load`
  checks the table on every model. No trained ViT was tested.
- **Falcon with ALiBi, SeamlessM4T v2 in chunks:** in transformers {version}, eager attention gives other results than
  the default attention. speechmix measures the model with the attention that it was loaded with.
- **Attention sinks.** A sink takes a share of the attention, so the other weights of a row sum to less than one. For
  GPT-OSS, Granite with sliding windows and Flint, `load` finds the table by tracing. For MiMo-V2-Flash, it does not:
  `register` this type with Llama's table and `feed_forwards=()`.
- **Gemma 4, Muse Spark, dots3-note:** there are maps of the decoder. Values pass a norm, or a gate or a norm follows attention.
  So Value Zeroing runs each layer as a whole, which takes long for long inputs. Measures that read the output projection or the
  residual stream raise an error. The encoder of Gemma 4 attends in overlapping chunks and has no table; that of Muse Spark is
  made of convolutions.
- **Gemma 3n** was not tried: transformers needs timm for its images.
- **BLOOM, XLNet:** no table can describe their attention, and `load` raises an error
  ([What cannot be described](howto/new_architecture.md#what-cannot-be-described))."""


def row_of_first(name: str) -> tuple:
    """Families of `conftest`, against `tests.oracle`."""
    model = tiny(name)
    inputs = inputs_of(model)
    units = [(0, 2), (2, 3), (4, 8)]
    words, tokens = [list(range(*span)) for span in units], [[token] for token in range(7)]
    alone = "cross" not in model.stacks
    worst: list[float] = []
    for distance in ("cosine", "euclidean"):
        for engine in ("delta", "replay"):
            measure = f"value_zeroing:distance={distance},engine={engine}"
            maps = speechmix.mix(model, inputs, measures=measure, spans=units)
            for stack in model.stacks:
                rows = words if alone or stack == "encoder" else tokens
                columns = words if alone or stack != "decoder" else tokens
                expected = oracle.value_zeroing(
                    model.module, inputs, stack, rows, columns, distance
                )
                worst.append(apart(maps[measure, stack].scores, expected))

    def weights(stack: str) -> np.ndarray:
        return oracle.attention_weights(model.module, inputs, stack).numpy()

    if name.startswith("wavlm"):  # transformers returns the mean over its heads
        return model, max(worst), None
    return model, max(worst), attention_apart(model, inputs, weights)


def row_of_more(name: str) -> tuple:
    """Families of `tests.models.more_families`, against `tests.oracle_by_path`."""
    from tests.measures.test_oracle_families import fed, lists_of, sides

    entry, model = MORE_FAMILIES[name], speechmix.load(built(name))
    inputs, worst = entry.inputs(entry.length), []
    for distance in ("cosine", "euclidean"):
        for engine in ("delta", "replay"):
            measure = f"value_zeroing:distance={distance},engine={engine}"
            maps = speechmix.mix(
                model, fed(entry), measures=measure, spans=sides(entry, "encoder")[0]
            )
            for stack, where in entry.stacks.items():
                rows, columns = lists_of(entry, maps[measure, stack])
                expected = oracle_by_path.value_zeroing(
                    model.module, inputs, where, rows, columns, distance
                )
                worst.append(apart(maps[measure, stack].scores, expected))

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
    how = "delta"
    if layer.parallel:
        how = "parallel"
    elif layer.post_attention is None:
        how = "replay"
    elif layer.convolution is not None:
        how = "convolution"
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


def coverage() -> tuple[str, list[str]]:
    """The count of models that load, and a row for each."""
    results = json.loads(COVERAGE_FILE.read_text(encoding="utf-8"))
    kinds = dict.fromkeys(name.partition(": ")[0] for name in results)
    counts, rows = [], []
    for kind in kinds:
        of_kind = {
            name.partition(": ")[2]: result
            for name, result in results.items()
            if name.startswith(f"{kind}: ")
        }
        loaded = sum(result["status"] == LOADS for result in of_kind.values())
        undefined = sum(result["status"] == UNDEFINED for result in of_kind.values())
        note = f" ({undefined} of the others: Value Zeroing is not defined)" if undefined else ""
        counts.append(f"- {loaded} of {len(of_kind)}: {kind}{note}")
        rows += [coverage_row(kind, name, result) for name, result in of_kind.items()]
    text = (
        f"transformers {transformers.__version__} lists speech models by task in its auto classes, such as `AutoModelForCTC`. "
        "Of these, speechmix loads:\n\n" + "\n".join(counts)
    )
    return text, rows


def coverage_row(kind: str, name: str, result: dict[str, str]) -> str:
    stacks = ", ".join(result.get("stacks", "").split()).replace("cross", "cross-attention")
    outcome = {
        LOADS: result.get("table", ""),
        NOT_BUILT: "not tried",
        UNDEFINED: "refused: not defined",
    }.get(result["status"], "refused")
    return f"| {kind} | `{name}` | {stacks} | {outcome} |"


def ability_table() -> str:
    """The count of types for which each ability was measured, and a row for each type."""
    cells_by_type = json.loads(ABILITIES_FILE.read_text(encoding="utf-8"))
    names = list(next(iter(cells_by_type.values())))

    def works(cell: str) -> bool:
        errors = [float(number) for number in re.findall(r"\d+e[-+]\d+", cell)]
        return bool(errors or re.search("in parts|gradients", cell)) and max(errors, default=0) < (
            1e-3 if "float32" in cell else 1e-5
        )

    counts = [
        f"{name}: {sum(works(cells[name]) for cells in cells_by_type.values())}" for name in names
    ]
    head = f"Of {len(cells_by_type)} types that were measured, these work: {', '.join(counts)}."
    lines = ["| kind | `model_type` | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    for key, cells in cells_by_type.items():
        kind, _, name = key.partition(": ")
        lines.append(f"| {kind} | `{name}` | " + " | ".join(cells[x] for x in names) + " |")
    return "\n".join([head, "", *lines])


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
    count, of_mappings = coverage()
    abilities = ABILITIES.replace("{abilities}", ability_table()).rstrip("\n")
    texts = [HEAD.replace("{count}", count), *rows, same, COVERAGE, *of_mappings, abilities, FOOT]
    return "\n".join(texts).replace("{version}", transformers.__version__)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    print(page())
