"""Texts for text models: words from sub-words, masks, pairs, foils, translations; through hub
folders as users have them."""

from __future__ import annotations

import numpy as np
import pytest
import transformers
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

import speechmix
from speechmix import Clip, Sentence
from speechmix.errors import InputError
from tests.conftest import ALL_FAMILIES, build

TEXT = "Either you win the game or you lose the game."
CORPUS = [
    TEXT,
    "You lose games unwinnable.",
    "les chats dorment ici",
    "the cats sleep here",
    "le chat dort ici",
]
BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
BART_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def wordpiece() -> transformers.PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(
        CORPUS, trainers.WordPieceTrainer(vocab_size=60, special_tokens=BERT_SPECIAL)
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **dict(zip(names, BERT_SPECIAL, strict=True))
    )


def byte_pairs(special: list[str]) -> transformers.PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(vocab_size=330, special_tokens=special, initial_alphabet=alphabet),
    )
    options = {"eos_token": special[-1]}
    if special is BART_SPECIAL:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
        )
        names = ("bos_token", "pad_token", "eos_token", "unk_token", "mask_token")
        options = dict(zip(names, BART_SPECIAL, strict=True))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **options)


def loaded(tmp_path, family: str, tokenizer) -> speechmix.adapters.Model:
    """A tiny random model saved in hub format with its tokenizer, and loaded from there."""
    build(family, vocab_size=len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return speechmix.load(tmp_path, device="cpu", dtype="float64")


@pytest.fixture
def bert(tmp_path):
    return loaded(tmp_path, "bert", wordpiece())


@pytest.fixture
def gpt2(tmp_path):
    return loaded(tmp_path, "gpt2", byte_pairs(["<|endoftext|>"]))


@pytest.fixture
def bart(tmp_path):
    return loaded(tmp_path, "bart", byte_pairs(BART_SPECIAL))


class TestSentence:
    def test_words_are_apart_from_punctuation_and_know_their_characters(self):
        sentence = Sentence("Don't, l'ami: <mask> [MASK] vis-à-vis!", pair="Yes.")
        assert [word.text for word in sentence.words] == [
            "Don't",
            ",",
            "l'ami",
            ":",
            "<mask>",
            "[MASK]",
            "vis-à-vis",
            "!",
            "Yes",
            ".",
        ]
        for word in sentence.words:
            assert getattr(sentence, word.part)[word.start : word.stop] == word.text

    @pytest.mark.parametrize("given", ["game", "nowhere", 99, -1])
    def test_cue_that_is_not_one_word(self, given):
        with pytest.raises(InputError, match="cue"):
            Sentence(TEXT, cue=given)

    @pytest.mark.parametrize("request_", ["les:2", ("les", 2), "LES:2", "3", 3, "« les »:2"])
    def test_ways_to_name_a_word_are_those_of_a_clip(self, request_):
        assert Sentence("Les chats et les chiens.", cue=request_).cue == 3

    @pytest.mark.parametrize(
        ("text", "asked", "index"),
        [
            ("the mask and <mask> fell.", "mask", 1),
            ("the mask and <mask> fell.", "<mask>", 3),
            ("the mask and <mask> fell.", "<MASK>", 3),
            ("a [MASK] or <mask>.", "[MASK]", 1),
            ("the cat fell.", ".", 3),
            ("oui, non, si", ",:2", 3),
            ("aujourd’hui", "aujourd'hui", 0),
            ("l'e\u0301te\u0301", "L'ÉTÉ", 0),
            ("vingt et 1 ou 3", "1", 2),
            ("a :: b", "::2", 2),
        ],
    )
    def test_markers_punctuation_and_spellings(self, text, asked, index):
        assert Sentence(text, target=asked).target == index

    @pytest.mark.parametrize(
        ("text", "asked", "message"),
        [
            (
                "les chats et les chiens",
                "les",
                r"'les:1' word 0 'les' \(at character 0 of the text\), 'les:2' word 3",
            ),
            ("les chats", "les:2", r"cue 'les' occurs 1 time\(s\)"),
            (
                "les chats",
                "chiens",
                "'chiens' is not one of the words; the words are 0 'les', 1 'chats'",
            ),
            ("the mask fell", "<mask>", "'<mask>' is not one of the words"),
            ("les chats", 7, "cue index must be 0 to 1, found 7"),
            ("les chats", 1.5, "cue must be an index, a word or"),
            ("les chats", True, "cue must be an index, a word or"),
            ("les chats", ("les", "1"), "occurrence from 1"),
        ],
    )
    def test_requests_that_fit_no_word_or_two(self, text, asked, message):
        with pytest.raises(InputError, match=message):
            Sentence(text, cue=asked)

    def test_the_fingerprint_is_of_the_question_alone(self):
        asked = {"text": "les chats dorment", "cue": "les", "target": "dorment", "foil": "dort"}
        prints = [Sentence(**asked).fingerprint]
        changes = {
            "text": "les chats dorment.",
            "pair": "oui",
            "translation": "cats",
            "cue": 1,
            "target": 1,
            "foil": "d",
        }
        prints += [
            Sentence(**{**asked, name: value}).fingerprint for name, value in changes.items()
        ]
        assert len(set(prints)) == 7
        assert {len(one) for one in prints} == {32}
        same = Sentence(**{**asked, "cue": 0}, name="other", meta={"a": "b"})
        assert same.fingerprint == prints[0] == "0aa6c5f2637535e75a900dd3f248d86a"
        assert Sentence("a\ud800").fingerprint != Sentence("a").fingerprint

    @pytest.mark.parametrize("text", ["", "  ", None])
    def test_nothing_to_read(self, text):
        with pytest.raises(InputError, match="text with words"):
            Sentence(text)


class TestEncoder:
    def test_words_are_made_of_their_sub_words_and_specials_stay(self, bert):
        maps = speechmix.mix(bert, TEXT)["value_zeroing", "encoder"]
        assert [span.label for span in maps.sources] == [
            "[CLS]",
            *(w.text for w in Sentence(TEXT).words),
            "[SEP]",
        ]
        assert [span.kind for span in maps.sources][::11] == ["special", "word"]
        assert any(len(span) > 1 for span in maps.sources)
        starts = [span.start for span in maps.sources]
        assert starts[1:] == [span.stop for span in maps.sources][:-1]

    def test_words_are_zeroed_at_once_tokens_one_by_one(self, bert):
        words = speechmix.mix(bert, TEXT)["value_zeroing", "encoder"]
        tokens = speechmix.mix(bert, TEXT, units="token")["value_zeroing", "encoder"]
        given = bert.tokenizer(TEXT, return_tensors="pt")
        prepared = speechmix.mix(bert, dict(given))["value_zeroing", "encoder"]
        spans = [(span.start, span.stop) for span in words.sources]
        by_spans = speechmix.mix(bert, dict(given), spans=spans)["value_zeroing", "encoder"]
        np.testing.assert_array_equal(tokens.scores, prepared.scores)
        np.testing.assert_array_equal(words.scores, by_spans.scores)
        assert tokens.sources[0].word is None
        assert {span.word for span in tokens.sources} == {None, *range(11)}

    def test_mask_is_the_models_own_and_a_word(self, bert):
        masked = TEXT.replace("lose", "<mask>")
        sentence = Sentence(masked, cue="Either", target="<mask>", foil="win")
        maps = speechmix.mix(
            bert, sentence, targets="target", measures=["value_zeroing", "attention"]
        )
        (target,) = maps["attention", "encoder"].targets
        assert (target.word, target.label, len(target)) == (7, "<mask>", 1)
        words = [
            span.word for span in speechmix.mix(bert, sentence)["value_zeroing", "encoder"].sources
        ]
        assert words == [None, *range(11), None]
        share = speechmix.cue_contribution(
            maps["value_zeroing", "encoder"], cue=sentence.cue, target=sentence.target
        )
        assert share.shape == (3,)

    def test_pairs_have_segments_of_their_own(self, bert):
        pair = Sentence("the cats sleep", pair="le chat dort", cue="cats", target="dort")
        maps = speechmix.mix(bert, pair)["value_zeroing", "encoder"]
        labels = [span.label for span in maps.sources]
        assert labels == ["[CLS]", "the", "cats", "sleep", "[SEP]", "le", "chat", "dort", "[SEP]"]
        given = bert.tokenizer("the cats sleep", "le chat dort", return_tensors="pt")
        spans = [(span.start, span.stop) for span in maps.sources]
        expected = speechmix.mix(bert, dict(given), spans=spans)["value_zeroing", "encoder"]
        np.testing.assert_array_equal(maps.scores, expected.scores)

    def test_texts_in_a_row_and_in_a_batch(self, bert):
        texts = [TEXT, "the cats sleep", Sentence("les chats dorment ici")]
        alone = speechmix.mix(bert, texts)
        together = speechmix.mix(bert, texts, clips_at_once=3)
        for expected, found in zip(alone, together, strict=True):
            key = ("value_zeroing", "encoder")
            np.testing.assert_allclose(found[key].scores, expected[key].scores, rtol=1e-9)

    def test_what_is_kept_says_what_was_asked(self, bert):
        found = speechmix.mix(bert, Sentence(TEXT, cue=0, name="first"))[
            "value_zeroing", "encoder"
        ].provenance
        assert (found["text"], found["cue"], found["clip"]) == (TEXT, 0, "first")


class TestDecoder:
    def test_rows_and_columns_are_what_is_held(self, gpt2):
        maps = speechmix.mix(gpt2, TEXT)["value_zeroing", "decoder"]
        assert [span.label for span in maps.targets] == [word.text for word in Sentence(TEXT).words]
        assert maps.targets == maps.sources
        assert not np.triu(maps.scores, 1).any()

    def test_the_deciding_row_is_the_one_that_predicts_where_the_spellings_part(self, gpt2):
        sentence = Sentence("the cats sleep here", cue="cats", target="sleep", foil="sleeps")
        maps = speechmix.mix(gpt2, sentence, units="token")["value_zeroing", "decoder"]
        mine, theirs = (
            gpt2.tokenizer(text)["input_ids"]
            for text in ("the cats sleep here", "the cats sleeps here")
        )
        parts = next(i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b)
        assert maps.provenance["deciding_position"] == parts - 1
        share = speechmix.cue_contribution(
            maps, cue=sentence.cue, target=sentence.target, rows="deciding"
        )
        assert share.shape == (3,)

    def test_no_mask_token(self, gpt2):
        with pytest.raises(InputError, match="no mask token"):
            speechmix.mix(gpt2, "the <mask> sleep")

    def test_foil_like_the_target(self, gpt2):
        with pytest.raises(InputError, match="spelled like"):
            speechmix.mix(gpt2, Sentence("the cats sleep here", target="sleep", foil="sleep"))


class TestTranslation:
    def test_decoder_is_fed_the_translation(self, bart):
        pair = Sentence(
            "the cats sleep here", translation="les chats dorment ici", cue="cats", target="dorment"
        )
        maps = speechmix.mix(bart, pair)
        assert [stack for _, stack in maps] == ["encoder", "decoder", "cross"]
        cross = maps["value_zeroing", "cross"]
        assert {span.word for span in cross.targets} == {None, 4, 5, 6, 7}
        assert [span.label for span in cross.sources][1:3] == ["the", "cats"]
        assert "".join(span.label for span in cross.targets if span.word == 6) == "dorment"
        labels = bart.tokenizer(text_target=pair.translation)["input_ids"]
        expected = bart.module.prepare_decoder_input_ids_from_labels(
            __import__("torch").tensor([labels])
        )[0].tolist()
        prepared = speechmix.mix(
            bart,
            {**bart.tokenizer(pair.text, return_tensors="pt"), "decoder_input_ids": [expected]},
            stacks="decoder",
        )
        found = maps["value_zeroing", "decoder"].scores
        np.testing.assert_array_equal(found, prepared["value_zeroing", "decoder"].scores)
        assert speechmix.cue_contribution(cross, cue=pair.cue, target=pair.target).shape == (3,)

    def test_deciding_row_of_a_foil(self, bart):
        pair = Sentence("the cat", translation="le chat dort", target="dort", foil="dorment")
        assert (
            speechmix.mix(bart, pair)["value_zeroing", "decoder"].provenance["deciding_position"]
            > 0
        )


class TestRefusals:
    def test_clip_for_a_model_that_reads(self, bert):
        with pytest.raises(InputError, match="takes a text"):
            speechmix.mix(bert, Clip.from_array(np.zeros(100), 16_000))

    def test_text_for_a_model_that_hears(self):
        model = speechmix.load(build("wav2vec2-post"), device="cpu")
        with pytest.raises(InputError, match="Clip"):
            speechmix.mix(model, [Sentence(TEXT)])

    @pytest.mark.parametrize("units", ["frame"])
    def test_units_a_text_has_not(self, bert, units):
        with pytest.raises(InputError, match="units should be one of"):
            speechmix.mix(bert, TEXT, units=units)

    def test_no_tokenizer(self):
        with pytest.raises(InputError, match="without a tokenizer"):
            speechmix.mix(speechmix.load(build("bert"), device="cpu"), TEXT)


@pytest.mark.parametrize(
    "name", [name for name in ALL_FAMILIES if not name.startswith(("w", "hubert", "data2vec"))]
)
@pytest.mark.every_family
def test_scores_do_not_depend_on_the_attention_a_model_was_loaded_with(name):
    from tests.conftest import inputs_of

    eager, sdpa = build(name).double(), build(name).double()
    eager.set_attn_implementation("eager")
    models_ = [speechmix.load(module, device="cpu") for module in (eager, sdpa)]
    a, b = (speechmix.mix(model, inputs_of(model)) for model in models_)
    for key in a:
        np.testing.assert_array_equal(a[key].scores, b[key].scores)
    assert eager.config._attn_implementation == "eager"
