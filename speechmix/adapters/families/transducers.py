"""What a transducer (RNN-T, TDT) adds to the table of its encoder.

In: the family of the encoder, written or traced, and the config of the whole model. Out: a family
whose models write. No architecture is named here: transformers builds all of them alike (Parakeet,
Nemotron).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..generation.model_inputs import PreparedInputs
from ..generation.transducer_path import (
    add_text_and_path,
    generate_emissions,
    run_along_path,
    select_encoder_inputs,
)
from ..transformers_types import Config, Inputs, ModelOutput, PretrainedModule
from .family import Family

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ..model import Model


def add_transducer(family: Family, config: Config) -> Family:
    """Return the family of an encoder, with what is behind it if that is a transducer.

    `config` is that of the whole model: a transducer's says how many tokens it emits at a frame at
    most.
    """
    is_transducer = hasattr(config, "blank_token_id") and hasattr(config, "max_symbols_per_step")
    return make_transducer(family) if is_transducer and family.run_head is None else family


def make_transducer(encoder: Family) -> Family:
    """Return the family of transducers with the encoder of another family."""
    return replace(
        encoder,
        prepare=partial(_prepare_transducer, encoder),
        run=partial(_run_encoder, encoder),
        run_head=run_along_path,
        generate=generate_emissions,
    )


def _prepare_transducer(
    encoder: Family, model: Model, clip: Clip, stacks: tuple[str, ...]
) -> PreparedInputs:
    prepared = encoder.prepare(model, clip, ("encoder",))
    return add_text_and_path(model, clip, stacks, prepared)


def _run_encoder(
    encoder: Family, base: PretrainedModule, inputs: Inputs, stacks: tuple[str, ...]
) -> ModelOutput:
    return encoder.run(base, select_encoder_inputs(inputs), stacks)
