"""Align one corpus sentence, after checking that its recording is complete.

In: a line of the pairs (audio path, text, perhaps words). Out: its written words with times, by any
aligner, and a TextGrid. What sounds is what is aligned ("quatre-vingts"), what is written is what
gets the times ("80").
"""

from __future__ import annotations

import hashlib
import heapq
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ...alignment import Alignment, aligned_words, place_words
from ...alignment.comparison import compare_aligners
from ...alignment.word_linking import link_words
from ...errors import InputError
from ...files.json_files import JsonObject
from ...files.text_files import write_csv
from ...files.whole_files import whole_file
from ...inputs.audio.decoding import TruncatedAudioError
from ...inputs.audio.loading import audio_seconds
from ...inputs.clips.clip import Clip
from ...inputs.clips.corpus_row import seeded_uniform
from ...inputs.formats.word_files import read_words, write_textgrid
from ...inputs.words.timed_words import Word
from ...inputs.words.word_checks import check_words
from ...runs.journal.stage_journal import SkipItem
from ...runs.journal.stage_lines import read_kept_lines
from .language.spoken import WrittenWord, split_written_words, spoken_text, word_text
from .study_folder import PAIRS, clip_from_line

if TYPE_CHECKING:
    from ...adapters import Model

_SILENCE_PEAK = 1e-3  # peak of the samples, full scale 1: -60 dB
_DECODER_TOLERANCE = 0.1  # seconds that a decoder may miss of what the header says


def align_line(
    line: JsonObject,
    folder: Path,
    *,
    method: str = "auto",
    model: Model | None = None,
    textgrids: str | PathLike[str] | None = None,
) -> JsonObject:
    """Align one line, write its TextGrid into `folder`, and return what the stage keeps.

    That is seconds, alignment (method), score, doubts, and words: [from, to, start, end, score],
    characters of the text and seconds. SkipItem for audio that cannot be decoded, is cut off or
    silent, and for a TextGrid that is not there; AlignmentError if the words cannot be placed.
    """
    clip = clip_from_line(line)
    check_audio(clip)
    if "words" in line:
        alignment = Alignment(tuple(Word(*word) for word in line["words"]), "given", 1.0)
    elif textgrids is not None:
        alignment = Alignment(
            tuple(read_words(_find_textgrid(textgrids, clip.name))), "textgrid", 1.0
        )
    else:
        alignment = _place_clip(clip, method=method, model=model)
    words, kept_line = make_stored_words(clip, alignment)
    write_clip_textgrid(folder, clip, words)
    return kept_line


def make_stored_words(clip: Clip, alignment: Alignment) -> tuple[tuple[Word, ...], JsonObject]:
    """The clip's written words with their times, and what `align_line` returns of them."""
    written_words = split_text_words(clip.text or "", clip.language)
    words = transfer_word_times(clip, alignment.words, written_words)
    metadata = {
        "seconds": round(clip.duration, 4),
        "alignment": alignment.method,
        "score": round(alignment.score, 4),
    }
    word_rows = [
        [
            written_word.start,
            written_word.stop,
            round(word.start, 4),
            round(word.end, 4),
            word.score and round(word.score, 4),
        ]
        for written_word, word in zip(written_words, words, strict=True)
    ]
    return words, {**metadata, "doubts": list(alignment.doubts), "words": word_rows}


def write_clip_textgrid(folder: Path, clip: Clip, words: Sequence[Word]) -> None:
    """Write a clip's TextGrid, whole or not at all."""
    with whole_file(folder / f"{clip.name}.TextGrid", one_writer=True) as unfinished:
        write_textgrid(unfinished, list(words), clip.duration)


def compare_on_sample(
    study: str | PathLike[str],
    aligners: Mapping[str, tuple[str, Model | str | None]],
    *,
    clips: int = 20,
    seed: int = 0,
) -> pd.DataFrame:
    """Align a sample of the mined sentences with several aligners.

    See `speechmix.alignment.comparison`. Word times that the corpus brought are the reference. An
    aligner is (method, model), or ("textgrid", folder). Which of the clips are taken depends on
    their names and the seed. The table is that of `compare_aligners`, also written to
    ``aligners.csv`` in the study folder.
    """
    study = Path(study)
    sample = heapq.nsmallest(
        clips, read_kept_lines(study / PAIRS), key=lambda line: seeded_uniform(line["key"], seed)
    )

    def iterate_sample() -> Iterator[Clip]:
        for line in sample:
            clip = clip_from_line(line)
            if "words" in line:
                clip = clip.with_words(
                    transfer_word_times(clip, [Word(*word) for word in line["words"]])
                )
            yield clip

    def make_aligner(method: str, model: Model | str | None) -> Callable[[Clip], tuple[Word, ...]]:
        def align(clip: Clip) -> tuple[Word, ...]:
            check_audio(clip)
            if method == "textgrid" or isinstance(model, str):
                return transfer_word_times(clip, read_words(_find_textgrid(str(model), clip.name)))
            return transfer_word_times(clip, _place_clip(clip, method=method, model=model).words)

        return align

    table = compare_aligners(
        iterate_sample(),
        {name: make_aligner(*method_and_model) for name, method_and_model in aligners.items()},
    )
    write_csv(table, study / "aligners.csv")
    return table


def check_audio(clip: Clip) -> None:
    """Raise `SkipItem` for a recording that cannot be decoded, ends before its header says, or is
    silent."""
    where = clip.name if clip.path is None else clip.path.name
    try:
        audio = clip.audio(16_000)
        header_duration = clip.duration if clip.path is None else audio_seconds(clip.path)
    except TruncatedAudioError as error:
        raise SkipItem("truncated audio", str(error)) from error
    except InputError as error:
        raise SkipItem("unreadable audio", str(error)) from error
    seconds = len(audio) / 16_000
    if seconds < header_duration - max(_DECODER_TOLERANCE, 0.01 * header_duration):
        raise SkipItem(
            "truncated audio",
            f"{where}: its header promises {header_duration:.2f} s, {seconds:.2f} s can be decoded: fetch "
            "it again",
        )
    if np.abs(audio).max() < _SILENCE_PEAK:
        raise SkipItem("silence", f"{where}: {seconds:.1f} s of silence, expected speech")


def split_text_words(text: str, language: str | None) -> list[WrittenWord]:
    """Written words of a text; of a language other than French, what stands between spaces."""
    if (language or "fr").startswith("fr"):
        return split_written_words(text)
    tokens = (match for match in re.finditer(r"\S+", text) if aligned_words(match.group()))
    return [WrittenWord(*match.span(), (match.group().lower(),)) for match in tokens]


def _place_clip(clip: Clip, *, method: str = "auto", model: Model | None = None) -> Alignment:
    """Align a clip's text: CTC models are given it as it is spoken, the others read figures
    themselves."""
    from ...alignment.ctc import has_ctc_head

    uses_ctc = method == "ctc" or (method == "auto" and model is not None and has_ctc_head(model))
    is_french = (clip.language or "fr").startswith("fr")
    text = clip.text or ""
    text = spoken_text(text) if uses_ctc and is_french else text
    return place_words(clip, text, model=model, method=method)


def transfer_word_times(
    clip: Clip, aligner_words: Sequence[Word], written_words: list[WrittenWord] | None = None
) -> tuple[Word, ...]:
    """Give the clip's written words the times of what an aligner heard."""
    text = clip.text or ""
    written_words = (
        split_text_words(text, clip.language) if written_words is None else written_words
    )
    pairs = [(word_text(word, text), " ".join(word.spoken_words)) for word in written_words]
    words = link_words(
        pairs,
        aligner_words,
        spoken=spoken_text if (clip.language or "fr").startswith("fr") else str,
    )
    return check_words(words, duration=clip.duration, where=f"clip {clip.name!r}")


def textgrid_digest(folder: str | PathLike[str], name: str) -> str | None:
    """Hash of a clip's TextGrid; None if there is none."""
    try:
        return hashlib.blake2b(
            _find_textgrid(folder, name).read_bytes(), digest_size=16
        ).hexdigest()
    except (SkipItem, OSError):
        return None


def _find_textgrid(folder: str | PathLike[str], name: str) -> Path:
    """Find a clip's TextGrid in a folder, or one folder further down."""
    folder = Path(folder)
    for path in (folder / f"{name}.TextGrid", *folder.glob(f"*/{name}.TextGrid")):
        if path.is_file():
            return path
    raise SkipItem(
        "no TextGrid", f"expected {name}.TextGrid in {folder} or a folder in it, found none"
    )
