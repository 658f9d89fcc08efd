"""speechmix blank-out and speechmix deletion, from a folder with a model to tables and a figure."""

from __future__ import annotations

import pandas as pd
import pytest
import transformers

from speechmix.interfaces.cli.command_line import main
from tests.models import text_models


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A masked model and a classifier, each with its tokenizer, and a table of sentences."""
    folder = tmp_path_factory.mktemp("models")
    bert = text_models.bert()
    bert.module.save_pretrained(folder / "bert")
    config = transformers.BertConfig(**{**bert.config.to_dict(), "id2label": {0: "bad", 1: "good"}})
    transformers.BertForSequenceClassification(config).save_pretrained(folder / "classifier")
    for name in ("bert", "classifier"):
        bert.tokenizer.save_pretrained(folder / name)
    rows = [
        "text\ttarget\tlabel",
        "the cat is very here\tis\tgood",
        "the cats are here .\tare\tbad",
        "the cat\tdog\t",
    ]
    (folder / "texts.tsv").write_text("\n".join(rows) + "\n")
    return folder


@pytest.mark.long
def test_blank_out_prints_and_writes(folder, tmp_path, capsys):
    arguments = [
        "blank-out",
        "--model",
        str(folder / "bert"),
        "--texts",
        str(folder / "texts.tsv"),
        "--device",
        "cpu",
    ]
    arguments += [
        "--measure",
        "attention",
        "--fill",
        "mask",
        "--twins",
        "1",
        "--out",
        str(tmp_path),
    ]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "skipped: " in printed
    assert "bert: 2 sentences, blank (mask)" in printed
    assert "bert, random (seed 0): 2 sentences, blank (mask)" in printed
    table = pd.read_csv(tmp_path / "blank_out.csv")
    assert set(table["measure"]) == {"attention", "random", "length", "position", "oracle"}
    assert set(table["aggregation"].dropna()) == {
        "layer 0",
        "layer 1",
        "layer 2",
        "mean",
        "rollout",
    }
    assert (tmp_path / "blank_out.png").stat().st_size > 10_000
    assert len(pd.read_csv(tmp_path / "blank_out_drops.csv")) == 2 * (4 + 4)


@pytest.mark.parametrize("steps", [["--bin", "20", "--bin", "50"], ["--one-by-one"]])
def test_deletion_prints_and_writes(folder, tmp_path, capsys, steps):
    arguments = [
        "deletion",
        "--model",
        str(folder / "classifier"),
        "--texts",
        str(folder / "texts.tsv"),
        "--device",
        "cpu",
    ]
    assert main([*arguments, "--measure", "attention", *steps, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "classifier: 2 texts, blank (mask); probability of the label" in printed
    assert "By blank (mask) (comprehensiveness, 2 texts in 2 groups)" in printed
    texts = pd.read_csv(tmp_path / "deletion_texts.csv")
    assert set(texts["gold"]) == {"good", "bad"}
    points = pd.read_csv(tmp_path / "deletion_points.csv")
    assert points["share"].max() == (100 if steps == ["--one-by-one"] else 50)
    assert (tmp_path / "deletion.png").stat().st_size > 10_000


def test_a_fill_that_is_none_is_one_line(folder, capsys):
    arguments = [
        "deletion",
        "--model",
        str(folder / "bert"),
        "--texts",
        str(folder / "texts.tsv"),
        "--fill",
        "noise",
    ]
    assert main(arguments) == 1
    assert "fill should be one of ('mask', 'unk', 'pad', 'remove')" in capsys.readouterr().err
