"""Inseq's own objects and files of mixing maps, and mixing maps of them.

In and out: Inseq's `FeatureAttributionOutput` (extra `inseq`), whose `show()` and `aggregate()`
then work on our maps; or the JSON file that it saves and loads, which needs no Inseq. inseq_form.py
says what is what. A map goes there and comes back unchanged: its labels and provenance travel in
Inseq's `info`; scores that were aggregated there come back without them.
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
from ...files.bounded_reads import read_bounded, unpacked
from ...files.json_files import Json, JsonObject
from ...files.whole_files import whole_file
from .inseq_form import ENCODER_SCORES, Attribution, attribution_of, maps_without_labels, scores_of
from .map_headers import labels_as_text, labels_from_text
from .map_set import Maps
from .measure_registry import STACKS
from .mixing_map import MixingMap

if TYPE_CHECKING:
    from inseq import FeatureAttributionOutput

_MOST_BYTES = 2**31  # of a file, and of what gzip packed in it

_OURS = "speechmix"  # key of our labels in Inseq's info
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

    made = attribution_of(maps)
    tensors = [
        None if scores is None else torch.from_numpy(scores)
        for scores in (made.from_source, made.from_target, made.within_source)
    ]
    sequence = MultiDimensionalFeatureAttributionSequenceOutput(
        source=[TokenWithId(token, _NO_ID) for token in made.source],
        target=[TokenWithId(token, _NO_ID) for token in made.target],
        source_attributions=tensors[0],
        target_attributions=tensors[1],
        step_scores={},
        sequence_scores={} if tensors[2] is None else {ENCODER_SCORES: tensors[2]},
        attr_pos_start=made.start,
        attr_pos_end=made.stop,
        _num_dimensions=made.n_axes,
    )
    return FeatureAttributionOutput([sequence], info=_info(made, maps))


def write_inseq(maps: Sequence[MixingMap], path: str | PathLike[str]) -> Path:
    """Write maps of one measure as the JSON file that ``inseq.FeatureAttributionOutput.load``
    reads; needs no inseq.

    Inseq reads scores in single precision; `from_inseq` as they were written.
    """
    made = attribution_of(maps)
    tokens = {
        side: [
            _object(1, "TokenWithId", {"token": token, "id": _NO_ID})
            for token in getattr(made, side)
        ]
        for side in ("source", "target")
    }
    sequence = {
        **tokens,
        "source_attributions": _encoded(made.from_source),
        "target_attributions": _encoded(made.from_target),
        "step_scores": {},
        "sequence_scores": {}
        if made.within_source is None
        else {ENCODER_SCORES: _encoded(made.within_source)},
        "attr_pos_start": made.start,
        "attr_pos_end": made.stop,
        "_num_dimensions": made.n_axes,
    }
    sequences = [_object(0, "MultiDimensionalFeatureAttributionSequenceOutput", sequence)]
    content = {
        "sequence_attributions": sequences,
        "step_attributions": None,
        "info": _info(made, maps),
    }
    with whole_file(Path(path)) as unfinished:
        unfinished.write_text(
            json.dumps(_object(0, "FeatureAttributionOutput", content)), encoding="utf-8"
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
        attributions = _read(Path(output))
    elif hasattr(output, "sequence_attributions"):
        attributions = [
            _of_object(sequence, output.info) for sequence in output.sequence_attributions
        ]
    else:
        raise InputError(
            "expected an output of Inseq or the path of its JSON file, found "
            f"{type(output).__name__}"
        )
    found = [_maps_of(attribution) for attribution in attributions]
    return found[0] if len(found) == 1 else found


def _maps_of(attribution: Attribution) -> Maps:
    made = _stored_maps(attribution) or maps_without_labels(attribution)
    in_order = [made[stack] for stack in (*STACKS, "composed") if stack in made]
    return Maps({(mixing_map.measure, mixing_map.stack): mixing_map for mixing_map in in_order})


def _stored_maps(attribution: Attribution) -> dict[str, MixingMap] | None:
    """The maps that this was made of; None if it was not, or was changed since."""
    stored = attribution.info.get(_OURS)
    if not isinstance(stored, Mapping):
        return None
    try:
        labels = {stack: labels_from_text(entry) for stack, entry in stored.items()}
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"the labels that came with Inseq's output cannot be read ({error!r:.200})"
        ) from error
    scores = scores_of(attribution, labels)
    return (
        None
        if scores is None
        else {stack: MixingMap(scores[stack], **labels[stack]) for stack in labels}
    )


def _of_object(sequence: Any, info: Mapping[str, Json]) -> Attribution:
    def array(tensor: Tensor | None) -> np.ndarray | None:
        numbers: np.ndarray | None = None if tensor is None else tensor.detach().cpu().numpy()
        return numbers

    within = next(
        (
            scores
            for name, scores in (sequence.sequence_scores or {}).items()
            if name.startswith("encoder")
        ),
        None,
    )
    return Attribution(
        [token.token for token in sequence.source],
        [token.token for token in sequence.target],
        array(sequence.source_attributions),
        array(sequence.target_attributions),
        array(within),
        sequence.attr_pos_start,
        sequence.attr_pos_end,
        layered=type(sequence).__name__.startswith("MultiDimensional"),
        info=dict(info),
    )


def _read(path: Path) -> list[Attribution]:
    try:
        content = json.loads(
            unpacked(read_bounded(path, most=_MOST_BYTES), where=path, most=_MOST_BYTES)
        )["attributes"]
        info = content["info"]
        return [_of_json(entry, info) for entry in content["sequence_attributions"]]
    except (OSError, ValueError, KeyError, TypeError, binascii.Error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{path}: expected a JSON file that Inseq saved, found {error!r:.200}"
        ) from error


def _of_json(entry: Mapping[str, Json], info: Mapping[str, Json]) -> Attribution:
    (_, name), told = entry["__instance_type__"], entry["attributes"]
    within = next(
        (
            scores
            for key, scores in (told["sequence_scores"] or {}).items()
            if key.startswith("encoder")
        ),
        None,
    )
    source, target = (
        [token["attributes"]["token"] for token in told[side]] for side in ("source", "target")
    )
    return Attribution(
        source,
        target,
        _decoded(told["source_attributions"]),
        _decoded(told["target_attributions"]),
        _decoded(within),
        told["attr_pos_start"],
        told["attr_pos_end"],
        layered=name.startswith("MultiDimensional"),
        info=dict(info),
    )


def _encoded(scores: np.ndarray | None) -> str | None:
    """A tensor as Inseq writes it: safetensors with one tensor "attribution", in base 64."""
    from safetensors.numpy import save

    return (
        None
        if scores is None
        else base64.b64encode(save({"attribution": np.ascontiguousarray(scores)})).decode("ascii")
    )


def _decoded(text: str | None) -> np.ndarray | None:
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


def _object(module: int, name: str, attributes: JsonObject) -> JsonObject:
    return {"__instance_type__": [_CLASSES[module], name], "attributes": attributes}


def _info(made: Attribution, maps: Sequence[MixingMap]) -> JsonObject:
    """What Inseq says of an output, as far as a map knows it, and the maps' own labels."""
    told = maps[0].provenance
    texts = (
        told.get("text"),
        next((m.provenance["decoder_text"] for m in maps if "decoder_text" in m.provenance), None),
    )
    written = " ".join(made.target[made.start : made.stop])
    return {
        "attribution_method": made.info["measure"],
        "attribute_target": made.from_target is not None,
        "attr_pos_start": made.start,
        "attr_pos_end": made.stop,
        "constrained_decoding": True,
        "include_eos_baseline": False,
        "input_texts": [texts[0] or " ".join(made.source)],
        "generated_texts": [texts[1] or written],
        "model_class": None,
        "model_name": told.get("model"),
        "step_scores": [],
        "tokenizer_class": None,
        "tokenizer_name": None,
        _OURS: {mixing_map.stack: labels_as_text(mixing_map) for mixing_map in maps},
    }
