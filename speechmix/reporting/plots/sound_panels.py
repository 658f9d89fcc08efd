"""Draw waveform and spectrogram of a clip with its words, cue and target.

In: a `Clip`. Out: two panels in a figure that the caller owns. Times are seconds; frequencies end
at 8 kHz, the upper limit of the models' input.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Patch

from ...inputs.audio.spectrograms import mel_spectrogram, waveform_envelope
from ...inputs.clips.clip import Clip
from ...inputs.words.cue_and_target import cue_text
from ...inputs.words.multipart_words import list_parts
from ...inputs.words.timed_words import Word
from . import figure_style as unit_labels
from . import map_cells
from .figure_style import (
    CUE_COLOR,
    LABEL_SIZE,
    LETTER_WIDTH,
    LINE_PITCH,
    TARGET_COLOR,
    TICK_SIZE,
    add_legend,
    png_bytes,
    shorten_text,
)

_SAMPLE_RATE = 16_000
_MIN_POWER, _MIN_LEVEL = 1e-10, -80  # of silence; decibels below the loudest that are drawn
_WINDOW, _HOP, _FFT, _MELS = (
    400,
    160,
    1024,
    80,
)  # samples, 25 and 10 ms; the zero-padded FFT leaves no mel band empty


def word_roles(clip: Clip) -> dict[int, tuple[str, str]]:
    """Return role and colour of the clip's cue words and target, by word index."""
    cue_roles = dict.fromkeys(clip.cue_words, ("cue", CUE_COLOR))
    return (
        cue_roles if clip.target is None else {**cue_roles, clip.target: ("target", TARGET_COLOR)}
    )


def clip_word(clip: Clip, index: int) -> Word:
    """Return a word of a clip by its index."""
    return (clip.words or ())[index]


def sound_height(clip: Clip, inches: float) -> float:
    """Return the height in inches that `draw_sound` needs."""
    words = clip.words or ()
    if not words or _labels_fit(clip, inches):
        return 2.5
    return 2.3 + max(len(shorten_text(word.text)) for word in words) * LETTER_WIDTH


def draw_sound(subfigure: Figure | SubFigure, clip: Clip, inches: float) -> None:
    """Draw waveform, spectrogram, word boundaries and labels in panels about `inches` wide."""
    wave, spectrum = subfigure.subplots(2, 1, height_ratios=[1, 2])
    samples = clip.audio(_SAMPLE_RATE)
    seconds = len(samples) / _SAMPLE_RATE
    _draw_wave(wave, samples)
    wave.set_ylabel("wave", size=LABEL_SIZE)
    draw_spectrogram(subfigure, spectrum, samples, seconds)
    draw_boundaries(clip, (wave, spectrum))
    label_words(wave, clip, inches)
    roles_by_color = {
        color: (role, cue)
        for role, cue, color in (
            ("cue", clip.cue, CUE_COLOR),
            ("target", clip.target, TARGET_COLOR),
        )
    }
    handles = [
        Patch(
            color=color,
            alpha=0.6,
            label=f"{role}: {shorten_text(cue_text(clip.words or (), index))}",
        )
        for color, (role, index) in roles_by_color.items()
        if index is not None
    ]
    if handles:  # beside the axis label, where nothing else is
        add_legend(spectrum, handles, columns=2, loc="upper right", bbox_to_anchor=(1.0, -0.13))
    if clip.text:
        # Sits above the words, so that the figure's own title stays free for whoever draws the
        # figure.
        subfigure.suptitle(
            shorten_text(clip.text, int((inches + 1.0) / 0.075)),
            size=LABEL_SIZE,
            parse_math=False,
        )


def sound_picture(clip: Clip, *, width: float = 9.0, height: float = 2.0) -> bytes:
    """Draw waveform above spectrogram without axes, as the bytes of a PNG file."""
    figure = Figure(figsize=(width, height), facecolor="white")
    wave, spectrum = figure.add_axes((0, 2 / 3, 1, 1 / 3)), figure.add_axes((0, 0, 1, 2 / 3))
    samples = clip.audio(_SAMPLE_RATE)
    _draw_wave(wave, samples)
    draw_spectrogram(None, spectrum, samples, len(samples) / _SAMPLE_RATE)
    draw_boundaries(clip, (wave, spectrum))
    for ax in (wave, spectrum):
        ax.set_axis_off()
    return png_bytes(figure)


def _draw_wave(ax: Axes, samples: np.ndarray) -> None:
    times, low, high = waveform_envelope(samples, _SAMPLE_RATE)
    ax.fill_between(times, low, high, color="0.35", linewidth=0.3)
    max_amplitude = max(float(np.abs(samples).max()), 1e-6)
    ax.set(
        xlim=(0, len(samples) / _SAMPLE_RATE),
        ylim=(-1.05 * max_amplitude, 1.05 * max_amplitude),
        yticks=[],
        xticks=[],
    )


def draw_spectrogram(
    color_bar_figure: Figure | SubFigure | None, ax: Axes, samples: np.ndarray, seconds: float
) -> None:
    """Draw the mel spectrogram of samples at 16 kHz, with its colour bar in dB if it has a
    figure."""
    from librosa import mel_frequencies

    padded = np.pad(samples, (0, max(0, _FFT - len(samples))))
    power = mel_spectrogram(
        padded, _SAMPLE_RATE, n_fft=_FFT, window=_WINDOW, hop=_HOP, n_mels=_MELS, fmin=0, fmax=8000
    )
    level_db = np.maximum(
        10 * np.log10(np.maximum(power, _MIN_POWER) / max(power.max(), _MIN_POWER)), _MIN_LEVEL
    )
    cells = ax.pcolormesh(
        np.arange(len(power)) * _HOP / _SAMPLE_RATE,
        mel_frequencies(_MELS, fmin=0, fmax=8000),
        level_db.T,
        cmap=map_cells.SPECTROGRAM_COLORS,
        vmin=_MIN_LEVEL,
        vmax=0,
        shading="auto",
        rasterized=True,
    )
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_yscale("symlog", linthresh=1000, base=2)  # the mel scale is linear below 1 kHz
    ax.set(xlim=(0, seconds), ylim=(0, 8000))
    ax.set_yticks(
        [0, 500, 1000, 2000, 4000, 8000], ["0", "0.5", "1", "2", "4", "8"], size=TICK_SIZE
    )
    ax.set_ylabel("kHz (mel scale)", size=LABEL_SIZE)
    ax.set_xlabel("time (s)", size=LABEL_SIZE, loc="left")
    ax.tick_params(labelsize=TICK_SIZE, length=2, width=0.6)
    if color_bar_figure is None:
        return
    color_bar = color_bar_figure.colorbar(
        cells, ax=ax, pad=0.02, fraction=0.08, aspect=9, ticks=[-80, -40, 0]
    )
    color_bar.set_label("dB re loudest", size=LABEL_SIZE)
    color_bar.ax.tick_params(labelsize=TICK_SIZE, length=2, width=0.6)


def draw_boundaries(clip: Clip, axes: Sequence[Axes]) -> None:
    """Draw word boundaries in each panel; shade cue and target."""
    role_colors = {word: color for word, (_, color) in word_roles(clip).items()}
    words = list(enumerate(clip.words or ()))
    for index, word in sorted(words, key=lambda item: item[0] in role_colors):
        for ax, (start, end) in itertools.product(axes, word.intervals):
            ax.vlines(
                [start, end],
                0,
                1,
                transform=ax.get_xaxis_transform(),
                color=role_colors.get(index, "0.2"),
                linewidth=1.0 if index in role_colors else 0.5,
            )
            if index in role_colors:
                ax.axvspan(start, end, color=role_colors[index], alpha=0.22, linewidth=0)


def _labels_fit(clip: Clip, inches: float) -> bool:
    """Whether the labels fit side by side above their words."""
    seconds_per_inch = clip.duration / inches
    half_widths = [
        LETTER_WIDTH * (len(label) + 1) / 2 * seconds_per_inch
        for _, label, _ in _piece_labels(clip)
    ]
    centres = [centre for _, _, centre in _piece_labels(clip)]
    return all(
        centres[i] + half_widths[i] <= centres[j] - half_widths[j]
        for i, j in itertools.pairwise(range(len(centres)))
    )


def _piece_labels(clip: Clip) -> list[tuple[int, str, float]]:
    """Return word index, text and centre in seconds of each piece of each word."""
    labels = [
        (index, shorten_text(part.text), (start + end) / 2)
        for index, part in list_parts(clip.words or ())
        for start, end in part.intervals
    ]
    return (
        sorted(labels, key=lambda label: label[2])
        if any(word.pieces for word in clip.words or ())
        else labels
    )


def label_words(wave: Axes, clip: Clip, inches: float) -> None:
    """Label the words above the waveform; where there are too many, label cue, target and some
    others."""
    wave.xaxis.tick_top()
    wave.tick_params(length=0, pad=2)
    if not clip.words:
        return
    roles, labels, is_flat = word_roles(clip), _piece_labels(clip), _labels_fit(clip, inches)
    min_gap, centres = (
        LINE_PITCH * clip.duration / inches,
        [centre for _, _, centre in labels],
    )
    preferred = [
        label_index
        for word in roles
        for label_index, (index, _, _) in enumerate(labels)
        if index == word
    ]
    label_indices = (
        range(len(labels))
        if is_flat
        else unit_labels.choose_spaced(centres, min_gap, preferred=preferred)
    )
    wave.set_xticks(
        [centres[i] for i in label_indices],
        [labels[i][1] for i in label_indices],
        size=TICK_SIZE,
        rotation=0 if is_flat else 90,
        parse_math=False,
    )
    for label_index, text in zip(label_indices, wave.get_xticklabels(), strict=True):
        if labels[label_index][0] in roles:
            text.set(color=roles[labels[label_index][0]][1], fontweight="bold")
