"""The page of a study: trained models against their random twins, cue contribution beside ablation.

In: a finished `Run`. Out: the headline table, figures, and one HTML page in the run's folder. The statistics are fixed
before looking: trained - random with a bootstrap interval over pairs (or clips), as the mean over all layers of a stack and
at the best layer, cross-fitted (chosen on one half of the pairs, read on the other).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from ..adapters.check import versions
from ..evaluation.spelling import TRANSCRIBES
from ..evaluation.statistics import cross_fitted_layer, trained_against_random
from .figures import cue_figure, cue_heat_map
from .page import page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..experiments.run import Run

_KEYS = ("side", "model", "stack", "measure")
_READING = (
    "Contribution: the share of the cue in building the target, in % of the target's row; in a decoder and in cross-attention "
    "at the position that predicts the deciding letters where the target's other spelling is known, else over all of the "
    "target's positions. Difference: trained - random twin, with a 95 % bootstrap interval over pairs (clips where there are "
    "no pairs). Share of length: what the cue would get if every frame or token counted the same. Word-level Value Zeroing "
    "grows with the length of a word and attention does not, so compare a measure with its own twin, not with another measure."
)
_LAYERS = {
    "best layer": "At the best layer, chosen on one half of the pairs and read on the other, and the other way round.",
    "all layers": "Mean over all layers of the stack.",
}


def study_table(run: Run) -> pd.DataFrame:
    """Cue contributions of the rows that a study looks at, with side and pair of each clip."""
    table = run.contributions
    if table.empty:
        return table
    clips = run.clips
    known = [name for name in ("side", "pair", "control") if name in clips]
    table = table.merge(clips[["clip", *known]], on="clip")
    for name, default in (("side", "all"), ("pair", table["clip"]), ("control", "no")):
        table[name] = table[name].replace("", "all") if name in known else default
    deciding = table.groupby(["clip", "stack"]).rows.transform(lambda rows: (rows == "deciding").any())
    return table[(table.rows == "deciding") | ~deciding].reset_index(drop=True)


def headline(table: pd.DataFrame, *, layers: str = "best layer") -> pd.DataFrame:
    """Contribution in %: trained, random, difference with its interval, share of length.

    Parameters
    ----------
    layers : {"best layer", "all layers"}
        "best layer" is cross-fitted; "layer" then says which were chosen.
    """
    table = table[table.control != "yes"].assign(contribution=table.contribution * 100)
    if layers == "best layer":
        table = cross_fitted_layer(table, by=_KEYS, group="pair")
    result = trained_against_random(table, by=_KEYS, group="pair").set_index(list(_KEYS))
    by_key = table.groupby(list(_KEYS), sort=False)
    result["share of length"] = by_key.share_of_length.mean() * 100
    if layers == "best layer":
        result["layer"] = by_key.layer.agg(lambda chosen: ", ".join(map(str, sorted(set(chosen)))))
    return result.reset_index()


def ablation_table(run: Run) -> pd.DataFrame:
    """Share of clips (%) in which the target's own spelling wins, by what was silenced."""
    table = run.ablation
    if table.empty:
        return table
    clips = run.clips
    table = table.merge(clips[["clip", *(["side"] if "side" in clips else [])]], on="clip")
    if "side" not in table:
        table["side"] = "all"
    shares = table.groupby(["side", "model", "init", "ablated"], sort=False).right.mean().mul(100)
    result = shares.unstack("ablated").reset_index()
    order = [name for name in ("none", "encoder", "decoder", "cross") if name in result]
    named = {"none": "nothing silenced", **{name: f"cue silenced in {name}" for name in order if name != "none"}}
    return result[["side", "model", "init", *order]].rename(columns=named)


def figures(table: pd.DataFrame) -> dict[str, Figure]:
    """Curves and heat map for each side of the cue."""
    drawn = {}
    for side, part in table[table.control != "yes"].groupby("side", sort=False):
        suffix = "" if side == "all" else f"_{side}_cue"
        drawn[f"cue_contribution{suffix}"] = cue_figure(part)
        drawn[f"cue_heat_map{suffix}"] = cue_heat_map(part)
    return drawn


def transcription_notes(run: Run) -> list[str]:
    """Whether each trained model transcribes the clips at all, and what can be read if it does not."""
    notes = []
    for model, rates in run.transcripts.groupby("model", sort=False) if len(run.transcripts) else ():
        rate = rates.character_error_rate.mean()
        note = f"{model}: character error rate {100 * rate:.0f} % over {len(rates)} clips."
        if rate > TRANSCRIBES:
            note += (
                " It does NOT transcribe these clips. Its maps show how its layers mix these sounds; they say nothing of how "
                "it would decide a spelling, and its ablation row is no evidence."
            )
        notes.append(note)
    return notes


def write_study(run: Run, *, title: str, notes: list[str]) -> Path:
    """Write figures and ``index.html`` into the run's folder; returns the page's path."""
    table = study_table(run)
    parts = [("What was run", [*notes, _counts(run), versions()])]
    transcription = transcription_notes(run)
    if transcription:
        parts.append(("Do the models transcribe the clips?", transcription))
    if not table.empty:
        tables = [item for name, text in _LAYERS.items() for item in (text, shown(headline(table, layers=name)))]
        parts.append(("Cue contribution", [_READING, *tables]))
        judged = ablation_table(run)
        if not judged.empty:
            explained = (
                "Share of clips (%) in which the target's own spelling is likelier than its other spelling, with the cue's "
                "value vectors zeroed in all layers of one stack. 50 % is chance. A stack that carries the cue should show "
                "a high contribution above and fall to chance here."
            )
            parts.append(("Ablation", [explained, shown(judged)]))
        for name, figure in figures(table).items():
            figure.savefig(run.out / f"{name}.png", dpi=150, bbox_inches="tight")
            parts.append((f"Figure: {name.replace('_', ' ')}", [figure]))
        control = table[table.control == "yes"]
        if len(control):
            explained = "Nouns that are spelled alike in both numbers: the cue decides nothing about them."
            parts.append(("Control: invariant nouns", [explained, shown(headline(control.assign(control="no")))]))
    if run.skipped:
        parts.append(("Left out", [pd.DataFrame(run.skipped)]))
    path = run.out / "index.html"
    path.write_text(page(title, parts), encoding="utf-8")
    return path


def _counts(run: Run) -> str:
    clips = run.clips
    doubtful = int((clips.doubts != "").sum()) if "doubts" in clips else 0
    text = f"{len(clips)} clips; {run.done} scored (clip, model) pairs, {len(run.skipped)} left out."
    return text + (f" The word times of {doubtful} clips are doubtful." if doubtful else "")


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table as people read it: rounded, the interval in one column, no column that says nothing."""
    table = table.round(1)
    if "side" in table and set(table.side) == {"all"}:
        table = table.drop(columns="side")
    if "low" in table:
        interval = [
            f"{low:.1f} to {high:.1f}" if low == low else "" for low, high in zip(table.low, table.high, strict=True)
        ]
        table.insert(table.columns.get_loc("low"), "95 % interval", interval)
        table = table.drop(columns=["low", "high"])
    return table
