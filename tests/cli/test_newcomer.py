"""A newcomer's first hour: the page's two commands to a page with one's own clip, and what is
asked and said on the way."""

import re
import subprocess
import sys

import numpy as np
import pytest
import soundfile

import speechmix
from speechmix.errors import InputError
from speechmix.inputs import bundled
from speechmix.interfaces.cli import main
from speechmix.interfaces.cli.command_line import COMMAND_GROUPS
from tests.cli.newcomer import commands, record, with_bundled_model

MODEL = str(bundled.models()["tiny-french-whisper"])


@pytest.mark.long
def test_two_commands_from_a_recording_to_a_page_to_hear_and_see(tmp_path, monkeypatch, capsys):
    pytest.importorskip("espeakng_loader", reason="the page installs the extra `synthesis`")
    score, report = commands()
    assert score[0] == report[0] == "speechmix"
    clip = record(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(with_bundled_model(score)[1:]) == 0
    printed = capsys.readouterr()
    assert "5 words" in printed.out
    assert "writes: " in printed.out
    assert "les -> livres (adjacent cue): value_zeroing peaks at encoder" in printed.out
    assert "%|" not in printed.out + printed.err
    assert main(report[1:]) == 0
    page = (tmp_path / "runs" / "livre" / "index.html").read_text(encoding="utf-8")
    assert clip.stem in page
    assert "<audio" in page
    assert "<svg" in page or "data:image/png" in page
    assert (tmp_path / "runs" / "livre" / "words" / "livre.TextGrid").is_file()


@pytest.fixture(scope="module")
def wav(tmp_path_factory):
    path = tmp_path_factory.mktemp("wav") / "nos.wav"
    soundfile.write(path, bundled.clips()[1].audio(16_000), 16_000)
    return str(path)


@pytest.mark.usefixtures("undrawn")
def test_a_line_says_what_the_model_writes(wav, tmp_path, capsys):
    for text, says in (
        ("nos maisons", "writes: nos maisons (as given)"),
        ("nos amis", "(1 of 2 words differs"),
    ):
        words = tmp_path / "words.tsv"
        words.write_text(
            "word\tstart\tend\n{}\t0.38\t0.53\n{}\t0.53\t0.95\n".format(*text.split()),
            encoding="utf-8",
        )
        arguments = [
            "score",
            wav,
            "--text",
            text,
            "--words",
            str(words),
            "--model",
            MODEL,
            "--language",
            "fr",
        ]
        assert main([*arguments, "--out", str(tmp_path / text), "--figures", "1"]) == 0
        assert says in capsys.readouterr().out


def test_the_language_is_asked_where_a_voice_must_speak_it_and_never_taken_to_be_french(
    wav, tmp_path, capsys
):
    pytest.importorskip("espeakng_loader", reason="synthesis needs the extra speechmix[synthesis]")
    arguments = [
        "score",
        wav,
        "--text",
        "nos maisons",
        "--model",
        MODEL,
        "--figures",
        "0",
        "--out",
        str(tmp_path),
    ]
    assert main(arguments) == 1
    assert "in which language is 'nos maisons'? " in capsys.readouterr().out
    clip = speechmix.Clip.from_file(wav, text="nos maisons")
    with pytest.raises(InputError, match="--language fr"):
        speechmix.align(clip)
    assert len(speechmix.align(clip, language="fr").words) == 2
    assert clip.language is None


def test_help_lists_every_command_once_in_a_group_and_a_line(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    listed = [
        re.split(r"\s{2,}", line.strip())[0]
        for line in lines
        if line.startswith("  ") and line.lstrip()[0] != "-"
    ]
    assert len(set(listed)) == len(listed) > 12
    assert all(f"{title}:" in lines for title in COMMAND_GROUPS)
    assert max(map(len, lines)) <= 100
    with pytest.raises(SystemExit):
        main(["score", "--help"])
    assert "usage: speechmix score PATH ... [options]" in capsys.readouterr().out


@pytest.mark.long
def test_no_bar_of_loaded_weights_is_printed_and_bars_are_as_they_were_after():
    code = (
        "import speechmix\n"
        "from transformers.utils import logging\n"
        "from huggingface_hub.utils import are_progress_bars_disabled\n"
        f"speechmix.load({MODEL!r}, check=False)\n"
        "print(logging.is_progress_bar_enabled(), are_progress_bars_disabled())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("True False\n", "")


def test_doubts_are_said_with_their_reason(wav):
    from speechmix.runs.results.tidy_tables import result_line
    from tests.conftest import trained

    clip = speechmix.Clip.from_array(
        np.zeros(16_000), 16_000, words=[("nos", 0.1, 0.2)], name="a"
    ).with_doubts(["too quiet."])
    line = result_line(clip, trained("tiny-french-whisper"), [])
    assert line == "a  tiny-french-whisper  1.00 s, 1 word  word times may be wrong: too quiet."


def test_explain_says_each_doubt_once(wav, monkeypatch, capsys):
    from speechmix.alignment import Alignment
    from speechmix.inputs.words.timed_words import Word

    words = (Word("nos", 0.38, 0.53), Word("maisons", 0.53, 0.95))
    placed = Alignment(words, method="ctc", score=0.5, doubts=("Too quiet.", "Too fast."))
    monkeypatch.setattr("speechmix.alignment.place_words", lambda *_, **__: placed)
    command = ["explain", wav, "--model", MODEL, "--language", "fr", "--measure", "occlusion"]
    assert main([*command, "--text", "nos maisons"]) == 0
    printed = capsys.readouterr()
    assert "The word times may be wrong: Too quiet. Too fast." in printed.out
    assert (printed.out + printed.err).count("Too quiet.") == 1
