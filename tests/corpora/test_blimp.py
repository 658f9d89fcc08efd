"""BLiMP: cues and targets on sentences worked out by hand, on all of the real paradigms where they
are, and by a parse."""

from __future__ import annotations

import json
import sys
from collections import Counter
from types import SimpleNamespace

import pytest
import transformers

from speechmix.errors import InputError, MissingExtraError
from speechmix.extensions.agreement.blimp import (
    PARADIGMS,
    BlimpItem,
    expand_contractions,
    load_spacy_pipeline,
    read_blimp,
)
from speechmix.extensions.agreement.item_selection import draw_items, select_one_token_items
from speechmix.inputs.sentences.sentence import Sentence

# paradigm, acceptable, unacceptable; what the cue, target, foil and number should be
BY_HAND = [
    (
        "anaphor_number_agreement",
        "Susan revealed herself.",
        "Susan revealed themselves.",
        "Susan",
        "herself",
        "themselves",
        "singular",
    ),
    (
        "anaphor_number_agreement",
        "A lot of girls can't cure themselves.",
        "A lot of girls can't cure itself.",
        "A lot of girls",
        "themselves",
        "itself",
        "plural",
    ),
    (
        "anaphor_number_agreement",
        "Harvard University thought about itself.",
        "Harvard University thought about themselves.",
        "Harvard University",
        "itself",
        "themselves",
        "singular",
    ),
    (
        "anaphor_number_agreement",
        "The Borgias are admiring themselves.",
        "The Borgias are admiring itself.",
        "The Borgias",
        "themselves",
        "itself",
        "plural",
    ),
    (
        "determiner_noun_agreement_1",
        "These senators wear that art gallery.",
        "These senators wear that art galleries.",
        "that",
        "gallery",
        "galleries",
        "singular",
    ),
    (
        "determiner_noun_agreement_2",
        "Some waiters broke this movie theater.",
        "Some waiters broke these movie theater.",
        "theater",
        "this",
        "these",
        "singular",
    ),
    (
        "determiner_noun_agreement_with_adjective_1",
        "Kim saw these out in the open adults.",
        "Kim saw these out in the open adult.",
        "these",
        "adults",
        "adult",
        "plural",
    ),
    (
        "determiner_noun_agreement_with_adj_2",
        "Cynthia scans those hard books.",
        "Cynthia scans that hard books.",
        "books",
        "those",
        "that",
        "plural",
    ),
    (
        "distractor_agreement_relational_noun",
        "A newspaper article about a lot of cats hasn't hurt Ann.",
        "A newspaper article about a lot of cats haven't hurt Ann.",
        "article",
        "has",
        "have",
        "singular",
    ),
    (
        "distractor_agreement_relational_noun",
        "The sisters of Lisa's wave.",
        "The sisters of Lisa's waves.",
        "sisters",
        "wave",
        "waves",
        "plural",
    ),
    (
        "regular_plural_subject_verb_agreement_1",
        "A lot of cashiers weren't here.",
        "A lot of cashiers isn't here.",
        "cashiers",
        "were",
        "is",
        "plural",
    ),
    (
        "regular_plural_subject_verb_agreement_1",
        "Winston Churchill embarrasses Dan.",
        "Winston Churchill embarrass Dan.",
        "Churchill",
        "embarrasses",
        "embarrass",
        "singular",
    ),
]


def write(folder, paradigm, pairs):
    lines = [
        json.dumps({"sentence_good": good, "sentence_bad": bad, "pairID": str(i)})
        for i, (good, bad) in enumerate(pairs)
    ]
    (folder / f"{paradigm}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize(("paradigm", "good", "bad", "cue", "target", "foil", "number"), BY_HAND)
def test_cue_and_target_by_the_paradigms_construction(
    tmp_path, paradigm, good, bad, cue, target, foil, number
):
    (item,), rejected = read_blimp(write(tmp_path, paradigm, [(good, bad)]))
    words = [word.text for word in Sentence(item.text).words]
    assert not rejected
    assert [words[i] for i in item.cue] == cue.split()
    assert (words[item.target], item.foil, item.number) == (target, foil, number)
    assert item.text == expand_contractions(good)


def test_the_sentence_is_masked_for_masked_models_and_has_its_foil_for_causal_ones(tmp_path):
    pairs = [("Most ladies haven't left.", "Most ladies hasn't left.")]
    (item,), _ = read_blimp(write(tmp_path, "regular_plural_subject_verb_agreement_1", pairs))
    masked, whole = item.sentence(masked=True), item.sentence(masked=False)
    assert masked.text == "Most ladies <mask> not left."
    assert (masked.cue, masked.target, masked.foil) == (1, 2, None)
    assert masked.words[masked.target].text == "<mask>"
    assert (whole.text, whole.foil, whole.words[whole.target].text) == (
        "Most ladies have not left.",
        "has",
        "have",
    )
    assert whole.name == "regular_plural_subject_verb_agreement_1-0"
    assert dict(whole.meta) == {
        "paradigm": "regular_plural_subject_verb_agreement_1",
        "number": "plural",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ann can't, won't and shan't go.", "Ann cannot, will not and shall not go."),
        ("Can't Lisa's cats? Isn't it?", "Cannot Lisa's cats? Is not it?"),
        ("no contraction", "no contraction"),
    ],
)
def test_contractions(text, expected):
    assert expand_contractions(text) == expected


def test_pairs_that_do_not_differ_in_one_word_or_have_no_cue_are_rejected_with_a_reason(tmp_path):
    pairs = [
        ("Ann sees this cat.", "Ann sees this cat."),
        ("Ann sees this cat.", "Ann sees these cats."),
        ("Ann sees this cat.", "Ann sees this big cat."),
        ("Ann sees a cat.", "Ann sees a cats."),
    ]
    items, rejected = read_blimp(write(tmp_path, "determiner_noun_agreement_1", pairs))
    assert not items
    assert [one.reason_kind for one in rejected] == ["not one word differs"] * 3 + ["no cue found"]
    assert "no determiner for 'cat' in 'Ann sees a cat.'" in rejected[-1].reason


def test_a_pair_whose_sentences_were_exchanged_is_left_out(tmp_path):
    pairs = [
        ("Those drivers disgusts Dan.", "Those drivers disgust Dan."),
        ("This bus stops.", "This bus stop."),
        ("James waves.", "James wave."),
        ("Some actress sings.", "Some actress sing."),
    ]
    items, rejected = read_blimp(write(tmp_path, "regular_plural_subject_verb_agreement_1", pairs))
    assert [one.name[-1] for one in items] == ["1", "2", "3"]
    assert [one.reason_kind for one in rejected] == ["mistake in BLiMP"]


def test_folders_and_files_that_are_not_blimp_say_so(tmp_path):
    with pytest.raises(
        InputError, match=r"expected one or more of anaphor_number_agreement\.jsonl"
    ):
        read_blimp(tmp_path)
    with pytest.raises(InputError, match="found island_effects"):
        read_blimp(tmp_path, paradigms=["island_effects"])
    with pytest.raises(InputError, match="no such file"):
        read_blimp(tmp_path, paradigms=["anaphor_number_agreement"])
    (tmp_path / "anaphor_number_agreement.jsonl").write_text('\n{"sentence_good": "x"}\n')
    with pytest.raises(
        InputError, match=r"line 2: expected a JSON object with sentence_good and sentence_bad"
    ):
        read_blimp(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xd8",
        b"[" * 100_000,
        b'{"sentence_good": "x", "sentence_bad": 3}',
        b"[3]",
        b'{"pairID": "\\ud800"}',
    ],
)
def test_damaged_files_say_so(tmp_path, content):
    (tmp_path / "anaphor_number_agreement.jsonl").write_bytes(content)
    with pytest.raises(InputError, match=r"anaphor_number_agreement\.jsonl"):
        read_blimp(tmp_path)


def word_piece(words: str):
    """A WordPiece tokenizer that knows these words whole and everything else by letters."""
    letters = "abcdefghijklmnopqrstuvwxyz."
    known = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *letters,
        *(f"##{letter}" for letter in letters),
        *words.split(),
    ]
    return transformers.BertTokenizer(vocab={token: i for i, token in enumerate(known)})


def item(target, foil, *, name="x-0", number="singular", before="The cat ", after=" here."):
    text = f"{before}{target}{after}"
    return BlimpItem(
        name,
        "regular_plural_subject_verb_agreement_1",
        text,
        len(before.split()),
        foil,
        (1,),
        number,
    )


def test_only_pairs_of_one_token_each_are_kept():
    tokenizer = word_piece("the cat sits sit sleeps has have")
    items = [
        item("sits", "sit"),
        item("sleeps", "sleep", name="x-1"),
        item("sleep", "sleeps", name="x-2"),
        item("runs", "run", name="x-3"),
        item("is", "日", name="x-4"),
    ]
    kept, rejected = select_one_token_items(items, tokenizer)
    assert kept == items[:1]
    assert [one.reason_kind for one in rejected] == [
        "foil is not one token",
        "target is not one token",
        "target and foil are not one token",
        "target and foil are not one token",
    ]
    assert rejected[0].reason == "'sleep' is 5 tokens for BertTokenizer"
    assert rejected[-1].reason == "'is' is 2 tokens, '日' is unknown for BertTokenizer"


def test_one_token_is_judged_behind_a_space(multilingual_tokenizer_file):
    """In a byte-level vocabulary " waiters" and "waiters" are different tokens."""
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(multilingual_tokenizer_file)
    )
    assert len(tokenizer("cats", add_special_tokens=False)["input_ids"]) == 2
    assert len(select_one_token_items([item("cats", "dogs")], tokenizer)[0]) == 1
    assert (
        select_one_token_items([item("cashier", "cashiers")], tokenizer)[1][0].reason_kind
        == "target and foil are not one token"
    )


def test_as_many_plural_as_singular_items_are_drawn_and_none_twice():
    items = [item("is", "are", name=f"s-{i}") for i in range(30)]
    items += [item("are", "is", name=f"p-{i}", number="plural") for i in range(6)]
    drawn = draw_items(items, 10)
    assert Counter(one.number for one in drawn) == {"singular": 5, "plural": 5}
    assert len({one.name for one in drawn}) == 10
    assert drawn == draw_items(items, 10) == sorted(drawn, key=items.index)
    assert drawn != draw_items(items, 10, seed=1)
    assert Counter(one.number for one in draw_items(items, 20)) == {"singular": 14, "plural": 6}
    assert draw_items(items) == items
    assert len(draw_items(items, 100)) == 36
    with pytest.raises(InputError, match="at least one item per paradigm"):
        draw_items(items, 0)


def test_every_pair_of_the_real_paradigms_is_read(shared):
    items, rejected = read_blimp(shared / "data" / "blimp")
    assert len(items) == 4990
    assert [one.reason_kind for one in rejected] == ["mistake in BLiMP"] * 10
    assert "'Those drivers disgusts Dan.'" in rejected[0].reason
    counts = Counter((one.paradigm, one.number) for one in items)
    assert (
        counts["regular_plural_subject_verb_agreement_1", "singular"] == 694
    )  # the imbalance that drawing evens out
    for one in items:
        words = [word.text for word in Sentence(one.text).words]
        cues = [words[i].lower() for i in one.cue]
        assert "n't" not in one.text
        assert all(cue.replace("'", "").isalpha() for cue in cues)
        assert one.cue[-1] < one.target
        if PARADIGMS[one.paradigm] == "determiner":
            assert (cues[0] in ("these", "those")) is (one.number == "plural")
        if (
            PARADIGMS[one.paradigm] == "head of the subject"
        ):  # relational nouns are regular, so their ending tells
            assert cues[0].endswith("s") is (one.number == "plural")
        if words[0] in ("These", "Those", "Many") and PARADIGMS[one.paradigm] in (
            "subject",
            "antecedent",
        ):
            assert one.number == "plural"


def parse_of(*arcs):
    """A parser that gives these (word, dependency, head) whatever it is asked, with spaCy's
    attributes."""

    def parse(text):
        tokens, reached = [], 0
        for i, (word, dependency, _) in enumerate(arcs):
            start = text.index(word, reached)
            reached = start + len(word)
            tokens.append(SimpleNamespace(i=i, idx=start, text=word, dep_=dependency))
        for token, (_, _, head) in zip(tokens, arcs, strict=True):
            token.head = tokens[head]
        return tokens

    return parse


@pytest.mark.parametrize(
    ("paradigm", "good", "bad", "arcs", "cue"),
    [
        (
            "regular_plural_subject_verb_agreement_1",
            "A lot of cashiers have left.",
            "A lot of cashiers has left.",
            [
                ("A", "det", 1),
                ("lot", "nsubj", 5),
                ("of", "prep", 1),
                ("cashiers", "pobj", 2),
                ("have", "aux", 5),
                ("left", "ROOT", 5),
                (".", "punct", 5),
            ],
            "lot",
        ),  # where parse and construction part
        (
            "distractor_agreement_relational_noun",
            "The son of Ann waves.",
            "The son of Ann wave.",
            [
                ("The", "det", 1),
                ("son", "nsubj", 4),
                ("of", "prep", 1),
                ("Ann", "pobj", 2),
                ("waves", "ROOT", 4),
                (".", "punct", 4),
            ],
            "son",
        ),
        (
            "determiner_noun_agreement_1",
            "Ann sees this art gallery.",
            "Ann sees this art galleries.",
            [
                ("Ann", "nsubj", 1),
                ("sees", "ROOT", 1),
                ("this", "det", 4),
                ("art", "compound", 4),
                ("gallery", "dobj", 1),
                (".", "punct", 1),
            ],
            "this",
        ),
        (
            "determiner_noun_agreement_2",
            "Ann sees this art gallery.",
            "Ann sees these art gallery.",
            [
                ("Ann", "nsubj", 1),
                ("sees", "ROOT", 1),
                ("this", "det", 4),
                ("art", "compound", 4),
                ("gallery", "dobj", 1),
                (".", "punct", 1),
            ],
            "gallery",
        ),
        (
            "anaphor_number_agreement",
            "Most ladies think about themselves.",
            "Most ladies think about herself.",
            [
                ("Most", "amod", 1),
                ("ladies", "nsubj", 2),
                ("think", "ROOT", 2),
                ("about", "prep", 2),
                ("themselves", "pobj", 3),
                (".", "punct", 2),
            ],
            "Most ladies",
        ),
        (
            "anaphor_number_agreement",
            "A lot of girls cure themselves.",
            "A lot of girls cure itself.",
            [
                ("A", "det", 1),
                ("lot", "nsubj", 4),
                ("of", "prep", 1),
                ("girls", "pobj", 2),
                ("cure", "ROOT", 4),
                ("themselves", "dobj", 4),
                (".", "punct", 4),
            ],
            "A lot of girls",
        ),
    ],
)
def test_cue_by_dependency(tmp_path, paradigm, good, bad, arcs, cue):
    (found,), _ = read_blimp(write(tmp_path, paradigm, [(good, bad)]), parse=parse_of(*arcs))
    assert [Sentence(good).words[i].text for i in found.cue] == cue.split()


def test_a_parse_without_the_dependency_rejects_the_item(tmp_path):
    arcs = [("Ann", "npadvmod", 1), ("waves", "ROOT", 1), (".", "punct", 1)]
    folder = write(
        tmp_path, "regular_plural_subject_verb_agreement_1", [("Ann waves.", "Ann wave.")]
    )
    items, rejected = read_blimp(folder, parse=parse_of(*arcs))
    assert not items
    assert rejected[0].reason_kind == "no cue found"


def test_a_parse_whose_tokens_take_in_two_words_rejects_the_item(tmp_path):
    arcs = [("Ann", "nsubj", 1), ("waves", "ROOT", 1), (".", "punct", 1)]
    folder = write(
        tmp_path, "regular_plural_subject_verb_agreement_1", [("Ann waves.", "Ann wave.")]
    )

    def parse(text):
        return parse_of(*arcs)(text)[:1]  # the verb is in no token of its own

    assert [row.reason_kind for row in read_blimp(folder, parse=parse)[1]] == ["no cue found"]


def test_without_spacy_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(
        MissingExtraError, match=r"finding cues by dependency needs spacy: pip install"
    ):
        load_spacy_pipeline()
