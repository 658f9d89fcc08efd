"""Subtitles from words with times: SubRip (.srt) and WebVTT (.vtt).

In: words in time order, and what is shown for each. Out: the text of a file. A caption has at most
eight words and about five seconds, and ends at a pause and at the end of a sentence.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from html import escape
from typing import Protocol

from ..audio.frame_grid import Seconds

_SENTENCE_ENDS = (".", "?", "!", "\u2026", "。", "？", "！", "؟", "।")
_CAPTION_WORDS, _CAPTION_SECONDS, _PAUSE_SECONDS = 8, 5.0, 1.0  # at most


class _Timed(Protocol):
    """Whatever has a start and an end, in seconds."""

    @property
    def start(self) -> Seconds: ...
    @property
    def end(self) -> Seconds: ...


def format_vtt(
    words: Sequence[_Timed],
    labels: Sequence[str],
    *,
    classes: Sequence[str] | None = None,
    breaks: Container[int] = (),
    style: str = "",
) -> str:
    """Return WebVTT.

    Parameters
    ----------
    words : sequence of Word or the like
        In time order.
    labels : sequence of str
        What is shown for each; nothing for an empty one.
    classes : sequence of str, optional
        A class for each word, for the style; "" for none.
    breaks : container of int
        Indices of words that begin a caption.
    style : str
        Rules for the classes, as CSS.

    Examples
    --------
    >>> from speechmix.inputs.words.timed_words import Word
    >>> print(format_vtt([Word("les", 0.1, 0.25), Word("livres", 0.25, 0.7)], ["les", "livres"]))
    WEBVTT
    <BLANKLINE>
    00:00:00.100 --> 00:00:00.700
    les livres
    <BLANKLINE>
    """
    texts = []
    for index, label in enumerate(labels):
        text = escape(_join_lines(label), quote=False)  # with it "-->" becomes "--&gt;"
        texts.append(f"<c.{classes[index]}>{text}</c>" if classes and classes[index] else text)
    blocks = ["WEBVTT\n", *([f"STYLE\n{style}\n"] if style else [])]
    for start, end, text in _captions(words, labels, texts, breaks):
        blocks.append(f"{_format_time(start, '.')} --> {_format_time(end, '.')}\n{text}\n")
    return "\n".join(blocks)


def format_srt(
    words: Sequence[_Timed], labels: Sequence[str], *, breaks: Container[int] = ()
) -> str:
    """Return SubRip; the parameters are those of `format_vtt`.

    Examples
    --------
    >>> from speechmix.inputs.words.timed_words import Word
    >>> print(format_srt([Word("les", 0.1, 0.25), Word("livres", 0.25, 0.7)], ["les", "livres"]))
    1
    00:00:00,100 --> 00:00:00,700
    les livres
    <BLANKLINE>
    """
    captions = _captions(words, labels, [_join_lines(label) for label in labels], breaks)
    return "\n".join(
        f"{number}\n{_format_time(start, ',')} --> {_format_time(end, ',')}\n{text}\n"
        for number, (start, end, text) in enumerate(captions, 1)
    )


def _captions(
    words: Sequence[_Timed], labels: Sequence[str], texts: Sequence[str], breaks: Container[int]
) -> Iterator[tuple[Seconds, Seconds, str]]:
    for indices in _group_words(words, labels, breaks):
        text = " ".join(texts[index] for index in indices if texts[index])
        yield words[indices[0]].start, words[indices[-1]].end, text


def _group_words(
    words: Sequence[_Timed], labels: Sequence[str], breaks: Container[int]
) -> Iterator[list[int]]:
    """Group words into captions, by length, sentences, pauses and breaks."""
    group: list[int] = []
    for index, word in enumerate(words):
        if group:
            first, last = words[group[0]], words[group[-1]]
            is_full = len(group) == _CAPTION_WORDS or word.end - first.start > _CAPTION_SECONDS
            is_sentence = labels[group[-1]].rstrip("\"'”’»)]").endswith(_SENTENCE_ENDS)
            is_pause = word.start - last.end > _PAUSE_SECONDS
            if is_full or is_sentence or is_pause or index in breaks:
                yield group
                group = []
        group.append(index)
    if group:
        yield group


def _format_time(seconds: Seconds, decimal_sign: str) -> str:
    milliseconds = round(1000 * seconds)
    minutes, rest = divmod(milliseconds, 60_000)
    return (
        f"{minutes // 60:02d}:{minutes % 60:02d}:{rest // 1000:02d}{decimal_sign}{rest % 1000:03d}"
    )


def _join_lines(text: str) -> str:
    return " ".join(text.replace("\0", "\ufffd").split())
