"""Probabilities from what was read of a word: that it was made up, and that it is right.

Two logistic regressions on standardised features (`FEATURES`), fitted on words whose truth is known
(`fit_calibration`) and stored as a small JSON file. What a model does not have is replaced by the mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...errors import InputError
from ...files.json_files import Json, JsonObject, read_checked_json, write_checked_json
from .grounded_words import FEATURES

if TYPE_CHECKING:
    from ...adapters.model import Model

_FORMAT = "speechmix word calibration 1"
_DEFAULTS = Path(__file__).parent / "calibrations"
_MOST_DEVIATIONS = 3.0
TARGETS = ("made_up", "right")


@dataclass(frozen=True)
class LogisticModel:
    """A logistic regression on standardised features.

    Parameters
    ----------
    mean, scale, weights : tuple of float
        One for each of `FEATURES`.
    intercept : float
    """

    mean: tuple[float, ...]
    scale: tuple[float, ...]
    weights: tuple[float, ...]
    intercept: float

    @classmethod
    def from_json(cls, content: Mapping[str, Json]) -> LogisticModel:
        """Read what `vars` and JSON made of one."""
        mean, scale, weights = (tuple(content[name]) for name in ("mean", "scale", "weights"))
        return cls(mean, scale, weights, float(content["intercept"]))

    def probabilities(self, features: np.ndarray) -> np.ndarray:
        """Return probabilities [W] for features [W, F]; NaN counts as the mean."""
        standard = standardize(features, np.array(self.mean), np.array(self.scale))
        logits = standard @ np.array(self.weights) + self.intercept
        result: np.ndarray = 1 / (1 + np.exp(-np.clip(logits, -50, 50)))
        return result


def standardize(features: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return features [W, F] as multiples of `scale` from the mean, cut to -3 to 3; NaN counts as the mean.

    A fitted line says nothing about words far from those that it was fitted on.
    """
    deviations: np.ndarray = np.nan_to_num((features - mean) / scale, nan=0.0)
    return deviations.clip(-_MOST_DEVIATIONS, _MOST_DEVIATIONS)


@dataclass(frozen=True)
class WordCalibration:
    """What turns readings of words into probabilities.

    Parameters
    ----------
    made_up, right : LogisticModel
    fitted_on : str
        Model and material, in one sentence.
    quality : mapping
        Measured on folds that were not fitted on: area under the ROC curve, expected calibration error, and the bins
        of the reliability diagram, for both targets.
    is_default : bool
        True for one that comes with the package. It was fitted on other models, so its probabilities
        only order the words of a recording.
    """

    made_up: LogisticModel
    right: LogisticModel
    fitted_on: str
    quality: Mapping[str, Json]
    is_default: bool = False

    def __str__(self) -> str:
        lines = [f"fitted on {self.fitted_on}"]
        for target, label in (("right", "right"), ("made_up", "not in the sound")):
            found = self.quality[target]
            auroc = "not measured" if found["auroc"] is None else f"{found['auroc']:.3f}"
            lines.append(
                f"word {label}: area under the ROC curve {auroc}, calibration error "
                f"{found['calibration_error']:.3f}, on words that were not fitted on"
            )
        return "\n".join(lines)

    def probabilities(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return, for features [W, F], the probabilities [W] of being made up and of being right."""
        return self.made_up.probabilities(features), self.right.probabilities(features)

    def to_json(self) -> JsonObject:
        """Return all of it as JSON holds it."""
        return {
            "format": _FORMAT,
            "features": list(FEATURES),
            "fitted_on": self.fitted_on,
            "quality": dict(self.quality),
            **{target: vars(getattr(self, target)) for target in TARGETS},
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Write a JSON file."""
        write_checked_json(path, self.to_json())

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> WordCalibration:
        """Read a JSON file that `save` wrote.

        Raises
        ------
        InputError
            If it is something else, or for other features than this version has.
        """
        return cls.from_json(read_checked_json(path), where=str(path))

    @classmethod
    def from_json(
        cls, content: Mapping[str, Json], *, where: str = "calibration"
    ) -> WordCalibration:
        """Read what `to_json` returned; errors as for `from_file`."""
        if content.get("format") != _FORMAT or content.get("features") != list(FEATURES):
            raise InputError(
                f"{where}: no calibration of words for this version of speechmix: make it again with "
                "`speechmix calibrate`"
            )
        made_up, right = (LogisticModel.from_json(content[target]) for target in TARGETS)
        return cls(made_up, right, content["fitted_on"], content["quality"])


def find_calibration(
    model: Model, calibration: WordCalibration | str | PathLike[str] | None = None
) -> WordCalibration | None:
    """Return a calibration: the given one, or the package's for the kind of model; None if it has none."""
    if isinstance(calibration, WordCalibration):
        return calibration
    if calibration is not None:
        return WordCalibration.from_file(calibration)
    path = _DEFAULTS / f"{model.capabilities.decoding.replace(' ', '_').replace('-', '_')}.json"
    return replace(WordCalibration.from_file(path), is_default=True) if path.exists() else None
