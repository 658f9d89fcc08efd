"""Value classes of a decoder's context: prefix, prompt and generated text.

In: options of `Model.with_prefix` and `Model.with_prompt`, and what a model wrote. Out: values with
a short description for names and the facts for hashes.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

TRANSCRIBE = "Transcribe the speech."


@dataclass(frozen=True)
class DecoderPrefix:
    """What begins a Whisper's decoder input: task, language, timestamp mode, prompt and hotwords.

    `task` is "transcribe", or "translate" into English. `language` ("fr") is by default the clip's
    own, or the one the model detects. `timestamps` puts the text between timestamp tokens, instead
    of behind <|notimestamps|>. `hotwords` and `prompt` stand in this order behind <|startofprev|>
    (decoder_text.py).

    Examples
    --------
    >>> DecoderPrefix("translate", timestamps=True).description
    'translate, timestamps'
    """

    task: str = "transcribe"
    language: str | None = None
    timestamps: bool = False
    prompt: str = ""
    hotwords: str = ""

    @property
    def description(self) -> str:
        """What differs from the default, for names in tables and files; empty for the default
        prefix."""
        phrases = [
            self.task if self.task != "transcribe" else "",
            f"as {self.language}" if self.language else "",
            "timestamps" if self.timestamps else "",
            f"prompt: {self.prompt}" if self.prompt else "",
            f"hotwords: {self.hotwords}" if self.hotwords else "",
        ]
        return ", ".join(phrase for phrase in phrases if phrase)

    @property
    def hash_values(self) -> tuple[object, ...] | None:
        """The values for hashes; None for the default prefix."""
        values = (self.task, self.language, self.timestamps)
        texts = (self.prompt, self.hotwords) if self.prompt or self.hotwords else ()
        return (*values, *texts) if self.description else None


@dataclass(frozen=True)
class Prompt:
    """The prompt of an audio language model, and its answer.

    `text` stands behind the sound; one that holds the model's audio token is taken as it is,
    without a chat template. `answer` is what the decoder is fed for every clip; with `transcribes`,
    the answer is the clip's text where there is no `answer`. Without either, the model generates
    its answer (greedy).

    Examples
    --------
    >>> Prompt("How many speakers are there?").description
    'How many speakers are there?'
    """

    text: str = TRANSCRIBE
    answer: str | None = None
    transcribes: bool = True

    @property
    def description(self) -> str:
        """What differs from the default, for names in tables and files; empty for the default
        prompt."""
        phrases = [
            self.text if self.text != TRANSCRIBE else "",
            f"answer: {self.answer}" if self.answer else "",
        ]
        return "; ".join(phrase for phrase in phrases if phrase)

    @property
    def hash_values(self) -> tuple[object, ...]:
        """For hashes."""
        return astuple(self)


@dataclass(frozen=True)
class GeneratedText:
    """Text that a model generated.

    `ids` are what the decoder is fed again: with the prefix (the first `n_prefix`), without the end
    of text. `text` leaves special tokens out; `by` names the model and says that its choice was
    greedy. `ended` is False if it would have gone on. `frames`: each token's frames in a
    transducer, from where it was emitted; empty for other models.
    """

    ids: tuple[int, ...]
    n_prefix: int
    text: str
    by: str
    ended: bool = True
    frames: tuple[tuple[int, int], ...] = ()
