"""A decision: the one number that an item asks of a model, and which positions belong to each of
its words.

In: a model and a clip, sentence or prepared inputs. Out: a `Decision`, whose *margin* interventions
are read by (nats):

    with a foil      log p(target) - log p(foil): at the deciding position of a decoder; of the whole text of a CTC model;
                     at [MASK] in the target's place of a masked model; of the next token of a causal one
    without          log p of the target's tokens; of the whole text of a CTC model
    of a classifier  log p of the label that it gives the text as it is

Those are `measures.objectives` ("contrast" and "log_probability"), which gradient measures
differentiate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from ..adapters.capture.device_copy import inputs_to_device
from ..adapters.capture.features import run_encoder, wrap_encoder_states
from ..adapters.editing.branch_runs import branch_outputs
from ..adapters.editing.branches import Branch
from ..adapters.editing.shared_encoder import heard_once
from ..adapters.generation.audio_tokens import AudioTokens
from ..adapters.generation.model_inputs import Prepared
from ..adapters.model import Model
from ..errors import InputError
from ..inputs.clips.clip import Clip
from ..inputs.sentences.sentence import Sentence
from ..inputs.words.cue_and_target import cue_words
from ..mixing.measures.objectives import Objective, logits_of, objective_of, of_tokens
from ..mixing.passes.masked_target import is_masked_model, masked_target
from ..mixing.passes.request import TEXT_UNITS, ObjectiveOption, Question
from ..mixing.passes.views import Item, seen_by
from .removable_sources import (
    Source,
    heard_and_written,
    together,
    tokens_as_sources,
    words_as_sources,
)

# Inputs: of an encoder that hears, of a decoder, and what an encoder has made of a sound.
_FEATURES, _IDS, ENCODED = "input_features", "decoder_input_ids", "encoder_states"
_INPUTS_AT_ONCE = 16  # changed inputs of one shape that run together


@dataclass(frozen=True, eq=False)
class Decision:
    """What a model decides about an item.

    Parameters
    ----------
    model : Model
    item : Clip, Sentence or None
        As it was fed; None for prepared inputs.
    prepared : Prepared
    objective : Objective
    sources : dict of stack to tuple of Source
        In the decoder of an audio language model a word's sound has the word's number; the words of
        the answer are numbered on behind the clip's.
    units : {"word", "token"}
        What sources are, where they are parts of a text.

    Examples
    --------
    >>> model = speechmix.load("bert-base-uncased")                                       # doctest: +SKIP
    >>> sentence = speechmix.Sentence("the keys are here", target="are", foil="is")       # doctest: +SKIP
    >>> Decision.of(model, sentence).margin                                               # doctest: +SKIP
    4.1
    """

    model: Model
    item: Clip | Sentence | None
    prepared: Prepared
    objective: Objective
    sources: Mapping[str, tuple[Source, ...]] = field(repr=False)
    units: str = "word"

    @classmethod
    def of(
        cls,
        model: Model,
        item: Item,
        *,
        objective: ObjectiveOption | None = None,
        units: str = "word",
    ) -> Decision:
        """Prepare an item for a model with its head.

        Parameters
        ----------
        model : Model
        item : Clip, Sentence, str or dict
            With a target, and a foil for a choice between two spellings. A masked model is fed its
            mask for the target.
        objective : optional
            Another number to read, as in `mix`; prepared inputs need (position, token id, foil's
            id), a classifier takes the name of a label, or of two, as (label,) or (label, label).
        units : {"word", "token"}
            Of a text: what its sources are. Special tokens are none.

        Raises
        ------
        InputError
            If there is no target, or it is not decided by a token that the model writes; if a clip
            is asked for in tokens.
        ModelError
            If the model has no head.
        """
        item = Sentence(item) if isinstance(item, str) else item
        if units not in TEXT_UNITS or (units == "token" and isinstance(item, Clip)):
            raise InputError(
                f"units should be one of {TEXT_UNITS}, 'word' of a clip; found {units!r}"
            )
        masked = objective is None and isinstance(item, Sentence) and is_masked_model(model)
        if masked and isinstance(item, Sentence):
            item, objective = masked_target(item)
        units = "token" if isinstance(item, Mapping) and not model.hears else units
        view = seen_by(model, item, Question(units=units, spans=_frames_of(model, item)))
        if view.item is not None and isinstance(view.item, Clip) and not view.item.words:
            raise InputError(
                f"{view.item.name} has no words with times: give words=, or align it with "
                "speechmix.align"
            )
        stacks = tuple(model.stacks)
        view.prepare(stacks)
        if objective is None:
            has_foil = view.item is not None and view.item.foil is not None and not model.classifies
            objective = "contrast" if has_foil else "log_probability"
        resolved = objective_of(objective, model, view.item, view.prepared)
        if masked and resolved.details["kind"] == "logit":  # of one spelling: how likely it is
            told = resolved.details
            resolved = of_tokens(
                "log_probability", model, told["position"], told["token"], label=told["label"]
            )
        words = None if view.item is None else [word.text for word in view.item.words or ()]
        find = (
            tokens_as_sources
            if units == "token" and words is not None
            else partial(words_as_sources, words=words)
        )
        sources = {stack: find(view.sources(stack)) for stack in stacks}
        heard = view.prepared.audio_tokens
        if heard is not None and heard.answer is not None and words is not None:
            sources["decoder"] = heard_and_written(view.sources("decoder"), words, heard.answer)
        elif heard is not None and not sources["encoder"]:
            sources["encoder"] = _frames_heard(model, view.prepared.inputs, heard)
        return cls(model, view.item, view.prepared, resolved, sources, units)

    @property
    def name(self) -> str:
        return "inputs" if self.item is None else str(self.item.name)

    @property
    def has_foil(self) -> bool:
        """Whether the margin is that of a choice between two spellings, which may flip."""
        return self.objective.details.get("kind") == "contrast"

    @property
    def read_at(self) -> list[int]:
        """Positions whose logits the margin is made of; none if it is that of a whole text."""
        read = self.objective.details
        return [read["position"]] if "position" in read else list(read.get("positions", ()))

    @property
    def rows_at(self) -> list[int]:
        """Positions of the stack's rows that the decision is made from; a classifier's head reads
        one of them."""
        read = self.objective.details
        return [read["row"]] if "row" in read else self.read_at

    @cached_property
    def inputs(self) -> dict[str, Tensor]:
        """Inputs on the model's device, in the precision that states are computed in."""
        return self.moved(self.prepared.inputs)

    def moved(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Other inputs likewise."""
        return inputs_to_device(inputs, self.model.device, self.model.state_dtype)

    def margins(self, output: Any) -> Tensor:
        """Margin [R] of each of R runs, in double precision."""
        if isinstance(getattr(output, "logits", None), Tensor):
            output.logits = output.logits.double()
        return self.objective.function(output)

    def of_branches(
        self, branches: Sequence[Branch], *, at_once: int | None = None
    ) -> tuple[float, list[float]]:
        """Margin of the clean run, and of each branch (`adapters.intervene`)."""
        with self.model.in_use(self.model.state_dtype):
            sound = self.prepared.sound
            clean, runs = branch_outputs(
                self.model, self.inputs, branches, self.margins, sound=sound, at_once=at_once
            )
        return clean.item(), runs.tolist()

    def of_inputs(
        self, inputs: Mapping[str, Tensor], *, places: Sequence[int] | None = None
    ) -> float:
        """Margin on other inputs; `places` says where each of their logits is to be read, if not at
        its own."""
        return self.of_many_inputs([(inputs, places)])[0]

    def of_many_inputs(
        self, changed: Sequence[tuple[Mapping[str, Tensor], Sequence[int] | None]]
    ) -> list[float]:
        """Margin on each of many (inputs, places), as `of_inputs`; those of one shape run
        together."""
        together: dict[tuple, list[int]] = {}
        for number, (inputs, places) in enumerate(changed):
            shapes = tuple((name, tuple(tensor.shape)) for name, tensor in inputs.items())
            together.setdefault((shapes, None if places is None else tuple(places)), []).append(
                number
            )
        margins: dict[int, float] = {}
        for (_, places), numbers in together.items():
            for start in range(0, len(numbers), self._at_once):
                chunk = numbers[start : start + self._at_once]
                names = changed[chunk[0]][0]
                batch = {
                    name: _together([changed[number][0][name] for number in chunk])
                    for name in names
                }
                margins |= dict(zip(chunk, self._of_batch(batch, places).tolist(), strict=True))
        return [margins[number] for number in range(len(changed))]

    def with_encoded_sound(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Inputs of the item's own sound for `of_many_inputs`, as what the encoder makes of it;
        others as they are."""
        if not self.model.hears or _IDS not in inputs:
            return dict(inputs)
        return {
            ENCODED: self._encoded,
            **{name: inputs[name] for name in inputs if name not in self._sound_names},
        }

    @cached_property
    def _sound_names(self) -> set[str]:
        return {name for name in self.prepared.inputs if not name.startswith("decoder_")}

    @cached_property
    def _encoded(self) -> Tensor:
        """States of the encoder [1, T, D]."""
        heard, sound = {name: self.inputs[name] for name in self._sound_names}, self.prepared.sound
        with self.model.in_use(self.model.state_dtype), torch.no_grad():
            if sound is not None and heard.keys() == {_FEATURES}:
                return run_encoder(self.model, heard, sound)[0]
            return self.model.module.get_encoder()(**heard, return_dict=True).last_hidden_state

    @property
    def _at_once(self) -> int:
        """How many inputs run together: a causal classifier without a padding token cannot tell
        where each of many ends."""
        alone = (
            self.model.classifies and getattr(self.model.text_config, "pad_token_id", None) is None
        )
        return 1 if alone and "decoder" in self.model.stacks else _INPUTS_AT_ONCE

    def of_output(self, inputs: Mapping[str, Tensor], read: Callable[[Any], Tensor]) -> Tensor:
        """What is read of the model's output on other inputs, perhaps of many runs."""
        options: dict[str, Any] = {"use_cache": False} if "decoder" in self.model.stacks else {}
        with self.model.in_use(self.model.state_dtype), torch.no_grad():
            inputs = self.moved(inputs)
            if ENCODED in inputs:
                options["encoder_outputs"] = wrap_encoder_states(inputs.pop(ENCODED))
                with heard_once(self.model):
                    return read(self.model.module(**inputs, **options, return_dict=True))
            return read(self.model.module(**inputs, **options, return_dict=True))

    def _of_batch(self, inputs: Mapping[str, Tensor], places: Sequence[int] | None) -> Tensor:
        def margins(output: Any) -> Tensor:
            if places is not None and not self.model.classifies:
                output.logits = _put_back(logits_of(output), places)
            return self.margins(output)

        return self.of_output(inputs, margins)

    def reading(self, objective: Objective) -> Decision:
        """The same decision by another number; what its encoder has made of the sound is not
        computed again."""
        other = replace(self, objective=objective)
        if "_encoded" in self.__dict__:
            other.__dict__["_encoded"] = self._encoded
        return other

    @cached_property
    def margin(self) -> float:
        """Margin of the item as it is."""
        return self.of_inputs(self.prepared.inputs)

    def sources_of(
        self, stack: str, words: Sequence[int | Sequence[int]] | None
    ) -> tuple[Source, ...]:
        """The sources of a stack that are asked for, all for None; several words in a tuple are one
        source.

        Raises
        ------
        InputError
            If there is no such stack, or a word is asked for twice.
        """
        if stack not in self.sources:
            raise InputError(
                f"{self.model.name} has no stack {stack!r}; it has {list(self.sources)}"
            )
        if words is None:
            return self.sources[stack]
        groups = sorted({cue_words(word) for word in words})
        asked = [word for group in groups for word in group]
        if len(set(asked)) < len(asked):
            raise InputError(
                f"{self.name}: expected each word once, by itself or with others, found "
                f"words={list(words)}"
            )
        held = [
            tuple(source for source in self.sources[stack] if source.index in group)
            for group in groups
        ]
        return tuple(parts[0] if len(parts) == 1 else together(parts) for parts in held if parts)


def _together(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors of one shape as one batch; the very same one in all runs takes the memory of one."""
    if (
        len(tensors) > 1
        and all(tensor is tensors[0] for tensor in tensors)
        and len(tensors[0]) == 1
    ):
        return tensors[0].expand(len(tensors), *tensors[0].shape[1:])
    return torch.cat(list(tensors))


def _put_back(logits: Tensor, places: Sequence[int]) -> Tensor:
    """Logits [n, T, V] at other places; what would lie before the first is dropped."""
    positions = torch.tensor(places, device=logits.device)
    whole = logits.new_zeros(len(logits), int(positions.max()) + 1, logits.shape[-1])
    whole[:, positions[positions >= 0]] = logits[:, positions >= 0]
    return whole


def _frames_of(model: Model, item: Item) -> list[tuple[int, int]] | None:
    """Every frame of prepared audio by itself; None for other items, whose words or tokens are the
    sources."""
    if not model.hears or model.converses or not isinstance(item, Mapping):
        return None
    sound, rows = torch.as_tensor(next(iter(item.values()))), model.family.feature_rows
    n_samples = sound.shape[-1] if rows is None else rows[0] * sound.shape[1] + rows[1]
    return [(frame, frame + 1) for frame in range(model.grid(n_samples).n_frames)]


def _frames_heard(
    model: Model, inputs: Mapping[str, Tensor], heard: AudioTokens
) -> tuple[Source, ...]:
    """Every frame that became positions of an audio language model's decoder; the projector may
    have filled its last step."""
    count = heard.n_windows * heard.frames
    if model.family.feature_rows is not None:
        count = min(count, inputs["input_features"].shape[1])
    return tuple(Source(frame, str(frame), (frame,)) for frame in range(count))
