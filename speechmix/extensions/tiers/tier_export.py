"""Export the cue contributions of a clip as annotation tiers for Praat and ELAN.

In: a run's folder, the name of a clip. Out: for each trained model a file with the clip's words and
the shares in a word, layer by layer. Nothing is computed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path

from ...errors import InputError
from ...files.names import safe_name
from ...inputs.words.cue_and_target import find_cue_and_target
from ...inputs.words.timed_words import Word
from ...mixing.maps.mixing_map import MixingMap
from ...mixing.maps.score_tiers import (
    TIER_SUFFIXES,
    Layers,
    resolve_map_layers,
    score_tiers,
    write_tier_file,
)
from ...runs.results.open_run import open_run
from ...runs.results.stored_maps import clip_row, find_audio, read_provenance


def _target_index(words: Sequence[Word], target: str | int, clip: str) -> int | None:
    """Find the index of the target word, as `Clip` does."""
    return find_cue_and_target(words, {"cue": None, "target": target}, where=f"clip {clip!r}")[
        "target"
    ]


def _layers_in_maps(
    requested_layers: str | tuple[int, ...], maps: Iterable[MixingMap]
) -> str | tuple[int, ...]:
    """Return the requested layers that the maps of one model have."""
    available_layers = {layer for mixing_map in maps for layer in mixing_map.layers}
    return (
        requested_layers
        if isinstance(requested_layers, str)
        else tuple(layer for layer in requested_layers if layer in available_layers)
    )


def export_tiers(
    run: str | PathLike[str],
    clip: str,
    *,
    ending: str = ".TextGrid",
    out: str | PathLike[str] | None = None,
    target: str | int | None = None,
    measures: Sequence[str] | None = None,
    stacks: Sequence[str] | None = None,
    layers: Layers = "all",
    audio: str | PathLike[str] | None = None,
) -> list[Path]:
    """Write the tiers of a clip, a file for each trained model.

    Parameters
    ----------
    run : path
        Folder of a run.
    clip : str
        Name of the clip.
    ending : {".TextGrid", ".eaf", ".csv"}
    out : path, optional
        Folder, made if it is not there; by default ``tiers`` in the run's.
    target : str or int, optional
        The word that receives, as `Clip` takes it; by default the clip's target.
    measures, stacks : sequence of str, optional
    layers : "all", "best", int or sequence of int
        See `speechmix.mixing.maps.score_tiers.score_tiers`; each of at least one of the models, which
        gives those that it has.
    audio : path, optional
        Folder to look for the recording in, which an .eaf names.

    Returns
    -------
    list of Path

    Raises
    ------
    InputError
        If the run has no such clip or no maps of its words, no model has any of the requested
        results, or `out` is a file's name. A model that has nothing of it is passed over.
    """
    if out is not None and Path(out).suffix.lower() in TIER_SUFFIXES:
        raise InputError(
            f"{out}: expected a folder, in which each trained model gets a file of its own, found "
            "the name of a file"
        )
    stored_run = open_run(run)
    row, by_model = clip_row(stored_run, clip), stored_run.maps(clip)
    provenance = read_provenance(by_model)
    words = [Word(*word) for word in provenance.get("words") or ()]
    if not words:
        raise InputError(
            f"{stored_run.out} has no maps of {clip!r} with words: score it with word times or a text"
        )
    target_index = (
        provenance.get("target") if target is None else _target_index(words, target, clip)
    )
    if target_index is None:
        raise InputError(
            f"{clip!r} has no target: name the word that receives, --target {words[0].text} "
            "(target= in Python)"
        )
    seconds, sound = float(row["seconds"]), find_audio(stored_run, clip, audio=audio)
    cue = provenance.get("cue")
    paths: list[Path] = []
    errors: list[InputError] = []
    maps_by_model = {
        model: {
            measure_and_stack: mixing_map
            for measure_and_stack, mixing_map in maps.items()
            if measure_and_stack[0] in (measures or (measure_and_stack[0],))
            and measure_and_stack[1] in (stacks or (measure_and_stack[1],))
        }
        for (model, init, _), maps in by_model.items()
        if init == "trained"
    }
    requested_maps = [
        mixing_map for model_maps in maps_by_model.values() for mixing_map in model_maps.values()
    ]
    requested_layers = resolve_map_layers(layers, requested_maps) if requested_maps else "all"
    for model, model_maps in maps_by_model.items():
        model_layers = _layers_in_maps(requested_layers, model_maps.values())
        if not model_layers:
            continue
        try:
            tiers = score_tiers(
                model_maps,
                words,
                target=target_index,
                duration=seconds,
                cue=tuple(cue) if isinstance(cue, list) else cue,
                layers=model_layers,
            )
        except InputError as error:  # another model may have the stack
            errors.append(error)
            continue
        folder = Path(out) if out else stored_run.out / "tiers"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{safe_name(f'{safe_name(clip)}.{safe_name(model)}')}{ending}"
        write_tier_file(path, tiers, seconds, audio=sound)
        paths.append(path)
    if not paths:
        if errors:
            raise errors[0]
        raise InputError(f"{stored_run.out} has no maps of {clip!r} by a trained model")
    return paths
