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
from ..adapters.tokens import DecoderTokens, decoder_tokens, locate_words
from ..errors import InputError
from ..spans import word_spans

if TYPE_CHECKING:
    from ..adapters import Model
    from ..clips import Clip


def ablate(
    model: Model, clip: Clip, *, foil: str, stacks: Sequence[str] | None = None, source: int | None = None
) -> pd.DataFrame:
    """Read the choice between target and foil, intact and with a source silenced in one stack after the other.

    Parameters
    ----------
    model : Model
        With a CTC head, or an encoder and a decoder with its language-model head.
    clip : Clip
        With text, words and a target.
    foil : str
        The other spelling of the target word ("livre" for "livres").
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
    if not clip.text or clip.words is None or clip.target is None or source is None:
        raise InputError(f"{clip.name}: ablation needs text, words with times, a cue (or source=) and a target")
    other = _with_foil(clip, foil)
    choose = _Spelling(model, clip, other)
    rows = []
    for stack in ("none", *(stacks or model.stacks)):
        if stack != "none" and stack not in model.stacks:
            raise InputError(f"{model.name} has no stack {stack!r}; it has {list(model.stacks)}")
        positions = {} if stack == "none" else {stack: choose.positions(stack, source)}
        with zeroed_values(model, positions):
            margin = choose.margin()
        rows.append({"ablated": stack, "margin": margin, "right": margin > 0})
    return pd.DataFrame(rows)


def _with_foil(clip: Clip, foil: str) -> str:
    """Return the clip's text with the target word spelled as its foil."""
    place = locate_words([word.text for word in clip.words], clip.text)[clip.target]
    if place is None:
        raise InputError(f"{clip.name}: the target {clip.words[clip.target].text!r} is not in the text {clip.text!r}")
    other = clip.text[: place[0]] + foil + clip.text[place[1] :]
    if other == clip.text:
        raise InputError(f"{clip.name}: the foil {foil!r} is spelled like the target")
    return other


class _Spelling:
    """One model's choice between two spellings of a clip's text."""

    def __init__(self, model: Model, clip: Clip, other: str):
        self._model, self._clip = model, clip
        stacks = tuple(model.stacks)
        prepared = model.family.prepare(model, clip, stacks)
        wide = torch.float32 if model.dtype.itemsize < 4 else model.dtype
        self._inputs = {
            name: tensor.to(model.device, wide if tensor.is_floating_point() else tensor.dtype)
            for name, tensor in prepared.inputs.items()
        }
        self._tokens, self._dtype = prepared.tokens, wide
        if self._tokens is None:
            if model.tokenizer is None or not type(model.module).__name__.endswith("ForCTC"):
                raise InputError(f"{model.name}: ablation needs a CTC head with its tokenizer, or a decoder")
            self._labels = [model.tokenizer(text).input_ids for text in (clip.text, other)]
        else:
            self._decide(decoder_tokens(model, clip, text=other))

    def _decide(self, foil: DecoderTokens) -> None:
        """Find the first token in which the two spellings differ; the last one may be the end of text."""
        end = self._model.tokenizer.eos_token_id
        mine, theirs = [*self._tokens.ids, end], [*foil.ids, end]
        self.position = next(i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b)
        self._choice = mine[self.position], theirs[self.position]
        self._inputs["decoder_input_ids"] = self._inputs["decoder_input_ids"][:, : self.position]

    def positions(self, stack: str, word: int) -> list[int]:
        """Source positions of a word in a stack: encoder frames, or the tokens fed so far that belong to it."""
        if stack == "decoder":
            held = self._tokens.words[: self.position]
            return [position for position, owner in enumerate(held) if owner == word]
        grid = self._model.grid(len(self._clip.audio(self._model.sample_rate)))
        span = word_spans(self._clip.words, grid)[word]
        return list(range(span.start, span.stop))

    def margin(self) -> float:
        model = self._model
        with model.in_dtype(self._dtype), torch.no_grad(), torch.random.fork_rng(devices=[]):
            options = {"use_cache": False} if self._tokens is not None else {}
            logits = model.module(**self._inputs, **options).logits[0].double()
        log_probs = logits.log_softmax(dim=-1)
        if self._tokens is not None:
            mine, theirs = self._choice
            return (log_probs[-1, mine] - log_probs[-1, theirs]).item()
        mine, theirs = (_ctc_log_prob(log_probs, labels, model.config.pad_token_id) for labels in self._labels)
        return mine - theirs


def _ctc_log_prob(log_probs: torch.Tensor, labels: list[int], blank: int) -> float:
    """Log probability of a label sequence, summed over all alignments."""
    targets = torch.tensor(labels, device=log_probs.device)
    lengths = torch.tensor(len(log_probs)), torch.tensor(len(labels))
    loss = torch.nn.functional.ctc_loss(log_probs[:, None], targets[None], *lengths, blank=blank, reduction="sum")
    return -loss.item()
