"""Convert mixing maps to Inseq objects and files, and back.

In and out: Inseq's `FeatureAttributionOutput` (extra `inseq`), whose `show()` and `aggregate()`
then work on our maps; or the JSON file that it saves and loads, which needs no Inseq. inseq_attribution.py
says what is what. A map goes there and comes back unchanged: its labels and provenance travel in
Inseq's `info`; scores that were aggregated there come back without them.

Attributions as JSON files of Inseq hold them.

Convert a native Inseq attribution to mixing maps.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from ...errors import InputError, MissingExtraError
from ...files.json_files import Json, JsonObject
from ...files.text_files import decompress_bounded, read_bounded
from ...files.whole_files import whole_file
from ...inputs.words.spans import Span
from ...mixing.maps.map_files import labels_from_text, labels_to_text
from ...mixing.maps.map_set import Maps
from ...mixing.maps.measure_registry import STACKS
from ...mixing.maps.mixing_map import MixingMap
from .inseq_attribution import (
    ENCODER_SCORES,
    InseqAttribution,
    attribution_from_maps,
    from_inseq_axes,
    scores_from_attribution,
)

if TYPE_CHECKING:
    from inseq import FeatureAttributionOutput


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


_MAX_BYTES = 2**31  # of a file, and of what gzip packed in it

_LABELS_KEY = "speechmix"  # key of our labels in Inseq's info
_NO_ID = -1  # maps know tokens by what is written
_CLASSES = ("inseq.data.attribution", "inseq.utils.typing")


def to_inseq(maps: Sequence[MixingMap]) -> FeatureAttributionOutput:
    """Inseq's output object of the maps of one measure.

    Parameters
    ----------
    maps : sequence of MixingMap
        Cross and decoder map, with the encoder's beside them or not; a composed map; or one map
        alone. Raw or after steps.

    Returns
    -------
    inseq.FeatureAttributionOutput
        With one sequence. Inseq's default aggregation averages heads and layers and makes each
        generated token's scores, over source and target together, sum to one.

    Raises
    ------
    InputError
        If the maps do not go together.
    MissingExtraError
        Without inseq.
    """
    try:
        import torch
        from inseq.data.attribution import (
            FeatureAttributionOutput,
            MultiDimensionalFeatureAttributionSequenceOutput,
        )
        from inseq.utils.typing import TokenWithId
    except ImportError as error:
        raise MissingExtraError(
            "inseq", "inseq", "an object of Inseq (write_inseq makes its JSON file without)"
        ) from error

    attribution = attribution_from_maps(maps)
    tensors = [
        None if scores is None else torch.from_numpy(scores)
        for scores in (attribution.from_source, attribution.from_target, attribution.within_source)
    ]
    sequence = MultiDimensionalFeatureAttributionSequenceOutput(
        source=[TokenWithId(token, _NO_ID) for token in attribution.source],
        target=[TokenWithId(token, _NO_ID) for token in attribution.target],
        source_attributions=tensors[0],
        target_attributions=tensors[1],
        step_scores={},
        sequence_scores={} if tensors[2] is None else {ENCODER_SCORES: tensors[2]},
        attr_pos_start=attribution.start,
        attr_pos_end=attribution.stop,
        _num_dimensions=attribution.n_axes,
    )
    return FeatureAttributionOutput([sequence], info=_info(attribution, maps))


def write_inseq(maps: Sequence[MixingMap], path: str | PathLike[str]) -> Path:
    """Write maps of one measure as the JSON file that ``inseq.FeatureAttributionOutput.load``
    reads; needs no inseq.

    Inseq reads scores in single precision; `from_inseq` as they were written.
    """
    attribution = attribution_from_maps(maps)
    tokens = {
        side: [
            _typed_json(1, "TokenWithId", {"token": token, "id": _NO_ID})
            for token in getattr(attribution, side)
        ]
        for side in ("source", "target")
    }
    sequence = {
        **tokens,
        "source_attributions": encode_scores(attribution.from_source),
        "target_attributions": encode_scores(attribution.from_target),
        "step_scores": {},
        "sequence_scores": {}
        if attribution.within_source is None
        else {ENCODER_SCORES: encode_scores(attribution.within_source)},
        "attr_pos_start": attribution.start,
        "attr_pos_end": attribution.stop,
        "_num_dimensions": attribution.n_axes,
    }
    sequences = [_typed_json(0, "MultiDimensionalFeatureAttributionSequenceOutput", sequence)]
    content = {
        "sequence_attributions": sequences,
        "step_attributions": None,
        "info": _info(attribution, maps),
    }
    with whole_file(Path(path)) as unfinished:
        unfinished.write_text(
            json.dumps(_typed_json(0, "FeatureAttributionOutput", content)), encoding="utf-8"
        )
    return Path(path)


def from_inseq(output: FeatureAttributionOutput) -> Maps | list[Maps]:
    """Mixing maps of an output object of Inseq, or of a JSON file that it or `write_inseq` wrote.

    Parameters
    ----------
    output : inseq.FeatureAttributionOutput or path

    Returns
    -------
    Maps
        Of what came from mixing maps, the same maps. Of what Inseq computed: "cross", "decoder" and
        "encoder" maps of a method that has layers, one "composed" map of one that goes through the
        whole model. A list for several texts.

    Raises
    ------
    InputError
        If it is neither, or holds scores of every embedding dimension.
    """
    if isinstance(output, (str, PathLike)):
        attributions = _read_inseq_json(Path(output))
    elif hasattr(output, "sequence_attributions"):
        attributions = [
            _attribution_from_object(sequence, output.info)
            for sequence in output.sequence_attributions
        ]
    else:
        raise InputError(
            "expected an output of Inseq or the path of its JSON file, found "
            f"{type(output).__name__}"
        )
    maps_list = [_maps_from_attribution(attribution) for attribution in attributions]
    return maps_list[0] if len(maps_list) == 1 else maps_list


def _maps_from_attribution(attribution: InseqAttribution) -> Maps:
    maps = _stored_maps(attribution) or maps_from_native_inseq(attribution)
    ordered_maps = [maps[stack] for stack in (*STACKS, "composed") if stack in maps]
    return Maps({(mixing_map.measure, mixing_map.stack): mixing_map for mixing_map in ordered_maps})


def _stored_maps(attribution: InseqAttribution) -> dict[str, MixingMap] | None:
    """The maps that this was made of; None if it was not, or was changed since."""
    stored = attribution.info.get(_LABELS_KEY)
    if not isinstance(stored, Mapping):
        return None
    try:
        labels = {stack: labels_from_text(entry) for stack, entry in stored.items()}
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"the labels that came with Inseq's output cannot be read ({error!r:.200})"
        ) from error
    scores = scores_from_attribution(attribution, labels)
    return (
        None
        if scores is None
        else {stack: MixingMap(scores[stack], **labels[stack]) for stack in labels}
    )


def _attribution_from_object(sequence: Any, info: Mapping[str, Json]) -> InseqAttribution:
    def array(tensor: Tensor | None) -> np.ndarray | None:
        numbers: np.ndarray | None = None if tensor is None else tensor.detach().cpu().numpy()
        return numbers

    encoder_scores = next(
        (
            scores
            for name, scores in (sequence.sequence_scores or {}).items()
            if name.startswith("encoder")
        ),
        None,
    )
    return InseqAttribution(
        [token.token for token in sequence.source],
        [token.token for token in sequence.target],
        array(sequence.source_attributions),
        array(sequence.target_attributions),
        array(encoder_scores),
        sequence.attr_pos_start,
        sequence.attr_pos_end,
        has_layers=type(sequence).__name__.startswith("MultiDimensional"),
        info=dict(info),
    )


def _read_inseq_json(path: Path) -> list[InseqAttribution]:
    try:
        content = json.loads(
            decompress_bounded(read_bounded(path, most=_MAX_BYTES), where=path, most=_MAX_BYTES)
        )["attributes"]
        info = content["info"]
        return [attribution_from_json(entry, info) for entry in content["sequence_attributions"]]
    except (OSError, ValueError, KeyError, TypeError, binascii.Error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{path}: expected a JSON file that Inseq saved, found {error!r:.200}"
        ) from error


def _typed_json(module: int, name: str, attributes: JsonObject) -> JsonObject:
    return {"__instance_type__": [_CLASSES[module], name], "attributes": attributes}


def _info(attribution: InseqAttribution, maps: Sequence[MixingMap]) -> JsonObject:
    """What Inseq says of an output, as far as a map knows it, and the maps' own labels."""
    provenance = maps[0].provenance
    texts = (
        provenance.get("text"),
        next((m.provenance["decoder_text"] for m in maps if "decoder_text" in m.provenance), None),
    )
    generated_text = " ".join(attribution.target[attribution.start : attribution.stop])
    return {
        "attribution_method": attribution.info["measure"],
        "attribute_target": attribution.from_target is not None,
        "attr_pos_start": attribution.start,
        "attr_pos_end": attribution.stop,
        "constrained_decoding": True,
        "include_eos_baseline": False,
        "input_texts": [texts[0] or " ".join(attribution.source)],
        "generated_texts": [texts[1] or generated_text],
        "model_class": None,
        "model_name": provenance.get("model"),
        "step_scores": [],
        "tokenizer_class": None,
        "tokenizer_name": None,
        _LABELS_KEY: {mixing_map.stack: labels_to_text(mixing_map) for mixing_map in maps},
    }
