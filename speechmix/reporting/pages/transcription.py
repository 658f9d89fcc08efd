"""What was said and what the models wrote: warnings for the first screen, and both texts of a clip
with their differences.

In: the transcripts of a run. Out: sentences, and texts in pieces that say whether they differ.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

import pandas as pd

from ...inputs.words.transcript_accuracy import MAX_ERROR_RATE, normalize_transcript
from ...runs.results.open_run import StoredRun
from ..plots.panels import model_name
from .wording import format_count

_NOT_TRANSCRIBED = (
    "{model} does not transcribe {which}: its character error rate is {rate:.0f} %. Its maps show "
    "how its layers mix these "
    "sounds. They say nothing about how it would decide a spelling, and its ablation row is no "
    "evidence."
)

Piece = tuple[str, bool]  # text, and whether the other text has it differently


@dataclass(frozen=True)
class WrittenText:
    """What one model wrote about a clip, beside what was said.

    Parameters
    ----------
    model : str
    said, written : list of (str, bool)
        Both texts in pieces; True where they differ.
    """

    model: str
    said: list[Piece]
    written: list[Piece]

    @property
    def differs(self) -> bool:
        """Whether the transcript is not what was said; case and punctuation make no difference."""
        return any(marked for _, marked in (*self.said, *self.written))


def marked_texts(said: str, written: str) -> tuple[list[Piece], list[Piece]]:
    """Split two texts into pieces that are the same in both, and pieces that differ; case and
    punctuation do not count.

    Examples
    --------
    >>> marked_texts("Les livres sont là.", "le livre sont là")
    ([('Les livres', True), ('sont là.', False)], [('le livre', True), ('sont là', False)])
    """
    old, new = said.split(), written.split()
    matcher = difflib.SequenceMatcher(
        a=[*map(normalize_transcript, old)], b=[*map(normalize_transcript, new)], autojunk=False
    )
    pieces: tuple[list[Piece], list[Piece]] = ([], [])
    for kind, old_first, old_last, new_first, new_last in matcher.get_opcodes():
        for found, words in zip(
            pieces, (old[old_first:old_last], new[new_first:new_last]), strict=True
        ):
            if words:
                found.append((" ".join(words), kind != "equal"))
    return pieces


def written_texts(run: StoredRun, clip: str) -> list[WrittenText]:
    """What each trained model wrote about a clip; nothing where the run has no transcripts."""
    table = run.transcripts
    if not len(table) or not {"text", "transcript"} <= set(table):
        return []
    rows = table[table["clip"] == clip].to_dict("records")
    return [
        WrittenText(
            model_name(row["model"]), *marked_texts(str(row["text"]), str(row["transcript"] or ""))
        )
        for row in rows
    ]


def transcription_warnings(run: StoredRun) -> list[str]:
    """One sentence or two for each trained model that does not transcribe the clips of the run."""
    warnings = []
    for model, rates in _rates(run):
        if rates.mean() > MAX_ERROR_RATE:
            which = "this clip" if len(rates) == 1 else "these clips"
            warnings.append(
                _NOT_TRANSCRIBED.format(model=model, which=which, rate=100 * rates.mean())
            )
    return warnings


def error_rate_notes(run: StoredRun) -> list[str]:
    """Error rate of each trained model: of the scored clips, and of all transcribed clips where
    that is known."""
    notes = []
    for model, rates in _rates(run):
        note = (
            f"{model}: character error rate {100 * rates.mean():.0f} % over "
            f"{format_count(len(rates), 'scored clip')}"
        )
        everything = _corpus_error_rate(run, model)
        if everything is not None:
            note += f", {100 * everything[1]:.0f} % over all {everything[0]} that were transcribed"
        notes.append(f"{note}.")
    return notes


def transcription_notes(run: StoredRun) -> list[str]:
    """Error rates of all trained models, and a warning about each that does not transcribe the
    clips."""
    return [*error_rate_notes(run), *transcription_warnings(run)]


def _rates(run: StoredRun) -> list[tuple[str, pd.Series]]:
    """Character error rates of each trained model."""
    grouped = run.transcripts.groupby("model", sort=False) if len(run.transcripts) else ()
    return [(str(model), rows.character_error_rate) for model, rows in grouped]


def _corpus_error_rate(run: StoredRun, model: str) -> tuple[int, float] | None:
    """Clips and mean character error rate of a model over all that were transcribed; None where
    that is not known."""
    models = (run.description.get("selection") or {}).get("models", ())
    facts = next((facts for facts in models if facts["model"] == model), None)
    return facts and (
        int(facts["transcribed_clips"]),
        float(facts["transcribed_cer_percent"]) / 100,
    )
