"""Maps as tiers of Praat and ELAN: read back by praatio, by our own reader and by XML, against cue
contribution."""

import itertools
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.tiers.tier_export import export_tiers
from speechmix.inputs import bundled
from speechmix.inputs.formats.elan import write_elan
from speechmix.inputs.formats.textgrid import read_textgrid, write_tiers
from speechmix.inputs.formats.word_files import read_words
from speechmix.inputs.words.spans import Word
from speechmix.interfaces.cli import main
from speechmix.mixing.maps.score_tiers import score_tiers
from speechmix.runs.score_clips import score_clips
from tests.conftest import trained


@pytest.fixture(scope="module")
def clip():
    return bundled.clips()[19]  # three words or more, the cue behind the target


@pytest.fixture(scope="module")
def maps(clip):
    return speechmix.mix(
        trained("tiny-french-whisper"), clip, measures=["value_zeroing", "attention"]
    )


def tiers_of_eaf(path):
    root = ET.parse(path).getroot()
    slots = [
        (slot.get("TIME_SLOT_ID"), int(slot.get("TIME_VALUE"))) for slot in root.find("TIME_ORDER")
    ]
    assert [time for _, time in slots] == sorted(time for _, time in slots)
    times = dict(slots)
    assert len(times) == len(slots)
    tiers = {}
    for tier in root.findall("TIER"):
        assert tier.get("LINGUISTIC_TYPE_REF") == root.find("LINGUISTIC_TYPE").get(
            "LINGUISTIC_TYPE_ID"
        )
        tiers[tier.get("TIER_ID")] = [
            (
                a.findtext("ANNOTATION_VALUE"),
                times[a.get("TIME_SLOT_REF1")],
                times[a.get("TIME_SLOT_REF2")],
            )
            for a in tier.iter("ALIGNABLE_ANNOTATION")
        ]
    ids = [a.get("ANNOTATION_ID") for a in root.iter("ALIGNABLE_ANNOTATION")]
    assert len(set(ids)) == len(ids) == int(root.findtext("HEADER/PROPERTY"))
    return root, tiers


def test_labels_are_cue_contributions_and_lie_on_their_words(clip, maps, tmp_path):
    path = maps.to_textgrid(tmp_path / "a.TextGrid", clip)
    assert [(w.text, w.start, w.end) for w in read_words(path)] == [
        (w.text, w.start, w.end) for w in clip.words
    ]
    for measure, stack in (("value_zeroing", "encoder"), ("attention", "cross")):
        m = maps[measure, stack]
        for layer in m.layers:
            tier = read_textgrid(
                path, tier=f"{measure} {stack} {layer}: {clip.words[clip.target].text}"
            )
            assert [(w.start, w.end) for w in tier] == [(w.start, w.end) for w in clip.words]
            for word, interval in enumerate(tier):
                if word != clip.target:
                    share = speechmix.cue_contribution(m, cue=word, target=clip.target)[layer]
                    assert float(interval.text) == pytest.approx(100 * share, abs=0.051)


def test_the_best_layer_is_where_the_cue_gives_most_and_none_without_a_cue(clip, maps, tmp_path):
    encoder = {("value_zeroing", "encoder"): maps["value_zeroing", "encoder"]}
    best = int(
        speechmix.cue_contribution(*encoder.values(), cue=clip.cue, target=clip.target).argmax()
    )
    options = {"target": clip.target, "duration": clip.duration, "layers": "best"}
    target = clip.words[clip.target].text
    assert list(score_tiers(encoder, clip.words, cue=clip.cue, **options)) == [
        "words",
        f"value_zeroing encoder {best}: {target}",
    ]
    with pytest.raises(InputError, match="there is no cue"):
        score_tiers(encoder, clip.words, **options)
    later = {
        ("value_zeroing", "decoder"): maps["value_zeroing", "decoder"]
    }  # which cannot see the cue
    for nothing in ({}, later):
        with pytest.raises(InputError, match="no tier of what"):
            score_tiers(nothing, clip.words, cue=clip.cue, **options)
    with pytest.raises(InputError, match=r"\.TextGrid \(Praat\), \.eaf \(ELAN\) or \.csv"):
        maps.to_textgrid(tmp_path / "a.txt", clip)
    with pytest.raises(InputError, match="say which word receives"):
        maps.to_textgrid(tmp_path / "a.TextGrid", clip.replace(target=None, cue=None, foil=None))


def test_a_layer_that_no_map_has_is_refused(clip, maps, tmp_path):
    options = {"target": clip.target, "duration": clip.duration, "cue": clip.cue}
    encoder = {("value_zeroing", "encoder"): maps["value_zeroing", "encoder"]}
    for layers in ([0, 99], [-1], [0.5], ["0"]):
        with pytest.raises(InputError, match=r"no layer .*: the maps have 0, 1, 2"):
            score_tiers(encoder, clip.words, layers=layers, **options)
    for layers in ("first", [], "0"):
        with pytest.raises(InputError, match='expected layers="all", "best" or some of 0, 1, 2'):
            score_tiers(encoder, clip.words, layers=layers, **options)
    assert score_tiers(encoder, clip.words, layers=1, **options) == score_tiers(
        encoder, clip.words, layers=[1], **options
    )
    with pytest.raises(InputError, match="no layer 99"):
        maps.to_textgrid(tmp_path / "a.TextGrid", clip, layers=[0, 99])
    lowest = {
        key: m
        if key[1] == "encoder"
        else replace(m, scores=m.scores[:1], layers=(0,), mixing_strength=None)
        for key, m in maps.items()
    }
    tiers = score_tiers(
        lowest, clip.words, layers=[0, 2], **options
    )  # a layer need not be in all of them
    assert {name.split(":")[0] for name in tiers if "encoder" in name and "zeroing" in name} == {
        "value_zeroing encoder 0",
        "value_zeroing encoder 2",
    }


def test_frames_end_with_the_audio(clip, tmp_path):
    maps = speechmix.mix(
        trained("tiny-french-whisper"), clip, units="frame", measures="attention", stacks="encoder"
    )
    tiers = score_tiers(
        maps, clip.words, target=clip.target, duration=clip.duration, cue=clip.cue, layers="best"
    )
    (frames,) = [tier for name, tier in tiers.items() if name != "words"]
    assert frames[-1].end == pytest.approx(clip.duration, abs=0.021)
    assert all(a.end == pytest.approx(b.start) for a, b in itertools.pairwise(frames))
    write_tiers(tmp_path / "f.TextGrid", tiers, clip.duration)
    assert len(read_textgrid(tmp_path / "f.TextGrid", tier=list(tiers)[1])) == len(frames)


def test_elan_has_sorted_slots_and_the_same_tiers(clip, maps, tmp_path):
    root, tiers = tiers_of_eaf(maps.to_textgrid(tmp_path / "a.eaf", clip))
    words = tiers["words"]
    assert [text for text, _, _ in words] == [word.text for word in clip.words]
    assert np.allclose(
        [times for _, *times in words],
        [(1000 * w.start, 1000 * w.end) for w in clip.words],
        atol=0.5,
    )
    assert all(
        [times for _, *times in tier] == [times for _, *times in words]
        for name, tier in tiers.items()
        if "encoder" in name
    )
    media = root.find("HEADER/MEDIA_DESCRIPTOR")
    assert media.get("MEDIA_URL") == clip.path.resolve().as_uri()
    assert (tmp_path / media.get("RELATIVE_MEDIA_URL")).resolve() == clip.path.resolve()


def test_labels_that_need_escaping_and_very_short_intervals(tmp_path):
    tiers = {
        'say "oui" & <non>': [
            Word('l"été', 0.0, 0.1),
            Word("<&>", 0.1, 0.1),
            Word("ç", 0.1004, 0.3),
        ]
    }
    write_elan(tmp_path / "a.eaf", tiers, 0.3)
    assert tiers_of_eaf(tmp_path / "a.eaf")[1] == {
        'say "oui" & <non>': [('l"été', 0, 100), ("<&>", 100, 101), ("ç", 101, 300)]
    }
    write_tiers(tmp_path / "a.TextGrid", tiers, 0.3)
    assert [word.text for word in read_textgrid(tmp_path / "a.TextGrid")] == ['l"été', "<&>", "ç"]


def test_what_xml_cannot_write_is_replaced_and_a_recording_on_another_drive_is_named(
    clip, tmp_path, monkeypatch
):
    def refused(*paths):
        raise ValueError("path is on mount 'D:', start on mount 'C:'")

    monkeypatch.setattr("os.path.relpath", refused)
    tiers = {"a\x00b": [Word("l\x0bes", 0.0, 0.1), Word("li\ud800vres", 0.1, 0.2)]}
    write_elan(tmp_path / "a.eaf", tiers, 0.3, audio=clip.path)
    root, written = tiers_of_eaf(tmp_path / "a.eaf")
    assert written == {"a\ufffdb": [("l\ufffdes", 0, 100), ("li\ufffdvres", 100, 200)]}
    assert root.find("HEADER/MEDIA_DESCRIPTOR").get("MEDIA_URL") == clip.path.resolve().as_uri()


def test_a_model_that_has_nothing_of_what_is_asked_is_passed_over(clip, tmp_path):
    models = [trained("tiny-french-ctc"), trained("tiny-french-whisper")]
    quiet = {
        "figures": 0,
        "progress": False,
        "report": lambda line: None,
        "measures": ["attention"],
    }
    score_clips(models, [clip], tmp_path, **quiet)
    assert len(export_tiers(tmp_path, clip.name, stacks=["encoder"])) == 2
    (path,) = export_tiers(tmp_path, clip.name, stacks=["cross"])
    assert "whisper" in path.name
    for layers in ([99], [0, 99]):
        with pytest.raises(InputError, match="no layer 99"):
            export_tiers(tmp_path, clip.name, layers=layers)


def test_a_run_is_exported_as_it_was_scored(clip, maps, tmp_path, capsys):
    score_clips(
        trained("tiny-french-whisper"),
        [clip],
        tmp_path / "run",
        figures=0,
        progress=False,
        report=lambda line: None,
    )
    asked = [
        "export",
        str(tmp_path / "run"),
        "--clip",
        clip.name,
        "--stack",
        "encoder",
        "--layer",
        "best",
    ]
    for ending in ("textgrid", "eaf"):
        assert main([*asked, "--format", ending]) == 0
    first, second = (line.removeprefix("tiers: ") for line in capsys.readouterr().out.splitlines())
    options = {"target": clip.target, "duration": clip.duration, "cue": clip.cue, "layers": "best"}
    ((name, tier),) = list(
        score_tiers({1: maps["value_zeroing", "encoder"]}, clip.words, **options).items()
    )[1:]
    assert read_textgrid(first, tier=name) == tier
    assert [text for text, _, _ in tiers_of_eaf(second)[1][name]] == [
        interval.text for interval in tier
    ]
    assert main([*asked, "--target", "personne"]) == 1
    assert "personne" in capsys.readouterr().err
    assert main([*asked, "--layer", "1"]) == 1
    assert "best alone" in capsys.readouterr().err
    assert main([*asked, "--out", str(tmp_path / "mine.TextGrid")]) == 1
    assert "expected a folder" in capsys.readouterr().err
    assert not (tmp_path / "mine.TextGrid").exists()
