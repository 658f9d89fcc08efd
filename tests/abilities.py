"""What can be done with each type of speech model, measured: the columns of docs/families.md.

    python -m tests.abilities --out tests/abilities.json     # about ten minutes; with types, only those

In: the models of `tests.models.speech_subjects`. Out: for each type and ability a number (how far off a run by hand it is, as
a share of the largest change) or the reason why not. What is by hand here: values are zeroed in the call of torch that
attends, states by hooks, sound in the samples; of the tables it is read which modules are the layers, and the last norm.
Nothing is by hand in "explain", where sums are compared.
"""

from __future__ import annotations

import argparse
import json
import re
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import transformers
from torch.nn import functional as F

import speechmix
from speechmix.errors import ModelError, SpeechmixError
from speechmix.extensions.explain.removals import FrozenPadding
from speechmix.extensions.tracing.input_search import find_input_form
from speechmix.interventions.decision import Decision
from tests import mapping_coverage
from tests.models.speech_subjects import SECONDS, TEXT, Subject, make_clip, make_subject, prepare
from tests.oracle_by_call import Zeroed, layer_states, with_swapped_states

LONG = 4
_LOGIT_MEASURES = ("alti_logit", "decompx", "lrp")


def relative(pairs: list[tuple[float, float]]) -> float:
    """Largest difference of the package's number from the one by hand, as a share of the largest."""
    package, by_hand = np.array(pairs, dtype=float).T
    if not np.abs(by_hand).max() > 0:
        raise AssertionError("the run by hand changes nothing")
    return float(np.abs(package - by_hand).max() / np.abs(by_hand).max())


def last_logit(output: Any) -> torch.Tensor:
    """One number of a model's output: of the last row, label or token 1."""
    if getattr(output, "logits", None) is None:
        raise ModelError("no decision between two tokens")
    return output.logits.double().flatten(0, -2)[-1, 1]


def attends(subject: Subject, stack: str) -> Callable[[int], bool]:
    """Which calls are of this stack where layers attend twice: by the number of positions."""
    if "cross" not in subject.model.stacks or stack == "encoder":
        return lambda size: True
    count = subject.inputs["decoder_input_ids"].shape[1]
    return lambda size: (size == count) == (stack == "decoder")


def measure_maps(subject: Subject) -> str:
    """Value Zeroing of three sources in all stacks and layers, against the model run by hand."""
    model, pairs = subject.model, []
    maps = speechmix.mix(model, subject.inputs)
    for stack in model.stacks.values():
        stack_map = maps["value_zeroing", stack.name]
        for index, layer in enumerate(stack.layers):
            is_last = index == len(stack) - 1 and stack.final_norm is not None
            norm = stack.final_norm if is_last else (lambda x: x)
            before = layer_states(layer.module, subject.output)
            for source in {0, len(stack_map.sources) // 2, len(stack_map.sources) - 1}:
                rows = list(stack_map.sources[source].positions)
                with Zeroed(layer.module, rows, attends(subject, stack.name)):
                    after = layer_states(layer.module, subject.output)
                with torch.no_grad():
                    states = (norm(x).flatten(0, -2).double() for x in (before, after))
                    moved = 1 - F.cosine_similarity(*states, dim=-1)
                by_hand = [float(moved[list(span.positions)].mean()) for span in stack_map.targets]
                pairs += zip(stack_map.scores[index, :, source], by_hand, strict=True)
    return f"{relative(pairs):.0e}"


def measure_interventions(subject: Subject) -> str:
    """Knock-out, patched states and (of a clip) muted words, against hooks and zeroed samples."""
    model, inputs, pairs = subject.model, subject.inputs, []
    other = {name: 0.5 * x if x.is_floating_point() else x for name, x in inputs.items()}
    intact = float(last_logit(subject.output()))
    decision = Decision.prepare(model, inputs, objective=last_logit)
    for name, stack in model.stacks.items():
        sources = decision.select_sources(name, None)[1:4:2]
        words = [[source.index] for source in sources]
        options = {"stacks": [name], "words": words, "objective": last_logit}
        drops = speechmix.knock_out(model, inputs, **options).scores(name)
        if name != "cross":
            patched = speechmix.patch(model, inputs, other, **options).scores(name)
        for index, layer in enumerate(stack.layers):
            for column, source in enumerate(sources):
                rows = list(source.positions)
                with Zeroed(layer.module, rows, attends(subject, name)):
                    zeroed = float(last_logit(subject.output()))
                pairs.append((drops[index, column], intact - zeroed))
                if name != "cross":
                    run_other = partial(subject.output, other)
                    output = with_swapped_states(layer.module, rows, subject.output, run_other)
                    pairs.append((patched[index, column], intact - float(last_logit(output))))
    errors = [relative(pairs)]
    if subject.clip is not None:
        table = speechmix.ablate_input(
            model, subject.clip, sides=["sound"], fills=["zeros"], objective=last_logit
        ).table
        text = {name: x for name, x in inputs.items() if name.startswith("decoder_")}
        muted = [{**prepare(model, make_clip(muted=word)), **text} for word in table["word"]]
        by_hand = [intact - float(last_logit(subject.output(x))) for x in muted]
        errors.append(relative([*zip(table["drop"], by_hand, strict=True)]))
    return f"{max(errors):.0e}" + (" (without the sound)" if subject.clip is None else "")


def measure_explain(subject: Subject) -> str:
    """Attributions are finite; Shapley values of words add up to the package's own effect of removing all of them."""
    model, clip = subject.model, subject.clip
    if clip is None:
        return "prepared inputs only"
    options = {"text": None if model.has_label_head else TEXT, "sound_fill": "zeros"}
    why = speechmix.explain(
        model, clip, measures=("occlusion", "shapley", "gradient_input"), **options
    )
    whole = clip.replace(words=[(TEXT, 0.0, SECONDS)], target=0)
    # Shapley values run whole passes, occlusion keeps what Whisper's encoder makes of padding.
    with mock.patch.object(FrozenPadding, "of", return_value=None):
        joint = speechmix.explain(model, whole, measures="occlusion", **options)
    choice = why.choices.index(why.units[0])
    sound = [source.side == "sound" for source in why.sources]
    assert model.has_label_head or [unit.label for unit in why.units][:3] == TEXT.split()
    for name, attribution in why.attributions.items():
        assert np.isfinite(attribution.values[choice, sound]).all(), name
    added = np.nansum(why.attributions["shapley"].values[choice])
    first = joint.choices.index(joint.units[0])
    removed = joint.values[first] - joint.value_without[first, 0]
    return f"{relative([(added, removed)]):.0e}"


def measure_output_attributions(subject: Subject) -> str:
    """Parts of a logit add up to the logit of the model, by measure; the steps of integrated gradients to its change."""
    model, inputs = subject.model, subject.inputs
    output, notes = subject.output(), []
    logit = float(last_logit(output))
    objective = (1,) if model.has_label_head else (output.logits.shape[-2] - 1, 1)
    for measure in _LOGIT_MEASURES:
        try:
            parts = speechmix.logit_contributions(
                model, inputs, objective=objective, measure=measure, dtype="float64"
            )
        except SpeechmixError:  # not defined for this kind of model
            continue
        arrays = [*parts.scores.values(), *parts.layer_parts.values(), *parts.single_parts.values()]
        added = sum(float(np.sum(array)) for array in arrays)
        notes.append(f"{measure} {relative([(added, logit)]):.0e}")
    maps = speechmix.mix(
        model,
        inputs,
        measures=["gradient_input", "integrated_gradients:steps=20"],
        objective=last_logit,
        layers=0,
    )
    assert all(np.isfinite(stack_map.scores).all() for stack_map in maps.values())
    return ", ".join([*notes, "gradients"])


def measure_long_files(subject: Subject) -> str:
    """Maps of a sound four times as long, against the run by hand; or the window that a clip is cut to."""
    model = subject.model
    if subject.clip is None:
        form = find_input_form(model.base)
        length = LONG * (form.length if form.hears else 8)
        try:
            return measure_maps(Subject(model, form.make(model.base, length=length)))
        except (RuntimeError, ValueError):  # transformers' own: positions that are not there
            return "prepared inputs of its window only"
    clip = make_clip(LONG * SECONDS)
    try:
        return measure_maps(Subject(model, prepare(model, clip), clip))
    except SpeechmixError as error:
        window = re.search(r"t up to ([\d.]+)", str(error))
        if window is None:
            raise
    limit = float(window[1])
    part = speechmix.Clip.from_array(clip.audio(16_000)[: round(16_000 * limit)], 16_000)
    options = {"units": "frame", "measures": "value_zeroing", "stacks": "encoder", "layers": 0}
    cut, alone = (
        speechmix.mix(model, sound, **options)["value_zeroing", "encoder"].scores
        for sound in (clip.replace(words=None, target=None).cut(0.0, limit), part)
    )
    assert np.array_equal(cut, alone)
    return f"in parts of {limit:g} s"


ABILITIES: dict[str, Callable[[Subject], str]] = {
    "maps": measure_maps,
    "interventions": measure_interventions,
    "explain": measure_explain,
    "output attributions": measure_output_attributions,
    "long files": measure_long_files,
}
# What a reason says, and how it is written in the table; "" is a fault to be mended.
REASONS = {
    "predicts nothing": "no head in the table",
    "without a head": "no head in the table",
    "prepared inputs": "prepared inputs only",
    "audio tokens": "not measured: no synthetic prompt fits",
    "inputs that were tried": "not measured: no synthetic prompt fits",
    "to be Float32, BFloat16": "torch multiplies experts in 32 bits alone",
    "not all finite": "its features of silence are not finite",
    "no decision": "no decision between two tokens",
}


def measure_type(model_type: str, mapping: dict[str, Any]) -> dict[str, str]:
    """Return the cell of each ability for a type; a fault of the package begins with "fault"."""
    subject, cells = make_subject(model_type, mapping), {}
    for name, measure in ABILITIES.items():
        try:
            cells[name] = measure(subject)
        except Exception as error:  # all but refusals are faults, which this run is to find
            fault = "" if isinstance(error, SpeechmixError) else f"fault: {type(error).__name__}: "
            text = fault + " ".join(str(error).split())
            cells[name] = next((words for key, words in REASONS.items() if key in text), text)
    if subject.model.dtype == torch.float64:
        return cells
    # Numbers are rounding, as a share of small changes.
    return {name: f"{cell} (float32)" if "e-" in cell else cell for name, cell in cells.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("types", nargs="*", help="model types; all by default")
    parser.add_argument(
        "--out", type=Path, help="write the cells as JSON, beside those of other types there"
    )
    options = parser.parse_args()
    cells_by_type: dict[str, dict[str, str]] = {}
    if options.out and options.out.exists():
        cells_by_type = json.loads(options.out.read_text(encoding="utf-8"))
    cells_by_class: dict[str, dict[str, str]] = {}  # two mappings may name one
    types = mapping_coverage.list_types(mapping_coverage.SPEECH_MAPPINGS)
    for (kind, name), mapping in types.items():
        if options.types and name not in options.types:
            continue
        class_name = str(mapping[name])
        try:
            cells = cells_by_class.get(class_name) or measure_type(name, mapping)
        except Exception as error:  # tests.mapping_coverage says why
            print(f"{kind}: {name}: does not load ({type(error).__name__})", flush=True)
            cells_by_type.pop(f"{kind}: {name}", None)
            continue
        cells_by_class[class_name] = cells_by_type[f"{kind}: {name}"] = cells
        print(f"{kind}: {name}: {cells}", flush=True)
        if options.out:
            options.out.write_text(json.dumps(cells_by_type, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    main()
