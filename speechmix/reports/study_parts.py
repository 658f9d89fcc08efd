"""Further parts of a study's page: models and options, what length alone does, agreement of measures, word boundaries.

In: a finished `Run` and its study table. Out: parts of the page; none where there is nothing to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..errors import SpeechmixError
from ..evaluation.agreement import curve_agreement, measure_agreement
from ..evaluation.length import length_exponent
from ..evaluation.sensitivity import SHIFT, boundary_sensitivity, holds
from ..experiments.boundaries import BOUNDARIES
from ..experiments.checked_tables import described_run
from ..experiments.reading import clip_folders, model_folders, read_map
from ..files.parquet_files import read_parquet
from ..maps.mixing import MixingMap
from ..plots.figures import evenly
from ..plots.panels import spoken
from .page import Part
from .study_tables import KEYS, shown

if TYPE_CHECKING:
    from ..experiments.run import Run

_MOST_MAPS = 60  # clips whose maps are read to see what length does
_BY = ("model", "init", "stack")


def models_part(run: Run) -> list[Any]:
    """Table of models and a line of options, as the maps' provenance has them."""
    rows = []
    for folder in model_folders(run.out):
        clips = list(clip_folders(folder))
        first = next(_readable(path for clip in clips for path in sorted(clip.glob("*.safetensors"))), None)
        if first is not None:
            known = first.provenance
            named = {"weights": known["init"], "seed": "" if known.get("seed") is None else str(known["seed"])}
            rows.append(
                {
                    "model": str(known["model"]),
                    **named,
                    "fingerprint": str(known.get("weights", "")),
                    "clips": len(clips),
                }
            )
    options = described_run(run).get("options", {})
    said = "; ".join(f"{name}: {_said(value)}" for name, value in options.items() if value not in (None, [], ()))
    return [*([pd.DataFrame(rows)] if rows else []), *([f"Options: {said}."] if said else [])]


def _readable(paths: Iterable[Path]) -> Iterator[MixingMap]:
    """Maps that can be read; the page names the others where it shows their clips."""
    for path in paths:
        with suppress(SpeechmixError):
            yield read_map(path)


def _said(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def length_part(run: Run) -> list[Part]:
    """How a word's share grows with its frames in the random twins, by measure and stack."""
    rows = []
    for folder in model_folders(run.out):
        clips = list(clip_folders(folder)) if "random" in folder.name else []
        chosen = [clips[i] for i in evenly(range(len(clips)), _MOST_MAPS)]
        for path in sorted(chosen[0].glob("*.safetensors")) if chosen else ():
            maps = list(_readable(clip / path.name for clip in chosen if (clip / path.name).is_file()))
            slope = length_exponent(maps) if maps else np.nan
            if np.isfinite(slope):
                known = maps[0].provenance
                named = {"model": str(known["model"]), "stack": maps[0].stack, "measure": maps[0].measure}
                rows.append({**named, "exponent": slope, "clips": len(maps)})
    if not rows:
        return []
    means = pd.DataFrame(rows).groupby(["model", "stack", "measure"], sort=False)
    table = means.agg(exponent=("exponent", "mean"), clips=("clips", "sum")).reset_index()
    table["exponent"] = table["exponent"].map("{:.2f}".format)
    said = (
        "In the random twins a word's share grows as its number of frames to this power (slope of log share against log frames "
        "within rows). 2 for Value Zeroing and 0 for the others is what the length-matched column above assumes."
    )
    return [("What length alone does", [said, table])]


def agreement_part(table: pd.DataFrame) -> list[Part]:
    """Rank correlation between measures: over clips within layers, and of their curves over layers."""
    if table.empty or table[table.contribution.notna()].measure.nunique() < 2:
        return []
    table = table[table.control != "yes"]
    within = measure_agreement(table, by=_BY)
    pairs = within.groupby([*_BY, "measure", "other"], sort=False)
    result = pairs.rho.agg(mean="mean", lowest="min", highest="max").reset_index()
    curves = curve_agreement(table, by=_BY)[[*_BY, "measure", "other", "rho"]]
    result = result.merge(curves, on=[*_BY, "measure", "other"])
    result[["measure", "other"]] = result[["measure", "other"]].map(spoken)
    for name in ("mean", "lowest", "highest", "rho"):
        result[name] = result[name].map(lambda value: "" if value != value else f"{value:.2f}")
    named = {"mean": "over clips, mean of layers", "rho": "over layers, of the curves"}
    said = (
        "Spearman's rank correlation between measures: do the same clips get more (over clips, layer by layer; mean, lowest "
        "and highest layer), and do the same layers (over layers, of the mean curves)? 1: the same order; 0: none."
    )
    return [("Do the measures agree?", [said, result.rename(columns=named)])]


def boundaries_part(run: Run, table: pd.DataFrame) -> list[Part]:
    """What moving the word boundaries does, if the run was asked to try (`experiments.boundaries`)."""
    path = run.out / f"{BOUNDARIES}.parquet"
    if table.empty or not path.is_file():
        return []
    moved = read_parquet(path)
    known = table.drop_duplicates("clip")[["clip", "side", "group", "control"]]
    moved = moved.merge(known, on="clip")
    deciding = moved.groupby(["clip", "stack"]).rows.transform(lambda rows: (rows == "deciding").any())
    moved = moved[((moved.rows == "deciding") | ~deciding) & (moved.control != "yes")]
    found = boundary_sensitivity(moved.assign(contribution=100 * moved.contribution), by=KEYS, group="group")
    verdicts = holds(found, by=KEYS)
    if verdicts.empty:
        return []
    milliseconds = round(1000 * SHIFT)
    kept = int(verdicts.holds.sum())
    said = (
        f"Cue and target moved {milliseconds} ms earlier and later, made {milliseconds} ms wider and narrower at both edges, "
        f"in {moved['clip'].nunique()} clips, read at the layers chosen as aligned. The conclusion (above zero, below, or "
        f"neither) stays the same in {kept} of {len(verdicts)} rows."
    )
    verdicts[["holds", "same_layer"]] = verdicts[["holds", "same_layer"]].map(lambda yes: "yes" if yes else "no")
    named = {"smallest": "smallest difference", "largest": "largest difference", "same_layer": "same best layer"}
    return [("If word boundaries are off", [said, shown(verdicts.rename(columns=named))])]
