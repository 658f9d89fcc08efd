"""Remove attention between chosen positions while a model runs: attention knock-out, streaming.

In: for some attention blocks the edges (target, source) that are removed, in each run of a batch.
Out: the model's hooks while the block lasts. A removed edge has the attention score minus infinity,
so that the weights of the other sources sum to 1 (attention knock-out, Geva et al. 2023, Dissecting
recall of factual associations in auto-regressive language models). Masks of the model itself stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ...errors import InputError, ModelError
from ..binding.layer_components import AttentionModules
from ..capture.forward_pass import arguments_by_name, use_attention
from ..capture.weighted_sums import SOFTMAX_FUNCTIONS
from ..transformers_types import HookArguments, HookKeywords, ModelOutput, TorchFunction

if TYPE_CHECKING:
    from ..model import Model

# Of the numbers of targets Q and sources K: which edges are removed, bool [runs or 1, Q, K].
EdgeFunction = Callable[[int, int], Tensor]


@contextmanager
def remove_attention_edges(
    model: Model, edges: Mapping[tuple[str, int], EdgeFunction]
) -> Iterator[None]:
    """Let a model run without some edges of its attention.

    Parameters
    ----------
    model : Model
    edges : mapping of (stack, layer) to callable
        Numbers of targets and sources -> bool Tensor [R, Q, K], True where an edge is removed; the
        model then runs a batch of R, or any batch if R is 1.

    Raises
    ------
    InputError
        If there is no such stack or layer.

    Examples
    --------
    >>> import speechmix
    >>> from speechmix.inputs import bundled
    >>> model = speechmix.load("bundled:tiny-french-ctc")
    >>> def remove_future(targets, sources):
    ...     return torch.ones(1, targets, sources, dtype=torch.bool).triu(1)
    >>> with remove_attention_edges(model, {("encoder", 0): remove_future}):
    ...     maps = speechmix.mix(model, bundled.clips()[0], measures=["attention"])
    >>> (maps["attention", "encoder"].scores[0] > 0).tolist()  # "notre maison"
    [[True, False], [True, True]]
    """
    with ExitStack() as exit_stack:
        exit_stack.enter_context(use_attention(model.module, model.readable_attention))
        for (name, layer), removed in edges.items():
            if name not in model.stacks or not 0 <= layer < len(model.stacks[name]):
                raise InputError(
                    f"{model.name} has no layer {layer} of a stack {name!r}; it has "
                    f"{ {stack: len(layers) for stack, layers in model.stacks.items()} } layers"
                )
            stack = model.stacks[name]
            _hook_attention(stack.layers[layer].attention, stack.heads, removed, exit_stack)
        yield


@contextmanager
def streaming_attention(
    model: Model, chunk: float, left: float | None = None, stack: str = "encoder"
) -> Iterator[None]:
    """Let an offline encoder attend as a streaming one: within chunks of time and some left context.

    A frame sees its own chunk to the end, and the time before the chunk. Convolutions, and norms
    over the whole clip, are as they were: they still see what comes later.

    Parameters
    ----------
    model : Model
        A speech model. Whatever is computed with it in the block is computed under the mask.
    chunk, left : float
        Seconds; all that came before for ``left=None``.
    stack : str

    Raises
    ------
    InputError
        If a chunk is shorter than a frame, or the model has no such stack.

    Examples
    --------
    >>> import speechmix
    >>> from speechmix.inputs import bundled
    >>> model = speechmix.load("bundled:tiny-french-ctc")
    >>> with streaming_attention(model, chunk=0.2, left=0.4):
    ...     maps = speechmix.mix(model, bundled.clips()[0])
    """
    if stack not in model.stacks:
        raise InputError(f"{model.name} has no stack {stack!r}; it has {list(model.stacks)}")
    stride = model.grid(10 * model.sample_rate).stride
    chunk_frames = round(chunk / stride)
    left_frames = None if left is None else round(left / stride)
    if chunk_frames < 1 or (left_frames or 0) < 0:
        raise InputError(
            f"a chunk should have at least one frame of {stride:g} s and the left context none or "
            f"more, found chunk={chunk}, left={left}"
        )

    def removed(targets: int, sources: int) -> Tensor:
        return chunk_edges(targets, chunk_frames, left_frames).to(model.device)

    edges = {(stack, layer): removed for layer in range(len(model.stacks[stack]))}
    texts, cache = model.generated_texts, model.activation_cache
    model.generated_texts, model.activation_cache = {}, None  # those are of full attention
    try:
        with remove_attention_edges(model, edges):
            yield
    finally:
        model.generated_texts, model.activation_cache = texts, cache


def chunk_edges(length: int, chunk: int, left: int | None) -> Tensor:
    """Return the edges that attention within chunks lacks, bool [1, T, T].

    Examples
    --------
    >>> chunk_edges(4, chunk=2, left=1)[0].int().tolist()
    [[0, 0, 1, 1], [0, 0, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0]]
    """
    positions = torch.arange(length)
    starts = (positions // chunk * chunk)[:, None]
    is_removed = positions >= starts + chunk
    return (is_removed if left is None else is_removed | (positions < starts - left))[None]


def _hook_attention(
    attention: AttentionModules, heads: int, removed: EdgeFunction, exit_stack: ExitStack
) -> None:
    """Mask the calls of one attention module until `exit_stack` closes."""
    open_masks = exit_stack.enter_context(ExitStack())

    def start_masking(module: nn.Module, args: HookArguments, kwargs: HookKeywords) -> None:
        states = arguments_by_name(module, args, kwargs)[0]
        softmax_heads = heads if attention.needs_eager else None
        open_masks.enter_context(_EdgeRemover(removed, states, softmax_heads))

    def stop_masking(module: nn.Module, args: HookArguments, output: ModelOutput) -> None:
        open_masks.close()

    for handle in (
        attention.module.register_forward_pre_hook(start_masking, with_kwargs=True),
        attention.module.register_forward_hook(stop_masking),
    ):
        exit_stack.callback(handle.remove)


class _EdgeRemover(TorchFunctionMode):
    """Masks what enters torch's attention functions, or the first softmax, of an attention module.

    `states` [R, Q, D] are those of the targets; packed [R Q, D], where attention is called block by
    block. `softmax_heads` counts the heads where attention is the module's own code; they may share
    an axis with the runs.
    """

    def __init__(self, removed: EdgeFunction, states: Tensor, softmax_heads: int | None):
        super().__init__()
        self._removed, self._softmax_heads = removed, softmax_heads
        self._is_packed = states.ndim == 2
        self._target_count = states.shape[-2]
        self._position = 0  # of packed states: positions of the calls before this one

    def __torch_function__(
        self,
        func: TorchFunction,
        types: Sequence[type],
        args: HookArguments = (),
        kwargs: HookKeywords | None = None,
    ) -> ModelOutput:
        kwargs = dict(kwargs or {})
        if func is F.scaled_dot_product_attention:
            names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale")
            call = {**dict(zip(names, args, strict=False)), **kwargs}
            query, key, value = (call.pop(name) for name in names[:3])
            call["attn_mask"] = self._mask(query, key, **call)
            return func(query, key, value, **{**call, "is_causal": False})
        if func is F.multi_head_attention_forward:
            kwargs["attn_mask"] = self._mask_multi_head(args, kwargs.get("attn_mask"))
        elif self._softmax_heads and func in SOFTMAX_FUNCTIONS:
            scores = args[0]
            by_head = scores.reshape(-1, self._softmax_heads, *scores.shape[-2:])
            edges = self._removed(*scores.shape[-2:])[:, None]
            args = (by_head.masked_fill(edges, -torch.inf).reshape(scores.shape), *args[1:])
            self._softmax_heads = None  # that was the softmax of the attention
        return func(*args, **kwargs)

    def _mask(
        self,
        query: Tensor,
        key: Tensor,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        **_: object,
    ) -> Tensor:
        """The mask of a call, [runs, 1 or H, Q, K], without the removed edges."""
        edges = self._edges_of_call(query, key)
        if is_causal:
            edges = edges | torch.ones_like(edges[0, 0]).triu(1)
        if attn_mask is None:
            return ~edges
        if attn_mask.dtype == torch.bool:
            return attn_mask & ~edges
        return torch.where(edges, -torch.inf, attn_mask)

    def _edges_of_call(self, query: Tensor, key: Tensor) -> Tensor:
        """Removed edges of a call, [runs, 1, Q, K]; of blocks of positions [runs x blocks, 1, q, q]."""
        rows, total = query.shape[-2], self._target_count
        if self._is_packed:
            start, self._position = self._position, self._position + rows
            runs = self._removed(total, total)
            length = total // len(runs)
            run, start = divmod(start, length)
            return runs[run, start : start + rows, start : start + rows][None, None]
        if rows == total:
            return self._removed(rows, key.shape[-2])[:, None]
        count = -(-total // rows)
        if key.shape[-2] != rows or len(query) % count:
            raise ModelError(
                f"attention of {rows} positions to {key.shape[-2]}, where the layer has {total}: "
                "edges cannot be removed from it"
            )
        edges = F.pad(self._removed(total, total), (0, count * rows - total) * 2)
        blocks: Tensor = torch.unflatten(torch.unflatten(edges, 2, (count, rows)), 1, (count, rows))
        blocks = blocks.diagonal(dim1=1, dim2=3).movedim(-1, 1).flatten(0, 1)[:, None]
        return blocks.repeat(len(query) // len(blocks), 1, 1, 1)

    def _mask_multi_head(self, args: HookArguments, mask: Tensor | None) -> Tensor:
        """The mask [runs x H, Q, K] of torch's own function, whose True means left out."""
        (targets, runs, _), heads = args[0].shape, args[4]
        edges = self._removed(targets, args[1].shape[0]).expand(runs, -1, -1)
        edges = edges.repeat_interleave(heads, dim=0)
        if mask is None or mask.dtype == torch.bool:
            return edges if mask is None else edges | mask
        return torch.where(edges, -torch.inf, mask)
