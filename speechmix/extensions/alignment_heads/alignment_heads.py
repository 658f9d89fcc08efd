"""Choose the heads of cross-attention whose attention tells word times best.

In: a speech model with cross-attention, and clips with word times. Out: `AlignmentHeads`: the error of
each head, the chosen set beside the default and random sets on other clips, and how far attention
ranks words as their effects of removal do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from ...adapters.model import Model
from ...alignment.whisper_attention import named_heads
from ...errors import InputError, SpeechmixError
from ...evaluation.statistics.groups import (
    assign_item_groups,
    build_item_table,
    choose_evenly,
    describe_groups,
)
from ...evaluation.statistics.intervals import bootstrap_interval
from ...files.json_files import JsonObject
from ...inputs.clips.clip import Clip
from .attention_effects import MIN_SOURCES, correlate_with_effects
from .head_boundaries import EvidenceStore, select_heads
from .head_choice import AlignmentHeads

MIN_CLIPS = 4
_MAX_CANDIDATES = 20  # best single heads, of which a set is chosen
_RANDOM_SETS = 20


def alignment_heads(
    model: Model,
    clips: Sequence[Clip],
    *,
    max_heads: int = 10,
    effect_clips: int = 10,
    group: str | None = None,
    seed: int = 0,
    progress: bool = False,
) -> AlignmentHeads:
    """Choose the cross-attention heads that place words best, and test them on other clips.

    Parameters
    ----------
    model : Model
        A speech model with cross-attention and its tokenizer: Whisper, also fine-tuned, Moonshine,
        Speech2Text and others.
    clips : sequence of Clip
        With word times, at least four. Others are skipped.
    max_heads : int
        Largest number of heads of the set.
    effect_clips : int
        Number of clips whose words are also muted, to compare attention with effects of removal; 0
        for none. Each word of a clip costs one run.
    group : str, optional
        A column of the clips' `meta` that says which belong together; by default speakers, or pair,
        sentence and target word.
    seed : int
        Decides which half of the clips the heads are chosen on, and the random sets.
    progress : bool
        Show a bar over clips.

    Returns
    -------
    AlignmentHeads
        Errors are mean absolute errors of word starts and ends, in ms. Intervals (95 %) are
        bootstrapped over groups of clips.

    Raises
    ------
    InputError
        If the model has no cross-attention on sound, or fewer than four clips can be used.

    Notes
    -----
    Heads are added one after the other, out of the 20 best single heads, each time the one that makes
    the error on one half of the clips smallest. The other half is used for the comparison alone.

    Examples
    --------
    >>> import speechmix
    >>> from speechmix.inputs import bundled
    >>> model = speechmix.load("bundled:tiny-french-whisper")
    >>> heads = speechmix.alignment_heads(model, bundled.clips()[:12], effect_clips=0)
    >>> len(heads.to_dataframe()), heads.comparison["set"].tolist()
    (12, ['chosen', 'default', 'random'])
    """
    if "cross" not in model.stacks or not model.hears:
        raise InputError(
            f"{model.label} has no cross-attention on sound: give an encoder-decoder speech model, "
            "such as a Whisper"
        )
    if max_heads < 1:
        raise InputError(f"max_heads should be at least 1, found {max_heads}")
    store, skipped = EvidenceStore(model), list[tuple[str, str]]()
    counts, default_sets = list[int](), list[list[int]]()
    head_count = model.stacks["cross"].heads
    n_heads = head_count * len(model.stacks["cross"])
    singles, single_sums = [[head] for head in range(n_heads)], []
    for clip in tqdm(clips, unit="clip", disable=not progress):
        try:
            evidence = store.add(clip)
        except SpeechmixError as error:
            skipped.append((clip.name, str(error)))
            continue
        counts.append(evidence.times.size)
        default_sets.append(evidence.default_heads)
        single_sums.append(evidence.boundary_errors(singles).sum((1, 2)))
    if len(store.clips) < MIN_CLIPS:
        reasons = "".join(f"; {name}: {reason}" for name, reason in skipped[:3])
        raise InputError(
            f"{len(store.clips)} clips can be used, at least {MIN_CLIPS} are needed: give clips with "
            f"word times that do not come from a Whisper (words=, or speechmix.align){reasons}"
        )
    sums, groups = np.stack(single_sums, axis=1), _group_clips(store.clips, group)
    is_selection = _split(groups, seed)
    selection, test = np.flatnonzero(is_selection), np.flatnonzero(~is_selection)
    candidates = np.argsort(sums[:, selection].sum(1), kind="stable")[:_MAX_CANDIDATES].tolist()
    chosen_heads = select_heads(store, selection.tolist(), candidates, max_heads)
    rng = np.random.default_rng(seed)
    random_sets = [
        rng.choice(n_heads, len(chosen_heads), replace=False).tolist() for _ in range(_RANDOM_SETS)
    ]
    test_sums = []
    for index in test.tolist():
        head_sets = [chosen_heads, default_sets[index], *random_sets]
        set_sums = store.sum_errors([index], head_sets)[:, 0]
        test_sums.append([*set_sums[:2], set_sums[2:].mean()])
    boundary_counts = np.array(counts)
    comparison = _compare_sets(
        np.array(test_sums).T, boundary_counts[test], groups[test], default_sets[0], chosen_heads
    )
    table = pd.DataFrame(
        {
            "layer": np.arange(n_heads) // head_count,
            "head": np.arange(n_heads) % head_count,
            "error": sums.sum(1) / boundary_counts.sum(),
            **_limits("error", sums, boundary_counts, groups),
            "chosen": np.isin(np.arange(n_heads), chosen_heads),
        }
    )
    usable = [i for i, clip in enumerate(store.clips) if len(clip.words or ()) >= MIN_SOURCES]
    used = choose_evenly(usable, effect_clips) if effect_clips > 0 and model.has_head else []
    correlations = dict[int, np.ndarray]()
    for index in tqdm(used, unit="clip", desc="effects", disable=not progress):
        try:
            correlations[index] = correlate_with_effects(model, store.clips[index])
        except SpeechmixError as error:
            skipped.append((store.clips[index].name, f"effects of removal: {error}"))
    mean_correlation = _add_correlations(table, correlations, groups)
    generation_config = getattr(model.module, "generation_config", None)
    provenance: JsonObject = {
        "model": model.name,
        "init": model.init,
        "seed": seed,
        "clips": len(store.clips),
        "selection_clips": len(selection),
        "test_clips": len(test),
        "effect_clips": len(correlations),
        "grouping": _describe_groups(store.clips, groups, group),
        "default": "named" if named_heads(model) else "by clip",
    }
    return AlignmentHeads(
        table,
        comparison,
        mean_correlation,
        tuple(skipped),
        provenance,
        generation_config.to_diff_dict() if generation_config is not None else {},
    )


def _group_clips(clips: Sequence[Clip], group: str | None = None) -> np.ndarray:
    """Number of the group of each clip; each clip by itself if all would be in one."""
    names, _ = assign_item_groups(build_item_table(clips), clips, group)
    numbers = pd.factorize(names)[0]
    return numbers if numbers.max() > 0 else np.arange(len(clips))


def _describe_groups(clips: Sequence[Clip], groups: np.ndarray, group: str | None) -> str:
    table = build_item_table(clips)
    _, ties = assign_item_groups(table, clips, group)
    is_tied = len(np.unique(groups)) < len(clips)
    return describe_groups(table.assign(group=groups), ties if is_tied else "")


def _split(groups: np.ndarray, seed: int) -> np.ndarray:
    """Whether heads are chosen on a clip [clips]: about half of the clips, in whole groups."""
    order = np.random.default_rng(seed).permutation(groups.max() + 1)
    sizes = np.bincount(groups)[order].cumsum()
    n_selected = 1 + int(np.abs(sizes[:-1] - len(groups) / 2).argmin())
    return np.isin(groups, order[:n_selected])


def _interval(
    sums: np.ndarray, counts: np.ndarray, groups: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Interval of sums [..., clips] / counts [..., clips], over groups of clips."""
    is_member = (groups[:, None] == np.unique(groups)).astype(float)
    return bootstrap_interval(sums @ is_member, counts @ is_member)


def _limits(
    name: str, sums: np.ndarray, counts: np.ndarray, groups: np.ndarray
) -> dict[str, np.ndarray]:
    low, high = _interval(sums, counts, groups)
    return {f"{name}_low": low, f"{name}_high": high}


def _compare_sets(
    sums: np.ndarray,
    counts: np.ndarray,
    groups: np.ndarray,
    default_heads: Sequence[int],
    chosen_heads: Sequence[int],
) -> pd.DataFrame:
    """Errors of the chosen, default and random sets [3, clips], and differences to the chosen."""
    differences = sums - sums[0]
    table = pd.DataFrame(
        {
            "set": ["chosen", "default", "random"],
            "heads": [len(chosen_heads), len(default_heads), len(chosen_heads)],
            "error": sums.sum(1) / counts.sum(),
            **_limits("error", sums, counts, groups),
            "difference": differences.sum(1) / counts.sum(),
            **_limits("difference", differences, counts, groups),
        }
    )
    table.loc[0, ["difference", "difference_low", "difference_high"]] = np.nan
    return table


def _add_correlations(
    table: pd.DataFrame, correlations: Mapping[int, np.ndarray], groups: np.ndarray
) -> tuple[float, float, float]:
    """Add the correlation with effects of each head, mean over clips; return that of the mean over
    heads, low, high."""
    if not correlations:
        return np.nan, np.nan, np.nan
    coefficients = np.stack(list(correlations.values()), axis=1)
    is_known = np.isfinite(coefficients).astype(float)
    sums = np.nan_to_num(coefficients)
    low, high = _interval(sums, is_known, groups[list(correlations)])
    with np.errstate(invalid="ignore"):
        mean = sums.sum(1) / is_known.sum(1)
    for name, values in (("", mean), ("_low", low), ("_high", high)):
        table[f"correlation{name}"] = values[:-1]
    return float(mean[-1]), float(low[-1]), float(high[-1])
