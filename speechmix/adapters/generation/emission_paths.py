"""Find the most likely CTC frames for each label of a text, in order.

In: log-probabilities of labels by frame, and the labels. Out: the frames of each label. What the
labels belong to (words, letters) is the caller's matter.

Feed a transducer (RNN-T, TDT) a text, and compute its logits along a path of frames.

A *path* is the frame at which each token was emitted. Row u of its logits
is z(t_u, u), which chose token u + 1: so whatever reads a decoder's logits reads these.

Emissions of a transducer (RNN-T, TDT): which token at which frame, decoded or aligned with a text.

With h_t the encoder's state of frame t, g_u the prediction network's state behind u tokens, and f
the joint network, the logits of the next token are z(t, u) = f(h_t, g_u). A blank goes on to the
next frame, any other token to g_(u + 1) (RNN-T, Graves 2012). A TDT also predicts how many frames
each step takes (Xu et al. 2023).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...errors import AlignmentError, InputError
from ..capture.device_copy import inputs_to_device
from ..transformers_types import Inputs, ModelOutput, PretrainedModule
from .decoder_context import GeneratedText
from .greedy_generation import decode_ids, tokenize_clip

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ..model import Model
    from .model_inputs import PreparedInputs


def best_ctc_path(
    log_probs: Tensor, labels: Sequence[int], *, blank: int
) -> tuple[list[list[int]], np.ndarray]:
    """Return the frames of each label on the best path, and the log-probability [T] of every
    frame's label on it.

    `log_probs` [T, V] is float32. An AlignmentError says that there are more labels than frames, or
    that a probability is NaN.
    """
    if log_probs.isnan().any():
        raise AlignmentError(
            "expected probabilities of labels, found NaN: this model computes no numbers on this "
            "sound"
        )
    repeat_count = sum(a == b for a, b in pairwise(labels))
    needed_count = len(labels) + repeat_count
    if needed_count > len(log_probs):
        blanks = (
            f" and needs a blank between two that are alike, {repeat_count} times: {needed_count} frames"
            if repeat_count
            else ""
        )
        raise AlignmentError(
            f"the text has {len(labels)} letters{blanks}, but the audio only {len(log_probs)} "
            "frames: is it the right text?"
        )
    state_labels = np.full(2 * len(labels) + 1, blank)  # a blank before, between and after
    state_labels[1::2] = labels
    states = _best_states(log_probs.numpy(), state_labels)
    scores = log_probs.numpy()[np.arange(len(states)), state_labels[states]]
    frames: list[list[int]] = [[] for _ in labels]
    for frame, state in enumerate(states.tolist()):
        if state % 2:
            frames[state // 2].append(frame)
    return frames, scores


def _best_states(log_probs: np.ndarray, state_labels: np.ndarray) -> np.ndarray:
    """Return the state of each frame on the best path (Viterbi), [T]; sums are in float64."""
    can_skip = np.zeros(len(state_labels), dtype=bool)  # the blank between labels that differ
    can_skip[3::2] = state_labels[3::2] != state_labels[1:-2:2]
    skip_cost = np.where(can_skip, 0.0, -np.inf)
    steps = np.zeros(
        (len(log_probs), len(state_labels)), dtype=np.uint8
    )  # from so many states back
    ways = np.full((3, len(state_labels)), -np.inf)  # stay, from the state before, past a blank
    score = np.full(len(state_labels), -np.inf)
    score[:2] = log_probs[0, state_labels[:2]]
    for frame in range(1, len(log_probs)):
        ways[0] = score
        ways[1, 1:] = score[:-1]
        ways[2, 2:] = score[:-2] + skip_cost[2:]
        steps[frame] = ways.argmax(axis=0)
        score = ways.max(axis=0) + log_probs[frame, state_labels]
    state = len(state_labels) - 1
    state -= int(state > 0 and score[state - 1] > score[state])
    states = np.empty(len(log_probs), dtype=np.int64)
    for frame in range(len(log_probs) - 1, -1, -1):
        states[frame] = state
        state -= int(steps[frame, state])
    return states


class Emission(NamedTuple):
    """A token that was emitted, and its frames: from `start`, to the one before `stop`."""

    token: int
    start: int
    stop: int


def decode_emissions(
    module: PretrainedModule, sound: Tensor, frame_count: int | None = None
) -> tuple[list[Emission], bool]:
    """Decode projected encoder states [T, J] greedily: the likeliest token at each step, as
    ``generate`` of transformers does.

    Only the first `frame_count` frames are read (None: all). The second result is False if the
    model went on at one frame until it was stopped.
    """
    config, emissions = module.config, list[Emission]()
    blank, vocab_size = config.blank_token_id, config.vocab_size
    durations = getattr(config, "durations", None)
    most_steps = config.max_symbols_per_step * len(sound) - 1
    frame_count = len(sound) if frame_count is None else frame_count
    text, memory = _predict(module, blank, None)
    frame = step_count = symbol_count = 0
    while frame < frame_count and step_count < most_steps:
        logits = module.joint(decoder_hidden_states=text, encoder_hidden_states=sound[frame])
        token = int(logits[:vocab_size].argmax())
        if durations is None:
            symbol_count = 0 if token == blank else symbol_count + 1
            advance = int(token == blank or symbol_count >= config.max_symbols_per_step)
            symbol_count *= 1 - advance
        else:
            advance = durations[int(logits[vocab_size:].argmax())]
            advance = max(advance, 1) if token == blank else advance
        if token != blank:
            emissions.append(Emission(token, frame, frame + max(advance, 1)))
            text, memory = _predict(module, token, memory)
        frame, step_count = frame + advance, step_count + 1
    return emissions, frame >= frame_count


def _predict(
    module: PretrainedModule, token: int, memory: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """State [J] of the prediction network behind one token more, and its memory."""
    network = module.decoder
    embedded = network.embedding(torch.tensor([[token]], device=network.embedding.weight.device))
    states, memory = network.lstm(embedded, memory)
    return network.decoder_projector(states)[0, 0], memory


def align_emissions(module: PretrainedModule, sound: Tensor, ids: Sequence[int]) -> list[Emission]:
    """Find the likeliest path of a given text through projected encoder states [T, J].

    A path ends where its last step reaches the end of the sound. It is the path of the highest
    product of probabilities, of steps of a TDT with those of their durations. An InputError says
    that no path has so many tokens.
    """
    config, frame_count = module.config, len(sound)
    blank, vocab_size = config.blank_token_id, config.vocab_size
    durations = getattr(config, "durations", None)
    text = module.decoder(torch.tensor([[blank, *ids]], device=sound.device))[0]
    best = np.full((len(ids) + 1, frame_count + 1), -np.inf)
    best[0, 0] = 0.0
    steps: dict[tuple[int, int], tuple[int, int]] = {}  # (row, frame) -> the one before
    for row, next_id in enumerate([*ids, None]):
        logits = module.joint(decoder_hidden_states=text[row], encoder_hidden_states=sound)
        scores = logits[:, :vocab_size].double().log_softmax(dim=-1).cpu().numpy()
        # Scores of the moves of blanks and tokens, [frames] for each number of frames.
        blank_moves, token_moves = {1: np.zeros(frame_count)}, {0: np.zeros(frame_count)}
        if durations is not None:
            duration_scores = logits[:, vocab_size:].double().log_softmax(dim=-1).cpu().numpy()
            token_moves = dict(zip(durations, duration_scores.T, strict=True))
            blank_moves = {advance: move for advance, move in token_moves.items() if advance}
        _advance(best, steps, (row, row), scores[:, blank], blank_moves)
        if next_id is not None:
            _advance(best, steps, (row, row + 1), scores[:, next_id], token_moves)
    node = (len(ids), frame_count)
    if node not in steps:
        raise InputError(
            f"a text of {len(ids)} tokens does not fit into {frame_count} frames of sound: is it "
            "the right text?"
        )
    emissions = []
    while node in steps:
        row, frame = steps[node]
        if row < node[0]:
            emissions.append(Emission(ids[row], frame, max(node[1], frame + 1)))
        node = row, frame
    return emissions[::-1]


def _advance(
    best: np.ndarray,
    steps: dict[tuple[int, int], tuple[int, int]],
    rows: tuple[int, int],
    scores: np.ndarray,
    moves: Mapping[int, np.ndarray],
) -> None:
    """Take each move from each frame of one row to another row, or the same, where that is likelier."""
    (row, next_row), end = rows, best.shape[1] - 1
    for frame, (advance, move) in product(range(end), moves.items()):
        score, stop = best[row, frame] + scores[frame] + move[frame], min(frame + advance, end)
        if score > best[next_row, stop]:
            best[next_row, stop], steps[next_row, stop] = score, (row, frame)


def list_path_frames(
    module: PretrainedModule, sound: Tensor, emissions: Sequence[Emission]
) -> list[int]:
    """List the frame of each row of a path's logits, [1 + U].

    The last row chooses no token. It is read at the frame behind the last token where a token was
    likeliest: there the text would have gone on.
    """
    blank = module.config.blank_token_id
    ids = torch.tensor([[blank, *(emission.token for emission in emissions)]], device=sound.device)
    first = min(emissions[-1].stop if emissions else 0, len(sound) - 1)
    logits = module.joint(
        decoder_hidden_states=module.decoder(ids)[0, -1], encoder_hidden_states=sound[first:]
    )[:, : module.config.vocab_size]
    last = first + int(logits.log_softmax(dim=-1)[:, blank].argmin())
    return [*(emission.start for emission in emissions), last]


def emission_probabilities(
    module: PretrainedModule, sound: Tensor, emissions: Sequence[Emission]
) -> np.ndarray:
    """Probability [U] of each token of a path where it was emitted, given those before it."""
    ids = [emission.token for emission in emissions]
    text = module.decoder(
        torch.tensor([[module.config.blank_token_id, *ids]], device=sound.device)
    )[0, :-1]
    frames = [emission.start for emission in emissions]
    logits = module.joint(decoder_hidden_states=text, encoder_hidden_states=sound[frames])
    scores = logits[:, : module.config.vocab_size].double().softmax(dim=-1)
    values: np.ndarray = scores[range(len(ids)), ids].cpu().numpy()
    return values


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
