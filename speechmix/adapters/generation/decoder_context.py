"""Value classes of a decoder's context: prefix, prompt and generated text.

In: options of `Model.with_prefix` and `Model.with_prompt`, and what a model wrote. Out: values with
a short description for names and the facts for hashes.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

TRANSCRIBE = "Transcribe the speech."


@dataclass(frozen=True)
class DecoderPrefix:
    """What a Whisper's decoder is told.

    Parameters
    ----------
    task : {"transcribe", "translate"}
        Write what is said, or its translation into English.
    language : str, optional
        Language the decoder is told that is spoken ("fr"); by default the clip's own, or the one
        the model detects.
    timestamps : bool
        Text between timestamp tokens, instead of behind <|notimestamps|>.

    Examples
    --------
    >>> DecoderPrefix("translate", timestamps=True).description
    'translate, timestamps'
    """

    task: str = "transcribe"
    language: str | None = None
    timestamps: bool = False

    @property
    def description(self) -> str:
        """What is not as usual, for names in tables and files; empty for the usual prefix."""
        phrases = [
            self.task if self.task != "transcribe" else "",
            f"as {self.language}" if self.language else "",
        ]
        return ", ".join(
            phrase for phrase in (*phrases, "timestamps" if self.timestamps else "") if phrase
        )

    @property
    def hash_values(self) -> tuple[str, str | None, bool] | None:
        """For hashes; None for the usual prefix."""
        return astuple(self) if self.description else None


@dataclass(frozen=True)
class Prompt:
    """What an audio language model is asked.

    Parameters
    ----------
    text : str
        GeneratedText behind the sound; one that holds the model's audio token is taken as it is, without
        a chat template.
    answer : str, optional
        What the decoder is fed as the answer, to every clip.
    transcribes : bool
        True if the answer is the clip's text, where neither is an `answer` given nor a clip without
        one.

    Without either, the model writes its answer itself (greedy).

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
        """What is not as usual, for names in tables and files; empty for the usual prompt."""
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
    """What a model wrote.

    Parameters
    ----------
    ids : tuple of int
        As the decoder is fed them again: with the prefix, without the end of text.
    n_prefix : int
        How many of them were given and not written.
    text : str
        What they spell, special tokens left out.
    by : str
        The model, and that its choice was greedy.
    ended : bool
        False if it would have gone on.
    frames : tuple of (int, int)
        Of a transducer: each token's frames, from where it was emitted; empty of other models.
    """

    ids: tuple[int, ...]
    n_prefix: int
    text: str
    by: str
    ended: bool = True
    frames: tuple[tuple[int, int], ...] = ()
