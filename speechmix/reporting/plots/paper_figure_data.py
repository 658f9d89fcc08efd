"""Read published figures of the speech paper as tables, to draw them beside a user's results.

The numbers are data files (`published/*.json`) with their source and how surely they are known:
they were *read off* figures and not recomputed. Out: tables with the columns of a run's own, layers
counted from 0.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

PUBLISHED_CLIP, PUBLISHED_SUFFIX = (
    "published mean",
    ", published",
)  # the clip, and the end of a model's name
AS_PUBLISHED_ROWS = "target"  # of a map: what the published figures are means over
PublishedData: TypeAlias = "dict[str, Any]"  # each figure has its own form
_DATA_DIR = Path(__file__).parent / "published"
_FIGURE_FILES = ("speech_figure_1", "speech_figure_2", "speech_figure_4")


@cache
def read_published_data(name: str) -> PublishedData:
    """Read a data file: "speech_figure_1", "speech_figure_2" (cue contribution), "speech_figure_4"
    (probing), ..."""
    data: PublishedData = json.loads((_DATA_DIR / f"{name}.json").read_text(encoding="utf-8"))
    return data


def published_contributions() -> pd.DataFrame:
    """Return Figures 1 and 2: mean cue contribution (0 to 1) of XLSR-53 and Whisper-medium, trained
    and random.

    Returns
    -------
    DataFrame
        Columns model, init, clip, stack, layer, depth, measure, contribution; rows ("target": all
        of the target's).

    Examples
    --------
    >>> table = published_contributions()
    >>> peak = table[(table.model == "XLSR-53, published") & (table.measure == "value_zeroing")]
    >>> int(peak.loc[peak.contribution.idxmax()].layer), round(float(peak.contribution.max()), 2)
    (9, 0.24)
    """
    rows = []
    for name in _FIGURE_FILES[:2]:
        content = read_published_data(name)
        for init in ("trained", "random"):
            for stack, measures in content[init].items():
                for measure, values in measures.items():
                    layer_count = len(content["trained"][stack][measure])
                    values = values if isinstance(values, list) else [values] * layer_count
                    rows += [
                        (
                            _published_model_name(content["model"]),
                            init,
                            stack,
                            layer,
                            layer / (layer_count - 1),
                            measure,
                            value / 100,
                        )
                        for layer, value in enumerate(values)
                    ]
    columns = ["model", "init", "stack", "layer", "depth", "measure", "contribution"]
    return pd.DataFrame(rows, columns=columns).assign(clip=PUBLISHED_CLIP, rows=AS_PUBLISHED_ROWS)


def matching_published_contributions(table: pd.DataFrame) -> pd.DataFrame:
    """Return the published contributions of the stacks and measures that a table has."""
    curves = published_contributions()
    return curves[
        curves["stack"].isin(table["stack"].unique())
        & curves["measure"].isin(table["measure"].unique())
    ]


def published_probing() -> pd.DataFrame:
    """Return Figure 4: accuracy (0 to 1) of a probe for grammatical number, by layer.

    Returns
    -------
    DataFrame
        Columns model, init, clip, stack, layer, depth, measure ("probing"), accuracy, low, high
        (where only a range could be read; accuracy is then its middle).
    """
    rows = []
    for init in ("trained", "random"):
        for stack, models in read_published_data("speech_figure_4")[init].items():
            for model, values in models.items():
                if isinstance(values, dict):
                    low, high = values["from"], values["to"]
                    points = [((low + high) / 2, low, high)] * values["layers"]
                else:
                    points = [
                        (np.nan if value is None else value, np.nan, np.nan) for value in values
                    ]
                rows += [
                    (
                        _published_model_name(model),
                        init,
                        stack,
                        layer,
                        layer / (len(points) - 1),
                        *point,
                    )
                    for layer, point in enumerate(points)
                ]
    columns = ["model", "init", "stack", "layer", "depth", "accuracy", "low", "high"]
    return (
        pd.DataFrame(rows, columns=columns)
        .assign(clip=PUBLISHED_CLIP, measure="probing")
        .dropna(subset="accuracy")
    )


def published_evidence(table: pd.DataFrame) -> str:
    """Say in a line how exactly the published numbers of a table are known.

    Examples
    --------
    >>> published_evidence(published_contributions().query("stack == 'cross'"))
    'Whisper-medium: whole % read off a picture, ±1'
    """
    models = set(table["model"].unique())
    reading_by_model = {
        _published_model_name(read_published_data(name)["model"]): read_published_data(name)[
            "reading"
        ]
        for name in _FIGURE_FILES[:2]
    }
    return "; ".join(
        f"{model.removesuffix(PUBLISHED_SUFFIX)}: {reading}"
        for model, reading in reading_by_model.items()
        if model in models
    )


def published_sources() -> list[str]:
    """List the source of each published figure, and how exactly it is known."""
    contents = (read_published_data(name) for name in _FIGURE_FILES)
    return [
        f"{content['title']}: {content['source']}. {content['evidence'].capitalize()}. "
        + (f"{content['rows'].capitalize()}. " if "rows" in content else "")
        + f"{content['remarks'][0].upper()}{content['remarks'][1:].rstrip('.')}."
        for content in contents
    ]


def _published_model_name(model: str) -> str:
    return model + PUBLISHED_SUFFIX
