"""Sources: what an intervention can take away from a stack, a word, several together, or a token.

In: the spans of a stack. Out: `Source`s, each with its positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from ..adapters.capture.device_copy import inputs_to_device
from ..adapters.capture.forward_pass import Capture, use_attention
from ..inputs.words.spans import Span

if TYPE_CHECKING:
    from torch import Tensor

    from ..adapters.generation.audio_token_frames import AudioTokens
    from ..adapters.model import Model
    from ..mixing.passes.item_view import Item, View


@dataclass(frozen=True)
class Source:
    """What an intervention removes from a stack: a word, several together, or a token.

    `index` counts the item's words (of several, the first); of a token it is the position, of
    prepared inputs the unit of the stack. `positions` are frames or tokens of the stack; `members`,
    of several words, each by itself. `word_index` is the word that this is, or that a token belongs
    to; None for several words and prepared inputs.
    """

    index: int
    label: str
    positions: tuple[int, ...]
    members: tuple[Source, ...] = ()
    word_index: int | None = None

    @property
    def word_indices(self) -> tuple[int, ...]:
        """Indices of all its words."""
        return tuple(member.index for member in self.members) or (self.index,)


def join_sources(sources: tuple[Source, ...]) -> Source:
    """Join several words to one source."""
    positions = tuple(position for source in sources for position in source.positions)
    return Source(
        sources[0].index, " ".join(source.label for source in sources), positions, sources
    )


def words_as_sources(spans: Sequence[Span], words: Sequence[str] | None) -> tuple[Source, ...]:
    """Join spans to sources by word, without spans of no word; each by itself without words."""
    if words is None:
        return tuple(Source(i, span.label, tuple(span.positions)) for i, span in enumerate(spans))
    positions: dict[int, list[int]] = {}
    for span in spans:
        if span.word is not None:
            positions.setdefault(span.word, []).extend(span.positions)
    return tuple(
        Source(word, words[word], tuple(positions[word]), word_index=word)
        for word in sorted(positions)
    )


def audio_and_answer_sources(
    spans: Sequence[Span], words: Sequence[str], answer_position: int
) -> tuple[Source, ...]:
    """List the words of an audio language model's decoder: in the audio, then in the answer with
    the next indices.

    Examples
    --------
    >>> said_twice = [Span(3, 9, "les", word=0), Span(12, 13, "les", "token", 0)]
    >>> [(source.index, source.label, source.positions[0]) for source in audio_and_answer_sources(said_twice, ["les"], 12)]
    [(0, 'les', 3), (1, 'les (written)', 12)]
    """
    audio_sources = words_as_sources(
        [span for span in spans if span.start < answer_position], words
    )
    answer_sources = words_as_sources(
        [span for span in spans if span.start >= answer_position], words
    )
    return audio_sources + tuple(
        replace(source, index=len(words) + source.index, label=f"{source.label} (written)")
        for source in answer_sources
    )


def tokens_as_sources(spans: Sequence[Span]) -> tuple[Source, ...]:
    """List the tokens of a text as sources, without special tokens."""
    return tuple(
        Source(span.start, span.label, tuple(span.positions), word_index=span.word)
        for span in spans
        if span.word is not None
    )


def removable_sources(model: Model, view: View, units: str) -> dict[str, tuple[Source, ...]]:
    """List the sources ("word" or "token") of each stack that can be removed from an item; its view
    is prepared for all stacks."""
    words = None if view.item is None else [word.text for word in view.item.words or ()]
    sources = {
        stack: tokens_as_sources(view.sources(stack))
        if units == "token" and words is not None
        else words_as_sources(view.sources(stack), words)
        for stack in model.capabilities.prepared_stacks
    }
    audio_tokens = view.prepared.audio_tokens
    if audio_tokens is not None and audio_tokens.answer_position is not None and words is not None:
        sources["decoder"] = audio_and_answer_sources(
            view.sources("decoder"), words, audio_tokens.answer_position
        )
    elif audio_tokens is not None and not sources["encoder"]:
        sources["encoder"] = _audio_frame_sources(model, view.prepared.inputs, audio_tokens)
    return sources


def audio_frame_spans(model: Model, item: Item) -> list[list[tuple[int, int]]] | None:
    """Return each frame of prepared audio as a span; None for other items, whose words or tokens
    are the sources."""
    if not model.capabilities.has_shared_features or not isinstance(item, Mapping):
        return None
    sound_input, rows = torch.as_tensor(next(iter(item.values()))), model.family.feature_rows
    if model.family.is_traced:  # how features become frames is not in the table
        return [[(frame, frame + 1)] for frame in range(_count_frames(model, item))]
    n_samples = sound_input.shape[-1] if rows is None else rows[0] * sound_input.shape[1] + rows[1]
    grid = model.grid(n_samples)
    return [grid.position_ranges([(frame, frame + 1)]) for frame in range(grid.n_frames)]


def _count_frames(model: Model, inputs: Mapping[str, object]) -> int:
    """Run the encoder of prepared inputs, and count its frames."""
    counts: list[int] = []
    tensors = {name: torch.as_tensor(value) for name, value in inputs.items()}
    with (
        model.in_use(model.state_dtype),
        torch.no_grad(),
        use_attention(model.module, model.readable_attention),
        Capture(
            [model.stacks["encoder"]], lambda block: counts.append(block.n_sources), layers=(0,)
        ),
    ):
        moved = inputs_to_device(tensors, model.device, model.state_dtype)
        model.family.run(model.base, moved, ("encoder",))
    return counts[0]


def _audio_frame_sources(
    model: Model, inputs: Mapping[str, Tensor], audio_tokens: AudioTokens
) -> tuple[Source, ...]:
    """Return each frame that became a position of an audio language model's decoder as a source.

    The projector may have padded its last step."""
    count = audio_tokens.n_windows * audio_tokens.frames
    if model.family.feature_rows is not None:
        count = min(count, inputs["input_features"].shape[1])
    return tuple(Source(frame, str(frame), (frame,)) for frame in range(count))
