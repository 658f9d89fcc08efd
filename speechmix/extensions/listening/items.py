"""Questions about recordings: what a model is asked, what is right, what the text of the prompt suggests.

In: clips whose metadata (further columns of a manifest or data set) hold prompt, answer and options. Out:
`ListeningItem`s.

How items belong together: whose sound takes the place of an item's own, and which items are one group.

Read questions about recordings from a table or data set, and write them.

Make items whose text contradicts their sound, from clips with transcripts, with synthetic voices (espeak-ng).

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
import json
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...errors import InputError, SpeechmixError
from ...evaluation.statistics.groups import (
    SPEAKER_COLUMNS,
    assign_groups,
    assign_item_groups,
    build_item_table,
    connect_clips,
    describe_groups,
)
from ...files.whole_files import write_text
from ...inputs.clips.clip import Clip
from ...inputs.clips.clip_names import refuse_duplicate_names
from ...inputs.clips.player import encode_wav
from ...inputs.corpora.corpus_reading import read_clips_or_corpus

HINT_FIELD = "{hint}"  # where a prompt holds its hint
_COLUMNS = {
    "prompt": ("prompt", "question", "instruction"),
    "answer": ("answer",),
    "options": ("options", "choices"),
    "hint": ("hint",),
    "text_answer": ("text_answer",),
    "kind": ("kind", "category"),
}


@dataclass(frozen=True, eq=False)
class ListeningItem:
    """A question about a recording.

    Parameters
    ----------
    clip : Clip
        The recording; its name is the item's.
    prompt : str
        The question. A ``{hint}`` in it is where the hint stands; otherwise the hint comes first. Of a Whisper the
        initial prompt, which may be empty.
    answer : str
        What the sound says.
    options : tuple of str
        Possible answers, as the model writes them; none for an open question. Where the text suggests another answer
        and there are no options, these are the two.
    hint : str
        A text in the prompt that suggests an answer: a transcript, a caption, a claim.
    text_answer : str
        The answer that the text suggests, of an item whose text contradicts its sound.
    kind : str
        Kind of item, for tables by kind.

    Raises
    ------
    InputError
        If something is no text, the answer is empty or no option, or two options are the same.

    Examples
    --------
    >>> import numpy as np
    >>> clip = Clip.from_array(np.zeros(16_000), 16_000, name="one")
    >>> item = ListeningItem(clip, "Who speaks?", "man", ("man", "woman"), hint="She speaks.", text_answer="woman")
    >>> item.full_prompt, item.prompt_without_hint, item.is_conflict
    ('She speaks. Who speaks?', 'Who speaks?', True)
    """

    clip: Clip
    prompt: str
    answer: str
    options: tuple[str, ...] = ()
    hint: str = ""
    text_answer: str = ""
    kind: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.options, list):
            object.__setattr__(self, "options", tuple(self.options))
        for name in _COLUMNS:
            cell = getattr(self, name)
            texts = [cell] if name != "options" else cell if isinstance(cell, tuple) else [None]
            if not all(isinstance(text, str) for text in texts):
                kind = "a tuple of texts" if name == "options" else "a text"
                raise InputError(f"{self.name}: expected {name} to be {kind}, found {cell!r:.80}")
        if self.text_answer and not self.options:
            object.__setattr__(self, "options", (self.answer, self.text_answer))
        if not self.answer.strip():
            raise InputError(f"{self.name}: the answer is empty: give what the sound says")
        answers = [answer for answer in (self.answer, self.text_answer) if answer]
        is_different = len(set(self.options)) == len(self.options) > 1
        if self.options and not (is_different and set(answers) <= set(self.options)):
            raise InputError(
                f"{self.name}: expected at least two different options, with "
                f"{' and '.join(map(repr, answers))} among them; found {list(self.options)}"
            )

    @property
    def name(self) -> str:
        """Name of the clip."""
        return str(self.clip.name)

    @property
    def full_prompt(self) -> str:
        """The prompt with its hint."""
        return self._with_hint(self.hint)

    @property
    def prompt_without_hint(self) -> str:
        """The prompt without its hint."""
        return self._with_hint("")

    @property
    def is_conflict(self) -> bool:
        """Whether the text suggests another answer than the sound."""
        return bool(self.text_answer) and self.text_answer != self.answer

    @property
    def chance(self) -> float:
        """Probability that a random option is right; 0 for an open question."""
        return 1 / len(self.options) if self.options else 0.0

    @property
    def question(self) -> dict[str, object]:
        """All but the recording, as JSON can hold it."""
        fields = {name: getattr(self, name) for name in _COLUMNS}
        return {**fields, "options": list(self.options)}

    def to_clip(self) -> Clip:
        """Return the clip with the question in its metadata, and without its words."""
        former = {column for columns in _COLUMNS.values() for column in columns}
        meta = {name: cell for name, cell in self.clip.meta.items() if name not in former}
        meta |= {name: str(value) for name, value in self.question.items() if value}
        meta |= {"options": json.dumps(list(self.options))} if self.options else {}
        clip: Clip = self.clip.replace(
            words=None, text=None, cue=None, target=None, foil=None, meta=meta
        )
        return clip

    @classmethod
    def from_clip(cls, clip: Clip) -> ListeningItem:
        """Read the question from a clip's metadata.

        Columns: prompt (or question, instruction), answer, options (or choices; JSON or "a|b|c"), hint, text_answer,
        kind (or category).

        Raises
        ------
        InputError
            If there is no answer, or it cannot be right.
        """
        cells = {
            name: next((clip.meta[column] for column in columns if clip.meta.get(column)), "")
            for name, columns in _COLUMNS.items()
        }
        if not cells["answer"]:
            raise InputError(
                f"{clip.name}: has no answer; an item needs the columns prompt and answer, and may have options, "
                "hint, text_answer and kind"
            )
        options = _parse_options(clip.name, cells.pop("options"))
        return cls(clip, options=options, **cells)

    def _with_hint(self, hint: str) -> str:
        text = self.prompt
        text = text.replace(HINT_FIELD, hint) if HINT_FIELD in text else f"{hint} {text}"
        return " ".join(text.split()) if self.hint else text.strip()


def _parse_options(name: str, cell: str | tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(cell, str):  # of a clip that was made in Python
        return cell
    if not cell.strip().startswith("["):
        return tuple(option.strip() for option in cell.split("|") if option.strip())
    try:
        options = json.loads(cell)
        if not all(isinstance(option, (str, int)) for option in options):
            raise ValueError
        return tuple(str(option) for option in options)
    except ValueError as error:
        raise InputError(
            f"{name}: options should be a JSON list or 'a|b|c', found {cell[:80]!r}"
        ) from error


_MAX_CANDIDATES = 200  # items that are looked at to find another sound


def check_items(
    items: Sequence[ListeningItem | Clip], skipped: list[tuple[str, str]] | None = None
) -> list[ListeningItem]:
    """Return items with distinct names; clips are read by `ListeningItem.from_clip`.

    Parameters
    ----------
    items : sequence of ListeningItem or Clip
    skipped : list, optional
        Gets name and reason of items whose recording cannot be read; by default recordings are not read.

    Raises
    ------
    InputError
        If there is none, or two share a name.
    """
    if not items:
        raise InputError("no items: give at least one question about a recording")
    listening_items = [
        item if isinstance(item, ListeningItem) else ListeningItem.from_clip(item) for item in items
    ]
    refuse_duplicate_names([item.clip for item in listening_items])
    for name, count in Counter(item.name for item in listening_items).items():
        if count > 1:
            raise InputError(
                f"two items are called {name!r}: give each recording a name of its own"
            )
    if skipped is None:
        return listening_items
    readable = []
    for item in listening_items:
        try:
            readable += [item] if item.clip.audio_hash else []
        except SpeechmixError as error:
            skipped.append((item.name, str(error)))
    return readable


def no_item_error(skipped: Sequence[tuple[str, str]]) -> InputError:
    """Return the error for items of which none can be used, with the first reasons."""
    reasons = [f"{name}: {reason.removeprefix(f'{name}: ')}" for name, reason in skipped[:3]]
    return InputError(f"no item can be used: {'; '.join(reasons)}")


def choose_donors(items: Sequence[ListeningItem]) -> dict[str, Clip]:
    """Choose for each item another one, whose sound takes the place of its own.

    A recording of its own is required. Preferred are another answer, the same options and the same pair. The order of
    the items does not matter.

    Returns
    -------
    dict of str to Clip
        By name of the item; without items whose recording all others share.
    """
    ring = sorted(items, key=lambda item: hashlib.sha256(item.name.encode()).digest())
    sounds = [item.clip.audio_hash for item in ring]  # each file is read once
    pairs = [item.clip.meta.get("pair", "") for item in ring]
    by_pair = defaultdict[str, list[int]](list)
    for index, pair in enumerate(pairs):
        by_pair[pair].append(index)
    count, donors = len(ring), dict[str, Clip]()
    for index, item in enumerate(ring):
        steps = range(1, min(count, _MAX_CANDIDATES + 1))
        near = dict.fromkeys((index + step) % count for step in steps)
        near |= dict.fromkeys(by_pair[pairs[index]] if pairs[index] else ())
        others = [other for other in near if sounds[other] != sounds[index]]
        if others:
            best = min(others, key=lambda other: _mismatches(item, ring[other]))
            donors[item.name] = ring[best].clip
    return donors


def _mismatches(item: ListeningItem, other: ListeningItem) -> tuple[bool, bool, bool, bool]:
    pair = item.clip.meta.get("pair")
    return (
        other.answer.casefold() == item.answer.casefold(),
        bool(item.options) and other.answer not in item.options,
        not pair or other.clip.meta.get("pair") != pair,
        other.kind != item.kind,
    )


def group_items(items: Sequence[ListeningItem], group: str | None = None) -> dict[str, str]:
    """Return the group of each item by name: items of one speaker, or else those that share a recording, a pair or a
    transcript; or of one value of a column `group` of the items."""
    table, _ = _assign_groups(items, group)
    return dict(zip(table["clip"], table["group"], strict=True))


def describe_listening_groups(
    items: Sequence[ListeningItem], group: str | None, names: Iterable[str]
) -> str:
    """Say how many groups and speakers the items of these names are of."""
    table, ties = _assign_groups(items, group)
    return describe_groups(table, ties, names=names, noun="item")


def _assign_groups(items: Sequence[ListeningItem], group: str | None) -> tuple[pd.DataFrame, str]:
    """Return a table of the items with their groups, and what ties them."""
    clips = [item.clip for item in items]
    if group is not None:
        table = build_item_table(clips)
        groups, ties = assign_item_groups(table, clips, group)
        return table.assign(group=groups), ties
    names = pd.Series([item.name for item in items])
    shared = {
        "sound": [clip.audio_hash for clip in clips],
        "pair": [clip.meta.get("pair") or "" for clip in clips],
        "text": [" ".join((clip.text or "").casefold().split()) for clip in clips],
    }
    parts = connect_clips(names, [pd.Series(labels, dtype=object) for labels in shared.values()])
    columns = {name: [clip.meta.get(name, "") for clip in clips] for name in SPEAKER_COLUMNS}
    first = names.groupby(parts).transform("first")
    table = pd.DataFrame({"clip": names, "pair": first, **columns})
    groups, ties = assign_groups(table)
    return table.assign(group=groups), ties.replace("the pair", "the recording, pair or transcript")


def read_listening_items(
    source: str | PathLike[str],
    *,
    allow_outside: bool = False,
    skipped: list[tuple[str, str]] | None = None,
) -> list[ListeningItem]:
    """Read questions from a table (.tsv, .csv, .jsonl) or a data set of Hugging Face `datasets`.

    Parameters
    ----------
    source : path or hub id
        As for `speechmix.read_clips`, with the columns of `ListeningItem.from_clip`.
    allow_outside : bool
        Let a table name files outside its folder.
    skipped : list, optional
        Gets (name, reason) of rows that cannot be used; without it such a row is an error.

    Raises
    ------
    InputError
        If there is no usable row.
    """

    def record_error(row: int, name: str, error: InputError) -> None:
        if skipped is None:
            raise error
        skipped.append((name or f"row {row}", str(error)))

    items = list[ListeningItem]()
    clips = read_clips_or_corpus(source, allow_outside=allow_outside, on_error=record_error)
    for row, clip in enumerate(clips):
        try:
            items.append(ListeningItem.from_clip(clip))
        except InputError as error:
            record_error(row, clip.name, error)
    if not items:
        reasons = "; ".join(reason for _, reason in (skipped or ())[:3])
        raise InputError(f"{source}: no item can be used: {reasons or 'there is none'}")
    return items


def write_listening_items(items: Sequence[ListeningItem], folder: str | PathLike[str]) -> Path:
    """Write items with their recordings (WAV) into a folder.

    Returns
    -------
    Path
        Of the table, ``items.jsonl``, for `read_listening_items` and the command line.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for item in check_items(items):
        clip = item.clip
        (folder / f"{item.name}.wav").write_bytes(encode_wav(clip))
        facts = {"name": item.name, "text": clip.text, "language": clip.language}
        cells = {"path": f"{item.name}.wav", **facts, **clip.meta, **item.question}
        lines.append(
            json.dumps({key: cell for key, cell in cells.items() if cell}, ensure_ascii=False)
        )
    path = folder / "items.jsonl"
    write_text(path, "\n".join(lines) + "\n")
    return path


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
