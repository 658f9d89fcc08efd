"""`Grounding`: the words that a model wrote about a recording, each with what it came from.

What can be asked of it is a table, a transcript with or without doubtful words, findings in sentences, and files
(`grounding_files`).
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
from .grounded_words import GroundedWord
from .loops import Loop, repeated_windows

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip

DEFAULT_THRESHOLD = 0.5  # of the probability that a word was made up
_FORMAT = "speechmix grounding 1"
_HIDDEN = ("features", "loop")  # not columns of the table


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
        What the probabilities were fitted on; empty without a calibration.
    clip : Clip, optional
        The recording, for the sound of a page; not stored.
    has_default_calibration : bool
        True if the calibration comes with the package: then the probabilities only order the words.
    """

    name: str
    seconds: float
    model: str
    words: tuple[GroundedWord, ...]
    loops: tuple[Loop, ...] = ()
    calibration: str = ""
    clip: Clip | None = None
    has_default_calibration: bool = False

    def __str__(self) -> str:
        return "\n".join([self.transcript(mark=True), self.summary, *self.findings])

    def _repr_html_(self) -> str:
        from .page import grounding_body

        return grounding_body(self, threshold=DEFAULT_THRESHOLD)

    def doubtful(self, threshold: float = DEFAULT_THRESHOLD) -> list[int]:
        """Return the indices of words that were more likely made up than the threshold.

        Raises
        ------
        InputError
            If the threshold is no probability.
        """
        if not 0 <= threshold <= 1:
            raise InputError(f"expected threshold as a probability, 0 to 1, found {threshold!r}")
        return [index for index, word in enumerate(self.words) if word.made_up > threshold]

    def transcript(self, *, threshold: float = DEFAULT_THRESHOLD, mark: bool = False) -> str:
        """Return the text without doubtful words, or with them in brackets.

        Parameters
        ----------
        threshold : float
            Words with a higher probability of being made up are doubtful.
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
        doubtful_words = f"{len(self.doubtful(threshold))} probably not in the sound"
        if self.words and all(isnan(word.made_up) for word in self.words):
            count = sum(not word.needs_sound for word in self.words)
            doubtful_words = (
                f"{count} that muting all sound does not change (no probabilities: fit them "
                "with `speechmix calibrate`)"
            )
        elif self.words and self.has_default_calibration:
            doubtful_words += (
                " by the package's default probabilities, which were fitted on other models and only "
                "order the words (fit your own with `speechmix calibrate`)"
            )
        loops = f"; {len(self.loops)} repetition loop{'s' * (len(self.loops) > 1)}"
        return (
            f"{self.name}: {len(self.words)} words in {self.seconds:.1f} s by {self.model}; "
            f"{doubtful_words}{loops if self.loops else ''}"
        )

    @property
    def findings(self) -> list[str]:
        """What stands out, in sentences."""
        doubtful = self.doubtful()
        sentences = []
        if not self.words:
            sentences.append("The model writes nothing: nobody seems to speak here.")
        elif len(doubtful) == len(self.words):
            sentences.append("Nobody seems to speak here: no word seems to come from the sound.")
        sentences += [loop.sentence(self.words) for loop in self.loops]
        sentences += repeated_windows(self.words)
        return sentences

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row for each word: times, probabilities, effects in nats, and the reason."""
        names = [field.name for field in fields(GroundedWord) if field.name not in _HIDDEN]
        rows = [
            {name: getattr(word, name) for name in names}
            | {"sound": word.sound, "loop": self._loop_number(word), "reason": word.reason}
            for word in self.words
        ]
        return pd.DataFrame(rows, columns=[*names, "sound", "loop", "reason"])

    def save(self, path: str | PathLike[str], *, threshold: float = DEFAULT_THRESHOLD) -> Path:
        """Write a file of the kind that its ending says.

        Parameters
        ----------
        path : path
            .html, .csv, .json, .parquet, .TextGrid, .eaf, .vtt or .txt (the clean transcript).
        threshold : float
            For marks.

        Raises
        ------
        InputError
            For another ending.
        """
        from .grounding_files import write_grounding

        return write_grounding(self, Path(path), threshold=threshold)

    def to_json(self) -> JsonObject:
        """Return all of it but the sound, as JSON holds it; NaN is null."""
        return {
            "format": _FORMAT,
            "name": self.name,
            "seconds": self.seconds,
            "model": self.model,
            "calibration": self.calibration,
            "has_default_calibration": self.has_default_calibration,
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
            # results stored before this was said may be of either: the weaker claim
            has_default_calibration=content.get(
                "has_default_calibration", bool(content["calibration"])
            ),
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
            has_default_calibration=last.has_default_calibration,
        )

    def _loop_number(self, word: GroundedWord) -> float:
        return float("nan") if word.loop is None else word.loop + 1


def _without_nan(values: JsonObject) -> JsonObject:
    def clean(value: Json) -> Json:
        if isinstance(value, tuple | list):
            return [clean(item) for item in value]
        return None if isinstance(value, float) and isnan(value) else value

    return {name: clean(value) for name, value in values.items()}


def _with_nan(name: str, value: Json) -> Json:
    if name == "features":
        return tuple(float("nan") if item is None else item for item in value)
    return float("nan") if value is None and name != "loop" else value
