"""Waveform above spectrogram, with the words and the two that the question is about.

In: a `Clip`. Out: two panels in a figure that the caller owns. Times are seconds; frequencies end
at 8 kHz, which is what the models hear.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Patch

from ...inputs.audio.spectrograms import mel_spectrogram
from ...inputs.audio.waveform_envelope import waveform_envelope
from ...inputs.clips.clip import Clip
from ...inputs.words.cue_and_target import cue_text
from ...inputs.words.multipart_words import list_parts
from ...inputs.words.timed_words import Word
from . import map_cells, panels, unit_labels
from .panels import CUE_COLOR, LABEL_SIZE, TARGET_COLOR, TICK_SIZE

_SAMPLE_RATE = 16_000
_LEAST_POWER, _LOWEST = 1e-10, -80  # of silence; decibels below the loudest that are drawn
_WINDOW, _HOP, _FFT, _MELS = (
    400,
    160,
    1024,
    80,
)  # samples, 25 and 10 ms; the zero-padded FFT leaves no mel band empty


def word_roles(clip: Clip) -> dict[int, tuple[str, str]]:
    """Role and colour of the clip's cue (of each of its words) and target, by word index."""
    of_cue = dict.fromkeys(clip.cue_words, ("cue", CUE_COLOR))
    return of_cue if clip.target is None else {**of_cue, clip.target: ("target", TARGET_COLOR)}


def clip_word(clip: Clip, index: int) -> Word:
    """Word of a clip by its index, where roles say that it has one."""
    return (clip.words or ())[index]


def sound_height(clip: Clip, inches: float) -> float:
    """Inches that `draw_sound` wants: more where the words must be written upwards."""
    words = clip.words or ()
    if not words or _flat(clip, inches):
        return 2.5
    return 2.3 + max(len(panels.shorten_text(word.text)) for word in words) * panels.LETTER_WIDTH


def draw_sound(part: Figure | SubFigure, clip: Clip, inches: float) -> None:
    """Draw waveform, spectrogram, word boundaries and labels.

    Parameters
    ----------
    part : Figure or SubFigure
    clip : Clip
    inches : float
        About how wide the panels will be.
    """
    wave, spectrum = part.subplots(2, 1, height_ratios=[1, 2])
    samples = clip.audio(_SAMPLE_RATE)
    seconds = len(samples) / _SAMPLE_RATE
    _draw_wave(wave, samples)
    wave.set_ylabel("wave", size=LABEL_SIZE)
    draw_spectrogram(part, spectrum, samples, seconds)
    draw_boundaries(clip, (wave, spectrum))
    label_words(wave, clip, inches)
    asked = {
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
            label=f"{role}: {panels.shorten_text(cue_text(clip.words or (), index))}",
        )
        for color, (role, index) in asked.items()
        if index is not None
    ]
    if handles:  # beside the axis label, where nothing else is
        panels.add_legend(
            spectrum, handles, columns=2, loc="upper right", bbox_to_anchor=(1.0, -0.13)
        )
    if clip.text:
        # Sits above the words, so that the figure's own title stays free for whoever draws the
        # figure.
        part.suptitle(
            panels.shorten_text(clip.text, int((inches + 1.0) / 0.075)),
            size=LABEL_SIZE,
            parse_math=False,
        )


def sound_picture(clip: Clip, *, width: float = 9.0, height: float = 2.0) -> bytes:
    """Waveform above spectrogram without axes, as the bytes of a PNG file: the left edge is 0 s,
    the right one the end."""
    figure = Figure(figsize=(width, height), facecolor="white")
    wave, spectrum = figure.add_axes((0, 2 / 3, 1, 1 / 3)), figure.add_axes((0, 0, 1, 2 / 3))
    samples = clip.audio(_SAMPLE_RATE)
    _draw_wave(wave, samples)
    draw_spectrogram(None, spectrum, samples, len(samples) / _SAMPLE_RATE)
    draw_boundaries(clip, (wave, spectrum))
    for ax in (wave, spectrum):
        ax.set_axis_off()
    return panels.png_bytes(figure)


def _draw_wave(ax: Axes, samples: np.ndarray) -> None:
    times, low, high = waveform_envelope(samples, _SAMPLE_RATE)
    ax.fill_between(times, low, high, color="0.35", linewidth=0.3)
    loudest = max(float(np.abs(samples).max()), 1e-6)
    ax.set(
        xlim=(0, len(samples) / _SAMPLE_RATE),
        ylim=(-1.05 * loudest, 1.05 * loudest),
        yticks=[],
        xticks=[],
    )


def draw_spectrogram(
    part: Figure | SubFigure | None, ax: Axes, samples: np.ndarray, seconds: float
) -> None:
    """Mel spectrogram of samples at 16 kHz, with its colour bar in dB (not without a `part`, figure
    or subfigure)."""
    from librosa import mel_frequencies

    padded = np.pad(samples, (0, max(0, _FFT - len(samples))))
    power = mel_spectrogram(
        padded, _SAMPLE_RATE, n_fft=_FFT, window=_WINDOW, hop=_HOP, n_mels=_MELS, fmin=0, fmax=8000
    )
    level = np.maximum(
        10 * np.log10(np.maximum(power, _LEAST_POWER) / max(power.max(), _LEAST_POWER)), _LOWEST
    )
    cells = ax.pcolormesh(
        np.arange(len(power)) * _HOP / _SAMPLE_RATE,
        mel_frequencies(_MELS, fmin=0, fmax=8000),
        level.T,
        cmap=map_cells.SPECTROGRAM_COLORS,
        vmin=_LOWEST,
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
    if part is None:
        return
    bar = part.colorbar(cells, ax=ax, pad=0.02, fraction=0.08, aspect=9, ticks=[-80, -40, 0])
    bar.set_label("dB re loudest", size=LABEL_SIZE)
    bar.ax.tick_params(labelsize=TICK_SIZE, length=2, width=0.6)


def draw_boundaries(clip: Clip, axes: Sequence[Axes]) -> None:
    """Draw edges of words in each panel; cue and target shaded in their colours, and drawn last."""
    marked = {word: color for word, (_, color) in word_roles(clip).items()}
    words = list(enumerate(clip.words or ()))
    for index, word in sorted(words, key=lambda item: item[0] in marked):
        for ax, (start, end) in itertools.product(axes, word.intervals):
            ax.vlines(
                [start, end],
                0,
                1,
                transform=ax.get_xaxis_transform(),
                color=marked.get(index, "0.2"),
                linewidth=1.0 if index in marked else 0.5,
            )
            if index in marked:
                ax.axvspan(start, end, color=marked[index], alpha=0.22, linewidth=0)


def _flat(clip: Clip, inches: float) -> bool:
    """Whether the labels fit side by side above their words."""
    per_inch = clip.duration / inches
    halves = [
        panels.LETTER_WIDTH * (len(label) + 1) / 2 * per_inch for _, label, _ in _labels(clip)
    ]
    centres = [centre for _, _, centre in _labels(clip)]
    return all(
        centres[i] + halves[i] <= centres[j] - halves[j]
        for i, j in itertools.pairwise(range(len(centres)))
    )


def _labels(clip: Clip) -> list[tuple[int, str, float]]:
    """Which word, what to write and where in seconds, for each piece of each word: the parts of "ne
    … pas", a word twice."""
    labels = [
        (index, panels.shorten_text(part.text), (start + end) / 2)
        for index, part in list_parts(clip.words or ())
        for start, end in part.intervals
    ]
    return (
        sorted(labels, key=lambda label: label[2])
        if any(word.pieces for word in clip.words or ())
        else labels
    )


def label_words(wave: Axes, clip: Clip, inches: float) -> None:
    """Words above the waveform; where they are too dense even upwards, some are left out, but not
    cue and target."""
    wave.xaxis.tick_top()
    wave.tick_params(length=0, pad=2)
    if not clip.words:
        return
    marked, labels, flat = word_roles(clip), _labels(clip), _flat(clip, inches)
    gap, centres = panels.LINE_PITCH * clip.duration / inches, [centre for _, _, centre in labels]
    first = [
        place for word in marked for place, (index, _, _) in enumerate(labels) if index == word
    ]
    shown = range(len(labels)) if flat else unit_labels.choose_spaced(centres, gap, first=first)
    wave.set_xticks(
        [centres[i] for i in shown],
        [labels[i][1] for i in shown],
        size=TICK_SIZE,
        rotation=0 if flat else 90,
        parse_math=False,
    )
    for place, text in zip(shown, wave.get_xticklabels(), strict=True):
        if labels[place][0] in marked:
            text.set(color=marked[labels[place][0]][1], fontweight="bold")
