"""probe() where the answer is known: a planted edge, clips whose members differ in the cue alone,
labels of one's own."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
import pytest

import speechmix
from speechmix.adapters.capture.forward_pass import hidden_states
from speechmix.errors import InputError
from speechmix.extensions.planted.case_table import CUE, OTHER, TARGET
from speechmix.extensions.planted.hand_set_models import FAMILIES
from speechmix.extensions.planted.planting import plant
from speechmix.extensions.probing.fits import ProbeSettings, fit_probes
from speechmix.extensions.probing.probe import Probes
from speechmix.extensions.probing.scores import ANSWERS_FILE, FILE
from speechmix.extensions.probing.task import ProbeTask
from speechmix.files.text_files import read_csv
from speechmix.inputs import bundled
from tests.conftest import trained
from tests.models import text_models

ITEMS = 32


def planted_probes(case: str, layer: int, position: int) -> pd.Series:
    """Accuracy by layer of reading the cue's content off a position of a planted GPT-2, over random
    contents."""
    planted = plant(case, family="gpt2", layer=layer)
    contents = np.random.default_rng(0).choice([-1, 1], size=(ITEMS, 8))
    contents[:, 0] = 0
    states = [
        {
            ("decoder", "target"): np.stack(
                hidden_states(
                    planted.model,
                    FAMILIES["gpt2"].prepare({"decoder": row}),
                    lambda _, h: h[0, position].numpy(),
                )["decoder"]
            )
        }
        for row in contents.tolist()
    ]
    names = tuple(map(str, range(ITEMS)))
    own, parts = np.array(names), np.array(["all"] * ITEMS)
    task = ProbeTask(
        "content", (None,) * ITEMS, names, contents[:, CUE].astype(str), own, own, parts, ""
    )
    rows, _, _ = fit_probes(states, task, ProbeSettings(controls=1))
    return pd.DataFrame(rows).set_index("layer").accuracy


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_planted_cue_is_read_off_the_target_from_its_layer_on(layer):
    accuracy = planted_probes("copy", layer, TARGET)
    assert (accuracy[accuracy.index >= layer] == 1).all()
    assert (
        accuracy[accuracy.index < layer] < 0.85
    ).all()  # a little of everybody's content is overheard
    assert accuracy[-1] < 0.7


def test_a_relayed_cue_is_read_off_the_third_token_first():
    target, third = (planted_probes("relay", 1, position) for position in (TARGET, OTHER))
    assert target[2] == third[1] == third[2] == 1
    assert target[1] < 0.85
    assert third[0] < 0.85


def pairs_of(side: str, count: int) -> list[speechmix.Clip]:
    clips = [
        clip
        for clip in bundled.clips()
        if clip.meta["side"] == side and clip.meta["control"] == "no"
    ]
    return clips[: 2 * count]


@functools.cache
def probes_of_left_cues():
    """Trained and untrained, number read off the decoder's states of eight pairs."""
    folder = bundled.models()["tiny-french-whisper"]
    twin = functools.partial(speechmix.load, folder, init="random", seed=0, device="cpu")
    models = [trained("tiny-french-whisper"), twin]
    return speechmix.probe(models, pairs_of("left", 7), position=["target", "deciding"], controls=2)


def by_layer(probes, init, stack, position) -> pd.DataFrame:
    keys = ["init", "stack", "position", "layer"]
    return probes.to_dataframe().set_index(keys).sort_index().loc[init, stack, position]


def test_what_no_sound_tells_yet_is_at_chance_in_the_encoders_input():
    probes = speechmix.probe(
        trained("tiny-french-whisper"), pairs_of("right", 5), stacks="encoder", controls=0
    )
    row = by_layer(probes, "trained", "encoder", "target").loc[-1]
    assert (
        row.accuracy == row.majority == 0.5
    )  # where the target is, the members of a pair are one sound


def test_number_is_read_where_it_must_be_and_the_control_is_at_chance():
    probes = probes_of_left_cues()
    deciding = by_layer(probes, "trained", "decoder", "deciding")
    assert (
        deciding.loc[0:, "accuracy"] >= 0.9
    ).all()  # the cue's letters are in the decoder's input
    assert 0.3 < deciding.control.mean() < 0.7
    assert deciding.loc[0:, "gain_over_baseline"].mean() > 0.25
    untrained = by_layer(probes, "random", "decoder", "deciding")
    assert untrained.loc[0:, "accuracy"].mean() < deciding.loc[0:, "accuracy"].mean()
    # The published protocol, mean over the rows of the target: a plural has a row more, which tells
    # its number untrained.
    assert by_layer(probes, "random", "decoder", "target").accuracy.max() >= 0.85


def test_the_table_is_tidy_and_says_what_was_left_out():
    probes = probes_of_left_cues()
    table = probes.to_dataframe()
    assert list(table["layer"][:4]) == [-1, 0, 1, 2]
    assert list(table["depth"][:4]) == [-0.5, 0, 0.5, 1]
    assert set(table.n) == {14}
    assert table.groups.between(4, 7).all()
    assert set(table.label) == {"number"}
    assert set(probes.answers.item) <= {clip.name for clip in bundled.clips()}
    right = probes.answers.groupby(["init", "stack", "position", "layer"], sort=False).right.mean()
    assert np.allclose(right, table.accuracy)
    assert set(probes.left_out.reason) == {"an encoder has no deciding position"}
    assert "encoder target" in repr(probes)
    assert probes.ties == "the pair or the target word"


@pytest.mark.long
def test_tables_of_several_models_and_labels_lie_in_one_file(tmp_path):
    probes = probes_of_left_cues()
    probes.write(tmp_path)
    again = probes.write(tmp_path)
    assert len(read_csv(again)) == len(probes.to_dataframe())
    other = Probes(
        probes.to_dataframe().assign(label="voice"),
        probes.answers.assign(label="voice"),
        probes.left_out,
    )
    other.write(tmp_path)
    assert len(read_csv(tmp_path / FILE)) == 2 * len(probes.to_dataframe())
    assert len(read_csv(tmp_path / ANSWERS_FILE)) == 2 * len(probes.answers)
    (tmp_path / FILE).write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(InputError, match="another table"):
        probes.write(tmp_path)


NOUNS = ("cat", "cats")


def sentences() -> list[speechmix.Sentence]:
    """Subject and verb in all ways to fill the words between: the verb is masked."""
    fillers = ["", "very ", "here ", "play ", "is ", "are ", "here very ", "very here "]
    return [
        speechmix.Sentence(
            f"the {noun} {filler}<mask> .",
            cue=noun,
            target="<mask>",
            meta={"filler": filler or "none"},
        )
        for filler in fillers
        for noun in NOUNS
    ]


def number(sentence: speechmix.Sentence) -> str:
    return "pl" if "cats" in sentence.text else "sg"


@pytest.mark.long
def test_texts_with_a_label_by_function_and_groups_by_column():
    model = text_models.bert()
    probes = speechmix.probe(
        model, sentences(), label=number, position=["cue", "target", "between"], group="filler"
    )
    table = probes.to_dataframe().set_index(["position", "layer"])
    assert set(table.label) == {"number"}
    assert set(table.groups["cue"]) == {8}
    assert set(table.groups["between"]) == {7}
    assert (table.accuracy["cue"] >= 0.9).all()
    assert table.accuracy["target", -1] == 0.5  # the mask is the same in both
    assert probes.left_out.value_counts("reason").to_dict() == {
        "no word lies between cue and target": 2
    }


def test_the_online_code_is_told_in_bits_beside_its_control():
    probes = speechmix.probe(
        text_models.bert(),
        sentences(),
        label=number,
        position="cue",
        method="online_code",
        controls=1,
        group="filler",
    )
    scores = ["bits", "compression", "low", "high", "frequencies", "control", "gain_over_baseline"]
    assert list(probes.to_dataframe().columns[10:17]) == scores
    baseline = probes.to_dataframe()[["frequencies", "control"]].max(axis=1)
    assert np.allclose(
        probes.to_dataframe().gain_over_baseline, probes.to_dataframe().compression - baseline
    )
    assert (probes.to_dataframe().compression > 1).all()
    assert np.allclose(probes.to_dataframe().bits * probes.to_dataframe().compression, 16)
    assert probes.to_dataframe().low.le(probes.to_dataframe().compression).all()
    assert probes.to_dataframe().high.ge(probes.to_dataframe().compression).all()
    assert np.allclose(probes.answers.groupby("layer").bits.sum(), probes.to_dataframe().bits)


def test_the_published_protocol_by_name():
    probes = speechmix.probe(
        text_models.bert(),
        sentences(),
        label=number,
        position="cue",
        protocol="published",
        controls=0,
    )
    told = {
        name: probes.provenance[name] for name in ("solver", "scale", "folds", "seed", "grouped")
    }
    assert told == {"solver": "liblinear", "scale": False, "folds": 3, "seed": 12, "grouped": False}


def test_items_that_cannot_be_probed_are_recorded_and_the_rest_goes_on():
    strangers = [
        speechmix.Sentence("nothing here", meta={"number": "sg"}),
        speechmix.Sentence("the cat", target="cat"),
    ]
    items = [
        sentence.replace(meta={**sentence.meta, "number": number(sentence)})
        for sentence in sentences()
    ]
    probes = speechmix.probe(
        text_models.bert(), [*items, *strangers], position="target", controls=0
    )
    reasons = probes.left_out.set_index("item").reason.to_dict()
    assert reasons == {
        "nothing here": "the target is not given",
        "the cat": "has no label 'number'",
    }
    assert set(probes.to_dataframe().n) == {16}
    clip = bundled.clips()[0]
    mixed = speechmix.probe(text_models.bert(), [*items, clip], position="target", controls=0)
    assert "takes a text" in mixed.left_out.set_index("item").reason[clip.name]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "gender"}, "no item has a label 'gender'; columns are filler"),
        ({"label": number, "group": "pair"}, "no item has a column 'pair'"),
        ({"label": number, "protocol": "secret"}, "protocol"),
        ({"label": number, "position": "subject"}, "position"),
        ({"label": number, "method": "tree"}, "method"),
    ],
)
def test_options_that_there_are_not(options, message):
    with pytest.raises(InputError, match=message):
        speechmix.probe(text_models.bert(), sentences(), **options)
    with pytest.raises(InputError, match="clips or sentences"):
        speechmix.probe(text_models.bert(), [{"input_ids": [[1]]}])
    with pytest.raises(InputError, match="found none"):
        speechmix.probe(text_models.bert(), [])
