"""Words to explain, each with the alternative that it was preferred to.

In: a `Writing`, and what its words are to be held against (the runner-up, what was said instead, a
foil). Out: `Choice`s. A word is explained by its log-probability, the sum over its tokens; against
something else by the difference of two log-probabilities at the one position (of a CTC model:
frame) where both spellings part.

Position that decides between the written text and an alternative.

In: a `Writing`, and another wording of it. Out: a `Contrast` of two tokens, or none where the model
spells both alike. A decoder's tokens part where the ids first differ; a CTC model's letters at the
frame of the letter that is exchanged, or where a missing one would be likeliest.

The label that a classifier gives, as the one thing that it writes.

In: a classifier of sounds or texts and an item. Out: a `Writing` of one token, the label, whose
sources are the words (or segments, or tokens) of the item. Logits of labels count as those of one
position, so the label is compared with other labels as a token is with other tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from rapidfuzz.distance import Levenshtein

from ...adapters.generation.decoder_text import token_behind_text
from ...adapters.generation.model_inputs import first_difference
from ...adapters.transformers_types import ModelOutput
from ...inputs.clips.clip import Clip
from ...inputs.words.transcript_accuracy import normalize_transcript
from ...interventions.decision import tokens_as_sources, words_as_sources
from ...mixing.measures.token_objectives import (
    check_maps_reach_label,
    label_index,
    label_names,
    label_position,
)
from ...mixing.passes.request import MixRequest
from ...mixing.passes.view_kinds import make_view
from .generated_tokens import (
    END,
    Draft,
    SourceUnit,
    Writing,
    make_open_decision,
    padding_sources,
    read_logits,
    read_probabilities,
    token_label,
)
from .removals import make_reader
from .transcript_errors import TranscriptError

if TYPE_CHECKING:
    from torch import Tensor

    from ...adapters.model import Model
    from ...inputs.sentences.sentence import Sentence


@dataclass(frozen=True)
class Contrast:
    """A token that was written, and one that could have been, at one position.

    Parameters
    ----------
    position : int
    id, foil : int
    label, foil_label : str
    foil_probability : float
    texts : tuple of str
        Of a CTC model, whose letters are read one by one: what is written, and the other wording;
        empty where there is none.
    """

    position: int
    id: int
    foil: int
    label: str
    foil_label: str
    foil_probability: float
    texts: tuple[str, ...] = ()


def contrast_with_wording(
    writing: Writing, words: Sequence[str], word_index: int
) -> Contrast | None:
    """Where what is written parts from another wording, whose first `place` words are the same."""
    if not writing.by_frame:
        return _contrast_in_tokens(writing, words, word_index)
    contrast = _contrast_in_frames(writing, words)
    return (
        None
        if contrast is None
        else replace(contrast, texts=(" ".join(writing.words), " ".join(words)))
    )


def contrast_with_runner_up(writing: Writing, token_indices: Sequence[int]) -> Contrast:
    """Against the second-likeliest token, at the one of these tokens that the model was least sure
    of."""
    token = min(
        (writing.tokens[token_index] for token_index in token_indices),
        key=lambda token: token.probability,
    )
    other = token.runners_up[0]
    return Contrast(token.position, token.id, other.id, token.label, other.label, other.probability)


def _contrast_in_tokens(writing: Writing, words: Sequence[str], word_index: int) -> Contrast | None:
    """Where a decoder's tokens part from those of another wording, whose first `place` words are
    the same."""
    model, tokens = writing.model, writing.tokens
    fed = [token for token in tokens if token.fed_at is not None]
    if not fed:  # a mask stands for one token
        ids = model.tokenizer(words[word_index], add_special_tokens=False).input_ids
        return (
            _make_contrast(writing, tokens[word_index].position, tokens[word_index].id, ids[0])
            if len(ids) == 1
            else None
        )
    end_id, _ = token_behind_text(model)
    token_ids = [*(token.id for token in fed), end_id]
    shared_count = next(
        (number for number, token in enumerate(fed) if token.word == word_index), len(fed)
    )
    remaining_text = " ".join(words[word_index:])
    remaining_text = (
        remaining_text if model.converses and not shared_count else f" {remaining_text}"
    )  # an answer begins without a space
    further = (
        model.tokenizer(remaining_text, add_special_tokens=False).input_ids
        if remaining_text.strip()
        else []
    )
    others = [*token_ids[:shared_count], *further, end_id]
    parting = first_difference(token_ids, others)
    if parting is None:
        return None
    positions = [*(token.position for token in fed), (fed[-1].fed_at or 0)]
    foil = others[parting]
    if model.capabilities.is_transducer and _is_superfluous(token_ids, others):
        foil = end_id  # without the token it would go on to the next frame
    return _make_contrast(writing, positions[parting], token_ids[parting], foil)


def _is_superfluous(ids: Sequence[int], others: Sequence[int]) -> bool:
    """Whether the first token in which two texts differ is left out in the other."""
    return next(iter(Levenshtein.editops(list(ids), list(others)))).tag == "delete"


def _contrast_in_frames(writing: Writing, words: Sequence[str]) -> Contrast | None:
    """Where a CTC model's letters part from those of another wording: the frame that decides."""
    model, blank = writing.model, writing.model.config.pad_token_id
    tokens = [token for token in writing.tokens if token.word is not None]
    others = model.tokenizer(" ".join(words)).input_ids
    edit = next(iter(Levenshtein.editops([token.id for token in tokens], others)), None)
    if edit is None:
        return None
    if edit.tag != "insert":
        token = tokens[edit.src_pos]
        return _make_contrast(
            writing,
            token.position,
            token.id,
            blank if edit.tag == "delete" else others[edit.dest_pos],
        )
    # A letter that is not there: where it would be likeliest, between its neighbours.
    first = tokens[edit.src_pos - 1].position + 1 if edit.src_pos else 0
    stop = tokens[edit.src_pos].position if edit.src_pos < len(tokens) else len(writing.logits)
    return _likeliest_frame(writing, others[edit.dest_pos], first, stop)


def contrast_at_deletion(
    writing: Writing, error: TranscriptError, words: Sequence[str]
) -> Contrast | None:
    """The first letter of a missing word, where it is likeliest while the word is said, and what
    stands there instead.

    `words` are those written with the missing one among them.
    """
    ids, clip = writing.model.tokenizer(error.said).input_ids, writing.decision.item
    if not ids or not isinstance(clip, Clip):
        return None
    grid = writing.model.grid(len(clip.audio(writing.model.sample_rate)))
    contrast = _likeliest_frame(
        writing, ids[0], *grid.frames_between(error.onset or 0.0, error.offset or 0.0)
    )
    return replace(contrast, texts=(" ".join(writing.words), " ".join(words)))


def _likeliest_frame(writing: Writing, foil: int, first: int, stop: int) -> Contrast:
    """A letter that is not written, at the frame of [first, stop) where it is likeliest."""
    first = min(first, len(writing.logits) - 1)
    scores = writing.logits[first : max(stop, first + 1)].log_softmax(dim=-1)
    frame = first + int(scores[:, foil].argmax())
    likeliest = writing.logits[frame].topk(2).indices.tolist()
    return _make_contrast(writing, frame, next(id_ for id_ in likeliest if id_ != foil), foil)


def _make_contrast(writing: Writing, position: int, id_: int, foil: int) -> Contrast:
    labels = [token_label(writing.model, token) for token in (id_, foil)]
    return Contrast(
        position,
        id_,
        foil,
        labels[0],
        labels[1],
        float(writing.logits[position].softmax(dim=-1)[foil]),
    )


def write_label(
    model: Model, item: Clip | Sentence, *, label: str | None, by_token: bool
) -> Writing:
    """The label that a classifier gives an item, or the one that is asked about (by its name, or
    its number from 0)."""
    view = make_view(
        model, item, MixRequest(units="word" if model.hears else "token"), tuple(model.stacks)
    )
    stack = model.capabilities.input_stack
    spans = tuple(view.sources(stack))
    if by_token and not model.hears:
        item_sources = tokens_as_sources(spans)
    else:
        item_sources = words_as_sources(spans, [word.text for word in item.words or ()])
    decision = make_open_decision(model, item, view.prepared, {stack: item_sources})
    times = {span.word: (span.onset, span.offset, span.times) for span in spans}
    sources = [
        SourceUnit("sound", source, *times[source.index])
        if model.hears
        else SourceUnit("read", source)
        for source in item_sources
    ]
    sources += padding_sources(spans)
    logits, labels = read_logits(decision), label_names(model)
    index = int(logits[0].argmax()) if label is None else label_index(model, label)
    tokens = read_probabilities(model, [Draft(index, labels[index], 0, 0)], logits)
    by = f"label of the model ({model.label})" if label is None else "given"
    units = spans if model.hears else None
    words = (labels[index],)
    return Writing(decision, tokens, words, tuple(sources), labels[index], by, units, logits)


def contrast_with_label(writing: Writing, foil: int) -> Contrast:
    """The label against another one."""
    labels, label = label_names(writing.model), writing.tokens[0]
    probability = float(writing.logits[0].softmax(dim=-1)[foil])
    return Contrast(0, label.id, foil, label.label, labels[foil], probability)


def label_rows(writing: Writing) -> list[int]:
    """Positions of the last layer that a label is read from: one, or all those of the sources.

    Raises
    ------
    InputError
        As `check_maps_reach_label`.
    """
    check_maps_reach_label(writing.model)
    row = label_position(writing.model, writing.decision.prepared)
    if row is not None:
        return [row]
    return [position for unit in writing.sources for position in unit.source.positions]


AGAINST = ("reference", "runner_up", "foil")


@dataclass(frozen=True)
class Choice:
    """A written word (or token), by itself or against something else.

    Parameters
    ----------
    unit : int
        Its place among the units that were written.
    label : str
    tokens : tuple of int
        Its tokens, by their place in ``Writing.tokens``.
    word : int or None
        Index of the written word; None of the end of text.
    probability : float
        Of the word, given what stands before it: the product over its tokens.
    against : {"", "reference", "runner_up", "foil"}
    contrast : Contrast or None
    error : int or None
        Which transcript error this is.
    """

    unit: int
    label: str
    tokens: tuple[int, ...]
    word: int | None
    probability: float
    against: str = ""
    contrast: Contrast | None = None
    error: int | None = None

    @property
    def name(self) -> str:
        return (
            self.label
            if self.contrast is None
            else f"{self.label}: {self.contrast.label} not {self.contrast.foil_label}"
        )


def list_units(writing: Writing, *, by_token: bool) -> list[Choice]:
    """Every written word, and the end of the text; or every token."""
    tokens = writing.tokens
    if by_token:
        groups: list[tuple[str, tuple[int, ...]]] = [
            (token.label, (token_index,)) for token_index, token in enumerate(tokens)
        ]
    else:
        groups = [
            (
                word,
                tuple(
                    token_index for token_index, token in enumerate(tokens) if token.word == index
                ),
            )
            for index, word in enumerate(writing.words)
        ]
        groups += [
            (END, (token_index,))
            for token_index, token in enumerate(tokens)
            if token.word is None and token.label == END
        ]
    return [
        Choice(
            unit,
            label,
            token_indices,
            tokens[token_indices[-1]].word,
            float(np.prod([tokens[token_index].probability for token_index in token_indices])),
        )
        for unit, (label, token_indices) in enumerate(groups)
    ]


def list_choices(
    writing: Writing,
    units: Sequence[Choice],
    errors: Sequence[TranscriptError],
    against: Sequence[str],
) -> list[Choice]:
    """Errors first, then every unit by itself, then what else units are held against."""
    if writing.model.has_label_head:
        return [*units, *_list_label_choices(writing, units[0], against)]
    error_choices = (
        list(_list_error_choices(writing, units, errors)) if "reference" in against else []
    )
    contrast_choices = []
    if "runner_up" in against:
        contrast_choices += [
            _add_contrast(unit, "runner_up", contrast_with_runner_up(writing, unit.tokens))
            for unit in units
        ]
    if "foil" in against:
        contrast_choices += list(_list_foil_choices(writing, units))
    return [*error_choices, *units, *contrast_choices]


def _list_label_choices(writing: Writing, unit: Choice, against: Sequence[str]) -> Iterator[Choice]:
    """A label against the true one (``meta["label"]`` of the item), the runner-up, or named ones."""
    item, labels = writing.decision.item, label_names(writing.model)
    for name in against:
        if name == "runner_up":
            yield _add_contrast(unit, name, contrast_with_runner_up(writing, unit.tokens))
            continue
        other: object = name
        if name in AGAINST and item is not None:
            other = item.meta.get("label") if name == "reference" else item.foil
            if other not in labels:  # a foil is another spelling of a word
                continue
        foil = label_index(writing.model, str(other))
        if foil != writing.tokens[0].id:
            kind = name if name in AGAINST else "foil"
            yield _add_contrast(unit, kind, contrast_with_label(writing, foil))


def _add_contrast(
    unit: Choice, against: str, contrast: Contrast | None, error: int | None = None
) -> Choice:
    return Choice(
        unit.unit, unit.label, unit.tokens, unit.word, unit.probability, against, contrast, error
    )


def _list_error_choices(
    writing: Writing, units: Sequence[Choice], errors: Sequence[TranscriptError]
) -> Iterator[Choice]:
    for number, error in enumerate(errors):
        words = list(writing.words)
        words[error.written : error.written_stop] = (error.said or "").split()
        if writing.by_frame and error.kind == "deletion" and error.onset is not None:
            contrast = contrast_at_deletion(writing, error, words)
        else:
            contrast = contrast_with_wording(writing, words, error.written)
        yield from _choices_at_contrast(
            writing, units, contrast, error.written, "reference", number
        )


def _list_foil_choices(writing: Writing, units: Sequence[Choice]) -> Iterator[Choice]:
    item = writing.decision.item
    foil, target = getattr(item, "foil", None), getattr(item, "target", None)
    if foil is None or not isinstance(target, int):
        return
    target_word = (
        normalize_transcript((item.words or ())[target].text) if isinstance(item, Clip) else None
    )
    for index, word in enumerate(writing.words):
        if target_word is None or normalize_transcript(word) == target_word:
            words = [*writing.words[:index], foil, *writing.words[index + 1 :]]
            yield from _choices_at_contrast(
                writing, units, contrast_with_wording(writing, words, index), index, "foil"
            )


def _choices_at_contrast(
    writing: Writing,
    units: Sequence[Choice],
    contrast: Contrast | None,
    word_index: int,
    against: str,
    error: int | None = None,
) -> Iterator[Choice]:
    """The unit that is chosen where a contrast is, or follows it; none where the model spells both
    wordings alike."""
    if contrast is None:
        return
    holding = [
        unit
        for unit in units
        if any(writing.tokens[t].position == contrast.position for t in unit.tokens)
    ]
    later_units = [unit for unit in units if unit.word is not None and unit.word >= word_index]
    yield _add_contrast(next(iter([*holding, *later_units, *units[-1:]])), against, contrast, error)


@dataclass(frozen=True)
class Readings:
    """What is read of each run for all choices together: each token's log-probability, then each
    contrast.

    Parameters
    ----------
    read : callable
        Output of n runs to Tensor [n, R].
    of_choices, of_probabilities : ndarray [R, C]
        Which readings add up to what explains a choice, and to the log-probability of its word.
    """

    read: Callable[[ModelOutput], Tensor]
    of_choices: np.ndarray
    of_probabilities: np.ndarray

    @classmethod
    def of(cls, writing: Writing, choices: Sequence[Choice]) -> Readings:
        tokens, contrasts = (
            writing.tokens,
            [choice for choice in choices if choice.contrast is not None],
        )
        positions = [
            *(t.position for t in tokens),
            *(c.contrast.position for c in contrasts if c.contrast),
        ]
        ids = [*(t.id for t in tokens), *(c.contrast.id for c in contrasts if c.contrast)]
        foils = [*[None] * len(tokens), *(c.contrast.foil for c in contrasts if c.contrast)]
        of_probabilities = np.zeros((len(ids), len(choices)))
        for column, choice in enumerate(choices):
            of_probabilities[list(choice.tokens), column] = 1
        of_choices = of_probabilities.copy()
        for row, choice in enumerate(contrasts, start=len(tokens)):
            column = next(
                choice_index for choice_index, other in enumerate(choices) if other is choice
            )
            of_choices[:, column] = np.arange(len(ids)) == row
        return cls(make_reader(positions, ids, foils), of_choices, of_probabilities)


def reading_positions(writing: Writing, choice: Choice) -> list[int]:
    """Positions whose logits a choice is read from; of a label those whose states are."""
    if writing.model.has_label_head:
        return label_rows(writing)
    if choice.contrast is not None:
        return [choice.contrast.position]
    return [writing.tokens[token_index].position for token_index in choice.tokens]


def possible_sources(writing: Writing, choices: Sequence[Choice]) -> np.ndarray:
    """Whether each source stands before what is explained, [C, S]; a sound and a text that is read
    always do."""
    return np.array(
        [
            [
                source.side != "written"
                or max(source.source.positions) <= min(reading_positions(writing, choice))
                for source in writing.sources
            ]
            for choice in choices
        ]
    )
