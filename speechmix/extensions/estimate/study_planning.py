"""How many groups of clips a study needs, from a pilot run.

In: a run of a few clips with trained models and some twins. Out: for each primary row (whole stacks by
the leading measure) and each difference the number of groups that finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

import pandas as pd

from ...errors import InputError
from ...evaluation.statistics.claim_rule import DEFAULT_TWINS
from ...evaluation.statistics.random_twin_comparison import groups_for_difference
from ...reporting.pages.cue_need_sentences import main_measure
from ...reporting.pages.study_results import Study

if TYPE_CHECKING:
    from ...runs.results.open_run import StoredRun
    from ...runs.scored_run import Run


def groups_needed(
    pilot: str | PathLike[str] | Run | StoredRun,
    *,
    differences: Sequence[float] = (5.0, 10.0, 15.0),
    twins: int = DEFAULT_TWINS,
    group: str | None = None,
) -> pd.DataFrame:
    """Say how many groups of clips find a difference to untrained models in 80 % of studies.

    Parameters
    ----------
    pilot : path, Run or StoredRun
        A run of some clips (eight groups or more tell the spread roughly) with two twins or more.
    differences : sequence of float
        In percentage points.
    twins : int
        Of the planned study.
    group : str, optional
        Column of the clip table that says which clips belong together.

    Returns
    -------
    DataFrame
        side, model, stack, measure, group_sd (points, over groups of the pilot), twin_sd, and a column
        for each difference with the number of groups; missing where no number is enough. The
        spread of a pilot is known only roughly: with 10 groups the number may be half or three times
        as large.

    Raises
    ------
    InputError
        If the pilot has no trained model with two twins and two groups.

    Examples
    --------
    >>> speechmix.groups_needed("runs/pilot")  # doctest: +SKIP
    """
    study = Study.open(pilot, group=group)
    rows = main_measure(study.headline) if len(study.headline) else study.headline
    if rows.empty or not rows["twin_sd"].notna().any() or not rows["group_sd"].notna().any():
        raise InputError(
            "a pilot run needs a cue and a target, a trained model, two untrained twins and two groups of "
            "clips: score it with --twins 2 or more"
        )
    result = rows[["side", "model", "stack", "measure", "group_sd", "twin_sd"]].copy()
    for difference in differences:
        counts = [
            groups_for_difference(
                difference, row["group_sd"], row["twin_sd"], twins=twins, rows=int(row["rows"])
            )
            for row in rows.to_dict("records")
        ]
        result[f"{difference:g} points"] = pd.array(counts, dtype="Int64")
    return result.reset_index(drop=True)
