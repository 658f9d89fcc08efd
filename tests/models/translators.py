"""A tiny translator that knows its trade: word for word, from a made-up English into a made-up
French, in a minute order.

It is trained here, in seconds, on sentences of four words in which each English word has one French
word, except that the adjective changes places with its noun: which source word a written word comes
from is known by construction.
"""

from __future__ import annotations

import itertools

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import speechmix

NOUNS = {
    "cats": "chats",
    "dogs": "chiens",
    "birds": "oiseaux",
    "books": "livres",
    "houses": "maisons",
}
ADJECTIVES = {
    "red": "rouges",
    "small": "petits",
    "old": "anciens",
    "white": "blancs",
    "good": "bons",
}
VERBS = {"sleep": "dorment", "fall": "tombent", "burn": "brûlent", "turn": "tournent"}
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
ORDER = (0, 2, 1, 3)  # source word of each written word


def pairs() -> list[tuple[str, str]]:
    """All sentences: ("the red cats sleep", "les chats rouges dorment"), ..."""
    return [
        (f"the {a} {n} {v}", f"les {NOUNS[n]} {ADJECTIVES[a]} {VERBS[v]}")
        for a, n, v in itertools.product(ADJECTIVES, NOUNS, VERBS)
    ]


def tokenizer_of_words() -> transformers.PreTrainedTokenizerFast:
    """One token a word, of both languages."""
    words = [
        "the",
        "les",
        *itertools.chain(*(both for table in (NOUNS, ADJECTIVES, VERBS) for both in table.items())),
    ]
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate([*SPECIAL, *words])}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 2)]
    )
    names = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token"), SPECIAL, strict=True))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def trained_translator(steps: int = 60) -> speechmix.adapters.Model:
    """BART of one layer a stack, trained on six sentences of seven."""
    tokenizer = tokenizer_of_words()
    config = transformers.BartConfig(
        vocab_size=len(tokenizer),
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=24,
        dropout=0.0,
        init_std=0.1,
        **dict(zip(("bos_token_id", "pad_token_id", "eos_token_id"), (0, 1, 2), strict=True)),
        decoder_start_token_id=2,
        forced_eos_token_id=None,
    )
    known = [pair for number, pair in enumerate(pairs()) if number % 7]
    source = tokenizer([text for text, _ in known], return_tensors="pt")["input_ids"]
    labels = tokenizer(text_target=[text for _, text in known], return_tensors="pt")["input_ids"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = transformers.BartForConditionalGeneration(config)
        optimiser = torch.optim.AdamW(module.parameters(), lr=0.01)
        for _ in range(steps):
            optimiser.zero_grad()
            loss = module(input_ids=source, labels=labels).loss
            loss.backward()
            optimiser.step()
    return speechmix.load(module.eval(), processor=tokenizer)
