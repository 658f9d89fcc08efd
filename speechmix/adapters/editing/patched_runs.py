"""Run an unmodified model with patches, many such runs in one pass.

A patch changes a source at some layer: its value vectors are zeroed, or its states or values are
those of another item. Before that layer its run is the clean one, so one forward pass carries both:
it begins with the clean item alone, and its batch *grows* by the patches of a layer when it reaches
that layer. Row 0 stays the clean run. A model of L layers with a patch for each of W words in each
layer so runs half of L W passes, batched; and what comes before the patches once.

Unlike Value Zeroing, which asks about one layer at a time on the original input, a change is
carried on to the output: queries, keys and attention weights of later layers follow from the
changed states, as they would. The module's code is not changed; the model is as before on leaving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ...errors import InputError
from ..binding.bound_layers import Stack
from ..binding.layer_components import AttentionModules
from ..capture.features import run_encoder
from ..capture.forward_pass import arguments_by_name, use_attention
from ..capture.packed_states import pack_like, unpack_states
from ..model import Model
from ..transformers_types import HookArguments, HookKeywords, ModelOutput
from .patches import ChangedValues, Patch
from .shared_encoder import project_once

_ENCODED = ("input_features", "input_values", "input_ids")  # what an encoder is fed
_POSITIONS_AT_ONCE = 48_000  # of all patches that run together
_MOST_AT_ONCE = 256


def run_patches(
    model: Model,
    inputs: Mapping[str, Tensor],
    patches: Sequence[Patch],
    read: Callable[[ModelOutput], Tensor],
    *,
    sound: str | None = None,
    at_once: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Run a model clean and with every patch, and read something off each run's output.

    Parameters
    ----------
    model : Model
        In use (`Model.in_use`), in the precision of `inputs`.
    inputs : dict of str to Tensor
        Of one item, a batch of 1, on the model's device.
    sound : str, optional
        Whose inputs these are (`Prepared.sound`), where what the encoder gives is remembered.
    patches : sequence of Patch [N]
    read : callable
        From the module's output for R runs to a Tensor [R, ...].
    at_once : int, optional
        Patches that run together; by default as many as hold 48,000 positions, at most 256.

    Returns
    -------
    Tensor [...], Tensor [N, ...]
        Of the clean run, and of each patch.

    Raises
    ------
    InputError
        If a patch names a stack, layer or position that is not there.
    """
    whole: dict[str, Any] = dict(inputs)
    behind = whole
    with torch.no_grad():
        with _growing(model, ()) as clean_pass:
            if "cross" in model.stacks:  # the encoder runs once for all patches behind it
                behind = {**whole, "encoder_outputs": _encoded(model, whole, sound)}
            clean = read(_run(model, behind))[0]
        if "cross" in clean_pass.lengths:  # what the encoder gives may have been remembered
            clean_pass.lengths.setdefault("encoder", clean_pass.lengths["cross"])
        for patch in patches:
            _check(model, patch, clean_pass.lengths)
        readings: dict[int, Tensor] = {}
        for in_encoder in (True, False):
            numbers = [
                number
                for number, patch in enumerate(patches)
                if (patch.stack == "encoder") == in_encoder
            ]
            for chunk in _chunks(numbers, at_once or _fitting(max(clean_pass.lengths.values()))):
                chunk.sort(key=lambda number: patches[number].layers.start)
                fed = whole if in_encoder else behind
                # Sound must meet tokens of as many runs: all run from the start.
                if in_encoder and model.converses:
                    fed = {
                        name: torch.cat([tensor] * (len(chunk) + 1))
                        for name, tensor in whole.items()
                    }
                with _growing(model, [patches[number] for number in chunk]):
                    output = _run(model, fed)
                readings |= dict(zip(chunk, read(output)[1:], strict=True))
    runs = [readings[number] for number in range(len(patches))]
    return clean, torch.stack(runs) if runs else clean[None][:0]


def _encoded(model: Model, inputs: Mapping[str, ModelOutput], sound: str | None) -> ModelOutput:
    """What the encoder gives, run under the attention that passes with patches have."""
    of_encoder = {name: value for name, value in inputs.items() if not name.startswith("decoder_")}
    return run_encoder(model, of_encoder, sound, attention=model.readable_attention)


def _chunks(numbers: list[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]


def _fitting(length: int) -> int:
    """How many runs of so many positions go together."""
    return min(_MOST_AT_ONCE, max(1, _POSITIONS_AT_ONCE // length))


def _run(model: Model, inputs: Mapping[str, ModelOutput]) -> ModelOutput:
    options = {"use_cache": False} if "decoder" in model.stacks else {}
    if "encoder_outputs" in inputs:  # then what the encoder is fed is not needed
        inputs = {name: value for name, value in inputs.items() if name not in _ENCODED}
    return model.module(**inputs, **options, return_dict=True)


def _check(model: Model, patch: Patch, lengths: Mapping[str, int]) -> None:
    if patch.stack not in model.stacks:
        raise InputError(f"{model.name} has no stack {patch.stack!r}; it has {list(model.stacks)}")
    count, length = len(model.stacks[patch.stack]), lengths.get(patch.stack, 0)
    if (
        not patch.layers
        or patch.layers.step != 1
        or not 0 <= patch.layers.start < patch.layers.stop <= count
    ):
        raise InputError(
            f"layers should be a range within the {count} of the {patch.stack}, found "
            f"{patch.layers}"
        )
    beyond = [position for position in patch.positions if not 0 <= position < length]
    if beyond:
        raise InputError(
            f"position {beyond[0]} is not among the {length} sources of the {patch.stack}"
        )
    if patch.states is not None and patch.stack == "cross":
        raise InputError(
            "states are put in where they enter a layer: ask for the encoder or the decoder, not "
            "for cross"
        )


@contextmanager
def _growing(model: Model, patches: Sequence[Patch]) -> Iterator[_Growing]:
    """While it lasts, a pass with one item gives that item's run and, behind it, each patch's.

    Patches come in the order of their first layers, and are of the encoder alone or of what is
    behind it.
    """
    model.rebind()
    with ExitStack() as undo:
        undo.enter_context(use_attention(model.module, model.readable_attention))
        yield _Growing(model, patches, undo)


class _Growing:
    """Hooks of a pass whose batch grows.

    Attributes
    ----------
    lengths : dict of stack to int
        Source positions of the stacks that have run.
    """

    def __init__(self, model: Model, patches: Sequence[Patch], undo: ExitStack):
        self.lengths: dict[str, int] = {}
        # Row in the batch of each patch; 0 is the clean run.
        self._rows = list(enumerate(patches, start=1))
        # Runs that packed states hold.
        self._encoder_run_count = 1 + sum(patch.stack == "encoder" for patch in patches)
        self._undo = undo
        # Open while an attention module runs whose values are changed.
        self._changing = undo.enter_context(ExitStack())
        by_module: dict[nn.Module, list[tuple[Stack, int]]] = {}
        for stack in model.stacks.values():
            for index, layer in enumerate(stack.layers):
                by_module.setdefault(layer.module, []).append((stack, index))
        for module, blocks in by_module.items():
            self._watch(module, blocks)

    def _hook(self, handle: RemovableHandle) -> None:
        self._undo.callback(handle.remove)

    def _watch(self, module: nn.Module, blocks: list[tuple[Stack, int]]) -> None:
        """Let the batch grow where a layer begins, and change values where its attention runs."""
        names, first = [stack.name for stack, _ in blocks], blocks[0][0]
        heads, shared = first.heads, first.spec.shared
        leaving = [
            (row, b)
            for row, b in self._rows
            if (b.stack, b.layers.start) in {(s.name, i) for s, i in blocks}
        ]

        def before(
            module: nn.Module, args: HookArguments, kwargs: HookKeywords
        ) -> tuple[HookArguments, HookKeywords]:
            entered, kwargs = arguments_by_name(module, args, kwargs)
            hidden = unpack_states(entered, self._encoder_run_count)
            memory = kwargs.get("encoder_hidden_states")
            sources = {"cross": hidden if memory is None else memory}
            self.lengths |= {name: sources.get(name, hidden).shape[1] for name in names}
            batch = {1, len(hidden), 1 if memory is None else len(memory)}
            rows = max(*batch, *(row + 1 for row, _ in leaving), 1)
            hidden = _grown(hidden, rows, batch).clone() if leaving else _grown(hidden, rows, batch)
            for row, patch in leaving:
                if patch.states is not None:
                    hidden[row, list(patch.positions)] = patch.states.to(hidden)
            bias, given = kwargs.get("position_bias"), {}
            if isinstance(bias, Tensor) and bias.ndim == 3 and "position_bias" not in shared:
                # WavLM's [rows heads, T, T], the same in all rows.
                given["position_bias"] = bias[:heads].repeat(rows, 1, 1)
            grown = {
                name: x if name in shared else _grown(x, rows, batch) for name, x in kwargs.items()
            }
            return (pack_like(entered, hidden),), {**grown, **given}

        self._hook(module.register_forward_pre_hook(before, with_kwargs=True))
        for stack, index in blocks:
            changes = [
                (row, patch) for row, patch in self._rows if patch.changes_values(stack.name, index)
            ]
            if changes:
                self._change(stack.layers[index].attention, index, stack.heads, changes)
            if stack.name == "cross":
                project_once(stack.layers[index], self._undo)

    def _change(
        self, attention: AttentionModules, layer: int, heads: int, changes: list[tuple[int, Patch]]
    ) -> None:
        def before(module: nn.Module, args: HookArguments, kwargs: HookKeywords) -> None:
            states = arguments_by_name(module, args, kwargs)[0]
            by_runs = unpack_states(states, self._encoder_run_count)
            own_heads = heads if attention.needs_eager else None
            packed = by_runs.shape[1] if states.ndim == 2 else 0
            self._changing.enter_context(
                ChangedValues(layer, changes, len(by_runs), own_heads, packed=packed)
            )

        def after(*_: object) -> None:
            self._changing.close()

        self._hook(attention.module.register_forward_pre_hook(before, with_kwargs=True))
        self._hook(attention.module.register_forward_hook(after))


def _grown(value: ModelOutput, rows: int, batch: set[int]) -> ModelOutput:
    """A batch (of one of these sizes) with its first row, the clean run's, repeated behind it until
    it has so many rows."""
    if (
        not isinstance(value, Tensor)
        or value.ndim < 2
        or len(value) == rows
        or len(value) not in batch
    ):
        return value
    repeated = value[:1].expand(rows if len(value) == 1 else rows - len(value), *value.shape[1:])
    return repeated if len(value) == 1 else torch.cat([value, repeated])
