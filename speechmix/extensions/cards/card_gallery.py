"""A gallery of model cards: one static page that compares models where they can be compared.

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
from os import PathLike
from os import path as os_path
from pathlib import Path

import numpy as np
import pandas as pd

from ...errors import InputError, SpeechmixError
from ...evaluation.statistics.intervals import LEVEL
from ...files.whole_files import write_text
from ...reporting.pages.html_page import Part, SortableTable, render_page
from .model_card import CardEstimate, MixingProfile, ModelCard, read_model_card


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
