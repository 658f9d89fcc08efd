"""A measure of one's own, registered from outside the package in twenty lines, is a measure like
any other."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields

import numpy as np
import pytest
import torch

import speechmix
from speechmix.errors import InputError
from speechmix.evaluation.cue_contribution import length_matched_share
from speechmix.extension import import_measures
from speechmix.inputs import bundled
from speechmix.mixing.maps.measure_registry import MEASURE_FACTS, RATIO_FACTS, measure_names
from speechmix.mixing.measures.measure import OPTIONS
from speechmix.mixing.measures.measure_functions import (
    MEASURES,
    MIXING_RATIOS,
    OUTPUT_MEASURES,
    forget_measure,
    list_measures,
)
from speechmix.mixing.passes.mix import mix
from speechmix.mixing.passes.request import ALLOWED_VALUES, MixRequest
from speechmix.runs.score_clips import score_clips
from tests.conftest import build, inputs_of, trained

SPANS = [(0, 9), (9, 20), (20, 30)]


def register_value_length(power=1):
    @speechmix.register_measure(
        "value_length",
        description="length of the source's value vectors, whoever attends to them",
        citation="tests/measures/test_registry.py",
        length_exponent={"": 0.0},
        residual="out",
    )
    def value_length(block, units, *, heads="mean", scale=1.0):
        """Tensor [W_t, W_s], or [H, W_t, W_s] for heads="each"."""
        lengths = scale * block.values.norm(dim=-1) ** power  # [H, K]
        rows = lengths[:, None].expand(-1, len(units.rows), -1)
        each = units.pool_targets(units.pool_sources(rows))
        return each if heads == "each" else each.mean(dim=0)


@pytest.fixture
def value_length():
    register_value_length()
    yield
    forget_measure("value_length")
    assert "value_length" not in MEASURE_FACTS


@pytest.mark.usefixtures("value_length")
class TestAMeasureOfOnesOwn:
    def test_is_mixed_like_any_other(self):
        model = speechmix.load(build("whisper-80").double())
        maps = speechmix.mix(
            model, inputs_of(model), spans=SPANS, measures=["attention", "value_length"]
        )
        assert {name for name, _ in maps} == {"attention", "value_length"}
        stored_map = maps["value_length", "encoder"]
        values = []
        for layer in model.base.encoder.layers:
            layer.self_attn.v_proj.register_forward_hook(
                lambda module, args, y: values.append(y[0])
            )
        model.base.encoder(inputs_of(model)["input_features"])
        for layer, value in enumerate(values):
            per_head = (
                value.unflatten(-1, (4, -1)).norm(dim=-1).mean(dim=-1).detach().numpy()
            )  # [K]
            expected = [per_head[start:stop].mean() for start, stop in SPANS]
            np.testing.assert_allclose(
                stored_map.scores[layer], np.tile(expected, (3, 1)), rtol=1e-12
            )

    def test_has_heads_rollout_and_a_share_by_length_of_its_facts(self):
        model = speechmix.load(build("wav2vec2-stable").double())
        stored_map = speechmix.mix(
            model, inputs_of(model), spans=SPANS, measures="value_length", heads="each"
        )["value_length", "encoder"]
        assert stored_map.scores.shape == (3, 4, 3, 3)
        mean = stored_map.mean_heads()
        np.testing.assert_array_equal(mean.rollout().scores, mean.rollout(residual=True).scores)
        assert length_matched_share(mean, cue=1) == pytest.approx(1 / 3)

    def test_is_scored_in_a_run_and_made_again_when_its_code_changes(self, tmp_path):
        clips, computed = bundled.clips()[:1], []
        model = speechmix.load(next(iter(bundled.models().values())))

        def lengths():
            run = score_clips(
                model,
                clips,
                tmp_path,
                measures=["value_length"],
                figures=0,
                progress=False,
                report=lambda line: None,
            )
            computed.append(
                [path.read_bytes() for path in sorted(run.out.glob("scores/**/*.parquet"))]
            )
            return {path.stat().st_mtime_ns for path in run.out.glob("maps/*/*/*.safetensors")}

        first, second = lengths(), lengths()
        assert first == second
        register_value_length()  # a notebook's cell, run again
        assert lengths() == second
        register_value_length(power=2)  # edited
        assert not lengths() & second
        assert computed[0] == computed[2] != computed[3]


@pytest.mark.parametrize(
    ("facts", "function", "message"),
    [
        ({"name": "alti"}, lambda block, units, *, heads: None, "a name of its own"),
        ({"name": "two words"}, lambda block, units, *, heads: None, "a name of its own"),
        ({"cite": "me"}, lambda block, units, *, heads: None, "no fact cite"),
        ({"citation": None}, lambda block, units, *, heads: None, "say citation"),
        ({}, lambda block, units, **_: None, "takes any keyword"),
        ({}, lambda block, units, *, heads, distnace: None, "no caller has the option distnace"),
        ({}, lambda block, units: None, "has no heads=: say why in no_heads"),
        ({"scope": "block"}, lambda block, units, *, heads: None, "scope should be one of"),
        (
            {"residual": "none"},
            lambda block, units, *, heads: None,
            "residual should be one of 'in'",
        ),
        ({"word": "la"}, lambda block, units, *, heads: None, "word should be one of 'mean per fr"),
        ({"cross": "no"}, lambda block, units, *, heads: None, "cross should be bool, found 'no'"),
        ({"objective": True}, lambda block, units, *, heads: None, "scope='model'"),
    ],
)
def test_what_cannot_be_a_measure_is_refused(facts, function, message):
    facts = {"name": "mine", "description": "what", "citation": "where", **facts}
    facts = {name: value for name, value in facts.items() if value is not None}
    with pytest.raises(InputError, match=message):
        speechmix.register_measure(**facts)(function)
    assert "mine" not in MEASURES


@pytest.mark.parametrize("scope", ["layer", "model"])
@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda scores: scores[..., :-1, :], r"found shape \("),
        (lambda scores: scores[..., None], r"found shape \("),
        (lambda scores: scores.numpy(), "found numpy.ndarray"),
        (lambda scores: None, "found builtins.NoneType"),
    ],
)
def test_what_a_measure_returns_is_checked(scope, change, found):
    def of_layer(block, units):
        return change(torch.ones(len(units.targets), len(units.sources)))

    def of_model(gradient_pass, stack, units):
        layers = len(model.stacks[stack])
        return change(torch.ones(layers, len(units.targets), len(units.sources))), {}

    facts = {"description": "what", "citation": "where", "no_heads": ": no", "scope": scope}
    model, clip = trained("tiny-french-ctc"), bundled.clips()[0]
    try:
        speechmix.register_measure("mine", **facts)(of_layer if scope == "layer" else of_model)
        with pytest.raises(
            InputError, match=rf"mine: .* Tensor \[.*targets 2, sources 2\], {found}"
        ):
            mix(model, clip, measures="mine")
    finally:
        forget_measure("mine")


def test_no_function_swallows_options_it_does_not_know():
    import_measures()
    for measure in (*MEASURES.values(), *MIXING_RATIOS.values(), *OUTPUT_MEASURES.values()):
        kinds = {
            parameter.kind for parameter in inspect.signature(measure.function).parameters.values()
        }
        assert inspect.Parameter.VAR_KEYWORD not in kinds
        assert set(measure.takes) <= set(OPTIONS[measure.scope])
        assert ("heads" in measure.takes) != bool(measure.no_heads)
    assert {*MEASURES, *OUTPUT_MEASURES} == {*MEASURE_FACTS}
    assert {*MEASURES} == {*measure_names("layer", "model")}
    assert list_measures() == MEASURES
    assert list(MIXING_RATIOS) == list(RATIO_FACTS)


def test_the_options_of_mix_are_those_of_a_question():
    signature = inspect.signature(mix).parameters
    how = {
        "model",
        "clip",
        "clips_at_once",
        "out",
        "progress",
    }
    assert {name: p.default for name, p in signature.items() if name not in how} == {
        option.name: option.default for option in fields(MixRequest)
    }


@pytest.mark.parametrize(
    "option", [name for name in ALLOWED_VALUES if name not in ("include", "objective")]
)
def test_docs_of_mix_name_the_allowed_values(option):
    values = re.search(rf"^ *{option} : {{(.*?)}}$", mix.__doc__, re.MULTILINE | re.DOTALL).group(1)
    assert tuple(part.strip('" \n') for part in values.split(",")) == ALLOWED_VALUES[option]
