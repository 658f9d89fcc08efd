"""Ablation as the judge: does the model still spell the target right when the cue gives nothing?

The cue's value vectors are zeroed in all layers of one stack (`adapters.intervene`), and the model chooses between the
target as it is spelled and its foil (livres / livre):

    margin = log p(target) - log p(foil)        right if margin > 0

With a decoder, at the deciding position: the first token in which the two spellings differ, the text before it fed as it
is (teacher forcing). With a CTC head, log p of the whole text with either spelling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd
import torch

from ..adapters.intervene import zeroed_values
from ..adapters.tokens import text_with_foil
from ..errors import InputError
from ..inputs.spans import word_spans
from ..maps.numerics import ctc_log_probability
from .spelling import can_spell

if TYPE_CHECKING:
    from ..adapters import Model
    from ..inputs.clips import Clip
    from ..inputs.spans import Word


def ablate(model: Model, clip: Clip, *, stacks: Sequence[str] | None = None, source: int | None = None) -> pd.DataFrame:
    """Read the choice between target and foil, intact and with a source silenced in one stack after the other.

    Silenced are value vectors, in all layers of the stack. What goes round attention stays: in wav2vec2 models the
    positional convolution carries a word to the frames around it (0.2 s in the bundled model, 2.6 s in XLSR).

    Parameters
    ----------
    model : Model
        With a CTC head, or an encoder and a decoder with its language-model head.
    clip : Clip
        With text, words, a target and its foil, the other spelling ("livre" for "livres").
    stacks : sequence of str, optional
        All the model has by default.
    source : int, optional
        Index of the word to silence; the clip's cue by default.

    Returns
    -------
    DataFrame
        One row for "none" and for each stack: ablated, margin (nats), right.

    Raises
    ------
    InputError
        If the clip lacks what is needed, or the model cannot choose between two spellings.
    """
    source = clip.cue if source is None else source
    if not clip.text or clip.words is None or clip.target is None or clip.foil is None or source is None:
        raise InputError(
            f"{clip.name}: ablation needs text, words with times, a cue (or source=), a target and its foil"
        )
    choose = _Spelling(model, clip, clip.words)
    rows = []
    for stack in ("none", *(model.stacks if stacks is None else stacks)):
        if stack != "none" and stack not in model.stacks:
            raise InputError(f"{model.name} has no stack {stack!r}; it has {list(model.stacks)}")
        positions = {} if stack == "none" else {stack: choose.positions(stack, source)}
        with zeroed_values(model, positions):
            margin = choose.margin()
        rows.append({"ablated": stack, "margin": margin, "right": margin > 0})
    return pd.DataFrame(rows)


class _Spelling:
    """One model's choice between two spellings of a clip's text."""

    def __init__(self, model: Model, clip: Clip, words: Sequence[Word]):
        if not can_spell(model):
            raise InputError(
                f"{model.label} cannot spell: ablation needs a CTC or language-model head and the processor"
            )
        self._model, self._clip, self._words = model, clip, words
        stacks = tuple(model.stacks)
        prepared = model.family.prepare(model, clip, stacks)
        self._dtype = model.state_dtype
        self._inputs = {
            name: tensor.to(model.device, self._dtype if tensor.is_floating_point() else tensor.dtype)
            for name, tensor in prepared.inputs.items()
        }
        self._tokens = prepared.tokens
        if self._tokens is None:
            self._labels = [model.tokenizer(text).input_ids for text in (clip.text, text_with_foil(clip))]
        else:
            ids, position, foil_id = self._tokens.ids, self._tokens.deciding, self._tokens.foil_id
            if position is None or foil_id is None:
                raise InputError(f"{clip.name}: {model.label} reads the target and its foil as the same tokens")
            target_id = ids[position] if position < len(ids) else model.tokenizer.eos_token_id
            self._choice = target_id, foil_id
            self._inputs["decoder_input_ids"] = self._inputs["decoder_input_ids"][:, :position]

    def positions(self, stack: str, word: int) -> list[int]:
        """Source positions of a word in a stack: encoder frames, or the tokens fed so far that belong to it."""
        if stack == "decoder" and self._tokens is not None:
            held = self._tokens.words[: self._tokens.deciding]
            return [position for position, owner in enumerate(held) if owner == word]
        grid = self._model.grid(len(self._clip.audio(self._model.sample_rate)))
        span = word_spans(self._words, grid)[word]
        return list(range(span.start, span.stop))

    def margin(self) -> float:
        model = self._model
        with model.in_use(self._dtype), torch.no_grad(), torch.random.fork_rng(devices=[]):
            options = {"use_cache": False} if self._tokens is not None else {}
            logits = model.module(**self._inputs, **options).logits[0].double()
        log_probs = logits.log_softmax(dim=-1)
        if self._tokens is not None:
            target_id, foil_id = self._choice
            return (log_probs[-1, target_id] - log_probs[-1, foil_id]).item()
        blank = model.config.pad_token_id
        own, other = (ctc_log_probability(log_probs, labels, blank=blank) for labels in self._labels)
        return (own - other).item()
