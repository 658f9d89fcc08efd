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
from ..estimate.estimate import format_seconds
from ..faithfulness.evaluate import model_provenance
from .effects import count_passes, listening_effects
from .items import ListeningItem, check_items, choose_donors, group_items, no_item_error
from .listening_result import Listening
from .questions import OWN, Question, check_takes_prompt
from .sound_routes import SoundRoutes, sound_routes
from .sound_seconds import check_seconds, sound_seconds

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip


def listening(
    model: Model,
    items: Sequence[ListeningItem | Clip],
    *,
    seconds: float | None = None,
    where: bool = False,
    group: str | None = None,
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
        Also find the layers and heads of the decoder that carry the sound. Costs two runs for each layer and head, for at
        most 48 items.
    group : str, optional
        A column of the items that says which belong together; by default speakers, or recording, pair and transcript.
    progress : bool
        Show a bar over items.

    Returns
    -------
    Listening
        Six runs of the model for each item; more if three or more options first differ at different positions
        (`estimate_listening`).

    Raises
    ------
    InputError
        If no item can be used or has the column `group`, or the model takes no prompt.

    Examples
    --------
    >>> items = read_listening_items("items.jsonl")                                       # doctest: +SKIP
    >>> speechmix.listening(model, items).summary                                         # doctest: +SKIP
    """
    check_takes_prompt(model)
    check_seconds(seconds)
    rows, skipped = list[dict[str, Any]](), list[tuple[str, str]]()
    listening_items, tables = check_items(items, skipped), list[pd.DataFrame]()
    donors = choose_donors(listening_items)
    group_items(listening_items, group)  # an error before the model runs
    for item in tqdm(listening_items, unit="item", disable=not progress):
        try:
            effects = listening_effects(model, item, donors.get(item.name))
            if seconds is not None:
                tables.append(sound_seconds(model, item, seconds=seconds))
        except SpeechmixError as error:
            skipped.append((item.name, str(error)))
            continue
        rows += [{"item": item.name} | effect for effect in effects]
    if not rows:
        raise no_item_error(skipped)
    options: dict[str, Any] = {"group": group, "progress": progress}
    routes = find_routes(model, listening_items, skipped, **options) if where else None
    return Listening(
        tuple(listening_items),
        pd.DataFrame(rows),
        tuple(skipped),
        model_provenance(model),
        routes=routes,
        seconds=pd.concat(tables, ignore_index=True) if tables else None,
        group=group,
    )


def find_routes(
    model: Model, items: Sequence[ListeningItem], skipped: list[tuple[str, str]], **options: Any
) -> SoundRoutes | None:
    """Return where the sound is read, with options of `sound_routes`; None, with the reason in `skipped`, if no item
    allows it."""
    try:
        return sound_routes(model, items, **options)
    except InputError as error:
        skipped.append(("where", str(error)))
        return None


@dataclass(frozen=True)
class ListeningCost:
    """What a listening report costs.

    Parameters
    ----------
    items, passes : int
        Items that can be used, and runs of the model for all of them together.
    seconds : float
        On this machine: the time of one run of the first item, for each of them.
    skipped : tuple of (str, str)
        Items that cannot be used, and why.
    """

    items: int
    passes: int
    seconds: float
    skipped: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return (
            f"{self.items} item{'s' * (self.items > 1)}, {self.passes} runs of the model "
            f"({self.passes / self.items:.1f} for each item), about {format_seconds(self.seconds)} on this machine"
        )


def estimate_listening(model: Model, items: Sequence[ListeningItem | Clip]) -> ListeningCost:
    """Estimate what the default report costs: its runs are counted, and one of them is timed.

    Parameters
    ----------
    model, items
        As for `listening`.

    Raises
    ------
    InputError
        As `listening`.

    Examples
    --------
    >>> print(estimate_listening(model, items))                                           # doctest: +SKIP
    120 items, 720 runs of the model (6.0 for each item), about 95 s on this machine
    """
    check_takes_prompt(model)
    skipped, counts, per_pass = list[tuple[str, str]](), list[int](), 0.0
    listening_items = check_items(items, skipped)
    donors = choose_donors(listening_items)
    for item in listening_items:
        try:
            per_pass = per_pass or _time_pass(Question(model, item))
            counts.append(count_passes(model, item, has_donor=item.name in donors))
        except SpeechmixError as error:
            skipped.append((item.name, str(error)))
    if not counts:
        raise no_item_error(skipped)
    return ListeningCost(len(counts), sum(counts), sum(counts) * per_pass, tuple(skipped))


def _time_pass(question: Question) -> float:
    """Seconds of one run of the model with its inputs; the first run, which is slower, does not count."""
    question.log_probabilities(question.inputs(OWN))
    start = time.perf_counter()
    question.log_probabilities(question.inputs(OWN))
    return (time.perf_counter() - start) / len(question.reading.contexts)
