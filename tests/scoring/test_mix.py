"""mix(): what it takes, what it refuses and how it says so; clips through both kinds of model;
decoder indices."""

from __future__ import annotations

import numpy as np
import pytest
import soundfile
import torch
import transformers
from tokenizers.pre_tokenizers import ByteLevel

import speechmix
from speechmix.errors import InputError, SpeechmixError
from speechmix.inputs.words.spans import Span
from tests.conftest import WHISPER, build, inputs_of, tiny

MEASURES = ("value_zeroing", "attention", "attention_norm")
SPANS = [(3, 9), (9, 10), (12, 31)]
WORDS = [("les", 0.10, 0.28), ("amis", 0.28, 0.60), ("les", 0.70, 0.80), ("livres", 0.80, 1.30)]
SPECIAL = (
    "<|endoftext|>",
    "<|startoftranscript|>",
    "<|en|>",
    "<|fr|>",
    "<|translate|>",
    "<|transcribe|>",
    "<|notimestamps|>",
)


def audio(seconds=1.5, rate=16_000, channels=None):
    shape = round(seconds * rate) if channels is None else (round(seconds * rate), channels)
    return np.random.default_rng(0).normal(scale=0.1, size=shape).astype(np.float32)


def clip_of(
    seconds=1.5,
    *,
    words=WORDS,
    text="les amis les livres",
    cue=2,
    target=3,
    language="fr",
    name="clip",
):
    return speechmix.Clip.from_array(
        audio(seconds),
        16_000,
        text=text,
        words=words,
        cue=cue,
        target=target,
        language=language,
        name=name,
    )


def byte_tokenizer() -> transformers.WhisperTokenizer:
    """Byte-level tokens: letters one by one, except that " les" is one token."""
    merges = [("l", "e"), ("le", "s"), ("Ġ", "les")]
    tokens = [*sorted(ByteLevel.alphabet()), *("".join(pair) for pair in merges), *SPECIAL]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    return transformers.WhisperTokenizer(
        vocab=vocabulary, merges=merges, additional_special_tokens=list(SPECIAL[1:])
    )


def whisper_that_hears(seconds=2, tokenizer=None, **changes):
    """Tiny float64 Whisper with a window of a few seconds and its own tokenizer."""
    tokenizer = tokenizer or byte_tokenizer()
    ids = tokenizer.get_vocab()
    config = transformers.WhisperConfig(
        **{
            **WHISPER,
            "max_source_positions": 50 * seconds,
            "max_target_positions": 64,
            "vocab_size": len(ids),
            "num_mel_bins": 80,
            "decoder_start_token_id": ids["<|startoftranscript|>"],
            "bos_token_id": ids["<|endoftext|>"],
            "eos_token_id": ids["<|endoftext|>"],
            "pad_token_id": ids["<|endoftext|>"],
            **changes,
        }
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = transformers.WhisperForConditionalGeneration(config).double()
    return speechmix.load(module, processor=tokenizer)


@pytest.fixture(scope="module")
def encoder():
    """wav2vec2 with its feature extractor."""
    return speechmix.load(
        build("wav2vec2-stable").double(), processor=transformers.Wav2Vec2FeatureExtractor()
    )


@pytest.fixture(scope="module")
def whisper():
    return whisper_that_hears()


@pytest.fixture(scope="module")
def bare_whisper():
    """Whisper without a tokenizer, for prepared inputs."""
    return tiny("whisper-80")


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "pattern"),
        [
            (
                {"measures": "value_zero"},
                "unknown measure 'value_zero'.*value_zeroing.*attention_norm",
            ),
            (
                {"measures": ["attention", "rollout_of_dreams"]},
                "unknown measure 'rollout_of_dreams'",
            ),
            ({"measures": []}, "measure"),
            ({"stacks": "enc"}, r"encoder.*decoder.*cross.*asked for \['enc'\]"),
            ({"stacks": []}, "has the stacks"),
            ({"layers": [3]}, r"layers=\[3\].*counted from 0.*0 to 2"),
            ({"layers": [-1]}, r"counted from 0"),
            ({"layers": []}, r"counted from 0"),
            ({"layers": [0.5]}, r"layers=\[0.5\].*counted from 0"),
            ({"layers": "all"}, r"layers=\['all'\].*counted from 0"),
            ({"pooling": "sum"}, "pooling must be one of.*mean.*max.*'sum'"),
            (
                {"measures": "value_zeroing:distance=dot"},
                "distance must be one of.*cosine.*euclidean.*'dot'",
            ),
            ({"heads": "all"}, "heads must be one of.*mean.*each.*'all'"),
            ({"units": "phon"}, "units must be one of.*word.*phone.*frame.*'phon'"),
            ({"measures": "value_zeroing:engine=magic"}, "engine must be one of.*replay.*'magic'"),
            ({"dtype": "float65"}, "float32 or float64"),
            ({"measures": "value_zeroing:product_dtype=tf32"}, "tf32.*CUDA"),
            (
                {"measures": "value_zeroing:engine=replay,product_dtype=bfloat16"},
                "product_dtype.*delta",
            ),
            ({"clips_at_once": 0}, "clips_at_once.*at least 1.*0"),
            ({"distance": "euclidean"}, "measures='value_zeroing:distance=euclidean'"),
            ({"engine": "replay"}, "measures='value_zeroing:engine=replay'"),
            ({"product_dtype": "tf32"}, "measures='value_zeroing:product_dtype=tf32'"),
            ({"steps": 9}, "measures='integrated_gradients:steps=9'"),
            ({"baseline": "zero"}, "measures='integrated_gradients:baseline=zero'"),
            ({"prompt": "Who?"}, r"model\.with_prompt\('Who\?'\)"),
            ({"answer": "I"}, r"model\.with_prompt\(prompt, answer='I'\)"),
            ({"segments": 0.5}, r"speechmix\.segment_clip\(clip, 0\.5\)"),
            ({"batch_size": 9}, "batch_size any more: leave it out.*clips_at_once"),
            ({"targets": [60]}, r"targets=\[60\].*target units"),
            ({"targets": [-1]}, r"targets=\[-1\].*0 to 2"),
            ({"targets": []}, r"targets=\[\]"),
            ({"targets": "cue"}, "targets='cue'.*indices, or 'target'"),
            ({"targets": "target"}, "needs a target word, and the clip has none"),
            ({"spans": []}, "spans is empty.*None for every frame"),
            ({"spans": [(5, 5)]}, r"half-open \[start, stop\)"),
            ({"spans": [(0, 4), (9, 3)]}, r"span 1 should be half-open"),
            ({"spans": [(-1, 4)]}, "0 <= start"),
            ({"spans": [(1.5, 3.9)]}, r"span 0.*frames"),  # seconds, mistaken for frames
            ({"targets": {"decodr": [0]}}, "decodr"),
            ({"spans": [(50, 61)]}, r"\[50, 61\).*past its 60 positions"),
            ({"rounding": "floor"}, "rounding must be one of.*disjoint.*paper.*'floor'"),
            ({"include": ["noise"]}, "include takes 'silence' and 'padding'.*noise"),
        ],
        ids=lambda value: str(value) if isinstance(value, dict) else "",
    )
    def test_misspelt_or_impossible_option_says_what_there_is(self, bare_whisper, options, pattern):
        with pytest.raises(InputError, match=pattern):
            speechmix.mix(bare_whisper, inputs_of(bare_whisper), **{"spans": SPANS, **options})

    def test_half_precision_states_only_when_asked_and_with_a_warning(self):
        model = speechmix.load(build("wav2vec2-stable"), dtype="bfloat16", device="cpu")
        inputs = inputs_of(model)
        assert (
            speechmix.mix(model, inputs, spans=SPANS)["value_zeroing", "encoder"].provenance[
                "dtype"
            ]
            == "float32"
        )
        with pytest.warns(UserWarning, match="tens of percent"):
            found = speechmix.mix(model, inputs, spans=SPANS, dtype="bfloat16")[
                "value_zeroing", "encoder"
            ]
        assert found.scores.dtype == np.float32
        single = speechmix.load(build("wav2vec2-stable"), device="cpu")
        refused = pytest.raises(SpeechmixError, match="load it with dtype=")
        with refused, pytest.warns(UserWarning, match="states"):
            speechmix.mix(single, inputs, spans=SPANS, dtype="bfloat16")

    def test_stack_the_model_lacks(self, encoder):
        with pytest.raises(InputError, match=r"\['encoder'\]; asked for \['decoder'\]"):
            speechmix.mix(encoder, inputs_of(encoder), stacks="decoder")

    @pytest.mark.parametrize("stacks", ["decoder", "cross", ["encoder", "cross"]])
    def test_decoder_without_its_input(self, bare_whisper, stacks):
        inputs = {"input_features": inputs_of(bare_whisper)["input_features"]}
        with pytest.raises(InputError, match=r"decoder_input_ids.*stacks=\['encoder'\]"):
            speechmix.mix(bare_whisper, inputs, stacks=stacks, spans=SPANS)

    def test_encoder_alone_is_the_default_without_decoder_input(self, bare_whisper):
        inputs = {"input_features": inputs_of(bare_whisper)["input_features"]}
        assert list(speechmix.mix(bare_whisper, inputs, spans=SPANS)) == [
            ("value_zeroing", "encoder")
        ]

    def test_a_batch_gives_a_list_and_each_its_own_map(self, encoder):
        both = torch.cat([inputs_of(encoder, seed)["input_values"] for seed in (1, 2)])
        maps = speechmix.mix(encoder, {"input_values": both}, spans=SPANS)
        for seed, found in zip((1, 2), maps, strict=True):
            alone = speechmix.mix(encoder, inputs_of(encoder, seed), spans=SPANS)
            assert np.array_equal(
                found["value_zeroing", "encoder"].scores, alone["value_zeroing", "encoder"].scores
            )

    def test_empty_batch(self, encoder):
        with pytest.raises(InputError, match=r"one batch size.*0"):
            speechmix.mix(encoder, {"input_values": torch.zeros(0, 16_000)})

    def test_no_inputs(self, encoder):
        with pytest.raises(InputError, match=r"prepared inputs.*nothing"):
            speechmix.mix(encoder, {})

    def test_arrays_do_as_inputs(self, encoder):
        inputs = inputs_of(encoder)
        a = speechmix.mix(encoder, inputs, spans=SPANS)
        b = speechmix.mix(
            encoder, {name: x.numpy() for name, x in inputs.items()}, spans=np.array(SPANS)
        )
        np.testing.assert_array_equal(
            a["value_zeroing", "encoder"].scores, b["value_zeroing", "encoder"].scores
        )

    def test_maps_come_in_the_order_asked_for_and_hold_what_was_asked_for(self, bare_whisper):
        maps = speechmix.mix(bare_whisper, inputs_of(bare_whisper), spans=SPANS, measures=MEASURES)
        stacks = ("encoder", "decoder", "cross")
        assert list(maps) == [(measure, stack) for measure in MEASURES for stack in stacks]
        shapes = {"encoder": (3, 3, 3), "decoder": (3, 7, 7), "cross": (3, 7, 3)}
        for (measure, stack), found in maps.items():
            assert (found.measure, found.stack, found.layers) == (measure, stack, (0, 1, 2))
            assert found.scores.shape == shapes[stack]

    def test_key_that_is_not_there(self, encoder):
        maps = speechmix.mix(encoder, inputs_of(encoder), spans=SPANS)
        with pytest.raises(
            InputError,
            match=r"no map \('attention', 'encoder'\); there are \('value_zeroing', 'encoder'\)",
        ):
            maps["attention", "encoder"]
        assert ("attention", "encoder") not in maps
        assert len(maps) == 1

    def test_same_measure_twice_is_asked_for_once(self, encoder):
        maps = speechmix.mix(
            encoder, inputs_of(encoder), spans=SPANS, measures=["attention", "attention"]
        )
        assert maps["attention", "encoder"].scores.shape == (3, 3, 3)

    @pytest.mark.parametrize("layers", [[2], [2, 0], [0, 0, 1], np.array([1, 2])])
    def test_chosen_layers_are_those_of_the_whole_map(self, encoder, tmp_path, layers):
        whole = speechmix.mix(encoder, inputs_of(encoder), spans=SPANS)["value_zeroing", "encoder"]
        some = speechmix.mix(encoder, inputs_of(encoder), spans=SPANS, layers=layers)[
            "value_zeroing", "encoder"
        ]
        assert some.layers == tuple(sorted(set(map(int, layers))))
        np.testing.assert_array_equal(some.scores, whole.scores[list(some.layers)])
        np.testing.assert_array_equal(some.layer(some.layers[0]), whole.layer(some.layers[0]))
        assert (
            speechmix.MixingMap.load(some.save(tmp_path / "some.safetensors")).layers == some.layers
        )

    def test_layer_that_was_not_scored(self, encoder):
        found = speechmix.mix(encoder, inputs_of(encoder), spans=SPANS, layers=[1])[
            "value_zeroing", "encoder"
        ]
        with pytest.raises(InputError, match=r"no layer 0.*\[1\]"):
            found.layer(0)

    def test_float32_is_close_to_float64(self, bare_whisper):
        half = tiny("whisper-80", torch.float32)
        inputs = inputs_of(half)
        for key, found in speechmix.mix(half, inputs, spans=SPANS, measures=MEASURES).items():
            exact = speechmix.mix(half, inputs, spans=SPANS, measures=MEASURES, dtype="float64")[
                key
            ]
            assert (found.scores.dtype, exact.scores.dtype) == (np.float32, np.float64)
            assert np.abs(found.scores - exact.scores).max() <= 1e-4 * exact.scores.max()
        assert half.dtype == torch.float32

    def test_heads(self, encoder):
        each = speechmix.mix(
            encoder, inputs_of(encoder), spans=SPANS, measures=MEASURES, heads="each"
        )
        mean = speechmix.mix(encoder, inputs_of(encoder), spans=SPANS, measures=MEASURES)
        for key in each:
            assert each[key].scores.shape == (3, 4, 3, 3)
            assert each[key].has_heads
            assert not mean[key].has_heads
        np.testing.assert_allclose(
            each["attention", "encoder"].mean_heads().scores,
            mean["attention", "encoder"].scores,
            rtol=1e-12,
        )

    def test_provenance_says_what_was_done(self, encoder):
        options = {"pooling": "max", "heads": "each", "rounding": "paper"}
        measure = "value_zeroing:distance=euclidean"
        found = speechmix.mix(encoder, clip_of(), measures=measure, include=["silence"], **options)[
            measure, "encoder"
        ]
        expected = {
            **options,
            "distance": "euclidean",
            "include": ["silence"],
            "family": "wav2vec2",
            "init": "trained",
            "dtype": "float64",
        }
        assert expected.items() <= found.provenance.items()
        assert found.provenance["clip"] == "clip"
        assert "torch" in found.provenance["versions"]
        assert found.normalized().without("silence").provenance["steps"] == [
            "normalized",
            "without silence",
        ]


class TestClipIntoEncoder:
    def test_words_are_units_with_labels_and_times(self, encoder):
        found = speechmix.mix(encoder, clip_of())["value_zeroing", "encoder"]
        assert found.scores.shape == (3, 4, 4)
        assert (found.scores > 0).all()
        for spans in (found.targets, found.sources):
            assert [span.label for span in spans] == ["les", "amis", "les", "livres"]
            assert [(span.onset, span.offset) for span in spans] == [
                (start, end) for _, start, end in WORDS
            ]
            assert [span.word for span in spans] == [0, 1, 2, 3]

    def test_scores_are_those_of_prepared_inputs_with_the_same_spans(self, encoder):
        clip = clip_of()
        found = speechmix.mix(encoder, clip, measures=MEASURES)
        features = encoder.feature_extractor(
            clip.audio(), sampling_rate=16_000, return_tensors="pt"
        )
        spans = [(s.start, s.stop) for s in found["attention", "encoder"].targets]
        prepared = speechmix.mix(
            encoder, {"input_values": features["input_values"]}, spans=spans, measures=MEASURES
        )
        for key in found:
            np.testing.assert_array_equal(found[key].scores, prepared[key].scores)

    def test_paper_rounding_gives_neighbours_a_common_frame(self, encoder):
        grid = encoder.grid(24_000)
        found = speechmix.mix(encoder, clip_of(), rounding="paper")["value_zeroing", "encoder"]
        assert [(s.start, s.stop) for s in found.targets] == [
            grid.frames_by_paper_rule(a, b) for _, a, b in WORDS
        ]
        assert found.targets[0].stop == found.targets[1].start + 1

    def test_silence_and_words_cover_the_clip(self, encoder):
        found = speechmix.mix(encoder, clip_of(), include=("silence", "padding"))[
            "value_zeroing", "encoder"
        ]
        assert [s.label for s in found.sources] == [
            "<silence>",
            "les",
            "amis",
            "<silence>",
            "les",
            "livres",
            "<silence>",
        ]
        edges = [0, *(s.stop for s in found.sources)]
        assert [s.start for s in found.sources] == edges[:-1]
        assert edges[-1] == encoder.grid(24_000).n_frames
        only_words = speechmix.mix(encoder, clip_of())["value_zeroing", "encoder"]
        np.testing.assert_allclose(found.without("silence").scores, only_words.scores, rtol=1e-9)

    def test_frames_know_their_word(self, encoder):
        words = speechmix.mix(encoder, clip_of())["value_zeroing", "encoder"].targets
        found = speechmix.mix(encoder, clip_of(), units="frame")["value_zeroing", "encoder"]
        n_frames = encoder.grid(24_000).n_frames
        assert found.scores.shape == (3, n_frames, n_frames)
        for word in words:
            assert {s.word for s in found.targets[word.start : word.stop]} == {word.word}
        assert found.targets[0].word is None
        assert found.targets[0].kind == "frame"

    def test_frames_need_no_words(self, encoder):
        clip = speechmix.Clip.from_array(audio(0.2), 16_000)
        assert speechmix.mix(encoder, clip, units="frame")[
            "value_zeroing", "encoder"
        ].scores.shape == (3, 9, 9)

    def test_target_rows_alone(self, encoder):
        whole = speechmix.mix(encoder, clip_of(), measures=MEASURES)
        some = speechmix.mix(encoder, clip_of(), measures=MEASURES, targets="target")
        for key in whole:
            assert [span.word for span in some[key].targets] == [3]
            np.testing.assert_allclose(some[key].scores, whole[key].scores[:, [3]], rtol=1e-10)
            np.testing.assert_allclose(
                speechmix.cue_contribution(some[key], cue=2, target=3),
                speechmix.cue_contribution(whole[key], cue=2, target=3),
                rtol=1e-10,
            )

    def test_target_rows_of_frames(self, encoder):
        found = speechmix.mix(encoder, clip_of(), units="frame", targets="target")[
            "value_zeroing", "encoder"
        ]
        assert {span.word for span in found.targets} == {3}
        assert len(found.targets) == 25

    def test_several_clips_give_a_list(self, encoder):
        clips = [clip_of(name="a"), clip_of(1.6, name="b")]
        for several in (clips, iter(clips), tuple(clips)):
            found = speechmix.mix(encoder, several, progress=several is clips)
            assert [maps["value_zeroing", "encoder"].provenance["clip"] for maps in found] == [
                "a",
                "b",
            ]
        alone = speechmix.mix(encoder, clips[1])["value_zeroing", "encoder"].scores
        np.testing.assert_array_equal(found[1]["value_zeroing", "encoder"].scores, alone)

    def test_word_shorter_than_a_frame_has_one_frame_of_its_own(self, encoder):
        words = [("un", 0.10, 0.28), ("e", 0.28, 0.283), ("mot", 0.283, 0.60), ("h", 0.7, 0.703)]
        clip = clip_of(words=words, text="un e mot h", cue=1)
        found = speechmix.mix(encoder, clip)["value_zeroing", "encoder"]
        frames = [set(range(s.start, s.stop)) for s in found.targets]
        assert [len(f) for f in frames][1::2] == [1, 1]
        assert not any(a & b for i, a in enumerate(frames) for b in frames[:i])
        assert (found.scores > 0).all()

    def test_stereo_at_another_rate_is_averaged_and_resampled(self, encoder):
        clip = speechmix.Clip.from_array(audio(1.5, 44_100, channels=2), 44_100, words=WORDS)
        found = speechmix.mix(encoder, clip)["value_zeroing", "encoder"]
        assert found.scores.shape == (3, 4, 4)
        assert np.isfinite(found.scores).all()
        assert encoder.grid(len(clip.audio(16_000))).n_frames == encoder.grid(24_000).n_frames

    def test_silent_clip_is_scored(self, encoder):
        clip = speechmix.Clip.from_array(np.zeros(24_000), 16_000, words=WORDS)
        assert np.isfinite(speechmix.mix(encoder, clip)["value_zeroing", "encoder"].scores).all()

    def test_given_spans_come_before_the_words(self, encoder):
        found = speechmix.mix(encoder, clip_of(), spans=[Span(0, 3, "début", "word", 0), (10, 20)])
        assert [(s.start, s.stop) for s in found["value_zeroing", "encoder"].targets] == [
            (0, 3),
            (10, 20),
        ]


class TestClipRefused:
    def test_without_words(self, encoder):
        clip = speechmix.Clip.from_array(audio(), 16_000, text="les amis", name="b12")
        with pytest.raises(
            InputError, match=r"b12 has no word times.*speechmix\.align.*units='frame'"
        ):
            speechmix.mix(encoder, clip)

    @pytest.mark.parametrize(
        ("samples", "pattern"),
        [
            (np.zeros(0, np.float32), "0 samples"),
            (np.full(16_000, np.nan, np.float32), "NaN"),
            (np.r_[audio(), np.inf].astype(np.float32), "1 of 24001 that are NaN or infinite"),
        ],
        ids=["empty", "nan", "infinity"],
    )
    def test_unusable_audio(self, encoder, tmp_path, samples, pattern):
        with pytest.raises(InputError, match=pattern):
            speechmix.mix(encoder, speechmix.Clip.from_array(samples, 16_000, words=WORDS))
        soundfile.write(tmp_path / "bad.wav", samples, 16_000, subtype="FLOAT")
        with pytest.raises(InputError, match=pattern):
            speechmix.mix(encoder, speechmix.Clip.from_file(tmp_path / "bad.wav", words=WORDS))

    def test_audio_shorter_than_a_frame(self, encoder):
        clip = speechmix.Clip.from_array(audio(0.02), 16_000, words=[("a", 0.0, 0.02)])
        with pytest.raises(InputError, match="shorter than one frame"):
            speechmix.mix(encoder, clip)

    def test_word_past_the_end(self, encoder, tmp_path):
        soundfile.write(tmp_path / "short.wav", audio(1.0), 16_000)
        with pytest.raises(
            InputError, match=r"word 3 'livres'.*past the end of the audio \(1\.000 s\)"
        ):
            speechmix.mix(encoder, speechmix.Clip.from_file(tmp_path / "short.wav", words=WORDS))

    def test_more_words_than_frames(self, encoder):
        words = [(f"w{i}", i / 1000, (i + 1) / 1000) for i in range(60)]
        with pytest.raises(InputError, match=r"60 words cannot have a frame each.*9 frames"):
            speechmix.mix(encoder, speechmix.Clip.from_array(audio(0.2), 16_000, words=words))

    def test_longer_than_the_window_of_whisper(self):
        model = whisper_that_hears(30, encoder_layers=1, decoder_layers=1)
        clip = speechmix.Clip.from_array(audio(31), 16_000, words=WORDS, language="fr")
        with pytest.raises(InputError, match=r"31\.00 s of audio.*30 s.*clip\.cut"):
            speechmix.mix(model, clip)
        maps = speechmix.mix(model, clip.cut(0.0, 25.0), stacks="encoder", measures="attention")
        assert maps["attention", "encoder"].scores.shape == (1, 4, 4)

    def test_target_rows_without_a_target(self, encoder):
        clip = clip_of(cue=None, target=None)
        with pytest.raises(InputError, match="needs a target word, and the clip has none"):
            speechmix.mix(encoder, clip, targets="target")

    def test_model_without_a_feature_extractor(self):
        model = tiny("wav2vec2-post", torch.float32)
        with pytest.raises(SpeechmixError, match="processor="):
            speechmix.mix(model, clip_of())

    def test_decoder_of_a_model_without_a_tokenizer(self):
        model = speechmix.load(build("whisper-80", max_source_positions=100))
        assert list(speechmix.mix(model, clip_of())) == [("value_zeroing", "encoder")]
        with pytest.raises(
            InputError, match=r"without a tokenizer.*processor=.*stacks=\['encoder'\]"
        ):
            speechmix.mix(model, clip_of(), stacks=["cross"])

    def test_unknown_language(self, whisper):
        with pytest.raises(InputError, match=r"no language 'it'.*en, fr"):
            speechmix.mix(whisper, clip_of(language="it"))

    def test_random_twin_cannot_be_asked_for_the_language(self):
        model = whisper_that_hears()
        twin = speechmix.load(model.module, init="random", processor=model.tokenizer)
        with pytest.raises(InputError, match="language='fr'"):
            speechmix.mix(twin, clip_of(language=None))


class TestClipIntoWhisper:
    def test_three_stacks_of_words_and_tokens(self, whisper):
        maps = speechmix.mix(whisper, clip_of(), measures=MEASURES)
        for measure in MEASURES:
            assert maps[measure, "encoder"].scores.shape == (3, 4, 4)
            assert maps[measure, "decoder"].scores.shape == (3, 18, 18)
            assert maps[measure, "cross"].scores.shape == (3, 18, 4)

    def test_silence_and_padding_cover_the_window(self, whisper):
        maps = speechmix.mix(whisper, clip_of(), include=("silence", "padding"))
        for stack in ("encoder", "cross"):
            sources = maps["value_zeroing", stack].sources
            assert [s.kind for s in sources] == [
                "silence",
                "word",
                "word",
                "silence",
                "word",
                "word",
                "silence",
                "padding",
            ]
            assert [s.start for s in sources[1:]] == [s.stop for s in sources[:-1]]
            assert (sources[0].start, sources[-1].start, sources[-1].stop) == (0, 75, 100)
        assert "padding" not in {s.kind for s in maps["value_zeroing", "cross"].targets}

    def test_padding_alone(self, whisper):
        sources = speechmix.mix(whisper, clip_of(), include=["padding"])[
            "value_zeroing", "cross"
        ].sources
        assert [s.kind for s in sources] == ["word"] * 4 + ["padding"]

    def test_frames_of_the_whole_window(self, whisper):
        options = {"units": "frame", "stacks": ["encoder", "cross"], "measures": "attention"}
        maps = speechmix.mix(whisper, clip_of(), window=(0, 30), **options)
        assert maps["attention", "encoder"].scores.shape == (3, 100, 100)
        assert maps["attention", "cross"].scores.shape == (3, 18, 100)
        np.testing.assert_allclose(maps["attention", "cross"].scores.sum(-1), 1, rtol=1e-9)

    def test_paper_rounding(self, whisper):
        words = [
            ("les", 0.11, 0.27),
            ("amis", 0.27, 0.59),
            ("les", 0.71, 0.79),
            ("livres", 0.79, 1.31),
        ]
        found = speechmix.mix(
            whisper, clip_of(words=words), rounding="paper", stacks="cross", measures="attention"
        )
        frames = [(s.start, s.stop) for s in found["attention", "cross"].sources]
        assert frames == [(6, 15), (14, 31), (36, 41), (40, 67)]

    def test_clip_of_exactly_the_window(self, whisper):
        assert speechmix.mix(whisper, clip_of(2.0), stacks="encoder")[
            "value_zeroing", "encoder"
        ].scores.shape == (
            3,
            4,
            4,
        )

    def test_language_is_detected_by_a_trained_model(self, whisper):
        maps = speechmix.mix(whisper, clip_of(language=None), stacks="decoder")
        assert maps["value_zeroing", "decoder"].sources[1].label in ("<|fr|>", "<|en|>")

    def test_text_comes_from_the_words_if_there_is_none(self, whisper):
        a = speechmix.mix(whisper, clip_of(text=None), stacks="decoder")["value_zeroing", "decoder"]
        b = speechmix.mix(whisper, clip_of(), stacks="decoder")["value_zeroing", "decoder"]
        np.testing.assert_array_equal(a.scores, b.scores)
        assert a.sources == b.sources


class TestDecoderIndices:
    """Input position p holds token p and predicts token p + 1 (definitions 3.4).

    " les amis les livres" is, token by token, with the prefix at 0 to 3:
    4 " les"; 5 " ", 6-9 a m i s; 10 " les"; 11 " ", 12-17 l i v r e s.
    """

    prefix = ("<|startoftranscript|>", "<|fr|>", "<|transcribe|>", "<|notimestamps|>")

    def test_decoder_is_fed_the_prefix_and_the_text_without_the_end(self, whisper):
        found = speechmix.mix(whisper, clip_of(), stacks="decoder")["value_zeroing", "decoder"]
        labels = [*self.prefix, "les", "␣", *"amis", "les", "␣", *"livres"]
        assert [s.label.strip() for s in found.sources] == [label.strip() for label in labels]
        assert [s.label.strip() for s in found.targets] == [
            label.strip() for label in [*labels[1:], "<|endoftext|>"]
        ]
        assert [(s.start, s.stop) for s in found.sources] == [(p, p + 1) for p in range(18)]
        assert [s.kind for s in found.sources] == ["special"] * 4 + ["token"] * 14
        assert [s.kind for s in found.targets] == ["special"] * 3 + ["token"] * 14 + ["special"]

    def test_cue_columns_hold_the_cue_and_target_rows_predict_the_target(self, whisper):
        maps = speechmix.mix(whisper, clip_of(), stacks=["decoder", "cross"])
        for stack in ("decoder", "cross"):
            rows = [
                p for p, span in enumerate(maps["value_zeroing", stack].targets) if span.word == 3
            ]
            assert rows == [11, 12, 13, 14, 15, 16]
        columns = [span.word for span in maps["value_zeroing", "decoder"].sources]
        assert columns == [None] * 4 + [0] + [None] + [1] * 4 + [2] + [None] + [3] * 6

    def test_target_row_has_not_seen_the_token_it_predicts(self, whisper):
        """The first row of "livres" must be blind to what the word is; the row after it must
        not."""
        found = [
            speechmix.mix(
                whisper, clip_of(text=f"les amis les {noun}", words=[*WORDS[:3], (noun, 0.8, 1.3)])
            )
            for noun in ("livres", "savons")
        ]
        for stack in ("decoder", "cross"):
            a, b = (maps["value_zeroing", stack].scores for maps in found)
            row = next(
                p
                for p, span in enumerate(found[0]["value_zeroing", stack].targets)
                if span.word == 3
            )
            np.testing.assert_allclose(a[:, : row + 1], b[:, : row + 1], rtol=1e-9, atol=1e-15)
            assert np.abs(a[:, row + 1] - b[:, row + 1]).max() > 1e-6

    def test_target_row_is_where_the_models_loss_for_the_target_is(self, whisper):
        """Transformers shifts labels into decoder inputs; its logits at our rows are those of the
        target's tokens."""
        found = speechmix.mix(whisper, clip_of(), stacks="decoder")["value_zeroing", "decoder"]
        vocabulary = whisper.tokenizer.get_vocab()
        fed = [
            vocabulary[label]
            for label in (*self.prefix, "Ġles", "Ġ", *"amis", "Ġles", "Ġ", *"livres")
        ]
        labels = torch.tensor([[*fed[1:], vocabulary["<|endoftext|>"]]])
        features = torch.zeros(1, 80, 200, dtype=torch.double)
        with torch.no_grad():
            shifted = whisper.module(features, labels=labels)
            given = whisper.module(features, decoder_input_ids=torch.tensor([fed]))
        assert torch.equal(shifted.logits, given.logits)
        rows = [p for p, span in enumerate(found.targets) if span.word == 3]
        assert whisper.tokenizer.convert_ids_to_tokens(labels[0, rows]) == list("livres")

    def test_cue_contribution_is_that_of_the_right_les(self, whisper):
        found = speechmix.mix(whisper, clip_of(), stacks="decoder")["value_zeroing", "decoder"]
        shares = found.scores / found.scores.sum(axis=-1, keepdims=True)
        second = speechmix.cue_contribution(found, cue=2, target=3)
        first = speechmix.cue_contribution(found, cue=0, target=3)
        np.testing.assert_allclose(second, shares[:, 11:17, 10].mean(axis=1), rtol=1e-12)
        np.testing.assert_allclose(first, shares[:, 11:17, 4].mean(axis=1), rtol=1e-12)
        assert np.abs(first - second).max() > 1e-3

    def test_cue_of_several_tokens_is_summed(self, whisper):
        found = speechmix.mix(whisper, clip_of(), stacks="decoder")["value_zeroing", "decoder"]
        shares = found.scores / found.scores.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(
            speechmix.cue_contribution(found, cue=1, target=2),
            shares[:, 9, 6:10].sum(axis=1),
            rtol=1e-12,
        )

    def test_special_tokens_can_be_dropped_first(self, whisper):
        found = speechmix.mix(whisper, clip_of(), stacks="decoder")["value_zeroing", "decoder"]
        text = found.scores[:, :, 4:]
        shares = text[:, 11:17] / text[:, 11:17].sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(
            speechmix.cue_contribution(found, cue=2, target=3, drop=("special",)),
            shares[..., 6].mean(axis=1),
            rtol=1e-12,
        )

    @pytest.mark.parametrize(
        ("text", "columns"),
        [
            (
                "Les amis, les livres.",
                {0: [5, 6, 7], 1: [9, 10, 11, 12], 2: [14], 3: [16, 17, 18, 19, 20, 21]},
            ),
            ("« les amis » les livres", {2: [18]}),
        ],
    )
    def test_punctuation_and_capitals_of_the_text_do_not_matter(self, whisper, text, columns):
        """The lone " " before a capital, the comma and the stop belong to no word."""
        found = speechmix.mix(whisper, clip_of(text=text), stacks="decoder")[
            "value_zeroing", "decoder"
        ]
        for word, expected in columns.items():
            positions = [p for p, span in enumerate(found.sources) if span.word == word]
            if text[0] == "L":
                assert positions == expected
            else:
                assert [found.sources[p].label for p in positions] == ["les"]
                assert positions[0] > max(
                    p for p, span in enumerate(found.sources) if span.word == 1
                )

    def test_les_inside_another_word_is_not_the_cue(self, whisper):
        words = [("bles", 0.1, 0.3), ("les", 0.3, 0.5), ("sels", 0.5, 0.9)]
        clip = clip_of(text="bles les sels", words=words, cue=1, target=2)
        found = speechmix.mix(whisper, clip, stacks="decoder")["value_zeroing", "decoder"]
        assert [(p, s.label) for p, s in enumerate(found.sources) if s.word == 1] == [(7, "les")]

    def test_word_that_is_not_in_the_text(self, whisper):
        clip = clip_of(text="les amis")
        with pytest.raises(InputError, match=r"the (cue|target) .* is not in the text 'les amis'"):
            speechmix.mix(whisper, clip, stacks="decoder")
        clip = clip.replace(cue=None, target=None, foil=None)
        found = speechmix.mix(whisper, clip, stacks="decoder")["value_zeroing", "decoder"]
        with pytest.raises(InputError, match=r"word 3 \(target\).*in its text"):
            speechmix.cue_contribution(found, cue=0, target=3)

    def test_target_rows_alone(self, whisper):
        whole = speechmix.mix(whisper, clip_of())
        some = speechmix.mix(whisper, clip_of(), targets="target")
        for (measure, stack), found in some.items():
            rows = [3] if stack == "encoder" else list(range(11, 17))
            np.testing.assert_allclose(
                found.scores, whole[measure, stack].scores[:, rows], rtol=1e-9, atol=1e-16
            )
            np.testing.assert_allclose(
                speechmix.cue_contribution(found, cue=2, target=3),
                speechmix.cue_contribution(whole[measure, stack], cue=2, target=3),
                rtol=1e-9,
            )

    def test_prepared_inputs_label_tokens_but_know_no_words(self, whisper):
        ids = torch.tensor([[260, 262, 264, 265, 258]])
        inputs = {"input_features": torch.zeros(1, 80, 200), "decoder_input_ids": ids}
        found = speechmix.mix(whisper, inputs, spans=SPANS)["value_zeroing", "decoder"]
        assert [s.label for s in found.sources] == [*self.prefix, " les"]
        assert [s.label for s in found.targets] == [*self.prefix[1:], " les", "<next>"]
        assert {s.word for s in (*found.sources, *found.targets)} == {None}
        assert [s.kind for s in found.sources] == ["special"] * 4 + ["token"]


class TestCueContribution:
    def map_of(self, scores, words=(0, 1, 2), kinds=("word",) * 3):
        spans = tuple(
            Span(i, i + 1, f"w{i}", kind, word)
            for i, (word, kind) in enumerate(zip(words, kinds, strict=True))
        )
        scores = np.asarray(scores, dtype=float)
        return speechmix.MixingMap(
            scores, spans, spans, "value_zeroing", "encoder", tuple(range(len(scores)))
        )

    def test_share_of_one_row(self):
        found = speechmix.cue_contribution(
            self.map_of([[[1, 1, 1], [2, 4, 2], [6, 3, 1]]]), cue=0, target=2
        )
        np.testing.assert_allclose(found, [0.6])

    def test_columns_of_a_cue_are_summed_and_rows_of_a_target_averaged(self):
        scores = [[[1, 2, 1], [1, 1, 2], [3, 3, 4]]]
        found = speechmix.cue_contribution(self.map_of(scores, words=(0, 0, 1)), cue=0, target=1)
        np.testing.assert_allclose(found, [0.6])
        found = speechmix.cue_contribution(self.map_of(scores, words=(0, 0, 1)), cue=1, target=0)
        np.testing.assert_allclose(found, [(1 / 4 + 2 / 4) / 2])

    def test_heads_are_normalised_first_and_averaged_after(self):
        """Raw mean first would give (9 + 1) / (10 + 2 + ...) = 10/14; the published order gives
        (9/12 + 1/2) / 2."""
        rows = [[[1, 1, 1], [1, 1, 1], [9, 2, 1]], [[1, 1, 1], [1, 1, 1], [1, 0.5, 0.5]]]
        found = speechmix.cue_contribution(self.map_of([rows]), cue=0, target=2)
        np.testing.assert_allclose(found, [(9 / 12 + 1 / 2) / 2])
        other_order = speechmix.cue_contribution(self.map_of([rows]).mean_heads(), cue=0, target=2)
        np.testing.assert_allclose(other_order, [10 / 14])

    def test_silence_and_padding_are_left_out_before_rows_are_normalised(self):
        scores = [[[1, 1, 1, 1], [2, 5, 2, 91], [0, 0, 0, 0], [0, 0, 0, 0]]]
        found = self.map_of(
            scores, words=(0, 1, None, None), kinds=("word", "word", "silence", "padding")
        )
        np.testing.assert_allclose(speechmix.cue_contribution(found, cue=0, target=1), [2 / 7])
        np.testing.assert_allclose(
            speechmix.cue_contribution(found, cue=0, target=1, drop=()), [2 / 100]
        )
        np.testing.assert_allclose(
            speechmix.cue_contribution(found, cue=0, target=1, drop=("padding",)), [2 / 9]
        )

    def test_row_of_zeros_gives_zero(self):
        found = speechmix.cue_contribution(self.map_of(np.zeros((2, 3, 3))), cue=0, target=2)
        assert (found == 0).all()

    def test_contributions_of_all_words_sum_to_one(self):
        scores = np.random.default_rng(0).random((4, 3, 3))
        total = sum(
            speechmix.cue_contribution(self.map_of(scores), cue=cue, target=1) for cue in range(3)
        )
        np.testing.assert_allclose(total, 1)

    def test_normalised_map_gives_the_same(self):
        raw = self.map_of(np.random.default_rng(0).random((4, 3, 3)))
        np.testing.assert_allclose(
            speechmix.cue_contribution(raw, cue=0, target=1),
            speechmix.cue_contribution(raw.normalized(), cue=0, target=1),
        )

    @pytest.mark.parametrize(
        ("cue", "target", "pattern"),
        [
            (None, 1, "cue is not given"),
            (0, None, "target is not given"),
            (7, 1, "word 7.*cue"),
            (0, 5, "word 5.*target"),
        ],
    )
    def test_missing_word_is_named(self, cue, target, pattern):
        with pytest.raises(InputError, match=pattern):
            speechmix.cue_contribution(self.map_of(np.ones((1, 3, 3))), cue=cue, target=target)

    def test_spans_of_prepared_inputs_are_counted(self, encoder):
        found = speechmix.mix(encoder, inputs_of(encoder), spans=SPANS)["value_zeroing", "encoder"]
        shares = found.normalized().scores
        np.testing.assert_allclose(
            speechmix.cue_contribution(found, cue=1, target=2), shares[:, 2, 1]
        )


class TestWrongThings:
    """What a user passes by mistake gets an answer in the package's own words."""

    def test_a_path_instead_of_a_clip(self, encoder):
        with pytest.raises(InputError, match=r"Clip\.from_file"):
            speechmix.mix(encoder, "a.wav")

    def test_inputs_of_another_model(self, encoder):
        with pytest.raises(InputError, match="takes 'input_values' as floating-point numbers"):
            speechmix.mix(encoder, {"input_ids": torch.ones(1, 4, dtype=torch.long)})
        with pytest.raises(InputError, match=r"found input_values \(torch.int64\)"):
            speechmix.mix(encoder, {"input_values": torch.ones(1, 4000, dtype=torch.long)})

    def test_prepared_inputs_with_nan(self, encoder):
        with pytest.raises(InputError, match="NaN or infinity"):
            speechmix.mix(encoder, {"input_values": torch.full((1, 4000), torch.nan)})

    def test_one_layer_and_one_target_need_no_list(self, encoder):
        found = speechmix.mix(encoder, inputs_of(encoder), spans=SPANS, layers=1, targets=2)
        assert found["value_zeroing", "encoder"].scores.shape == (1, 1, 3)

    @pytest.mark.parametrize("device", ["gpu", "cuda:99"])
    def test_a_device_that_is_not_there(self, device):
        with pytest.raises(InputError, match="device should be"):
            speechmix.load(build("wav2vec2-post"), device=device)
