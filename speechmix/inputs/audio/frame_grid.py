"""Seconds <-> frames of a model's front end. The only module that converts between them.

In: the geometry of a front end (wav2vec2's convolutions, Whisper's fixed window) and the number of
samples of a clip. Out: a `FrameGrid`, which says where each encoder frame lies in time. Frame i of
wav2vec2 covers samples [320 i, 320 i + 400) and is centred at 20 i + 12.5 ms; frame i of Whisper is
centred at 20 i ms of a 30 s window. Times are seconds (float), positions are frames (int), ranges
are half-open.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import InputError

Seconds = float

# A time that lies within this many strides of a frame boundary lies on it: 0.14 / 0.02 is 7, not
# 7.000000000000001.
_ROUNDING_TOLERANCE = 1e-6


@dataclass(frozen=True)
class FrameGrid:
    """Where the encoder frames of one model input lie in time.

    There are `n_frames` frames (T), `stride` seconds apart, the first centred at `first_centre`
    seconds; `width` is the seconds of audio that a frame sees before any attention (its receptive
    field). The T frames stand for `duration` seconds: the clip's length, or, with `is_fixed_window`
    (Whisper), a window of 30 s that is padded where the clip is shorter. A frame has `bands`
    positions, one for each band of frequencies, behind `first_position` positions in front of all
    (AST: the frames of a band lie side by side, band after band).
    """

    n_frames: int
    stride: Seconds
    first_centre: Seconds
    width: Seconds
    duration: Seconds
    is_fixed_window: bool = False
    bands: int = 1
    first_position: int = 0

    @classmethod
    def from_convolutions(
        cls,
        n_samples: int,
        kernels: Sequence[int],
        strides: Sequence[int],
        sample_rate: int = 16_000,
    ) -> FrameGrid:
        """Grid of a stack of unpadded 1-d convolutions over the waveform (wav2vec2, HuBERT, WavLM,
        data2vec-audio).

        InputError if the audio is shorter than one frame.
        """
        n_frames, stride_samples, width = n_samples, 1, 1
        for kernel, stride in zip(kernels, strides, strict=True):
            n_frames = (n_frames - kernel) // stride + 1
            width += (kernel - 1) * stride_samples
            stride_samples *= stride
        if n_frames < 1:
            raise InputError(
                f"audio of {n_samples} samples is shorter than one frame of this model "
                f"({width} samples, {1000 * width / sample_rate:g} ms): use a longer clip"
            )
        return cls(
            n_frames=n_frames,
            stride=stride_samples / sample_rate,
            first_centre=width / 2 / sample_rate,
            width=width / sample_rate,
            duration=n_samples / sample_rate,
        )

    @classmethod
    def fixed_window(
        cls, n_frames: int, stride: Seconds = 0.02, width: Seconds = 0.065
    ) -> FrameGrid:
        """Grid of a model that always sees ``n_frames * stride`` seconds (Whisper: 1,500 frames of
        20 ms).

        The log-mel frames are centred (25 ms windows every 10 ms) and the second convolution takes
        every other one, so frame i is centred at ``i * stride`` and sees five mel frames: 65 ms.
        """
        return cls(n_frames, stride, 0.0, width, n_frames * stride, is_fixed_window=True)

    def group_frames(self, size: int, n_groups: int) -> FrameGrid:
        """Grid whose frames are so many neighbouring frames of this one each, from the first on.

        Examples
        --------
        >>> pairs = FrameGrid.fixed_window(1_500).group_frames(2, 750)
        >>> pairs.stride, pairs.centre(0), pairs.frames_between(0.0, 0.1)
        (0.04, 0.01, (0, 3))
        """
        extra_seconds = (size - 1) * self.stride
        centre = self.first_centre + extra_seconds / 2
        return FrameGrid(
            n_groups,
            size * self.stride,
            centre,
            self.width + extra_seconds,
            self.duration,
            self.is_fixed_window,
        )

    @property
    def n_positions(self) -> int:
        """Positions of the model that the frames take, with those in front of them."""
        return self.first_position + self.bands * self.n_frames

    def position_ranges(self, frames: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Half-open ranges of the positions of ranges of frames, one in each band.

        Examples
        --------
        >>> FrameGrid(10, 0.1, 0.05, 0.1, 1.0, bands=2, first_position=2).position_ranges([(3, 5)])
        [(5, 7), (15, 17)]
        """
        starts = [self.first_position + band * self.n_frames for band in range(self.bands)]
        return [(first + start, first + stop) for first in starts for start, stop in frames]

    def centre(self, frame: int) -> Seconds:
        """Seconds at the centre of a frame."""
        return self.first_centre + frame * self.stride

    def centres(self) -> np.ndarray:
        """Seconds at the centre of every frame, [T]."""
        return self.first_centre + self.stride * np.arange(self.n_frames)

    def frames_between(self, start: Seconds, end: Seconds) -> tuple[int, int]:
        """Half-open range of the frames whose centre lies in [start, end); empty if there is
        none."""
        first, stop = (self._first_centred_at_or_after(t) for t in (start, end))
        return first, max(first, stop)

    def frames_by_paper_rule(self, start: Seconds, end: Seconds) -> tuple[int, int]:
        """Half-open range of the published rule: [ceil(T start / D), ceil(T end / D) + 1), cut at
        T.

        The end frame is included, so neighbouring words share a frame (Mohebbi et al. 2023, their
        ``utils.py``).
        """
        first, last = (math.ceil(self.n_frames * t / self.duration) for t in (start, end))
        return first, min(last + 1, self.n_frames)

    def frame_times(self, start: int, stop: int) -> tuple[Seconds, Seconds]:
        """Seconds [from, to) that the frames [start, stop) stand for: half a stride either side of
        their centres."""
        edge = self.first_centre - self.stride / 2
        return max(0.0, edge + start * self.stride), max(0.0, edge + stop * self.stride)

    def _first_centred_at_or_after(self, seconds: Seconds) -> int:
        exact = (seconds - self.first_centre) / self.stride
        return min(max(math.ceil(exact - _ROUNDING_TOLERANCE), 0), self.n_frames)
