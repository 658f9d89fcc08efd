"""The objective of a CTC model: the probability of a whole transcript."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...adapters.generation.decoder_text import text_with_foil
from ...adapters.generation.greedy_generation import transcribe
from ...errors import InputError, ModelError
from ...inputs.clips.clip import Clip
from ...inputs.words.multipart_words import join_words
from ...inputs.words.spans import Span
from ..maps.numerics import ctc_log_probability
from .token_objectives import (
    Objective,
    contrast_or_logit,
    require_target,
    token_logits,
    tokens_objective,
)

if TYPE_CHECKING:
    from ...adapters.generation.model_inputs import PreparedInputs
    from ...adapters.model import Model
    from ...adapters.transformers_types import ModelOutput
    from ...inputs.sentences.sentence import Sentence


def explains_whole_text(kind: str, clip: Clip | Sentence) -> bool:
    """Whether the number is the log-probability of the whole text: segments of a sound have no
    target."""
    has_segments = isinstance(clip, Clip) and clip.has_segments and clip.target is None
    return has_segments and kind in ("auto", "log_probability")


def require_text(model: Model, clip: Clip | Sentence, pieces: Sequence[object]) -> None:
    """Raise an InputError if the text of a clip has no words or tokens: the model writes nothing."""
    if not pieces:
        raise InputError(
            f"{clip.name}: {model.label} writes nothing for this sound, so there is no word to "
            "explain: give text="
        )


def written_text_objective(
    model: Model, clip: Clip | Sentence, prepared: PreparedInputs
) -> Objective:
    """Log-probability of all text tokens that a decoder is fed, each given those before it."""
    tokens, audio_tokens = prepared.decoder_tokens, prepared.audio_tokens
    answer_position = None if audio_tokens is None else audio_tokens.answer_position
    first = tokens.n_prefix if answer_position is None else answer_position
    places = [place for place in range(first, len(tokens.ids)) if tokens.kinds[place] == "token"]
    require_text(model, clip, places)
    label = " ".join(tokens.labels[place] for place in places)
    ids, positions = [tokens.ids[place] for place in places], [place - 1 for place in places]
    return tokens_objective(ids, positions, label)


def transcript_objective(kind: str, words: tuple[str, ...], model: Model, clip: Clip) -> Objective:
    """CTC: how much likelier the transcript is than without the target, or than with its foil."""
    if not type(model.module).__name__.endswith("ForCTC") or model.tokenizer is None:
        raise ModelError(
            f"{model.name}: expected a model with a CTC head and its tokenizer, found "
            f"{type(model.module).__name__}; or give "
            f"objective= as a function of the model's output{model.missing_processor}"
        )
    if kind in ("logit", "probability") or words:
        raise InputError(
            f"objective={words or kind!r} is for models with tokens; a CTC model has 'ctc', "
            "'contrast' and "
            "'log_probability', or (frame, token)"
        )
    if explains_whole_text(kind, clip):
        kind, texts = "log_probability", [clip.text or transcribe(model, clip)]
        require_text(model, clip, texts[0].split())
        span = Span(0, 1, texts[0], "word")
    else:
        target, clip_words = require_target(clip), clip.words or ()
        kind = {"auto": "ctc" if clip.foil is None else "contrast"}.get(kind, kind)
        kind = contrast_or_logit(kind, clip.foil, clip)
        foil_clip = clip.replace(foil="") if kind == "ctc" else clip
        texts = [clip.text or join_words(clip_words)]
        texts += [] if kind == "log_probability" else [" ".join(text_with_foil(foil_clip).split())]
        word = clip_words[target]
        span = Span(0, 1, word.text, "word", target, word.start, word.end, times=word.pieces)
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

    return Objective(function, span, {"kind": kind, "texts": texts, "label": span.label})
