"""Above a stated distance between an engine and its copy nothing is explained; below it, the distance is said."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest

import speechmix
from speechmix.adapters.generation.greedy_generation import generate_greedily
from speechmix.errors import ModelError
from speechmix.extensions.engines.engine_distance import (
    MAX_MEAN_NATS,
    EngineText,
    RunningEngine,
    copy_log_probabilities,
)
from speechmix.inputs import bundled
from speechmix.reporting.pages.run_page import report
from speechmix.runs.score_clips import score_clips

CLIP = bundled.clips()[0]


class OffsetRuntime:
    """An engine that writes what its copy would, with other log probabilities, and one token in so many changed."""

    description = "made-up engine 1.0"

    def __init__(self, offset: float, changed_every: int = 0) -> None:
        self.offset, self.changed_every = offset, changed_every

    def write(self, model, clip, prefix, max_tokens):
        ids, n_prefix, ended = generate_greedily(model.without_engine(), clip)
        ids = [*ids[n_prefix:], *[model.tokenizer.eos_token_id] * ended]
        if self.changed_every:
            ids[:: self.changed_every] = [5 + (id_ == 5) for id_ in ids[:: self.changed_every]]
        _, values = copy_log_probabilities(model, clip, list(prefix), ids)
        values = values[np.arange(len(ids)), ids] - self.offset
        return EngineText(tuple(ids), tuple(values.tolist()), ended)


@pytest.fixture
def model_beside():
    """Opens a model beside a made-up engine."""

    def load(runtime):
        model = speechmix.load(bundled.models()["tiny-french-whisper"], device="cpu")
        checkpoint = SimpleNamespace(path=None, format_name="CTranslate2, f32")
        model.engine = RunningEngine("ctranslate2", checkpoint)
        model.engine._runtime = runtime
        return model

    return load


@pytest.mark.filterwarnings("ignore:.*made-up engine")
@pytest.mark.usefixtures("undrawn")
def test_below_the_threshold_the_distance_is_said(model_beside, tmp_path):
    model = model_beside(OffsetRuntime(0.9 * MAX_MEAN_NATS))
    why = speechmix.explain(model, CLIP, measures="occlusion")
    assert "0.09 nats, 0.09 on average" in why.details()
    assert why.to_dataframe().attrs["remarks"] == [*why.remarks]
    writer = "tiny-french-whisper in made-up engine 1.0"
    assert why.by.endswith(writer)
    score_clips(
        model, [CLIP], tmp_path / "run", measures="attention", stacks="decoder", figures=0,
        progress=False, kinds=["transcripts", "explanations"],
    )  # fmt: skip
    run_page = report(tmp_path / "run").read_text()
    assert f"<dt>{writer} writes</dt>" in run_page
    assert "tiny-french-whisper writes" not in run_page
    remarks = (
        rf"transcript of {writer}",
        r"Measured is not the engine, but a copy of its weights \(",
        r"wrote \d+ tokens, its copy agrees on \d+; their log probabilities differ by "
        r"at most 0\.09 nats",
    )
    for text in (why.to_html(), run_page):
        assert all(re.search(remark, text) for remark in remarks)


@pytest.mark.filterwarnings("ignore:.*made-up engine")
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("runtime", [OffsetRuntime(1.1 * MAX_MEAN_NATS), OffsetRuntime(0.0, 4)])
def test_above_it_nothing_is_explained(model_beside, runtime, tmp_path):
    model = model_beside(runtime)
    with pytest.raises(ModelError, match="nothing is explained"):
        speechmix.explain(model, CLIP, measures="occlusion")
    speechmix.explain(model.without_engine(), CLIP, measures="occlusion")
    lines = []
    score_clips(
        model, [CLIP], tmp_path / "run", measures="attention", stacks="decoder", figures=0,
        progress=False, report=lines.append, kinds=["engine_distance", "explanations"],
    )  # fmt: skip
    page = report(tmp_path / "run").read_text()
    assert "nothing is explained" in page
    assert "tiny-french-whisper writes" not in page
