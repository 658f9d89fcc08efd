"""Say how the clips of a run were chosen from a corpus, with counts and reasons.

In: a `StoredRun` whose page description holds the counts of the selection
(`french.stage_counts.read_selection_metadata`). Out: a sentence for the first screen and a part of the page;
nothing for a run of clips that were not chosen from a corpus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ...runs.results.open_run import StoredRun
from .html_page import Item
from .page_sections import PageContent, PageSection
from .result_sentences import format_count

_TITLE = "How the clips were chosen"
_KEPT_OUTCOME = "kept"
_STEP_PHRASES = {  # stage and unit: what is counted, and what is left after the stage
    ("mine", "clips"): ("Rows of the corpus", "with a cue and a target"),
    ("mine", "pairs"): ("Pairs of cue and target in them", "that can be used"),
    ("align", "clips"): ("Rows with such a pair", "with word times"),
    ("select", "pairs"): ("Pairs of cue and target", "chosen as clips"),
}
_INTRODUCTION = (
    "A row of the corpus can hold several pairs of cue and target. Each chosen pair becomes a clip. "
    "If models are named as a reason, only clips were chosen in which all models spell cue and "
    "target correctly. The results hold for such clips, not for the whole corpus."
)
_RATES_NOTE = "Error rates of each model: over all transcribed clips, and over the scored clips."


def selection_sentence(run: StoredRun) -> str:
    """Say how many clips of a corpus were chosen; "" for a run that was not chosen from a
    corpus."""
    outcomes_by_step = _outcome_counts(run)
    if ("mine", "clips") not in outcomes_by_step:
        return ""
    rows = outcomes_by_step["mine", "clips"]
    text = (
        f"Of {format_count(sum(rows.values()), 'row')} of the corpus, {rows.get(_KEPT_OUTCOME, 0)} "
        "have a cue and a target."
    )
    if ("select", "pairs") in outcomes_by_step:
        pairs = outcomes_by_step["select", "pairs"]
        text += (
            f" Of {format_count(sum(pairs.values()), 'pair')} of cue and target, "
            f"{pairs.get(_KEPT_OUTCOME, 0)} were chosen."
        )
    return f"{text} See “{_TITLE}”."


def _selection_items(content: PageContent) -> list[Item]:
    """Return a table of the stages, and error rates of all transcribed clips and of the scored
    ones."""
    run = content.run
    outcomes_by_step = _outcome_counts(run)
    if not outcomes_by_step:
        return []
    rows = [
        _stage_row(*_STEP_PHRASES[step], outcomes) for step, outcomes in outcomes_by_step.items()
    ]
    skipped = {str(row["clip"]) for row in run.skipped} - set(run.clips["clip"])
    reasons = [str(row["reason"]) for row in run.skipped if str(row["clip"]) in skipped]
    scored = {_KEPT_OUTCOME: len(run.clips), **Counter(reasons)}
    rows.append(_stage_row("Clips", "scored", scored))
    items: list[Item] = [_INTRODUCTION, pd.DataFrame(rows)]
    if len(rates := _error_rates(run)):
        items += [_RATES_NOTE, rates]
    return items


def _error_rates(run: StoredRun) -> pd.DataFrame:
    """Tabulate by model the error rates (%) of all transcribed clips and of the scored ones."""
    scored_rates = _scored_error_rates(run)
    rows = []
    for model_counts in _selection(run).get("models", ()):
        name = str(model_counts["model"])
        rate = scored_rates.get(name)
        rows.append(
            {
                "model": name,
                "clips transcribed": int(model_counts["transcribed_clips"]),
                "word error rate (%)": float(model_counts["transcribed_wer_percent"]),
                "character error rate (%)": float(model_counts["transcribed_cer_percent"]),
                "clips scored": "" if rate is None else str(rate[0]),
                "character error rate of these (%)": float("nan")
                if rate is None
                else 100 * rate[1],
            }
        )
    return pd.DataFrame(rows)


def _scored_error_rates(run: StoredRun) -> dict[str, tuple[int, float]]:
    """Return the number of scored clips and their mean character error rate for each trained
    model."""
    if not len(run.transcripts):
        return {}
    rates_by_model = run.transcripts.groupby("model", sort=False)["character_error_rate"]
    return {str(model): (len(rates), float(rates.mean())) for model, rates in rates_by_model}


def _selection(run: StoredRun) -> Mapping[str, Any]:
    return run.description.get("selection") or {}


def _outcome_counts(run: StoredRun) -> dict[tuple[str, str], dict[str, int]]:
    """Return the outcomes of each stage with their counts, in the order of the stages."""
    outcomes_by_step: dict[tuple[str, str], dict[str, int]] = {}
    for stage, unit, outcome, count in _selection(run).get("stages", ()):
        if (stage, unit) in _STEP_PHRASES:
            outcomes_by_step.setdefault((stage, unit), {})[str(outcome)] = int(count)
    return {step: outcomes_by_step[step] for step in _STEP_PHRASES if step in outcomes_by_step}


def _stage_row(unit: str, result: str, outcomes: Mapping[str, int]) -> dict[str, object]:
    dropped = {outcome: count for outcome, count in outcomes.items() if outcome != _KEPT_OUTCOME}
    return {
        "step": f"{unit} {result}",
        "before": sum(outcomes.values()),
        "after": outcomes.get(_KEPT_OUTCOME, 0),
        "skipped": sum(dropped.values()),
        "reasons": _list_reasons(dropped),
    }


def _list_reasons(dropped: Mapping[str, int], max_reasons: int = 8) -> str:
    """List reasons with their counts, the most frequent first."""
    sorted_reasons: Sequence[tuple[str, int]] = sorted(dropped.items(), key=lambda item: -item[1])
    other_count = sum(count for _, count in sorted_reasons[max_reasons:])
    return "; ".join(
        [
            *(f"{count} {reason}" for reason, count in sorted_reasons[:max_reasons]),
            *([f"{other_count} for other reasons"] if other_count else []),
        ]
    )


SELECTION = PageSection(_TITLE, _selection_items)
