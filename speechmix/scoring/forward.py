"""mix(): context-mixing maps of a clip (or prepared inputs), all measures and stacks in one forward pass.

In: a `Model` and a `Clip`. The blocks are handled while the pass runs, one at a time, each measure pooled to words at
once, so that the memory beyond the plain pass is about one layer's maps. Out: `Maps`, one `MixingMap` per measure and
stack, raw scores [layer, (head,) target, source].
"""

from __future__ import annotations

import hashlib
import itertools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from os import PathLike
from typing import Any

import torch

from ..adapters.block import Block
from ..adapters.capture import Capture, attention_readable
from ..adapters.delta.products import TF32, Product
from ..adapters.model import Model, dtype_named
from ..adapters.plans import STACKS
from ..errors import InputError
from ..files.identity import digest
from ..inputs.clips import Clip
from ..inputs.reading_ahead import read_ahead
from ..inputs.sentences import Sentence
from ..inputs.spans import CONTEXT_KINDS, ROUNDINGS, Span
from ..maps.files import ScoresByLayer, folders_of, written_to
from ..maps.mixing import Maps, MixingMap
from ..maps.numerics import distance_named
from ..measures import MEASURES, measure_named
from ..measures.gradients import BASELINES, GradientPass
from ..measures.objectives import check_objective, objective_of
from ..measures.units import Units
from ..measures.value_zeroing import ENGINES
from ..versions import versions
from .batches import clips_together, in_groups, padded_together, pairs_at_once, rows_at_once, rows_of
from .sides import Sides

HEADS = ("mean", "each")
UNITS = ("word", "frame", "token")


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
    objective: str | Sequence[int] | Sequence[str] | Callable[[Any], torch.Tensor] = "auto",
    steps: int = 50,
    baseline: str = "mean",
    batch_size: int | str = "auto",
    clips_at_once: int | str = "auto",
    window: tuple[float, float] | None = None,
    out: str | PathLike | None = None,
    progress: bool = False,
) -> Maps | list[Maps]:
    """Score how much each source contributes to each target, layer by layer.

    Parameters
    ----------
    model : Model
        From `speechmix.load`.
    clip : Clip, Sentence or str, dict of tensors, or iterable of them
        A clip with word times for a model that hears, a text for one that reads (``<mask>`` stands for its mask token), or
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
    distance : {"cosine", "euclidean", "manhattan"}
        Of Value Zeroing.
    heads : {"mean", "each"}
        "each" gives a map per head; for Value Zeroing it zeroes that head alone.
    rounding : {"disjoint", "paper"}
        Words to frames; see `speechmix.inputs.spans.word_spans`.
    include : sequence of {"silence", "padding"}
        Make the silence between words and the padding behind the clip units of their own.
    dtype : str or torch.dtype, optional
        Precision of the states, float32 or float64; by default the model's own, float32 for a half-precision model. A
        half-precision model can be asked to run in its own, with a warning: scores are then hardly more than noise.
    engine : {"delta", "replay"}
        How Value Zeroing is computed: by carrying the change through the layer, or by running the layer's modules again
        on the changed rows (slower, and less exact at the same precision; used by itself for a registered architecture
        whose layers are not described).
    product_dtype : str or torch.dtype, optional
        Precision of the delta engine's products with the feed-forward matrices alone: "bfloat16" (scores then within about
        5e-3, relatively), on a GPU also "tf32"; that of the states by default.
    objective : str, tuple or callable
        The number that gradient measures explain; their maps have one row, the target. "logit", "probability" (of the
        target's token), "contrast" (its logit less the foil's), "ctc" (log-probability of the transcript less that without
        the target); "auto" is a contrast where there is a foil, and else "ctc" for a CTC model and "logit" for others.
        With several tokens: the one that decides between target and foil, or the target's first. A masked target is given
        as ("spelling",) or ("spelling", "foil"), by default the likeliest token. For prepared inputs: (position, token id),
        (position, token id, foil's id), or a function of the model's output (a batch of one) that returns a scalar.
    steps : int
        Of integrated gradients.
    baseline : {"mean", "zero"}
        Of integrated gradients and DeepLift: every position at the mean of the states, or zeros, from where a layer norm
        makes nearly all of the change within the first thousandth of the path, so that no sum over steps is complete.
    batch_size : int or "auto"
        (Target position, source) pairs handled at once, about; "auto" takes what fits 32 MiB, on a GPU a quarter of
        what is free.
    clips_at_once : int or "auto"
        Of several clips, how many share a forward pass. "auto": some on a GPU, if padding changes nothing for the model
        (Whisper; wav2vec 2.0 with layer norm in its front end, as XLSR has; text models), otherwise one.
    window : (start, end), optional
        With units="frame", only the frames within these seconds of the clip.
    out : path, optional
        Folder to write the maps to while they are computed, one file a map, as `MixingMap.save` does; the maps returned
        then read their scores from there. For maps larger than memory. Each clip has a folder in it, named like the clip
        (two of one name are refused); several prepared inputs are numbered, ``inputs_0``, ``inputs_1``, ...; a single one
        has the folder itself.
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
        "product_dtype": _product_dtype(model, product_dtype),
        "objective": objective,
        "steps": steps,
        "baseline": baseline,
        "batch_size": batch_size,
        "window": window,
    }
    _validate(options)
    if clips_at_once != "auto" and not (isinstance(clips_at_once, int) and clips_at_once >= 1):
        raise InputError(f"clips_at_once should be a whole number of at least 1, or 'auto'; found {clips_at_once!r}")
    if isinstance(clip, Mapping):
        rows = rows_of(clip)
        folders = folders_of(out, rows)
        found = [_mix_batch(model, [row], folders, **options)[0] for row in rows]
        return found[0] if len(rows) == 1 else found
    if isinstance(clip, (str, PathLike)) and model.hears:
        raise InputError(f"expected a Clip, found {clip!r}: make one with speechmix.Clip.from_file")
    if isinstance(clip, (Clip, Sentence, str)):
        return _mix_batch(model, [clip], folders_of(out, [clip]), **options)[0]
    if progress or out is not None:
        clip = list(clip)
    folders = folders_of(out, clip)
    if not isinstance(clip, Iterable):
        raise InputError(f"expected a clip, a text, prepared inputs or several of them, found {clip!r:.80}")
    if progress:
        from tqdm.auto import tqdm

        clip = tqdm(clip, unit="clip", desc=f"mix {model.name}")
    at_once = clips_together(model) if clips_at_once == "auto" else clips_at_once
    ahead = read_ahead(clip, sample_rate=model.sample_rate, count=at_once)
    with model.unchanged():
        return [maps for batch in in_groups(ahead, at_once) for maps in _mix_batch(model, batch, folders, **options)]


def _mix_batch(
    model,
    clips,
    folders,
    *,
    measures,
    stacks,
    layers,
    spans,
    targets,
    dtype,
    engine,
    product_dtype,
    batch_size,
    **options,
) -> list[Maps]:
    """Maps of clips that share a forward pass; each takes the next of the folders."""
    folders = list(itertools.islice(folders, len(clips)))
    clips = [Sentence(clip) if isinstance(clip, str) else clip for clip in clips]
    stacks_of = [_stacks_of(model, clip, stacks) for clip in clips]
    if len(set(stacks_of)) > 1:
        raise InputError("clips with and without text cannot share a forward pass: say stacks=, or clips_at_once=1")
    stacks = stacks_of[0]
    layers = _layers_of(model, stacks, layers)
    by_block, by_pass = (
        [name for name in measures if measure_named(name).scope == scope] for scope in ("block", "pass")
    )
    fed = tuple(model.stacks) if any(measure_named(name).objective for name in by_pass) else stacks
    sides = [Sides(model, clip, fed, spans, targets, options) for clip in clips]
    inputs = {
        name: tensor.to(model.device, dtype if tensor.is_floating_point() else tensor.dtype)
        for name, tensor in padded_together(model, [one.prepared.inputs for one in sides]).items()
    }
    kept = {name: tuple(range(len(model.stacks[name]))) if layers is None else tuple(layers) for name in stacks}
    collected = [ScoresByLayer(kept, folder) for folder in folders]
    units_of: list[dict[str, Units]] = [{} for _ in clips]
    product = Product(product_dtype or dtype, model.kept)
    chosen = {"distance": options["distance"], "heads": options["heads"], "engine": engine}

    def on_block(block: Block) -> None:
        units = units_of[block.clip][block.stack.name] = sides[block.clip].units(block)
        at_once = pairs_at_once(block) if batch_size == "auto" else batch_size
        parts_of: dict[str, list[torch.Tensor]] = {name: [] for name in by_block}
        for group in units.groups(rows_at_once(block)):
            for name, parts in parts_of.items():
                parts.append(measure_named(name).function(block, group, batch_size=at_once, product=product, **chosen))
        for name, parts in parts_of.items():
            scores = torch.cat(parts, dim=-2) if parts[1:] else parts[0]
            scores = scores.float() if scores.dtype.itemsize < 4 else scores
            collected[block.clip].append((name, block.stack.name), scores)

    watched = [model.stacks[name] for name in stacks]
    with ExitStack() as unfinished:  # whatever happens, no half a file is left
        for scores in collected:
            unfinished.enter_context(scores)
        with (
            model.in_use(dtype),
            torch.no_grad(),
            torch.random.fork_rng(devices=[]),  # some transformers versions draw layer-drop numbers even in evaluation
            attention_readable(model.module),
            Capture(watched, on_block, layers=layers),
        ):
            model.family.run(model.base, inputs, stacks)
        known = [_provenance(model, clip, dtype, engine, product_dtype, options) for clip in clips]
        maps = [_labelled(*each, kept, by_block, options) for each in zip(sides, collected, known, strict=True)]
    if not by_pass:
        return maps
    for index, (clip, side, units) in enumerate(zip(clips, sides, units_of, strict=True)):
        more = _differentiated(model, clip, side, units, known[index], kept, by_pass, dtype, options)
        more = {key: written_to(folders[index], one) for key, one in more.items()}
        every = {**maps[index], **more}
        maps[index] = Maps({(name, stack): every[name, stack] for name in measures for stack in stacks})
    return maps


def _differentiated(model: Model, clip, sides: Sides, units, provenance, layers, measures, dtype, options) -> dict:
    """Maps of the measures that differentiate the whole model, for one clip."""
    inputs = {
        name: tensor.to(model.device, dtype if tensor.is_floating_point() else tensor.dtype)
        for name, tensor in sides.prepared.inputs.items()
    }
    maps = {}
    with model.in_use(dtype), torch.no_grad(), torch.random.fork_rng(devices=[]), attention_readable(model.module):
        objective = None
        if any(measure_named(name).objective for name in measures):
            known = None if isinstance(clip, Mapping) else clip
            objective = objective_of(options["objective"], model, known, sides.prepared)
        whole = GradientPass(model, inputs, layers, objective)
        chosen = {name: options[name] for name in ("steps", "baseline")}
        for name, (stack, kept) in itertools.product(measures, layers.items()):
            scores, notes = measure_named(name).function(whole, stack, units[stack], **chosen)
            targets, sources = sides.labels(stack)
            if measure_named(name).objective:
                targets, notes = (objective.span,), {"objective": objective.details, **notes}
            scores = scores.cpu().numpy()
            maps[name, stack] = MixingMap(scores, targets, sources, name, stack, kept, {**provenance, **notes})
    return maps


def _labelled(sides: Sides, collected, provenance, layers, measures, options) -> Maps:
    tokens = sides.prepared.tokens
    if tokens is not None and tokens.deciding is not None:
        provenance["deciding_position"] = tokens.deciding - 1  # the input position that predicts the deciding token
    maps = {}
    for name in measures:
        extra = {"distance": options["distance"]} if measure_named(name).distances else {}
        for stack, kept in layers.items():
            found = {**provenance, **extra}
            labels = (*sides.labels(stack), name, stack, kept, found)
            maps[name, stack] = collected.map_of(
                (name, stack), lambda scores, labels=labels: MixingMap(scores, *labels)
            )
    return Maps(maps)


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
    """Float32 or better unless asked: scores are small differences of states, which half precision rounds away."""
    if dtype is None:
        return model.state_dtype
    dtype = dtype_named(dtype)
    if dtype.itemsize < 4:
        warnings.warn(
            f"scores are computed on {dtype} states: expect relative errors of tens of percent, and small scores to be "
            "noise; product_dtype='bfloat16' is as fast and keeps errors below 1 %",
            stacklevel=3,
        )
    return dtype


def _product_dtype(model: Model, dtype) -> torch.dtype | str | None:
    if dtype != TF32:
        return None if dtype is None else dtype_named(dtype)
    if model.device.type != "cuda":
        raise InputError(f"product_dtype='tf32' is for CUDA devices; {model.name} is on {model.device}")
    return TF32


def _validate(options: dict) -> None:
    if not options["measures"]:
        raise InputError(f"no measure asked for; there are {', '.join(MEASURES)}")
    for name in options["measures"]:
        if measure_named(name).scope == "pass" and options["heads"] == "each":
            raise InputError(f"{name} has no form per head: it differentiates the whole model; ask for heads='mean'")
    check_objective(options["objective"])
    if not (isinstance(options["steps"], int) and options["steps"] >= 1):
        raise InputError(f"steps should be a whole number of at least 1, found {options['steps']!r}")
    distance_named(options["distance"])
    unknown = set(options["include"]) - set(CONTEXT_KINDS)
    if unknown:
        raise InputError(f"include takes 'silence' and 'padding', found {sorted(unknown)}")
    if isinstance(options["targets"], Mapping) and set(options["targets"]) - set(STACKS):
        raise InputError(f"targets is by stack, {', '.join(STACKS)}; found {sorted(options['targets'])}")
    for name, allowed in (
        ("heads", HEADS),
        ("units", UNITS),
        ("engine", ENGINES),
        ("rounding", ROUNDINGS),
        ("baseline", BASELINES),
    ):
        if options[name] not in allowed:
            raise InputError(f"{name} must be one of {allowed}, found {options[name]!r}")
    if options["product_dtype"] is not None and options["engine"] != "delta":
        raise InputError("product_dtype belongs to engine='delta'; leave it out with engine='replay'")
    window = options["window"]
    if window is not None and (options["units"] != "frame" or len(window) != 2 or not window[0] < window[1]):
        raise InputError(f"window is (start, end) in seconds, with units='frame'; found {window!r}")
    batch_size = options["batch_size"]
    if batch_size != "auto" and not (isinstance(batch_size, int) and batch_size >= 1):
        raise InputError(f"batch_size should be a whole number of at least 1, or 'auto'; found {batch_size!r}")


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
        "fingerprint": known.fingerprint if known else _fingerprint_of_inputs(clip),
        "sound": heard.sound if heard else None,
        "language": heard.language if heard else None,
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


def _fingerprint_of_inputs(inputs: Mapping[str, Any]) -> str:
    """Hash of prepared inputs: names, types, shapes and every number."""
    tensors = {name: torch.as_tensor(value).detach().cpu().contiguous() for name, value in inputs.items()}
    numbers = {name: hashlib.blake2b(tensor.view(-1).view(torch.uint8).numpy()) for name, tensor in tensors.items()}
    return digest(
        {name: [str(tensor.dtype), list(tensor.shape), numbers[name].hexdigest()] for name, tensor in tensors.items()}
    )[:16]
