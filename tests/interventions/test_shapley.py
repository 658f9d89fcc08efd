"""Shapley values: the definition's four properties, all orders tried by hand, and single words as
input ablation has them."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
import torch
import transformers

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.occlusion.input_ablation import build_word_removals
from speechmix.extensions.occlusion.shapley import (
    exact_interactions,
    exact_shapley,
    sampled_interactions,
    sampled_shapley,
)
from speechmix.inputs.bundled import clips, models
from speechmix.interventions.decision import Decision
from speechmix.interventions.removals import change_inputs
from tests.conftest import trained
from tests.models.shared_models import shared
from tests.models.text_models import bert

PLAYERS = 5


@pytest.fixture
def game():
    """A random margin for each set."""
    of_set = np.random.default_rng(3).normal(size=2**PLAYERS)
    return lambda sets: of_set[sets @ (1 << np.arange(PLAYERS))]


def over_all_orders(players, margins):
    """The definition's other form: the mean of what a player adds, over all n! orders."""
    added = np.zeros(players)
    orders = list(permutations(range(players)))
    for order in orders:
        present = np.zeros(players, dtype=bool)
        for player in order:
            before = margins(present[None])[0]
            present[player] = True
            added[player] += margins(present[None])[0] - before
    return added / len(orders)


def in_double_precision(name):
    return shared(
        (name, "float64"), lambda: speechmix.load(models()[name], device="cpu", dtype="float64")
    )


def test_exact_values_are_the_mean_over_all_orders(game):
    values = exact_shapley(PLAYERS, game)
    np.testing.assert_allclose(values, over_all_orders(PLAYERS, game), rtol=0, atol=1e-13)
    assert values.sum() == pytest.approx(
        game(np.ones((1, PLAYERS), bool))[0] - game(np.zeros((1, PLAYERS), bool))[0]
    )


def test_equal_players_get_equal_shares_idle_ones_nothing_and_games_add_up(game):
    values = exact_shapley(4, lambda sets: 3.0 * (sets[:, 0] & sets[:, 2]))  # both or nothing
    np.testing.assert_allclose(values, [1.5, 0, 1.5, 0], atol=1e-14)
    either = exact_shapley(3, lambda sets: 1.0 * (sets[:, 0] | sets[:, 1]))
    np.testing.assert_allclose(either, [0.5, 0.5, 0], atol=1e-14)
    both = exact_shapley(PLAYERS, lambda sets: game(sets) + sets[:, 1])
    np.testing.assert_allclose(both - exact_shapley(PLAYERS, game), np.eye(PLAYERS)[1], atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_sampled_values_add_up_and_lie_within_their_errors(game, seed):
    exact = exact_shapley(PLAYERS, game)
    values, errors = sampled_shapley(PLAYERS, game, samples=200, seed=seed)
    assert values.sum() == pytest.approx(exact.sum(), abs=1e-12)
    assert (np.abs(values - exact) < 4.5 * errors).all()
    assert (errors > 0).all()
    np.testing.assert_array_equal(values, sampled_shapley(PLAYERS, game, samples=200, seed=seed)[0])


def test_errors_are_as_large_as_values_scatter(game):
    draws = [sampled_shapley(PLAYERS, game, samples=20, seed=seed) for seed in range(60)]
    scatter = np.std([values for values, _ in draws], axis=0, ddof=1)
    np.testing.assert_allclose(np.mean([errors for _, errors in draws], axis=0), scatter, rtol=0.35)


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("tiny-french-ctc", "sound"),
        ("tiny-french-whisper", "text"),
        ("tiny-french-whisper", "sound"),
    ],
)
def test_of_a_clip_every_set_is_run_as_it_would_be_alone(name, side):
    model, clip = in_double_precision(name), clips()[0]
    drops = speechmix.shapley(model, clip, side=side)
    decision = Decision.prepare(model, clip)
    fill, players = drops.provenance["fill"], drops.table["word"].tolist()

    def alone(sets):
        margins = []
        for row in sets:
            taken = [word for word, there in zip(players, row, strict=True) if not there]
            removals = build_word_removals(decision, taken, side=side, fill=fill)
            changed = change_inputs(model, clip, decision.prepared.inputs, removals)
            margins.append(decision.input_margin(*changed))
        return np.array(margins)

    np.testing.assert_allclose(
        drops.table["drop"], over_all_orders(len(players), alone), rtol=0, atol=1e-9
    )
    assert drops.margin - drops.provenance["nothing"] == pytest.approx(
        drops.table["drop"].sum(), abs=1e-9
    )
    assert drops.provenance["sets"] == 2 ** len(players)
    assert drops.table["margin"].isna().all()
    assert drops.table["flipped"].isna().all()
    assert not drops.table["error"].any()


def test_the_value_of_one_word_alone_is_its_drop_when_it_is_taken_away():
    model, clip = in_double_precision("tiny-french-ctc"), clips()[0]
    (mine,) = speechmix.shapley(model, clip, words=[clip.cue]).table["drop"]
    need = speechmix.ablate_input(model, clip, words=[clip.cue], sides=["sound"], fills=["zeros"])
    assert mine == pytest.approx(need.table["drop"].item(), abs=1e-9)


def test_of_a_text_more_words_than_can_be_tried_are_sampled():
    model = bert()
    sentence = speechmix.Sentence("the keys to the cabinet are here", target="are", foil="is")
    exact = speechmix.shapley(model, sentence, words=[0, 1, 2, 4])
    sampled = speechmix.shapley(model, sentence, words=[0, 1, 2, 4], samples=30, seed=1)
    assert sampled.table["drop"].sum() == pytest.approx(exact.table["drop"].sum(), abs=1e-9)
    assert (
        np.abs(sampled.table["drop"] - exact.table["drop"]) <= 5 * sampled.table["error"] + 1e-9
    ).all()
    assert exact.rows("input") == ["shapley (mask)"]
    assert exact.scores("input").shape == (1, 4)


def test_a_word_that_holds_the_place_where_the_margin_is_read_cannot_be_removed():
    model, sentence = bert(), speechmix.Sentence("the keys are here", target="are", foil="is")
    decision = Decision.prepare(model, sentence)
    (reading,) = [
        source.label
        for source in decision.sources["encoder"]
        if {*source.positions} & {*decision.read_positions}
    ]
    assert reading in speechmix.shapley(model, sentence, fill="unk").words("input")
    assert reading not in speechmix.shapley(model, sentence, fill="remove").words("input")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"side": "taste"}, r"sides are \['sound'\], found 'taste'"),
        ({"fill": "mask"}, "of sound fills are"),
        ({"samples": 1}, "at least 2, found 1"),
        ({"words": []}, "there is no word to take away"),
    ],
)
def test_what_cannot_be_asked_is_said(options, said):
    with pytest.raises(InputError, match=said):
        speechmix.shapley(trained("tiny-french-ctc"), clips()[0], **options)


def test_the_encoder_runs_once_for_all_texts(monkeypatch):
    model, clip = trained("tiny-french-whisper"), clips()[0]
    calls, encoder = [], model.module.get_encoder()
    forward = encoder.forward
    monkeypatch.setattr(
        encoder,
        "forward",
        lambda *inputs, **options: calls.append(1) or forward(*inputs, **options),
    )
    speechmix.shapley(model, clip, side="text")
    assert len(calls) <= 2  # one for the decision, one that all share
    assert torch.is_grad_enabled()


class TestPairs:
    def test_exact_interactions_are_the_mean_over_all_orders_in_which_two_follow_each_other(
        self, game
    ):
        expected = np.zeros((PLAYERS, PLAYERS))
        met = np.zeros((PLAYERS, PLAYERS))
        for order in permutations(range(PLAYERS)):
            for place in range(PLAYERS - 1):
                front = np.isin(np.arange(PLAYERS), order[:place])
                i, j = order[place : place + 2]
                sets = np.stack([front] * 4)
                sets[0, [i, j]] = sets[1, i] = sets[2, j] = True
                expected[i, j] += game(sets) @ [1, -1, -1, 1]
                met[i, j] += 1
        found = exact_interactions(PLAYERS, game)
        off = ~np.eye(PLAYERS, dtype=bool)
        np.testing.assert_allclose(
            found[off], (expected / np.maximum(met, 1))[off], rtol=0, atol=1e-12
        )
        assert np.isnan(np.diag(found)).all()

    @pytest.mark.parametrize("seed", range(3))
    def test_sampled_interactions_lie_within_their_errors(self, game, seed):
        found, errors = sampled_interactions(PLAYERS, game, samples=200, seed=seed)
        off = ~np.eye(PLAYERS, dtype=bool)
        assert (np.abs(found - exact_interactions(PLAYERS, game))[off] < 4.5 * errors[off]).all()
        assert (errors[off] > 0).all()

    def test_in_an_exclusive_or_values_cancel_and_the_pair_does_not(self):
        model = xor_model()
        text = "yes so yes so"  # exclusive or of the first word and the third
        with pytest.warns(
            UserWarning,
            match=r"'yes \(1\)' and 'yes \(2\)' interact by \+\d+\.\d nats, and no Shapley value",
        ):
            values = speechmix.shapley(model, text, fill="mask")
        table = values.table
        assert (
            table["drop"].abs() < 0.2 * table["alone"].max()
        ).all()  # the values show next to nothing
        assert (table["alone"] > 5).tolist() == [
            True,
            False,
            True,
            False,
        ]  # each alone turns the answer round
        first = values.pairs.iloc[0]
        assert (first["word"], first["other_word"]) == (0, 2)
        assert first["interaction"] > 8
        assert (values.pairs["interaction"][1:].abs() < 0.1 * first["interaction"]).all()
        assert "interact by" in repr(values)

    def test_pairs_and_single_removals_cost_no_run_where_all_sets_are_tried(self):
        values = speechmix.shapley(
            bert(), speechmix.Sentence("the keys are here", target="are", foil="is")
        )
        assert values.provenance["sets"] == 2 ** len(values.table)
        need = speechmix.ablate_input(
            bert(), speechmix.Sentence("the keys are here", target="are", foil="is"), fills=["mask"]
        )
        np.testing.assert_allclose(values.table["alone"], need.table["drop"], atol=1e-9)

    def test_of_drawn_orders_pairs_are_drawn_when_wanted(self):
        model, sentence = (
            bert(),
            speechmix.Sentence("the keys to the cabinet are here", target="are", foil="is"),
        )
        options = {"words": [0, 1, 2, 4], "samples": 30, "seed": 1}
        assert speechmix.shapley(model, sentence, **options).pairs is None
        drawn = speechmix.shapley(model, sentence, **options, pairs=True).pairs
        exact = speechmix.shapley(model, sentence, words=[0, 1, 2, 4]).pairs
        both = drawn.merge(exact, on=["word", "other_word"])
        assert len(both) == 6
        assert (
            np.abs(both["interaction_x"] - both["interaction_y"]) <= 5 * both["error_x"] + 1e-9
        ).all()


def xor_model():
    """A classifier trained until it says whether exactly one of the first and the third word is
    "yes"; a mask is a no."""

    def trained_model():
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "yes", "no", "so"]
        config = transformers.BertConfig(
            vocab_size=len(words),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=8,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        texts = list(product((4, 5, 6), (4, 7), (4, 5, 6), (4, 7)))
        inputs = torch.tensor([(2, *text, 3) for text in texts])
        labels = torch.tensor([(text[0] == 5) != (text[2] == 5) for text in texts]).long()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = transformers.BertForSequenceClassification(config).double()
            optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)
            for _ in range(150):
                optimizer.zero_grad()
                module(input_ids=inputs, labels=labels).loss.backward()
                optimizer.step()
        tokenizer = transformers.BertTokenizer(vocab={word: i for i, word in enumerate(words)})
        return speechmix.load(module.eval(), processor=tokenizer)

    return shared("xor", trained_model)
