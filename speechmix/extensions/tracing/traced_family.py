"""Make the family of an architecture that has no written table, and verify it.

In: a config, the class of the model, the feature extractor of the checkpoint. Out: a `Family` whose
stacks were found by tracing a small random model; it passed the self-check and a comparison with
Value Zeroing as it is defined. Once for each config in a process.

Find the family of a config that has no table: one that is traced, once for each config in a
process.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...adapters.binding.bound_layers import bind_stack, layer_modules
from ...adapters.binding.self_check import self_check
from ...adapters.capture.forward_pass import Capture
from ...adapters.capture.model_use import extract_features
from ...adapters.families.family import Family
from ...adapters.families.specs import StackSpec
from ...adapters.generation.audio_prompt import prepare_with_prompt
from ...adapters.generation.greedy_generation import (
    add_decoder_tokens,
    generate_answer,
    generate_transcript,
)
from ...adapters.generation.model_inputs import PreparedInputs
from ...adapters.generation.text_tokens import (
    generate_translation,
    prepare_sentence,
    prepare_translation,
    translate_sentence,
)
from ...adapters.model import Model
from ...adapters.transformers_types import Config, FeatureExtractor, PretrainedModule
from ...errors import InputError, ModelError, SpeechmixError
from ...files.cache_keys import digest
from .failure_reason import describe_failure
from .infer_stacks import InferredArchitecture, infer_stacks
from .input_search import InputForm, find_input_form, find_projector_step
from .layer_lists import NOT_DEFINED
from .measured_grid import MeasuredGrid
from .recording import iterate_tensors
from .replay_oracle import ReplayComparison, compare_with_replay, explain_disagreement
from .small_models import build_small_model

_CHECKED_POSITIONS = 8  # that the self-check leaves of an encoder's states
_NEEDED_STACKS = {
    "text": (),
    "translation": ("encoder", "decoder", "cross"),
    "audio": ("encoder",),
    "transcript": ("encoder",),
    "audio tokens": ("encoder", "decoder"),
}


def trace_family(
    config: Config, model_class: type[nn.Module], extractor: FeatureExtractor
) -> Family:
    """Trace a small random model of a config, and verify the family that follows.

    Raises
    ------
    SpeechmixError
        If a part was not understood, or the family does not give what the definition gives.
    """
    module = build_small_model(config, model_class)
    base = module.base_model
    form = find_input_form(base)
    architecture = infer_stacks(base, form.make(base), run=partial(form.run, base))
    if not form.hears and hasattr(base, "get_audio_features"):
        _warn_stack_alone(
            architecture.name, "decoder", "it runs on no form of sound that was tried"
        )
    stacks, form = _select_stacks(architecture, form)
    family, reason = _try_stacks(module, form, stacks, architecture.heads)
    if reason and any(spec.feed_forwards for spec in stacks):
        # The description may lack something that the layer does: then the layer itself is replayed.
        stacks = tuple(replace(spec, feed_forwards=()) for spec in stacks)
        family, reason = _try_stacks(module, form, stacks, architecture.heads)
    if reason and "cross" in {spec.name for spec in stacks} and form.hears:
        # An adaptor between encoder and decoder: sources of cross-attention are no frames.
        _warn_stack_alone(model_class.__name__, "encoder", reason)
        form, stacks = replace(form, kind="audio", encoder_alone=True), stacks[:1]
        family, reason = _try_stacks(module, form, stacks, architecture.heads)
    if reason and form.kind == "audio tokens" and len(stacks) > 1:
        reasons = _notes_of_whole_layers(architecture, stacks[:1]) or [reason]
        _warn_stack_alone(model_class.__name__, "decoder", "; ".join(reasons))
        stacks = stacks[1:]
        family, reason = _try_stacks(module, form, stacks, architecture.heads)
    if reason:
        raise ModelError("; ".join([reason, *_notes_of_whole_layers(architecture, stacks)]))
    if family.grid is None:
        return family

    def build() -> tuple[PretrainedModule, nn.Module]:
        base = build_small_model(config, model_class).base_model
        return base, layer_modules(stacks[0], base)[0]

    return replace(family, grid=MeasuredGrid(build, form, extractor))


def _notes_of_whole_layers(
    architecture: InferredArchitecture, stacks: tuple[StackSpec, ...]
) -> list[str]:
    """What was not understood of layers that are described by attention's function alone."""
    paths = tuple(f"{spec.layers}: " for spec in stacks if spec.blocks[0].is_rerun)
    return [sentence for sentence in architecture.unknowns if paths and sentence.startswith(paths)]


def _select_stacks(
    architecture: InferredArchitecture, form: InputForm
) -> tuple[tuple[StackSpec, ...], InputForm]:
    """Stacks that the table will have; where one of encoder and decoder was not understood, the other."""
    names = [spec.name for spec in architecture.stacks]
    missing = [name for name in _NEEDED_STACKS[form.kind] if name not in names]
    unknowns = "; ".join(architecture.unknowns) or "no attention was found"
    if form.kind == "audio tokens" and names == ["decoder"]:
        reason = "; ".join(architecture.unknowns) or "no attention was found in what hears"
        _warn_stack_alone(architecture.name, "decoder", reason)
        return architecture.stacks, form
    if missing or not names:
        raise ModelError(f"no table of the {' and '.join(missing or ['layers'])}: {unknowns}")
    if form.kind == "transcript" and "cross" not in names:
        if not form.encoder_alone:
            _warn_stack_alone(architecture.name, "encoder", unknowns)
            form = replace(form, kind="audio", encoder_alone=True)
        return architecture.stacks[:1], form
    return architecture.stacks, form


def _warn_stack_alone(class_name: str, stack: str, reason: str) -> None:
    warnings.warn(f"{class_name}: the table has the {stack} alone ({reason})", stacklevel=5)


def _try_stacks(
    module: PretrainedModule,
    form: InputForm,
    stacks: tuple[StackSpec, ...],
    heads: dict[str, int],
) -> tuple[Family, str]:
    """Build the family of these stacks, and say what of it is not as the definition has it."""
    family = _build_family(module, form, stacks, heads)
    return family, _explain_mismatch(module, family, form)


def _build_family(
    module: PretrainedModule,
    form: InputForm,
    stacks: tuple[StackSpec, ...],
    heads: dict[str, int],
) -> Family:
    class_name = type(module).__name__  # the family must not hold the module
    inputs = _make_check_inputs(module.base_model, form, stacks[0], heads)
    is_text = form.kind in ("text", "translation") and not form.codebooks
    can_batch = is_text and _ignores_padding(module.base_model, form)
    family = Family(
        f"{module.config.model_type} (traced)",
        (module.config.model_type,),
        stacks=lambda config: stacks,
        grid=None,
        prepare=prepare_sentence,
        run=form.run,
        tiny_inputs=partial(_make_tiny_inputs, inputs, module.config),
        auto_class=lambda config: class_name,
        heads=lambda config, stack: heads[stack],
        can_batch=lambda config: can_batch,
        is_traced=True,
    )
    if form.kind == "translation" and is_text:
        return replace(
            family,
            prepare=prepare_translation,
            generate=generate_translation,
            translate=translate_sentence,
        )
    if not form.hears or stacks[0].name == "decoder":
        return family
    base = module.base_model
    first_layer = layer_modules(stacks[0], base)[0]
    grid = MeasuredGrid(lambda: (base, first_layer), form)  # replaced by one that holds no model
    family = replace(family, grid=grid, prepare=partial(_prepare_clip, form))
    if form.kind == "transcript":
        return replace(family, generate=generate_transcript)
    if form.kind == "audio tokens" and getattr(module.config, "audio_token_id", None) is None:
        return replace(family, prepare=_refuse_clip)
    if form.kind == "audio tokens":
        step = find_projector_step(base, form, first_layer)
        return replace(
            family,
            prepare=prepare_with_prompt,
            generate=generate_answer,
            projector_step=lambda config: step,
        )
    return family


def _ignores_padding(base: PretrainedModule, form: InputForm) -> bool:
    """Whether a text gives the same states with padding behind it, so that texts can be batched."""
    text = form.make(base)
    padded = {name: nn.functional.pad(x, (0, 3)) for name, x in text.items()}
    with torch.no_grad():
        states, padded_states = (
            next(iterate_tensors(form.run(base, inputs))) for inputs in (text, padded)
        )
    difference = (padded_states[:, : states.shape[1]] - states).abs().max()
    return bool(difference <= 1e-4 * states.abs().max())


def _make_tiny_inputs(
    inputs: dict[str, Tensor], small_config: Config, config: Config
) -> dict[str, Tensor]:
    """The inputs of the small model, with the audio token of the model itself."""
    result = {name: x.clone() for name, x in inputs.items()}
    if getattr(small_config, "audio_token_id", None) is not None and "input_ids" in result:
        is_sound = inputs["input_ids"] == small_config.audio_token_id
        result["input_ids"][is_sound] = int(config.audio_token_id)
    return result


def _make_check_inputs(
    base: PretrainedModule, form: InputForm, first: StackSpec, heads: dict[str, int]
) -> dict[str, Tensor]:
    """Inputs for the self-check, which cuts the encoder's states: audio tokens for what it leaves."""
    stack = bind_stack(first, base, heads[first.name])
    if form.kind == "audio tokens" and first.name == "encoder" and stack is not None:
        try:
            with Capture([stack], lambda block: None, layers=(), max_positions=_CHECKED_POSITIONS):
                inputs = form.make(base)
                form.run(base, inputs)
            return inputs
        except Exception:  # an encoder that cannot be cut is checked whole
            return form.make(base)
    return form.make(base)


def _prepare_clip(
    form: InputForm, model: Model, clip: Any, stacks: tuple[str, ...]
) -> PreparedInputs:
    features = extract_features(model, clip)
    inputs = form.select_features(features.tensors)
    prepared = PreparedInputs(inputs, audio_hash=features.audio_hash)
    return add_decoder_tokens(model, clip, stacks, prepared)


def _refuse_clip(model: Model, clip: Any, stacks: tuple[str, ...]) -> PreparedInputs:
    raise InputError(
        f"{model.name}: no audio token is in its config, so how sound and text share its decoder is not "
        "known: give prepared inputs"
    )


def _explain_mismatch(module: PretrainedModule, family: Family, form: InputForm) -> str:
    """Say what of a family is not as the definition has it; empty if all is."""
    try:
        self_check(Model(module, family, type(module).__name__))
        comparisons = _compare_in_double(module, family, form)
        counts = {comparison.stack: comparison.source_count for comparison in comparisons}
        if counts.get("cross", 0) != counts.get("encoder", 0) and "cross" in counts:
            return (
                f"cross-attention reads {counts['cross']} states and the encoder gives "
                f"{counts['encoder']}: its sources are no frames"
            )
        return explain_disagreement(comparisons)
    except SpeechmixError as error:
        return str(error)
    except Exception as error:  # the model does not run on what tracing made for it
        return describe_failure(error)


def _compare_in_double(
    module: PretrainedModule, family: Family, form: InputForm
) -> list[ReplayComparison]:
    """Compare a family with the definition, in double precision where the model runs in it."""

    def compare() -> list[ReplayComparison]:
        model = Model(module, family, type(module).__name__)
        return compare_with_replay(model, form.make(module.base_model, padding=form.padding))

    try:
        module.double()
        return compare()
    except RuntimeError:  # products of experts are computed in single precision alone
        module.float()
        return compare()
    finally:
        module.float()


_traced_families: dict[str, Family | str] = {}


def find_traced_family(
    config: Config, model_class: type[nn.Module], read_extractor: Callable[[], FeatureExtractor]
) -> Family:
    """Return the traced family of a config.

    Raises
    ------
    ModelError
        If no table could be verified: the message says which part was not understood.
    """
    extractor = read_extractor() if _hears(model_class) else None
    described = None if extractor is None else (type(extractor).__name__, str(extractor.to_dict()))
    fields = {name: x for name, x in config.to_dict().items() if name != "_name_or_path"}
    key = digest([model_class.__qualname__, str(fields), described])
    if key not in _traced_families:
        try:
            _traced_families[key] = trace_family(config, model_class, extractor)
        except SpeechmixError as error:
            _traced_families[key] = str(error)
        except Exception as error:  # an unknown model's code raises what it likes
            _traced_families[key] = f"tracing stopped: {describe_failure(error)}"
    family = _traced_families[key]
    if isinstance(family, str):
        advice = (
            "no table can describe such layers"
            if NOT_DEFINED in family
            else "finish the table by hand and register it with speechmix.register(Family(...))"
        )
        raise ModelError(
            f"no family for model type {config.model_type!r}. A small random model of its config was traced, "
            f"and no table could be verified: {family}. `speechmix describe-architecture MODEL --out "
            f"FILE` writes what was found; {advice}, see docs/howto/new_architecture.md"
        )
    return family


def _hears(model_class: type[nn.Module]) -> bool:
    names = inspect.signature(model_class.forward).parameters
    return "input_features" in names or "input_values" in names
