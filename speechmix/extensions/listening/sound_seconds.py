"""Which seconds of the sound an answer needs, and whether cheap attributions agree.

In: a question. Out: a table with a row for each stretch of the sound: what the right answer loses when it is muted, and
the attribution of its features by gradient x input, which costs one run and one backward pass.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch

from ...errors import InputError
from ...inputs.clips.clip import SEGMENTS
from ...interventions.removals import mute
from .questions import OWN, Question, replace_samples

if TYPE_CHECKING:
    from torch import Tensor

    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip
    from .items import ListeningItem

_FILLS = ("zeros", "noise")
_SHORTEST = 0.02  # seconds
_FEATURE_STEP = 0.01  # seconds; extractors that stack frames have a multiple


def check_seconds(seconds: float | None) -> None:
    """Raise `InputError` if stretches are too short; without any it does nothing."""
    if seconds is not None and not seconds >= _SHORTEST:
        raise InputError(
            f"stretches should be at least {_SHORTEST} s long, found seconds={seconds}"
        )


def sound_seconds(model: Model, item: ListeningItem, *, seconds: float = 0.5) -> pd.DataFrame:
    """Mute the sound stretch by stretch, and read the log-odds of the right answer.

    Parameters
    ----------
    model : Model
    item : ListeningItem
    seconds : float
        Length of a stretch; the last may be shorter.

    Returns
    -------
    DataFrame
        item, start, end (seconds); effect (nats: mean loss with zeros and with noise of the stretch's spectrum), effect
        (zeros), effect (noise); gradient (nats: sum of gradient x input over the features of the stretch; NaN without
        equal steps, and for a model that lets no gradient through); agreement (Spearman correlation of effect and
        gradient; NaN for fewer than three stretches).

    Raises
    ------
    InputError
        If a stretch is too short.

    Examples
    --------
    >>> sound_seconds(model, item, seconds=0.3)[["start", "effect"]]                      # doctest: +SKIP
    """
    rate, audio = model.sample_rate, item.clip.audio(model.sample_rate)
    check_seconds(seconds)
    duration = len(audio) / rate
    edges = [*np.arange(0, duration - 0.01, seconds).tolist(), duration]
    stretches = list(pairwise(edges))
    question = Question(model, item)
    divided = replace_samples(item.clip, audio, rate).with_words(
        [(f"{start:.2f} s", start, end) for start, end in stretches], alignment=SEGMENTS
    )

    def odds(sound: Clip) -> float:
        log_probs = question.log_probabilities(question.inputs_of_clip(sound))
        return float(question.reading.log_odds(log_probs)[0])

    intact = odds(item.clip)
    losses = {
        fill: [
            intact - odds(mute(divided, index, fill=fill).replace(words=None))
            for index in range(len(stretches))
        ]
        for fill in _FILLS
    }
    table = pd.DataFrame({"item": item.name, "start": edges[:-1], "end": edges[1:]})
    table["effect"] = np.mean(list(losses.values()), axis=0)
    for fill in _FILLS:
        table[f"effect ({fill})"] = losses[fill]
    table["gradient"] = _gradient_attributions(question, edges)
    table["agreement"] = np.nan
    if table[["effect", "gradient"]].nunique().min() > 1:
        table["agreement"] = table["effect"].corr(table["gradient"], "spearman", min_periods=3)
    return table


def _gradient_attributions(question: Question, edges: list[float]) -> np.ndarray:
    """Sum gradient x input of the log-odds over the features of each stretch [stretches]; NaN without such features."""
    model, inputs = question.model, question.inputs(OWN)
    [context, *others] = question.reading.contexts
    name = next(name for name, value in inputs.items() if value.is_floating_point())
    missing = np.full(len(edges) - 1, np.nan)
    if others or inputs[name].ndim not in (2, 3):
        return missing
    fed = question.with_answer(inputs, context)
    with model.in_use(model.state_dtype), torch.enable_grad():
        features = fed[name].detach().clone().requires_grad_(True)
        output = model.run_with_head({**fed, name: features})
        odds = question.reading.log_odds([question.read_rows(output, inputs, context)])
        if not odds.requires_grad:  # the model runs its encoder without gradients
            return missing
        [gradient] = torch.autograd.grad(odds.sum(), features)
    scores: Tensor = (gradient * features).detach().double().cpu()
    if scores.ndim == 2 or scores.shape[1] == 1:
        by_step, step = scores.flatten(), 1 / model.sample_rate
    else:
        time_axis, step = _feature_steps(question, name, tuple(scores.shape))
        by_step = scores.sum(dim=3 - time_axis)[0]
    bounds = [round(edge / step) for edge in edges]
    return np.array([float(by_step[a:b].sum()) for a, b in pairwise(bounds)])


def _feature_steps(question: Question, name: str, shape: tuple[int, ...]) -> tuple[int, float]:
    """Return the axis of features [1, ., .] that is time, and its step in seconds.

    Half of the clip has half of the steps; where it has as many, all clips are padded to one length.
    """
    model, clip = question.model, question.item.clip
    audio = clip.audio(model.sample_rate)
    half = replace_samples(clip, audio[: len(audio) // 2], model.sample_rate)
    fewer = [n - m for n, m in zip(shape, question.inputs_of_clip(half)[name].shape, strict=True)]
    if not any(fewer[1:]):
        axis = 2 if shape[1] < shape[2] else 1
        padded = getattr(model.feature_extractor, "n_samples", None)
        return axis, padded / model.sample_rate / shape[axis] if padded else _FEATURE_STEP
    axis = 1 if fewer[1] else 2
    removed = (len(audio) - len(audio) // 2) / model.sample_rate
    return axis, max(1, round(removed / fewer[axis] / _FEATURE_STEP)) * _FEATURE_STEP
