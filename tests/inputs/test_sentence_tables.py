"""Sentences out of a table: the example that comes with the package, and rows that cannot be
used."""

from __future__ import annotations

from pathlib import Path

import pytest

from speechmix.errors import InputError
from speechmix.inputs.sentences.sentence import read_sentences

TEMPLATE = Path(__file__).resolve().parents[2] / "data_templates" / "sentences.tsv"


def test_the_example_is_read_as_it_says():
    keys, game, film = read_sentences(TEMPLATE)
    assert (keys.words[keys.cue].text, keys.words[keys.target].text, keys.foil) == (
        "keys",
        "are",
        "is",
    )
    assert game.words[game.target].text == "<mask>"
    assert (film.name, film.target, dict(film.meta)) == ("film", None, {"label": "POSITIVE"})


def test_lines_of_json_and_a_column_called_sentence(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"sentence": "the keys are here", "target": "are", "source": 7}\n')
    (sentence,) = read_sentences(path)
    assert (sentence.target, dict(sentence.meta)) == (2, {"source": "7"})


def test_another_column_of_texts_can_be_named(tmp_path):
    (tmp_path / "t.tsv").write_text("Said\ttext\nles chats\tno\n")
    (sentence,) = read_sentences(f"{tmp_path / 't.tsv'},text=said")
    assert (sentence.text, dict(sentence.meta)) == ("les chats", {})


def test_rows_that_cannot_be_used_are_errors_or_reported(tmp_path):
    path = tmp_path / "texts.tsv"
    path.write_text("text\ttarget\nthe keys are here\tkey\nthe keys\t\n")
    with pytest.raises(InputError, match=r"texts\.tsv, row 2: .*key"):
        read_sentences(path)
    rows = []
    (sentence,) = read_sentences(path, on_error=lambda row, error: rows.append(row))
    assert (sentence.text, rows) == ("the keys", [2])


@pytest.mark.parametrize(
    ("content", "message"), [("text\n", "at least one row"), ("words\nthe\n", "text or sentence")]
)
def test_a_table_without_texts_says_what_was_expected(tmp_path, content, message):
    (tmp_path / "texts.tsv").write_text(content)
    with pytest.raises(InputError, match=message):
        read_sentences(tmp_path / "texts.tsv")
