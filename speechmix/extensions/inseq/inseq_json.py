"""Attributions as JSON files of Inseq hold them."""

from __future__ import annotations

import base64
from collections.abc import Mapping

import numpy as np

from ...errors import InputError
from ...files.json_files import Json
from .inseq_attribution import InseqAttribution


def attribution_from_json(entry: Mapping[str, Json], info: Mapping[str, Json]) -> InseqAttribution:
    (_, name), fields = entry["__instance_type__"], entry["attributes"]
    encoder_scores = next(
        (
            scores
            for key, scores in (fields["sequence_scores"] or {}).items()
            if key.startswith("encoder")
        ),
        None,
    )
    source, target = (
        [token["attributes"]["token"] for token in fields[side]] for side in ("source", "target")
    )
    return InseqAttribution(
        source,
        target,
        _decode_scores(fields["source_attributions"]),
        _decode_scores(fields["target_attributions"]),
        _decode_scores(encoder_scores),
        fields["attr_pos_start"],
        fields["attr_pos_end"],
        has_layers=name.startswith("MultiDimensional"),
        info=dict(info),
    )


def encode_scores(scores: np.ndarray | None) -> str | None:
    """A tensor as Inseq writes it: safetensors with one tensor "attribution", in base 64."""
    from safetensors.numpy import save

    return (
        None
        if scores is None
        else base64.b64encode(save({"attribution": np.ascontiguousarray(scores)})).decode("ascii")
    )


def _decode_scores(text: str | None) -> np.ndarray | None:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if text is None:
        return None
    try:
        scores = load(base64.b64decode(text))["attribution"]
    except (SafetensorError, KeyError) as error:
        raise InputError(
            f"scores in Inseq's file cannot be read ({error!r:.200}): save them in float32 or "
            "float16"
        ) from error
    return scores.astype(np.float32) if scores.dtype.itemsize < 4 else scores
