"""What a recogniser writes: its greedy transcript, and how far that is from what was said."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

import torch

from ..adapters.tokens import decoder_prefix
from ..errors import InputError

if TYPE_CHECKING:
    from ..adapters import Model
    from ..inputs.clips import Clip

# A model whose transcripts differ from the text by more than this does not transcribe the clips it is asked about.
TRANSCRIBES = 0.5


def transcribe(model: Model, clip: Clip, *, max_tokens: int = 100) -> str:
    """Greedy transcript of a clip.

    Parameters
    ----------
    model : Model
        One that can spell (`Model.can_spell`).
    clip : Clip
        Its language is given to a multilingual Whisper.
    max_tokens : int
        Where to stop a decoder that does not.

    Raises
    ------
    InputError
        If the model cannot spell.
    """
    if not model.can_spell:
        raise InputError(f"{model.label} cannot transcribe: it needs a CTC or language-model head and its processor")
    wide = model.state_dtype
    inputs = model.family.prepare(model, clip, ("encoder",)).inputs
    inputs = {name: tensor.to(model.device, wide) for name, tensor in inputs.items()}
    with model.in_use(wide), torch.no_grad(), torch.random.fork_rng(devices=[]):
        if "decoder" not in model.stacks:
            return model.tokenizer.decode(model.module(**inputs).logits[0].argmax(dim=-1)).strip()
        ids = decoder_prefix(model, clip)
        n_prefix, limit = len(ids), min(max_tokens, model.config.max_target_positions)
        memory, new, past = model.base.get_submodule("encoder")(**inputs), ids, None
        while len(ids) < limit and ids[-1] != model.tokenizer.eos_token_id:
            tokens = torch.tensor([new], device=model.device)
            output = model.module(
                encoder_outputs=memory, decoder_input_ids=tokens, past_key_values=past, use_cache=True
            )
            new, past = [int(output.logits[0, -1].argmax())], output.past_key_values
            ids = [*ids, *new]
    return model.tokenizer.decode(ids[n_prefix:], skip_special_tokens=True).strip()


def character_error_rate(text: str, transcript: str) -> float:
    """Edits between two texts per character of the first; case, punctuation and runs of spaces aside, accents kept.

    Examples
    --------
    >>> character_error_rate("Les livres.", "les livre")
    0.1
    """
    reference, heard = _plain(text), _plain(transcript)
    return _edits(reference, heard) / max(1, len(reference))


def _edits(reference: str, other: str) -> int:
    """Levenshtein's distance: fewest letters to insert, leave out or replace."""
    row = list(range(len(other) + 1))  # distances of the empty beginning
    for i, letter in enumerate(reference, start=1):
        above, row = row, [i]
        for j, other_letter in enumerate(other, start=1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (letter != other_letter)))
    return row[-1]


def _plain(text: str) -> str:
    characters = (
        c if c.isalnum() or c == "'" else " " for c in unicodedata.normalize("NFC", text).lower().replace("’", "'")
    )
    return " ".join("".join(characters).split())
