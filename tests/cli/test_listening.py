"""`speechmix listening` from items in a file to a page, with a stop in between."""

from __future__ import annotations

import pytest

from speechmix.evaluation.listening.item_files import write_listening_items
from speechmix.evaluation.listening.items import ListeningItem
from speechmix.inputs import bundled
from speechmix.interfaces.cli.command_line import main

MODEL = "bundled:tiny-french-whisper"


@pytest.fixture
def table(tmp_path):
    clips = {clip.name: clip for clip in bundled.clips()}
    pair = [clips["left_00_sg"], clips["left_00_pl"]]
    options = tuple(clip.text for clip in pair)
    return write_listening_items(
        [ListeningItem(clip, "", clip.text, options) for clip in pair], tmp_path / "items"
    )


def test_items_are_asked_now_and_in_a_run(table, tmp_path, capsys):
    assert main(["listening", MODEL, "--items", str(table), "--estimate"]) == 0
    assert "2 items, 8 runs" in capsys.readouterr().out  # two less each without a prompt
    assert main(["listening", MODEL, "--items", str(table)]) == 0
    now = capsys.readouterr().out
    assert "items that need the sound: 100 % (1 groups, no interval)" in now
    out = tmp_path / "run"
    arguments = ["listening", "--model", MODEL, "--items", str(table), "--out", str(out)]
    assert main([*arguments, "--shard", "1/2"]) == 0
    assert "shard 1/2 is finished" in capsys.readouterr().out
    assert main([*arguments, "--shard", "2/2"]) == 0
    assert now.splitlines()[1:6] == capsys.readouterr().out.splitlines()[1:6]
    page = (out / "listening.html").read_text(encoding="utf-8")
    assert "Models side by side" in page
    assert "data:audio/wav" in page


def test_what_is_missing_is_said(table, capsys):
    assert main(["listening", "--items", str(table)]) == 1
    assert "no model" in capsys.readouterr().err
    assert main(["listening", MODEL, "--items", str(table), "--workers", "2"]) == 1
    assert "give a folder as --out" in capsys.readouterr().err
