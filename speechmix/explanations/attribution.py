"""The attribution of written words to their sources by one measure, with its unit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .frame_attributions import FrameParts

LOG_PROBABILITY, LOGIT, SHARE, SIZE = "log-probability", "logit", "share", "size"


@dataclass(frozen=True, eq=False)
class Attribution:
    """What a measure says of the sources.

    Parameters
    ----------
    measure : str
    values : ndarray [C, S]
        NaN where a source stands behind what is explained, or the measure does not reach it.
    of : {"log-probability", "logit", "share", "size"}
        What the values are parts of; a share and a size know no sign.
    totals : ndarray [C] or None
        What values and `rest` add up to, where they do.
    errors : ndarray [C, S] or None
        Standard errors of sampled values.
    by_frame : FrameParts or None
        The same of each frame of the sound, where that was asked for.
    """

    measure: str
    values: np.ndarray
    of: str
    totals: np.ndarray | None = None
    errors: np.ndarray | None = None
    by_frame: FrameParts | None = None

    @property
    def unit(self) -> str:
        """What its numbers are counted in: nats of a log-probability, else what they are parts
        of."""
        return "nats" if self.of == LOG_PROBABILITY else self.of

    @property
    def rest(self) -> np.ndarray | None:
        """What is left for nobody: biases, feed-forwards, silence, the prefix; [C]."""
        return None if self.totals is None else self.totals - np.nansum(self.values, axis=1)
