"""Show a run in the app: the table of its clips, and each clip with its audio and stored maps.

In: a `StoredRun`. Out: plain values for the page. Nothing is computed here.
"""

from __future__ import annotations

from ...errors import InputError, SpeechmixError
from ...files.json_files import JsonObject
from ...inputs.clips.clip import Clip
from ...inputs.words.cue_and_target import cue_words
from ...reporting.pages.html_page import sortable_cells
from ...reporting.pages.study_clips import MAX_LISTED_CLIPS, visible_columns
from ...runs.results.open_run import StoredRun
from ...runs.results.stored_maps import (
    Maps,
    clip_row,
    read_clip_maps,
    read_provenance,
    read_stored_clip,
)
from .model_requests import clip_metadata, encode_stored_maps
from .session import Session


def run_clip_table(run: StoredRun) -> JsonObject:
    """Encode the clips of a run as a table: columns, which are numeric, and (text, sort value) cells."""
    table = visible_columns(run.clips)
    note = (
        ""
        if len(table) <= MAX_LISTED_CLIPS
        else f"The first {MAX_LISTED_CLIPS:,} of {len(table):,} clips are shown."
    )
    return {
        "name": run.out.name,
        "note": note,
        "done": run.done,
        **sortable_cells(table.head(MAX_LISTED_CLIPS)),
    }


def open_clip_from_run(session: Session, name: object) -> JsonObject:
    """Open a clip of the run, with its audio if that is found, and its stored maps.

    Raises
    ------
    InputError
        If the page has no run, or the run lacks the clip.
    """
    if session.run is None:
        raise InputError("this page was started without a run")
    if not isinstance(name, str):
        raise InputError(f"expected the name of a clip, found {str(name)[:80]!r}")
    row = clip_row(session.run, name)
    unreadable_maps: list[str] = []
    maps = read_clip_maps(session.run, name, unreadable=unreadable_maps)
    clip, audio_problem = _read_clip_audio(session.run, session, name, maps)
    provenance = read_provenance(maps)
    clip_fields: JsonObject
    if clip is not None:
        clip_fields = {**clip_metadata(clip), "recording": session.add_recording(clip)}
    else:
        clip_fields = {
            "name": name,
            "seconds": float(row["seconds"]),
            "recording": None,
            "synthetic": False,
            "doubts": [],
            **{
                field: provenance.get(field)
                for field in ("text", "language", "words", "alignment", "target", "foil")
            },
            "cue": list(cue_words(provenance.get("cue"))),
        }
    notes = [audio_problem] if audio_problem else []
    notes += (
        [f"{len(unreadable_maps)} maps cannot be read: {unreadable_maps[0]}"]
        if unreadable_maps
        else []
    )
    return {"clip": clip_fields, **encode_stored_maps(maps, clip_fields["seconds"]), "notes": notes}


def _read_clip_audio(
    run: StoredRun, session: Session, name: str, maps: Maps
) -> tuple[Clip | None, str]:
    """Return the clip if its audio is found, complete and short enough; else None and the reason."""
    try:
        clip = read_stored_clip(run, name, maps, audio=session.audio)
        if clip is None:
            return (
                None,
                "The audio file of this clip was not found. Click Open a file to choose it.",
            )
        clip.validate()
    except SpeechmixError as error:
        return None, f"The audio cannot be used: {error}"
    if clip.duration > session.max_seconds:
        return (
            None,
            f"The audio is {clip.duration:.0f} s long; this page plays and measures up to "
            f"{session.max_seconds:g} s. Only stored results are shown.",
        )
    return clip, ""
