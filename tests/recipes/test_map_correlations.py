"""The recipes of correlations and of the tiny English BERT, on a few sentences."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pandas as pd
import pytest
import transformers

import speechmix

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
FORMS = [
    ("bird", "is", "are"),
    ("birds", "are", "is"),
    ("lady", "was", "were"),
    ("ladies", "were", "was"),
]
PAIRS = [(f"The {noun} {good} here.", f"The {noun} {bad} here.") for noun, good, bad in FORMS]


def recipe(name: str):
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    """Trained for an epoch, as the recipe does it."""
    folder = tmp_path_factory.mktemp("blimp")
    lines = [
        {"sentence_good": a, "sentence_bad": b, "pairID": str(i)} for i, (a, b) in enumerate(PAIRS)
    ]
    text = "\n".join(map(json.dumps, lines))
    (folder / "regular_plural_subject_verb_agreement_1.jsonl").write_text(text)
    training = recipe("train_tiny_english_bert")
    for out in ("a", "b"):
        assert (
            training.main(["--blimp", str(folder), "--epochs", "1", "--out", str(folder / out)])
            == 0
        )
    assert training.main(["--blimp", str(folder / "nowhere"), "--out", str(folder / "c")]) == 1
    return folder


def test_the_tiny_bert_knows_every_word_and_follows_from_its_seed(bert):
    models = [speechmix.load(str(bert / name), device="cpu") for name in ("a", "b")]
    assert models[0].fingerprint == models[1].fingerprint
    tokenizer = transformers.BertTokenizer.from_pretrained(bert / "a")
    for good, bad in PAIRS:
        for text in (good, bad):
            ids = tokenizer(text)["input_ids"]
            assert tokenizer.unk_token_id not in ids
            assert len(ids) == len(text.split()) + 3  # [CLS], the full stop, [SEP]


@pytest.mark.long
def test_correlations_from_sentences_to_figures(bert, tmp_path, capsys):
    run = recipe("map_correlations").main
    sentences = tmp_path / "sentences.txt"
    sentences.write_text("The bird is here.\n\nThe ladies were here.\n")
    arguments = [
        "--model",
        str(bert / "a"),
        "--sentences",
        str(sentences),
        "--out",
        str(tmp_path / "run"),
        "--device",
        "cpu",
    ]
    arguments += ["--measures", "globenc", "attention"]
    assert run(arguments) == 0
    printed = capsys.readouterr().out
    assert "Pearson's r with hta, without diagonal" in printed
    table = pd.read_csv(tmp_path / "run" / "correlations.csv")
    assert table["item"].nunique() == 2
    assert set(table.loc[table["diagonal"], "measure"]) == {"globenc", "attention", "identity"}
    assert set(table.loc[~table["diagonal"], "measure"]) == {"globenc", "attention"}
    assert len(pd.read_csv(tmp_path / "run" / "outlier_weights.csv")) == 4
    for name in ("pearson_with_diagonal.png", "spearman_without_diagonal.png"):
        assert (tmp_path / "run" / name).stat().st_size > 5_000
    assert run([*arguments, "--reference", "attention"]) == 1
    assert (
        "holds a run with other options (reference 'hta', now 'attention')"
        in capsys.readouterr().err
    )
    sentences.write_text("\n")
    assert run(arguments) == 1
    assert "expected one sentence a line, found none" in capsys.readouterr().err
