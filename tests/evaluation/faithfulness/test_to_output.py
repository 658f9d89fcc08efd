"""Measures that go from the input to the output, on trial: against explain, and against
interventions written out by hand."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
import torch
import transformers

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.faithfulness.leaderboard import is_measure_row
from speechmix.extensions.faithfulness.options import resolve_measures
from speechmix.extensions.faithfulness.output_scores import has_same_removal, output_scores
from speechmix.extensions.faithfulness.word_scores import source_words
from speechmix.inputs import bundled
from speechmix.interventions.decision import Decision
from tests.conftest import trained

TO_THE_OUTPUT = "to the output"
CTC, WHISPER = "tiny-french-ctc", "tiny-french-whisper"


@functools.cache
def clips():
    """Four clips of four words, two pairs."""
    return tuple(clip for clip in bundled.clips() if len(clip.words) >= 4)[:4]


@functools.cache
def clip_with_words_written_before():
    """Its target is the third word that is written."""
    return next(clip for clip in bundled.clips() if len(clip.words) >= 4 and clip.target == 2)


def by_stack(decision: Decision, measure: str) -> dict[str, np.ndarray]:
    return {vector.stack: vector.scores for vector in output_scores(decision, measure)}


@pytest.mark.parametrize(
    "measure",
    [
        "lrp",
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in ("gradient_input", "chefer", "alti_logit")
        ),
    ],
)
def test_rows_are_what_explain_claims_of_the_target_against_its_foil(measure):
    model, clip = trained(WHISPER), clip_with_words_written_before()
    why = speechmix.explain(
        model, clip, text=clip.text, measures=measure, against="foil", top=0, by="token"
    )
    row, choice = next(
        (row, choice) for row, choice in enumerate(why.choices) if choice.against == "foil"
    )
    decision = Decision.prepare(model, clip)
    asked = decision.objective.details
    assert (choice.contrast.position, choice.contrast.id) == (asked["position"], asked["token"])
    found = by_stack(decision, measure)
    assert set(found) == {"composed", "decoder"}
    for stack, side in (("composed", "sound"), ("decoder", "written")):
        attribution = {
            source.source.positions: value
            for source, value in zip(
                why.sources, why.attributions[measure].values[row], strict=True
            )
            if source.side == side
        }
        words = source_words(decision, stack)
        if side == "sound":
            expected = [attribution[word.positions] for word in words]
        else:  # explain counts the space before a word to the word, judges leave it where it is
            expected = [
                sum(attribution[position,] for position in word.positions) for word in words
            ]
        np.testing.assert_allclose(
            found[stack], expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max()
        )
        assert len(expected) == {"composed": 3, "decoder": 2}[stack]


@pytest.fixture(scope="module")
def margins_by_hand():
    """Margin of a clip with the sound of every set of words put to zero, each read of a clip of its
    own."""
    model, clip = trained(CTC), clips()[0]
    found = {}
    for count in range(len(clip.words) + 1):
        for taken in itertools.combinations(range(len(clip.words)), count):
            audio = clip.audio(16_000).copy()
            for word in taken:
                start, stop = (
                    round(time * 16_000) for time in (clip.words[word].start, clip.words[word].end)
                )
                audio[start:stop] = 0
            silenced = speechmix.Clip.from_array(
                audio, 16_000, text=clip.text, words=clip.words, target=clip.target, foil=clip.foil
            )
            found[frozenset(taken)] = Decision.prepare(model, silenced).margin
    return found


def test_occlusion_is_what_each_word_takes_away_by_hand(margins_by_hand):
    decision = Decision.prepare(trained(CTC), clips()[0])
    (vector,) = output_scores(decision, "occlusion")
    assert (vector.stack, vector.measure) == ("encoder", "occlusion (zeros)")
    words = [word.index for word in source_words(decision, "encoder")]
    expected = [margins_by_hand[frozenset()] - margins_by_hand[frozenset({word})] for word in words]
    np.testing.assert_allclose(vector.scores, expected, atol=1e-3)


def test_shapley_is_the_mean_over_all_orders_by_hand(margins_by_hand):
    decision = Decision.prepare(trained(CTC), clips()[0])
    (vector,) = output_scores(decision, "shapley (zeros)")
    players = range(len(clips()[0].words))
    values = np.zeros(len(players))
    orders = list(itertools.permutations(players))
    for order in orders:
        for place, word in enumerate(order):
            without = margins_by_hand[
                frozenset(order[place:])
            ]  # words come one after the other, in this order
            values[word] += margins_by_hand[frozenset(order[place + 1 :])] - without
    words = [word.index for word in source_words(decision, "encoder")]
    np.testing.assert_allclose(vector.scores, values[words] / len(orders), atol=1e-3)


def test_what_takes_words_away_as_the_judge_does_is_the_oracle_and_on_no_trial():
    asked = {
        "perturbations": ["mute (zeros)", "mute (noise)"],
        "metrics": ["spearman"],
        "aggregations": [TO_THE_OUTPUT],
    }
    trial = speechmix.faithfulness(
        trained(CTC), clips()[:2], measures=["occlusion", "gradient_input"], **asked
    )
    own, other = (
        trial.leaderboard(perturbation=perturbation).set_index("measure")
        for perturbation in trial.perturbations
    )
    assert own.loc["occlusion (zeros)", "value"] == own.loc["oracle", "value"] == 1
    assert np.isnan(own.loc["occlusion (zeros)", "p"])
    assert not own.loc["occlusion (zeros)", "better"]
    assert own.loc["occlusion (zeros)", "note"] == ""
    assert other.loc["occlusion (zeros)", "note"] == "too few groups"
    assert other.loc["occlusion (zeros)", "value"] < 1
    assert is_measure_row(own.reset_index(), "mute (zeros)").sum() == 1
    assert "removes words as they do: occlusion (zeros)." in trial.sentence(
        perturbation="mute (zeros)"
    )
    assert "removes words as they do" not in trial.sentence(perturbation="mute (noise)")


def test_whose_removal_is_the_judges():
    assert has_same_removal("shapley (zeros)", "mute")
    assert has_same_removal("occlusion (unk)", "blank (mask, unk)")
    assert not has_same_removal("occlusion (mask)", "blank (unk)")
    assert not has_same_removal("occlusion (mask)", "mute")
    assert not has_same_removal("occlusion (zeros)", "patch")
    assert not has_same_removal("lrp", "mute")


def test_what_is_not_defined_is_a_note_and_the_trial_goes_on():
    asked = {
        "perturbations": ["mute (zeros)"],
        "metrics": ["top_1"],
        "aggregations": [TO_THE_OUTPUT],
    }
    trial = speechmix.faithfulness(
        trained(WHISPER), clips()[:2], measures=["decompx", "lrp"], **asked
    )
    notes = trial.left_out[trial.left_out["what"] == "decompx"]
    assert notes["reason"].str.contains("has a decoder").tolist() == [True, True]
    assert set(trial.values["measure"]) >= {"lrp", "oracle"}
    assert "decompx" not in set(trial.values["measure"])


def test_all_are_those_whose_parts_add_up_where_they_are_defined():
    found = {name: set(resolve_measures(trained(name), "all")) for name in (CTC, WHISPER)}
    assert {"alti_logit", "decompx", "lrp"} <= found[CTC]
    assert {"alti_logit", "lrp", "value_zeroing_share"} <= found[WHISPER]
    assert not {"decompx", "occlusion", "shapley"} & found[WHISPER]


@pytest.mark.parametrize("name", ["occlusion (silk)", "shapley (zeros, noise)", "occlude"])
def test_a_misspelt_name_is_refused(name):
    with pytest.raises(InputError, match=name.split()[0]):
        resolve_measures(trained(CTC), [name])


def test_the_composed_row_of_what_was_written_is_that_of_the_whole_map():
    model, clip = trained(WHISPER), clip_with_words_written_before()
    decision = Decision.prepare(model, clip)
    trial = speechmix.faithfulness(
        model,
        [clip],
        measures="value_zeroing",
        perturbations="blank (unk)",
        metrics=["spearman"],
        min_words=2,
        aggregations=["composed", "rollout"],
    )
    values = trial.values.set_index(["measure", "stack", "aggregation"])["value"]
    whole = speechmix.mix(model, clip, measures="value_zeroing").composed("value_zeroing")
    row = whole.scores[-1, decision.read_positions[0]]
    fed = row[
        len(whole.sources) - len(whole.targets) :
    ]  # the decoder's own tokens, those of its prefix first
    words = [
        sum(fed[position] for position in word.positions)
        for word in source_words(decision, "decoder")
    ]
    drops = trial.drops[trial.drops["perturbation"] == "blank (unk)"]["drop"].to_numpy()[
        : len(words)
    ]
    expected = np.sign(words[0] - words[1]) * np.sign(drops[0] - drops[1])  # Spearman of two
    assert values["value_zeroing", "decoder", "composed"] == pytest.approx(expected)


PLANTED = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "yes",
    "no",
    "the",
    "cat",
    "sat",
    "on",
    "mats",
    "clue",
]


@functools.cache
def planted():
    """A BERT that fills in "yes" if "clue" was said, else "no" as likely; no other word plays a
    part.

    All words have one state but the clue, which has two channels of its own; attention is even, its
    values are those two channels, and only they tell "yes" from "no".
    """
    shape = {
        "hidden_size": 6,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 6,
    }
    config = transformers.BertConfig(vocab_size=len(PLANTED), tie_word_embeddings=False, **shape)
    module = transformers.BertForMaskedLM(config).eval().double()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.fill_(float("LayerNorm.weight" in name))
        module.bert.embeddings.word_embeddings.weight[:] = torch.tensor([2.0, -2, 1, -1, 0, 0])
        module.bert.embeddings.word_embeddings.weight[PLANTED.index("clue")] = torch.tensor(
            [2.0, -2, 0, 0, 1, -1]
        )
        attention = module.bert.encoder.layer[0].attention
        attention.self.value.weight[4:, 4:] = torch.eye(2)
        attention.output.dense.weight[4:, 4:] = 3 * torch.eye(2)
        module.cls.predictions.transform.dense.weight[:] = torch.eye(6)
        module.cls.predictions.decoder.weight[PLANTED.index("yes"), 4] = 5
        module.cls.predictions.decoder.weight[PLANTED.index("no"), 4] = -5
    tokenizer = transformers.BertTokenizer(
        vocab={word: index for index, word in enumerate(PLANTED)}
    )
    return speechmix.load(module, processor=tokenizer, check=False)


def sentences():
    """The clue at each place, the target at the others."""
    for target, place in itertools.permutations(range(5), 2):
        words = ["the", "cat", "sat", "on", "mats"]
        words[target], words[place] = "yes", "clue"
        yield speechmix.Sentence(
            " ".join(words), target=target, foil="no", name=f"{target} {place}"
        )


def test_where_one_word_alone_counts_all_name_it_and_random_orders_do_not():
    measures = ["gradient_input", "chefer", "lrp", "decompx", "occlusion", "shapley"]
    trial = speechmix.faithfulness(
        planted(),
        sentences(),
        measures=measures,
        perturbations="blank (unk)",
        metrics=["top_1"],
        aggregations=[TO_THE_OUTPUT],
    )
    assert trial.left_out.empty
    table = trial.to_dataframe().set_index("measure")
    for measure in (*measures[:4], "occlusion (mask)", "shapley (mask)", "oracle"):
        assert table.loc[measure, "value"] == 1, measure
        assert table.loc[measure, "clips"] == 20
    assert table.loc["random", "value"] == pytest.approx(
        1 / 4, abs=0.06
    )  # 400 orders of four words
    assert table.loc["length", "value"] == pytest.approx(1 / 4)


def test_tokens_that_are_deleted_in_the_order_of_a_measure_to_the_output():
    (sentence, *_) = sentences()
    found = speechmix.deletion_curves(
        planted(), [sentence], measures=["lrp", "shapley"], bins=None, fill="unk"
    )
    values = found.to_dataframe()[found.to_dataframe()["metric"] == "comprehensiveness"].set_index(
        "measure"
    )["value"]
    assert values["lrp"] == values["shapley (mask)"] == values["oracle"] > values["random"] > 0
    assert set(found.to_dataframe()["aggregation"]) == {TO_THE_OUTPUT, ""}
