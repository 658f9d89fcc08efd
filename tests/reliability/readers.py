"""Every reader of a file that a user or an earlier run wrote, with a valid folder to read and what a right result is.

A target writes its valid files into a folder (`write`), says which of them get damaged (`damage`, patterns), and reads the
folder (`read`): an error of speechmix is right, and so is a result that `read` itself has looked over. Where the files have
checksums (`exact`), only the result of the undamaged files is right.
"""

from __future__ import annotations

import functools
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

import speechmix
from speechmix import Clip, MixingMap, Span, bundled
from speechmix.alignment.readers import read_words
from speechmix.audio import audio_seconds, read_audio, sound_fingerprint
from speechmix.audio_files import LONGEST
from speechmix.corpora.blimp import read_blimp
from speechmix.corpora.rows import Rejected, Row, read_corpus
from speechmix.errors import InputError
from speechmix.experiments.run import score_clips
from speechmix.homophony.dataset import about, read_examples, write_examples
from speechmix.homophony.journal import input_digest, inputs_of, kept, lines, options_of, run_stage
from speechmix.homophony.lexicon import Lexicon
from speechmix.homophony.lexicon_files import read_rows
from speechmix.homophony.templates import Template, load_template
from speechmix.manifests import read_clips
from speechmix.reports.run_folder import clip_of, described_run, maps_of_clip, open_run
from speechmix.words import check_words

SHIPPED = Path(__file__).parents[2] / "data_templates"
RATE = 16_000


@dataclass(frozen=True)
class Target:
    """A reader under test; see the module's text."""

    name: str
    write: Callable[[Path], None]
    read: Callable[[Path], Any]
    damage: tuple[str, ...] = ("*",)
    exact: bool = False


def require(true: bool, what: object) -> None:
    if not true:
        raise AssertionError(f"not a right result: {what!r:.300}")


def _tone(folder: Path, name: str = "clip.wav", seconds: float = 2.0) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, 0.3 * np.sin(np.arange(int(RATE * seconds)) / 9), RATE)
    return path


def _copied(*names: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for name in names:
            shutil.copy(SHIPPED / name, folder)

    return write


def _text(name: str, text: str, *also: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_text(text, encoding="utf-8")
        for other in also:
            _tone(folder, other)

    return write


# maps -----------------------------------------------------------------------------------------------------------------


def _a_map() -> MixingMap:
    units = tuple(
        Span(5 * i, 5 * i + 5, word, "word", i, i / 10, i / 10 + 0.1) for i, word in enumerate(("les", "étés"))
    )
    scores = np.random.default_rng(0).random((3, 2, 2)).astype(np.float32)
    provenance = {"model": "tiny", "words": [["les", 0.0, 0.1]], "steps": [], "cue": 0, "seed": None}
    return MixingMap(scores, units, units, "value_zeroing", "encoder", (0, 1, 2), provenance)


def _write_map(folder: Path) -> None:
    _a_map().save(folder / "map.safetensors")


def _write_old_map(folder: Path) -> None:
    from tests.test_map_files import of_version_1

    of_version_1(folder / "map.safetensors", _a_map())


def _read_map(lazy: bool) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        found = MixingMap.load(folder / "map.safetensors", lazy=lazy)
        found.to_dataframe()
        labels = (found.targets, found.sources, found.measure, found.stack, found.layers, found.provenance)
        return found.scores.shape, np.asarray(found.scores).tobytes(), repr(labels)

    return read


# words ----------------------------------------------------------------------------------------------------------------


def _read_words(name: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        words = read_words(folder / name)
        require(bool(words) and list(check_words(words)) == words, words)
        require(all(math.isfinite(word.start) and word.text.strip() for word in words), words)
        return words

    return read


_WHISPER = {"segments": [{"words": [{"word": " les", "start": 0.1, "end": 0.2, "probability": 0.9}]}]}
_CHUNKS = {"chunks": [{"text": " les", "timestamp": [0.1, 0.2]}, {"text": " livres", "timestamp": [0.2, 0.7]}]}
_TIERS = {
    "start": 0,
    "end": 1,
    "tiers": {"words": {"type": "interval", "entries": [[0.1, 0.2, "les"], [0.2, 0.7, "livres"]]}},
}

# lists of clips -------------------------------------------------------------------------------------------------------


def _write_manifest(name: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        _copied(name, "words.tsv", "words.json", "words.TextGrid")(folder)
        _tone(folder)

    return write


def _read_manifest(name: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        clips = read_clips(folder / name, on_error=lambda row, name, error: None)
        _look_over(clips)
        read_clips(folder / name)
        return [(clip.name, clip.text, clip.words, clip.cue, clip.target, clip.foil, clip.meta) for clip in clips]

    return read


def _look_over(clips: list[Clip]) -> None:
    for clip in clips:
        require(bool(clip.name) and isinstance(clip.text, str | None) and isinstance(clip.foil, str | None), clip)
        require(clip.cue is None or clip.words[clip.cue].text, clip)
        require(clip.duration > 0 and bool(repr(clip)), clip)
        json.dumps(clip.meta)


def _read_corpus(source: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        rows = list(read_corpus(folder / source if source else folder))
        for row in rows:
            require(isinstance(row, Row | Rejected) and isinstance(row.name, str) and bool(row.name), row)
            str(row).encode()
        return [row for row in rows if isinstance(row, Row)]

    return read


def _write_release(folder: Path) -> None:
    _tone(folder, "clips/a.mp3")
    _tone(folder, "clips/b.mp3")
    rows = ("path\tsentence\tage", "a.mp3\tLe livre dort.\tteens", "b.mp3\tLes livres dorment.\t")
    (folder / "validated.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def _write_hub_folder(folder: Path) -> None:
    import datasets

    datasets.disable_progress_bars()
    sound = _tone(folder, "sound.wav", 0.05).read_bytes()
    rows = [{"audio": {"bytes": sound, "path": f"{name}.wav"}, "sentence": f"Le livre {name}."} for name in "ab"]
    data = datasets.Dataset.from_list(rows).cast_column("audio", datasets.Audio(decode=False))
    data.save_to_disk(folder / "data")


_PAIR = {"sentence_good": "Most ladies haven't left.", "sentence_bad": "Most ladies hasn't left.", "pairID": "7"}


def _read_blimp(folder: Path) -> Any:
    items, rejected = read_blimp(folder)
    for item in items:
        require(bool(item.form) and bool(item.sentence(masked=True).words), item)
    return items, rejected


# the French study -----------------------------------------------------------------------------------------------------


def _write_examples(folder: Path) -> None:
    _tone(folder, "sound/a.wav", 1.0)
    words = [("les", 0.1, 0.3), ("livres", 0.3, 0.9)]
    words = [{"text": text, "start": start, "end": end, "score": 0.9, "from": 0, "to": 3} for text, start, end in words]
    example = {
        "name": "a", "clip": "a", "audio": "a.wav", "text": "les livres", "language": "fr", "seconds": 1.0,
        "cue": 0, "target": 1,
        "foil": "livre", "words": words, "alignment": "ctc", "doubts": [], "models": [], "meta": '{"age": "teens"}',
    }  # fmt: skip
    write_examples(folder / "data", [example, {**example, "name": "b"}], {"audio_root": str(folder / "sound")})


def _read_examples(folder: Path) -> Any:
    require(isinstance(about(folder / "data"), dict), "about")
    left_out: list[tuple[str, str]] = []
    clips = read_examples(folder / "data", skipped=left_out, audio_root=folder / "sound")
    _look_over(clips)
    read_examples(folder / "data")
    return [(clip.name, clip.text, clip.words, clip.cue, clip.target, clip.foil) for clip in clips], left_out


def _read_template(folder: Path) -> Any:
    found = load_template(folder / "det_noun.toml")
    require(isinstance(found, Template) and all(isinstance(form, str) for form in found.cues), found)
    texts = (*found.target_pos, *found.tenses, *found.exclude_lemmas, found.description, *found.endings)
    texts += tuple(ending for endings in found.endings.values() for ending in endings)
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
    rows, is_lexique = read_rows(folder / "lexicon.tsv")
    lexicon = Lexicon(rows, repair=is_lexique)
    for form in list(rows)[:50]:
        require(all(math.isfinite(reading.frequency) for reading in lexicon.readings(form)), form)
        lexicon.noun_partner(form, "s")
        lexicon.verb_partner(form, "3s")
    return {form: lexicon.readings(form) for form in rows}


_ITEMS = [(key, {"text": f"le livre {key}"}) for key in "abcdef"]


def _stage(folder: Path, *, dies_at: str | None = None, overwrite: bool = False) -> Path:
    def work(item: dict) -> dict:
        if item["text"].endswith(f" {dies_at}"):
            raise KeyboardInterrupt
        if item["text"].endswith(" b"):
            raise InputError("left out")
        return {"length": len(item["text"]), "text": item["text"]}

    return run_stage(folder / "lengths.jsonl", _ITEMS, work, options={"language": "fr"}, overwrite=overwrite)


def _write_stage(dies_at: str | None) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        try:
            _stage(folder, dies_at=dies_at)
        except KeyboardInterrupt:
            require(dies_at is not None, "a stage that died")

    return write


def _read_stage(folder: Path) -> Any:
    path = folder / "lengths.jsonl"
    for line in lines(path):
        require(isinstance(line, dict) and isinstance(line["key"], str), line)
    require(isinstance(options_of(path), dict) and isinstance(inputs_of(path), dict), "options")
    return input_digest(path, "length", "text"), list(kept(path))


def _resume_stage(folder: Path) -> Any:
    try:
        path = _stage(folder)
    except InputError:
        path = _stage(folder, overwrite=True)
    return list(lines(path))


# a run ----------------------------------------------------------------------------------------------------------------


def _write_run(folder: Path) -> None:
    from tests.reports.synthetic_runs import synthetic_run

    synthetic_run(folder / "run", clips=2, layers=2, measures=("value_zeroing",), mapped=1)


def _read_run(folder: Path) -> Any:
    run = open_run(folder / "run")
    require(isinstance(described_run(run), dict) and run.done >= 0 and isinstance(run.summary(), str), run)
    tables = [run.clips, run.contributions, run.ablation, run.transcripts]
    require({"clip", "seconds"} <= set(run.clips), list(run.clips))
    maps = {name: maps_of_clip(run, name) for name in list(run.clips["clip"])[:3]}
    for name, by_model in maps.items():
        clip_of(run, name, by_model)
    return [table.to_csv() for table in tables], [_bytes_of(by_model) for by_model in maps.values()]


def _bytes_of(maps: dict) -> dict:
    return {model: {key: one.scores.tobytes() for key, one in by_key.items()} for model, by_key in maps.items()}


def _begin_run(folder: Path) -> None:
    _go_on_with_run(folder)


def _go_on_with_run(folder: Path) -> Any:
    """Start a run again: whatever is damaged is made anew, or the run refuses; the tables are those of before."""
    clip = bundled.clips()[0]
    options = {"measures": ["value_zeroing"], "figures": 0, "ablation": True, "progress": False, "report": str}
    run = score_clips([_model()], [clip], folder / "run", **options)
    require(run.done == 1 and not run.skipped, run.summary())
    maps = _bytes_of(maps_of_clip(run, clip.name))
    tables = (run.clips, run.contributions, run.ablation, run.transcripts)
    return [table.to_csv() for table in tables], maps, sorted(path.name for path in folder.rglob("*.[ctp]*"))


@functools.cache
def _model() -> Any:
    return speechmix.load(str(bundled.models()["tiny-french-ctc"]), device="cpu")


# sound ----------------------------------------------------------------------------------------------------------------


def _write_sound(name: str, **options: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        noise = np.random.default_rng(0).standard_normal((RATE, options.pop("channels", 1))) / 10
        soundfile.write(folder / name, noise, RATE, **options)

    return write


def _read_sound(name: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        seconds = audio_seconds(folder / name)
        samples = read_audio(folder / name)
        require(samples.dtype == np.float32 and samples.ndim == 1 and bool(np.isfinite(samples).all()), samples)
        require(
            0 < len(samples) <= LONGEST * RATE + 1 and abs(len(samples) / RATE - seconds) < 1, (len(samples), seconds)
        )
        Clip.from_file(folder / name).validate()
        return sound_fingerprint(folder / name)

    return read


TARGETS = (
    Target("map", _write_map, _read_map(False), exact=True),
    Target("map, lazy", _write_map, _read_map(True), exact=True),
    Target("map of version 1", _write_old_map, _read_map(False)),
    Target("TextGrid", _copied("words.TextGrid"), _read_words("words.TextGrid")),
    Target("TextGrid, short", _copied("words_short.TextGrid"), _read_words("words_short.TextGrid")),
    Target("CTM", _copied("words.ctm"), _read_words("words.ctm")),
    Target("words JSON", _copied("words.json"), _read_words("words.json")),
    Target("words JSON, Whisper", _text("w.json", json.dumps(_WHISPER)), _read_words("w.json")),
    Target("words JSON, chunks", _text("w.json", json.dumps(_CHUNKS)), _read_words("w.json")),
    Target("words JSON, tiers", _text("w.json", json.dumps(_TIERS)), _read_words("w.json")),
    Target("words TSV", _copied("words.tsv"), _read_words("words.tsv")),
    Target("words CSV", _text("w.csv", "word,start,end\nles,0.1,0.2\nlivres,0.2,0.5\n"), _read_words("w.csv")),
    *(
        Target(f"manifest {kind}", _write_manifest(f"manifest.{kind}"), _read_manifest(f"manifest.{kind}"), ("manifest.*",))
        for kind in ("tsv", "csv", "jsonl")
    ),
    *(
        Target(f"corpus {kind}", _write_manifest(f"manifest.{kind}"), _read_corpus(f"manifest.{kind}"), ("manifest.*",))
        for kind in ("tsv", "csv", "jsonl")
    ),
    Target("Common Voice", _write_release, _read_corpus(""), ("*.tsv",)),
    Target("datasets folder", _write_hub_folder, _read_corpus("data"), ("data/*",)),
    Target(
        "BLiMP", _text("regular_plural_subject_verb_agreement_1.jsonl", f"{json.dumps(_PAIR)}\n" * 2), _read_blimp
    ),
    Target("annotated data set", _write_examples, _read_examples, ("data/examples.parquet", "data/about.json")),
    Target("template", _copied("french/det_noun.toml"), _read_template),
    Target("lexicon", _text("lexicon.tsv", _LEXICON), _read_lexicon),
    Target("Lexique", _text("lexicon.tsv", _LEXIQUE), _read_lexicon),
    Target("journal", _write_stage(None), _read_stage, ("*.jsonl",), exact=True),
    Target("journal, done again", _write_stage(None), _resume_stage, ("*.jsonl",), exact=True),
    Target("journal, resumed", _write_stage("d"), _resume_stage, ("*.unfinished",), exact=True),
    Target("run folder", _write_run, _read_run, ("run/*.json", "run/*.csv", "run/*.parquet", "run/maps/*/*/*")),
    Target("run, gone on with", _begin_run, _go_on_with_run, ("run/*.json", "run/*/*/*", "run/*/*/*/*"), exact=True),
    Target("WAV", _write_sound("a.wav"), _read_sound("a.wav")),
    Target("WAV, float, stereo", _write_sound("a.wav", channels=2, subtype="FLOAT"), _read_sound("a.wav")),
    Target("FLAC", _write_sound("a.flac"), _read_sound("a.flac")),
    Target("OGG", _write_sound("a.ogg"), _read_sound("a.ogg")),
    Target("MP3", _write_sound("a.mp3"), _read_sound("a.mp3")),
)  # fmt: skip
