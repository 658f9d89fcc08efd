"""The command line, in process: what a new user types."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import soundfile
import transformers

import speechmix
from speechmix.inputs import bundled
from speechmix.interfaces.cli import main
from speechmix.interfaces.cli.command_line import create_parser
from speechmix.interfaces.cli.score_options import collect_score_arguments
from tests.conftest import build


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A wav2vec2 checkpoint in hub format and two clips with words."""
    folder = tmp_path_factory.mktemp("cli")
    build("wav2vec2-post").save_pretrained(folder / "model")
    transformers.Wav2Vec2FeatureExtractor().save_pretrained(folder / "model")
    noise = np.random.default_rng(0).standard_normal(16_000) / 10
    for name in ("a", "b"):
        soundfile.write(folder / f"{name}.wav", noise, 16_000)
        (folder / f"{name}.tsv").write_text(
            "word\tstart\tend\nles\t0.1\t0.3\nlivres\t0.35\t0.8\n", encoding="utf-8"
        )
    (folder / "clips.tsv").write_text(
        "path\ttext\twords\tcue\ttarget\n"
        "a.wav\tles livres\ta.tsv\tles\tlivres\n"
        "b.wav\tles livres\tb.tsv\tles\tlivres\n"
        "gone.wav\tles livres\ta.tsv\tles\tlivres\n"
        "../../etc/passwd\tles livres\ta.tsv\tles\tlivres\n",
        encoding="utf-8",
    )
    return folder


def test_check_prints_what_was_found(folder, capsys):
    assert main(["check", "--model", str(folder / "model"), "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    for part in (
        "family wav2vec2",
        "3 layers x 4 heads",
        "post-norm",
        "final norm: none",
        "transformers",
        "speechmix",
    ):
        assert part in printed


def test_check_of_something_else_says_what_was_expected(tmp_path, capsys):
    assert main(["check", "--model", str(tmp_path)]) == 1
    assert "expected a hub id or a folder with config.json" in capsys.readouterr().err


def test_scoring_one_clip(folder, tmp_path, capsys):
    arguments = [
        "score",
        str(folder / "a.wav"),
        "--words",
        str(folder / "a.tsv"),
        "--cue",
        "les",
        "--target",
        "livres",
    ]
    arguments += [
        "--model",
        str(folder / "model"),
        "--twins",
        "1",
        "--measure",
        "attention",
        "--out",
        str(tmp_path),
    ]
    assert main([*arguments, "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    assert "2 done, 0 skipped" in printed
    assert "les -> livres (adjacent cue): attention peaks at encoder" in printed
    assert (tmp_path / "figures" / "model" / "a.png").stat().st_size > 10_000
    assert set(pd.read_parquet(tmp_path / "scores")["init"]) == {"trained", "random"}


def test_scoring_a_manifest_records_the_rows_that_cannot_be_used(folder, tmp_path, capsys):
    arguments = ["score", "--clips", str(folder / "clips.tsv"), "--model", str(folder / "model")]
    assert (
        main(
            [
                *arguments,
                "--out",
                str(tmp_path),
                "--figures",
                "0",
                "--target-rows-only",
                "--device",
                "cpu",
            ]
        )
        == 0
    )
    assert "2 done, 2 skipped" in capsys.readouterr().out
    skipped = pd.read_csv(tmp_path / "skipped.csv")
    assert "gone.wav" in skipped.reason[0]
    assert "allow-outside" in skipped.reason[1]


def test_a_part_of_a_clip(folder, tmp_path, capsys):
    arguments = [
        "score",
        str(folder / "a.wav"),
        "--words",
        str(folder / "a.tsv"),
        "--model",
        str(folder / "model"),
    ]
    assert (
        main(
            [*arguments, "--cut", "0:0.9", "--layer", "1", "--out", str(tmp_path), "--figures", "0"]
        )
        == 0
    )
    assert "0.90 s, 2 words" in capsys.readouterr().out
    assert set(pd.read_parquet(tmp_path / "scores")["layer"]) == {1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no clips"),
        (["a.wav", "b.wav", "--text", "les livres"], "describe one audio file"),
        (["missing.wav"], "missing.wav"),
        (["a.wav", "b.wav", "--cut", "0:1"], "--cut takes one clip"),
    ],
)
def test_wrong_clips_are_explained(folder, tmp_path, capsys, arguments, message):
    paths = [str(folder / a) if a.endswith(".wav") else a for a in arguments]
    assert main(["score", *paths, "--model", str(folder / "model"), "--out", str(tmp_path)]) == 1
    assert message in capsys.readouterr().err


def test_scoring_with_products_in_lower_precision(folder, tmp_path, native_bfloat16):
    arguments = [
        "score",
        str(folder / "a.wav"),
        "--words",
        str(folder / "a.tsv"),
        "--model",
        str(folder / "model"),
    ]
    arguments += [
        "--measure",
        "value_zeroing:product_dtype=bfloat16,distance=manhattan",
        "--figures",
        "0",
        "--device",
        "cpu",
    ]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    ((_, maps),) = speechmix.open_run(tmp_path).maps("a").items()
    ((_, found),) = maps.items()
    provenance = found.provenance
    assert (provenance["product_dtype"], provenance["distance"]) == ("bfloat16", "manhattan")


@pytest.mark.parametrize("option", [["--twins", "1"], ["--fill", "noise"], ["--fill", "unk"]])
def test_an_option_of_the_published_ablation_alone_is_refused_not_ignored(folder, capsys, option):
    arguments = [
        "ablate",
        str(folder / "a.wav"),
        "--words",
        str(folder / "a.tsv"),
        "--model",
        str(folder / "model"),
    ]
    assert main([*arguments, *option]) == 1
    assert f"{option[0]} needs --published here" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["score", "ablate", "faithfulness"])
def test_what_a_whisper_is_told_reaches_the_model(folder, tmp_path, capsys, command):
    clips = [
        str(folder / "a.wav"),
        "--words",
        str(folder / "a.tsv"),
        "--model",
        str(folder / "model"),
    ]
    arguments = {"score": [*clips, "--out", str(tmp_path)], "ablate": clips}
    arguments["faithfulness"] = ["--model", str(folder / "model"), str(folder / "clips.tsv")]
    asked = ["--prefix", "task=translate", "--device", "cpu"]
    assert main([command, *arguments[command], *asked]) == 1
    printed = capsys.readouterr()
    assert "of a Whisper with its tokenizer; this is a wav2vec2 model" in printed.err + printed.out


@pytest.mark.parametrize("command", ["score a.wav --model M", "ground a.wav --model M", "study"])
def test_a_file_where_a_folder_is_written_is_refused(command, tmp_path, capsys):
    path = tmp_path / "page.html"
    assert main([*command.split(), "--out", str(path)]) == 1
    assert f"write --out {tmp_path / 'page'}" in capsys.readouterr().err
    assert not path.exists()


def test_a_cut_that_is_no_cut_says_what_was_expected(capsys):
    with pytest.raises(SystemExit):
        main(["score", "a.wav", "--model", "m", "--out", "out", "--cut", "1.5"])
    assert "expected FROM:TO in seconds, such as 0.5:2, found '1.5'" in capsys.readouterr().err


def test_an_unknown_metric_is_refused_before_anything_is_run(folder, capsys):
    assert (
        main(
            [
                "faithfulness",
                str(folder / "clips.tsv"),
                "--model",
                "nowhere",
                "--metric",
                "spearmen",
            ]
        )
        == 1
    )
    assert "--metric should be one of top_1, spearman" in capsys.readouterr().err


def test_segments_of_a_sound_without_words_are_evaluated(tmp_path, capsys):
    noise = np.random.default_rng(0).normal(0, 0.1, 32_000).astype(np.float32)
    soundfile.write(tmp_path / "noise.wav", noise, 16_000)
    arguments = ["faithfulness", str(tmp_path / "noise.wav"), "--segments", "0.5"]
    arguments += ["--model", "bundled:tiny-french-ctc", "--measure", "attention"]
    assert main([*arguments, "--perturbation", "mute (zeros)", "--device", "cpu"]) == 0
    assert "(spearman, 1 clips in 1 group)" in capsys.readouterr().out


@pytest.mark.long
def test_measures_on_trial_print_a_table_and_write_one(tmp_path, capsys):
    from speechmix.inputs import bundled

    clips = [clip for clip in bundled.clips() if len(clip.words) >= 4][:2]
    rows = [
        {
            "path": str(clip.path),
            "text": clip.text,
            "cue": clip.cue,
            "target": clip.target,
            "foil": clip.foil,
        }
        | {
            "words": [[word.text, word.start, word.end] for word in clip.words],
            "language": "fr",
            "pair": "one",
        }
        for clip in clips
    ]
    (tmp_path / "clips.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    arguments = [
        "faithfulness",
        str(tmp_path / "clips.jsonl"),
        "--model",
        str(bundled.models()["tiny-french-ctc"]),
        "--allow-outside",
    ]
    arguments += [
        "--measure",
        "attention",
        "--perturbation",
        "mute (zeros)",
        "--perturbation",
        "patch",
        "--device",
        "cpu",
    ]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    assert (
        "With mute (zeros) as reference (spearman, 2 clips in 1 group), no measure can be compared: "
        "that needs 8 groups" in printed
    )
    assert "With patch as reference" in printed
    table = pd.read_csv(tmp_path / "run" / "faithfulness.csv")
    assert {"attention", "random", "length", "position", "oracle"} == set(table["measure"])
    assert {"mute (zeros)", "patch", "cue"} == set(table["perturbation"])
    assert main([*arguments, "--min-words", "9"]) == 1
    printed = capsys.readouterr().out
    assert "fewer than 9 words besides the target: encoder 3" in printed
    assert "none of 2 items could be evaluated" in printed
    assert "a comparison of measures needs 8 groups of items, there is 1" in printed


def test_probes_print_a_table_and_write_one_with_a_figure(tmp_path, capsys):
    from speechmix.inputs import bundled

    clips = [
        clip
        for clip in bundled.clips()
        if clip.meta["side"] == "left" and clip.meta["control"] == "no"
    ][:8]
    rows = [
        {
            "path": str(clip.path),
            "text": clip.text,
            "cue": clip.cue,
            "target": clip.target,
            "number": clip.meta["number"],
        }
        | {
            "words": [[word.text, word.start, word.end] for word in clip.words],
            "pair": clip.meta["pair"],
        }
        for clip in clips
    ]
    (tmp_path / "clips.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    arguments = [
        "probe",
        "--model",
        str(bundled.models()["tiny-french-ctc"]),
        "--clips",
        str(tmp_path / "clips.jsonl"),
    ]
    arguments += [
        "--allow-outside",
        "--device",
        "cpu",
        "--position",
        "cue",
        "--position",
        "1",
        "--position",
        "deciding",
        "--folds",
        "2",
    ]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    assert "skipped (8): an encoder has no deciding position" in printed
    table = pd.read_csv(tmp_path / "run" / "probes.csv")
    assert set(table["position"]) == {"cue", "1"}
    assert list(table["layer"][:5]) == [-1, 0, 1, 2, 3]
    assert (tmp_path / "run" / "probes_number.png").stat().st_size > 5000
    assert main([*arguments, "--label", "gender"]) == 1
    assert "no item has a label 'gender'" in capsys.readouterr().err


def test_sigterm_ends_a_command_like_ctrl_c_and_what_is_finished_is_written(
    folder, tmp_path, capsys, monkeypatch
):
    import os
    import signal

    from speechmix.runs import model_run
    from speechmix.runs.kinds import map_results as store
    from speechmix.runs.run_status import run_status

    real = model_run.ModelRun._report_outcome

    def preempted(self, *arguments, **options):
        real(self, *arguments, **options)
        os.kill(os.getpid(), signal.SIGTERM)

    arguments = [
        "score",
        str(folder / "a.wav"),
        "--words",
        str(folder / "a.tsv"),
        "--model",
        str(folder / "model"),
    ]
    arguments += ["--figures", "0", "--device", "cpu", "--out", str(tmp_path / "run")]
    former = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(model_run.ModelRun, "_report_outcome", preempted)
    assert main(arguments) == 130
    assert "the same command continues from what is stored" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is former
    assert run_status(tmp_path / "run").table["clips"].sum() == 1
    monkeypatch.setattr(model_run.ModelRun, "_report_outcome", real)
    monkeypatch.setattr(store, "mix_items", None)  # scoring again would raise
    assert main(arguments) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--workers", "2", "--engine", "ray"],
            "--engine ray on a cluster: give one of them",
        ),
        (
            ["--workers", "auto", "--engine", "ray"],
            "--engine ray on a cluster: give one of them",
        ),
        (["--engine", "slurm"], "needs a number of tasks"),
        (["--engine", "slurm", "--workers", "auto"], "needs a number of tasks"),
        (["--engine", "slurm", "--workers", "2", "--slurm", "gpu"], "takes NAME=VALUE"),
        (["--slurm", "mem_gb=4"], "--slurm needs --engine slurm"),
        (["--workers", "2", "--shard", "1/2"], "--shard between machines: give one of them"),
        (["--shard", "3/2"], "1/2 to 2/2"),
        (["--workers", "none"], "--workers takes auto or a number"),
    ],
)
def test_who_does_the_work_is_checked_before_anything_is_read(options, message, tmp_path, capsys):
    clip = tmp_path / "no audio.wav"
    clip.write_bytes(b"")
    command = ["score", str(clip), "--model", "no such model", "--out", str(tmp_path / "run")]
    assert main([*command, *options]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_page_of_a_run_of_examples_begins_with_what_was_run_last(tmp_path):
    from speechmix.studies.french.dataset import write_examples
    from speechmix.studies.french.study_report import TITLE, write_page_description

    examples = write_examples(
        tmp_path / "examples", [], {"audio_root": ".", "stages": {"pairs": {"source": "cv/fr"}}}
    )
    described = tmp_path / "run" / "report.json"
    compared = "Each trained model is compared with untrained twins (the same architecture with random weights)"
    for seeds, twins in (
        ([0], f"{compared}: 1 (random seed 0)."),
        ([0, 1], f"{compared}: 2 (random seeds 0 to 1)."),
        ([], "There are no untrained twins."),
    ):
        write_page_description(tmp_path / "run", examples, seeds)
        note = f"Clips: fr. {twins}"
        expected = {"title": TITLE, "notes": [note]}
        assert json.loads(described.read_text(encoding="utf-8")) == expected
    for own in (
        {"title": "My study", "notes": expected["notes"]},
        {"title": TITLE, "notes": ["Read this first."]},
    ):
        described.write_text(json.dumps(own), encoding="utf-8")
        write_page_description(tmp_path / "run", examples, [0])
        assert json.loads(described.read_text(encoding="utf-8")) == own


def test_a_run_that_is_refused_leaves_the_page_of_the_one_that_is_there(
    folder, tmp_path, capsys, monkeypatch
):
    from speechmix.interfaces.cli import score
    from speechmix.studies.french.dataset import write_examples

    examples = write_examples(tmp_path / "examples", [], {"audio_root": ".", "stages": {}})
    monkeypatch.setattr(
        score,
        "collect_clips",
        lambda options, skipped: [speechmix.Clip.from_file(folder / "a.wav")],
    )
    out = tmp_path / "other run"
    out.mkdir()
    (out / "run.json").write_text(json.dumps({"options": {"measures": ["alti"]}}), encoding="utf-8")
    command = [
        "score",
        "--clips",
        str(examples),
        "--model",
        str(folder / "model"),
        "--out",
        str(out),
        "--device",
        "cpu",
    ]
    assert main(command) == 1
    assert "holds a run with other options" in capsys.readouterr().err
    assert not (out / "report.json").exists()


def test_mining_imports_no_library_of_models_tables_or_sounds(tmp_path):
    (tmp_path / "one.wav").touch()
    (tmp_path / "clips.tsv").write_text("path\ttext\none.wav\tLes livres.\n", encoding="utf-8")
    code = (
        "import sys; from speechmix.interfaces.cli import main; assert main(['mine', 'clips.tsv', "
        "'--out', 'study']) == 0; "
        "print({'torch', 'transformers', 'pandas', 'pyarrow', 'scipy', 'soundfile'} & "
        "set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "set()"
    assert "1 kept" in done.stdout


@pytest.mark.parametrize("model", ["./no/such/model", "bundled:tiny-german"])
def test_a_model_that_is_not_there_leaves_no_folder(model, tmp_path, capsys):
    clip = str(bundled.clips()[0].path)
    command = ["score", clip, "--text", "nos maisons", "--model", model, "--out"]
    assert main([*command, str(tmp_path / "run")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("speechmix: no ")
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_bundled_model_has_a_name(capsys):
    assert main(["check", "--model", "bundled:tiny-french-ctc", "--device", "cpu"]) == 0
    assert "tiny-french-ctc" in capsys.readouterr().out


def test_help_of_every_command_fits_on_a_screen_and_help_all_has_every_option(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    (commands,) = create_parser()._subparsers._group_actions
    for name, command in commands.choices.items():
        text, whole = command.format_help(), command.format_help_all()
        assert len(text.splitlines()) <= 30, name
        for action in command._actions:
            if action.help != "==SUPPRESS==":
                assert not action.option_strings or action.option_strings[-1] in whole
                assert (
                    not action.required
                    or not action.option_strings
                    or action.option_strings[-1] in text
                )


def test_help_all_is_printed(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["score", "--help-all"])
    assert ended.value.code == 0
    assert "--allow-outside" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["score", "--help"])
    text = capsys.readouterr().out
    assert "--product-dtype" not in text
    assert "more options: speechmix score --help-all" in text


@pytest.mark.parametrize(
    ("arguments", "replacement"),
    [
        (["--distance", "euclidean"], "--measure value_zeroing:distance=DISTANCE"),
        (["--product-dtype=bfloat16"], "--measure value_zeroing:product_dtype=DTYPE"),
        (["--revision", "main"], "--model NAME@REVISION"),
        (["--align", "ctc"], "--aligner MODEL or METHOD:MODEL"),
        (["--address", "auto"], "--engine ray:ADDRESS"),
        (["--task", "translate"], "--prefix task=TASK"),
    ],
)
def test_a_former_option_says_what_to_write(arguments, replacement, capsys):
    with pytest.raises(SystemExit):
        main(["score", "a.wav", "--model", "m", "--out", "run", *arguments])
    assert f"is no option any more: write {replacement}." in capsys.readouterr().err


def test_engines_that_write_are_apart_from_those_that_compute_a_run(folder, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["score", "a.wav", "--model", "m", "--out", "run", "--engine", "ctranslate2"])
    assert "what writes the transcripts is --inference-engine" in capsys.readouterr().err
    command = ["check", "--model", str(folder / "model"), "--inference-engine", "ctranslate2"]
    assert main(command) == 1
    assert "model is no model of ctranslate2: leave engine=" in capsys.readouterr().err
    command = ["score", "a.wav", "--model", "m", "--out", "run", "--inference-engine"]
    options = create_parser().parse_args([*command, "whisper.cpp"])
    assert (
        "engine_distance" in collect_score_arguments(options)["kinds"]
    )  # with how far the copy is


@pytest.mark.parametrize(
    ("value", "method", "model"),
    [
        ("synthesis", "synthesis", None),
        ("openai/whisper-tiny", "auto", "openai/whisper-tiny"),
        ("whisper:openai/whisper-tiny", "whisper", "openai/whisper-tiny"),
        ("ctc:bundled:tiny-french-ctc", "ctc", "bundled:tiny-french-ctc"),
        ("bundled:tiny-french-ctc", "auto", "bundled:tiny-french-ctc"),
    ],
)
def test_an_aligner_is_a_model_a_method_or_both(value, method, model):
    options = create_parser().parse_args(
        ["score", "a.wav", "--model", "m", "--out", "run", "--aligner", value]
    )
    assert (options.align, options.aligner) == (method, model)


@pytest.mark.parametrize("unbuffered", ["", pytest.param("1", marks=pytest.mark.long)])
def test_output_that_nobody_reads_ends_a_command_quietly(unbuffered, tmp_path):
    (tmp_path / "one.wav").touch()
    (tmp_path / "clips.tsv").write_text("path\ttext\none.wav\tLes livres.\n", encoding="utf-8")
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "speechmix", "mine", "clips.tsv", "--out", "study"]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    try:
        done = subprocess.run(
            command, cwd=tmp_path, stdout=writing, stderr=subprocess.PIPE, env=environment
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_broken_pipe_of_something_else_is_an_error(monkeypatch, capsys):
    def fail(*_):
        raise BrokenPipeError("to a worker")

    monkeypatch.setattr("speechmix.interfaces.cli.command_line.check_options", fail)
    assert main(["check", "--model", "bundled:tiny-french-ctc"]) == 1
    assert "to a worker" in capsys.readouterr().err
