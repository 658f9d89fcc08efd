"""Does cross-attention rank the words of the sound as their effects of removal do?

In: a speech model with cross-attention, a clip with word times. Out: rank correlations, for each head
and for the mean over heads. For each written word t and each word s of the sound,

    weight[t, s] = attention of t's tokens on the frames of s, mean over tokens
    effect[t, s] = log p(t) - log p(t | s muted)
    r            = Spearman(weight[t, :], effect[t, :]), mean over t
"""

from __future__ import annotations

import warnings

import numpy as np
from torch import Tensor

from ...adapters.model import Model
from ...adapters.transformers_types import ModelOutput
from ...alignment.whisper_attention import read_text_attention
from ...inputs.clips.clip import Clip
from ...interventions.decision import Decision
from ...interventions.removals import SOUND, Removal
from ...interventions.runner import NO_REMOVAL, run_interventions
from ...mixing.measures.token_objectives import token_logits

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
