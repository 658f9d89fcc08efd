"""What a transducer (RNN-T, TDT) adds to the table of its encoder.

In: the family of a module's encoder, written or traced, and the module. Out: a family whose models
write. The prediction network and the joint network are found by the names that transformers gives
them (Parakeet, Nemotron), so that no architecture is named here.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from ..generation.model_inputs import PreparedInputs
from ..generation.transducer_path import (
    add_text_and_path,
    generate_emissions,
    run_along_path,
    select_encoder_inputs,
)
from ..transformers_types import Inputs, ModelOutput, PretrainedModule
from .family import Family

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ..model import Model

_PARTS = (
    "get_audio_features",
    "joint",
    "decoder.embedding",
    "decoder.lstm",
    "decoder.decoder_projector",
    "config.blank_token_id",
)


def add_transducer(family: Family, module: PretrainedModule) -> Family:
    """Return the family of a module with what its prediction and joint network do, if it has them.

    Parameters
    ----------
    family : Family
        Of the encoder.
    module : transformers.PreTrainedModel
    """
    if family.run_head is not None or not _has_parts(module):
        return family
    return replace(
        family,
        prepare=partial(_prepare_transducer, family),
        run=partial(_run_encoder, family),
        run_head=run_along_path,
        generate=generate_emissions,
    )


def _has_parts(module: PretrainedModule) -> bool:
    try:
        attrgetter(*_PARTS)(module)
    except AttributeError:
        return False
    return True


def _prepare_transducer(
    family: Family, model: Model, clip: Clip, stacks: tuple[str, ...]
) -> PreparedInputs:
    prepared = family.prepare(model, clip, ("encoder",))
    return add_text_and_path(model, clip, stacks, prepared)


def _run_encoder(
    family: Family, base: PretrainedModule, inputs: Inputs, stacks: tuple[str, ...]
) -> ModelOutput:
    return family.run(base, select_encoder_inputs(inputs), stacks)
