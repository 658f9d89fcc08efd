"""A model card: the context-mixing profile of one model, as numbers that two machines agree on.

In: finished runs. Out: a `ModelCard` for each trained model, with one profile for each run: cue
contribution against untrained twins, need of the cue, transcription, and what the measures are
worth on this model. Every number is rounded, so that rounding errors of a machine do not show; no
time, path or machine is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path

import pandas as pd

from ...errors import InputError
from ...evaluation.faithfulness.results import FILE
from ...evaluation.statistics.grouped_means import TableRow
from ...evaluation.statistics.intervals import mean_interval
from ...files.cache_keys import digest
from ...files.json_files import Json, JsonObject, parse_json
from ...files.text_files import read_csv, read_text
from ...runs.results.run_folder import RUNNING
from ...runs.results.scored_models import scored_models
from ..pages.cue_need_sentences import short_answers
from ..pages.study_results import Study

FORMAT = 1  # of the JSON file; raised when a field changes its meaning
_KEY = "speechmix_card"
_METRIC = "spearman"
# Options of a run that do not change what its numbers mean.
_IRRELEVANT = ("batch_size", "device", "progress", "figures")


@dataclass(frozen=True)
class Estimate:
    """One number of a profile with its 95 % interval.

    Attributes
    ----------
    quantity : {"cue contribution", "cue need", "character error rate"}
        Trained minus untrained; spelling accuracy lost without the cue; of the transcripts.
    side, stack, measure : str
        Empty where they do not apply.
    unit : str
    value : float
    low, high : float or None
        None where there is no interval.
    verdict : str
        What is claimed; empty: nothing.
    groups : int
        Independent groups of clips.
    """

    quantity: str
    side: str
    stack: str
    measure: str
    unit: str
    value: float
    low: float | None
    high: float | None
    verdict: str
    groups: int

    @property
    def label(self) -> str:
        """What the number is of, in words."""
        side = f"{self.side} cue" if self.side not in ("", "all") else ""
        details = ", ".join(filter(None, [self.stack, self.measure.replace("_", " "), side]))
        return f"{self.quantity} ({details})" if details else self.quantity

    @property
    def text(self) -> str:
        """The number with its interval, as people read it."""
        if self.low is None or self.high is None:
            return f"{self.value:.1f} (no interval)"
        return f"{self.value:.1f} ({self.low:.1f} to {self.high:.1f})"


@dataclass(frozen=True)
class MixingProfile:
    """What one run shows of a model.

    Attributes
    ----------
    clips : dict
        count, groups, seconds, languages, fingerprint (of sounds, texts, words, cues and targets).
    options : dict
        Options of the run that decide its numbers.
    twins : int
        Untrained twins of the model.
    answers, notes : list of str
        The run's conclusions in sentences; what a reader must know about its clips.
    estimates : list of Estimate
    layers : list of dict
        side, stack, measure, and for each layer: difference, low, high, mixing_strength.
    measures : list of dict
        Faithfulness evaluation of each measure; empty if the run has none.
    versions : str
        Of the software that computed the scores.
    """

    clips: JsonObject
    options: JsonObject
    twins: int
    answers: Sequence[str]
    notes: Sequence[str]
    estimates: Sequence[Estimate]
    layers: Sequence[JsonObject]
    measures: Sequence[JsonObject]
    versions: str

    @property
    def comparison_key(self) -> str:
        """Hash of what two profiles must share before their numbers may be compared."""
        return digest([self.clips["fingerprint"], self.options])


@dataclass(frozen=True)
class ModelCard:
    """The card of one model.

    Attributes
    ----------
    model : str
        Hub id, or name of a folder.
    weights : str
        Fingerprint of the weights.
    profiles : list of MixingProfile
        One for each run.
    """

    model: str
    weights: str
    profiles: Sequence[MixingProfile]

    def to_json(self) -> JsonObject:
        """Return the card as a JSON object; `read_model_card` reads it back."""
        return {_KEY: FORMAT, **asdict(self)}


def model_cards(*runs: str | PathLike[str]) -> list[ModelCard]:
    """Make a card of each trained model in some runs.

    Parameters
    ----------
    *runs : path
        Folders of finished runs; a model may be in several of them.

    Returns
    -------
    list of ModelCard
        In the order of the models' names.

    Raises
    ------
    InputError
        If a folder holds no finished run with a trained model, or one name stands for different
        weights.

    Examples
    --------
    >>> from speechmix.reporting.cards.model_card import model_cards
    >>> [card.model for card in model_cards("runs/demo")]                             # doctest: +SKIP
    ['tiny-french-whisper']
    """
    profiles: dict[str, list[MixingProfile]] = {}
    weights: dict[str, str] = {}
    for path in runs:
        study = Study.of(path)
        if study.run.description.get("state") == RUNNING:
            raise InputError(f"{path} is not finished: start the run again, then make the card")
        trained = [model for model in scored_models(study.run) if model.init == "trained"]
        if not trained:
            raise InputError(f"{path} holds no trained model: score one, then make its card")
        for model in trained:
            if weights.setdefault(model.name, model.weights) != model.weights:
                raise InputError(
                    f"{model.name} has other weights in {path} than in the runs before it: make "
                    "a card of each"
                )
            profiles.setdefault(model.name, []).append(_mixing_profile(study, model.name))
    return [ModelCard(name, weights[name], profiles[name]) for name in sorted(profiles)]


def read_model_card(path: str | PathLike[str]) -> ModelCard:
    """Read a card from its JSON file.

    Raises
    ------
    InputError
        If the file is no card, or one of a newer version.
    """
    content = parse_json(read_text(path), where=str(path))
    if not isinstance(content, dict) or _KEY not in content:
        raise InputError(f"{path} is not a model card: `speechmix card` writes one")
    if content[_KEY] != FORMAT:
        raise InputError(
            f"{path} is a model card of format {content[_KEY]}, this version reads {FORMAT}: make "
            "the card again"
        )
    try:
        profiles = [
            MixingProfile(
                **{
                    **profile,
                    "estimates": [Estimate(**estimate) for estimate in profile["estimates"]],
                }
            )
            for profile in content["profiles"]
        ]
        return ModelCard(str(content["model"]), str(content["weights"]), profiles)
    except (KeyError, TypeError) as error:
        raise InputError(f"{path} is a damaged model card ({error}): make it again") from error


def _mixing_profile(study: Study, model: str) -> MixingProfile:
    run = study.run
    clips = study.clips
    headline, need = (_rows_of_model(table, model) for table in (study.headline, study.need))
    options: Mapping[str, Json] = run.description.get("options", {})
    return MixingProfile(
        clips={
            "count": len(clips),
            "groups": int(clips["group"].nunique()),
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


def _contribution_estimates(headline: pd.DataFrame) -> list[Estimate]:
    return [
        _estimate(row, "cue contribution", row["difference"], row["claim"], row["measure"])
        for row in headline.to_dict("records")
        if _rounded(row.get("difference")) is not None
    ]


def _need_estimates(need: pd.DataFrame) -> list[Estimate]:
    rows: list[TableRow] = [{**row, "stack": row["ablated"]} for row in need.to_dict("records")]
    return [_estimate(row, "cue need", row["lost"], row["verdict"]) for row in rows]


def _estimate(
    row: TableRow, quantity: str, value: float, verdict: str, measure: str = ""
) -> Estimate:
    """An estimate in percentage points, from a row of a study's table."""
    return Estimate(
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


def _error_rate_estimate(study: Study, model: str) -> list[Estimate]:
    table = _rows_of_model(study.run.transcripts, model)
    if table.empty:
        return []
    table = table.merge(study.clips[["clip", "group"]], on="clip")
    by_group = 100 * table.groupby("group")["character_error_rate"].mean()
    low, high = map(_rounded, mean_interval(by_group))
    value = _rounded(by_group.mean()) or 0.0
    return [Estimate("character error rate", "", "", "", "%", value, low, high, "", len(by_group))]


def _layer_curves(study: Study, model: str) -> list[JsonObject]:
    """Trained minus untrained in each layer, for each side, stack and measure."""
    if study.layers is None:
        return []
    columns = ("difference", "low", "high", "mixing_strength")
    curves = []
    rows = _rows_of_model(study.layers, model)
    for (side, stack, measure), part in rows.groupby(["side", "stack", "measure"], sort=False):
        part = part.sort_values("layer")
        curve: JsonObject = {"side": side, "stack": stack, "measure": measure}
        curve |= {
            name: [_rounded(value, 3 if name == "mixing_strength" else 1) for value in part[name]]
            for name in columns
            if name in part
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
    texts = ("judge", "stack", "measure", "aggregation")
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
