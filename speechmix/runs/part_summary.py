"""Say in one line what was computed of a part of a run: one model or twin and its clips.

In: what `result_line` takes of each clip. Out: the line of a single clip as it is; of several, how
many were scored, whose word times may be wrong, which clips the model does not transcribe, and
which transcripts differ from their texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..adapters.model import Model
from ..alignment.alignment_result import without_calibration_note
from ..files.json_files import Json
from ..inputs.clips.clip import Clip
from ..inputs.words.transcript_accuracy import count_word_errors, is_other_text
from .results.tidy_tables import result_line

_MAX_NAMES = 5  # of a list of clips; the tables have them all


class PartSummary:
    """Collects the clips of one model that were computed.

    Doubts about clips are listed for a trained model alone: its twins have the same word times.
    """

    def __init__(self, model: Model):
        self._model = model
        self._clip_count = self._transcript_count = 0
        self._single_line = ""
        self._doubtful_names: list[str] = []
        self._other_text_names: list[str] = []
        self._differing_names: list[str] = []  # by less

    def add(self, clip: Clip, shares: Sequence[Mapping[str, Json]], transcript: str | None) -> None:
        """Add a clip, as `result_line` takes it."""
        self._clip_count += 1
        if self._clip_count == 1:
            self._single_line = result_line(clip, self._model, shares, transcript)
        if without_calibration_note(" ".join(clip.doubts)):
            self._doubtful_names.append(clip.name)
        if transcript is not None and clip.text is not None:
            self._transcript_count += 1
            if is_other_text(transcript, clip.text, clip.language):
                self._other_text_names.append(clip.name)
            elif count_word_errors(clip.text, transcript, clip.language):
                self._differing_names.append(clip.name)

    def line(self) -> str | None:
        """Return the line; None without any clip."""
        if self._clip_count <= 1:
            return self._single_line or None
        phrases = [f"{self._model.label}: {self._clip_count} clips scored"]
        if self._model.init == "trained" and self._doubtful_names:
            phrases.append(
                f"word times may be wrong in {len(self._doubtful_names)} "
                f"({_list_names(self._doubtful_names)}; clips.csv says why)"
            )
        if count := len(self._other_text_names):
            phrases.append(
                f"writes another text for {count} clip{'s' * (count > 1)}: "
                f"{_list_names(self._other_text_names)} (see transcripts.csv)"
            )
        if count := len(self._differing_names):
            phrases.append(
                f"{count} of {self._transcript_count} transcripts differ{'s' * (count == 1)} from the "
                f"text by some words ({_list_names(self._differing_names)})"
            )
        return "; ".join(phrases)


def _list_names(names: Sequence[str]) -> str:
    """List the first names, and how many more there are.

    Examples
    --------
    >>> _list_names(["a", "b"]), _list_names(list("abcdefg"))
    ('a, b', 'a, b, c, d, e and 2 more')
    """
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more
