"""How the clips of a run were chosen: from the rows of a corpus to the clips that were scored, with
counts and reasons.

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
from .wording import format_count

_TITLE = "How the clips were chosen"
_KEPT = "kept"
_STEPS = {  # stage and unit: what is counted, and what is left after the stage
    ("mine", "clips"): ("rows of the corpus", "with a pair of cue and target"),
    ("mine", "pairs"): ("pairs found in them", "that can be used"),
    ("align", "clips"): ("rows with a pair", "with word times"),
    ("select", "pairs"): ("pairs of cue and target", "chosen as clips"),
}
_WHAT = (
    "A row of the corpus can hold several pairs of cue and target; each pair that is chosen "
    "becomes a clip. Where models are "
    "named as a reason, clips were chosen because all models spell cue and target right. Results "
    "hold for such clips, not "
    "for the corpus."
)
_RATES = (
    "Error rates: of all clips that were transcribed, and of the clips that were chosen and scored."
)


def selection_sentence(run: StoredRun) -> str:
    """From how many rows of the corpus how many clips were left; "" for a run that was not chosen
    from a corpus."""
    steps = _steps(run)
    if ("mine", "clips") not in steps:
        return ""
    rows = steps["mine", "clips"]
    text = (
        f"{format_count(sum(rows.values()), 'row')} of the corpus, {rows.get(_KEPT, 0)} with a "
        "pair of cue and target"
    )
    if ("select", "pairs") in steps:
        pairs = steps["select", "pairs"]
        text += (
            f"; of {format_count(sum(pairs.values()), 'pair')} {pairs.get(_KEPT, 0)} were chosen"
        )
    return f"{text} (see “{_TITLE}”)."


def _items(content: PageContent) -> list[Item]:
    """Table of the stages, and error rates of all transcribed clips and of the scored ones."""
    run = content.run
    steps = _steps(run)
    if not steps:
        return []
    rows = [_row(*_STEPS[step], outcomes) for step, outcomes in steps.items()]
    skipped = {str(row["clip"]) for row in run.skipped} - set(run.clips["clip"])
    reasons = [str(row["reason"]) for row in run.skipped if str(row["clip"]) in skipped]
    scored = {_KEPT: len(run.clips), **Counter(reasons)}
    rows.append(_row("clips", "scored", scored))
    items: list[Item] = [_WHAT, pd.DataFrame(rows)]
    if len(rates := _error_rates(run)):
        items += [_RATES, rates]
    return items


def _error_rates(run: StoredRun) -> pd.DataFrame:
    """By model: clips and error rates (%) of all that were transcribed and of those that were
    chosen; empty without either."""
    chosen = _transcribed_rates(run)
    rows = []
    for facts in _selection(run).get("models", ()):
        name = str(facts["model"])
        rate = chosen.get(name)
        rows.append(
            {
                "model": name,
                "clips transcribed": int(facts["transcribed_clips"]),
                "word error rate (%)": float(facts["transcribed_wer_percent"]),
                "character error rate (%)": float(facts["transcribed_cer_percent"]),
                "clips scored": "" if rate is None else str(rate[0]),
                "character error rate of these (%)": float("nan")
                if rate is None
                else 100 * rate[1],
            }
        )
    return pd.DataFrame(rows)


def _transcribed_rates(run: StoredRun) -> dict[str, tuple[int, float]]:
    """Clips and mean character error rate of each trained model, over the clips that were
    scored."""
    if not len(run.transcripts):
        return {}
    by_model = run.transcripts.groupby("model", sort=False)["character_error_rate"]
    return {str(model): (len(rates), float(rates.mean())) for model, rates in by_model}


def _selection(run: StoredRun) -> Mapping[str, Any]:
    return run.description.get("selection") or {}


def _steps(run: StoredRun) -> dict[tuple[str, str], dict[str, int]]:
    """Outcomes of each stage with their counts, in the order of the stages."""
    steps: dict[tuple[str, str], dict[str, int]] = {}
    for stage, unit, outcome, count in _selection(run).get("stages", ()):
        if (stage, unit) in _STEPS:
            steps.setdefault((stage, unit), {})[str(outcome)] = int(count)
    return {step: steps[step] for step in _STEPS if step in steps}


def _row(what: str, left: str, outcomes: Mapping[str, int]) -> dict[str, object]:
    dropped = {outcome: count for outcome, count in outcomes.items() if outcome != _KEPT}
    return {
        "step": f"{what} {left}",
        "before": sum(outcomes.values()),
        "after": outcomes.get(_KEPT, 0),
        "left out": sum(dropped.values()),
        "reasons": _listed(dropped),
    }


def _listed(dropped: Mapping[str, int], most: int = 8) -> str:
    """Reasons with their counts, the most frequent first."""
    ordered: Sequence[tuple[str, int]] = sorted(dropped.items(), key=lambda item: -item[1])
    others = sum(count for _, count in ordered[most:])
    return "; ".join(
        [
            *(f"{count} {why}" for why, count in ordered[:most]),
            *([f"{others} for other reasons"] if others else []),
        ]
    )


SELECTION = PageSection(_TITLE, _items)
