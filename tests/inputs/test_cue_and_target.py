"""A cue of several words: how it is named in every kind of file, what it is then, and that a cue of
one word is as before."""

from __future__ import annotations

import json

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

import speechmix
from speechmix import Clip, Sentence
from speechmix.errors import InputError
from speechmix.inputs import bundled
from speechmix.inputs.formats.word_files import write_textgrid
from speechmix.inputs.words.cue_and_target import (
    cue_to_json,
    cue_words,
    find_cue,
    find_cue_and_target,
)
from speechmix.inputs.words.word_checks import check_words

TEXT = "le chat et le grand club se quittent"
WORDS = check_words([(word, i / 10, (i + 1) / 10) for i, word in enumerate(TEXT.split())])


@pytest.mark.parametrize(
    ("request_", "cue"),
    [
        ("le chat", (0, 1)),  # the phrase says which "le" it is
        ("LE  Chat,", (0, 1)),
        ("« le chat »", (0, 1)),
        ("chat club", (1, 5)),  # nowhere side by side: each by itself
        ("le:2 club", (3, 5)),
        ("club le:2", (3, 5)),
        ("3 5", (3, 5)),
        ("le:2", 3),
        (["le:2", "club"], (3, 5)),
        ([["le", 2], "club"], (3, 5)),
        ((3, 5), (3, 5)),
        ([5, "le:2"], (3, 5)),
        (["club"], 5),
        ([5], 5),
        (("le", 2), 3),  # as it always was: the second "le"
        (["le", 2], 3),
        ([0, 1, 3], (0, 1, 3)),
    ],
)
def test_ways_to_name_several_words(request_, cue):
    assert find_cue(WORDS, request_) == cue
    sentence = Sentence(TEXT, cue=request_)
    assert (sentence.cue, sentence.cue_words) == (cue, cue_words(cue))


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ("le quittent", "cue 'le' occurs 2 times"),
        (["le", "club"], "cue 'le' occurs 2 times"),
        ("la chat", "cue 'la' is not one of the words"),
        ([], "at least one word for the cue"),
        ([1, 1], "names a word twice"),
        ("chat 1", "names a word twice"),
        ([1, 99], "cue index must be 0 to 7"),
        (("le", "2"), "pair must be"),
        ([1, None], "must be an index, a word or"),
        ([1, {}], "must be an index, a word or"),
        ("9" * 5000, "is not one of the words"),
        ("le:" + "9" * 5000, "is not one of the words"),
    ],
)
def test_what_is_refused(request_, message):
    with pytest.raises(InputError, match=message):
        find_cue(WORDS, request_)


def test_a_phrase_that_occurs_twice_is_refused_with_what_to_write():
    words = Sentence("le chat voit le chat").words
    with pytest.raises(InputError, match=r"occurs 2 times, from words 0, 3 on: .*'le:2 chat:2'"):
        find_cue(words, "le chat")
    assert find_cue(words, "le:2 chat:2") == (3, 4)


def test_the_target_is_none_of_the_cue_s_words():
    with pytest.raises(InputError, match="must be two words, found word 1 'chat' for both"):
        find_cue_and_target(WORDS, {"cue": "le chat", "target": "chat"})
    with pytest.raises(InputError, match="target 'le chat' is not one of the words"):
        find_cue_and_target(WORDS, {"target": "le chat"})


@given(st.sets(st.integers(0, len(WORDS) - 1), min_size=1), st.randoms(use_true_random=False))
def test_indices_in_any_order_and_any_form_are_the_same_cue(places, random):
    shuffled = random.sample(sorted(places), len(places))
    expected = tuple(sorted(places)) if len(places) > 1 else min(places)
    assert find_cue(WORDS, shuffled) == find_cue(WORDS, tuple(shuffled)) == expected
    assert find_cue(WORDS, " ".join(map(str, shuffled))) == expected
    assert (
        find_cue(WORDS, cue_to_json(expected)) == find_cue(WORDS, cue_words(expected)) == expected
    )
    assert cue_words(cue_to_json(expected)) == tuple(sorted(places))


@pytest.fixture
def folder(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(16_000), 16_000)
    write_textgrid(tmp_path / "a.TextGrid", WORDS, 1.0)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "m.tsv",
            f"path\ttext\twords\tcue\ttarget\na.wav\t{TEXT}\ta.TextGrid\tle:2 club\tquittent\n",
        ),
        ("m.csv", f"path,text,words,cue,target\na.wav,{TEXT},a.TextGrid,le:2 club,quittent\n"),
        *(
            (
                "m.jsonl",
                json.dumps(
                    {
                        "path": "a.wav",
                        "text": TEXT,
                        "words": words,
                        "cue": cue,
                        "target": "quittent",
                    }
                ),
            )
            for words in ("a.TextGrid", [[word.text, word.start, word.end] for word in WORDS])
            for cue in ("le:2 club", ["le:2", "club"], [["le", 2], 5], [3, 5])
        ),
    ],
)
def test_every_kind_of_manifest(folder, name, content):
    (folder / name).write_text(content, encoding="utf-8")
    (clip,) = speechmix.read_clips(folder / name)
    assert (clip.cue, clip.cue_words, clip.target) == ((3, 5), (3, 5), 7)
    assert repr(clip) == "Clip('a', 8 words, cue=(3, 5) 'le club', target=7 'quittent')"
    assert clip.cut(0.1, 0.8).cue_words == (2, 4)
    with pytest.raises(InputError, match="the cue is not wholly between"):
        clip.cut(0.4, 0.8)
    assert clip._repr_html_().count("color: #0072b2") == 2


def test_a_manifest_without_words_keeps_the_request_until_there_are_some(folder):
    (folder / "m.tsv").write_text(f"path\ttext\tcue\ttarget\na.wav\t{TEXT}\tgrand club\tquittent\n")
    (clip,) = speechmix.read_clips(folder / "m.tsv")
    assert (clip.cue, clip.cue_words) == (None, ())
    assert clip.with_words(folder / "a.TextGrid").cue == (4, 5)
    (folder / "m.tsv").write_text(
        "path\twords\tcue\ttarget\na.wav\ta.TextGrid\tle club\tquittent\n"
    )
    with pytest.raises(InputError, match="cue 'le' occurs 2 times"):
        speechmix.read_clips(folder / "m.tsv")


def test_what_is_stored_of_a_cue_of_one_word_is_as_it_was():
    """Fingerprints of the release before: what is stored under them is still used."""
    clip = bundled.clips()[0]
    assert (clip.name, clip.fingerprint) == ("left_00_sg", "ae613c647720609a")
    same = clip.replace(cue=[clip.cue])
    assert (same.cue, same.fingerprint, same.cue_words) == (clip.cue, clip.fingerprint, (clip.cue,))
    sentence = Sentence("les chats dorment", cue="les", target="dorment", foil="dort")
    assert sentence.fingerprint == "0aa6c5f2637535e75a900dd3f248d86a"
    other = sentence.replace(cue="les chats")
    assert other.fingerprint == sentence.replace(cue=(1, 0)).fingerprint != sentence.fingerprint


def test_two_clips_of_the_same_words_are_the_same_however_these_are_named():
    clip = Clip.from_array(np.zeros(16_000), 16_000, words=WORDS, cue="le:2 club")
    assert (
        clip.fingerprint == clip.replace(cue=(5, 3)).fingerprint != clip.replace(cue=3).fingerprint
    )
