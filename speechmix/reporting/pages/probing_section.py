"""What can be read off the states, layer by layer? The section with the probes of a run, if it
has any.

In: ``probes.csv`` and ``probe_answers.csv`` in a run's folder, as a study or `speechmix probe --out
RUN` writes them; the run's cue contributions, for what is mixed below what is read. Out: a part of
the page, or none.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from ...errors import InputError
from ...evaluation.probing.conclusions import PROBE_KEYS, describe_conclusions, draw_conclusions
from ...evaluation.probing.probe_results import ANSWERS_FILE, FILE
from ...evaluation.probing.probing_agreement import probing_agreement
from ...files.names import distinct_file_names
from ...files.text_files import read_csv
from ...mixing.maps.measure_facts import measure_label
from ...mixing.maps.measure_registry import leading_measure
from ..plots.panels import model_name
from ..plots.probe_and_mixing import probe_and_mixing
from ..plots.probe_curves import probe_figure
from .html_page import Item
from .page_figures import side_suffixes
from .page_sections import PageContent, PageSection
from .study_figures import write_page_figure
from .study_tables import without_control
from .table_format import format_p

if TYPE_CHECKING:
    from .study_results import Study

_WHAT = (
    "A logistic probe for {label}, trained on some words and tried on others: accuracy in %, by "
    "layer. Encoder: mean over "
    "the target's frames; decoder: the position that predicts the deciding letters, where the "
    "other spelling is known. "
    "Control: the same probe for labels drawn at random for each word. * better than off untrained "
    "models, + above "
    "control and most frequent label only; both corrected over all layers of this table. That a "
    "state tells something "
    "does not say that the model uses it: see Ablation. All numbers, also of the published "
    "protocol's position (target "
    "rows in the decoder, whose number alone may tell a longer spelling), are in probes.csv."
)
_FIGURE = (
    "Above, what a probe reads; below, the contribution of the cue. Where the cue comes in, the "
    "label should become readable. "
    "The leftmost point is the input of the first layer."
)
_PUBLISHED = (
    "The probes beside the published Figure 4; as there, mean over the target's frames or "
    "the rows that predict it."
)
_AGREEMENT = (
    "Correlation over layers of the cue's contribution with the probe's accuracy (level) and with "
    "its rise from the layer "
    "before (gain), permutation test over layers. Layers are few and neighbours alike: p is rather "
    "too small."
)
_TEXTS = (
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
_PLACE = ("model", "init", "seed", "part", "stack", "position", "layer", "label")
_NEEDED = {
    FILE: (*_PLACE, "accuracy", "low", "high", "majority", "control", "n", "groups"),
    ANSWERS_FILE: (*_PLACE, "item", "group", "right", "control"),
}


def _section_items(content: PageContent) -> list[Item]:
    """Figures, a table and sentences of a run's probes."""
    table, answers = (_read(content.folder / name) for name in (FILE, ANSWERS_FILE))
    items: list[Item] = []
    stems = distinct_file_names(table["label"])
    for label, of_label in table.groupby("label", sort=False):
        file, of_answers = f"probes_{stems[str(label)]}", answers[answers["label"] == label]
        is_published = bool(content.published)
        items += _items(content.study, of_label, of_answers, is_published, file=file)
    return items


def _items(
    study: Study, table: pd.DataFrame, answers: pd.DataFrame, published: bool, *, file: str
) -> list[Item]:
    label = str(table["label"].iloc[0])
    probes, verdicts = _main_positions(table), _main_positions(answers)
    claims = draw_conclusions(probes, verdicts)
    told: list[Item] = [
        *describe_conclusions(claims, {name: model_name(name) for name in claims["model"].unique()})
    ]
    items: list[Item] = [*told, _WHAT.format(label=label)]
    if len(claims):
        items.append(_by_layer(claims))
    suffixes = side_suffixes(probes["part"].unique())
    for part, rows in probes.drop(columns="position").groupby("part", sort=False):
        mixing = without_control(study.table) if len(study.table) else study.table
        mixing = mixing[mixing["side"] == part] if len(mixing) else mixing
        caption = ("" if part == "all" else f"{str(part).capitalize()} cue. ") + _FIGURE
        if len(mixing) and set(_with_cross(rows)["stack"]) & set(mixing["stack"]):
            measure = leading_measure(mixing["measure"].unique())
            figure, small = (
                probe_and_mixing(rows, mixing, measure=measure, narrow=narrow)
                for narrow in (False, True)
            )
        else:
            figure, small = (probe_figure(rows, narrow=narrow) for narrow in (False, True))
        items.append(
            write_page_figure(study, f"{file}{suffixes[str(part)]}", figure, caption, narrow=small)
        )
    at_target = table[table["position"] == "target"]
    if published and label == "number" and len(at_target):
        figure, small = (
            probe_figure(at_target, published=True, narrow=narrow) for narrow in (False, True)
        )
        items.append(write_page_figure(study, "probes_published", figure, _PUBLISHED, narrow=small))
    return [*items, *_agreement(study, probes)]


def _main_positions(table: pd.DataFrame) -> pd.DataFrame:
    """Of each stack the deciding position where it was probed, else the target, else what was."""
    order = {"deciding": 0, "target": 1}
    rank = table["position"].map(lambda position: order.get(position, 2))
    best = rank.groupby([table["model"], table["part"], table["stack"]]).transform("min")
    best_ranked = table[rank == best]
    several = best_ranked.groupby(["model", "part", "stack"])["position"].transform("nunique") > 1
    is_first = best_ranked["position"] == best_ranked["position"].min()
    main_positions: pd.DataFrame = best_ranked[~several | is_first]
    return main_positions


def _with_cross(table: pd.DataFrame) -> pd.DataFrame:
    """The decoder's rows again for cross-attention, which adds to the same states."""
    return pd.concat(
        [table, table[table["stack"] == "decoder"].assign(stack="cross")], ignore_index=True
    )


def _by_layer(claims: pd.DataFrame) -> pd.DataFrame:
    """Accuracy in every layer, marked where something is claimed; a row for each model, part, stack
    and position."""
    rows = []
    for key, part in claims.groupby(PROBE_KEYS, sort=False):
        side, model, stack, position, _ = key
        cells = {"side": side, "model": model_name(model), "stack": stack, "position": position}
        for row in part.sort_values("layer").to_dict("records"):
            mark = "*" if row["more"] and row["read"] else "+" if row["read"] else ""
            cells["input" if row["layer"] < 0 else str(int(row["layer"]))] = (
                f"{100 * row['accuracy']:.0f}{mark}"
            )
        means = {name: 100 * part[name].mean() for name in ("control", "majority", "untrained")}
        cells |= {name: "" if mean != mean else f"{mean:.0f}" for name, mean in means.items()}
        rows.append({**cells, "clips": int(part["n"].max()), "groups": int(part["groups"].max())})
    table = pd.DataFrame(rows)
    last = [
        name for name in ("control", "majority", "untrained", "clips", "groups") if name in table
    ]
    table = table[[*(name for name in table if name not in last), *last]].fillna("")
    return table.drop(columns="side") if set(table["side"]) == {"all"} else table


def _agreement(study: Study, positions: pd.DataFrame) -> list[Item]:
    """Do mixing and probing agree over layers? A table, where there are layers enough."""
    if study.table.empty:
        return []
    mixing = without_control(study.table).rename(columns={"side": "part"})
    agreement = probing_agreement(
        mixing[mixing["init"] == "trained"],
        _with_cross(positions[positions["init"] == "trained"].drop(columns="position")),
        by=["part", "model", "stack", "measure"],
    ).dropna(subset="pearson")
    if agreement.empty:
        return []
    shown = agreement.assign(
        model=agreement["model"].map(model_name), measure=agreement["measure"].map(measure_label)
    )
    for name in ("pearson", "spearman"):
        shown[name] = shown[name].map("{:.2f}".format)
        shown[f"{name}_p"] = shown[f"{name}_p"].map(format_p)
    shown = shown.rename(columns={"part": "side", "pearson_p": "p", "spearman_p": "p (spearman)"})
    return [_AGREEMENT, shown.drop(columns="side") if set(shown["side"]) == {"all"} else shown]


def _read(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise InputError(f"{path.name} is not beside {FILE}: probe again")
    table = read_csv(path)
    if missing := [name for name in _NEEDED[path.name] if name not in table]:
        raise InputError(
            f"{path.name}: expected logistic probes, found no column {', '.join(missing)}"
        )
    numbers = [str(name) for name in table if name not in _TEXTS]
    table[numbers] = table[numbers].apply(pd.to_numeric, errors="coerce")
    needed = [
        name for name in ("layer", "accuracy", "n", "groups", "right") if name in _NEEDED[path.name]
    ]
    table = table.dropna(subset=needed).astype({"layer": int})
    if table.duplicated([*_PLACE, *(["item"] if "item" in table else [])]).any():
        raise InputError(f"{path.name}: a row is there twice; probe again into this folder")
    seed = pd.to_numeric(table["seed"], errors="coerce").astype("Int64")
    return table.assign(seed=seed)


PROBING = PageSection(
    "What can be read off the states?",
    _section_items,
    lambda content: (content.folder / FILE).is_file(),
)
