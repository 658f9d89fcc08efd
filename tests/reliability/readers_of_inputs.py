"""Readers of what a user brings, under test: words, manifests, corpora, templates, lexicons,
sound."""

from __future__ import annotations

import io
import json
import math
import tarfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from speechmix import Clip
from speechmix.errors import SpeechmixError
from speechmix.extensions.agreement.blimp import read_blimp
from speechmix.inputs.audio.audio_source import audio_fingerprint, audio_seconds, read_audio
from speechmix.inputs.audio.decoding import MAX_AUDIO_SECONDS
from speechmix.inputs.clips.corpus_row import RejectedRow, Row
from speechmix.inputs.clips.manifests import read_clips
from speechmix.inputs.corpora.corpus_reading import read_corpus, read_corpus_clips
from speechmix.inputs.formats.word_files import read_words
from speechmix.inputs.words.word_checks import check_words
from speechmix.studies.french.language.lexicon import Lexicon, read_lexicon_rows
from speechmix.studies.french.pair_template import Template, load_template
from tests.corpora.containers import write_shar

from .target import RATE, Target, copied, look_over, require, text_file, tone


def _read_words(name: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        words = read_words(folder / name)
        require(bool(words) and list(check_words(words)) == words, words)
        require(all(math.isfinite(word.start) and word.text.strip() for word in words), words)
        return words

    return read


_WHISPER = {
    "segments": [{"words": [{"word": " les", "start": 0.1, "end": 0.2, "probability": 0.9}]}]
}
_CHUNKS = {
    "chunks": [
        {"text": " les", "timestamp": [0.1, 0.2]},
        {"text": " livres", "timestamp": [0.2, 0.7]},
    ]
}
_TIERS = {
    "start": 0,
    "end": 1,
    "tiers": {"words": {"type": "interval", "entries": [[0.1, 0.2, "les"], [0.2, 0.7, "livres"]]}},
}


def _write_manifest(name: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        copied(name, "words.tsv", "words.json", "words.TextGrid")(folder)
        tone(folder)

    return write


def _read_manifest(name: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        clips = read_clips(folder / name, on_error=lambda row, name, error: None)
        look_over(clips)
        read_clips(folder / name)
        return [
            (clip.name, clip.text, clip.words, clip.cue, clip.target, clip.foil, clip.meta)
            for clip in clips
        ]

    return read


def _read_corpus(source: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        rows = list(read_corpus(folder / source if source else folder))
        for row in rows:
            require(
                isinstance(row, Row | RejectedRow) and isinstance(row.name, str) and bool(row.name),
                row,
            )
            str(row).encode()
        return [row for row in rows if isinstance(row, Row)]

    return read


def _read_container(name: str) -> Callable[[Path], Any]:
    """Rows of a set that holds many recordings in a file, and their sounds, each read where it lies
    or refused."""

    def read(folder: Path) -> Any:
        rows = _read_corpus(name)(folder)
        sounds = []
        for clip in read_corpus_clips(folder / name, on_error=lambda row, name, error: None):
            try:
                sounds.append(clip.audio(RATE).tobytes())
            except SpeechmixError:
                sounds.append(b"")
        return rows, sounds

    return read


def _write_tars(folder: Path) -> None:
    (folder / "tars").mkdir()
    with tarfile.open(folder / "tars" / "shard-000000.tar", "w") as tar:
        for name in ("a", "b", "c"):
            tar.add(tone(folder, f"{name}.wav", seconds=0.1), f"{name}.wav")
            said = json.dumps({"text": "les livres", "language": "fr"}).encode()
            member = tarfile.TarInfo(f"{name}.json")
            member.size = len(said)
            tar.addfile(member, io.BytesIO(said))


def _write_shar(folder: Path) -> None:
    write_shar(folder / "shar", aligned=True)


def _write_release(folder: Path) -> None:
    tone(folder, "clips/a.mp3")
    tone(folder, "clips/b.mp3")
    rows = ("path\tsentence\tage", "a.mp3\tLe livre dort.\tteens", "b.mp3\tLes livres dorment.\t")
    (folder / "validated.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def _write_hub_folder(folder: Path) -> None:
    import datasets

    datasets.disable_progress_bars()
    sound = tone(folder, "sound.wav", 0.05).read_bytes()
    rows = [
        {"audio": {"bytes": sound, "path": f"{name}.wav"}, "sentence": f"Le livre {name}."}
        for name in "ab"
    ]
    data = datasets.Dataset.from_list(rows).cast_column("audio", datasets.Audio(decode=False))
    data.save_to_disk(folder / "data")


_PAIR = {
    "sentence_good": "Most ladies haven't left.",
    "sentence_bad": "Most ladies hasn't left.",
    "pairID": "7",
}


def _read_blimp(folder: Path) -> Any:
    items, rejected = read_blimp(folder)
    for item in items:
        require(bool(item.form) and bool(item.sentence(masked=True).words), item)
    return items, rejected


def _read_template(folder: Path) -> Any:
    found = load_template(folder / "det_noun.toml")
    require(
        isinstance(found, Template) and all(isinstance(form, str) for form in found.cues), found
    )
    texts = (
        *found.target_pos,
        *found.tenses,
        *found.exclude_lemmas,
        found.description,
        *found.target_endings,
    )
    texts += tuple(ending for endings in found.target_endings.values() for ending in endings)
    require(all(isinstance(text, str) for text in texts), found)
    return vars(found)


_LEXICON = """form\tsound\tlemma\tpos\tgender\tnumber\tfrequency\tverb
livre\tlivR\tlivre\tNOUN\tm\ts\t12.5\t
livres\tlivR\tlivre\tNOUN\tm\tp\t8.25\t
parle\tpaRl\tparler\tVERB\t\t\t20\tind:pre:3s;imp:pre:2s;
parlent\tpaRl\tparler\tVERB\t\t\t20\tind:pre:3p;
"""
_LEXIQUE = """1_ortho\t2_phon\t3_lemme\t4_cgram\t5_genre\t6_nombre\t7\t8\t9_films\t10_livres\t11_verb\t12
livre\tlivR\tlivre\tNOM\tm\ts\t0\t0\t112,43\t151,76\t\t0\t1
livres\tlivR\tlivre\tNOM\tm\tp\t0\t0\t12,43\t11.76\t\t0\t1
parle\tpaRl\tparler\tVER\t\t\t0\t0\t1\t2\tind:pre:3s;\t0\t1
"""


def _read_lexicon(folder: Path) -> Any:
    rows, is_lexique = read_lexicon_rows(folder / "lexicon.tsv")
    lexicon = Lexicon(rows, is_french=is_lexique)
    for form in list(rows)[:50]:
        require(all(math.isfinite(reading.frequency) for reading in lexicon.readings(form)), form)
        lexicon.noun_partner(form, "s")
        lexicon.verb_partner(form, "3s")
    return {form: lexicon.readings(form) for form in rows}


def _write_sound(name: str, **options: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        noise = np.random.default_rng(0).standard_normal((RATE, options.pop("channels", 1))) / 10
        soundfile.write(folder / name, noise, RATE, **options)

    return write


def _read_sound(name: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        seconds = audio_seconds(folder / name)
        samples = read_audio(folder / name)
        require(
            samples.dtype == np.float32 and samples.ndim == 1 and bool(np.isfinite(samples).all()),
            samples,
        )
        require(
            0 < len(samples) <= MAX_AUDIO_SECONDS * RATE + 1
            and abs(len(samples) / RATE - seconds) < 1,
            (len(samples), seconds),
        )
        Clip.from_file(folder / name).validate()
        return audio_fingerprint(folder / name)

    return read


TARGETS = (
    Target("TextGrid", copied("words.TextGrid"), _read_words("words.TextGrid")),
    Target("TextGrid, short", copied("words_short.TextGrid"), _read_words("words_short.TextGrid")),
    Target("CTM", copied("words.ctm"), _read_words("words.ctm")),
    Target("words JSON", copied("words.json"), _read_words("words.json")),
    Target("words JSON, Whisper", text_file("w.json", json.dumps(_WHISPER)), _read_words("w.json")),
    Target("words JSON, chunks", text_file("w.json", json.dumps(_CHUNKS)), _read_words("w.json")),
    Target("words JSON, tiers", text_file("w.json", json.dumps(_TIERS)), _read_words("w.json")),
    Target("words TSV", copied("words.tsv"), _read_words("words.tsv")),
    Target(
        "words CSV",
        text_file("w.csv", "word,start,end\nles,0.1,0.2\nlivres,0.2,0.5\n"),
        _read_words("w.csv"),
    ),
    *(
        Target(
            f"manifest {kind}",
            _write_manifest(f"manifest.{kind}"),
            _read_manifest(f"manifest.{kind}"),
            ("manifest.*",),
        )
        for kind in ("tsv", "csv", "jsonl")
    ),
    *(
        Target(
            f"corpus {kind}",
            _write_manifest(f"manifest.{kind}"),
            _read_corpus(f"manifest.{kind}"),
            ("manifest.*",),
        )
        for kind in ("tsv", "csv", "jsonl")
    ),
    Target("Common Voice", _write_release, _read_corpus(""), ("*.tsv",)),
    Target("datasets folder", _write_hub_folder, _read_corpus("data"), ("data/*",)),
    *(
        [Target("WebDataset", _write_tars, _read_container("tars"), ("tars/*",))]
        if find_spec("webdataset")
        else []
    ),
    *(
        [Target("Lhotse Shar", _write_shar, _read_container("shar"), ("shar/*",))]
        if find_spec("lhotse")
        else []
    ),
    Target(
        "BLiMP",
        text_file("regular_plural_subject_verb_agreement_1.jsonl", f"{json.dumps(_PAIR)}\n" * 2),
        _read_blimp,
    ),
    Target("template", copied("french/det_noun.toml"), _read_template),
    Target("lexicon", text_file("lexicon.tsv", _LEXICON), _read_lexicon),
    Target("Lexique", text_file("lexicon.tsv", _LEXIQUE), _read_lexicon),
    Target("WAV", _write_sound("a.wav"), _read_sound("a.wav")),
    Target(
        "WAV, float, stereo",
        _write_sound("a.wav", channels=2, subtype="FLOAT"),
        _read_sound("a.wav"),
    ),
    Target("FLAC", _write_sound("a.flac"), _read_sound("a.flac")),
    Target("OGG", _write_sound("a.ogg"), _read_sound("a.ogg")),
    Target("MP3", _write_sound("a.mp3"), _read_sound("a.mp3")),
)
