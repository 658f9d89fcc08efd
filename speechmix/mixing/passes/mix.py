"""mix(): context-mixing maps of clips, texts or prepared inputs, all measures and stacks in one
forward pass.

In: a `Model`, and a `Clip` or several. The options become one `MixRequest`, the items groups that
share a forward pass (`batches`); what happens in a pass is in `passes`. Out: `Maps`, one
`MixingMap` per measure and stack, raw scores [layer, (head,) target, source].
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from os import PathLike
from typing import Any

import torch

from ...adapters.model import Model
from ...adapters.transformers_types import Inputs
from ...errors import AlignmentError, InputError, SpeechmixError
from ...inputs.clips.clip import Clip
from ...inputs.sentences.sentence import Sentence
from ...inputs.words.spans import Span
from ..maps.map_files import map_folders
from ..maps.map_set import Maps
from .batches import (
    clips_per_pass,
    prefetch_inputs,
    resolve_state_dtype,
    split_batch,
    split_into_groups,
)
from .forward_pass import compute_maps
from .item_view import Item
from .request import MixRequest, ObjectiveOption, Targets, as_unique_tuple, without_former_options


@without_former_options
def mix(
    model: Model,
    clip: Clip | Sentence | str | Inputs | Iterable[Clip | Sentence | str],
    *,
    measures: str | Sequence[str] = ("value_zeroing",),
    stacks: str | Sequence[str] | None = None,
    layers: int | Sequence[int] | None = None,
    units: str = "word",
    spans: Sequence[Span | tuple[int, int]] | None = None,
    targets: int | Targets | None = None,
    pooling: str = "mean",
    heads: str = "mean",
    rounding: str = "disjoint",
    include: Sequence[str] = (),
    dtype: str | torch.dtype | None = None,
    objective: ObjectiveOption = "auto",
    clips_at_once: int | str = "auto",
    window: tuple[float, float] | None = None,
    out: str | PathLike[str] | None = None,
    progress: bool = False,
) -> Maps | list[Maps | None]:
    """Score how much each source contributes to each target, layer by layer.

    Parameters
    ----------
    model : Model
        From `speechmix.load`.
    clip : Clip, Sentence or str, dict of tensors, or iterable of them
        A clip with word times for a model that hears, a text for one that reads (``<mask>`` stands
        for its mask token), or prepared model inputs (e.g. ``{"input_features": x,
        "decoder_input_ids": ids}``). Several clips, or prepared inputs of a batch of several, give
        a list; padding that an attention mask leaves out is no unit.
    measures : str or sequence of str
        Names in `speechmix.mixing.measures.MEASURES`; `speechmix.register_measure` adds one. Options
        of a measure stand behind its name: "alti:order=2",
        "value_zeroing:distance=euclidean,engine=replay", "integrated_gradients:steps=200". That is
        the measure's name in the result, so that one call can compute several forms of a measure.
    stacks : str or sequence of str, optional
        "encoder", "decoder", "cross"; by default all that the model and its inputs have.
    layers : sequence of int, optional
        Layers counted from 0; all by default.
    units : {"word", "syllable", "phone", "frame", "token"}
        What the encoder's side of a map is made of: words, syllables or phones (`Clip.tiers`) or
        frames of a clip; words (of one or
        more sub-words) or tokens of a text, then in a model with a decoder alone too. The decoder
        behind an encoder always has tokens. Where a model fills its window up (Whisper, AST), the
        frames behind the clip are one source, ``<padding>``, whose values are zeroed together;
        ``include=["padding"]`` makes them a target too, pooled, as a rollout needs. `window` gives
        every frame.
    spans : sequence of (start, stop), list of (start, stop), or Span, optional
        Half-open encoder frames (or token positions) to use as units instead of words; several
        ranges are one unit in pieces, ``[(1, 2), (3, 4)]``. For prepared inputs without spans every
        frame or token is a unit.
    targets : optional
        Compute only these rows: indices into the target side's units (spans, frames or token
        positions), a dict of such lists by stack, or "target" for the rows of the clip's target
        word (and the one that decides its spelling, with a foil). Much cheaper than the whole map.
    pooling : {"mean", "max"}
        Over the frames of a word.
    heads : {"mean", "each"}
        "each" gives a map per head; for Value Zeroing it zeroes that head alone.
    rounding : {"disjoint", "paper"}
        Words to frames; see `speechmix.inputs.words.spans.word_spans`.
    include : sequence of {"silence", "padding"}
        Make the silence between words and the padding behind the clip units of their own. With
        units="frame", where the padding is a source anyway, "padding" makes it a target too; this
        takes several times as long for a short clip.
    dtype : str or torch.dtype, optional
        Precision of the states, float32 or float64; by default the model's own, float32 for a
        half-precision model. A half-precision model can be asked to run in its own, with a warning:
        scores are then hardly more than noise.
    objective : str, tuple or callable
        The number that gradient measures explain; their maps have one row, the target. "logit",
        "probability" (of the target's token), "log_probability" (of all its tokens; of a CTC
        model's transcript), "contrast" (its logit less the foil's), "ctc" (log-probability of the
        transcript less that without the target); "auto" is a contrast where there is a foil, and
        else "ctc" for a CTC model and "logit" for others. With several tokens: the one that decides
        between target and foil, or the target's first. A masked target is given as ("spelling",) or
        ("spelling", "foil"), by default the likeliest token. A classifier is asked for the label
        that it gives, or for ("label",), or ("label", "label") for a contrast. For prepared inputs:
        (position, token id), (position, token id, foil's id), or a function of the model's output
        (a batch of one) that returns a scalar.
    clips_at_once : int or "auto"
        Of several clips, how many share a forward pass. "auto": some on a GPU, if padding changes
        nothing for the model (Whisper; wav2vec 2.0 with layer norm in its front end, as XLSR has;
        text models), otherwise one.
    window : (start, end), optional
        With units="frame", only the frames within these seconds, and no padding as one unit:
        ``window=(0, 30)`` makes a unit of each of Whisper's 1,500 frames.
    out : path, optional
        Folder to write the maps to while they are computed, one file a map, as `MixingMap.save`
        does; the maps returned then read their scores from there. For maps larger than memory. Each
        clip has a folder in it, named like the clip (two of one name are refused); several prepared
        inputs are numbered, ``inputs_0``, ``inputs_1``, ...; a single one has the folder itself.
    progress : bool
        Show a bar over clips.

    Returns
    -------
    Maps
        ``maps[measure, stack]`` is a `MixingMap`. A list of them for several clips, in their order;
        a clip that cannot be used has None there, and a warning says why.

    Raises
    ------
    InputError
        If the clip, all of several clips, or an option cannot be used; the message says what to do.

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
    request = MixRequest(
        measures=as_unique_tuple(measures) or (),
        stacks=as_unique_tuple(stacks),
        layers=as_unique_tuple(layers),
        units=units,
        spans=spans,
        targets=as_unique_tuple(targets) if isinstance(targets, int) else targets,
        pooling=pooling,
        heads=heads,
        rounding=rounding,
        include=as_unique_tuple(include) or (),
        dtype=dtype,
        objective=objective,
        window=window,
    )
    if clips_at_once != "auto" and not (isinstance(clips_at_once, int) and clips_at_once >= 1):
        raise InputError(
            "clips_at_once should be a whole number of at least 1, or 'auto'; found "
            f"{clips_at_once!r}"
        )
    compute_group = partial(
        compute_maps, model, request=request, dtype=resolve_state_dtype(model, request)
    )
    if isinstance(clip, Mapping):
        rows = split_batch(clip)
        folders = map_folders(out, rows)
        row_maps = [compute_group([row], folders)[0] for row in rows]
        return row_maps[0] if len(rows) == 1 else [*row_maps]
    if isinstance(clip, (Clip, Sentence, str)):
        return compute_group([clip], map_folders(out, [clip]))[0]
    if not isinstance(clip, Iterable):
        raise InputError(
            f"expected a clip, a text, prepared inputs or several of them, found {clip!r:.80}"
        )
    group_size = clips_per_pass(model) if clips_at_once == "auto" else int(clips_at_once)
    results = mix_items(
        model,
        clip,
        request,
        group_size=group_size,
        out=out,
        progress=progress,
    )
    return _warn_of_errors(results)


def mix_items(
    model: Model,
    items: Iterable[Clip | Sentence | str],
    request: MixRequest,
    *,
    group_size: int,
    batch_size: int | str = "auto",
    out: str | PathLike[str] | None = None,
    progress: bool = False,
) -> list[tuple[Clip | Sentence | str, Maps | SpeechmixError]]:
    """Each of several items with its maps, or with the error why it cannot be used. Items are read
    ahead, and at most `group_size` share a pass; `batch_size` (target position, source) pairs are
    handled at once, as many as fit the memory by default."""
    if progress or out is not None:
        items = list(items)
    compute_group = partial(
        compute_maps,
        model,
        request=request,
        dtype=resolve_state_dtype(model, request),
        batch_size=batch_size,
    )
    folders = map_folders(out, items if isinstance(items, Sequence) else ())
    if progress:
        from tqdm.auto import tqdm

        items = tqdm(items, unit="clip", desc=f"mix {model.name}")
    with (
        model.unchanged(),
        closing(prefetch_inputs(model, items, count=group_size)) as prefetched_items,
    ):
        return [
            (item, result)
            for group in split_into_groups(prefetched_items, group_size)
            for item, result in zip(
                group, _maps_or_errors(compute_group, group, folders), strict=True
            )
        ]


def _warn_of_errors(
    results: Sequence[tuple[Clip | Sentence | str, Maps | SpeechmixError]],
) -> list[Maps | None]:
    """Return None in the place of each error, with a warning; raise the first if there are no maps."""
    errors = [(item, result) for item, result in results if isinstance(result, SpeechmixError)]
    if errors and len(errors) == len(results):
        raise errors[0][1]
    for item, error in errors:
        name = item.name if isinstance(item, Clip) else f"{item!s:.40}"
        warnings.warn(f"no maps of {name}, which is None in the list: {error}", stacklevel=4)
    return [None if isinstance(result, SpeechmixError) else result for _, result in results]


def _maps_or_errors(
    compute_group: Callable[..., list[Maps]], items: Sequence[Item], folders: Any
) -> Sequence[Maps | SpeechmixError]:
    """Maps of items that share a pass; if that fails one by one, and then the error of each that cannot be used."""
    try:
        return compute_group(items, folders)
    except (InputError, AlignmentError) as error:
        if len(items) == 1:
            return [error]
        results = [
            result for item in items for result in _maps_or_errors(compute_group, [item], folders)
        ]
        if not any(isinstance(result, SpeechmixError) for result in results):
            raise  # they do not go together
        return results


def mix_one(model: Model, item: Item, **options: Any) -> Maps:
    """`mix` of one item, which has one answer."""
    maps = mix(model, item, **options)
    first = maps if isinstance(maps, Maps) else maps[0]
    assert first is not None  # a single item that cannot be used is an error
    return first
