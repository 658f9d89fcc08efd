"""mix(): context-mixing maps of a clip (or prepared inputs), all measures and stacks in one forward pass.

In: a `Model` and a `Clip`. The blocks are handled while the pass runs, one at a time, each measure pooled to words at
once, so that the memory beyond the plain pass is about one layer's maps. Out: `Maps`, one `MixingMap` per measure and
stack, raw scores [layer, (head,) target, source].
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import torch

from .adapters.blocks import STACKS
from .adapters.capture import Capture, attention_readable
from .adapters.captured import Block
from .adapters.check import versions
from .adapters.model import Model, dtype_named
from .clips import Clip
from .errors import InputError
from .measures import MEASURES, measure_named
from .measures.numerics import distance_named
from .measures.value_zeroing import ENGINES
from .mixing import Maps, MixingMap
from .sentences import Sentence
from .sides import Sides
from .spans import CONTEXT_KINDS, ROUNDINGS, Span

HEADS = ("mean", "each")
UNITS = ("word", "frame", "token")

# Bytes of hidden states that one batch of replayed pairs may take (a row holds about ten widths at once).
_BATCH_BYTES = 2**27


def mix(
    model: Model,
    clip: Clip | Sentence | str | Mapping[str, Any] | Iterable[Clip | Sentence | str],
    *,
    measures: str | Sequence[str] = ("value_zeroing",),
    stacks: str | Sequence[str] | None = None,
    layers: Sequence[int] | None = None,
    units: str = "word",
    spans: Sequence[Span | tuple[int, int]] | None = None,
    targets: str | Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    pooling: str = "mean",
    distance: str = "cosine",
    heads: str = "mean",
    rounding: str = "disjoint",
    include: Sequence[str] = (),
    dtype: str | torch.dtype | None = None,
    engine: str = "delta",
    product_dtype: str | torch.dtype | None = None,
    batch_size: int | None = None,
    progress: bool = False,
) -> Maps | list[Maps]:
    """Score how much each source contributes to each target, layer by layer.

    Parameters
    ----------
    model : Model
        From `speechmix.load`.
    clip : Clip, Sentence or str, dict of tensors, or iterable of them
        A clip with word times for a model that hears, a text for one that reads ("<mask>" stands for its mask token), or
        prepared model inputs (e.g. ``{"input_features": x, "decoder_input_ids": ids}``). Several clips, or prepared
        inputs of a batch of several, give a list; padding that an attention mask leaves out is no unit.
    measures : str or sequence of str
        Names in `speechmix.measures.MEASURES`.
    stacks : str or sequence of str, optional
        "encoder", "decoder", "cross"; by default all that the model and its inputs have.
    layers : sequence of int, optional
        Layers counted from 0; all by default.
    units : {"word", "frame", "token"}
        What the encoder's side of a map is made of: words or frames of a clip; words (of one or more sub-words) or tokens
        of a text, then in a model with a decoder alone too. The decoder behind an encoder always has tokens.
    spans : sequence of (start, stop) or Span, optional
        Half-open encoder frames (or token positions) to use as units instead of words. For prepared inputs without
        spans every frame or token is a unit.
    targets : optional
        Compute only these rows: indices into the target side's units (spans, frames or token positions), a dict of
        such lists by stack, or "target" for the rows of the clip's target word (and the one that decides its
        spelling, with a foil). Much cheaper than the whole map.
    pooling : {"mean", "max"}
        Over the frames of a word.
    distance : {"cosine", "euclidean"}
        Of Value Zeroing.
    heads : {"mean", "each"}
        "each" gives a map per head; for Value Zeroing it zeroes that head alone.
    rounding : {"disjoint", "paper"}
        Words to frames; see `speechmix.spans.word_spans`.
    include : sequence of {"silence", "padding"}
        Make the silence between words and the padding behind the clip units of their own.
    dtype : str or torch.dtype, optional
        Precision to run in, float32 or float64; by default the model's own, float32 for a half-precision model.
    engine : {"delta", "replay"}
        How Value Zeroing is computed: by carrying the change through the layer, or by running the layer's modules again
        on the changed rows (slower, and less exact at the same precision; used by itself for a registered architecture
        whose layers are not described).
    product_dtype : str or torch.dtype, optional
        Precision of the delta engine's matrix products alone, e.g. "bfloat16" (scores then within 5e-3, relatively); that
        of the states by default.
    batch_size : int, optional
        (target position, source) pairs replayed at once; by default what fits 128 MiB.
    progress : bool
        Show a bar over clips.

    Returns
    -------
    Maps
        ``maps[measure, stack]`` is a `MixingMap`. A list of them for several clips.

    Raises
    ------
    InputError
        If the clip or an option cannot be used; the message says what to do.

    Examples
    --------
    >>> import transformers, speechmix, torch
    >>> config = transformers.Wav2Vec2Config(hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
    ...     intermediate_size=64, conv_dim=(16,) * 7, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2)
    >>> model = speechmix.load(transformers.Wav2Vec2Model(config), init="random", seed=0)
    >>> maps = mix(model, {"input_values": torch.randn(1, 16_000)}, spans=[(0, 20), (20, 49)])
    >>> maps["value_zeroing", "encoder"].scores.shape
    (2, 2, 2)
    """
    options = {
        "measures": (measures,) if isinstance(measures, str) else tuple(dict.fromkeys(measures)),
        "stacks": stacks,
        "layers": [layers] if isinstance(layers, int) else layers,
        "units": units,
        "spans": spans,
        "targets": [targets] if isinstance(targets, int) else targets,
        "pooling": pooling,
        "distance": distance,
        "heads": heads,
        "rounding": rounding,
        "include": tuple(include),
        "dtype": _working_dtype(model, dtype),
        "engine": engine,
        "product_dtype": None if product_dtype is None else dtype_named(product_dtype),
        "batch_size": batch_size,
    }
    _validate(options)
    if isinstance(clip, Mapping):
        rows = _rows(clip)
        return _mix_one(model, clip, **options) if len(rows) == 1 else [_mix_one(model, row, **options) for row in rows]
    if isinstance(clip, (str, PathLike)) and model.hears:
        raise InputError(f"expected a Clip, found {clip!r}: make one with speechmix.Clip.from_file")
    if isinstance(clip, (Clip, Sentence, str)):
        return _mix_one(model, clip, **options)
    if progress:
        from tqdm.auto import tqdm

        clip = tqdm(list(clip), unit="clip", desc=f"mix {model.name}")
    return [_mix_one(model, one, **options) for one in clip]


def _rows(inputs: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Prepared inputs of a batch, one clip each, with whatever padding they have."""
    tensors = {name: torch.as_tensor(value) for name, value in inputs.items()}
    sizes = {name: len(tensor) if tensor.ndim else 0 for name, tensor in tensors.items()}
    if len(set(sizes.values())) != 1 or 0 in sizes.values():
        raise InputError(f"prepared inputs should be tensors of one batch size; found {sizes or 'nothing'}")
    count = next(iter(sizes.values()))
    return [{name: tensor[row : row + 1] for name, tensor in tensors.items()} for row in range(count)]


def _mix_one(
    model, clip, *, measures, stacks, layers, spans, targets, dtype, engine, product_dtype, batch_size, **options
) -> Maps:
    if isinstance(clip, str):
        clip = Sentence(clip)
    stacks = _stacks_of(model, clip, stacks)
    layers = _layers_of(model, stacks, layers)
    sides = Sides(model, clip, stacks, spans, targets, options)
    inputs = {
        name: tensor.to(model.device, dtype if tensor.is_floating_point() else tensor.dtype)
        for name, tensor in sides.prepared.inputs.items()
    }
    collected: dict[tuple[str, str], list[np.ndarray]] = defaultdict(list)

    def on_block(block: Block) -> None:
        units = sides.units(block)
        for name in measures:
            scores = measure_named(name).function(
                block,
                units,
                distance=options["distance"],
                heads=options["heads"],
                engine=engine,
                product_dtype=product_dtype,
                batch_size=batch_size or max(256, _BATCH_BYTES // (10 * block.stack.width * dtype.itemsize)),
            )
            collected[name, block.stack.name].append(scores.cpu().numpy())

    watched = [model.stacks[name] for name in stacks]
    with (
        model.in_dtype(dtype),
        torch.no_grad(),
        torch.random.fork_rng(devices=[]),  # some transformers versions draw layer-drop numbers even in evaluation
        attention_readable(model.module),
        Capture(watched, on_block, layers=layers),
    ):
        model.family.run(model.base, inputs, stacks)
    provenance = _provenance(model, clip, dtype, engine, product_dtype, options)
    tokens = sides.prepared.tokens
    if tokens is not None and tokens.deciding is not None:
        provenance["deciding_position"] = tokens.deciding - 1  # the input position that predicts the deciding token
    maps = {}
    for (name, stack), scores in collected.items():
        kept = tuple(range(len(model.stacks[stack])) if layers is None else sorted(layers))
        extra = {"distance": options["distance"]} if measure_named(name).distances else {}
        targets_of, sources_of = sides.labels(stack)
        maps[name, stack] = MixingMap(
            np.stack(scores), targets_of, sources_of, name, stack, kept, {**provenance, **extra}
        )
    return Maps({(name, stack): maps[name, stack] for name in measures for stack in stacks})


def _stacks_of(model: Model, clip, stacks) -> tuple[str, ...]:
    """Requested stacks in the model's order; by default those the inputs reach."""
    if stacks is None:
        return tuple(name for name in model.stacks if name == "encoder" or _decoder_is_fed(model, clip))
    wanted = {stacks} if isinstance(stacks, str) else set(stacks)
    unknown = wanted - set(model.stacks)
    if unknown or not wanted:
        raise InputError(f"{model.name} has the stacks {list(model.stacks)}; asked for {sorted(wanted)}")
    return tuple(name for name in model.stacks if name in wanted)


def _decoder_is_fed(model: Model, clip) -> bool:
    if "encoder" not in model.stacks:
        return True
    if isinstance(clip, Mapping):
        return "decoder_input_ids" in clip
    if isinstance(clip, Sentence):
        return clip.translation is not None
    return bool(clip.text or clip.words) and model.tokenizer is not None


def _layers_of(model: Model, stacks: tuple[str, ...], layers) -> list[int] | None:
    if layers is None:
        return None
    fewest = min(len(model.stacks[name]) for name in stacks)
    if not len(layers) or not all(0 <= layer < fewest for layer in layers):
        raise InputError(
            f"layers={list(layers)}: layers are counted from 0; {', '.join(stacks)} have 0 to {fewest - 1}"
        )
    return sorted({int(layer) for layer in layers})


def _working_dtype(model: Model, dtype) -> torch.dtype:
    """Float32 or better: scores are small differences of states, which half precision rounds away."""
    if dtype is None:
        return model.state_dtype
    dtype = dtype_named(dtype)
    if dtype not in (torch.float32, torch.float64):
        raise InputError(
            f"dtype should be float32 or float64, found {dtype}: half precision would round the scores away"
        )
    return dtype


def _validate(options: dict) -> None:
    if not options["measures"]:
        raise InputError(f"no measure asked for; there are {', '.join(MEASURES)}")
    for name in options["measures"]:
        measure_named(name)
    distance_named(options["distance"])
    unknown = set(options["include"]) - set(CONTEXT_KINDS)
    if unknown:
        raise InputError(f"include takes 'silence' and 'padding', found {sorted(unknown)}")
    if isinstance(options["targets"], Mapping) and set(options["targets"]) - set(STACKS):
        raise InputError(f"targets is by stack, {', '.join(STACKS)}; found {sorted(options['targets'])}")
    for name, allowed in (("heads", HEADS), ("units", UNITS), ("engine", ENGINES), ("rounding", ROUNDINGS)):
        if options[name] not in allowed:
            raise InputError(f"{name} must be one of {allowed}, found {options[name]!r}")
    if options["product_dtype"] is not None and options["engine"] != "delta":
        raise InputError("product_dtype belongs to engine='delta'; leave it out with engine='replay'")
    batch_size = options["batch_size"]
    if batch_size is not None and not (isinstance(batch_size, int) and batch_size >= 1):
        raise InputError(f"batch_size should be a whole number of at least 1, found {batch_size!r}")


def _provenance(model: Model, clip, dtype: torch.dtype, engine: str, product_dtype, options) -> dict[str, Any]:
    known = None if isinstance(clip, Mapping) else clip
    heard = clip if isinstance(clip, Clip) else None
    return {
        "model": model.name,
        "family": model.family.name,
        "init": model.init,
        "seed": model.seed,
        "weights": model.fingerprint,
        "clip": known.name if known else None,
        "text": known.text if known else None,
        "words": [[word.text, word.start, word.end] for word in heard.words or ()] if heard else None,
        "cue": known.cue if known else None,
        "target": known.target if known else None,
        "foil": known.foil if known else None,
        "alignment": heard.alignment if heard else None,
        "dtype": str(dtype).removeprefix("torch."),
        "engine": engine,
        "product_dtype": str(product_dtype or dtype).removeprefix("torch."),
        **{name: options[name] for name in ("units", "pooling", "heads", "rounding")},
        "include": list(options["include"]),
        "versions": versions(),
    }
