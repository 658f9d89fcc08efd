"""A finished run that is asked the same again stands; whatever is changed, it goes through its
clips and tells the truth."""

from __future__ import annotations

import numpy as np
import pytest
import soundfile
import torch

import speechmix
from speechmix.inputs.audio import audio_source as audio
from speechmix.runs import job_execution as standing
from speechmix.runs.clip_aligner import ClipAligner
from speechmix.runs.score_clips import score_clips
from tests.conftest import trained_and_twin
from tests.reliability.kills import snapshot

WORDS = [("nos", 0.0, 0.1), ("maisons", 0.1, 0.3)]
QUIET = {
    "figures": 0,
    "measures": ["attention"],
    "progress": False,
    "report": lambda line: None,
}


@pytest.fixture
def gone_through(monkeypatch):
    """Counts starts that go through their clips."""
    monkeypatch.setattr(standing, "N_SPOT_CHECKED_CLIPS", 0)
    starts, align_clips = [], ClipAligner.align_clips

    def counted(self, *arguments):
        starts.append(1)
        return align_clips(self, *arguments)

    monkeypatch.setattr(ClipAligner, "align_clips", counted)
    return starts


def recorded(folder, *, seeds=(1, 2), text="nos maisons", **changes):
    """Clips with files of their own."""
    clips = []
    for seed in seeds:
        path = folder / f"{seeds.index(seed)}.wav"
        soundfile.write(
            path, np.random.default_rng(seed).standard_normal(4_800) / 10, 16_000, subtype="FLOAT"
        )
        given = {"text": text, "words": WORDS, "cue": "nos", "target": "maisons", **changes}
        clips.append(speechmix.Clip.from_file(path, **given))
    return clips


def clips_again(folder):
    """The same clips made anew; their files are as they were."""
    given = {"text": "nos maisons", "words": WORDS, "cue": "nos", "target": "maisons"}
    return [speechmix.Clip.from_file(path, **given) for path in sorted(folder.glob("*.wav"))]


@pytest.mark.parametrize("shard", ["1/1", "1/2"])
def test_the_same_again_goes_through_no_clip_and_changes_no_byte(gone_through, tmp_path, shard):
    models, clips, out = (
        trained_and_twin(),
        recorded(tmp_path, seeds=(1, 2, 3, 4)),
        tmp_path / "run",
    )
    first = score_clips(models, clips, out, shard=shard, **QUIET)
    before = snapshot(out)
    again = score_clips(models, clips_again(tmp_path), out, shard=shard, **QUIET)
    assert len(gone_through) == 1
    assert again.done == first.done > 0
    assert snapshot(out) == before


def test_no_recording_is_decoded_for_it(gone_through, tmp_path, monkeypatch):
    models, out, decoded = trained_and_twin(), tmp_path / "run", []
    decode = audio.decode_audio
    monkeypatch.setattr(audio, "decode_audio", lambda path: decoded.append(path) or decode(path))
    monkeypatch.setattr(audio, "_recording_cache", {})
    for starts in (1, 1):
        audio._decode_cached.cache_clear()
        score_clips(
            models, recorded(tmp_path) if not decoded else clips_again(tmp_path), out, **QUIET
        )
        assert len(gone_through) == starts
    assert len(decoded) == 2  # each once, in the first start


def _another_sound(folder, models, clips, out):
    return models, recorded(folder, seeds=(1, 3))


def _another_text(folder, models, clips, out):
    return models, recorded(
        folder, words=[("vos", 0.0, 0.1), ("maisons", 0.1, 0.3)], cue="vos", text="vos maisons"
    )


def _a_clip_more(folder, models, clips, out):
    return models, recorded(folder, seeds=(1, 2, 3))


def _a_clip_less(folder, models, clips, out):
    return models, clips[:1]


def _one_model(folder, models, clips, out):
    return models[:1], clips


def _the_models_swapped(folder, models, clips, out):
    return models[::-1], clips


def _a_weight(folder, models, clips, out):
    with torch.no_grad():
        next(
            weight
            for name, weight in models[0].module.named_parameters()
            if name.endswith("k_proj.weight")
        )[0, 0] += 1
    return models, clips


def _a_score_file_damaged(folder, models, clips, out):
    path = next((out / "scores").rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    return models, clips


def _a_part_gone(folder, models, clips, out):
    next((out / "results").rglob("*.parquet")).unlink()
    return models, clips


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_another_sound, marks=pytest.mark.long),  # test_resume.py has it, too
        pytest.param(_another_text, marks=pytest.mark.long),  # test_resume.py has it, too
        _a_clip_more,
        pytest.param(_a_clip_less, marks=pytest.mark.long),
        pytest.param(_one_model, marks=pytest.mark.long),  # other models: _the_models_swapped
        _the_models_swapped,
        pytest.param(_a_weight, marks=pytest.mark.long),
        _a_score_file_damaged,
        _a_part_gone,
    ],
)
def test_whatever_is_changed_the_folder_is_that_of_a_run_from_scratch(
    gone_through, tmp_path, change
):
    models, clips, out = trained_and_twin(), recorded(tmp_path), tmp_path / "run"
    score_clips(models, clips, out, **QUIET)
    models, clips = change(tmp_path, models, clips, out)
    score_clips(models, clips, out, **QUIET)
    assert len(gone_through) == 2
    score_clips(models, clips, tmp_path / "scratch", **QUIET)
    tables = ("cue_contribution.csv", "clips.csv", "skipped.csv")
    for name in tables:
        assert (out / name).read_text() == (tmp_path / "scratch" / name).read_text()


@pytest.mark.long
def test_a_figure_that_is_gone_is_drawn_again(gone_through, tmp_path):
    models, clips, out = trained_and_twin()[:1], recorded(tmp_path, seeds=(1,)), tmp_path / "run"
    for starts, change in ((1, None), (1, None), (2, "gone")):
        if change:
            next((out / "figures").rglob("*.png")).unlink()
        score_clips(models, clips, out, **{**QUIET, "figures": 1})
        assert len(gone_through) == starts
        assert len(list((out / "figures").rglob("*.png"))) == 1


def test_tables_that_were_changed_are_written_again_from_what_stands(gone_through, tmp_path):
    models, clips, out = trained_and_twin(), recorded(tmp_path), tmp_path / "run"
    score_clips(models, clips, out, **QUIET)
    table = (out / "cue_contribution.csv").read_bytes()
    (out / "cue_contribution.csv").write_text("spoilt")
    score_clips(models, clips, out, **QUIET)
    assert len(gone_through) == 1
    assert (out / "cue_contribution.csv").read_bytes() == table


def test_a_clip_that_could_not_be_scored_is_tried_again(gone_through, tmp_path):
    models, clips, out = trained_and_twin(), recorded(tmp_path), tmp_path / "run"
    (tmp_path / "1.wav").rename(tmp_path / "away.wav")
    first = score_clips(models, clips, out, **QUIET)
    assert len(first.skipped) == 1
    (tmp_path / "away.wav").rename(tmp_path / "1.wav")
    second = score_clips(models, clips, out, **QUIET)
    assert (len(gone_through), second.skipped) == (2, [])
    third = score_clips(models, clips, out, skipped=[("bad row", "no audio")], **QUIET)
    assert len(gone_through) == 3
    assert (
        score_clips(models, clips, out, skipped=[("bad row", "no audio")], **QUIET).skipped
        == third.skipped
    )
    assert len(gone_through) == 3


def test_other_code_is_another_question(gone_through, tmp_path, monkeypatch):
    models, clips, out = trained_and_twin(), recorded(tmp_path), tmp_path / "run"
    score_clips(models, clips, out, **QUIET)
    monkeypatch.setattr(standing, "_package", lambda: "another state of the code")
    score_clips(models, clips, out, **QUIET)
    assert len(gone_through) == 2


def test_few_clips_are_always_gone_through(gone_through, tmp_path, monkeypatch):
    monkeypatch.setattr(standing, "N_SPOT_CHECKED_CLIPS", 1_000)
    models, clips, out = trained_and_twin(), recorded(tmp_path), tmp_path / "run"
    for _ in range(2):
        score_clips(models, clips, out, **QUIET)
    assert len(gone_through) == 2
