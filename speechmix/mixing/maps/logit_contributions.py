"""Contributions of sources and layers that sum to a logit or logit difference.

In: what a measure of the output (`speechmix.logit_contributions`) computed. Out: labelled arrays,
sums, a tidy table. What belongs to no source (feed-forwards, biases, the state that the position
starts from) stands beside the sources under its own name.
Signed: above zero speaks for the token, below zero against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NotRequired, TypedDict

import numpy as np
import pandas as pd

from ...errors import InputError
from ...files.json_files import Json
from ...inputs.words.spans import Span

# Parts that are no source's: one number a layer, and one in all.
LAYER_PARTS = ("mlp", "attention_bias", "outside")
SINGLE_PARTS = ("embedding", "final_norm_bias", "head_bias")

COLUMNS = ("part", "side", "layer", "source", "label", "contribution")

CONSERVATION = ("stack", "layer", "leaving", "entering", "heard", "bias", "softmax", "error")


class LogitTerms(TypedDict):
    """What a measure computes for one objective: see `LogitContributions` for its fields."""

    scores: dict[str, np.ndarray]
    direct: dict[str, np.ndarray]
    layer_parts: dict[str, np.ndarray]
    single_parts: dict[str, float]
    logit: float
    passed: NotRequired[dict[str, np.ndarray]]


@dataclass(frozen=True, eq=False)
class LogitContributions:
    """Contributions to one logit, or to a token's logit less its foil's.

    Parameters
    ----------
    measure : str
    logit : float
        What the model gave: the token's logit, or the difference.
    scores : dict of side to ndarray [L, S]
        By layer of the stack that writes and by input: "encoder" (words, frames or tokens that the
        encoder is given), "decoder" (tokens that the decoder is fed). One row where a measure goes
        through all layers at once (DecompX).
    direct : dict of stack to ndarray [L, S]
        The same by what attention reads: the state of the source in that layer ("decoder" and
        "encoder": self-attention, "cross": the encoder's output), before it is traced back to
        inputs.
    layer_parts : dict of str to ndarray [L]
        "mlp" (feed-forwards and whatever else a layer adds), "attention_bias", "outside" (positions
        in no source); DecompX shares the first two among the sources.
    single_parts : dict of str to float
        "embedding" (the state that enters the first layer at the position itself),
        "final_norm_bias", "head_bias".
    sources : dict of side to tuple of Span
    objective : dict
        Kind ("logit", "contrast"), position, token, label, foil, foil_label; of a classifier row
        and label_id.
    provenance : dict
    passed : dict of str to ndarray [L]
        Of LRP: relevance of all states together that enter each layer, by stack; "cross": what each
        layer's cross-attention hands to the encoder's output. See `conservation`.

    Examples
    --------
    >>> parts = LogitContributions("alti_logit", 3.0, {"decoder": np.array([[1.0, 0.5]])}, {}, {"mlp": np.array([2.0])},
    ...     {"embedding": -0.5}, {"decoder": (Span(0, 1, "a"), Span(1, 2, "b"))}, {"label": "c", "position": 1})
    >>> parts.total("decoder"), parts.total("decoder", embedding=True), parts.error
    (array([1. , 0.5]), array([1., 0.]), 0.0)
    """

    measure: str
    logit: float
    scores: Mapping[str, np.ndarray]
    direct: Mapping[str, np.ndarray]
    layer_parts: Mapping[str, np.ndarray]
    single_parts: Mapping[str, float]
    sources: Mapping[str, tuple[Span, ...]]
    objective: Mapping[str, Json]
    provenance: Mapping[str, Json] = field(default_factory=dict)
    passed: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def sides(self) -> list[str]:
        """Where sources are: "encoder", "decoder" or both."""
        return list(self.scores)

    @property
    def position(self) -> int | None:
        """Position whose logit it is; None for the label of a sound, which is read off a mean of
        several."""
        position: int | None = self.objective.get("position", self.objective.get("row"))
        return position

    def labels(self, side: str) -> list[str]:
        """Labels of the columns of ``scores[side]``."""
        return [span.label for span in self.sources[self._check_side(side)]]

    def total(self, side: str, *, embedding: bool = False) -> np.ndarray:
        """Contributions [S] of each source over all layers.

        Parameters
        ----------
        side : {"encoder", "decoder"}
        embedding : bool
            Count the state that the position starts from to the source that holds the position
            (equation 7 of the paper).
        """
        total: np.ndarray = self.scores[self._check_side(side)].sum(axis=0)
        if embedding and side == self.sides[-1]:
            for index, span in enumerate(self.sources[side]):
                if self.position in span.positions:
                    total[index] += self.single_parts.get("embedding", 0.0)
        return total

    @property
    def error(self) -> float:
        """The logit less the sum of all parts: rounding."""
        return self.logit - self._term_sum

    @property
    def length(self) -> float:
        """Sum of the absolute values of all parts."""
        arrays = (*self.scores.values(), *self.layer_parts.values())
        return sum(float(abs(array).sum()) for array in arrays) + sum(
            map(abs, self.single_parts.values())
        )

    @property
    def _term_sum(self) -> float:
        arrays = (*self.scores.values(), *self.layer_parts.values())
        return sum(float(array.sum()) for array in arrays) + sum(self.single_parts.values())

    def conservation(self) -> pd.DataFrame:
        """What becomes of relevance in each layer (LRP): `CONSERVATION`, a row a layer, from the
        output down.

        Returns
        -------
        DataFrame
            leaving (of the states behind the layer, or of what reads them) = entering + heard
            (handed to the encoder's output by cross-attention) + bias + softmax (kept by them) +
            error (rounding).

        Raises
        ------
        InputError
            If the measure does not pass relevance from layer to layer.
        """
        if not self.passed:
            raise InputError(
                f"{self.measure} passes no relevance from layer to layer: conservation is of "
                "measure='lrp'"
            )
        cross_relevance = self.passed.get("cross")
        rows: list[tuple[object, ...]] = []
        for stack in reversed([name for name in self.passed if name != "cross"]):
            is_output_stack = stack == self.sides[-1]
            leaving = (
                self.logit - self.single_parts["final_norm_bias"] - self.single_parts["head_bias"]
            )
            if not is_output_stack and cross_relevance is not None:
                leaving = float(cross_relevance.sum()) - self.single_parts["encoder_norm_bias"]
            entering = self.passed[stack]
            for layer in range(len(entering) - 1, -1, -1):
                kept_relevance = [
                    float(self.layer_parts[f"{stack}_{kind}"][layer])
                    for kind in ("bias", "softmax")
                ]
                to_encoder = (
                    float(cross_relevance[layer])
                    if is_output_stack and cross_relevance is not None
                    else 0.0
                )
                error = leaving - entering[layer] - to_encoder - sum(kept_relevance)
                rows.append(
                    (
                        stack,
                        layer,
                        leaving,
                        float(entering[layer]),
                        to_encoder,
                        *kept_relevance,
                        float(error),
                    )
                )
                leaving = float(entering[layer])
        return pd.DataFrame(rows, columns=list(CONSERVATION))

    def to_dataframe(self) -> pd.DataFrame:
        """Every part in a row of its own, `COLUMNS`; their sum is the logit."""
        rows: list[tuple[object, ...]] = []
        for side, scores in self.scores.items():
            labels = self.labels(side)
            for (layer, source), value in np.ndenumerate(scores):
                rows.append(("source", side, layer, source, labels[source], float(value)))
        for part, values in self.layer_parts.items():
            rows += [
                (part, pd.NA, layer, pd.NA, part, float(value))
                for layer, value in enumerate(values)
            ]
        rows += [
            (part, pd.NA, pd.NA, pd.NA, part, value) for part, value in self.single_parts.items()
        ]
        table = pd.DataFrame(rows, columns=list(COLUMNS))
        return table.astype({"layer": "Int64", "source": "Int64"})

    def _check_side(self, side: str) -> str:
        if side not in self.scores:
            raise InputError(f"no sources in {side!r}; these contributions have {self.sides}")
        return side

    def __repr__(self) -> str:
        foil = self.objective.get("foil_label")
        objective_text = f"{self.objective['label']!r}" + (
            f" less {foil!r}" if foil is not None else ""
        )
        shapes = ", ".join(
            f"{side} {array.shape[0]} x {array.shape[1]}" for side, array in self.scores.items()
        )
        source_sum = sum(float(array.sum()) for array in self.scores.values())
        position_text = "" if self.position is None else f" at position {self.position}"
        return (
            f"LogitContributions({self.measure} of {objective_text}{position_text}: {shapes}; logit "
            f"{self.logit:.2f}, "
            f"of sources {source_sum:.2f})"
        )
