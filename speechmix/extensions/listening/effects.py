"""What an answer loses without its sound and without its prompt, and Shapley values of both.

In: a `Question`. Out: a row for each condition, all of them one run of the model (for each context of the answer):

    sound         the item as it is              no prompt          its own sound, without hint or prompt
    silence       zeros of the same length       nothing            silence, without hint or prompt
    noise         noise with its spectrum
    other sound   the sound of another item

Shapley values of sound, prompt and earlier answer are exact, over all eight sets: a run also shows what the model would
answer without the earlier tokens of the answer, because a decoder looks back alone. With v(S) the log-probability of
the right answer when only S is there, they add up to v(all) - v(nothing).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import InputError
from ..occlusion.shapley import exact_shapley
from .questions import OTHER, OWN, SILENCE, SOUNDS, Question

if TYPE_CHECKING:
    from torch import Tensor

    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip
    from .items import ListeningItem

NO_PROMPT, NOTHING = "no prompt", "nothing"
CONDITIONS = (*SOUNDS, NO_PROMPT, NOTHING)
PLAYERS = ("sound", "prompt", "earlier_answer")


def listening_effects(
    model: Model, item: ListeningItem, donor: Clip | None = None
) -> list[dict[str, Any]]:
    """Measure what a model answers with and without sound and prompt.

    Parameters
    ----------
    model : Model
        An audio language model, or a Whisper.
    item : ListeningItem
    donor : Clip, optional
        Whose sound takes the place of the item's own; without it that condition is left out.

    Returns
    -------
    list of dict
        For each condition: condition, choice (the answer), correct, probability (of the right answer, among the options
        if there are some), log_probability (nats), log_odds (against the other options; of an open answer its
        log-probability), text_probability (of the answer that the text suggests; NaN if there is none), mass
        (probability that the answer begins as one of the options), donor (name of the other item), passes (runs of the
        model for this condition). The condition "sound" also has the Shapley values in nats: shapley_sound,
        shapley_prompt, shapley_earlier_answer; NaN elsewhere, and where the prompt cannot be removed.

    Raises
    ------
    InputError
        If the model takes no prompt, the sound is too long, or the options cannot be told apart.

    Examples
    --------
    >>> rows = listening_effects(model, item, donor)                                      # doctest: +SKIP
    >>> [row["condition"] for row in rows]                                                # doctest: +SKIP
    ['sound', 'silence', 'noise', 'other sound', 'no prompt', 'nothing']
    """
    question = Question(model, item, donor)
    log_probs = run_conditions(question)
    values = _modality_shapley(question, log_probs)
    rows = []
    for name, condition_log_probs in log_probs.items():
        row = _condition_row(question, name, condition_log_probs)
        for player, value in values.items():
            row[f"shapley_{player}"] = value if name == OWN else np.nan
        rows.append(row)
    return rows


def run_conditions(question: Question) -> dict[str, list[Tensor]]:
    """Run the model in each condition that the item allows; log-probabilities behind the prompt by condition."""
    inputs: dict[str, Mapping[str, Tensor] | None] = {}
    for sound in SOUNDS if question.donor is not None else SOUNDS[:-1]:
        try:
            inputs[sound] = question.inputs(sound)
        except InputError:
            if sound != OTHER:  # another recording that cannot be used is no fault of this item
                raise
    for name, sound in ((NO_PROMPT, OWN), (NOTHING, SILENCE)):
        inputs[name] = question.remove_prompt(sound, inputs[sound] or {})
    return {
        name: question.log_probabilities(prepared)
        for name, prepared in inputs.items()
        if prepared is not None
    }


def _modality_shapley(
    question: Question, log_probs: Mapping[str, list[Tensor]]
) -> dict[str, float]:
    """Shapley values of sound, prompt and earlier answer, in nats; NaN where the prompt cannot be removed."""
    if NOTHING not in log_probs:
        return dict.fromkeys(PLAYERS, float("nan"))

    def right_log_probability(sound: bool, prompt: bool, earlier: bool) -> float:
        with_sound, without = (OWN, SILENCE) if prompt else (NO_PROMPT, NOTHING)
        rows = log_probs[with_sound if sound else without]
        by_option = question.reading.log_probabilities(rows, with_earlier=earlier)
        return float(by_option[0, question.reading.right])

    def margins(sets: np.ndarray) -> np.ndarray:
        return np.array([right_log_probability(*present) for present in sets.tolist()])

    return dict(zip(PLAYERS, exact_shapley(len(PLAYERS), margins).tolist(), strict=True))


def _condition_row(question: Question, name: str, log_probs: list[Tensor]) -> dict[str, Any]:
    item, reading = question.item, question.reading
    values = reading.log_probabilities(log_probs)[0]
    by_option = dict(zip(reading.options, values.exp().tolist(), strict=True))
    choice = reading.preferred(question.model, log_probs)
    return {
        "condition": name,
        "choice": choice,
        "correct": choice == item.answer,
        "probability": by_option[item.answer],
        "log_probability": float(values[reading.right]),
        "log_odds": float(reading.log_odds(log_probs)[0]),
        "text_probability": by_option.get(item.text_answer, np.nan),
        "mass": reading.option_mass(log_probs),
        "donor": "" if question.donor is None else question.donor.name,
        "passes": len(reading.contexts),
    }


def count_passes(model: Model, item: ListeningItem, *, has_donor: bool = True) -> int:
    """Count the runs of the model that an item costs, without running it: six for each context of its answers; less
    without a prompt or another recording."""
    without_prompt = 0 if item.full_prompt else 2
    contexts = len(Question(model, item).reading.contexts)
    return contexts * (len(CONDITIONS) - without_prompt - (not has_donor))
