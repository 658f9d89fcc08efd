"""Word times from cross-attention: on clips whose times are known, by the bundled Whisper; and the
path by itself."""

import functools

import numpy as np
import pytest

import speechmix
from speechmix.alignment import align, whisper_attention
from speechmix.alignment.alignment_result import ATTENTION_NOT_CALIBRATED, without_calibration_note
from speechmix.alignment.whisper_attention import find_row_starts
from speechmix.errors import AlignmentError, InputError
from speechmix.inputs import bundled
from speechmix.inputs.words.timed_words import Word
from tests.conftest import build, trained

align_by_whisper = functools.partial(whisper_attention.align_by_whisper, language="fr")


@pytest.fixture(scope="module")
def whisper():
    return trained("tiny-french-whisper")


def test_words_of_clips_with_known_times(whisper):
    errors = []
    for clip in bundled.clips()[:20]:
        alignment = align_by_whisper(whisper, clip.audio(16_000), clip.text)
        assert [word.text for word in alignment.words] == [word.text for word in clip.words]
        assert all(
            0 <= word.start < word.end <= clip.duration and 0 <= word.score <= 1
            for word in alignment.words
        )
        errors += [abs(a.start - b.start) for a, b in zip(alignment.words, clip.words, strict=True)]
    assert (
        np.median(errors) < 0.08
    )  # three layers, trained on synthetic speech; the mean word lasts 0.35 s
    assert np.mean(np.array(errors) > 0.25) < 0.1


def test_wrong_token_order_would_be_noticed(whisper):
    """Rows are shifted by one against tokens: reading them unshifted puts words a token late."""
    clip = next(clip for clip in bundled.clips() if len(clip.words) >= 3)
    placed = align_by_whisper(whisper, clip.audio(16_000), clip.text).words
    assert placed[0].start < clip.words[0].end
    assert placed[-1].end > clip.words[-1].start


def test_silence_around_the_words_is_cut_off(whisper):
    for clip in bundled.clips()[:6]:
        audio = np.concatenate([np.zeros(8_000), clip.audio(16_000), np.zeros(8_000)]).astype(
            np.float32
        )
        words = align_by_whisper(whisper, audio, clip.text).words
        assert words[0].start > 0.4
        assert words[-1].end < len(audio) / 16_000 - 0.4


def test_align_takes_it_as_a_method(whisper):
    clip = bundled.clips()[0]
    plain = speechmix.Clip.from_array(clip.audio(16_000), 16_000, text=clip.text, language="fr")
    assert align(plain, model=whisper, method="whisper").alignment == "whisper"
    with pytest.raises(InputError, match="cross-attention"):
        align(plain, method="whisper")


def test_auto_says_that_it_does_not_use_a_whisper(whisper):
    pytest.importorskip("espeakng_loader")
    clip = bundled.clips()[1].replace(words=None, cue=None, target=None, foil=None)
    with pytest.warns(UserWarning, match="by synthesis, without the model; method='whisper' uses"):
        assert align(clip, model=whisper).alignment == "synthesis"


class TestDoubts:
    """By the share of attention, no border that is off is told from others: that is said once, for all clips."""

    @pytest.mark.parametrize("score", [0.28, 0.5, 0.79])
    def test_none_of_the_clips_own_by_scores_that_words_in_the_sound_have(self, score):
        doubts = whisper_attention.list_attention_doubts(
            [Word("les", 0.1, 0.2, score)], score, 0.25
        )
        assert doubts == (ATTENTION_NOT_CALIBRATED,)
        assert without_calibration_note(" ".join(doubts)) == ""

    def test_name_words_that_are_not_said(self, whisper):
        clip = bundled.clips()[1]
        text = f"{clip.text} quels légumes"
        alignment = align_by_whisper(whisper, clip.audio(16_000), text)
        low = [word.text for word in alignment.words if word.score < 0.2]
        assert low
        (doubt,) = [doubt for doubt in alignment.doubts if "may not be said" in doubt]
        assert all(word in doubt for word in low)

    def test_say_that_the_text_covers_a_part_of_the_sound(self, whisper):
        missing = []
        for clip in bundled.clips()[:20]:
            if len(clip.words) == 4:
                doubts = align_by_whisper(whisper, clip.audio(16_000), clip.words[0].text).doubts
                missing.append(any("belongs to no word of the text" in doubt for doubt in doubts))
        assert np.mean(missing) >= 0.5


def test_models_that_cannot_are_refused(whisper):
    audio = np.ones(16_000, np.float32)
    twin = speechmix.load(
        bundled.models()["tiny-french-whisper"], init="random", seed=0, device="cpu"
    )
    for model in (twin, speechmix.load(build("wav2vec2-post"))):
        with pytest.raises(AlignmentError, match="expected a trained Whisper"):
            align_by_whisper(model, audio, "les livres")
    with pytest.raises(AlignmentError, match="no words"):
        align_by_whisper(whisper, audio, "...")
    with pytest.raises(AlignmentError, match="tokens, but the audio only"):
        align_by_whisper(whisper, audio[:1_600], "les livres de la maison")


def test_row_starts_is_the_best_cut():
    """Against every possible cut."""
    from itertools import combinations

    rng = np.random.default_rng(0)
    for rows, frames in ((1, 4), (3, 7), (4, 4), (4, 9)):
        evidence = rng.standard_normal((rows, frames))
        best = max(
            ((0, *cut) for cut in combinations(range(1, frames), rows - 1)),
            key=lambda cut: sum(
                evidence[r, a:b].sum()
                for r, (a, b) in enumerate(zip(cut, (*cut[1:], frames), strict=True))
            ),
        )
        assert find_row_starts(evidence).tolist() == list(best)
