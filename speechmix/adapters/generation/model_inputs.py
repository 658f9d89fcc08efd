"""What a model is fed: the inputs made from a clip or a sentence, and the tokens of each side.

In: tensors by the name of the module's argument. Out: `PreparedInputs`, which a family's table returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...errors import InputError

if TYPE_CHECKING:
    from .audio_token_frames import AudioTokens
    from .decoder_context import GeneratedText
    from .token_sequence import Tokens


@dataclass
class PreparedInputs:
    """Model inputs made from a clip or a sentence.

    `tokens` are the decoder's and `source_tokens` those of an encoder that reads text; None where
    there is no such stack. `generated_text` is what the model generated itself, where its decoder
    is fed that. `audio_hash` names the sound that the inputs were made of, where results from it
    are cached (activation_cache.py).
    """

    inputs: dict[str, torch.Tensor]
    tokens: Tokens | None = None
    source_tokens: Tokens | None = None
    generated_text: GeneratedText | None = None
    audio_hash: str | None = None
    audio_tokens: AudioTokens | None = None

    @property
    def decoder_tokens(self) -> Tokens:
        """The decoder's tokens; an InputError if nothing is fed to a decoder."""
        if self.tokens is None:
            raise InputError("these inputs feed no decoder: give a text, or decoder_input_ids")
        return self.tokens

    @property
    def deciding_frame(self) -> int | None:
        """Frame at which a transducer decides between two spellings; None of other models."""
        row = None if self.tokens is None else self.tokens.deciding_row
        frames = self.inputs.get("decoder_frames")
        return None if row is None or frames is None else int(frames[0, row])

    @property
    def text_tokens(self) -> Tokens:
        """Tokens of the text that is read: the encoder's, or those of the only decoder."""
        return self.decoder_tokens if self.source_tokens is None else self.source_tokens


class HashedInputs(dict[str, Tensor]):
    """Prepared inputs with the hash of their sound, so that what is cached for that sound serves
    them too."""

    def __init__(self, inputs: Mapping[str, torch.Tensor], audio_hash: str | None):
        super().__init__(inputs)
        self.audio_hash = audio_hash
