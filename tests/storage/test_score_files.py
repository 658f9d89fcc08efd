"""Scores as Parquet files: every cell as the map has it, few files and large row groups, opened by
what analysts use."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.files.cache_keys import FileMark
from speechmix.mixing.maps.mixing_map import MixingMap
from speechmix.runs.results import score_files
from speechmix.runs.results.score_files import (
    CopiedScores,
    RowGroups,
    ScoreFiles,
    partition_folder,
    read_scores,
)
from speechmix.runs.results.tidy_tables import TableWriter

KEYS = ["model", "init", "seed", "measure", "stack"]


def clip(name):
    return SimpleNamespace(name=name, fingerprint=f"of {name}")


def model(name="openai/whisper-small", init="trained", seed=None):
    return SimpleNamespace(name=name, init=init, seed=seed)


def a_map(stack="encoder", measure="attention", heads=0, seed=0):
    units = tuple(
        speechmix.Span(i, i + 1, f"w{i}", "word", i, i / 10, (i + 1) / 10) for i in range(3)
    )
    tokens = tuple(speechmix.Span(i, i + 1, f"t{i}", "token", i) for i in range(2))
    targets = units if stack == "encoder" else tokens
    shape = (2, *([heads] if heads else []), len(targets), 3)
    scores = np.random.default_rng(seed).random(shape)
    return MixingMap(scores, targets, units, measure, stack, (4, 5))


def written(folder, maps_of, **options):
    with ScoreFiles(folder, **options) as files:
        for who, name, maps in maps_of:
            files.append({(m.measure, m.stack): m for m in maps}, clip(name), who)
        marks = files.close("part-0")
    assert {name: FileMark.of(folder / name) for name in marks} == marks
    return read_scores(folder, dict(sorted(marks.items())))


@pytest.fixture
def runs():
    twin = model(init="random", seed=7)
    return [
        (
            who,
            name,
            [
                a_map(seed=number),
                a_map("cross", seed=number),
                a_map(measure="value_zeroing", seed=number),
            ],
        )
        for who in (model(), twin)
        for number, name in enumerate(("b", "a", "001"))
    ]


@pytest.mark.parametrize("rows_per_group", [1, 40, 1_000_000])
def test_every_cell_is_there_once_as_the_map_has_it(tmp_path, runs, rows_per_group):
    table = written(tmp_path / "scores", runs, rows_per_group=rows_per_group).to_table().to_pandas()
    assert len(table) == sum(m.scores.size for _, _, maps in runs for m in maps)
    assert not table.duplicated([*KEYS, "clip", "layer", "target", "source"]).any()
    for who, name, maps in runs:
        mine = table[(table["clip"] == name) & (table.init == who.init)]
        for mixing_map in maps:
            rows = mine[(mine.measure == mixing_map.measure) & (mine["stack"] == mixing_map.stack)]
            rows = rows.sort_values(["layer", "target", "source"])
            assert rows.model.eq(who.name).all()
            assert rows.fingerprint.eq(f"of {name}").all()
            np.testing.assert_array_equal(rows.score, mixing_map.scores.ravel())
            np.testing.assert_array_equal(
                rows.share, mixing_map.normalized().scores.ravel().astype(np.float32)
            )
            expected = mixing_map.to_dataframe()  # another way to take a map apart
            for column in expected.columns.difference(["measure", "stack"]):
                pd.testing.assert_series_equal(
                    rows[column].reset_index(drop=True),
                    expected[column],
                    check_dtype=False,
                    check_names=False,
                )
            assert (rows.seed == who.seed).all() if who.seed is not None else rows.seed.isna().all()


def test_heads_have_their_column(tmp_path):
    per_head = a_map(heads=4)
    table = written(tmp_path / "scores", [(model(), "a", [per_head])]).to_table().to_pandas()
    rows = table.sort_values(["layer", "head", "target", "source"])
    np.testing.assert_array_equal(
        rows.score.to_numpy().reshape(per_head.scores.shape), per_head.scores
    )


def test_few_files_with_large_row_groups_sorted_by_clip(tmp_path, runs):
    written(tmp_path / "scores", runs)
    files = sorted((tmp_path / "scores").rglob("*.parquet"))
    assert [file.name for file in files] == 3 * ["seed-7.part-0.parquet"] + 3 * [
        "trained.part-0.parquet"
    ]
    assert {pq.ParquetFile(file).num_row_groups for file in files} == {1}
    assert files[0].parent == tmp_path / "scores" / partition_folder(
        "openai/whisper-small", "random", "attention", "cross"
    )
    clips = pq.ParquetFile(files[0]).read(columns=["clip"])["clip"].to_pylist()
    assert clips == sorted(clips)


def test_a_file_is_closed_when_it_is_large(tmp_path, runs, monkeypatch):
    whole = written(tmp_path / "whole", runs).to_table().to_pandas()
    monkeypatch.setattr(score_files, "_MAX_FILE_ROWS", 1)
    monkeypatch.setattr(score_files, "MAX_WAITING_BYTES", 3_000)
    cut = written(tmp_path / "cut", runs, rows_per_group=40)
    assert {path.name for path in (tmp_path / "cut").rglob("*.parquet")} > {
        "trained.part-0.parquet",
        "seed-7.part-0-1.parquet",
    }
    by = [*KEYS, "clip", "layer", "target", "source"]
    tables = [
        table.sort_values(by, ignore_index=True) for table in (whole, cut.to_table().to_pandas())
    ]
    pd.testing.assert_frame_equal(*tables)


def test_an_error_or_nothing_scored_leaves_no_file(tmp_path, runs):
    folder = tmp_path / "scores"
    before = written(folder, runs[:1]).count_rows()
    files_before = sorted(folder.rglob("*.parquet"))
    with pytest.raises(AttributeError), ScoreFiles(folder, rows_per_group=1) as files:
        files.append(
            {("attention", "encoder"): a_map(), ("attention", "cross"): None}, clip("z"), model()
        )
    with ScoreFiles(folder) as files:
        assert files.close("nothing") == {}
    assert sorted(path for path in folder.rglob("*") if path.is_file()) == files_before
    assert read_scores(folder, None).count_rows() == before
    with pytest.raises(InputError, match="has no scores: expected the folder none"):
        read_scores(tmp_path / "none", None)


def test_rows_of_a_clip_are_copied_whole_even_from_two_row_groups(tmp_path, runs):
    written(tmp_path / "scores", runs, rows_per_group=5)
    files = sorted(
        (
            tmp_path
            / "scores"
            / partition_folder("openai/whisper-small", "trained", "attention", "encoder")
        ).glob("*")
    )
    copied = CopiedScores(files, RowGroups(most_rows=5))
    for _, name, (expected, *_) in runs[:3]:
        rows = copied.rows_of(name).to_pandas().sort_values(["layer", "target", "source"])
        np.testing.assert_array_equal(rows.score, expected.scores.ravel())
    assert copied.rows_of("nobody") is None


class TestAnalysts:
    """The one line of each library that the docs show gives the same mean per stack."""

    @pytest.fixture
    def folder(self, tmp_path, runs):
        written(tmp_path / "scores", runs)
        return tmp_path / "scores"

    @pytest.fixture
    def expected(self, runs):
        scores = [
            m.scores
            for who, _, maps in runs
            for m in maps
            if m.stack == "cross" and who.init == "random"
        ]
        return np.mean(scores)

    def test_arrow(self, folder, expected):
        where = (ds.field("stack") == "cross") & (ds.field("seed") == 7)
        column = read_scores(folder, None).to_table(columns=["score"], filter=where)["score"]
        assert np.mean(column.to_numpy()) == pytest.approx(expected, abs=1e-15)

    def test_pandas(self, folder, expected):
        table = pd.read_parquet(folder, filters=[("stack", "=", "cross"), ("seed", "=", 7)])
        assert table.score.mean() == pytest.approx(expected, abs=1e-15)
        everything = pd.read_parquet(folder)
        assert everything["init"].astype(str).eq("trained").equals(everything.seed.isna())
        assert set(everything.model.astype(str)) == {"openai/whisper-small"}

    def test_polars(self, folder, expected):
        pl = pytest.importorskip("polars", reason="polars is not installed")
        scores = pl.scan_parquet(f"{folder}/**/*.parquet", hive_partitioning=True)
        cross = scores.filter(pl.col("stack") == "cross", pl.col("seed") == 7).collect()
        assert cross["score"].mean() == pytest.approx(expected, abs=1e-15)
        assert cross["model"].unique().to_list() == ["openai/whisper-small"]
        assert scores.filter(pl.col("seed").is_null()).collect()["init"].unique().to_list() == [
            "trained"
        ]

    def test_duckdb(self, folder, expected):
        duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
        scores = f"read_parquet('{folder}/**/*.parquet', hive_partitioning=true)"
        query = (
            f"select avg(score), any_value(model) from {scores} where stack = 'cross' and seed = 7"
        )
        [(mean, name)] = duckdb.sql(query).fetchall()
        assert (mean, name) == (pytest.approx(expected, abs=1e-15), "openai/whisper-small")
        assert duckdb.sql(f"select distinct init from {scores} where seed is null").fetchall() == [
            ("trained",)
        ]


def test_small_tables_have_large_row_groups_and_no_csv_that_nobody_can_open(tmp_path, monkeypatch):
    def rows(number):
        return pd.DataFrame(
            {
                "clip": [f"c{number}"] * 3,
                "seed": pd.array([None, number, None], "Int64"),
                "x": [0.1, 0.2, np.nan],
            }
        )

    monkeypatch.setattr("speechmix.runs.results.tidy_tables._ROWS_PER_WRITE", 7)
    with TableWriter(tmp_path / "small") as small:
        for number in range(5):
            small.append(rows(number))
    assert pq.ParquetFile(tmp_path / "small.parquet").num_row_groups == 2
    read = pd.read_parquet(tmp_path / "small.parquet")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "small.csv"), read, check_dtype=False)
    assert (tmp_path / "small.csv").read_text().splitlines()[2] == "c0,0,0.2"
    monkeypatch.setattr("speechmix.runs.results.tidy_tables.MAX_CSV_ROWS", 14)
    with TableWriter(tmp_path / "small") as large:
        for number in range(5):
            large.append(rows(number))
    assert not (tmp_path / "small.csv").exists()
    assert len(pd.read_parquet(tmp_path / "small.parquet")) == 15


def test_no_flipped_bit_is_read_as_a_number(tmp_path):
    """Pages have checksums, their headers and the footer have none: the whole file is compared with
    its hash."""
    import transformers

    from speechmix.runs.score_clips import score_clips
    from tests.conftest import build
    from tests.experiments.test_run import clip

    model = speechmix.load(
        build("wav2vec2-post"), processor=transformers.Wav2Vec2FeatureExtractor()
    )
    score_clips(
        model,
        [clip("a"), clip("bb")],
        tmp_path,
        figures=0,
        progress=False,
        report=lambda line: None,
    )
    assert speechmix.open_run(tmp_path).maps("a")
    [scores], [part] = (
        (tmp_path / "scores").rglob("*.parquet"),
        (tmp_path / "results").glob("[!_.]*/*.parquet"),
    )
    for path in (scores, part):
        content = path.read_bytes()
        for place in range(4, len(content), len(content) // 20):
            path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            if path == scores:
                with pytest.warns(UserWarning, match="1 maps of 'a' are left out.*damaged"):
                    assert not speechmix.open_run(tmp_path).maps("a")
            else:
                with pytest.raises(InputError, match="damaged"):
                    speechmix.open_run(tmp_path).maps("a")
        path.write_bytes(content)
