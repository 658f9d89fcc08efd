"""Whether and where somebody speaks in a clip, by the voice activity detector of Silero (package silero-vad, MIT).

In: a clip. Out: why there seems to be no speech in it, or None; the stretches with speech.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    if np.ptp(audio) < 1e-4:  # as the aligner by synthesis has it
        return f"{clip.duration:.2f} s of silence"
    highest, windows_in_a_row = 0.0, 0
    for probability in _window_probabilities(audio):
        highest = max(highest, probability)
        windows_in_a_row = windows_in_a_row + 1 if probability >= _LEAST_PROBABILITY else 0
        if windows_in_a_row == _LEAST_WINDOWS:
            return None
    return (
        "a detector of speech (silero-vad) hears none; its highest probability in 32 ms is "
        f"{100 * highest:.0f} %"
    )


def find_speech(clip: Clip) -> list[tuple[float, float]]:
    """Return the stretches of a clip in which somebody speaks, in seconds."""
    audio = np.asarray(clip.audio(SAMPLE_RATE), dtype=np.float32)
    if np.ptp(audio) < 1e-4:
        return []
    is_speech = np.array([p >= _LEAST_PROBABILITY for p in _window_probabilities(audio)])
    edges = np.flatnonzero(np.diff(np.r_[False, is_speech, False].astype(int)))
    stretches = [range_ for range_ in edges.reshape(-1, 2) if np.ptp(range_) >= _LEAST_WINDOWS]
    return [
        (
            float(start) * _WINDOW / SAMPLE_RATE,
            min(float(stop) * _WINDOW / SAMPLE_RATE, clip.duration),
        )
        for start, stop in stretches
    ]


def _window_probabilities(audio: np.ndarray) -> Iterator[float]:
    """Probability of speech in each window of a sound that is not silent."""
    audio = np.pad(audio * (_PEAK / np.abs(audio).max()), (0, -len(audio) % _WINDOW))
    with _LOCK:
        detector = _load_detector()
        detector.reset_states()
        for window in torch.from_numpy(audio).split(_WINDOW):
            with torch.inference_mode():
                probability = float(detector(window, SAMPLE_RATE))
            yield probability


@lru_cache(maxsize=1)
def _load_detector() -> Any:
    # Not imported: that would have torch use one thread from then on.
    package = find_spec("silero_vad")
    if package is None or package.origin is None:
        raise SpeechmixError("the package silero-vad is missing: pip install silero-vad")
    return torch.jit.load(Path(package.origin).parent / "data" / "silero_vad.jit").eval()
