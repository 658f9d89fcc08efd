"""A stored result is used only if everything that went into it is the same: one ingredient changed
after the other.

Each case changes one thing, gives the command again and counts what was computed: exactly what
depends on it. What the folder then holds is what a run from scratch leaves.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile
import torch
from matplotlib.figure import Figure

import speechmix
from speechmix.errors import InputError
from speechmix.inputs import bundled
from speechmix.runs import score_clips as runs
from speechmix.runs.kinds import ablation, word_times
from speechmix.runs.kinds import generated_texts as transcripts
from speechmix.runs.kinds import map_results as store
from tests.conftest import trained

CTC, WHISPER = (str(bundled.models()[f"tiny-french-{kind}"]) for kind in ("ctc", "whisper"))
QUIET = {"progress": False, "report": lambda line: None}


@dataclass
class Question:
    """What one start of the run is asked, and where its file is."""

    folder: object
    seed: int = 0
    text: str = "nos maisons"
    words: tuple | None = (("nos", 0.1, 0.4), ("maisons", 0.4, 0.9))
    cue: str | None = "nos"
    target: str = "maisons"
    foil: str | None = "maison"
    language: str | None = "fr"
    dtype: str | None = None
    weight: float = 0.0
    model: str = CTC
    align_method: str = "auto"
    options: dict = field(default_factory=dict)

    def clip(self):
        path = self.folder / "a.wav"
        noise = np.random.default_rng(self.seed).standard_normal(16_000) / 10
        soundfile.write(path, noise, 16_000, subtype="FLOAT")
        return speechmix.Clip.from_file(
            path,
            text=self.text,
            words=self.words,
            cue=self.cue,
            target=self.target,
            foil=self.foil,
            language=self.language,
        )

    def run(self, out):
        changed = self.weight or self.dtype
        model = (
            speechmix.load(self.model, device="cpu", dtype=self.dtype)
            if changed
            else trained(Path(self.model).name)
        )
        if self.weight:
            weight = next(
                w for name, w in model.module.named_parameters() if name.endswith("k_proj.weight")
            )
            with torch.no_grad():
                weight[3, 5] += (
                    self.weight
                )  # one number, between those that a sample of some would see
        given = {
            "ablation": True,
            "measures": ["value_zeroing", "attention"],
            "overwrite": True,
            **self.options,
        }
        return runs.score_clips(
            [model], [self.clip()], out, align_method=self.align_method, **given, **QUIET
        )


@pytest.fixture
def computed(monkeypatch):
    """Counts of what is computed: words aligned, maps of each measure, ablations, transcripts,
    figures."""
    counts: dict[str, int] = {}

    def counted(module, name, names_of, instead=None):
        real = instead or getattr(module, name)

        def call(*args, **kwargs):
            for what in names_of(args):
                counts[what] = counts.get(what, 0) + 1
            return real(*args, **kwargs)

        monkeypatch.setattr(module, name, call)

    from speechmix.reporting.plots import clip_overview

    counted(word_times, "align", lambda _: ["words"])
    counted(store, "mix_items", lambda args: args[2].measures)
    counted(ablation, "ablate_with_control", lambda _: ["ablation"])
    counted(transcripts, "transcribe", lambda _: ["transcript"])
    counted(clip_overview, "clip_figure", lambda _: ["figure"], lambda *_, **__: Figure())
    return counts


EVERYTHING = {"value_zeroing", "attention", "ablation", "transcript", "figure"}
MAPS = {"value_zeroing", "attention", "figure"}
CASES = {
    "nothing": ({}, set()),
    "the sound": ({"seed": 1}, EVERYTHING),
    "the text": ({"text": "nos  grandes maisons"}, EVERYTHING),
    "a word's time": (
        {"words": (("nos", 0.1, 0.4), ("maisons", 0.41, 0.9))},
        EVERYTHING - {"transcript"},
    ),
    "the cue": ({"words": (("nos", 0.1, 0.4), ("maisons", 0.4, 0.9)), "cue": None}, MAPS),
    "the foil": ({"foil": "maisonnée"}, EVERYTHING - {"transcript"}),
    "the language": ({"language": "en"}, EVERYTHING),
    "the precision": ({"dtype": "float64"}, EVERYTHING),
    "one weight": ({"weight": 1e-3}, EVERYTHING),
    "an option of one measure": (
        {"options": {"measures": ["value_zeroing:distance=euclidean", "attention"]}},
        {"value_zeroing:distance=euclidean", "figure"},
    ),
    "an option of all measures": ({"options": {"pooling": "max"}}, MAPS),
    "one more measure": (
        {"options": {"measures": ["value_zeroing", "attention", "attention_norm"]}},
        {"attention_norm", "figure"},
    ),
    "one measure less": ({"options": {"measures": ["attention"]}}, {"figure"}),
    "an option that decides nothing": ({"options": {"profile": True}}, set()),
}


def tables(out):
    names = ("scores", "cue_contribution.parquet", "ablation.parquet", "transcripts.parquet")
    return {name: pd.read_parquet(path) for name in names if (path := out / name).exists()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory, figures_saved_empty):
    """A question and the folder of its run, to be copied."""
    folder = tmp_path_factory.mktemp("finished")
    question = Question(folder)
    with figures_saved_empty():
        return question, question.run(folder / "run").out


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("case", CASES)
def test_what_depends_on_the_change_is_made_again_and_nothing_else(
    case, finished, computed, tmp_path
):
    changes, expected = CASES[case]
    before, run = finished
    shutil.copytree(run, tmp_path / "run")
    after = replace(before, **changes)
    resumed = after.run(tmp_path / "run")
    assert resumed.done == 1, resumed.skipped
    assert set(computed) == expected
    fresh = after.run(tmp_path / "fresh")
    found, expected_tables = tables(resumed.out), tables(fresh.out)
    assert found.keys() == expected_tables.keys()
    for name, table in expected_tables.items():
        pd.testing.assert_frame_equal(found[name], table)
    ((_, maps),) = speechmix.open_run(resumed).maps("a").items()
    ((_, expected_maps),) = speechmix.open_run(fresh).maps("a").items()
    assert maps.keys() == expected_maps.keys()
    for key, expected_map in expected_maps.items():
        np.testing.assert_array_equal(maps[key].scores, expected_map.scores)
        np.testing.assert_array_equal(maps[key].mixing_strength, expected_map.mixing_strength)
        assert maps[key].provenance == expected_map.provenance
    files = {path.relative_to(fresh.out) for path in fresh.out.rglob("*.parquet")}
    assert {path.relative_to(resumed.out) for path in resumed.out.rglob("*.parquet")} == files


@pytest.mark.usefixtures("undrawn")
def test_the_cue_of_the_ablation_is_the_cue_that_is_asked_about(computed, tmp_path):
    three = (("nos", 0.1, 0.3), ("deux", 0.3, 0.5), ("maisons", 0.5, 0.9))
    before = Question(tmp_path, text="nos deux maisons", words=three)
    before.run(tmp_path / "run")
    computed.clear()
    resumed = replace(before, cue="deux").run(tmp_path / "run")
    assert set(computed) == {"value_zeroing", "attention", "ablation", "figure"}
    fresh = replace(before, cue="deux").run(tmp_path / "fresh")
    pd.testing.assert_frame_equal(resumed.ablation, fresh.ablation)
    (maps,) = speechmix.open_run(resumed).maps("a").values()
    assert maps["attention", "encoder"].provenance["cue"] == 1


@pytest.mark.usefixtures("undrawn")
def test_words_are_placed_again_for_another_sound_text_aligner_or_method(
    computed, tmp_path, monkeypatch
):
    asked = []

    def fake(clip, *, model, method, tiers):
        asked.append(method)
        return clip.with_words([("nos", 0.1, 0.4), ("maisons", 0.4, 0.9)], alignment=method)

    monkeypatch.setattr(word_times, "align", fake)
    little = {"ablation": False, "measures": ["attention"], "figures": 0}
    question = Question(tmp_path, words=None, options=little)
    for change in (
        {},
        {},
        {"seed": 1},
        {"text": "nos maisons."},
        {"align_method": "synthesis"},
        {"language": "en"},
    ):
        question = replace(question, **change)
        question.run(tmp_path / "run")
    assert asked == ["auto", "auto", "auto", "synthesis", "synthesis"]
    aligners = [
        trained("tiny-french-ctc"),
        speechmix.load(CTC, device="cpu", init="random", seed=1),
    ]
    model = trained("tiny-french-ctc")
    for aligner in (aligners[0], aligners[0], aligners[1]):
        runs.score_clips(
            [model],
            [question.clip()],
            tmp_path / "b",
            aligner=aligner,
            figures=0,
            measures=["attention"],
            **QUIET,
        )
    assert len(asked) == 5 + 2


def test_words_of_aligners_that_placed_them_otherwise_are_placed_again(
    computed, tmp_path, monkeypatch
):
    asked = []

    def fake(clip, *, model, method, tiers):
        asked.append(method)
        return clip.with_words([("nos", 0.1, 0.4), ("maisons", 0.4, 0.9)], alignment=method)

    monkeypatch.setattr(word_times, "align", fake)
    question = Question(tmp_path, words=None)
    question.run(tmp_path / "run")
    monkeypatch.setattr(word_times, "REVISION", word_times.REVISION + 1)
    question.run(tmp_path / "run")
    assert len(asked) == 2


@pytest.mark.usefixtures("undrawn")
def test_maps_with_strengths_of_another_definition_are_made_again(
    finished, computed, tmp_path, monkeypatch
):
    out = shutil.copytree(finished[1], tmp_path / "run")
    monkeypatch.setattr(store, "STRENGTH_REVISION", store.STRENGTH_REVISION + 1)
    finished[0].run(out)
    assert set(computed) == {"value_zeroing", "attention", "figure"}


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    "case",
    [
        "cut",
        pytest.param("bit", marks=pytest.mark.long),  # tests/storage/test_flipped_bits.py has all
        pytest.param("empty", marks=pytest.mark.long),
        "missing",
    ],
)
def test_what_is_damaged_is_said_and_made_again(case, finished, tmp_path):
    question, lines = finished[0], []
    out = shutil.copytree(finished[1], tmp_path / "run")
    whole = tables(out)
    for path in [
        *out.rglob("results/*/*.parquet"),
        *out.rglob("scores/**/*.parquet"),
        *out.rglob("*.png"),
        out / "run.json",
    ]:
        data = bytearray(path.read_bytes())
        if case == "missing":
            path.unlink()
            continue
        data[len(data) // 2] ^= 16
        path.write_bytes({"cut": data[: len(data) // 2], "bit": data, "empty": b""}[case])
    model = trained("tiny-french-ctc")
    given = {
        "ablation": True,
        "measures": ["value_zeroing", "attention"],
        "progress": False,
        "report": lines.append,
    }
    runs.score_clips([model], [question.clip()], out, overwrite=case == "bit", **given)
    found = tables(out)
    for name, table in whole.items():
        pd.testing.assert_frame_equal(found[name], table)
    json.loads((out / "run.json").read_text(encoding="utf-8"))
    if case in ("cut", "empty"):
        assert sum("damaged" in line for line in lines) >= 3


def test_two_clips_of_one_name_are_refused_with_both_places(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        soundfile.write(tmp_path / folder / "001.wav", np.ones(16_000) / 9, 16_000)
    clips = [speechmix.Clip.from_file(tmp_path / folder / "001.wav") for folder in ("a", "b")]
    model = trained("tiny-french-ctc")
    with pytest.raises(InputError, match=r"a.001\.wav and .*b.001\.wav"):
        runs.score_clips([model], clips, tmp_path / "run", units="frame", **QUIET)
    assert not (tmp_path / "run").exists()
