"""The frame grid of a traced family: measured on a small model when it is first asked for.

Find where a model's frames lie in time, by experiments on its front end.

In: a small random model, the form of its inputs, its feature extractor. Out: a function that gives
the `FrameGrid` of a clip. Frames are counted for clips of several lengths, and samples are exchanged
to see which of them reach a frame.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from transformers.models.auto import feature_extraction_auto

from ...adapters.loading.checkpoints import first_line, transformers_class
from ...adapters.transformers_types import (
    Config,
    FeatureExtractor,
    HookArguments,
    HookKeywords,
    Inputs,
    PretrainedModule,
)
from ...errors import InputError, ModelError
from ...inputs.audio.frame_grid import FrameGrid
from .input_search import InputForm
from .recording import iterate_tensors, record_forward_pass

_LEAST_CHANGE = 1e-5  # of a frame's size: less is rounding
_JUMPS = (1, 8, 17)  # frames beyond those of a second


class _StopAtLayers(Exception):
    """Raised where the first layer of the encoder would begin."""


@dataclass
class FrontEnd:
    """What makes frames of a clip: a feature extractor, and the model up to its first layer.

    Parameters
    ----------
    base : PretrainedModule
    first_layer : nn.Module
        Of the encoder.
    form : InputForm
    extractor : FeatureExtractor
        None for a model that takes the waveform as it is.
    """

    base: PretrainedModule
    first_layer: nn.Module
    form: InputForm
    extractor: FeatureExtractor

    @property
    def rate(self) -> int:
        """Samples per second."""
        return int(getattr(self.extractor, "sampling_rate", 16_000))

    def measure_grid(self) -> Callable[[Config, int], FrameGrid]:
        """Return ``grid(config, n_samples)``.

        Raises
        ------
        ModelError
            If the number of frames does not grow evenly with the clip.
        """
        counts = [self._count(seconds * self.rate) for seconds in (1, 3)]
        if counts[0] == counts[1]:
            return partial(_fixed_grid, self._fixed_window(counts[0]))
        step = 2 * self.rate // (counts[1] - counts[0])
        first, middle, last = (self._find_jump(counts[0] + n, n * step) for n in _JUMPS)
        stride = (last - first) / (_JUMPS[2] - _JUMPS[0])
        if stride != int(stride) or middle - first != (_JUMPS[1] - _JUMPS[0]) * stride:
            raise ModelError(
                "frames are made in chunks, whose last frame is shorter than the others"
            )
        offset = first - counts[0] * stride  # frames of n samples: floor((n - offset) / stride) + 1
        centre, width = self._find_field(stride, offset)
        if abs(_count_frames(3 * self.rate, stride, offset) - counts[1]) > 1:
            raise ModelError("the number of frames does not grow evenly with the clip")
        seconds = (stride / self.rate, centre / self.rate, width / self.rate)
        return partial(_even_grid, (stride, offset), seconds, self.rate)

    @cached_property
    def _noise(self) -> np.ndarray:
        noise = np.random.default_rng(0).standard_normal(4 * self.rate)
        return (0.1 * noise).astype(np.float32)

    def _features(self, audio: np.ndarray) -> dict[str, Tensor]:
        if self.extractor is None:
            shape = [1] * (len(self.form.shape) - 1)
            waveform = torch.from_numpy(audio).reshape(*shape, -1)
            return self.form.select_features({str(self.form.audio_name): waveform})
        options: dict[str, object] = {"sampling_rate": self.rate, "return_tensors": "pt"}
        if self.form.mask_names:
            options["return_attention_mask"] = True
        try:
            features = self.extractor(audio, **options)
        except TypeError:  # Granite's takes the sound alone
            features = self.extractor(audio)
        return self.form.select_features(features)

    def _run(self, features: Inputs, hooks: Mapping[nn.Module, Callable[..., None]]) -> None:
        """Run the front end; functions read the arguments of the first layer, or what others give."""

        def stop(module: nn.Module, args: HookArguments, kwargs: HookKeywords) -> None:
            if module in hooks:
                hooks[module](next(iterate_tensors((args, kwargs))))
            raise _StopAtLayers

        handles = [self.first_layer.register_forward_pre_hook(stop, with_kwargs=True)]
        for module, read in hooks.items():
            if module is not self.first_layer:
                handles.append(
                    module.register_forward_hook(
                        lambda _, args, output, read=read: read(next(iterate_tensors(output)))
                    )
                )
        try:
            with torch.no_grad(), suppress(_StopAtLayers):
                self.form.run(self.base, features, ("encoder",))
        finally:
            for handle in handles:
                handle.remove()

    def _count(self, n_samples: int) -> int:
        shapes: list[torch.Size] = []
        features = self._features(np.resize(self._noise, n_samples))
        self._run(features, {self.first_layer: lambda x: shapes.append(x.shape)})
        if not shapes:
            raise ModelError("the first layer of the encoder did not run on a clip")
        count = math.prod(shapes[0][:-1])
        mask = features.get(self.form.mask_names[0]) if self.form.mask_names else None
        if mask is None or len(shapes[0]) == 2:  # packed states have no padding
            return count
        return math.ceil(count * int(mask.sum()) / mask.numel() - 0.5)

    def _find_jump(self, count: int, about: int) -> int:
        """The least number of samples of which so many frames are made: a second and `about` more."""
        low, high = self.rate - 1, self.rate + 2 * about
        while high - low > 1:
            middle = (low + high) // 2
            try:
                is_enough = self._count(middle) >= count
            except Exception:  # too short for the extractor or a convolution
                is_enough = False
            low, high = (low, middle) if is_enough else (middle, high)
        return high

    def _find_frames(self, audio: np.ndarray) -> tuple[nn.Module, int, int]:
        """The first module that makes the frames, the axis of frames in its output, and their
        number."""
        count = self._count(len(audio))

        def run() -> None:
            self._run(self._features(audio), {})

        recording = record_forward_pass(self.base, run)
        for call in sorted(recording.calls, key=lambda call: call.stop):
            if len(call.outputs) != 1 or self.first_layer is call.module:
                continue
            x = call.outputs[0].tensor
            if x.is_floating_point() and x.ndim > 2 and count in x.shape and x.numel() >= 4 * count:
                return call.module, list(x.shape).index(count), count
        return self.first_layer, -2, count

    def _find_field(self, stride: float, offset: float) -> tuple[float, float]:
        """Centre of frame 0 and width of what a frame sees, in samples."""
        audio = self._noise[: 3 * self.rate // 2]
        module, axis, count = self._find_frames(audio)
        frame = count // 2

        def read_frame(changed: np.ndarray) -> Tensor:
            states: list[Tensor] = []
            hook = {module: lambda x: states.append(x.select(axis, frame).clone())}
            self._run(self._features(changed), hook)
            return states[0]

        original = read_frame(audio)

        def change(start: int, stop: int) -> float:
            changed = audio.copy()
            changed[start:stop] = audio[start:stop][::-1]  # the same mean and size over the clip
            return float((read_frame(changed) - original).norm() / original.norm())

        middle = round(offset / 2 + frame * stride)
        reach = self.rate // 2
        far = max(change(0, middle - reach), change(middle + reach, len(audio)))
        least = max(_LEAST_CHANGE, 3 * far)
        last = _bisect(lambda t: change(t, len(audio)) > least, middle - reach, middle + reach)
        first = _bisect(lambda t: change(0, t) <= least, middle - reach, middle + reach)
        centre, width = (first + last + 1) / 2 - frame * stride, last + 1 - first
        is_wide = width > 6 * stride  # a convolution over positions reaches further
        tolerance = stride if is_wide else stride / 8 if far > _LEAST_CHANGE else 0
        if offset > 0 and abs(centre - offset / 2) < tolerance:
            centre = offset / 2
        return centre, float(width)

    def _fixed_window(self, count: int) -> FrameGrid:
        samples = getattr(self.extractor, "n_samples", None)
        if samples is None:
            raise ModelError("it makes as many frames of every clip, and no window is known")
        return FrameGrid.fixed_window(count, samples / self.rate / count)


def _bisect(is_low: Callable[[int], bool], low: int, high: int) -> int:
    """The last number that is low, where all numbers below it are low, too."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_low(middle) else (low, middle)
    return low


def _count_frames(n_samples: int, stride: float, offset: float) -> int:
    return int((n_samples - offset) // stride) + 1


def _fixed_grid(grid: FrameGrid, config: Config, n_samples: int) -> FrameGrid:
    return grid


def _even_grid(
    line: tuple[float, float],
    seconds: tuple[float, float, float],
    rate: int,
    config: Config,
    n_samples: int,
) -> FrameGrid:
    n_frames = _count_frames(n_samples, *line)
    if n_frames < 1:
        raise InputError(
            f"audio of {n_samples} samples is shorter than one frame of this model: use a longer clip"
        )
    stride, centre, width = seconds
    return FrameGrid(n_frames, stride, centre, width, n_samples / rate)


class MeasuredGrid:
    """``grid(config, n_samples)`` of a model, measured when it is first asked for.

    Parameters
    ----------
    build : callable
        Builds the model that is measured: its base and the first layer of its encoder.
    form : InputForm
    extractor : FeatureExtractor
        By default the one that transformers has for the model type.
    """

    def __init__(
        self,
        build: Callable[[], tuple[PretrainedModule, nn.Module]],
        form: InputForm,
        extractor: FeatureExtractor = None,
    ):
        self._build, self._form, self._extractor = build, form, extractor

    def __call__(self, config: Config, n_samples: int) -> FrameGrid:
        return self._grid(config, n_samples)

    @cached_property
    def _grid(self) -> Callable[[Config, int], FrameGrid]:
        base, first_layer = self._build()
        extractor = self._extractor or _build_extractor(base.config, self._form)
        if extractor is None and self._form.audio_name != "input_values":
            return partial(_refuse_grid, "there is no feature extractor: load it with processor=")
        try:
            return FrontEnd(base, first_layer, self._form, extractor).measure_grid()
        except Exception as error:  # an extractor raises what it likes
            return partial(_refuse_grid, first_line(error))


def _refuse_grid(reason: str, config: Config, n_samples: int) -> NoReturn:
    raise InputError(
        f"where the frames of {config.model_type} lie in time was not found ({reason}): give prepared "
        "inputs, with spans="
    )


def _build_extractor(config: Config, form: InputForm) -> FeatureExtractor:
    """The extractor that transformers has for a model type, if it makes features of this width."""
    name: Any = vars(feature_extraction_auto)["FEATURE_EXTRACTOR_MAPPING_NAMES"].get(
        config.model_type
    )
    if not isinstance(name, str):
        return None
    bins = form.shape[3 - form.time_axis] if len(form.shape) == 3 else 0
    options: list[dict[str, Any]] = [{}, {"feature_size": bins}, {"num_mel_bins": bins}]
    for option in options:
        with suppress(Exception):  # an option that it does not have; a library that is missing
            extractor = transformers_class(name)(**option)
            features = extractor(
                np.zeros(16_000, np.float32),
                sampling_rate=extractor.sampling_rate,
                return_tensors="pt",
            )
            shape = features[str(form.audio_name)].shape
            if len(shape) == len(form.shape) and (not bins or bins in shape[1:]):
                return extractor
    return None
