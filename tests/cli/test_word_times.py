"""`speechmix align` and `speechmix transcribe`, as a user types them about a recording."""

from __future__ import annotations

import shutil

import pytest

from speechmix.inputs import bundled
from speechmix.inputs.formats.word_files import read_words
from speechmix.interfaces.cli.command_line import create_parser, main
from speechmix.interfaces.cli.stage_names import join_stage_name

pytestmark = pytest.mark.usefixtures("models_loaded_once")
MODEL = "bundled:tiny-french-whisper"
CTC = ["--aligner", "ctc:bundled:tiny-french-ctc", "--device", "cpu"]


@pytest.fixture
def recording(tmp_path, monkeypatch):
    """A recording of *nos maisons* in the working folder."""
    monkeypatch.chdir(tmp_path)
    clip = next(clip for clip in bundled.clips() if clip.name == "left_00_pl")
    shutil.copy(clip.path, tmp_path / "clip.wav")
    return clip


def test_align_prints_a_table(recording, capsys):
    assert main(["align", "clip.wav", "--text", recording.text, *CTC]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "clip: 2 words, aligned by ctc"
    assert printed[1].split() == ["word", "start", "end", "score"]
    assert [line.split()[0] for line in printed[2:4]] == ["nos", "maisons"]


@pytest.mark.parametrize("ending", ["csv", "tsv", "json", "TextGrid", "eaf"])
def test_files_are_read_again(recording, ending):
    out = f"clip_words.{ending}"
    assert main(["align", "clip.wav", "--text", recording.text, *CTC, "--out", out]) == 0
    assert main(["align", "clip.wav", "--text", recording.text, *CTC, "--format", "tsv"]) == 0
    words, table = read_words(out), read_words("clip.tsv")
    assert [word.text for word in words] == ["nos", "maisons"]
    assert [word.start for word in words] == pytest.approx(
        [word.start for word in table], abs=0.00155
    )


def test_subtitles_and_phones(recording, capsys):
    pytest.importorskip("espeakng_loader")
    arguments = ["align", "clip.wav", "--text", recording.text, "--language", "fr"]
    assert main([*arguments, "--format", "srt"]) == 0
    with open("clip.srt", encoding="utf-8") as file:
        assert file.read().splitlines()[2] == "nos maisons"
    assert main([*arguments, "--phones", "--out", "clip.TextGrid"]) == 0
    with open("clip.TextGrid", encoding="utf-8") as file:
        assert '"phones"' in file.read()


def test_text_is_read_beside_the_recording(recording, capsys, tmp_path):
    (tmp_path / "clip.lab").write_text("nos maisons\n")
    shutil.copy("clip.wav", "untold.wav")
    assert main(["align", "clip.wav", "untold.wav", *CTC, "--format", "vtt", "--out", "times"]) == 0
    printed = capsys.readouterr().out
    assert "skipped untold: what is said?" in printed
    assert [path.name for path in (tmp_path / "times").iterdir()] == ["clip.vtt"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "clip.doc"], "or a folder and --format"),
        (["--out", "clip.srt", "--format", "vtt"], "name two formats"),
        (["--out", "there.tsv"], "there.tsv exists: give --overwrite"),
    ],
)
def test_outputs_that_cannot_be(recording, capsys, tmp_path, arguments, message):
    (tmp_path / "there.tsv").write_text("by hand")
    assert main(["align", "clip.wav", "--text", recording.text, *CTC, *arguments]) == 1
    assert message in capsys.readouterr().err
    assert (tmp_path / "there.tsv").read_text() == "by hand"


def test_one_file_for_two_recordings(recording, capsys):
    shutil.copy("clip.wav", "other.wav")
    assert main(["transcribe", "clip.wav", "other.wav", "--model", MODEL, "--out", "a.srt"]) == 1
    assert "a.srt is one file, for 2 recordings" in capsys.readouterr().err


def test_a_language_is_needed_for_synthesis(recording, capsys):
    assert main(["align", "clip.wav", "--text", recording.text]) == 1
    assert "in which language is the text? Give --language" in capsys.readouterr().out


def test_transcribe_prints_the_text_and_times(recording, capsys):
    arguments = ["transcribe", "clip.wav", "--model", MODEL, "--language", "fr", "--no-align"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "clip: nos maisons"
    assert printed[1].split() == ["word", "start", "end", "probability"]
    assert main([*arguments, "--out", "clip.srt"]) == 0
    with open("clip.srt", encoding="utf-8") as file:
        assert file.read().splitlines()[2] == "nos maisons"


def test_stages_of_the_study_keep_their_names(tmp_path):
    (tmp_path / "pairs.jsonl").write_text("")
    study = str(tmp_path)
    assert join_stage_name(["align", study, "--overwrite"])[0] == "study align"
    assert join_stage_name(["transcribe", "--model", "m", study])[0] == "study transcribe"
    assert join_stage_name(["align", "clip.wav", "--out", study])[0] == "align"
    assert join_stage_name(["align", "new", "--corpus", "cv"])[0] == "study align"
    assert join_stage_name(["study", "--clips", "align"])[0] == "study"
    for arguments in (["study", "select", study], ["select", study]):
        assert create_parser().parse_args(arguments).study == study
