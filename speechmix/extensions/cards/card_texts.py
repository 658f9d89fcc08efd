"""A model card as a Markdown section for a model's hub page, and as one HTML page.

In: a `ModelCard`. Out: texts that depend on the card alone, so that equal cards give equal files.
"""

from __future__ import annotations

from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from ...errors import InputError
from ...files.json_files import write_checked_json
from ...files.names import distinct_file_names, safe_name
from ...files.whole_files import write_text
from ...mixing.maps.measure_registry import leading_measure, measure_label
from ...reporting.pages.html_page import FirstScreen, Item, Part, Picture, page_svg, render_page
from ...reporting.pages.table_format import markdown_table
from .model_card import MixingProfile, ModelCard, read_model_card

if TYPE_CHECKING:
    from collections.abc import Sequence

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
