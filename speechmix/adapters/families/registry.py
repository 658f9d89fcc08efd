"""Model families by `model_type`. A user adds one with `register`, without editing the library."""

from __future__ import annotations

from ...errors import ModelError
from . import (
    audio_language,
    conformers,
    layer_norm_decoders,
    seq2seq,
    spectrograms,
    speech_seq2seq,
    text_decoders,
    text_encoders,
    wav2vec2,
    whisper,
)
from .family import Family

_FAMILIES: dict[str, Family] = {}


def register(family: Family) -> None:
    """Make an architecture known.

    Parameters
    ----------
    family : Family
        Its table. A later registration of the same `model_type` replaces the earlier one.

    Examples
    --------
    An encoder built like wav2vec2, with other names for its parts:

    >>> from dataclasses import replace
    >>> from speechmix.adapters import AttentionSpec, StackSpec, family_of_type
    >>> spec = StackSpec(
    ...     name="encoder", layers="blocks", blocks=(AttentionSpec.of("mixer", value="v", key="k", output="o"),),
    ...     norm_order="pre", final_norm="norm",
    ... )
    >>> register(replace(family_of_type("wav2vec2"), name="mine", model_types=("mine",), stacks=lambda config: (spec,)))
    """
    for model_type in family.model_types:
        _FAMILIES[model_type] = family


def families() -> list[Family]:
    """Return the known families, each once."""
    return list(dict.fromkeys(_FAMILIES.values()))


def family_of_type(model_type: str | None) -> Family:
    """Return the family of a ``config.model_type``.

    Raises
    ------
    ModelError
        If there is none; it names those there are and how to register one.
    """
    if model_type not in _FAMILIES:
        supported = ", ".join(sorted(_FAMILIES))
        raise ModelError(
            f"no family for model type {model_type!r}. Supported: {supported}. "
            "To add an architecture, describe where its layers are and call "
            "speechmix.register(Family(...)); see its docstring"
        )
    return _FAMILIES[model_type]


for _family_table in (
    wav2vec2,
    conformers,
    whisper,
    speech_seq2seq,
    spectrograms,
    text_encoders,
    text_decoders,
    layer_norm_decoders,
    seq2seq,
    audio_language,
):
    for _family in _family_table.FAMILIES:
        register(_family)
