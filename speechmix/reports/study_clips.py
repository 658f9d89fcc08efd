"""The clips of a study on its page: a table to sort, and cards to listen to of those that show most, least and the middle.

In: a finished `Run`, its study table and headline. Which clips are shown is decided by trained - random contribution by Value
Zeroing, at the model, stack and layer where the headline's difference is largest, for each side of the cue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import pandas as pd

from ..errors import SpeechmixError
from ..experiments.reading import clip_of, clip_row, maps_of_clip
from ..inputs.clips import Clip
from ..plots.distributions import best_layers
from ..plots.panels import model_name, spoken
from .clip_card import ClipCard, clip_card, model_label
from .page import SortableTable
from .study_tables import KEYS

if TYPE_CHECKING:
    from ..experiments.run import Run

PAGE_BYTES = 10_000_000  # what a mail attachment may have
_CARD_SHARE = 0.6  # of the page, for all cards together
_SHOWN = ("clip", "side", "number", "template", "text", "cue", "target", "seconds", "alignment", "doubts")


def main_rows(headline: pd.DataFrame) -> pd.DataFrame:
    """For each side the row whose clips are looked at: Value Zeroing if there, with the largest difference."""
    if headline.empty:
        return headline
    value = "difference" if "difference" in headline else "trained"
    rows = headline[headline.measure == "value_zeroing"] if (headline.measure == "value_zeroing").any() else headline
    rows = rows.assign(_value=rows[value].fillna(rows[["trained", "random"]].max(axis=1)))
    return rows.sort_values("_value", ascending=False).drop_duplicates("side").drop(columns="_value").sort_index()


def clip_values(table: pd.DataFrame, row: Mapping[str, Any]) -> pd.DataFrame:
    """Contribution of each clip in one row of the headline, in % at its best layer: trained, random, difference."""
    chosen = table
    for name in KEYS:
        chosen = chosen[chosen[name] == row[name]]
    layer = int(best_layers(chosen).iloc[0]) if chosen.contribution.notna().any() else int(chosen.layer.iloc[0])
    means = (
        chosen[chosen.layer == layer].groupby(["clip", "init"], sort=False).contribution.mean().mul(100).unstack("init")
    )
    both = means.reindex(columns=["trained", "random"])
    both["difference"] = both["trained"] - both["random"]
    both.attrs["layer"] = layer
    return both


def clip_table(run: Run, table: pd.DataFrame, headline: pd.DataFrame, cards: Sequence[ClipCard]) -> list:
    """What the page shows of all clips: how to read it, and one table to sort."""
    clips = run.clips
    columns = [name for name in _SHOWN if name in clips and (clips[name].astype(str) != "").any()]
    shown, notes = clips[columns].copy(), []
    values = [clip_values(table, row) for row in main_rows(headline).to_dict("records")]
    if values:
        found = pd.concat(values)
        known = [name for name in ("trained", "random", "difference") if found[name].notna().any()]
        shown = shown.merge(found[known].reset_index(), on="clip", how="left")
        for row, one in zip(main_rows(headline).to_dict("records"), values, strict=True):
            side = "" if row["side"] == "all" else f" ({row['side']} cue)"
            where = f"{model_name(row['model'])}, {row['stack']}, layer {one.attrs['layer']}"
            notes.append(f"Contribution{side} in %, by {spoken(row['measure'])}, {where}.")
    said = f"{' '.join(notes)} Click on a column's name to sort; linked clips can be listened to below."
    return [said.strip(), SortableTable(shown, {card.name: card.anchor for card in cards})]


def chosen_clips(run: Run, table: pd.DataFrame, headline: pd.DataFrame, asked: Sequence[str]) -> dict[str, str]:
    """Clips to show and why: most, median and least of each main row, then those asked for.

    Without contributions the first, the middle and the last clip of the table.
    """
    names: dict[str, str] = {}
    for row in main_rows(headline).to_dict("records"):
        values = clip_values(table[table.control != "yes"], row)
        order = values["difference"].fillna(values["trained"]).fillna(values["random"]).dropna().sort_values().index
        side = "" if row["side"] == "all" else f", {row['side']} cue"
        for place, why in ((-1, "most"), (len(order) // 2, "median"), (0, "least")):
            if len(order):
                names.setdefault(str(order[place]), f"{why}{side}")
    if not names:
        clips = run.clips["clip"].tolist()
        middle = {"first": clips[:1], "middle": clips[len(clips) // 2 :][:1], "last": clips[-1:]}
        for why, found in middle.items():
            names.update({name: why for name in found if name not in names})
    for name in asked:
        clip_row(run, name)  # raises if there is no such clip
        names.setdefault(str(name), "asked for")
    return names


def clip_cards(
    run: Run,
    table: pd.DataFrame,
    headline: pd.DataFrame,
    *,
    asked: Sequence[str] = (),
    audio: str | PathLike | None = None,
    clips: Sequence[Clip] = (),
    unreadable: list[str] | None = None,
) -> list[ClipCard]:
    """Cards of the chosen clips.

    Parameters
    ----------
    run, table, headline
    asked : sequence of str
        Clips to show besides most, median and least.
    audio : path, optional
        Folder with the audio files, if they are no longer where the run found them.
    clips : sequence of Clip
        The run's clips, if they are at hand (clips in memory have no audio file).
    unreadable : list, optional
        Gets the reason for each map that is left out because it cannot be read.
    """
    names, at_hand = chosen_clips(run, table, headline, asked), {clip.name: clip for clip in clips}
    rows = {row["side"]: row for row in main_rows(headline).to_dict("records")}
    cards = []
    for name, why in names.items():
        maps, known = maps_of_clip(run, name, unreadable=unreadable), clip_row(run, name)
        try:
            clip = at_hand.get(name) or clip_of(run, name, maps, audio=audio)
            if clip is not None:
                clip.validate()
        except SpeechmixError:
            clip = None  # unreadable by now: shown without its sound
        row = rows.get(str(known.get("side") or "all")) or next(iter(rows.values()), None)
        cards.append(
            clip_card(
                name, clip, maps, heading=f"{name} ({why})", facts=_facts(table, row, known), start=_start(table, row),
                seconds=float(known["seconds"]), most_bytes=int(_CARD_SHARE * PAGE_BYTES / len(names)),
            )
        )  # fmt: skip
    return cards


def _start(table: pd.DataFrame, row: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a card shows first: where the headline's difference is largest."""
    if row is None:
        return {"layer": 0, "measure": spoken("value_zeroing")}
    layer = clip_values(table, row).attrs["layer"]
    label = model_label((row["model"], "trained", None))
    return {"model": label, "stack": row["stack"], "measure": spoken(row["measure"]), "layer": layer}


def _facts(table: pd.DataFrame, row: Mapping[str, Any] | None, known: Mapping[str, Any]) -> str:
    said = [f"{float(known['seconds']):.2f} s"]
    if known.get("cue") and known.get("target"):
        said.append(f"cue “{known['cue']}”, target “{known['target']}”")
    if row is not None:
        values = clip_values(table, row)
        if known["clip"] in values.index:
            mine = values.loc[known["clip"]]
            gives = [f"{mine[name]:.1f} % {name}" for name in ("trained", "random") if mine[name] == mine[name]]
            said.append(
                f"the cue gives {', '.join(gives) or 'no number'} ({row['stack']}, layer {values.attrs['layer']})"
            )
    if known.get("doubts"):
        said.append(f"word times are doubtful: {known['doubts']}")
    return "; ".join(said)
