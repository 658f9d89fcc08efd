"""Feed a transducer (RNN-T, TDT) a text, and compute its logits along a path of frames.

A *path* is the frame at which each token was emitted (transducer_emissions.py). Row u of its logits
is z(t_u, u), which chose token u + 1: so whatever reads a decoder's logits reads these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...errors import InputError
from ..capture.device_copy import inputs_to_device
from ..transformers_types import Inputs, ModelOutput, PretrainedModule
from .decoder_context import GeneratedText
from .greedy_generation import decode_ids, tokenize_clip
from .transducer_emissions import Emission, align_emissions, decode_emissions, list_path_frames

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ..model import Model
    from .model_inputs import PreparedInputs

# Inputs of a path [B, R]: the frame of each row of logits, and how many tokens are behind it.
PATH_FRAMES, PATH_STATES = "decoder_frames", "decoder_states"


def run_along_path(
    module: PretrainedModule, inputs: Inputs, encoder_outputs: ModelOutput | None = None
) -> ModelOutput:
    """Run a transducer and read its joint network along a path: logits [B, R, V] of tokens, without
    those of durations.

    The inputs are the encoder's, ``decoder_input_ids`` [B, 1 + U] (a blank, and the text), and the
    path, ``decoder_frames`` and ``decoder_states`` [B, R]. `encoder_outputs` replaces the encoder's
    inputs by its projected states [B, T, J] (`project_sound`).
    """
    from transformers.modeling_outputs import CausalLMOutput

    if PATH_FRAMES not in inputs:
        raise InputError(
            f"a transducer chooses each token at one frame: give {PATH_FRAMES} with the inputs, the "
            "frame of each row of logits, or a clip with a text"
        )
    if encoder_outputs is None:
        sound = module.get_audio_features(**select_encoder_inputs(inputs)).pooler_output
    else:
        sound = encoder_outputs[0]
    text = module.decoder(inputs["decoder_input_ids"])
    count = max(len(sound), len(text))
    sound, text = (states.expand(count, -1, -1) for states in (sound, text))
    rows = torch.arange(count, device=sound.device)[:, None]
    logits = module.joint(
        decoder_hidden_states=text[rows, inputs[PATH_STATES]],
        encoder_hidden_states=sound[rows, inputs[PATH_FRAMES]],
    )
    return CausalLMOutput(logits=logits[..., : module.config.vocab_size])


def select_encoder_inputs(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the inputs of the encoder, without those of the text."""
    return {name: tensor for name, tensor in inputs.items() if not name.startswith("decoder_")}


def project_sound(model: Model, inputs: Mapping[str, Tensor]) -> Tensor:
    """Run the encoder of a transducer: its projected states [T, J] of one sound, without padding.

    In use (`Model.in_use`), without gradients.
    """
    encoder_inputs = inputs_to_device(
        select_encoder_inputs(inputs), model.device, model.state_dtype
    )
    output = model.module.get_audio_features(**encoder_inputs)
    mask = getattr(output, "attention_mask", None)
    sound: Tensor = output.pooler_output[0]
    return sound if mask is None else sound[: int(mask[0].sum())]


def generate_emissions(model: Model, clip: Clip) -> GeneratedText:
    """Return the transcript that a transducer generates (greedy), with the frames of each token."""
    inputs = model.family.prepare(model, clip, ("encoder",)).inputs
    with model.in_use(model.state_dtype), torch.no_grad():
        emissions, ended = decode_emissions(model.module, project_sound(model, inputs))
    ids = [emission.token for emission in emissions]
    return GeneratedText(
        (model.config.blank_token_id, *ids),
        1,
        decode_ids(model, ids),
        f"transcript of the model ({model.label}, greedy)",
        ended,
        tuple((emission.start, emission.stop) for emission in emissions),
    )


def add_text_and_path(
    model: Model, clip: Clip, stacks: Sequence[str], prepared: PreparedInputs
) -> PreparedInputs:
    """Add the text of a clip and its path, if `stacks` has the prediction network ("decoder");
    errors as in `tokenize_clip` and `align_emissions`."""
    if "decoder" in stacks:
        prepared.tokens, prepared.generated_text = tokenize_clip(model, clip)
        feed_path(model, prepared, prepared.tokens.ids, prepared.generated_text)
    return prepared


def feed_path(
    model: Model,
    prepared: PreparedInputs,
    ids: Sequence[int],
    generated_text: GeneratedText | None = None,
) -> None:
    """Feed a transducer a blank and a text, on the path of its own decoding or on the likeliest."""
    with model.in_use(model.state_dtype), torch.no_grad():
        sound = project_sound(model, prepared.inputs)
        if generated_text is None:
            emissions = align_emissions(model.module, sound, ids[1:])
        else:
            spans = zip(generated_text.ids[1:], generated_text.frames, strict=True)
            emissions = [Emission(token, *frames) for token, frames in spans]
        frames = list_path_frames(model.module, sound, emissions)
    prepared.inputs["decoder_input_ids"] = torch.tensor([list(ids)])
    prepared.inputs[PATH_FRAMES] = torch.tensor([frames])
    prepared.inputs[PATH_STATES] = torch.arange(len(frames))[None]
