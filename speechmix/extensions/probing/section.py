"""Page section with the probes of a run.

The section with the probes of a run, if it has any.

In: ``probes.csv`` and ``probe_answers.csv`` in a run's folder, as a study or `speechmix probe --out
RUN` writes them; the run's cue contributions, for what is mixed below what is read. Out: a part of
the page, or none.

Agreement over layers between a measure's cue contribution and a probe.

A measure's cue contribution by layer, held against what a probe finds there (protocol E5).

    level:  correlation over layers of contribution[l] with accuracy[l]
    gain:   correlation over layers of contribution[l] with accuracy[l] - accuracy[l - 1]

If a layer brings the cue into the target, the label should become readable *there*: so the gain is
what should agree. A level can only rise with depth, and agrees with whatever rises (Mohebbi et al.
2023 show both curves, one above the other). Pearson and Spearman, each with a permutation test over
layers: contribution is put in random order of layers, in all orders where there are few layers.
Neighbouring layers are alike and the test takes them as exchangeable, so its p of two smooth curves
is too small; it is of one model, and says nothing of others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ...errors import InputError
from ...files.names import distinct_file_names
from ...files.text_files import read_csv
from ...mixing.maps.measure_registry import leading_measure, measure_label
from ...reporting.pages.html_page import Item, side_suffixes
from ...reporting.pages.page_sections import PageContent, PageSection
from ...reporting.pages.study_figures import write_page_figure
from ...reporting.pages.study_tables import drop_control_clips
from ...reporting.pages.table_format import format_p
from ...reporting.plots.figure_style import model_name
from .conclusions import PROBE_KEYS, describe_conclusions, draw_conclusions
from .probe_curves import probe_and_mixing, probe_figure
from .scores import ANSWERS_FILE, FILE

if TYPE_CHECKING:
    from ...reporting.pages.study_results import Study

_MIN_LAYERS, _MAX_EXACT_LAYERS, _PERMUTATIONS = 4, 7, 9999
_COLUMNS = ["against", "pearson", "pearson_p", "spearman", "spearman_p", "layers"]
_ROW_KEYS = ("model", "init", "stack", "measure")


def probing_agreement(
    contributions: pd.DataFrame,
    probes: pd.DataFrame,
    *,
    by: Sequence[str] = _ROW_KEYS,
    value: str = "accuracy",
    seed: int = 0,
) -> pd.DataFrame:
    """Correlate a measure's contribution over layers with a probe's level, and with its gain.

    Parameters
    ----------
    contributions : DataFrame
        Columns of `by`, layer, contribution; clips and seeds are averaged.
    probes : DataFrame
        The same columns but measure, and `value`; layer -1 is the input of the first layer, without
        which that layer has no gain. One position and label; seeds are averaged.
    by : sequence of str
        What makes a row of the result, e.g. also "side".
    value : str
        "accuracy", "compression".
    seed : int
        Of the permutations.

    Returns
    -------
    DataFrame
        Columns of `by`, against ("level" or "gain"), pearson, pearson_p, spearman, spearman_p,
        layers; correlations are missing where fewer than four layers are left or one curve does not
        vary.

    Raises
    ------
    InputError
        If a column is missing, or the probes are of several positions.

    Examples
    --------
    >>> layers = range(5)
    >>> mixing = pd.DataFrame({"model": "m", "measure": "value_zeroing", "layer": layers, "contribution": [1, 5, 2, 1, 0]})
    >>> probe_values = pd.DataFrame({"model": "m", "layer": range(-1, 5), "accuracy": [0.5, 0.55, 0.8, 0.9, 0.95, 0.95]})
    >>> table = probing_agreement(mixing, probe_values, by=["model", "measure"]).set_index("against")
    >>> table.pearson.round(2).to_dict(), round(float(table.spearman_p["gain"]), 2)
    ({'level': -0.13, 'gain': 1.0}, 0.03)
    """
    probe_keys = [name for name in by if name != "measure"]
    _check_columns(contributions, [*by, "layer", "contribution"])
    _check_columns(probes, [*probe_keys, "layer", value])
    for name in ("position", "label"):
        if name in probes and probes[name].nunique() > 1:
            raise InputError(
                f"expected the probes of one {name}, found "
                f"{', '.join(map(str, probes[name].unique()))}"
            )
    levels = {
        _as_tuple(key): table_part.groupby("layer")[value].mean()
        for key, table_part in probes.groupby(probe_keys, sort=False)
    }
    rows = []
    for key, table_part in contributions.groupby(list(by), sort=False, observed=True):
        keys = dict(zip(by, _as_tuple(key), strict=True))
        level = levels.get(tuple(keys[name] for name in probe_keys))
        if level is None:
            continue
        curve = table_part.groupby("layer")["contribution"].mean()
        gain = level - level.rename(lambda layer: layer + 1).reindex(level.index)
        for against, probe_values in (("level", level), ("gain", gain)):
            paired = (
                pd.concat([curve, probe_values], axis=1, join="inner")
                .dropna()
                .to_numpy(dtype=float)
            )
            rows.append(
                {**keys, "against": against, **_correlate_curves(paired[:, 0], paired[:, 1], seed)}
            )
    return pd.DataFrame(rows, columns=[*by, *_COLUMNS])


def _as_tuple(key: Hashable) -> tuple[Hashable, ...]:
    return key if isinstance(key, tuple) else (key,)


def _check_columns(table: pd.DataFrame, columns: Sequence[str]) -> None:
    missing_columns = [name for name in columns if name not in table]
    if missing_columns:
        raise InputError(
            f"expected a table with the columns {', '.join(columns)}; {', '.join(missing_columns)} not "
            "found"
        )


def _correlate_curves(curve: np.ndarray, probe_values: np.ndarray, seed: int) -> dict[str, float]:
    """Compute both correlations with their p-values."""
    from scipy.stats import rankdata

    row: dict[str, float] = {"layers": len(curve)}
    # A curve that does not vary up to rounding has no correlation.
    has_variance = len(curve) >= _MIN_LAYERS and all(
        np.ptp(values) > 1e-12 * np.abs(values).max() for values in (curve, probe_values)
    )
    scalings: tuple[tuple[str, Callable[[np.ndarray], np.ndarray]], ...] = (
        ("pearson", np.asarray),
        ("spearman", rankdata),
    )
    for name, scale in scalings:
        row[name], row[f"{name}_p"] = (
            permutation_correlation(scale(curve), scale(probe_values), seed=seed)
            if has_variance
            else (np.nan, np.nan)
        )
    return row


def permutation_correlation(x: np.ndarray, y: np.ndarray, *, seed: int = 0) -> tuple[float, float]:
    """Return Pearson's r and its two-sided permutation p-value (exact up to seven values).

    Examples
    --------
    >>> r, p = permutation_correlation(np.array([1.0, 2, 3, 4]), np.array([1.0, 2, 3, 4]))
    >>> round(r, 6), round(p, 6)  # 2 of 24 orders
    (1.0, 0.083333)
    """
    a, b = (
        values - values.mean()
        for values in (np.asarray(x, dtype=float), np.asarray(y, dtype=float))
    )
    norm_product = float(np.linalg.norm(a) * np.linalg.norm(b))
    r = float(a @ b) / norm_product
    if len(a) <= _MAX_EXACT_LAYERS:
        orders = np.array(list(itertools.permutations(range(len(a)))))
        return r, float((np.abs(a[orders] @ b) >= abs(r) * norm_product * (1 - 1e-9)).mean())
    generator = np.random.default_rng(seed)
    permuted_products = np.array([generator.permutation(a) for _ in range(_PERMUTATIONS)]) @ b
    return r, float(
        (1 + (np.abs(permuted_products) >= abs(r) * norm_product * (1 - 1e-9)).sum())
        / (1 + _PERMUTATIONS)
    )


_INTRODUCTION = (
    "A hidden state is the model's vector for a word or position after a layer. A probe is a separate "
    "logistic regression. It predicts the {label} from hidden states. It is trained on some words and "
    "tested on others. In the encoder, the state is the mean over the target's frames. In the decoder, "
    "it is the state at the deciding position. Information in a state does not show that the model "
    "uses it. Only ablation can show that."
)
_TABLE_NOTE = (
    "The table has the accuracy of the probe in % by layer. Control: the same probe, trained on random "
    "labels of the words. Majority: accuracy of always choosing the most frequent label. “+”: the "
    "probe is more accurate than the control and the majority, corrected for multiple comparisons over "
    "all layers of the table. The sentences compare it with untrained models, as a mean over layers. "
    "probes.csv has all numbers. The file also has a second kind of probe for the decoder. It uses "
    "the mean of the states at all positions of the target. There, the number of tokens alone may "
    "reveal the longer spelling."
)
_LABEL_PHRASES = {"number": "number (singular or plural)"}
_FIGURE_CAPTION = (
    "Above: accuracy of the probe. Below: contribution of the cue. Where the cue contributes, the "
    "accuracy should rise. The leftmost point is the input of the first layer."
)
_PUBLISHED_CAPTION = (
    "The probes and the published Figure 4. As there, states are averaged over the target's frames, "
    "or over the rows that predict it."
)
_AGREEMENT_NOTE = (
    "Correlation over layers between the cue's contribution and the probe. “Level” is the accuracy of "
    "the probe. “Gain” is the rise of this accuracy from the layer before. p is from a permutation of "
    "the layers. Layers are few, and neighbouring layers are alike, so the true p is probably larger."
)
_TEXT_COLUMNS = (
    "model",
    "init",
    "seed",
    "part",
    "stack",
    "position",
    "label",
    "method",
    "item",
    "group",
    "true",
    "predicted",
)
_KEY_COLUMNS = ("model", "init", "seed", "part", "stack", "position", "layer", "label")
_REQUIRED_COLUMNS = {
    FILE: (*_KEY_COLUMNS, "accuracy", "low", "high", "majority", "control", "n", "groups"),
    ANSWERS_FILE: (*_KEY_COLUMNS, "item", "group", "right", "control"),
}


def _probing_items(content: PageContent) -> list[Item]:
    """Return figures, a table and sentences for each label that was probed."""
    table, answers = (_read_probe_table(content.folder / name) for name in (FILE, ANSWERS_FILE))
    items: list[Item] = []
    stems = distinct_file_names(table["label"])
    for label, label_table in table.groupby("label", sort=False):
        file, label_answers = f"probes_{stems[str(label)]}", answers[answers["label"] == label]
        is_published = bool(content.published)
        items += _label_items(content.study, label_table, label_answers, is_published, file=file)
    return items


def _label_items(
    study: Study, table: pd.DataFrame, answers: pd.DataFrame, published: bool, *, file: str
) -> list[Item]:
    label = str(table["label"].iloc[0])
    probes, verdicts = _main_positions(table), _main_positions(answers)
    claims = draw_conclusions(probes, verdicts)
    claim_sentences: list[Item] = [
        *describe_conclusions(claims, {name: model_name(name) for name in claims["model"].unique()})
    ]
    introduction = _INTRODUCTION.format(label=_LABEL_PHRASES.get(label, label))
    items: list[Item] = [introduction, *claim_sentences]
    if len(claims):
        items += [_TABLE_NOTE, _layer_table(claims)]
    suffixes = side_suffixes(probes["part"].unique())
    for part, rows in probes.drop(columns="position").groupby("part", sort=False):
        mixing = drop_control_clips(study.table) if len(study.table) else study.table
        mixing = mixing[mixing["side"] == part] if len(mixing) else mixing
        caption = ("" if part == "all" else f"{str(part).capitalize()} cue. ") + _FIGURE_CAPTION
        if len(mixing) and set(_add_cross_rows(rows)["stack"]) & set(mixing["stack"]):
            measure = leading_measure(mixing["measure"].unique())
            figure, narrow_figure = (
                probe_and_mixing(rows, mixing, measure=measure, narrow=narrow)
                for narrow in (False, True)
            )
        else:
            figure, narrow_figure = (probe_figure(rows, narrow=narrow) for narrow in (False, True))
        items.append(
            write_page_figure(
                study, f"{file}{suffixes[str(part)]}", figure, caption, narrow=narrow_figure
            )
        )
    at_target = table[table["position"] == "target"]
    if published and label == "number" and len(at_target):
        figure, narrow_figure = (
            probe_figure(at_target, published=True, narrow=narrow) for narrow in (False, True)
        )
        items.append(
            write_page_figure(
                study, "probes_published", figure, _PUBLISHED_CAPTION, narrow=narrow_figure
            )
        )
    return [*items, *_agreement_items(study, probes)]


def _main_positions(table: pd.DataFrame) -> pd.DataFrame:
    """Select for each stack the deciding position where it was probed, else the target, else the
    first."""
    order = {"deciding": 0, "target": 1}
    rank = table["position"].map(lambda position: order.get(position, 2))
    best_rank = rank.groupby([table["model"], table["part"], table["stack"]]).transform("min")
    best_ranked = table[rank == best_rank]
    has_several = (
        best_ranked.groupby(["model", "part", "stack"])["position"].transform("nunique") > 1
    )
    is_first = best_ranked["position"] == best_ranked["position"].min()
    main_positions: pd.DataFrame = best_ranked[~has_several | is_first]
    return main_positions


def _add_cross_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Repeat the decoder's rows for cross-attention, which adds to the same states."""
    return pd.concat(
        [table, table[table["stack"] == "decoder"].assign(stack="cross")], ignore_index=True
    )


def _layer_table(claims: pd.DataFrame) -> pd.DataFrame:
    """Tabulate accuracy by layer, with marks for significant layers; a row for each model, part,
    stack and position."""
    rows = []
    for key, probe_rows in claims.groupby(PROBE_KEYS, sort=False):
        side, model, stack, position, _ = key
        cells = {"side": side, "model": model_name(model), "stack": stack, "position": position}
        for row in probe_rows.sort_values("layer").to_dict("records"):
            mark = "+" if row["read"] else ""
            cells["input" if row["layer"] < 0 else str(int(row["layer"]))] = (
                f"{100 * row['accuracy']:.0f}{mark}"
            )
        means = {
            name: 100 * probe_rows[name].mean() for name in ("control", "majority", "untrained")
        }
        cells |= {name: "" if mean != mean else f"{mean:.0f}" for name, mean in means.items()}
        rows.append(
            {
                **cells,
                "clips": int(probe_rows["n"].max()),
                "groups": int(probe_rows["groups"].max()),
            }
        )
    table = pd.DataFrame(rows)
    last_columns = [
        name for name in ("control", "majority", "untrained", "clips", "groups") if name in table
    ]
    table = table[[*(name for name in table if name not in last_columns), *last_columns]].fillna("")
    return table.drop(columns="side") if set(table["side"]) == {"all"} else table


def _agreement_items(study: Study, positions: pd.DataFrame) -> list[Item]:
    """Compare mixing and probing over layers in a table, if there are enough layers."""
    if study.table.empty:
        return []
    mixing = drop_control_clips(study.table).rename(columns={"side": "part"})
    agreement = probing_agreement(
        mixing[mixing["init"] == "trained"],
        _add_cross_rows(positions[positions["init"] == "trained"].drop(columns="position")),
        by=["part", "model", "stack", "measure"],
    ).dropna(subset="pearson")
    if agreement.empty:
        return []
    formatted = agreement.assign(
        model=agreement["model"].map(model_name), measure=agreement["measure"].map(measure_label)
    )
    for name in ("pearson", "spearman"):
        formatted[name] = formatted[name].map("{:.2f}".format)
        formatted[f"{name}_p"] = formatted[f"{name}_p"].map(format_p)
    formatted = formatted.rename(
        columns={"part": "side", "pearson_p": "p", "spearman_p": "p (spearman)"}
    )
    return [
        _AGREEMENT_NOTE,
        formatted.drop(columns="side") if set(formatted["side"]) == {"all"} else formatted,
    ]


def _read_probe_table(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise InputError(f"{path.name} is missing in the folder of {FILE}: run the probe again")
    table = read_csv(path)
    if missing_columns := [name for name in _REQUIRED_COLUMNS[path.name] if name not in table]:
        raise InputError(
            f"{path.name}: expected logistic probes, found no column {', '.join(missing_columns)}"
        )
    number_columns = [str(name) for name in table if name not in _TEXT_COLUMNS]
    table[number_columns] = table[number_columns].apply(pd.to_numeric, errors="coerce")
    required_numbers = [
        name
        for name in ("layer", "accuracy", "n", "groups", "right")
        if name in _REQUIRED_COLUMNS[path.name]
    ]
    table = table.dropna(subset=required_numbers).astype({"layer": int})
    if table.duplicated([*_KEY_COLUMNS, *(["item"] if "item" in table else [])]).any():
        raise InputError(f"{path.name}: a row is there twice; probe again into this folder")
    seed = pd.to_numeric(table["seed"], errors="coerce").astype("Int64")
    return table.assign(seed=seed)


PROBING = PageSection(
    "What can a probe predict from the hidden states?",
    _probing_items,
    lambda content: (content.folder / FILE).is_file(),
)
