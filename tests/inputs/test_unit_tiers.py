"""Phones and syllables of a clip: read, checked, cut, stored, named as cue and target."""

import json
import pickle
import shutil
import subprocess
import warnings

import numpy as np
import pytest
import soundfile

from speechmix import Clip, read_clips
from speechmix.errors import InputError
from speechmix.inputs.formats.elan import read_elan_tiers, write_elan
from speechmix.inputs.formats.textgrid import write_tiers
from speechmix.inputs.words.phone_labels import _SYMBOL_BY_CODE, are_phone_labels, convert_to_ipa
from speechmix.inputs.words.timed_words import Word
from speechmix.inputs.words.word_checks import is_non_unit

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

    @pytest.mark.parametrize("previous", [{"p1": "p2", "p2": "p1"}, {"p1": "p1", "p2": "p1"}])
    def test_parts_of_elan_that_follow_each_other_in_a_circle(self, tmp_path, previous):
        path = tmp_path / "a.eaf"
        parts = "".join(
            f'<ANNOTATION><REF_ANNOTATION ANNOTATION_ID="{name}" ANNOTATION_REF="a1" PREVIOUS_ANNOTATION='
            f'"{before}"><ANNOTATION_VALUE>x</ANNOTATION_VALUE></REF_ANNOTATION></ANNOTATION>'
            for name, before in previous.items()
        )
        path.write_text(
            """<ANNOTATION_DOCUMENT><TIME_ORDER><TIME_SLOT TIME_SLOT_ID="t1" TIME_VALUE="0"/><TIME_SLOT
            TIME_SLOT_ID="t2" TIME_VALUE="300"/></TIME_ORDER><TIER TIER_ID="words"><ANNOTATION>
            <ALIGNABLE_ANNOTATION ANNOTATION_ID="a1" TIME_SLOT_REF1="t1" TIME_SLOT_REF2="t2">
            <ANNOTATION_VALUE>a</ANNOTATION_VALUE></ALIGNABLE_ANNOTATION></ANNOTATION></TIER>"""
            f'<TIER TIER_ID="parts" PARENT_REF="words">{parts}</TIER></ANNOTATION_DOCUMENT>'
        )
        with pytest.raises(InputError, match=r"tier 'parts': the annotations 'p1'.* each other"):
            read_elan_tiers(path)

    ELAN = (
        '<ANNOTATION_DOCUMENT><HEADER TIME_UNITS="{unit}">{media}</HEADER><TIME_ORDER>'
        '<TIME_SLOT TIME_SLOT_ID="t1" {first}/><TIME_SLOT TIME_SLOT_ID="t2" TIME_VALUE="25"/>'
        '</TIME_ORDER><TIER TIER_ID="{name}"><ANNOTATION><ALIGNABLE_ANNOTATION ANNOTATION_ID="a1" '
        'TIME_SLOT_REF1="t1" TIME_SLOT_REF2="t2"><ANNOTATION_VALUE>a</ANNOTATION_VALUE>'
        "</ALIGNABLE_ANNOTATION></ANNOTATION></TIER>{more}</ANNOTATION_DOCUMENT>"
    )

    def write_elan_text(self, tmp_path, **parts):
        defaults = {"unit": "milliseconds", "media": "", "name": "words", "more": ""}
        path = tmp_path / "a.eaf"
        path.write_text(self.ELAN.format(**defaults | {"first": 'TIME_VALUE="10"'} | parts))
        return path

    @pytest.mark.parametrize(
        ("unit", "seconds"),
        [("milliseconds", 0.001), ("PAL-frames", 0.04), ("NTSC-frames", 1001 / 30_000)],
    )
    def test_units_of_time_of_elan(self, tmp_path, unit, seconds):
        ((_, start, end),) = read_elan_tiers(self.write_elan_text(tmp_path, unit=unit))["words"]
        assert (start, end) == pytest.approx((10 * seconds, 25 * seconds))
        with pytest.raises(InputError, match=r"expected times in milliseconds, .* found 'hours'"):
            read_elan_tiers(self.write_elan_text(tmp_path, unit="hours"))

    def test_elan_recordings_that_begin_later(self, audio, tmp_path):
        media = [
            f'<MEDIA_DESCRIPTOR MEDIA_URL="file:///b/{name}.wav" TIME_ORIGIN="{origin}"/>'
            for name, origin in (("a", 500), ("my%20video", 0))
        ]
        path = self.write_elan_text(tmp_path, media=media[0])
        assert read_elan_tiers(path)["words"] == [("a", 0.51, 0.525)]
        path = self.write_elan_text(tmp_path, media="".join(media))
        assert Clip.from_file(audio, words=path).words == (Word("a", 0.51, 0.525),)
        assert read_elan_tiers(path, recording="my video")["words"] == [("a", 0.01, 0.025)]
        with pytest.raises(InputError, match=r"at different times \('a' from 0\.5 s, 'my video'"):
            read_elan_tiers(path, recording="c")

    def test_elan_annotations_without_a_time_and_tiers_of_one_name(self, tmp_path):
        with pytest.raises(
            InputError, match=r"'a' of tier 'words' has no start time .*'t1'.*in ELAN"
        ):
            read_elan_tiers(self.write_elan_text(tmp_path, first=""))
        path = self.write_elan_text(tmp_path, more='<TIER TIER_ID="words"/>')
        assert [*read_elan_tiers(path)] == ["words (1)", "words (2)"]

    def test_elan_parts_follow_each_other_as_they_say(self, tmp_path):
        annotation = (
            '<ANNOTATION><REF_ANNOTATION ANNOTATION_ID="{0}" ANNOTATION_REF="a1"{1}><ANNOTATION_VALUE>{0}'
            "</ANNOTATION_VALUE></REF_ANNOTATION></ANNOTATION>"
        )
        previous = {"r3": "r2", "r1": "", "r2": "r1"}
        parts = [
            annotation.format(name, before and f' PREVIOUS_ANNOTATION="{before}"')
            for name, before in previous.items()
        ]
        more = f'<TIER TIER_ID="parts" PARENT_REF="words">{"".join(parts)}</TIER>'
        tiers = read_elan_tiers(self.write_elan_text(tmp_path, more=more))
        assert [label for label, *_ in tiers["parts"]] == ["r1", "r2", "r3"]

    def test_pympi_writes_what_is_read(self, tmp_path):
        elan = pytest.importorskip("pympi.Elan", reason="pympi-ling is not installed")
        document = elan.Eaf(author="a")
        document.add_linguistic_type(
            "parts", constraints="Symbolic_Subdivision", timealignable=False
        )
        document.add_tier("words")
        document.add_tier("letters", ling="parts", parent="words")
        document.add_annotation("words", 100, 400, "mon")
        previous = None
        for letter in "mon":
            previous = document.add_ref_annotation("letters", "words", 150, letter, prev=previous)
        document.add_linked_file("a.wav", mimetype="audio/x-wav", time_origin=250)
        document.to_file(tmp_path / "a.eaf")
        tiers = read_elan_tiers(tmp_path / "a.eaf")
        assert tiers["words"] == [("mon", 0.35, 0.65)]
        assert [label for label, *_ in tiers["letters"]] == ["m", "o", "n"]

    def test_pympi_reads_what_is_written(self, tmp_path):
        elan = pytest.importorskip("pympi.Elan", reason="pympi-ling is not installed")
        tiers = {
            "words": [Word("mon", 0.1, 0.4), Word("é & <b>", 0.4, 0.9)],
            "t": [Word("x", 0.0, 0.5)],
        }
        write_elan(tmp_path / "a.eaf", tiers, 1.0, audio=tmp_path / "a.wav")
        document = elan.Eaf(str(tmp_path / "a.eaf"))
        assert {
            name: document.get_annotation_data_for_tier(name) for name in document.get_tier_names()
        } == {"words": [(100, 400, "mon"), (400, 900, "é & <b>")], "t": [(0, 500, "x")]}
        assert document.maxaid == int(dict(document.get_properties())["lastUsedAnnotationId"])
        assert document.get_linked_files()[0]["RELATIVE_MEDIA_URL"] == "./a.wav"

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


def phones_of(labels):
    return [Word(label, i, i + 1) for i, label in enumerate(labels.split())]


class TestLabels:
    @pytest.mark.parametrize(
        ("alphabet", "labels", "ipa"),
        [
            ("arpabet", "HH AH0 L OW1", "h ə l oʊ"),
            ("arpabet", "h# sh iy hv ae dcl d y axr h#", "h# ʃ i ɦ æ d̚ d j ɚ h#"),
            ("arpabet", "SIL aan dx ow tq VOCNOISE", "SIL ɑ̃ ɾ oʊ ʔ VOCNOISE"),
            ("ipa", "t ɑ̃ p ʁ", "t ɑ̃ p ʁ"),
            ("ipa", "p a t e", "p a t e"),
            ("ipa", "k aw ɔ oj a55", "k aw ɔ oj a55"),
            ("x-sampa", "b o~ Z u R", "b õ ʒ u ʁ"),
            ("x-sampa", "m a_R m a_F x\\", "m ǎ m â ɧ"),  # of which PanPhon makes other letters
            ("praat", r"\sw t\sh \o~ \~^a", "ə tʃ õ ̃a"),
        ],
    )
    def test_in_ipa_with_the_label_of_the_file(self, alphabet, labels, ipa):
        if alphabet == "x-sampa":
            pytest.importorskip("panphon")
        phones = phones_of(labels)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            converted = convert_to_ipa(phones)
        assert " ".join(phone.text for phone in converted) == ipa
        for phone, label in zip(converted, labels.split(), strict=True):
            assert phone.source_label == ("" if phone.text == label else label)
        said = [f"taken as {alphabet}" in str(warning.message) for warning in seen]
        assert said == ([] if alphabet == "ipa" else [True])
        assert convert_to_ipa(converted) == converted
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert convert_to_ipa(phones, alphabet=alphabet) == converted

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            ("sh iy hh xx", "most labels are ARPABET, but not 'xx'"),
            ("AA1 T IY0 XXX", "most labels are ARPABET, but not 'XXX'"),
            (r"\sh \zz", r"fit none of ipa, .*: '\\\\sh', '\\\\zz' are not IPA"),
            ("Aa p §", "fit none of .*: 'Aa', '§' are not IPA"),
            ("слово a", "fit none of .*: 'слово' are not IPA"),
            ("qwerty a", "fit none of .*: 'qwerty' are not IPA"),
            ("k aɪ1 t", "fit none of .*: 'aɪ1' are not IPA"),
            ("the cat is", "fit none of .*: 'cat', 'is', 'the' are not IPA"),
        ],
    )
    def test_labels_that_fit_no_alphabet(self, labels, message):
        with pytest.raises(InputError, match=f"here: .*{message}"):
            convert_to_ipa(phones_of(labels), where="here")
        assert convert_to_ipa(phones_of(labels), alphabet="ipa") == tuple(phones_of(labels))

    def test_the_user_names_the_alphabet(self):
        pytest.importorskip("panphon")
        assert convert_to_ipa(phones_of("S T"), alphabet="x-sampa")[0].text == "ʃ"
        assert convert_to_ipa(phones_of("S T"), alphabet="arpabet")[0].text == "s"
        with pytest.raises(InputError, match="expected labels in arpabet, found 'a'"):
            convert_to_ipa(phones_of("a T"), alphabet="arpabet")
        with pytest.raises(InputError, match=r"alphabet must be one of ipa, .*, found 'sampa'"):
            convert_to_ipa(phones_of("a T"), alphabet="sampa")

    def test_x_sampa_is_of_one_phone(self):
        pytest.importorskip("panphon")
        for junk in ("qwerty", "fOks", "@@@@@@"):
            with pytest.raises(InputError, match=f"expected labels in x-sampa, found '{junk}'"):
                convert_to_ipa(phones_of(f"a {junk}"), alphabet="x-sampa")
        kept = convert_to_ipa(phones_of("t_h tS ts_h aI @U aI@ O6 n= r` ts:"), alphabet="x-sampa")
        assert " ".join(phone.text for phone in kept) == "tʰ t͡ʃ tsʰ aɪ əʊ aɪə ɔɐ n̩ ɽ tsː"

    @pytest.mark.parametrize(
        "labels", ["aʊə oj juː ɔːɹ əl aɪɚ onɡ", "ndʒ t͡ɕʰ kʷ ɡb pf̚ mb ʔ ǃ ttʃ", "ẽɪ̃ a˥˩ n̩ ʰ"]
    )
    def test_one_phone_of_several_letters(self, labels):
        phones = phones_of(labels)
        assert convert_to_ipa(phones) == tuple(phones)

    def test_the_alphabet_of_a_file(self, audio, tmp_path):
        labels = ["sh", "y", "xx", "iy"]
        phones = [
            Word(label, *phone.intervals[0]) for label, phone in zip(labels, PHONES, strict=True)
        ]
        path = tmp_path / "a.TextGrid"
        write_tiers(path, {"words": WORDS, "phones": phones}, 1.0)
        with pytest.warns(UserWarning, match="phones are left out: .*most labels are ARPABET"):
            clip = Clip.from_file(audio, words=path)
        assert (clip.words, clip.tiers) == (tuple(WORDS), {})
        clip = Clip.from_file(audio, words=path, alphabet="ipa")
        assert [phone.text for phone in clip.tiers["phone"]] == labels
        with pytest.raises(InputError, match="most labels are ARPABET"):
            Clip.from_file(audio, words=WORDS, tiers={"phone": phones})
        with pytest.raises(InputError, match="expected labels in arpabet, found 'xx'"):
            Clip.from_file(audio, words=path, tiers={"phone": "phones"}, alphabet="arpabet")

    def test_praat_reads_the_symbols_alike(self, tmp_path):
        praat = (
            shutil.which("praat")
            or shutil.which("praat_barren")
            or pytest.skip("praat is not installed")
        )
        codes = [*_SYMBOL_BY_CODE]
        lines = "".join(
            f'appendInfoLine: backslashTrigraphsToUnicode$ ("\\{code.replace(chr(34), chr(34) * 2)}")\n'
            for code in codes
        )
        (tmp_path / "a.praat").write_text(lines)
        run = subprocess.run(
            [praat, "--run", tmp_path / "a.praat"], capture_output=True, check=True
        )
        spoken = run.stdout.decode("utf-8").split("\n")[: len(codes)]
        assert spoken == [_SYMBOL_BY_CODE[code] for code in codes]


class TestNonUnits:
    def test_what_is_no_phone_is_left_out(self):
        phones = [("h#", 0, 0.1), *PHONES[:2], ("(en)", 0.3, 0.31), ("spn", 0.31, 0.35)]
        phones += [("z", 0.35, 0.4), ("a", 0.4, 0.4)]
        with pytest.warns(UserWarning, match="left out of the phones") as seen:
            clip = clip_of(phones)
        assert [phone.text for phone in clip.tiers["phone"]] == ["l", "e", "z"]
        messages = " ".join(str(warning.message) for warning in seen)
        assert "because they are no phones: '(en)', 'h#', 'spn'" in messages
        assert (
            "clip 'a': left out of the phones, because they have no length: phone 6 'a'" in messages
        )

    @pytest.mark.parametrize(
        ("label", "is_phone", "is_word"),
        [
            ("sil", False, False),
            ("H#", False, False),
            ("spn", False, True),
            ("<unk>", False, True),
            ("{B_TRANS}", False, True),
            ("(fr-fr)", False, False),
            ("(en)", False, False),
            ("(uh)", False, True),
            ("(the)", False, True),
            ("pau", False, True),
            ("(ə)", True, True),
            ("h", True, True),
        ],
    )
    def test_which_labels_are_units(self, label, is_phone, is_word):
        assert is_non_unit(label, "phone") != is_phone
        assert is_non_unit(label, "word") != is_word

    @pytest.mark.parametrize("ending", ["json", "tsv", "ctm", "TextGrid", "given"])
    @pytest.mark.parametrize("text", [None, "Le (en) football est", "Le football est"])
    def test_a_mark_of_another_language_is_no_word_of_the_text(self, audio, tmp_path, ending, text):
        words = [["le", 0.1, 0.2], ["(en)", 0.2, 0.3], ["football", 0.3, 0.6], ["est", 0.7, 0.9]]
        path = tmp_path / f"a.{ending}"
        if ending == "json":
            path.write_text(json.dumps({"words": words}))
        elif ending == "tsv":
            rows = ["\t".join(map(str, row)) for row in [["word", "start", "end"], *words]]
            path.write_text("\n".join(rows))
        elif ending == "ctm":
            path.write_text("".join(f"a 1 {start} 0.1 {label}\n" for label, start, _ in words))
        elif ending == "TextGrid":
            write_tiers(path, {"words": [Word(*word) for word in words]}, 1.0)
        with pytest.warns(UserWarning, match=r"because they are no words: '\(en\)'"):
            clip = Clip.from_file(
                audio, text=text, words=words if ending == "given" else path, cue="football"
            )
        assert [word.text for word in clip.words] == ["le", "football", "est"]
        assert (clip.cue, clip.text) == (1, text and "Le football est")

    def test_which_words_look_like_phones(self):
        def look(text):
            return are_phone_labels([Word(label, i, i + 1) for i, label in enumerate(text.split())])

        assert look("l ə ʃ a")
        assert look("HH AH0 L OW1")
        assert look("h# sh iy hv ae h#")
        assert not look("il y a un an")
        assert not look("ɛdɔna lə ʃa")


def test_no_warning_without_tiers(audio, tmp_path):
    write_tiers(tmp_path / "a.TextGrid", {"words": WORDS}, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not Clip.from_file(audio, words=tmp_path / "a.TextGrid").tiers
