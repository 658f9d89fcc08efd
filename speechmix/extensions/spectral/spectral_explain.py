"""Explain a decision by cells of time x frequency band of the sound.

In: a speech model and a clip. Out: a `SpectralExplanation`: for each cell its Shapley value among all cells, and what is lost
without it alone (occlusion), once with each fill. Cells are removed from the waveform, so any model can be explained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from tqdm.auto import tqdm

from ...errors import InputError
from ...inputs.audio.spectrograms import band_edges
from ...inputs.clips.clip import Clip
from ...inputs.clips.segments import segment_clip
from ...inputs.words.timed_words import Word
from ...interventions.decision import Decision
from ...interventions.removals import FILL_SAMPLE_RATE, SOUND, Removal, prepare_sound_inputs
from ...interventions.runner import InterventionCache
from ..occlusion.shapley import MAX_EXACT_PLAYERS, shapley_values
from .spectral_explanation import WHOLE_SOUND, SpectralExplanation, SpectralGame
from .spectral_gradients import spectral_gradients
from .spectral_removal import SPECTRAL_FILLS, SpectralCells

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...mixing.passes.request import ObjectiveOption

DEFAULT_FILLS = ("zeros", "mean")
_DEFAULT_ORDERS, _NOISE_DRAWS = 16, 2
_SETS_PER_STEP = 32  # of the progress bar


def spectral_explain(
    model: Model,
    clip: Clip,
    *,
    units: str | float = "word",
    bands: int | Sequence[float] = 6,
    scale: str = "mel",
    within: tuple[float, float] | None = None,
    fills: Sequence[str] = DEFAULT_FILLS,
    speaker: Sequence[Clip] = (),
    objective: ObjectiveOption | None = None,
    gradients: bool = False,
    samples: int | None = None,
    twins: Sequence[Model] = (),
    seed: int = 0,
    progress: bool = False,
) -> SpectralExplanation:
    """Measure which frequency band of which word, phone or window a decision rests on.

    Parameters
    ----------
    model : Model
        A speech model with its head.
    clip : Clip
        With a target, and a foil for a choice between two words; a classifier needs none.
    units : {"word", "clip"}, name of a tier or float
        Times of the cells: words, the whole clip, another tier ("phone"), or windows of so many milliseconds.
    bands : int or sequence of float
        Number of bands of equal width on the scale, or their edges in Hz.
    scale : {"mel", "erb"}
    within : (float, float), optional
        Seconds; only units whose middle lies between them are cells. Everything else stays.
    fills, speaker
        What replaces a cell, as in `SpectralCells`; what is noise is drawn twice.
    objective : optional
        As in `mix`: of a classifier (label,) or (label, other label).
    gradients : bool
        Also compute integrated gradients by the log-mel input of a model that has one.
    samples : int, optional
        Random orders of cells, each also in reverse. By default all sets are tried of up to 10 cells, and 16 orders of more.
    twins : sequence of Model
        Untrained twins: what leads must be larger than every cell (or band) of theirs, with the first fill.
    seed : int
        Of orders and noise.
    progress : bool
        Show a bar over the passes of the models, with the time that is left. By default, there are about 32 for each
        cell, fill and draw of noise.

    Raises
    ------
    InputError
        If a band lies beyond half the sampling rate, there is no band or no unit, or the clip is shorter than a window.

    Examples
    --------
    >>> import speechmix
    >>> from speechmix.inputs import bundled
    >>> model = speechmix.load("bundled:tiny-french-ctc")
    >>> clip = bundled.clips()[1]  # synthetic: "nos maisons"
    >>> result = speechmix.spectral_explain(model, clip, units="clip", bands=[0, 1000, 3000, 8000], fills=["zeros"])
    >>> result.scores.shape
    (1, 3)
    """
    if not fills or not set(fills) <= set(SPECTRAL_FILLS) or (samples is not None and samples < 2):
        raise InputError(
            f"fills should be some of {SPECTRAL_FILLS}, and samples at least 2 orders; found {list(fills)} and {samples}"
        )
    edges = band_edges(bands, scale=scale, nyquist=min(model.sample_rate, FILL_SAMPLE_RATE) / 2)
    times = _list_times(clip, units, within)
    item = clip if clip.words else segment_clip(clip, clip.duration)
    decision, *twin_decisions = (
        Decision.prepare(each, item, objective=objective) for each in (model, *twins)
    )
    all_cells = [
        SpectralCells(item, times, edges, fill, seed + draw, speaker)
        for fill in fills
        for draw in range(1 if fill == "zeros" else _NOISE_DRAWS)
    ]
    count = all_cells[0].count
    orders = samples or (_DEFAULT_ORDERS if count > MAX_EXACT_PLAYERS else 0)
    pass_count = _count_sets(count, orders) * (len(all_cells) + len(twins))
    with tqdm(total=pass_count, unit="pass", desc=clip.name, disable=not progress) as bar:
        games = tuple(
            _compute_values(decision, cells, orders, seed, bar.update) for cells in all_cells
        )
        twin_games = [
            _compute_values(twin, all_cells[0], orders, seed, bar.update) for twin in twin_decisions
        ]
    twin_values = [game.values for game in twin_games]
    provenance = {name: getattr(model, name) for name in ("name", "init", "seed", "fingerprint")}
    provenance |= {"objective": decision.objective.details, "units": units, "scale": scale}
    provenance |= {"fills": list(fills), "orders": orders, "noise_seed": seed, "twins": len(twins)}
    gradient = None
    if gradients:
        silent = SpectralCells(item, times, edges).remove(range(count))
        baseline = prepare_sound_inputs(model, silent)
        gradient, missed = spectral_gradients(decision, baseline, times, edges)
        provenance["gradients_missed"] = missed
    choice = _name_choice(decision)
    return SpectralExplanation(
        clip, times, edges, games, choice, orders, gradient, twin_values, provenance
    )


def _list_times(
    clip: Clip, units: str | float, within: tuple[float, float] | None
) -> tuple[Word, ...]:
    """Return the units that are cells."""
    start, end = within or (0.0, clip.duration)
    if not 0 <= start < end <= clip.duration:
        raise InputError(
            f"{clip.name}: expected within= as two times in the {clip.duration:g} s of the clip, found {within}"
        )
    tiers = {"clip": (Word(WHOLE_SOUND, start, end),), "word": clip.words or (), **clip.tiers}
    if isinstance(units, str):
        times = tiers.get(units, ())
    elif 0 < units / 1000 <= clip.duration:
        times = segment_clip(clip, units / 1000).words or ()
    else:
        raise InputError(
            f"{clip.name}: the clip of {1000 * clip.duration:.0f} ms is shorter than a window of {units:g} ms: give "
            "shorter windows, or units='clip'"
        )
    inside = tuple(time for time in times if start <= (time.start + time.end) / 2 <= end)
    if not inside:
        raise InputError(
            f"{clip.name}: there is no unit {units!r} with its middle within {start:g} to {end:g} s; the clip has "
            f"{[name for name in tiers if tiers[name]]}: align it (speechmix.align), or give a number of milliseconds"
        )
    return inside


def _count_sets(count: int, orders: int) -> int:
    """Count the sets of cells that one game reads: those of the Shapley values, all, none, and all but one."""
    return (2 * orders * (count + 1) if orders else 2**count) + 2 + count


def _compute_values(
    decision: Decision,
    cells: SpectralCells,
    orders: int,
    seed: int,
    advance: Callable[[int], object],
) -> SpectralGame:
    """Compute Shapley values and effects of cells with one fill."""
    cache, count = InterventionCache(decision), cells.count

    def margins(sets: np.ndarray) -> np.ndarray:
        margins_by_step = []
        for first in range(0, len(sets), _SETS_PER_STEP):
            absent = [
                tuple(np.flatnonzero(~present).tolist())
                for present in sets[first : first + _SETS_PER_STEP]
            ]
            margins_by_step.append(
                cache.read([(Removal(SOUND, cell, cells),) if cell else () for cell in absent])
            )
            advance(len(absent))
        return np.concatenate(margins_by_step)

    values, errors = shapley_values(count, margins, samples=orders or None, seed=seed)
    full, empty = margins(np.array([[True] * count, [False] * count])).tolist()
    alone = full - margins(~np.eye(count, dtype=bool))
    values, errors, alone = np.reshape([values, errors, alone], (3, len(cells.times), -1))
    return SpectralGame(cells.fill, cells.seed, values, errors, alone, full, empty)


def _name_choice(decision: Decision) -> tuple[str, ...]:
    """Name what is decided: target and foil, a label and another, or a text."""
    details, item = decision.objective.details, decision.item
    if isinstance(item, Clip) and decision.has_foil and item.foil and item.target is not None:
        return (item.words or ())[item.target].text, item.foil
    names = (details.get(name) for name in ("label", "foil_label"))
    return tuple(str(name) for name in names if name is not None) or ("the score",)
