"""One clip at a glance: what was said and when, which word builds which in some layers, and how the cue fares.

In: a `Clip` and its maps. Out: a Figure: waveform and spectrogram with the words on top, a row of word-by-word maps for
each measure and stack below, and, where cue and target are known, the cue contribution over layers at the bottom.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ..clips import Clip
from ..errors import InputError
from ..evaluation.cue import cue_contribution
from ..mixing import MixingMap
from . import panels
from .panels import CUE_COLOR, LABEL_SIZE, LAYER_LABEL, SHARE_LABEL, TARGET_COLOR, TICK_SIZE, TITLE_SIZE

Key = tuple[str, str]  # measure, stack

_SAMPLE_RATE = 16_000  # so that the spectrogram ends at 8 kHz
_WINDOW, _HOP, _FFT, _MELS = 400, 160, 1024, 80  # samples, 25 and 10 ms; the zero-padded FFT leaves no mel band empty
_MOST_MAPS_HEIGHT = 10.0  # inches


def clip_figure(
    clip: Clip,
    maps: Mapping[Key, MixingMap],
    *,
    layers: Sequence[int] | None = None,
    contributions: Mapping[Key, np.ndarray] | None = None,
) -> Figure:
    """Draw a clip with its maps.

    Parameters
    ----------
    clip : Clip
    maps : mapping of (measure, stack) to MixingMap
        As `speechmix.mix` returns it; may be empty.
    layers : sequence of int, optional
        Counted from 0. By default the first, middle and last layer of each stack and, if cue and target are known, the
        one with the highest cue contribution by Value Zeroing.
    contributions : mapping of (measure, stack) to ndarray [L], optional
        Cue contribution, 0 to 1, in each layer of the map. By default computed from the maps if both words are known.

    Returns
    -------
    Figure

    Raises
    ------
    InputError
        If a map does not have one of the layers, or the audio cannot be read.
    """
    if contributions is None:
        contributions = _contributions(clip, maps)
    by_stack = _by_stack(maps)
    chosen = {stack: _chosen_layers(maps, keys, layers, contributions) for stack, keys in by_stack.items()}
    n_columns = max(map(len, chosen.values()), default=0)
    width, row_height = _sizes(maps, n_columns)
    heights = [2.9, len(maps) * row_height + 0.75 + 0.45 * len(by_stack), 2.1]
    present = [True, bool(maps), bool(contributions)]
    heights = [height for height, there in zip(heights, present, strict=True) if there]
    figure = panels.new_figure(width, sum(heights))
    parts = iter(np.atleast_1d(figure.subfigures(len(heights), 1, height_ratios=heights)))
    _draw_sound(next(parts), clip, width - 1.6)
    if maps:
        _draw_maps(next(parts), maps, by_stack, chosen, _highlight(clip), (width - 2.0) / n_columns, row_height)
    if contributions:
        _draw_curves(next(parts), maps, contributions, clip)
    return figure


def _contributions(clip: Clip, maps: Mapping[Key, MixingMap]) -> dict[Key, np.ndarray]:
    """Cue contribution of every map that holds both words (a map of prepared inputs, or of other rows, does not)."""
    found = {}
    if clip.cue is not None and clip.target is not None:
        for key, mixing_map in maps.items():
            try:
                found[key] = cue_contribution(mixing_map, cue=clip.cue, target=clip.target)
            except InputError:
                continue
    return found


def _by_stack(maps: Mapping[Key, MixingMap]) -> dict[str, list[Key]]:
    """Keys grouped by stack, so that neighbouring rows have the same words below them."""
    groups: dict[str, list[Key]] = {}
    for key in maps:
        groups.setdefault(key[1], []).append(key)
    return groups


def _chosen_layers(maps, keys: list[Key], layers: Sequence[int] | None, contributions) -> list[int]:
    """Layers of one stack: those asked for, or first, middle, last and the peak of Value Zeroing."""
    if layers is not None:
        for key in keys:
            for layer in layers:
                maps[key].layer(layer)  # raises if there is none
        return list(layers)
    known = [layer for layer in maps[keys[0]].layers if all(layer in maps[key].layers for key in keys)]
    if not known:
        raise InputError(f"the maps of the {keys[0][1]} have no layer in common; name layers= or draw them one by one")
    wanted = {known[0], known[len(known) // 2], known[-1]}
    curve = contributions.get(("value_zeroing", keys[0][1]))
    if curve is None or not np.isfinite(curve).any():
        return sorted(wanted)
    peak = maps["value_zeroing", keys[0][1]].layers[int(np.nanargmax(curve))]
    wanted |= {peak} & set(known)
    while len(wanted) < min(
        4, len(known)
    ):  # the peak is one of the three: fill the row with the layer farthest from all
        wanted.add(max(known, key=lambda layer: min(abs(layer - other) for other in wanted)))
    return sorted(wanted)


def _sizes(maps: Mapping[Key, MixingMap], n_columns: int) -> tuple[float, float]:
    """Width of the figure and height of a row of maps, inches."""
    sources = max((len(m.sources) for m in maps.values()), default=8)
    targets = max((len(m.targets) for m in maps.values()), default=8)
    panel = min(max(panels.LINE_PITCH * sources, 1.5), 2.4)
    row = min(max(panels.LINE_PITCH * targets, 1.5), 2.4, _MOST_MAPS_HEIGHT / max(len(maps), 1))
    return max(7.5, n_columns * panel + 2.0), max(row, 1.1)


def _highlight(clip: Clip) -> dict[int, str]:
    marked = {clip.cue: CUE_COLOR, clip.target: TARGET_COLOR}
    return {word: color for word, color in marked.items() if word is not None}


def _draw_sound(part, clip: Clip, inches: float) -> None:
    """Waveform above spectrogram, words on top."""
    wave, spectrum = part.subplots(2, 1, height_ratios=[1, 2])
    samples = clip.audio(_SAMPLE_RATE)
    seconds = len(samples) / _SAMPLE_RATE
    times, low, high = _envelope(samples)
    wave.fill_between(times, low, high, color="0.35", linewidth=0.3)
    loudest = max(float(np.abs(samples).max()), 1e-6)
    wave.set(xlim=(0, seconds), ylim=(-1.05 * loudest, 1.05 * loudest), yticks=[], xticks=[])
    wave.set_ylabel("wave", size=LABEL_SIZE)
    _draw_spectrogram(part, spectrum, samples, seconds)
    _draw_words(wave, spectrum, clip, seconds, inches)
    title = clip.name if not clip.text else f"{clip.name}: {clip.text}"
    part.suptitle(panels.shortened(title, 100), size=TITLE_SIZE, parse_math=False)


def _envelope(samples: np.ndarray, most: int = 2000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lowest and highest sample in up to `most` stretches: the same picture as all samples, in a small file."""
    starts = np.unique(np.linspace(0, len(samples), most, endpoint=False).astype(int))
    return starts / _SAMPLE_RATE, np.minimum.reduceat(samples, starts), np.maximum.reduceat(samples, starts)


def _draw_spectrogram(part, ax: Axes, samples: np.ndarray, seconds: float) -> None:
    import librosa
    import librosa.display

    padded = np.pad(samples, (0, max(0, _FFT - len(samples))))
    power = librosa.feature.melspectrogram(
        y=padded, sr=_SAMPLE_RATE, n_fft=_FFT, win_length=_WINDOW, hop_length=_HOP, n_mels=_MELS, fmax=8000
    )
    level = librosa.power_to_db(power, ref=np.max, top_db=80)
    cells = librosa.display.specshow(
        level, sr=_SAMPLE_RATE, hop_length=_HOP, x_axis="time", y_axis="mel", fmax=8000, ax=ax,
        cmap=panels.SPECTROGRAM_COLORS, vmin=-80, vmax=0,
    )  # fmt: skip
    ax.set(xlim=(0, seconds), ylim=(0, 8000))
    ax.set_yticks([0, 500, 1000, 2000, 4000, 8000], ["0", "0.5", "1", "2", "4", "8"], size=TICK_SIZE)
    ax.set_ylabel("kHz (mel scale)", size=LABEL_SIZE)
    ax.set_xlabel("time (s)", size=LABEL_SIZE)
    ax.tick_params(labelsize=TICK_SIZE, length=2, width=0.6)
    bar = part.colorbar(cells, ax=ax, pad=0.02, fraction=0.08, aspect=12, ticks=[-80, -40, 0])
    bar.set_label("dB re loudest", size=LABEL_SIZE)
    bar.ax.tick_params(labelsize=TICK_SIZE, length=2, width=0.6)


def _draw_words(wave: Axes, spectrum: Axes, clip: Clip, seconds: float, inches: float) -> None:
    """Boundaries in both panels, labels above the waveform, cue and target in their colours."""
    words, marked = clip.words or (), _highlight(clip)
    for index, word in enumerate(words):
        color = marked.get(index, "0.2")
        for ax in (wave, spectrum):
            ax.vlines([word.start, word.end], 0, 1, transform=ax.get_xaxis_transform(), color=color, linewidth=0.6)
            if index in marked:
                ax.axvspan(word.start, word.end, color=color, alpha=0.22, linewidth=0)
    per_inch = seconds / inches
    labels = [panels.shortened(word.text) for word in words]
    centres = [min((word.start + word.end) / 2, seconds) for word in words]
    letter = panels.LETTER_WIDTH * per_inch
    ends = [(c - letter * len(t) / 2, c + letter * (len(t) + 1) / 2) for c, t in zip(centres, labels, strict=True)]
    flat = all(before[1] <= after[0] for before, after in itertools.pairwise(ends))
    shown = range(len(words)) if flat else panels.spaced(centres, panels.LINE_PITCH * per_inch, first=list(marked))
    wave.xaxis.tick_top()
    wave.set_xticks(
        [centres[i] for i in shown], [labels[i] for i in shown], size=TICK_SIZE, rotation=0 if flat else 90,
        parse_math=False,
    )  # fmt: skip
    wave.tick_params(length=0, pad=2)
    for index, text in zip(shown, wave.get_xticklabels(), strict=True):
        if index in marked:
            text.set(color=marked[index], fontweight="bold")
    roles = {"cue": clip.cue, "target": clip.target}
    handles = [
        Patch(color=marked[word], alpha=0.6, label=f"{role}: {labels[word]}")
        for role, word in roles.items()
        if word is not None
    ]
    if handles:
        panels.add_legend(wave.figure, handles, columns=2, loc="outside upper right")


def _draw_maps(part, maps, by_stack, chosen, highlight, width: float, height: float) -> None:
    """One row of panels for each measure and stack, all on one colour scale."""
    values = {key: panels.displayed(m) for key, m in maps.items()}
    picked = {
        key: [values[key][maps[key].layers.index(layer)] for layer in chosen[stack]]
        for stack, keys in by_stack.items()
        for key in keys
    }
    shown = [array for arrays in picked.values() for array in arrays]
    limits = panels.color_limits(shown)
    axes = part.subplots(len(maps), max(map(len, chosen.values())), squeeze=False)
    rows = iter(axes)
    for stack, keys in by_stack.items():
        for key, row in zip(keys, rows, strict=False):
            for column, ax in enumerate(row):
                if column >= len(chosen[stack]):
                    ax.set_axis_off()
                    continue
                cells = panels.draw_cells(ax, picked[key][column], limits=limits)
                ax.set_aspect("auto")
                panels.label_units(ax, "x", maps[key].sources, inches=width, most=16, highlight=highlight)
                panels.label_units(ax, "y", maps[key].targets, inches=height, most=16, highlight=highlight)
                ax.tick_params(labelleft=column == 0, labelbottom=key == keys[-1])
                if key == keys[0]:
                    ax.set_title(f"{stack}, layer {chosen[stack][column]}", size=LABEL_SIZE, pad=3)
            row[0].set_ylabel(f"{panels.spoken(key[0])}\n{stack}", size=LABEL_SIZE)
    part.supxlabel("source (gives)", size=LABEL_SIZE)
    part.supylabel("target (receives)", size=LABEL_SIZE)
    panels.add_color_bar(part, cells, axes, shown, SHARE_LABEL)


def _draw_curves(part, maps, contributions: Mapping[Key, np.ndarray], clip: Clip) -> None:
    """Cue contribution over layers: a panel for each stack, a line for each measure."""
    stacks = list(dict.fromkeys(stack for _, stack in contributions))
    measures = list(dict.fromkeys(measure for measure, _ in contributions))
    axes = part.subplots(1, len(stacks), sharey=True, squeeze=False)[0]
    lines = {}
    for ax, stack in zip(axes, stacks, strict=True):
        for measure, color in zip(measures, _cycle(len(measures)), strict=True):
            if (measure, stack) not in contributions:
                continue
            curve = np.asarray(contributions[measure, stack], dtype=float)
            layers = maps[measure, stack].layers if (measure, stack) in maps else range(len(curve))
            lines[measure] = ax.plot(
                layers, 100 * curve, color=color, linewidth=1.2, marker="o", markersize=2.5,
                label=panels.spoken(measure),
            )[0]  # fmt: skip
        panels.style_layer_axis(ax)
        ax.set_title(stack, size=LABEL_SIZE, pad=3)
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel("cue contribution (%)", size=LABEL_SIZE)
    part.supxlabel(LAYER_LABEL, size=LABEL_SIZE)
    panels.add_legend(part, list(lines.values()), columns=4, loc="outside upper center")


def _cycle(n: int) -> list[str]:
    return [panels.LINE_COLORS[i % len(panels.LINE_COLORS)] for i in range(n)]
