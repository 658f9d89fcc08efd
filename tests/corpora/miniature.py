"""A miniature Common Voice release in the exact layout of a real one; its clips are synthesised."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile

COLUMNS = (
    "client_id path sentence_id sentence sentence_domain up_votes down_votes age gender "
    "accents variant locale segment"
)
SENTENCES = {
    "common_voice_fr_1001": "ma table.",
    "common_voice_fr_1002": '"Les maisons, dit-elle.',
    "common_voice_fr_1003": "Elle a vu les livres de mon ami.",
    "common_voice_fr_1004": "tes tables.",
    "common_voice_fr_1005": "Bonjour !",  # no pair
    "common_voice_fr_1006": "les portes.",  # truncated
    "common_voice_fr_1007": "les portes.",  # twelve seconds of silence
}


def spoken_mp3(path: Path, text: str, *, rate: int = 160) -> None:
    """Speak a text into an MP3 of 32 kHz, as Common Voice's are, with a little silence around
    it."""
    from speechmix.alignment.espeak import speak

    speech = speak(text, voice="fr-fr", rate=rate, sample_rate=32_000)
    silence = np.zeros(6_400, np.float32)
    soundfile.write(path, np.concatenate([silence, speech.audio, silence]), 32_000)


def row(name: str, sentence: str, **cells: str) -> str:
    """One line of a release's table."""
    known = {
        "client_id": "a1b2",
        "path": f"{name}.mp3",
        "sentence": sentence,
        "up_votes": "2",
        "locale": "fr",
        **cells,
    }
    return "\t".join(known.get(column, "") for column in COLUMNS.split())


def write_release(folder: Path) -> Path:
    """Write `cv-corpus-99.0-2030-01-01/fr` with good and bad rows; return it."""
    release = folder / "cv-corpus-99.0-2030-01-01" / "fr"
    clips = release / "clips"
    clips.mkdir(parents=True)
    for name, sentence in SENTENCES.items():
        spoken_mp3(clips / f"{name}.mp3", sentence)
    truncated = clips / "common_voice_fr_1006.mp3"
    truncated.write_bytes(truncated.read_bytes()[: truncated.stat().st_size // 2])
    soundfile.write(clips / "common_voice_fr_1007.mp3", np.zeros(12 * 32_000), 32_000)
    lines = [
        COLUMNS.replace(" ", "\t"),
        *(row(name, sentence) for name, sentence in SENTENCES.items()),
    ]
    lines += [
        row("common_voice_fr_1001", SENTENCES["common_voice_fr_1001"]),  # a duplicate
        row("common_voice_fr_1003", "", path="common_voice_fr_empty.mp3"),
        row("common_voice_fr_gone", "les portes."),
    ]
    (release / "validated.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (release / "clip_durations.tsv").write_text(
        "clip\tduration[ms]\ncommon_voice_fr_1001.mp3\t1000\n", encoding="utf-8"
    )
    (release / "validated_sentences.tsv").write_text(
        "sentence_id\tsentence\nx\tma table.\n", encoding="utf-8"
    )
    (release / "reported.tsv").write_text(
        "sentence\tsentence_id\tlocale\treason\n", encoding="utf-8"
    )
    return release
