"""Result of a listening report: the answers in each condition, shares with intervals, and what they allow to say."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from ...files.json_files import JsonObject
from ...files.text_files import write_csv
from ...files.whole_files import write_json
from .effects import (
    CHANGES,
    DOMINANCE,
    NEEDS,
    SOLVED,
    SOLVED_WITHOUT,
    VERDICTS,
    describe_shares,
    find_share,
    item_table,
    listening_shares,
    listening_verdict,
)
from .items import ListeningItem, describe_listening_groups

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .sound_routes import SoundRoutes

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
