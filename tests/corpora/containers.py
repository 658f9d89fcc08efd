"""The same six recordings in every kind of set: written by the libraries that own the formats."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile

TEXTS = (
    "Les livres.",
    "Le livre dort.",
    "Elle a vu les chats.",
    "Un ami.",
    "Nos maisons.",
    "La maison.",
)
ENDINGS = ("wav", "flac", "mp3", "ogg", "wav", "mp3")
NAMES = tuple(f"clip_{index}" for index in range(len(TEXTS)))


def encoded(index: int) -> bytes:
    """A tone with noise in the format of its ending."""
    file = io.BytesIO()
    time = np.arange(8_000 + 400 * index) / 16_000
    sound = (
        np.sin(time * 600 * (index + 1)) / 4
        + np.random.default_rng(index).standard_normal(len(time)) / 50
    )
    soundfile.write(file, sound, 16_000, format=ENDINGS[index])
    return file.getvalue()


def write_files(folder: Path) -> Path:
    """A manifest with a file for each recording."""
    folder.mkdir()
    rows = ["path\ttext\tlanguage"]
    for index, name in enumerate(NAMES):
        (folder / f"{name}.{ENDINGS[index]}").write_bytes(encoded(index))
        rows.append(f"{name}.{ENDINGS[index]}\t{TEXTS[index]}\tfr")
    (folder / "manifest.tsv").write_text("\n".join(rows) + "\n")
    return folder / "manifest.tsv"


def write_audio_folder(folder: Path) -> Path:
    write_files(folder)
    table = (folder / "manifest.tsv").read_text().replace("path", "file_name").replace("\t", ",")
    (folder / "manifest.tsv").unlink()
    (folder / "metadata.csv").write_text(table)
    return folder


def write_tars(folder: Path, *, said_in: str = "text") -> Path:
    """Two tars of WebDataset; the text is in a member .txt, or in this entry of a .json."""
    from webdataset import TarWriter

    folder.mkdir()
    for start in (0, 3):
        with TarWriter(str(folder / f"shard-{start // 3:06d}.tar")) as tar:
            for index in range(start, start + 3):
                text = TEXTS[index]
                said = (
                    {"txt": text}
                    if said_in == "txt"
                    else {"json": {said_in: text, "language": "fr"}}
                )
                tar.write({"__key__": NAMES[index], ENDINGS[index]: encoded(index), **said})
    return folder


def tar_of(path: Path, *members: tuple[str, bytes]) -> Path:
    """A tar of these members, in this order."""
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def write_shar(folder: Path, *, aligned: bool = False, shard_size: int | None = 3) -> Path:
    """Lhotse Shar, in two shards, or one without a number; its recordings are written anew as FLAC,
    so no MP3 among them."""
    from lhotse import CutSet, MonoCut, Recording, SupervisionSegment
    from lhotse.supervision import AlignmentItem

    files = write_files(folder.with_name(f"{folder.name}_files")).parent
    cuts = []
    for name, ending, text in zip(NAMES, ENDINGS, TEXTS, strict=True):
        samples, rate = soundfile.read(files / f"{name}.{ending}")
        soundfile.write(files / f"{name}.wav", samples, rate)
        recording = Recording.from_file(files / f"{name}.wav", recording_id=name)
        words = text.strip(".").split()
        items = [AlignmentItem(word, 0.05 + 0.05 * i, 0.05) for i, word in enumerate(words)]
        supervision = SupervisionSegment(
            id=name,
            recording_id=name,
            start=0,
            duration=recording.duration,
            text=text,
            language="fr",
            speaker="s1",
            alignment={"word": items} if aligned else None,
        )
        cuts.append(
            MonoCut(name, 0, recording.duration, 0, supervisions=[supervision], recording=recording)
        )
    folder.mkdir()
    CutSet.from_cuts(cuts).to_shar(folder, fields={"recording": "flac"}, shard_size=shard_size)
    return folder


def data_set():
    import datasets

    datasets.disable_progress_bars()
    rows = [
        {
            "audio": {"bytes": encoded(index), "path": f"{name}.{ENDINGS[index]}"},
            "text": TEXTS[index],
            "language": "fr",
        }
        for index, name in enumerate(NAMES)
    ]
    return datasets.Dataset.from_list(rows).cast_column("audio", datasets.Audio(decode=False))


def write_arrow(folder: Path) -> Path:
    data_set().save_to_disk(folder)
    return folder


def write_parquet(folder: Path) -> Path:
    """Parquet files of a data set, two rows in a row group."""
    (folder / "data").mkdir(parents=True)
    data_set().to_parquet(folder / "data" / "train-00000-of-00001.parquet", batch_size=2)
    return folder


KINDS: dict[str, Callable[[Path], Path]] = {
    "tars": write_tars,
    "shar": write_shar,
    "arrow": write_arrow,
    "parquet": write_parquet,
    "audio folder": write_audio_folder,
}


def add_json(**cells: object) -> bytes:
    return json.dumps(cells).encode()
