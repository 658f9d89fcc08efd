"""What a recogniser writes: its greedy transcript, and how far that is from what was said."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

import torch
from rapidfuzz.distance import Levenshtein

from ..adapters.capture.device_copy import inputs_to_device
from ..adapters.generation.transcription import decode_ids, generate_greedily
from ..errors import InputError

if TYPE_CHECKING:
    from ..adapters import Model
    from ..inputs.clips.clip import Clip

# A model whose transcripts differ from the text by more than this does not transcribe the clips it
# is asked about.
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
        raise InputError(
            f"{model.label} cannot transcribe: it needs a CTC or language-model head and its "
            "processor"
        )
    if model.capabilities.decoding == "cross-attention":
        ids, n_prefix, _ = generate_greedily(model, clip, max_tokens=max_tokens)
        return decode_ids(model, ids[n_prefix:])
    wide = model.state_dtype
    inputs = model.family.prepare(model, clip, ("encoder",)).inputs
    inputs = inputs_to_device(inputs, model.device, wide)
    with model.in_use(wide), torch.no_grad():
        return model.tokenizer.decode(model.module(**inputs).logits[0].argmax(dim=-1)).strip()


def character_error_rate(text: str, transcript: str) -> float:
    """Edits between two texts per character of the first; case, punctuation and runs of spaces
    aside, accents kept.

    Examples
    --------
    >>> character_error_rate("Les livres.", "les livre")
    0.1
    """
    reference, heard = plain(text), plain(transcript)
    return Levenshtein.distance(reference, heard) / max(1, len(reference))


def transcript_judged(transcript: str, text: str | None) -> str:
    """What a model writes, for people, and how that compares with what was said.

    Parameters
    ----------
    transcript : str
    text : str, optional
        What was said, if that is known.

    Examples
    --------
    >>> transcript_judged("les livres", "Les livres.")
    'writes: les livres (as given)'
    >>> transcript_judged("les livre de Jean", "les livres de Jean")
    'writes: les livre de Jean (1 of 4 words differs)'
    >>> transcript_judged("merci", "les livres de Jean")
    'writes: merci (4 of 4 words differ: it does NOT transcribe this clip)'
    """
    written = f"writes: {transcript}" if transcript else "writes nothing"
    words = plain(text or "").split()
    if not words:
        return written
    differing = min(Levenshtein.distance(words, plain(transcript).split()), len(words))
    if not differing:
        return f"{written} (as given)"
    count = f"{differing} of {len(words)} words differ{'s' if differing == 1 else ''}"
    fails = character_error_rate(text or "", transcript) > TRANSCRIBES
    return f"{written} ({count}{': it does NOT transcribe this clip' if fails else ''})"


def plain(text: str) -> str:
    """Text as it is compared: small letters, no punctuation, single spaces; accents are kept.

    Examples
    --------
    >>> plain("L’été,  oui !")
    "l'été oui"
    """
    characters = (
        c if c.isalnum() or c == "'" else " "
        for c in unicodedata.normalize("NFC", text).lower().replace("’", "'")
    )
    return " ".join("".join(characters).split())
