"""Draw a figure of each clip of a run for each trained model, with the curves of its untrained
twins as thin lines.

In: the parts that a shard ends with, its clips. Out: ``figures/<model>/<clip>.png``, drawn once all
models have their results, so that a twin is there; a figure that is up to date is not drawn again,
a stale one is replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from ..errors import SpeechmixError, StorageError
from ..files.cache_keys import digest
from ..files.timing import phase
from ..inputs.clips.clip import Clip
from ..mixing.maps.mixing_map import MixingMap
from ..runs.results.clip_result_files import Owner, Part
from ..runs.results.run_folder import RunFolder
from ..runs.results.stored_maps import find_map_parts, read_part_maps

# Goes up when figures of clips look different: those of before are drawn again.
_DRAWING_VERSION = 3
_ClipMaps = Mapping[tuple[str, str], MixingMap]


def draw_clip_figures(
    folder: RunFolder,
    parts: Sequence[Part],
    clips: Sequence[Clip],
    *,
    clips_to_draw: Collection[str],
    measures: Sequence[str],
    report_failure: Callable[[str, SpeechmixError, str], object],
) -> None:
    """Draw the figures of the requested clips that are not drawn yet.

    The parts are those of all models; a random twin has a figure only if its trained model is not
    there. `measures` are in the order in which they are drawn. `report_failure` gets clip, error
    and model where a figure cannot be drawn.
    """
    parts = find_map_parts(parts)
    trained_names = {part.owner.name for part in parts if part.owner.init == "trained"}
    owners = {
        part.owner: None
        for part in parts
        if part.owner.init == "trained" or part.owner.name not in trained_names
    }
    for clip in clips:
        figure_paths = {owner: folder.figure_path(owner.label or "", clip) for owner in owners}
        if clip.name in clips_to_draw or any(path.is_file() for path in figure_paths.values()):
            for owner, path in figure_paths.items():
                try:
                    with phase("figures"):
                        _update_figure(
                            folder,
                            parts,
                            clip,
                            owner,
                            path,
                            measures,
                            is_requested=clip.name in clips_to_draw,
                        )
                except StorageError:
                    raise
                except SpeechmixError as error:
                    report_failure(
                        clip.name,
                        SpeechmixError(f"scored, but its figure is not drawn: {error}"),
                        owner.label or "",
                    )


def _update_figure(
    folder: RunFolder,
    parts: Sequence[Part],
    clip: Clip,
    owner: Owner,
    path: Path,
    measures: Sequence[str],
    *,
    is_requested: bool,
) -> None:
    """Draw one figure if it is requested and missing or stale; delete it if it is stale."""
    if not is_requested and not path.is_file():
        return
    maps = _read_clip_maps(folder, parts, clip, owner, measures)
    twins = [
        _read_clip_maps(folder, parts, clip, twin, measures)
        for twin in dict.fromkeys(part.owner for part in parts)
        if owner.init == "trained" and (twin.name, twin.init) == (owner.name, "random")
    ]
    map_keys = [
        [mixing_map.provenance.get("question") for mixing_map in maps_of_model.values()]
        for maps_of_model in (maps, *twins)
    ]
    cache_key = digest(
        [
            _DRAWING_VERSION,
            map_keys,
            clip.fingerprint_fields,
            clip.name,
            owner.label,
            clip.doubts,
            clip.alignment,
        ]
    )
    if path.is_file() and _stored_key(path) == cache_key:
        return
    path.unlink(missing_ok=True)
    if not is_requested or not maps:
        return
    from .plots.clip_overview import clip_figure
    from .plots.figure_style import fed_text, write_figure

    decoder_input = next(
        (
            description
            for mixing_map in maps.values()
            if (description := fed_text(mixing_map.provenance))
        ),
        "",
    )
    title = f"{clip.name}: {owner.label}" + (f"\n{decoder_input}" if decoder_input else "")
    figure = clip_figure(clip, maps, twins=twins, title=title)
    write_figure(figure, path, dpi=150, metadata={"question": cache_key})


def _read_clip_maps(
    folder: RunFolder, parts: Sequence[Part], clip: Clip, owner: Owner, measures: Sequence[str]
) -> _ClipMaps:
    """Read the maps of a clip by one model, in the order of the measures; skip maps of an older
    version of the clip."""
    maps = {
        measure_and_stack: mixing_map
        for part in parts
        if part.owner == owner
        for measure_and_stack, mixing_map in read_part_maps(folder, part, clip.name).items()
        if mixing_map.provenance.get("fingerprint") == clip.fingerprint
        and measure_and_stack[0] in measures
    }
    return dict(sorted(maps.items(), key=lambda item: measures.index(item[0][0])))


def _stored_key(path: Path) -> str | None:
    """Read the cache key that a figure file holds; None if the file cannot be read."""
    import PIL.Image

    try:
        with PIL.Image.open(path) as picture:
            picture.load()
            return picture.info.get("question")
    except (OSError, SyntaxError, ValueError):  # what PIL raises for a damaged file
        return None
