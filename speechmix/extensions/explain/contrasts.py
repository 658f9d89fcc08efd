"""Position that decides between the written text and an alternative.

In: a `Writing`, and another wording of it. Out: a `Contrast` of two tokens, or none where the model
spells both alike. A decoder's tokens part where the ids first differ; a CTC model's letters at the
frame of the letter that is exchanged, or where a missing one would be likeliest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rapidfuzz.distance import Levenshtein

from ...adapters.generation.decoder_text import token_behind_text
from ...adapters.generation.token_sequence import first_difference
from ...inputs.clips.clip import Clip
from .generated_tokens import token_label
from .transcript_errors import TranscriptError

if TYPE_CHECKING:
    from .generated_tokens import Writing


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
