"""Which cells of time x frequency band a decision rests on, and what may be concluded.

In: Shapley values of cells, once with each fill. Out: `SpectralExplanation`. Cells lead only if, with each fill,

    the sound of all cells moves the decision, in the same direction,
    the lowest of up to three leading cells (at most half of all) is above the highest of the others by 5 % of that effect, in
    intervals at 95 % for all cells together (Student's t over random orders; exact values have no error), and
    the leading cells make up half of the effect, and each is larger than all of the untrained twins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from ...files.json_files import JsonObject
from ...files.text_files import write_csv
from ...files.whole_files import write_json
from ...inputs.audio.spectrograms import BandEdges
from ...inputs.clips.clip import Clip
from ...inputs.words.cue_and_target import number_repeated
from ...inputs.words.timed_words import Word

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WHOLE_SOUND = "the sound"  # label of the time of all the clip
_NO_EFFECT = 1e-3  # nats; below it an effect is the rounding of another order of summing
_MIN_GAP, _MIN_SHARE, _MAX_LEADING = 0.05, 0.5, 3

Cells = tuple[tuple[int, int], ...]  # indices of time and band


class SpectralGame(NamedTuple):
    """Shapley values of cells with one fill, in nats.

    `values`, `errors` (their standard error) and `alone` (what is lost without this cell only) are [times, bands]; `full` and
    `empty` are the decision with all cells and with none; `draw` is the seed of the noise.
    """

    fill: str
    draw: int
    values: np.ndarray
    errors: np.ndarray
    alone: np.ndarray
    full: float
    empty: float


@dataclass(frozen=True, eq=False)
class SpectralExplanation:
    """Shapley values and effects of cells of time x frequency band.

    Parameters
    ----------
    clip, times, edges
        As in `SpectralCells`.
    games : tuple of SpectralGame
        One for each fill; of noise, one for each draw.
    choice : tuple of str
        What is decided: a target, or a target and its foil.
    orders : int
        Random orders; 0 if all sets of cells were tried.
    gradients : array [times, bands], optional
    twin_values : sequence of array [times, bands]
        Shapley values of untrained twins with the first fill.
    provenance : dict
    """

    clip: Clip
    times: tuple[Word, ...]
    edges: BandEdges
    games: tuple[SpectralGame, ...]
    choice: tuple[str, ...]
    orders: int = 0
    gradients: np.ndarray | None = None
    twin_values: Sequence[np.ndarray] = ()
    provenance: JsonObject = field(default_factory=dict)

    @property
    def scores(self) -> np.ndarray:
        """Shapley values [times, bands], mean over fills."""
        return np.asarray(np.mean([game.values for game in self.games], axis=0))

    @property
    def leading_cells(self) -> Cells:
        """Cells (time, band) that lead, the largest first; none if they cannot be separated."""
        leading = self._find_leading(np.ravel)
        return tuple(divmod(cell, len(self.edges) - 1) for cell in leading)

    @property
    def leading_bands(self) -> tuple[int, ...]:
        """Bands that lead over all times together; their errors are at most the sum of those of their cells."""
        return self._find_leading(lambda cells: cells.sum(axis=0))

    def _find_leading(self, combine: Callable[[np.ndarray], np.ndarray]) -> tuple[int, ...]:
        from scipy.stats import t

        effects = np.array([game.full - game.empty for game in self.games])
        sign = np.sign(effects[0])
        effects *= sign
        if effects.min() < _NO_EFFECT:
            return ()
        middle = sign * np.array([combine(game.values) for game in self.games])
        count = middle.shape[1]
        width = t.ppf(1 - 0.025 / count, self.orders - 1) if self.orders else 0.0
        half = width * np.array([combine(game.errors) for game in self.games])
        low, high = middle - half, middle + half
        twin_largest = max((np.abs(combine(v)).max() for v in self.twin_values), default=0.0)
        ranking = np.argsort(-middle.mean(axis=0), kind="stable")
        for size in range(min(_MAX_LEADING, count // 2), 0, -1):
            leading, others = ranking[:size], ranking[size:]
            lowest = low[:, leading].min(axis=1)
            is_separated = lowest - high[:, others].max(axis=1) > _MIN_GAP * effects
            is_half = middle[:, leading].sum(axis=1) >= _MIN_SHARE * effects
            if (is_separated & is_half & (lowest > twin_largest)).all():
                return tuple(leading.tolist())
        return ()

    @property
    def summary(self) -> str:
        """One sentence: what the decision rests on, or that the cells are not separated."""
        effects = [game.full - game.empty for game in self.games]
        fills = ", ".join(dict.fromkeys(game.fill for game in self.games))
        if max(map(abs, effects)) < _NO_EFFECT:
            return f"nothing is claimed: the sound does not change the decision (fills: {fills})"
        with_fills = f"the sound: {min(effects):.2f} to {max(effects):.2f} nats; fills: {fills}"
        cells = self.leading_cells
        where = self._name_cells(cells)
        if not cells:  # single cells may be too small, or their errors too large
            cells = tuple(product(range(len(self.times)), self.leading_bands))
            where = f"{self._name_bands(cells)}, at all times together"
        if not cells:
            return f"not separated: no band or time leads with every fill ({with_fills})"
        sums = [sum(game.values[cell] for cell in cells) for game in self.games]
        return f"{self._name_decision()} {where} ({min(sums):.2f} to {max(sums):.2f} nats; {with_fills})"

    def _name_decision(self) -> str:
        full, is_support = self.games[0].full, self.games[0].full > self.games[0].empty
        if len(self.choice) == 1:
            return f"{self.choice[0]!r} is {'supported' if is_support else 'opposed'} most by"
        first, second = self.choice if full > 0 else self.choice[::-1]
        if is_support == (full > 0):
            return f"the model told {first!r} from {second!r} by"
        return f"the model chose {first!r}; {second!r} was supported most by"

    def _name_cells(self, cells: Cells) -> str:
        names, labels = [], number_repeated([time.text for time in self.times])
        for index in sorted({time for time, _ in cells}):
            bands = self._name_bands([cell for cell in cells if cell[0] == index])
            label = labels[index]
            names.append(bands if label == WHOLE_SOUND else f"{bands} of {label!r}")
        return " and ".join(names)

    def _name_bands(self, cells: Sequence[tuple[int, int]]) -> str:
        """Name the bands of cells; neighbours are one range."""
        bands = {band for _, band in cells}
        starts = sorted(band for band in bands if band - 1 not in bands)
        stops = sorted(band + 1 for band in bands if band + 1 not in bands)
        khz = np.array(self.edges) / 1000
        ranges = zip(khz[starts], khz[stops], strict=True)
        return " and ".join(f"{low:.2g} to {high:.2g} kHz" for low, high in ranges)

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for each fill and cell, with its values in nats."""
        rows = [
            (self.clip.name, time.text, time.start, time.end, *band)
            for time, band in product(self.times, pairwise(self.edges))
        ]
        cells = pd.DataFrame(rows, columns=["clip", "time", "start", "end", "low_hz", "high_hz"])
        leading = self.leading_cells
        cells["leads"] = [index in leading for index in np.ndindex(self.scores.shape)]
        if self.gradients is not None:
            cells["gradient"] = self.gradients.ravel()
        tables = []
        for fill, draw, *arrays, _, _ in self.games:
            values = zip(("shapley", "error", "alone"), map(np.ravel, arrays), strict=True)
            tables.append(cells.assign(fill=fill, draw=draw, **dict(values)))
        return pd.concat(tables, ignore_index=True)

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw the values on the spectrogram, with formants; see `plots.spectral_figure`."""
        from .spectral_figure import spectral_figure

        return spectral_figure(self, ax=ax)

    def write(self, folder: str | Path) -> Path:
        """Write the table (CSV), summary and provenance (JSON) and the figure into a folder."""
        from ...reporting.plots.figure_style import new_figure, write_figure

        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        write_csv(self.to_dataframe(), path / "spectral.csv")
        write_json(path / "spectral.json", {"summary": self.summary, **self.provenance})
        figure = new_figure(7.2, 3.8)
        self.plot(ax=figure.subplots())
        write_figure(figure, path / "spectral.png", dpi=160)
        return path

    def __repr__(self) -> str:
        shape = f"{len(self.times)} times x {len(self.edges) - 1} bands"
        return f"SpectralExplanation({self.clip.name}, {shape}: {self.summary})"
