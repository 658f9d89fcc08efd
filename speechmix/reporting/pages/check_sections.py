"""Page sections on checks: length, measure agreement, word boundaries, settings.

In: a `Study`. Out: parts of the page; none where there is nothing to say.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pandas as pd

from ...evaluation.boundary_sensitivity import (
    SHIFT_SECONDS,
    boundary_sensitivity,
    summarize_stability,
)
from ...evaluation.length_baseline import length_exponent
from ...evaluation.statistics.even_subset import choose_evenly
from ...evaluation.statistics.intervals import FEWEST_GROUPS
from ...evaluation.statistics.measure_agreement import curve_agreement, measure_agreement
from ...mixing.maps.measure_facts import measure_label
from ...mixing.maps.mixing_map import MixingMap
from ...runs.results.open_run import StoredRun
from ...runs.results.run_times import sum_by_phase
from ...runs.results.scored_models import scored_models
from ..plots.cue_tables import DECIDING, select_target_rows
from .html_page import Item
from .page_sections import PageContent, PageSection
from .study_tables import KEYS, drop_control_clips
from .table_format import format_contribution_table

_MAX_MAPS = 60  # clips whose maps are read to see what length does
_GROUP_KEYS = ("model", "init", "stack")
_EXPONENT_NOTE = (
    "How the share of a word grows with its number of frames in untrained twins. An exponent of 0 "
    "means that length has no effect. An exponent of 2 means that a word of double length has four "
    "times the share. The exponent is the slope of a regression of log share on log number of frames, "
    "among the sources of one target. The column “length-matched” assumes 2 for Value Zeroing and 0 "
    "for other measures."
)
_AGREEMENT_NOTE = (
    "Spearman's rank correlation between two measures. Over clips: does the cue contribute most in "
    "the same clips? There is one correlation for each layer; the table has their mean, minimum and "
    "maximum. Over layers: does the cue contribute most in the same layers? 1 means the same order; 0 "
    "means no relation."
)
_OPTIONS_NOTE = "Options, for repeating the run (described in the documentation): {options}."
_TIMES_NOTE = (
    "Computing time of each phase in seconds, over all processes and restarts. A phase does not "
    "include the phases within it. Work that several measures share is counted for the first of "
    "them. times.csv has the times of each model."
)


def model_items(run: StoredRun) -> list[Item]:
    """Tabulate the models with the clips that each scored, and list the options."""
    rows = [
        {
            "model": model.name,
            "weights": model.init,
            "seed": "" if model.seed is None else str(model.seed),
            "fingerprint": model.weights,
            "clips": len(model.clips),
        }
        for model in scored_models(run)
    ]
    options = run.description.get("options", {})
    option_list = "; ".join(
        f"{name}: {_option_text(value)}"
        for name, value in options.items()
        if value not in (None, [], ())
    )
    return [
        *([pd.DataFrame(rows)] if rows else []),
        *([_OPTIONS_NOTE.format(options=option_list)] if option_list else []),
    ]


def time_items(run: StoredRun) -> list[Item]:
    """Tabulate where the time of the run went; empty if it is not known."""
    return [_TIMES_NOTE, sum_by_phase(run.times)] if len(run.times) else []


def _option_text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _length_items(content: PageContent) -> list[Item]:
    """Tabulate how a word's share grows with its frames in the untrained twins."""
    rows = []
    for model in scored_models(content.run):
        maps_by_measure: dict[tuple[str, str], list[MixingMap]] = defaultdict(list)
        for clip in choose_evenly(list(model.clips), _MAX_MAPS) if model.init == "random" else ():
            for measure_and_stack, mixing_map in model.maps(clip).items():
                maps_by_measure[measure_and_stack].append(mixing_map)
        for (measure, stack), maps in maps_by_measure.items():
            slope = length_exponent(maps)
            if np.isfinite(slope):
                columns = {"model": model.name, "stack": stack, "measure": measure}
                rows.append({**columns, "exponent": slope, "clips": len(maps)})
    if not rows:
        return []
    means = pd.DataFrame(rows).groupby(["model", "stack", "measure"], sort=False)
    table = means.agg(exponent=("exponent", "mean"), clips=("clips", "sum")).reset_index()
    table["exponent"] = table["exponent"].map("{:.2f}".format)
    return [_EXPONENT_NOTE, table]


def _agreement_items(content: PageContent) -> list[Item]:
    """Tabulate rank correlations between measures: over clips within layers, and of curves over
    layers."""
    table = content.study.table
    if table.empty or table.loc[table["contribution"].notna(), "measure"].nunique() < 2:
        return []
    table = drop_control_clips(table)
    correlations = measure_agreement(table, by=_GROUP_KEYS)
    pairs = correlations.groupby([*_GROUP_KEYS, "measure", "other"], sort=False)
    result = pairs.rho.agg(mean="mean", lowest="min", highest="max").reset_index()
    curves = curve_agreement(table, by=_GROUP_KEYS)[[*_GROUP_KEYS, "measure", "other", "rho"]]
    result = result.merge(curves, on=[*_GROUP_KEYS, "measure", "other"])
    result[["measure", "other"]] = result[["measure", "other"]].map(measure_label)
    for name in ("mean", "lowest", "highest", "rho"):
        result[name] = result[name].map(lambda value: "" if value != value else f"{value:.2f}")
    headings = {
        "init": "weights",
        "other": "other measure",
        "mean": "over clips: mean",
        "lowest": "over clips: minimum",
        "highest": "over clips: maximum",
        "rho": "over layers",
    }
    return [_AGREEMENT_NOTE, result.rename(columns=headings)]


def _boundary_items(content: PageContent) -> list[Item]:
    """Say how much shifted word boundaries change the results, if the run has such shifts."""
    study, shifted = content.study, content.run.boundaries
    if study.table.empty or shifted.empty:
        return []
    clips = study.table.drop_duplicates("clip")[["clip", "side", "group", "control"]].astype(object)
    shifted = shifted.merge(clips, on="clip")
    shifted = drop_control_clips(select_target_rows(shifted, DECIDING))
    sensitivity = boundary_sensitivity(
        shifted.assign(contribution=100 * shifted.contribution), by=KEYS, group="group"
    )
    if sensitivity["difference"].isna().all():
        return []
    milliseconds = round(1000 * SHIFT_SECONDS)
    text = (
        f"The boundaries of cue and target were shifted by {milliseconds} ms: both earlier, both "
        "later, the word longer, and the word shorter. This was done in "
        f"{shifted['clip'].nunique()} clips; the table has whole stacks. "
    )
    verdicts = summarize_stability(sensitivity, by=KEYS)
    if verdicts.empty:
        reason = f"a test needs {FEWEST_GROUPS} groups of clips and two untrained twins"
        differences = sensitivity[[*KEYS, "boundaries", "difference", "groups", "clips"]]
        return [
            f"{text}Whether the result depends on the boundaries is inconclusive: {reason}.",
            format_contribution_table(differences),
        ]
    text += (
        "The conclusion (the confidence interval is above zero, below zero, or includes zero) stays "
        f"the same in {int(verdicts.holds.sum())} of {len(verdicts)} rows."
    )
    verdicts[["holds", "same_layer"]] = verdicts[["holds", "same_layer"]].map(
        lambda is_same: "yes" if is_same else "no"
    )
    headings = {
        "smallest": "smallest difference",
        "largest": "largest difference",
        "same_layer": "same highest layer",
    }
    return [text, format_contribution_table(verdicts.rename(columns=headings))]


LENGTH_ALONE = PageSection("What length alone does", _length_items)
MEASURE_AGREEMENT = PageSection("Do the measures agree?", _agreement_items)
BOUNDARIES = PageSection("If word boundaries are off", _boundary_items)
