"""Word files: every template says the same, the formats' variants are read, and damage is named."""

import json
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from speechmix.errors import InputError
from speechmix.inputs.formats.word_files import (
    read_word_file,
    read_words,
    word_file_kind,
    write_textgrid,
)
from speechmix.inputs.words.spans import Word

TEMPLATES = Path(__file__).parents[2] / "data_templates"
LIVRES = [
    Word("elle", 0.2, 0.45, 0.98),
    Word("a", 0.45, 0.6, 0.91),
    Word("perdu", 0.6, 1.0, 0.97),
    Word("les", 1.05, 1.2, 0.95),
    Word("livres", 1.2, 1.8, 0.99),
]
UNSCORED = [Word(word.text, word.start, word.end) for word in LIVRES]


def textgrid(*tiers):
    """Long-form TextGrid of (class, name, [(start, end, label)])."""
    lines = [
        'File type = "ooTextFile"',
        'Object class = "TextGrid"',
        "",
        "xmin = 0 ",
        "xmax = 2 ",
        "tiers? <exists> ",
    ]
    lines += [f"size = {len(tiers)} ", "item []: "]
    for number, (kind, name, entries) in enumerate(tiers, 1):
        lines += [
            f"    item [{number}]:",
            f'        class = "{kind}" ',
            f'        name = "{name}" ',
        ]
        lines += ["        xmin = 0 ", "        xmax = 2 "]
        unit = "intervals" if kind == "IntervalTier" else "points"
        lines += [f"        {unit}: size = {len(entries)} "]
        for index, entry in enumerate(entries, 1):
            lines += [f"        {unit} [{index}]:"]
            if kind == "IntervalTier":
                lines += [f"            xmin = {entry[0]} ", f"            xmax = {entry[1]} "]
                lines += [f'            text = "{entry[2]}" ']
            else:
                lines += [f"            number = {entry[0]} ", f'            mark = "{entry[1]}" ']
    return "\n".join(lines) + "\n"


def intervals(name, *entries):
    return "IntervalTier", name, list(entries)


@pytest.fixture
def write(tmp_path):
    def write(name, text, encoding="utf-8"):
        (tmp_path / name).write_bytes(text.encode(encoding))
        return tmp_path / name

    return write


@pytest.mark.parametrize("name", ["words.ctm", "words.json", "words.tsv"])
def test_templates_with_scores(name):
    assert read_words(TEMPLATES / name) == LIVRES


@pytest.mark.parametrize("name", ["words.TextGrid", "words_short.TextGrid"])
def test_templates_of_praat(name):
    assert read_words(TEMPLATES / name) == UNSCORED


def test_every_template_is_described():
    described = (TEMPLATES / "README.md").read_text(encoding="utf-8")
    for path in TEMPLATES.iterdir():
        assert path.name == "README.md" or not path.is_file() or f"`{path.name}`" in described


def test_kind_by_ending():
    assert word_file_kind("A.TEXTGRID") == "textgrid"
    with pytest.raises(InputError, match=r"expected a word file .*, found '\.srt'"):
        read_words("a.srt")


class TestTextGrid:
    @pytest.mark.parametrize("name", ["words.TextGrid", "words_short.TextGrid"])
    @pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
    @pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
    def test_encodings_and_line_ends(self, write, name, encoding, line_end):
        text = (
            (TEMPLATES / name)
            .read_text(encoding="utf-8")
            .replace("livres", "été")
            .replace("\n", line_end)
        )
        path = write("a.TextGrid", "\ufeff" + text if encoding == "utf-16-be" else text, encoding)
        assert [word.text for word in read_words(path)] == ["elle", "a", "perdu", "les", "été"]

    def test_short_form_without_a_last_line_end(self, write):
        text = (TEMPLATES / "words_short.TextGrid").read_text(encoding="utf-8")
        text = text.rstrip("\n").removesuffix('1.8\n2\n""').rstrip("\n").replace("\n8\n", "\n7\n")
        assert read_words(write("a.TextGrid", text))[-1] == Word("livres", 1.2, 1.8)

    @pytest.mark.parametrize("name", ["words", "WORDS", "Mots", "speaker one - words", "ORT-MAU"])
    def test_word_tier_by_name(self, write, name):
        tiers = (
            intervals("phones", (0, 1, "l")),
            intervals(name, (0, 1, "les")),
            intervals("notes", (0, 1, "?")),
        )
        assert read_words(write("a.TextGrid", textgrid(*tiers))) == [Word("les", 0, 1)]

    def test_the_only_interval_tier(self, write):
        text = textgrid(("TextTier", "clicks", [(0.5, "x")]), intervals("anne", (0, 1, "les")))
        assert read_words(write("a.TextGrid", text)) == [Word("les", 0, 1)]

    def test_ambiguous_tiers(self, write):
        path = write(
            "a.TextGrid", textgrid(intervals("anne", (0, 1, "les")), intervals("bea", (0, 1, "la")))
        )
        with pytest.raises(
            InputError, match=r"found 0 among the tiers \['anne', 'bea'\]: name one with tier="
        ):
            read_words(path)
        assert read_words(path, tier="Bea") == [Word("la", 0, 1)]
        with pytest.raises(
            InputError, match=r"expected interval tier 'carl', found 0 among the tiers"
        ):
            read_words(path, tier="carl")

    def test_two_speakers(self, write):
        tiers = [intervals(f"{name} - words", (0, 1, name)) for name in ("anne", "bea")]
        with pytest.raises(InputError, match="found 2 among the tiers"):
            read_words(write("a.TextGrid", textgrid(*tiers)))

    def test_two_tiers_of_one_name(self, write):
        path = write(
            "a.TextGrid",
            textgrid(intervals("words", (0, 1, "les")), intervals("words", (0, 1, "la"))),
        )
        assert read_words(path, tier="words (2)") == [Word("la", 0, 1)]
        for tier in (None, "Words"):
            with pytest.raises(
                InputError,
                match=r"found 2 among the tiers \['words \(1\)', 'words \(2\)'\].*--tier",
            ):
                read_words(path, tier=tier)

    def test_two_tiers_of_phones(self, write):
        tiers = [intervals("words", (0, 1, "la")), *[intervals("phones", (0, 1, "l"))] * 2]
        path = write("a.TextGrid", textgrid(*tiers))
        with pytest.warns(
            UserWarning, match=r"2 tiers of phones, \['phones \(1\)', 'phones \(2\)'\]"
        ):
            assert read_word_file(path).tiers == {}
        with pytest.raises(InputError, match="tier 'phones' with the phones, found 2 among"):
            read_word_file(path, tiers={"phone": "phones"})

    def test_labels_that_look_like_the_format(self, write):
        labels = [
            "intervals [3]: nos",
            'text = ""x""',
            "item [2]:\n  xmin = 3",
            "! 4 <exists>",
            "<p>",
        ]
        entries = [(i / 10, (i + 1) / 10, label) for i, label in enumerate(labels)]
        path = write("a.TextGrid", textgrid(intervals("words", *entries)))
        with pytest.warns(UserWarning, match="'<p>'"):
            found = [word.text for word in read_words(path)]
        assert found == [label.replace('""', '"') for label in labels[:-1]]

    def test_spaces_and_colons_may_be_left_out(self, write):
        text = textgrid(intervals("words", (0, 1, "les"), (1, 2, "livres")))
        text = text.replace("intervals [", "intervals[").replace("]:", "]").replace(" = ", "=")
        assert [word.text for word in read_words(write("a.TextGrid", text))] == ["les", "livres"]

    def test_symbols_of_praat_in_words(self, write):
        entries = [(0, 0.5, r"\e't\e'"), (0.5, 1, r"ma\i^tre"), (1, 2, r"a\QQb")]
        path = write("a.TextGrid", textgrid(intervals("words", *entries)))
        with pytest.warns(UserWarning, match="QQb' has a backslash that is no symbol of Praat"):
            assert [word.text for word in read_words(path)] == ["été", "maître", r"a\QQb"]

    def test_other_objects_of_praat(self, write, tmp_path):
        text = textgrid(intervals("words", (0, 1, "les")))
        collection = text.replace('"TextGrid"', '"Collection"')
        for content, message in (
            (
                collection,
                "found Praat's 'Collection', which may hold one: open it in Praat, select",
            ),
            (
                '"Praat chronological TextGrid text file"\n0 2\n',
                "is a chronological TextGrid: open it",
            ),
        ):
            with pytest.raises(InputError, match=message):
                read_words(write("a.TextGrid", content))
        (tmp_path / "b.TextGrid").write_bytes(b"ooBinaryFile\x08TextGrid\x00\xff\xfe")
        with pytest.raises(InputError, match="is a binary file of Praat: open it in Praat"):
            read_words(tmp_path / "b.TextGrid")

    @pytest.mark.parametrize("short", [False, True])
    def test_praat_reads_what_is_written(self, tmp_path, short):
        praat = (
            shutil.which("praat")
            or shutil.which("praat_barren")
            or pytest.skip("praat is not installed")
        )
        words = [Word('dit "oui"', 0.1, 0.25), Word("été [1]:", 0.25, 0.7)]
        write_textgrid(tmp_path / "a.TextGrid", words, 1.0)
        form = "short text" if short else "text"
        (tmp_path / "a.praat").write_text(
            f'Read from file: "a.TextGrid"\nSave as {form} file: "b.TextGrid"\n'
            'Save as binary file: "c.TextGrid"\n'
        )
        subprocess.run([praat, "--run", tmp_path / "a.praat"], check=True)
        assert read_words(tmp_path / "b.TextGrid") == words
        with pytest.raises(InputError, match="is a binary file of Praat"):
            read_words(tmp_path / "c.TextGrid")

    def test_praatio_writes_what_is_read(self, tmp_path):
        textgrid_module = pytest.importorskip("praatio.textgrid")
        grid = textgrid_module.Textgrid(0, 2)
        grid.addTier(textgrid_module.IntervalTier("words", [(0.1, 0.3, 'a "b"')], 0, 2))
        for form in ("short_textgrid", "long_textgrid", "json"):
            path = tmp_path / ("a.json" if form == "json" else "a.TextGrid")
            grid.save(str(path), format=form, includeBlankSpaces=True)
            assert read_words(path) == [Word('a "b"', 0.1, 0.3)]

    def test_silence_is_left_out_and_unknown_speech_stays(self, write):
        labels = ["", "sp", "SIL", "<eps>", "<p:>", "spn", "<unk>", "oui"]
        entries = [(i / 10, (i + 1) / 10, label) for i, label in enumerate(labels)]
        path = write("a.TextGrid", textgrid(intervals("words", *entries)))
        assert [word.text for word in read_words(path)] == ["spn", "<unk>", "oui"]

    @pytest.mark.parametrize("entries", [[], [(0, 2, "")], [(0, 1, "sil"), (1, 2, " ")]])
    def test_no_labelled_interval(self, write, entries):
        with pytest.raises(
            InputError,
            match=r"a\.TextGrid: expected words in tier 'words', found no labelled interval",
        ):
            read_words(write("a.TextGrid", textgrid(intervals("words", *entries))))

    def test_point_tiers_only(self, write):
        with pytest.raises(
            InputError, match="expected an interval tier with the words, found none"
        ):
            read_words(write("a.TextGrid", textgrid(("TextTier", "words", [(0.5, "les")]))))

    def test_numbers_as_praat_writes_them(self, write):
        text = textgrid(
            intervals("words", ("5.551115123125783e-17", 0.5, "les"), (0.5, "1e0", "livres"))
        )
        words = read_words(write("a.TextGrid", text))
        assert words == [Word("les", pytest.approx(0, abs=1e-16), 0.5), Word("livres", 0.5, 1.0)]

    def test_negative_times(self, write):
        with pytest.raises(InputError, match="negative times"):
            read_words(write("a.TextGrid", textgrid(intervals("words", ("-0.5", 0.5, "les")))))

    def test_quotation_marks(self, write):
        text = textgrid(intervals("words", (0, 1, 'dit ""oui""')))
        assert read_words(write("a.TextGrid", text))[0].text == 'dit "oui"'

    def test_overlapping_intervals(self, write):
        text = textgrid(intervals("words", (0, 1, "a"), (0.5, 2, "b")))
        with pytest.raises(InputError, match=r"a\.TextGrid: words must not overlap"):
            read_words(write("a.TextGrid", text))

    @pytest.mark.parametrize("keep", [0, 10, 60, 200, 330])
    def test_damaged_files(self, write, keep):
        text = (TEMPLATES / "words.TextGrid").read_text(encoding="utf-8")[:keep]
        with pytest.raises(InputError, match=r"a\.TextGrid"):
            read_words(write("a.TextGrid", text))

    @pytest.mark.parametrize(
        "deep",
        [
            "[" * 100_000,
            "9" * 100_000 + "x",
            "\n" * 100_000,
            '{"a":' * 50_000,
            "9" * 5000,
            "1e400",
            "-1e400",
            "NaN",
        ],
    )
    def test_absurd_values(self, write, deep):
        text = (TEMPLATES / "words.TextGrid").read_text(encoding="utf-8")
        for old in ("File type", "size = 1", "xmax = 2 ", "0.45", "IntervalTier"):
            with suppress(InputError):  # either that, or what is damaged has no weight
                assert read_words(write("a.TextGrid", text.replace(old, deep, 1)))
        with pytest.raises(InputError, match=r"a\.TextGrid: not a readable TextGrid"):
            read_words(write("a.TextGrid", deep))

    def test_latin1(self, write):
        with pytest.raises(
            InputError, match=r"a\.TextGrid: expected UTF-8 or UTF-16 text, found byte 0xe9"
        ):
            read_words(write("a.TextGrid", textgrid(intervals("mots", (0, 1, "été"))), "latin-1"))


class TestWriteTextGrid:
    def test_round_trip(self, tmp_path):
        write_textgrid(tmp_path / "a.TextGrid", LIVRES, 2.0, tier="mots")
        assert read_words(tmp_path / "a.TextGrid", tier="mots") == UNSCORED

    def test_as_praat_wants_it(self, tmp_path):
        write_textgrid(tmp_path / "a.TextGrid", LIVRES, 2.0)
        assert (tmp_path / "a.TextGrid").read_text(encoding="utf-8") == (
            TEMPLATES / "words.TextGrid"
        ).read_text(encoding="utf-8")

    def test_words_of_no_length_get_a_millisecond(self, tmp_path):
        words = [Word("il", 0.1, 0.2), Word("y", 0.2, 0.2), Word('"a"', 0.3, 0.4)]
        write_textgrid(tmp_path / "a.TextGrid", words, 1.0)
        assert read_words(tmp_path / "a.TextGrid") == [words[0], Word("y", 0.2, 0.201), words[2]]
        with pytest.raises(InputError, match=r"word 'y' at 0\.200 s has no length and no room"):
            write_textgrid(tmp_path / "b.TextGrid", [words[1], Word("a", 0.2, 0.4)], 1.0)

    def test_refuses_what_it_could_not_read(self, tmp_path):
        with pytest.raises(InputError, match=r"word 3 'les' .* starts past the end"):
            write_textgrid(tmp_path / "a.TextGrid", LIVRES, 1.0)


class TestCtm:
    SEVERAL = "u1 1 0.1 0.2 oui\nu2 1 0.3 0.2 non 0.5\nu2 1 0.5 0.1 <eps>\n"

    def test_several_utterances(self, write):
        path = write("all.ctm", self.SEVERAL)
        assert read_words(path, utterance="u2") == [Word("non", 0.3, 0.5, 0.5)]
        with pytest.raises(
            InputError,
            match=r"2 utterances \(u1, u2\), none called 'all': name one with utterance=",
        ):
            read_words(path)

    def test_two_channels_of_one_utterance(self, write):
        path = write("all.ctm", "u1 A 0.1 0.2 oui\nu1 B 0.2 0.2 non\nu2 B 0.1 0.2 si\n")
        with pytest.raises(InputError, match=r"'u1' has 2 channels \(A, B\), expected one"):
            read_words(path, utterance="u1")
        assert read_words(path, utterance="u2") == [Word("si", 0.1, 0.3)]

    def test_the_one_named_like_the_file(self, write):
        assert read_words(write("u1.ctm", self.SEVERAL)) == [Word("oui", 0.1, 0.3)]

    def test_a_single_utterance_needs_no_name(self, write):
        assert read_words(write("a.ctm", "x A 0.1 0.2 oui NA\n"), utterance="a") == [
            Word("oui", 0.1, 0.3)
        ]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "found none"),
            (";; nothing\n", "found none"),
            ("u 1 0.1 oui\n", "line 1: expected `utterance channel"),
            (";; c\nu 1 x 0.2 oui\n", "line 2: expected seconds as numbers"),
            ("u 1 0.1 -0.2 oui\n", "ends before it starts"),
            ("u 1 0.1 0.2 <eps>\n", "at least one word"),
        ],
    )
    def test_unusable(self, write, text, message):
        with pytest.raises(InputError, match=rf"a\.ctm.*{message}"):
            read_words(write("a.ctm", text))


class TestJson:
    @pytest.mark.parametrize(
        "data",
        [
            [["oui", 0.1, 0.3]],
            [{"text": " oui", "start_sec": 0.1, "end_sec": 0.3}],
            {"words": [{"word": "oui", "start": 0.1, "end": 0.3}], "duration": 2},
            {
                "text": "oui",
                "segments": [{"words": [{"word": " oui", "start": 0.1, "end": 0.3}]}, {"id": 1}],
            },
            {"text": "oui", "chunks": [{"text": " oui", "timestamp": [0.1, 0.3]}]},
            {
                "start": 0,
                "end": 2,
                "tiers": {
                    "phones": {"type": "interval", "entries": [[0.1, 0.3, "w"]]},
                    "words": {"type": "interval", "entries": [[0.0, 0.1, ""], [0.1, 0.3, "oui"]]},
                },
            },
        ],
        ids=["lists", "objects", "words", "whisper", "transformers", "mfa"],
    )
    def test_shapes(self, write, data):
        assert read_words(write("a.json", json.dumps(data))) == [Word("oui", 0.1, 0.3)]

    @pytest.mark.parametrize("key", ["score", "confidence", "probability"])
    def test_scores(self, write, key):
        data = [{"word": "oui", "start": 0.1, "end": 0.3, key: 0.7}]
        assert read_words(write("a.json", json.dumps(data)))[0].score == 0.7

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", "not valid JSON"),
            ("{}", "found keys"),
            ("3", "expected a list of words, found int"),
            ("[]", "at least one word"),
            ('["oui"]', "word 0 must be"),
            ('[{"word": "oui", "start": 0.1}]', "word 0 must be"),
            ('[{"word": "oui", "timestamp": [0.1, null]}]', "word 0 must be"),
            (
                '[{"word": "oui", "start": "0,1", "end": 0.3}]',
                "word 0: expected seconds .* decimal point, found '0,1'",
            ),
            ('[["", 0.1, 0.3]]', "no label"),
            ('{"tiers": {"words": {"entries": [[1, 2]]}}}', "entries"),
            ('{"tiers": {"words": 3}}', "entries"),
            ('{"tiers": {"words": {"entries": [[1e400, ' + "9" * 400 + ', "oui"]]}}}', "entries"),
            ("[" * 100_000, "not valid JSON .nested too deeply"),
            ('{"words": ' * 50_000, "not valid JSON .nested too deeply"),
            ('[["\\ud800", 0.1, 0.3]]', "not valid JSON .*surrogates"),
            (f'[["oui", {"9" * 400}, 0.3]]', "word 0: expected seconds"),
            (f'[["oui", {"9" * 5000}, 0.3]]', "not valid JSON"),
            ('[["oui", 0.1, 1e400]]', "finite times"),
            ('[["oui", 0.1, 0.2, NaN]]', "finite score"),
            ('{"segments": [{"words": 3.5}]}', "expected segments with lists of words"),
            ('{"words": [["oui", 0.1, 0.3]], "tiers": [1]}', r"expected tiers as .*, found \[1\]"),
        ],
        ids=lambda value: value[:24],
    )
    def test_unusable(self, write, text, message):
        with pytest.raises(InputError, match=rf"a\.json.*{message}"):
            read_words(write("a.json", text))

    def test_a_faulty_tier(self, write):
        data = {"words": [["oui", 0.1, 0.3]], "tiers": {"phone": [1]}}
        with pytest.raises(InputError, match=r"a\.json, tier 'phone': word 0 must be"):
            read_word_file(write("a.json", json.dumps(data)))


class TestTable:
    def test_csv_and_other_column_names(self, write):
        text = 'Text,start_sec,end_sec,confidence\n"oui, oui",0.1,0.3,0.5\n\nnon,0.3,0.4,\n'
        assert read_words(write("a.csv", text)) == [
            Word("oui, oui", 0.1, 0.3, 0.5),
            Word("non", 0.3, 0.4),
        ]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "oui\t0.1\t0.3\n",
                r"column word or text or label, .* found columns \['oui', '0\.1', '0\.3'\]",
            ),
            ("word\tstart\nles\t0.1\n", "column end or end_sec"),
            ("word\tstart\tend\nles\t0.1\n", "row 2: expected a word, a start and an end"),
            (
                "word\tstart\tend\nles\t0,1\t0,3\n",
                "row 2: expected seconds as numbers with a decimal point",
            ),
            ("word\tstart\tend\nles\t0.1\t0.3\t9\n", "row 2: expected at most 3 cells"),
            ("word\tstart\tend\n", "at least one word"),
        ],
    )
    def test_unusable(self, write, text, message):
        with pytest.raises(InputError, match=rf"a\.tsv.*{message}"):
            read_words(write("a.tsv", text))
