"""What `explain` and `ground` say about a real recogniser and real recordings."""

from __future__ import annotations

import numpy as np
import pytest

import speechmix
from speechmix.extensions.explain.fills import alternative_tokens
from speechmix.extensions.explain.model_text import write_about_clip
from speechmix.extensions.explain.removals import FrozenPadding
from speechmix.extensions.explain.source_words import find_sources
from speechmix.extensions.explain.transcript_errors import transcript_errors

pytestmark = pytest.mark.real
SAID = "Ever tried ever failed no matter try again fail again fail better"
RATE = 16_000


@pytest.fixture(scope="module")
def beckett(real_recordings):
    return speechmix.Clip.from_file(real_recordings / "beckett.wav", language="en", text=SAID)


@pytest.fixture(scope="module")
def clip(beckett):
    return beckett.cut(0.0, 3.3).replace(text="Ever tried ever failed", words=None)


@pytest.fixture(scope="module")
def why(real_model, clip):
    return speechmix.explain(real_model, clip, measures="occlusion")


def test_words_come_from_their_own_sound(why):
    lines = str(why).splitlines()
    assert len(lines) <= 3 + len(why.choices)
    for place, choice in enumerate(why.choices[:4]):
        drops = why.drops[place]
        assert why.own_sound[place, int(np.nanargmax(drops))], choice.label
    assert why.choice_label(2) == "ever (2)"
    assert why.top("ever (2)").side == "sound"
    assert "alternative" in why.fills[-1].name
    assert why.errors == ()


def test_padding_may_keep_its_states(real_model, beckett, monkeypatch):
    """Effects are those of whole passes, but for what a word does by way of the padding."""
    clip = beckett.cut(0.0, 1.5).replace(text="Ever tried", words=None)
    frozen = speechmix.explain(real_model, clip, measures="occlusion")
    monkeypatch.setattr(FrozenPadding, "of", lambda decision: None)
    whole = speechmix.explain(real_model, clip, measures="occlusion")
    difference = np.abs(frozen.value_by_fill - whole.value_by_fill)
    assert 0 < np.nanmax(difference) < 0.5 < 5 < np.nanmax(np.abs(whole.drops))
    assert [frozen.top(i).label for i in range(2)] == [whole.top(i).label for i in range(2)]


def test_capitals_are_no_other_text(real_model, clip):
    words = speechmix.align(clip).words
    capitals = clip.replace(
        text=clip.text.upper(), words=[(w.text.upper(), w.start, w.end) for w in words]
    )
    maps = speechmix.mix(real_model, capitals, measures="attention", stacks="decoder")
    assert "unheard_text" not in maps["attention", "decoder"].provenance
    other = clip.replace(text="turn off the lights in the office please", words=None)
    with pytest.warns(UserWarning, match="finds other tokens likelier"):
        speechmix.mix(real_model, other, measures="attention", stacks="decoder", units="frame")


def test_a_model_of_english_alone_needs_no_language(real_model, beckett):
    clip = beckett.cut(0.0, 3.3).replace(text=None, words=None, language=None)
    found = find_sources(real_model, clip, None, None, "auto", None)
    assert [word.text for word in found.clip.words] == "Ever tried, ever failed.".split()


def test_an_alternative_is_one_token_in_place_of_the_word(real_model, beckett):
    """Of several tokens of a word the first becomes another word's, and the others go; punctuation stays."""
    text = "Incredulity, try again."
    clip = beckett.cut(0.0, 3.0).replace(words=[("Incredulity", 0.3, 1.0)], text=None)
    writing = write_about_clip(real_model, clip, text=text, by_token=False)
    written = next(source for source in writing.sources if source.side == "written")
    fed = {token.fed_at: token for token in writing.tokens}
    positions = written.source.positions
    labels = [fed[position].label for position in positions]
    assert len(labels) > 2
    tokens = alternative_tokens(writing, positions, 0)
    assert tokens[0] not in (None, fed[positions[0]].id)
    assert set(tokens[1:-1]) == {None}
    assert real_model.tokenizer.decode([tokens[-1]]) == ","


def test_words_in_steady_noise_are_placed_by_cross_attention(real_model, beckett):
    audio = beckett.audio(RATE)
    noise = np.random.default_rng(0).normal(0, 0.35 * np.abs(audio).max(), len(audio))
    clip = speechmix.Clip.from_array(
        (audio + noise).astype(np.float32), RATE, name="noisy", language="en", text=SAID
    )
    written = "Ever tried, ever failed. No matter, try again. Fail again. Fail better."
    found = find_sources(real_model, clip, written, None, "auto", None)
    assert "cross-attention places them, by the alignment heads that it names" in found.remarks[0]
    assert [word.text for word in found.clip.words] == SAID.split()
    other = find_sources(real_model, clip, "Thank you.", None, "auto", None)
    assert other.remarks[0].startswith("Nobody seems to speak here")
    assert other.reference_words == tuple(SAID.split())  # the reference counts there, too


def test_a_word_that_nobody_said_needs_no_sound(real_model):
    silence = speechmix.Clip.from_array(np.zeros(3 * RATE, np.float32), RATE, name="silence")
    why = speechmix.explain(real_model, silence, measures="occlusion", segments=1.5)
    assert why.text.strip() == "you"
    assert "no single source decides" in str(why)


def test_ground_marks_what_is_not_in_the_sound(real_model, beckett):
    spoken = speechmix.ground(real_model, beckett)
    assert spoken.transcript() == spoken.transcript(mark=True)
    assert transcript_errors(SAID.split(), [word.text for word in spoken.words], "en") == []
    assert abs(spoken.words[0].start - 0.32) < 0.1  # by alignment with synthetic speech
    assert "Not calibrated" in spoken.confidence_statement
    silence = speechmix.Clip.from_array(np.zeros(3 * RATE, np.float32), RATE, name="silence")
    made_up = speechmix.ground(real_model, silence)
    assert [word.text for word in made_up.words] == ["you"]
    assert made_up.doubtful() == [0]
    assert made_up.transcript() == ""
