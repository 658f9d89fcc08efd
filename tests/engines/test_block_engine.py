"""A run whose clips are handed out in blocks, by an engine of this process that carries them in an
order of its own."""

from __future__ import annotations

import pickle
from contextlib import contextmanager

import pyarrow as pa
import pytest

import speechmix
from speechmix.errors import InputError, ModelError
from speechmix.extensions.clusters import ray_executor as block_driver
from speechmix.extensions.clusters.block_worker import ROW, BlockWorker
from speechmix.extensions.clusters.ray_executor import (
    BlockExecutor,
    ExecutorError,
    split_into_blocks,
)
from speechmix.runs.score_clips import score_clips
from tests.conftest import build
from tests.experiments.test_run import clip
from tests.reliability.kills import snapshot

QUIET = {
    "figures": 1,
    "progress": False,
    "report": lambda line: None,
    "measures": ["attention"],
}


class HereExecutor(BlockExecutor):
    """Blocks of two, the last first; a worker of its own for each second block; breaks off after so
    many blocks, once."""

    def __init__(self, breaks_after=None):
        self.breaks_after, self.passes = breaks_after, 0

    @contextmanager
    def connected(self):
        yield

    def rows(self, asked, clips):
        self.passes += 1
        for number, table in enumerate(reversed(split_into_blocks(clips, 2))):
            if number == self.breaks_after:
                self.breaks_after = None
                raise ExecutorError("the cluster is gone")
            if number % 2 == 0:
                worker = BlockWorker(asked, "here", lambda: {"here"})
            some = [pickle.loads(one.as_py()) for one in table["clip"]]
            rows = list(worker.rows(table["block"][0].as_py(), some))
            yield from pa.Table.from_pylist(rows, schema=ROW).to_pylist()


def clips():
    return [
        *(clip(letter * (index + 1)) for index, letter in enumerate("fabcdeg")),
        clip("untimed", words=None, text=None),
    ]


@pytest.fixture(scope="module")
def loads():
    import transformers

    extractor, trained = transformers.Wav2Vec2FeatureExtractor(), build("wav2vec2-post")
    models = [
        speechmix.load(trained, processor=extractor),
        *(
            speechmix.load(trained, processor=extractor, init="random", seed=seed)
            for seed in (3, 4)
        ),
    ]
    return [lambda model=model: model for model in models]


@pytest.fixture(scope="module")
def whole(loads, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    score_clips(loads, clips(), out, twin_clips=2, **QUIET)
    return snapshot(out)


@pytest.mark.parametrize("breaks_after", [pytest.param(None, marks=pytest.mark.long), 2])
def test_the_folder_is_that_of_one_process(loads, whole, breaks_after, tmp_path, monkeypatch):
    monkeypatch.setattr(block_driver, "_BLOCKS_PER_MERGE", 1)  # on the way, too
    executor = HereExecutor(breaks_after)
    run = score_clips(loads, clips(), tmp_path, executor=executor, twin_clips=2, **QUIET)
    assert executor.passes == 3 + (breaks_after is not None)
    assert snapshot(tmp_path) == whole
    assert run.skipped == [{"clip": "untimed", "model": "", "reason": run.skipped[0]["reason"]}]
    before = snapshot(tmp_path)
    assert (
        score_clips(loads, clips(), tmp_path, executor=HereExecutor(), twin_clips=2, **QUIET).done
        == run.done
    )
    assert snapshot(tmp_path) == before


def test_one_process_goes_on_where_an_engine_was_stopped(loads, whole, tmp_path):
    class Stopped(HereExecutor):
        def rows(self, asked, clips):
            for number, row in enumerate(super().rows(asked, clips)):
                if number == 3:
                    raise KeyboardInterrupt
                yield row

    with pytest.raises(KeyboardInterrupt):
        score_clips(loads, clips(), tmp_path, executor=Stopped(), twin_clips=2, **QUIET)
    score_clips(loads, clips(), tmp_path, twin_clips=2, **QUIET)
    assert snapshot(tmp_path) == whole


def test_what_cannot_go_on_is_said(loads, tmp_path):
    class Gone(HereExecutor):
        def rows(self, asked, clips):
            raise ExecutorError("the cluster is gone")

    with pytest.raises(ModelError, match="3 times: the cluster is gone"):
        score_clips(loads, clips(), tmp_path, executor=Gone(), **QUIET)
    with pytest.raises(InputError, match="functions that load a model"):
        score_clips([loads[0]()], clips(), tmp_path, executor=HereExecutor(), **QUIET)
    with pytest.raises(InputError, match="two models are called"):
        score_clips([loads[0]] * 2, clips(), tmp_path, executor=HereExecutor(), **QUIET)
    with pytest.raises(InputError, match="an executor or a shard"):
        score_clips(loads, clips(), tmp_path, executor=HereExecutor(), shard="1/2", **QUIET)


def test_blocks_are_small_and_named_after_their_clips():
    some = [clip(f"clip-{number}") for number in range(40)]
    tables = split_into_blocks(some, 16)
    assert [table.num_rows for table in tables] == [16, 16, 8]
    names = [set(table["block"].to_pylist()) for table in tables]
    assert names == [set(table["block"].to_pylist()) for table in split_into_blocks(some, 16)]
    assert all(len(name) == 1 for name in names)
    assert len(set.union(*names)) == 3
