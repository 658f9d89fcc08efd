"""The objective of a CTC model: the probability of a whole transcript."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...adapters.generation.decoder_text import text_with_foil
from ...errors import InputError, ModelError
from ...inputs.clips.clip import Clip
from ...inputs.words.multipart_words import join_words
from ...inputs.words.spans import Span
from ..maps.numerics import ctc_log_probability
from .token_objectives import Objective, token_logits

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...adapters.transformers_types import ModelOutput
from .token_objectives import contrast_or_logit, require_target


def transcript_objective(kind: str, words: tuple[str, ...], model: Model, clip: Clip) -> Objective:
    """CTC: how much likelier the transcript is than without the target, or than with its foil."""
    if not type(model.module).__name__.endswith("ForCTC") or model.tokenizer is None:
        raise ModelError(
            f"{model.name}: expected a model with a CTC head and its tokenizer, found "
            f"{type(model.module).__name__}; or give "
            "objective= as a function of the model's output"
        )
    if kind in ("logit", "probability") or words:
        raise InputError(
            f"objective={words or kind!r} is for models with tokens; a CTC model has 'ctc', "
            "'contrast' and "
            "'log_probability', or (frame, token)"
        )
    target, clip_words = require_target(clip), clip.words or ()
    kind = {"auto": "ctc" if clip.foil is None else "contrast"}.get(kind, kind)
    kind = contrast_or_logit(kind, clip.foil, clip)
    foil_clip = clip.replace(foil="") if kind == "ctc" else clip
    texts = [clip.text or join_words(clip_words)]
    texts += [] if kind == "log_probability" else [" ".join(text_with_foil(foil_clip).split())]
    labels = [model.tokenizer(text).input_ids if text else [] for text in texts]

    def function(output: ModelOutput) -> Tensor:
        scores, blank = token_logits(output).log_softmax(dim=-1), model.config.pad_token_id
        text_scores, *other_scores = (
            torch.stack(
                [
                    ctc_log_probability(row, ids, blank=blank) if ids else row[:, blank].sum()
                    for row in scores
                ]
            )
            for ids in labels
        )
        return text_scores - other_scores[0] if other_scores else text_scores

    word = clip_words[target]
    span = Span(0, 1, word.text, "word", target, word.start, word.end, times=word.pieces)
    return Objective(function, span, {"kind": kind, "texts": texts, "label": word.text})
