"""Run a model with a batch of interventions and read the decision of each.

In: a `Decision` and interventions: a `Patch` in layers, or `Removal`s from the input that are applied together (none of them is
the item as it is). Out: what is read of each run. All patches share one growing pass, which begins with the intact item.
Changed inputs of one shape run together, and runs with the same sound share one pass of the encoder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..adapters.patching.patched_runs import run_patches
from ..adapters.patching.patches import Patch
from ..adapters.transformers_types import ModelOutput
from ..mixing.measures.token_objectives import token_logits
from .removals import SOUND, Removal, RowIndices, change_inputs

if TYPE_CHECKING:
    from .decision import Decision

Intervention = tuple[Removal, ...] | Patch
Reader = Callable[[ModelOutput], Tensor]  # output of R runs to Tensor [R, ...]
Encoder = Callable[[Mapping[str, Tensor]], Tensor]
ChangedInputs = tuple[Mapping[str, Tensor], RowIndices]

ENCODER_STATES = "encoder_states"  # name of an input that stands in place of the audio
NO_REMOVAL: tuple[Removal, ...] = ()
_MAX_BATCH_SIZE = 16  # changed inputs of one shape that run together
_MAX_INPUTS_IN_MEMORY = 64  # changed inputs that are in memory


def run_interventions(
    decision: Decision,
    interventions: Sequence[Intervention],
    *,
    reader: Reader | None = None,
    batch_size: int | None = None,
    encode: Encoder | None = None,
    double: bool = True,
) -> np.ndarray:
    """Run a model with each intervention, and read the margin or something else.

    Parameters
    ----------
    decision : Decision
        The model and the item.
    interventions : sequence of Patch or tuple of Removal [N]
        Removals of a tuple are applied together; an empty one is the item as it is.
    reader : callable, optional
        Output of R runs, with logits [R, T, V] in double precision, to Tensor [R, ...]; the margin by default. Position t is
        that of the unchanged input; what follows a removed token is read behind the one before it, NaN if there is none.
    batch_size : int, optional
        Patches that run together; as many as fit by default.
    encode : callable, optional
        Computes the encoder's states [1, T, D] for inputs whose sound was changed; the encoder by default.
    double : bool
        Give the reader of removals logits in double precision; else as the model computes them, for a reader that converts
        only what it reads.

    Returns
    -------
    ndarray [N, ...]

    Raises
    ------
    InputError
        If a fill is not possible, or a layer or position is not there.

    Examples
    --------
    >>> import speechmix
    >>> from speechmix.inputs import bundled
    >>> from speechmix.interventions.decision import Decision
    >>> model = speechmix.load(bundled.models()["tiny-french-ctc"])
    >>> decision = Decision.prepare(model, bundled.clips()[1])  # synthetic: "nos maisons"
    >>> quiet = [(Removal("sound", (word,), gain),) for word in (0, 1) for gain in (0.5, 0.1)]
    >>> run_interventions(decision, [NO_REMOVAL, *quiet]).shape
    (5,)
    """
    reader = decision.objective.function if reader is None else reader
    patches = {
        index: intervention
        for index, intervention in enumerate(interventions)
        if isinstance(intervention, Patch)
    }
    removals = {
        index: intervention
        for index, intervention in enumerate(interventions)
        if not isinstance(intervention, Patch)
    }
    values: dict[int, np.ndarray] = {}
    if patches:
        model, sound = decision.model, decision.prepared.audio_hash
        with model.in_use(model.state_dtype, is_sampling=decision.objective.is_custom):
            intact_value, patched_values = run_patches(
                model,
                decision.inputs,
                list(patches.values()),
                _make_reader(reader),
                audio_hash=sound,
                batch_size=batch_size,
            )
        values = dict(zip(patches, patched_values.cpu().numpy(), strict=True))
        values |= {
            index: intact_value.cpu().numpy()
            for index, intervention in removals.items()
            if not intervention
        }
        removals = {index: intervention for index, intervention in removals.items() if intervention}
    prepare_inputs = _SharedSoundInputs(decision, list(removals.values()), encode)
    removal_indices = list(removals)
    for start in range(0, len(removal_indices), _MAX_INPUTS_IN_MEMORY):
        chunk = removal_indices[start : start + _MAX_INPUTS_IN_MEMORY]
        changed_inputs = [prepare_inputs(removals[index]) for index in chunk]
        values |= dict(
            zip(chunk, run_inputs(decision, changed_inputs, reader, double), strict=True)
        )
    return np.array([values[index] for index in range(len(interventions))])


class InterventionCache:
    """Results of interventions, each of which is run once; `decision` and `read` are those of
    `run_interventions`."""

    def __init__(self, decision: Decision, reader: Reader | None = None):
        self._decision, self._reader = decision, reader
        self._values: dict[Intervention, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self._values)

    def read(self, interventions: Sequence[Intervention]) -> np.ndarray:
        """Return what is read of each intervention, [N, ...]; those that are new are run."""
        new_interventions = [
            intervention
            for intervention in dict.fromkeys(interventions)
            if intervention not in self._values
        ]
        if new_interventions:
            self._values |= dict(
                zip(
                    new_interventions,
                    run_interventions(self._decision, new_interventions, reader=self._reader),
                    strict=True,
                )
            )
        return np.array([self._values[intervention] for intervention in interventions])


class _SharedSoundInputs:
    """Inputs of runs; what the encoder of a speech model makes of a sound is computed once for all runs that share it."""

    def __init__(
        self,
        decision: Decision,
        interventions: Sequence[tuple[Removal, ...]],
        encode: Encoder | None = None,
    ):
        self._decision, self._encode = decision, encode
        self._sound_counts = Counter(map(_sound_removals, interventions))
        self._states: dict[tuple[Removal, ...], Tensor] = {}

    def __call__(self, removals: tuple[Removal, ...]) -> ChangedInputs:
        decision, sound_removals = self._decision, _sound_removals(removals)
        model, item, inputs = decision.model, decision.item, decision.prepared.inputs
        is_shared = self._sound_counts[sound_removals] > 1
        if sound_removals:
            is_encoded_here = is_shared or self._encode is not None
        else:
            is_encoded_here = is_shared or decision.is_encoded
        if not (decision.can_share_encoder and is_encoded_here):
            return change_inputs(model, item, inputs, removals)
        states = self._states.get(sound_removals)
        if states is None:
            sound_inputs = change_inputs(model, item, inputs, sound_removals)[0]
            states = (
                (self._encode or decision.encode)(sound_inputs)
                if sound_removals
                else decision.encoder_output
            )
            if is_shared:
                self._states[sound_removals] = states
        token_removals = [removal for removal in removals if removal.side != SOUND]
        changed_inputs, rows = change_inputs(model, item, inputs, token_removals)
        return decision.with_encoder_states(changed_inputs, states), rows


def _sound_removals(removals: Sequence[Removal]) -> tuple[Removal, ...]:
    return tuple(removal for removal in removals if removal.side == SOUND)


def run_inputs(
    decision: Decision,
    changed_inputs: Sequence[ChangedInputs],
    reader: Reader,
    double: bool = True,
) -> list[np.ndarray]:
    """Read each of many inputs and the rows that stand for the former positions.

    Those of one shape run together, and apart from others those that share the encoder's states, which are then projected
    once.
    """
    state_counts = Counter(id(inputs.get(ENCODER_STATES)) for inputs, _ in changed_inputs)
    indices_by_shape: dict[tuple[object, ...], list[int]] = {}
    for index, (inputs, rows) in enumerate(changed_inputs):
        shapes = tuple((name, tuple(tensor.shape)) for name, tensor in inputs.items())
        states = id(inputs.get(ENCODER_STATES))
        shared_states = states if state_counts[states] > 1 else None
        indices_by_shape.setdefault((shapes, rows is None, shared_states), []).append(index)
    values_by_index: dict[int, np.ndarray] = {}
    batch_size = _MAX_BATCH_SIZE if _can_batch(decision) else 1
    for indices in indices_by_shape.values():
        for start in range(0, len(indices), batch_size):
            chunk = [changed_inputs[index] for index in indices[start : start + batch_size]]
            batch = {
                name: _stack_tensors([inputs[name] for inputs, _ in chunk]) for name in chunk[0][0]
            }
            read = _make_reader(reader, [rows for _, rows in chunk], double)
            values = decision.read_output(batch, read)
            values_by_index |= dict(
                zip(indices[start : start + batch_size], values.cpu().numpy(), strict=True)
            )
    return [values_by_index[index] for index in range(len(changed_inputs))]


def _can_batch(decision: Decision) -> bool:
    """Whether inputs can run together: a causal classifier without a padding token cannot tell where each of many ends."""
    model = decision.model
    has_padding = getattr(model.text_config, "pad_token_id", None) is not None
    return has_padding or not (model.has_label_head and model.capabilities.label_pooling == "last")


def _stack_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """Stack tensors of one shape to a batch; one shared tensor is not copied."""
    if (
        len(tensors) > 1
        and all(tensor is tensors[0] for tensor in tensors)
        and len(tensors[0]) == 1
    ):
        return tensors[0].expand(len(tensors), *tensors[0].shape[1:])
    return torch.cat(list(tensors))


def _make_reader(reader: Reader, rows: Sequence[RowIndices] = (), double: bool = True) -> Reader:
    """Return a reader that gets logits moved to the former positions, and in double precision."""
    row_indices = [row for row in rows if row is not None]

    def read_output(output: ModelOutput) -> Tensor:
        if double and isinstance(getattr(output, "logits", None), Tensor):
            output.logits = output.logits.double()
        if row_indices:
            index = torch.tensor(row_indices, device=output.logits.device)
            logits = token_logits(output)[
                torch.arange(len(row_indices), device=index.device)[:, None], index.clamp(min=0)
            ]
            output.logits = logits.masked_fill((index < 0)[..., None], torch.nan)
        return reader(output)

    return read_output
