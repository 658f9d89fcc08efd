"""Link an aligner's words to the written words, and carry the times over.

In: the written words as they are spoken ("80" as quatre-vingts, "l'" apart from "enfant") and words
with times in whatever pieces the aligner or a TextGrid has them ("l'enfant", "<unk>"). Out: the
written words with times. The two are matched letter by letter; where several written words lie in
one heard word they share its time by number of letters.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher

from ..errors import AlignmentError
from ..inputs.words.multipart_words import list_parts
from ..inputs.words.timed_words import Word

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
