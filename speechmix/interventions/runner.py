"""The runner of all interventions: a model run with each of them, in batches, and the margin or something else read.

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

from ..adapters.editing.patched_runs import run_patches
from ..adapters.editing.patches import Patch
from ..adapters.transformers_types import ModelOutput
from ..mixing.measures.token_objectives import token_logits
from .removals import SOUND, Removal, Rows, change_inputs

if TYPE_CHECKING:
    from .decision import Decision

Intervention = tuple[Removal, ...] | Patch
Reader = Callable[[ModelOutput], Tensor]  # output of R runs to Tensor [R, ...]
ChangedInputs = tuple[Mapping[str, Tensor], Rows]

INTACT: tuple[Removal, ...] = ()
_RUNS_AT_ONCE = 16  # changed inputs of one shape that run together
_INPUTS_AT_ONCE = 64  # changed inputs that are in memory


def run_interventions(
    decision: Decision,
    interventions: Sequence[Intervention],
    *,
    read: Reader | None = None,
    at_once: int | None = None,
) -> np.ndarray:
    """Run a model with each intervention, and read the margin or something else.

    Parameters
    ----------
    decision : Decision
        The model and the item.
    interventions : sequence of Patch or tuple of Removal [N]
        Removals of a tuple are applied together; an empty one is the item as it is.
    read : callable, optional
        Output of R runs, with logits [R, T, V] in double precision, to Tensor [R, ...]; the margin by default. Position t is
        that of the unchanged input; what follows a removed token is read behind the one before it, NaN if there is none.
    at_once : int, optional
        Patches that run together; as many as fit by default.

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
    >>> decision = Decision.of(model, bundled.clips()[1])  # synthetic: "nos maisons"
    >>> quiet = [(Removal("sound", (word,), gain),) for word in (0, 1) for gain in (0.5, 0.1)]
    >>> run_interventions(decision, [INTACT, *quiet]).shape
    (5,)
    """
    read = decision.objective.function if read is None else read
    patches = {
        number: change for number, change in enumerate(interventions) if isinstance(change, Patch)
    }
    removals = {
        number: change
        for number, change in enumerate(interventions)
        if not isinstance(change, Patch)
    }
    found: dict[int, np.ndarray] = {}
    if patches:
        model, sound = decision.model, decision.prepared.sound
        with model.in_use(model.state_dtype):
            clean, patched = run_patches(
                model,
                decision.inputs,
                list(patches.values()),
                _in_double(read),
                sound=sound,
                at_once=at_once,
            )
        found = dict(zip(patches, patched.cpu().numpy(), strict=True))
        found |= {number: clean.cpu().numpy() for number, change in removals.items() if not change}
        removals = {number: change for number, change in removals.items() if change}
    inputs_of = _SharedSounds(decision, list(removals.values()))
    numbers = list(removals)
    for start in range(0, len(numbers), _INPUTS_AT_ONCE):
        chunk = numbers[start : start + _INPUTS_AT_ONCE]
        changed = [inputs_of(removals[number]) for number in chunk]
        found |= dict(zip(chunk, run_inputs(decision, changed, read), strict=True))
    return np.array([found[number] for number in range(len(interventions))])


class InterventionCache:
    """What is read of interventions, each of which is run once.

    Parameters
    ----------
    decision, read
        As for `run_interventions`.
    """

    def __init__(self, decision: Decision, read: Reader | None = None):
        self._decision, self._read = decision, read
        self._known: dict[Intervention, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self._known)

    def read(self, interventions: Sequence[Intervention]) -> np.ndarray:
        """Return what is read of each intervention, [N, ...]; those that are new are run."""
        new = [change for change in dict.fromkeys(interventions) if change not in self._known]
        if new:
            self._known |= dict(
                zip(new, run_interventions(self._decision, new, read=self._read), strict=True)
            )
        return np.array([self._known[change] for change in interventions])


class _SharedSounds:
    """Inputs of runs; what the encoder of a speech model makes of a sound is computed once for all runs that share it."""

    def __init__(self, decision: Decision, interventions: Sequence[tuple[Removal, ...]]):
        self._decision = decision
        self._uses = Counter(map(_sound_of, interventions))
        self._states: dict[tuple[Removal, ...], Tensor] = {}

    def __call__(self, removals: tuple[Removal, ...]) -> ChangedInputs:
        decision, sound = self._decision, _sound_of(removals)
        model, item, inputs = decision.model, decision.item, decision.prepared.inputs
        is_shared = self._uses[sound] > 1 or (not sound and decision.is_encoded)
        if not (decision.can_share_sound and is_shared):
            return change_inputs(model, item, inputs, removals)
        if sound not in self._states:
            heard = change_inputs(model, item, inputs, sound)[0]
            self._states[sound] = decision.encode(heard) if sound else decision.encoded_sound
        tokens = [removal for removal in removals if removal.side != SOUND]
        changed, rows = change_inputs(model, item, inputs, tokens)
        return decision.behind_encoder(changed, self._states[sound]), rows


def _sound_of(removals: Sequence[Removal]) -> tuple[Removal, ...]:
    return tuple(removal for removal in removals if removal.side == SOUND)


def run_inputs(
    decision: Decision, changed: Sequence[ChangedInputs], read: Reader
) -> list[np.ndarray]:
    """Read each of many inputs and the rows that stand for the former positions; those of one shape run together."""
    by_shape: dict[tuple[object, ...], list[int]] = {}
    for number, (inputs, rows) in enumerate(changed):
        shapes = tuple((name, tuple(tensor.shape)) for name, tensor in inputs.items())
        by_shape.setdefault((shapes, rows is None), []).append(number)
    found: dict[int, np.ndarray] = {}
    size = _RUNS_AT_ONCE if _can_batch(decision) else 1
    for numbers in by_shape.values():
        for start in range(0, len(numbers), size):
            chunk = [changed[number] for number in numbers[start : start + size]]
            batch = {name: _stacked([inputs[name] for inputs, _ in chunk]) for name in chunk[0][0]}
            values = decision.of_output(batch, _in_double(read, [rows for _, rows in chunk]))
            found |= dict(zip(numbers[start : start + size], values.cpu().numpy(), strict=True))
    return [found[number] for number in range(len(changed))]


def _can_batch(decision: Decision) -> bool:
    """Whether inputs can run together: a causal classifier without a padding token cannot tell where each of many ends."""
    model = decision.model
    has_padding = getattr(model.text_config, "pad_token_id", None) is not None
    return has_padding or not (model.gives_labels and model.capabilities.label_pooling == "last")


def _stacked(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors of one shape as one batch; the very same one in all runs takes the memory of one."""
    if (
        len(tensors) > 1
        and all(tensor is tensors[0] for tensor in tensors)
        and len(tensors[0]) == 1
    ):
        return tensors[0].expand(len(tensors), *tensors[0].shape[1:])
    return torch.cat(list(tensors))


def _in_double(read: Reader, rows: Sequence[Rows] = ()) -> Reader:
    """The same reading of logits in double precision, moved to the former positions."""
    moved = [row for row in rows if row is not None]

    def read_output(output: ModelOutput) -> Tensor:
        if isinstance(getattr(output, "logits", None), Tensor):
            output.logits = output.logits.double()
        if moved:
            index = torch.tensor(moved, device=output.logits.device)
            logits = token_logits(output)[
                torch.arange(len(moved), device=index.device)[:, None], index.clamp(min=0)
            ]
            output.logits = logits.masked_fill((index < 0)[..., None], torch.nan)
        return read(output)

    return read_output
