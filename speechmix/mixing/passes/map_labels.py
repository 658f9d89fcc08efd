"""Labels and provenance of finished maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...adapters.model import Model
from ...errors import InputError
from ...files.json_files import JsonObject
from ...files.versions import versions
from ...inputs.words.spans import Span
from ..maps.mixing_map import MixingMap
from ..measures.availability import mixing_between_layers
from ..measures.measure import Measure
from .item_view import View
from .precision import Precision
from .request import MixRequest
from .score_collection import HostScores

# Fields of a map behind its scores: targets, sources, measure, stack, layers, provenance, strength.
MapLabels = tuple[
    tuple[Span, ...], tuple[Span, ...], str, str, tuple[int, ...], JsonObject, np.ndarray | None
]


def make_maps(
    view: View,
    host_scores: HostScores,
    provenance: JsonObject,
    layers: Mapping[str, tuple[int, ...]],
    measures: Sequence[Measure],
    request: MixRequest,
) -> dict[tuple[str, str], MixingMap]:
    """Maps of the collected scores, with what is only known now: the position that predicts the
    deciding token."""
    tokens = view.prepared.tokens
    if tokens is not None and tokens.deciding_index is not None:
        provenance["deciding_position"] = tokens.deciding_index - 1
    if view.prepared.deciding_frame is not None:
        provenance["deciding_frame"] = view.prepared.deciding_frame
    maps = {}
    for measure in measures:
        measure_provenance = (
            {**provenance, "distance": request.distance}
            if "distance" in measure.options
            else provenance
        )
        for stack, stack_layers in layers.items():
            strength = host_scores.strengths[stack]
            labels = (
                *view.labels(stack),
                measure.name,
                stack,
                stack_layers,
                dict(measure_provenance),
                strength,
            )
            maps[measure.name, stack] = host_scores((measure.name, stack), _map_maker(labels))
    return maps


def _map_maker(labels: MapLabels) -> Callable[[np.ndarray], MixingMap]:
    return lambda scores: check_finite_map(MixingMap(scores, *labels))


def check_finite_map(mixing_map: MixingMap) -> MixingMap:
    """Return a map as it is; of states that are zero, or not finite themselves, there is none."""
    if nonfinite_layers := [
        layer
        for layer, scores in zip(mixing_map.layers, mixing_map.scores, strict=True)
        if not np.isfinite(scores).all()
    ]:
        raise InputError(
            f"{mixing_map.provenance['clip'] or 'prepared inputs'}: {mixing_map.measure} is not a number in "
            "layer "
            f"{', '.join(map(str, nonfinite_layers))} of the {mixing_map.stack} of {mixing_map.provenance['model']}. Its "
            "states there are zero, as of "
            "a sound that is silent throughout, or not finite, as of damaged weights: leave the "
            "clip out, or check the model"
        )
    return mixing_map


def map_provenance(
    model: Model, view: View, request: MixRequest, precision: Precision
) -> JsonObject:
    """Provenance of a map, or of a decomposition."""
    return {
        "model": model.name,
        "family": model.family.name,
        "init": model.init,
        "seed": model.seed,
        "weights": model.fingerprint,
        **view.provenance(),
        "dtype": str(precision.states).removeprefix("torch."),
        "engine": request.engine,
        "product_dtype": str(precision.products).removeprefix("torch."),
        **{name: getattr(request, name) for name in ("units", "pooling", "heads", "rounding")},
        "include": list(request.include),
        **({"between_layers": between} if (between := mixing_between_layers(model)) else {}),
        "versions": versions(),
    }
