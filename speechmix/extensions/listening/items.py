"""Questions about recordings: what a model is asked, what is right, what the text of the prompt suggests.

In: clips whose metadata (further columns of a manifest or data set) hold prompt, answer and options. Out:
`ListeningItem`s.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from ...errors import InputError
from ...inputs.clips.clip import Clip

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
