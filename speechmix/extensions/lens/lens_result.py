"""Result of a lens (margins, ranks and texts of each layer, the layer that decides), and the maps of a
tuned lens."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ...errors import InputError
from ...files.cache_keys import digest
from ...files.whole_files import whole_file
from ...inputs.words.transcript_accuracy import character_error_rate


class LensChoice(NamedTuple):
    """A word (its index, if it has one) against "foil" (with its spelling), "runner_up" or "absence"."""

    word: int | None
    label: str
    against: str
    foil: str = ""


@dataclass(frozen=True, eq=False)
class LensResult:
    """What each layer of a stack says about an item; C choices, L layers behind the input of the first.

    Parameters
    ----------
    clip : str
        Name of the clip or sentence.
    kind, stack : str
        The lens, and the stack that ends earlier.
    choices : tuple of LensChoice [C]
        The target against its foil first, if there is one; then each word.
    margins, log_probabilities, ranks : ndarray [L + 1, C]
        In nats. The log-probability of a CTC model is that of the whole text. Rank 1 is the
        likeliest token; NaN of a CTC model.
    texts : tuple of str [L + 1]
        What the model would have written. In a decoder: the likeliest token at each position, given
        the item's text before it.
    reference : str
        What was said; empty if unknown.
    provenance : mapping
    """

    clip: str
    kind: str
    stack: str
    choices: tuple[LensChoice, ...]
    margins: np.ndarray
    log_probabilities: np.ndarray
    ranks: np.ndarray
    texts: tuple[str, ...]
    reference: str = ""
    provenance: Mapping[str, object] = field(default_factory=dict)

    @property
    def layers(self) -> range:
        """Layers from -1, the input of the first."""
        return range(-1, len(self.texts) - 1)

    @property
    def decided_layers(self) -> np.ndarray:
        """Layer that decides each choice [C]: `decided_layers` of the margins."""
        return decided_layers(self.margins)

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for each layer and choice; of an item without choices a row for each layer.

        ``error_rate`` is the character error rate of the layer's text against what was said,
        ``difference`` against the text of the last layer.
        """
        owner = {name: self.provenance.get(name) for name in ("model", "init", "seed")}
        by_layer = pd.DataFrame({"layer": list(self.layers), "text": self.texts})
        for column, reference in (("error_rate", self.reference), ("difference", self.texts[-1])):
            rates = [character_error_rate(reference, text) for text in self.texts]
            by_layer[column] = rates if reference else np.nan
        choices = pd.DataFrame(self.choices, columns=LensChoice._fields)
        values = [
            choices.assign(
                layer=layer,
                margin=self.margins[row],
                log_probability=self.log_probabilities[row],
                rank=self.ranks[row],
                decided_layer=self.decided_layers,
            )
            for row, layer in enumerate(self.layers)
        ]
        table = by_layer.merge(pd.concat(values), on="layer", how="left").astype({"word": "Int64"})
        columns = {"clip": self.clip, **owner, "kind": self.kind, "stack": self.stack}
        return pd.DataFrame(columns, index=table.index).join(table)

    def __repr__(self) -> str:
        sizes = f"{len(self.texts) - 1} layers, {len(self.choices)} choices"
        return f"LensResult({self.clip!r}: {self.kind} lens of the {self.stack}, {sizes})"


def decided_layers(margins: np.ndarray, *, share: float = 0.5) -> np.ndarray:
    """Return the first layer from which on a margin keeps its last sign and half of its last size.

    The sign alone would not do: a layer without evidence may prefer the same spelling. Half of the last
    margin is more than any constant preference that the evidence for the other spelling can overturn.

    Parameters
    ----------
    margins : ndarray [L + 1, C]
        Row 0 is the input of the first layer.
    share : float
        Of the last margin.

    Returns
    -------
    ndarray [C]
        -1 for the input of the first layer; NaN where the last margin is 0 or unknown.

    Examples
    --------
    >>> decided_layers(np.array([[0.1], [0.2], [4.0], [5.0], [5.0]]))
    array([1.])
    """
    last = margins[-1:]
    agrees = margins * np.sign(last) >= share * np.abs(last)
    stays = np.logical_and.accumulate(agrees[::-1], axis=0)[::-1]
    has_sign = np.isfinite(last[0]) & (last[0] != 0)
    return np.where(has_sign, stays.argmax(axis=0) - 1.0, np.nan)


class TunedLens(NamedTuple):
    """Affine maps of a stack's states, as ``recipes/fit_tuned_lens.py`` fits them.

    Parameters
    ----------
    stack : str
    weights : str
        Fingerprint of the model.
    maps : ndarray [L, D + 1, D]
        Of the input of the first layer and all layers but the last; the last row is the bias.
    """

    stack: str
    weights: str
    maps: np.ndarray

    def transform(self, layer: int) -> Callable[[Tensor], Tensor] | None:
        """Return the map of a layer's states [..., D]; None for the last layer."""
        if layer + 1 >= len(self.maps):
            return None
        weights = torch.as_tensor(self.maps[layer + 1])
        return lambda states: states @ weights[:-1].to(states) + weights[-1].to(states)

    def save(self, path: str | Path) -> Path:
        """Write the maps (.npz), for example into the folder of a run."""
        with whole_file(Path(path)) as unfinished, unfinished.open("wb") as file:
            np.savez(file, **self._asdict(), checksum=np.array(self._checksum))
        return Path(path)

    @property
    def _checksum(self) -> str:
        content = hashlib.blake2b(np.ascontiguousarray(self.maps).tobytes()).hexdigest()
        return digest([self.stack, self.weights, self.maps.shape, content])

    @classmethod
    def load(cls, path: str | Path) -> TunedLens:
        """Read what `save` wrote.

        Raises
        ------
        InputError
            If the file is none of these, or is damaged.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                tuned = cls(str(file["stack"]), str(file["weights"]), file["maps"])
                checksum = str(file["checksum"]) if "checksum" in file else tuned._checksum
        except Exception as error:  # of numpy, zipfile and zlib, by where a file is damaged
            raise InputError(
                f"{path} is no tuned lens, or a damaged one ({type(error).__name__}: {str(error)[:200]}): "
                "fit it again (recipes/fit_tuned_lens.py)"
            ) from error
        if checksum != tuned._checksum:
            raise InputError(
                f"{path} is damaged: its maps are not those that were written. Fit it again"
            )
        return tuned
