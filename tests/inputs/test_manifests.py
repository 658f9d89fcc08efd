"""Manifests: the templates, other spellings of the same, and rows that cannot be used."""

import json
import shutil
import unicodedata
import warnings
from pathlib import Path

import numpy as np
import pytest
import soundfile

import speechmix
from speechmix.errors import InputError
from speechmix.files.names import safe_name
from speechmix.inputs import bundled
from speechmix.inputs.clips.corpus_row import RejectedRow, Row
from speechmix.inputs.clips.manifests import read_clips
from speechmix.inputs.corpora.corpus_reading import read_corpus
from speechmix.inputs.words.spans import Word

TEMPLATES = Path(__file__).resolve().parents[2] / "data_templates"


@pytest.fixture
def folder(tmp_path):
    """The templates beside the audio they speak of; the folder above holds a file a manifest may
    not reach."""
    folder = tmp_path / "corpus"
    shutil.copytree(TEMPLATES, folder)
    tone = 0.3 * np.sin(2 * np.pi * 220 * np.arange(32_000) / 16_000)
    soundfile.write(folder / "clip.wav", tone, 16_000)
    soundfile.write(tmp_path / "secret.wav", tone, 16_000)
    return folder


def manifest(folder, text, name="m.tsv", encoding="utf-8"):
    (folder / name).write_bytes(text.encode(encoding))
    return folder / name


@pytest.mark.parametrize("name", ["manifest.tsv", "manifest.csv", "manifest.jsonl"])
def test_templates(folder, name):
    clips = read_clips(folder / name)
    assert [clip.name for clip in clips] == ["livres-01", "cahiers-01"]
    for clip in clips:
        clip.validate()
        assert (clip.language, clip.meta) == ("fr", {"speaker": "anne"})
        assert clip.audio().shape == (32_000,)
    assert clips[0].text == "elle a perdu les livres"
    assert [word.text for word in clips[0].words] == ["elle", "a", "perdu", "les", "livres"]
    assert (clips[0].cue, clips[0].target) == (3, 4)


def test_rows_without_words_wait_for_them(folder):
    for name in ("manifest.tsv", "manifest.csv"):
        clip = read_clips(folder / name)[1]
        assert clip.text == '"Les livres, les cahiers'  # a leading quotation mark is text
        assert (clip.words, clip.cue, clip.target) == (None, None, None)
        words = [("Les", 0.1, 0.2), ("livres,", 0.2, 0.5), ("les", 0.6, 0.7), ("cahiers", 0.7, 1.2)]
        aligned = clip.with_words(words, alignment="ctc")
        assert (aligned.cue, aligned.target) == (2, 3)


def test_words_within_jsonl(folder):
    clip = read_clips(folder / "manifest.jsonl")[1]
    assert clip.words[2] == Word("les", 0.95, 1.1)
    assert (clip.cue, clip.target, clip.alignment) == (2, 3, "given")
    row = {
        "path": "clip.wav",
        "words": [{"word": "oui", "start": 0.1, "end": 0.3, "score": 0.5}],
        "year": 1999,
    }
    clip = read_clips(manifest(folder, json.dumps(row), "m.jsonl"))[0]
    assert clip.words == (Word("oui", 0.1, 0.3, 0.5),)
    assert clip.meta == {"year": "1999"}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_encodings_and_line_ends(folder, encoding, line_end):
    lines = ["path\ttext", "clip.wav\tl'été", "", "clip.wav\tpâté"]
    clips = read_clips(manifest(folder, line_end.join(lines) + line_end, encoding=encoding))
    assert [clip.text for clip in clips] == ["l'été", "pâté"]


def test_latin1_is_not_guessed(folder):
    with pytest.raises(
        InputError,
        match=r"m\.tsv, row 2: expected UTF-8 or UTF-16 text, found byte 0xe9 at position 9 ",
    ):
        read_clips(manifest(folder, "path\ttext\nclip.wav\tété\n", encoding="latin-1"))


def test_utf16_without_a_mark(folder):
    with pytest.raises(InputError, match="null characters"):
        read_clips(manifest(folder, "path\nclip.wav\n", encoding="utf-16-le"))


def test_names_are_unique_even_where_capitals_do_not_count(folder):
    text = "path\tname\nclip.wav\ta\nclip.wav\tA\nclip.wav\ta-2\nclip.wav\t\nclip.wav\t\n"
    with pytest.warns(
        UserWarning, match=r"'A' of row 3 \(clip\.wav\), as in row 2 \(clip\.wav\): now 'A-2'"
    ) as warned:
        clips = read_clips(manifest(folder, text))
    assert [clip.name for clip in clips] == ["a", "A-2", "a-2-2", "clip", "clip-2"]
    assert len(warned) == 1


def test_tier_option(folder):
    text = (
        (folder / "words.TextGrid")
        .read_text(encoding="utf-8")
        .replace('name = "words"', 'name = "Anne"')
    )
    (folder / "words.TextGrid").write_text(text, encoding="utf-8")
    assert len(read_clips(folder / "manifest.tsv", tier="anne")[0].words) == 5


def test_short_rows_are_filled(folder):
    assert read_clips(manifest(folder, "path\ttext\tcue\nclip.wav\n"))[0].text is None


class TestUnusable:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "file\ttext\nclip.wav\toui\n",
                r"expected a first row with the column path or file_name, found columns \['file', 'text'\]",
            ),
            ("", r"column path or file_name, found columns \[\]"),
            ("path\ttext\n", "at least one row"),
            ("path\tpath\nclip.wav\tclip.wav\n", "column path occurs more than once"),
            (
                "path\ttext\nclip.wav\toui\nclip.wav\toui\tnon\n",
                "row 3: expected at most 2 cells, found 3",
            ),
            ("path\ttext\n\toui\n", "row 2: expected a path"),
            ("path\nclip.wav\ngone.wav\n", r"row 3: no such audio file: .*gone\.wav"),
            ("path\n.\n", "row 2: expected an audio file, found a folder"),
            ("path\twords\nclip.wav\tgone.ctm\n", r"row 2: cannot read .*gone\.ctm"),
            ("path\twords\nclip.wav\tclip.wav\n", r"row 2: .*expected a word file"),
            (
                "path\twords\tcue\nclip.wav\twords.ctm\tla\n",
                "row 2: clip 'clip': cue 'la' is not one of the words",
            ),
            (
                "path\twords\tcue\ttarget\nclip.wav\twords.ctm\tles\t3\n",
                "cue and target must be two words",
            ),
        ],
    )
    def test_tables(self, folder, text, message):
        with pytest.raises(InputError, match=message) as error:
            read_clips(manifest(folder, text))
        assert "m.tsv" in str(error.value)

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("{", "row 1: not valid JSON"),
            ("[1]", "row 1: expected a JSON object, found list"),
            ("{}", "row 1: expected a path"),
            ('{"path": 3}', "row 1: expected a path as a string, found 3"),
            ('{"path": "a\\u0000.wav"}', "row 1: not a usable path"),
            ('{"path": "clip.wav", "text": 3}', "row 1: expected text to be a string"),
            ('{"path": "clip.wav", "text": " "}', "row 1: .*expected a text, found an empty one"),
            ('{"path": "clip.wav", "words": 3}', "row 1: expected a path as a string, found 3"),
            ('{"path": "clip.wav", "words": []}', "row 1: .*at least one word, found none"),
            ('{"path": "clip.wav", "words": [["a"]]}', "row 1: words: word 0 must be"),
            (
                '{"path": "clip.wav", "words": [["a", 0, 1]], "cue": {}}',
                "row 1: .*cue must be an index",
            ),
            ("", "at least one row"),
        ],
    )
    def test_json_lines(self, folder, line, message):
        with pytest.raises(InputError, match=message):
            read_clips(manifest(folder, line, "m.jsonl"))

    def test_semicolons(self, folder):
        with pytest.raises(InputError, match="separated by commas"):
            read_clips(manifest(folder, "path;text\nclip.wav;oui\n", "m.csv"))

    def test_commas_in_a_tsv(self, folder):
        with pytest.raises(InputError, match=r"separated by tabs: is it a \.csv"):
            read_clips(manifest(folder, "path,text\nclip.wav,oui\n"))

    def test_an_empty_file(self, folder):
        with pytest.raises(InputError, match="the file is empty"):
            read_clips(manifest(folder, ""))

    def test_a_misspelt_column_of_the_cue_is_said(self, folder):
        row = "clip.wav\toui non\toui\tnon\n"
        with pytest.warns(UserWarning, match="no column 'cue'; is 'ceu' meant"):
            (clip,) = read_clips(manifest(folder, f"path\ttext\tceu\ttarget\n{row}"))
        assert clip.meta["ceu"] == "oui"
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # another column that is like it, and no cue at all
            read_clips(manifest(folder, f"path\ttext\tcue\tcues\n{row}"))
            read_clips(manifest(folder, f"path\ttext\tage\tuse\n{row}"))

    def test_open_quotation_in_csv(self, folder):
        with pytest.raises(InputError, match=r"m\.csv, row 2: not a readable row"):
            read_clips(manifest(folder, 'path,text\nclip.wav,"oui\n', "m.csv"))

    def test_a_quotation_mark_within_a_cell_is_a_character(self, folder):
        rows = ['clip.wav,il dit "non', "clip.wav,oui", 'clip.wav,"des\nlignes"', 'clip.wav,1"2"']
        clips = read_clips(manifest(folder, "\n".join(["path,text", *rows]), "m.csv"))
        assert [clip.text for clip in clips] == ['il dit "non', "oui", "des\nlignes", '1"2"']

    @pytest.mark.parametrize("closing", ['fin"', '"fin', "fin", '"f""in"', 'fin"",'])
    def test_an_open_quotation_mark_costs_its_row_alone(self, folder, closing):
        """Wherever another quotation mark would close it."""
        texts = ['"non dit-il', "oui", closing, "oui"]
        rows = [f"clip.wav,{text},n{index}" for index, text in enumerate(texts)]
        table = manifest(folder, "\n".join(["path,text,name", *rows]), "m.csv")
        errors = {}
        clips = read_clips(table, on_error=lambda row, _, error: errors.update({row: str(error)}))
        assert len(clips) + len(errors) == 4
        assert {"n1", "n3"} <= {clip.name for clip in clips}
        assert "a quotation mark that opens a cell" in errors[2]

    def test_ending_and_missing_manifest(self, folder):
        with pytest.raises(InputError, match=r"ending in \.tsv, \.csv or \.jsonl, found '\.txt'"):
            read_clips(manifest(folder, "path\n", "m.txt"))
        with pytest.raises(InputError, match=r"cannot read .*none\.tsv"):
            read_clips(folder / "none.tsv")
        with pytest.raises(InputError, match="on_error must be"):
            read_clips(folder / "manifest.tsv", on_error="ignore")


class TestOutside:
    """A manifest may come from somebody else: it must not read files the user did not mean to
    give."""

    @pytest.mark.parametrize(
        "path", ["../secret.wav", "../../etc/passwd", "/etc/passwd", "sub/../../secret.wav"]
    )
    @pytest.mark.parametrize("column", ["path", "words"])
    def test_paths_out_of_the_folder(self, folder, path, column):
        row = {"path": "clip.wav", column: path}
        with pytest.raises(
            InputError,
            match=r"row 1: path '.*' leads out of .* allow_outside=True \(--allow-outside\)",
        ):
            read_clips(manifest(folder, json.dumps(row), "m.jsonl"))

    def test_links_are_followed(self, folder):
        (folder / "link.wav").symlink_to(folder.parent / "secret.wav")
        with pytest.raises(InputError, match=r"row 2: path 'link\.wav' leads out"):
            read_clips(manifest(folder, "path\nlink.wav\n"))
        assert (
            read_clips(manifest(folder, "path\nlink.wav\n"), allow_outside=True)[0].name == "link"
        )

    def test_a_loop_of_links(self, folder):
        (folder / "loop.wav").symlink_to(folder / "loop.wav")
        with pytest.raises(InputError, match="row 2"):
            read_clips(manifest(folder, "path\nloop.wav\n"))

    def test_allowed(self, folder):
        clips = read_clips(manifest(folder, "path\n../secret.wav\n"), allow_outside=True)
        assert clips[0].name == "secret"

    def test_absolute_path_inside_and_relative_manifest(self, folder, monkeypatch):
        monkeypatch.chdir(folder)
        manifest(folder, f"path\n{folder / 'clip.wav'}\nsub/../clip.wav\n")
        (folder / "sub").mkdir()
        assert len(read_clips("m.tsv")) == 2


class TestOnError:
    TEXT = (
        "path\tname\ngone.wav\tfirst\nclip.wav\tsecond\nclip.wav\tthird\textra\n../secret.wav\t\n"
    )

    def test_callback(self, folder):
        seen = []
        clips = read_clips(
            manifest(folder, self.TEXT), on_error=lambda *reason: seen.append(reason)
        )
        assert [clip.name for clip in clips] == ["second"]
        assert [(row, name) for row, name, _ in seen] == [
            (2, "first"),
            (4, ""),
            (5, "../secret.wav"),
        ]
        assert all(isinstance(error, InputError) for _, _, error in seen)

    def test_skip_warns_once(self, folder):
        with pytest.warns(
            UserWarning, match=r"3 of 4 rows left out:\n  .*row 2: no such audio file"
        ) as caught:
            clips = read_clips(manifest(folder, self.TEXT), on_error="skip")
        assert len(caught) == 1
        assert [clip.name for clip in clips] == ["second"]

    def test_broken_json_line(self, folder):
        seen = []
        text = '{"path": "clip.wav"}\n{\n{"path": "clip.wav"}\n'
        clips = read_clips(
            manifest(folder, text, "m.jsonl"), on_error=lambda row, *_: seen.append(row)
        )
        assert (len(clips), seen) == (2, [2])


class TestOneReader:
    """`read_clips` and `read_corpus` say the same of the same file."""

    def both(self, path, **options):
        reasons = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            clips = read_clips(
                path, on_error=lambda row, _, error: reasons.update({row: str(error)}), **options
            )
            rows = list(read_corpus(path, **options))
        rejected = {row.origin.row: row.reason for row in rows if isinstance(row, RejectedRow)}
        assert rejected == reasons
        assert [row.name for row in rows if isinstance(row, Row)] == [clip.name for clip in clips]
        assert [row.text for row in rows if isinstance(row, Row)] == [clip.text for clip in clips]
        assert [row.words for row in rows if isinstance(row, Row)] == [clip.words for clip in clips]
        return clips, reasons

    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
    @pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
    @pytest.mark.parametrize("name", ["m.tsv", "m.csv", "m.jsonl"])
    def test_names_texts_and_reasons(self, folder, encoding, line_end, name):
        (folder / "more").mkdir()
        for other in ("more/clip.wav", "a b.wav", "les.livres.wav"):
            shutil.copy(folder / "clip.wav", folder / other)
        rows = [
            {
                "path": "clip.wav",
                "text": "l'été",
                "words": "words.ctm",
                "cue": "les",
                "target": "livres",
            },
            {"path": "more/clip.wav", "sentence": "les livres"},
            {"path": "clip.wav", "text": "les livres", "name": "a b"},
            {"path": "a b.wav", "text": "les livres"},
            {"path": "clip.wav", "text": "les livres", "name": "v1.2"},
            {"path": "gone.wav", "text": "les livres"},
            {"path": "../secret.wav", "text": "les livres"},
            {"path": ".", "text": "les livres"},
            {"path": "clip.wav", "text": "les livres", "words": "words.ctm", "cue": "la"},
            {"path": "clip.wav", "text": "les livres", "words": "gone.ctm"},
            {"text": "les livres"},
            {"path": "les.livres.wav", "text": "les livres"},
        ]
        columns = ["path", "text", "words", "cue", "target", "name", "sentence"]
        if name == "m.jsonl":
            lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        else:
            separator = "\t" if name == "m.tsv" else ","
            lines = [
                separator.join(row.get(column, "") for column in columns)
                for row in ({c: c for c in columns}, *rows)
            ]
        clips, reasons = self.both(
            manifest(folder, line_end.join(lines) + line_end, name, encoding)
        )
        assert [clip.name for clip in clips] == [
            "clip",
            "clip-2",
            "a_b",
            "a_b-2",
            "v1.2",
            "les.livres",
        ]
        first = 1 if name == "m.jsonl" else 2
        assert sorted(reasons) == [first + i for i in (5, 6, 7, 8, 9, 10)]
        assert [clip.path.is_file() for clip in clips] == [True] * 6

    def test_a_release(self, folder):
        (folder / "clips").mkdir()
        shutil.copy(folder / "clip.wav", folder / "clips" / "a.mp3")
        lines = ["client_id\tpath\tsentence", "x\ta.mp3\tl'été", "x\ta.mp3\tl'été", "x\ta\tl'été"]
        clips, reasons = self.both(manifest(folder, "\n".join(lines)))
        assert [(clip.name, clip.text) for clip in clips] == [("a", "l'été")]
        assert sorted(reasons) == [3, 4]

    def test_a_corpus_asks_for_a_sentence_besides(self, folder):
        path = manifest(folder, "path\ttext\nclip.wav\t\nclip.wav\tles livres\n")
        assert [clip.name for clip in read_clips(path)] == ["clip", "clip-2"]
        assert [(row.name, getattr(row, "reason_kind", "")) for row in read_corpus(path)] == [
            ("clip", "empty sentence"),
            ("clip-2", ""),
        ]

    def test_a_name_does_not_depend_on_whether_another_rows_file_is_there(self, folder):
        path = manifest(folder, "path\ttext\nmore/clip.wav\tles livres\nclip.wav\tles livres\n")
        clips, reasons = self.both(path)
        assert ([clip.name for clip in clips], list(reasons)) == (["clip-2"], [2])

    def test_two_questions_about_one_recording(self, folder):
        lines = [
            "path\ttext\twords\tcue\ttarget",
            *(f"clip.wav\tx\twords.ctm\t{cue}\tlivres" for cue in ("les", "elle")),
        ]
        clips, _ = self.both(manifest(folder, "\n".join(lines)))
        assert [(clip.name, clip.cue) for clip in clips] == [("clip", 3), ("clip-2", 0)]


def test_names_that_are_one_as_files_are_told_apart(folder):
    names = [
        "é",
        unicodedata.normalize("NFD", "é"),
        "É",
        "a b",
        "a_b",
        "A/b",
        "x" * 300,
        "x" * 301,
        "é" * 300,
        "é" * 300,
    ]
    text = "path\tname\n" + "".join(f"clip.wav\t{name}\n" for name in names)
    with pytest.warns(UserWarning, match="names that occur more than once"):
        clips = read_clips(manifest(folder, text))
    folded = [unicodedata.normalize("NFC", clip.name.casefold()) for clip in clips]
    assert len(set(folded)) == len(names)
    assert [clip.name for clip in clips[:6]] == ["é", "é-2", "É-3", "a_b", "a_b-2", "A_b-3"]
    assert all(len(clip.name) <= 150 for clip in clips)
    assert clips[9].name.endswith("-2")
    assert all(safe_name(clip.name) == clip.name for clip in clips)


def test_thousands_of_recordings_of_one_name_are_numbered_in_a_moment(folder):
    clips = read_clips(manifest(folder, "path\n" + "clip.wav\n" * 3_000))
    assert [clip.name for clip in clips[:2] + clips[-1:]] == ["clip", "clip-2", "clip-3000"]


def test_a_stray_carriage_return_does_not_cut_a_row(folder):
    (clip,) = read_clips(manifest(folder, "path\ttext\nclip.wav\tles \rlivres\n"))
    assert clip.text == "les \rlivres"


def test_words_of_an_hour_fit_a_line(folder):
    soundfile.write(folder / "clip.wav", np.zeros(9 * 8_000), 8_000)
    words = [[f"mot{i}", i / 1000, (i + 1) / 1000] for i in range(9_000)]
    (clip,) = read_clips(
        manifest(folder, json.dumps({"path": "clip.wav", "words": words}), "m.jsonl")
    )
    assert len(clip.words) == 9_000


def test_words_are_held_against_the_audio_while_the_manifest_is_read(folder):
    (folder / "noise.wav").write_bytes(b"this is no audio")
    rows = [
        {"path": "clip.wav", "words": [["fin", 1.0, 2.5]], "name": "late"},
        {"path": "noise.wav", "words": [["oui", 0.1, 0.2]]},
        {"path": "noise.wav", "text": "oui"},
        {"path": "clip.wav", "words": [["fin", 1.0, 2.04]]},
    ]
    path = manifest(folder, "\n".join(map(json.dumps, rows)), "m.jsonl")
    with pytest.raises(
        InputError, match=r"m\.jsonl, row 1: clip 'late': word 0 'fin' .* ends 500 ms past the end"
    ):
        read_clips(path)
    reasons = {}
    clips = read_clips(
        path, on_error=lambda row, name, error: reasons.update({(row, name): str(error)})
    )
    assert list(reasons) == [(1, "late"), (2, "noise.wav")]
    assert "cannot read" in reasons[2, "noise.wav"]
    assert [clip.words for clip in clips] == [None, (Word("fin", 1.0, 2.0),)]


def test_clips_without_words_open_no_audio(folder, monkeypatch):
    monkeypatch.setattr(soundfile, "SoundFile", lambda *_: pytest.fail("opened"))
    assert (
        len(read_clips(manifest(folder, "path\ttext\tcue\n" + "clip.wav\tles livres\tles\n" * 200)))
        == 200
    )


def test_bundled_clips_have_a_name():
    named = read_clips("bundled:clips")
    assert [clip.name for clip in named] == [clip.name for clip in bundled.clips()]


def test_the_alphabet_of_phones(folder):
    row = {"path": "clip.wav", "words": [["shoe", 0.1, 0.5]]}
    row["tiers"] = {"phone": [["sh", 0.1, 0.3], ["uw", 0.3, 0.5]]}
    path = manifest(folder, json.dumps(row), "m.jsonl")
    for alphabet, phones in (("arpabet", ["ʃ", "u"]), ("ipa", ["sh", "uw"])):
        (clip,) = read_clips(path, alphabet=alphabet)
        assert [phone.text for phone in clip.tiers["phone"]] == phones
    row["tiers"]["phone"][1][0] = "§"
    with pytest.raises(InputError, match=r"row 1: .*'§' are not IPA"):
        read_clips(manifest(folder, json.dumps(row), "m.jsonl"))


def test_a_misspelt_alphabet_is_an_error(folder):
    """The phones of a file are left out with a warning where they cannot be read; a wrong option is not theirs."""
    words = folder / "words.json"
    words.write_text(
        '{"words": [["shoe", 0.1, 0.5]], "tiers": {"phone": [["sh", 0.1, 0.3], ["uw", 0.3, 0.5]]}}'
    )
    with pytest.raises(InputError, match=r"alphabet must be one of ipa, .*found 'xsampa'"):
        speechmix.Clip.from_file(folder / "clip.wav", words=words, alphabet="xsampa")
