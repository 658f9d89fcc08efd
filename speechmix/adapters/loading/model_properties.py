"""What can be read off a loaded model: what it is made of, what it can do, how it is called.

In: the module, its table and its processors, as `Model` holds them. Out: facts, which nothing here
changes.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Literal

import torch

from ...errors import InputError, ModelError
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
