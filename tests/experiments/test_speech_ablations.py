"""The ablation of speech over clips: kept and resumed, what fails is recorded, untrained models
claim nothing, the page."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.speech_ablation import kind, speech_ablations
from speechmix.extensions.speech_ablation.ablate_command import select_overall_means
from speechmix.extensions.speech_ablation.section import SPEECH_ABLATION
from speechmix.extensions.speech_ablation.speech_ablations import speech_ablation
from speechmix.files.text_files import read_csv
from speechmix.inputs import bundled
from speechmix.interfaces.cli import main
from tests.conftest import trained

FOUR = [
    clip for clip in bundled.clips() if clip.meta["side"] == "left" and clip.meta["control"] == "no"
][:4]
CLIPS = FOUR[:2]

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def run(tmp_path_factory, figures_saved_empty):
    """A CTC model and a Whisper on a pair, and on a clip without a cue."""
    out = tmp_path_factory.mktemp("run")
    clips = [*CLIPS, CLIPS[0].replace(name="no_cue", cue=None)]
    models = [trained("tiny-french-ctc"), trained("tiny-french-whisper")]
    with figures_saved_empty():
        return speech_ablation(models, clips, out, fills_of_tokens=["unk"])


def test_one_row_a_clip_model_way_and_reading(run):
    table = run.table
    assert set(table["clip"]) == {clip.name for clip in CLIPS}
    assert (
        table.groupby(["clip", "model", "silenced", "condition", "fill", "reading", "aggregation"])
        .size()
        .eq(1)
        .all()
    )
    assert set(table[table.model == "tiny-french-ctc"].condition) == {"sound"}
    assert set(table[table.model == "tiny-french-whisper"].condition) == {"sound", "tokens", "both"}
    assert set(table.number) == {"sg", "pl"}
    assert [(row["clip"], row["model"]) for row in run.skipped] == [
        ("no_cue", "tiny-french-ctc"),
        ("no_cue", "tiny-french-whisper"),
    ]
    assert "needs text, words with times, a cue" in run.skipped[0]["reason"]


def test_files_and_what_is_kept_is_not_read_again(run, monkeypatch):
    kept = {path.name for path in run.out.iterdir()}
    tables = {
        f"speech_ablation{ending}"
        for ending in (".parquet", ".csv", "_means.csv", "_skipped.csv", ".png", ".pdf")
    }
    assert tables <= kept
    asked = []

    def counted(model, clip, **options):
        asked.append(clip.name)
        return ablate(model, clip, **options)

    ablate = kind.ablate_speech
    monkeypatch.setattr(kind, "ablate_speech", counted)
    models = [trained("tiny-french-ctc"), trained("tiny-french-whisper")]
    (part,) = (run.out / "results" / "tiny-french-ctc").glob("*.parquet")
    part.unlink()
    again = speech_ablation(models, CLIPS, run.out, fills_of_tokens=["unk"])
    assert asked == [clip.name for clip in CLIPS]  # by one model
    pd.testing.assert_frame_equal(again.table, run.table)
    speech_ablation(models[:1], CLIPS[:1], run.out, sound_fills=["room"])
    assert asked[2:] == [CLIPS[0].name]  # other options
    speech_ablation(models, CLIPS, run.out, fills_of_tokens=["unk"])


def test_the_page_shows_it(run, tmp_path):
    ((title, items),) = SPEECH_ABLATION.parts(SimpleNamespace(folder=run.out))
    assert title.startswith("Without the cue")
    assert "is not neutral" in items[0]
    assert {"without", "condition", "trained", "95 % interval"} <= set(items[1])
    assert SPEECH_ABLATION.parts(SimpleNamespace(folder=tmp_path)) == []
    damaged = run.out / "speech_ablation_means.csv"
    content = damaged.read_text()
    try:
        damaged.write_text("model\nm\n")
        assert "found no column" in SPEECH_ABLATION.parts(SimpleNamespace(folder=run.out))[0][1][0]
    finally:
        damaged.write_text(content)


def test_an_untrained_model_that_poses_as_trained_loses_nothing_that_the_test_calls():
    source, options = (
        bundled.models()["tiny-french-ctc"],
        {"init": "random", "device": "cpu", "check": False},
    )
    twins = [speechmix.load(source, seed=seed, **options) for seed in range(4)]
    table = speech_ablation(twins, FOUR).table
    table["init"] = table["init"].where(table["seed"] != 0, "trained")
    few = table[(table.aggregation != "signed max") & (table.reading != "text")]
    means = speech_ablations.SpeechAblation(few.assign(template="")).means
    assert means.trained.notna().all()
    assert (means.claim == "").all()


def test_nothing_that_can_be_used_is_an_error_and_two_models_of_one_name_too(tmp_path):
    with pytest.raises(InputError, match="no clip could be used"):
        speech_ablation(trained("tiny-french-ctc"), [CLIPS[0].replace(cue=None)], tmp_path)
    with pytest.raises(InputError, match="two models are called"):
        speech_ablation([trained("tiny-french-ctc")] * 2, CLIPS[:1])


def test_where_all_clips_are_controls_nothing_is_compared_and_nothing_fails(tmp_path):
    control = CLIPS[0].replace(meta={**CLIPS[0].meta, "control": "yes"})
    result = speech_ablation(trained("tiny-french-ctc"), [control], tmp_path)
    assert len(result.table)
    assert select_overall_means(result.means).empty
    assert not (tmp_path / speech_ablations.MEANS).exists()
    assert SPEECH_ABLATION.parts(SimpleNamespace(folder=tmp_path)) == []


def test_the_command_prints_means_and_leaves_tables(tmp_path, capsys):
    manifest = tmp_path / "clips.tsv"
    clip = CLIPS[0]
    words = tmp_path / "words.csv"
    words.write_text(
        "word,start,end\n"
        + "".join(f"{word.text},{word.start},{word.end}\n" for word in clip.words)
    )
    cells = {
        "path": clip.path,
        "text": clip.text,
        "words": words,
        "cue": "0",
        "target": "1",
        "foil": clip.foil,
    }
    manifest.write_text("\t".join(cells) + "\n" + "\t".join(map(str, cells.values())) + "\n")
    model, out = str(bundled.models()["tiny-french-ctc"]), tmp_path / "out"
    options = [
        "--clips",
        str(manifest),
        "--allow-outside",
        "--device",
        "cpu",
        "--published",
        "--out",
        str(out),
    ]
    assert main(["ablate", "--model", model, *options]) == 0
    printed = capsys.readouterr().out
    assert "mean drops, in points of probability" in printed
    assert len(read_csv(out / "speech_ablation.csv")) == 16
    assert main(["ablate", "--model", model, "--stack", "encoder", *options]) == 1
    assert "--published removes the word itself" in capsys.readouterr().err
