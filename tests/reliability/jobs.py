"""The two jobs that are killed: clips through two models into a run folder, and the French recipe
from release to page."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import warnings
from collections.abc import Callable
from pathlib import Path

import speechmix
from speechmix.inputs import bundled
from speechmix.runs.score_clips import score_clips

ROOT = Path(__file__).resolve().parents[2]


def score_job(figures: int = 1) -> Callable[[Path], None]:
    """Score two bundled clips with a model and its twin: words of one are placed first; ablation,
    transcripts, figures."""
    ctc = str(bundled.models()["tiny-french-ctc"])
    models = [
        speechmix.load(ctc, device="cpu"),
        speechmix.load(ctc, device="cpu", init="random", seed=0),
    ]
    first, second = bundled.clips()[:2]
    again = speechmix.Clip.from_array(
        second.audio(16_000),
        16_000,
        text=second.text,
        cue=second.words[second.cue].text,
        foil=second.foil,
        language="fr",
        target=second.words[second.target].text,
        name="unplaced",
        meta=second.meta,
    )
    for model in models:
        assert model.fingerprint  # hashed once, before the forks

    def job(folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            score_clips(
                models,
                [first, again],
                folder,
                measures=["value_zeroing", "attention"],
                ablation=True,
                figures=figures,
                progress=False,
                report=lambda line: None,
            )

    return job


def recipe_job(release: Path) -> Callable[[Path], None]:
    """Go from a Common Voice release in miniature to the page: mine, align, transcribe, select,
    score, ablate, report."""
    spec = importlib.util.spec_from_file_location(
        "recipe", ROOT / "recipes" / "french_homophony.py"
    )
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    whisper = str(bundled.models()["tiny-french-whisper"])
    arguments = [
        "--corpus",
        str(release),
        "--model",
        whisper,
        "--twins",
        "1",
        "--figures",
        "1",
        "--device",
        "cpu",
    ]
    arguments += ["--measure", "value_zeroing"]

    def job(folder: Path) -> None:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            if recipe.main([*arguments, "--out", str(folder)]):
                raise RuntimeError("the recipe ended with an error status")

    return job
