"""Find the most likely CTC frame for each label of a text, in order.

In: log-probabilities of labels by frame, and the labels. Out: the frames of each label. torchaudio
finds the path; what the labels belong to (words, letters) is the caller's matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from torch import Generator, Tensor, float64, rand, tensor

from ...errors import AlignmentError, ModelError
from ..loading.torchaudio_version import torchaudio_function

_TIE_NATS = 1e-9


def best_ctc_path(
    log_probs: Tensor, labels: Sequence[int], *, blank: int
) -> tuple[list[list[int]], np.ndarray]:
    """Return the frames of each label on the best path, and the log-probability [T] of every
    frame's label on it.

    `log_probs` [T, V] is float32. An AlignmentError says that there are more labels than frames,
    that a probability is NaN, or that torchaudio is missing.
    """
    try:
        forced_align = torchaudio_function("forced_align", "CTC alignment")
    except ModelError as error:
        raise AlignmentError(f"{error}, or align with method='synthesis' or 'whisper'") from error
    if log_probs.isnan().any():
        raise AlignmentError(
            "expected probabilities of labels, found NaN: this model computes no numbers on this "
            "sound"
        )
    repeat_count = sum(a == b for a, b in pairwise(labels))
    needed_count = len(labels) + repeat_count
    if needed_count > len(log_probs):
        blanks = (
            f" and needs a blank between two that are alike, {repeat_count} times: {needed_count} frames"
            if repeat_count
            else ""
        )
        raise AlignmentError(
            f"the text has {len(labels)} letters{blanks}, but the audio only {len(log_probs)} "
            "frames: is it the right text?"
        )
    # torchaudio 2.11 takes a worse path where two ways to a label are exactly alike.
    tie_breaker = rand(log_probs.shape, dtype=float64, generator=Generator().manual_seed(0))
    frame_labels, _ = forced_align(
        log_probs[None].double() + _TIE_NATS * tie_breaker,
        tensor([list(labels)]).int(),
        blank=blank,
    )
    scores = log_probs.gather(1, frame_labels[0, :, None].long())[:, 0]
    frames: list[list[int]] = [[] for _ in labels]
    position, previous_label = -1, blank
    for frame, label in enumerate(frame_labels[0].tolist()):
        if label != blank:
            position += label != previous_label
            frames[position].append(frame)
        previous_label = label
    return frames, scores.numpy()
