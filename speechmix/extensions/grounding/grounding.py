"""`Grounding`: the words that a model wrote about a recording, each with what it came from.

What can be asked of it is a table, a transcript with or without doubtful words, findings in sentences, and files
(`page`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import isnan
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from ...errors import InputError
from ...files.json_files import Json, JsonObject
from .grounded_words import DEFAULT_THRESHOLD, GroundedWord
from .loops import Loop, repeated_windows

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip

_FORMAT = "speechmix grounding 2"
_MOST_PROMPTED = 8  # words from the prompt that a sentence names


@dataclass(frozen=True)
class Grounding:
    """The words that a model wrote about a recording.

    Parameters
    ----------
    name : str
        Of the recording.
    seconds : float
    model : str
    words : tuple of GroundedWord
    loops : tuple of Loop
    calibration : str
        What the word confidence was fitted on; empty without a calibration.
    clip : Clip, optional
        The recording, for the sound of a page; not stored.
    """

    name: str
    seconds: float
    model: str
    words: tuple[GroundedWord, ...]
    loops: tuple[Loop, ...] = ()
    calibration: str = ""
    clip: Clip | None = None

    def __str__(self) -> str:
        return "\n".join([self.transcript(mark=True), self.summary, *self.findings])

    def _repr_html_(self) -> str:
        from .page import grounding_body

        return grounding_body(self, threshold=DEFAULT_THRESHOLD)

    def doubtful(self, threshold: float = DEFAULT_THRESHOLD) -> list[int]:
        """Return the indices of words that are not in the sound.

        Parameters
        ----------
        threshold : float
            Nats of log-probability that a word, or a near word of its phrase, must lose without the sound.

        Raises
        ------
        InputError
            If the threshold is negative or no number.
        """
        if not threshold >= 0:
            raise InputError(f"expected threshold in nats, from 0, found {threshold!r}")
        return [i for i, word in enumerate(self.words) if not word.is_in_sound(threshold)]

    def transcript(self, *, threshold: float = DEFAULT_THRESHOLD, mark: bool = False) -> str:
        """Return the text without words that are not in the sound, or with them in brackets.

        Parameters
        ----------
        threshold : float
            As of `doubtful`.
        mark : bool
            Put doubtful words in brackets instead of leaving them out.
        """
        doubtful = set(self.doubtful(threshold))
        return " ".join(
            f"[{word.text}?]" if index in doubtful else word.text
            for index, word in enumerate(self.words)
            if mark or index not in doubtful
        )

    @property
    def summary(self) -> str:
        """One line about the whole recording."""
        return self.summarize()

    def summarize(self, threshold: float = DEFAULT_THRESHOLD) -> str:
        """Return one line about the whole recording: words, doubtful words, loops."""
        count = len(self.doubtful(threshold))
        loops = f"; {len(self.loops)} repetition loop{'s' * (len(self.loops) > 1)}"
        return (
            f"{self.name}: {len(self.words)} word{'s' * (len(self.words) != 1)} in {self.seconds:.1f} s by {self.model}; "
            f"{count} not in the sound (threshold {threshold:g} nat{'s' * (threshold != 1)})"
            f"{loops if self.loops else ''}"
        )

    @property
    def confidence_statement(self) -> str:
        """What the probability of being right is worth."""
        if self.calibration:
            return f"The probability that a word is right was fitted on {self.calibration}."
        return (
            "Not calibrated: whether a word is right is not estimated. Fit a word confidence for this model with "
            "`speechmix calibrate`."
        )

    @property
    def findings(self) -> list[str]:
        """What stands out, in sentences."""
        sentences = []
        if not self.words:
            sentences.append("The model writes nothing: nobody seems to speak here.")
        elif len(self.doubtful()) == len(self.words):
            sentences.append("Nobody seems to speak here: no word comes from the sound.")
        sentences += [loop.sentence(self.words) for loop in self.loops]
        sentences += repeated_windows(self.words)
        from_prompt = [word for word in self.words if word.is_from_prompt()]
        if from_prompt:
            texts = [f"{word.text} (without it: {word.without_prompt})" for word in from_prompt]
            first_words = ", ".join(texts[:_MOST_PROMPTED])
            rest = f" and {len(texts) - _MOST_PROMPTED} more" if len(texts) > _MOST_PROMPTED else ""
            sentences.append(f"The prompt or the text before decides: {first_words}{rest}.")
        return sentences

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row for each word: times, probabilities, effects in nats, and the reason."""
        names = [field.name for field in fields(GroundedWord) if field.name != "loop"]
        rows = [
            {name: getattr(word, name) for name in names}
            | {"sound": word.sound, "in_sound": word.is_in_sound()}
            | {"loop": self._loop_number(word), "reason": word.reason}
            for word in self.words
        ]
        return pd.DataFrame(rows, columns=[*names, "sound", "in_sound", "loop", "reason"])

    def save(self, path: str | PathLike[str], *, threshold: float = DEFAULT_THRESHOLD) -> Path:
        """Write a file of the kind that its ending says.

        Parameters
        ----------
        path : path
            .html, .csv, .json, .parquet, .TextGrid, .eaf, .vtt, .srt or .txt (the clean transcript).
        threshold : float
            For marks.

        Raises
        ------
        InputError
            For another ending.
        """
        from .page import write_grounding

        return write_grounding(self, Path(path), threshold=threshold)

    def to_json(self) -> JsonObject:
        """Return all of it but the sound, as JSON holds it; NaN is null."""
        return {
            "format": _FORMAT,
            "name": self.name,
            "seconds": self.seconds,
            "model": self.model,
            "calibration": self.calibration,
            "words": [_without_nan(asdict(word)) for word in self.words],
            "loops": [asdict(loop) for loop in self.loops],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Json]) -> Grounding:
        """Read what `to_json` returned.

        Raises
        ------
        InputError
            If it is something else.
        """
        if content.get("format") != _FORMAT:
            raise InputError(f"expected {_FORMAT!r}, found {content.get('format')!r}")
        words = tuple(
            GroundedWord(**{name: _with_nan(name, value) for name, value in word.items()})
            for word in content["words"]
        )
        loops = tuple(Loop.from_json(loop) for loop in content["loops"])
        return cls(
            content["name"],
            content["seconds"],
            content["model"],
            words,
            loops,
            content["calibration"],
        )

    @staticmethod
    def join(parts: Sequence[tuple[float, Grounding]], name: str) -> Grounding:
        """Join the parts of one recording, each with the second at which it starts."""
        words: list[GroundedWord] = []
        loops: list[Loop] = []
        n_windows = 0
        for start, part in parts:
            loops += [loop.moved(len(words)) for loop in part.loops]
            words += [
                replace(
                    word,
                    start=round(word.start + start, 3),
                    end=round(word.end + start, 3),
                    window=word.window + n_windows,
                    loop=None if word.loop is None else word.loop + len(loops) - len(part.loops),
                )
                for word in part.words
            ]
            n_windows = 1 + max((word.window for word in words), default=-1)
        start, last = parts[-1]
        return Grounding(
            name,
            start + last.seconds,
            last.model,
            tuple(words),
            tuple(loops),
            last.calibration,
        )

    def _loop_number(self, word: GroundedWord) -> float:
        return float("nan") if word.loop is None else word.loop + 1


def _without_nan(values: JsonObject) -> JsonObject:
    return {
        name: None if isinstance(value, float) and isnan(value) else value
        for name, value in values.items()
    }


def _with_nan(name: str, value: Json) -> Json:
    return float("nan") if value is None and name != "loop" else value
