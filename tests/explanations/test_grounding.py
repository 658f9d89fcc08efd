"""Readings of words against plain runs of the model, without hooks, one word and one removal at a time."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

import speechmix
from speechmix.adapters.generation.decoder_text import decoder_prefix
from speechmix.errors import InputError
from speechmix.extensions.grounding import windows
from speechmix.extensions.grounding.decoder_reader import capture_attention
from speechmix.extensions.grounding.ground import ground, recording_blocks
from speechmix.extensions.grounding.grounded_words import ground_words
from speechmix.extensions.grounding.loops import find_loops
from speechmix.extensions.grounding.readers import find_reader
from speechmix.extensions.grounding.windows import (
    DecodedWindow,
    DecodingOptions,
    decode_windows,
    quiet_cuts,
    window_seconds,
)
from speechmix.extensions.grounding.word_readings import (
    INTACT,
    NO_PADDING,
    NO_PROMPT,
    NOISE,
    SILENCE,
    make_fill,
)
from speechmix.inputs import bundled
from speechmix.mixing.passes.request import MixRequest
from speechmix.mixing.passes.view_kinds import make_view
from tests.models import audio_language_models, speech_recognisers
from tests.scoring.test_mix import byte_tokenizer, whisper_that_hears

from .planted_decoders import planted

RATE = 16_000
CLIPS = {clip.name: clip for clip in bundled.clips()}


def join(*names: str, **fields) -> speechmix.Clip:
    audio = np.concatenate([CLIPS[name].audio(RATE) for name in names])
    return speechmix.Clip.from_array(audio, RATE, **{"name": "joined", "language": "fr", **fields})


@pytest.fixture(scope="module")
def whisper():
    return speechmix.load(bundled.models()["tiny-french-whisper"], dtype="float64")


@pytest.fixture(scope="module")
def ctc():
    return speechmix.load(bundled.models()["tiny-french-ctc"], dtype="float64")


def read_first(model, clip):
    reader = find_reader(model, "fr")
    return reader.read(next(decode_windows(model, clip)))


def family_model(kind: str, folder) -> speechmix.load:
    return speechmix.load(speech_recognisers.saved(kind, folder), dtype="float64", check=False)


def window_of_text(model, text: str) -> DecodedWindow:
    """A window of noise with a text that a decoder is said to have written."""
    clip = speech_recognisers.clip(None)
    prefix = decoder_prefix(model, clip)
    ids = model.tokenizer(text, add_special_tokens=False).input_ids
    inputs = model.family.prepare(model, clip, ("encoder",)).inputs
    return DecodedWindow(0.0, clip.audio(RATE), RATE, inputs, (*prefix, *ids), len(prefix))


def encode(model, inputs):
    fed = {
        name: value.double() if value.is_floating_point() else value
        for name, value in inputs.items()
    }
    return model.module.get_encoder()(**fed)[0]


def run_decoder(module, ids, states):
    encoded = transformers.modeling_outputs.BaseModelOutput(states)
    encoded.attention_mask = None  # which Moonshine looks for
    output = module(decoder_input_ids=torch.tensor([ids]), encoder_outputs=encoded, use_cache=False)
    return output.logits[0].log_softmax(dim=-1)


def check_decoder_readings(model, readings, silence=None) -> None:
    """One plain run for each word and removal; in double precision, so that batches do not matter."""
    window, module = readings.window, model.module
    ids, n_prefix = list(window.ids), window.n_prefix
    pieces = model.tokenizer.convert_ids_to_tokens(ids[n_prefix:])
    begins = [index == 0 or piece[0] in "Ġ▁" for index, piece in enumerate(pieces)]
    owner = np.cumsum(begins) - 1
    assert owner[-1] + 1 == len(readings.words)
    count = round((windows.fixed_window_seconds(model) or readings.window.seconds) * RATE)
    noise = make_fill(NOISE, count)
    fills = {SILENCE: np.zeros(count) if silence is None else silence, NOISE: noise}
    grid = model.grid(len(window.audio))
    with torch.no_grad():
        states = encode(model, window.inputs)
        n_sound = grid.frames_between(0, window.seconds)[1]
        runs = {INTACT: run_decoder(module, ids, states)}
        for name, audio in fills.items():
            extracted = model.feature_extractor(audio, sampling_rate=RATE, return_tensors="pt")
            filled = encode(model, {key: extracted[key] for key in window.inputs})
            runs[name] = run_decoder(module, ids, filled[:, : states.shape[1]])
        if n_sound < states.shape[1]:
            runs[NO_PADDING] = run_decoder(module, ids, states[:, :n_sound])
        for word in range(len(readings.words)):
            own = [p for p, w in enumerate(owner, start=n_prefix) if w == word]
            of_word = {name: run[[p - 1 for p in own]] for name, run in runs.items()}
            assert set(of_word) == set(readings.log_probabilities)
            for name, rows in of_word.items():
                expected = sum(float(rows[i, ids[p]]) for i, p in enumerate(own))
                found = readings.log_probabilities[name][word]
                assert found == pytest.approx(expected, abs=1e-9), (name, word)


def test_a_decoders_readings_equal_plain_runs(whisper):
    readings = read_first(whisper, join("left_00_pl"))
    check_decoder_readings(whisper, readings)
    assert NO_PADDING in readings.log_probabilities


@pytest.mark.parametrize("kind", ["moonshine", "speech-to-text", "speecht5"])
def test_other_decoders_readings_equal_plain_runs(kind, tmp_path):
    model = family_model(kind, tmp_path)
    readings = find_reader(model).read(window_of_text(model, speech_recognisers.TEXT))
    assert readings.words == tuple(speech_recognisers.TEXT.split())
    silence = None
    if kind == "speech-to-text":  # divides by how much features vary
        silence = make_fill(NOISE, len(readings.window.audio)) * 1e-3
    check_decoder_readings(model, readings, silence)


@pytest.mark.parametrize("kind", ["moonshine", "speech-to-text", "speecht5"])
def test_cross_attention_of_other_decoders_is_the_models(kind, tmp_path):
    model = family_model(kind, tmp_path)
    window = window_of_text(model, speech_recognisers.TEXT)
    inputs = {"decoder_input_ids": torch.tensor([window.ids]), "use_cache": False}
    for name, value in window.inputs.items():
        inputs[name] = value.double() if value.is_floating_point() else value
    with torch.no_grad(), capture_attention(model) as captured:
        model.module(**inputs)
    model.module.set_attn_implementation("eager")
    with torch.no_grad():
        output = model.module(**inputs, output_attentions=True)
    expected = torch.cat([layer[0] for layer in output.cross_attentions]).numpy()
    found = captured.weights(range(len(window.ids)))
    np.testing.assert_allclose(found, expected, atol=1e-6)  # weights are computed in float32


def test_cross_attention_from_queries_and_keys_is_the_models(whisper):
    readings = read_first(whisper, join("left_00_pl"))
    window = readings.window
    inputs = {
        "input_features": window.inputs["input_features"].double(),
        "decoder_input_ids": torch.tensor([window.ids]),
    }
    with torch.no_grad(), capture_attention(whisper) as captured:
        whisper.module(**inputs)
    maps = speechmix.mix(
        whisper, inputs, measures="attention", stacks="cross", heads="each", dtype="float64"
    )
    expected = maps["attention", "cross"].scores
    found = captured.weights(range(len(window.ids)))
    np.testing.assert_allclose(found, expected.reshape(found.shape), atol=1e-6)


def test_a_ctc_models_readings_equal_plain_runs(ctc):
    readings = read_first(ctc, join("left_00_pl", "left_02_pl"))
    window, (before, behind) = readings.window, readings.window.context

    def log_probabilities(audio):
        inputs = ctc.feature_extractor(audio, sampling_rate=RATE, return_tensors="pt")
        with torch.no_grad():
            logits = ctc.module(inputs["input_values"].double()).logits[0]
        return logits.log_softmax(dim=-1).numpy()

    intact = log_probabilities(window.audio)
    blank, delimiter = ctc.config.pad_token_id, ctc.tokenizer.word_delimiter_token_id
    letters, previous = [], blank
    for frame, id_ in enumerate(intact.argmax(axis=1)):
        if id_ not in (previous, blank):
            letters.append([int(id_), frame])
        elif id_ == previous and id_ != blank and intact[frame, id_] > intact[letters[-1][1], id_]:
            letters[-1][1] = frame
        previous = id_
    words: list[list[tuple[int, int]]] = [[]]
    for id_, frame in letters:  # the space belongs to the word behind it
        if id_ == delimiter:
            words.append([])
        words[-1].append((id_, frame))
    words = [word for word in words if any(id_ != delimiter for id_, _ in word)]
    assert before == behind == 0
    assert len(words) == len(readings.words)
    fills = {SILENCE: np.zeros(2 * RATE, np.float32), NOISE: make_fill(NOISE, 2 * RATE)}
    frames = {name: log_probabilities(audio) for name, audio in fills.items()}
    for index, word in enumerate(words):
        expected = {INTACT: sum(intact[frame, id_] for id_, frame in word)}
        for name, frame in frames.items():
            expected[name] = sum(frame[len(frame) // 2, id_] for id_, _ in word)
        for name, value in expected.items():
            assert readings.log_probabilities[name][index] == pytest.approx(value, abs=1e-6)


def test_neither_the_name_nor_the_company_changes_a_window(whisper):
    clip = join("left_00_pl", "left_02_pl", "left_04_pl")
    table = ground(whisper, clip).to_dataframe()
    other = ground(whisper, join("left_00_pl", "left_02_pl", "left_04_pl", name="other"))
    assert other.to_dataframe().equals(table)
    first = next(decode_windows(whisper, clip))
    alone = speechmix.Clip.from_array(first.audio, RATE, name="alone", language="fr")
    assert table["window"].nunique() > 1
    expected = table[table["window"] == 0].reset_index(drop=True)
    found = ground(whisper, alone).to_dataframe()
    numbers = ["start", "end", "silence", "noise", "phrase_sound", "probability"]
    np.testing.assert_allclose(found[numbers], expected[numbers], atol=1e-8)


@pytest.mark.parametrize("kind", ["whisper", "ctc"])
def test_times_are_those_of_the_recording(kind, request, monkeypatch):
    """Two windows of silence before a recording move its words."""
    monkeypatch.setattr(windows, "_MAX_WINDOW_SECONDS", 4.0)
    model = request.getfixturevalue(kind)
    clip = CLIPS["left_00_pl"]
    seconds = 2 * window_seconds(model)
    audio = np.concatenate([np.zeros(round(seconds * RATE)), clip.audio(RATE)])
    moved = ground(model, speechmix.Clip.from_array(audio, RATE, language="fr"))
    words = {word.text: word for word in moved.words if word.start > seconds - 0.2}
    assert "maisons" in words
    spoken = clip.words[1]
    assert abs(words["maisons"].start - seconds - spoken.start) < 0.15
    assert abs(words["maisons"].end - seconds - spoken.end) < 0.35  # attention says little of ends


def test_blocks_of_a_file_are_its_parts(tmp_path, monkeypatch):
    import soundfile

    monkeypatch.setattr("speechmix.extensions.grounding.ground.BLOCK_SECONDS", 1.0)
    monkeypatch.setattr("speechmix.extensions.grounding.ground._SEARCH_SECONDS", 0.5)
    audio = join("left_00_pl", "left_02_pl").audio(RATE)
    soundfile.write(tmp_path / "a.wav", audio, RATE, subtype="FLOAT")
    blocks = list(recording_blocks(speechmix.Clip.from_file(tmp_path / "a.wav")))
    assert len(blocks) > 2
    joined = np.concatenate([block.audio(RATE) for _, block in blocks])
    assert abs(len(joined) - len(audio)) <= len(blocks)
    assert [round(start, 6) for start, _ in blocks[1:]] == [
        round(float(sum(block.duration for _, block in blocks[: index + 1])), 6)
        for index in range(len(blocks) - 1)
    ]
    start, block = blocks[1]
    first = round(start * RATE)
    np.testing.assert_array_equal(block.audio(RATE), audio[first : first + len(block.audio(RATE))])


def test_too_short_and_random_models_are_errors(whisper):
    with pytest.raises(InputError, match="too short"):
        ground(whisper, speechmix.Clip.from_array(np.ones(100), RATE))
    twin = speechmix.load(bundled.models()["tiny-french-whisper"], init="random", seed=0)
    with pytest.raises(InputError, match="does not transcribe"):
        ground(twin, join("left_00_pl"))


def test_a_ctc_model_writes_nothing_about_silence(ctc):
    grounding = ground(ctc, speechmix.Clip.from_array(np.zeros(2 * RATE), RATE))
    assert grounding.words == ()
    assert "nobody seems to speak" in grounding.findings[0]


def test_an_audio_language_models_readings_equal_plain_runs():
    module, processor = audio_language_models.qwen2_audio()
    model = speechmix.load(module, processor=processor, dtype="float64", device="cpu", check=False)
    prompt, answer = "Who is it?", "it is up"
    model = model.with_prompt(prompt, answer=answer)
    clip = audio_language_models.clip("le chat dort")
    readings = find_reader(model).read(next(decode_windows(model, clip)))
    assert readings.words == ("it", "is", "up")
    assert readings.intervals == (None, None, None)

    def feed(audio):
        view = make_view(
            model,
            speechmix.Clip.from_array(audio, RATE, words=clip.words),
            MixRequest(),
            ("encoder", "decoder"),
        )
        return view.prepared.inputs

    def log_probabilities(inputs, blanked=()):
        fed = {
            name: value.double() if value.is_floating_point() else value.clone()
            for name, value in inputs.items()
        }
        fed["input_ids"][0, list(blanked)] = model.tokenizer.pad_token_id
        with torch.no_grad():
            return model.module(**fed, use_cache=False).logits[0].log_softmax(dim=-1)

    inputs = feed(clip.audio(RATE))
    ids = inputs["input_ids"][0].tolist()
    letters = [model.tokenizer.decode([id_]) for id_ in ids]  # a token is a byte

    def find(text):
        return max(
            start for start in range(len(ids)) if letters[start : start + len(text)] == list(text)
        )

    asked = [find(prompt) + at for at, letter in enumerate(prompt) if letter != " "]
    first = find(answer)
    own = [range(first, first + 2), range(first + 2, first + 5), range(first + 5, first + 8)]
    silent = log_probabilities(feed(np.zeros_like(clip.audio(RATE))))
    intact, unprompted = log_probabilities(inputs), log_probabilities(inputs, asked)
    for word, positions in enumerate(own):
        for name, rows in (
            (INTACT, intact),
            (SILENCE, silent),
            (NO_PROMPT, unprompted),
        ):
            expected = sum(float(rows[at - 1, ids[at]]) for at in positions)
            assert readings.log_probabilities[name][word] == pytest.approx(expected, abs=1e-9)
    for word in ground_words(readings, 0):
        assert word.is_in_sound() == (word.phrase_sound >= 1)
        assert np.isnan(word.start)


@pytest.fixture(scope="module")
def timed():
    """Random Whisper with timestamps and a window of two seconds, which writes nonsense."""
    tokenizer = byte_tokenizer()
    ids = tokenizer.get_vocab()
    model = whisper_that_hears(
        tokenizer=tokenizer,
        vocab_size=len(tokenizer) + 101,
        max_target_positions=24,
        decoder_layers=2,
        encoder_layers=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    config = model.module.generation_config
    config.is_multilingual, config.no_timestamps_token_id = True, ids["<|notimestamps|>"]
    config.lang_to_id = {token: ids[token] for token in ("<|en|>", "<|fr|>")}
    config.task_to_id = {task: ids[f"<|{task}|>"] for task in ("transcribe", "translate")}
    extractor = transformers.WhisperFeatureExtractor(chunk_length=2)
    processor = transformers.WhisperProcessor(extractor, tokenizer)
    model = speechmix.load(model.module, processor=processor, dtype="float64", check=False)
    return model.with_prefix(timestamps=True)


def noise(seconds: float, seed: int = 0) -> speechmix.Clip:
    audio = 0.1 * np.random.default_rng(seed).standard_normal(round(seconds * RATE))
    return speechmix.Clip.from_array(audio.astype(np.float32), RATE, language="fr")


def generate_plainly(model, clip):
    """Segments of transformers' long-form generation, and the frames that its windows begin at."""
    long = clip.duration > 2
    extracted = model.feature_extractor(
        clip.audio(RATE),
        sampling_rate=RATE,
        return_tensors="pt",
        truncation=False,
        padding="longest" if long else "max_length",
        return_attention_mask=True,
    )
    seeks: list[int] = []
    with torch.no_grad():
        output = model.module.generate(
            extracted["input_features"].double(),
            attention_mask=extracted["attention_mask"] if long else None,
            language="fr",
            task="transcribe",
            return_timestamps=True,
            return_segments=True,
            temperature=0.0,
            output_logits=True,
            return_dict_in_generate=True,
            monitor_progress=lambda progress: seeks.append(int(progress[0, 0])),
        )
    return output["segments"][0], seeks


@pytest.mark.parametrize("seconds", [10, 2 + 1 / RATE, 1.5])
def test_windows_are_those_of_generation(timed, seconds):
    clip = noise(seconds)
    segments, seeks = generate_plainly(timed, clip)
    found = list(decode_windows(timed, clip, DecodingOptions(temperatures=(0.0,))))
    written = [id_ for window in found for id_ in window.ids[window.n_prefix :]]
    assert written == torch.cat([segment["tokens"] for segment in segments]).tolist()
    assert [window.start for window in found] == [min(seek / 100, clip.duration) for seek in seeks]
    results = list({id(segment["result"]): segment["result"] for segment in segments}.values())
    reader = find_reader(timed, "fr")
    first_time = len(timed.tokenizer)
    n_words = 0
    for window, result in zip(found, results, strict=True):
        readings = reader.read(window)
        rows, scores = set(reader.tokens_of(readings).rows.tolist()), []
        steps = zip(window.ids[window.n_prefix :], result["logits"], strict=False)
        for position, (id_, row) in enumerate(steps, start=window.n_prefix - 1):
            if position in rows:
                scores.append(float(row.log_softmax(-1)[id_]))
            else:
                assert id_ >= first_time or not timed.tokenizer.decode([id_]).strip()
        # Generation rounds logits to single precision.
        assert readings.log_probabilities[INTACT].sum() == pytest.approx(sum(scores), abs=1e-4)
        assert readings.token_counts.sum() == len(scores)
        for name, values in readings.log_probabilities.items():
            assert np.isfinite(values).all(), name
        for start, end in readings.intervals:
            assert window.start <= start <= end <= clip.duration + 1e-6
        n_words += len(readings.words)
    assert n_words
    if seconds == 10:
        assert len(found) > 4
        pairs = [sum(id_ >= first_time for id_ in window.ids) for window in found]
        assert min(pairs) <= 2  # a window of one segment, whose first timestamp is not its start
        assert max(pairs) > 2


def test_fallbacks_are_drawn_alike_each_time(timed):
    clip = noise(2.5)
    drawn = DecodingOptions(temperatures=(0.0, 0.6))
    torch.manual_seed(1)
    first = [(window.start, window.ids) for window in decode_windows(timed, clip, drawn)]
    torch.manual_seed(2)
    state = torch.get_rng_state()
    second = [(window.start, window.ids) for window in decode_windows(timed, clip, drawn)]
    assert first == second
    assert torch.equal(state, torch.get_rng_state())
    tables = [ground(timed, clip, decoding=drawn).to_dataframe() for _ in range(2)]
    assert tables[0].equals(tables[1])


def test_no_word_goes_over_a_timestamp(timed):
    ids = timed.tokenizer.get_vocab()
    first_time = len(timed.tokenizer)
    window = next(decode_windows(timed, noise(1.5), DecodingOptions(temperatures=(0.0,))))
    prefix = window.ids[: window.n_prefix]
    text = [first_time, ids["a"], ids["b"], first_time + 40, first_time + 40]
    text += [ids["c"], ids["Ġ"], ids["d"], first_time + 70]
    readings = find_reader(timed).read(replace(window, ids=(*prefix, *text)))
    assert readings.words == ("ab", "c", "d")
    assert readings.token_counts.tolist() == [2, 1, 2]
    assert all(np.isfinite(values).all() for values in readings.log_probabilities.values())


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 5000),
    seconds=st.floats(0.5, 20),
    seed=st.integers(0, 2**16),
    levels=st.integers(0, 3),
)
def test_windows_cover_a_sound_without_gap_or_overlap(count, seconds, seed, levels):
    audio = np.random.default_rng(seed).integers(0, levels + 1, count).astype(float)
    cuts = list(quiet_cuts(audio, 100, seconds))
    assert cuts[0][0] == 0
    assert cuts[-1][1] == count
    assert all(a[1] == b[0] for a, b in pairwise(cuts))
    assert all(0 < stop - start <= int(seconds * 100) for start, stop in cuts)
    assert len(cuts) == 1 or min(stop - start for start, stop in cuts) >= 10  # 0.1 s


@pytest.mark.parametrize("kind", ["whisper", "ctc"])
def test_a_sample_more_than_a_window(kind, request, monkeypatch):
    monkeypatch.setattr(windows, "_MAX_WINDOW_SECONDS", 4.0)
    model = request.getfixturevalue(kind)
    count = round(window_seconds(model) * RATE) + 1
    audio = np.resize(CLIPS["left_00_pl"].audio(RATE), count)
    grounding = ground(model, speechmix.Clip.from_array(audio, RATE, language="fr"))
    assert grounding.words
    assert max(word.end for word in grounding.words) <= grounding.seconds + 1e-3


def test_other_rates_and_channels(whisper, tmp_path):
    import soundfile

    audio = CLIPS["left_00_pl"].audio(RATE)
    sounds = {"mono": (audio, RATE), "stereo": (np.stack([audio, audio], axis=1), RATE)}
    sounds["low"] = (np.resize(audio[::2], len(audio) // 2), RATE // 2)
    found = {}
    for name, (samples, rate) in sounds.items():
        soundfile.write(tmp_path / f"{name}.wav", samples, rate, subtype="FLOAT")
        found[name] = ground(whisper, tmp_path / f"{name}.wav", language="fr")
    assert found["stereo"].to_dataframe().equals(found["mono"].to_dataframe())
    assert found["low"].words
    assert found["low"].seconds == pytest.approx(found["mono"].seconds, abs=1e-3)


@pytest.mark.parametrize("kind", ["whisper", "ctc"])
def test_digital_silence(kind, request):
    model = request.getfixturevalue(kind)
    grounding = ground(
        model, speechmix.Clip.from_array(np.zeros(4 * RATE, np.float32), RATE, language="fr")
    )
    for word in grounding.words:  # nothing changes where silence is replaced by silence
        assert word.silence == pytest.approx(0, abs=1e-9)
        assert not word.is_in_sound()


def test_a_silent_window_of_a_model_that_cannot_be_given_one(tmp_path):
    model = family_model("speech-to-text", tmp_path)
    silent = speechmix.Clip.from_array(np.zeros(RATE, np.float32), RATE)
    assert ground(model, silent).words == ()
    audio = np.concatenate([np.zeros(20 * RATE), speech_recognisers.clip(None).audio(RATE)])
    moved = ground(model, speechmix.Clip.from_array(audio.astype(np.float32), RATE))
    assert moved.words
    assert moved.words[0].start >= 13


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ab", ("ab",)),
        (" ab", ("ab",)),
        ("l'ami va", ("l'ami", "va")),
        ("...", ("...",)),
        (" ! ?", ("!", "?")),
        (" ", None),
        ("", None),
    ],
)
def test_texts_without_a_word_or_a_space(whisper, text, expected):
    window = next(decode_windows(whisper, join("left_00_pl")))
    ids = whisper.tokenizer(text, add_special_tokens=False).input_ids
    prefix = window.ids[: window.n_prefix]
    readings = find_reader(whisper, "fr").read(replace(window, ids=(*prefix, *ids)))
    if expected is None:
        assert readings is None
        return
    assert readings.words == expected
    for word in ground_words(readings, 0):
        assert np.isfinite([word.silence, word.noise, word.padding, word.phrase_sound]).all()


def test_a_decoder_that_writes_nothing():
    model, _ = planted(0)
    end = model.tokenizer.eos_token_id
    with torch.no_grad():
        model.module.model.decoder.layer_norm.bias[-1] = 1.0
        model.module.proj_out.weight[end, -1] = 100.0
    grounding = ground(model, noise(1.5))
    assert grounding.words == ()
    assert "nobody seems to speak" in grounding.findings[0]
    assert grounding.transcript() == ""
    assert grounding.to_dataframe().empty


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b c", []),
        ("non non", []),
        ("non non non", [(0, 3, 1, 3)]),
        ("x Les, les livres les livres les livres, les y", [(2, 9, 2, 3)]),
        ("a b a b a b c d c d c d", [(0, 6, 2, 3), (6, 12, 2, 3)]),
    ],
)
def test_loops_in_a_text(text, expected):
    found = [
        (loop.first, loop.stop, loop.period, loop.repeats) for loop in find_loops(text.split())
    ]
    assert found == expected


def test_the_same_text_in_each_window_is_no_loop():
    model = speechmix.load("bundled:tiny-french-whisper")
    grounding = ground(
        model, speechmix.Clip.from_array(np.zeros(12 * RATE), RATE, name="s", language="fr")
    )
    windows = {word.window for word in grounding.words}
    assert len(windows) == 4
    assert not grounding.loops
    assert any("in 4 windows in a row (0.0 to " in finding for finding in grounding.findings)
