"""A measure of each scope and reference perturbations, registered from outside, work where the
package's own do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.faithfulness.faithfulness_runs import faithfulness_of_clips
from speechmix.extensions.faithfulness.perturbations import PERTURBATIONS, forget_perturbation
from speechmix.extensions.faithfulness.state_perturbation import state_shifts
from speechmix.extensions.planted.recovery import measure_recovery as planted_trial
from speechmix.inputs import bundled
from speechmix.interfaces.cli import main
from speechmix.interventions.decision import Decision
from speechmix.interventions.removals import Removal
from speechmix.interventions.runner import run_interventions
from speechmix.mixing.measures.measure_functions import OUTPUT_MEASURES, forget_measure

OUTSIDE = {"description": "of a test", "citation": "tests/test_registered_from_outside.py"}
AVERAGED = {**OUTSIDE, "no_heads": ": heads are averaged"}
SCOPES = {
    "layer": "value_length",
    "model": "state_length",
    "logit": "position_shares",
    "removal": "banzhaf",
}


def register_all(power=1.0):
    """A measure of each scope, and a reference perturbation of each kind."""

    @speechmix.register_measure("value_length", residual="out", **AVERAGED)
    def value_length(block, units, *, order=2.0, kind="values"):
        lengths = getattr(block, kind).norm(order, dim=-1).mean(dim=0)  # [K]
        return units.pool_targets(units.pool_sources(lengths.expand(len(units.rows), -1)))

    @speechmix.register_measure(
        "state_length", scope="model", objective=True, word_from_frames="mean", **AVERAGED
    )
    def state_length(gradient_pass, stack, units, *, factor=1):
        rows = [
            factor * gradient.norm(dim=-1)[None]
            for _, gradient in gradient_pass.states_and_gradients(stack)
        ]
        return torch.stack([units.pool_sources(row) for row in rows]), {}

    @speechmix.register_measure("position_shares", scope="logit", check=only_encoders, **AVERAGED)
    def position_shares(run, objectives, *, rest=0.0):
        with torch.no_grad():
            output = run.model.module(**run.inputs)
            logits = [float(objective.function(output)) for objective in objectives]
        weights = np.arange(1.0, 1 + len(run.sources("encoder")))
        weights /= weights.sum()
        return [
            {
                "scores": {"encoder": (logit - rest) * weights[None]},
                "direct": {},
                "layer_parts": {},
                "single_parts": {"rest": rest},
                "logit": logit,
            }
            for logit in logits
        ]

    @speechmix.register_measure("banzhaf", scope="removal", **AVERAGED)
    def banzhaf(count, margins, *, halved=False):
        sets = (np.arange(2**count)[:, None] >> np.arange(count)) % 2 == 1
        of_set = margins(sets)
        values = np.stack(
            [
                of_set[sets[:, i]].mean(axis=0) - of_set[~sets[:, i]].mean(axis=0)
                for i in range(count)
            ]
        )
        return values / 2 if halved else values

    @speechmix.register_perturbation(
        "quieter", description="the sound of a word at a tenth of its level", side="sound"
    )
    def quieter(decision, pair):
        words = [source.index for source in decision.sources["encoder"]]
        quiet = [(Removal("sound", (word,), 0.1),) for word in words]
        margins = run_interventions(decision, quiet)
        return {
            word: power * (decision.margin - margin)
            for word, margin in zip(words, margins, strict=True)
        }

    @speechmix.register_perturbation(
        "moved", description="states without a word's sound", reads="states"
    )
    def moved(model, item, stack):
        return [state_shifts(model, item, fill="zeros", layers=[len(model.stacks[stack]) - 1])], []


def only_encoders(model):
    if "decoder" in model.stacks:
        raise InputError(f"position_shares: {model.name} has a decoder")


@pytest.fixture(autouse=True)
def _registered():
    register_all()
    yield
    for name in SCOPES.values():
        forget_measure(name)
    for name in ("quieter", "moved"):
        forget_perturbation(name)
    assert "quieter" not in PERTURBATIONS
    assert "banzhaf" not in OUTPUT_MEASURES


@pytest.fixture(scope="module")
def model():
    return speechmix.load(bundled.models()["tiny-french-ctc"])


@pytest.fixture(scope="module")
def clips():
    return [clip for clip in bundled.clips() if len(clip.words) >= 4][:2]


def test_mix_computes_maps_and_names_who_computes_the_others(model, clips):
    maps = speechmix.mix(
        model, clips[0], measures=["value_length", "state_length"], objective="contrast"
    )
    assert {name for name, _ in maps} == {"value_length", "state_length"}
    with pytest.raises(InputError, match=r"speechmix\.logit_contributions"):
        speechmix.mix(model, clips[0], measures="position_shares")
    with pytest.raises(InputError, match=r"speechmix\.explain"):
        speechmix.mix(model, clips[0], measures="banzhaf")


def test_logit_contributions_has_the_measure_with_its_own_option(model, clips):
    whole = speechmix.logit_contributions(
        model, clips[0], measure="position_shares", objective=(3, 4)
    )
    less = speechmix.logit_contributions(
        model, clips[0], measure="position_shares", objective=(3, 4), rest=0.5
    )
    assert whole.logit == pytest.approx(less.logit)
    np.testing.assert_allclose(
        whole.total("encoder").sum() - less.total("encoder").sum(), 0.5, rtol=1e-5
    )
    assert less.provenance["rest"] == 0.5
    with pytest.raises(InputError, match="position_shares has no option reference; it has rest"):
        speechmix.logit_contributions(
            model, clips[0], measure="position_shares", objective=(3, 4), reference=True
        )


WITH_OPTIONS = {
    "layer": "value_length:order=1,kind=values",
    "model": "state_length:factor=3",
    "logit": "position_shares:rest=0.5",
    "removal": "banzhaf:halved=true",
}


def test_mix_has_measures_with_their_own_options(model, clips):
    names = ["value_length", WITH_OPTIONS["layer"], "state_length", WITH_OPTIONS["model"]]
    maps = speechmix.mix(model, clips[0], measures=names, objective="contrast")
    assert [name for name, _ in maps] == names
    scores = {name: found.scores for (name, _), found in maps.items()}
    np.testing.assert_allclose(scores[WITH_OPTIONS["model"]], 3 * scores["state_length"], rtol=1e-5)
    assert (scores[WITH_OPTIONS["layer"]] > scores["value_length"]).all()
    alti = speechmix.mix(model, clips[0], measures=["alti:order=2", "alti_l2"])
    np.testing.assert_array_equal(*(found.scores for found in alti.values()))


def test_contributions_name_the_option_as_it_was_given(model, clips):
    by_name, by_keyword = (
        speechmix.logit_contributions(model, clips[0], measure=name, objective=(3, 4), **options)
        for name, options in ((WITH_OPTIONS["logit"], {}), ("position_shares", {"rest": 0.5}))
    )
    np.testing.assert_array_equal(by_name.total("encoder"), by_keyword.total("encoder"))
    assert by_name.provenance["rest"] == 0.5
    assert by_name.measure == WITH_OPTIONS["logit"]


def test_explain_and_faithfulness_have_measures_with_their_own_options(model, clips):
    both = [*SCOPES.values(), *WITH_OPTIONS.values()]
    attributions = speechmix.explain(
        model, clips[0], measures=both, top=0, sound_fill="zeros"
    ).attributions
    halved, whole = attributions[WITH_OPTIONS["removal"]].values, attributions["banzhaf"].values
    np.testing.assert_allclose(halved, whole / 2)
    assert set(attributions) == set(both)
    trial = speechmix.faithfulness(
        model, clips[:1], measures=both, perturbations=["quieter"], min_words=2
    )
    names = set(trial.values["measure"])
    assert names >= {*both[:3], *both[4:7], "banzhaf (zeros)", "banzhaf:halved=true (zeros)"}


def test_a_run_and_the_command_line_take_options_behind_the_name(model, clips, tmp_path):
    folder, manifest = Path(bundled.__file__).parent / "clips", tmp_path / "manifest.jsonl"
    row = json.loads((folder / "manifest.jsonl").read_text().splitlines()[0])
    manifest.write_text(json.dumps({**row, "path": str(folder / row["path"])}))
    arguments = ["score", "--clips", str(manifest), "--allow-outside", "--model"]
    arguments += [str(bundled.models()["tiny-french-ctc"]), "--out", str(tmp_path / "run")]
    for name in (WITH_OPTIONS["layer"], "value_length"):
        arguments += ["--measure", name]
    assert main(arguments) == 0
    run = speechmix.open_run(tmp_path / "run")
    assert set(run.contributions["measure"]) == {WITH_OPTIONS["layer"], "value_length"}
    assert main([*arguments[:-1], "value_length:orders=1", "--overwrite"]) != 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("value_length:power=1", "value_length has no option power; it has order, kind"),
        ("value_length:order=high", "order should be of type float, as its default 2.0 is"),
        ("value_length:", "no option without a name"),
        ("state_length:factor=0.5", "should be of type int"),
        ("attention:power=1", "attention has no option power; it has none"),
        ("value_lengths:order=1", "unknown measure"),
    ],
)
def test_a_wrong_option_behind_a_name_is_an_error(model, clips, name, message):
    with pytest.raises(InputError, match=message):
        speechmix.mix(model, clips[0], measures=name)


def test_contributions_that_do_not_add_up_are_an_error(model, clips):
    @speechmix.register_measure(
        "position_shares", scope="logit", mismatch="it is wrong by design", **AVERAGED
    )
    def wrong(run, objectives):
        scores = {"encoder": np.ones((1, len(run.sources("encoder"))))}
        return [
            {"scores": scores, "direct": {}, "layer_parts": {}, "single_parts": {}, "logit": -5.0}
        ]

    with pytest.raises(speechmix.SpeechmixError, match="wrong by design"):
        speechmix.logit_contributions(model, clips[0], measure="position_shares", objective=(3, 4))


def test_a_model_that_the_measure_is_not_defined_for_is_refused(clips):
    whisper = speechmix.load(bundled.models()["tiny-french-whisper"])
    with pytest.raises(InputError, match=r"position_shares: .* has a decoder"):
        speechmix.logit_contributions(
            whisper, clips[0], measure="position_shares", objective="logit"
        )


def test_explain_has_a_claim_of_each_scope(model, clips):
    why = speechmix.explain(
        model, clips[0], measures=[*SCOPES.values(), "shapley"], top=0, sound_fill="zeros"
    )
    assert {name: attribution.of for name, attribution in why.attributions.items()} == {
        "value_length": "share",
        "state_length": "size",
        "position_shares": "logit",
        "banzhaf": "log-probability",
        "shapley": "log-probability",
    }
    assert why.attributions["banzhaf"].errors is None
    assert why.attributions["shapley"].errors is not None
    assert why.attributions["state_length"].by_frame is not None
    for attribution in why.attributions.values():
        assert np.isfinite(attribution.values).any()


def test_faithfulness_compares_all_scopes_with_a_custom_reference(model, clips):
    trial = speechmix.faithfulness(
        model,
        clips[:1],
        measures=list(SCOPES.values()),
        perturbations=["quieter", "moved"],
        min_words=2,
    )
    rows = trial.values.groupby("perturbation")["measure"].agg(set)
    assert rows["quieter"] >= {
        "value_length",
        "state_length",
        "position_shares",
        "banzhaf (zeros)",
        "oracle",
        "random",
    }
    assert "value_length" in rows["moved"]
    decision = Decision.prepare(model, clips[0])
    expected = decision.margin - run_interventions(decision, [(Removal("sound", (0,), 0.1),)])[0]
    drops = trial.drops[
        (trial.drops["item"] == clips[0].name) & (trial.drops["perturbation"] == "quieter")
    ]
    assert drops.set_index("word")["drop"].get(0, expected) == pytest.approx(expected, abs=1e-4)


def test_all_includes_custom_measures_but_no_removals_and_no_custom_reference_by_default(
    model, clips
):
    trial = speechmix.faithfulness(model, clips[:1], measures="all", metrics=["top_1"], min_words=2)
    names = set(trial.values["measure"])
    assert {"value_length", "state_length", "position_shares"} <= names
    assert "banzhaf (zeros)" not in names
    assert "quieter" not in trial.perturbations


def test_a_stored_evaluation_is_computed_again_when_custom_code_changes(model, clips, tmp_path):
    options = {
        "measures": ["value_length"],
        "perturbations": ["quieter"],
        "metrics": ["spearman"],
        "min_words": 2,
    }
    first = faithfulness_of_clips(model, clips, tmp_path, **options)
    again = faithfulness_of_clips(model, clips, tmp_path, **options)
    np.testing.assert_array_equal(first.drops["drop"], again.drops["drop"])
    register_all(power=2.0)
    edited = faithfulness_of_clips(model, clips, tmp_path, **options)
    np.testing.assert_allclose(edited.drops["drop"], 2 * first.drops["drop"])


def test_planted_models_are_tried_with_custom_measures():
    table = planted_trial(
        measures=["value_length", "state_length", "position_shares"],
        cases=["copy"],
        families=["bert"],
        seeds=[0],
    )
    assert {"value_length", "state_length"} <= set(table["measure"])
    with pytest.raises(InputError, match="banzhaf removes words"):
        planted_trial(measures=["banzhaf"], cases=["copy"], families=["bert"], seeds=[0])


@pytest.mark.parametrize(
    ("facts", "function", "message"),
    [
        ({"name": "mute"}, lambda decision, pair: {}, "a name of its own"),
        ({"fill": "zeros"}, lambda decision, pair: {}, "no fact fill"),
        ({"side": ""}, lambda decision, pair: {}, "say which words it changes"),
        ({"reads": "maps"}, lambda decision, pair: {}, "reads 'decision' or 'states'"),
        ({}, lambda decision, pair, *, gain=1.0: {}, "no caller has the option gain"),
    ],
)
def test_what_cannot_be_a_reference_perturbation_is_refused(facts, function, message):
    facts = {"name": "mine", "description": "what", "side": "sound", **facts}
    with pytest.raises(InputError, match=message):
        speechmix.register_perturbation(**facts)(function)
    assert "mine" not in PERTURBATIONS


def test_a_custom_reference_without_fills_has_none_in_its_name(model, clips):
    with pytest.raises(InputError, match="found 'quieter"):
        speechmix.faithfulness(model, clips, perturbations="quieter (zeros)")


def test_help_of_the_command_line_names_every_reference_perturbation(capsys):
    with pytest.raises(SystemExit):
        main(["faithfulness", "--help"])
    said = capsys.readouterr().out
    assert all(name in said for name, one in PERTURBATIONS.items() if one.is_builtin)
