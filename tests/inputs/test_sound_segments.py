"""Segments of a sound in place of words: where they are, and that nobody takes their labels for
what is said."""

import numpy as np
import pytest

import speechmix
from speechmix import Clip
from speechmix.errors import InputError
from speechmix.inputs import bundled

RATE = 16_000


def noise(seconds=2.0, seed=0, **details):
    samples = np.random.default_rng(seed).normal(0, 0.1, round(seconds * RATE))
    return Clip.from_array(samples.astype(np.float32), RATE, **{"name": "noise", **details})


def edges(clip):
    return [(word.start, word.end) for word in clip.words]


def slow_edges(duration, seconds):
    """Segment after segment, until less than half of one is left."""
    found, start = [], 0.0
    while duration - start >= 1.5 * seconds - 1e-9:
        found.append((start, start + seconds))
        start += seconds
    return [*found, (start, duration)]


@pytest.mark.parametrize("seconds", [0.02, 0.1, 0.25, 0.3, 0.7, 1.0])
def test_equal_segments_are_those_of_a_slow_computation(seconds):
    for clip in (bundled.clips()[1], bundled.clips()[2], noise(2.0), noise(1.1)):
        if seconds > clip.duration:
            continue
        divided = speechmix.segment_clip(clip, seconds)
        np.testing.assert_allclose(edges(divided), slow_edges(clip.duration, seconds), atol=1e-6)


def test_the_clip_says_that_its_words_are_segments():
    clip = speechmix.segment_clip(noise(0.6))
    assert [word.text for word in clip.words] == ["0.00-0.25 s", "0.25-0.60 s"]
    assert (clip.alignment, clip.has_segments, clip.spoken_words) == ("segments", True, ())
    assert clip.text is None
    assert clip.fingerprint != clip.replace(words=clip.words).fingerprint  # as if they were said
    again = speechmix.segment_clip(clip, 0.3)
    assert again.text is None  # of labels there is no text
    spoken = bundled.clips()[1].replace(text=None)
    divided = speechmix.segment_clip(spoken, 0.5)
    assert (divided.text, divided.target, divided.foil, divided.cue) == (
        "nos maisons",
        None,
        None,
        None,
    )
    assert spoken.spoken_words == spoken.words
    assert divided.cut(0.5, 1.1).words is None


@pytest.mark.parametrize(
    "segments", [0, 0.0, -0.25, float("nan"), float("inf"), "abc", "", 2.5, 0.001, True, None, (1,)]
)
def test_what_cannot_be_a_segment_is_an_error(segments):
    with pytest.raises(InputError, match="expected segments as seconds, from"):
        speechmix.segment_clip(noise(2.0), segments)


def test_voice_finds_the_two_words_of_a_clip():
    clip = bundled.clips()[0].replace(cue=None, target=None, foil=None)
    words = [clip.cut(word.start, word.end).audio(RATE) for word in clip.words]
    rest = np.zeros(round(0.4 * RATE), np.float32)
    samples = np.concatenate([rest, words[0], rest, words[1], rest])
    found = edges(speechmix.segment_clip(Clip.from_array(samples, RATE), "voice"))
    first, second = (len(word) / RATE for word in words)
    expected = [(0.4, 0.4 + first), (0.8 + first, 0.8 + first + second)]
    np.testing.assert_allclose(found, expected, atol=0.06)
    with pytest.raises(InputError, match="digital silence"):
        speechmix.segment_clip(Clip.from_array(np.zeros(RATE), RATE), "voice")


def test_frames_are_those_of_the_model():
    clip = noise(1.0)
    assert len(speechmix.segment_clip(clip, "frames").words) == 49
    for name, count in (("tiny-french-ctc", 49), ("tiny-french-whisper", 50)):
        model = speechmix.load(bundled.models()[name])
        framed = speechmix.segment_clip(clip, "frames", grid=model.grid(len(clip.audio())))
        maps = speechmix.mix(model, framed, measures="attention", stacks="encoder")
        units = maps["attention", "encoder"].sources
        assert [len(span) for span in units if span.kind == "word"] == [1] * count
        assert edges(speechmix.segment_clip(clip, "frames"))[0][0] == 0.0


def test_a_muted_segment_is_exactly_its_range_of_samples():
    clip = speechmix.segment_clip(noise(2.0), 0.25)
    muted = speechmix.mute(clip, 3)
    assert muted.has_segments
    changed = np.flatnonzero(muted.audio(RATE) != clip.audio(RATE))
    assert (changed.min(), changed.max()) == (12_000, 15_999)
    assert not muted.audio(RATE)[12_000:16_000].any()


@pytest.mark.parametrize("text", [None, "nos maisons"])
def test_no_label_is_fed_to_a_decoder(text):
    model = speechmix.load(bundled.models()["tiny-french-whisper"])
    stacks = tuple(model.stacks)
    clip = noise(2.0, text=text, language="fr")
    divided = speechmix.segment_clip(clip, 0.25)
    expected = model.family.prepare(model, clip, stacks)
    for other in (divided, divided.replace(name="b"), speechmix.mute(divided, 0, fill="noise")):
        prepared = model.family.prepare(model, other, stacks)
        if other.audio_hash == clip.audio_hash or text:
            assert prepared.tokens.ids == expected.tokens.ids
        assert set(prepared.tokens.words) == {None}
        assert not any("-0." in label for label in prepared.tokens.labels)
