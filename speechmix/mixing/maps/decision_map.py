"""Map of what a decision loses per removed word, by stack and layer.

In: readings of interventions. Out: a tidy table, a matrix [layers, words] for each stack, a figure.
Axis order is [layer, word], as in mixing maps; a *drop* is the margin of the clean run less that of
the changed one, in nats: above zero where the decision leans on what was taken away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ...errors import InputError
from ...files.json_files import Json

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What a table of interventions holds, in this order.
COLUMNS = ("item", "intervention", "stack", "layer", "word", "label", "margin", "drop", "flipped")


@dataclass(frozen=True, eq=False)
class DecisionMap:
    """Drops of a decision's margin, one row an intervention.

    Parameters
    ----------
    table : DataFrame
        Columns `COLUMNS`: stack ("input" where the input was changed), layer (the first of a
        window, from 0; missing for inputs), word (index), margin (of the changed run), drop,
        flipped (whether the other spelling wins now; missing where there is no choice between two).
        With ``carried`` where something of another item was put in: the share of the difference
        between both items' margins that went over with it.
    margin : float
        Of the clean run, in nats.
    provenance : dict
        Model, initialisation, seed, weights, item, what was read.
    pairs : DataFrame, optional
        Of Shapley values: how much each two words do together beyond what each does by itself, the
        largest first.

    Examples
    --------
    >>> row = {"intervention": "knock-out", "stack": "encoder", "layer": 0, "word": 0, "label": "les", "drop": 3.0}
    >>> DecisionMap(pd.DataFrame([row]), margin=2.0).scores("encoder")
    array([[3.]])
    """

    table: pd.DataFrame
    margin: float
    provenance: Mapping[str, Json] = field(default_factory=dict)
    pairs: pd.DataFrame | None = None

    @property
    def stacks(self) -> list[str]:
        return list(dict.fromkeys(self.table["stack"]))

    @property
    def interventions(self) -> list[str]:
        return list(dict.fromkeys(map(str, self.table["intervention"])))

    def words(self, stack: str) -> list[str]:
        """Labels of the columns of `scores`."""
        stack_rows = self._stack_rows(stack).drop_duplicates("word").sort_values("word")
        return stack_rows["label"].tolist()

    def rows(self, stack: str) -> list[str]:
        """Labels of the rows of `scores`: layers, or what was done to the input."""
        return [str(row) for row in self._matrix(stack, "drop").index]

    def scores(self, stack: str, value: str = "drop") -> np.ndarray:
        """One column of the table as a matrix [layers, words]; of inputs [interventions, words].

        Raises
        ------
        InputError
            If nothing was done to this stack.
        """
        return self._matrix(stack, value).to_numpy(float)

    def _matrix(self, stack: str, value: str) -> pd.DataFrame:
        stack_rows = self._stack_rows(stack)
        if stack_rows["layer"].isna().all():
            matrix = stack_rows.pivot(index="intervention", columns="word", values=value)
            return matrix.reindex(stack_rows["intervention"].unique())
        return stack_rows.assign(layer=stack_rows["layer"].astype(int)).pivot(
            index="layer", columns="word", values=value
        )

    def to_dataframe(self) -> pd.DataFrame:
        """Return a copy of the table, one row an intervention."""
        return self.table.copy()

    def plot(
        self, stack: str | None = None, *, value: str = "drop", ax: Axes | None = None
    ) -> Axes:
        """Draw one stack (the last by default); see `plots.decision_heat_map`."""
        from ...reporting.plots.decision_maps import decision_heat_map

        return decision_heat_map(self, stack, value=value, ax=ax)

    def show(self, *, value: str = "drop") -> Figure:
        """Draw all stacks side by side; see `plots.decision_map`."""
        from ...reporting.plots.decision_maps import decision_map

        return decision_map(self, value=value)

    def _stack_rows(self, stack: str) -> pd.DataFrame:
        stack_rows = self.table[self.table["stack"] == stack]
        if stack_rows.empty:
            raise InputError(f"nothing was done to the stack {stack!r}; there is {self.stacks}")
        return stack_rows

    def __repr__(self) -> str:
        intervention_names = ", ".join(self.interventions)
        shapes = ", ".join(
            f"{stack} {len(self.rows(stack))} x {len(self.words(stack))}" for stack in self.stacks
        )
        warning = self.provenance.get("warning")
        return f"DecisionMap({intervention_names}: {shapes}; margin {self.margin:.2f})" + (
            f"\n{warning}" if warning else ""
        )
