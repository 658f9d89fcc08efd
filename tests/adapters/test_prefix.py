"""Whisper's tasks: the decoder's prefix against transformers' own, what is fed behind it, and what
the model writes itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

import speechmix
from speechmix.adapters.generation.decoder_text import decoder_prefix, decoder_tokens
from speechmix.adapters.generation.greedy_generation import generate_greedily, transcribe
from speechmix.adapters.generation.text_tokens import generate_text
from speechmix.errors import InputError, SpeechmixError
from speechmix.extensions.synthetic_french.synthetic_corpus import log_likelihoods
from tests.conftest import WHISPER
from tests.scoring.test_mix import byte_tokenizer, clip_of, whisper_that_hears

N_TIMES = 101  # timestamp tokens of a window of two seconds
DECODER = "decoder", "cross"


@pytest.fixture(scope="module")
def whisper():
    """Tiny multilingual Whisper with timestamp tokens, as in real ones behind all other ids."""
    tokenizer = byte_tokenizer()
    return whisper_that_hears(tokenizer=tokenizer, vocab_size=len(tokenizer) + N_TIMES)


@pytest.fixture(scope="module")
def ids(whisper):
    return whisper.tokenizer.get_vocab()


def named(model, ids, *tokens: str) -> list[int]:
    return [ids[token] for token in tokens]


def test_a_clip_over_the_window_says_how_to_cut_it(whisper):
    clip = speechmix.Clip.from_array(
        np.ones(16_000 * 3, np.float32), 16_000, text="les", words=[("les", 0.1, 0.4)]
    )
    for ask in (speechmix.mix, speechmix.explain):
        with pytest.raises(
            InputError,
            match=r"3\.00 s of audio, but .* hears 2 s at a time.*clip\.cut\(.*--cut 0:2 on the",
        ):
            ask(whisper, clip)


class TestPrefix:
    @pytest.mark.parametrize(
        ("told", "expected"),
        [
            ({}, "<|startoftranscript|> <|fr|> <|transcribe|> <|notimestamps|>"),
            ({"task": "translate"}, "<|startoftranscript|> <|fr|> <|translate|> <|notimestamps|>"),
            ({"language": "en"}, "<|startoftranscript|> <|en|> <|transcribe|> <|notimestamps|>"),
            ({"timestamps": True}, "<|startoftranscript|> <|fr|> <|transcribe|>"),
            (
                {"task": "translate", "timestamps": True},
                "<|startoftranscript|> <|fr|> <|translate|>",
            ),
        ],
    )
    def test_ids(self, whisper, ids, told, expected):
        assert decoder_prefix(whisper.with_prefix(**told), clip_of()) == [
            ids[token] for token in expected.split()
        ]

    def test_the_model_is_another_in_name_and_fingerprint_and_shares_its_weights(self, whisper):
        told = whisper.with_prefix(task="translate", language="en", timestamps=True)
        assert told.name == f"{whisper.name} (translate, as en, timestamps)"
        assert told.module is whisper.module
        prints = {
            whisper.with_prefix(task=task).fingerprint for task in ("transcribe", "translate")
        }
        assert len({*prints, told.fingerprint}) == 3
        assert whisper.with_prefix().fingerprint == whisper.fingerprint
        assert told.with_prefix().name == whisper.name

    @pytest.mark.parametrize(
        ("told", "pattern"),
        [
            ({"task": "summarise"}, "task must be one of"),
            ({"language": "xx"}, "no language 'xx'; it has en, fr"),
        ],
    )
    def test_what_it_cannot_be_told(self, whisper, told, pattern):
        with pytest.raises(InputError, match=pattern):
            whisper.with_prefix(**told)

    def test_english_only(self):
        model = whisper_that_hears()
        model.module.generation_config.is_multilingual = False
        clip = clip_of(language=None)
        tokens = model.tokenizer.convert_ids_to_tokens(decoder_prefix(model, clip))
        assert tokens == ["<|startoftranscript|>", "<|notimestamps|>"]
        with pytest.warns(UserWarning, match="writes 'en' whatever is spoken: language='fr'"):
            assert decoder_prefix(model, clip_of(language="fr")) == decoder_prefix(model, clip)
        for told in ({"task": "translate"}, {"language": "fr"}):
            with pytest.raises(InputError, match="English-only"):
                model.with_prefix(**told)
        with pytest.raises(InputError, match="no timestamp tokens"):
            model.with_prefix(timestamps=True)

    def test_a_model_that_is_no_whisper(self):
        from tests.models.text_models import bart

        with pytest.raises(InputError, match=r"of a Whisper.*bart model"):
            bart().with_prefix(task="translate")


class TestFedBehindIt:
    def fed(self, whisper, text: str, before: list[int], after: tuple[int, ...] = ()):
        """Maps of the clip's sound with a hand-made decoder input."""
        written = whisper.tokenizer(f" {text}", add_special_tokens=False)["input_ids"]
        features = whisper.features(clip_of().audio(16_000))["input_features"].double()
        hand_made = torch.tensor([[*before, *written, *after]])
        return hand_made, {"input_features": features, "decoder_input_ids": hand_made}

    @pytest.mark.parametrize("timestamps", [False, True])
    @pytest.mark.parametrize("task", ["transcribe", "translate"])
    def test_logits_and_maps_are_those_of_hand_made_ids(self, whisper, ids, task, timestamps):
        clip = clip_of().replace(translation="the books")
        model = whisper.with_prefix(task=task, timestamps=timestamps)
        before = [ids[name] for name in ("<|startoftranscript|>", "<|fr|>", f"<|{task}|>")]
        times = [
            len(ids) + round(time / 0.02) for time in (0.10, 1.30)
        ]  # of the first word and the last
        before = [*before, times[0]] if timestamps else [*before, ids["<|notimestamps|>"]]
        text = "the books" if task == "translate" else clip.text
        hand_made, inputs = self.fed(whisper, text, before, tuple(times[1:]) if timestamps else ())
        prepared = model.family.prepare(model, clip, DECODER)
        assert prepared.inputs["decoder_input_ids"].tolist() == hand_made.tolist()
        with torch.no_grad():
            expected = whisper.module(**inputs).logits
            found = whisper.module(
                **{**prepared.inputs, "input_features": inputs["input_features"]}
            ).logits
        assert torch.equal(found, expected)
        maps = speechmix.mix(model, clip, stacks="decoder")["value_zeroing", "decoder"]
        plain = speechmix.mix(whisper, inputs, stacks="decoder", units="frame")[
            "value_zeroing", "decoder"
        ]
        np.testing.assert_allclose(maps.scores, plain.scores, atol=1e-12)
        assert maps.provenance["decoder_prefix"] == "".join(
            [
                *whisper.tokenizer.convert_ids_to_tokens(before[:3]),
                "<|0.10|>" if timestamps else "<|notimestamps|>",
            ]
        )
        assert maps.provenance.get("decoder_text") == ("the books" if task == "translate" else None)

    @pytest.mark.parametrize("timestamps", [False, True])
    def test_cue_and_target_are_found_behind_it(self, whisper, ids, timestamps):
        """The cue's column is the position that holds its token; the target's rows are one before
        those that hold its own."""
        clip, model = clip_of(cue=0), whisper.with_prefix(timestamps=timestamps)
        tokens, fed = decoder_tokens(model, clip), decoder_tokens(model, clip).ids
        cross = speechmix.mix(model, clip, stacks=DECODER)["value_zeroing", "cross"]
        decoder = speechmix.mix(model, clip, stacks=DECODER)["value_zeroing", "decoder"]
        columns = [span.start for span in decoder.sources if span.word == 0]
        rows = [span.start for span in cross.targets if span.word == 3]
        assert [fed[p] for p in columns] == [ids["Ġles"]]
        assert "".join(whisper.tokenizer.decode([fed[p + 1]]) for p in rows) == "livres"
        assert tokens.n_prefix == 4
        assert [span.kind for span in decoder.sources[:4]] == ["special"] * 4
        assert decoder.targets[-2].label == ("<|1.30|>" if timestamps else "s")
        assert speechmix.cue_contribution(decoder, cue=0, target=3).shape == (3,)

    def test_a_foil_decides_behind_timestamps_too(self, whisper):
        clip = clip_of().replace(foil="livre")
        model = whisper.with_prefix(timestamps=True)
        tokens = decoder_tokens(model, clip)
        assert whisper.tokenizer.decode([tokens.ids[tokens.deciding_index]]) == "s"
        assert tokens.foil_id == tokens.ids[-1]  # the timestamp, which would come at once

    def test_a_translation_has_words_of_its_own(self, whisper):
        """A word of the sound that occurs in the translation by chance is no row of it."""
        clip, model = (
            clip_of().replace(translation="les livres"),
            whisper.with_prefix(task="translate"),
        )
        maps = speechmix.mix(model, clip)
        assert {span.word for span in maps["value_zeroing", "cross"].targets} == {None}
        assert [span.label for span in maps["value_zeroing", "cross"].sources] == [
            "les",
            "amis",
            "les",
            "livres",
        ]
        assert maps["value_zeroing", "encoder"].scores.shape == (3, 4, 4)

    def test_what_is_about_the_text_that_is_said_refuses_a_translation(self, whisper):
        model = whisper.with_prefix(task="translate")
        with pytest.raises(InputError, match="told to translate"):
            log_likelihoods(model, clip_of(), ["les livres", "les livre"])
        with pytest.raises(SpeechmixError):
            speechmix.ablate(model, clip_of().replace(foil="livre", translation="the books"))


class TestWrittenByTheModel:
    def silent(self, **changes):
        return clip_of(text=None, words=None, cue=None, target=None, **changes)

    def test_transcript_is_greedy_and_fed_as_it_was_written(self, whisper):
        clip = self.silent()
        ids, n_prefix, _ = generate_greedily(whisper, clip)
        with torch.no_grad():
            inputs = {
                "input_features": whisper.features(clip.audio(16_000))["input_features"].double()
            }
            logits = whisper.module(**inputs, decoder_input_ids=torch.tensor([ids])).logits[0]
        assert logits[n_prefix - 1 : -1].argmax(-1).tolist() == ids[n_prefix:]
        maps = speechmix.mix(whisper, clip, units="frame")
        assert [stack for _, stack in maps] == ["encoder", "decoder", "cross"]
        cross = maps["value_zeroing", "cross"]
        assert len(cross.targets) == len(ids)
        assert cross.provenance["decoder_text"] == transcribe(whisper, clip, max_tokens=224)
        assert cross.provenance["decoder_text_by"].startswith("transcript of the model (")
        plain = speechmix.mix(whisper, {**inputs, "decoder_input_ids": [ids]}, stacks="decoder")
        np.testing.assert_allclose(
            maps["value_zeroing", "decoder"].scores,
            plain["value_zeroing", "decoder"].scores,
            atol=1e-12,
        )

    def test_it_is_written_once(self, whisper, monkeypatch):
        clip, model = self.silent(name="once"), whisper.with_prefix(language="en")
        first = generate_text(model, clip)
        monkeypatch.setattr(
            "speechmix.adapters.generation.greedy_generation.generate_greedily", None
        )
        assert generate_text(model, clip.with_name("the same sound")) is first

    def test_translation_where_none_is_given(self, whisper):
        model = whisper.with_prefix(task="translate")
        cross = speechmix.mix(model, clip_of(), stacks="cross")[
            "value_zeroing", "cross"
        ]  # its text is not what is written
        assert cross.provenance["decoder_text_by"].startswith("translation of the model (")
        assert cross.provenance["decoder_prefix"].endswith("<|translate|><|notimestamps|>")

    def test_timestamps_come_in_pairs_and_in_order(self, whisper, ids):
        fed, n_prefix, _ = generate_greedily(
            whisper.with_prefix(timestamps=True), self.silent(), max_tokens=12
        )
        assert fed[n_prefix] >= len(ids)
        times = [i for i in fed[n_prefix:] if i >= len(ids)]
        assert times == sorted(times)
        labels = speechmix.mix(
            whisper.with_prefix(timestamps=True), self.silent(), units="frame", stacks="decoder"
        )
        assert labels["value_zeroing", "decoder"].targets[2].label.startswith("<|")

    def test_an_untrained_twin_writes_nothing(self):
        whisper = whisper_that_hears()
        twin = speechmix.load(whisper.module, processor=whisper.tokenizer, init="random", seed=1)
        assert [stack for _, stack in speechmix.mix(twin, self.silent(), units="frame")] == [
            "encoder"
        ]
        with pytest.raises(InputError, match=r"random 1 writes none itself.*give text="):
            speechmix.mix(twin, self.silent(), units="frame", stacks="decoder")


class TestAgainstGenerate:
    """transformers' own `generate`, on a tiny model with Whisper's real vocabulary."""

    @pytest.fixture(scope="class")
    def real(self, multilingual_tokenizer_file):
        tokenizer = transformers.WhisperTokenizer(tokenizer_file=str(multilingual_tokenizer_file))
        ids = tokenizer.get_vocab()
        languages = {
            token: i for token, i in ids.items() if ids["<|en|>"] <= i < ids["<|translate|>"]
        }
        special = dict.fromkeys(
            ("bos_token_id", "eos_token_id", "pad_token_id"), ids["<|endoftext|>"]
        )
        special["decoder_start_token_id"] = ids["<|startoftranscript|>"]
        sizes = {
            "max_source_positions": 1500,
            "vocab_size": len(tokenizer),
            "encoder_layers": 1,
            "decoder_layers": 1,
        }
        config = transformers.WhisperConfig(**{**WHISPER, **special, **sizes})
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = transformers.WhisperForConditionalGeneration(config)
        with torch.no_grad():  # an untrained one would write timestamps where none are wanted
            module.model.decoder.embed_tokens.weight[ids["<|notimestamps|>"] + 1 :] = 0
        module.generation_config = transformers.GenerationConfig(
            **special,
            is_multilingual=True,
            lang_to_id=languages,
            task_to_id={task: ids[f"<|{task}|>"] for task in ("translate", "transcribe")},
            no_timestamps_token_id=ids["<|notimestamps|>"],
            return_timestamps=False,
            suppress_tokens=[1, 2, 7],
            begin_suppress_tokens=[220, ids["<|endoftext|>"]],
            max_initial_timestamp_index=50,
        )
        return speechmix.load(module, processor=tokenizer, check=False)

    @pytest.mark.parametrize(
        ("told", "generated"),
        [
            ({}, {}),
            ({"task": "translate"}, {"task": "translate"}),
            ({"language": "en"}, {"language": "en"}),
            (
                {"task": "translate", "timestamps": True},
                {"task": "translate", "return_timestamps": True},
            ),
        ],
        ids=["transcribe", "translate", "spoken as", "timestamps"],
    )
    def test_prefix_and_first_tokens(self, real, told, generated):
        model, clip, fed = real.with_prefix(**told), clip_of(), []
        hook = real.module.model.decoder.register_forward_pre_hook(
            lambda module, args, options: fed.append(options["input_ids"][0].tolist()),
            with_kwargs=True,
        )
        features = model.features(clip.audio(16_000))["input_features"]
        with torch.no_grad():
            real.module.generate(
                features, **{"language": "fr", "task": "transcribe", **generated}, max_new_tokens=4
            )
        hook.remove()
        assert decoder_prefix(model, clip) == fed[0]
        ids, n_prefix, _ = generate_greedily(model, clip, max_tokens=4)
        assert ids[n_prefix : n_prefix + 3] == [step[-1] for step in fed[1:4]]
