"""Choose the heads of cross-attention whose attention tells word times best.

In: a speech model with cross-attention, and clips with word times. Out: `AlignmentHeads`: the error of
each head, the chosen set beside the default and random sets on other clips, and how far attention
ranks words as their effects of removal do.

Does cross-attention rank the words of the sound as their effects of removal do?

In: a speech model with cross-attention, a clip with word times. Out: rank correlations, for each head
and for the mean over heads. For each written word t and each word s of the sound,

    weight[t, s] = attention of t's tokens on the frames of s, mean over tokens
    effect[t, s] = log p(t) - log p(t | s muted)
    r            = Spearman(weight[t, :], effect[t, :]), mean over t

Word boundaries by chosen heads of cross-attention, and how far they are from known word times.

In: a speech model with cross-attention, and clips with word times. Out: errors in ms, clip by clip, of
any sets of heads; the set with the smallest error. Boundaries are found as `align_by_whisper` finds
them. Attention is computed once for each clip, and again for clips that do not fit in memory.

Draw errors of word boundaries by layer and head of cross-attention.

In: `AlignmentHeads`. Out: an Axes or a Figure. Layers go downwards, heads to the right; chosen heads
have bold numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from tqdm.auto import tqdm

from ...adapters.model import Model
from ...adapters.transformers_types import ModelOutput
from ...alignment.whisper_attention import (
    choose_heads,
    head_evidence,
    named_heads,
    place_by_evidence,
    read_text_attention,
    trim_silence,
    word_rows,
)
from ...errors import AlignmentError, InputError, SpeechmixError
from ...evaluation.statistics.groups import (
    assign_item_groups,
    build_item_table,
    choose_evenly,
    describe_groups,
)
from ...evaluation.statistics.intervals import bootstrap_interval
from ...files.json_files import JsonObject
from ...inputs.audio.frame_grid import FrameGrid
from ...inputs.clips.clip import Clip
from ...interventions.decision import Decision
from ...interventions.removals import SOUND, Removal
from ...interventions.runner import NO_REMOVAL, run_interventions
from ...mixing.measures.token_objectives import token_logits
from ...reporting.plots import map_cells
from ...reporting.plots.figure_style import (
    LABEL_SIZE,
    LAYER_LABEL,
    TICK_SIZE,
    TITLE_SIZE,
    model_title,
    new_figure,
)
from .head_choice import AlignmentHeads

MIN_SOURCES = 3  # words that a rank correlation needs


def correlate_with_effects(model: Model, clip: Clip, *, fill: str = "zeros") -> np.ndarray:
    """Correlate attention weights of one clip with effects of removal.

    Parameters
    ----------
    model : Model
        With its head.
    clip : Clip
        With at least three words with times.
    fill : str
        What replaces a word's sound, as in `speechmix.mute`.

    Returns
    -------
    ndarray [L H + 1]
        For each head, and for the mean over heads; NaN where nothing varies.
    """
    clip = clip.replace(cue=None, target=None, foil=None)
    attention = read_text_attention(model, clip)
    decision = Decision.prepare(model, clip, objective=lambda output: token_logits(output).sum())
    sources = decision.sources["cross"]
    rows = [row for row, owner in enumerate(attention.owners) if owner is not None]
    owners = np.array([attention.owners[row] for row in rows])
    positions = [attention.first_position + row for row in rows]
    ids = decision.prepared.inputs["decoder_input_ids"][0, np.array(positions) + 1].tolist()

    def read_tokens(output: ModelOutput) -> Tensor:
        scores = token_logits(output)[:, positions].log_softmax(dim=-1)
        return scores[:, range(len(ids)), ids]

    removals = [(Removal(SOUND, (source.index,), fill),) for source in sources]
    intact, *muted = run_interventions(decision, [NO_REMOVAL, *removals], reader=read_tokens)
    n_frames = attention.weights.shape[2]
    word_weights = np.stack(
        [
            attention.weights[..., [i for i in source.positions if i < n_frames]].sum(-1)
            for source in sources
        ],
        axis=-1,
    )[:, rows]  # [L H, tokens, sources]
    word_weights = np.concatenate([word_weights, word_weights.mean(0, keepdims=True)])
    targets = np.unique(owners)
    weights = np.stack([word_weights[:, owners == word].mean(1) for word in targets], axis=1)
    drops = intact - np.array(muted)  # [sources, tokens]
    effects = np.stack([drops[:, owners == word].sum(1) for word in targets])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # heads whose weights do not vary
        correlations: np.ndarray = np.nanmean(_rank_correlation(weights, effects), axis=1)
    return correlations


def _rank_correlation(scores: np.ndarray, effects: np.ndarray) -> np.ndarray:
    """Spearman's r over the last axis; NaN where one of both does not vary."""
    from scipy.stats import rankdata

    ranks = [rankdata(values, axis=-1) for values in (scores, effects)]
    a, b = (rank - rank.mean(-1, keepdims=True) for rank in ranks)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation: np.ndarray = (a * b).sum(-1) / np.sqrt((a**2).sum(-1) * (b**2).sum(-1))
    return correlation


Heads = Sequence[int]  # indices among all [L H]

_MEMORY_BYTES = 2**30  # of evidence that is stored
_MAX_SETS = 64  # that are placed together


@dataclass(frozen=True, eq=False)
class ClipEvidence:
    """What word boundaries of a clip are found with.

    Parameters
    ----------
    evidence : array [L H, rows, frames]
        See `head_evidence`.
    rows : list of (int, int)
        First and last row of each word.
    times : array [W, 2]
        Known start and end of each word, in seconds.
    duration : float
        Seconds.
    grid : FrameGrid
    is_loud : bool array [frames]
    default_heads : list of int
        Those that `align_by_whisper` averages.
    """

    evidence: np.ndarray
    rows: list[tuple[int, int]]
    times: np.ndarray
    duration: float
    grid: FrameGrid
    is_loud: np.ndarray
    default_heads: list[int]

    @cached_property
    def edge_seconds(self) -> np.ndarray:
        """Seconds at the edges of frames [frames + 1]."""
        edges = [self.grid.frame_times(edge, edge)[0] for edge in range(len(self.is_loud) + 1)]
        return np.minimum(edges, self.duration)

    def boundary_errors(self, head_sets: Sequence[Heads]) -> np.ndarray:
        """Return the absolute errors of starts and ends [sets, W, 2] in ms, for each set of heads."""
        first, last = np.array(self.rows).T
        errors = []
        for start in range(0, len(head_sets), _MAX_SETS):
            chunk = head_sets[start : start + _MAX_SETS]
            means = np.stack([self.evidence[list(heads)].mean(0) for heads in chunk])
            edges = place_by_evidence(means, self.is_loud)
            frames = trim_silence(edges[:, first], edges[:, last + 1], self.is_loud)
            seconds = np.stack([self.edge_seconds[frame] for frame in frames], axis=-1)
            errors.append(1000 * np.abs(seconds - self.times))
        return np.concatenate(errors)


class EvidenceStore:
    """Evidence of clips: in memory as far as it fits, else computed when it is needed."""

    def __init__(self, model: Model, memory_bytes: int = _MEMORY_BYTES):
        self._model, self._free_bytes = model, memory_bytes
        self._stored: dict[int, ClipEvidence] = {}
        self.clips: list[Clip] = []

    def add(self, clip: Clip) -> ClipEvidence:
        """Add a clip and return its evidence.

        Raises
        ------
        InputError, AlignmentError
            If its words have no known times, or their boundaries cannot be found.
        """
        evidence = self._compute(clip)
        self.clips.append(clip)
        if evidence.evidence.nbytes <= self._free_bytes:
            self._free_bytes -= evidence.evidence.nbytes
            self._stored[len(self.clips) - 1] = evidence
        return evidence

    def load_evidence(self, index: int) -> ClipEvidence:
        """Return the evidence of a clip."""
        return self._stored.get(index) or self._compute(self.clips[index])

    def sum_errors(self, clip_indices: Sequence[int], head_sets: Sequence[Heads]) -> np.ndarray:
        """Return the sum of boundary errors [sets, clips] in ms."""
        return np.stack(
            [self.load_evidence(i).boundary_errors(head_sets).sum((1, 2)) for i in clip_indices], 1
        )

    def _compute(self, clip: Clip) -> ClipEvidence:
        if not clip.words:
            raise InputError("it has no word times: give words=")
        if clip.alignment == "whisper":
            raise InputError("its word times come from a Whisper's attention, which is measured")
        attention = read_text_attention(self._model, clip)
        evidence = head_evidence(attention.weights).astype(np.float32)
        if not np.isfinite(evidence).all():
            raise AlignmentError("its attention has values that are not finite")
        return ClipEvidence(
            evidence,
            word_rows(attention.owners, [word.text for word in clip.words]),
            np.array([(word.start, word.end) for word in clip.words]),
            clip.duration,
            attention.grid,
            attention.is_loud,
            choose_heads(self._model, attention.weights),
        )


def select_heads(
    store: EvidenceStore, clip_indices: Sequence[int], candidates: Heads, max_count: int
) -> list[int]:
    """Add one head after the other, each time the one that makes the error of the set smallest.

    Returns
    -------
    list of int
        The first heads that were added, as many as have the smallest error.
    """
    head_indices: list[int] = []
    errors: list[float] = []
    while len(head_indices) < min(max_count, len(candidates)):
        others = [head for head in candidates if head not in head_indices]
        sums = store.sum_errors(clip_indices, [[*head_indices, head] for head in others]).sum(1)
        head_indices.append(others[int(sums.argmin())])
        errors.append(float(sums.min()))
    return sorted(head_indices[: int(np.argmin(errors)) + 1])


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


_LABELS = {
    "error": "error of word boundaries (ms)",
    "correlation": "rank correlation with effects",
}
_MAX_NUMBERS = 300  # cells, above which numbers are too small to read


def alignment_head_map(
    heads: AlignmentHeads, value: str = "error", *, ax: Axes | None = None
) -> Axes:
    """Draw one value of each head.

    Parameters
    ----------
    heads : AlignmentHeads
    value : {"error", "correlation"}
    ax : Axes, optional
        Default: a new figure of pyplot.

    Returns
    -------
    Axes
    """
    matrix, is_chosen = (
        heads.table.pivot(index="layer", columns="head", values=name).to_numpy()
        for name in (value, "chosen")
    )
    values = np.ma.masked_invalid(matrix.astype(float))
    width, height = _panel_inches(matrix.shape)
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.figure(
            figsize=(width, height), layout="constrained", facecolor="white"
        ).subplots()
    is_error = value == "error"
    limits = (0.0, float(values.max())) if is_error else map_cells.limits_around_zero([values])
    colors = map_cells.SHARE_COLORS if is_error else map_cells.DIFFERENCE_COLORS
    cells = map_cells.draw_cells(ax, values, limits=limits, cmap=colors)
    ax.set_aspect("auto")
    if values.size <= _MAX_NUMBERS:
        map_cells.write_numbers(
            ax, cells, values, is_bold=is_chosen.astype(bool), decimals=0 if is_error else 2
        )
    for ticks, size in ((ax.set_xticks, matrix.shape[1]), (ax.set_yticks, matrix.shape[0])):
        labelled = range(0, size, 1 + size // 32)
        ticks(np.array(labelled) + 0.5, [str(index) for index in labelled], size=TICK_SIZE)
    ax.set_xlabel("head", size=LABEL_SIZE)
    ax.set_ylabel(LAYER_LABEL, size=LABEL_SIZE)
    map_cells.add_color_bar(
        ax.figure, cells, ax, values=[values], label=_LABELS[value], inches=height - 0.9
    )
    return ax


def alignment_head_figure(heads: AlignmentHeads) -> Figure:
    """Draw errors, and beside them correlations with effects of removal if they were measured."""
    values = [value for value in _LABELS if value in heads.table]
    shape = heads.table["layer"].nunique(), heads.table["head"].nunique()
    width, height = _panel_inches(shape)
    figure = new_figure(width * len(values), height + 0.3)
    for ax, value in zip(figure.subplots(1, len(values), squeeze=False)[0], values, strict=True):
        alignment_head_map(heads, value, ax=ax)
    figure.suptitle(
        f"{model_title(heads.provenance)}: heads of cross-attention, chosen ones bold",
        size=TITLE_SIZE,
        parse_math=False,
    )
    return figure


def _panel_inches(shape: tuple[int, ...]) -> tuple[float, float]:
    """Width and height of a panel with its labels."""
    return max(0.4 * shape[1], 1.6) + 1.4, max(0.24 * shape[0], 1.2) + 0.9
