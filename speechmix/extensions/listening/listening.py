"""Does a model use the sound? Ask it about recordings, and replace their sound.

In: an audio language model, or a Whisper with initial prompts, and items. Out: a `Listening`. First from the input to
the output (`effects.py`), which the verdict rests on; on request also where in the sound (`sound_seconds.py`) and
where in the decoder (`sound_routes.py`).

Result of a listening report: the answers in each condition, shares with intervals, and what they allow to say.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from tqdm.auto import tqdm

from ...errors import InputError, SpeechmixError
from ...files.json_files import JsonObject
from ...files.text_files import write_csv
from ...files.whole_files import write_json
from ..estimate.estimate import format_seconds
from ..faithfulness.evaluate import model_provenance
from .effects import (
    CHANGES,
    DOMINANCE,
    NEEDS,
    SOLVED,
    SOLVED_WITHOUT,
    VERDICTS,
    count_passes,
    describe_shares,
    find_share,
    item_table,
    listening_effects,
    listening_shares,
    listening_verdict,
)
from .items import (
    ListeningItem,
    check_items,
    choose_donors,
    describe_listening_groups,
    group_items,
    no_item_error,
)
from .questions import OWN, Question, check_takes_prompt
from .sound_routes import SoundRoutes, sound_routes
from .sound_seconds import check_seconds, sound_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip

_LOW_MASS = 0.1  # probability of all options together, below which the model writes something else


@dataclass(frozen=True, eq=False)
class Listening:
    """Whether a model uses the sound of some items.

    Parameters
    ----------
    items : tuple of ListeningItem
    conditions : DataFrame
        A row for each item and condition, as `listening_effects` returns them, with the column item.
    skipped : tuple of (str, str)
        Items that cannot be used, and why.
    provenance : dict
        Model, init, seed, weights, items.
    routes : SoundRoutes, optional
        Where in the decoder the sound reaches the answer.
    seconds : DataFrame, optional
        Which seconds of the sound each answer needs (`sound_seconds`).
    group : str, optional
        As for `speechmix.listening`.

    Attributes
    ----------
    table : DataFrame
        A row for each item (`item_table`).
    shares : DataFrame
        Shares with intervals (`listening_shares`).
    """

    items: tuple[ListeningItem, ...]
    conditions: pd.DataFrame
    skipped: tuple[tuple[str, str], ...] = ()
    provenance: JsonObject = field(default_factory=dict)
    routes: SoundRoutes | None = None
    seconds: pd.DataFrame | None = None
    group: str | None = None
    table: pd.DataFrame = field(init=False, repr=False)
    shares: pd.DataFrame = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", item_table(self.conditions, self.items, self.group))
        object.__setattr__(self, "shares", listening_shares(self.table))

    @property
    def model_name(self) -> str:
        """Name of the model."""
        return str(self.provenance.get("model", "model"))

    @property
    def grouping(self) -> str:
        """How many groups and speakers there are, in a sentence."""
        return describe_listening_groups(self.items, self.group, self.table["item"])

    @property
    def verdict(self) -> str:
        """Whether the answers depend on the sound: `listening_verdict`, from input to output."""
        return listening_verdict(self.shares)

    @property
    def conclusion(self) -> str:
        """The verdict as a sentence."""
        needs = find_share(self.shares, NEEDS)
        return VERDICTS[self.verdict].format("most" if needs and needs["low"] > 0.5 else "some")

    @property
    def summary(self) -> str:
        """Sentences: the verdict, and each share with its interval."""
        shares = describe_shares(self.shares)
        lines = [self.conclusion]
        lines += [f"{_LABELS[name]}: {share}" for name, share in shares.items()]
        lines += self.notes
        if self.seconds is not None and self.seconds["agreement"].notna().any():
            agreement = self.seconds.groupby("item")["agreement"].first().dropna()
            lines.append(
                f"Stretches of sound: the median rank correlation of effects and gradient x input is {agreement.median():.2f} "
                f"({len(agreement)} items)."
            )
        if self.routes is not None:
            lines.append(self.routes.summarize(self.verdict))
        return "\n".join([*lines, self.grouping])

    @property
    def card_line(self) -> str:
        """One line for a model card."""
        shares = describe_shares(self.shares)
        parts = [f"Listening ({self.grouping.rstrip('.')}): {self.verdict}"]
        parts += [text.format(shares[name]) for name, text in _CARD_TEXTS.items() if name in shares]
        return "; ".join(parts) + "."

    def to_dataframe(self) -> pd.DataFrame:
        """Return a copy of the table of items."""
        return self.table.copy()

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw the shares; see `plots.listening_panel`."""
        from .listening_page import listening_panel

        return listening_panel([self], ax=ax)

    def write(self, folder: str | Path) -> Path:
        """Write tables (CSV), provenance (JSON) and the page into a folder."""
        from .listening_page import write_listening_page

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tables = {"items": self.table, "conditions": self.conditions, "shares": self.shares}
        if self.seconds is not None:
            tables["seconds"] = self.seconds
        if self.routes is not None:
            tables |= {name: getattr(self.routes, name) for name in ("layers", "heads", "removal")}
        for name, table in tables.items():
            write_csv(table, folder / f"listening_{name}.csv")
        facts = {"group": self.group} if self.group else {}
        facts |= {"verdict": self.verdict, "summary": self.summary, "card": self.card_line}
        skipped = [list(item) for item in self.skipped]
        write_json(folder / "listening.json", {**self.provenance, **facts, "skipped": skipped})
        write_listening_page([self], folder / "listening.html")
        return folder

    def __repr__(self) -> str:
        return f"Listening({self.model_name!r}: {len(self.table)} items, {self.verdict})"

    @property
    def notes(self) -> list[str]:
        """Sentences on what limits the conclusions."""
        notes = []
        unclear = int(self.table["needs"].isna().sum())
        if unclear:
            notes.append(
                f"{unclear} of {len(self.table)} items are left out of the first share: no other item has another "
                "answer and another recording that can be used."
            )
        low = int((self.table["mass"] < _LOW_MASS).sum())
        if low:
            notes.append(
                f"In {low} items the options have less than {100 * _LOW_MASS:.0f} % of the probability: the model would "
                "write something else. Write the options as the model does."
            )
        unusual = int((self.table["changes_muted"] & (self.table["changes"] == 0)).sum())
        if unusual:
            notes.append(
                f"In {unusual} items silence or noise changes the answer, and another recording does not. These are "
                "unusual inputs, so this is no evidence that the model listens."
            )
        dominance = find_share(self.shares, DOMINANCE)
        if dominance is not None and (dominance["low"] > 0.5 or dominance["high"] < 0.5):
            side = "text" if dominance["low"] > 0.5 else "sound"
            notes.append(f"Where sound and text contradict each other, the {side} wins more often.")
        return notes


_CARD_TEXTS = {
    NEEDS: "{} of the items need the sound",
    SOLVED_WITHOUT: "{} are solved without it",
    DOMINANCE: "{} of the conflicts follow the text",
}
_LABELS = {
    NEEDS: "items that need the sound",
    CHANGES: "items whose answer changes with the sound",
    SOLVED: "items solved with the sound",
    SOLVED_WITHOUT: "items solved without it",
    DOMINANCE: "conflicts that follow the text (text dominance)",
}


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
