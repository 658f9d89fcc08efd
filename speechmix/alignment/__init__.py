"""Where each word is in the audio: word files, CTC forced alignment, synthesis and dynamic time warping."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from ..errors import AlignmentError, InputError
from .base import Alignment, words_of

if TYPE_CHECKING:
    from ..adapters import Model
    from ..clips import Clip

METHODS = ("auto", "ctc", "synthesis")

__all__ = ["METHODS", "Alignment", "align", "words_of"]


def align(clip: Clip, *, model: Model | None = None, method: str = "auto", language: str | None = None) -> Clip:
    """Give a clip that has only text its word times.

    Parameters
    ----------
    clip : Clip
        With text. One that has words already is returned as it is.
    model : Model, optional
        A model with a CTC head, for method "ctc".
    method : {"auto", "ctc", "synthesis"}
        "ctc": forced alignment with `model`. "synthesis": espeak-ng speaks the text and dynamic time warping carries
        its word times over; no weights needed (extra `synthesis`). "auto": "ctc" if `model` has a CTC head and is
        trained, else "synthesis".
    language : str, optional
        For synthesis; by default the clip's, else "fr".

    Returns
    -------
    Clip
        A copy with words, each with a score, and ``doubts``: sentences that say why the times cannot be trusted
        (empty if they can). Doubts are also a Python warning.

    Raises
    ------
    AlignmentError
        If the words cannot be placed at all.

    Examples
    --------
    >>> clip = speechmix.Clip.from_file("a.wav", text="elle a perdu les livres")    # doctest: +SKIP
    >>> speechmix.align(clip).words                                                 # doctest: +SKIP
    """
    if method not in METHODS:
        raise InputError(f"method must be one of {METHODS}, found {method!r}")
    if clip.words is not None:
        return clip
    if not clip.text:
        raise AlignmentError(f"clip {clip.name!r} has neither words nor text: give text=, or words= with times")
    alignment = _place(clip, model, method, language)
    aligned = clip.with_words(alignment.words, alignment=alignment.method)
    aligned.doubts = alignment.doubts
    for doubt in alignment.doubts:
        warnings.warn(f"clip {clip.name!r}: alignment by {alignment.method} is doubtful: {doubt}", stacklevel=2)
    return aligned


def _place(clip: Clip, model: Model | None, method: str, language: str | None) -> Alignment:
    from .ctc import align_by_ctc, has_ctc_head

    if method == "auto":
        method = "ctc" if model is not None and has_ctc_head(model) and model.init == "trained" else "synthesis"
    if method == "ctc":
        if model is None:
            raise InputError("alignment by CTC needs model=, a loaded model with a CTC head")
        return align_by_ctc(model, clip.audio(model.sample_rate), clip.text)
    from .synthesis import align_by_synthesis

    return align_by_synthesis(
        clip.audio(16_000), clip.text, language=language or clip.language or "fr", sample_rate=16_000
    )
