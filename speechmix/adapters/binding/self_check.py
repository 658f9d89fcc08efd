"""Check on a tiny input that the family's table fits a loaded model.

The measured model returns the states of the original (fidelity_check.py). For every stack and
layer: attention rows sum to one, attention sinks included; replaying the layer with nothing zeroed
gives the forward pass (on chosen rows in another order); a changed row changes no other, unless the
table names the convolution that takes it there; zeroing a value changes the output; what attention
gives, added to the residual stream, is what the layer goes on with; the stack's output is its last
layer's behind the final norm. A failure names the module. Tolerances are shares of what attention
changes.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from ...errors import ModelError, SpeechmixError
from ..capture.attention_block import Block
from ..capture.forward_pass import Capture, use_attention
from ..model import Model
from .layer_check import check_layer, explain_unconfirmed_sum, layer_structure
from .part_recorder import PartRecorder
from .self_check_states import varied_gains
from .stack_check import PassRecord, check_tables_agree

_POSITIONS = 8


def self_check(model: Model) -> None:
    """Check a model; raises `ModelError` naming what does not fit.

    Where a layer's residual sum cannot be confirmed, the stack notes it (`Stack.unknown_sum_reason`) and
    measures that need it refuse.
    """
    try:
        _check_model(model)
    except ModelError as error:
        if non_finite_names := [
            name for name, weight in model.module.named_parameters() if not weight.isfinite().all()
        ]:
            raise ModelError(
                f"{model.name}: weights are not finite (NaN or infinity): {', '.join(non_finite_names[:5])}"
                f"{f' and {len(non_finite_names) - 5} more' if non_finite_names[5:] else ''}. Load the checkpoint "
                "again, or train it again"
            ) from error
        raise


def _check_model(model: Model) -> None:
    check_tables_agree(model)
    try:
        pass_record = _record_pass(model, _POSITIONS)
    except SpeechmixError:
        raise
    except (
        Exception
    ):  # some encoders pass on more with the states (rotary tables, lengths), which then do not fit
        pass_record = _record_full_pass(model)
    for stack in list(model.stacks.values()):
        pass_record.check_stack(stack)
        model.stacks[stack.name] = replace(
            stack, unknown_sum_reason=pass_record.stacks[stack.name].unknown_sum_reason
        )


def _record_full_pass(model: Model) -> PassRecord:
    try:
        return _record_pass(model, None)
    except SpeechmixError:
        raise
    except Exception as error:
        raise ModelError(
            f"{model.name}: {type(model.module).__name__} cannot be run and replayed on a tiny "
            "input "
            f"({type(error).__name__}: {str(error)[:200]}). If the model itself runs, the family's "
            "table or its run and "
            "tiny_inputs do not fit it; see speechmix.register"
        ) from error


def _record_pass(model: Model, positions: int | None) -> PassRecord:
    """Run the model on its family's tiny input, check each layer, and return what was seen."""
    pass_record, recorder = PassRecord(model), PartRecorder()

    def on_block(block: Block) -> None:
        recorder.stop()
        if block.clip:
            return
        name = block.stack.name
        layer_label = f"{model.name}, {name} layer {block.layer} ({type(model.module).__name__})"
        structure = layer_structure(block, recorder)
        check_layer(
            block,
            recorder,
            layer_label,
            is_new_structure=structure not in pass_record.structures,
        )
        pass_record.structures.add(structure)
        if sum_reason := explain_unconfirmed_sum(block, recorder):
            pass_record.stacks[name].unknown_sum_reason = sum_reason
        pass_record.add_layer(block)

    check_dtype = torch.float64 if model.dtype == torch.float64 else torch.float32
    inputs = {
        key: value.to(model.device, check_dtype if value.is_floating_point() else value.dtype)
        for key, value in model.family.tiny_inputs(model.config).items()
    }
    with (
        model.in_use(check_dtype),
        torch.no_grad(),
        use_attention(model.module, model.readable_attention),
        varied_gains(model),
        recorder.watch(model),
        pass_record.watch(),
        Capture(list(model.stacks.values()), on_block, max_positions=positions),
    ):
        model.family.run(model.base, inputs, tuple(model.stacks))
    return pass_record
