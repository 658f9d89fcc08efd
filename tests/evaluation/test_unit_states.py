"""States of many clips: arrays and file agree with the states of each clip, and the file is in row groups."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.states import unit_states
from speechmix.inputs import bundled
from speechmix.interfaces.cli import main
from tests.conftest import trained
from tests.models import text_models

STATE = [f"d{index}" for index in range(144)]


@pytest.fixture(scope="module")
def clips():
    return bundled.clips()[:4]


@pytest.mark.parametrize("level", ["word", "frame"])
def test_arrays_are_the_states_of_each_clip(level, clips):
    model = trained("tiny-french-ctc")
    found = speechmix.unit_states(model, clips, level=level)["encoder"]
    row = 0
    for clip in clips:
        own = speechmix.states(model, clip, level=level)["encoder"]
        count = len(own.positions)
        rows = found.units.iloc[row : row + count]
        np.testing.assert_array_equal(found.values[row : row + count], own.values.swapaxes(0, 1))
        assert set(rows["clip"]) == {clip.name}
        assert rows["index"].tolist() == list(range(count))
        assert rows["label"].tolist() == [span.label for span in own.positions]
        assert rows["start"].tolist() == [span.onset for span in own.positions]
        row += count
    assert row == len(found.units)
    assert found.units["group"].nunique() < len(clips)  # the members of a pair are one group


def test_the_file_has_the_same_numbers_in_row_groups_of_one_layer(clips, tmp_path, monkeypatch):
    model = trained("tiny-french-whisper")
    arrays = speechmix.unit_states(model, clips)
    monkeypatch.setattr(unit_states, "_BATCH_BYTES", 20_000)  # several groups to a layer
    path = tmp_path / "states.parquet"
    assert speechmix.write_states(model, clips, path) == ()
    table = pd.read_parquet(path)
    for stack, found in arrays.items():
        for layer in range(-1, 3):
            rows = table[(table["stack"] == stack) & (table["layer"] == layer)]
            expected = found.to_dataframe(layer)
            assert list(rows.columns[2:]) == list(expected.columns)
            for name in expected:
                assert rows[name].tolist() == expected[name].tolist(), name
    file = pq.ParquetFile(path)
    assert file.num_row_groups > 8
    for index in range(file.num_row_groups):
        group = file.read_row_group(index, columns=["stack", "layer"]).to_pandas()
        assert len(group.drop_duplicates()) == 1
    told = json.loads(file.schema_arrow.metadata[b"speechmix"])
    assert told == {"model": model.name, "init": "trained", "seed": None, "level": "word"}


def test_a_file_may_be_larger_than_the_memory(clips, tmp_path, monkeypatch):
    sizes = []
    layer_tables = unit_states._layer_tables

    def remember(batch):
        sizes.append(batch["encoder"].units["clip"].tolist())
        return layer_tables(batch)

    monkeypatch.setattr(unit_states, "_BATCH_BYTES", 10_000)
    monkeypatch.setattr(unit_states, "_layer_tables", remember)
    speechmix.write_states(trained("tiny-french-ctc"), clips, tmp_path / "x.parquet", level="frame")
    assert [set(names) for names in sizes] == [{clip.name} for clip in clips]


def test_clips_without_such_units_are_skipped_and_names_are_made_distinct(clips, tmp_path):
    model, clip = trained("tiny-french-ctc"), clips[1]
    wordless = speechmix.Clip.from_file(clip.path, name="wordless")
    path = tmp_path / "states.parquet"
    ((name, reason),) = speechmix.write_states(model, [clip, wordless, clip], path)
    assert name == "wordless"
    assert "no word times" in reason
    table = pd.read_parquet(path)
    assert table["clip"].unique().tolist() == [clip.name, f"{clip.name} (2)"]
    assert table["group"].nunique() == 1
    found = speechmix.unit_states(model, [clip, wordless, clip])["encoder"]
    assert found.skipped == ((name, reason),)
    for call in (
        lambda: speechmix.unit_states(model, [wordless]),
        lambda: speechmix.write_states(model, [wordless], tmp_path / "none.parquet"),
    ):
        with pytest.raises(
            InputError, match=r"no clip has states of words: wordless: .*word times"
        ):
            call()
    assert not (tmp_path / "none.parquet").exists()
    with pytest.raises(InputError, match="at least one clip"):
        speechmix.unit_states(model, [])
    with pytest.raises(InputError, match="no item has a column 'speaker'"):
        speechmix.unit_states(model, [clip], group="speaker")
    with pytest.raises(InputError, match="layer should be from -1 to 3, found 4"):
        found.to_dataframe(4)


def test_words_of_sentences_have_states_but_no_seconds():
    sentences = [speechmix.Sentence("the cats sleep"), speechmix.Sentence("the cat is here")]
    found = speechmix.unit_states(text_models.bert(), sentences)
    (stack,) = found
    assert found[stack].units["label"].tolist() == "the cats sleep the cat is here".split()
    assert found[stack].units["start"].isna().all()
    with pytest.raises(InputError, match="frames"):
        speechmix.unit_states(text_models.bert(), sentences, level="frame")


def test_the_command_writes_the_file_and_says_what_it_holds(clips, tmp_path, capsys):
    path = tmp_path / "x.parquet"
    arguments = ["--model", "bundled:tiny-french-ctc", "--out", str(path), "--level", "frame"]
    assert main(["states", str(clips[0].path), *arguments]) == 0
    assert "295 rows" in capsys.readouterr().out.replace(",", "")
    assert pq.ParquetFile(path).metadata.num_rows == 295
    with pytest.raises(SystemExit):
        main(["states", str(clips[0].path), *arguments[:-1], "token"])
