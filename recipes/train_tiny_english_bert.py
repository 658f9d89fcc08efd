"""Train a tiny BERT on one half of BLiMP's sentences: a model to try the agreement study on where
none can be downloaded.

    python recipes/train_tiny_english_bert.py --blimp blimp/data --out runs/tiny_bert          # minutes on two CPU cores
    python recipes/english_agreement.py --blimp blimp/data --model runs/tiny_bert --half test --fine-tune

It is a masked language model of whole words, trained on the acceptable sentences of the training
half alone, with random words masked. What it does says nothing about BERT: it has seen a few
thousand sentences made from a few templates. Data, initialisation and order follow from --seed; no
epoch is chosen by a score, the last one is written.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from tqdm import tqdm

from speechmix.errors import SpeechmixError
from speechmix.extensions.agreement import blimp
from speechmix.extensions.agreement.item_selection import split_halves
from speechmix.files.whole_files import whole_folder

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SHAPE = {
    "hidden_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 192,
}
PEAK_RATE, WARM_UP, BATCH = 1e-3, 0.1, 64
MASKED = 0.2  # of the words of a sentence


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        items, _ = blimp.read_blimp(options.blimp, paradigms=options.paradigms)
        train, _ = split_halves(items, seed=options.split_seed)
        words = [
            form for item in items for form in (item.text, item.foil)
        ]  # spelling is no part of what is learned
        tokenizer = word_tokenizer(words)
        model = train_masked(
            tokenizer, [item.text for item in train], epochs=options.epochs, seed=options.seed
        )
        with whole_folder(options.out) as folder:
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    except SpeechmixError as error:
        print(f"train_tiny_english_bert: {error}", file=sys.stderr)
        return 1
    print(f"{len(train)} sentences of {len(items)}, {len(tokenizer)} words; model in {options.out}")
    return 0


def word_tokenizer(texts: Sequence[str]) -> transformers.BertTokenizer:
    """Tokenizer that knows every word of the texts, in lower case, as one token."""
    words = sorted({word for text in texts for word in re.findall(r"\w+|[^\w\s]", text.lower())})
    return transformers.BertTokenizer(
        vocab={word: index for index, word in enumerate((*SPECIAL, *words))}
    )


def train_masked(
    tokenizer: transformers.BertTokenizer, texts: Sequence[str], *, epochs: int, seed: int
) -> transformers.BertForMaskedLM:
    """Train a masked language model from scratch."""
    torch.manual_seed(seed)
    config = transformers.BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **SHAPE)
    model = transformers.BertForMaskedLM(config).train()
    ids = tokenizer(list(texts), padding=True, return_tensors="pt")["input_ids"]
    steps = epochs * -(-len(ids) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, weight_decay=0.01)
    schedule = transformers.get_linear_schedule_with_warmup(
        optimizer, round(WARM_UP * steps), steps
    )
    for _ in tqdm(range(epochs), desc="train", unit="epoch", disable=not sys.stderr.isatty()):
        for batch in ids[torch.randperm(len(ids))].split(BATCH):
            masked, labels = _masked(batch, tokenizer)
            loss = model(masked, attention_mask=batch != tokenizer.pad_token_id, labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def _masked(
    ids: torch.Tensor, tokenizer: transformers.BertTokenizer
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids [n, T] with some words masked, and what they were (-100 elsewhere); each sentence
    has one at least."""
    chance = torch.rand(ids.shape).masked_fill(ids < len(SPECIAL), 2.0)
    hidden = (chance < MASKED) | (chance == chance.min(dim=1, keepdim=True).values)
    return ids.masked_fill(hidden, tokenizer.mask_token_id), ids.masked_fill(~hidden, -100)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--blimp", required=True, help="folder with BLiMP's <paradigm>.jsonl files")
    add(
        "--paradigms",
        nargs="+",
        choices=blimp.PARADIGMS,
        metavar="PARADIGM",
        help="default: all that the folder has",
    )
    add("--epochs", type=int, default=60)
    add("--seed", type=int, default=0, help="of initialisation, order and masks (default: 0)")
    add(
        "--split-seed",
        type=int,
        default=42,
        help="of the halves, as in english_agreement.py (default: 42)",
    )
    add("--out", type=Path, required=True, help="folder of the model, in hub format")
    return parser


if __name__ == "__main__":
    sys.exit(main())
