"""The profile of one model in one run, for its card: estimates with intervals, layer by layer, rounded.

In: a `Study`. Out: a `MixingProfile`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from ...evaluation.statistics.grouped_means import TableRow
from ...evaluation.statistics.intervals import mean_interval
from ...files.cache_keys import digest
from ...files.json_files import Json, JsonObject
from ...files.text_files import read_csv
from ...reporting.pages.cue_need_sentences import short_answers
from ...reporting.pages.study_results import Study
from ..faithfulness.results import FILE
from .card_contents import CardEstimate, MixingProfile

_METRIC = "spearman"
# Options of a run that do not change what its numbers mean.
_IRRELEVANT = ("batch_size", "device", "progress", "figures")


def read_mixing_profile(study: Study, model: str) -> MixingProfile:
    """Return what one run shows of a model.

    Parameters
    ----------
    study : Study
    model : str
        Name of a trained model of the run.
    """
    run = study.run
    clips = study.clips
    headline, need = (_rows_of_model(table, model) for table in (study.headline, study.need))
    options: Mapping[str, Json] = run.description.get("options", {})
    return MixingProfile(
        clips={
            "count": len(clips),
            "groups": int(clips["group"].nunique()),
            "grouping": study.grouping,
            "seconds": _rounded(clips["seconds"].astype(float).sum()),
            "languages": sorted({str(name) for name in clips.get("language", []) if name}),
            "fingerprint": _clips_fingerprint(clips),
        },
        options={name: options[name] for name in sorted(options) if name not in _IRRELEVANT},
        twins=int(headline["twins"].max()) if len(headline) else 0,
        answers=short_answers(headline, need) if len(headline) else [],
        notes=list(run.description.get("notes") or []),
        estimates=[
            *_contribution_estimates(headline),
            *_need_estimates(need),
            *_error_rate_estimate(study, model),
        ],
        layers=_layer_curves(study, model),
        measures=_faithfulness_rows(Path(run.out) / FILE, model),
        versions=str(run.description.get("versions", "")),
    )


def _clips_fingerprint(clips: pd.DataFrame) -> str:
    """Hash of sounds, texts, words, cues and targets; names and order of the clips do not count."""
    columns = [name for name in ("fingerprint", "text", "cue", "target") if name in clips]
    return digest(sorted(clips[columns].astype(str).to_numpy().tolist()))


def _rows_of_model(table: pd.DataFrame, model: str) -> pd.DataFrame:
    return table[table["model"] == model].reset_index(drop=True) if len(table) else table


def _contribution_estimates(headline: pd.DataFrame) -> list[CardEstimate]:
    return [
        _estimate(row, "cue contribution", row["difference"], row["claim"], row["measure"])
        for row in headline.to_dict("records")
        if _rounded(row.get("difference")) is not None
    ]


def _need_estimates(need: pd.DataFrame) -> list[CardEstimate]:
    rows: list[TableRow] = [{**row, "stack": row["ablated"]} for row in need.to_dict("records")]
    return [_estimate(row, "cue need", row["lost"], row["verdict"]) for row in rows]


def _estimate(
    row: TableRow, quantity: str, value: float, verdict: str, measure: str = ""
) -> CardEstimate:
    """An estimate in percentage points, from a row of a study's table."""
    return CardEstimate(
        quantity=quantity,
        side=str(row["side"]),
        stack=str(row["stack"]),
        measure=measure,
        unit="percentage points",
        value=_rounded(value) or 0.0,
        low=_rounded(row["low"]),
        high=_rounded(row["high"]),
        verdict=str(verdict),
        groups=int(row["groups"]),
    )


def _error_rate_estimate(study: Study, model: str) -> list[CardEstimate]:
    table = _rows_of_model(study.run.transcripts, model)
    if table.empty:
        return []
    table = table.merge(study.clips[["clip", "group"]], on="clip")
    by_group = 100 * table.groupby("group")["character_error_rate"].mean()
    low, high = map(_rounded, mean_interval(by_group))
    value = _rounded(by_group.mean()) or 0.0
    return [
        CardEstimate("character error rate", "", "", "", "%", value, low, high, "", len(by_group))
    ]


def _layer_curves(study: Study, model: str) -> list[JsonObject]:
    """Trained minus untrained in each layer, for each side, stack and measure."""
    if study.layers is None:
        return []
    columns = ("difference", "low", "high", "mixing_strength")
    curves = []
    rows = _rows_of_model(study.layers, model)
    for (side, stack, measure), curve_rows in rows.groupby(
        ["side", "stack", "measure"], sort=False
    ):
        curve_rows = curve_rows.sort_values("layer")
        curve: JsonObject = {"side": side, "stack": stack, "measure": measure}
        curve |= {
            name: [
                _rounded(value, 3 if name == "mixing_strength" else 1) for value in curve_rows[name]
            ]
            for name in columns
            if name in curve_rows
        }
        curves.append(curve)
    return curves


def _faithfulness_rows(path: Path, model: str) -> list[JsonObject]:
    """Rank correlation of each measure with the effects of a reference perturbation."""
    if not path.is_file():
        return []
    table = read_csv(path)
    trained = (table["model"] == model) & (table["init"] == "trained")
    rows = table[trained & (table["metric"] == _METRIC)].to_dict("records")
    texts = ("perturbation", "stack", "measure", "aggregation")
    return [
        {name: str(row[name]) for name in texts}
        | {name: _rounded(row[name], 2) for name in ("value", "low", "high")}
        | {"better_than_all_baselines": str(row["better"]) == "True"}
        for row in rows
    ]


def _rounded(value: object, digits: int = 1) -> float | None:
    """A number rounded for a card; None if there is none."""
    number = float(pd.to_numeric(value, errors="coerce"))  # type: ignore[call-overload]
    return round(number, digits) + 0.0 if abs(number) < float("inf") else None
