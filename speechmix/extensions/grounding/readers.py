"""The reader of each kind of model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ...errors import InputError
from .answer_reader import AnswerReader
from .decoder_reader import DecoderReader
from .frame_reader import FrameReader
from .transducer_reader import TransducerReader
from .word_readings import WordReadings

if TYPE_CHECKING:
    from ...adapters.model import Model
    from .windows import DecodedWindow


class WindowReader(Protocol):
    """Reads the words of decoded windows."""

    def read(self, window: DecodedWindow) -> WordReadings | None: ...


READERS: dict[str, Callable[[Model, str | None], WindowReader]] = {
    "cross-attention": DecoderReader,
    "frames": FrameReader,
    "audio tokens": AnswerReader,
    "transducer": TransducerReader,
}


def find_reader(model: Model, language: str | None = None) -> WindowReader:
    """Return the reader of a model's kind.

    Raises
    ------
    InputError
        If the model does not transcribe sound.
    """
    reader = READERS.get(model.capabilities.decoding)
    can_write = model.can_transcribe or model.capabilities.has_audio_tokens
    if reader is None or not can_write or model.init != "trained":
        raise InputError(
            f"{model.label} does not transcribe: expected a trained speech recogniser or audio language model with "
            f"its processor{model.missing_processor}"
        )
    return reader(model, language)
