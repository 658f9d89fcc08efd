"""The attribution of written words to their sources by one measure, with its unit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .frame_attributions import FrameParts

LOG_PROBABILITY, LOGIT, SHARE, SIZE = "log-probability", "logit", "share", "size"


@dataclass(frozen=True, eq=False)
class Attribution:
    """How much each source contributes to each explained word, by one measure.

    Parameters
    ----------
    measure : str
    values : ndarray [C, S]
        NaN where a source comes after the explained word, or the measure does not reach it.
    of : {"log-probability", "logit", "share", "size"}
        What the values are parts of. Shares and sizes have no sign.
    totals : ndarray [C] or None
        Sum of the values and `rest`; None for a measure that does not add up.
    errors : ndarray [C, S] or None
        Standard errors of sampled values.
    by_frame : FrameParts or None
        Attributions of the frames of the recording, if requested.
    """

    measure: str
    values: np.ndarray
    of: str
    totals: np.ndarray | None = None
    errors: np.ndarray | None = None
    by_frame: FrameParts | None = None

    @property
    def unit(self) -> str:
        """Unit of the values: nats for a log-probability, else what they are parts of."""
        return "nats" if self.of == LOG_PROBABILITY else self.of

    @property
    def rest(self) -> np.ndarray | None:
        """Part of the totals that no source has [C]: biases, feed-forwards, silence, the prefix."""
        return None if self.totals is None else self.totals - np.nansum(self.values, axis=1)
