"""What a killed writer left: removed by the next one that holds the folder, and left alone while
another does."""

from __future__ import annotations

import threading

from speechmix.files.locks import hold_lock, remove_leftovers
from speechmix.files.unfinished_files import UNFINISHED, unfinished_name
from speechmix.files.whole_files import whole_file


def test_leftovers_of_a_killed_page_are_removed(tmp_path):
    leftover = tmp_path / f"{UNFINISHED}1-aa"
    leftover.touch()
    with remove_leftovers(tmp_path):
        assert not leftover.exists()


def test_while_another_holds_the_folder_its_files_stay_and_the_work_is_done(tmp_path):
    unfinished = tmp_path / f"{UNFINISHED}1-aa"
    unfinished.touch()
    done = []

    def write():
        with remove_leftovers(tmp_path):
            done.append(unfinished.exists())

    with hold_lock(tmp_path):
        other = threading.Thread(target=write)
        other.start()
        other.join()
    assert done == [True]


def test_a_folder_that_is_not_there_is_not_made(tmp_path):
    with remove_leftovers(tmp_path / "none"):
        pass
    assert not (tmp_path / "none").exists()


def test_what_a_killed_only_writer_left_is_written_over(tmp_path):
    path = tmp_path / "words.TextGrid"
    leftover = unfinished_name(path, one_writer=True)
    leftover.write_text("half")
    with whole_file(path, one_writer=True) as unfinished:
        unfinished.write_text("whole")
    assert [name.name for name in tmp_path.iterdir()] == ["words.TextGrid"]
    assert path.read_text() == "whole"
    assert unfinished_name(tmp_path / "other.TextGrid", one_writer=True) != leftover
