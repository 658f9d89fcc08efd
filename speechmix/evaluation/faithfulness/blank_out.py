"""blank_out(): the published test of measures in text models, for every measure, layer and model.

Each token (or word) of a sentence is blanked in the input in turn, and the target's probability
read again. A measure's row of the target (of [MASK]; in a causal model of the position that
predicts it) is held against these drops:

    Spearman(row over the other tokens, p(target) - p(target | token blanked)), mean over sentences

layer by layer, rolled out, and averaged over layers. Which token blanks is not stated in what can
be read of the paper, so fills are an option. Mohebbi et al. 2023, Quantifying Context Mixing in
Transformers, EACL.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

from ...adapters.model import Model
from ...errors import InputError
from ...interventions.token_removal import TOKEN_FILLS
from ...mixing.maps.measure_registry import check_gives_maps
from .leaderboard import BASELINES, ORACLE, summary
from .options import DEFAULT_MEASURES, FEWEST_WORDS, measures_of
from .trial import on_trial
from .words import EACH_LAYER, RESIDUAL_ROLLOUT, STRENGTH_ROLLOUT

if TYPE_CHECKING:
    from ...inputs.sentences.sentence import Sentence

LAYERS = ("each", "rollout", RESIDUAL_ROLLOUT, STRENGTH_ROLLOUT, "mean", "last")
BLANK_OUT_VALUES = ("probability", "log_probability", "margin")
MEAN_OF_FILLS = "mean of fills"
_MODEL = ["model", "init", "seed"]
_KEYS = [*_MODEL, "stack", "measure", "layers", "fill"]
_COLUMNS = [*_KEYS, "layer", "spearman", "low", "high", "sentences", "groups"]
_VALUE_COLUMNS = [
    *_MODEL,
    "item",
    "group",
    "words",
    "stack",
    "measure",
    "layers",
    "layer",
    "fill",
    "spearman",
]
_DROP_COLUMNS = [*_MODEL, "item", "group", "stack", "fill", "unit", "drop"]


@dataclass(frozen=True, eq=False)
class BlankOut:
    """What blanking tokens says of measures.

    Parameters
    ----------
    values : DataFrame
        One rank correlation for each model, sentence, measure, layer and fill: model, init, seed,
        item, group, words (how many competed), stack, measure, layers ("layer 3", "rollout",
        "mean", "" of an order), layer, fill, spearman.
    drops : DataFrame
        What each token's blanking cost: model, init, seed, item, group, stack, fill, unit (position
        of a token, index of a word), drop.
    left_out : DataFrame
        Columns model, item ("" for a measure that is not defined for the model), what, reason.
    provenance : dict
        Options.
    """

    values: pd.DataFrame
    drops: pd.DataFrame
    left_out: pd.DataFrame
    provenance: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def table(self) -> pd.DataFrame:
        """Means over sentences with 95 % intervals: a row for each model, stack, measure, layer and
        fill.

        Columns model, init, seed, stack, measure, layers, layer, fill, spearman, low, high,
        sentences, groups. Rows of the baselines ("random", "length", "position") and of the
        "oracle" (the drops themselves: 1) have no layers.
        """
        by_model = self.values.groupby(_MODEL, sort=False, dropna=False)
        tables = [_means(part) for _, part in by_model]
        return (
            pd.concat(tables, ignore_index=True)[_COLUMNS]
            if tables
            else pd.DataFrame(columns=_COLUMNS)
        )

    def text(self, fill: str | None = None) -> str:
        """Layers by measures for each model, as text; see `of_fill`."""
        parts = []
        for _, table in self.of_fill(fill).groupby(_MODEL, sort=False, dropna=False):
            first = table.iloc[0]
            twin = "" if first["init"] == "trained" else f", random (seed {first['seed']})"
            count = int(table["sentences"].max())
            counted = f"{count} sentence{'' if count == 1 else 's'}, {first['fill']}"
            parts.append(f"{first['model']}{twin}: {counted}\n{_layers_by_measures(table)}")
        return "\n\n".join(parts)

    def of_fill(self, fill: str | None = None) -> pd.DataFrame:
        """Rows of `table` of one fill; without a name the mean over a model's fills, or its only
        one.

        Raises
        ------
        InputError
            If there is no such fill, or nothing was judged.
        """
        if self.values.empty:
            reasons = "; ".join(self.left_out["reason"].head(3))
            raise InputError(f"no sentence could be judged: {reasons or 'there were none'}")
        fills = self.table.groupby(_MODEL, sort=False, dropna=False)["fill"].transform("first")
        part = self.table[self.table["fill"] == (fills if fill is None else fill)]
        if part.empty:
            raise InputError(
                f"fill should be one of {list(self.values['fill'].unique())}, found {fill!r}"
            )
        return part

    def __repr__(self) -> str:
        count = self.values["item"].nunique()
        return f"BlankOut({', '.join(dict.fromkeys(self.values['model']))}: {count} sentences)"


def blank_out(
    models: Model | Sequence[Model],
    sentences: Iterable[Sentence],
    *,
    measures: str | Sequence[str] = DEFAULT_MEASURES,
    fills: str | Sequence[str] | None = None,
    value: str = "probability",
    units: str = "token",
    layers: str | Sequence[str] = ("each", "rollout", "mean"),
    fewest: int = FEWEST_WORDS,
    progress: bool = False,
) -> BlankOut:
    """Blank every token in turn, and ask of each measure and layer how well it ranked what that
    costs.

    The target's own tokens and special tokens are left out, for all measures alike; a causal
    model's row is the one that predicts the target, over the tokens up to it.

    Parameters
    ----------
    models : Model or sequence of Model
        Text models with their head: masked, causal, or classifiers (whose label is then asked for,
        at [CLS]).
    sentences : iterable of Sentence
        With a target: a word of the text, which a masked model is fed a mask for; or "<mask>"
        itself (then what the model finds likeliest there is the target).
    measures : str or sequence of str
        One that is not defined for a model is recorded in `left_out`.
    fills : str or sequence of str, optional
        What blanks: "mask", "unk", "pad", "remove". By default all that a model's tokenizer has; of
        several, each alone and the mean over their drops.
    value : {"probability", "log_probability", "margin"}
        What the drop is of. For one fill the first two rank alike, but not their means over fills.
        The margin is log p(target) - log p(foil) and needs the sentence's foil.
    units : {"token", "word"}
    layers : str or sequence of str
        Of "each", "rollout", "residual rollout", "strength rollout", "mean", "last". Rolled out as
        published, the identity is added for measures that leave out the residual stream, not for
        Value Zeroing; "residual rollout" adds it for all, and "strength rollout" weights it by
        mixing strength (not for measures that hold its size). A gradient measure is not rolled out:
        its layer 0 is from the input on.
    fewest : int
        Tokens besides the target that a sentence needs.
    progress : bool
        Show a bar over sentences.

    Returns
    -------
    BlankOut

    Raises
    ------
    InputError
        For an option that cannot be, a measure that is defined for none of the models, a model that
        hears or translates, or no sentences. A sentence that cannot be judged is recorded in
        `left_out`.

    Examples
    --------
    >>> bert = speechmix.load("bert-base-uncased")                                        # doctest: +SKIP
    >>> sentences = [speechmix.Sentence("the keys to the cabinet are here", target="are")]  # doctest: +SKIP
    >>> print(speechmix.blank_out(bert, sentences, fills="mask").text())                  # doctest: +SKIP
    """
    several: list[Model] = [models] if isinstance(models, Model) else list(models)
    sentences = list(sentences)
    names = [measures] if isinstance(measures, str) and measures != "all" else measures
    options = _options(several, fills, value, units, layers)
    defined, undefined = _defined(several, names)
    values, drops, left_out = [], [], []
    labels = _told_apart(several)
    for model, label, of_model, missing in zip(several, labels, defined, undefined, strict=True):
        facts = {"model": label, "init": model.init, "seed": model.seed}
        trial = on_trial(
            model, sentences, of_model, options, fewest=fewest, progress=progress, told={}
        )
        values.append(trial.values.assign(**facts))
        drops.append(trial.drops.assign(**facts))
        left_out.append(pd.concat([pd.DataFrame(missing), trial.left_out]).assign(model=label))
    told = {
        "value": value,
        "units": units,
        "fills": fills,
        "fewest": fewest,
        "sentences": len(sentences),
    }
    return BlankOut(
        _named(pd.concat(values, ignore_index=True)).rename(columns={"value": "spearman"})[
            _VALUE_COLUMNS
        ],
        _named(pd.concat(drops, ignore_index=True)).rename(columns={"word": "unit"})[_DROP_COLUMNS],
        pd.concat(left_out, ignore_index=True)[["model", "item", "what", "reason"]],
        told,
    )


def _told_apart(models: Sequence[Model]) -> list[str]:
    """Names of models; of two alike (with the same weights drawn, or both trained) the second gets
    a number."""
    seen: dict[tuple, int] = {}
    labels = []
    for model in models:
        key = (model.name, model.init, model.seed)
        seen[key] = seen.get(key, 0) + 1
        labels.append(model.name if seen[key] == 1 else f"{model.name} ({seen[key]})")
    return labels


def _options(models: Sequence[Model], fills, value: str, units: str, layers) -> dict[str, Any]:
    """Options of the trial, checked."""
    layers = (layers,) if isinstance(layers, str) else tuple(layers)
    fills = (
        () if fills is None else (fills,) if isinstance(fills, str) else tuple(dict.fromkeys(fills))
    )
    for name, asked, allowed in (("layers", layers, LAYERS), ("fills", fills, TOKEN_FILLS)):
        if set(asked) - set(allowed) or (name == "layers" and not asked):
            raise InputError(f"{name} are some of {allowed}, found {asked!r}")
    if value not in BLANK_OUT_VALUES:
        raise InputError(f"value should be one of {BLANK_OUT_VALUES}, found {value!r}")
    other = [model.name for model in models if not model.capabilities.is_single_text_stack]
    if not models or other:
        raise InputError(
            "expected masked or causal models or classifiers of texts, found "
            f"{', '.join(other) or 'none'}: for others see "
            "speechmix.faithfulness"
        )
    aggregations = tuple(EACH_LAYER if name == "each" else name for name in layers)
    judge = f"blank ({', '.join(fills)})" if fills else "blank"
    return {
        "judges": (judge,),
        "aggregations": aggregations,
        "metrics": ("spearman",),
        "units": units,
        "foils": "needed" if value == "margin" else "aside",
        "value": "probability" if value == "probability" else "margin",
        "each_fill": True,
    }


def _defined(
    models: Sequence[Model], names: str | Sequence[str]
) -> tuple[list[tuple[str, ...]], list[list[dict]]]:
    """Measures that are defined for each model, and the others with reasons; one that is defined
    for none stops everything."""
    if names == "all":
        return [measures_of(model, "all", to_output=False) for model in models], [
            [] for _ in models
        ]
    defined, undefined = [], []
    for model in models:
        measures: list[str] = []
        missing: list[dict[str, str]] = []
        for name in dict.fromkeys(names):
            check_gives_maps(name)
            try:
                measures += measures_of(model, name, to_output=False)
            except InputError as error:
                missing.append({"item": "", "what": name, "reason": str(error)})
        defined.append(tuple(measures))
        undefined.append(missing)
    nowhere = [
        note
        for note in undefined[0]
        if all(note["what"] in {row["what"] for row in rows} for rows in undefined)
    ]
    if nowhere:
        raise InputError(nowhere[0]["reason"])
    return defined, undefined


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """A trial's table with the names of this protocol."""
    fills = table["judge"].str.extract(r"\(([^,]+)\)$", expand=False).fillna(MEAN_OF_FILLS)
    return table.assign(judge=fills).rename(columns={"judge": "fill", "aggregation": "layers"})


def _means(values: pd.DataFrame) -> pd.DataFrame:
    """Means of one model's values, with intervals over groups of sentences."""
    back = {"fill": "judge", "layers": "aggregation", "spearman": "value"}
    table = summary(values.rename(columns=back).assign(metric="spearman", chance=0.0))
    table["layer"] = pd.to_numeric(
        table["aggregation"].str.extract(r"^layer (\d+)$", expand=False)
    ).astype("Int64")
    names = {new: old for old, new in back.items()} | {"clips": "sentences"}
    first = values.iloc[0]
    return table.rename(columns=names).assign(
        model=first["model"], init=first["init"], seed=first["seed"]
    )


def _layers_by_measures(table: pd.DataFrame) -> str:
    """One model's table: a row for each layer, for the mean and the rollout; baselines, which have
    no layers, below."""
    orders = (
        table[table["layers"] == ""].drop_duplicates("measure").set_index("measure")["spearman"]
    )
    rows = table[table["layers"] != ""]
    grid = rows.pivot_table(index="layers", columns="measure", values="spearman", sort=False)
    at = {name: place for place, name in enumerate(dict.fromkeys(rows["layers"]))}
    numbered = sorted(
        (name for name in at if name.startswith("layer ")), key=lambda name: int(name.split()[1])
    )
    grid = grid.reindex([*numbered, *(name for name in at if name not in numbered)])
    grid.columns.name, grid.index.name = None, ""
    shown = grid.reset_index().to_string(index=False, na_rep="-", float_format="{:.2f}".format)
    told = ", ".join(
        f"{name} {orders[name]:.2f}" for name in (*BASELINES, ORACLE) if name in orders
    )
    return f"{shown}\n{told}"
