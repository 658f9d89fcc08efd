"""Workers without an engine: a block that is given out again repeats little, and a clip that kills
is left out."""

from __future__ import annotations

import errno
import os
import signal

import pytest

import speechmix
from speechmix.errors import StorageError
from speechmix.extensions.clusters import block_worker as crash_records
from speechmix.extensions.clusters.block_worker import Attempts, BlockWorker, Pass
from speechmix.mixing.passes.request import MixRequest
from speechmix.runs.kinds import map_results as store
from speechmix.runs.kinds.map_results import CONTRIBUTIONS_KIND, MapOptions
from speechmix.runs.model_run import ModelRun
from speechmix.runs.results.run_folder import RunFolder
from speechmix.runs.score_clips import choose_twin_clips
from tests.conftest import build
from tests.experiments.test_run import clip


@pytest.fixture(scope="module")
def model():
    import transformers

    model = speechmix.load(
        build("wav2vec2-post"), processor=transformers.Wav2Vec2FeatureExtractor()
    )
    assert model.fingerprint
    return model


@pytest.fixture
def asked(model, tmp_path):
    few = frozenset(one.name for one in choose_twin_clips(clips(), 2))
    kinds = ((CONTRIBUTIONS_KIND, {"maps": MapOptions(MixRequest())}),)
    run = ModelRun(kinds, twin_clips=few)
    return Pass(tmp_path / "run", lambda: model, run, (), (), tmp_path / "attempts")


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Names of the clips that any process begins."""
    real, path = store.mix_items, tmp_path / "log"

    def noted(model, some, request, **options):
        with path.open("a") as file:
            file.writelines(f"{one.name}\n" for one in some)
        if any(one.meta.get("kills") for one in some):
            os.kill(os.getpid(), signal.SIGKILL)
        if any(one.meta.get("fails") for one in some):
            raise ZeroDivisionError("by nothing")
        return real(model, some, request, **options)

    monkeypatch.setattr(store, "mix_items", noted)
    path.touch()
    return path


def clips(**bad):
    return [
        clip(letter * 3, meta={bad[letter]: "yes"} if letter in bad else {}) for letter in "abcde"
    ]


def worker(asked, *, node="here", alive=("here",)):
    return BlockWorker(asked, node, lambda: frozenset(alive))


def killed(asked, some, **machines):
    """Whether a worker in a process of its own is killed by a block."""
    child = os.fork()
    if child == 0:
        try:
            list(worker(asked, **machines).rows("block", some))
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_a_clip_that_kills_is_left_out_after_two_deaths(asked, log):
    some = clips(c="kills")
    assert killed(asked, some)
    assert killed(asked, some)
    rows = list(worker(asked).rows("block", some))
    assert [row["reason"] is None for row in rows] == [True, True, False, True, True]
    assert "2 workers died at this clip" in rows[2]["reason"]
    heard = log.read_text().split()
    assert heard.count("ccc") == 2
    assert {heard.count(one.name) for one in some if one.name != "ccc"} <= {
        1,
        2,
    }  # the first death loses what was not written
    again = list(worker(asked).rows("block", some))  # given out once more
    assert log.read_text().split() == heard
    assert [row["keys"] for row in again] == [row["keys"] for row in rows]


def test_who_dies_with_its_machine_dies_of_no_clip(asked, log):
    some = clips(c="kills")
    for node in ("one", "two", "three"):
        assert killed(asked, some, node=node, alive=())
    rows = list(worker(asked, alive=()).rows("block", clips()))
    assert [row["reason"] for row in rows] == [None] * 5


def test_an_error_that_nobody_foresaw_costs_one_clip(asked, log):
    rows = list(worker(asked).rows("block", clips(b="fails")))
    assert [row["reason"] for row in rows] == [
        None,
        "ZeroDivisionError: by nothing",
        None,
        None,
        None,
    ]
    assert any("SKIPPED: ZeroDivisionError" in line for line in rows[0]["lines"])


def test_what_another_worker_kept_is_known(asked, log):
    first = list(worker(asked).rows("block", clips()))
    heard = log.read_text()
    assert (
        next(worker(asked).rows("block", clips()))["keys"] == first[0]["keys"]
    )  # by the name of its block
    parts = tuple(RunFolder(asked.folder).part_files())
    later = Pass(asked.folder, asked.load, asked.run, (), parts, asked.attempts)
    rows = list(worker(later).rows("another block", clips()[::-1]))  # by an earlier start
    assert [row["keys"] for row in rows] == [row["keys"] for row in first[::-1]]
    assert log.read_text() == heard


def test_a_folder_that_cannot_be_written_to_is_no_clips_fault(asked, log, monkeypatch):
    def full(*_, **__):
        raise StorageError("the disk is full")

    monkeypatch.setattr(store, "mix_items", full)
    with pytest.raises(StorageError, match="full"):
        list(worker(asked).rows("block", clips()))


def test_a_note_that_is_damaged_blames_no_clip_and_one_that_cannot_be_written_none_either(
    tmp_path, monkeypatch
):
    notes = Attempts(tmp_path, "mine", "a", lambda: {"a"})
    (tmp_path / "other.json").write_text(
        "", encoding="utf-8"
    )  # its machine went down while it was written
    assert not notes.deaths("block 1")

    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(crash_records, "write_json", full)
    with pytest.raises(StorageError, match="free some space"):
        notes.begin("block 1", ["les"])
