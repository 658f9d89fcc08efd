"""Models of all speech types of transformers with what they are given: a clip of three words, or inputs.

In: a model type, with its mapping. Out: a `Subject`, the tiny model of `tests.mapping_coverage` loaded with a processor of
`tests.models.synthetic_processors`, where a type can have one.
"""

from __future__ import annotations

import contextlib
import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import speechmix
from speechmix.adapters.capture.model_use import isolated_random_numbers
from speechmix.errors import ModelError, SpeechmixError
from speechmix.extensions.tracing.input_search import find_input_form
from tests import mapping_coverage
from tests.models.synthetic_processors import build_processor

TEXT, SECONDS = "le chat dort", 1.5


@dataclass
class Subject:
    """A model with its inputs, and the clip that they are made of, where its type can be given one."""

    model: Any
    inputs: dict[str, torch.Tensor]
    clip: speechmix.Clip | None = None

    def output(self, inputs: dict[str, torch.Tensor] | None = None) -> Any:
        """Run the model itself; the encoder or base model where it has no head."""
        inputs = {
            name: x.to(self.model.dtype) if x.is_floating_point() else x
            for name, x in (self.inputs if inputs is None else inputs).items()
        }
        with torch.no_grad(), isolated_random_numbers():  # VibeVoice adds noise to its sound
            if self.model.has_head:
                with contextlib.suppress(ModelError):  # of a head that decides nothing
                    return self.model.run_with_head(inputs)
            return self.model.family.run(self.model.base, inputs, tuple(self.model.stacks))


def make_clip(seconds: float = SECONDS, muted: int | None = None) -> speechmix.Clip:
    """Noise that changes in time; `muted` is the word whose samples are zero."""
    rng, words = np.random.default_rng(0), TEXT.split()
    audio = 0.1 * rng.standard_normal(round(16_000 * seconds)).astype(np.float32)
    audio *= 1 + np.sin(np.arange(len(audio)) / 900, dtype=np.float32)
    step = seconds / len(words)
    if muted is not None:
        audio[round(16_000 * step * muted) : round(16_000 * step * (muted + 1))] = 0
    times = [(word, round(step * i, 3), round(step * (i + 1), 3)) for i, word in enumerate(words)]
    return speechmix.Clip.from_array(audio, 16_000, name="clip", text=TEXT, words=times, target=2)


def make_subject(model_type: str, mapping: dict[str, Any]) -> Subject:
    """Load the tiny model of a type, with its processor where there can be one."""
    module = copy.deepcopy(mapping_coverage.build(model_type, mapping))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        for weight in (x for x in module.parameters() if x.ndim > 1):
            weight.normal_(0, 0.2)  # transformers' own are so small that nothing mixes
    try:
        model = speechmix.load(module)
    except SpeechmixError:  # some cannot run in 64 bits
        model = speechmix.load(module.float())
    shapes = model.family.tiny_inputs(model.config)
    try:
        processor = build_processor(model_type, module, shapes)
        model = speechmix.load(module, processor=processor)
        clip = make_clip()
        speechmix.mix(model, clip, measures="attention", layers=0)
        return Subject(model, prepare(model, clip), clip)
    except (SpeechmixError, ValueError, ImportError):
        try:
            inputs = find_input_form(module.base_model).make(module.base_model)
        except SpeechmixError:
            inputs = shapes
        return Subject(model, inputs)


def prepare(model: Any, clip: speechmix.Clip) -> dict[str, torch.Tensor]:
    """The inputs that the model gets for a clip."""
    return dict(model.family.prepare(model, clip, model.capabilities.prepared_stacks).inputs)
