"""Text models whose answer is known: a classifier that listens to one word, and planted cues with a
tokenizer of their own."""

from __future__ import annotations

import functools

import torch
import transformers

import speechmix
from speechmix.extensions.planted.planting import plant
from tests.conftest import build
from tests.models import text_models

# Of a planted model: the empty token, five words with content (+, -, +, -, +), and what is said
# (home, or gold).
WORDS = ["[CLS]", "the", "winner", "home", "gold", "our", "champion", "brought"]
WINNER, CHAMPION = 2, 4  # positions, and the places of their words + 1


@functools.cache
def planted_bert(case: str):
    """A planted masked model that reads words: "the winner our champion brought" ends in gold where
    a cue arrives, or home.

    "home" has no content, and so blanks ("unk").
    """
    tokenizer = transformers.BertTokenizer(
        vocab={word: index for index, word in enumerate(WORDS)},
        unk_token="home",
        sep_token="[CLS]",
        mask_token="gold",
        pad_token="[CLS]",
    )
    return speechmix.load(
        plant(case, family="bert", layer=1).model.module, processor=tokenizer, check=False
    )


PLANTED_SENTENCE = speechmix.Sentence(
    "the winner our champion brought gold", cue="winner", target="gold", foil="home"
)


@functools.cache
def listens_to(word: str):
    """A classifier of one layer that says "heard" if it reads a word, "not" else: even attention,
    values of that word alone."""
    words = text_models.WORDS
    config = {
        "vocab_size": len(words),
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "hidden_size": 8,
    }
    shape = build("bert", **config).config
    shape.update({"id2label": {0: "not", 1: "heard"}, "label2id": {"not": 0, "heard": 1}})
    module = transformers.BertForSequenceClassification(shape).double().eval().requires_grad_(False)
    for part in module.modules():
        for weights in part.parameters(recurse=False):
            weights.fill_(
                1.0 if isinstance(part, torch.nn.LayerNorm) and weights is part.weight else 0.0
            )
    common, heard = torch.tensor(
        [[1.0, -1, 0, 0, 0, 0, 0, 0], [0, 0, 1, -1, 0, 0, 0, 0]], dtype=torch.double
    )
    bert, layer = module.bert, module.bert.encoder.layer[0]
    bert.embeddings.word_embeddings.weight[:] = common
    bert.embeddings.word_embeddings.weight[words.index(word)] += heard
    layer.attention.self.value.weight.copy_(torch.outer(heard, heard))
    layer.attention.output.dense.weight.copy_(10 * torch.eye(8))
    bert.pooler.dense.weight.copy_(torch.eye(8))
    module.classifier.weight.copy_(torch.stack([-4 * heard, 4 * heard]))
    module.classifier.bias.copy_(torch.tensor([4.0, -4.0]))
    tokenizer = transformers.BertTokenizer(vocab={name: index for index, name in enumerate(words)})
    return speechmix.load(
        module, processor=tokenizer, check=False
    )  # which tries words that it does not listen to
