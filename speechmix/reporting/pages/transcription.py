"""Compare what was said with what models wrote: warnings, and texts with their differences marked.

In: the transcripts of a run. Out: sentences, and texts in pieces that say whether they differ.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

import pandas as pd

from ...inputs.words.transcript_accuracy import (
    MAX_ERROR_RATE,
    is_same_text,
    normalize_transcript,
)
from ...runs.results.open_run import StoredRun
from ..plots.figure_style import model_name
from .result_sentences import format_count

_TRANSCRIPTION_WARNING = (
    "{model} does not transcribe {which} correctly (character error rate {rate:.0f} %). Its maps show "
    "how its layers mix these sounds. They are no evidence of how it would choose a spelling; nor "
    "is its result under ablation."
)

Piece = tuple[str, bool]  # text, and whether the other text has it differently


@dataclass(frozen=True)
class ModelTranscript:
    """What one model, or an engine that runs it, wrote about a clip, beside the reference text.

    Both texts are lists of (piece, whether it differs).
    """

    writer: str
    reference: list[Piece]
    transcript: list[Piece]

    @property
    def has_differences(self) -> bool:
        """Whether the transcript is not what was said; case and punctuation make no difference."""
        return any(marked for _, marked in (*self.reference, *self.transcript))


def mark_differences(
    reference: str, transcript: str, language: str | None = None
) -> tuple[list[Piece], list[Piece]]:
    """Split two texts into pieces that agree and pieces that differ; case and punctuation do
    not count, nor do blanks between words and how English writes numbers (`is_same_text`).

    Examples
    --------
    >>> mark_differences("Les livres sont là.", "le livre sont là")
    ([('Les livres', True), ('sont là.', False)], [('le livre', True), ('sont là', False)])
    """
    reference_words, transcript_words = reference.split(), transcript.split()
    matcher = difflib.SequenceMatcher(
        a=[*map(normalize_transcript, reference_words)],
        b=[*map(normalize_transcript, transcript_words)],
        autojunk=False,
    )
    pieces: tuple[list[Piece], list[Piece]] = ([], [])
    for operation, old_first, old_last, new_first, new_last in matcher.get_opcodes():
        texts = (
            " ".join(reference_words[old_first:old_last]),
            " ".join(transcript_words[new_first:new_last]),
        )
        is_same = operation == "equal" or is_same_text(*texts, language)
        for text_pieces, text in zip(pieces, texts, strict=True):
            if text:
                text_pieces.append((text, not is_same))
    return pieces


def model_transcripts(run: StoredRun, clip: str) -> list[ModelTranscript]:
    """Return the transcript of a clip by each trained model; empty if the run has none."""
    table = run.transcripts
    if not len(table) or not {"text", "transcript"} <= set(table):
        return []
    rows = table[table["clip"] == clip].to_dict("records")
    of_clip = run.clips.loc[run.clips["clip"] == clip].to_dict("records")
    language = next((str(facts.get("language") or "") for facts in of_clip), "")
    return [
        ModelTranscript(
            # An engine that wrote is named; of other rows the column is missing or empty.
            row["writer"] if isinstance(row.get("writer"), str) else model_name(row["model"]),
            *mark_differences(str(row["text"]), str(row["transcript"] or ""), language),
        )
        for row in rows
    ]


def transcription_warnings(run: StoredRun) -> list[str]:
    """Warn of each trained model that does not transcribe the clips of the run."""
    warnings = []
    for model, rates in _error_rates_by_model(run):
        if rates.mean() > MAX_ERROR_RATE:
            which = "this clip" if len(rates) == 1 else "these clips"
            warnings.append(
                _TRANSCRIPTION_WARNING.format(model=model, which=which, rate=100 * rates.mean())
            )
    return warnings


def error_rate_notes(run: StoredRun) -> list[str]:
    """Give the character error rate of each trained model, of scored clips and of all transcribed
    clips."""
    notes = []
    for model, rates in _error_rates_by_model(run):
        note = (
            f"{model}: character error rate {100 * rates.mean():.0f} % over "
            f"{format_count(len(rates), 'scored clip')}"
        )
        corpus_rate = _corpus_error_rate(run, model)
        if corpus_rate is not None:
            note += (
                f", {100 * corpus_rate[1]:.0f} % over all {corpus_rate[0]} that were transcribed"
            )
        notes.append(f"{note}.")
    return notes


def transcription_items(run: StoredRun) -> list[pd.DataFrame | str]:
    """Tabulate the character error rate of each trained model; empty without transcripts."""
    rows = []
    for model, rates in _error_rates_by_model(run):
        corpus_rate = _corpus_error_rate(run, model)
        cells = {
            "model": model_name(model),
            "clips": len(rates),
            "character error rate (%)": f"{100 * rates.mean():.0f}",
        }
        if corpus_rate is not None:
            cells["clips transcribed"] = corpus_rate[0]
            cells["error rate over these (%)"] = f"{100 * corpus_rate[1]:.0f}"
        rows.append(cells)
    return [pd.DataFrame(rows), *transcription_warnings(run)] if rows else []


def transcription_notes(run: StoredRun) -> list[str]:
    """Return the error rates of all trained models, and warnings."""
    return [*error_rate_notes(run), *transcription_warnings(run)]


def _error_rates_by_model(run: StoredRun) -> list[tuple[str, pd.Series]]:
    """Return the character error rates of each trained model."""
    grouped = run.transcripts.groupby("model", sort=False) if len(run.transcripts) else ()
    return [(str(model), rows.character_error_rate) for model, rows in grouped]


def _corpus_error_rate(run: StoredRun, model: str) -> tuple[int, float] | None:
    """Return the number of transcribed clips and their mean character error rate; None if
    unknown."""
    models = (run.description.get("selection") or {}).get("models", ())
    model_counts = next(
        (model_counts for model_counts in models if model_counts["model"] == model), None
    )
    return model_counts and (
        int(model_counts["transcribed_clips"]),
        float(model_counts["transcribed_cer_percent"]) / 100,
    )
