"""What a kind of model can do, as plain values.

In: what a family's table declares, and the stacks that a loaded model has. Out: `Capabilities`:
which input it takes, how it predicts tokens, which stack reads which side of the input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

InputKind = Literal["audio", "text"]
Decoding = Literal["frames", "masked", "causal", "cross-attention", "audio tokens", "transducer"]
Side = Literal["sound", "text"]
SoundPooling = Literal["mean", "mean of all layers", "added tokens"]


@dataclass(frozen=True)
class Capabilities:
    """The kind of a loaded model.

    Parameters
    ----------
    family : str
    input_kind : {"audio", "text"}
    stacks : tuple of str
        Stacks that the model has, in the order of its family's table.
    projector_step : tuple of int, optional
        How many frames of the encoder become how many positions of the decoder, where the decoder
        reads audio among its tokens.
    is_transducer : bool
        Whether a prediction network and a joint network are behind the encoder (RNN-T, TDT).
    sound_pooling : {"mean", "mean of all layers", "added tokens"}
        Which states a classification head of a sound reads: the mean over frames of the last
        states, or of a weighted sum of the states of all layers; or the last states of tokens that
        the model adds in front of the frames (AST).

    Examples
    --------
    >>> whisper = Capabilities("whisper", "audio", ("encoder", "decoder", "cross"))
    >>> whisper.decoding, whisper.output_stack, whisper.stack_by_side
    ('cross-attention', 'decoder', {'sound': 'encoder', 'text': 'decoder'})
    """

    family: str
    input_kind: InputKind
    stacks: tuple[str, ...]
    projector_step: tuple[int, int] | None = None
    is_transducer: bool = False
    sound_pooling: SoundPooling = "mean"

    @property
    def has_audio_tokens(self) -> bool:
        """True for an audio language model, whose decoder reads audio among its tokens."""
        return self.projector_step is not None and "decoder" in self.stacks

    @property
    def decoding(self) -> Decoding:
        """How tokens are predicted: at frames (CTC), in place of a mask, from the tokens before (of
        a decoder alone, behind an encoder, or behind a prompt with audio tokens), or at frames from
        the tokens before (transducer)."""
        if self.is_transducer:
            return "transducer"
        if self.has_audio_tokens:
            return "audio tokens"
        if "cross" in self.stacks:
            return "cross-attention"
        if "decoder" in self.stacks:
            return "causal"
        return "frames" if self.input_kind == "audio" else "masked"

    @property
    def input_stack(self) -> str:
        """The stack that the input enters first."""
        return "encoder" if "encoder" in self.stacks else "decoder"

    @property
    def output_stack(self) -> str:
        """The stack whose last states are read by the model's head."""
        return "decoder" if "decoder" in self.stacks else "encoder"

    @property
    def decoder_stacks(self) -> tuple[str, ...]:
        """Stacks of a decoder behind an encoder by cross-attention; none of another model."""
        return ("decoder", "cross") if "cross" in self.stacks else ()

    @property
    def sides(self) -> tuple[Side, ...]:
        """Sides of the input that words can be removed from; the text of an audio language model is
        its prompt and answer."""
        return ("sound",) if self.has_audio_tokens else tuple(self.stack_by_side)

    @property
    def stack_by_side(self) -> dict[Side, str]:
        """The stack that reads each side of the input; of a text that is translated, the text."""
        if self.input_kind == "text":
            return {"text": self.input_stack}
        text: dict[Side, str] = {"text": "decoder"} if "decoder" in self.prepared_stacks else {}
        return {"sound": "encoder", **text}

    @property
    def prepared_stacks(self) -> tuple[str, ...]:
        """Stacks, and the prediction network of a transducer ("decoder"), which has no layers to
        look into but is fed a text."""
        return (*self.stacks, "decoder") if self.is_transducer else self.stacks

    @property
    def input_stacks(self) -> tuple[str, ...]:
        """Stacks whose sources are words of the input, each stack other words."""
        stacks = self.stacks[:1] if self.has_audio_tokens else self.stacks
        return tuple(name for name in stacks if name != "cross")

    @property
    def stacks_to_output(self) -> tuple[str, ...]:
        """Stacks whose states are followed to a logit: of an audio language model the decoder, up
        to where audio enters it."""
        return ("decoder",) if self.has_audio_tokens else self.stacks

    @property
    def has_shared_features(self) -> bool:
        """True if features are made of the audio alone, and serve every call for it."""
        return self.input_kind == "audio" and not self.has_audio_tokens

    @property
    def label_pooling(self) -> SoundPooling | Literal["first", "last"]:
        """Which states a classification head reads: of a sound those of `sound_pooling`, of a text
        the last states of its first or its last token."""
        if self.input_kind == "audio":
            return self.sound_pooling
        return "last" if "decoder" in self.stacks else "first"

    @property
    def text_input(self) -> str:
        """Name of the input that holds the tokens of the text side."""
        return "input_ids" if self.input_kind == "text" else self.generated_input

    @property
    def generated_input(self) -> str:
        """Name of the input that holds the tokens that the model generates, fed to it again."""
        has_encoder = bool(self.decoder_stacks) or self.is_transducer
        return "decoder_input_ids" if has_encoder else "input_ids"

    @property
    def can_shorten_text(self) -> bool:
        """True if tokens can be left out of the text; among tokens, positions of the audio would
        move."""
        return not self.has_audio_tokens

    @property
    def is_single_text_stack(self) -> bool:
        """True for a masked or causal language model, or a classifier of texts."""
        return self.input_kind == "text" and len(self.stacks) == 1
