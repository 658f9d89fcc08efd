"""Run a model: in evaluation mode, in a chosen precision, one thread at a time, as its owner has it.

In: a model as `ModelDescription` describes it. Out: contexts in which it may be run, its features
and outputs. Nothing of the module is changed when a context is left.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from ...errors import InputError, ModelError
from ...files.timing import phase
from ..binding.bound_layers import bind_stack, layer_modules
from ..delta_engine.matrix_products import WeightProducts
from ..loading.model_properties import ModelDescription
from ..transformers_types import Inputs, ModelOutput
from .activation_cache import ActivationCache
from .full_precision import full_precision
from .memory_check import check_fits
from .module_access import exclusive_access, has_adapters, list_modules, precision_context
from .random_state import isolated_random_numbers

if TYPE_CHECKING:
    from ..families.family import Family


class MeasurableModel(ModelDescription):
    """What runs a `Model`, and what it stores in the meantime."""

    family: Family
    weight_products: WeightProducts | None
    activation_cache: ActivationCache | None
    _modules: list[torch.nn.Module]  # that the stacks are bound to

    def features(self, audio: np.ndarray) -> dict[str, torch.Tensor]:
        """Return what the model's feature extractor makes of audio [samples] at the model's
        rate."""
        if self.feature_extractor is None:
            raise ModelError(
                f"{self.name} was loaded without a feature extractor, so it cannot be given audio: "
                "load it with "
                "processor=, or pass prepared inputs"
            )
        check_fits(self, len(audio))
        if self.family.grid is not None:
            self.family.grid(self.config, len(audio))  # raises for sound shorter than a frame
        with phase("features"):
            features = self.feature_extractor(
                audio, sampling_rate=self.sample_rate, return_tensors="pt"
            )
            # Cohere's also tells which part of which sound each row is.
            return {name: x for name, x in features.items() if isinstance(x, torch.Tensor)}

    def run_with_head(self, inputs: Inputs, **options: object) -> ModelOutput:
        """Run the whole module within `in_use`, with its head and without a cache of past tokens.

        The inputs are on the model's device; the options are further arguments of the module
        ("encoder_outputs" instead of the encoder's input). A decoder behind an encoder that is fed
        nothing is an InputError; one that predicts several codes at a position (Dia), a ModelError.
        """
        needs_text = self.capabilities.generated_input == "decoder_input_ids"
        if needs_text and "decoder_input_ids" not in inputs:
            raise InputError(
                f"{self.name} predicts nothing without decoder_input_ids: give them with the inputs"
            )
        if "decoder" in self.stacks:
            options = {"use_cache": False, **options}
        if self.family.run_head is not None:
            return self.family.run_head(self.module, inputs, **options)
        with _protected_states({**inputs, **options}.get("encoder_outputs"), self.family.is_traced):
            output = self.module(**inputs, **options, return_dict=True)
        codes = inputs.get("decoder_input_ids")
        if codes is not None and codes.ndim == 3 and len(output.logits) != len(codes):
            raise ModelError(
                f"{self.name} predicts a code of each of {codes.shape[-1]} codebooks at a position: a "
                "decision between two tokens is not defined there; measure its maps with speechmix.mix"
            )
        return output

    @contextmanager
    def in_use(self, dtype: torch.dtype | None = None) -> Iterator[None]:
        """Evaluate while the block lasts: no dropout, no gradients of weights, in a given
        precision, and in all its digits (full_precision.py). Then all is as before.

        `dtype` is the weights' own precision or a finer one; None converts nothing. Whatever runs
        the module runs it in here, for the module may be its owner's, who trains it in between.
        Threads that share a model, or modules of one, take turns. Random numbers are drawn apart
        from the caller's, the same in each run and each row of a batch.
        """
        weights_dtype = self.dtype
        if dtype is not None and torch.finfo(dtype).eps > torch.finfo(weights_dtype).eps:
            raise ModelError(
                f"cannot run a {weights_dtype} model in {dtype} and give it back unchanged: load it with "
                "dtype= instead"
            )
        with exclusive_access(self.module):
            self.rebind()
            with (
                isolated_random_numbers(self.module, self.base),
                precision_context(self.module, dtype),
                full_precision(self.device, dtype or weights_dtype),
            ):
                yield

    def rebind(self) -> None:
        """Find the modules again that were exchanged inside layers since the model was loaded.

        A ModelError says that whole layers were exchanged, that the model was given adapters, or
        that its table does not fit the new modules.
        """
        modules = list_modules(self.module)
        if len(modules) == len(self._modules) and all(map(operator.is_, modules, self._modules)):
            return
        for name, stack in self.stacks.items():
            if layer_modules(stack.spec, self.base) != tuple(
                layer.module for layer in stack.layers
            ):
                raise ModelError(
                    f"{self.name}: layers of the {name} were exchanged after loading: load it again"
                )
        if has_adapters(self.module):
            raise ModelError(
                f"{self.name} was given adapters after loading: load it again, so that they are "
                "merged"
            )
        for name, stack in self.stacks.items():
            bound_stack = bind_stack(stack.spec, self.base, stack.heads)
            if bound_stack is not None:
                self.stacks[name] = replace(
                    bound_stack, unknown_sum_reason=stack.unknown_sum_reason
                )
        self._modules = modules

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Promise that weights and feature extractor do not change while the block lasts: what is
        computed from them is computed once.

        What is made of the weights for one clip serves the next (on a CPU); what is made of a
        clip's sound, features and the states of a Whisper's encoder, serves the next question about
        it (activation_cache.py).
        """
        if self.activation_cache is not None:
            yield
            return
        self.activation_cache = ActivationCache()
        self.weight_products = WeightProducts() if self.device.type == "cpu" else None
        try:
            yield
        finally:
            self.weight_products = self.activation_cache = None


@contextmanager
def _protected_states(encoder_output: ModelOutput, is_needed: bool) -> Iterator[None]:
    """Give the decoder a copy of an encoder's states: Moonshine Streaming's writes into them, and
    they are used again."""
    if encoder_output is None or not is_needed:
        yield
        return
    states = encoder_output[0]
    encoder_output.last_hidden_state = states.clone()
    try:
        yield
    finally:
        encoder_output.last_hidden_state = states
