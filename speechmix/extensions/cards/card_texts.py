"""A model card as a Markdown section for a model's hub page, and as one HTML page.

In: a `ModelCard`. Out: texts that depend on the card alone, so that equal cards give equal files.

A gallery of model cards: one static page that compares models where they can be compared.

In: a folder of cards (JSON). Out: a page with a table for each set of clips and options. Models are
ranked only as far as their intervals allow: models that are not separated share a
range of ranks, and sorting does not order them.

Range of ranks that confidence intervals allow.

In: estimates with 95 % intervals over groups. Out: for each the best and the worst place that it
may have. Two estimates are in order only if their intervals, widened for the number of estimates
(Bonferroni: all hold together in 95 % of samples), do not overlap. This is the way of Mohamad,
Goeman & van Zwet 2022, Simultaneous confidence intervals for ranks, without their refinements.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from os import PathLike
from os import path as os_path
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ...errors import InputError, SpeechmixError
from ...evaluation.statistics.intervals import LEVEL
from ...files.json_files import write_checked_json
from ...files.names import distinct_file_names, safe_name
from ...files.whole_files import write_text
from ...mixing.maps.measure_registry import leading_measure, measure_label
from ...reporting.pages.html_page import (
    FirstScreen,
    Item,
    Part,
    Picture,
    SortableTable,
    page_svg,
    render_page,
)
from ...reporting.pages.table_format import markdown_table
from .model_card import CardEstimate, MixingProfile, ModelCard, read_model_card

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Context mixing"
HOW_TO_READ = (
    "Cue contribution is the share of the cue in the target's representation, trained model minus "
    "untrained twins (the same architecture with random weights), in percentage points. Cue need "
    "is the spelling accuracy that is lost when the cue's value vectors are zeroed in that stack. "
    "Intervals are 95 % confidence intervals over groups of clips. An empty verdict means that "
    "nothing is claimed."
)
_MEASURES = (
    "Which measures agree with interventions on this model: rank correlation (1: the same order of "
    "words, 0: none) between a measure and the effects of a reference perturbation, with 95 % "
    "interval over groups of clips."
)
_NO_MEASURES = (
    "No faithfulness evaluation was run, so nothing is known of what the measures are worth on "
    "this model. The command speechmix faithfulness --out RUN runs one."
)


def write_model_cards(cards: Sequence[ModelCard], out: str | PathLike[str]) -> list[Path]:
    """Write each card as JSON, HTML and Markdown into a folder.

    A card of other weights keeps its files: of two models called ``checkpoint-500`` the second has
    files called ``checkpoint-500-`` and the first eight characters of its weights' fingerprint.

    Returns
    -------
    list of Path
        Of the pages.

    Raises
    ------
    InputError
        If the folder cannot be written.
    """
    names = distinct_file_names(card.model for card in cards)
    pages = []
    try:
        for card in cards:
            stem = _choose_stem(Path(out) / names[card.model], card)
            write_checked_json(stem.with_name(f"{stem.name}.json"), card.to_json())
            write_text(stem.with_name(f"{stem.name}.md"), card_markdown(card))
            pages.append(stem.with_name(f"{stem.name}.html"))
            write_text(pages[-1], card_page(card))
    except OSError as error:
        raise InputError(
            f"cannot write the cards into {out} ({error}): expected a folder that can be written"
        ) from error
    return pages


def _choose_stem(stem: Path, card: ModelCard) -> Path:
    """Return where a card's files go: the name of its model, unless that is another's."""
    path = stem.with_name(f"{stem.name}.json")
    if not path.exists():
        return stem
    with suppress(InputError):  # damaged, or no card: not ours to write over
        other = read_model_card(path)
        if (other.model, other.weights) == (card.model, card.weights):
            return stem
    return stem.with_name(f"{stem.name}-{safe_name(card.weights)[:8]}")


def card_markdown(card: ModelCard) -> str:
    """Return a section for the README of the model's hub page."""
    lines = [f"## {TITLE}", "", HOW_TO_READ, ""]
    for index, profile in enumerate(card.profiles):
        if len(card.profiles) > 1:
            lines += [f"### Clips {index + 1}", ""]
        sentences = [*profile.notes, *profile.answers]
        lines += [*(f"- {sentence}" for sentence in sentences), ""] if sentences else []
        if profile.estimates:
            lines += [markdown_table(_estimate_table(profile)), ""]
        measures = _measure_table(profile)
        lines += [_MEASURES, "", markdown_table(measures), ""] if len(measures) else []
        lines += [] if len(measures) else [_NO_MEASURES, ""]
        lines += [_clips_sentence(profile), "", _versions_sentence(card, profile), ""]
    return "\n".join(lines)


def card_page(card: ModelCard) -> str:
    """Return the card as one HTML page that needs no network."""
    page_sections: list[Part] = []
    for index, profile in enumerate(card.profiles):
        suffix = f" (clips {index + 1})" if len(card.profiles) > 1 else ""
        measures = _measure_table(profile)
        items: list[Item] = [HOW_TO_READ]
        page_sections += [
            (f"Estimates{suffix}", [*items, _estimate_table(profile)]),
            (f"What the measures are worth{suffix}", _measure_items(measures)),
            (
                f"Clips and versions{suffix}",
                [_clips_sentence(profile), _versions_sentence(card, profile)],
            ),
        ]
    first = card.profiles[0]
    curves = layer_figure(first)
    screen = FirstScreen(
        notes=first.notes,
        answer=first.answers,
        figure=None if curves is None else Picture(page_svg(curves), _CURVES),
    )
    return render_page(f"{TITLE} in {card.model}", page_sections, first=screen)


_CURVES = (
    "Cue contribution in each layer: trained model minus untrained twins, with 95 % interval where "
    "there is one."
)


def layer_figure(profile: MixingProfile) -> Figure | None:
    """Draw the difference to untrained twins in each layer, a panel for each stack and side.

    Returns
    -------
    Figure or None
        None without a difference to draw.
    """
    from matplotlib.figure import Figure

    curves = [
        curve for curve in profile.layers if any(value is not None for value in curve["difference"])
    ]
    if not curves:
        return None
    measure = leading_measure([curve["measure"] for curve in curves])
    curves = [curve for curve in curves if curve["measure"] == measure]
    figure = Figure(figsize=(2.6 * len(curves) + 0.8, 2.6), layout="constrained")
    panels = figure.subplots(1, len(curves), sharey=True, squeeze=False)[0]
    for ax, curve in zip(panels, curves, strict=True):
        values, low, high = (
            pd.to_numeric(pd.Series(curve[name], dtype=object), errors="coerce")
            for name in ("difference", "low", "high")
        )
        ax.axhline(0, color="#4d4d4d", linewidth=0.8)
        ax.fill_between(values.index, low, high, color="#0072b2", alpha=0.2, linewidth=0)
        ax.plot(values.index, values, marker="o", markersize=3, color="#0072b2")
        side = "" if curve["side"] == "all" else f", {curve['side']} cue"
        ax.set_title(f"{curve['stack']}{side}", size=9)
        ax.set_xlabel("layer")
        ax.xaxis.get_major_locator().set_params(integer=True)
    panels[0].set_ylabel(f"{measure_label(measure)}\ntrained - untrained (points)")
    return figure


def _estimate_table(profile: MixingProfile) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "estimate": estimate.label,
                "unit": estimate.unit,
                "value (95 % interval)": estimate.text,
                "verdict": estimate.verdict,
                "groups": estimate.groups,
            }
            for estimate in profile.estimates
        ]
    )


def _measure_table(profile: MixingProfile) -> pd.DataFrame:
    rows = []
    for row in profile.measures:
        interval = "" if row["low"] is None else f" ({row['low']:.2f} to {row['high']:.2f})"
        rows.append(
            {
                "reference perturbation": row["perturbation"],
                "stack": row["stack"],
                "measure": row["measure"].replace("_", " "),
                "layers": row["aggregation"],
                "rank correlation": "" if row["value"] is None else f"{row['value']:.2f}{interval}",
                "better than all baselines": "yes" if row["better_than_all_baselines"] else "",
            }
        )
    return pd.DataFrame(rows)


def _measure_items(measures: pd.DataFrame) -> list[Item]:
    return [_MEASURES, measures] if len(measures) else [_NO_MEASURES]


def _clips_sentence(profile: MixingProfile) -> str:
    clips = profile.clips
    languages = ", ".join(clips["languages"]) or "not recorded"
    counts = clips.get("grouping", f"{clips['count']} in {clips['groups']} groups.")
    return (
        f"Clips: {counts} Length: {clips['seconds']:.1f} s. Language: {languages}. Fingerprint: "
        f"{clips['fingerprint']}. Untrained twins: {profile.twins}."
    )


def _versions_sentence(card: ModelCard, profile: MixingProfile) -> str:
    return f"Model: {card.model}, weights {card.weights}. Computed with {profile.versions}."


def rank_ranges(
    values: Sequence[float],
    lows: Sequence[float],
    highs: Sequence[float],
    groups: Sequence[int],
) -> list[tuple[int, int]]:
    """Return the best and the worst rank of each estimate; rank 1 is the largest.

    Parameters
    ----------
    values, lows, highs : sequence of float
        Estimates with the limits of their 95 % intervals.
    groups : sequence of int
        Independent groups behind each interval, at least 2.

    Examples
    --------
    >>> rank_ranges([30, 10, 9], [29, 9, 8], [31, 11, 10], [20, 20, 20])
    [(1, 1), (2, 3), (2, 3)]
    """
    from scipy.stats import t as student

    middle = np.asarray(values, dtype=float)
    freedom = np.maximum(np.asarray(groups, dtype=float) - 1, 1)
    share = (1 - LEVEL) / 2
    widening = student.isf(share / max(len(middle), 1), freedom) / student.isf(share, freedom)
    low = middle - widening * (middle - np.asarray(lows, dtype=float))
    high = middle + widening * (np.asarray(highs, dtype=float) - middle)
    is_above = low[:, None] > high  # [estimate, other estimate]
    best = 1 + is_above.sum(axis=0)
    worst = len(middle) - is_above.sum(axis=1)
    return [(int(first), int(last)) for first, last in zip(best, worst, strict=True)]


PAGE = "index.html"
_HOW_TO_READ = (
    "Each cell has an estimate, its 95 % confidence interval, and the ranks that it may have (rank "
    "1: the largest value). Models share a range of ranks if their intervals, widened for the "
    "number of models, overlap. Sorting a column follows these ranges, so it does not order models "
    "that are not separated."
)
_UNRANKED = "not ranked"


def write_gallery(
    folder: str | PathLike[str], *, out: str | PathLike[str] | None = None
) -> tuple[Path, list[str]]:
    """Write a page of all cards in a folder and its subfolders.

    Parameters
    ----------
    folder : path
    out : path, optional
        The page; ``index.html`` in the folder by default.

    Returns
    -------
    Path
        Of the page.
    list of str
        Why files were skipped: JSON files that are no card.

    Raises
    ------
    InputError
        If the folder holds no card, or the page cannot be written.
    """
    page = Path(out) if out else Path(folder) / PAGE
    cards: list[tuple[ModelCard, str]] = []
    reasons: list[str] = []
    for path in sorted(Path(folder).rglob("*.json")):
        try:
            link = os_path.relpath(path.with_suffix(".html"), page.parent)
            cards.append((read_model_card(path), Path(link).as_posix()))
        except SpeechmixError as error:
            reasons.append(str(error))
    if not cards:
        raise InputError(f"{folder} holds no model card: `speechmix card RUN` writes one")
    try:
        write_text(page, gallery_page(cards, reasons))
    except OSError as error:
        raise InputError(f"cannot write the page {page} ({error})") from error
    return page, reasons


def gallery_page(cards: list[tuple[ModelCard, str]], reasons: list[str]) -> str:
    """Return the page of some cards, each with the address of its own page."""
    by_clips: dict[str, list[tuple[ModelCard, str, MixingProfile]]] = defaultdict(list)
    for card, link in sorted(cards, key=lambda item: (item[0].model, item[0].weights, item[1])):
        for profile in card.profiles:
            by_clips[profile.comparison_key].append((card, link, profile))
    ordered = sorted(by_clips.values(), key=lambda rows: (-len(rows), rows[0][0].model))
    page_sections: list[Part] = [(_heading(rows), _items(rows)) for rows in ordered]
    if reasons:
        page_sections.append(("Skipped files", list(reasons)))
    return render_page("Context mixing: model cards", page_sections)


def _heading(rows: list[tuple[ModelCard, str, MixingProfile]]) -> str:
    clips = rows[0][2].clips
    languages = ", ".join(clips["languages"])
    models = "1 model" if len(rows) == 1 else f"{len(rows)} models"
    return f"{models} on {clips['count']} clips{f' ({languages})' if languages else ''}"


def _items(rows: list[tuple[ModelCard, str, MixingProfile]]) -> list[str | SortableTable]:
    profile = rows[0][2]
    notes = list(
        dict.fromkeys(note for _, _, mixing_profile in rows for note in mixing_profile.notes)
    )
    table, sort_keys = gallery_table(
        [(card.model, mixing_profile) for card, _, mixing_profile in rows]
    )
    names = table["model"]
    links = {name: link for name, (_, link, _) in zip(names, rows, strict=True)}
    return [
        _HOW_TO_READ,
        *notes,
        f"Clips: fingerprint {profile.clips['fingerprint']}, {profile.clips['groups']} groups.",
        SortableTable(table, links, sort_keys),
    ]


def gallery_table(
    rows: list[tuple[str, MixingProfile]],
) -> tuple[pd.DataFrame, dict[str, list[float]]]:
    """Return a row for each model and a column for each estimate, with the keys to sort by.

    Parameters
    ----------
    rows : list of (str, MixingProfile)
        Profiles that share their clips and options (`MixingProfile.comparison_key`).

    Returns
    -------
    DataFrame
        Column model, then one text column for each estimate.
    dict of str to list of float
        For each of these columns the best rank of each model; NaN without an interval.
    """
    by_label = [{estimate.label: estimate for estimate in profile.estimates} for _, profile in rows]
    labels = list(dict.fromkeys(label for estimates in by_label for label in estimates))
    table = pd.DataFrame({"model": _distinct_names([name for name, _ in rows])})
    sort_keys: dict[str, list[float]] = {}
    for label in labels:
        estimates = [by_name.get(label) for by_name in by_label]
        ranges = _ranges(estimates)
        unit = next(estimate.unit for estimate in estimates if estimate is not None)
        column = f"{label}, {unit}"
        table[column] = [
            "" if estimate is None else f"{estimate.text}, {_rank_text(limits)}"
            for estimate, limits in zip(estimates, ranges, strict=True)
        ]
        sort_keys[column] = [float("nan") if limits is None else limits[0] for limits in ranges]
    return table, sort_keys


def _ranges(estimates: list[CardEstimate | None]) -> list[tuple[int, int] | None]:
    ranked = {
        index: (estimate.value, estimate.low, estimate.high, estimate.groups)
        for index, estimate in enumerate(estimates)
        if estimate is not None and estimate.low is not None and estimate.high is not None
    }
    if len(ranked) < 2:
        return [None] * len(estimates)
    limits = rank_ranges(*zip(*ranked.values(), strict=True))
    by_index = dict(zip(ranked, limits, strict=True))
    return [by_index.get(index) for index in range(len(estimates))]


def _rank_text(limits: tuple[int, int] | None) -> str:
    if limits is None:
        return _UNRANKED
    best, worst = limits
    return f"rank {best}" if best == worst else f"rank {best} to {worst}"


def _distinct_names(names: list[str]) -> list[str]:
    """Names with a number where several cards are of one model."""
    counts: dict[str, int] = defaultdict(int)
    distinct = []
    for name in names:
        counts[name] += 1
        distinct.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return distinct
