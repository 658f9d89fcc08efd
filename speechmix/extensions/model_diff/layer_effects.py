"""Exchange the weights of one part of B for those of A, and read what B then decides.

In: two models, and the decisions of a clip that differ. Out: `ClipEffects`. Three numbers tell where a difference
arises. *Alone*: B with one part of A; a part whose exchange turns a word back is a sufficient cause. *Up to*: B with
all parts of A up to one, which is B with A's states patched in behind this part (activation patching of the residual
stream); from the first part on where a word is A's, its cause lies before. *Local error*: both models' layers on the
same input, A's states; what enters a layer differs, too, where an earlier layer is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ...adapters.capture.device_copy import inputs_to_device
from ...adapters.capture.forward_pass import arguments_by_name
from ...adapters.capture.layer_run import first_output
from ...adapters.capture.model_use import run_encoder, wrap_encoder_states
from .weight_exchange import copy_weights, exchange_weights, list_head_weights

if TYPE_CHECKING:
    from ...adapters.model import Model
    from .changed_words import ClipDecisions
    from .weight_exchange import WeightGroup

Heads = Mapping[tuple[int, str], np.ndarray]


@dataclass(frozen=True, eq=False)
class ClipEffects:
    """What exchanges do to the C decisions of a clip and to the divergence of its output (the last column).

    Parameters
    ----------
    intact_a, intact_b : ndarray [C + 1]
        Margins of A's token over B's in nats, and the divergence from A's output (of A: 0).
    alone, up_to : ndarray [groups, C + 1]
        The same of B with one part of A, and with all parts up to this one.
    heads : dict of (group, part) to ndarray [C + 1]
        The same of B with one head of A, or with all but the heads ("rest"), in groups that turn a word.
    local_error, state_error : ndarray [groups]
        Relative to what A's layer adds to its input, and to A's states; NaN where there is no layer.
    """

    intact_a: np.ndarray
    intact_b: np.ndarray
    alone: np.ndarray
    up_to: np.ndarray
    heads: Heads
    local_error: np.ndarray
    state_error: np.ndarray

    @property
    def effects(self) -> np.ndarray:
        """Effect of each part alone, [groups, C + 1]: how far a margin rises towards A's word; how far the divergence
        falls."""
        rises = self.alone - self.intact_b
        return np.concatenate([rises[:, :-1], -rises[:, -1:]], axis=1)

    def first_layer(self, change: int) -> int | None:
        """Return the first part up to which A's states turn a word back for good; None if none does."""
        is_turned = self.up_to[:, change] > 0
        stays = np.logical_and.accumulate(is_turned[::-1])[::-1]
        return int(np.argmax(stays)) if stays.any() else None


def measure_layer_effects(
    model_a: Model,
    model_b: Model,
    decisions: ClipDecisions,
    groups: Sequence[WeightGroup],
    changed: Sequence[WeightGroup],
) -> ClipEffects:
    """Run B with the exchanges; parts whose weights are equal are not exchanged alone, for that does nothing."""
    runner = _Runner(model_a, model_b, decisions)
    with (
        model_a.in_use(model_a.state_dtype),
        model_b.in_use(model_b.state_dtype),
        torch.no_grad(),
    ):
        states_a, states_b = runner.encode(model_a), runner.encode(model_b)
        logits_a = runner.run(model_a, {}, states_a)
        runner.log_probabilities_a = decisions.log_probabilities(logits_a)
        intact_b = runner.read({}, states_b)
        alone, up_to = [], []
        weights_before: dict[str, Tensor] = {}
        for group in groups:
            is_encoder, is_changed = group.stack == "encoder", group in changed
            weights = copy_weights(model_a, [group])
            alone.append(
                runner.read(weights, None if is_encoder else states_b) if is_changed else intact_b
            )
            if is_changed:
                weights_before |= weights
                up_to.append(runner.read(weights_before, None if is_encoder else states_a))
            else:
                up_to.append(up_to[-1] if up_to else intact_b)
        effects = np.stack(alone)[:, :-1] - intact_b[:-1]
        largest = {int(group) for group in effects.argmax(axis=0)} if effects.size else set()
        head_weights = {
            (index, part): weights
            for index in sorted(largest)
            if groups[index] in changed
            for part, weights in list_head_weights(model_b, model_a, groups[index]).items()
        }
        heads = {
            key: runner.read(weights, None if groups[key[0]].stack == "encoder" else states_b)
            for key, weights in head_weights.items()
        }
        errors = _layer_errors(runner, groups, changed)
    return ClipEffects(
        runner.read_logits(logits_a),
        intact_b,
        np.stack(alone),
        np.stack(up_to),
        heads,
        *errors,
    )


class _Runner:
    """Runs of both models on the inputs of one clip."""

    def __init__(self, model_a: Model, model_b: Model, decisions: ClipDecisions):
        self.model_a, self.model_b, self.decisions = model_a, model_b, decisions
        self.inputs = inputs_to_device(decisions.inputs, model_b.device, model_b.state_dtype)
        self.log_probabilities_a: Tensor | None = None
        self._has_decoder = "decoder_input_ids" in self.inputs
        is_ctc = model_b.capabilities.decoding == "frames"
        self._blank = model_b.config.pad_token_id if is_ctc else None

    def encode(self, model: Model) -> Tensor | None:
        """Return the encoder's states; None of a model without a decoder."""
        if not self._has_decoder:
            return None
        sound = {
            name: tensor for name, tensor in self.inputs.items() if not name.startswith("decoder_")
        }
        states: Tensor = run_encoder(model, sound, self.decisions.audio_hash)[0]
        return states

    def run(self, model: Model, weights: Mapping[str, Tensor], states: Tensor | None) -> Tensor:
        """Return logits [1, T, V]; the encoder runs where its states are not given."""
        with exchange_weights(model, weights):
            if states is None:
                logits: Tensor = model.run_with_head(self.inputs).logits
            else:
                text = {"decoder_input_ids": self.inputs["decoder_input_ids"]}
                encoded = wrap_encoder_states(states)
                logits = model.run_with_head(text, encoder_outputs=encoded).logits
            return logits

    def read(self, weights: Mapping[str, Tensor], states: Tensor | None) -> np.ndarray:
        """Run B with A's weights of some parts."""
        return self.read_logits(self.run(self.model_b, weights, states))

    def read_logits(self, logits: Tensor) -> np.ndarray:
        values: np.ndarray = self.decisions.read(
            logits, self.log_probabilities_a, self._blank
        ).numpy()
        return values


def _layer_errors(
    runner: _Runner, groups: Sequence[WeightGroup], changed: Sequence[WeightGroup]
) -> tuple[np.ndarray, np.ndarray]:
    """Relative errors of B's layers, [groups] each: on A's states, and of the states in B's own run."""
    model_a, model_b = runner.model_a, runner.model_b
    local, state = (np.full(len(groups), np.nan) for _ in range(2))
    states_of_a: dict[tuple[str, int], Tensor] = {}

    def compare_layers(
        members: Any, module: nn.Module, args: Any, kwargs: Any, output: Any
    ) -> None:
        entering = arguments_by_name(module, args, kwargs)[0]
        leaving = first_output(output)
        for index in members:
            group = groups[index]
            states_of_a[group.stack, group.layer or 0] = leaving
            if group not in changed:
                local[index] = 0.0
                continue
            with exchange_weights(model_a, copy_weights(model_b, [group])):
                other = first_output(module.forward(*args, **kwargs))
            local[index] = _relative_error(other - leaving, leaving - entering)

    def compare_states(
        members: Any, module: nn.Module, args: Any, kwargs: Any, output: Any
    ) -> None:
        for index in members:
            of_a = states_of_a[groups[index].stack, groups[index].layer or 0]
            state[index] = _relative_error(first_output(output) - of_a, of_a)

    for model, compare in ((model_a, compare_layers), (model_b, compare_states)):
        with ExitStack() as hooks:
            for module, members in _layers_of_groups(model, groups):
                hook = module.register_forward_hook(partial(compare, members), with_kwargs=True)
                hooks.callback(hook.remove)
            runner.run(model, {}, None)
    return local, state


def _layers_of_groups(
    model: Model, groups: Sequence[WeightGroup]
) -> Iterator[tuple[nn.Module, list[int]]]:
    """Yield each layer with the indices of its groups: a decoder's layer has two."""
    members: dict[int, tuple[nn.Module, list[int]]] = {}
    for index, group in enumerate(groups):
        if group.layer is not None:
            module = model.stacks[group.stack].layers[group.layer].module
            members.setdefault(id(module), (module, []))[1].append(index)
    yield from members.values()


def _relative_error(difference: Tensor, reference: Tensor) -> float:
    size = float(reference.double().norm())
    return float(difference.double().norm()) / size if size else float("nan")
