"""What cannot be right is said in one line, soon, and once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from speechmix.adapters.loading import checkpoints as hub_connection
from speechmix.adapters.loading.load import load
from speechmix.adapters.loading.model_source import resolve_path_or_id
from speechmix.errors import InputError, ModelError
from speechmix.inputs import bundled
from speechmix.inputs.words.cue_and_target import find_word
from speechmix.interfaces import cli
from speechmix.runs.results.open_run import open_run
from speechmix.runs.results.stored_maps import clip_row
from speechmix.runs.scored_run import Run

CLIP = str(bundled.clips()[0].path)
CTC = str(bundled.models()["tiny-french-ctc"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["score", CLIP, "--model", CTC, "--out", "s3://bucket/run"], "this machine"),
        (["score", CLIP, "--model", CTC, "--out", "gs://bucket/run"], "this machine"),
        (["score", "nothere.wav", "--model", CTC, "--out", "o"], "no such file: nothere.wav"),
        (
            ["score", "--clips", "nothere.tsv", "--model", CTC, "--out", "o"],
            "no such file: nothere.tsv",
        ),
        (["score", CLIP, "--words", "nothere.json", "--model", CTC, "--out", "o"], "nothere.json"),
        (["explain", CLIP, "--model", "./nothere"], "no such folder"),
        (["report", "nothere"], "no such folder: nothere"),
        (["compare", "nothere"], "no such folder: nothere"),
    ],
)
def test_what_is_not_there_is_one_line_and_leaves_nothing(
    arguments, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 1
    err = capsys.readouterr().err.strip()
    assert message in err
    assert "\n" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_path_is_found_before_models_are_imported():
    code = (
        "import sys; from speechmix.interfaces import cli; status = cli.main(sys.argv[1:]); "
        "print(status, sorted({'torch', 'transformers', 'pyarrow', 'matplotlib'} & "
        "set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, "score", "nothere.wav", "--model", "x", "--out", "o"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1 []"


@pytest.mark.parametrize("option", ["--cue", "--target", "--out", "--words"])
def test_an_option_of_one_value_is_given_once(option, capsys):
    for _ in range(2):  # the second time, too
        with pytest.raises(SystemExit):
            cli.main(["score", CLIP, "--model", CTC, option, "a", option, "b"])
        assert "given twice, 'a' and 'b'" in capsys.readouterr().err


def test_options_that_may_be_repeated_still_are(monkeypatch):
    from speechmix.interfaces.cli.command_line import create_parser

    parser = create_parser()
    for _ in range(2):
        options = parser.parse_args(
            ["score", CLIP, "--model", "a", "--model", "b", "--cue", "x", "--out", "o"]
        )
        assert (options.model, options.cue) == (["a", "b"], "x")


def test_a_skipped_clip_is_said_once(tmp_path, capsys):
    manifest = tmp_path / "clips.tsv"
    manifest.write_text(f"path\ttext\twords\n{CLIP}\t\t\nnothere.wav\tles\t\n")
    out = tmp_path / "run"
    assert (
        cli.main(
            [
                "score",
                "--clips",
                str(manifest),
                "--model",
                CTC,
                "--out",
                str(out),
                "--allow-outside",
                "--measure",
                "attention",
            ]
        )
        == 1
    )
    shown = "".join(capsys.readouterr())
    assert shown.count("no such audio file") == 1
    assert shown.count("SKIPPED") + shown.count("  skipped ") == 2
    reasons = (
        [row["reason"] for row in open_run(out).skipped] if (out / "clips.csv").is_file() else []
    )
    for reason in reasons:
        assert shown.count(reason) == 1


def test_the_summary_leaves_out_what_was_said(tmp_path):
    run = Run(
        tmp_path,
        0,
        [
            {"clip": "a", "model": "", "reason": "too long"},
            {"clip": "b", "model": "", "reason": "too long"},
        ],
    )
    assert "skipped a: too long" in run.summary()
    assert "skipped a" not in run.summary(said=["a  SKIPPED: too long"])
    assert "skipped b: too long" in run.summary(said=["a  SKIPPED: too long"])
    assert "2 skipped" in run.summary(said=["a  SKIPPED: too long"])


def test_a_run_without_clips_says_so(tmp_path):
    from tests.reports.synthetic_runs import synthetic_run

    folder = synthetic_run(tmp_path / "run", clips=1)
    lines = (folder / "clips.csv").read_text().splitlines()
    with pytest.raises(InputError, match=r"there are 1: clip_0000$"):
        clip_row(open_run(folder), "x")
    (folder / "clips.csv").write_text(lines[0] + "\n")
    with pytest.raises(InputError, match=r"no clip 'x' in .*; it has no clips$"):
        clip_row(open_run(folder), "x")


def test_a_model_of_the_package_has_its_name():
    assert resolve_path_or_id("tiny-french-whisper") == str(bundled.models()["tiny-french-whisper"])
    assert load("tiny-french-ctc", device="cpu").name == "tiny-french-ctc"


def test_a_hub_that_does_not_answer_is_one_line_soon(monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(
        huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9"
    )  # nobody listens there
    asked = []
    unreachable = hub_connection._explain_unreachable.__wrapped__
    monkeypatch.setattr(
        hub_connection,
        "_explain_unreachable",
        hub_connection.cache(lambda endpoint: asked.append(endpoint) or unreachable(endpoint)),
    )
    for _ in range(2):
        with pytest.raises(
            ModelError, match=r"http://127.0.0.1:9 does not answer .*connect to the network"
        ) as caught:
            load("nobody/no-model", device="cpu")
        assert "\n" not in str(caught.value)
    assert asked == ["http://127.0.0.1:9"]


def test_a_hub_that_answers_is_asked_as_before(monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub_connection, "_explain_unreachable", lambda endpoint: "")
    assert hub_connection.hub_options("openai/whisper-small") == {}
    monkeypatch.setattr(hub_connection, "_explain_unreachable", lambda endpoint: "no route")
    assert hub_connection.hub_options("openai/whisper-small") == {"local_files_only": True}
    assert hub_connection.hub_options(CTC) == {}
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert hub_connection.hub_options("openai/whisper-small") == {}


def test_a_part_of_a_word_is_named_with_its_word():
    from speechmix import Sentence

    words = Sentence("le plat d'entrée arrive").words
    with pytest.raises(
        InputError, match=r"'entrée' is a part of \"d'entrée\", which is one word here"
    ):
        find_word(words, "entrée", role="target")
    with pytest.raises(InputError, match=r"Choose one of these$"):
        find_word(words, "trée", role="target")
