"""Whether a model writes the text of a clip, from the states of the forward pass that its maps are of.

In: the output of the pass. Out: a note where a CTC model's likeliest letters are another text, or
where a decoder that is fed the text finds other tokens much likelier. In a recording that is too
soft, say, the model recognises nothing, and no share in its maps would show it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...adapters.binding.output_head import head_projection
from ...adapters.model import Model
from ...adapters.transformers_types import ModelOutput
from ...inputs.clips.clip import Clip
from ...inputs.words.multipart_words import join_words
from ...inputs.words.transcript_accuracy import MAX_ERROR_RATE, character_error_rate
from .item_view import View

# Nats a token by which other tokens may be likelier than the text's. The bundled Whisper, on its own clips: at most
# 0.3, with another clip's text 2.1 and more; Whisper tiny.en on recorded commands: at most 0.6, and 3.0 and more. Capitals
# that the model would not write cost as much, so the likeliest tokens have to be other words, too.
_MAX_LOST_NATS = 1.5


def describe_unheard_text(
    model: Model, view: View, output: ModelOutput, row: int, stacks: Sequence[str]
) -> str | None:
    """Say what the model writes instead of the clip's text; None if it writes most of it, or none
    is known.

    The model is in use, in the precision of `output`, which it made without its head; `row` is the
    item's index in the pass.
    """
    clip, states = view.item, getattr(output, "last_hidden_state", None)
    if model.init != "trained" or model.tokenizer is None or not isinstance(clip, Clip):
        return None
    text = clip.text or join_words(clip.spoken_words)
    if not text or states is None:
        return None
    head = head_projection(model)
    if not isinstance(head, torch.nn.Linear):
        return None
    if type(model.module).__name__.endswith("ForCTC"):
        transcript = _read_letters(model, head, states[row])
        if character_error_rate(text, transcript, clip.language) <= MAX_ERROR_RATE:
            return None
        what = f"writes {transcript[:60]!r}" if transcript else "writes nothing"
        return f"{what} of a sound whose text is {text[:60]!r}"
    if (
        model.capabilities.decoding != "cross-attention"
        or model.prefix.task != "transcribe"
        or not {"decoder", "cross"} & set(stacks)
    ):
        return None
    nats, likeliest_text = _compare_tokens(model, view, head, states[row])
    if nats <= _MAX_LOST_NATS:
        return None
    if character_error_rate(text, likeliest_text, clip.language) <= MAX_ERROR_RATE:
        return None
    return (
        f"finds other tokens likelier than those of the text {text[:60]!r} (by {nats:.1f} nats a token, expected "
        f"at most {_MAX_LOST_NATS})"
    )


def _read_letters(model: Model, head: torch.nn.Linear, states: Tensor) -> str:
    ids = head(states).argmax(dim=-1).tolist()
    text: str = model.tokenizer.decode(ids).strip()
    return text


def _compare_tokens(
    model: Model, view: View, head: torch.nn.Linear, states: Tensor
) -> tuple[float, str]:
    """Mean difference of log-probability between the likeliest token and the text's, each behind the
    text's tokens before it, and the text of the likeliest tokens; 0 where no text was given."""
    tokens = view.prepared.tokens
    if tokens is None or view.prepared.generated_text is not None:
        return 0.0, ""
    kinds = tokens.kinds[: len(tokens.ids)]
    indices = [index for index, kind in enumerate(kinds) if kind == "token"]
    if not indices:
        return 0.0, ""
    logits = head(states[[index - 1 for index in indices]]).float()
    ids = torch.tensor([tokens.ids[index] for index in indices], device=logits.device)
    nats = (logits.amax(dim=-1) - logits.gather(1, ids[:, None])[:, 0]).mean()
    likeliest_text = model.tokenizer.decode(
        logits.argmax(dim=-1).tolist(), skip_special_tokens=True
    )
    return float(nats), likeliest_text.strip()
