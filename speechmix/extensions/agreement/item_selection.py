"""Which sentences of BLiMP a model is scored on, and which it is fine-tuned on.

In: a folder of paradigms, a model with its tokenizer, options. Out: `SelectedItems`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING

import pandas as pd

from ...errors import InputError
from ...inputs.clips.corpus_row import RejectedRow
from .blimp import PUBLISHED, BlimpItem, read_blimp
from .blimp_cues import load_spacy_pipeline
from .blimp_split import build_unified_set, split_halves
from .item_draws import draw_items, select_one_token_items
from .item_scoring import studied_stack

if TYPE_CHECKING:
    from ...adapters.model import Model


@dataclass(frozen=True)
class SelectedItems:
    """Sentences of a study.

    Parameters
    ----------
    scored, training : list of BlimpItem
    rejected : list of RejectedRow
        With reasons; none of them twice.
    counts : DataFrame
        Sentences of each paradigm that were read, are usable, are in the half, and were drawn.
    """

    scored: list[BlimpItem]
    training: list[BlimpItem]
    rejected: list[RejectedRow]
    counts: pd.DataFrame


def select_items(
    blimp: str | PathLike[str],
    model: Model,
    *,
    half: str,
    paradigms: Sequence[str] | None,
    unified: bool,
    split_seed: int,
    max_items: int | None,
    draw_seed: int,
    spacy: str | None,
) -> SelectedItems:
    """Select the sentences that a model can be scored on; see `agreement_study` for the options.

    Raises
    ------
    InputError
        If the model has no tokenizer, or no sentence can be used.
    """
    parse = load_spacy_pipeline(spacy) if spacy else None
    items, rejected = read_blimp(blimp, paradigms=paradigms, parse=parse)
    if model.tokenizer is None:
        raise InputError(f"{model.name} has no tokenizer, so it cannot be given text")
    all_items: list[BlimpItem | RejectedRow] = [*items, *rejected]
    train, test = split_halves(items, seed=split_seed)
    usable, multi_token_items = select_one_token_items(items, model.tokenizer)
    rejected = [*rejected, *multi_token_items]
    if studied_stack(model) == "decoder":
        late_cue_names = [item.name for item in usable if item.cue[-1] > item.target]
        reason = "a causal model cannot use it"
        rejected += [RejectedRow(name, "cue after target", reason) for name in late_cue_names]
        usable = [item for item in usable if item.cue[-1] < item.target]
    if not usable:
        raise InputError(
            f"{blimp}: of {len(items)} sentences none can be used, e.g. {rejected[0].reason}"
        )
    half_items = {"all": items, "train": train, "test": test}
    halves = {name: _select_usable(usable, members) for name, members in half_items.items()}
    if unified:
        for name in dict.fromkeys((half, "train")):
            halves[name], undrawn_items = build_unified_set(
                halves[name], paradigms=paradigms or PUBLISHED, seed=split_seed
            )
            rejected += [item for item in undrawn_items if item not in rejected]
    drawn_items = draw_items(halves[half], max_items, seed=draw_seed)
    items_by_stage: dict[str, Sequence[BlimpItem | RejectedRow]] = {
        "read": all_items,
        "usable": usable,
        half: halves[half],
        "drawn": drawn_items,
    }
    return SelectedItems(drawn_items, halves["train"], rejected, _count_by_paradigm(items_by_stage))


def _select_usable(usable: Sequence[BlimpItem], half: Sequence[BlimpItem]) -> list[BlimpItem]:
    half_names = {item.name for item in half}
    return [item for item in usable if item.name in half_names]


def _count_by_paradigm(
    items_by_stage: dict[str, Sequence[BlimpItem | RejectedRow]],
) -> pd.DataFrame:
    paradigms = {
        name: [item.name.rpartition("-")[0] for item in stage_items]
        for name, stage_items in items_by_stage.items()
    }
    counts = pd.DataFrame(
        {name: Counter(item_paradigms) for name, item_paradigms in paradigms.items()}
    )
    return counts.reindex(list(dict.fromkeys(paradigms["read"]))).fillna(0).astype(int)
