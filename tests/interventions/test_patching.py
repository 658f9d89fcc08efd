"""Patching: one's own states change nothing, all of the other's carry everything, and nothing else
is claimed."""

from __future__ import annotations

import numpy as np
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.patching.patching import match_positions
from speechmix.inputs.bundled import clips
from tests.conftest import trained
from tests.models.text_models import bert, gpt2

PLURAL = speechmix.Sentence("the cats are", target="are", foil="ape")
SINGULAR = speechmix.Sentence("the catz are", target="are", foil="ape")


@pytest.fixture(scope="module")
def pair():
    members = [clip for clip in clips() if clip.meta["control"] == "no"]
    first = members[0]
    return first, next(
        c for c in members if c.meta["pair"] == first.meta["pair"] and c.name != first.name
    )


@pytest.mark.parametrize("what", ["states", "values", "input"])
@pytest.mark.parametrize("name", ["tiny-french-ctc", "tiny-french-whisper"])
def test_a_clip_patched_with_itself_stays_as_it_is(name, what, pair):
    clip, _ = pair
    patched = speechmix.patch(trained(name), clip, clip, what=what)
    np.testing.assert_allclose(patched.table["drop"], 0, atol=1e-3 if what == "input" else 1e-4)
    assert not patched.table["flipped"].any()


def test_all_words_of_the_other_s_input_are_the_other():
    model = gpt2()
    patched = speechmix.patch(model, PLURAL, SINGULAR, what="input")
    cats = patched.table.set_index("label").loc["cats"]
    assert cats["carried"] == pytest.approx(1, abs=1e-9)  # the only word in which the two differ
    others = patched.table[patched.table["label"] != "cats"]
    np.testing.assert_allclose(others["carried"], 0, atol=1e-9)


def test_states_of_the_word_carry_all_that_enters_the_first_layer():
    """The only word that differs: all of it is in its own states before the first layer, and only
    what is read there after."""
    patched = speechmix.patch(gpt2(), PLURAL, SINGULAR)
    carried = patched.scores("decoder", "carried")
    column = patched.words("decoder").index("cats")
    assert carried[0, column] == pytest.approx(1, abs=1e-9)
    np.testing.assert_allclose(carried[0, np.arange(3) != column], 0, atol=1e-9)
    assert abs(carried[-1, column] - 1) > 1e-6


def test_values_in_all_layers_are_carried_together():
    model = gpt2()
    alone = speechmix.patch(model, PLURAL, SINGULAR, what="values")
    together = speechmix.patch(model, PLURAL, SINGULAR, what="values", window="all")
    assert alone.scores("decoder").shape == (3, 3)
    assert together.scores("decoder").shape == (1, 3)
    assert not np.allclose(alone.scores("decoder")[0], together.scores("decoder")[0])


def test_the_trained_recogniser_hears_the_number_in_the_cue(pair):
    clip, other = pair
    patched = speechmix.patch(trained("tiny-french-ctc"), clip, other)
    cue = patched.words("encoder").index(clip.words[clip.cue].text)
    carried = patched.scores("encoder", "carried")
    assert (carried[:, cue] > carried[:, 1 - cue]).all()
    assert carried[0, cue] > 0.5


def test_margins_are_compared_where_each_item_decides():
    """The other member decides one letter earlier ("le", "les"): its margin is read there."""
    members = [
        clip for clip in clips() if clip.meta["control"] == "no" and clip.meta["side"] == "left"
    ]
    model = trained("tiny-french-whisper")
    for clip in members[:4]:
        other = next(
            c for c in members if c.meta["pair"] == clip.meta["pair"] and c.name != clip.name
        )
        patched = speechmix.patch(model, clip, other, words=[clip.cue])
        # Both cues' states before the first layer of decoder and encoder are most of what the two
        # differ in.
        assert np.isfinite(patched.table["carried"]).all()


class TestRefused:
    def test_other_numbers_of_words(self):
        with pytest.raises(InputError, match="the same number of words"):
            speechmix.patch(
                gpt2(), PLURAL, speechmix.Sentence("the big cats are", target="are", foil="ape")
            )

    def test_other_numbers_of_tokens_in_the_input(self):
        with pytest.raises(InputError, match="swap states or values instead"):
            speechmix.patch(
                gpt2(),
                PLURAL,
                speechmix.Sentence("the dog are", target="are", foil="ape"),
                what="input",
            )

    def test_states_of_cross_attention(self, pair):
        with pytest.raises(InputError, match="ask for the encoder or the decoder"):
            speechmix.patch(trained("tiny-french-whisper"), *pair, stacks=["cross"])

    @pytest.mark.parametrize("options", [{"what": "soul"}, {"what": "states", "window": 2}])
    def test_what_is_not_there(self, options):
        with pytest.raises(InputError):
            speechmix.patch(
                bert(),
                *[speechmix.Sentence("the cats are here", target="are", foil="is")] * 2,
                **options,
            )


def test_positions_are_matched_by_their_share_of_the_word():
    assert match_positions(4, [10, 11]) == [10, 10, 11, 11]
    assert match_positions(2, [5, 6, 7, 8]) == [6, 8]
    assert match_positions(3, [0, 1, 2]) == [0, 1, 2]
