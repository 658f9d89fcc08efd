"""A sentence as a noun: it does not change, and another is made from it with its cue and target
looked up anew."""

import copy
import pickle
from dataclasses import FrozenInstanceError

import pytest

from speechmix.errors import InputError
from speechmix.inputs.sentences.sentence import Sentence
from speechmix.inputs.words.cue_and_target import find_cue_and_target
from speechmix.inputs.words.word_checks import check_words

TEXT = "les chats et les chiens dorment"


def test_it_does_not_change():
    sentence = Sentence(TEXT, cue="les:2", meta={"a": "b"})
    for name in ("text", "cue", "meta", "words"):
        with pytest.raises(FrozenInstanceError):
            setattr(sentence, name, None)
    with pytest.raises(TypeError):
        sentence.meta["a"] = "c"
    assert (sentence.text, sentence.cue, sentence.meta) == (TEXT, 3, {"a": "b"})


def test_replace_looks_cue_and_target_up_anew():
    sentence = Sentence(TEXT, cue="les:2", target="chiens", foil="chien", meta={"a": "b"})
    other = sentence.replace(text=f"tous {TEXT}")
    assert ((sentence.cue, sentence.target), (other.cue, other.target)) == ((3, 4), (4, 5))
    assert (other.name, other.foil, other.meta) == (f"tous {TEXT}", "chien", {"a": "b"})
    assert sentence.replace() == sentence
    assert sentence.replace(name="a").replace(text="les les chiens").name == "a"
    with pytest.raises(InputError, match="cue 'les' occurs 1 time"):
        sentence.replace(text="les chiens")


def test_copies_and_pickles_are_the_same_sentence():
    sentence = Sentence(TEXT, cue="les:2", meta={"a": "b"})
    for other in (
        copy.copy(sentence),
        copy.deepcopy(sentence),
        pickle.loads(pickle.dumps(sentence)),
    ):
        assert other == sentence
        assert (other.fingerprint, other.words, other.replace()) == (
            sentence.fingerprint,
            sentence.words,
            sentence,
        )
        with pytest.raises(TypeError):
            other.meta["a"] = "c"


@pytest.mark.parametrize("cue", ["la", "les", "les:3", 9, True, ("les",), "dorment"])
def test_a_clip_and_a_sentence_say_the_same(cue):
    """One rule: the same words in the same place are found, or refused in the same sentence."""
    requests = {"cue": cue, "target": "dorment"}
    with pytest.raises(InputError) as of_sentence:
        Sentence(TEXT, **requests, name="x")
    words = check_words([(word, i, i + 1) for i, word in enumerate(TEXT.split())])
    with pytest.raises(InputError) as of_clip:
        find_cue_and_target(words, requests, where="sentence 'x'")
    first, second = (str(error.value).split(" (")[0] for error in (of_sentence, of_clip))
    assert first == second
