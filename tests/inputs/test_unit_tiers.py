"""Phones and syllables of a clip: read, checked, cut, stored, named as cue and target."""

import json
import pickle
import warnings

import numpy as np
import pytest
import soundfile

from speechmix import Clip, read_clips
from speechmix.errors import InputError
from speechmix.inputs.formats.elan_reader import read_elan_tiers
from speechmix.inputs.formats.elan_writer import write_elan
from speechmix.inputs.formats.textgrid import write_tiers
from speechmix.inputs.words.phone_labels import are_phone_labels, convert_to_ipa
from speechmix.inputs.words.timed_words import Word

WORDS = [Word("les", 0.1, 0.3), Word("amis", 0.3, 0.9)]
PHONES = [Word("l", 0.1, 0.2), Word("e", 0.2, 0.3), Word("z", 0.3, 0.4), Word("a", 0.4, 0.9)]


@pytest.fixture
def audio(tmp_path):
    path = tmp_path / "a.wav"
    soundfile.write(path, np.random.default_rng(0).normal(0, 0.1, 16_000), 16_000)
    return path


def clip_of(phones=PHONES, words=WORDS, **details):
    samples = np.random.default_rng(0).normal(0, 0.1, 16_000)
    return Clip.from_array(
        samples, 16_000, name="a", words=words, tiers={"phone": phones}, **details
    )


class TestFiles:
    @pytest.mark.parametrize("ending", ["TextGrid", "eaf"])
    @pytest.mark.parametrize(
        ("words", "phones"),
        [("words", "phones"), ("Anne - words", "Anne - phones"), ("ORT-MAU", "MAU")],
    )
    def test_tiers_are_known_by_their_names(self, audio, tmp_path, ending, words, phones):
        path = tmp_path / f"a.{ending}"
        silence = [Word("<p:>", 0.0, 0.1)]
        write = write_elan if ending == "eaf" else write_tiers
        tiers = {words: WORDS, phones: silence + PHONES, "KAN-MAU": WORDS, "Bea - phones": PHONES}
        if words != "Anne - words":
            del tiers["Bea - phones"]
        write(path, tiers, 1.0)
        clip = Clip.from_file(audio, words=path)
        assert clip.words == tuple(WORDS)
        assert clip.tiers == {"phone": tuple(PHONES)}
        assert not Clip.from_file(audio, words=path, tiers={}).tiers

    def test_a_tier_by_its_name_and_one_that_is_not_there(self, audio, tmp_path):
        path = tmp_path / "a.TextGrid"
        write_tiers(path, {"words": WORDS, "seg": PHONES, "empty": WORDS}, 1.0)
        clip = Clip.from_file(audio, words=path, tiers={"phone": "SEG"})
        assert clip.tiers["phone"] == tuple(PHONES)
        write_tiers(tmp_path / "b.TextGrid", {"seg": PHONES}, 1.0)  # no words to take it for
        alone = Clip.from_file(audio, words=tmp_path / "b.TextGrid", tiers={"phone": "SEG"})
        assert (alone.words, alone.tiers) == (None, clip.tiers)
        with pytest.raises(InputError, match=r"tier 'mau' with the phones, found 0 among .*'seg'"):
            Clip.from_file(audio, words=path, tiers={"phone": "mau"})

    def test_a_faulty_tier_is_left_out_unless_it_is_named(self, audio, tmp_path):
        path = tmp_path / "a.TextGrid"
        write_tiers(path, {"words": WORDS, "phones": [Word("l", 0.1, 0.5)]}, 1.0)
        with pytest.warns(
            UserWarning, match="left out: .*phone 0 'l' .* crosses a boundary of word"
        ):
            assert not Clip.from_file(audio, words=path).tiers
        with pytest.raises(InputError, match="crosses a boundary of word 0 'les'"):
            Clip.from_file(audio, words=path, tiers={"phone": "phones"})

    def test_phones_are_not_taken_for_words(self, audio, tmp_path):
        path = tmp_path / "a.TextGrid"
        write_tiers(path, {"phones": PHONES}, 1.0)
        clip = Clip.from_file(audio, words=path)
        assert clip.words is None
        assert clip.tiers["phone"] == tuple(PHONES)
        with pytest.raises(InputError, match=r"holds phones, expected words.*tiers=\{'phone'"):
            Clip.from_file(audio, words=path, tier="phones")

    def test_json_keeps_labels(self, audio, tmp_path):
        phones = [Word("ə", 0.1, 0.3, source_label="AH0"), PHONES[2]]
        content = {"words": [word.to_list() for word in WORDS]}
        content["tiers"] = {"phone": [phone.to_list() for phone in phones]}
        path = tmp_path / "a.json"
        path.write_text(json.dumps(content))
        assert Clip.from_file(audio, words=path).tiers == {"phone": tuple(phones)}
        rows = tmp_path / "m.jsonl"
        rows.write_text(json.dumps({"path": "a.wav", **content, "cue": "phone:AH0"}))
        (clip,) = read_clips(rows)
        assert clip.tiers["phone"] == tuple(phones)
        assert clip.unit_roles["cue"].indices == (0,)
        (tmp_path / "m.tsv").write_text("path\twords\ttiers\na.wav\ta.json\tphones\n")
        with pytest.raises(InputError, match=r"expected tiers as .*, found 'phones'"):
            read_clips(tmp_path / "m.tsv")

    def test_elan_annotations_that_depend_on_others(self, tmp_path):
        path = tmp_path / "a.eaf"
        path.write_text(
            """<ANNOTATION_DOCUMENT><TIME_ORDER>
            <TIME_SLOT TIME_SLOT_ID="t1" TIME_VALUE="100"/><TIME_SLOT TIME_SLOT_ID="t2"/>
            <TIME_SLOT TIME_SLOT_ID="t3" TIME_VALUE="300"/></TIME_ORDER>
            <TIER TIER_ID="parts" PARENT_REF="halves"><ANNOTATION><REF_ANNOTATION ANNOTATION_ID="a3"
            ANNOTATION_REF="a2"><ANNOTATION_VALUE>c</ANNOTATION_VALUE></REF_ANNOTATION></ANNOTATION>
            <ANNOTATION><REF_ANNOTATION ANNOTATION_ID="a4" ANNOTATION_REF="a2" PREVIOUS_ANNOTATION="a3">
            <ANNOTATION_VALUE>d</ANNOTATION_VALUE></REF_ANNOTATION></ANNOTATION></TIER>
            <TIER TIER_ID="halves"><ANNOTATION><ALIGNABLE_ANNOTATION ANNOTATION_ID="a1"
            TIME_SLOT_REF1="t1" TIME_SLOT_REF2="t2"><ANNOTATION_VALUE>a</ANNOTATION_VALUE>
            </ALIGNABLE_ANNOTATION></ANNOTATION><ANNOTATION><ALIGNABLE_ANNOTATION ANNOTATION_ID="a2"
            TIME_SLOT_REF1="t2" TIME_SLOT_REF2="t3"><ANNOTATION_VALUE>b</ANNOTATION_VALUE>
            </ALIGNABLE_ANNOTATION></ANNOTATION></TIER></ANNOTATION_DOCUMENT>"""
        )
        tiers = read_elan_tiers(path)
        assert tiers["halves"] == [("a", 0.1, 0.2), ("b", 0.2, 0.3)]
        assert tiers["parts"] == [("c", 0.2, 0.25), ("d", 0.25, 0.3)]

    @pytest.mark.parametrize(
        "text", ["<a>", "<a/>", "", "<ANNOTATION_DOCUMENT><TIER/></ANNOTATION_DOCUMENT>"]
    )
    def test_no_elan_document(self, tmp_path, text):
        (tmp_path / "a.eaf").write_text(text)
        with pytest.raises(InputError, match="ELAN document"):
            read_elan_tiers(tmp_path / "a.eaf")


class TestClip:
    def test_tiers_are_kept_and_count(self):
        clip = clip_of()
        assert clip.replace(name="b").tiers == clip.tiers
        assert pickle.loads(pickle.dumps(clip)).tiers == clip.tiers
        assert clip.fingerprint != clip.replace(tiers={}).fingerprint
        moved = [PHONES[0], Word("e", 0.2, 0.29), *PHONES[2:]]
        assert clip.fingerprint != clip.replace(tiers={"phone": moved}).fingerprint
        with pytest.raises(TypeError):
            clip.tiers["phone"] = ()

    def test_new_words_keep_the_phones_that_fit(self):
        clip = clip_of()
        assert clip.replace(words=[("lesamis", 0.1, 0.9)]).tiers == clip.tiers
        with pytest.warns(
            UserWarning, match="left out: clip 'a': phone 1 'e' .* crosses a boundary"
        ):
            assert not clip.replace(words=[("les", 0.1, 0.25), ("amis", 0.25, 0.9)]).tiers

    def test_cut(self):
        part = clip_of(cue="phone:z", target="phone:e").cut(0.15, 0.9)
        assert [phone.text for phone in part.tiers["phone"]] == ["e", "z", "a"]
        assert part.tiers["phone"][0].start == pytest.approx(0.05)
        assert part.unit_roles["cue"].indices == (1,)
        with pytest.raises(InputError, match="target is not wholly between"):
            clip_of(target="phone:l").cut(0.15, 0.9)

    def test_syllables_may_cross_words_but_phones_no_syllables(self):
        syllables = [Word("le", 0.1, 0.3), Word("zami", 0.3, 0.9)]
        across = [Word("lez", 0.1, 0.4), Word("ami", 0.4, 0.9)]
        for tier in (syllables, across):
            assert len(clip_of().replace(tiers={"phone": PHONES, "syllable": tier}).tiers) == 2
        with pytest.raises(InputError, match=r"phone 3 'a' .* crosses a boundary of syllable 0"):
            clip_of().replace(tiers={"phone": PHONES, "syllable": [("x", 0.1, 0.5)]})

    @pytest.mark.parametrize(
        ("tiers", "message"),
        [
            (
                {"phone": [("a", 0.1, 0.3), ("b", 0.2, 0.3)]},
                "phones must not overlap .* share 100 ms",
            ),
            ({"phone": [("", 0.1, 0.3)]}, "phone 0 at 0.1 s has no label"),
            ({"phone": [("a", 0.2, 0.4)]}, "crosses a boundary of word 0 'les'"),
            ({"phone": []}, "at least one phone"),
            ({"phones": PHONES}, "units phone, syllable, found phones"),
            ({"phone": [("a", 0.95, 1.4)]}, "phone 0 'a' .* past the end of the audio"),
        ],
    )
    def test_tiers_that_cannot_be_right(self, tiers, message):
        with pytest.raises(InputError, match=message):
            clip_of().replace(tiers=tiers)

    @pytest.mark.parametrize(
        ("request_text", "indices"), [("phone:z", (2,)), ("phone:a:1", (3,)), ("phone:e z", (1, 2))]
    )
    def test_cue_of_phones(self, request_text, indices):
        clip = clip_of(cue=request_text)
        assert clip.cue is None
        role = clip.unit_roles["cue"]
        assert role.indices == indices
        assert clip.replace(cue=role.request).unit_roles["cue"].indices == indices

    def test_requests_that_find_nothing_or_several(self):
        twice = [*PHONES[:3], Word("l", 0.4, 0.9)]
        with pytest.raises(InputError, match=r"'phone:l' occurs 2 times, at 0\.10 s, 0\.40 s"):
            clip_of(twice, cue="phone:l")
        assert clip_of(twice, cue="phone:l:2").unit_roles["cue"].indices == (3,)
        with pytest.raises(
            InputError, match="'phone:q' is not in the tier, whose labels are: l e z a"
        ):
            clip_of(cue="phone:q")
        with pytest.raises(InputError, match="expected one phone as target"):
            clip_of(target="phone:l e")

    def test_a_word_called_phone(self):
        words = [("phone", 0.1, 0.3), ("phone", 0.3, 0.9)]
        assert clip_of(words=words, cue="phone:2").cue == 1

    def test_phones_that_are_not_there_yet(self):
        clip = clip_of(cue="phone:z").replace(tiers={})
        assert not clip.unit_roles
        assert clip.replace(tiers={"phone": PHONES}).unit_roles["cue"].text == "z"


class TestLabels:
    @pytest.mark.parametrize(
        ("labels", "ipa"),
        [
            ("HH AH0 L OW1 spn", "h ə l oʊ spn"),
            ("t ɑ̃ p ʁ", "t ɑ̃ p ʁ"),
            ("p a t e", "p a t e"),
            ("b o~ Z u R", "b õ ʒ u ʁ"),
        ],
    )
    def test_in_ipa_with_the_label_of_the_file(self, labels, ipa):
        if "~" in labels:
            pytest.importorskip("panphon")
        phones = [Word(label, i, i + 1) for i, label in enumerate(labels.split())]
        converted = convert_to_ipa(phones)
        assert " ".join(phone.text for phone in converted) == ipa
        for phone, label in zip(converted, labels.split(), strict=True):
            assert phone.source_label == ("" if phone.text == label else label)

    def test_which_words_look_like_phones(self):
        def look(text):
            return are_phone_labels([Word(label, i, i + 1) for i, label in enumerate(text.split())])

        assert look("l ə ʃ a")
        assert look("HH AH0 L OW1")
        assert not look("il y a un an")
        assert not look("ɛdɔna lə ʃa")


def test_no_warning_without_tiers(audio, tmp_path):
    write_tiers(tmp_path / "a.TextGrid", {"words": WORDS}, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not Clip.from_file(audio, words=tmp_path / "a.TextGrid").tiers
