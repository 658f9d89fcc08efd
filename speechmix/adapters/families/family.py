"""Table of a model family: its stacks, input preparation and frame grid.

In: a config, a clip, prepared inputs. Out: specs, model inputs, a forward pass. What kind of model
it is follows from the table (`Capabilities`), and callers test that instead of the family's name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .capabilities import Capabilities, SoundPooling

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from ...inputs.audio.frame_grid import FrameGrid
    from ...inputs.sentences.sentence import Sentence
    from ..generation.decoder_context import DecoderPrefix, GeneratedText
    from ..generation.model_inputs import PreparedInputs
    from ..model import Model
    from ..transformers_types import Config, Inputs, ModelOutput, PretrainedModule, Processor
    from .specs import StackSpec


@dataclass(frozen=True)
class Family:
    """A model family: the table of its stacks and the few things that cannot be data.

    Parameters
    ----------
    name : str
    model_types : tuple of str
        The ``config.model_type`` values this family covers.
    stacks : callable
        ``stacks(config)`` gives the `StackSpec`s.
    grid : callable or None
        ``grid(config, n_samples)`` gives the `FrameGrid` of a clip of that many samples. None: the
        model reads text.
    prepare : callable
        ``prepare(model, clip, stacks)`` gives the model inputs for a clip, or a `Sentence`
        (`PreparedInputs`).
    run : callable
        ``run(base, inputs, stacks)`` runs the base model forward, no further than the stacks need.
    tiny_inputs : callable
        ``tiny_inputs(config)`` gives the smallest inputs the model takes, for the self-check.
    auto_class : callable
        ``auto_class(config)`` names the transformers class that loads a checkpoint with this
        config.
    heads : callable
        ``heads(config, stack_name)`` gives the number of attention heads.
    can_batch : callable
        ``can_batch(config)`` says whether clips of several lengths can share a forward pass without
        changing its result.
    feature_rows : tuple of int, optional
        Where ``input_features`` [1, rows, bins] grow with the clip: samples from one row to the
        next, and samples that the first takes beyond that.
    projector_step : callable, optional
        Of an audio language model, whose decoder reads sound among its tokens:
        ``projector_step(config)`` gives how many frames of the encoder become how many positions of the
        decoder (model_inputs.py).
    build_chat_inputs : callable, optional
        ``build_chat_inputs(processor, audio, text)`` gives the inputs of a prompt with a sound, where
        `write_chat_inputs` does not.
    sound_pooling : callable
        ``sound_pooling(config)`` says which states a classification head of a sound reads
        (`Capabilities.sound_pooling`).
    run_head : callable, optional
        Of a transducer: ``run_head(module, inputs, encoder_outputs=)`` gives logits along a path
        through frames and tokens (emission_paths.py), which the module itself does not.
    generate : callable, optional
        ``generate(model, item)`` gives the text that the model itself writes (`GeneratedText`), for a
        clip or sentence that brings none for the decoder.
    translate : callable, optional
        ``translate(model, sentence)`` gives a `Sentence` with the translation that the model writes.
    check_prefix : callable, optional
        ``check_prefix(model, prefix)`` raises unless the decoder takes this task, language and
        timestamps; None where it takes no prefix (all but Whisper).
    is_traced : bool
        True if the table was found by tracing a small random model (`traced_family.py`).
    """

    name: str
    model_types: tuple[str, ...]
    stacks: Callable[[Config], tuple[StackSpec, ...]]
    grid: Callable[[Config, int], FrameGrid] | None
    # of a Clip where there is a grid, else of a Sentence
    prepare: Callable[[Model, Any, tuple[str, ...]], PreparedInputs]
    run: Callable[[PretrainedModule, Inputs, tuple[str, ...]], ModelOutput]
    tiny_inputs: Callable[[Config], dict[str, Tensor]]
    auto_class: Callable[[Config], str]
    heads: Callable[[Config, str], int] = lambda config, stack: config.num_attention_heads
    can_batch: Callable[[Config], bool] = lambda config: False
    feature_rows: tuple[int, int] | None = None
    projector_step: Callable[[Config], tuple[int, int]] | None = None
    build_chat_inputs: Callable[[Processor, np.ndarray, str], Inputs] | None = None
    sound_pooling: Callable[[Config], SoundPooling] = lambda config: (
        "mean of all layers" if getattr(config, "use_weighted_layer_sum", False) else "mean"
    )
    run_head: Callable[..., ModelOutput] | None = None
    generate: Callable[[Model, Any], GeneratedText] | None = None
    translate: Callable[[Model, Sentence | str], Sentence] | None = None
    check_prefix: Callable[[Model, DecoderPrefix], None] | None = None
    is_traced: bool = False

    def capabilities(self, config: Config, stacks: tuple[str, ...]) -> Capabilities:
        """What kind of model one of this family is that has these stacks."""
        step = self.projector_step
        return Capabilities(
            self.name,
            "text" if self.grid is None else "audio",
            stacks,
            None if step is None or "decoder" not in stacks else step(config),
            is_transducer=self.run_head is not None,
            sound_pooling=self.sound_pooling(config),
        )
