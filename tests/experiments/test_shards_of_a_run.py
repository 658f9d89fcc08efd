"""A run in shards: the tables of one process, whoever ends last, whoever is killed, and whatever
was there before."""

from __future__ import annotations

import os
import shutil
import signal

import numpy as np
import pandas as pd
import pytest

import speechmix
from speechmix.errors import InputError, StorageError
from speechmix.files.shard_assignment import Shard
from speechmix.runs.run_status import run_status
from speechmix.runs.score_clips import score_clips
from tests.conftest import build, trained_and_twin
from tests.experiments.test_run import clip
from tests.reliability.kills import snapshot

QUIET = {
    "figures": 0,
    "progress": False,
    "report": lambda line: None,
    "measures": ["attention"],
}
TABLES = ("cue_contribution.parquet", "clips.csv", "skipped.csv")


@pytest.fixture(scope="module")
def models():
    return trained_and_twin()


def clips(count=7):
    names = [f"{letter}{letter * index}" for index, letter in enumerate("abcdefg")][:count]
    return [*(clip(name) for name in names), clip("untimed", words=None, text=None)]


def tables(out):
    found = {name: (out / name).read_bytes() for name in TABLES}
    scores = speechmix.open_run(out).scores.to_table().to_pandas()
    columns = [column for column in scores if column != "fingerprint"]
    return found, scores.sort_values(columns, ignore_index=True)


def assert_same(one, other):
    assert one[0] == other[0]
    pd.testing.assert_frame_equal(one[1], other[1])


@pytest.fixture(scope="module")
def whole(models, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    score_clips(models, clips(), out, **QUIET)
    return out


@pytest.mark.parametrize("order", [pytest.param((1, 2, 3), marks=pytest.mark.long), (3, 1, 2)])
def test_shards_give_the_tables_of_one_process_whoever_ends_last(models, whole, order, tmp_path):
    for place, index in enumerate(order):
        score_clips(models, clips(), tmp_path, shard=f"{index}/3", **QUIET)
        assert (tmp_path / "clips.csv").is_file() == (place == 2)
    assert_same(tables(tmp_path), tables(whole))
    before = snapshot(tmp_path)
    score_clips(models, clips(), tmp_path, shard="2/3", **QUIET)  # requeued after its end
    assert snapshot(tmp_path) == before


def test_maps_are_found_whichever_shard_they_are_in(models, whole, tmp_path):
    for index in (1, 2):
        score_clips(models, clips(), tmp_path, shard=Shard(index, 2), **QUIET)
    for name in (one.name for one in clips(3)[:3]):
        expected, maps = (speechmix.open_run(out).maps(name) for out in (whole, tmp_path))
        assert list(maps) == list(expected)
        for key in expected:
            for place in expected[key]:
                np.testing.assert_array_equal(maps[key][place].scores, expected[key][place].scores)


def test_at_once_and_killed(models, whole, tmp_path):
    """Three processes at once, one of them killed and started again."""
    children = []
    for index in (1, 2, 3):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                if index == 2:
                    score_clips(models, _killing(clips()), tmp_path, shard="2/3", **QUIET)
                score_clips(models, clips(), tmp_path, shard=f"{index}/3", **QUIET)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    ends = [os.waitpid(child, 0)[1] for child in children]
    assert [os.WIFSIGNALED(end) for end in ends] == [False, True, False]
    status = run_status(tmp_path)
    assert (status.state, status.missing) == ("running", [2])
    assert "--shard 2" in status.text()
    score_clips(models, clips(), tmp_path, shard="2/3", **QUIET)
    assert_same(tables(tmp_path), tables(whole))
    status = run_status(tmp_path)
    assert (status.state, status.missing, set(status.table["state"])) == ("complete", [], {"done"})
    assert status.table.groupby("model")["clips"].sum().tolist() == [7, 7]
    assert list(status.failures["clip"]) == ["untimed"]


def _killing(some):
    """The same clips; whoever hears the second of shard 2 dies."""

    class Deadly(speechmix.Clip):
        def audio(self, sample_rate=16_000):
            os.kill(os.getpid(), signal.SIGKILL)

    own = [one for one in some if Shard(2, 3).holds(one.name) and one.words]
    object.__setattr__(own[-1], "__class__", Deadly)
    return some


def test_another_count_goes_on_with_what_is_there(models, whole, tmp_path, monkeypatch):
    from speechmix.runs.kinds import map_results as store

    score_clips(models, clips(), tmp_path, shard="1/2", **QUIET)
    real, heard = store.mix_items, []

    def counting(model, some, request, **options):
        heard.extend(one.name for one in some)
        return real(model, some, request, **options)

    monkeypatch.setattr(store, "mix_items", counting)
    score_clips(models, clips(), tmp_path, **QUIET)
    assert set(heard) == {one.name for one in clips() if Shard(2, 2).holds(one.name) and one.words}
    assert_same(tables(tmp_path), tables(whole))
    assert {path.relative_to(tmp_path) for path in tmp_path.rglob("*.parquet")} == {
        path.relative_to(whole) for path in whole.rglob("*.parquet")
    }


def test_clips_that_are_no_longer_asked_for_are_gone(models, whole, tmp_path):
    run = shutil.copytree(whole, tmp_path / "run")
    score_clips(models, clips(3), run, **QUIET)
    fresh = tmp_path / "fresh"
    score_clips(models, clips(3), fresh, **QUIET)
    assert_same(tables(run), tables(fresh))
    files = [
        {path.relative_to(out) for path in out.glob("[rs]*/**/*.parquet")} for out in (run, fresh)
    ]
    assert files[0] == files[1]


def test_new_clips_wait_for_all_shards(models, whole, tmp_path):
    for index in (1, 2):
        score_clips(models, clips(3), tmp_path, shard=f"{index}/2", **QUIET)
    before = (tmp_path / "clips.csv").read_bytes()
    score_clips(models, clips(), tmp_path, shard="1/2", **QUIET)
    assert (tmp_path / "clips.csv").read_bytes() == before
    score_clips(models, clips(), tmp_path, shard="2/2", **QUIET)
    assert_same(tables(tmp_path), tables(whole))


def test_a_shard_without_a_clip_is_done_at_once(models, tmp_path):
    some = clips(1)[:1]
    for index in (1, 2):
        run = score_clips(models, some, tmp_path, shard=f"{index}/2", **QUIET)
        assert run.done == 2 * Shard(index, 2).holds(some[0].name)
    assert set(speechmix.open_run(tmp_path).contributions["clip"]) == {some[0].name}


def test_one_process_and_shards_keep_out_of_each_others_way(models, tmp_path):
    from speechmix.files.whole_files import hold_lock

    score_clips(models, clips(2), tmp_path, shard="1/2", **QUIET)
    with hold_lock(tmp_path / "results" / ".shards", "1-of-2"):
        from concurrent.futures import ThreadPoolExecutor

        with (
            ThreadPoolExecutor(1) as other,
            pytest.raises(StorageError, match="is being written to by process"),
        ):
            other.submit(score_clips, models, clips(2), tmp_path, **QUIET).result()
    with pytest.raises(InputError, match="3/48"):
        score_clips(models, clips(2), tmp_path, shard="3/2", **QUIET)


def test_a_shard_that_was_asked_something_else_is_not_done(models, tmp_path, monkeypatch):
    """Other weights, a flag, a text: tables of both would be of no run."""
    from speechmix.runs import job_execution as run
    from speechmix.runs.kinds import map_results

    real, written = run.write_tables, []
    monkeypatch.setattr(run, "write_tables", lambda *given: (written.append(1), real(*given)))

    def both(first, second):
        written.clear()
        for index, asked in ((2, first), (1, second), (2, second)):
            by = asked.pop("by", models)
            score_clips(
                by,
                asked.pop("of", clips(3)),
                tmp_path,
                shard=f"{index}/2",
                **{**QUIET, **asked, "overwrite": True},
            )
            asked["by"] = by
            yield bool(written)

    import transformers

    extractor, others = transformers.Wav2Vec2FeatureExtractor(), build("wav2vec2-post")
    with_other_weights = [speechmix.load(_shifted(others), processor=extractor), models[1]]
    assert [*both({"by": with_other_weights}, {})] == [False, False, True]
    assert [*both({"maps": True}, {"by": with_other_weights, "maps": True})] == [False, False, True]
    assert [*both({"twin_clips": 1}, {})] == [False, False, True]
    monkeypatch.setattr(
        map_results, "STRENGTH_REVISION", map_results.STRENGTH_REVISION + 1
    )  # the other shard's are of a former version
    score_clips(models, clips(3), tmp_path, shard="2/2", **{**QUIET, "overwrite": True})
    assert len(written) == 1
    renamed = [one.replace(meta={"side": "left"}) for one in clips(3)]
    score_clips(models, renamed, tmp_path, shard="2/2", **{**QUIET, "overwrite": True})
    assert len(written) == 1


def _shifted(model):
    import torch

    with torch.no_grad():
        next(model.parameters()).add_(0.1)
    return model


def test_a_damaged_part_that_nothing_is_made_of_is_swept(models, whole, tmp_path):
    stray = tmp_path / "results" / "another_model" / "0123456789abcdef.parquet"
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"PAR1 and then nothing")
    score_clips(models, clips(), tmp_path, **QUIET)
    assert not stray.exists()
    assert_same(tables(tmp_path), tables(whole))


def test_a_large_part_in_another_order_is_made_again(models, tmp_path, monkeypatch):
    """Tables are merged from parts in the order of the clips: one in another order would lose
    rows."""
    from speechmix.runs.results import result_store as compaction

    monkeypatch.setattr(compaction, "_LARGE_PART_BYTES", 1)
    score_clips(models, clips(4)[::-1], tmp_path, **QUIET)
    score_clips(models, clips(4), tmp_path, **QUIET)
    fresh = tmp_path / "fresh"
    score_clips(models, clips(4), fresh, **QUIET)
    assert_same(tables(tmp_path), tables(fresh))
    assert len(speechmix.open_run(tmp_path).contributions["clip"].unique()) == 4
