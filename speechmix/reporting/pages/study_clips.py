"""Show the clips of a study on its page: a table to sort, and cards of the clips with the largest,
median and smallest value.

In: a `Study`. Which clips are shown is decided by trained - random contribution by Value Zeroing,
at the model, stack and layer where the headline's difference is largest, for each side of the cue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd

from ...alignment.alignment_result import without_calibration_note
from ...errors import SpeechmixError
from ...inputs.clips.clip import Clip
from ...inputs.words.cue_and_target import cue_words, number_repeated
from ...mixing.maps.measure_registry import measure_label
from ...runs.results.open_run import StoredRun
from ...runs.results.stored_maps import (
    Maps,
    clip_row,
    read_clip_maps,
    read_provenance,
    read_stored_clip,
)
from ..plots.figure_style import model_name
from .clip_card import ClipCard, clip_card, model_label
from .html_page import SortableTable
from .study_results import Study
from .table_format import stack_phrase
from .transcription import model_transcripts

MAX_PAGE_BYTES = 10_000_000  # what a mail attachment may have
_CARDS_SHARE = 0.6  # of the page, for all cards together
MAX_LISTED_CLIPS = 1000  # in the page's table; of more the first, and those that can be listened to
_MORE_CLIPS_NOTE = (
    " The table lists the first {shown} of {count} clips, and the linked ones. All clips are in "
    "{clips} in the run's folder; their contributions are in cue_contribution.parquet."
)
_SILENT_RANGE = 2e-4  # from the lowest to the highest sample
# Where the shares are, by kind of target row. Without a foil, a clip has no deciding position.
_POSITIONS = {"deciding": ", at the deciding position", "target": ", at the target"}
_SHOWN_COLUMNS = (
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
    """Return a table of all clips that can be sorted, and how to read it; nothing for one clip."""
    if len(study.run.clips) < 2:
        return []
    notes = []
    table = visible_columns(study.run.clips)
    if study.main_rows:
        values = pd.concat(list(study.clip_values.values()))
        columns = [
            name for name in ("trained", "random", "difference") if values[name].notna().any()
        ]
        table = table.merge(values[columns].reset_index(), on="clip", how="left")
        table = table.rename(columns={"random": "untrained"})
    table = table.rename(columns={"alignment": "word times"})
    for side, row in study.main_rows.items():
        cue = "" if side == "all" else f" ({side} cue)"
        notes.append(
            f"Contribution{cue} in %: {model_name(row['model'])}, {measure_label(row['measure'])}, "
            f"{_comparison_place(study, side)}."
        )
    if "word times" in table:
        notes.append(
            "Word times: how the start and end of each word were found (“given”: they came with the clip)."
        )
    links = {card.name: f"#{card.anchor}" for card in cards}
    instructions = (
        f"{' '.join(notes)} Click on the name of a column to sort. The linked clips have a player, "
        "further up on this page."
    )
    if len(table) > MAX_LISTED_CLIPS:
        is_listed = (np.arange(len(table)) < MAX_LISTED_CLIPS) | table["clip"].isin(list(links))
        instructions += _MORE_CLIPS_NOTE.format(
            shown=f"{MAX_LISTED_CLIPS:,}",
            count=f"{len(table):,}",
            clips=study.run.folder.clips_path.name,
        )
        table = table[is_listed]
    return [instructions.strip(), SortableTable(table, links)]


def visible_columns(clips: pd.DataFrame) -> pd.DataFrame:
    """Select the columns of a clip table that are not empty."""
    return clips[
        [name for name in _SHOWN_COLUMNS if name in clips and (clips[name].astype(str) != "").any()]
    ].copy()


def choose_shown_clips(study: Study, chosen_clips: Sequence[str]) -> dict[str, str]:
    """Choose the clips to show, with the reason.

    They are those with the largest, median and smallest value of each main row, then requested
    clips; without contributions the first, the middle and the last clip of the table. InputError if
    a requested clip is not in the run.
    """
    reasons: dict[str, str] = {}
    for side, ranked_clips in study.ranked_clips.items():
        cue = "" if side == "all" else f", {side} cue"
        is_compared = study.clip_values[side]["difference"].notna().any()
        value = "difference from the twins" if is_compared else "contribution"
        for rank, reason in (
            (-1, "highest"),
            (len(ranked_clips) // 2, "median"),
            (0, "lowest"),
        ):
            if ranked_clips:
                reasons.setdefault(ranked_clips[rank], f"{reason} {value}{cue}")
    if not reasons:
        names = study.run.clips["clip"].tolist()
        for rank, reason in ((0, "first"), (len(names) // 2, "middle"), (len(names) - 1, "last")):
            reasons.update({name: reason for name in names[rank:][:1] if name not in reasons})
    for name in chosen_clips:
        clip_row(study.run, name)  # raises if there is no such clip
        reasons.setdefault(str(name), "requested")
    return reasons


def clip_cards(
    study: Study,
    *,
    chosen_clips: Sequence[str] = (),
    audio: str | PathLike[str] | None = None,
    clips: Sequence[Clip] = (),
    unreadable_maps: list[str] | None = None,
) -> list[ClipCard]:
    """Build the cards of the clips that are shown: largest, median, smallest and `chosen_clips`.

    `clips` are the run's, if they are at hand (clips in memory have no audio file); `audio` is the
    folder with the audio files, if they are no longer where the run found them. `unreadable_maps`
    gets the reason for each map that cannot be read.
    """
    reasons, clips_by_name = (
        choose_shown_clips(study, chosen_clips),
        {clip.name: clip for clip in clips},
    )
    cards = []
    for name, reason in reasons.items():
        maps, row = (
            read_clip_maps(study.run, name, unreadable=unreadable_maps),
            clip_row(study.run, name),
        )
        clip = find_audible_clip(study.run, name, maps, clips_by_name.get(name), audio)
        side = _clip_side(study, row)
        remarks = [*[reason] * (len(reasons) > 1), *["silent sound"] * _is_silent(clip)]
        cards.append(
            clip_card(
                name,
                clip,
                maps,
                heading=f"{name} ({', '.join(remarks)})" if remarks else name,
                summary=_clip_summary(study, side, row, read_provenance(maps)),
                start=_initial_view(study, side),
                seconds=float(row["seconds"]),
                max_bytes=int(_CARDS_SHARE * MAX_PAGE_BYTES / len(reasons)),
                transcripts=model_transcripts(study.run, name),
            )
        )
    return cards


def find_audible_clip(
    run: StoredRun,
    name: str,
    maps: Maps,
    clip_in_memory: Clip | None,
    audio: str | PathLike[str] | None,
) -> Clip | None:
    """Read a clip of a run with its audio; None if the audio is missing or unreadable."""
    try:
        clip = clip_in_memory or read_stored_clip(run, name, maps, audio=audio)
        if clip is not None:
            clip.validate()
    except SpeechmixError:
        return None  # unreadable by now: shown without its sound
    return clip


def _is_silent(clip: Clip | None) -> bool:
    """Whether a sound is 80 dB below full scale throughout: what a model makes of it says nothing of speech."""
    return clip is not None and bool(np.ptp(clip.audio(16_000)) < _SILENT_RANGE)


def _clip_side(study: Study, row: Mapping[str, Any]) -> str | None:
    """Return the side of the cue whose main row a clip belongs to; None without main rows."""
    side = str(row.get("side") or "all")
    return side if side in study.main_rows else next(iter(study.main_rows), None)


def _initial_view(study: Study, side: str | None) -> dict[str, object]:
    """Return what a card shows first: where the headline's difference is largest."""
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


def _comparison_place(study: Study, side: str) -> str:
    """Name the stack and rows over which the clips of a side are compared."""
    row = study.main_rows[side]
    is_compared = (study.table["stack"] == row["stack"]) & (study.table["model"] == row["model"])
    row_kinds = study.table["rows"][is_compared].unique() if "rows" in study.table else ()
    position = next((_POSITIONS[row_kind] for row_kind in _POSITIONS if row_kind in row_kinds), "")
    return f"mean over the layers of {stack_phrase(row['stack'])}{position}"


def _name_role(row: Mapping[str, Any], role: str, provenance: Mapping[str, Any]) -> str:
    """Name a cue or target, numbered where the clip has its words several times."""
    labels = number_repeated([word[0] for word in provenance.get("words") or ()])
    indices = cue_words(provenance.get(role))
    return " ".join(labels[index] for index in indices) if indices and labels else str(row[role])


def _clip_summary(
    study: Study, side: str | None, row: Mapping[str, Any], provenance: Mapping[str, Any]
) -> str:
    """Summarise a clip in one line: duration, cue, target, contributions, doubts."""
    summary = [f"{float(row['seconds']):.2f} s"]
    if row.get("cue") and row.get("target"):
        cue, target = (_name_role(row, role, provenance) for role in ("cue", "target"))
        summary.append(f"cue “{cue}”, target “{target}”")
    if side is not None and row["clip"] in study.clip_values[side].index:
        values = study.clip_values[side]
        shares = values.loc[row["clip"], ["trained", "random"]].dropna().items()
        init_names = {"trained": "the trained model", "random": "the untrained twins"}
        share_texts = (
            ", ".join(f"{share:.1f} % in {init_names[str(init)]}" for init, share in shares)
            or "no number"
        )
        model, measure = study.main_rows[side]["model"], study.main_rows[side]["measure"]
        summary.append(
            f"contribution of the cue in {model_name(model)}: {share_texts} "
            f"({measure_label(measure)}, {_comparison_place(study, side)})"
        )
    if doubts := without_calibration_note(str(row.get("doubts") or "")):
        summary.append(f"the word times may be wrong: {doubts}")
    return "; ".join(summary)
