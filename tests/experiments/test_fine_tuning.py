"""Training on the two-word choice: the loss is what it should be, a rule that can be learned is,
and nothing is made twice."""

from __future__ import annotations

import copy
import json

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

import speechmix
from speechmix import Sentence
from speechmix.errors import InputError
from speechmix.extensions.agreement.fine_tuning import FineTuningOptions, fine_tune_choice
from speechmix.extensions.agreement.item_scoring import choice_margin

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *"the cat cats dog dogs of two very is are here .".split(),
]
SENTENCES = [
    Sentence(f"the {noun} {middle} {form} here .", target=form, foil=foil)
    for noun, form, foil in (
        ("cat", "is", "are"),
        ("cats", "are", "is"),
        ("dog", "is", "are"),
        ("dogs", "are", "is"),
    )
    for middle in ("of two", "of the", "very very very")
]
QUICK = FineTuningOptions(learning_rate=1e-2, epochs=25, batch_size=4)
SIZE = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}


@pytest.fixture(scope="module")
def bert():
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=20, **SIZE)
    tokenizer = transformers.BertTokenizer(vocab={word: i for i, word in enumerate(WORDS)})
    return speechmix.load(transformers.BertForMaskedLM(config), processor=tokenizer)


@pytest.fixture(scope="module")
def gpt2():
    torch.manual_seed(0)
    words = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    config = transformers.GPT2Config(
        vocab_size=len(WORDS),
        n_embd=16,
        n_layer=1,
        n_head=2,
        n_positions=20,
        bos_token_id=None,
        eos_token_id=None,
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]"
    )
    return speechmix.load(transformers.GPT2LMHeadModel(config), processor=tokenizer)


def right(model) -> float:
    return sum(choice_margin(model, sentence)["right"] for sentence in SENTENCES) / len(SENTENCES)


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_what_can_be_learned_is_learned_and_the_model_given_stays(kind, request, tmp_path):
    model = request.getfixturevalue(kind)
    before, margin = model.fingerprint, choice_margin(model, SENTENCES[0])["margin"]
    folder = fine_tune_choice(model, SENTENCES, tmp_path / "tuned", training=QUICK)
    assert (model.fingerprint, choice_margin(model, SENTENCES[0])["margin"]) == (before, margin)
    tuned = speechmix.load(str(folder))
    assert right(model) < 0.8
    assert right(tuned) == 1.0
    losses = json.loads((folder / "training.json").read_text())["loss_by_epoch"]
    assert len(losses) == 25
    assert losses[-1] < 0.2 < losses[0]


def test_the_loss_is_the_cross_entropy_of_the_two_words(bert, tmp_path):
    """With a learning rate of next to nothing the loss of an epoch is that of the margins, whatever
    the padding."""
    still = FineTuningOptions(learning_rate=1e-12, epochs=1, batch_size=5)
    module = copy.deepcopy(bert.module)
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    undropped = speechmix.load(module, processor=bert.tokenizer)
    folder = fine_tune_choice(undropped, SENTENCES, tmp_path / "still", training=still)
    margins = torch.tensor([choice_margin(bert, sentence)["margin"] for sentence in SENTENCES])
    expected = torch.log1p(torch.exp(-margins)).mean()
    assert json.loads((folder / "training.json").read_text())["loss_by_epoch"] == [
        pytest.approx(expected.item(), abs=1e-5)
    ]


def test_a_finished_training_is_read_and_another_question_refused(bert, tmp_path):
    folder = tmp_path / "tuned"
    quick = FineTuningOptions(epochs=1, batch_size=12)
    fine_tune_choice(bert, SENTENCES, folder, training=quick)
    stamp = (folder / "model.safetensors").stat().st_mtime_ns
    assert fine_tune_choice(bert, SENTENCES, folder, training=quick) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == stamp
    with pytest.raises(InputError, match=r"was made otherwise \(epochs\): remove it"):
        fine_tune_choice(
            bert, SENTENCES, folder, training=FineTuningOptions(epochs=2, batch_size=12)
        )
    with pytest.raises(InputError, match=r"was made otherwise \(sentences\)"):
        fine_tune_choice(bert, SENTENCES[:4], folder, training=quick)
    other = tmp_path / "something else"
    other.mkdir()
    with pytest.raises(InputError, match="holds no trained model of this package"):
        fine_tune_choice(bert, SENTENCES, other, training=quick)


def test_the_same_seed_gives_the_same_model(bert, tmp_path):
    weights = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        folder = fine_tune_choice(
            bert,
            SENTENCES,
            tmp_path / name,
            training=FineTuningOptions(epochs=1, batch_size=4, seed=seed),
        )
        weights.append(speechmix.load(str(folder)).fingerprint)
    assert weights[0] == weights[1] != weights[2]


def test_what_cannot_be_trained_on(bert, tmp_path):
    with pytest.raises(InputError, match="found none"):
        fine_tune_choice(bert, [], tmp_path / "none")
    with pytest.raises(InputError, match="has no foil"):
        fine_tune_choice(bert, [Sentence("the cat is here .", target="is")], tmp_path / "no foil")
    with pytest.raises(InputError, match="a warm-up from 0 to 1"):
        FineTuningOptions(warm_up=2)
    assert not list(tmp_path.iterdir())
