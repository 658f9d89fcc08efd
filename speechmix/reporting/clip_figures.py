"""Figures of the clips of a run: each clip by each trained model, with its untrained twin as thin
lines beside the curves.

In: the parts that a shard ends with, its clips. Out: ``figures/<model>/<clip>.png``, drawn once all
its models have been asked, so that a twin is there; one that shows what is asked for is not drawn
again, one that shows something else goes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from ..errors import SpeechmixError, StorageError
from ..files.cache_keys import digest
from ..files.timing import phase
from ..files.whole_files import whole_file
from ..inputs.clips.clip import Clip
from ..mixing.maps.mixing_map import MixingMap
from ..runs.results.part_files import Owner, Part
from ..runs.results.run_folder import RunFolder
from ..runs.results.stored_clips import parts_of_maps
from ..runs.results.stored_maps import maps_in_part

_DRAWING = 3  # goes up when figures of clips look different: those of before are drawn again
_Maps = Mapping[tuple[str, str], MixingMap]


def draw_clips(
    folder: RunFolder,
    parts: Sequence[Part],
    clips: Sequence[Clip],
    *,
    wanted: Collection[str],
    measures: Sequence[str],
    failed: Callable[[str, SpeechmixError, str], object],
) -> None:
    """Draw the figures of some clips, unless they are there.

    Parameters
    ----------
    folder : RunFolder
    parts : sequence of Part
        Of all models. A random twin has a figure of its own only if its trained model is not there.
    clips : sequence of Clip
        Those of the parts.
    wanted : collection of str
        Names of the clips to draw.
    measures : sequence of str
        In the order in which they are drawn.
    failed : callable
        Is called with clip, reason and model where a figure cannot be drawn.
    """
    parts = parts_of_maps(parts)
    trained = {part.owner.name for part in parts if part.owner.init == "trained"}
    owners = {
        part.owner: None
        for part in parts
        if part.owner.init == "trained" or part.owner.name not in trained
    }
    for clip in clips:
        of_owners = {owner: folder.figure(owner.label or "", clip) for owner in owners}
        if clip.name in wanted or any(path.is_file() for path in of_owners.values()):
            for owner, path in of_owners.items():
                try:
                    with phase("figures"):
                        _draw(
                            folder, parts, clip, owner, path, measures, wanted=clip.name in wanted
                        )
                except StorageError:
                    raise
                except SpeechmixError as error:
                    failed(
                        clip.name,
                        SpeechmixError(f"scored, but its figure is not drawn: {error}"),
                        owner.label or "",
                    )


def _draw(
    folder: RunFolder,
    parts: Sequence[Part],
    clip: Clip,
    owner: Owner,
    path: Path,
    measures: Sequence[str],
    *,
    wanted: bool,
) -> None:
    """Draw one figure, if it is wanted and not there; one that shows something else is removed in
    any case."""
    if not wanted and not path.is_file():
        return
    maps = _maps_of(folder, parts, clip, owner, measures)
    twins = [
        _maps_of(folder, parts, clip, other, measures)
        for other in dict.fromkeys(part.owner for part in parts)
        if owner.init == "trained" and (other.name, other.init) == (owner.name, "random")
    ]
    questions = [
        [mixing_map.provenance.get("question") for mixing_map in shown.values()]
        for shown in (maps, *twins)
    ]
    shows = digest(
        [
            _DRAWING,
            questions,
            clip.fingerprint_fields,
            clip.name,
            owner.label,
            clip.doubts,
            clip.alignment,
        ]
    )
    if path.is_file() and _shown_by(path) == shows:
        return
    path.unlink(missing_ok=True)
    if not wanted or not maps:
        return
    from .plots.one_clip import clip_figure
    from .plots.panels import fed_text

    figure = clip_figure(clip, maps, twins=twins)
    fed = next(
        (told for mixing_map in maps.values() if (told := fed_text(mixing_map.provenance))), ""
    )
    figure.suptitle(f"{clip.name}: {owner.label}" + (f"\n{fed}" if fed else ""), parse_math=False)
    with whole_file(path) as unfinished:
        figure.savefig(unfinished, format="png", dpi=150, metadata={"question": shows})


def _maps_of(
    folder: RunFolder, parts: Sequence[Part], clip: Clip, owner: Owner, measures: Sequence[str]
) -> _Maps:
    """Maps of a clip by one model, in the order of the measures; none of what the clip was
    before."""
    maps = {
        place: mixing_map
        for part in parts
        if part.owner == owner
        for place, mixing_map in maps_in_part(folder, part, clip.name).items()
        if mixing_map.provenance.get("fingerprint") == clip.fingerprint and place[0] in measures
    }
    return dict(sorted(maps.items(), key=lambda item: measures.index(item[0][0])))


def _shown_by(path: Path) -> str | None:
    """Hash of what a figure shows; None if it cannot be read."""
    import PIL.Image

    try:
        with PIL.Image.open(path) as picture:
            picture.load()
            return picture.info.get("question")
    except (OSError, SyntaxError, ValueError):  # what PIL raises for a damaged file
        return None
