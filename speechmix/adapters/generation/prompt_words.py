"""Find the words of a prompt among the tokens that a processor wrote around it.

In: an audio language model with its prompt, and the ids of the conversation. Out: each word of the prompt with the
positions of the tokens that spell it. The words of the chat template are no words of the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .audio_token_positions import find_audio_token_id

if TYPE_CHECKING:
    from ..model import Model


def find_prompt_words(model: Model, ids: Sequence[int]) -> list[tuple[str, tuple[int, ...]]]:
    """Return the words of a model's prompt with their positions; none where the ids do not spell
    the prompt as it is.

    `ids` [T] are those of the conversation without an answer. A word whose tokens all belong to a
    neighbour has no positions.
    """
    audio = getattr(model.processor, "audio_token", None)
    words = (model.prompt.text.replace(audio, " ") if audio else model.prompt.text).split()
    letter_positions, letters = list[int](), ""
    for position, id_ in enumerate(ids):
        if id_ in model.tokenizer.all_special_ids or id_ == find_audio_token_id(model.config):
            piece = "\n"  # no word goes over it
        else:
            piece = "".join(model.tokenizer.decode([id_]).split())
        letters += piece
        letter_positions += [position] * len(piece)
    start = letters.rfind("".join(words))
    if not words or start < 0:
        return []
    word_positions, taken = [], set[int]()
    for word in words:
        positions = dict.fromkeys(
            position
            for position in letter_positions[start : start + len(word)]
            if position not in taken
        )
        taken |= set(positions)
        start += len(word)
        word_positions.append((word, tuple(positions)))
    return word_positions
