"""Does a model use the sound? Ask it about recordings, and replace their sound.

In: an audio language model, or a Whisper with initial prompts, and items. Out: a `Listening`. First from the input to
the output (`effects.py`), which the verdict rests on; on request also where in the sound (`sound_seconds.py`) and
where in the decoder (`sound_routes.py`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd
from tqdm.auto import tqdm

from ...errors import InputError, SpeechmixError
from .effects import count_passes, listening_effects
from .item_groups import check_items, choose_donors
from .items import ListeningItem
from .listening_result import Listening
from .question_prompts import check_takes_prompt
from .questions import OWN, Question

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip


def listening(
    model: Model,
    items: Sequence[ListeningItem | Clip],
    *,
    seconds: float | None = None,
    where: bool = False,
    progress: bool = False,
) -> Listening:
    """Find out whether a model uses the sound of some items, or guesses from the text.

    Parameters
    ----------
    model : Model
        An audio language model with its processor, or a Whisper, which gets the prompt as its initial prompt.
    items : sequence of ListeningItem or Clip
        Clips with their question in the metadata (`ListeningItem.from_clip`).
    seconds : float, optional
        Also find which stretches of this length each answer needs.
    where : bool
        Also find the layers and heads of the decoder that carry the sound. Costs a run for each head.
    progress : bool
        Show a bar over items.

    Returns
    -------
    Listening
        Six runs of the model for each item; more only where more than two options part in several places
        (`estimate_listening`).

    Raises
    ------
    InputError
        If no item can be used, or the model takes no prompt.

    Examples
    --------
    >>> items = read_listening_items("items.jsonl")                                       # doctest: +SKIP
    >>> speechmix.listening(model, items).summary                                         # doctest: +SKIP
    """
    from .sound_routes import sound_routes
    from .sound_seconds import sound_seconds

    found = check_items(items)
    check_takes_prompt(model)
    donors = choose_donors(found)
    rows, skipped = list[dict[str, Any]](), list[tuple[str, str]]()
    tables = list[pd.DataFrame]()
    for item in tqdm(found, unit="item", disable=not progress):
        try:
            effects = listening_effects(model, item, donors.get(item.name))
            if seconds is not None:
                tables.append(sound_seconds(model, item, seconds=seconds))
        except SpeechmixError as error:
            skipped.append((item.name, str(error)))
            continue
        rows += [{"item": item.name} | effect for effect in effects]
    if not rows:
        reasons = "; ".join(
            f"{name}: {reason.removeprefix(f'{name}: ')}" for name, reason in skipped[:3]
        )
        raise InputError(f"no item can be used: {reasons}")
    usable = {row["item"] for row in rows}
    kept = [item for item in found if item.name in usable]
    return Listening(
        tuple(found),
        pd.DataFrame(rows),
        tuple(skipped),
        describe_model(model),
        routes=sound_routes(model, kept, progress=progress) if where else None,
        seconds=pd.concat(tables, ignore_index=True) if tables else None,
    )


def describe_model(model: Model) -> dict[str, Any]:
    """Return what a result says of its model."""
    return {
        "model": model.name,
        "init": model.init,
        "seed": model.seed,
        "weights": model.fingerprint,
    }


@dataclass(frozen=True)
class ListeningCost:
    """What a listening report costs.

    Parameters
    ----------
    items, passes : int
        Runs of the model for all items together.
    seconds : float
        On this machine: the time of one run of the first item, for each of them.
    """

    items: int
    passes: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.items} items, {self.passes} runs of the model ({self.passes / self.items:.1f} for each item), "
            f"about {self.seconds:.0f} s on this machine"
        )


def estimate_listening(model: Model, items: Sequence[ListeningItem | Clip]) -> ListeningCost:
    """Estimate what the default report costs: its runs are counted, and one of them is timed.

    Parameters
    ----------
    model, items
        As for `listening`.

    Returns
    -------
    ListeningCost

    Raises
    ------
    InputError
        As `listening`.

    Examples
    --------
    >>> print(estimate_listening(model, items))                                           # doctest: +SKIP
    120 items, 720 runs of the model (6.0 for each item), about 95 s on this machine
    """
    found = check_items(items)
    donors = choose_donors(found)
    passes = sum(count_passes(model, item, has_donor=item.name in donors) for item in found)
    question = Question(model, found[0])
    inputs = question.inputs(OWN)
    question.log_probabilities(inputs)  # the first run of a model is slower
    start = time.perf_counter()
    question.log_probabilities(inputs)
    per_pass = (time.perf_counter() - start) / len(question.reading.contexts)
    return ListeningCost(len(found), passes, passes * per_pass)
