"""A run's folder in the app: the table of its clips, and each of them with its sound and the maps
that the run kept.

In: a `StoredRun`. Out: plain values for the page. Nothing is measured here.
"""

from __future__ import annotations

from ...errors import InputError, SpeechmixError
from ...files.json_files import JsonObject
from ...inputs.clips.clip import Clip
from ...inputs.words.cue_and_target import cue_words
from ...reporting.pages.html_page import sortable_cells
from ...reporting.pages.study_clips import MAX_LISTED_CLIPS, visible_columns
from ...runs.results.open_run import StoredRun
from ...runs.results.stored_clips import (
    Maps,
    clip_row,
    maps_of_clip,
    provenance_of,
    read_stored_clip,
)
from .model_requests import clip_facts, stored_maps
from .session import Session


def run_clip_table(run: StoredRun) -> JsonObject:
    """Clips of a run as the page's table: columns, which of them are numbers, and (text, number to
    sort by) of each cell."""
    table = visible_columns(run.clips)
    note = (
        ""
        if len(table) <= MAX_LISTED_CLIPS
        else f"The first {MAX_LISTED_CLIPS:,} of {len(table):,} clips."
    )
    return {
        "name": run.out.name,
        "note": note,
        "done": run.done,
        **sortable_cells(table.head(MAX_LISTED_CLIPS)),
    }


def open_run_clip(session: Session, name: object) -> JsonObject:
    """A clip of the run: what it is, its sound if that is found, its stored maps.

    Raises
    ------
    InputError
        If the page has no run, or the run no such clip.
    """
    if session.run is None:
        raise InputError("this page was started without a run: speechmix serve RUN")
    if not isinstance(name, str):
        raise InputError(f"expected the name of a clip, found {str(name)[:80]!r}")
    row = clip_row(session.run, name)
    unreadable: list[str] = []
    maps = maps_of_clip(session.run, name, unreadable=unreadable)
    clip, silent = _audible(session.run, session, name, maps)
    provenance = provenance_of(maps)
    facts: JsonObject
    if clip is not None:
        facts = {**clip_facts(clip), "recording": session.keep(clip)}
    else:
        facts = {
            "name": name,
            "seconds": float(row["seconds"]),
            "recording": None,
            "synthetic": False,
            "doubts": [],
            **{
                fact: provenance.get(fact)
                for fact in ("text", "language", "words", "alignment", "target", "foil")
            },
            "cue": list(cue_words(provenance.get("cue"))),
        }
    notes = [silent] if silent else []
    notes += [f"{len(unreadable)} maps are left out: {unreadable[0]}"] if unreadable else []
    return {"clip": facts, **stored_maps(maps, facts["seconds"]), "notes": notes}


def _audible(run: StoredRun, session: Session, name: str, maps: Maps) -> tuple[Clip | None, str]:
    """The clip with its sound, if that is found, whole, and short enough; else why not."""
    try:
        clip = read_stored_clip(run, name, maps, audio=session.audio)
        if clip is None:
            return (
                None,
                "The audio was not found: name its folder with speechmix serve RUN --audio FOLDER.",
            )
        clip.validate()
    except SpeechmixError as error:
        return None, f"The audio cannot be used: {error}"
    if clip.duration > session.longest:
        return (
            None,
            f"The sound lasts {clip.duration:.0f} s, longer than the {session.longest:g} s of this "
            "page (--longest).",
        )
    return clip, ""
