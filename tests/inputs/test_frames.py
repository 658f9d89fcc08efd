"""Seconds <-> frames, against values worked out by hand (frame i of wav2vec2 is centred at 20 i +
12.5 ms)."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speechmix.errors import InputError
from speechmix.inputs.audio.frame_grid import FrameGrid

KERNELS, STRIDES = (10, 3, 3, 3, 3, 2, 2), (5, 2, 2, 2, 2, 2, 2)
WAV2VEC2 = FrameGrid.from_convolutions(80_000, KERNELS, STRIDES)
WHISPER = FrameGrid.fixed_window(1500)


def test_geometry_of_wav2vec2():
    assert WAV2VEC2.n_frames == 249
    assert WAV2VEC2.stride == 0.02
    assert WAV2VEC2.width == 0.025
    assert WAV2VEC2.duration == 5.0
    assert not WAV2VEC2.is_fixed_window
    np.testing.assert_allclose(WAV2VEC2.centres()[:3], [0.0125, 0.0325, 0.0525])


def test_geometry_of_whisper():
    assert (WHISPER.n_frames, WHISPER.duration, WHISPER.is_fixed_window) == (1500, 30.0, True)
    np.testing.assert_allclose(WHISPER.centres()[[0, 1, -1]], [0.0, 0.02, 29.98])


@pytest.mark.parametrize(
    ("samples", "frames"), [(400, 1), (719, 1), (720, 2), (16_000, 49), (80_000, 249)]
)
def test_number_of_frames(samples, frames):
    # Frame i covers samples [320 i, 320 i + 400).
    assert FrameGrid.from_convolutions(samples, KERNELS, STRIDES).n_frames == frames


@pytest.mark.parametrize("samples", [0, 1, 399])
def test_audio_shorter_than_a_frame(samples):
    with pytest.raises(
        InputError, match=rf"{samples} samples is shorter than one frame .*400 samples, 25 ms"
    ):
        FrameGrid.from_convolutions(samples, KERNELS, STRIDES)


# Rounding rules of definitions 3.1 and 11.7. Disjoint: the frames whose centre lies in [start,
# end). Paper: [ceil(T start / D), ceil(T end / D) + 1), cut at T; D = 30 s and T = 1500 for
# Whisper, else the clip's own.
@pytest.mark.parametrize(
    ("grid", "start", "end", "disjoint", "paper"),
    [
        (WHISPER, 0.0, 0.1, (0, 5), (0, 6)),
        (WHISPER, 0.1, 0.2, (5, 10), (5, 11)),
        (WHISPER, 0.06, 0.12, (3, 6), (3, 7)),
        (WHISPER, 0.105, 0.205, (6, 11), (6, 12)),
        (WHISPER, 0.21, 0.219, (11, 11), (11, 12)),
        (WHISPER, 29.9, 30.0, (1495, 1500), (1495, 1500)),
        (WAV2VEC2, 0.0, 0.1, (0, 5), (0, 6)),  # 249 x 0.1 / 5 = 4.98
        (WAV2VEC2, 0.1, 0.2, (5, 10), (5, 11)),
        (
            WAV2VEC2,
            0.0,
            0.0125,
            (0, 0),
            (0, 2),
        ),  # half-open: the centre of frame 0 is not before its own time
        (WAV2VEC2, 0.0125, 0.0325, (0, 1), (1, 3)),
        (WAV2VEC2, 2.0, 2.5, (100, 125), (100, 126)),  # 99.6 and 124.5
        (
            WAV2VEC2,
            4.9,
            5.0,
            (245, 249),
            (245, 249),
        ),  # touches the end, where the published code runs over it
    ],
)
def test_rounding_rules(grid, start, end, disjoint, paper):
    assert grid.frames_between(start, end) == disjoint
    assert grid.frames_by_paper_rule(start, end) == paper


def test_contiguous_words_share_a_frame_only_in_the_paper_rule():
    for grid in (WHISPER, WAV2VEC2):
        assert grid.frames_between(0.1, 0.2)[1] == grid.frames_between(0.2, 0.4)[0]
        assert grid.frames_by_paper_rule(0.1, 0.2)[1] == grid.frames_by_paper_rule(0.2, 0.4)[0] + 1


def test_times_on_a_boundary_do_not_suffer_from_float_noise():
    # 0.14 / 0.02 is 7.000000000000001, 0.58 / 0.02 is 28.999999999999996
    for frame in range(1500):
        assert WHISPER.frames_between(frame * 0.02, frame * 0.02 + 0.02) == (frame, frame + 1)


def test_times_outside_the_grid_are_cut_to_it():
    assert WAV2VEC2.frames_between(-1.0, 99.0) == (0, 249)
    assert WAV2VEC2.frames_between(7.0, 8.0) == (249, 249)


def test_seconds_of_frames():
    assert WHISPER.frame_times(5, 10) == pytest.approx((0.09, 0.19))
    assert WHISPER.frame_times(0, 1) == pytest.approx((0.0, 0.01))  # never before the audio
    assert WAV2VEC2.frame_times(0, 1) == pytest.approx((0.0025, 0.0225))


grids = st.one_of(
    st.integers(400, 200_000).map(lambda n: FrameGrid.from_convolutions(n, KERNELS, STRIDES)),
    st.just(WHISPER),
)


@settings(deadline=None, derandomize=True)
@given(grid=grids, data=st.data())
def test_frames_to_seconds_and_back(grid, data):
    start = data.draw(st.integers(0, grid.n_frames - 1))
    stop = data.draw(st.integers(start + 1, grid.n_frames))
    assert grid.frames_between(*grid.frame_times(start, stop)) == (start, stop)


@settings(deadline=None, derandomize=True)
@given(grid=grids, data=st.data())
def test_seconds_to_frames_is_monotone_and_complete(grid, data):
    cuts = sorted(data.draw(st.lists(st.floats(0, grid.duration), min_size=1, max_size=8)))
    edges = [0.0, *cuts, grid.duration + grid.stride]
    ranges = [grid.frames_between(a, b) for a, b in itertools.pairwise(edges)]
    frames = [frame for start, stop in ranges for frame in range(start, stop)]
    assert frames == list(range(grid.n_frames))
