"""Likelihood of the singular and the plural spelling, for both members of a pair.

In: a model with a head, clips whose `meta` holds ``other_text``, what the pair's other member says
(the bundled clips and `speechmix.extensions.synthetic_french.synthetic_corpus` have it). Number is *right* if
the model finds the clip's own transcript likelier than the other member's, both given whole: log
p(own | audio) > log p(other | audio). Whole transcripts, because a decoder that is given "les" as
text knows the number even where the audio of "les" has been silenced. (The target's deciding
letters alone, with the text before them given, are what `speechmix.ablate` reads.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from ...adapters.capture.device_copy import inputs_to_device
from ...adapters.capture.model_use import run_encoder
from ...adapters.generation.decoder_text import decoder_tokens, require_transcription
from ...errors import InputError
from ...inputs.clips.clip import Clip
from ...mixing.maps.numerics import ctc_log_probability

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...adapters.transformers_types import ModelOutput


def log_likelihoods(model: Model, clip: Clip, texts: Sequence[str]) -> torch.Tensor:
    """Compute the natural log-probability of each text [N] given the clip's audio.

    The model is a recogniser with its processor (`Model.can_transcribe`).
    """
    with model.in_use(model.state_dtype), torch.no_grad():
        return _log_likelihoods(model, clip, texts)


def _log_likelihoods(model: Model, clip: Clip, texts: Sequence[str]) -> torch.Tensor:
    if not model.can_transcribe:
        raise InputError(f"{model.label} cannot spell: it needs a head and a tokenizer")
    require_transcription(model, "the log-likelihood of a text")
    if model.capabilities.is_transducer:
        raise InputError(
            f"{model.label}: the log-likelihood of a whole text is not computed for a transducer; "
            "compare target and foil where they are decided, with speechmix.ablate_input or "
            "speechmix.explain(model, clip, against='foil')"
        )
    prepared = model.family.prepare(model, clip, ("encoder",))
    inputs = inputs_to_device(prepared.inputs, model.device, model.state_dtype)
    if model.capabilities.decoding == "frames":
        # [1, T, V] -> [T, V]
        scores = model.module(**inputs).logits[0].float().log_softmax(-1)
        blank = model.config.pad_token_id
        return torch.stack(
            [
                ctc_log_probability(scores, model.tokenizer(text).input_ids, blank=blank)
                for text in texts
            ]
        )
    hidden = run_encoder(model, inputs, prepared.audio_hash)
    return torch.stack(
        [_decoder_log_likelihood(model, hidden, _replace_text(clip, text)) for text in texts]
    )


def is_number_correct(model: Model, clip: Clip) -> bool:
    """Say whether the clip's transcript is likelier than that of the other number.

    InputError if the clip does not name the other member of its pair, or both are spelled alike.
    """
    other_text = clip.meta.get("other_text")
    if not other_text or other_text == clip.text:
        raise InputError(
            f"{clip.name}: expected meta['other_text'], the transcript in the other number, found "
            f"{other_text!r}"
        )
    own_score, other_score = log_likelihoods(model, clip, [clip.text or "", other_text]).tolist()
    return bool(own_score > other_score)


def _decoder_log_likelihood(model: Model, hidden: ModelOutput, clip: Clip) -> torch.Tensor:
    tokens = decoder_tokens(model, clip)
    ids = torch.tensor([tokens.ids], device=model.device)
    scores = (
        model.run_with_head({"decoder_input_ids": ids}, encoder_outputs=hidden)
        .logits[0]
        .float()
        .log_softmax(-1)
    )
    first_position = tokens.n_prefix  # the prefix is given, not predicted
    predicted = torch.tensor(
        [*tokens.ids[first_position:], model.config.eos_token_id], device=model.device
    )
    token_scores: torch.Tensor = scores[first_position - 1 :].gather(-1, predicted[:, None])
    return token_scores.sum()


def _replace_text(clip: Clip, text: str) -> Clip:
    return clip.replace(text=text, words=None, cue=None, target=None, foil=None)
