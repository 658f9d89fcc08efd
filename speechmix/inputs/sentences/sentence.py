"""Sentence: a text with its cue and target, for text models.

In: a text, optionally the second text of a pair, or the translation a sequence-to-sequence model is
made to write; which words are cue and target. Out: its words with their characters, punctuation and
special markers ("<mask>") apart.

A table lists many sentences: one row a sentence, with its text, cue, target and whatever else is
known.

In: a .tsv, .csv or .jsonl file. Out: a list of `Sentence`s, in its order. A row that cannot be used
is an error, or is left out and reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from ...errors import InputError
from ...files.json_files import JsonObject
from ...files.user_tables import Cells, RowError, column_key, read_table
from ..clips.corpus_row import is_missing_number
from ..corpora.corpus_source import CorpusSource
from ..words.cue_and_target import (
    MARKER_PATTERN,
    Cue,
    CueRequest,
    RoleRequests,
    TextWord,
    WordRequest,
    cue_words,
)
from ..words.multipart_words import resolve_words_and_roles
from ..words.transcript_accuracy import normalize_text

TEXT_PARTS = ("text", "pair", "translation")

# A marker such as <mask> or [MASK]; a word with its inner apostrophes and hyphens; any other sign
# by itself. A letter may be followed by its accents (NFD).
_WORD_LETTERS = r"(?:\w[\u0300-\u036f]*)+"
_WORD_PATTERN = re.compile(rf"{MARKER_PATTERN}|{_WORD_LETTERS}(?:['’\-]{_WORD_LETTERS})*|[^\w\s]")


@dataclass(frozen=True)
class Sentence:
    """A text for a text model.

    Parameters
    ----------
    text : str
        "<mask>" stands for the model's own mask token.
    pair : str, optional
        The second text of a pair, behind a separator.
    translation : str, optional
        What a sequence-to-sequence model's decoder is made to write (teacher forcing).
    cue, target : int, str or (str, int), optional
        An index into `words`, a word, or a word and its occurrence, as for a `Clip`: ``"les:2"`` or
        ``("les", 2)``; kept as indices. A cue of several words is a list of these, or ``"the
        keys"``, and a tuple of indices then. Words that are one unit together are requested with
        "..." between them, ``"ne ... pas"``; `words` has them as one.
    foil : str, optional
        Another spelling of the target, which the model should not prefer.
    name : str, optional
        For tables and files; the text itself if not given.
    meta : mapping of str to str
        Anything else that is known.

    Raises
    ------
    InputError
        For an empty text, a cue or target that is not (or more than once) among the words, or one
        word for both.

    Examples
    --------
    >>> sentence = Sentence("Either you win the game or you <mask> the game.", cue="Either", target="<mask>")
    >>> sentence.cue, sentence.target, [word.text for word in sentence.words][-3:]
    (0, 7, ['the', 'game', '.'])
    >>> Sentence("les chats et les chiens", cue="les:2").cue
    3
    >>> [word.text for word in Sentence("il ne mange pas", cue="ne ... pas", target="mange").words]
    ['il', 'ne … pas', 'mange']
    """

    text: str
    pair: str | None = None
    translation: str | None = None
    cue: CueRequest | None = None
    target: WordRequest | None = None
    foil: str | None = None
    name: str | None = None
    meta: Mapping[str, str] = field(default_factory=dict)
    _requests: RoleRequests = field(init=False, repr=False, compare=False, default_factory=dict)
    _multipart_words: tuple[TextWord, ...] = field(init=False, repr=False, default=())

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or not self.text.strip():
            raise InputError(f"expected a text with words, found {self.text!r}")
        for text_field in (
            *TEXT_PARTS,
            "foil",
        ):  # a tokenizer takes another spelling for another word
            if isinstance(text := getattr(self, text_field), str):
                self.__dict__[text_field] = normalize_text(text)
        name, requests = self.name or self.text, {"cue": self.cue, "target": self.target}
        words, indices = resolve_words_and_roles(
            self.words, requests, where=f"sentence {name[:60]!r}"
        )
        # Frozen for everybody else: `words` is read from the texts, which are there already.
        self.__dict__.update(
            indices, name=name, meta=MappingProxyType(dict(self.meta)), _requests=requests
        )
        self.__dict__.update(
            words=words, _multipart_words=tuple(word for word in words if word.pieces)
        )

    def replace(self, **changes: Any) -> Sentence:
        """Return another sentence with these changes (any of the parameters); cue and target are
        looked up anew.

        Examples
        --------
        >>> Sentence("les chats dorment", cue="chats").replace(text="tous les chats dorment").cue
        2
        """
        name_change = (
            {} if self.name != self.text else {"name": None}
        )  # named by its text: by its new text then
        return replace(self, **{**self._requests, **name_change, **changes})

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "meta": dict(self.meta)}  # a read-only view cannot be pickled

    def __setstate__(self, state: JsonObject) -> None:
        self.__dict__.update(state, meta=MappingProxyType(state["meta"]))

    @cached_property
    def words(self) -> tuple[TextWord, ...]:
        """Words of the text, then those of the pair and of the translation; what cue or target join
        ("ne ... pas") is one."""
        return tuple(
            word
            for text_field in TEXT_PARTS
            for word in _split_words(getattr(self, text_field) or "", text_field)
        )

    @property
    def cue_words(self) -> tuple[int, ...]:
        """Indices of the cue's words, one or several; none without a cue.

        Examples
        --------
        >>> Sentence("the keys are here", cue="the keys", target="are").cue_words
        (0, 1)
        """
        return cue_words(cast("Cue | None", self.cue))  # looked up when the sentence was made

    @cached_property
    def fingerprint(self) -> str:
        """32 hexadecimal digits that differ as soon as the question does: a text, the cue, the
        target or the foil.

        Two sentences may share a name (the text itself); what is stored belongs to this.
        """
        fingerprint_fields: list[object] = [
            self.text,
            self.pair,
            self.translation,
            self.cue,
            self.target,
            self.foil,
        ]
        fingerprint_fields += [[word.part, word.pieces] for word in self._multipart_words]
        return blake2b(json.dumps(fingerprint_fields).encode("ascii"), digest_size=16).hexdigest()


def _split_words(text: str, text_field: str) -> Iterator[TextWord]:
    for match in _WORD_PATTERN.finditer(text):
        yield TextWord(match.group(), match.start(), match.end(), text_field)


_FIELD_COLUMNS = ("pair", "translation", "cue", "target", "foil", "name")
_TEXT_COLUMNS = ("text", "sentence")


def read_sentences(
    table: str | PathLike[str], *, on_error: Callable[[int, InputError], None] | None = None
) -> list[Sentence]:
    """Sentences of a table.

    Columns: text (or sentence; required), pair, translation, cue, target, foil, name; others are
    kept in `Sentence.meta`, as ``label`` of a classified text. cue and target are a word, a word
    and which of its occurrences ("the:2"), or an index.

    Parameters
    ----------
    table : path ending in .tsv, .csv or .jsonl
        Another column of texts is named behind it: "sentences.tsv,text=COLUMN".
    on_error : callable, optional
        What to do with a row that cannot be used, as ``on_error(row, error)``, with the row as an
        editor counts it; it is then left out. By default its error is raised.

    Raises
    ------
    InputError
        If the table cannot be read, has no column of texts or no rows; without `on_error`, for the
        first unusable row.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "sentences.tsv"
    >>> _ = path.write_text("text\\ttarget\\tlabel\\nthe keys are here\\tare\\tplural\\n")
    >>> (sentence,) = read_sentences(path)
    >>> sentence.target, dict(sentence.meta)
    (2, {'label': 'plural'})
    """
    source = CorpusSource.parse(table)
    source.refuse_options("config", "split", "audio", kind="a table of sentences")
    path = Path(source.location)
    text_columns = (column_key(path, source.text),) if source.text else _TEXT_COLUMNS
    sentences, row_count = [], 0
    for row_number, cells in read_table(path, required=("|".join(text_columns),)):
        row_count += 1
        try:
            sentences.append(_sentence_from_cells(cells, text_columns))
        except (InputError, RowError) as error:
            row_error = InputError(f"{path}, row {row_number}: {error}")
            if on_error is None:
                raise row_error from error
            on_error(row_number, row_error)
    if not row_count:
        raise InputError(f"{path}: expected at least one row with a text, found none")
    return sentences


def _sentence_from_cells(cells: Cells | RowError, text_columns: Sequence[str]) -> Sentence:
    if isinstance(cells, RowError):
        raise cells
    text = next((cells[name] for name in text_columns if name in cells), None)
    if not isinstance(text, str):
        raise InputError(f"expected a text, found {text!r}")
    meta = {
        name: str(cell)
        for name, cell in cells.items()
        if name not in (*_FIELD_COLUMNS, *_TEXT_COLUMNS, *text_columns)
        and not is_missing_number(name, cell)
    }
    fields: JsonObject = {name: cells[name] for name in _FIELD_COLUMNS if name in cells}
    return Sentence(text, **fields, meta=meta)
