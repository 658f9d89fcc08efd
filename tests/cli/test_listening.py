"""`speechmix listening` from items in a file to a page, with a stop in between."""

from __future__ import annotations

import json

import pytest

from speechmix.extensions.listening.items import ListeningItem, write_listening_items
from speechmix.inputs import bundled
from speechmix.interfaces.cli.command_line import main

pytestmark = pytest.mark.usefixtures("models_loaded_once")
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
    assert main(["estimate", "--model", MODEL, "--items", str(table)]) == 0
    assert "2 items, 8 runs" in capsys.readouterr().out  # two less each without a prompt
    assert main(["listening", MODEL, "--items", str(table)]) == 0
    now = capsys.readouterr().out
    assert "items that need the sound: 100 % (1 group, no interval)" in now
    out = tmp_path / "run"
    arguments = ["listening", "--model", MODEL, "--items", str(table), "--out", str(out)]
    assert main([*arguments, "--shard", "1/2"]) == 0
    assert "shard 1/2 is finished" in capsys.readouterr().out
    assert main([*arguments, "--shard", "2/2"]) == 0
    assert now.splitlines()[1:6] == capsys.readouterr().out.splitlines()[1:6]
    page = (out / "listening.html").read_text(encoding="utf-8")
    assert "Results" in page
    assert "data:audio/wav" in page


def test_what_is_missing_is_said(table, capsys):
    assert main(["listening", "--items", str(table)]) == 1
    assert "no model" in capsys.readouterr().err
    assert main(["listening", MODEL, "--items", str(table), "--workers", "2"]) == 1
    assert "give a folder as --out" in capsys.readouterr().err


@pytest.mark.parametrize("stored", [False, True])
def test_items_that_cannot_be_used_do_not_stop_the_others(table, tmp_path, capsys, stored):
    (table.parent / "broken.wav").write_bytes(b"RIFF")
    rows = table.read_text(encoding="utf-8").splitlines()
    broken = json.dumps({"path": "broken.wav", "answer": "a", "options": ["a", "b"]})
    other = json.dumps({**json.loads(rows[0]), "name": "other", "answer": "rien"})
    table.write_text("\n".join([rows[0], broken, other]), encoding="utf-8")
    assert main(["estimate", "--model", MODEL, "--items", str(table)]) == 0
    assert "skipped broken: cannot read" in (text := capsys.readouterr().out)
    assert "1 item, 3 runs" in text  # no other sound
    out = ["--out", str(tmp_path / "run")] if stored else []
    assert main(["listening", MODEL, "--items", str(table), "--where", *out]) == 0
    text = capsys.readouterr().out
    assert "skipped broken: cannot read" in text
    assert "skipped other: other: expected at least two different options, with 'rien'" in text
    assert "skipped where: no item can be used to look into the decoder" in text
    assert "1 of 1 items are left out of the first share: no other item has another" in text


def test_a_model_given_twice_is_refused_in_a_run(table, tmp_path, capsys):
    arguments = ["listening", MODEL, MODEL, "--items", str(table)]
    assert main([*arguments, "--out", str(tmp_path)]) == 1
    assert "two models are called 'tiny-french-whisper'" in capsys.readouterr().err
