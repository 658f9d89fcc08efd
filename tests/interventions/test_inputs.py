"""Silence and blank: what takes a word's place is what it says, the rest stays, and input ablation
reads the margin of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import speechmix
from speechmix.errors import InputError
from speechmix.inputs.bundled import clips
from speechmix.interventions.decision import Decision
from speechmix.interventions.removals import (
    SOUND_FILLS,
    blank_tokens,
    fill_token_id,
    mute,
    token_fills,
)
from tests.conftest import trained
from tests.models.text_models import WORDS, bart, bert, gpt2

RATE = 16_000


@pytest.fixture
def clip():
    rng = np.random.default_rng(0)
    audio = 0.01 * rng.standard_normal(RATE).astype(np.float32)
    audio[3_200:6_400] += np.sin(2 * np.pi * 440 * np.arange(3_200) / RATE).astype(np.float32)
    audio[6_400:8_000] += 0.5
    words = [("les", 0.2, 0.4), ("beaux", 0.4, 0.5), ("livres", 0.6, 0.9)]
    return speechmix.Clip.from_array(
        audio, RATE, text="les beaux livres", words=words, cue="les", target="livres"
    )


class TestSound:
    @pytest.mark.parametrize("fill", SOUND_FILLS)
    def test_only_the_word_changes(self, clip, fill):
        before, after = clip.audio(RATE), mute(clip, fill=fill).audio(RATE)
        assert len(before) == len(after)
        assert np.array_equal(before[:3_200], after[:3_200])
        assert np.array_equal(before[6_400:], after[6_400:])
        assert not np.allclose(before[3_300:6_300], after[3_300:6_300])

    def test_zeros_are_zeros(self, clip):
        assert not mute(clip).audio(RATE)[3_200:6_400].any()

    def test_room_tone_is_the_clip_s_own(self, clip):
        filled = mute(clip, fill="room").audio(RATE)[3_300:6_300]
        assert 0.005 < filled.std() < 0.02  # as loud as where nobody speaks
        silent = clip.audio(RATE)[:3_200]
        assert np.isin(filled, silent).all()

    def test_noise_has_the_word_s_spectrum_and_loudness(self, clip):
        word, noise = (
            clip.audio(RATE)[3_200:6_400],
            mute(clip, fill="noise").audio(RATE)[3_200:6_400],
        )
        assert np.sqrt((noise**2).mean()) == pytest.approx(np.sqrt((word**2).mean()), rel=0.05)
        assert (
            np.abs(np.fft.rfft(noise)).argmax() == np.abs(np.fft.rfft(word)).argmax() == 88
        )  # 440 Hz
        again, other = (
            mute(clip, fill="noise", seed=seed).audio(RATE)[3_200:6_400] for seed in (0, 1)
        )
        assert np.array_equal(noise, again)
        assert not np.allclose(noise, other)

    def test_another_word_is_neither_cue_nor_target(self, clip):
        filled = mute(clip, fill="word").audio(RATE)[3_400:6_200]
        assert filled.mean() == pytest.approx(0.5, abs=0.01)  # "beaux", repeated

    def test_no_room_to_be_heard(self):
        words = [("les", 0.0, 0.5), ("livres", 0.5, 1.0)]
        full = speechmix.Clip.from_array(
            np.ones(RATE), RATE, text="les livres", words=words, cue="les", target="livres"
        )
        with pytest.raises(InputError, match="needs 30 ms outside words, found 0 ms"):
            mute(full, fill="room")

    @pytest.mark.parametrize(
        ("changes", "options", "said"),
        [
            ({}, {"fill": "cotton"}, "fill should be one of"),
            ({}, {"word": 9}, r"found 3 words, word=\[9\]"),
            ({"cue": None}, {}, r"word=\[None\]"),
        ],
    )
    def test_what_cannot_be_silenced(self, clip, changes, options, said):
        with pytest.raises(InputError, match=said):
            mute(clip.replace(**changes), **options)


class TestTokens:
    @pytest.mark.parametrize(
        ("fill", "token"), [("mask", "[MASK]"), ("unk", "[UNK]"), ("pad", "[PAD]")]
    )
    def test_a_token_takes_the_place(self, fill, token):
        model = bert()
        inputs = dict(model.tokenizer("the cats are here", return_tensors="pt"))
        changed, kept = blank_tokens(model, inputs, [2], fill=fill)
        assert changed["input_ids"][0].tolist()[2] == WORDS.index(token)
        assert kept == list(range(6))
        assert changed["attention_mask"][0].tolist()[2] == (fill != "pad")
        assert inputs["input_ids"][0, 2] == WORDS.index("cats")  # as it was

    @pytest.mark.parametrize("id_", [-1, len(WORDS)])
    def test_an_id_that_the_model_has_no_embedding_of_is_refused(self, id_):
        model = bert()
        assert fill_token_id(model, id_) is None
        with pytest.raises(InputError, match=f"no token of id {id_}"):
            blank_tokens(
                model, dict(model.tokenizer("the cats", return_tensors="pt")), [1], fill=id_
            )

    def test_removed_tokens_are_gone(self):
        model = bert()
        changed, kept = blank_tokens(
            model, dict(model.tokenizer("the cats are", return_tensors="pt")), [1, 2], fill="remove"
        )
        assert kept == [0, 3, 4]
        assert {name: tensor.shape[1] for name, tensor in changed.items()} == dict.fromkeys(
            changed, 3
        )

    def test_blank_gives_inputs_that_mix_takes(self):
        model = bert()
        inputs = speechmix.blank(model, "the cats are here", 1, fill="mask")
        assert (
            inputs["input_ids"].tolist()
            == model.tokenizer("the [MASK] are here", return_tensors="pt").input_ids.tolist()
        )
        assert ("attention", "encoder") in speechmix.mix(model, inputs, measures=["attention"])

    def test_of_a_clip_the_transcript_is_blanked(self):
        model, clip = trained("tiny-french-whisper"), clips()[0]
        inputs = speechmix.blank(model, clip)
        decision = Decision.prepare(model, clip)
        (cue,) = decision.select_sources("decoder", [clip.cue])
        assert inputs["decoder_input_ids"].shape[1] == len(
            decision.prepared.decoder_tokens.ids
        ) - len(cue.positions)

    @pytest.mark.parametrize(("word", "said"), [(None, "found word=None"), (9, "found word=9")])
    def test_a_word_that_is_not_there_cannot_be_blanked(self, word, said):
        with pytest.raises(InputError, match=said):
            speechmix.blank(bert(), "the cats are here", word)

    def test_a_model_that_is_fed_no_text(self):
        with pytest.raises(InputError, match="fed no text"):
            speechmix.blank(trained("tiny-french-ctc"), clips()[0])

    def test_a_model_has_the_fills_of_its_tokenizer(self):
        assert token_fills(bert()) == ("mask", "unk", "pad", "remove")
        with pytest.raises(InputError, match="has no mask token"):
            blank_tokens(
                trained("tiny-french-whisper"),
                {"input_ids": torch.tensor([[1, 2]])},
                [0],
                fill="mask",
            )


class TestInputAblation:
    def test_of_a_text_each_margin_is_that_of_the_changed_text(self):
        model = bert()
        table = speechmix.ablate_input(
            model, speechmix.Sentence("the cats are here", target="are", foil="is")
        ).table
        expected = Decision.prepare(
            model, speechmix.Sentence("the [UNK] are here", target="are", foil="is")
        )
        row = table[(table["label"] == "cats") & (table["intervention"] == "blank (unk)")].iloc[0]
        assert row["margin"] == pytest.approx(expected.margin, abs=1e-12)
        row = table[(table["label"] == "here") & (table["intervention"] == "blank (remove)")].iloc[
            0
        ]
        expected = Decision.prepare(
            model, speechmix.Sentence("the cats are", target="are", foil="is")
        )
        assert row["margin"] == pytest.approx(expected.margin, abs=1e-12)

    def test_removing_moves_the_position_that_is_read(self):
        model = gpt2()
        table = speechmix.ablate_input(
            model, speechmix.Sentence("so the cats are", target="are", foil="ape"), fills=["remove"]
        ).table
        row = table[table["label"] == "the"].iloc[0]
        without = speechmix.Sentence(
            "so  cats are", target="are", foil="ape"
        )  # a space is a token of no word
        assert row["margin"] == pytest.approx(Decision.prepare(model, without).margin, abs=1e-9)
        assert "are" not in table["label"].tolist()  # it holds the position that is read

    def test_of_a_translation_it_is_what_the_encoder_reads(self):
        sentence = speechmix.Sentence(
            "the cats", translation="les chats", target="chats", foil="chiens"
        )
        table = speechmix.ablate_input(bart(), sentence).table
        assert set(table["label"]) == {"the", "cats"}
        assert (table["drop"] != 0).all()

    def test_of_a_clip_sound_text_and_both(self):
        model, clip = trained("tiny-french-whisper"), clips()[0]
        drops = speechmix.ablate_input(model, clip, sides=["sound", "text", "both"])
        assert {name.split()[0] for name in drops.interventions} == {"mute", "blank"}
        assert "mute and blank (zeros + remove)" in drops.interventions
        silenced = drops.table.query("intervention == 'mute (zeros)' and word == @clip.cue").iloc[0]
        expected = Decision.prepare(model, mute(clip)).margin
        assert silenced["margin"] == pytest.approx(expected, abs=1e-5)
        assert drops.show().axes[0].get_yticklabels()[0].get_text() == "mute (zeros)"

    def test_a_fill_that_is_not_possible_is_left_out_unless_it_is_asked_for(self):
        words = [("notre", 0.0, 0.5), ("maison", 0.5, 1.0)]
        audio = np.random.default_rng(0).standard_normal(RATE).astype(np.float32)
        full = speechmix.Clip.from_array(
            audio,
            RATE,
            text="notre maison",
            words=words,
            cue="notre",
            target="maison",
            foil="maisons",
        )
        model = trained("tiny-french-ctc")
        with pytest.warns(UserWarning, match="skipped a fill: .*30 ms outside words"):
            drops = speechmix.ablate_input(model, full)
        assert drops.interventions == ["mute (zeros)", "mute (noise)", "mute (word)"]
        with pytest.raises(InputError, match="30 ms outside words"):
            speechmix.ablate_input(model, full, fills=["room"])

    def test_a_side_that_is_not_there(self):
        with pytest.raises(InputError, match=r"sides are \['text'\], found \['sound'\]"):
            speechmix.ablate_input(
                bert(), speechmix.Sentence("the cats are", target="are", foil="is"), sides=["sound"]
            )
