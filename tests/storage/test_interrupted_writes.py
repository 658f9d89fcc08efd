"""Ctrl-C or SIGTERM while results are written: they are on the disk before it ends the run."""

import signal

import pytest

from speechmix.files.shard_assignment import Shard
from speechmix.files.whole_files import delay_interrupts
from speechmix.runs.results import result_store
from speechmix.runs.results.clip_result_files import Owner
from speechmix.runs.results.result_store import Key, Results
from speechmix.runs.results.run_folder import RunFolder


class Stopped(BaseException):
    pass


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM])
def stop_signal(request):
    """A signal that raises `Stopped`."""

    def stop(number, frame):
        raise Stopped

    former = signal.signal(request.param, stop)
    yield request.param
    signal.signal(request.param, former)


@pytest.mark.parametrize("is_at_the_end", [True, False])
def test_a_signal_waits_until_results_are_written(
    tmp_path, monkeypatch, stop_signal, is_at_the_end
):
    write_part = result_store.write_part

    def interrupted_write(*arguments):
        signal.raise_signal(stop_signal)
        return write_part(*arguments)

    folder, key = RunFolder(tmp_path), Key("clip", "kind", "0" * 16)
    monkeypatch.setattr(result_store, "write_part", interrupted_write)

    def store():
        with Results(folder, Owner(), Shard(), str) as results:
            results.put(key, content="{}")
            if not is_at_the_end:
                results.write()

    with pytest.raises(Stopped):
        store()
    monkeypatch.undo()
    with Results(folder, Owner(), Shard(), str) as results:
        assert key in results
    assert len(list(tmp_path.rglob("*.parquet"))) == 1  # it was not written twice


def test_signals_act_as_before_behind_the_block(stop_signal):
    handler = signal.getsignal(stop_signal)
    with delay_interrupts():
        pass
    assert signal.getsignal(stop_signal) is handler

    def fail_after_signal():
        with delay_interrupts():
            signal.raise_signal(stop_signal)
            raise OSError("a full disk")

    with pytest.raises(Stopped):
        fail_after_signal()
    assert signal.getsignal(stop_signal) is handler
