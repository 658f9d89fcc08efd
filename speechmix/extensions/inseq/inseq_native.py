"""Convert a native Inseq attribution to mixing maps."""

from __future__ import annotations

import numpy as np

from ...errors import InputError
from ...inputs.words.spans import Span
from ...mixing.maps.mixing_map import MixingMap
from .inseq_attribution import InseqAttribution, from_inseq_axes


def maps_from_native_inseq(attribution: InseqAttribution) -> dict[str, MixingMap]:
    """Maps of what Inseq itself computed: rows are labelled with the token they predict, layers
    counted from 0.

    Raises
    ------
    InputError
        For scores of every dimension of the embeddings, which Inseq aggregates first.
    """
    if not attribution.has_layers and attribution.n_axes:
        raise InputError(
            "expected scores by token, (layer) and (head); these have an axis of another kind, "
            "embedding dimensions say: "
            "aggregate them in Inseq first, out.aggregate()"
        )
    measure = str(attribution.info.get("attribution_method") or "inseq")
    provenance = {
        "model": attribution.info.get("model_name") or None,
        "clip": None,
        "steps": [f"from Inseq ({measure})"],
    }
    generated = range(attribution.start, attribution.stop)
    rows = tuple(_unit(attribution.target[i], max(i - 1, 0)) for i in generated)
    sources = tuple(_unit(token, i) for i, token in enumerate(attribution.source))
    from_target = attribution.from_target
    if from_target is not None and not np.nan_to_num(from_target[-1]).any():
        from_target = from_target[:-1]  # the last token is written, and read by nobody
    input_tokens = tuple(
        _unit(token, i)
        for i, token in enumerate(
            attribution.target[: 0 if from_target is None else len(from_target)]
        )
    )
    stack_entries: list[tuple[str, np.ndarray | None, tuple[Span, ...], tuple[Span, ...]]] = [
        ("encoder", attribution.within_source, sources, sources),
        ("decoder", from_target, rows, input_tokens),
        ("cross", attribution.from_source, rows, sources),
    ]
    if attribution.from_source is not None and from_target is not None and not attribution.n_axes:
        joint_scores = np.concatenate(
            [attribution.from_source, from_target]
        )  # of the whole model, over both sides
        stack_entries = [("composed", joint_scores, rows, (*sources, *input_tokens))]
    maps = {}
    for stack, scores, targets, units in stack_entries:
        if scores is None:
            continue
        layered_scores = np.nan_to_num(scores if scores.ndim > 2 else scores[:, :, None], nan=0.0)
        layers = tuple(range(layered_scores.shape[2]))
        maps[stack] = MixingMap(
            from_inseq_axes(layered_scores),
            targets,
            units,
            measure,
            stack,
            layers,
            dict(provenance),
        )
    return maps


def _unit(token: str, position: int) -> Span:
    is_special = (token.startswith("<") and token.endswith(">")) or (
        token.startswith("[") and token.endswith("]")
    )
    return Span(position, position + 1, token, "special" if is_special else "token")
