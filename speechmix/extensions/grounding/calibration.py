"""Word confidence: how often a word of some log-probability is right, for one model.

A logistic regression on the word's mean log-probability over its tokens (Platt 1999), fitted on clips whose text is known
(`calibrate`) and stored as a small JSON file. It holds for the model that it was fitted on, and for no other.

Draw a reliability diagram: how often words with some probability of being right are right.

In: a `WordCalibration`. Out: an Axes. After DeGroot & Fienberg 1983; the area of a dot says how many words it holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np

from ...errors import InputError
from ...files.json_files import (
    NUMBER,
    TEXT,
    FieldTypes,
    Json,
    JsonObject,
    check_fields,
    check_value,
    read_checked_json,
    write_checked_json,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ...adapters.model import Model

_FORMAT = "speechmix word confidence 1"
_FIELDS: FieldTypes = {
    "intercept": NUMBER,
    "slope": NUMBER,
    "model": TEXT,
    "fitted_on": TEXT,
    "quality": (dict,),
}
_QUALITY: FieldTypes = {
    **dict.fromkeys(("auroc", "auroc_low", "auroc_high", "calibration_error"), NUMBER),
    **dict.fromkeys(("clips", "groups", "words", "wrong"), (int,)),
    "held_out": TEXT,
    "bins": (list,),
}


@dataclass(frozen=True)
class WordCalibration:
    """What turns a word's log-probability into the probability that it is right.

    Parameters
    ----------
    intercept, slope : float
        Of the logistic regression on the mean log-probability, in nats for each token.
    model : str
        Fingerprint of the model's weights.
    fitted_on : str
        Model and material, in one sentence.
    quality : mapping
        Measured on folds that were not fitted on: "auroc" and its interval "auroc_low", "auroc_high" over groups,
        "calibration_error", the "bins" of the reliability diagram, and the numbers of "clips", "groups", "words" and
        "wrong" words.
    """

    intercept: float
    slope: float
    model: str
    fitted_on: str
    quality: Mapping[str, Json]

    def __str__(self) -> str:
        quality = self.quality
        lines = [
            f"fitted on {self.fitted_on}",
            f"word right: area under the ROC curve {quality['auroc']:.3f} ({quality['auroc_low']:.3f} to "
            f"{quality['auroc_high']:.3f}), calibration error {quality['calibration_error']:.3f}, on held-out "
            f"{quality['held_out']}; {quality['wrong']} of {quality['words']} words are wrong",
        ]
        if quality["auroc_low"] <= 0.5:
            lines.append(
                "The interval includes 0.5: on these clips the probability does not tell right words from wrong ones. "
                "Give more clips before you use it."
            )
        return "\n".join(lines)

    def probabilities(self, log_probabilities: np.ndarray) -> np.ndarray:
        """Return the probabilities [W] of being right for mean log-probabilities [W]."""
        logits = self.intercept + self.slope * log_probabilities
        result: np.ndarray = 1 / (1 + np.exp(-np.clip(logits, -50, 50)))
        return result

    def to_json(self) -> JsonObject:
        """Return all of it as JSON holds it."""
        return {"format": _FORMAT, **asdict(self)}

    def save(self, path: str | PathLike[str]) -> None:
        """Write a JSON file."""
        write_checked_json(path, self.to_json())

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> WordCalibration:
        """Read a JSON file that `save` wrote.

        Raises
        ------
        InputError
            If it is something else.
        """
        return cls.from_json(read_checked_json(path), where=str(path))

    @classmethod
    def from_json(
        cls, content: Mapping[str, Json], *, where: str = "calibration"
    ) -> WordCalibration:
        """Read what `to_json` returned; errors as for `from_file`."""
        if content.get("format") != _FORMAT:
            raise InputError(
                f"{where}: no calibration of words for this version of speechmix: make it again with "
                "`speechmix calibrate`"
            )
        fields = {name: value for name, value in content.items() if name != "format"}
        try:
            _check_calibration(fields)
        except InputError as error:
            raise InputError(
                f"{where} is no calibration of words ({error}): make it again with `speechmix calibrate`"
            ) from error
        return cls(**fields)


def _check_calibration(fields: JsonObject) -> None:
    """Check types of all fields, and the diagram's bins: probability, share, number of words."""
    check_fields(fields, _FIELDS, "calibration")
    check_fields(fields["quality"], _QUALITY, "quality", allow_others=True)
    for bin_values in fields["quality"]["bins"]:
        if not isinstance(bin_values, list) or len(bin_values) != 3:
            raise InputError("quality, bins: expected lists of three numbers")
        for value in bin_values:
            check_value(value, NUMBER, "quality, bins")


def find_calibration(
    model: Model, calibration: WordCalibration | str | PathLike[str] | None
) -> WordCalibration | None:
    """Return a calibration that was fitted on this model, or None if none is given.

    Raises
    ------
    InputError
        If it was fitted on another model.
    """
    if calibration is None:
        return None
    if not isinstance(calibration, WordCalibration):
        calibration = WordCalibration.from_file(calibration)
    if calibration.model != model.fingerprint:
        raise InputError(
            f"the calibration was fitted on another model ({calibration.fitted_on}): its probabilities do not hold for "
            f"{model.label}. Fit one with `speechmix calibrate`"
        )
    return calibration


_SIZE = 3.2  # inches of a side
_AREA = 400.0  # points squared of a dot that holds all words


def reliability_diagram(calibration: WordCalibration, *, ax: Axes | None = None) -> Axes:
    """Draw predicted probability against the share of words of which it is true, on held-out clips.

    Parameters
    ----------
    calibration : WordCalibration
        From `speechmix.calibrate`.
    ax : Axes, optional
        Default: a new figure of pyplot.

    Returns
    -------
    Axes
        Dots on the diagonal are well calibrated.
    """
    from ...reporting.plots.figure_style import LABEL_SIZE, LINE_COLORS, TICK_SIZE, style_curve_axis

    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.figure(
            figsize=(_SIZE, _SIZE), layout="constrained", facecolor="white"
        ).subplots()
    quality = calibration.quality
    predicted, actual, counts = zip(*quality["bins"], strict=True)
    ax.plot([0, 1], [0, 1], color="0.7", linewidth=0.8)
    ax.plot(predicted, actual, color=LINE_COLORS[5], linewidth=0.8)
    areas = [_AREA * count / sum(counts) + 6 for count in counts]
    ax.scatter(predicted, actual, s=areas, color=LINE_COLORS[5], alpha=0.8, linewidths=0)
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    ax.set_xlabel("predicted probability: word is right", size=LABEL_SIZE)
    ax.set_ylabel("share of words that are right", size=LABEL_SIZE)
    ax.set_title(
        f"{sum(counts)} words, calibration error {quality['calibration_error']:.3f}",
        size=LABEL_SIZE,
    )
    ax.tick_params(labelsize=TICK_SIZE)
    style_curve_axis(ax)
    return ax
