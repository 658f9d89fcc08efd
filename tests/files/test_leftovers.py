"""What a killed writer left: removed by the next one that holds the folder, and left alone while
another does."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pandas as pd
import pytest

from speechmix.files.whole_files import (
    UNFINISHED,
    hold_lock,
    remove_leftovers,
    unfinished_name,
    whole_file,
    whole_folder,
    write_advice,
    write_text,
)


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


def dead_process():
    """The number of a process that has ended."""
    return subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_the_next_file_or_folder_removes_what_a_killed_process_left(tmp_path):
    mine = unfinished_name(tmp_path / "a").name
    dead = mine.replace(f"-{os.getpid()}-", f"-{dead_process()}-")
    elsewhere = dead.replace(UNFINISHED, f"{UNFINISHED}f")  # of another machine
    parent = mine.replace(f"-{os.getpid()}-", f"-{os.getppid()}-")
    for write in (
        lambda folder: write_text(folder / "a.md", "a"),
        lambda folder: whole_folder(folder / "a").__enter__(),
    ):
        folder = tmp_path / str(id(write))
        (folder / dead).mkdir(parents=True)
        (folder / dead / "a.npz").touch()
        for name in (mine, parent, elsewhere):
            (folder / name).touch()
        write(folder)
        assert not (folder / dead).exists()
        assert all((folder / name).exists() for name in (mine, parent, elsewhere))


def test_a_folder_that_cannot_be_written_is_not_said_to_be_full(tmp_path):
    assert write_advice(PermissionError(errno.EACCES, "Permission denied")) == (
        "choose another folder"
    )
    assert "free some space" in write_advice(OSError(errno.ENOSPC, "No space left"))


def write_in(whole, path, write):
    with whole(path) as unfinished:
        write(unfinished)


@pytest.mark.parametrize("whole", [whole_file, whole_folder])
def test_an_error_names_the_path_that_was_asked_for(tmp_path, whole):
    path = tmp_path / "gone" / "why.html"

    def write(unfinished):
        shutil.rmtree(path.parent)
        (unfinished / "a" if whole is whole_folder else unfinished).write_text("")

    with pytest.raises(FileNotFoundError, match=r"its folder .*gone does not exist") as raised:
        write_in(whole, path, write)
    assert UNFINISHED not in str(raised.value)
    assert raised.value.filename == str(path)


def test_a_folder_in_the_place_of_the_file(tmp_path):
    with pytest.raises(IsADirectoryError, match=re.escape(str(tmp_path))) as raised:
        write_text(tmp_path, "")
    assert UNFINISHED not in str(raised.value)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no folder that cannot be written")
@pytest.mark.parametrize(
    "write", [lambda path: path.write_text(""), pd.DataFrame({"a": [1]}).to_parquet]
)
def test_a_folder_that_cannot_be_written(write):
    with pytest.raises(OSError, match=r"/proc/why\.parquet") as raised:
        write_in(whole_file, Path("/proc/why.parquet"), write)
    assert UNFINISHED not in str(raised.value)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"its folder .*file.a cannot be made .*why\.html"):
        write_text(tmp_path / "file" / "a" / "why.html", "")
