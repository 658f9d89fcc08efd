"""Words aligned again with the speakers' own sounds: which alignment is kept, what is made again,
what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from speechmix.alignment import Alignment, synthesis_aligner
from speechmix.alignment.speaker_sounds import learn_voice
from speechmix.errors import AlignmentError, InputError
from speechmix.files.shard_assignment import Shard
from speechmix.inputs.clips.corpus_row import seeded_uniform
from speechmix.inputs.formats.word_files import read_words
from speechmix.inputs.words.spans import Word
from speechmix.interfaces.cli import main
from speechmix.runs.journal.stage_lines import lines, read_kept_lines
from speechmix.studies.french import speaker_adaptation as adapting
from speechmix.studies.french import speaker_adaptation as corpus_voices
from speechmix.studies.french.speaker_adaptation import (
    MIN_SPEAKER_CLIPS,
    align_adapted,
    align_study,
    count_adapted,
)
from speechmix.studies.french.stages import align_corpus

RATE = 16_000
ROOT = Path(__file__).resolve().parents[2]


def write_manifest(folder, names, speaker="anna"):
    """Clips of one second; of every third one the adapted alignment is the worse one."""
    rng = np.random.default_rng(0)
    rows = []
    for number, name in enumerate(names):
        audio = rng.normal(0, 0.1, RATE) * (1.05 + np.sin(np.arange(RATE) / 900 + number))
        soundfile.write(folder / f"{name}.wav", audio, RATE)
        text = "non merci" if number % 3 == 2 else "les livres"
        rows.append({"path": f"{name}.wav", "text": text, "speaker": speaker, "language": "fr"})
    (folder / "m.jsonl").write_text(
        "".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8"
    )
    return folder / "m.jsonl"


@pytest.fixture
def manifest(tmp_path):
    (tmp_path / "corpus").mkdir()
    return write_manifest(
        tmp_path / "corpus", [f"clip_{i:02}" for i in range(MIN_SPEAKER_CLIPS + 4)]
    )


@pytest.fixture(scope="module")
def voice():
    rng = np.random.default_rng(0)
    return learn_voice(
        {(phoneme, 0): rng.normal(mean, 1, (50, 4)) for phoneme, mean in (("a", 2), ("s", -2))}
    )


@pytest.fixture(autouse=True)
def aligned(monkeypatch, voice):
    """Which texts were aligned, and whether with a voice, by an aligner and a teacher that take no
    time."""
    asked = []
    monkeypatch.setattr(corpus_voices, "frames_by_sound", lambda clips: {})
    monkeypatch.setattr(corpus_voices, "learn_voice", lambda frames: voice)

    def align(audio, text, *, language, speaker_voice=None):
        asked.append((text, speaker_voice is not None))
        trusted = text.startswith("il")
        score = (
            (0.8 if trusted else 0.5)
            if speaker_voice is None
            else 0.4
            if text.startswith("non")
            else 0.9
        )
        doubts = (
            ("may not be what is said",)
            if text.startswith("elle") and speaker_voice is not None
            else ()
        )
        shift = 0.0 if speaker_voice is None else 0.1
        words = tuple(
            Word(word, 0.1 + shift + i / 3, 0.3 + shift + i / 3, score)
            for i, word in enumerate(text.split())
        )
        phonemes = tuple(
            Word(name, i / 5, (i + 1) / 5) for i, name in enumerate(("ˈa", "s", "a", "s"))
        )
        return Alignment(
            words,
            "synthesis" if speaker_voice is None else adapting.ADAPTED,
            score,
            doubts,
            phonemes,
        )

    def words(audio, text, *, language, speaker_voice=None):
        return align(audio, text, language=language, speaker_voice=speaker_voice).words

    def align_alone(audio, text, *, language, sample_rate):
        found = align(audio, text, language=language)
        asked.pop()
        return found

    # Whoever aligns without adaptation does not ask the module of adaptation.
    monkeypatch.setattr(synthesis_aligner, "align_by_synthesis", align_alone)
    monkeypatch.setattr(adapting, "align_by_synthesis", align)
    monkeypatch.setattr(adapting, "words_by_synthesis", words)
    return asked


def test_the_better_scored_alignment_is_kept_and_said(manifest, tmp_path):
    path = align_adapted(tmp_path / "study", source=manifest)
    placed = {line["key"]: line for line in read_kept_lines(path)}
    assert count_adapted(path) == (11, 16)
    for number in range(16):
        line = placed[f"clip_{number:02}"]
        adapted = number % 3 != 2
        assert line["alignment"] == ("adapted synthesis" if adapted else "synthesis")
        assert (line["score"], line["first_score"]) == (0.9 if adapted else 0.5, 0.5)
        (first, _) = read_words(tmp_path / "study" / "textgrids" / f"{line['key']}.TextGrid")
        assert first.start == pytest.approx(0.2 if adapted else 0.1)
        assert "phonemes" not in line


def test_again_nothing_is_aligned_and_a_clip_more_is_heard_by_the_others(
    manifest, tmp_path, aligned
):
    align_adapted(tmp_path / "study", source=manifest)
    voices = {file.name for file in (tmp_path / "study" / adapting.ADAPTATION / "voices").iterdir()}
    assert len(aligned) == 2 * 16
    aligned.clear()
    before = (tmp_path / "study" / "words.jsonl").read_bytes()
    align_adapted(tmp_path / "study", source=manifest)
    assert aligned == []
    assert (tmp_path / "study" / "words.jsonl").read_bytes() == before
    write_manifest(manifest.parent, [f"clip_{i:02}" for i in range(MIN_SPEAKER_CLIPS + 5)])
    align_adapted(tmp_path / "study", source=manifest)
    assert [own for _, own in aligned].count(False) == 1
    assert voices < {
        file.name for file in (tmp_path / "study" / adapting.ADAPTATION / "voices").iterdir()
    }


def test_stopped_in_the_second_alignment_it_goes_on_there(manifest, tmp_path, aligned, monkeypatch):
    whole = align_adapted(tmp_path / "whole", source=manifest)
    aligned.clear()
    quick = adapting.align_by_synthesis

    def stopped(*args, **options):
        if len(aligned) == 24:
            raise KeyboardInterrupt
        return quick(*args, **options)

    monkeypatch.setattr(adapting, "align_by_synthesis", stopped)
    with pytest.raises(KeyboardInterrupt):
        align_adapted(tmp_path / "study", source=manifest)
    monkeypatch.setattr(adapting, "align_by_synthesis", quick)
    path = align_adapted(tmp_path / "study", source=manifest)
    assert len(aligned) == 2 * 16
    assert list(read_kept_lines(path)) == list(read_kept_lines(whole))


def test_no_clip_is_judged_by_a_voice_that_has_heard_it(manifest, tmp_path, monkeypatch):
    heard = []
    monkeypatch.setattr(
        corpus_voices, "frames_by_sound", lambda clips: heard.append(len(list(clips))) or {}
    )
    align_adapted(tmp_path / "study", source=manifest)
    parts = np.bincount(
        [int(corpus_voices.PART_COUNT * seeded_uniform(f"clip_{i:02}", 0)) for i in range(16)],
        minlength=corpus_voices.PART_COUNT,
    )
    assert {16 - part for part in parts[parts > 0]} == set(heard)


@pytest.mark.long
def test_real_commands_lie_better_and_are_doubted_less(tmp_path, monkeypatch):
    """Commands of one real speaker, whose borders were read off spectrograms."""
    pytest.importorskip("espeakng_loader", reason="synthesis needs the extra speechmix[synthesis]")
    commands = ROOT.parent / "shared" / "data" / "clips_fr"
    if not commands.is_dir():
        pytest.skip("the folder ../shared with recordings is absent")
    monkeypatch.undo()  # aligner and teacher are the real ones
    borders = json.loads((ROOT / "benchmarks" / "real_borders.json").read_text(encoding="utf-8"))
    path = align_adapted(tmp_path / "study", source=commands / "manifest.tsv")
    first = tmp_path / "study" / adapting.ADAPTATION / "first.jsonl"

    def judged(placed):
        lines = [
            line
            for line in read_kept_lines(placed)
            if len(borders[line["key"]]) == len(line["words"])
        ]
        off = [
            np.abs(np.array([word[2:4] for word in line["words"]]) - borders[line["key"]])
            for line in lines
        ]
        return np.percentile(np.concatenate(off), 95), sum(bool(line["doubts"]) for line in lines)

    (before, doubted), (after, still_doubted) = judged(first), judged(path)
    assert count_adapted(path)[0] >= 15
    assert after < before
    assert still_doubted < doubted


def test_few_clips_have_no_voice_and_those_of_several_speakers_are_taken_together(
    manifest, tmp_path, aligned
):
    rows = [json.loads(row) for row in manifest.read_text(encoding="utf-8").splitlines()]
    few = manifest.with_name("few.jsonl")
    few.write_text("".join(f"{json.dumps(row)}\n" for row in rows[:4]), encoding="utf-8")
    assert count_adapted(align_adapted(tmp_path / "few", source=few)) == (0, 4)
    mixed = manifest.with_name("mixed.jsonl")
    several = [row | {"speaker": f"speaker {number % 4}"} for number, row in enumerate(rows)]
    mixed.write_text("".join(f"{json.dumps(row)}\n" for row in several), encoding="utf-8")
    assert count_adapted(align_adapted(tmp_path / "mixed", source=mixed)) == (11, 16)


def test_an_alignment_without_doubts_is_not_replaced_by_a_doubtful_one(manifest, tmp_path):
    rows = [json.loads(row) for row in manifest.read_text(encoding="utf-8").splitlines()]
    rows[0] |= {"text": "elle vient"}
    manifest.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    placed = {
        line["key"]: line
        for line in read_kept_lines(align_adapted(tmp_path / "study", source=manifest))
    }
    assert (placed["clip_00"]["alignment"], placed["clip_00"]["doubts"]) == ("synthesis", [])
    assert placed["clip_03"]["alignment"] == "adapted synthesis"


def test_words_that_the_corpus_brings_stay_and_a_clip_that_fails_is_left_out(
    manifest, tmp_path, monkeypatch
):
    rows = [json.loads(row) for row in manifest.read_text(encoding="utf-8").splitlines()]
    words = [
        {"text": "les", "start": 0.25, "end": 0.4},
        {"text": "livres", "start": 0.4, "end": 0.9},
    ]
    rows[0] |= {"words": words}
    rows[1] |= {"text": "impossible"}
    manifest.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    quick = adapting.align_by_synthesis

    def refused(audio, text, **options):
        if text == "impossible":
            raise AlignmentError("expected speech")
        return quick(audio, text, **options)

    monkeypatch.setattr(adapting, "align_by_synthesis", refused)
    placed = {
        line["key"]: line for line in lines(align_adapted(tmp_path / "study", source=manifest))
    }
    assert (placed["clip_00"]["alignment"], placed["clip_00"]["words"][0][2]) == ("given", 0.25)
    assert (placed["clip_01"]["why"], placed["clip_01"]["reason"]) == (
        "not aligned",
        "expected speech",
    )
    assert placed["clip_03"]["alignment"] == "adapted synthesis"


def test_words_placed_otherwise_are_not_replaced_unasked(manifest, tmp_path, aligned):
    from tests.homophony.test_shards import write_manifest as given_words

    (tmp_path / "given").mkdir()
    align_corpus(tmp_path / "study", source=given_words(tmp_path / "given", ["a", "b"]))
    with pytest.raises(InputError, match="made without adaptation"):
        align_adapted(tmp_path / "study", source=manifest)
    assert aligned == []
    assert count_adapted(align_adapted(tmp_path / "study", source=manifest, overwrite=True)) == (
        11,
        16,
    )


def test_boundaries_of_a_trusted_text_move_ten_milliseconds_at_most(manifest, tmp_path):
    rows = [json.loads(row) for row in manifest.read_text(encoding="utf-8").splitlines()]
    rows[0] |= {"text": "il dort"}
    manifest.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    placed = {
        line["key"]: line
        for line in read_kept_lines(align_adapted(tmp_path / "study", source=manifest))
    }
    before = {
        line["key"]: line
        for line in read_kept_lines(tmp_path / "study" / adapting.ADAPTATION / "first.jsonl")
    }
    line, first = placed["clip_00"], before["clip_00"]
    assert (line["alignment"], line["score"], line["doubts"]) == (
        "adapted synthesis",
        0.8,
        first["doubts"],
    )
    moves = np.array([word[2:4] for word in line["words"]]) - np.array(
        [word[2:4] for word in first["words"]]
    )
    np.testing.assert_allclose(moves, 0.01, atol=1e-9)  # the second alignment has them 100 ms later
    assert [word[4] for word in line["words"]] == [word[4] for word in first["words"]]


def test_adapted_by_default_in_one_process_alone(manifest, tmp_path):
    notes = []
    assert count_adapted(align_study(tmp_path / "one", source=manifest, log=notes.append)) == (
        11,
        16,
    )
    for index in (1, 2):
        path = align_study(
            tmp_path / "shards", source=manifest, shard=Shard(index, 2), log=notes.append
        )
    assert count_adapted(tmp_path / "shards" / "words.jsonl")[0] == 0, path
    assert notes[0] == "adapted: used on 11 of 16 clips"
    assert "a shard does not see all clips" in notes[1]


def test_words_begun_without_adaptation_go_on_so(manifest, tmp_path, aligned):
    study, notes = tmp_path / "study", []
    plain = align_study(study, source=manifest, adapt=False).read_bytes()
    assert align_study(study, source=manifest, log=notes.append).read_bytes() == plain
    assert "--adapt --overwrite" in notes[0]
    align_study(study, source=manifest, overwrite=True)
    assert count_adapted(study / "words.jsonl") == (11, 16)


def test_the_command(manifest, tmp_path, capsys):
    assert main(["align", str(tmp_path / "study"), "--corpus", str(manifest)]) == 0
    assert "adapted: used on 11 of 16 clips" in capsys.readouterr().out
    assert main(["align", str(tmp_path / "study"), "--adapt", "--shard", "1/2"]) != 0
    error = capsys.readouterr().err
    assert "--adapt goes with" in error
    assert "split the corpus by speaker, a study for each part" in error
