"""Compare two versions of one model: which words changed, and which layer changed them.

In: models A and B of one architecture (before and after quantisation or fine-tuning, with and without LoRA, or copies of two
engines), and clips. Out: a `ModelDifference`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd
from tqdm import tqdm

from ...errors import InputError, SpeechmixError
from ...evaluation.statistics.groups import assign_item_groups, build_item_table
from ...inputs.clips.clip import Clip
from .changed_words import find_changes
from .difference import ModelDifference
from .layer_effects import ClipEffects, measure_layer_effects
from .weight_exchange import check_comparable, find_changed_groups, list_groups

if TYPE_CHECKING:
    from ...adapters.model import Model
    from .changed_words import ClipDecisions


def diff(
    model_a: Model,
    model_b: Model,
    clips: Clip | Sequence[Clip],
    *,
    group: str | None = None,
    progress: bool = False,
) -> ModelDifference:
    """Find the words that two versions of a model write differently, and the layer and head that changed them.

    Parameters
    ----------
    model_a, model_b : Model
        Of one architecture: a Whisper or another encoder-decoder recogniser, or a CTC model. A is the reference (the float
        model, the model before fine-tuning), B the changed model.
    clips : Clip or sequence of Clip
        Recordings; their own texts are not used.
    group : str, optional
        Column of the clips' `meta` whose values are the groups of intervals; by default speakers, where there are several,
        else clips.
    progress : bool
        Show a bar.

    Returns
    -------
    ModelDifference

    Raises
    ------
    InputError
        If the models are no versions of one architecture, or no clip can be transcribed.

    Notes
    -----
    A changed word is decided where A, given what B wrote before, would write another token. Its *margin* is log p(A's token)
    - log p(B's token), in nats. Each part of B (a layer of a stack, what enters and what leaves it) gets A's weights, one at a
    time: the *effect* of a part is how far the margin rises; a positive margin turns the word back. Intervals are 95 %, from
    a bootstrap over groups of clips, at least five.

    Examples
    --------
    >>> import speechmix
    >>> from speechmix.inputs import bundled
    >>> model = speechmix.load(bundled.models()["tiny-french-ctc"])
    >>> difference = speechmix.diff(model, model, list(bundled.clips())[:2])    # synthetic
    >>> difference.named is None, len(difference.changes)
    (True, 0)
    """
    clips = [clips] if isinstance(clips, Clip) else list(clips)
    if not clips:
        raise InputError("diff needs recordings: give clips")
    check_comparable(model_a, model_b)
    groups = list_groups(model_b)
    changed = find_changed_groups(model_a, model_b, groups)
    table = build_item_table(clips)
    labels = assign_item_groups(table, clips, group)[0]
    decisions: list[ClipDecisions] = []
    effects: list[ClipEffects] = []
    clip_groups: list[str] = []
    skipped: list[tuple[str, str]] = []
    with model_a.unchanged(), model_b.unchanged():
        for clip, label in tqdm(list(zip(clips, labels, strict=True)), disable=not progress):
            try:
                of_clip = find_changes(model_a, model_b, clip)
                effects.append(measure_layer_effects(model_a, model_b, of_clip, groups, changed))
            except SpeechmixError as error:
                skipped.append((clip.name, str(error)))
                continue
            decisions.append(of_clip)
            clip_groups.append(str(label))
    if not decisions:
        raise InputError(f"no clip could be compared; the first: {skipped[0][1]}")
    return ModelDifference(
        model_a.name,
        model_b.name,
        tuple(groups),
        frozenset(changed),
        tuple(decisions),
        tuple(effects),
        tuple(pd.factorize(pd.Series(clip_groups))[0].tolist()),
        tuple(skipped),
        {"weights_a": model_a.fingerprint, "weights_b": model_b.fingerprint},
    )
