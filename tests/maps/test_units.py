"""Maps between phones and syllables; cue and target that are phones."""

import itertools
import warnings

import numpy as np
import pytest

import speechmix
from speechmix import Clip
from speechmix.errors import InputError
from speechmix.evaluation.cue_contribution import cue_contribution
from speechmix.inputs import bundled
from speechmix.inputs.words.timed_words import Word
from speechmix.runs.results.tidy_tables import list_share_rows


@pytest.fixture(scope="module")
def ctc():
    return speechmix.load("bundled:tiny-french-ctc")


@pytest.fixture(scope="module")
def whisper():
    return speechmix.load("bundled:tiny-french-whisper")


def with_phones(clip, **changes):
    """A phone for each letter, of equal lengths in each word: what is tested is not where they are."""
    phones = []
    for word in clip.words:
        edges = np.linspace(word.start, word.end, len(word.text) + 1)
        phones += [
            Word(letter, *pair) for letter, *pair in zip(word.text, edges, edges[1:], strict=False)
        ]
    syllables = [Word(word.text, word.start, word.end) for word in clip.words]
    return clip.replace(tiers={"phone": phones, "syllable": syllables}, **changes)


@pytest.fixture(scope="module")
def clip():
    return with_phones(bundled.clips()[0], cue="phone:e", target="phone:s")


def test_units_are_the_phones_with_their_words(ctc, clip):
    maps = speechmix.mix(ctc, clip, units="phone", measures="attention")
    encoder = maps["attention", "encoder"]
    assert [span.label for span in encoder.sources] == list("notremaison")
    assert [span.word for span in encoder.sources] == [0] * 5 + [1] * 6
    assert {span.kind for span in encoder.sources} == {"phone"}
    assert encoder.targets == encoder.sources


def test_pooled_over_the_frames_whose_centres_lie_in_a_phone(ctc, clip):
    """Attention between phones is the mean over pairs of frames."""
    frames = speechmix.mix(ctc, clip, units="frame", measures="attention")["attention", "encoder"]
    phones = speechmix.mix(ctc, clip, units="phone", measures="attention")["attention", "encoder"]
    centres = np.array([(span.onset + span.offset) / 2 for span in frames.sources])
    inside = [
        np.flatnonzero((centres >= phone.start - 1e-6) & (centres < phone.end - 1e-6))
        for phone in clip.tiers["phone"]
    ]
    expected = np.array(
        [[[layer[np.ix_(a, b)].mean() for b in inside] for a in inside] for layer in frames.scores]
    )
    np.testing.assert_allclose(phones.scores, expected, rtol=2e-5)


def test_syllables_like_words_give_the_maps_of_words(ctc, clip):
    syllables, words = (
        speechmix.mix(ctc, clip, units=units)["value_zeroing", "encoder"].scores
        for units in ("syllable", "word")
    )
    np.testing.assert_array_equal(syllables, words)


def test_the_decoder_reads_the_words(whisper, clip):
    """Phones, given or not, change no token and no map of the decoder."""
    of_words = speechmix.mix(whisper, clip.replace(tiers={}), measures="attention", units="word")
    of_phones = speechmix.mix(whisper, clip, measures="attention", units="phone")
    assert of_words["attention", "decoder"].targets == of_phones["attention", "decoder"].targets
    np.testing.assert_array_equal(
        of_words["attention", "decoder"].scores, of_phones["attention", "decoder"].scores
    )
    cross = of_phones["attention", "cross"]
    assert [span.label for span in cross.sources] == list("notremaison")
    assert cross.targets == of_words["attention", "cross"].targets


def test_words_that_are_phones_are_refused_by_a_decoder(ctc, whisper, clip):
    labels = ["ʃ", "a", "ə"]
    times = [(0.1, 0.3), (0.3, 0.5), (0.5, 0.9)]
    phones = [(label, *pair) for label, pair in zip(labels, times, strict=True)]
    wrong = Clip.from_array(clip.audio(), 16_000, name="w", words=phones, language="fr")
    with pytest.raises(InputError, match=r"its words are phones .* a decoder would read"):
        speechmix.mix(whisper, wrong, stacks="decoder")
    speechmix.mix(ctc, wrong, measures="attention")
    speechmix.mix(whisper, wrong.replace(text="chat"), stacks="decoder", measures="attention")


def test_cue_contribution_of_phones(ctc, whisper, clip):
    encoder = speechmix.mix(ctc, clip, units="phone")["value_zeroing", "encoder"]
    expected = encoder.normalized().scores[:, 8, 4]
    np.testing.assert_array_equal(
        cue_contribution(encoder, cue="phone:e", target="phone:s:1"), expected
    )
    rows = list_share_rows({("value_zeroing", "encoder"): encoder}, clip, ctc)
    assert [row["contribution"] for row in rows] == expected.tolist()
    assert {(row["cue"], row["target"]) for row in rows} == {("e", "s")}
    cross = speechmix.mix(whisper, clip, units="phone", stacks="cross")["value_zeroing", "cross"]
    is_target = [span.word == 1 for span in cross.targets]
    np.testing.assert_allclose(
        cue_contribution(cross, cue="phone:e", target="phone:s"),
        cross.normalized().scores[:, is_target, 4].mean(axis=1),
    )


def test_cue_of_a_word_is_the_sum_over_its_phones(ctc, clip):
    encoder = speechmix.mix(ctc, clip, units="phone")["value_zeroing", "encoder"]
    np.testing.assert_allclose(
        cue_contribution(encoder, cue="notre", target="maison"),
        encoder.normalized().scores[:, 5:, :5].sum(axis=2).mean(axis=1),
    )


def test_phones_are_not_in_maps_of_words(ctc, clip):
    encoder = speechmix.mix(ctc, clip, units="word")["value_zeroing", "encoder"]
    with pytest.raises(InputError, match="its units are larger: compute it with units='phone'"):
        cue_contribution(encoder, cue="phone:e", target="phone:s")
    assert list_share_rows({("value_zeroing", "encoder"): encoder}, clip, ctc) == []


def test_only_the_rows_of_the_target(ctc, clip):
    whole, rows = (
        speechmix.mix(ctc, clip, units="phone", targets=targets)["value_zeroing", "encoder"]
        for targets in (None, "target")
    )
    np.testing.assert_allclose(rows.scores[:, 0], whole.scores[:, 8], rtol=1e-5)


def test_no_phones(ctc, clip):
    with pytest.raises(InputError, match=r"has no phones, but no tiers: give tiers=\{'phone'"):
        speechmix.mix(ctc, clip.replace(tiers={}), units="phone")


def test_phones_shorter_than_a_frame_are_said(ctc, clip):
    phones = list(clip.tiers["phone"])
    first, second = phones[3:5]
    boundary = first.start + 0.004
    phones[3:5] = [Word("r", first.start, boundary), Word("e", boundary, second.end)]
    short = clip.replace(tiers={"phone": phones})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        encoder = speechmix.mix(ctc, short, units="phone", measures="attention")
    grid = ctc.grid(len(clip.audio(ctc.sample_rate)))
    count = sum(a == b for a, b in (grid.frames_between(p.start, p.end) for p in phones))
    messages = [
        str(warning.message) for warning in caught if "centre of no frame" in str(warning.message)
    ]
    assert bool(messages) == bool(count)
    assert all(f"{count} of 11 phones" in message for message in messages)
    sources = encoder["attention", "encoder"].sources
    assert all(len(span) >= 1 for span in sources)
    assert all(a.stop <= b.start for a, b in itertools.pairwise(sources))


def test_more_phones_than_frames_are_refused(ctc, clip):
    edges = np.linspace(0.3, 0.9, 200)
    phones = [Word("a", *pair) for pair in itertools.pairwise(edges)]
    many = clip.replace(words=None, tiers={"phone": phones}, cue=None, target=None, foil=None)
    with pytest.raises(InputError, match=r"199 phones cannot have a frame each"):
        speechmix.mix(ctc, many, units="phone")
