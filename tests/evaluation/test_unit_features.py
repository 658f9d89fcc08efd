"""Features of units: known sounds have the pitch, formants and intensity that were put in."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.encoding.unit_features import UNIT_FEATURES, unit_features
from speechmix.inputs.words.phone_labels import articulatory_features

RATE = 16_000
WORDS = [("da", 0.1, 0.5), ("mi", 0.5, 1.0), ("so", 1.2, 1.5)]
PITCHES = (110.0, 220.0, 0.0)


def make_clip(name="clip", **details):
    """Pulses of a known pitch in two words, through one resonance at 1000 Hz; noise in the third."""
    from scipy.signal import lfilter

    generator = np.random.default_rng(0)
    sound = np.zeros(RATE * 3 // 2)
    for (_, start, end), pitch in zip(WORDS, PITCHES, strict=True):
        times = np.arange(round(start * RATE), round(end * RATE))
        sound[times] = np.diff(np.floor(times * pitch / RATE), prepend=0) != 0
    radius, angle = np.exp(-np.pi * 80 / RATE), 2 * np.pi * 1000 / RATE
    sound = lfilter([1], [1, -2 * radius * np.cos(angle), radius**2], sound)
    sound[times] += 0.3 * generator.standard_normal(len(times))  # the last word is noise alone
    return speechmix.Clip.from_array(
        (sound / np.abs(sound).max()).astype(np.float32), RATE, name=name, words=WORDS, **details
    )


def unit_table(clip, tier=None):
    units = clip.words if tier is None else clip.tiers[tier]
    count = range(len(units))
    return pd.DataFrame(
        {
            "clip": clip.name,
            "group": clip.name,
            "index": count,
            "word": pd.array(count, dtype="Int64"),
            "label": [unit.text for unit in units],
            "start": [unit.start for unit in units],
            "end": [unit.end for unit in units],
        }
    )


@pytest.mark.long
def test_pitch_is_that_of_the_pulses_and_missing_in_noise():
    clip = make_clip()
    pitch = unit_features(unit_table(clip), [clip], ["pitch"])["pitch"]
    assert pitch[0] == pytest.approx(110, rel=0.02)
    assert pitch[1] == pytest.approx(220, rel=0.02)
    assert np.isnan(pitch[2])


def test_formants_intensity_and_times_are_known():
    clip = make_clip()
    names = ["f1", "intensity", "duration", "position", "position_from_end", "relative_position"]
    found = unit_features(unit_table(clip), [clip], names)
    assert found["f1"][0] == pytest.approx(1000, rel=0.1)
    np.testing.assert_allclose(found["duration"], [0.4, 0.5, 0.3])
    assert found["position"].tolist() == [0, 1, 2]
    assert found["position_from_end"].tolist() == [2, 1, 0]
    assert found["relative_position"].tolist() == [0, 0.5, 1]
    samples = clip.audio(RATE).astype(float)
    for row, (_, start, end) in zip(found.itertuples(), WORDS, strict=True):
        part = samples[round(start * RATE) : round(end * RATE)]
        assert row.intensity == pytest.approx(10 * np.log10((part**2).mean()))
    louder = speechmix.Clip.from_array(clip.audio(RATE) / 2, RATE, name="clip", words=WORDS)
    lower = unit_features(unit_table(clip), [louder], ["intensity"])["intensity"]
    np.testing.assert_allclose(found["intensity"] - lower, 20 * np.log10(2), atol=1e-4)


def test_articulation_is_that_of_the_phone_in_the_middle():
    pytest.importorskip("panphon")
    clip = make_clip(tiers={"phone": [("d", 0.1, 0.2), ("a", 0.2, 0.5), ("m", 0.5, 0.6)]})
    phones = unit_features(unit_table(clip, "phone"), [clip], ["voi", "nas", "hi"], level="phone")
    for row in phones.itertuples():
        expected = articulatory_features(row.label)
        assert (row.voi, row.nas, row.hi) == (expected["voi"], expected["nas"], expected["hi"])
    frames = pd.DataFrame(
        {
            "clip": "clip",
            "index": range(4),
            "word": pd.NA,
            "label": "",
            "start": [0.1, 0.3, 0.5, 0.7],
        }
    ).assign(end=lambda table: table["start"] + 0.02)
    nasal = unit_features(frames, [clip], ["nas"], level="frame")["nas"]
    assert nasal.tolist()[:3] == [-1, -1, 1]
    assert np.isnan(nasal[3])  # no phone is there
    assert set(articulatory_features("a")) <= set(UNIT_FEATURES)
    with pytest.raises(InputError, match="clip has no phones: give tiers"):
        unit_features(unit_table(make_clip()), [make_clip()], ["nas"])


def test_values_come_from_a_table_covariates_and_the_manifest():
    clips = [make_clip("a", meta={"age": "31"}), make_clip("b", meta={"age": "52"})]
    units = pd.concat([unit_table(clip) for clip in clips], ignore_index=True)
    table = pd.DataFrame({"clip": ["b", "a", "a"], "index": [2, 0, 1], "surprisal": [9.5, 1, 2]})
    found = unit_features(units, clips, ["surprisal", "letters", "age"], table=table)
    np.testing.assert_array_equal(found["surprisal"], [1, 2, np.nan, np.nan, np.nan, 9.5])
    assert found["letters"].tolist() == [2] * 6
    labelled = [make_clip(name, meta={"label": "m", "start": "9"}) for name in "ab"]
    own = unit_features(units, labelled, ["label", "start", "duration"])
    pd.testing.assert_frame_equal(own[units.columns], units)
    assert found["age"].tolist() == ["31"] * 3 + ["52"] * 3
    of_words = table.rename(columns={"index": "word"}).astype({"word": str})  # as a CSV is read
    by_word = unit_features(units, clips, ["surprisal"], level="frame", table=of_words)
    np.testing.assert_array_equal(by_word["surprisal"], found["surprisal"])
    assert "surprisal" not in units
    with pytest.raises(InputError, match="two rows for index 0 of 'a'"):
        unit_features(units, clips, ["surprisal"], table=pd.concat([table, table[1:2]]))
    with pytest.raises(
        InputError, match="index in the table of 'surprisal' should be a number, found 'x'"
    ):
        unit_features(units, clips, ["surprisal"], table=table.assign(index="x"))
    with pytest.raises(InputError, match=r"needs the columns clip and index \(or word\)"):
        unit_features(units, clips, ["surprisal"], table=table.drop(columns="index"))
    with pytest.raises(InputError, match="there is no feature 'tempo': choose from pitch, f1"):
        unit_features(units, clips, ["tempo"])
    with pytest.raises(InputError, match="not among the items: 'b'"):
        unit_features(units, clips[:1], ["duration"])
    sentence = speechmix.Sentence("les amis")
    with pytest.raises(InputError, match="is a text: it has no sound"):
        unit_features(units[:3].assign(clip="les amis"), [sentence], ["intensity"])
