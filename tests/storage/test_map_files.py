"""Maps of a run in files of their own: as `mix` gives them, whoever is stopped, damaged or asked
again."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.runs.kinds import map_results as store
from speechmix.runs.results import map_files
from speechmix.runs.results import map_files as map_shards
from speechmix.runs.results.map_files import ShardWriter, find_shard, read_tensor, score_digests
from speechmix.runs.score_clips import score_clips
from tests.conftest import build, trained_and_twin
from tests.experiments.test_run import clip
from tests.reliability.kills import count_calls, snapshot, try_once

MEASURES = ["value_zeroing", "attention"]
QUIET = {"figures": 0, "progress": False, "report": lambda line: None, "measures": MEASURES}
FRAMES = {**QUIET, "units": "frame"}
WORDS = {**QUIET, "maps": True}


@pytest.fixture(scope="module")
def models():
    return trained_and_twin()


def clips(count=3):
    return [clip(name) for name in ("a", "bb", "ccc")[:count]]


@pytest.fixture(scope="module", params=[FRAMES, WORDS], ids=["frames", "words"])
def whole_and_calls(request, models, tmp_path_factory):
    """Options of a run, its folder, and how many file-system calls it took."""
    out = tmp_path_factory.mktemp("whole") / "run"
    calls = count_calls(lambda folder: score_clips(models, clips(), folder, **request.param), out)
    return request.param, out, calls


@pytest.fixture(scope="module")
def whole(whole_and_calls):
    """Options of a run, and its folder."""
    return whole_and_calls[:2]


def files_of_maps(out):
    return sorted(path for path in (out / "maps").rglob("*") if path.is_file())


def assert_maps_are_those_of_mix(out, models, units, names=("a", "bb", "ccc")):
    opened = speechmix.open_run(out)
    for one in (one for one in clips() if one.name in names):
        stored = opened.maps(one.name)
        assert list(stored) == [(model.name, model.init, model.seed) for model in models]
        for model in models:
            computed = speechmix.mix(model, one, measures=MEASURES, units=units)
            of_model = stored[model.name, model.init, model.seed]
            assert set(of_model) == set(computed)
            for key, mixing_map in computed.items():
                np.testing.assert_array_equal(of_model[key].scores, mixing_map.scores)
                np.testing.assert_array_equal(
                    of_model[key].mixing_strength, mixing_map.mixing_strength
                )
                assert of_model[key].scores.dtype == mixing_map.scores.dtype
                for name in ("targets", "sources", "layers"):
                    assert getattr(of_model[key], name) == getattr(mixing_map, name)
                told = json.loads(json.dumps(mixing_map.provenance))
                assert told.items() <= of_model[key].provenance.items()


def test_maps_are_read_back_as_they_were_computed(models, whole):
    options, out = whole
    units = options.get("units", "word")
    assert_maps_are_those_of_mix(out, models, units)
    assert len(files_of_maps(out)) == 2
    assert (out / "scores").exists() == (units == "word")


def test_a_run_of_frames_has_contributions_and_says_where_its_cells_are(models, tmp_path):
    run = score_clips(models[:1], clips(1), tmp_path, **FRAMES)
    opened = speechmix.open_run(run)
    assert len(run.contributions) == 2 * 3
    with pytest.raises(InputError, match="a run of frames, which has no table of cells"):
        _ = opened.scores
    scores = opened.maps("a")[models[0].name, "trained", None]["attention", "encoder"].scores
    assert isinstance(scores, np.memmap)


def test_other_readers_of_safetensors_open_a_shard(models, tmp_path):
    from safetensors.numpy import load_file

    score_clips(models[:1], clips(), tmp_path, **FRAMES)
    (path,) = files_of_maps(tmp_path)
    tensors = load_file(path)
    assert set(tensors) == {
        f"{one.name}/{measure}/encoder" for one in clips() for measure in MEASURES
    }
    expected = speechmix.mix(models[0], clips()[1], measures=MEASURES, units="frame")[
        "attention", "encoder"
    ]
    np.testing.assert_array_equal(tensors["bb/attention/encoder"], expected.scores)


def test_the_second_run_changes_no_byte(models, whole, monkeypatch):
    options, out = whole
    before = snapshot(out)
    monkeypatch.setattr(store, "mix_items", None)  # computing again would raise
    score_clips(models, clips(), out, **options)
    assert snapshot(out) == before


def test_one_more_clip_computes_that_clip_alone_and_gives_the_bytes_of_a_fresh_run(
    models, whole, tmp_path, monkeypatch
):
    options, out = whole
    real, heard = store.mix_items, []
    monkeypatch.setattr(
        store,
        "mix_items",
        lambda model, some, request, **options: (
            heard.extend(one.name for one in some) or real(model, some, request, **options)
        ),
    )
    score_clips(models, clips(2), tmp_path, **options)
    score_clips(models, clips(), tmp_path, **options)
    assert heard == 2 * ["a", "bb"] + 2 * ["ccc"]
    assert _bytes_of_maps(tmp_path) == _bytes_of_maps(out)


def test_shards_of_a_run_hold_their_own_maps(models, whole, tmp_path):
    options, _ = whole
    for index in (2, 1):
        score_clips(models, clips(), tmp_path, shard=f"{index}/2", **options)
    assert_maps_are_those_of_mix(tmp_path, models, options.get("units", "word"))
    owned = {name for part in speechmix.open_run(tmp_path).parts for name in part.maps}
    assert owned == {
        path.relative_to(tmp_path / "maps").as_posix() for path in files_of_maps(tmp_path)
    }


def test_killed_on_the_way_and_started_again(models, whole_and_calls, tmp_path):
    """The folder is that of a run nobody stopped, to the byte."""
    options, out, calls = whole_and_calls

    def job(folder):
        score_clips(models, clips(), folder, **options)

    expected = snapshot(out)
    run = tmp_path / "run"
    for call in (calls // 3, calls // 2, calls // 5):
        assert try_once(job, run, call=call)
    try_once(job, run)
    assert snapshot(run) == expected


@pytest.mark.parametrize("case", [pytest.param("cut", marks=pytest.mark.long), "bit", "missing"])
def test_what_is_damaged_is_said_and_made_again(case, models, whole, tmp_path):
    import shutil

    options, out = whole
    run, lines = shutil.copytree(out, tmp_path / "run"), []
    for path in files_of_maps(run):
        data = bytearray(path.read_bytes())
        data[-5 if path.suffix == ".safetensors" else _in_a_page_of_scores(path)] ^= 16
        path.write_bytes(data[: len(data) // 2] if case == "cut" else data)
        if case == "missing":
            path.unlink()
    if "units" in options:
        with pytest.warns(UserWarning, match="maps of 'ccc' are left out"):
            assert speechmix.open_run(run).maps("ccc") == {}
    score_clips(models, clips(), run, **{**options, "report": lines.append})
    assert sum("is damaged and made again" in line for line in lines) == 2
    assert snapshot(run) == snapshot(out)


def _in_a_page_of_scores(path):
    group = pq.ParquetFile(path).metadata.row_group(0)
    column = next(
        group.column(i)
        for i in range(group.num_columns)
        if group.column(i).path_in_schema.startswith("scores")
    )
    return (
        column.dictionary_page_offset + column.data_page_offset
    ) // 2  # page headers have no checksum


def test_maps_of_words_come_and_go_without_a_pass(models, tmp_path, monkeypatch):
    score_clips(models, clips(2), tmp_path, **QUIET)
    before, real = snapshot(tmp_path), store.mix_items
    monkeypatch.setattr(store, "mix_items", None)
    score_clips(models, clips(2), tmp_path, **WORDS)
    assert len(files_of_maps(tmp_path)) == 2
    monkeypatch.setattr(store, "mix_items", real)
    expected = tmp_path / "fresh"
    score_clips(models, clips(2), expected, **WORDS)
    assert _bytes_of_maps(tmp_path) == _bytes_of_maps(expected)
    score_clips(models, clips(2), tmp_path, **{**QUIET, "maps": False})
    assert not (tmp_path / "maps").exists()
    assert {
        name: value for name, value in snapshot(tmp_path).items() if "fresh/" not in name
    } == before


def _bytes_of_maps(out):
    return {path.relative_to(out): path.read_bytes() for path in files_of_maps(out)}


def test_further_twins_keep_no_maps(models, tmp_path):
    import transformers

    other = speechmix.load(
        build("wav2vec2-post"),
        processor=transformers.Wav2Vec2FeatureExtractor(),
        init="random",
        seed=4,
    )
    for options in (WORDS, FRAMES):
        out = tmp_path / options.get("units", "word")
        score_clips([*models, other], clips(2), out, twin_clips=2, **options)
        assert {part.owner.seed for part in speechmix.open_run(out).parts if part.maps} == {None, 3}


def test_float16_is_asked_for_and_computed_again(models, tmp_path):
    score_clips(models[:1], clips(1), tmp_path, **FRAMES)
    score_clips(models[:1], clips(1), tmp_path, maps_dtype="float16", **FRAMES)
    assert np.memmap(files_of_maps(tmp_path)[0]).size < 2**18 + 2 * 3 * 50 * 50 * 2 + 1
    stored = speechmix.open_run(tmp_path).maps("a")[models[0].name, "trained", None][
        "attention", "encoder"
    ]
    computed = speechmix.mix(models[0], clips(1)[0], measures="attention", units="frame")[
        "attention", "encoder"
    ]
    assert stored.scores.dtype == np.float32
    np.testing.assert_array_equal(
        stored.scores, computed.scores.astype(np.float16).astype(np.float32)
    )
    assert stored.provenance["kept_as"] == "float16"
    with pytest.raises(InputError, match="maps_dtype is for maps of frames"):
        score_clips(models[:1], clips(1), tmp_path / "words", maps_dtype="float16", **WORDS)
    with pytest.raises(InputError, match="maps_dtype must be one of"):
        score_clips(models[:1], clips(1), tmp_path / "words", maps_dtype="int8", **FRAMES)


class TestShards:
    @pytest.fixture
    def tensors(self):
        rng = np.random.default_rng(0)
        return {
            f"{name}/attention/encoder": rng.random((2, 5, 5)).astype(np.float32) for name in "abc"
        }

    def written(self, folder, tensors, dtype="float32"):
        writer = ShardWriter(folder)
        for name, scores in tensors.items():
            writer.append(name, scores, dtype)
        return writer.close("part")

    @pytest.mark.parametrize("limit", [("_MAX_SHARD_BYTES", 401), ("_HEADER", 288)])
    def test_the_next_begins_when_one_is_large_or_its_header_full(
        self, tmp_path, tensors, monkeypatch, limit
    ):
        monkeypatch.setattr(map_shards, *limit)
        paths = self.written(tmp_path, tensors)
        assert [path.name for path in paths] == [
            "part.safetensors",
            "part-1.safetensors",
            "part-2.safetensors",
        ][: len(paths)]
        assert len(paths) >= 2
        for name, scores in tensors.items():
            path = find_shard(name, paths, "here")
            stored = read_tensor(path, name, score_digests(scores, "float32"))
            np.testing.assert_array_equal(stored, scores)
        with pytest.raises(InputError, match="expected the scores 'd'"):
            find_shard("d", paths, "here")

    def test_every_damaged_bit_is_an_error_or_changes_no_number(
        self, tmp_path, tensors, monkeypatch
    ):
        monkeypatch.setattr(map_shards, "_HEADER", 512)
        (path,) = self.written(tmp_path, tensors)
        whole, rng, refused = path.read_bytes(), np.random.default_rng(1), 0
        for place in rng.permutation(len(whole))[:200]:
            data = bytearray(whole)
            data[place] ^= 1 << int(rng.integers(8))
            other = tmp_path / f"{place}.safetensors"
            other.write_bytes(data)
            for name, scores in tensors.items():
                try:
                    stored = read_tensor(
                        find_shard(name, [other], "here"),
                        name,
                        score_digests(scores, "float32"),
                    )
                    np.testing.assert_array_equal(stored, scores)
                except InputError:
                    refused += 1
        assert refused > 200

    def test_a_tensor_that_fails_half_way_leaves_the_others(self, tmp_path, tensors, monkeypatch):
        first, second, third = tensors
        real, calls = map_shards.cast_layer, []

        def failing(layer, dtype):
            calls.append(dtype)
            if len(calls) == 4:
                raise KeyboardInterrupt
            return real(layer, dtype)

        monkeypatch.setattr(map_shards, "cast_layer", failing)
        writer = ShardWriter(tmp_path)
        writer.append(first, tensors[first], "float32")
        with pytest.raises(KeyboardInterrupt):
            writer.append(second, tensors[second], "float32")
        writer.append(third, tensors[third], "float32")
        (path,) = writer.close("part")
        from safetensors.numpy import load_file

        assert set(load_file(path)) == {first, third}
        np.testing.assert_array_equal(load_file(path)[third], tensors[third])

    def test_what_float16_cannot_hold_is_said(self):
        with pytest.raises(
            InputError, match=r"scores up to 65,504, which float16 holds, found 70000"
        ):
            score_digests(np.full((1, 1, 1), 70_000.0, np.float32), "float16")


class TestAnalysts:
    """The one line of each library that the docs show puts a map together."""

    @pytest.fixture(scope="class")
    def out(self, models, tmp_path_factory):
        out = tmp_path_factory.mktemp("analysts")
        score_clips(models, clips(), out, **WORDS)
        return out

    @pytest.fixture(scope="class")
    def expected(self, models):
        return speechmix.mix(models[0], clips()[1], measures=MEASURES)["attention", "encoder"]

    def check(self, row, expected):
        np.testing.assert_array_equal(
            np.reshape(row["scores"], row["shape"]).astype(np.float32), expected.scores
        )
        assert list(row["layers"]) == list(expected.layers)
        for side in ("target", "source"):
            for name in ("label", "kind", "onset", "offset"):
                values = [asdict(span)[name] for span in getattr(expected, f"{side}s")]
                assert list(row[f"{side}_{name}s"]) == values

    def test_pandas(self, out, expected):
        table = pd.read_parquet(out / "maps")
        rows = table[
            (table["clip"] == "bb")
            & (table["init"] == "trained")
            & (table["measure"] == "attention")
        ]
        self.check(rows.iloc[0], expected)
        assert len(table) == 2 * 3 * 2

    def test_polars(self, out, expected):
        pl = pytest.importorskip("polars", reason="polars is not installed")
        table = pl.scan_parquet(f"{out}/maps/*/*.parquet")
        self.check(
            table.filter(clip="bb", init="trained", measure="attention")
            .collect()
            .row(0, named=True),
            expected,
        )

    def test_duckdb(self, out, expected):
        duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
        query = (
            f"select * from '{out}/maps/*/*.parquet' where clip = 'bb' and init = 'trained' "
            "and measure = 'attention'"
        )
        result = duckdb.sql(query)
        self.check(dict(zip(result.columns, result.fetchall()[0], strict=True)), expected)


def test_row_groups_are_the_same_however_rows_came(models, tmp_path, monkeypatch):
    monkeypatch.setattr(map_files, "_CELLS_PER_GROUP", 30)
    score_clips(models[:1], clips(2), tmp_path / "a", **WORDS)
    score_clips(models[:1], clips(), tmp_path / "a", **WORDS)
    score_clips(models[:1], clips(), tmp_path / "b", **WORDS)
    assert _bytes_of_maps(tmp_path / "a") == _bytes_of_maps(tmp_path / "b")


def test_on_the_command_line(tmp_path, capsys):
    import soundfile

    from speechmix.inputs import bundled
    from speechmix.interfaces.cli.command_line import main

    soundfile.write(
        tmp_path / "a.wav", np.random.default_rng(0).standard_normal(8_000) / 10, 16_000
    )
    arguments = [
        "score",
        str(tmp_path / "a.wav"),
        "--model",
        str(bundled.models()["tiny-french-ctc"]),
        "--figures",
        "0",
    ]
    arguments += [
        "--out",
        str(tmp_path / "run"),
        "--units",
        "frame",
        "--measure",
        "attention",
        "--no-progress",
    ]
    assert main([*arguments, "--maps-dtype", "float16"]) == 0
    (path,) = files_of_maps(tmp_path / "run")
    assert path.suffix == ".safetensors"
