"""Blank-out on a masked model that does its task: a tiny BERT trained here on BLiMP's agreement
sentences.

    python benchmarks/blank_out_agreement.py BLIMP_FOLDER [--steps 800] [--items 60] [--seed 0] [--out blank_out.csv]

In: BLiMP's paradigms. A BERT of four layers and 64 channels, whose tokens are words, learns to fill
the target's [MASK] in four fifths of the sentences (and a sixth of the other words). Then, on
held-out ones: how often the good spelling is likelier than the bad one, said first;
`speechmix.blank_out` on those that are right; and the share of them in which the single blank that
costs most is the cue. Last, measures from the input to the output, word by word. A model of a few
minutes on one construction: it shows the protocol at work and nothing about BERT.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import transformers

import speechmix
from speechmix.extensions.agreement.blimp import read_blimp
from speechmix.extensions.agreement.item_selection import draw_items
from speechmix.files.text_files import write_csv
from speechmix.interventions.decision import Decision

MEASURES = (
    "value_zeroing",
    "attention",
    "attention_norm",
    "attention_norm_residual",
    "attention_norm_residual_layernorm",
    "globenc",
    "alti",
    "gradient_input",
)
TO_OUTPUT = ("gradient_input", "chefer", "lrp", "decompx", "occlusion (mask)", "shapley (mask)")
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_SHAPE = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
_HELD_OUT, _BATCH, _ALSO_MASKED = 5, 64, 1 / 6


def sentences_of(folder: Path) -> tuple[list[speechmix.Sentence], list[speechmix.Sentence]]:
    """Sentences to learn, and held-out ones: every fifth."""
    items, _ = read_blimp(folder)
    found = [item.sentence(masked=False) for item in draw_items(items, None, seed=0)]
    return [s for i, s in enumerate(found) if i % _HELD_OUT], found[::_HELD_OUT]


def untrained(sentences: list[speechmix.Sentence], seed: int):
    """A masked model that knows the words of these sentences, and its tokenizer."""
    words = {word.text.lower() for sentence in sentences for word in sentence.words}
    words |= {str(sentence.foil).lower() for sentence in sentences}
    vocabulary = [*_SPECIAL, *sorted(words)]
    tokenizer = transformers.BertTokenizer(
        vocab={word: index for index, word in enumerate(vocabulary)}
    )
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), max_position_embeddings=32, **_SHAPE
    )
    return transformers.BertForMaskedLM(config), tokenizer


def train(module, tokenizer, sentences: list[speechmix.Sentence], *, steps: int, seed: int) -> None:
    """Masked-language-model training: the target always, some of the other words."""
    encoded = tokenizer(
        [sentence.text for sentence in sentences], return_tensors="pt", padding=True
    )
    target = torch.tensor(
        [1 + sentence.target for sentence in sentences]
    )  # a word is a token, behind [CLS]
    ids, attended = encoded["input_ids"], encoded["attention_mask"]
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=2e-3, total_steps=steps, pct_start=0.1
    )
    module.train()
    for _ in range(steps):
        rows = torch.randint(len(ids), (_BATCH,), generator=generator)
        words = ids[rows] >= len(_SPECIAL)
        masked = words & (torch.rand(words.shape, generator=generator) < _ALSO_MASKED)
        masked[torch.arange(_BATCH), target[rows]] = True
        inputs = ids[rows].masked_fill(masked, tokenizer.mask_token_id)
        labels = ids[rows].masked_fill(~masked, -100)
        loss = module(input_ids=inputs, attention_mask=attended[rows], labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    module.eval().requires_grad_(False)


def cue_hits(drops, sentences: list[speechmix.Sentence]) -> float:
    """Share of sentences in which blanking the cue costs most."""
    cue = {sentence.name: 1 + sentence.cue for sentence in sentences}
    first = drops.loc[drops.groupby("item")["drop"].idxmax()]
    return float(np.mean([row.word == cue[row.item] for row in first.itertuples()]))


def whole_model(model, sentences: list[speechmix.Sentence]) -> pd.DataFrame:
    """Spearman of each measure from input to output, word by word, with what the margin loses: a
    column for each fill."""
    perturbations = ["blank (mask)", "blank (unk)"]
    trial = speechmix.faithfulness(
        model,
        sentences,
        measures=[*MEASURES, *TO_OUTPUT],
        perturbations=perturbations,
        metrics=["spearman"],
        aggregations=["mean", "rollout", "to the output"],
    )
    boards = {
        perturbation: trial.leaderboard(perturbation=perturbation).set_index(
            ["measure", "aggregation"]
        )
        for perturbation in perturbations
    }
    columns = {
        (perturbation, name): boards[perturbation][name]
        for perturbation in perturbations
        for name in ("value", "p")
    }
    return pd.DataFrame(columns).sort_values((perturbations[0], "value"), ascending=False)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--items", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    learned, held_out = sentences_of(options.folder)
    module, tokenizer = untrained([*learned, *held_out], options.seed)
    train(module, tokenizer, learned, steps=options.steps, seed=options.seed)
    model = speechmix.load(module, processor=tokenizer)
    margins = np.array([Decision.prepare(model, sentence).margin for sentence in held_out])
    right = [sentence for sentence, margin in zip(held_out, margins, strict=True) if margin > 0]
    print(f"{len(held_out)} held-out sentences, {100 * (margins > 0).mean():.0f} % right")
    twin = speechmix.load(module, init="random", seed=options.seed, processor=tokenizer)
    asked = right[:: max(1, len(right) // options.items)][: options.items]
    for value in ("probability", "margin"):
        layers = ["each", "mean", "rollout", "residual rollout"]
        found = speechmix.blank_out(
            [model, twin],
            asked,
            measures=MEASURES,
            fills=["mask", "unk"],
            value=value,
            layers=layers,
        )
        print(f"\n{value}\n{found.text()}")
        for fill in ("mask", "unk"):
            here = (found.drops["perturbation"] == f"blank ({fill})") & (
                found.drops["init"] == "trained"
            )
            print(f"the cue costs most, {fill}: {100 * cue_hits(found.drops[here], asked):.0f} %")
        if options.out:
            write_csv(found.to_dataframe(), options.out.with_stem(f"{options.out.stem}_{value}"))
    for which in (model, twin):
        print(
            "\nfrom input to output, margin, "
            f"{which.init}\n{whole_model(which, asked).round(2).to_string()}"
        )


if __name__ == "__main__":
    main()
