"""Whether somebody speaks in a clip, by the voice activity detector of Silero (package silero-vad, MIT).

In: a clip. Out: why there seems to be no speech in it, or None.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch

from ...errors import SpeechmixError
from ...inputs.clips.clip import Clip

SAMPLE_RATE = 16_000
_WINDOW = 512  # samples, 32 ms, that the detector takes at a time
_PEAK = 0.5  # soft speech is speech, too
_LEAST_PROBABILITY = 0.5
_LEAST_WINDOWS = 3  # in a row, 96 ms: some tones are taken for speech for one or two
_LOCK = Lock()  # the detector remembers what it heard


def describe_missing_speech(clip: Clip) -> str | None:
    """Why there seems to be no speech in a clip; None if there is some."""
    audio = np.asarray(clip.audio(SAMPLE_RATE), dtype=np.float32)
    peak = float(np.abs(audio).max(initial=0.0))
    if np.ptp(audio) < 1e-4:  # as the aligner by synthesis has it
        return f"{clip.duration:.2f} s of silence"
    audio = np.pad(audio * (_PEAK / peak), (0, -len(audio) % _WINDOW))
    highest, windows_in_a_row = 0.0, 0
    with _LOCK, torch.inference_mode():
        detector = _load_detector()
        detector.reset_states()
        for window in torch.from_numpy(audio).split(_WINDOW):
            probability = float(detector(window, SAMPLE_RATE))
            highest = max(highest, probability)
            windows_in_a_row = windows_in_a_row + 1 if probability >= _LEAST_PROBABILITY else 0
            if windows_in_a_row == _LEAST_WINDOWS:
                return None
    return (
        "a detector of speech (silero-vad) hears none; its highest probability in 32 ms is "
        f"{100 * highest:.0f} %"
    )


@lru_cache(maxsize=1)
def _load_detector() -> Any:
    package = find_spec(
        "silero_vad"
    )  # not imported: that would have torch use one thread from then on
    if package is None or package.origin is None:
        raise SpeechmixError("the package silero-vad is missing: pip install silero-vad")
    return torch.jit.load(Path(package.origin).parent / "data" / "silero_vad.jit").eval()
