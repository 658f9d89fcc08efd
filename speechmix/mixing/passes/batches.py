"""Group clips, pairs and rows into batches that fit into memory, and choose the precision of a run.

In: a model, its inputs for several clips, a captured block. Out: one padded batch; numbers of pairs
and rows. A thread decodes the files of the clips that follow while the model is at work; nothing is handed
over: `read_audio` caches the few files read last, where the samples of a clip are found.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import copy_context
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import torch

from ...adapters.binding.bound_layers import projection_weight
from ...adapters.capture.forward_pass import use_attention
from ...adapters.capture.model_use import extract_features
from ...adapters.capture.module_access import resolve_dtype
from ...adapters.model import Model
from ...adapters.transformers_types import Inputs
from ...errors import InputError, SpeechmixError
from ...files.timing import phase
from ...inputs.clips.clip import Clip
from .request import MixRequest

if TYPE_CHECKING:
    from ...adapters.capture.layer_run import Block

Item = TypeVar("Item")


def prefetch_audio(
    items: Iterable[Item], *, sample_rate: int, count: int = 1
) -> Generator[Item, None, None]:
    """Yield clips, while a thread reads the audio of the `count` that follow; what is no clip
    passes through.

    An audio file that cannot be read is no error here: reading its samples later raises the error
    again.
    """
    return prefetch_items(items, lambda clip: clip.audio(sample_rate), count=count)


def prefetch_items(
    items: Iterable[Item], prepare: Callable[[Clip], object], *, count: int = 1
) -> Generator[Item, None, None]:
    """Yield items, each clip after it was prepared, while a thread prepares the next `count`.

    Items that are no clips pass through. What `prepare` returns is dropped, and so is an error of
    ours that it raises: it comes back where the clip is used. Closing the generator early lets the
    thread finish the clip at hand, and no other.
    """

    def prepare_clip(item: Item) -> None:
        with suppress(SpeechmixError):
            if isinstance(item, Clip):
                prepare(item)

    executor = ThreadPoolExecutor(max_workers=1)
    try:
        queue: deque[tuple[Item, Future[object]]] = deque()
        for item in items:
            queue.append((item, executor.submit(copy_context().run, prepare_clip, item)))
            if len(queue) > count:
                yield _wait_for_item(*queue.popleft())
        while queue:
            yield _wait_for_item(*queue.popleft())
    finally:
        executor.shutdown(cancel_futures=True)


def _wait_for_item(item: Item, preparation: Future[object]) -> Item:
    with phase("waiting for clips"):
        wait([preparation])
    return item


T = TypeVar("T")

# Bytes that one batch of (target position, source) pairs may take: on a CPU what stays near its
# caches, which is fastest, on a GPU a share of what is free.
CPU_BATCH_BYTES = 2**25
_GPU_BATCH_LIMITS = (2**27, 2**31)
_MAX_GPU_CLIPS = 8  # what is read ahead for them stays within what `read_audio` keeps
_POSITION_COUNT = 1500  # frames of 30 s
# Of the attention weights [H, R, K] held at once: 64 MiB in float32, and on a GPU 256 MiB, of several
# clips together.
ATTENTION_FLOATS, _GPU_ATTENTION_FLOATS = 2**24, 2**26


def clips_per_pass(model: Model) -> int:
    """How many clips share a forward pass: several on a GPU, where padding changes nothing for this
    model; else one.

    As many as take half of the memory that is free, eight at most.
    """
    if model.device.type != "cuda" or not model.family.can_batch(model.config):
        return 1
    free_bytes, _ = torch.cuda.mem_get_info(model.device)
    return max(1, min(_MAX_GPU_CLIPS, free_bytes // 2 // clip_bytes(model)))


def clip_bytes(model: Model) -> int:
    """About how many bytes a clip of 30 s (or a text of as many tokens) takes while it passes
    through a layer.

    For each position what is captured of a layer: states, queries, keys, values, context and the
    attention block's output (8 D), what enters and leaves the feed-forward's activation (3 F); or,
    if that is more, what a convolution over the waveform reads and writes.
    """
    width = max(
        (
            projection_weight(feed_forward.up).shape[0]
            for stack in model.stacks.values()
            for feed_forward in stack.layers[0].feed_forwards
        ),
        default=4 * max(stack.width for stack in model.stacks.values()),
    )
    max_floats = _POSITION_COUNT * (
        8 * max(stack.width for stack in model.stacks.values()) + 3 * width
    )
    samples, channels = 30 * model.sample_rate, 1
    for out_channels, stride in zip(
        getattr(model.config, "conv_dim", ()),
        getattr(model.config, "conv_stride", ()),
        strict=False,
    ):
        input_floats = samples * channels
        samples, channels = samples // stride, out_channels
        max_floats = max(
            max_floats, input_floats + 3 * samples * channels
        )  # with its norm and activation
    return max_floats * model.state_dtype.itemsize


def prefetch_inputs(
    model: Model, items: Iterable[Item], *, count: int = 1
) -> Generator[Item, None, None]:
    """Yield items in order, while a thread reads the sound of the `count` clips that follow and
    makes the model's features.

    Set `count` to the number that share a forward pass. Within `Model.unchanged` the features are
    found by whoever needs them next (`adapters.capture.model_use.extract_features`); outside it
    only the sound is read. Items that are no clips pass through, and a clip that cannot be read is
    no error here. Texts are not tokenised in the thread: tokenizers are not safe for threads.
    """
    if (
        model.activation_cache is None
        or model.feature_extractor is None
        or not model.capabilities.has_shared_features
    ):
        return prefetch_audio(items, sample_rate=model.sample_rate, count=count)
    return prefetch_items(items, lambda clip: extract_features(model, clip), count=count)


def split_into_groups(items: Iterable[T], size: int) -> Iterator[list[T]]:
    items = iter(items)
    while batch := list(islice(items, size)):
        yield batch


def split_batch(inputs: Inputs) -> list[Inputs]:
    """Prepared inputs of a batch, one clip each, with whatever padding they have."""
    tensors = {name: torch.as_tensor(value) for name, value in inputs.items()}
    batch_sizes = {name: len(tensor) if tensor.ndim else 0 for name, tensor in tensors.items()}
    if len(set(batch_sizes.values())) != 1 or 0 in batch_sizes.values():
        raise InputError(
            f"prepared inputs should be tensors of one batch size; found {batch_sizes or 'nothing'}"
        )
    row_count = next(iter(batch_sizes.values()))
    return [
        {name: tensor[row : row + 1] for name, tensor in tensors.items()}
        for row in range(row_count)
    ]


def pad_batch(model: Model, inputs: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """One batch of several clips' inputs, padded on the right; a mask keeps padding out where the
    encoder is padded."""
    if len(inputs) == 1:
        return inputs[0]
    if not model.family.can_batch(model.config):
        raise InputError(
            f"{model.name} gives other results when clips are padded: clips_at_once must be 1"
        )
    names = list(inputs[0])
    padded = {}
    for name in names:
        rows = [tensors[name][0] for tensors in inputs]
        pad_value = (
            getattr(model.text_config, "pad_token_id", None) or 0
            if name.endswith("input_ids")
            else 0
        )
        padded[name] = torch.nn.utils.rnn.pad_sequence(
            rows, batch_first=True, padding_value=pad_value
        )
    main_input = names[0]
    lengths = torch.tensor([tensors[main_input].shape[1] for tensors in inputs])
    if "attention_mask" not in padded and len(set(lengths.tolist())) > 1:
        padded["attention_mask"] = (
            torch.arange(padded[main_input].shape[1]) < lengths[:, None]
        ).long()
    return padded


def pair_batch_bytes(device: torch.device) -> int:
    """Bytes that one batch of pairs may take; computed once a pass, because a GPU is slow to report
    its free memory."""
    if device.type != "cuda":
        return CPU_BATCH_BYTES
    free_bytes, _ = torch.cuda.mem_get_info(device)
    return min(max(free_bytes // 4, _GPU_BATCH_LIMITS[0]), _GPU_BATCH_LIMITS[1])


def pair_batch_size(block: Block, max_bytes: int) -> int:
    """(Target position, source) pairs to handle at once, in so many bytes."""
    return max(64, max_bytes // (block.floats_per_pair * block.values.dtype.itemsize))


def row_batch_size(block: Block) -> int:
    """Target positions whose attention weights are held at once."""
    return max(64, ATTENTION_FLOATS // (block.stack.heads * block.n_sources))


def clips_in_batch(block: Block, row_count: int) -> int:
    """Clips of so many target positions whose attention weights are held at once."""
    floats = ATTENTION_FLOATS if block.values.device.type == "cpu" else _GPU_ATTENTION_FLOATS
    return max(1, floats // (block.stack.heads * block.n_sources * max(row_count, 1)))


def resolve_state_dtype(model: Model, request: MixRequest) -> torch.dtype:
    """Precision of the states: float32 or better by default, because scores are small differences
    of states, which half precision rounds away."""
    if request.dtype is None:
        return model.state_dtype
    dtype = resolve_dtype(request.dtype)
    if dtype.itemsize < 4:
        warnings.warn(
            f"scores are computed on {dtype} states: expect relative errors of tens of percent, and "
            "small scores to be noise; measures='value_zeroing:product_dtype=bfloat16' is as fast "
            "and keeps errors below 1 %",
            stacklevel=4,
        )
    return dtype


@contextmanager
def inference_context(
    model: Model, dtype: torch.dtype, *, is_sampling: bool = False
) -> Iterator[None]:
    """Run a model unchanged while the block lasts: its own weights in this precision, no gradients,
    no random number taken from the caller."""
    with (
        torch.inference_mode(False),  # a caller's, in which nothing could be differentiated
        model.in_use(dtype, is_sampling=is_sampling),
        torch.no_grad(),
        use_attention(model.module, model.readable_attention),
    ):
        yield
