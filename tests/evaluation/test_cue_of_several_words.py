"""A cue of two words (determiner and noun for the verb) from the maps to the page: summed, and
taken away together."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb

import speechmix
from speechmix import Sentence
from speechmix.errors import InputError
from speechmix.evaluation.boundary_sensitivity import VARIANTS, move_word_boundaries
from speechmix.evaluation.cue_contribution import length_matched_share
from speechmix.extensions.agreement.cue_alignment import cue_alignment
from speechmix.inputs import bundled
from speechmix.inputs.words.spans import Span
from speechmix.interventions.decision import Decision
from speechmix.interventions.value_knock_out import ablate_with_control, control_words
from speechmix.mixing.maps.mixing_map import MixingMap
from speechmix.reporting.pages.clip_card import clip_card
from speechmix.reporting.plots import figure_style
from speechmix.reporting.plots.clip_overview import clip_figure
from speechmix.runs.results.open_run import open_run
from speechmix.runs.results.stored_maps import read_clip_maps, read_stored_clip
from speechmix.runs.score_clips import score_clips
from tests import oracle
from tests.conftest import trained
from tests.models.text_models import bert

UNITS = tuple(
    Span(i * i, (i + 1) ** 2, f"w{i}", word=i) for i in range(5)
)  # of 1, 3, 5, 7, 9 frames


def of_scores(scores, **options):
    return MixingMap(
        np.asarray(scores, float), UNITS, UNITS, "value_zeroing", "encoder", (0,), **options
    )


@pytest.fixture(scope="module")
def clip():
    """SYNTHETIC: des ballons brillent; the verb is the target, its determiner and noun the cue."""
    (found, *_) = (one for one in bundled.clips() if one.text == "des ballons brillent")
    return found.replace(cue="des ballons", target="brillent", foil="brille")


@given(st.sets(st.integers(0, 3), min_size=1), st.integers(0, 99))
def test_the_contribution_is_the_sum_over_the_cue_s_words(cue, seed):
    scores = np.random.default_rng(seed).uniform(size=(1, 5, 5))
    share = sum(scores[0, 4, j] for j in cue) / scores[0, 4].sum()
    found = speechmix.cue_contribution(of_scores(scores), cue=tuple(cue), target=4)
    np.testing.assert_allclose(found, [share], atol=1e-12)
    expected = sum((2 * j + 1) ** 2 for j in cue) / sum((2 * j + 1) ** 2 for j in range(5))
    assert length_matched_share(of_scores(scores), cue=tuple(cue)) == pytest.approx(expected)
    assert cue_alignment(of_scores(scores), cue=tuple(cue), target=4).dot_product[
        0
    ] == pytest.approx(share)


def test_a_word_of_the_cue_that_has_no_unit_is_named():
    with pytest.raises(InputError, match=r"word 7 \(cue\) is not among the sources"):
        speechmix.cue_contribution(of_scores(np.ones((1, 5, 5))), cue=(0, 7), target=4)
    with pytest.raises(InputError, match="cue is not given"):
        speechmix.cue_contribution(of_scores(np.ones((1, 5, 5))), cue=(), target=4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_moving_the_edges_moves_every_word_and_keeps_them_in_order(clip, variant):
    moved = move_word_boundaries(clip, variant)
    assert (moved.cue, moved.target) == ((0, 1), 2)
    times = [time for word in moved.words for time in (word.start, word.end)]
    assert times == sorted(times)
    if variant == "later":
        assert [word.start for word in moved.words] == pytest.approx(
            [word.start + 0.02 for word in clip.words]
        )


@pytest.mark.parametrize("name", ["tiny-french-ctc", "tiny-french-whisper"])
def test_ablation_takes_all_its_words_away_together(name, clip):
    model, decision = trained(name), Decision.prepare(trained(name), clip)
    table = speechmix.ablate(model, clip).set_index("ablated")
    joint = speechmix.knock_out(model, clip, window="all", words=[clip.cue])
    for stack in model.stacks:
        positions = [
            place for source in decision.select_sources(stack, [0, 1]) for place in source.positions
        ]
        modules = [
            oracle.attention_module(layer, stack) for layer in oracle.layers_of(model.module, stack)
        ]
        with oracle.zeroed_values_of_all(modules, positions):
            margin = decision.input_margin(decision.prepared.inputs)
        assert table.margin[stack] == pytest.approx(margin, abs=1e-4)
        assert joint.words(stack) == ["des ballons"]
        assert joint.scores(stack)[0, 0] == pytest.approx(decision.margin - margin, abs=1e-4)
    assert set(ablate_with_control(model, clip).source) == {
        "",
        "cue",
    }  # no two other words: no control


def test_a_word_belongs_to_one_group(clip):
    with pytest.raises(InputError, match=r"expected each word once.*\[\(0, 1\), 1\]"):
        speechmix.knock_out(trained("tiny-french-ctc"), clip, words=[(0, 1), 1])


def test_control_words_are_as_many_and_none_of_the_cue():
    sentence = Sentence("le club et Alexander se quittent vite", cue="le club", target="quittent")
    assert [sentence.words[i].text for i in control_words(sentence)] == ["et", "vite"]
    assert control_words(sentence.replace(cue="le club et")) == (3, 4, 6)
    assert control_words(sentence.replace(cue="le club et Alexander")) == ()
    assert control_words(sentence.replace(cue=None)) == ()


def test_silence_and_blank_take_both_words(clip):
    silent = speechmix.mute(clip)
    for index, word in enumerate(clip.words):
        sound = silent.audio()[round(word.start * 16_000) : round(word.end * 16_000)]
        assert (np.abs(sound).max() == 0) == (index in clip.cue)
    assert silent.cue == clip.cue
    sentence = Sentence("the cats are here", cue="the cats", target="are", foil="is")
    whole, left = (
        speechmix.mix(bert(), one, units="token") for one in (sentence, sentence.replace(cue=None))
    )
    assert whole["value_zeroing", "encoder"].provenance["cue"] == [0, 1]
    assert left["value_zeroing", "encoder"].provenance["cue"] is None
    ids = speechmix.blank(bert(), sentence, fill="remove")["input_ids"]
    expected = speechmix.blank(bert(), sentence, (0, 1), fill="remove")["input_ids"]
    full = speechmix.blank(bert(), sentence, 3, fill="remove")["input_ids"]
    assert ids.tolist() == expected.tolist()
    assert ids.shape[1] == full.shape[1] - 1
    with pytest.raises(InputError, match="expected the index of a word"):
        speechmix.blank(bert(), sentence, (0, 9))


def test_inputs_and_patches_go_together_too(clip):
    model = trained("tiny-french-ctc")
    both = speechmix.ablate_input(model, clip, sides=["sound"], fills=["zeros"], words=[clip.cue])
    silenced = Decision.prepare(model, speechmix.mute(clip))
    assert both.table.margin.tolist() == pytest.approx([silenced.margin], abs=1e-4)
    other = next(one for one in bundled.clips() if one.text == "les plantes restent").replace(
        target=2, foil="reste"
    )
    patched = speechmix.patch(model, clip, other, what="values", window="all", words=[clip.cue, 2])
    assert patched.words("encoder") == ["des ballons", "brillent"]
    same = speechmix.patch(model, clip, clip, what="input", words=[clip.cue])
    np.testing.assert_allclose(same.table["drop"], 0, atol=1e-3)


def test_the_trial_of_measures_counts_both_words_as_the_cue():
    sentence = Sentence("the very cats are here today", cue="the cats", target="are", foil="is")
    options = {
        "measures": ["attention"],
        "metrics": ["average_precision"],
        "perturbations": ["knock-out"],
    }
    table = speechmix.faithfulness(bert(), [sentence], **options).to_dataframe()
    of_chance = table[(table.perturbation == "cue") & (table.measure == "random")]
    single = speechmix.faithfulness(
        bert(), [sentence.replace(cue="cats")], **options
    ).to_dataframe()
    single = single[(single.perturbation == "cue") & (single.measure == "random")]
    assert (
        of_chance.value.iloc[0] > single.value.iloc[0]
    )  # two of five found by chance are more than one of five


def test_from_the_scores_to_the_page(clip, tmp_path):
    model = trained("tiny-french-whisper")
    twin = speechmix.load(bundled.models()["tiny-french-whisper"], init="random", seed=0)
    run = score_clips(
        [model, twin], [clip], tmp_path / "run", measures=["attention"], figures=False
    )
    table = pd.read_parquet(tmp_path / "run" / "cue_contribution.parquet")
    assert set(table.cue) == {"des ballons"}
    maps = speechmix.mix(model, clip, measures=["attention"])
    for stack in model.stacks:
        rows = table[
            (table["init"] == "trained") & (table["stack"] == stack) & (table.rows == "target")
        ].sort_values("layer")
        singly = sum(
            speechmix.cue_contribution(maps["attention", stack], cue=i, target=2) for i in (0, 1)
        )
        np.testing.assert_allclose(rows.contribution, singly, atol=1e-6)
    stored = read_clip_maps(open_run(run.out), clip.name)
    again = read_stored_clip(open_run(run.out), clip.name, stored)
    assert (again.cue, again.fingerprint) == (clip.cue, clip.fingerprint)
    card = clip_card(
        clip.name,
        None,
        stored,
        heading="",
        summary="",
        start={},
        seconds=clip.duration,
        max_bytes=10**6,
    )
    assert [word["role"] for word in card.words] == ["cue", "cue", "target"]
    assert card.data["cue"] == [0, 1]  # what the page's script reads


def test_another_cue_is_another_question_of_a_run(clip, tmp_path):
    """Its cue was an index; asked about two words now, the run's maps and tables say so."""
    options = {"measures": ["attention"], "figures": 0, "progress": False}
    for asked, cue in ((clip.replace(cue=0), 0), (clip, [0, 1])):
        run = score_clips([trained("tiny-french-ctc")], [asked], tmp_path / "run", **options)
        (maps,) = read_clip_maps(open_run(run.out), clip.name).values()
        assert maps["attention", "encoder"].provenance["cue"] == cue
        assert set(run.contributions["cue"]) == {"des" if cue == 0 else "des ballons"}


def test_figures_frame_the_cells_of_both_words(clip):
    maps = speechmix.mix(trained("tiny-french-whisper"), clip, measures=["attention"])
    figure = clip_figure(clip, maps, layers=[0])
    frames = [
        (patch.get_x(), patch.get_y(), patch.get_width(), patch.get_height())
        for ax in figure.axes
        for patch in ax.patches
        if patch.get_edgecolor()[:3] == to_rgb(figure_style.CELL_COLOR)
    ]
    assert (0, 2, 2, 1) in frames  # the encoder: one line around both


def test_a_cue_may_be_named_as_a_clip_takes_it():
    sounds = tuple(
        Span(i, i + 1, label, word=word)
        for i, (label, word) in enumerate(
            [("les", 0), ("clubs", 1), ("et", 2), ("les", 3), ("li", 4), ("vres", 4)]
        )
    )
    scores = np.random.default_rng(0).uniform(size=(2, 6, 6))
    one = MixingMap(scores, sounds, sounds, "alti", "encoder", (0, 1))
    for named, indices in (
        ("clubs", 1),
        ("les:2", 3),
        (["les:2", "clubs"], (1, 3)),
        ("les clubs", (0, 1)),
    ):
        found = speechmix.cue_contribution(one, cue=named, target="livres")
        np.testing.assert_array_equal(found, speechmix.cue_contribution(one, cue=indices, target=4))
    with pytest.raises(InputError, match=r"cue 'les' occurs 2 times"):
        speechmix.cue_contribution(one, cue="les", target="livres")
    with pytest.raises(InputError, match=r"words of this encoder map.*nos"):
        speechmix.cue_contribution(one, cue="nos", target="livres")
