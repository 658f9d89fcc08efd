"""Probes of each word, phone or frame: the same fits as by hand, for numbers and for labels."""

from __future__ import annotations

import functools
import json

import numpy as np
import pandas as pd
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.probing.value_fits import assign_group_folds
from speechmix.inputs import bundled
from speechmix.interfaces.cli import main
from tests.conftest import trained
from tests.evaluation.probing.test_ridge import oracle
from tests.models import text_models

CLIPS = bundled.clips()[:16]


@functools.cache
def durations():
    """Durations of words, read off trained states and those of a twin."""
    model = trained("tiny-french-ctc")
    twin = functools.partial(speechmix.load, "bundled:tiny-french-ctc", init="random", seed=0)
    return speechmix.probe(
        [model, twin], CLIPS, label="duration", level="word", method="ridge", shuffles=19
    )


def test_a_number_of_each_word_is_read_as_by_hand():
    probes = durations()
    found = speechmix.unit_states(trained("tiny-french-ctc"), CLIPS)["encoder"]
    values = (found.units["end"] - found.units["start"]).to_numpy()
    by_name = {clip.name: clip.audio_hash for clip in CLIPS}
    groups = found.units["group"].to_numpy(str)
    fold = assign_group_folds(groups, [by_name[name] for name in found.units["clip"]])
    table = probes.to_dataframe()
    assert list(table["layer"]) == 2 * [-1, 0, 1, 2, 3]
    assert set(table["position"]) == {"word"}
    for layer in (-1, 3):
        predicted = oracle(found.values[:, layer + 1].astype(float), values, fold)
        mean = np.array([values[fold != index].mean() for index in fold])
        expected = 1 - ((values - predicted) ** 2).sum() / ((values - mean) ** 2).sum()
        row = table[(table["init"] == "trained") & (table["layer"] == layer)].iloc[0]
        assert row["r2"] == pytest.approx(expected, abs=1e-8)
        assert row["n"] == len(values)
        assert row["groups"] == len(set(groups))
    assert probes.answers["item"][0] == "left_00_sg[0]"
    assert len(probes.answers) == 10 * len(values)
    columns = ["r2", "low", "high", "r", "by_position", "control", "gain_over_baseline", "p"]
    assert list(table.columns[10:18]) == columns


def test_what_a_word_is_called_its_clip_and_a_function_are_labels_too():
    model = trained("tiny-french-ctc")
    options = {"level": "word", "controls": 0, "group": "pair"}
    first = speechmix.probe(model, CLIPS, label=lambda row: str(row.index == 0), **options)
    assert first.to_dataframe()["accuracy"].max() > 0.9
    assert set(first.to_dataframe()["groups"]) == {8}
    sides = speechmix.probe(model, CLIPS, label="side", **options)
    assert set(sides.answers["true"]) == {"left", "right"}
    by_side = speechmix.probe(model, CLIPS, label="number", by="side", **options)
    assert set(by_side.to_dataframe()["part"]) == {"left", "right"}
    table = pd.DataFrame({"clip": [clip.name for clip in CLIPS], "index": 0, "size": range(16)})
    sizes = speechmix.probe(model, CLIPS, label="size", table=table, method="ridge", **options)
    assert set(sizes.to_dataframe()["n"]) == {16}
    reasons = sizes.left_out["reason"].value_counts()
    assert reasons.index.tolist() == ["has no label 'size'"]
    assert reasons.sum() == sum(len(clip.words) - 1 for clip in CLIPS)


def test_frames_and_phones_have_values_too():
    model = trained("tiny-french-ctc")
    options = {"method": "ridge", "shuffles": 19, "controls": 1}
    frames = speechmix.probe(model, CLIPS[:6], label="intensity", level="frame", **options)
    table = frames.to_dataframe()
    assert table["r2"].max() > 0.5  # how loud it is can be heard
    assert set(table["stack"]) == {"encoder"}
    halves = [
        clip.with_words(
            None,
            tiers={
                "phone": [
                    (text, *edges)
                    for word in clip.words
                    for text, edges in zip(
                        ("a", "i"),
                        (
                            (word.start, (word.start + word.end) / 2),
                            ((word.start + word.end) / 2, word.end),
                        ),
                        strict=True,
                    )
                ]
            },
        )
        for clip in CLIPS
    ]
    phones = speechmix.probe(model, halves, label="label", level="phone", controls=1)
    assert set(phones.answers["true"]) == {"a", "i"}
    assert phones.to_dataframe()["n"].iloc[0] == 2 * sum(len(clip.words) for clip in CLIPS)


def test_options_that_do_not_go_together_are_refused():
    model = text_models.bert()
    sentences = [speechmix.Sentence(f"the {noun} is here") for noun in ("cat", "cats")]
    with pytest.raises(InputError, match="leave out position= and protocol="):
        speechmix.probe(model, sentences, level="word", position="cue")
    with pytest.raises(InputError, match="no word has a value of 'duration'"):
        speechmix.probe(model, sentences, level="word", label="duration", method="ridge")
    with pytest.raises(InputError, match="there is no feature 'tempo'"):
        speechmix.probe(model, sentences, level="word", label="tempo")
    with pytest.raises(InputError, match="level should be one of"):
        speechmix.probe(model, sentences, level="token", label="letters")


def test_frames_of_two_lengths_are_not_probed_together():
    models = [trained("tiny-french-ctc"), trained("tiny-french-whisper")]
    options = {"label": "intensity", "level": "frame", "method": "ridge", "shuffles": 2}
    with pytest.raises(InputError, match="have frames of different length"):
        speechmix.probe(models, CLIPS[:6], controls=0, **options)


def test_the_command_reads_values_from_a_file(tmp_path, capsys):
    values = tmp_path / "values.csv"
    rows = [f"{clip.name},{index},{index + 0.5}" for clip in CLIPS for index in (0, 1)]
    values.write_text("\n".join(["clip,word,size", *rows]), encoding="utf-8")
    out = tmp_path / "out"
    source, manifest = bundled.manifest_path("bundled:clips"), tmp_path / "clips.jsonl"
    rows = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines()[:20]]
    rows = [json.dumps({**row, "path": str(source.parent / row["path"])}) for row in rows]
    manifest.write_text("\n".join(rows), encoding="utf-8")
    arguments = ["probe", str(manifest), "--allow-outside", "--model", "bundled:tiny-french-ctc"]
    arguments += ["--level", "word"]
    arguments += ["--label", "size", "--method", "ridge", "--table", str(values), "--out", str(out)]
    assert main(arguments) == 0
    told = capsys.readouterr().out
    assert "by_position" in told
    assert (out / "probes_size.png").is_file()
    table = speechmix.files.text_files.read_csv(out / "value_probes.csv")
    assert set(table["method"]) == {"ridge"}
    assert set(table["n"].astype(int)) == {32}
