"""Reliability of attribution for classifiers of speech: agreement of seeds and of measures, by frame
and by word, as a preset.

Source: Shen, Mohebbi, Bisazza, Alishahi and Chrupała 2025, On the reliability of feature attribution
methods for speech classification, Interspeech (arXiv:2505.16406), and its published code. A measure
is reliable if models that were trained alike but for the seed get the same attributions for the same
clip (inter-seed agreement). The study finds this for perturbation that is aligned to words, in tasks
of words, and hardly elsewhere.

As published: the explained number is the logit of the clip's true label; perturbation puts digital
silence in place of frames or of aligned words; attributions of frames are averaged over the frames
of a word; models differ by the seed of their training.
Not as published: the measures are those of this package (of theirs feature ablation is
"occlusion"; integrated gradients and gradients are taken at the states that enter the first layer,
in absolute value, and not at the waveform or spectrogram; LIME and signed saliency are missing).
Frames are the model's own and not 10 ms. Which correlation the study takes could not be read, so
there are two. The agreement of measures with each other is an addition.

Sanity checks of measures: randomized layers and models of other seeds.

Layers randomised from the top down; and do models of other training seeds agree?

Cascading randomisation (Adebayo et al. 2018, Sanity Checks for Saliency Maps, NeurIPS): the layers
of a copy get the weights of a random twin, one after the other from the last to the first, then
everything else. At each step every measure's maps are compared with those of the trained model. A
measure whose maps stay the same is not reading what was exchanged; the last step is the twin
itself, exactly.

Agreement of models trained from several seeds (as the MultiBERTs, Sellam et al. 2022): what of a
map is the task's, and what the draw's.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from ...adapters.loading.load import load
from ...errors import InputError
from ...evaluation.statistics.intervals import CORRELATION_BOUNDS, mean_interval
from ...interventions.decision import Decision
from ...mixing.maps.numerics import normalize_rows
from ...mixing.passes.item_view import segment_item
from ...mixing.passes.mix import mix_one
from ..explain.removals import score_words_by_removal
from ..logit_decompositions.input_attribution import input_attributions
from .output_scores import is_removal_measure

if TYPE_CHECKING:
    from torch.nn import Module

    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip
    from ...inputs.sentences.sentence import Sentence
    from ...mixing.maps.map_set import Maps
    from ...mixing.maps.mixing_map import MixingMap

RELIABILITY_MEASURES = ("occlusion", "gradient_input", "integrated_gradients")
FRAME, FRAMES_OF_WORDS, WHOLE_WORDS = "frame", "mean of a word's frames", "word"
_FILL = "zeros"  # digital silence, the published baseline
_MIN_VALUES = 3  # that a correlation needs
_KEYS = ["agreement", "level", "measure", "other"]


def attribution_reliability(
    models: Sequence[Model],
    clips: Sequence[Clip],
    *,
    measures: Sequence[str] = RELIABILITY_MEASURES,
) -> pd.DataFrame:
    """Correlate attributions of a label between models of other seeds, and between measures.

    Parameters
    ----------
    models : sequence of Model
        At least two classifiers of sound that differ by the seed of their training.
    clips : sequence of Clip
        With words and times (at least three words for numbers by word). ``meta["label"]`` is the
        label that is explained (or its number); without it, the one that the first model gives.
    measures : sequence of str
        "occlusion", "shapley", and measures of one number or of scope "logit". "shapley" by frame
        takes thousands of runs a clip.

    Returns
    -------
    DataFrame
        One row for each agreement ("seeds" of one measure, or "measures" of one model), level
        ("frame"; "mean of a word's frames"; "word", where a removal measure takes whole words
        away), measure and other measure: pearson, spearman (means over pairs of models, or models,
        and over clips; NaN where attributions do not vary), low, high (95 % of pearson over clips),
        clips. Scores of different numbers of frames are not compared.

    Raises
    ------
    InputError
        For fewer than two models, a model without labels, no clips, or a clip without word times.

    Examples
    --------
    >>> models = [speechmix.load(f"emotion-seed-{seed}") for seed in (0, 1, 2)]           # doctest: +SKIP
    >>> print(attribution_reliability(models, clips))                                     # doctest: +SKIP
    """
    unfit = [model.name for model in models if not (model.hears and model.has_label_head)]
    wordless = [clip.name for clip in clips if not clip.words]
    if len(models) < 2 or not clips or not measures or unfit or wordless:
        raise InputError(
            "expected two classifiers of sound or more, and clips with word times; found "
            f"{len(models)} models, of which no such classifiers: {', '.join(unfit) or 'none'}; "
            f"{len(clips)} clips, without words: {', '.join(wordless) or 'none'}; "
            f"{len(measures)} measures"
        )
    rows = [
        {"clip": index, **row}
        for index, clip in enumerate(clips)
        for row in _clip_agreements(models, clip, measures)
    ]
    return _mean_over_clips(pd.DataFrame(rows))


class _Scores(NamedTuple):
    """Attributions of the units of one clip by one model, measure and level."""

    model: int
    measure: str
    level: str
    values: np.ndarray


def _clip_agreements(
    models: Sequence[Model], clip: Clip, measures: Sequence[str]
) -> Iterator[dict[str, object]]:
    label = clip.meta.get("label") or Decision.prepare(models[0], clip).objective.details["label"]
    scores = [
        _Scores(index, measure, level, values)
        for index, model in enumerate(models)
        for measure in measures
        for level, values in _levels(model, clip, measure, label)
    ]
    for first, second in itertools.combinations(scores, 2):
        if first.level != second.level or len(first.values) != len(second.values):
            continue
        is_seed_pair = first.measure == second.measure
        if is_seed_pair == (first.model == second.model):  # neither alone differs
            continue
        kind = "seeds" if is_seed_pair else "measures"
        keys = (kind, first.level, first.measure, second.measure)
        yield {**dict(zip(_KEYS, keys, strict=True)), **_correlations(first.values, second.values)}


def _levels(model: Model, clip: Clip, measure: str, label: str) -> Iterator[tuple[str, np.ndarray]]:
    """Attributions [F] of the clip's frames, [W] of its words by their frames, and of whole words."""
    if is_removal_measure(measure):
        in_frames = segment_item(model, clip, "frames")
        centres = np.array([(word.start + word.end) / 2 for word in in_frames.words or ()])
        frames = _removal_scores(model, in_frames, measure, label)
        yield WHOLE_WORDS, _removal_scores(model, clip, measure, label)
    else:
        columns, _ = input_attributions(model, clip, measure, [[(label,)]], units="frame")
        spans, values = columns["encoder"]
        middles = [((span.onset or 0.0) + (span.offset or 0.0)) / 2 for span in spans]
        is_heard = np.array(middles) < clip.duration  # not what a fixed window adds
        centres, frames = np.array(middles)[is_heard], values[0][is_heard]
    yield FRAME, frames
    yield (
        FRAMES_OF_WORDS,
        np.array([_mean_within(frames, centres, word.intervals) for word in clip.words or ()]),
    )


def _removal_scores(model: Model, clip: Clip, measure: str, label: str) -> np.ndarray:
    decision = Decision.prepare(model, clip, objective=(label,))
    scores = score_words_by_removal(decision, measure, side="sound", fill=_FILL)
    return np.array([scores[index] for index in sorted(scores)])


def _mean_within(
    frames: np.ndarray, centres: np.ndarray, intervals: Sequence[tuple[float, float]]
) -> float:
    is_inside = np.any([(start <= centres) & (centres < end) for start, end in intervals], axis=0)
    return float(frames[is_inside].mean()) if is_inside.any() else float("nan")


def _correlations(first: np.ndarray, second: np.ndarray) -> dict[str, float]:
    from scipy.stats import pearsonr, spearmanr

    is_finite = np.isfinite(first) & np.isfinite(second)
    first, second = first[is_finite], second[is_finite]
    if len(first) < _MIN_VALUES or not (np.ptp(first) > 0 and np.ptp(second) > 0):
        return {"pearson": float("nan"), "spearman": float("nan")}
    return {
        "pearson": float(pearsonr(first, second)[0]),
        "spearman": float(spearmanr(first, second)[0]),
    }


def _mean_over_clips(table: pd.DataFrame) -> pd.DataFrame:
    """Average over pairs of models in each clip, then over clips, with intervals over clips."""
    values = ["pearson", "spearman"]
    by_clip = table.groupby([*_KEYS, "clip"], sort=False)[values].mean().reset_index()
    rows = []
    for key, agreements in by_clip.groupby(_KEYS, sort=False):
        low, high = mean_interval(agreements["pearson"], bounds=CORRELATION_BOUNDS)
        row: dict[str, object] = dict(zip(_KEYS, key, strict=True))
        row.update({name: float(agreements[name].mean()) for name in values})
        rows.append({**row, "low": low, "high": high, "clips": int(agreements["pearson"].count())})
    return pd.DataFrame(rows)


NO_LAYER, ALL_LAYERS_STEP = "nothing", "everything"
_STACKS_FROM_TOP = (
    "decoder",
    "encoder",
)  # stacks from the top down; cross-attention lies in the decoder's layers


def cascading_randomisation(
    model: Model,
    items: Iterable[Clip | Sentence],
    *,
    measures: Sequence[str] = ("value_zeroing", "attention", "attention_norm"),
    seed: int = 0,
) -> pd.DataFrame:
    """Rank correlation of a model's maps with themselves while its layers are randomised from the
    top down.

    Parameters
    ----------
    model : Model
        Trained; it stays as it is, a copy is randomised.
    items : iterable of Clip or Sentence
    measures : sequence of str
    seed : int
        Of the random twin.

    Returns
    -------
    DataFrame
        One row for each step, measure and stack: step (from 0), randomised ("nothing", "decoder 2",
        ..., "everything"), measure, stack, rho (Spearman over the cells of a layer without the
        diagonal, mean over layers and items), low, high (95 % over items), items.

    Raises
    ------
    InputError
        If there are no items, or `random` is among the measures, which reads no weights.
    """
    items = list(items)
    if not items or "random" in measures:
        raise InputError(
            f"expected items, and measures that read the model; found {len(items)} items, "
            f"{list(measures)}"
        )
    original_maps = [mix_one(model, item, measures=measures) for item in items]
    rows = [
        {"step": step, "randomised": name, "item": index, **agreement}
        for step, (name, randomised_model) in enumerate(randomised_copies(model, seed=seed))
        for index, (item, item_maps) in enumerate(zip(items, original_maps, strict=True))
        for agreement in _map_agreements(
            item_maps, mix_one(randomised_model, item, measures=measures)
        )
    ]
    return _mean_agreements(pd.DataFrame(rows), ["step", "randomised", "measure", "stack"])


def randomised_copies(model: Model, *, seed: int = 0) -> Iterator[tuple[str, Model]]:
    """Yield a copy of a model whose layers are replaced by those of a random twin, from the last to
    the first.

    Parameters
    ----------
    model : Model
        It stays as it is.
    seed : int
        Of the twin.

    Yields
    ------
    str, Model
        What was randomised now, from "nothing" to "everything", and the copy, which the next step
        changes.
    """
    twin = load(model.module, init="random", seed=seed, check=False)
    randomised = replace(model, module=copy.deepcopy(model.module))
    yield NO_LAYER, randomised
    for stack in [name for name in _STACKS_FROM_TOP if name in model.stacks]:
        for index in reversed(range(len(model.stacks[stack]))):
            layers = (which.stacks[stack].layers[index].module for which in (randomised, twin))
            _copy_weights(*layers)
            yield f"{stack} {index}", randomised
    _copy_weights(randomised.module, twin.module)
    yield ALL_LAYERS_STEP, randomised


def seed_agreement(
    models: Sequence[Model],
    items: Iterable[Clip | Sentence],
    *,
    measures: Sequence[str] = ("value_zeroing", "attention", "attention_norm"),
) -> pd.DataFrame:
    """Rank correlation between the maps of models that differ by their training seed.

    Parameters
    ----------
    models : sequence of Model
        At least two, of one architecture.
    items : iterable of Clip or Sentence
    measures : sequence of str

    Returns
    -------
    DataFrame
        One row for each measure and stack: rho (as in `cascading_randomisation`, mean over pairs of
        models, layers and items), low, high (95 % over items), items, pairs.

    Raises
    ------
    InputError
        If there are fewer than two models, or they have other stacks or layers.
    """
    shapes = {tuple((name, len(stack)) for name, stack in model.stacks.items()) for model in models}
    items = list(items)
    if len(models) < 2 or len(shapes) != 1 or not items:
        raise InputError(
            f"expected items and at least two models of one architecture; found {len(items)} "
            f"items, {len(models)} models "
            f"with {len(shapes)} shapes"
        )
    rows = []
    for index, item in enumerate(items):
        maps = [mix_one(model, item, measures=measures) for model in models]
        for first_map, second_map in itertools.combinations(maps, 2):
            rows += [
                {"item": index, **agreement} for agreement in _map_agreements(first_map, second_map)
            ]
    pairs = len(models) * (len(models) - 1) // 2
    return _mean_agreements(pd.DataFrame(rows), ["measure", "stack"]).assign(pairs=pairs)


def map_agreement(first_map: MixingMap, second_map: MixingMap) -> float:
    """Return the Spearman correlation of the shares of two maps without the diagonal, mean over
    layers; NaN if no layer varies.

    Raises
    ------
    InputError
        If the maps have other shapes.
    """
    from scipy.stats import spearmanr

    if first_map.scores.shape != second_map.scores.shape:
        raise InputError(
            f"maps of one shape expected, found {first_map.scores.shape} and "
            f"{second_map.scores.shape}"
        )
    shares = [
        normalize_rows(mixing_map.mean_heads().scores.astype(float))
        for mixing_map in (first_map, second_map)
    ]
    rows, columns = shares[0].shape[-2:]
    is_cell = np.ones((rows, columns), bool)
    if first_map.stack != "cross":
        is_cell = (
            np.tril(is_cell, -1)
            if first_map.stack == "decoder"
            else ~np.eye(rows, columns, dtype=bool)
        )
    pairs = [(a[is_cell], b[is_cell]) for a, b in zip(*shares, strict=True)]
    rhos = [spearmanr(a, b)[0] for a, b in pairs if len(a) > 2 and np.ptp(a) > 0 and np.ptp(b) > 0]
    return float(np.mean(rhos)) if rhos else float("nan")


def _copy_weights(module: Module, source_module: Module) -> None:
    module.load_state_dict(source_module.state_dict())


def _map_agreements(first_maps: Maps, second_maps: Maps) -> Iterator[dict[str, object]]:
    for measure, stack in first_maps:
        yield {
            "measure": measure,
            "stack": stack,
            "rho": map_agreement(first_maps[measure, stack], second_maps[measure, stack]),
        }


def _mean_agreements(table: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Average over items, with intervals; pairs of models are averaged for each item first."""
    by_item = table.groupby([*by, "item"], sort=False)["rho"].mean().reset_index()
    rows = []
    for key, item_agreements in by_item.groupby(by, sort=False):
        low, high = mean_interval(item_agreements["rho"], bounds=CORRELATION_BOUNDS)
        keys = dict(zip(by, key, strict=True))
        rows.append(
            {
                **keys,
                "rho": item_agreements["rho"].mean(),
                "low": low,
                "high": high,
                "items": int(item_agreements["rho"].count()),
            }
        )
    return pd.DataFrame(rows)
