"""The clips of a study on its page: a table to sort, and cards to listen to of those that show
most, least and the middle.

In: a `Study`. Which clips are shown is decided by trained - random contribution by Value Zeroing,
at the model, stack and layer where the headline's difference is largest, for each side of the cue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd

from ...errors import SpeechmixError
from ...evaluation.cue_contribution import ROW_NAMES
from ...inputs.clips.clip import Clip
from ...mixing.maps.measure_facts import measure_label
from ...runs.results.open_run import StoredRun
from ...runs.results.stored_clips import Maps, clip_row, maps_of_clip, read_stored_clip
from ..plots.panels import model_name
from .clip_card import ClipCard, clip_card
from .drawn_maps import model_label
from .html_page import SortableTable
from .study_results import Study
from .transcription import written_texts

PAGE_BYTES = 10_000_000  # what a mail attachment may have
_CARD_SHARE = 0.6  # of the page, for all cards together
MOST_CLIPS = 1000  # in the page's table; of more the first, and those that can be listened to
_MORE_CLIPS = (
    " The table holds the first {shown} of {count} clips, and those that can be listened to. All "
    "are in {clips}, their "
    "contributions in cue_contribution.parquet, in the run's folder."
)
_SHOWN = (
    "clip",
    "side",
    "number",
    "template",
    "text",
    "cue",
    "target",
    "seconds",
    "alignment",
    "doubts",
)


def clip_table_items(study: Study, cards: Sequence[ClipCard]) -> list[str | SortableTable]:
    """What the page shows of all clips: how to read it, and one table to sort."""
    notes = []
    table = visible_columns(study.run.clips)
    if study.main_rows:
        values = pd.concat(list(study.clip_values.values()))
        columns = [
            name for name in ("trained", "random", "difference") if values[name].notna().any()
        ]
        table = table.merge(values[columns].reset_index(), on="clip", how="left")
    for side, row in study.main_rows.items():
        cue = "" if side == "all" else f" ({side} cue)"
        notes.append(
            f"Contribution{cue} in %, by {measure_label(row['measure'])}, {model_name(row['model'])}, "
            f"{_place(study, side)}."
        )
    links = {card.name: f"#{card.anchor}" for card in cards}
    how = (
        f"{' '.join(notes)} Click on a column's name to sort; linked clips can be listened to "
        "above."
    )
    if len(table) > MOST_CLIPS:
        first = (np.arange(len(table)) < MOST_CLIPS) | table["clip"].isin(list(links))
        how += _MORE_CLIPS.format(
            shown=f"{MOST_CLIPS:,}", count=f"{len(table):,}", clips=study.run.folder.clips.name
        )
        table = table[first]
    return [how.strip(), SortableTable(table, links)]


def visible_columns(clips: pd.DataFrame) -> pd.DataFrame:
    """Columns of a run's clip table that a reader wants, without those that are empty."""
    return clips[
        [name for name in _SHOWN if name in clips and (clips[name].astype(str) != "").any()]
    ].copy()


def reasons_to_show(study: Study, asked: Sequence[str]) -> dict[str, str]:
    """Clips to show and why: most, median and least of each main row, then those asked for.

    Without contributions the first, the middle and the last clip of the table.

    Raises
    ------
    InputError
        If a clip that was asked for is not in the run.
    """
    reasons: dict[str, str] = {}
    for side, ranked in study.ranked_clips.items():
        cue = "" if side == "all" else f", {side} cue"
        for place, why in ((-1, "most"), (len(ranked) // 2, "median"), (0, "least")):
            if ranked:
                reasons.setdefault(ranked[place], f"{why}{cue}")
    if not reasons:
        names = study.run.clips["clip"].tolist()
        for place, why in ((0, "first"), (len(names) // 2, "middle"), (len(names) - 1, "last")):
            reasons.update({name: why for name in names[place:][:1] if name not in reasons})
    for name in asked:
        clip_row(study.run, name)  # raises if there is no such clip
        reasons.setdefault(str(name), "asked for")
    return reasons


def clip_cards(
    study: Study,
    *,
    asked: Sequence[str] = (),
    audio: str | PathLike[str] | None = None,
    clips: Sequence[Clip] = (),
    unreadable: list[str] | None = None,
) -> list[ClipCard]:
    """Cards of the clips that are shown.

    Parameters
    ----------
    study : Study
    asked : sequence of str
        Clips to show besides most, median and least.
    audio : path, optional
        Folder with the audio files, if they are no longer where the run found them.
    clips : sequence of Clip
        The run's clips, if they are at hand (clips in memory have no audio file).
    unreadable : list, optional
        Gets the reason for each map that is left out because it cannot be read.
    """
    reasons, at_hand = reasons_to_show(study, asked), {clip.name: clip for clip in clips}
    cards = []
    for name, why in reasons.items():
        maps, row = maps_of_clip(study.run, name, unreadable=unreadable), clip_row(study.run, name)
        clip = audible_clip(study.run, name, maps, at_hand.get(name), audio)
        side = _side(study, row)
        cards.append(
            clip_card(
                name,
                clip,
                maps,
                heading=f"{name} ({why})",
                facts=_facts(study, side, row),
                start=_start(study, side),
                seconds=float(row["seconds"]),
                most_bytes=int(_CARD_SHARE * PAGE_BYTES / len(reasons)),
                written=written_texts(study.run, name),
            )
        )
    return cards


def audible_clip(
    run: StoredRun, name: str, maps: Maps, at_hand: Clip | None, audio: str | PathLike[str] | None
) -> Clip | None:
    """A clip of a run with its sound, if that is to be found and can be read."""
    try:
        clip = at_hand or read_stored_clip(run, name, maps, audio=audio)
        if clip is not None:
            clip.validate()
    except SpeechmixError:
        return None  # unreadable by now: shown without its sound
    return clip


def _side(study: Study, row: Mapping[str, Any]) -> str | None:
    """The main row that a clip belongs to, by its side of the cue; else the first, and None without
    one."""
    side = str(row.get("side") or "all")
    return side if side in study.main_rows else next(iter(study.main_rows), None)


def _start(study: Study, side: str | None) -> dict[str, object]:
    """What a card shows first: where the headline's difference is largest."""
    if side is None:
        return {"layer": None, "measure": measure_label("value_zeroing")}
    row, layer = study.main_rows[side], study.clip_values[side].attrs["layer"]
    label = model_label((row["model"], "trained", None))
    return {
        "model": label,
        "stack": row["stack"],
        "measure": measure_label(row["measure"]),
        "layer": layer,
    }


def _place(study: Study, side: str) -> str:
    """Stack, rows and layer that a side's clips are compared at."""
    row = study.main_rows[side]
    here = (study.table["stack"] == row["stack"]) & (study.table["model"] == row["model"])
    present = study.table["rows"][here].unique() if "rows" in study.table else ()
    kinds = [ROW_NAMES[kind] for kind in present if kind in ROW_NAMES]
    return ", ".join([str(row["stack"]), *kinds, f"layer {study.clip_values[side].attrs['layer']}"])


def _facts(study: Study, side: str | None, row: Mapping[str, Any]) -> str:
    facts = [f"{float(row['seconds']):.2f} s"]
    if row.get("cue") and row.get("target"):
        facts.append(f"cue “{row['cue']}”, target “{row['target']}”")
    if side is not None and row["clip"] in study.clip_values[side].index:
        values = study.clip_values[side]
        shares = values.loc[row["clip"], ["trained", "random"]].dropna().items()
        names = {"trained": "trained", "random": "untrained"}
        listed = (
            ", ".join(f"{share:.1f} % {names[str(init)]}" for init, share in shares) or "no number"
        )
        facts.append(f"contribution of the cue: {listed} ({_place(study, side)})")
    if row.get("doubts"):
        facts.append(f"word times are doubtful: {row['doubts']}")
    return "; ".join(facts)
