"""Make the family of an architecture that has no written table, and verify it.

In: a config, the class of the model, the feature extractor of the checkpoint. Out: a `Family` whose
stacks were found by tracing a small random model; it passed the self-check and a comparison with
Value Zeroing as it is defined. Once for each config in a process.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import transformers
from torch import Tensor, nn
from transformers.models.auto import modeling_auto

from ...errors import InputError, ModelError, SpeechmixError
from ...files.cache_keys import digest
from ..binding.bound_layers import bind_stack, layer_modules
from ..binding.self_check import self_check
from ..capture.encoder_cache import extract_features
from ..capture.forward_pass import Capture
from ..families.family import Family
from ..families.registry import families, family_of_type
from ..families.specs import StackSpec
from ..generation.audio_prompt import prepare_with_prompt
from ..generation.greedy_generation import (
    add_decoder_tokens,
    generate_answer,
    generate_transcript,
)
from ..generation.model_inputs import PreparedInputs
from ..generation.sentence_translation import generate_translation, translate_sentence
from ..generation.text_tokens import prepare_sentence, prepare_translation
from ..loading.checkpoints import first_line, transformers_class
from ..model import Model
from ..transformers_types import Config, FeatureExtractor, PretrainedModule
from .frame_experiments import find_grid, select_inputs
from .infer_stacks import infer_stacks
from .inferred_architecture import InferredArchitecture
from .input_search import InputForm, find_input_form
from .projector_steps import find_projector_step
from .replay_oracle import ReplayComparison, compare_with_replay, explain_disagreement
from .small_models import build_small_model

_CHECKED_POSITIONS = 8  # that the self-check leaves of an encoder's states
_ALL_STACKS = ("encoder", "decoder", "cross")
_NEEDED_STACKS = {
    "text": (),
    "translation": _ALL_STACKS,
    "audio": ("encoder",),
    "transcript": ("encoder",),
    "audio tokens": ("encoder", "decoder"),
}
_MAPPINGS = (
    "MODEL_FOR_CTC_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_RNNT_MAPPING_NAMES",
    "MODEL_FOR_TDT_MAPPING_NAMES",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
    "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_MAPPING_NAMES",
)
_traced_families: dict[str, Family | str] = {}


def find_family(
    config: Config,
    model_class: type[nn.Module] | None = None,
    *,
    read_extractor: Callable[[], FeatureExtractor] = lambda: None,
) -> Family:
    """Return the family of a config: the registered one, or one that is traced.

    Parameters
    ----------
    config : transformers config
    model_class : type, optional
        Class of the model; by default that of the config's checkpoint.
    read_extractor : callable, optional
        Returns the feature extractor, for a speech model of an unknown type.

    Raises
    ------
    ModelError
        If there is none: the message says which part was not understood, and how to go on.
    """
    model_type = getattr(config, "model_type", None)
    is_registered = any(model_type in family.model_types for family in families())
    if model_class is None and not is_registered:
        model_class = _find_model_class(config)
    if is_registered or model_class is None:
        return family_of_type(model_type)
    extractor = read_extractor() if _hears(model_class) else None
    described = None if extractor is None else (type(extractor).__name__, str(extractor.to_dict()))
    key = digest([model_class.__qualname__, str(config.to_dict()), described])
    if key not in _traced_families:
        try:
            _traced_families[key] = _trace_family(config, model_class, extractor)
        except SpeechmixError as error:
            _traced_families[key] = str(error)
    family = _traced_families[key]
    if isinstance(family, str):
        raise ModelError(
            f"no family for model type {model_type!r}. A small random model of its config was traced, "
            f"and no table could be verified: {family}. `speechmix describe-architecture MODEL --out "
            "FILE` writes what was found; finish the table by hand and register it with "
            "speechmix.register(Family(...)), see docs/howto/new_architecture.md"
        )
    return family


def find_module_family(
    module: PretrainedModule, read_extractor: Callable[[], FeatureExtractor]
) -> Family:
    """Return the family of a model object, as `find_family`; adapters do not count."""
    bare = module.get_base_model() if hasattr(module, "get_base_model") else module
    return find_family(getattr(module, "config", None), type(bare), read_extractor=read_extractor)


def _hears(model_class: type[nn.Module]) -> bool:
    names = inspect.signature(model_class.forward).parameters
    return "input_features" in names or "input_values" in names


def _find_model_class(config: Config) -> type[nn.Module] | None:
    """The class of a config's checkpoint: that of the config, or that of its model type among speech
    models, or its base model."""
    names = [name for name in config.architectures or () if hasattr(transformers, name)]
    for mapping in _MAPPINGS:
        name = getattr(modeling_auto, mapping, {}).get(config.model_type)
        names += [name] if isinstance(name, str) else []
    return transformers_class(names[0]) if names else None  # type: ignore[no-any-return]


def _trace_family(
    config: Config, model_class: type[nn.Module], extractor: FeatureExtractor
) -> Family:
    class_name = model_class.__name__
    module = build_small_model(config, model_class)
    base = module.base_model
    form = find_input_form(base)
    found = infer_stacks(
        base, form.make(base), run=lambda given: form.run(base, given, _ALL_STACKS)
    )
    stacks, form = _select_stacks(found, form)
    family = _build_family(module, class_name, form, stacks, found.heads)
    reason = _verify(module, family, form)
    if reason and any(spec.feed_forwards for spec in stacks):
        # what it describes is not all that happens; layers are replayed then
        stacks = tuple(replace(spec, feed_forwards=()) for spec in stacks)
        family = _build_family(module, class_name, form, stacks, found.heads)
        reason = _verify(module, family, form)
    if reason and "cross" in {spec.name for spec in stacks} and form.hears:
        # an adaptor between encoder and decoder: sources of cross-attention are no frames
        form = replace(form, kind="audio", encoder_alone=True)
        warnings.warn(f"{class_name}: the table has the encoder alone ({reason})", stacklevel=5)
        family = _build_family(module, class_name, form, stacks[:1], found.heads)
        reason = _verify(module, family, form)
    if reason:
        raise ModelError(reason)
    if form.hears:
        layers = layer_modules(stacks[0], base)
        family = replace(family, grid=find_grid(base, layers[0], form, extractor))
    return family


def _select_stacks(
    found: InferredArchitecture, form: InputForm
) -> tuple[tuple[StackSpec, ...], InputForm]:
    """Stacks that the table will have; of a recogniser whose decoder was not understood the encoder."""
    names = [spec.name for spec in found.stacks]
    missing = [name for name in _NEEDED_STACKS[form.kind] if name not in names]
    if missing or not names:
        unknowns = "; ".join(found.unknowns) or "no attention was found"
        raise ModelError(f"no table of the {' and '.join(missing or ['layers'])}: {unknowns}")
    if form.kind == "transcript" and "cross" not in names:
        if not form.encoder_alone:
            form = replace(form, kind="audio", encoder_alone=True)
        return found.stacks[:1], form
    return found.stacks, form


def _build_family(
    module: PretrainedModule,
    class_name: str,
    form: InputForm,
    stacks: tuple[StackSpec, ...],
    heads: dict[str, int],
) -> Family:
    inputs = _make_check_inputs(module.base_model, form, stacks[0], heads)
    family = Family(
        f"{module.config.model_type} (traced)",
        (module.config.model_type,),
        stacks=lambda config: stacks,
        grid=None,
        prepare=prepare_sentence,
        run=form.run,
        tiny_inputs=lambda config: {name: x.clone() for name, x in inputs.items()},
        auto_class=lambda config: class_name,
        heads=lambda config, stack: heads[stack],
        can_batch=lambda config: not form.hears,
        is_traced=True,
    )
    if form.kind == "translation":
        return replace(
            family,
            prepare=prepare_translation,
            generate=generate_translation,
            translate=translate_sentence,
        )
    if not form.hears:
        return family
    family = replace(family, grid=_no_grid, prepare=partial(_prepare_clip, form))
    if form.kind == "transcript":
        return replace(family, generate=generate_transcript)
    if form.kind == "audio tokens" and getattr(module.config, "audio_token_id", None) is None:
        return replace(family, prepare=_refuse_clip)
    if form.kind == "audio tokens":
        step = find_projector_step(
            module.base_model, form, layer_modules(stacks[0], module.base_model)[0]
        )
        return replace(
            family,
            prepare=prepare_with_prompt,
            generate=generate_answer,
            projector_step=lambda config: step,
        )
    return family


def _make_check_inputs(
    base: PretrainedModule, form: InputForm, encoder: StackSpec, heads: dict[str, int]
) -> dict[str, Tensor]:
    """Inputs for the self-check, which cuts the encoder's states: audio tokens for what it leaves."""
    stack = bind_stack(encoder, base, heads[encoder.name])
    if form.kind == "audio tokens" and stack is not None:
        try:
            with Capture([stack], lambda block: None, layers=(), max_positions=_CHECKED_POSITIONS):
                inputs = form.make(base)
                form.run(base, inputs, _ALL_STACKS)
            return inputs
        except Exception:  # an encoder that cannot be cut is checked whole
            return form.make(base)
    return form.make(base)


def _no_grid(config: Config, n_samples: int) -> Any:
    raise InputError("frames were not measured")


def _prepare_clip(
    form: InputForm, model: Model, clip: Any, stacks: tuple[str, ...]
) -> PreparedInputs:
    features = extract_features(model, clip)
    inputs = select_inputs(form, features.tensors)
    prepared = PreparedInputs(inputs, audio_hash=features.audio_hash)
    return add_decoder_tokens(model, clip, stacks, prepared)


def _refuse_clip(model: Model, clip: Any, stacks: tuple[str, ...]) -> PreparedInputs:
    raise InputError(
        f"{model.name}: no audio token is in its config, so how sound and text share its decoder is not "
        "known: give prepared inputs"
    )


def _verify(module: PretrainedModule, family: Family, form: InputForm) -> str:
    """Say what of a family is not as the definition has it; empty if all is."""
    try:
        self_check(Model(module, family, type(module).__name__))
        comparisons = _compare_in_double(module, family, form)
        counts = {found.stack: found.source_count for found in comparisons}
        if counts.get("cross", 0) != counts.get("encoder", 0) and "cross" in counts:
            return (
                f"cross-attention reads {counts['cross']} states and the encoder gives "
                f"{counts['encoder']}: its sources are no frames"
            )
        return explain_disagreement(comparisons)
    except SpeechmixError as error:
        return str(error)
    except Exception as error:  # the model does not run on what tracing made for it
        return f"{type(error).__name__}: {first_line(error)}"


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
