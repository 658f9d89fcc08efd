"""Make items whose text contradicts their sound, from clips with transcripts, with synthetic voices (espeak-ng).

A pair has two members with the same question. Each is the sound of one answer with a hint for the other:

    word      a word of another transcript takes the place of one         "the red house" / "the red street"
    number    another number                                              "two houses" / "five houses"
    negation  with and without "not"                                      "it is late" / "it is not late"
    sex       a man's voice, a woman's voice                              hint: "The speaker is a woman."
    emotion   "I am glad" / "I am sad", spoken behind the transcript      hint: "The speaker is sad."
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import InputError
from ...inputs.clips.clip import Clip
from .items import ListeningItem

if TYPE_CHECKING:
    from ...alignment.espeak import Speech

CONFLICT_KINDS = ("word", "number", "negation", "sex", "emotion")
_TEXTS: dict[str, dict[str, Any]] = {
    "en": {
        "said": "What does the speaker say?",
        "transcript": 'The transcript says: "{}".',
        "sex": "Is the speaker a man or a woman?",
        "sexes": ("man", "woman"),
        "sex hints": ("The speaker is a man.", "The speaker is a woman."),
        "emotion": "How does the speaker feel?",
        "emotions": ("glad", "sad", "angry", "afraid"),
        "feels": "I am {}.",
        "emotion hint": "The speaker is {}.",
        "numbers": "two three four five six seven eight nine ten",
        "negation": (r"\b(is|are|was|were|can|will|has|have|must|should)\b", r"\1 not"),
        "negated": r"\bnot\b|n't\b|\bno\b|\bnever\b",
    },
    "fr": {
        "said": "Que dit la personne ?",
        "transcript": "La transcription dit : « {} ».",
        "sex": "Est-ce un homme ou une femme ?",
        "sexes": ("homme", "femme"),
        "sex hints": ("C'est une voix d'homme.", "C'est une voix de femme."),
        "emotion": "Comment se sent la personne ?",
        "emotions": ("contente", "triste", "tranquille", "malade"),
        "feels": "Je suis {}.",
        "emotion hint": "La personne est {}.",
        "numbers": "deux trois quatre cinq six sept huit neuf dix",
        "negation": (r"\b(sont|vont|peut|doit|va|veut|sera)\b", r"ne \1 pas"),
        "negated": r"\bne\b|\bn'|\bpas\b|\bjamais\b",
    },
}
_VOICES = ("m3", "f2")  # a man's and a woman's variant of an espeak-ng voice
_LETTERS = 4  # of a word that is swapped, at least


class _Pair(NamedTuple):
    """What two members of a pair say, and the question."""

    spoken: tuple[str, str]
    answers: tuple[str, str]
    hints: tuple[str, str]
    prompt: str
    voices: tuple[str, str] | None = None


_Texts = dict[str, Any]


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
    allowed = CONFLICT_KINDS[:3] if as_prefix else CONFLICT_KINDS
    kinds = [kind for kind in kinds if kind in allowed] if as_prefix else list(kinds)
    if not kinds or set(kinds) - set(allowed):
        raise InputError(f"kinds of conflicts are {', '.join(allowed)}; found {list(kinds)}")
    vocabulary = {word for clip in clips for word in _words(clip.text or "")}
    items = list[ListeningItem]()
    for clip in clips:
        code = (clip.language or language or "")[:2]
        if code not in _TEXTS:
            raise InputError(
                f"{clip.name}: conflict pairs are made in {', '.join(_TEXTS)}; found language "
                f"{clip.language or language!r}: give language="
            )
        for kind in kinds:
            rng = np.random.default_rng(
                list(hashlib.sha256(f"{clip.name}|{clip.text}|{kind}".encode()).digest()[:8])
            )
            pair = _MAKERS[kind]((clip.text or "").strip(), _TEXTS[code], vocabulary, rng)
            if pair is not None:
                items += _make_items(clip, kind, code, pair, rng, as_prefix=as_prefix)
    if not items:
        raise InputError(
            "no pair can be made: give clips with texts in which a word can be swapped"
        )
    return items


def _make_items(
    clip: Clip, kind: str, code: str, pair: _Pair, rng: np.random.Generator, *, as_prefix: bool
) -> list[ListeningItem]:
    from ...alignment.espeak import speak

    voice = _VOICES[rng.integers(len(_VOICES))]
    items = []
    for member in (0, 1):
        variant = pair.voices[member] if pair.voices else voice
        speech: Speech = speak(pair.spoken[member], voice=f"{code}+{variant}")
        name = f"{clip.name}_{kind}_{'ab'[member]}"
        group = {"pair": f"{clip.name}_{kind}", "source": str(clip.name)}
        sound = Clip.from_array(
            speech.audio,
            speech.sample_rate,
            name=name,
            language=clip.language or code,
            text=clip.text,
            meta=group,
        )
        other = pair.answers[1 - member]
        prompt, hint = ("", other) if as_prefix else (pair.prompt, pair.hints[1 - member])
        items.append(
            ListeningItem(sound, prompt, pair.answers[member], pair.answers, hint, other, kind)
        )
    return items


def _said(first: str, second: str, texts: _Texts) -> _Pair:
    """A pair that is asked what was said."""
    hints = (texts["transcript"].format(first), texts["transcript"].format(second))
    return _Pair((first, second), (first, second), hints, texts["said"])


def _words(text: str) -> list[str]:
    return [word for word in re.findall(r"[^\W\d_]+", text) if len(word) >= _LETTERS]


def _swap_word(text: str, texts: _Texts, words: set[str], rng: np.random.Generator) -> _Pair | None:
    own, others = _words(text), sorted(words - set(_words(text)))
    if not own or not others:
        return None
    word = own[rng.integers(len(own))]
    # About as long, so that length alone does not tell.
    nearest = sorted(others, key=lambda other: (abs(len(other) - len(word)), other))[:5]
    other = nearest[rng.integers(len(nearest))]
    return _said(text, re.sub(rf"\b{re.escape(word)}\b", other, text, count=1), texts)


def _swap_number(text: str, texts: _Texts, *_: object) -> _Pair | None:
    numbers = texts["numbers"].split()
    found = re.search(rf"\b({'|'.join(numbers)})\b", text, re.IGNORECASE)
    if found is None:
        return None
    other = numbers[(numbers.index(found.group().casefold()) + 1) % len(numbers)]
    return _said(text, text[: found.start()] + other + text[found.end() :], texts)


def _negate(text: str, texts: _Texts, *_: object) -> _Pair | None:
    pattern, replacement = texts["negation"]
    if re.search(texts["negated"], text, re.IGNORECASE) or not re.search(pattern, text):
        return None
    return _said(text, re.sub(pattern, replacement, text, count=1), texts)


def _change_sex(text: str, texts: _Texts, *_: object) -> _Pair | None:
    hints = (texts["sex hints"][0], texts["sex hints"][1])
    return _Pair((text, text), texts["sexes"], hints, texts["sex"], _VOICES) if text else None


def _change_emotion(
    text: str, texts: _Texts, words: set[str], rng: np.random.Generator
) -> _Pair | None:
    first, second = rng.permutation(texts["emotions"])[:2].tolist()
    start, hint = text.rstrip(" .!?"), texts["emotion hint"]
    spoken = tuple(f"{start}. {texts['feels'].format(name)}" for name in (first, second))
    hints = (hint.format(first), hint.format(second))
    answers = (first, second)
    return _Pair((spoken[0], spoken[1]), answers, hints, texts["emotion"]) if text else None


_MAKERS: dict[str, Callable[[str, _Texts, set[str], np.random.Generator], _Pair | None]] = {
    "word": _swap_word,
    "number": _swap_number,
    "negation": _negate,
    "sex": _change_sex,
    "emotion": _change_emotion,
}
