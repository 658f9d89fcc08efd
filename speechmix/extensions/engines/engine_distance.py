"""A real engine beside the copy of its weights: the engine writes, the copy is measured, and how far the
copy is from the engine is measured on each clip.

In: `speechmix.load(path, engine="ctranslate2")`, and clips. Out: transcripts of the engine; an
`EngineDistance` for each clip. Where quantised weights are multiplied as integers, or activations are
quantised, the engine is another model than its weights say; above `MAX_MEAN_NATS` or below
`MIN_AGREEMENT` nothing is explained.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pandas as pd
import torch

from ...adapters.capture.device_copy import inputs_to_device
from ...adapters.generation.decoder_text import decoder_prefix
from ...adapters.generation.greedy_generation import (
    MAX_TRANSCRIPT_TOKENS,
    decode_ids,
    list_logits_processors,
)
from ...adapters.loading.foreign_checkpoint import ForeignCheckpoint
from ...errors import InputError, ModelError
from ...inputs.clips.clip import Clip

if TYPE_CHECKING:
    from ...adapters.model import Model

MAX_MEAN_NATS = 0.1  # a tenth of a token's probability, on average
MIN_AGREEMENT = 0.9  # of the engine's tokens that the copy would write, too
WARNED_NATS = 0.01  # below it, engine and copy are one model for all that is measured


class EngineText(NamedTuple):
    """Tokens that an engine wrote about a sound, and their log probabilities under its own rules.

    The last one is the end of the text where `ended`. Of a classifier: the label.
    """

    ids: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    ended: bool


class EngineRuntime(Protocol):
    """A model opened in the engine that it was made for."""

    description: str

    def write(self, model: Model, clip: Clip, prefix: Sequence[int], max_tokens: int) -> EngineText:
        """Write greedily."""
        ...


@dataclass(frozen=True)
class EngineDistance:
    """How far a copy is from the engine, on one clip.

    Attributes
    ----------
    engine, clip, text : str
        The engine with its version and types, the clip's name, what the engine wrote.
    token_count, agreeing_count : int
        Tokens that the engine wrote, and those that the copy would write in their place.
    largest, mean : float
        Absolute differences of their log probabilities, in nats; of a token that the copy's own rules
        exclude, of the one that it has before them.
    """

    engine: str
    clip: str
    text: str
    token_count: int
    agreeing_count: int
    largest: float
    mean: float

    @property
    def is_too_far(self) -> bool:
        """Whether nothing is explained."""
        return self.mean > MAX_MEAN_NATS or self.agreeing_count < MIN_AGREEMENT * self.token_count

    def __str__(self) -> str:
        return (
            f"{self.clip}: {self.engine} wrote {self.token_count} tokens, its copy agrees on "
            f"{self.agreeing_count}; their log probabilities differ by at most {self.largest:.2g} nats, "
            f"{self.mean:.2g} on average"
        )


class RunningEngine:
    """An engine beside a model; opened when it first writes, and in each process anew."""

    def __init__(self, name: str, checkpoint: ForeignCheckpoint) -> None:
        from .engine_runtimes import check_runtime

        self._name, _, self._option = name.partition(":")
        self._path, self._format = checkpoint.path, checkpoint.format_name
        check_runtime(self._name, self._format)
        self._runtime: EngineRuntime | None = None
        self._distances: dict[tuple[Any, ...], tuple[EngineText, EngineDistance]] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_runtime": None}

    @property
    def runtime(self) -> EngineRuntime:
        from .engine_runtimes import open_runtime

        if self._runtime is None:
            self._runtime = open_runtime(self._name, self._option, self._path)
        return self._runtime

    def __str__(self) -> str:
        return self.runtime.description

    @property
    def hash_values(self) -> tuple[str, ...]:
        """What the engine adds to a model's fingerprint: other texts are written."""
        return ("engine", str(self))

    def generate(self, model: Model, clip: Clip, max_tokens: int) -> tuple[list[int], int, bool]:
        """Write with the engine, as `generate_greedily` does with a model; a ModelError where its copy
        is too far to be explained."""
        prefix = decoder_prefix(model, clip)
        engine_text, distance = self._read(model, clip)
        self.check(distance)
        ids = engine_text.ids[: len(engine_text.ids) - engine_text.ended]
        return (
            [*prefix, *ids[:max_tokens]],
            len(prefix),
            engine_text.ended and len(ids) <= max_tokens,
        )

    def remark(self, model: Model, clip: Clip) -> str:
        """Say how far the copy is on a clip; a ModelError where it is too far."""
        distance = self.measure(model, clip)
        self.check(distance)
        return (
            f"Measured is not the engine, but a copy of its weights ({model.origin}). {distance}."
        )

    def provenance(self, model: Model, clip: Clip) -> dict[str, object]:
        """What a map of the copy says: the engine, and how far the copy is from it on the clip."""
        distance = vars(self.measure(model, clip))
        return {name: value for name, value in distance.items() if name not in ("clip", "text")}

    def check(self, distance: EngineDistance) -> None:
        """Raise a ModelError for a copy too far from its engine."""
        if distance.is_too_far:
            raise ModelError(
                f"{distance}: over {MAX_MEAN_NATS:g} nats on average, or under {MIN_AGREEMENT:.0%} of "
                f"tokens, nothing is explained. The engine wrote {distance.text!r}. Load without engine= "
                "to measure the weights alone"
            )

    def measure(self, model: Model, clip: Clip) -> EngineDistance:
        """Let the engine write, and compare its copy."""
        return self._read(model, clip)[1]

    def _read(self, model: Model, clip: Clip) -> tuple[EngineText, EngineDistance]:
        key = (clip.audio_hash, clip.name, clip.language, model.prefix)
        if key not in self._distances:
            prefix = [] if model.has_label_head else decoder_prefix(model, clip)
            engine_text = self.runtime.write(model, clip, prefix, MAX_TRANSCRIPT_TOKENS)
            self._distances[key] = engine_text, self._compare(model, clip, prefix, engine_text)
            if (distance := self._distances[key][1]).mean > WARNED_NATS:
                warnings.warn(str(distance), stacklevel=5)
        return self._distances[key]

    def _compare(
        self, model: Model, clip: Clip, prefix: list[int], engine_text: EngineText
    ) -> EngineDistance:
        before_rules, copied = copy_log_probabilities(model, clip, prefix, engine_text.ids)
        ids = np.array(engine_text.ids, dtype=int)
        of_copy, of_copy_before = (
            each[np.arange(len(ids)), ids] for each in (copied, before_rules)
        )
        # Whether a timestamp must follow is decided by a hair: the copy may rule out what the engine wrote.
        of_copy = np.where(np.isfinite(of_copy), of_copy, of_copy_before)
        differences = np.abs(of_copy - np.array(engine_text.log_probabilities))
        text = (
            str(model.config.id2label[int(ids[0])])
            if model.has_label_head
            else decode_ids(model, list(engine_text.ids[: len(ids) - engine_text.ended]))
        )
        return EngineDistance(
            str(self),
            clip.name,
            text,
            len(ids),
            int((copied.argmax(axis=1) == ids).sum()),
            float(differences.max(initial=0.0)),
            float(differences.mean()) if len(ids) else 0.0,
        )


def copy_log_probabilities(
    model: Model, clip: Clip, prefix: list[int], ids: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Log probabilities [token, vocabulary] that a model gives where `ids` follow the prefix: before
    the rules of its generation config, and under them. Of a classifier, which has none: [1, label]."""
    inputs = model.family.prepare(model, clip, ("encoder",)).inputs
    inputs = inputs_to_device(inputs, model.device, model.state_dtype)
    with model.in_use(model.state_dtype), torch.no_grad():
        if model.has_label_head:
            logits = model.module(**inputs).logits.float()
            label_scores = np.asarray(logits.log_softmax(-1).numpy(force=True))
            return label_scores, label_scores
        fed = torch.tensor([[*prefix, *ids][:-1]], device=model.device)
        logits = model.module(**inputs, decoder_input_ids=fed).logits[0, len(prefix) - 1 :].float()
        before_rules = logits.log_softmax(-1).double().numpy(force=True)
        for index in range(len(ids)):
            row = logits[index : index + 1]
            for process_logits in list_logits_processors(model, len(prefix)):
                row = process_logits(fed[:, : len(prefix) + index], row)
            logits[index] = row[0]
        return before_rules, logits.log_softmax(-1).double().numpy(force=True)


def engine_distance(model: Model, clips: Clip | Iterable[Clip]) -> pd.DataFrame:
    """Measure how far a model is from the engine that it was loaded beside.

    Parameters
    ----------
    model : Model
        Loaded with ``engine=``.
    clips : Clip or iterable of Clip

    Returns
    -------
    pandas.DataFrame
        A row for each clip: engine, clip, text, token_count, agreeing_count, largest, mean (nats),
        is_too_far.

    Raises
    ------
    InputError
        For a model without an engine.

    Examples
    --------
    >>> model = speechmix.load("whisper-small-ct2", engine="ctranslate2:int8")            # doctest: +SKIP
    >>> engine_distance(model, clips)[["clip", "agreeing_count", "mean"]]                 # doctest: +SKIP
    """
    if model.engine is None:
        raise InputError(
            f'{model.label} has no engine beside it: load it with engine="ctranslate2"'
        )
    clips = [clips] if isinstance(clips, Clip) else list(clips)
    distances = [model.engine.measure(model, clip) for clip in clips]
    rows = [{**vars(distance), "is_too_far": distance.is_too_far} for distance in distances]
    return pd.DataFrame(rows)
