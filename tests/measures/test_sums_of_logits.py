"""A margin as a sum of logits: against all paths of a CTC model, written out."""

from __future__ import annotations

import itertools
from itertools import groupby
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.logit_decompositions.sums_of_logits import split_into_logits
from speechmix.inputs import bundled
from speechmix.inputs.words.spans import Span
from speechmix.interventions.decision import Decision
from speechmix.mixing.maps.numerics import ctc_log_probability
from speechmix.mixing.measures.token_objectives import Objective, token_objective
from tests.conftest import trained
from tests.models import text_models

FRAMES, LETTERS, BLANK = 5, 4, 0


def collapsed(path: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(letter for letter, _ in groupby(path) if letter != BLANK)


def of_all_paths(logits: np.ndarray, text: tuple[int, ...]) -> tuple[float, np.ndarray, float]:
    """log p(text), how often its paths stand at each letter [T, V], and their entropy; one path
    after the other."""
    scores = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    paths = [
        path for path in itertools.product(range(LETTERS), repeat=FRAMES) if collapsed(path) == text
    ]
    of_path = np.array(
        [sum(scores[frame, letter] for frame, letter in enumerate(path)) for path in paths]
    )
    whole = np.log(np.exp(of_path).sum())
    share = np.exp(of_path - whole)
    stands = np.zeros((FRAMES, LETTERS))
    for weight, path in zip(share, paths, strict=True):
        stands[range(FRAMES), path] += weight
    return whole, stands, float(-(share * np.log(share)).sum())


def ctc_margin(text: tuple[int, ...], foil: tuple[int, ...]) -> Objective:
    def function(output):
        scores = output.logits.log_softmax(dim=-1)
        return torch.stack(
            [
                ctc_log_probability(row, list(text), blank=BLANK)
                - ctc_log_probability(row, list(foil), blank=BLANK)
                for row in scores
            ]
        )

    return Objective(
        function, Span(0, 1, "word"), {"kind": "contrast", "texts": [text, foil], "label": "word"}
    )


def test_the_margin_of_two_texts_is_a_sum_of_logits_and_a_difference_of_entropies():
    logits = 2 * torch.randn(
        1, FRAMES, LETTERS, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    text, foil = (1, 2, 3), (1, 3)
    objective = ctc_margin(text, foil)
    found = split_into_logits(objective, None, logits)
    (own, stands, entropy), (other, foil_stands, foil_entropy) = (
        of_all_paths(logits[0].numpy(), spelt) for spelt in (text, foil)
    )
    weights = np.zeros((FRAMES, LETTERS))
    for one in found:
        weights[one.details["position"], list(one.details["tokens"])] = one.details["weights"]
    np.testing.assert_allclose(
        weights, stands - foil_stands, atol=2e-4
    )  # faint frames are left out
    total = sum(one(SimpleNamespace(logits=logits)).item() for one in found)
    assert total + entropy - foil_entropy == pytest.approx(own - other, abs=2e-3)
    assert objective(SimpleNamespace(logits=logits)).item() == pytest.approx(own - other)


def test_other_numbers_are_logits_of_their_tokens():
    logits = torch.randn(1, 4, 6, dtype=torch.float64)
    output = SimpleNamespace(logits=logits)
    model = text_models.bert()
    (contrast,) = split_into_logits(token_objective("contrast", model, 2, 1, 5), model, logits)
    assert contrast(output).item() == pytest.approx((logits[0, 2, 1] - logits[0, 2, 5]).item())
    (likely,) = split_into_logits(token_objective("log_probability", model, 2, 1), model, logits)
    assert likely(output).item() == pytest.approx(logits[0, 2, 1].item())
    spelled = Objective(
        lambda output: output.logits[:, 0, 0],
        Span(0, 2),
        {"kind": "log_probability", "positions": [1, 2], "tokens": [3, 4]},
    )
    total = sum(one(output) for one in split_into_logits(spelled, model, logits))
    assert total.item() == pytest.approx((logits[0, 1, 3] + logits[0, 2, 4]).item())


def test_a_number_that_reads_no_logits_is_refused():
    nothing = Objective(
        lambda output: 0 * output.logits.sum(dim=(1, 2)), Span(0, 1), {"kind": "given"}
    )
    with pytest.raises(InputError, match="no logit makes a difference"):
        split_into_logits(nothing, None, torch.randn(1, 3, 4))


def test_relevances_of_the_parts_are_those_of_their_sum():
    """LRP's way back is linear in where it starts: one pass from the whole sum says the same as one
    from each frame."""
    model, clip = (
        trained("tiny-french-ctc"),
        next(clip for clip in bundled.clips() if len(clip.words) >= 4),
    )
    decision = Decision.prepare(model, clip)
    logits = decision.read_output(decision.prepared.inputs, lambda output: output.logits.double())
    parts = split_into_logits(decision.objective, model, logits)
    assert len(parts) > 1
    whole = Objective(
        lambda output: sum(one(output) for one in parts), parts[0].span, parts[0].details
    )
    at_once = speechmix.logit_contributions(
        model, clip, objective=whole, measure="lrp", dtype="float64"
    )
    one_by_one = speechmix.logit_contributions(
        model, clip, objective=parts, measure="lrp", dtype="float64"
    )
    summed = sum(of_one.total("encoder") for of_one in one_by_one)
    np.testing.assert_allclose(summed, at_once.total("encoder"), atol=1e-8)
    assert np.abs(summed).max() > 0.1
