"""Tiny text models with tokenizers of their own, random weights in float64: masked, causal, and
encoder with decoder."""

from __future__ import annotations

import transformers
from tokenizers.pre_tokenizers import ByteLevel

import speechmix
from tests.models import build

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *"the cat cats are is here very play ##s .".split(),
]
BYTES = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted(ByteLevel.alphabet())]


def bert(**changes):
    """Masked language model that knows a few words."""
    tokenizer = transformers.BertTokenizer(vocab={word: i for i, word in enumerate(WORDS)})
    return speechmix.load(
        build("bert", vocab_size=len(WORDS), **changes).double(), processor=tokenizer
    )


def gpt2():
    """Causal model that reads bytes."""
    tokenizer = transformers.GPT2Tokenizer(
        vocab={token: i for i, token in enumerate(BYTES)}, merges=[]
    )
    return speechmix.load(
        build("gpt2", vocab_size=len(BYTES), n_positions=80).double(), processor=tokenizer
    )


def bart():
    """Encoder and decoder that read and write bytes."""
    tokenizer = transformers.BartTokenizer(
        vocab={token: i for i, token in enumerate(BYTES)}, merges=[]
    )
    module = build(
        "bart", vocab_size=len(BYTES), max_position_embeddings=80, pad_token_id=1, bos_token_id=0
    )
    return speechmix.load(module.double(), processor=tokenizer)
