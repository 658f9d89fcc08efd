"""Where each word is in the audio: word files, CTC forced alignment, a transducer's path, Whisper's
attention, synthesis and warping."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import AlignmentError, InputError
from ..inputs.words.unit_tiers import PHONE, unit_owners
from .alignment_result import Alignment, aligned_words, without_calibration_note

if TYPE_CHECKING:
    from ..adapters import Model
    from ..inputs.clips.clip import Clip

WORD = "word"
METHODS = ("auto", "ctc", "transducer", "whisper", "synthesis")

__all__ = ["METHODS", "Alignment", "align", "aligned_words", "place_words"]


def align(
    clip: Clip,
    *,
    model: Model | None = None,
    method: str = "auto",
    language: str | None = None,
    tiers: Sequence[str] = (WORD,),
) -> Clip:
    """Give a clip that has only text its word times, and its phones.

    Parameters
    ----------
    clip : Clip
        With text. Words that it has already are kept.
    model : Model, optional
        A model with a CTC head, for method "ctc"; an RNN-T or TDT for "transducer"; a trained
        Whisper for "whisper".
    method : {"auto", "ctc", "transducer", "whisper", "synthesis"}
        "ctc": forced alignment with `model`. "transducer": the likeliest path of an RNN-T or TDT,
        whose tokens say where words begin better than where they end. "whisper": cross-attention.
        "synthesis": espeak-ng speaks the text and dynamic time warping carries its word times
        over; no weights needed (extra `synthesis`). "auto": "ctc" if `model` has a CTC head and is trained, else
        "synthesis", with a warning if a `model` is given, which is then not used.
    language : str, optional
        For synthesis and Whisper; by default the clip's. Whisper detects one that is not known,
        synthesis asks for it.
    tiers : sequence of {"word", "phone"}
        "phone" adds ``clip.tiers["phone"]``, by synthesis only: the phones that espeak-ng says for
        the text, in IPA. The score of each is the probability that neither of its boundaries is more
        than 20 ms off, if the speaker says these phones. Phones that the clip has are kept.

    Returns
    -------
    Clip
        A copy with words, each with a score, and ``doubts``: sentences that say why the times
        cannot be trusted (empty if they can). Doubts are also a Python warning.

    Raises
    ------
    AlignmentError
        If the words cannot be placed at all.
    InputError
        If the text is to be spoken by synthesis and nobody says in which language; for other tiers,
        and for phones by another method.

    Examples
    --------
    >>> clip = speechmix.Clip.from_file("a.wav", text="elle a perdu les livres", language="fr")    # doctest: +SKIP
    >>> speechmix.align(clip).words                                                               # doctest: +SKIP
    """
    if method not in METHODS:
        raise InputError(f"method must be one of {METHODS}, found {method!r}")
    if WORD not in tiers or not set(tiers) <= {WORD, PHONE}:
        raise InputError(
            f"tiers must be ['word'] or ['word', 'phone'], found {list(tiers)}: syllables come from a "
            "file (Clip.from_file(..., words=, tiers={'syllable': ...}))"
        )
    needs_phones = PHONE in tiers and PHONE not in clip.tiers
    if needs_phones and method not in ("auto", "synthesis"):
        raise InputError(f"phones are placed by method 'synthesis' only, found {method!r}")
    if clip.words is not None:
        return _add_phones(clip, language) if needs_phones else clip
    if not clip.text:
        raise AlignmentError(
            f"clip {clip.name!r} has neither words nor text: give text=, or words= with times"
        )
    if model is not None and method == "auto" and resolve_method(model, method) == "synthesis":
        warnings.warn(
            f"clip {clip.name!r}: {model.label} has no trained CTC head, so method='auto' places the words by "
            f"synthesis, without the model{_name_other_method(model)}",
            stacklevel=2,
        )
    alignment = place_words(clip, clip.text, model=model, method=method, language=language)
    aligned = clip.replace(
        words=alignment.words, alignment=alignment.method, doubts=alignment.doubts
    )
    if needs_phones:
        aligned = (
            aligned.replace(tiers={**clip.tiers, PHONE: alignment.phones})
            if alignment.phones
            else _add_phones(aligned, language)
        )
    for doubt in alignment.doubts:
        # What is true of every clip of a language names none, so that it is shown once.
        is_own = bool(without_calibration_note(doubt))
        about = (
            f"clip {clip.name!r}: alignment by {alignment.method} is doubtful: " if is_own else ""
        )
        warnings.warn(f"{about}{doubt}", stacklevel=2)
    return aligned


def resolve_method(model: Model | None, method: str) -> str:
    """Return the alignment method; that of "auto" depends on the model."""
    from .ctc import has_ctc_head

    if method != "auto":
        return method
    is_ctc = model is not None and has_ctc_head(model) and model.init == "trained"
    return "ctc" if is_ctc else "synthesis"


def _name_other_method(model: Model) -> str:
    """Name the method that uses a model whose CTC head does not."""
    from .whisper_attention import is_trained_whisper

    if is_trained_whisper(model):
        return "; method='whisper' uses its cross-attention"
    is_transducer = model.capabilities.is_transducer
    return "; method='transducer' uses its path" if is_transducer else ""


def _add_phones(clip: Clip, language: str | None) -> Clip:
    """Add phones to words whose times are known: those that synthesis places in each word,
    stretched with it.

    Words that are not single words in one piece each, as synthesis needs them, are an InputError.
    """
    words = clip.spoken_words
    if not words or any(word.pieces or len(aligned_words(word.text)) != 1 for word in words):
        raise InputError(
            f"clip {clip.name!r}: phones need words of one piece each, without spaces in their labels: "
            "align the text (words=None), or read the phones from a file"
        )
    text = " ".join(word.text for word in words)
    alignment = place_words(clip, text, method="synthesis", language=language)
    phones = []
    owners = unit_owners(alignment.phones, alignment.words)
    for phone, owner in zip(alignment.phones, owners, strict=True):
        aligned_word, word = alignment.words[owner or 0], words[owner or 0]
        factor = word.seconds / max(aligned_word.seconds, 1e-6)
        start, end = (
            word.start + factor * (time - aligned_word.start) for time in (phone.start, phone.end)
        )
        phones.append(replace(phone, start=start, end=min(end, word.end)))
    return clip.replace(tiers={**clip.tiers, PHONE: phones})


def place_words(
    clip: Clip,
    text: str,
    *,
    model: Model | None = None,
    method: str = "auto",
    language: str | None = None,
) -> Alignment:
    """Align another wording of what a clip says ("quatre-vingts" for "80"); the options are those
    of `align`."""
    from .ctc import align_by_ctc

    if method not in METHODS:
        raise InputError(f"method must be one of {METHODS}, found {method!r}")
    method = resolve_method(model, method)
    language = language or clip.language
    if method == "synthesis":
        from .synthesis_aligner import align_by_synthesis

        if model is not None:
            from ..adapters.generation.decoder_text import spoken_language

            language = spoken_language(model, language)
        if not language:
            raise InputError(
                f"clip {clip.name!r}: in which language is {text[:60]!r}? Its words are placed by "
                "a voice that speaks it: give "
                "language='fr' ('en-us', ...; --language fr on the command line, a column language "
                "in a manifest; "
                "speechmix.alignment.espeak.espeak_voices() lists them), or a CTC model that aligns "
                "(model=, --aligner)"
            )
        return align_by_synthesis(clip.audio(16_000), text, language=language, sample_rate=16_000)
    if model is None:
        needed = {"ctc": "a CTC head", "transducer": "a joint network (RNN-T, TDT)"}.get(
            method, "cross-attention (Whisper)"
        )
        raise InputError(f"alignment by {method} needs model=, a loaded model with {needed}")
    if method == "ctc":
        return align_by_ctc(model, clip.audio(model.sample_rate), text)
    if method == "transducer":
        from .ctc import align_by_transducer

        return align_by_transducer(model, clip.audio(model.sample_rate), text)
    from .whisper_attention import align_by_whisper

    return align_by_whisper(model, clip.audio(model.sample_rate), text, language=language)
