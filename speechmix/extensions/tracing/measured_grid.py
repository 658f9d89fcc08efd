"""The frame grid of a traced family: measured on a small model when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, NoReturn

import numpy as np
from torch import nn
from transformers.models.auto import feature_extraction_auto

from ...adapters.loading.checkpoints import first_line, transformers_class
from ...adapters.transformers_types import Config, FeatureExtractor, PretrainedModule
from ...errors import InputError
from ...inputs.audio.frame_grid import FrameGrid
from .frame_experiments import FrontEnd
from .input_search import InputForm


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
