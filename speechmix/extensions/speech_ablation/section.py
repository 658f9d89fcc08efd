"""Page section with the published ablation of speech.

The section with the published ablation, if it was run.

In: ``speech_ablation_means.csv`` in a run's folder, as `speechmix ablate --published --out RUN`
writes it. Out: a part of the page, or none.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ...errors import InputError
from ...files.text_files import read_csv
from ...reporting.pages.html_page import Item, Picture, SortableTable, page_svg
from ...reporting.pages.page_sections import PageContent, PageSection
from ...reporting.pages.table_format import format_interval
from .ablated_speech import (
    ALL_PARTS,
    MEANS,
    PART_COLUMNS,
    REMOVAL_KEYS,
    speech_ablation_figure,
)

_INTRODUCTION = (
    "The published ablation of cue words removes the word itself. Its audio is muted, its tokens in "
    "the decoder's input are blanked, or both. Tokens are blanked in two ways. “unk” puts the "
    "tokenizer's unknown token there, as published; in Whisper that token is the end of text, so it "
    "is not neutral. “remove” leaves the tokens out. The drop is the loss in probability of the "
    "target's sub-tokens, in percentage points. It is computed for the tokens that the intact model "
    "finds likeliest, and without a decoder at the target's frames. The margin is log p(target) − "
    "log p(foil), in nats. The published control removes the target: its audio and the token before "
    "it. In “les livres” that is the cue's token. So there is a second control: another word of "
    "about the cue's length. The interval of a difference is that to one more untrained model. The "
    "intervals of the rows without the cue, over all clips, hold together in 95 % of studies, and "
    "only from them something is concluded: that the target is harder to predict, not that its "
    "grammatical number is. The margin shows the latter. An untrained model has almost no "
    "probability to lose, so compare the cue with another word."
)
_CAPTION = (
    "Mean drop over clips with its 95 % confidence interval over groups. Columns: what was removed, "
    "and how. Bars: where one more untrained model is expected."
)
_TEXT_COLUMNS = ("side", "model", *PART_COLUMNS, *REMOVAL_KEYS, "unit", "claim")


def _speech_ablation_items(content: PageContent) -> list[Item]:
    """Return means over all clips, the figure, and the table by template and number."""
    means = _read_ablation_means(content.folder / MEANS)
    figures = [
        [
            page_svg(speech_ablation_figure(means, reading=reading, narrow=narrow))
            for narrow in (False, True)
        ]
        for reading in ("arg-max", "margin")
    ]
    main_means = means[
        means["reading"].isin(["arg-max", "margin"]) & means["aggregation"].isin(["mean", ""])
    ]
    parts = [name for name in PART_COLUMNS if name in means]
    is_all_clips = (main_means[parts] == ALL_PARTS).all(axis=1)
    items: list[Item] = [_INTRODUCTION, _format_means(main_means[is_all_clips].drop(columns=parts))]
    items += [Picture(figure, _CAPTION, narrow) for figure, narrow in figures]
    items += [SortableTable(_format_means(main_means[~is_all_clips]))] if parts else []
    return items


def _read_ablation_means(path: Path) -> pd.DataFrame:
    table = read_csv(path)
    number_columns = [str(name) for name in table if name not in _TEXT_COLUMNS]
    required_columns = (
        "side",
        "model",
        *REMOVAL_KEYS,
        "unit",
        "trained",
        "trained_low",
        "trained_high",
        "random",
        "twin_low",
        "twin_high",
    )
    if missing_columns := [name for name in required_columns if name not in table]:
        raise InputError(
            f"{path.name}: expected means of an ablation of speech, found no column "
            f"{', '.join(missing_columns)}"
        )
    table[number_columns] = table[number_columns].apply(pd.to_numeric, errors="coerce")
    return table


def _format_means(means: pd.DataFrame) -> pd.DataFrame:
    """Format the table of means for readers."""
    formatted = means.drop(columns=["aggregation"]).rename(
        columns={"silenced": "without", "fill": "filled with"}
    )
    intervals = [
        format_interval(*limits)
        for limits in zip(means["trained_low"], means["trained_high"], strict=True)
    ]
    formatted.insert(list(formatted).index("trained") + 1, "95 % interval", intervals)
    columns = [
        "side",
        "model",
        *PART_COLUMNS,
        "without",
        "condition",
        "filled with",
        "reading",
        "trained",
        "95 % interval",
        "random",
    ]
    columns += [
        "difference",
        "interval of it",
        "claim",
        "another word",
        "cue - another word",
        "clips",
    ]
    if "over_other" in means:
        formatted["another word"] = means["other"].map(_format_number)
        limits = [
            format_interval(*limits)
            for limits in zip(means["over_other_low"], means["over_other_high"], strict=True)
        ]
        other_differences = zip(means["over_other"].map(_format_number), limits, strict=True)
        formatted["cue - another word"] = [
            f"{value} ({interval})" if interval else value for value, interval in other_differences
        ]
    if "low" in formatted:
        formatted["interval of it"] = list(map(format_interval, means["low"], means["high"]))
    number_columns = [name for name in ("trained", "random", "difference") if name in formatted]
    formatted[number_columns] = formatted[number_columns].map(_format_number)
    formatted = formatted[[name for name in columns if name in formatted]]
    return formatted.drop(columns="side") if set(formatted["side"]) == {ALL_PARTS} else formatted


def _format_number(value: float) -> str:
    return "" if value != value else f"{round(value, 1) + 0.0:.1f}"


SPEECH_ABLATION = PageSection(
    "Without the cue's sound, its tokens, or both",
    _speech_ablation_items,
    lambda content: (content.folder / MEANS).is_file(),
)
