"""`speechmix explain`: a clip in the terminal and on a page, several in a folder, and what cannot
be asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from speechmix.inputs import bundled
from speechmix.interfaces.cli import main

CLIPS = Path(bundled.__file__).parent / "clips"
MODEL = [
    "--model",
    str(bundled.models()["tiny-french-ctc"]),
    "--device",
    "cpu",
    "--measure",
    "occlusion",
]


def test_a_clip_is_explained_and_its_page_written(tmp_path, capsys):
    page = tmp_path / "why.html"
    words = tmp_path / "words.json"
    words.write_text(
        json.dumps(
            [
                {"word": "nos", "start": 0.38, "end": 0.53},
                {"word": "maison", "start": 0.53, "end": 0.95},
            ]
        )
    )
    clip = str(CLIPS / "left_00_pl.flac")
    assert main(["explain", clip, *MODEL, "--words", str(words), "--out", str(page)]) == 0
    said = capsys.readouterr().out
    assert "left_00_pl: nos maisons" in said
    assert "error: 'maison' (0.53 to 0.95 s) was written 'maisons'" in said
    assert str(page) in said
    assert "maisons" in page.read_text(encoding="utf-8")


def test_the_text_of_a_part_is_what_is_said_in_it(capsys):
    clip = str(CLIPS / "left_00_pl.flac")
    part = ["--cut", "0.3:1.1", "--language", "fr", "--text", "nos maison"]
    assert main(["explain", clip, *MODEL, *part]) == 0
    assert "was written 'maisons'" in capsys.readouterr().out


@pytest.mark.long
def test_several_clips_have_a_page_each_and_what_fails_is_said(tmp_path, capsys):
    manifest = tmp_path / "clips.jsonl"
    rows = [
        json.loads(line)
        for line in (CLIPS / "manifest.jsonl").read_text(encoding="utf-8").splitlines()[:2]
    ]
    rows = [{**row, "path": str(CLIPS / row["path"])} for row in rows]
    manifest.write_text("\n".join(json.dumps(row) for row in rows))
    asked = ["explain", "--clips", str(manifest), "--allow-outside", *MODEL]
    assert main([*asked, "--out", str(tmp_path / "pages")]) == 0
    assert len(list((tmp_path / "pages").glob("*.html"))) == 2
    one = ["explain", rows[0]["path"], *MODEL, "--measure", "occlusion"]
    assert main([*one, "--out", str(tmp_path / "one")]) == 0  # one clip in a folder, too
    assert len(list((tmp_path / "one").glob("*.html"))) == 1
    assert main([*asked, "--fill", "music"]) == 1
    assert "skipped left_00_sg: a fill of text, found ['music'], but" in capsys.readouterr().out
    assert main([*asked, "--out", str(tmp_path / "why.html")]) == 1
    assert "several clips need a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("further", "said"),
    [
        (["--out", "why.doc"], "--out should end in one of .html"),
        (["--sentence", "the <mask>"], "leave --clips out"),
    ],
)
def test_wrong_usage_is_said_before_a_model_is_loaded(further, said, capsys):
    assert main(["explain", str(CLIPS / "left_00_pl.flac"), *MODEL, *further]) == 1
    assert said in capsys.readouterr().err
