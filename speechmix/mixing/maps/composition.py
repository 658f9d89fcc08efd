"""Combine the maps of encoder, cross-attention and decoder into one.

In: `MixingMap`s. Out: one. Composition rolls relevance through the encoder, then through
cross-attention and self-attention of each decoder layer (Ferrando et al. 2022b, Towards Opening the
Black Box of Neural Machine Translation, EMNLP).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...errors import InputError
from .composition_checks import check_composable, missing_maps_advice
from .measure_registry import find_facts, is_weighted_by_strength, omits_residual
from .numerics import normalize_rows
from .rollout import layer_maps, strength_weights

if TYPE_CHECKING:
    from .mixing_map import MixingMap


def compose(
    *,
    encoder: MixingMap,
    cross: MixingMap,
    decoder: MixingMap,
    share: float | None = None,
    weighted: bool | None = None,
    prefix: bool = True,
) -> MixingMap:
    """Compose three maps into one: from audio words (or source tokens) to the decoder's tokens.

    With E the encoder's map rolled out, S_l and G_l the decoder's self- and cross-attention maps of
    layer l (rows summing to one) and g_l the share of row i that comes through cross-attention,

        X_l = diag(g_l) G_l E + diag(1 - g_l) S_l X_{l-1}        X_0 = 0        (the encoder's units)
        P_l =                   diag(1 - g_l) S_l P_{l-1}        P_0 = I        (the decoder's own input tokens)

    so that each row of [X_l, P_l] sums to one. A unit to which nothing contributes keeps what it
    holds. Weighted by mixing strengths s, with w = s / (1 + s), each layer's map A of encoder and
    decoder is w A + (1 - w) I and g is w of cross-attention: a layer that moves nothing passes on
    what is there, and a decoder that does not hear has no share of E.

    Parameters
    ----------
    encoder, cross, decoder : MixingMap
        Of one clip and model. The encoder's is rolled out here, unless it was before (`rollout`,
        `flow`).
    share : float, optional
        g, the same everywhere. By default that of the measure (ALTI's own, which its raw cross map
        holds); for other measures by mixing strength, or one half without: the residual stream then
        weighs as much as cross-attention, as in rollout with the identity.
    weighted : bool, optional
        Weight layers by their mixing strengths. By default where the maps have them, but for
        measures that hold the size of the residual stream themselves (ALTI, HTA, attention norms
        with the residual).
    prefix : bool
        Keep the decoder's own tokens as sources. False leaves the encoder's units alone, rows
        summing to one over them.

    Returns
    -------
    MixingMap
        Stack "composed", one map per decoder layer.

    Raises
    ------
    InputError
        If the maps do not fit together, or should be weighted and have no mixing strengths.

    Examples
    --------
    >>> from speechmix import MixingMap, Span
    >>> words, tokens = (Span(0, 5, "les"), Span(5, 20, "livres")), (Span(0, 1, "les"), Span(1, 2, "livres"))
    >>> encoder = MixingMap(np.eye(2)[None], words, words, "value_zeroing", "encoder", (0,))
    >>> cross = MixingMap(np.eye(2)[None], tokens, words, "value_zeroing", "cross", (0,))
    >>> decoder = MixingMap(np.array([[[1.0, 0.0], [0.5, 0.5]]]), tokens, tokens, "value_zeroing", "decoder", (0,))
    >>> compose(encoder=encoder, cross=cross, decoder=decoder).scores[0]
    array([[0.5 , 0.  , 0.5 , 0.  ],
           [0.  , 0.5 , 0.25, 0.25]])
    """
    check_composable(encoder, cross, decoder)
    is_rolled_out = any(
        step.startswith(("rollout", "flow")) for step in encoder.provenance.get("steps", [])
    )
    weighted = resolve_weighted(
        weighted, (cross, decoder) if is_rolled_out else (encoder, cross, decoder)
    )
    encoder = encoder if is_rolled_out else roll_out(encoder, weighted=weighted)
    encoder_rollout = fill_empty_rows(normalize_rows(encoder.mean_heads().scores[-1]))
    gates, cross_attention, self_attention, share_name = decoder_steps(
        cross, decoder, share, weighted=weighted
    )
    n_tokens = self_attention.shape[-1]
    encoder_shares, prefix_shares, layers = (
        np.zeros((n_tokens, encoder_rollout.shape[-1])),
        np.eye(n_tokens),
        [],
    )
    for layer, gate in enumerate(gates):
        encoder_shares = gate * (cross_attention[layer] @ encoder_rollout) + (1 - gate) * (
            self_attention[layer] @ encoder_shares
        )
        prefix_shares = (1 - gate) * (self_attention[layer] @ prefix_shares)
        layers.append(
            np.concatenate([encoder_shares, prefix_shares], axis=1)
            if prefix
            else normalize_rows(encoder_shares)
        )
    measures = f"encoder {encoder.measure}, cross {cross.measure}, decoder {decoder.measure}"
    strength_note = (
        ", layers weighted by mixing strength"
        if _strength_weights(decoder, weighted) is not None
        else ""
    )
    name = f"composed ({measures}; share {share_name}{strength_note}, prefix={prefix})"
    steps = [*cross.provenance.get("steps", []), name]
    return replace(
        cross,
        scores=np.stack(layers).astype(cross.scores.dtype),
        targets=decoder.targets,
        sources=(*encoder.sources, *(decoder.sources if prefix else ())),
        stack="composed",
        mixing_strength=None,
        provenance={**cross.provenance, "steps": steps},
    )


def roll_out(mixing_map: MixingMap, *, weighted: bool | None = None) -> MixingMap:
    """Roll one stack out over layers as `compose` does.

    Parameters
    ----------
    weighted : bool, optional
        As for `compose`; False gives `MixingMap.rollout` as it is published.
    """
    return mixing_map.rollout(
        residual=None if _strength_weights(mixing_map, weighted) is None else "strength"
    )


def weighted_layers(mixing_map: MixingMap, weighted: bool | None) -> np.ndarray:
    """Matrices [L, W, W] that `roll_out` multiplies; rows sum to one, and rows of zeros are those
    of the identity."""
    scores, weights = mixing_map.mean_heads().scores, _strength_weights(mixing_map, weighted)
    return fill_empty_rows(
        layer_maps(scores, residual=omits_residual(mixing_map.measure), weights=weights)
    )


def resolve_weighted(weighted: bool | None, maps: Iterable[MixingMap]) -> bool | None:
    """Whether maps that go together are weighted by mixing strengths: by default not, if one of
    them has none."""
    return (
        weighted or False
        if any(mixing_map.mixing_strength is None for mixing_map in maps)
        else weighted
    )


def _strength_weights(mixing_map: MixingMap, weighted: bool | None) -> np.ndarray | None:
    """Weight of each row against the residual stream, [L, W_t]; None where there is to be none."""
    if weighted is None:
        weighted = mixing_map.mixing_strength is not None and is_weighted_by_strength(
            mixing_map.measure
        )
    return strength_weights(mixing_map) if weighted else None


def decoder_steps(
    cross: MixingMap,
    decoder: MixingMap,
    share: float | None = None,
    *,
    weighted: bool | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    """Return what a decoder's rows take from where, layer by layer: g [L, U, 1], G [L, U, W] and S
    [L, U, U] of `compose`, and the name of the share in a map's steps."""
    cross_attention = normalize_rows(cross.mean_heads().scores)
    self_attention = weighted_layers(decoder, weighted)
    gates, share_name = _gates(cross, share, weighted)
    return (
        np.where(cross_attention.sum(axis=-1) > 0, gates, 0)[..., None],
        cross_attention,
        self_attention,
        share_name,
    )


def maps_to_compose(
    maps: Mapping[tuple[str, str], MixingMap], measure: str
) -> dict[str, MixingMap]:
    """Return the three maps of a measure that `compose` joins, by stack.

    The InputError of a missing map says which `mix` call makes it.
    """
    stacks = ("encoder", "cross", "decoder")
    missing_stacks = [stack for stack in stacks if (measure, stack) not in maps]
    if missing_stacks:
        raise InputError(
            f"no map of {', '.join(missing_stacks)} for composed({measure!r}), which joins "
            f"{', '.join(stacks)}; there are "
            f"{', '.join(map(repr, maps)) or 'none'}: {missing_maps_advice(measure)}. Only a model with a "
            "decoder behind an "
            f"encoder has all three; of any other take maps[{measure!r}, stack].rollout()"
        )
    return {stack: maps[measure, stack] for stack in stacks}


def encoder_source_count(mixing_map: MixingMap) -> int | None:
    """How many sources of a composed map are the encoder's units; the decoder's own tokens, if it
    has them, come behind."""
    if mixing_map.stack != "composed":
        return None
    steps = mixing_map.provenance.get("steps", [])
    has_prefix = any(
        step.startswith("composed") and step.endswith("prefix=True)") for step in steps
    )
    starts = [span.start for span in mixing_map.sources]
    restarts = [
        i for i in range(1, len(starts)) if starts[i] <= starts[i - 1]
    ]  # where positions begin anew
    return (
        len(starts)
        if not has_prefix
        else restarts[0]
        if restarts
        else len(starts) - len(mixing_map.targets)
    )


def _gates(cross: MixingMap, share: float | None, weighted: bool | None) -> tuple[np.ndarray, str]:
    """Share of each row [L, U] that comes through cross-attention, and how to call it in the map's
    steps."""
    if share is not None:
        if not 0 <= share <= 1:
            raise InputError(f"share should be between 0 and 1, found {share!r}")
        return np.full(cross.scores.shape[:1] + cross.scores.shape[-2:-1], share), f"{share:g}"
    facts = find_facts(cross.measure)
    if facts is None or facts.residual != "share":
        weights = _strength_weights(cross, weighted)
        return _gates(cross, 0.5, False) if weights is None else (weights, "mixing strength")
    if cross.provenance.get("steps"):
        raise InputError(
            f"compose: the share of cross-attention is read off the raw {cross.measure} map, but "
            "this one went through "
            f"{cross.provenance['steps']}: give the raw map, or share="
        )
    return np.minimum(cross.scores.sum(axis=-1), 1), cross.measure


def fill_empty_rows(maps: np.ndarray) -> np.ndarray:
    """Rows of zeros become those of the identity."""
    is_empty = maps.sum(axis=-1, keepdims=True) == 0
    return np.where(is_empty, np.eye(maps.shape[-1], dtype=maps.dtype), maps)
