"""Shares of an answer that come from sound, prompt and earlier answer, by layer.

In: a decoder map of an audio language model, whose rows and columns are prompt, sound and answer in
one row. Out: a table of shares that add up to one; and of a word of the clip, what it gives as it
is heard and as it is written.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ...errors import InputError
from ...inputs.words.cue_and_target import cue_words
from ...mixing.maps.mixing_map import MixingMap

ANSWER_PARTS = ("sound", "prompt", "answer")


def answer_shares(
    mixing_map: MixingMap, *, target: int | None = None, cue: int | Sequence[int] | None = None
) -> pd.DataFrame:
    """Compute the shares of audio, prompt and earlier answer in the generated answer, per layer.

    Parameters
    ----------
    mixing_map : MixingMap
        Of the decoder of an audio language model that was given a clip; raw, normalised or rolled
        out.
    target : int, optional
        Index of a word of the clip: only the rows that write it. By default the mean over all rows
        that write the answer; the one that writes its end is left out.
    cue : int or sequence of int, optional
        Index of a word of the clip, or of several, whose own shares are wanted too.

    Returns
    -------
    DataFrame
        Columns layer, sound, prompt, answer: shares of rows that sum to one. With a cue also
        cue_heard and cue_written: what its sound and its tokens in the answer give, each a part of
        the sound's and the answer's.

    Raises
    ------
    InputError
        If it is another map, or no row writes the target, or nothing is written.

    Examples
    --------
    >>> import numpy as np
    >>> from speechmix import MixingMap, Span
    >>> fed = (Span(0, 6, "les", word=0), Span(6, 7, "?", "token"), Span(7, 8, "oui", "token"))
    >>> written = (fed[0], Span(6, 7, "oui", "token"), Span(7, 8, "</s>", "special"))
    >>> scores = np.array([[[1.0, 0.0, 0.0], [3.0, 1.0, 0.0], [1.0, 1.0, 2.0]]])
    >>> places = {"sound_positions": [0, 6], "answer_position": 7}
    >>> answer_shares(MixingMap(scores, written, fed, "value_zeroing", "decoder", (0,), places), cue=0).to_dict("records")
    [{'layer': 0, 'sound': 0.75, 'prompt': 0.25, 'answer': 0.0, 'cue_heard': 0.75, 'cue_written':
    0.0}]
    """
    provenance = mixing_map.provenance
    if (
        mixing_map.stack != "decoder"
        or not {"sound_positions", "answer_position"} <= provenance.keys()
    ):
        raise InputError(
            "expected the decoder's map of an audio language model that was given a clip, which "
            "knows where sound and answer "
            f"are; found {mixing_map!r}"
        )
    rows = _answer_rows(mixing_map, provenance["answer_position"], target)
    part_names = np.array(
        [
            _find_part(span.start, provenance["sound_positions"], provenance["answer_position"])
            for span in mixing_map.sources
        ]
    )
    shares = mixing_map.mean_heads().normalized().scores[:, rows].mean(axis=1)
    table = {part: shares[:, part_names == part].sum(axis=1) for part in ANSWER_PARTS}
    if cue is not None:
        is_cue = np.array([span.word in cue_words(cue) for span in mixing_map.sources])
        table["cue_heard"] = shares[:, is_cue & (part_names == "sound")].sum(axis=1)
        table["cue_written"] = shares[:, is_cue & (part_names == "answer")].sum(axis=1)
    return pd.DataFrame({"layer": mixing_map.layers, **table})


def _find_part(position: int, sound: tuple[int, int], answer: int) -> str:
    """Return the part of the decoder's input that holds a position."""
    start, stop = sound
    return "sound" if start <= position < stop else "answer" if position >= answer else "prompt"


def _answer_rows(mixing_map: MixingMap, answer: int, target: int | None) -> list[int]:
    """List the rows that predict the answer, or one word of it."""
    rows = [
        row
        for row, span in enumerate(mixing_map.targets)
        if span.start >= answer - 1 and span.kind != "special" and target in (None, span.word)
    ]
    if not rows:
        description = "the answer" if target is None else f"word {target}"
        raise InputError(
            f"no row of {mixing_map!r} writes {description}: its answer is "
            f"{mixing_map.provenance.get('answer')!r}"
        )
    return rows
