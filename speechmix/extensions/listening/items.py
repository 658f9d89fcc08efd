"""Questions about recordings: what a model is asked, what is right, what the text of the prompt suggests.

In: clips whose metadata (further columns of a manifest or data set) hold prompt, answer and options. Out:
`ListeningItem`s.

How items belong together: whose sound takes the place of an item's own, and which items are one group.

Read questions about recordings from a table or data set, and write them.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

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
