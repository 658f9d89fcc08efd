"""Check the word times of a clip.

In: words as a user gives them. Out: a checked tuple of `Word` in time order.

Labels of a tier that are no units, and units that have no length.

In: the words, phones or syllables of a clip, read from a file, given or aligned. Out: those that are
some, and a warning that says what is left out: pauses (``sil``, TIMIT's ``h#``), noise between phones
(``spn``), marks of another language (``(en)``), and whatever ends where it starts, since no frame of
the sound is its own. "spn" and "<unk>" among words are speech that an aligner could not name: words. So
is what a transcriber puts in brackets ("(uh)"), unless it is the code of a language that espeak-ng has.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from ...errors import InputError
from ..audio.frame_grid import Seconds
from .cue_and_target import describe_word
from .timed_words import Word
from .transcript_accuracy import is_noise_label, normalize_text

# Overlaps up to this long come from times that were rounded to milliseconds; they are trimmed.
ROUNDING_TOLERANCE: Seconds = 0.001
# Aligners round word ends up to their own frames; an end this far behind the audio is cut to it.
END_TOLERANCE: Seconds = 0.05

# A word, or its parts: (text, start, end) or (text, start, end, score).
WordLike = Word | Sequence[object]


def check_words(
    words: Iterable[WordLike],
    *,
    duration: Seconds | None = None,
    where: str = "words",
    unit: str = "word",
) -> tuple[Word, ...]:
    """Return the words as `Word`s, or say which one cannot be right.

    Overlaps up to 1 ms and starts up to 1 ms before zero are trimmed; an end up to 50 ms behind the
    audio is cut to it, and so is one at infinity, which a file does not say. Words of no length
    (start = end) are legal here; a clip leaves them out. A word may lie between the pieces of
    another. Words are `Word`, (text, start, end[, score[, pieces]]) or (text, pieces), times in
    seconds; pieces are (start, end) pairs. Without `duration` (seconds of audio) the end of the
    audio is not checked. InputError for no words, an empty label, a time that is no number or is
    negative, an end before its start, words out of order or overlapping by more than 1 ms, a word
    past the audio.
    """
    checked: list[Word] = []
    parsed_words = [_parse_word(item, index, where, unit) for index, item in enumerate(words)]
    if any(word.pieces for word in parsed_words):
        return _check_words_with_pieces(parsed_words, duration, where, unit)
    for index, item in enumerate(parsed_words):
        word = _check_times(item, index, duration, where, unit)
        if checked:
            previous = checked[-1]
            start = max(word.start, previous.start)
            if previous.start - word.start > ROUNDING_TOLERANCE:
                raise InputError(
                    f"{where}: {unit}s must be in time order; {describe_word(word, index, unit)} starts "
                    "before "
                    f"{describe_word(previous, index - 1, unit)}: sort them by start"
                )
            if previous.end - word.start > ROUNDING_TOLERANCE:
                raise InputError(
                    f"{where}: {unit}s must not overlap by more than {1000 * ROUNDING_TOLERANCE:g} ms; "
                    f"{describe_word(previous, index - 1, unit)} and {describe_word(word, index, unit)} share "
                    f"{1000 * (previous.end - word.start):.0f} ms: correct one of the two times"
                )
            checked[-1] = replace(previous, end=min(previous.end, start))
            word = replace(word, start=start, end=max(word.end, start))
        checked.append(word)
    if not checked:
        raise InputError(
            f"{where}: expected at least one {unit}, found none: leave `{unit}s` out if there are none "
            "yet"
        )
    return tuple(checked)


def _check_words_with_pieces(
    words: Sequence[Word], duration: Seconds | None, where: str, unit: str
) -> tuple[Word, ...]:
    """Words of which some are in pieces: the pieces of all are checked as words are, in the order
    of time."""
    for index, (previous, word) in enumerate(pairwise(words)):
        if previous.start - word.start > ROUNDING_TOLERANCE:
            raise InputError(
                f"{where}: {unit}s must be in time order; {describe_word(word, index + 1, unit)} starts "
                "before "
                f"{describe_word(previous, index, unit)}: sort them by start"
            )
    pieces = [(interval, index) for index, word in enumerate(words) for interval in word.intervals]
    pieces.sort(key=lambda piece: piece[0])
    piece_words = [
        _check_times(Word(words[index].text, *edges), index, duration, where, unit)
        for edges, index in pieces
    ]
    intervals_by_word: list[list[tuple[Seconds, Seconds]]] = [[] for _ in words]
    for piece, (_, index) in zip(
        check_words(piece_words, duration=duration, where=where), pieces, strict=True
    ):
        if piece.start == piece.end and words[index].pieces:
            raise InputError(
                f"{where}: {describe_word(words[index], index, unit)} has a piece of no length: leave it out"
            )
        intervals_by_word[index].append((piece.start, piece.end))
    return tuple(
        Word(
            word.text,
            intervals[0][0],
            intervals[-1][1],
            word.score,
            tuple(intervals) if word.pieces else (),
            word.source_label,
        )
        for word, intervals in zip(words, intervals_by_word, strict=True)
    )


def _parse_word(item: object, index: int, where: str, unit: str) -> Word:
    if not isinstance(item, Word):
        has_pieces = (
            isinstance(item, Sequence) and len(item) == 2 and isinstance(item[1], (list, tuple))
        )
        if (
            isinstance(item, str)
            or not isinstance(item, Sequence)
            or not (has_pieces or 3 <= len(item) <= 6)
        ):
            raise InputError(f"{where}: {unit} {index} must be (text, start, end), found {item!r}")
        try:
            item = Word.from_pieces(*item) if has_pieces else Word(*item)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
    if not isinstance(item.text, str) or not normalize_text(item.text).strip():
        raise InputError(
            f"{where}: {unit} {index} at {item.start} s has no label, found {item.text!r}: name or "
            "remove it"
        )
    try:
        start, end = float(item.start), float(item.end)
        score = None if item.score is None else float(item.score)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{where}: {unit} {index} {item.text!r} has a time or score that is no number: {item}"
        ) from error
    if not math.isfinite(start) or math.isnan(end) or end == -math.inf:
        raise InputError(
            f"{where}: {unit} {index} {item.text!r} must have finite times, found {start} to {end}"
        )
    if score is not None and not math.isfinite(score):
        raise InputError(
            f"{where}: {unit} {index} {item.text!r} must have a finite score, found {score}: leave it "
            "out if there is none"
        )
    text = normalize_text(item.text).strip() if unit == "word" else item.text.strip()
    return Word(text, start, end, score, item.pieces, item.source_label)


def _check_times(word: Word, index: int, duration: Seconds | None, where: str, unit: str) -> Word:
    """Check a word against itself and the audio; trim what is rounding."""
    if word.end < word.start:
        raise InputError(
            f"{where}: {describe_word(word, index, unit)} ends before it starts: exchange or correct its "
            "times"
        )
    if word.start < -ROUNDING_TOLERANCE:
        raise InputError(
            f"{where}: {describe_word(word, index, unit)} has a negative time: times count from the clip's "
            "start"
        )
    start, end = max(0.0, word.start), max(0.0, word.end)
    if duration is not None:
        # The last clause spares a word of no length that sits exactly on the audio's end.
        if start > duration or (start == duration and end > start):
            raise InputError(
                f"{where}: {describe_word(word, index, unit)} starts past the end of the audio "
                f"({duration:.3f} s): "
                "do words and audio belong together, and are the times seconds?"
            )
        if math.inf > end > duration + END_TOLERANCE:
            raise InputError(
                f"{where}: {describe_word(word, index, unit)} ends {1000 * (end - duration):.0f} ms past "
                "the end of the audio "
                f"({duration:.3f} s), expected at most {1000 * END_TOLERANCE:g} ms: correct the "
                "time or the audio"
            )
        end = min(end, duration)
    return replace(word, start=start, end=end)


WORD = "word"
# What aligners and corpora write where nobody speaks: MFA, Kaldi, WebMAUS, TIMIT, Festival.
_PAUSES = frozenset({"", "sp", "sil", "<sil>", "<eps>", "<p:>", "<p>", "<pau>", "h#"})
_PAUSES_BETWEEN_PHONES = frozenset(
    {"pau", "epi", "#", "##", "_", "__", "pause", "silence", "(.)", "(..)", "...", "-"}
)
_NOISE = frozenset(  # of WebMAUS and Buckeye
    {"noise", "vocnoise", "iver", "laugh", "unknown", "cutoff", "error", "exclude"}
)
_LANGUAGE_MARK = re.compile(r"\(([a-z]{2,3})(-[a-z0-9]+)*\)")
_ESPEAK_LANGUAGES = frozenset(  # without those of three letters that are words: (the), (les), (und)
    """af am an ar as az ba be bg bn bs ca cmn cs cy da de el en eo es et eu fa fi fr ga gd gn grc gu hak haw he
    hi hr ht hu hy ia id io is it ja jbo ka kk kl kn ko kok ku ky la lb lfn lt ltg lv mi mk ml mr ms mt mto my
    nb nci ne nl nog om or pa pap pl ps pt py qdb qu quc qya ro ru sd si sjn sk sl smj sq sr sv sw ta te th tk
    tn tr tt ug uk ur uz vi yue""".split()
)
_MIN_SECONDS = 1e-4  # less than two samples of 16 kHz


def unit_indices(units: Sequence[Word], unit: str) -> list[int]:
    """Return the indices of what is a unit ("word", "phone" or "syllable") and has a length.

    Examples
    --------
    >>> unit_indices([Word("h#", 0, 0.2), Word("n", 0.2, 0.3), Word("o", 0.3, 0.3)], "phone")
    [1]
    """
    return [
        index
        for index, word in enumerate(units)
        if not is_non_unit(word.text, unit) and not has_no_length(word)
    ]


def is_non_unit(label: str, unit: str) -> bool:
    """Whether a label stands for a pause, for noise or for a change of language.

    Examples
    --------
    >>> is_non_unit("spn", "phone"), is_non_unit("spn", "word"), is_non_unit("(en)", "word")
    (True, False, True)
    """
    label = label.strip().casefold()
    mark = _LANGUAGE_MARK.fullmatch(label)
    if label in _PAUSES or unit == WORD:
        return label in _PAUSES or (mark is not None and mark[1] in _ESPEAK_LANGUAGES)
    return label in _PAUSES_BETWEEN_PHONES | _NOISE or mark is not None or is_noise_label(label)


def has_no_length(word: Word) -> bool:
    """Whether a unit ends where it starts, or has no sample of its own."""
    return word.end - word.start < _MIN_SECONDS


def keep_units(units: Sequence[Word], unit: str, *, where: str) -> list[Word]:
    """Return what is a unit and has a length, with a warning about the rest."""
    indices = unit_indices(units, unit)
    warn_left_out(units, indices, unit, where=where)
    return [units[index] for index in indices]


def warn_left_out(units: Sequence[Word], indices: Sequence[int], unit: str, *, where: str) -> None:
    """Say which labels are left out, once for all files, and where a unit has no length."""
    left_out = [(index, units[index]) for index in sorted(set(range(len(units))) - set(indices))]
    labels = sorted({word.text for _, word in left_out if is_non_unit(word.text, unit)} - {""})
    if labels:
        warnings.warn(
            f"left out of the {unit}s, because they are no {unit}s: {', '.join(map(repr, labels))}",
            stacklevel=3,
        )
    empty = [
        describe_word(word, index, unit)
        for index, word in left_out
        if not is_non_unit(word.text, unit)
    ]
    if empty:
        more = f" and {len(empty) - 5} more" if len(empty) > 5 else ""
        warnings.warn(
            f"{where}: left out of the {unit}s, because they have no length: {', '.join(empty[:5])}{more}",
            stacklevel=3,
        )
