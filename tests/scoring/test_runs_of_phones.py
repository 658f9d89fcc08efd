"""A run with units="phone": phones are aligned, stored, found again, and come back with the clip."""

import pandas as pd
import pytest

import speechmix
from speechmix.inputs import bundled
from speechmix.inputs.formats.textgrid import read_textgrid
from speechmix.inputs.words.timed_words import Word
from speechmix.runs.results.stored_maps import read_stored_clip
from speechmix.runs.score_clips import score_clips


@pytest.fixture(scope="module")
def model():
    return speechmix.load("bundled:tiny-french-ctc")


@pytest.fixture(scope="module")
def clips():
    pytest.importorskip("espeakng_loader")
    roles = {"cue": "phone:o", "target": "phone:z", "foil": None}
    return [bundled.clips()[1].replace(language="fr", **roles)]


def stored_clip(folder, name):
    run = speechmix.open_run(folder)
    return read_stored_clip(run, name, run.maps(name))


def test_phones_of_a_run(model, clips, tmp_path):
    run = score_clips([model], clips, tmp_path, units="phone", figures=0, report=lambda line: None)
    assert run.done == 1
    (clip,) = clips
    labels = [
        word.text
        for word in read_textgrid(tmp_path / "words" / f"{clip.name}.TextGrid", tier="phones")
    ]
    assert labels == ["n", "o", "m", "ɛ", "z", "ɔ̃"]
    table = pd.read_parquet(tmp_path / "cue_contribution.parquet")
    assert set(table["measure"]) == {"value_zeroing"}
    assert len(table) == len(model.stacks["encoder"])
    facts = pd.read_csv(tmp_path / "clips.csv")
    assert (facts["cue"].tolist(), facts["target"].tolist()) == (["o"], ["z"])
    back = stored_clip(tmp_path, clip.name)
    assert [phone.text for phone in back.tiers["phone"]] == labels
    assert back.unit_roles["cue"].request == "phone:o:1"
    assert back.words == clip.words
    lines = []
    score_clips([model], clips, tmp_path, units="phone", figures=0, report=lines.append)
    assert not any("peaks" in line for line in lines)  # nothing is computed again


def test_phones_that_a_clip_has_are_used(model, clips, tmp_path):
    (clip,) = clips
    first, second = clip.words
    phones = [("o", first.start, first.end), ("z", second.start, second.end)]
    own = clip.replace(tiers={"phone": phones})
    run = score_clips([model], [own], tmp_path, units="phone", figures=0, report=lambda line: None)
    assert run.done == 1
    assert not (tmp_path / "words" / f"{clip.name}.TextGrid").exists()
    assert len(stored_clip(tmp_path, clip.name).tiers["phone"]) == 2


def test_maps_without_the_phones_have_no_share_and_say_so(model, clips, tmp_path):
    phones = [Word("o", word.start, word.end) for word in clips[0].words]
    tiers = {"phone": phones, "syllable": clips[0].words}
    clip = clips[0].replace(tiers=tiers, cue="phone:o:1", target="phone:o:2")
    for units, words in (("syllable", clip.words), ("word", clip.words), ("phone", None)):
        lines = []
        folder, item = tmp_path / units, clip.replace(words=words, tiers=tiers)
        run = score_clips([model], [item], folder, units=units, figures=0, report=lines.append)
        assert run.done == 1
        assert (folder / "cue_contribution.parquet").is_file() == (units == "phone")
        assert any("score with units 'phone'" in line for line in lines) == (units != "phone")
