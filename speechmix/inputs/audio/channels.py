"""One channel from several.

In: samples of all channels. Out: their average; or an `InputError` where the channels cancel each
other, as those of a microphone do whose two lines were joined the wrong way round.
"""

from __future__ import annotations

import numpy as np

from ...errors import InputError

# Of channels that have nothing in common, the average has 1/channels of their power. With an eighth of
# that the correlation of two is below -0.87: most of the speech is lost.
_MIN_POWER_SHARE = 1 / 8


def average_channels(samples: np.ndarray, where: str) -> np.ndarray:
    """Average the channels of [samples, channels] to [samples].

    InputError if the channels are in opposite phase, so that little remains of the sound; `where`
    names the audio in it.

    Examples
    --------
    >>> tone = np.sin(np.arange(100))
    >>> average_channels(np.stack([tone, 0 * tone], axis=1), "example").shape
    (100,)
    """
    if samples.shape[1] == 1:
        return samples[:, 0]
    average: np.ndarray = samples.mean(axis=1)
    power = float(samples.var(axis=0, dtype=np.float64).mean())
    if float(average.var(dtype=np.float64)) < power * _MIN_POWER_SHARE / samples.shape[1]:
        raise InputError(
            f"{where}: its {samples.shape[1]} channels cancel each other (they are in opposite phase), so "
            "that their average has next to no sound: keep one of them, for example "
            "`ffmpeg -i in.wav -af pan=mono|c0=c0 out.wav`"
        )
    return average
