"""Find inputs that a model runs on, by trying the forms that transformers' models take.

In: a module and its base model. Out: an `InputForm` (tokens, a waveform, or features, in this order
of axes, with this mask) and tensors in it of any length.

Count how many frames of an encoder become how many positions of an audio language model's decoder.
"""

from __future__ import annotations

import inspect
import math
import re
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...adapters.families.specs import random_features
from ...adapters.generation.model_inputs import run_with_audio
from ...adapters.transformers_types import (
    HookArguments,
    HookKeywords,
    Inputs,
    ModelOutput,
    PretrainedModule,
)
from ...errors import InputError, ModelError
from .failure_reason import describe_failure
from .recording import iterate_tensors
from .small_models import count_audio_positions, draw_ids, draw_prompt, iterate_configs

_ALL_STACKS = ("encoder", "decoder", "cross")
_BIN_NAMES = re.compile("mel_bins|feat|input_dim|input_size")
_WIDTH_NAMES = re.compile(
    "^(audio_embed_dim|hidden_size|d_model)$"
)  # of features without a front end
_AUDIO_MASKS = ("input_features_mask", "feature_attention_mask", "padding_mask", "attention_mask")
_FRAME_COUNTS = (400, 96, 3_000)


@dataclass(frozen=True)
class InputForm:
    """What a model takes, and which part of it takes it.

    Parameters
    ----------
    kind : {"text", "translation", "audio", "transcript", "audio tokens"}
        Tokens; tokens and those of a decoder; sound; sound and a decoder's tokens; sound among
        tokens.
    audio_name : str, optional
        Name of the sound.
    mask_names : tuple of str
        Names of its masks.
    shape : tuple of int
        Of the sound, for `length` samples or feature frames.
    time_axis : int
        Which of them is time.
    encoder_alone : bool
        True if the whole model does not run on them (a transducer), and its encoder does.
    multiple : int
        Samples of a waveform come in this many.
    mask_type : torch.dtype
        Type of masks: a model may select by them, and then takes no numbers.
    codebooks : int
        Ids at each position, where they are several: of a text token and of codes of sound (in a
        text to speech model, of the decoder).
    """

    kind: Literal["text", "translation", "audio", "transcript", "audio tokens"]
    audio_name: str | None = None
    mask_names: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    time_axis: int = -1
    encoder_alone: bool = False
    multiple: int = 1
    mask_type: torch.dtype = torch.long
    codebooks: int = 0

    @property
    def length(self) -> int:
        """Samples or feature frames of the inputs that were tried."""
        return self.shape[self.time_axis]

    @property
    def padding(self) -> int:
        """Samples, feature frames or tokens that may be padding: a quarter."""
        if not self.hears:
            return 2
        return self.length // 4 if self.mask_names else 0

    @property
    def hears(self) -> bool:
        """True if the input is sound."""
        return self.audio_name is not None

    def make(
        self, base: PretrainedModule, *, length: int | None = None, padding: int = 0
    ) -> dict[str, Tensor]:
        """Make random inputs, the last of them padding.

        Parameters
        ----------
        length : int, optional
            Samples, feature frames or tokens.
        padding : int
            How many of them are padding; 0 where the model takes no mask.
        """
        if not self.hears:
            ids = draw_ids(base.config, length or 8)
            mask = torch.ones_like(ids)
            mask[:, len(ids[0]) - padding :] = 0
            inputs = {"input_ids": ids, "attention_mask": mask}
            if self.kind == "translation":
                inputs["decoder_input_ids"] = draw_ids(base.config, (length or 8) - 1).flip(-1)
            if self.codebooks:
                name = next(reversed([x for x in inputs if x.endswith("input_ids")]))
                inputs[name] = inputs[name][..., None].repeat(1, 1, self.codebooks)
                if self.kind == "text":
                    inputs.pop("attention_mask")
            return inputs
        shape = list(self.shape)
        shape[self.time_axis] = length or self.length
        inputs = {str(self.audio_name): random_features(*shape).to(base.dtype)}
        for name in self.mask_names:
            inputs[name] = torch.ones(1, shape[self.time_axis], dtype=self.mask_type)
            inputs[name][:, shape[self.time_axis] - padding :] = 0
        if self.kind == "transcript":
            inputs["decoder_input_ids"] = draw_ids(base.config, 7)
        if self.kind == "audio tokens":
            inputs["input_ids"] = draw_prompt(base, inputs)
            inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
            inputs["attention_mask"][:, -1] = int(not padding)
        return inputs

    def select_audio(self, inputs: Inputs) -> dict[str, Tensor]:
        """Select the sound and its masks."""
        names = (self.audio_name, *self.mask_names)
        return {name: x for name, x in inputs.items() if name in names}

    def select_features(self, features: Mapping[str, Any]) -> dict[str, Tensor]:
        """Select the sound and its mask in what a feature extractor made, under the model's names."""
        inputs = {str(self.audio_name): torch.as_tensor(features[str(self.audio_name)])}
        masks = [x for name, x in features.items() if name.endswith("mask") and x is not None]
        inputs |= {name: torch.as_tensor(masks[0]) for name in self.mask_names if masks}
        padding = -inputs[str(self.audio_name)].shape[-1] % self.multiple
        return {name: functional.pad(x, (0, padding)) for name, x in inputs.items()}

    def run(
        self, base: PretrainedModule, inputs: Inputs, stacks: tuple[str, ...] = _ALL_STACKS
    ) -> ModelOutput:
        """Run a base model, no further than the stacks need."""
        audio = self.select_audio(inputs)
        needs_decoder = bool(set(stacks) & {"decoder", "cross"})
        if self.kind == "audio tokens":
            return (
                run_with_audio(base, inputs, stacks)
                if "input_ids" in inputs
                else base.get_audio_features(**audio)
            )
        if self.encoder_alone or (self.kind == "transcript" and not needs_decoder):
            return _run_encoder(base.get_encoder(), audio)
        if self.kind == "translation" and not needs_decoder:
            return base.get_encoder()(
                **{name: x for name, x in inputs.items() if not name.startswith("decoder_")}
            )
        if self.kind in ("transcript", "translation") and "decoder_input_ids" not in inputs:
            raise InputError(
                "decoder and cross stacks need decoder_input_ids beside the encoder's input; give "
                "them, or ask for stacks=['encoder']"
            )
        takes_cache = "use_cache" in inspect.signature(base.forward).parameters
        return base(**inputs, **({"use_cache": False} if takes_cache else {}))


def _run_encoder(encoder: nn.Module, audio: dict[str, Tensor]) -> ModelOutput:
    """Run an encoder; features without a front end are the embeddings that it reads."""
    names = inspect.signature(encoder.forward).parameters
    takes_embeddings = "inputs_embeds" in names and "input_features" not in names
    return encoder(
        **{
            "inputs_embeds" if takes_embeddings and name == "input_features" else name: x
            for name, x in audio.items()
        }
    )


def find_input_form(base: PretrainedModule) -> InputForm:
    """Find the first form of inputs that a model runs on.

    Raises
    ------
    InputError
        If it runs on none; the message has the error of the form that came furthest.
    """
    problem, problem_depth = "no kind of input fits", 0
    for form in _iterate_forms(base):
        try:
            with torch.no_grad():
                form.run(base, form.make(base))
        except Exception as error:  # the inputs of another kind of model
            depth = len(traceback.extract_tb(error.__traceback__))
            if depth > problem_depth:  # it came further than the others
                problem, problem_depth = describe_failure(error), depth
            continue
        return replace(form, multiple=_find_multiple(base, form))
    raise InputError(
        f"{type(base).__name__} runs on none of the inputs that were tried ({problem}). Give "
        "those of one clip or sentence, as the model takes them, to "
        "speechmix.infer_family(module, inputs=...)"
    )


def _find_multiple(base: PretrainedModule, form: InputForm) -> int:
    """The least number that a waveform's samples must be a multiple of."""
    if form.audio_name != "input_values" or form.kind == "audio tokens":
        return 1
    for multiple in (x for x in range(1, 641) if form.length % x == 0):
        try:
            with torch.no_grad():
                form.run(base, form.make(base, length=form.length + multiple), ("encoder",))
        except Exception:  # it takes no such length
            continue
        return multiple
    return 1


def _iterate_forms(base: PretrainedModule) -> Iterator[InputForm]:
    has_decoder = bool(base.config.is_encoder_decoder)
    parameters = inspect.signature(base.forward).parameters
    audio_names = [name for name in ("input_features", "input_values") if name in parameters]
    if not audio_names:
        yield InputForm("translation" if has_decoder else "text")
        if isinstance(count := getattr(base.config, "num_codebooks", None), int):
            yield InputForm("text", codebooks=count + 1)
        decoder = getattr(base.config, "decoder_config", None)
        if isinstance(count := getattr(decoder, "num_channels", None), int):
            yield InputForm("translation", codebooks=count)
        return
    kind: Literal["audio", "transcript", "audio tokens"] = (
        "audio tokens"
        if hasattr(base, "get_audio_features") and "input_ids" in parameters
        else "transcript"
        if has_decoder and "decoder_input_ids" in parameters
        else "audio"
    )
    masks = [
        name
        for name in _AUDIO_MASKS
        if name in parameters and (name != "attention_mask" or kind != "audio tokens")
    ]
    mask_choices = list(dict.fromkeys([*((name,) for name in masks), tuple(masks), ()]))
    if kind == "audio tokens":  # where a mask can be left out, it is one of something else
        mask_choices.sort(key=len)
    forms = [
        InputForm(kind, audio_name, names, shape, time_axis)
        for audio_name in audio_names
        for shape, time_axis in _iterate_shapes(base, audio_name)
        for names in mask_choices
    ]
    yield from forms
    yield from (replace(form, mask_type=torch.bool) for form in forms if form.mask_names)
    if kind == "audio tokens":
        yield InputForm("text")
    elif hasattr(base, "get_encoder"):
        yield from (replace(form, kind="audio", encoder_alone=True) for form in forms)


def _iterate_shapes(
    base: PretrainedModule, audio_name: str
) -> Iterator[tuple[tuple[int, ...], int]]:
    if audio_name == "input_values":
        yield from (((1, 16_000), 1), ((1, 1, 16_000), 2), ((1, 48_000), 1))
    parts = list(iterate_configs(base.config))
    bins, widths = (
        [
            value * factor
            for factor in factors
            for part in parts
            for name in dir(part)
            if pattern.search(name)
            and isinstance(value := getattr(part, name, None), int)
            and value > 1
        ]
        for pattern, factors in ((_BIN_NAMES, (1, 4, 2)), (_WIDTH_NAMES, (1,)))
    )
    windows = [
        2 * part.max_source_positions for part in parts if hasattr(part, "max_source_positions")
    ]
    windows += [8 * part.n_window for part in parts if hasattr(part, "n_window")]
    for bin_count in dict.fromkeys((bins or [128, 80]) + widths):
        for frame_count in (*_FRAME_COUNTS[:-1], *windows, _FRAME_COUNTS[-1]):
            yield (1, bin_count, frame_count), 2
            yield (1, frame_count, bin_count), 1


_LARGEST_STEP, _MOST_POSITIONS = 64, 8


def find_projector_step(
    base: PretrainedModule, form: InputForm, first_layer: nn.Module
) -> tuple[int, int]:
    """Find the smallest step that explains the positions of sounds of several lengths.

    Raises
    ------
    ModelError
        If there is none.
    """
    pairs = []
    for share in (1.0, 0.87, 0.61, 0.5, 0.34):
        pair = _count_pair(base, form, first_layer, round(share * form.length))
        if pair is not None:
            pairs.append(pair)
    for positions in range(1, _MOST_POSITIONS + 1):
        for frames in range(1, _LARGEST_STEP + 1):
            if pairs and all(
                n_positions in (positions * (n // frames), positions * math.ceil(n / frames))
                for n, n_positions in pairs
            ):
                return frames, positions
    raise ModelError(
        f"frames of the encoder become positions of the decoder in no even step: {pairs}"
    )


def _count_pair(
    base: PretrainedModule, form: InputForm, first_layer: nn.Module, length: int
) -> tuple[int, int] | None:
    """Frames of the encoder and positions of the decoder for a sound, None if it does not run."""
    counts: list[int] = []

    def count_frames(module: nn.Module, args: HookArguments, kwargs: HookKeywords) -> None:
        states = next(iterate_tensors((args, kwargs)))
        counts.append(math.prod(states.shape[:-1]))

    hook = first_layer.register_forward_pre_hook(count_frames, with_kwargs=True)
    try:
        inputs = form.make(base, length=length)
        counts.clear()
        position_count = count_audio_positions(base, form.select_audio(inputs))
        return counts[0], position_count
    except (RuntimeError, ValueError, IndexError):
        return None
    finally:
        hook.remove()
