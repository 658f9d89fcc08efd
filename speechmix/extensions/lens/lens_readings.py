"""What a lens reads of the log-probabilities behind each layer: words, and a target against its foil.

In: an item's inputs and decision. Out: a function for each choice. Margins are in nats:

    foil       log p(target) - log p(foil), where they part; of a CTC model of the whole text with either
    runner_up  log p of a word's token less that of the likeliest other one, the lowest of its tokens
    absence    of a CTC model: log p(text) - log p(text without the word)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...inputs.clips.clip import Clip
from ...mixing.maps.numerics import ctc_log_probability
from .lens_result import LensChoice

if TYPE_CHECKING:
    from ...adapters.generation.model_inputs import PreparedInputs
    from ...adapters.model import Model
    from ...interventions.decision import Decision
    from ...mixing.passes.item_view import Item

Reading = tuple[float, float, float]  # margin, log-probability, rank (NaN of a whole text)
LensReader = tuple[LensChoice, Callable[[Tensor], Reading]]  # reads log-probabilities [T, V]


def list_readers(
    model: Model,
    item: Item,
    prepared: PreparedInputs,
    decision: Decision | None,
    generated_text: str,
) -> list[LensReader]:
    """Return readers of each word, behind that of the target against its foil.

    Parameters
    ----------
    generated_text : str
        What the model writes; a CTC model reads its words where the item has no text.
    """
    details = {} if decision is None else decision.objective.details
    word, foil = getattr(item, "target", None), str(getattr(item, "foil", None) or "")
    reads_words = not isinstance(item, Mapping) and model.tokenizer is not None
    if model.capabilities.decoding == "frames" and reads_words:
        text = str(getattr(item, "text", None) or generated_text)
        readers = _text_readers(model, " ".join(text.split()))
    else:
        is_masked = model.capabilities.decoding == "masked"
        readers = _word_readers(prepared, item) if reads_words and not is_masked else []
    if details.get("kind") == "contrast" and "texts" in details:
        choice = LensChoice(word, str(details["label"]), "foil", foil)
        readers.insert(0, (choice, _read_texts(model, *details["texts"])))
    elif "position" in details and ("foil" in details or not readers):
        against = "foil" if "foil" in details else "runner_up"
        foil = foil or str(details.get("foil_label", ""))
        choice = LensChoice(word, str(details["label"]), against, foil)
        read = _read_tokens([details["token"]], [details["position"]], details.get("foil"))
        readers.insert(0, (choice, read))
    return readers


def text_token_indices(prepared: PreparedInputs) -> list[int]:
    """Return the indices of the text's tokens among the decoder's, without one that nothing predicts."""
    if prepared.tokens is None:
        return []
    audio_tokens, tokens = prepared.audio_tokens, prepared.tokens
    first = tokens.n_prefix
    if audio_tokens is not None and audio_tokens.answer_position is not None:
        first = audio_tokens.answer_position
    indices = range(max(first, 1), len(tokens.ids))
    return [index for index in indices if tokens.kinds[index] == "token"]


def _word_readers(prepared: PreparedInputs, item: Item) -> list[LensReader]:
    """Return readers of the words of a decoder's text; of its tokens where it has no words."""
    if prepared.tokens is None:
        return []
    tokens, groups = prepared.tokens, dict[tuple[int | None, int], list[int]]()
    token_indices = text_token_indices(prepared)
    has_words = any(tokens.words[index] is not None for index in token_indices)
    for index in token_indices:
        word = tokens.words[index]
        if word is None and has_words:  # a space between them
            continue
        groups.setdefault((word, index if word is None else -1), []).append(index)
    clip_words = item.spoken_words if isinstance(item, Clip) else ()
    word_labels = tokens.word_labels or [word.text for word in clip_words]
    readers = []
    for (word, _), indices in groups.items():
        label = "".join(tokens.labels[index] for index in indices)
        if word is not None and word < len(word_labels):  # two tokens may spell one character
            label = word_labels[word]
        ids = [tokens.ids[index] for index in indices]
        positions = [index - 1 for index in indices]
        choice = LensChoice(word, label.strip(), "runner_up")
        readers.append((choice, _read_tokens(ids, positions)))
    return readers


def _read_tokens(
    ids: Sequence[int], positions: Sequence[int], foil_id: int | None = None
) -> Callable[[Tensor], Reading]:
    """Read tokens at the positions that predict them; the rank is the lowest of theirs."""

    def read(log_probs: Tensor) -> Reading:
        rows = log_probs[list(positions)]
        index = torch.tensor(ids, device=rows.device)[:, None]
        values = rows.gather(1, index)
        ranks = 1 + (rows > values).sum(dim=1)
        if foil_id is None:
            others = rows.scatter(1, index, -torch.inf).amax(dim=1)
        else:
            others = rows[:, foil_id]
        margin = (values[:, 0] - others).min()
        return float(margin), float(values.sum()), float(ranks.max())

    return read


def _text_readers(model: Model, text: str) -> list[LensReader]:
    """Return readers of each word of a CTC model's text: how much likelier the text is with it."""
    words, readers = text.split(), []
    for index, word in enumerate(words):
        rest = " ".join(words[:index] + words[index + 1 :])
        choice = LensChoice(index, word, "absence")
        readers.append((choice, _read_texts(model, text, rest)))
    return readers


def _read_texts(model: Model, text: str, other_text: str) -> Callable[[Tensor], Reading]:
    blank = model.config.pad_token_id
    labels = [model.tokenizer(each).input_ids if each else [] for each in (text, other_text)]

    def read(log_probs: Tensor) -> Reading:
        score, other_score = (
            float(
                ctc_log_probability(log_probs, ids, blank=blank)
                if ids
                else log_probs[:, blank].sum()
            )
            for ids in labels
        )
        return score - other_score, score, float("nan")

    return read
