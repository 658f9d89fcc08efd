"""CTC forced alignment on letter probabilities written by hand: known letters fire at known
frames."""

from __future__ import annotations

import itertools
import json
import string
import warnings
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
import transformers

import speechmix
from speechmix.adapters.generation.emission_paths import best_ctc_path
from speechmix.alignment import aligned_words
from speechmix.alignment.alignment_result import later_changes
from speechmix.alignment.ctc import align_by_ctc, has_ctc_head
from speechmix.errors import AlignmentError, InputError
from speechmix.inputs import bundled
from tests.conftest import build

LETTERS = ("<pad>", "<s>", "</s>", "<unk>", "|", "'", *string.ascii_lowercase)
SECONDS = 1.5
N_FRAMES = 74


class Head(torch.nn.Module):
    """A CTC head that has made up its mind: ``plan[frame]`` is the letter it hears there, blank
    elsewhere."""

    def __init__(self, vocabulary, plan, confidence=12.0):
        super().__init__()
        self.vocabulary, self.plan, self.confidence = vocabulary, plan, confidence

    def forward(self, states):
        logits = torch.zeros(1, states.shape[1], len(self.vocabulary), dtype=states.dtype)
        for frame in range(states.shape[1]):
            logits[0, frame, self.vocabulary[self.plan.get(frame, "<pad>")]] = self.confidence
        return logits


def tokenizer_of(folder, letters):
    (folder / "vocab.json").write_text(
        json.dumps({letter: index for index, letter in enumerate(letters)})
    )
    return transformers.Wav2Vec2CTCTokenizer(str(folder / "vocab.json"))


@pytest.fixture
def hearing(tmp_path):
    """``hearing({frame: letter})`` is a CTC model that hears just that."""

    def model_of(plan, letters=LETTERS, confidence=12.0):
        tokenizer = tokenizer_of(tmp_path, letters)
        processor = transformers.Wav2Vec2Processor(
            transformers.Wav2Vec2FeatureExtractor(), tokenizer
        )
        module = build(
            "wav2vec2-post", num_hidden_layers=1, vocab_size=len(letters), pad_token_id=0
        )
        model = speechmix.load(module, processor=processor)
        if plan is not None:
            said = {letter: i for letter, i in tokenizer.get_vocab().items() if i < len(letters)}
            model.module.lm_head = Head(said, plan, confidence)
        return model

    return model_of


AUDIO = np.random.default_rng(0).normal(scale=0.1, size=round(SECONDS * 16_000)).astype(np.float32)

# "les amis": l e s at 10, 12, 15; | at 18; a m i s at 30, 31 to 33, 36, 40
LES_AMIS = {
    10: "l",
    12: "e",
    15: "s",
    18: "|",
    30: "a",
    31: "m",
    32: "m",
    33: "m",
    36: "i",
    40: "s",
}


def frames_of(words, model):
    """First and last frame of each word, from its times."""
    grid = model.grid(len(AUDIO))
    return [
        (
            round((w.start - grid.first_centre) / 0.02 + 0.5),
            round((w.end - grid.first_centre) / 0.02 - 0.5),
        )
        for w in words
    ]


class TestTimes:
    def test_word_is_from_its_first_letter_to_its_last(self, hearing):
        model = hearing(LES_AMIS)
        found = align_by_ctc(model, AUDIO, "les amis")
        assert model.grid(len(AUDIO)).n_frames == N_FRAMES
        assert [word.text for word in found.words] == ["les", "amis"]
        assert frames_of(found.words, model) == [(10, 15), (30, 40)]
        # frame i is centred at 20 i + 12.5 ms, and stands for 10 ms either side
        assert found.words[0].start == pytest.approx(0.2025)
        assert found.words[0].end == pytest.approx(0.3225)
        assert found.method == "ctc"
        assert found.trusted

    def test_confident_letters_score_high(self, hearing):
        found = align_by_ctc(hearing(LES_AMIS), AUDIO, "les amis")
        assert found.score > 0.99
        assert all(word.score > 0.99 for word in found.words)

    def test_word_that_is_not_heard_scores_lower_than_the_others(self, hearing):
        found = align_by_ctc(hearing(LES_AMIS), AUDIO, "les gens")
        assert found.words[0].score > 0.99
        assert found.words[1].score < 0.5
        assert found.score < found.words[0].score

    def test_same_letter_twice_in_a_row_is_two_letters(self, hearing):
        plan = {5: "e", 6: "l", 8: "l", 10: "e", 20: "|", 30: "a"}
        model = hearing(plan)
        assert frames_of(align_by_ctc(model, AUDIO, "elle a").words, model) == [(5, 10), (30, 30)]

    def test_words_that_share_an_edge_letter_are_kept_apart_without_a_delimiter(self, hearing):
        letters = [
            letter for letter in LETTERS if letter != "|"
        ]  # the tokenizer adds one that the model cannot say
        model = hearing({5: "l", 7: "e", 9: "s", 20: "s", 22: "a", 24: "c"}, letters)
        assert frames_of(align_by_ctc(model, AUDIO, "les sac").words, model) == [(5, 9), (20, 24)]

    def test_word_at_the_very_ends(self, hearing):
        model = hearing({0: "o", 1: "n", 20: "|", 72: "v", 73: "a"})
        found = align_by_ctc(model, AUDIO, "on va")
        assert frames_of(found.words, model) == [(0, 1), (72, 73)]
        assert found.words[0].start >= 0
        assert found.words[-1].end <= SECONDS

    @pytest.mark.parametrize("text", ["Les amis!", "LES AMIS", "« les … amis »", "les, amis."])
    def test_capitals_and_punctuation_make_no_difference(self, hearing, text):
        model = hearing(LES_AMIS)
        found = align_by_ctc(model, AUDIO, text)
        assert frames_of(found.words, model) == [(10, 15), (30, 40)]
        assert [word.text for word in found.words] == aligned_words(text)
        assert found.trusted

    @pytest.mark.parametrize("text", ["les amis", "Les amis"])
    def test_vocabulary_of_capitals(self, hearing, text):
        letters = [letter.upper() if len(letter) == 1 else letter for letter in LETTERS]
        model = hearing({frame: letter.upper() for frame, letter in LES_AMIS.items()}, letters)
        assert frames_of(align_by_ctc(model, AUDIO, text).words, model) == [(10, 15), (30, 40)]

    @pytest.mark.parametrize("apostrophe", ["'", "’"])
    def test_apostrophe_is_a_letter_if_the_vocabulary_has_it(self, hearing, apostrophe):
        model = hearing({10: "l", 11: "'", 13: "a", 15: "m", 17: "i"})
        assert frames_of(align_by_ctc(model, AUDIO, f"l{apostrophe}ami").words, model) == [(10, 17)]


class TestLettersTheVocabularyLacks:
    @pytest.mark.parametrize(
        ("word", "plan"),
        [
            ("été", {10: "e", 13: "t", 16: "e"}),
            ("e\u0301te\u0301", {10: "e", 13: "t", 16: "e"}),
            ("Çà", {10: "c", 16: "a"}),
            ("œuf", {10: "o", 12: "e", 14: "u", 16: "f"}),
            ("Œuf", {10: "o", 12: "e", 14: "u", 16: "f"}),
        ],
    )
    def test_accents_and_ligatures_are_written_out(self, hearing, word, plan):
        model = hearing({**plan, 20: "|", 30: "v", 34: "u"})
        found = align_by_ctc(model, AUDIO, f"{word} vu")
        assert frames_of(found.words, model) == [(10, 16), (30, 34)]
        assert found.trusted

    def test_accent_is_kept_where_the_vocabulary_has_it(self, hearing):
        model = hearing({10: "é", 13: "t", 16: "é"}, [*LETTERS, "é"])
        assert frames_of(align_by_ctc(model, AUDIO, "été").words, model) == [(10, 16)]

    def test_word_of_digits_is_placed_between_its_neighbours_and_doubted(self, hearing):
        plan = {
            5: "l",
            7: "e",
            9: "s",
            12: "|",
            20: "h",
            22: "u",
            24: "i",
            26: "t",
            30: "|",
            40: "c",
            42: "h",
        }
        model = hearing(plan)
        found = align_by_ctc(model, AUDIO, "les 8 ch")
        (first, number, last) = frames_of(found.words, model)
        assert (first, last) == ((5, 9), (40, 42))
        assert 12 <= number[0] <= number[1] <= 30
        assert not found.trusted
        assert "'8'" in found.doubts[0]

    def test_letters_left_out_of_a_word_are_named(self, hearing):
        model = hearing({10: "b", 14: "m", 20: "|", 30: "v", 34: "a"})
        found = align_by_ctc(model, AUDIO, "b2m va")
        assert frames_of(found.words, model) == [(10, 14), (30, 34)]
        assert "2" in found.doubts[0]

    @pytest.mark.parametrize("word", ["b2", "b€", "b22", "b2!"])
    def test_letters_that_are_not_known_are_what_is_left_over_and_lower_the_score(
        self, hearing, word
    ):
        heard = {10: "b", 12: "e", 13: "u", 14: "e", 20: "|", 30: "v", 34: "a"}
        model = hearing(heard)
        found = align_by_ctc(model, AUDIO, f"{word} va")
        assert frames_of(found.words, model) == [(10, 14), (30, 34)]
        assert found.words[0].score <= 0.5 < 0.99 < found.words[1].score
        assert found.score > 0.99
        assert word in found.doubts[0]

    def test_one_letter_in_many_that_is_not_known_lowers_the_score(self, hearing):
        model = hearing({10 + 2 * i: letter for i, letter in enumerate("maisons")})
        (word,) = align_by_ctc(model, AUDIO, "mais0ns").words
        assert word.score <= 0.5

    def test_letters_left_out_are_named_beside_a_word_that_has_none(self, hearing):
        model = hearing({10: "b", 14: "m", 20: "|", 25: "x", 28: "|", 30: "v", 34: "a"})
        doubts = " ".join(align_by_ctc(model, AUDIO, "b2m 8 va").doubts)
        assert "'8'" in doubts
        assert "lacks" in doubts


def test_of_two_ways_that_are_alike_none_loses_to_a_worse_path():
    """A label that nothing sounds like can be at any frame, and costs one frame wherever it is."""
    logits = torch.zeros(74, 32)
    logits[:, 0] = 12
    for frame, label in {10: 7, 14: 18, 20: 4, 30: 27, 34: 6}.items():
        logits[frame] = torch.eye(32)[label] * 12
    frames, scores = best_ctc_path(logits.log_softmax(-1), [7, 5, 18, 4, 27, 6], blank=0)
    assert frames[2:] == [[14], [20], [30], [34]]
    assert scores.sum() == pytest.approx(-12, abs=0.1)


def test_path_is_the_best_of_all_paths():
    """Every path of six frames that spells the labels is tried."""
    random = np.random.default_rng(0)
    for labels in ([1], [1, 2], [2, 2], [1, 2, 1], [3, 3, 1]):
        log_probs = torch.from_numpy(np.log(random.dirichlet(np.ones(4), size=6))).float()
        frames, scores = best_ctc_path(log_probs, labels, blank=0)
        paths = [
            path
            for path in itertools.product(range(4), repeat=6)
            if [label for label, _ in itertools.groupby(path) if label] == labels
        ]
        sums = [float(log_probs[range(6), path].double().sum()) for path in paths]
        best_path = paths[int(np.argmax(sums))]
        label_runs = [
            [frame for frame, _ in run]
            for label, run in itertools.groupby(enumerate(best_path), key=lambda item: item[1])
            if label
        ]
        assert frames == label_runs
        assert scores.sum() == pytest.approx(max(sums), abs=1e-5)


def test_path_is_that_of_torchaudio():
    """Probabilities are drawn, so no two paths are alike, and its fault with ties does not show."""
    forced_align = pytest.importorskip("torchaudio.functional").forced_align
    random = np.random.default_rng(1)
    for _ in range(100):
        frame_count, label_count = random.integers(12, 60), random.integers(1, 6)
        log_probs = torch.from_numpy(np.log(random.dirichlet(np.full(8, 0.4), size=frame_count)))
        log_probs = log_probs.clamp(min=-30).float()
        labels = random.integers(1, 8, size=label_count)
        frames, _ = best_ctc_path(log_probs, labels.tolist(), blank=0)
        path, _ = forced_align(log_probs[None], torch.from_numpy(labels[None]).int(), blank=0)
        spelled = np.zeros(frame_count, dtype=int)
        for label, label_frames in zip(labels, frames, strict=True):
            spelled[label_frames] = label
        assert spelled.tolist() == path[0].tolist()


class TestDoubtsAndErrors:
    def test_more_letters_than_frames(self, hearing):
        with pytest.raises(AlignmentError, match=r"frames.*right text"):
            align_by_ctc(hearing(LES_AMIS), AUDIO, "anticonstitutionnellement " * 4)

    def test_repeated_letters_need_a_blank_between_them(self, hearing):
        """38 equal letters do not fit 74 frames: 37 blanks are between them."""
        message = "38 letters and needs a blank.* 37 times: 75 frames, but the audio only 74"
        with pytest.raises(AlignmentError, match=message):
            align_by_ctc(hearing(LES_AMIS), AUDIO, "a" * 38)

    @pytest.mark.parametrize("text", ["", "  ", "« … »"])
    def test_text_without_words(self, hearing, text):
        with pytest.raises(AlignmentError, match="no words"):
            align_by_ctc(hearing(LES_AMIS), AUDIO, text)

    def test_model_that_knows_nothing_is_doubted(self, hearing):
        model = hearing({}, confidence=0.0)
        found = align_by_ctc(model, AUDIO, "les amis")
        assert found.score == pytest.approx(1 / len(LETTERS), abs=1e-3)
        assert "fit badly" in found.doubts[-1]

    def test_model_that_would_rather_write_another_text_is_doubted(self, hearing):
        found = align_by_ctc(hearing(LES_AMIS), AUDIO, "les gens")
        assert "would write by itself" in found.doubts[-1]

    def test_unsure_model_that_would_write_the_text_has_low_scores_and_no_other_doubt(
        self, hearing
    ):
        found = align_by_ctc(hearing(LES_AMIS, confidence=4.0), AUDIO, "les amis")
        assert found.score < 0.7
        (doubt,) = found.doubts
        assert "below 0.75 (not calibrated): les (0.64), amis (0.64)" in doubt

    def test_random_model_is_doubted(self, hearing):
        model = hearing(None)
        twin = speechmix.load(model.module, init="random", seed=1, processor=model.tokenizer)
        twin.feature_extractor = model.feature_extractor
        twin.module.lm_head.weight.data *= (
            0.1  # freshly drawn heads are near even; the fixture's are not
        )
        assert not align_by_ctc(twin, AUDIO, "les amis").trusted

    @pytest.mark.parametrize("name", ["wav2vec2-stable", "whisper-80"])
    def test_model_without_a_ctc_head(self, hearing, name):
        tokenizer = hearing(None).tokenizer
        model = speechmix.load(build(name), processor=tokenizer)
        assert not has_ctc_head(model)
        with pytest.raises(AlignmentError, match=r"CTC head.*found W\w+.*synthesis"):
            align_by_ctc(model, AUDIO, "les amis")

    def test_ctc_model_without_its_tokenizer(self):
        model = speechmix.load(
            build("wav2vec2-post"), processor=transformers.Wav2Vec2FeatureExtractor()
        )
        with pytest.raises(AlignmentError, match="tokenizer"):
            align_by_ctc(model, AUDIO, "les amis")

    def test_half_precision_model_is_run_in_float32_and_given_back(self, hearing):
        model = hearing(LES_AMIS)
        model.module.half()
        before = {name: x.clone() for name, x in model.module.state_dict().items()}
        assert frames_of(align_by_ctc(model, AUDIO, "les amis").words, model) == [
            (10, 15),
            (30, 40),
        ]
        assert all(torch.equal(x, before[name]) for name, x in model.module.state_dict().items())


class TestBundledModel:
    """It knows synthetic voices alone."""

    @pytest.fixture(scope="class")
    def model(self):
        return speechmix.load(bundled.models()["tiny-french-ctc"], device="cpu")

    def test_on_its_own_clips_it_is_trusted_with_their_text_and_doubted_with_another(self, model):
        clips = bundled.clips()[:20:2]
        for clip, other in zip(clips, clips[1:] + clips[:1], strict=True):
            assert align_by_ctc(model, clip.audio(16_000), clip.text).trusted
            assert not align_by_ctc(model, clip.audio(16_000), other.text).trusted

    def test_a_voice_that_it_does_not_know_is_doubted(self, model):
        folder = Path(__file__).parents[2].parent / "shared/data/clips_fr"
        if not folder.is_dir():
            pytest.skip("the folder ../shared with recordings is absent")
        for name in (
            "allume_la_lumiere",
            "ferme_tous_les_volets",
            "supprime_le_minuteur",
            "lecture",
        ):
            audio, _ = soundfile.read(folder / f"{name}.wav", dtype="float32")
            assert not align_by_ctc(
                model, audio, name.replace("_", " ").replace("lumiere", "lumière")
            ).trusted


class TestAlignAClip:
    def clip(self, **options):
        return speechmix.Clip.from_array(AUDIO, 16_000, text="les amis", name="b", **options)

    @pytest.mark.parametrize("method", ["ctc", "auto"])
    def test_clip_gets_words_cue_and_target(self, hearing, method):
        clip = self.clip(cue="les", target="amis")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            aligned = speechmix.align(clip, model=hearing(LES_AMIS), method=method)
        assert [word.text for word in aligned.words] == ["les", "amis"]
        assert (aligned.cue, aligned.target) == (0, 1)
        assert (aligned.alignment, aligned.doubts) == ("ctc", ())
        assert clip.words is None

    def test_aligned_clip_is_scored(self, hearing):
        model = hearing(LES_AMIS)
        maps = speechmix.mix(model, speechmix.align(self.clip(), model=model))
        spans = [(span.start, span.stop) for span in maps["value_zeroing", "encoder"].sources]
        assert spans == [(10, 16), (30, 41)]
        assert maps["value_zeroing", "encoder"].provenance["alignment"] == "ctc"

    def test_doubts_are_warned_of_and_kept(self, hearing):
        with pytest.warns(UserWarning, match=r"'b'.*ctc.*fit badly"):
            aligned = speechmix.align(self.clip(), model=hearing({}, confidence=0.0), method="ctc")
        assert aligned.doubts

    def test_clip_with_words_stays_as_it_is(self, hearing):
        clip = self.clip(words=[("les", 0.1, 0.3), ("amis", 0.3, 0.9)])
        assert speechmix.align(clip, model=hearing({}), method="ctc") is clip

    def test_ctc_without_a_model(self):
        with pytest.raises(InputError, match="model="):
            speechmix.align(self.clip(), method="ctc")

    def test_unknown_method(self):
        with pytest.raises(InputError, match=r"auto.*ctc.*synthesis.*'mfa'"):
            speechmix.align(self.clip(), method="mfa")


def test_word_times_that_are_made_otherwise_now_are_made_again():
    """Those of synthesis in French are not: their cache key has not changed."""
    assert later_changes("auto", "fr", has_model=False) == {}
    assert later_changes("auto", "fr", has_model=True) == {"doubts": 3}
    assert later_changes("synthesis", "en", has_model=False) == {"doubts": 3}
    assert later_changes("whisper", None, has_model=True) == {"doubts": 4, "heads": 2}
