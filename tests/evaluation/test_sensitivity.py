"""Moved word boundaries: where they go, and whether a conclusion that hangs on them is found
out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from speechmix.errors import InputError
from speechmix.evaluation.boundary_sensitivity import (
    VARIANTS,
    boundary_sensitivity,
    move_word_boundaries,
    summarize_stability,
)
from speechmix.inputs.clips.clip import Clip


def clip(words, **options):
    return Clip.from_array(
        np.zeros(16_000), 16_000, words=words, **{"cue": 1, "target": 2, **options}
    )


def times(found):
    return [(round(word.start, 4), round(word.end, 4)) for word in found.words]


ADJACENT = [("a", 0.1, 0.3), ("les", 0.3, 0.4), ("livres", 0.4, 0.8), ("b", 0.85, 0.9)]


@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        ("as aligned", [(0.1, 0.3), (0.3, 0.4), (0.4, 0.8), (0.85, 0.9)]),
        ("earlier", [(0.1, 0.28), (0.28, 0.38), (0.38, 0.78), (0.85, 0.9)]),
        ("later", [(0.1, 0.3), (0.32, 0.42), (0.42, 0.82), (0.85, 0.9)]),
        ("wider", [(0.1, 0.28), (0.28, 0.4), (0.4, 0.82), (0.85, 0.9)]),
        ("narrower", [(0.1, 0.3), (0.32, 0.38), (0.42, 0.78), (0.85, 0.9)]),
    ],
)
def test_edges_of_cue_and_target_move_and_neighbours_give_way(variant, expected):
    moved = move_word_boundaries(clip(ADJACENT), variant)
    assert times(moved) == expected
    assert (moved.cue, moved.target) == (1, 2)
    moved.validate()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("order", [(1, 2), (2, 1), (0, 3)])
def test_whatever_the_words_they_stay_in_order_and_in_the_clip(variant, order):
    words = [("a", 0.0, 0.01), ("b", 0.01, 0.02), ("c", 0.02, 0.99), ("d", 0.99, 1.0)]
    moved = move_word_boundaries(clip(words, cue=order[0], target=order[1]), variant)
    moved.validate()
    assert all(word.end >= word.start for word in moved.words)
    by_label = {word.text: word for word in moved.words}  # without words that others cover
    labels = [words[index][0] for index in order]
    assert all(by_label[label].end > by_label[label].start for label in labels)
    assert [moved.words[index].text for index in (moved.cue, moved.target)] == labels


def test_a_clip_without_a_question_cannot_be_moved():
    with pytest.raises(InputError, match="needs words with times"):
        move_word_boundaries(clip(ADJACENT, cue=None), "wider")
    with pytest.raises(InputError, match="variant"):
        move_word_boundaries(clip(ADJACENT), "louder")


def table(gain, *, pairs=12, twins=2):
    """Trained - random of `gain[variant]` in layer 1 of 3, random 20 everywhere; in %."""
    rng, rows = np.random.default_rng(0), []
    for variant in VARIANTS:
        for pair in range(pairs):
            for layer in range(3):
                drawn = rng.normal(20, 1, 1 + twins)
                rows.append(
                    (
                        f"p{pair}",
                        "trained",
                        None,
                        variant,
                        layer,
                        drawn[0] + (layer == 1) * gain[variant],
                    )
                )
                rows += [
                    (f"p{pair}", "random", seed, variant, layer, drawn[1 + seed])
                    for seed in range(twins)
                ]
    columns = ["clip", "init", "seed", "boundaries", "layer", "contribution"]
    return pd.DataFrame(rows, columns=columns).astype({"seed": "Int64"}).assign(stack="encoder")


def test_a_conclusion_that_holds_and_one_that_does_not():
    steady = boundary_sensitivity(table(dict.fromkeys(VARIANTS, 30)), by=["stack"])
    assert steady.boundaries.tolist() == list(VARIANTS)
    np.testing.assert_allclose(steady.difference, 10, atol=1)  # over three layers
    verdict = summarize_stability(steady, by=["stack"]).iloc[0]
    assert verdict.holds
    assert verdict.same_layer
    fragile = boundary_sensitivity(
        table({**dict.fromkeys(VARIANTS, 30), "narrower": -20}), by=["stack"]
    )
    verdict = summarize_stability(fragile, by=["stack"]).iloc[0]
    assert not verdict.holds
    assert not verdict.same_layer
    assert verdict.smallest == pytest.approx(-20 / 3, abs=1)


@pytest.mark.parametrize("few", [{"pairs": 7}, {"twins": 1}])
def test_without_an_interval_nothing_is_said_of_the_conclusion(few):
    assert summarize_stability(
        boundary_sensitivity(table(dict.fromkeys(VARIANTS, 30), **few), by=["stack"]), by=["stack"]
    ).empty
