"""Check that a table's value, key and query projections make the values, keys and queries of
attention.

In: a layer that has just run. One position of a projection's output is changed and the attention
module is run again: what its attention call reads must change if the table says so, and else stay.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...errors import ModelError
from ..capture.attention_block import Block
from ..capture.layer_trace import AttentionCall
from ..transformers_types import HookArguments, ModelOutput
from .part_recorder import PartRecorder
from .self_check_states import states_agree

_ROLES = ("value", "key", "query")
_MIN_POSITIONS = 3  # fewer do not tell keys from queries
_SCORE_TOLERANCE = 1e-4


def check_projections(block: Block, recorder: PartRecorder, layer_label: str) -> None:
    """Check the projections of all attention blocks of a layer; a ModelError if one returns
    something else than the table says."""
    if block.n_targets < _MIN_POSITIONS:
        return
    for index, spec in enumerate(block.stack.spec.blocks):
        attention = block.modules.attentions[index]
        projections = {
            role: getattr(attention, role) if getattr(spec, role) else None for role in _ROLES
        }
        for role, projection in projections.items():
            if projection is not None and not _makes(block, recorder, index, role, projections):
                raise ModelError(
                    f"{layer_label}: the family's table does not fit: {getattr(spec, role)!r} does not make "
                    f"the {role} vectors of {spec.module!r}, or makes others too. Correct the table"
                )


def _makes(
    block: Block,
    recorder: PartRecorder,
    index: int,
    role: str,
    projections: dict[str, nn.Module | None],
) -> bool:
    """Return True if a projection makes the vectors of its role, and of other roles only if the
    table says so."""
    projection, call = projections[role], block.call(index)
    assert projection is not None
    attention = block.modules.attentions[index]
    attention_call = recorder.calls[attention.module][0]
    calls = recorder.calls.get(projection)
    if not calls:  # its weights were used without running it
        states, vectors = attention_call.states, getattr(call, role).transpose(0, 1).flatten(1)
        return states is not None and states_agree(
            projection(states).reshape(-1, vectors.shape[-1]), vectors, effect=0
        )
    output = calls[0].output
    if role == "value" and (
        output is None or not (attention.is_rerun or _are_multiples(call.value, output))
    ):
        return False
    changes: list[int] = []

    def change_once(module: nn.Module, args: HookArguments, output: ModelOutput) -> ModelOutput:
        if changes:  # positions relative to each other may be projected too (DeBERTa)
            return None
        position = min(output.shape[-2], block.n_targets) // 2
        changes.append(position)
        changed, ramp = output.clone(), torch.linspace(-1, 1, output.shape[-1]).to(output)
        changed[..., position, :] = output[..., position, :].flip(-1) + output.abs().max() * ramp
        return changed

    hook = projection.register_forward_hook(change_once)
    try:
        changed_call = block.run_attention(index, attention_call.arguments, attention_call.keywords)
    finally:
        hook.remove()
    return all(
        is_changed == (projections[other] is projection)
        for other, is_changed in _compare_calls(call, changed_call, changes[0]).items()
        if projections[other] is not None
    )


def _are_multiples(values: Tensor, output: Tensor) -> bool:
    """Return True if values are numbers of a projection's output, all times one factor (MiMo).

    The output may hold queries and keys, too; then the factor must be one.
    """
    if torch.isin(values, output).all():
        return True
    factor = values.abs().max() / output.abs().max()
    multiples = (output * factor).flatten().sort().values
    index = torch.searchsorted(multiples, values.flatten()).clamp(1, len(multiples) - 1)
    neighbours = torch.stack([multiples[index - 1], multiples[index]])
    distance = (neighbours - values.flatten()).abs().amin(dim=0)
    return bool(distance.max() <= 4 * torch.finfo(values.dtype).eps * values.abs().max())


def _compare_calls(
    call: AttentionCall, changed_call: AttentionCall, position: int
) -> dict[str, bool]:
    """Return for each role whether its vectors differ between two calls.

    In the second call a projection returned other vectors at one position. Where only weights were
    captured, a changed key changes the weights of other positions, too.
    """
    changes = {
        role: not states_agree(getattr(changed_call, role), getattr(call, role), effect=0)
        for role in _ROLES
        if getattr(call, role).numel()
    }
    if call.alpha is not None and changed_call.alpha is not None:
        scores, changed_scores = (
            alpha.clamp_min(torch.finfo(alpha.dtype).tiny).log()
            for alpha in (call.alpha, changed_call.alpha)
        )
        is_changed = ((changed_scores - scores).abs() > _SCORE_TOLERANCE).any(dim=-1).any(dim=0)
        is_other = torch.arange(len(is_changed), device=is_changed.device) != position
        changes["key"] = bool(is_changed[is_other].any())
        changes["query"] = bool(is_changed.any()) and not changes["key"]
    return changes
