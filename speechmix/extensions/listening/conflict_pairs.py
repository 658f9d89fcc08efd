"""Make items whose text contradicts their sound, from clips with transcripts, with synthetic voices (espeak-ng).

A pair has two members with the same question. Each is the sound of one answer with a hint for the other:

    word      a word of another transcript takes the place of one         "the red house" / "the red street"
    number    another number                                              "two houses" / "five houses"
    negation  with and without "not"                                      "it is late" / "it is not late"
    sex       a man's voice, a woman's voice                              hint: "The speaker is a woman."
    emotion   "I am glad" / "I am sad", spoken behind the transcript      hint: "The speaker is sad."

Questions, hints, numbers and verbs of each language are in conflict_texts.toml.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import InputError
from ...inputs.clips.clip import Clip
from .items import ListeningItem

CONFLICT_KINDS = ("word", "number", "negation", "sex", "emotion")
_VOICES = ("m3", "f2")  # a man's and a woman's variant of an espeak-ng voice
_SHORTEST_WORD = 4  # letters of a word that is swapped, at least
_TEXTS_PATH = Path(__file__).with_name("conflict_texts.toml")
_Texts = dict[str, Any]  # of a language


class _Pair(NamedTuple):
    """What two members of a pair say, the right answers, hints for these, and the question."""

    spoken: Sequence[str]
    answers: Sequence[str]
    hints: Sequence[str]
    prompt: str


def make_conflict_pairs(
    clips: Sequence[Clip],
    *,
    kinds: Sequence[str] = CONFLICT_KINDS,
    language: str | None = None,
    as_prefix: bool = False,
) -> list[ListeningItem]:
    """Make pairs of items whose prompt contradicts the sound.

    Parameters
    ----------
    clips : sequence of Clip
        With texts; their sound is not used. The choice of words, numbers and voices depends on name and text alone.
    kinds : sequence of {"word", "number", "negation", "sex", "emotion"}
        A clip whose text has no number, or no verb to negate, has no pair of that kind.
    language : {"en", "fr"}, optional
        Of clips without one.
    as_prefix : bool
        For a Whisper: the prompt is the other text itself, without a question; only words, numbers and negation.

    Returns
    -------
    list of ListeningItem
        Two for each pair. ``meta`` of their clips has the pair, by which `speechmix.listening` exchanges their sounds,
        and the name of the clip; `kind` is the kind of conflict.

    Raises
    ------
    InputError
        If a kind or a language is unknown, or no pair can be made.
    MissingExtraError
        If espeakng-loader is not installed.

    Examples
    --------
    >>> clip = Clip.from_array(np.zeros(16_000), 16_000, name="one", text="two cats are here", language="en")
    >>> items = make_conflict_pairs([clip], kinds=["number", "negation"])
    >>> [(item.answer, item.text_answer) for item in items][:2]
    [('two cats are here', 'three cats are here'), ('three cats are here', 'two cats are here')]
    """
    allowed = tuple(_CHANGES) if as_prefix else CONFLICT_KINDS
    kinds = [kind for kind in kinds if kind in allowed] if as_prefix else list(kinds)
    if not kinds or set(kinds) - set(allowed):
        raise InputError(f"kinds of conflicts are {', '.join(allowed)}; found {list(kinds)}")
    texts = tomllib.loads(_TEXTS_PATH.read_text(encoding="utf-8"))
    vocabulary = {word for clip in clips for word in _words(clip.text or "")}
    items = list[ListeningItem]()
    for clip in clips:
        code = (clip.language or language or "")[:2]
        if code not in texts:
            raise InputError(
                f"{clip.name}: conflict pairs are made in {', '.join(texts)}; found language "
                f"{clip.language or language!r}: give language="
            )
        for kind in kinds:
            seed = hashlib.sha256(f"{clip.name}|{clip.text}|{kind}".encode()).digest()[:8]
            rng = np.random.default_rng(list(seed))
            pair = _make_pair(kind, (clip.text or "").strip(), texts[code], vocabulary, rng)
            if pair is not None:
                items += _make_items(clip, kind, code, pair, rng, as_prefix=as_prefix)
    if not items:
        raise InputError(
            "no pair can be made: give clips with texts in which a word can be swapped"
        )
    return items


def _make_pair(
    kind: str, text: str, texts: _Texts, vocabulary: set[str], rng: np.random.Generator
) -> _Pair | None:
    """Return what a pair says of a text; None where the text has nothing to change."""
    if not text:
        return None
    entry = texts["transcript"]
    if kind == "sex":
        entry = texts["sex"]
        spoken, answers = [text, text], entry["answers"]
    elif kind == "emotion":
        entry = texts["emotion"]
        answers = rng.permutation(entry["answers"])[:2].tolist()
        start = text.rstrip(" .!?")
        spoken = [f"{start}. {entry['sentence'].format(answer)}" for answer in answers]
    else:
        other = _CHANGES[kind](text, texts, vocabulary, rng)
        if other is None:
            return None
        spoken = answers = [text, other]
    hints = entry.get("hints") or [entry["hint"].format(answer) for answer in answers]
    return _Pair(spoken, answers, hints, entry["prompt"])


def _make_items(
    clip: Clip, kind: str, code: str, pair: _Pair, rng: np.random.Generator, *, as_prefix: bool
) -> list[ListeningItem]:
    from ...alignment.espeak import speak

    voice = _VOICES[rng.integers(len(_VOICES))]
    items = []
    for member, letter in enumerate("ab"):
        variant = _VOICES[member] if kind == "sex" else voice
        speech = speak(pair.spoken[member], voice=f"{code}+{variant}")
        sound = Clip.from_array(
            speech.audio,
            speech.sample_rate,
            name=f"{clip.name}_{kind}_{letter}",
            language=clip.language or code,
            text=clip.text,
            meta={"pair": f"{clip.name}_{kind}", "source": str(clip.name)},
        )
        answers, other = tuple(pair.answers), pair.answers[1 - member]
        prompt, hint = ("", other) if as_prefix else (pair.prompt, pair.hints[1 - member])
        items.append(ListeningItem(sound, prompt, answers[member], answers, hint, other, kind))
    return items


def _words(text: str) -> list[str]:
    return [word for word in re.findall(r"[^\W\d_]+", text) if len(word) >= _SHORTEST_WORD]


def _swap_word(
    text: str, texts: _Texts, vocabulary: set[str], rng: np.random.Generator
) -> str | None:
    words = _words(text)
    others = sorted(vocabulary - set(words))
    if not words or not others:
        return None
    word = words[rng.integers(len(words))]
    # About as long, so that length alone does not tell.
    nearest = sorted(others, key=lambda other: (abs(len(other) - len(word)), other))[:5]
    other = nearest[rng.integers(len(nearest))]
    return re.sub(rf"\b{re.escape(word)}\b", other, text, count=1)


def _swap_number(text: str, texts: _Texts, *_: object) -> str | None:
    numbers = texts["numbers"]
    match = re.search(rf"\b({'|'.join(numbers)})\b", text, re.IGNORECASE)
    if match is None:
        return None
    other = numbers[(numbers.index(match.group().casefold()) + 1) % len(numbers)]
    return f"{text[: match.start()]}{other}{text[match.end() :]}"


def _negate(text: str, texts: _Texts, *_: object) -> str | None:
    if re.search(texts["is_negated"], text, re.IGNORECASE):
        return None
    changed, count = re.subn(texts["positive"], texts["negative"], text, count=1)
    return changed if count else None


# Change of a text, by kind of conflict; None where there is nothing to change.
_CHANGES: dict[str, Callable[[str, _Texts, set[str], np.random.Generator], str | None]] = {
    "word": _swap_word,
    "number": _swap_number,
    "negation": _negate,
}
