"""What `explain` and `ground` say about a real recogniser and real recordings."""

from __future__ import annotations

import numpy as np
import pytest

import speechmix
from speechmix.explanations.transcript_errors import transcript_errors

pytestmark = pytest.mark.real
SAID = "Ever tried ever failed no matter try again fail again fail better"
RATE = 16_000


@pytest.fixture(scope="module")
def beckett(real_recordings):
    return speechmix.Clip.from_file(real_recordings / "beckett.wav", language="en", text=SAID)


def test_words_come_from_their_own_sound(real_model, beckett):
    clip = beckett.cut(0.0, 3.3).replace(text="Ever tried ever failed", words=None)
    why = speechmix.explain(real_model, clip, measures="occlusion")
    lines = str(why).splitlines()
    assert len(lines) <= 3 + len(why.choices)
    for place, choice in enumerate(why.choices[:4]):
        drops = why.drops[place]
        assert why.own_sound[place, int(np.nanargmax(drops))], choice.label
    assert why.choice_label(2) == "ever (2)"
    assert why.top("ever (2)").side == "sound"
    assert "alternative" in why.fills[-1].name
    assert why.errors == ()


def test_a_word_that_nobody_said_needs_no_sound(real_model):
    silence = speechmix.Clip.from_array(np.zeros(3 * RATE, np.float32), RATE, name="silence")
    why = speechmix.explain(real_model, silence, measures="occlusion")
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
