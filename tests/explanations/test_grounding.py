"""Readings of words against plain runs of the model, without hooks, one word and one removal at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import speechmix
from speechmix.adapters.capture.cross_attention import capture_attention
from speechmix.errors import InputError
from speechmix.explanations.grounding.ground import ground, recording_blocks
from speechmix.explanations.grounding.grounded_words import ground_words
from speechmix.explanations.grounding.loops import find_loops
from speechmix.explanations.grounding.readers import find_reader
from speechmix.explanations.grounding.windows import decode_windows, quiet_cuts, window_seconds
from speechmix.explanations.grounding.word_readings import (
    INTACT,
    NO_OWN,
    NO_PADDING,
    NO_SOUND,
    NO_TEXT,
    ONLY_OWN,
)
from speechmix.inputs import bundled

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


def run_decoder(module, ids, states):
    output = module(
        decoder_input_ids=torch.tensor([ids]), encoder_outputs=(states,), use_cache=False
    )
    return output.logits[0].log_softmax(dim=-1)


def test_a_decoders_readings_equal_plain_runs(whisper):
    readings = read_first(whisper, join("left_00_pl"))
    window, module = readings.window, whisper.module
    ids, n_prefix = list(window.ids), window.n_prefix
    pieces = [whisper.tokenizer.decode([id_]) for id_ in ids[n_prefix:]]
    owner = np.cumsum([piece.startswith(" ") for piece in pieces]) - 1
    extract = whisper.feature_extractor
    silence = extract(np.zeros(len(window.audio)), sampling_rate=RATE, return_tensors="pt")
    grid = whisper.grid(len(window.audio))
    with torch.no_grad():
        states = module.model.encoder(window.inputs["input_features"].double())[0]
        silent = module.model.encoder(silence["input_features"].double())[0]
        n_sound = grid.frames_between(0, window.seconds)[1]
        runs = {
            INTACT: run_decoder(module, ids, states),
            NO_SOUND: run_decoder(module, ids, silent),
            NO_PADDING: run_decoder(module, ids, states[:, :n_sound]),
        }
        for word, (start, end) in enumerate(readings.intervals):
            own = [p for p, w in enumerate(owner, start=n_prefix) if w == word]
            inside = slice(*grid.frames_between(start - 1e-9, end - 1e-9))
            without, alone = states.clone(), silent.clone()
            without[:, inside], alone[:, inside] = silent[:, inside], states[:, inside]
            first = [*ids[:n_prefix], *(ids[p] for p in own)]
            of_word = {name: run[[p - 1 for p in own]] for name, run in runs.items()}
            of_word[NO_OWN] = run_decoder(module, ids, without)[[p - 1 for p in own]]
            of_word[ONLY_OWN] = run_decoder(module, ids, alone)[[p - 1 for p in own]]
            of_word[NO_TEXT] = run_decoder(module, first, states)[n_prefix - 1 : -1]
            for name, rows in of_word.items():
                expected = sum(float(rows[i, ids[p]]) for i, p in enumerate(own))
                found = readings.log_probabilities[name][word]
                assert found == pytest.approx(expected, abs=1e-9), (name, word)


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
    silence = log_probabilities(np.zeros(2 * RATE))
    silent_frame = silence[len(silence) // 2]
    muted = []
    for parity in (0, 1):
        audio = window.audio.copy()
        for start, end in readings.intervals[parity::2]:
            audio[round(start * RATE) : round(end * RATE)] = 0
        muted.append(log_probabilities(audio))
    for index, word in enumerate(words):
        for name, expected in (
            (INTACT, sum(intact[frame, id_] for id_, frame in word)),
            (NO_SOUND, sum(silent_frame[id_] for id_, _ in word)),
            (NO_OWN, sum(muted[index % 2][frame, id_] for id_, frame in word)),
            (ONLY_OWN, sum(muted[1 - index % 2][frame, id_] for id_, frame in word)),
        ):
            assert readings.log_probabilities[name][index] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("kind", ["whisper", "ctc"])
def test_the_two_parts_of_the_sound_sum_to_all_of_it(kind, request):
    model = request.getfixturevalue(kind)
    readings = read_first(model, join("left_00_pl"))
    for index, word in enumerate(ground_words(readings, 0)):
        assert word.sound == pytest.approx(readings.effect(NO_SOUND)[index])
        assert word.own_sound + word.other_sound == pytest.approx(word.sound)


def test_neither_the_name_nor_the_company_changes_a_window(whisper):
    clip = join("left_00_pl", "left_02_pl", "left_04_pl")
    table = ground(whisper, clip).to_dataframe()
    other = ground(whisper, join("left_00_pl", "left_02_pl", "left_04_pl", name="other"))
    assert other.to_dataframe().equals(table)
    first = next(decode_windows(whisper, clip))
    alone = speechmix.Clip.from_array(first.audio, RATE, name="alone", language="fr")
    expected = table[table["window"] == 0].reset_index(drop=True)
    found = ground(whisper, alone).to_dataframe()
    numbers = ["start", "end", "own_sound", "other_sound", "earlier_text", "probability"]
    np.testing.assert_allclose(found[numbers], expected[numbers], atol=1e-8)


@pytest.mark.parametrize("kind", ["whisper", "ctc"])
def test_times_are_those_of_the_recording(kind, request):
    """Two windows of silence before a recording move its words."""
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


def test_windows_cover_a_sound_without_gap_or_overlap():
    random = np.random.default_rng(0)
    for _ in range(50):
        audio = random.standard_normal(random.integers(1, 5000)) * random.random()
        cuts = list(quiet_cuts(audio, 100, random.uniform(0.5, 20)))
        assert cuts[0][0] == 0
        assert cuts[-1][1] == len(audio)
        assert all(
            a[1] == b[0] and a[0] < a[1]
            for a, b in zip(cuts, [*cuts[1:], (len(audio), 0)], strict=True)
        )


def test_blocks_of_a_file_are_its_parts(tmp_path, monkeypatch):
    import soundfile

    monkeypatch.setattr("speechmix.explanations.grounding.ground.BLOCK_SECONDS", 1.0)
    monkeypatch.setattr("speechmix.explanations.grounding.ground._SEARCH_SECONDS", 0.5)
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
