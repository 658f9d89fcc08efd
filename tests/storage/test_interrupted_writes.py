"""Ctrl-C while results are written: they are on the disk before it ends the run."""

import _thread
import signal
import time

import pytest

from speechmix.files.shard_assignment import Shard
from speechmix.runs.results import result_store
from speechmix.runs.results.clip_result_files import Owner
from speechmix.runs.results.result_store import Key, Results
from speechmix.runs.results.run_folder import RunFolder


@pytest.mark.parametrize("is_at_the_end", [True, False])
def test_an_interrupt_waits_until_results_are_written(tmp_path, monkeypatch, is_at_the_end):
    write_part = result_store.write_part

    def interrupted_write(*arguments):
        _thread.interrupt_main()
        time.sleep(0.2)  # the main thread has time to be interrupted
        return write_part(*arguments)

    folder, key = RunFolder(tmp_path), Key("clip", "kind", "0" * 16)
    monkeypatch.setattr(result_store, "write_part", interrupted_write)

    def store():
        with Results(folder, Owner(), Shard(), str) as results:
            results.put(key, content="{}")
            if not is_at_the_end:
                results.write()

    former = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            store()
    finally:
        signal.signal(signal.SIGINT, former)
    monkeypatch.undo()
    with Results(folder, Owner(), Shard(), str) as results:
        assert key in results
