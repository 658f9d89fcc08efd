"""Words, silence and padding as ranges of frames."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speechmix.errors import InputError
from speechmix.inputs.audio.frame_grid import FrameGrid
from speechmix.inputs.words.spans import Word, context_spans, frame_spans, word_spans

KERNELS, STRIDES = (10, 3, 3, 3, 3, 2, 2), (5, 2, 2, 2, 2, 2, 2)
WAV2VEC2 = FrameGrid.from_convolutions(80_000, KERNELS, STRIDES)
WHISPER = FrameGrid.fixed_window(1500)
GRIDS = pytest.mark.parametrize("grid", [WAV2VEC2, WHISPER], ids=["wav2vec2", "whisper"])


def ranges(spans):
    return [(span.start, span.stop) for span in spans]


@GRIDS
def test_neighbours_share_no_frame_by_default_and_one_in_the_paper_rule(grid):
    words = [Word("les", 0.1, 0.2), Word("livres", 0.2, 0.24)]
    assert ranges(word_spans(words, grid)) == [(5, 10), (10, 12)]
    assert ranges(word_spans(words, grid, rounding="paper")) == [(5, 11), (10, 13)]


def test_spans_carry_label_index_and_times():
    span = word_spans([Word("les", 0.1, 0.2)], WHISPER)[0]
    assert (span.label, span.kind, span.word, span.onset, span.offset, len(span)) == (
        "les",
        "word",
        0,
        0.1,
        0.2,
        5,
    )


@GRIDS
def test_word_shorter_than_a_frame_gets_one_and_its_neighbour_gives_way(grid):
    words = [Word("il", 0.1, 0.2), Word("y", 0.2, 0.2), Word("a", 0.2, 0.3)]
    assert ranges(word_spans(words, grid)) == [(5, 10), (10, 11), (11, 15)]


def test_short_words_at_the_very_end_push_to_the_left():
    words = [Word("a", 4.0, 4.99), Word("b", 4.99, 4.995), Word("c", 4.995, 5.0)]
    assert ranges(word_spans(words, WAV2VEC2))[1:] == [(247, 248), (248, 249)]


@GRIDS
@pytest.mark.parametrize("rounding", ["disjoint", "paper"])
def test_last_word_may_touch_the_end(grid, rounding):
    span = word_spans([Word("fin", grid.duration - 0.1, grid.duration)], grid, rounding=rounding)[0]
    assert span.stop == grid.n_frames


def test_paper_rule_refuses_a_word_behind_its_last_frame():
    # ceil(249 x 4.99 / 5) = 249: the published code would average no frames at all
    with pytest.raises(InputError, match=r"'fin'.*past the last of 249 frames"):
        word_spans([Word("fin", 4.99, 5.0)], WAV2VEC2, rounding="paper")


@pytest.mark.parametrize("rounding", ["disjoint", "paper"])
def test_word_behind_the_window_is_refused(rounding):
    with pytest.raises(InputError, match=r"'loin' at 31\.000 s lies past"):
        word_spans([Word("loin", 31.0, 31.4)], WHISPER, rounding=rounding)


def test_more_words_than_frames():
    grid = FrameGrid.from_convolutions(800, KERNELS, STRIDES)
    with pytest.raises(
        InputError, match="3 words cannot have a frame each: the clip has only 2 frames"
    ):
        word_spans([Word(letter, 0.0, 0.01) for letter in "abc"], grid)


def test_unknown_rounding():
    with pytest.raises(InputError, match="'nearest'"):
        word_spans([], WHISPER, rounding="nearest")


def test_silence_and_padding_around_words():
    spans = word_spans([Word("les", 0.1, 0.2), Word("livres", 0.3, 0.5)], WHISPER)
    everything = context_spans(spans, WHISPER, 1.0)
    assert [span.kind for span in everything] == [
        "silence",
        "word",
        "silence",
        "word",
        "silence",
        "padding",
    ]
    assert ranges(everything) == [(0, 5), (5, 10), (10, 15), (15, 25), (25, 50), (50, 1500)]
    assert [span.word for span in everything] == [None, 0, None, 1, None, None]
    assert ranges(context_spans(spans, WHISPER, 1.0, include=["padding"])) == [
        (5, 10),
        (15, 25),
        (50, 1500),
    ]
    assert context_spans(spans, WHISPER, 1.0, include=[]) == spans


def test_no_padding_without_a_fixed_window():
    spans = word_spans([Word("les", 0.1, 0.2)], WAV2VEC2)
    assert ranges(context_spans(spans, WAV2VEC2, 5.0)) == [(0, 5), (5, 10), (10, 249)]


def test_unknown_context():
    with pytest.raises(InputError, match="noise"):
        context_spans([], WHISPER, 1.0, include=["noise"])


def test_every_frame_as_a_unit():
    spans = frame_spans(WAV2VEC2)
    assert ranges(spans) == [(i, i + 1) for i in range(249)]
    assert spans[0].kind == "frame"
    assert spans[1].label == "0.03"


@st.composite
def grids_and_words(draw):
    """Words in order that do not overlap, of any length including none, on a grid that has a frame
    for each."""
    seconds = draw(st.floats(0.5, 30.0))
    whisper = draw(st.booleans())
    grid = (
        WHISPER if whisper else FrameGrid.from_convolutions(int(seconds * 16_000), KERNELS, STRIDES)
    )
    n_words = draw(st.integers(1, min(20, grid.n_frames)))
    lengths = st.lists(st.integers(0, 50), min_size=2 * n_words + 1, max_size=2 * n_words + 1)
    edges = [0]
    for length in draw(lengths):
        edges.append(edges[-1] + length)
    scale = min(seconds, grid.duration) / max(edges[-1], 1)
    times = [edge * scale for edge in edges]
    return (
        grid,
        seconds,
        [Word(f"w{i}", times[2 * i + 1], times[2 * i + 2]) for i in range(n_words)],
    )


@settings(deadline=None, derandomize=True, max_examples=200)
@given(grids_and_words())
def test_disjoint_spans_hold_a_frame_each_in_order_inside_the_grid(case):
    grid, _, words = case
    spans = word_spans(words, grid)
    assert [span.word for span in spans] == list(range(len(words)))
    assert all(len(span) >= 1 for span in spans)
    assert all(before.stop <= after.start for before, after in itertools.pairwise(spans))
    assert spans[0].start >= 0
    assert spans[-1].stop <= grid.n_frames


@settings(deadline=None, derandomize=True, max_examples=200)
@given(grids_and_words())
def test_words_with_room_keep_exactly_the_frames_centred_in_them(case):
    grid, _, words = case
    natural = [grid.frames_between(word.start, word.end) for word in words]
    if all(start < stop for start, stop in natural):
        assert ranges(word_spans(words, grid)) == natural


@settings(deadline=None, derandomize=True, max_examples=200)
@given(grids_and_words())
def test_words_silence_and_padding_tile_the_grid(case):
    grid, seconds, words = case
    spans = context_spans(word_spans(words, grid), grid, seconds)
    assert [frame for span in spans for frame in range(span.start, span.stop)] == list(
        range(grid.n_frames)
    )
