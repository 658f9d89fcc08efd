"""Shares of a map between phones, by where they come from.

In: a map between the phones of a clip, and the clip. Out: a table with a row for each layer and
phone. With S the map, rows summing to one, the shares of phone i are

    self         S[i, i]
    previous     S[i, i - 1], also if that phone is in another word
    next         S[i, i + 1], likewise
    same_word    the other phones of its word
    other_words  all others

They add up to one. The first phone of a clip has no previous one: its share is 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ...errors import InputError
from ...evaluation.statistics.random_twin_comparison import STRENGTH
from ...inputs.clips.clip import Clip
from ...inputs.words.timed_words import Word
from ...inputs.words.unit_tiers import PHONE, unit_owners
from ...mixing.maps.mixing_map import MixingMap

POSITIONS = ("initial", "medial", "final", "single", "")  # in a word; "" outside words
SOURCES = ("self", "previous", "next", "same_word", "other_words")


def phone_shares(mixing_map: MixingMap, clip: Clip) -> pd.DataFrame:
    """Sum the shares of a map between phones by where they come from.

    Parameters
    ----------
    mixing_map : MixingMap
        Of an encoder, ``units="phone"``.
    clip : Clip
        The same clip, with words.

    Returns
    -------
    DataFrame
        A row for each layer and phone: layer, index, phone, start, seconds, word (index), position
        ("initial", "medial", "final", "single" in its word, "" outside words), role ("target",
        "cue" or ""), mixing_strength, and a column for each of `SOURCES`, which add up to one.

    Raises
    ------
    InputError
        If the map's targets and sources are not the same phones, or the clip has no words.

    Examples
    --------
    >>> from speechmix import Span
    >>> units = [Span(i, i + 1, phone, onset=i / 10, offset=(i + 1) / 10) for i, phone in enumerate("lama")]
    >>> mixing_map = MixingMap(np.ones((1, 4, 4)), tuple(units), tuple(units), "attention", "encoder", (0,))
    >>> clip = Clip.from_array(np.zeros(6400), 16_000, words=[("la", 0, 0.2), ("ma", 0.2, 0.4)])
    >>> phone_shares(mixing_map, clip)[["phone", "position", "previous", "same_word", "other_words"]].to_dict("records")[1]
    {'phone': 'a', 'position': 'final', 'previous': 0.25, 'same_word': 0.0, 'other_words': 0.25}
    """
    phones_map = mixing_map.without("silence", "padding").mean_heads().normalized()
    spans = phones_map.targets
    if spans != phones_map.sources or any(span.onset is None for span in spans):
        raise InputError(f"expected a map between the phones of a clip, found {mixing_map!r}")
    if not clip.spoken_words:
        raise InputError(f"clip {clip.name!r} has phones, but no words: give words= or align it")
    phones = [Word(span.label, span.onset or 0.0, span.offset or 0.0) for span in spans]
    owners = unit_owners(phones, clip.spoken_words)
    shares = _sum_sources(phones_map.scores, owners)
    strength = phones_map.mixing_strength
    strength = np.full(shares.shape[:2], np.nan) if strength is None else strength
    columns = {
        "index": range(len(phones)),
        "phone": [phone.text for phone in phones],
        "start": [phone.start for phone in phones],
        "seconds": [phone.seconds for phone in phones],
        "word": owners,
        "position": _word_positions(owners),
        "role": _list_roles(clip, owners),
    }
    layers = phones_map.layers
    table = pd.DataFrame({name: [*values] * len(layers) for name, values in columns.items()})
    table.insert(0, "layer", np.repeat(layers, len(phones)))
    table["word"] = table["word"].astype("Int64")
    table[STRENGTH] = strength.ravel()
    table[list(SOURCES)] = shares.reshape(-1, len(SOURCES))
    return table


def _sum_sources(scores: np.ndarray, owners: Sequence[int | None]) -> np.ndarray:
    """Sum scores [L, P, P] to [L, P, sources]; each source phone counts in one of them."""
    offsets = np.arange(len(owners)) - np.arange(len(owners))[:, None]
    words = np.array([-1 - index if owner is None else owner for index, owner in enumerate(owners)])
    kind = np.where(
        words == words[:, None], SOURCES.index("same_word"), SOURCES.index("other_words")
    )
    for name, offset in (("self", 0), ("previous", -1), ("next", 1)):
        kind[offsets == offset] = SOURCES.index(name)
    sums = [np.where(kind == index, scores, 0).sum(axis=-1) for index in range(len(SOURCES))]
    return np.stack(sums, axis=-1)


def _word_positions(owners: Sequence[int | None]) -> list[str]:
    """Return where in its word each phone is, one of `POSITIONS`."""
    positions = []
    for index, owner in enumerate(owners):
        is_first, is_last = owner not in owners[:index], owner not in owners[index + 1 :]
        name = "single" if is_first and is_last else "initial" if is_first else "medial"
        positions.append("" if owner is None else "final" if is_last and not is_first else name)
    return positions


def _list_roles(clip: Clip, owners: Sequence[int | None]) -> list[str]:
    """Return "target" or "cue" for each phone that is it, or part of that word; else ""."""
    roles = [""] * len(owners)
    for role, words in (("cue", clip.cue_words), ("target", (clip.target,))):
        unit_role = clip.unit_roles.get(role)
        phones = unit_role.indices if unit_role is not None and unit_role.unit == PHONE else ()
        for index, owner in enumerate(owners):
            if index in phones or (owner is not None and owner in words):
                roles[index] = role
    return roles
