"""One page about listening: shares of items by model, examples to hear, where in the decoder the sound is read.

In: `Listening` results of one or several models about the same items. Out: an HTML file that needs no network.

Draw how many items need the sound, are solved without it, or follow the text, for one or several models.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from ...errors import InputError
from ...files.whole_files import write_text
from ...inputs.clips.player import encode_wav
from ...reporting.pages.html_page import (
    FirstScreen,
    Item,
    Part,
    render_page,
    round_cells,
    sortable_cells,
    sortable_numbers,
)
from ...reporting.plots.figure_style import (
    LABEL_SIZE,
    LINE_COLORS,
    add_legend,
    legend_line,
    model_title,
    new_figure,
    style_curve_axis,
)
from .effects import ALL_ITEMS, SHARES, SOLVED, SOLVED_WITHOUT, describe_shares
from .sound_routes import INPUT

if TYPE_CHECKING:
    from .items import ListeningItem
    from .listening import Listening

_SPREAD = 0.4  # of a row, over which the models of a share lie


def model_labels(results: Sequence[Listening]) -> list[str]:
    """Return a label of its own for each model, with a number where two have the same name."""
    titles = [model_title(result.provenance) for result in results]
    if len({*titles}) == len(titles):
        return titles
    return [f"{number}. {title}" for number, title in enumerate(titles, 1)]


def listening_panel(results: Sequence[Listening], *, ax: Axes | None = None) -> Axes:
    """Draw the shares of items with their intervals.

    Parameters
    ----------
    results : sequence of Listening
        One for each model, over the same items.
    ax : Axes, optional
        Default: a new figure of pyplot.

    Returns
    -------
    Axes
        Lines are 95 % intervals over groups of items, missing for few groups. A grey tick is the share that guessing
        solves.
    """
    if ax is None:
        from matplotlib import pyplot

        height = 1.0 + 0.28 * len(SHARES) + 0.12 * len(SHARES) * len(results)
        ax = pyplot.figure(
            figsize=(5.2, height), layout="constrained", facecolor="white"
        ).subplots()
    offsets = np.linspace(-_SPREAD / 2, _SPREAD / 2, len(results)) if len(results) > 1 else [0.0]
    colors = [LINE_COLORS[(5 + index) % len(LINE_COLORS)] for index in range(len(results))]
    share_names = {name for result in results for name in result.shares["share"]}
    names = [name for name in SHARES if name in share_names]
    for result, offset, color in zip(results, offsets, colors, strict=True):
        of_all = result.shares[result.shares["kind"] == ALL_ITEMS]
        for share in of_all.to_dict("records"):
            row = names.index(share["share"])
            value, low, high = (100 * share[key] for key in ("value", "low", "high"))
            ax.plot([low, high], [row + offset] * 2, color=color, linewidth=1.2)
            ax.plot(value, row + offset, "o", color=color, markersize=4)
            if share["share"] in (SOLVED, SOLVED_WITHOUT) and share["chance"] > 0:
                edges = [row - 0.32, row + 0.32]
                ax.plot([100 * share["chance"]] * 2, edges, color="0.6", linewidth=0.8)
    lows = [result.shares[["value", "low"]].min().min() for result in results]
    ax.set(
        xlim=(100 * min(0, *lows) - 3, 103), ylim=(len(names) - 0.5, -0.5), yticks=range(len(names))
    )
    ax.set_yticklabels(names)
    ax.set_xlabel("share of items (%)", size=LABEL_SIZE)
    style_curve_axis(ax)
    if len(results) > 1:
        entries = [
            legend_line(color=color, marker="o", markersize=4, label=name)
            for color, name in zip(colors, model_labels(results), strict=True)
        ]
        add_legend(ax, entries, columns=1, loc="upper center", bbox_to_anchor=(0.5, -0.22))
    return ax


_EXAMPLES = 3  # of each sort
_MOST_HEADS = 12  # in the table
_MAX_SECONDS = 30.0  # of a recording that the page holds
_FIGURE_WIDTH = 4.2  # inches; a telephone shows it whole
LIMITS = (
    "What each removal shows. Replacing the sound in the input shows whether the answer depends on it; the verdict "
    "rests on this alone. Silence and noise are unusual inputs; the sound of another item is a usual one. Zeroing the "
    "values of the sound in a layer or head of the decoder shows what this layer or head adds beyond the others. No "
    "effect there does not mean that the model does not listen: several layers may read the same sound, the encoder "
    "may have spread it over all positions, or it may already have moved to positions of the text. A patched state "
    "shows that the information is in these positions at this layer; it does not show that it is in no other.",
    "Needs the sound: the share of items that are right with their own sound, minus the share that are right with the "
    "sound of another item, over items whose other sound has another answer. In brackets: 95 % confidence intervals "
    "over groups of items. Grey line in the figure: guessing.",
)


@dataclass(frozen=True)
class ListeningCard:
    """An item that a reader can hear, with the answers to it."""

    name: str
    question: str
    sound: str  # a WAV file in base64
    answers: Mapping[str, object]  # a table as `sortable_cells` returns it
    kind: str = "listen"


def write_listening_page(results: Sequence[Listening], path: str | PathLike[str]) -> Path:
    """Write the page.

    Parameters
    ----------
    results : sequence of Listening
        One for each model, over the same items.
    path : path
        Of the HTML file.

    Raises
    ------
    InputError
        If there is no result, or the models were asked about different items.
    """
    if not results:
        raise InputError("a listening page needs at least one result")
    questions_by_item = [{item.name: item.question for item in result.items} for result in results]
    if any(questions != questions_by_item[0] for questions in questions_by_item):
        raise InputError("models side by side need the same items: ask all of them about one file")
    names = model_labels(results)
    figure = new_figure(_FIGURE_WIDTH, 1.8 + 0.6 * len(results))
    listening_panel(results, ax=figure.subplots())
    parts: list[Part] = [
        ("Results", [_compare_models(results), figure, results[0].grouping, *LIMITS[1:]]),
        ("By kind of item", list(_kind_tables(results))),
        ("Examples to hear", list(_examples(results))),
        ("Which seconds", list(_seconds_items(results))),
        ("Where in the decoder", [*_route_items(results), LIMITS[0]]),
        ("All items", list(_item_tables(results))),
        ("For a model card", [result.card_line for result in results]),
    ]
    first = FirstScreen(
        answer=[
            f"{label}: {one.conclusion}"
            for label, one in zip(model_labels(results), results, strict=True)
        ],
        warnings=[
            f"{label}: {line}"
            for label, one in zip(model_labels(results), results, strict=True)
            for line in one.notes
        ],
    )
    nonempty_parts = [part for part in parts if part[1]]
    html = render_page(
        f"Does it listen? {names[0] if len(names) == 1 else f'{len(names)} models'}",
        nonempty_parts,
        first=first,
    )
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, html)
    return path


def _compare_models(results: Sequence[Listening]) -> pd.DataFrame:
    """A row for each share, a column for each model."""
    columns = {}
    for label, result in zip(model_labels(results), results, strict=True):
        columns[label] = {
            "verdict": result.verdict,
            "items (groups)": f"{len(result.table)} ({result.table['group'].nunique()})",
            **describe_shares(result.shares),
            "weights": str(result.provenance.get("weights", "")),
        }
    return pd.DataFrame(columns).rename_axis("model").fillna("").reset_index()


def _kind_tables(results: Sequence[Listening]) -> Iterator[pd.DataFrame]:
    for name, result in zip(model_labels(results), results, strict=True):
        kinds = result.shares["kind"].unique()
        rows = [
            {"model": name, "kind": kind, **describe_shares(result.shares, kind)}
            for kind in kinds
            if kind != ALL_ITEMS
        ]
        if rows:
            yield pd.DataFrame(rows).fillna("")


def _examples(results: Sequence[Listening]) -> Iterator[Item]:
    """A few items of each sort, by the first model, with the answers of all."""
    items = {item.name: item for item in results[0].items}
    table = results[0].table
    by_caption = {
        "right with its own sound, wrong with that of another item": table["needs"] == 1,
        "follows the text against the sound": table["follows"] == "text",
        "right with any sound, with silence and with noise": (
            table["correct"] & (table["solved_without"] == 1) & (table["needs"] == 0)
        ),
    }
    for caption, is_member in by_caption.items():
        for name in table.loc[is_member, "item"].head(_EXAMPLES):
            if items[name].clip.duration <= _MAX_SECONDS:
                yield _make_card(items[name], f"{name}: {caption}", results)


def _make_card(item: ListeningItem, heading: str, results: Sequence[Listening]) -> ListeningCard:
    """A row for each condition, a column for each model."""
    columns = {}
    for label, result in zip(model_labels(results), results, strict=True):
        of_item = result.conditions[result.conditions["item"] == item.name]
        columns[label] = {
            row["condition"]: f"{row['choice']} (right answer: {100 * row['probability']:.0f} %)"
            for row in of_item.to_dict("records")
        }
    table = pd.DataFrame(columns).rename_axis("condition").fillna("").reset_index()
    sound = base64.b64encode(encode_wav(item.clip)).decode("ascii")
    answers = {**sortable_cells(table), "links": {}, "sortable": False}
    question = f"{item.full_prompt} Right answer: {item.answer}".strip()
    return ListeningCard(heading, question, sound, answers)


def _seconds_items(results: Sequence[Listening]) -> Iterator[Item]:
    for label, result in zip(model_labels(results), results, strict=True):
        if result.seconds is not None:
            yield (
                f"{label}: start, end: seconds; effect: how far the log-odds of the right answer fall without the stretch "
                "(nats); gradient: gradient x input of the stretch (nats); agreement: rank correlation of both in an item."
            )
            yield sortable_numbers(result.seconds)


def _route_items(results: Sequence[Listening]) -> Iterator[Item]:
    for label, result in zip(model_labels(results), results, strict=True):
        if result.routes is None:
            continue
        yield (
            "effect, low, high: nats, means over groups with 95 % intervals; share: of the effect of exchanging the sound "
            "(removal: input); p: of a head, corrected for all heads."
        )
        yield f"{label}: {result.routes.summarize(result.verdict)}"
        layers = result.routes.layers.astype({"layer": object, "layer_count": object})
        layers.loc[layers["removal"] == INPUT, ["stack", "layer", "layer_count"]] = ""
        for table in (layers, result.routes.heads.head(_MOST_HEADS), result.routes.removal):
            yield round_cells(table)


def _item_tables(results: Sequence[Listening]) -> Iterator[Item]:
    columns = ["item", "kind", "answer", "choice", "correct", "needs", "follows"]
    columns += ["sound_effect", "prompt_effect", "shapley_sound", "shapley_prompt"]
    for label, result in zip(model_labels(results), results, strict=True):
        yield (
            f"{label}: needs: 1 if only the own sound gives the right answer, -1 if only the other one does; sound_effect, "
            "prompt_effect: nats that the right answer loses without them; shapley: nats."
        )
        yield sortable_numbers(result.table[columns])
