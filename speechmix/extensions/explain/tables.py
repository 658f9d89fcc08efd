"""An explanation as tidy tables: what measures assign to sources and frames, effects of removal,
pairs.

In: an `Explanation`. Out: data frames of `COLUMNS`, `EFFECT_COLUMNS`, `FRAME_COLUMNS` and
`PAIR_COLUMNS`, long, a row for each number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from .explanation_numbers import ExplanationNumbers

_CHOICE_COLUMNS = ("item", "written", "unit", "against", "foil")
_ATTRIBUTION_COLUMNS = (*_CHOICE_COLUMNS, "error", "measure", "of")
COLUMNS = (
    *_ATTRIBUTION_COLUMNS,
    "distance",
    "side",
    "source",
    "label",
    "own_sound",
    "onset",
    "offset",
    "attribution",
    "attribution_error",
    "specific",
    "rank",
    "value",
    "spelling_margin",
    "spelling_prior",
    "value_without",
    "drop",
    "drop_low",
    "drop_high",
    "probability",
    "probability_without",
)
EFFECT_COLUMNS = (
    *_CHOICE_COLUMNS,
    "side",
    "source",
    "label",
    "own_sound",
    "fill",
    "value",
    "value_without",
    "drop",
)
FRAME_COLUMNS = (
    *_ATTRIBUTION_COLUMNS,
    "frame",
    "onset",
    "offset",
    "source",
    "label",
    "attribution",
    "value",
    "probability",
)
PAIR_COLUMNS = (
    *_CHOICE_COLUMNS,
    "first_side",
    "first",
    "second_side",
    "second",
    "drop_first",
    "drop_second",
    "drop_both",
    "beyond",
    "kind",
    "fills",
    "probability",
    "probability_without",
)


def attribution_table(explanation: ExplanationNumbers) -> pd.DataFrame:
    """A row for each choice, source and measure, `COLUMNS`."""
    rows, (low, high) = [], explanation.drop_range
    for name, attribution in explanation.attributions.items():
        of_measure = {
            "measure": name,
            "of": attribution.of,
            "distance": explanation.distances.get(name, np.nan),
        }
        for choice_index in range(len(explanation.choices)):
            values = attribution.values[choice_index]
            ranks = {index: rank for rank, index in enumerate(sort_sources(values), start=1)}
            what = {
                **_choice_cells(explanation, choice_index),
                **of_measure,
                **_spelling_cells(explanation, choice_index),
            }
            for index in sorted(ranks):
                rows.append(
                    {
                        **what,
                        **_source_cells(explanation, choice_index, index),
                        "onset": explanation.sources[index].onset,
                        "offset": explanation.sources[index].offset,
                        "attribution": values[index],
                        "attribution_error": np.nan
                        if attribution.errors is None
                        else attribution.errors[choice_index, index],
                        "specific": explanation.specific[name][choice_index, index],
                        "rank": ranks[index],
                        "value_without": explanation.value_without[choice_index, index],
                        "drop": explanation.drops[choice_index, index],
                        "drop_low": low[choice_index, index],
                        "drop_high": high[choice_index, index],
                        "probability_without": explanation.probability_without[choice_index, index],
                    }
                )
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"onset": float, "offset": float})


def effects_table(explanation: ExplanationNumbers) -> pd.DataFrame:
    """A row for each choice, removed source and fill, `EFFECT_COLUMNS`."""
    rows = [
        {
            **_choice_cells(explanation, choice_index),
            **_source_cells(explanation, choice_index, index),
            "fill": explanation.fills[fill].label,
            "value_without": explanation.value_by_fill[fill, choice_index, index],
            "drop": explanation.drop_by_fill[fill, choice_index, index],
        }
        for choice_index in range(len(explanation.choices))
        for index in range(len(explanation.sources))
        for fill in range(len(explanation.fills))
        if np.isfinite(explanation.value_by_fill[fill, choice_index, index])
    ]
    return pd.DataFrame(rows, columns=list(EFFECT_COLUMNS))


def pairs_table(explanation: ExplanationNumbers) -> pd.DataFrame:
    """A row for each choice and pair of its sources, `PAIR_COLUMNS`."""
    rows = []
    for pair in explanation.pairs:
        what = _choice_cells(explanation, pair.choice)
        first, second = explanation.sources[pair.first], explanation.sources[pair.second]
        source_cells = {
            "first_side": first.side,
            "first": first.label,
            "second_side": second.side,
            "second": second.label,
        }
        drops = {
            "drop_first": pair.drop_first,
            "drop_second": pair.drop_second,
            "drop_both": pair.drop_both,
        }
        effect_cells = {
            "beyond": pair.beyond,
            "kind": pair.kind,
            "fills": pair.fills,
            "probability_without": pair.probability_without,
        }
        rows.append({**what, **source_cells, **drops, **effect_cells})
    return pd.DataFrame(rows, columns=list(PAIR_COLUMNS))


def frames_table(explanation: ExplanationNumbers) -> pd.DataFrame:
    """A row for each choice, measure and frame, `FRAME_COLUMNS`."""
    words = {
        frame: source.source
        for source in explanation.sources
        if source.side == "sound"
        for frame in source.source.positions
    }
    count = len(explanation.frames)
    of_frames = {
        "frame": np.arange(count),
        "onset": explanation.frames[:, 0],
        "offset": explanation.frames[:, 1],
        "source": pd.array(
            [words[frame].index if frame in words else None for frame in range(count)],
            dtype="Int64",
        ),
        "label": [words[frame].label if frame in words else None for frame in range(count)],
    }
    tables = [
        pd.DataFrame(
            {**of_frames, "attribution": attribution.by_frame.values[choice_index]}
        ).assign(**_choice_cells(explanation, choice_index), measure=name, of=attribution.of)
        for name, attribution in explanation.attributions.items()
        if attribution.by_frame is not None
        for choice_index in range(len(explanation.choices))
    ]
    if not tables:
        return pd.DataFrame(columns=list(FRAME_COLUMNS))
    return pd.concat(tables, ignore_index=True)[list(FRAME_COLUMNS)]


def sort_sources(values: np.ndarray) -> list[int]:
    """Sources by attribution, largest first, without those that have none."""
    source_indices = np.flatnonzero(np.isfinite(values))
    order: list[int] = source_indices[np.argsort(-values[source_indices], kind="stable")].tolist()
    return order


def _source_cells(
    explanation: ExplanationNumbers, choice_index: int, index: int
) -> dict[str, object]:
    source = explanation.sources[index]
    is_own_sound = bool(explanation.own_sound[choice_index, index])
    return {
        "side": source.side,
        "source": source.source.index,
        "label": source.label,
        "own_sound": is_own_sound,
    }


def _spelling_cells(explanation: ExplanationNumbers, choice_index: int) -> dict[str, float]:
    spellings = explanation.spellings
    return {
        "spelling_margin": spellings.margin[choice_index],
        "spelling_prior": spellings.prior[choice_index],
    }


def _choice_cells(explanation: ExplanationNumbers, choice_index: int) -> dict[str, Any]:
    choice = explanation.choices[choice_index]
    return {
        "item": explanation.item,
        "written": choice.label,
        "unit": choice.unit,
        "against": choice.against,
        "foil": None if choice.contrast is None else choice.contrast.foil_label,
        "error": None if choice.error is None else explanation.errors[choice.error].kind,
        "value": explanation.values[choice_index],
        "probability": choice.probability,
    }
