"""A model card: the context-mixing profile of one model, as numbers that two machines agree on.

In: finished runs. Out: a `ModelCard` for each trained model, with one profile for each run: cue
contribution against untrained twins, need of the cue, transcription, and what the measures are
worth on this model. Every number is rounded, so that rounding errors of a machine do not show; no
time, path or machine is recorded.

What a model card is made of: estimates with intervals, and the profile of one run.

Check what a card's JSON file holds before it is shown: types of all fields, intervals.

In: the content of a profile. Out: a `MixingProfile`, or an error that names the field.

The profile of one model in one run, for its card: estimates with intervals, layer by layer, rounded.

In: a `Study`. Out: a `MixingProfile`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path

import pandas as pd

from ...errors import InputError
from ...evaluation.statistics.grouped_means import TableRow
from ...evaluation.statistics.intervals import mean_interval
from ...files.cache_keys import digest
from ...files.json_files import (
    NUMBER,
    OPTIONAL_NUMBER,
    TEXT,
    FieldTypes,
    Json,
    JsonObject,
    check_fields,
    check_value,
    parse_json,
)
from ...files.text_files import read_csv, read_text
from ...reporting.pages.cue_need_sentences import short_answers
from ...reporting.pages.study_results import Study
from ...runs.results.open_run import scored_models
from ...runs.results.run_folder import RUNNING
from ..faithfulness.leaderboard import FILE


@dataclass(frozen=True)
class CardEstimate:
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
        count, groups, grouping (both with speakers, in a sentence), seconds, languages, fingerprint
        (of sounds, texts, words, cues and targets).
    options : dict
        Options of the run that decide its numbers.
    twins : int
        Untrained twins of the model.
    answers, notes : list of str
        The run's conclusions in sentences; what a reader must know about its clips.
    estimates : list of CardEstimate
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
    estimates: Sequence[CardEstimate]
    layers: Sequence[JsonObject]
    measures: Sequence[JsonObject]
    versions: str

    @property
    def comparison_key(self) -> str:
        """Hash of what two profiles must share before their numbers may be compared."""
        return digest([self.clips["fingerprint"], self.options])


_PROFILE: FieldTypes = {
    "clips": (dict,),
    "options": (dict,),
    "twins": (int,),
    "answers": (list,),
    "notes": (list,),
    "estimates": (list,),
    "layers": (list,),
    "measures": (list,),
    "versions": TEXT,
}
_CLIPS: FieldTypes = {
    "count": (int,),
    "groups": (int,),
    "seconds": NUMBER,
    "languages": (list,),
    "fingerprint": TEXT,
}
_ESTIMATE: FieldTypes = {
    **dict.fromkeys(("quantity", "side", "stack", "measure", "unit", "verdict"), TEXT),
    "value": NUMBER,
    "low": OPTIONAL_NUMBER,
    "high": OPTIONAL_NUMBER,
    "groups": (int,),
}
_LAYERS: FieldTypes = {
    **dict.fromkeys(("side", "stack", "measure"), TEXT),
    **dict.fromkeys(("difference", "low", "high"), (list,)),
}
_MEASURE: FieldTypes = {
    **dict.fromkeys(("perturbation", "stack", "measure", "aggregation"), TEXT),
    **dict.fromkeys(("value", "low", "high"), OPTIONAL_NUMBER),
    "better_than_all_baselines": (bool,),
}


def parse_profile(content: Json) -> MixingProfile:
    """Return the profile that a card's file holds.

    Raises
    ------
    InputError
        If a field is missing or has another type, a number is not finite, or an interval does not
        hold its value.
    """
    check_fields(content, _PROFILE, "profile")
    check_fields(content["clips"], _CLIPS, "clips", allow_others=True)
    for name, texts in (("languages", content["clips"]["languages"]), *_texts(content)):
        if not all(isinstance(text, str) for text in texts):
            raise InputError(f"{name}: expected texts, found {str(texts)[:80]}")
    for estimate in content["estimates"]:
        check_fields(estimate, _ESTIMATE, "estimate")
        _check_interval(estimate["low"], estimate["value"], estimate["high"])
    for curve in content["layers"]:
        check_fields(curve, _LAYERS, "layers", allow_others=True)
        edges = [curve[name] for name in ("low", "difference", "high")]
        if len({len(values) for values in edges}) > 1:
            raise InputError("layers: expected as many intervals as layers")
        for values in zip(*edges, strict=True):
            for value in values:
                check_value(value, OPTIONAL_NUMBER, "layers")
            _check_interval(*values)
    for row in content["measures"]:
        check_fields(row, _MEASURE, "measures")
        _check_interval(row["low"], row["value"], row["high"])
    estimates = [CardEstimate(**estimate) for estimate in content["estimates"]]
    return MixingProfile(**{**content, "estimates": estimates})


def _texts(content: Json) -> list[tuple[str, list[Json]]]:
    return [(name, content[name]) for name in ("answers", "notes")]


def _check_interval(low: float | None, value: float | None, high: float | None) -> None:
    edges = [edge for edge in (low, value, high) if edge is not None]
    if edges != sorted(edges):
        raise InputError(f"the interval {low} to {high} does not hold its value {value}")


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


FORMAT = 2  # of the JSON file; raised when a field changes its meaning
_WITHOUT_CHECKSUM = 1  # the format before, whose fields are the same
_KEY = "speechmix_card"


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


def model_cards(*runs: str | PathLike[str], group: str | None = None) -> list[ModelCard]:
    """Make a card of each trained model in some runs.

    Parameters
    ----------
    *runs : path
        Folders of finished runs; a model may be in several of them.
    group : str, optional
        Column of the clips that says which belong together; by default that of the run, else
        speakers, or pair, sentence and target word.

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
    >>> from speechmix.extensions.cards.model_card import model_cards
    >>> [card.model for card in model_cards("runs/demo")]                             # doctest: +SKIP
    ['tiny-french-whisper']
    """
    profiles: dict[str, list[MixingProfile]] = {}
    weights: dict[str, str] = {}
    for path in runs:
        study = Study.open(path, group=group)
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
            profiles.setdefault(model.name, []).append(read_mixing_profile(study, model.name))
    return [ModelCard(name, weights[name], profiles[name]) for name in sorted(profiles)]


def read_model_card(path: str | PathLike[str]) -> ModelCard:
    """Read a card from its JSON file.

    Raises
    ------
    InputError
        If the file is no card, is not as it was written, or is of a newer version.
    """
    content = parse_json(read_text(path), where=str(path))
    checksum = content.pop("checksum", None) if isinstance(content, dict) else None
    if not isinstance(content, dict) or _KEY not in content:
        raise InputError(f"{path} is not a model card: `speechmix card` writes one")
    if content[_KEY] not in (_WITHOUT_CHECKSUM, FORMAT):
        raise InputError(
            f"{path} is a model card of format {content[_KEY]!r:.20}, this version reads {FORMAT}: make "
            "the card again"
        )
    try:
        if content[_KEY] == FORMAT and checksum != digest(content):
            raise InputError("its content is not that which was written")
        if not isinstance(content.get("profiles"), list) or not content["profiles"]:
            raise InputError("expected a list of profiles")
        profiles = [parse_profile(profile) for profile in content["profiles"]]
        return ModelCard(str(content["model"]), str(content["weights"]), profiles)
    except (InputError, KeyError) as error:
        raise InputError(
            f"{path} is a damaged model card ({error}): remove it and make it again"
        ) from error
