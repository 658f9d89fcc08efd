"""What can be read off a loaded model: what it is made of, what it can do, how it is called.

In: the module, its table and its processors, as `Model` holds them. Out: facts, which nothing here
changes.

Identify a model by a short hash of all that decides its output for a clip or a text.

In: a module with its feature extractor and tokenizer. Out: 16 hexadecimal digits, the same for the
same checkpoint wherever it lies and in every process: of the class, the config, every number of
every parameter and buffer, the feature extractor's settings, and what the tokenizer does with a
text (not the settings of its last call: padding, truncation).
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import weakref
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from ...errors import InputError, ModelError
from ...files.json_files import Json, JsonObject
from ..capture.module_access import is_packed, list_modules
from ..transformers_types import Config, FeatureExtractor, Processor, Tokenizer

if TYPE_CHECKING:
    from ..binding.bound_layers import Stack
    from ..families.capabilities import Capabilities, Decoding
    from ..generation.decoder_context import DecoderPrefix, Prompt
    from .foreign_checkpoint import CheckpointOrigin

_RECOGNIZER_SUFFIXES = (
    "ForCTC",
    "ForConditionalGeneration",
    "ForSpeechToText",
    "ForRNNT",
    "ForTDT",
    "SpeechEncoderDecoderModel",
)  # how names of recognisers end


class ModelDescription:
    """What a `Model` says of itself."""

    module: Any
    capabilities: Capabilities
    name: str
    init: str
    seed: int | None
    feature_extractor: FeatureExtractor
    tokenizer: Tokenizer
    processor: Processor
    prefix: DecoderPrefix
    prompt: Prompt
    stacks: dict[str, Stack]
    origin: CheckpointOrigin | None
    engine: Any

    @property
    def base(self) -> torch.nn.Module:
        """The model without its head."""
        result: torch.nn.Module = getattr(self.module, "base_model", self.module)
        return result

    @property
    def has_head(self) -> bool:
        """True if there is something behind the model's states that predicts (...ForCTC,
        ...LMHeadModel), and what it reads is in a stack."""
        class_name = type(self.module).__name__
        if not self.has_label_head and class_name.endswith("ForSpeechToText"):
            return "decoder" in self.stacks  # of SeamlessM4T the table has the encoder alone
        is_head = self.module is not self.base or "For" in class_name
        return is_head or class_name.endswith(_RECOGNIZER_SUFFIXES)

    @property
    def missing_processor(self) -> str:
        """What to do about a processor that the model lacks, for the end of a message; "" if it
        lacks none."""
        missing = [
            name
            for name, part, is_needed in (
                ("feature extractor", self.feature_extractor, self.hears),
                ("tokenizer", self.tokenizer, self.has_head and not self.has_label_head),
            )
            if is_needed and part is None
        ]
        if not missing:
            return ""
        return f". It was loaded without a {' and a '.join(missing)}: load it with processor="

    @property
    def readable_attention(self) -> str:
        """The attention implementation of transformers that the model is run under to be read."""
        specs = [block for stack in self.stacks.values() for block in stack.spec.blocks]
        return "eager" if any(spec.needs_eager for spec in specs) else "sdpa"

    @property
    def hears(self) -> bool:
        """True for a speech model, False for a text model."""
        return self.capabilities.input_kind == "audio"

    @property
    def converses(self) -> bool:
        """True for an audio language model, whose decoder reads sound among its tokens."""
        return self.capabilities.has_audio_tokens

    @property
    def takes_chat(self) -> bool:
        """True for a model whose processor writes a prompt around a sound: an audio language model, or one of
        which only the decoder is measured (Gemma 4)."""
        return getattr(self.processor, "audio_token", None) is not None

    @property
    def projector_step(self) -> tuple[int, int]:
        """How many frames of the encoder become how many positions of an audio language model's
        decoder."""
        if self.capabilities.projector_step is None:
            raise ModelError(
                f"{self.name} is no audio language model: no sound is among its decoder's tokens"
            )
        return self.capabilities.projector_step

    def refuse_audio_tokens(self, reason: str) -> None:
        """Raise `InputError` for an audio language model, whose decoder reads audio among tokens."""
        if self.capabilities.has_audio_tokens:
            raise InputError(reason)

    @property
    def transcribes(self) -> bool:
        """True for a speech model whose text is the words of the sound: no translation, no answer."""
        is_transcript = self.prompt.transcribes and self.prefix.task != "translate"
        return self.capabilities.input_kind == "audio" and is_transcript

    @property
    def output_kind(self) -> Literal["labels"] | Decoding:
        """What the model predicts: labels, or tokens in this way."""
        return "labels" if self.has_label_head else self.capabilities.decoding

    @property
    def can_transcribe(self) -> bool:
        """True for a speech recogniser with a tokenizer and a CTC or language-model head."""
        is_recognizer = (
            type(self.module).__name__.endswith(_RECOGNIZER_SUFFIXES)
            and self.hears
            and not self.converses
        )
        return is_recognizer and self.tokenizer is not None and self.feature_extractor is not None

    @property
    def has_label_head(self) -> bool:
        """True for a model with a classification head, for texts or for sounds
        (...ForAudioClassification)."""
        return type(self.module).__name__.endswith(
            ("ForSequenceClassification", "ForAudioClassification")
        )

    @property
    def config(self) -> Config:
        return self.module.config

    @property
    def text_config(self) -> Config:
        """The part of the config that is about text, in models that hold a language model; else all
        of it."""
        return getattr(self.config, "text_config", None) or self.config

    @property
    def sample_rate(self) -> int:
        """Samples per second the model was made for."""
        return getattr(self.feature_extractor, "sampling_rate", 16_000)

    @property
    def device(self) -> torch.device:
        result: torch.device = next(self.module.parameters()).device
        return result

    @property
    def dtype(self) -> torch.dtype:
        result: torch.dtype = next(self.module.parameters()).dtype
        return result

    @property
    def state_dtype(self) -> torch.dtype:
        """Precision to compute in: the weights' own, float32 for half-precision weights."""
        return self.dtype if self.dtype.itemsize >= 4 else torch.float32

    @property
    def label(self) -> str:
        """Name for tables and files: the model, and the seed of a random twin."""
        return self.name if self.init == "trained" else f"{self.name} random {self.seed}"

    @property
    def writer(self) -> str:
        """Who writes the transcripts: the model, or the engine that runs it beside its copy here."""
        return self.label if self.engine is None else f"{self.label} in {self.engine}"

    def describe(self) -> str:
        """Return a few lines that say what was found: family, stacks, layers, heads, norm order,
        final norm."""
        origin = self.init if self.seed is None else f"{self.init}, seed {self.seed}"
        lines = [
            f"{self.name} ({origin}): {type(self.module).__name__}, family {self.capabilities.family}, "
            f"{self.dtype}, {self.device}"
        ]
        if self.origin is not None:
            lines.append(f"  from {self.origin.path}: {self.origin}")
            lines += [f"  {remark}" for remark in self.origin.remarks]
        for stack in self.stacks.values():
            spec = stack.spec
            final_norm = spec.final_norm or "none"
            lines.append(
                f"  {stack.name:<8} {len(stack):>2} layers x {stack.heads} heads, width "
                f"{stack.width}, "
                f"{spec.norm_order}-norm, final norm: {final_norm}"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        """One line: what it is, and its stacks as layers x heads."""
        dtype = str(self.dtype).removeprefix("torch.")
        stacks = ", ".join(
            f"{name} {len(stack)} x {stack.heads}" for name, stack in self.stacks.items()
        )
        origin = "" if self.origin is None else f"; from {self.origin}"
        origin += "" if self.engine is None else f"; beside {self.engine}"
        return (
            f"Model({self.label}: {type(self.module).__name__}, {self.init}, {dtype} on "
            f"{self.device}; {stacks}{origin})"
        )

    def _repr_html_(self) -> str:
        """Shown in a notebook: what it is."""
        return f"<pre>{html.escape(self.describe())}</pre>"


_SCALAR_TYPES = (int, float, str, type(None))  # bool is an int
_CHUNK_BYTES = 2**26  # bytes: a tensor on a GPU is fetched by so many at a time
_HASH_DIGITS = 16

_ORIGIN_KEYS = (
    "_name_or_path",
    "name_or_path",
    "processor_class",
)  # where a checkpoint lay, what it was saved with
_LOADING_PREFIXES = (
    "_",
    "local_files",
    "is_local",
    "trust_remote",
    "use_fast",
)  # how names of options of loading begin


def fingerprint(
    module: nn.Module, feature_extractor: FeatureExtractor = None, tokenizer: Tokenizer = None
) -> str:
    """Hash a model in full: about a second for each gigabyte and core.

    Raises
    ------
    ModelError
        For weights that are not there (on the "meta" device) or not plain numbers (quantised,
        sparse).
    """
    digest = hashlib.sha256(type(module).__qualname__.encode())
    config = getattr(module, "config", None)
    config_values = _remove_origin(config.to_dict() if config is not None else {})
    generation_values = getattr(
        module, "generation_config", None
    )  # decides a decoder's prefix and what a transcript is
    generation_values = (
        _remove_origin(generation_values.to_dict()) if generation_values is not None else {}
    )
    for settings in (
        config_values,
        generation_values,
        _describe_modules(module),
        _extractor_settings(feature_extractor),
        _tokenizer_settings(tokenizer),
    ):
        digest.update(json.dumps(settings, sort_keys=True, default=_serialize_value).encode())
    tensors = sorted(named_tensors(module), key=lambda named: named[0])
    with ThreadPoolExecutor(
        max_workers=min(8, os.cpu_count() or 1)
    ) as workers:  # hashing leaves other threads free
        for (name, tensor), tensor_hash in zip(
            tensors, workers.map(lambda named: _hash_tensor(*named), tensors), strict=True
        ):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode() + tensor_hash)
    return digest.hexdigest()[:_HASH_DIGITS]


def _describe_modules(module: nn.Module) -> list[str]:
    """Settings of modules besides their weights: a norm's epsilon, a convolution's stride."""
    return [
        f"{name} {type(submodule).__qualname__} {_serialize_value(submodule.extra_repr())}"
        for name, submodule in module.named_modules()
    ]


class WeightsSnapshot:
    """The tensors a fingerprint was made of, as they were: has one been exchanged or written to
    since?

    The check is quick: it reads torch's own count of writes and the tensors' addresses. It does not
    see writes that torch does not count, through ``tensor.data`` or a numpy view of a tensor.
    """

    def __init__(self, module: nn.Module, *processors: FeatureExtractor):
        self._module_states = [
            (
                submodule,
                [(name, *_tensor_state(tensor)) for name, tensor in _module_tensors(submodule)],
            )
            for submodule in list_modules(module)
        ]
        self._processor_states = [_processor_state(processor) for processor in processors]

    def is_unchanged(self, module: nn.Module, *processors: FeatureExtractor) -> bool:
        """Return True if nothing has changed."""
        modules = list_modules(module)
        return (
            self._processor_states == [_processor_state(processor) for processor in processors]
            and len(modules) == len(self._module_states)
            and all(
                submodule is old_submodule and _has_same_tensors(states, _module_tensors(submodule))
                for submodule, (old_submodule, states) in zip(
                    modules, self._module_states, strict=True
                )
            )
        )


def _module_tensors(submodule: nn.Module) -> list[tuple[str, Tensor | None]]:
    """A part's own parameters and buffers."""
    return [*submodule._parameters.items(), *submodule._buffers.items()]


def _tensor_state(tensor: Tensor | None) -> tuple[object, ...]:
    """Which tensor it is (held weakly), where it lies, how often it was written to."""
    if tensor is None:
        return None, None, None
    return (
        weakref.ref(tensor),
        _data_address(tensor),
        None if tensor.is_inference() else tensor._version,
    )


def _data_address(tensor: Tensor) -> int:
    return 0 if tensor.is_meta else tensor.data_ptr()


def _has_same_tensors(
    states: list[tuple[Any, ...]], tensors: list[tuple[str, Tensor | None]]
) -> bool:
    if len(states) != len(tensors):
        return False
    for (old_name, tensor_ref, old_address, old_write_count), (name, tensor) in zip(
        states, tensors, strict=True
    ):
        if name != old_name or (None if tensor_ref is None else tensor_ref()) is not tensor:
            return False
        if tensor is not None and (
            old_address != _data_address(tensor)
            or (old_write_count is not None and old_write_count != tensor._version)
        ):
            return False
    return True


def named_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every parameter and buffer with its name, tied ones once; buffers too that no checkpoint
    stores, and what packed weights are unpacked with."""
    for name, parameter in module.named_parameters():
        yield name, parameter
        if is_packed(parameter):
            scales: dict[str, Tensor] = cast("Any", parameter).quant_state.as_dict(packed=True)
            yield from ((f"{name}.{part}", tensor) for part, tensor in scales.items())
    yield from module.named_buffers()


def _processor_state(processor: FeatureExtractor) -> tuple[object, ...]:
    """What tells that a feature extractor is another one or set otherwise, a tokenizer added to or
    set to a language."""
    if hasattr(processor, "get_vocab"):
        return (
            id(processor),
            len(processor),
            getattr(processor, "src_lang", None),
            getattr(processor, "tgt_lang", None),
        )
    return id(processor), {
        name: value
        for name, value in getattr(processor, "__dict__", {}).items()
        if isinstance(value, _SCALAR_TYPES)
    }


def _hash_tensor(name: str, tensor: Tensor) -> bytes:
    """Hash of a tensor's bytes."""
    if tensor.device.type == "meta" or tensor.is_quantized or tensor.layout != torch.strided:
        obstacle = "not in memory" if tensor.device.type == "meta" else "quantised or sparse"
        raise ModelError(
            f"the weight {name!r} is {obstacle}: expected plain numbers. Load the model whole, without "
            "device_map= or quantisation"
        )
    digest, numbers = hashlib.sha256(), tensor.detach().resolve_conj().resolve_neg().reshape(-1)
    for chunk in numbers.split(max(1, _CHUNK_BYTES // numbers.element_size())):
        digest.update(chunk.cpu().view(torch.uint8).numpy())
    return digest.digest()


def _extractor_settings(feature_extractor: FeatureExtractor) -> JsonObject:
    """A feature extractor's settings; of one that is no transformers class, what it holds."""
    if feature_extractor is None:
        return {}
    settings = (
        feature_extractor.to_dict()
        if hasattr(feature_extractor, "to_dict")
        else vars(feature_extractor)
    )
    return {**_remove_origin(settings), "class": type(feature_extractor).__qualname__}


def _tokenizer_settings(tokenizer: Tokenizer) -> JsonObject:
    """What a tokenizer does with a text: its rules and vocabulary."""
    if tokenizer is None:
        return {}
    settings: JsonObject = {"class": type(tokenizer).__qualname__}
    settings["special"] = getattr(tokenizer, "special_tokens_map", None)
    settings["flags"] = {
        name: value
        for name, value in getattr(tokenizer, "init_kwargs", {}).items()
        if isinstance(value, bool) and not name.startswith(_LOADING_PREFIXES)
    }
    if getattr(tokenizer, "is_fast", False):
        rules = json.loads(tokenizer.backend_tokenizer.to_str())
        return {
            **settings,
            "rules": {
                name: rule for name, rule in rules.items() if name not in ("padding", "truncation")
            },
        }
    settings["vocabulary"] = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else None
    for name, value in vars(tokenizer).items():
        if hasattr(value, "serialized_model_proto"):  # sentencepiece
            settings[name] = hashlib.sha256(value.serialized_model_proto()).hexdigest()
        elif name in (
            "bpe_ranks",
            "word_delimiter_token",
            "replace_word_delimiter_char",
            "do_lower_case",
            "_tgt_lang",
        ):
            settings[name] = str(value)
    return settings


def _remove_origin(settings: Mapping[str, Json]) -> JsonObject:
    """Settings without where they lay, those of a config inside the config too."""
    return {
        name: _remove_origin(value) if isinstance(value, dict) else value
        for name, value in settings.items()
        if name not in _ORIGIN_KEYS
    }


def _serialize_value(value: object) -> str:
    """Things JSON has no word for; arrays in full, objects without the address they have in this
    process."""
    if isinstance(value, (np.ndarray, Tensor)):
        return hashlib.sha256(np.ascontiguousarray(np.asarray(value)).tobytes()).hexdigest()
    text = str(value)
    return type(value).__qualname__ if " at 0x" in text else text
