"""Prompts and hotwords of a Whisper: what its decoder is fed, and words of a prompt as sources."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

import speechmix
from speechmix.adapters.generation.decoder_text import decoder_prefix, prompt_ids, split_prompt
from speechmix.errors import InputError
from speechmix.extensions.explain.fills import choose_fills
from speechmix.extensions.explain.model_text import write_about_clip
from speechmix.extensions.explain.removals import make_reader, make_removals, read_without
from speechmix.extensions.grounding.fixes import parse_fixes, try_fixes
from speechmix.extensions.grounding.ground import ground
from speechmix.extensions.grounding.readers import find_reader
from speechmix.extensions.grounding.windows import DecodingOptions, decode_windows
from speechmix.extensions.grounding.word_readings import INTACT, NO_PREVIOUS, NO_PROMPT
from tests.scoring.test_mix import SPECIAL, byte_tokenizer, whisper_that_hears

RATE = 16_000
PREVIOUS = "<|startofprev|>"


def tokenizer_with_prompts() -> transformers.WhisperTokenizer:
    """Byte-level tokens as in `byte_tokenizer`, and the token in front of a prompt."""
    plain = byte_tokenizer()
    special = (*SPECIAL[:-1], PREVIOUS, SPECIAL[-1])  # timestamps follow the last
    tokens = [
        token
        for token in sorted(plain.get_vocab(), key=plain.get_vocab().get)
        if token not in SPECIAL
    ]
    return transformers.WhisperTokenizer(
        vocab={token: index for index, token in enumerate([*tokens, *special])},
        merges=[("l", "e"), ("le", "s"), ("\u0120", "les")],
        additional_special_tokens=list(special[1:]),
    )


@pytest.fixture(scope="module")
def whisper():
    """Random Whisper with timestamps, a window of two seconds and a token for a prompt, which writes nonsense."""
    tokenizer = tokenizer_with_prompts()
    ids = tokenizer.get_vocab()
    model = whisper_that_hears(
        tokenizer=tokenizer,
        vocab_size=len(tokenizer) + 101,
        max_target_positions=60,
        decoder_layers=2,
        encoder_layers=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    config = model.module.generation_config
    config.is_multilingual, config.no_timestamps_token_id = True, ids["<|notimestamps|>"]
    config.prev_sot_token_id = ids[PREVIOUS]
    config.lang_to_id = {token: ids[token] for token in ("<|en|>", "<|fr|>")}
    config.task_to_id = {task: ids[f"<|{task}|>"] for task in ("transcribe", "translate")}
    config.max_length = 16
    extractor = transformers.WhisperFeatureExtractor(chunk_length=2)
    processor = transformers.WhisperProcessor(extractor, tokenizer)
    return speechmix.load(model.module, processor=processor, dtype="float64", check=False)


def noise(seconds: float, **facts) -> speechmix.Clip:
    audio = 0.1 * np.random.default_rng(0).standard_normal(round(seconds * RATE))
    return speechmix.Clip.from_array(audio.astype(np.float32), RATE, language="fr", **facts)


def test_prompt_and_hotwords_stand_before_the_prefix(whisper):
    tokenizer = whisper.tokenizer
    prompted = whisper.with_prompt(" les bas ", hotwords="ab")
    ids = decoder_prefix(prompted, noise(1))
    assert tokenizer.convert_ids_to_tokens(ids[:1]) == [PREVIOUS]
    assert (
        tokenizer.decode(ids[1 : ids.index(whisper.config.decoder_start_token_id)]) == " ab les bas"
    )
    assert ids[len(prompt_ids(prompted)) :] == decoder_prefix(whisper, noise(1))
    assert prompted.name.endswith("(prompt:  les bas , hotwords: ab)")
    assert prompted.fingerprint != whisper.fingerprint
    assert prompted.with_prompt("", hotwords="").fingerprint == whisper.fingerprint
    assert prompted.with_prefix(timestamps=True).prefix.hotwords == "ab"
    assert whisper.with_prefix(timestamps=True).prefix.hash_values == ("transcribe", None, True)
    assert split_prompt(prompted, ids)[0] == range(1, len(prompt_ids(prompted)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("abcd" * 9, "37 tokens, hotwords included, and its decoder takes 29"),
        ("a <|endoftext|>", "special token"),
    ],
)
def test_prompts_that_cannot_be(whisper, text, message):
    with pytest.raises(InputError, match=message):
        whisper.with_prompt(text)


def test_an_answer_is_no_prompt_of_a_whisper(whisper):
    with pytest.raises(InputError, match="audio language models"):
        whisper.with_prompt("les", answer="bas")


def test_words_of_the_prompt_are_sources(whisper):
    """Removed words of a prompt are those of a run without their tokens."""
    prompted = whisper.with_prompt("les bas")
    clip = noise(1.0, words=[("les", 0.1, 0.4), ("les", 0.5, 0.9)])
    writing = write_about_clip(prompted, clip, text="les les", by_token=False)
    asked = [source for source in writing.sources if source.side == "asked"]
    assert [source.label for source in asked] == ["les", "bas"]
    ids = writing.decision.prepared.inputs["decoder_input_ids"][0].tolist()
    spelled = [
        whisper.tokenizer.decode([ids[at] for at in source.source.positions]) for source in asked
    ]
    assert spelled == [" les", " bas"]
    fills = choose_fills(writing, sound=None, text=None)
    removal = next(fill for fill in fills.prompt if fill.token is None)
    assert {fill.name for fill in fills.text} == {"alternative", "second_alternative"}
    index = writing.sources.index(asked[1])
    positions = [token.position for token in writing.tokens]
    read = make_reader(positions, [token.id for token in writing.tokens], [None] * len(positions))
    [values] = read_without(writing, [make_removals(writing, (index,), (removal,))], read)
    shorter = whisper.with_prompt("les")
    other = write_about_clip(shorter, clip, text="les les", by_token=False)
    expected = np.log([token.probability for token in other.tokens])
    assert values == pytest.approx(expected, abs=1e-9)
    both = make_removals(
        writing, (index, len(writing.sources) - 1), (*fills.prompt[:1], *fills.text[:1])
    )
    assert len(both) == 1
    assert len(both[0].fill) == len(both[0].indices)


def test_shapley_and_occlusion_rank_the_prompt(whisper):
    prompted = whisper.with_prompt("les bas")
    clip = noise(1.0, words=[("les", 0.1, 0.4), ("les", 0.5, 0.9)])
    why = speechmix.explain(
        prompted, clip, text="les les", measures=["occlusion", "shapley", "attention"]
    )
    table = why.to_dataframe().query("side == 'asked'")
    assert set(table["measure"]) == {"occlusion", "shapley", "attention"}
    assert table["attribution"].notna().all()
    assert why.provenance["prompt_fill"][-1] == "removal"


def test_effect_of_the_prompt_is_that_of_a_run_without_it(whisper):
    prompted = whisper.with_prompt("les bas").with_prefix(timestamps=True)
    window = next(decode_windows(prompted, noise(1.5), DecodingOptions(temperatures=(0.0,))))
    assert window.ids[: len(prompt_ids(prompted))] == tuple(prompt_ids(prompted))
    readings = find_reader(prompted, "fr").read(window)
    timed = whisper.with_prefix(timestamps=True)
    kept = window.ids[len(prompt_ids(prompted)) :]
    encoded = transformers.modeling_outputs.BaseModelOutput(window.states)
    with torch.no_grad():
        output = timed.module(decoder_input_ids=torch.tensor([kept]), encoder_outputs=encoded)
    log_p = output.logits[0].double().log_softmax(dim=-1)
    n_prefix = window.n_prefix - len(prompt_ids(prompted))
    tokens = find_reader(prompted, "fr").tokens_of(readings)
    rows = tokens.rows - len(prompt_ids(prompted))
    assert rows.min() >= n_prefix - 1
    expected = tokens.sum_by_word(log_p[rows, tokens.ids].numpy())
    assert readings.log_probabilities[NO_PROMPT] == pytest.approx(expected, abs=1e-9)
    assert NO_PREVIOUS not in readings.log_probabilities
    best = log_p[rows].argmax(dim=-1).numpy()
    for index, choice in enumerate(readings.without_prompt):
        own = tokens.of_word(index)
        assert bool(choice) == bool((best[own] != tokens.ids[own]).any())


def test_the_text_before_is_a_source_of_its_own(whisper):
    prompted = whisper.with_prompt("les").with_prefix(timestamps=True)
    options = DecodingOptions(previous_text=True, temperatures=(0.0,))
    windows = list(decode_windows(prompted, noise(5), options))
    parts = [split_prompt(prompted, window.ids[: window.n_prefix]) for window in windows]
    assert all(len(prompt) == len(prompt_ids(prompted)) - 1 for prompt, _ in parts)
    assert len(parts[0][1]) == 0
    assert len(parts[1][1]) > 0
    readings = find_reader(prompted, "fr").read(windows[1])
    assert {INTACT, NO_PROMPT, NO_PREVIOUS} <= set(readings.log_probabilities)
    words = ground(prompted, noise(5), decoding=options, loop_heads=False, align=False).words
    assert any(np.isfinite(word.previous) for word in words)


def test_fixes_are_tried_one_at_a_time(whisper):
    assert parse_fixes("vad,prompt=a, b,temperature=0") == ["vad", "prompt=a, b", "temperature=0"]
    clips = [noise(1.5, name=f"noise {index}", text="les les") for index in range(2)]
    base = DecodingOptions(temperatures=(0.0,))
    comparison = try_fixes(whisper, clips, ["prompt=les", "temperature=0", "heads"], decoding=base)
    table = comparison.table.set_index("fix")
    assert list(table.index) == ["as it is", "prompt=les", "temperature=0", "heads"]
    same = table.loc[["as it is", "temperature=0"], ["made_up", "errors"]]
    assert (same.iloc[0] == same.iloc[1]).all()
    assert table.loc["temperature=0", ["removed", "added", "lost"]].sum() == 0
    assert np.isnan(table.loc["prompt=les", "low"])
    assert "errors" in str(comparison)


@pytest.mark.parametrize(
    ("fix", "message"),
    [
        ("louder", "cannot try 'louder'. Fixes are vad"),
        ("prompt", "cannot try 'prompt'"),
        ("no-previous-text", "changes nothing: windows are transcribed without the text before"),
        ("no-prompt", "changes nothing: there is no prompt"),
        ("temperature=warm", "expected numbers"),
    ],
)
def test_fixes_that_cannot_be(whisper, fix, message):
    with pytest.raises(InputError, match=message):
        try_fixes(whisper, noise(1), [fix])
