"""Figures of a run's clips: drawn when all models are done, the twin beside the trained model, no
more often than needed."""

import PIL.Image
import pytest

from speechmix.errors import InputError
from speechmix.files.names import safe_name
from speechmix.reporting import clip_figures as drawing
from speechmix.runs import score_clips as runs
from tests.experiments.test_run import clip, models  # noqa: F401

QUIET = {"progress": False, "report": lambda line: None}


def figure_of(folder, model):
    return folder / "figures" / safe_name(model.label) / "a.png"


@pytest.mark.long
def test_a_trained_models_figure_is_drawn_again_when_it_gets_a_twin(models, tmp_path):  # noqa: F811
    trained, _ = models
    runs.score_clips(trained, [clip("a")], tmp_path, **QUIET)
    alone = figure_of(tmp_path, trained).read_bytes()
    runs.score_clips(models, [clip("a")], tmp_path, **QUIET)
    beside = figure_of(tmp_path, trained).read_bytes()
    assert beside != alone
    runs.score_clips(trained, [clip("a")], tmp_path, **QUIET)
    assert PIL.Image.open(figure_of(tmp_path, trained)).info == _info(alone, tmp_path)


def _info(content, folder):
    (folder / "kept.png").write_bytes(content)
    return PIL.Image.open(folder / "kept.png").info


@pytest.mark.usefixtures("undrawn")
def test_a_twin_alone_has_a_figure_of_its_own(models, tmp_path):  # noqa: F811
    runs.score_clips(models[1], [clip("a")], tmp_path, **QUIET)
    assert figure_of(tmp_path, models[1]).is_file()


@pytest.mark.usefixtures("undrawn")
def test_curves_of_the_twin_are_in_the_figure(models, tmp_path, monkeypatch):  # noqa: F811
    shown = {}

    def figure(clip, maps, *, twins, title):
        shown[next(iter(maps.values())).provenance["init"]] = [
            next(iter(of_twin.values())).provenance["init"] for of_twin in twins
        ]
        return drawn(clip, maps, twins=twins, title=title)

    from speechmix.reporting.plots import clip_overview

    drawn = clip_overview.clip_figure
    monkeypatch.setattr(clip_overview, "clip_figure", figure)
    runs.score_clips(models, [clip("a")], tmp_path, **QUIET)
    assert shown == {"trained": ["random"]}
    shown.clear()
    runs.score_clips(models, [clip("a")], tmp_path, **QUIET)
    assert shown == {}


def test_a_figure_that_cannot_be_drawn_is_recorded(models, tmp_path, monkeypatch):  # noqa: F811
    def fails(*args, **options):
        raise InputError("no room for so many words")

    monkeypatch.setattr(drawing, "read_part_maps", fails)
    lines = []
    run = runs.score_clips(models[0], [clip("a")], tmp_path, progress=False, report=lines.append)
    assert run.done == 1
    assert len(run.contributions)
    (skipped,) = run.skipped
    assert skipped["clip"] == "a"
    assert "its figure is not drawn: no room" in skipped["reason"]
    assert any("its figure is not drawn" in line for line in lines)
