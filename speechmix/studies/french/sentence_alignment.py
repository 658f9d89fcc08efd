"""Align one corpus sentence, after checking that its recording is complete.

In: a line of the pairs (audio path, text, perhaps words). Out: its written words with times, by any
aligner, and a TextGrid. What sounds is what is aligned ("quatre-vingts"), what is written is what
gets the times ("80").

Link an aligner's words to the written words, and carry the times over.

In: the written words as they are spoken ("80" as quatre-vingts, "l'" apart from "enfant") and words
with times in whatever pieces the aligner or a TextGrid has them ("l'enfant", "<unk>"). Out: the
written words with times. The two are matched letter by letter; where several written words lie in
one heard word they share its time by number of letters.
"""

from __future__ import annotations

import hashlib
import heapq
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ...alignment import Alignment, aligned_words, place_words
from ...alignment.comparison import compare_aligners
from ...errors import AlignmentError, InputError
from ...files.json_files import JsonObject
from ...files.text_files import write_csv
from ...files.whole_files import whole_file
from ...inputs.audio.audio_source import audio_seconds
from ...inputs.audio.decoding import TruncatedAudioError
from ...inputs.clips.clip import Clip
from ...inputs.clips.corpus_row import seeded_uniform
from ...inputs.formats.word_files import read_words, write_textgrid
from ...inputs.words.multipart_words import list_parts
from ...inputs.words.timed_words import Word
from ...inputs.words.word_checks import check_words
from ...runs.journal.stage_journal import SkipItem
from ...runs.journal.stage_lines import read_kept_lines
from .language.spoken import WrittenWord, split_written_words, spoken_text, word_text
from .study_folder import PAIRS, clip_from_line

if TYPE_CHECKING:
    from ...adapters import Model


# Labels of aligners for speech they could not name: they may stand for any word.
UNKNOWN_WORD = frozenset({"<unk>", "spn", "[unk]", "<spn>", "[noise]"})
_MIN_MATCHING_SHARE = 0.5  # share of a word's letters that must be found
_BETWEEN, _UNNAMED = " ", "\0"


def link_words(
    transcript_words: Sequence[tuple[str, str]],
    timed_words: Sequence[Word],
    *,
    spoken: Callable[[str], str] = str,
) -> tuple[Word, ...]:
    """Give the words of a transcript, as (written, spoken) pairs, the times of timed words.

    `timed_words` are in time order; `spoken` turns their labels into words as spoken. Each written
    word gets the mean score of the timed words it lies in. An AlignmentError says that a written
    word is not among the timed ones, with no unknown one where it should be, or that a timed word
    has something cut out.
    """
    timed_words = [part for _, part in list_parts(timed_words)]
    if broken := next((word for word in timed_words if word.pieces), None):
        raise AlignmentError(
            f"expected words in one piece, found {broken.text!r} in {len(broken.pieces)}"
        )
    labels = [
        "" if word.text.lower() in UNKNOWN_WORD else _plain_letters(spoken(word.text))
        for word in timed_words
    ]
    # A mark between words keeps the matcher from giving a word's last letter to another one that
    # ends alike.
    written_letters = [
        (letter, index)
        for index, (_, form) in enumerate(transcript_words)
        for letter in (_BETWEEN, *_plain_letters(form), _BETWEEN)
    ]
    heard_letters = [
        (letter, index, (letter_index - 1) / max(1, len(label)))
        for index, label in enumerate(labels)
        for letter_index, letter in enumerate((_BETWEEN, *(label or _UNNAMED), _BETWEEN))
    ]
    # Letters alone are matched; the rest of an entry says whose they are.
    sought, offered = [entry[0] for entry in written_letters], [entry[0] for entry in heard_letters]
    matcher = SequenceMatcher(None, sought, offered, autojunk=False)
    matched: list[list[tuple[int, float]]] = [[] for _ in transcript_words]
    for block in matcher.get_matching_blocks():
        for step in range(block.size):
            if written_letters[block.a + step][0] != _BETWEEN:
                matched[written_letters[block.a + step][1]].append(
                    heard_letters[block.b + step][1:]
                )
    fewest = [
        _MIN_MATCHING_SHARE * max(1, len(_plain_letters(form))) for _, form in transcript_words
    ]
    placed = [
        _letter_span(letters, timed_words, labels) if len(letters) >= fewest[index] else None
        for index, letters in enumerate(matched)
    ]
    times = _add_unknown_words(placed, transcript_words, timed_words, labels)
    return tuple(Word(text, *time) for (text, _), time in zip(transcript_words, times, strict=True))


def _plain_letters(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFC", text).casefold() if c.isalnum())


def _letter_span(
    letters: list[tuple[int, float]], timed_words: Sequence[Word], labels: list[str]
) -> tuple[float, float, float | None]:
    """Start, end and score of the stretch from the first to the last letter found."""
    (first, start), (last, stop) = letters[0], letters[-1]
    stop += 1 / len(labels[last])
    scores = [timed_words[index].score for index in sorted({index for index, _ in letters})]
    measured = [score for score in scores if score is not None]
    mean = sum(measured) / len(scores) if len(measured) == len(scores) else None
    return _at(timed_words[first], start), _at(timed_words[last], stop), mean


def _at(word: Word, share: float) -> float:
    return word.end if share > 1 - 1e-9 else word.start + share * (word.end - word.start)


def _add_unknown_words(
    placed: Sequence[tuple[float, float, float | None] | None],
    transcript_words: Sequence[tuple[str, str]],
    timed_words: Sequence[Word],
    labels: list[str],
) -> list[tuple[float, float, float | None]]:
    """Put each run of words that were not found where an unknown label stands between its
    neighbours."""
    times = list(placed)
    index = 0
    while index < len(times):
        if placed[index] is not None:
            index += 1
            continue
        stop = next((i for i in range(index, len(times)) if placed[i] is not None), len(times))
        earlier = placed[index - 1] if index else None
        later = placed[stop] if stop < len(times) else None
        earliest_start = earlier[1] if earlier else 0.0
        latest_end = later[0] if later else float("inf")
        unnamed = (word for word, label in zip(timed_words, labels, strict=True) if not label)
        room = [
            word
            for word in unnamed
            if word.start >= earliest_start - 1e-6 and word.end <= latest_end + 1e-6
        ]
        if not room:
            missing = ", ".join(repr(text) for text, _ in transcript_words[index:stop])
            raise AlignmentError(
                f"expected the word {missing} where the aligner heard other words: is it the right "
                "text?"
            )
        start, step = room[0].start, (room[-1].end - room[0].start) / (stop - index)
        for word_index in range(index, stop):
            times[word_index] = (
                start + (word_index - index) * step,
                start + (word_index - index + 1) * step,
                None,
            )
        index = stop
    return [time for time in times if time is not None]


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

    See `speechmix.alignment.alignment_result`. Word times that the corpus brought are the reference. An
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
