"""A decision: one number of a model for an item, and which positions belong to each word.

In: a model and a clip, sentence or prepared inputs. Out: a `Decision` with its *margin* (nats):

    with a foil      log p(target) - log p(foil): at the deciding position of a decoder; of the whole text of a CTC model;
                     at [MASK] in the target's place of a masked model; of the next token of a causal one
    without          log p of the target's tokens; of the whole text of a CTC model
    of a classifier  log p of the label that it gives the text as it is

Those are `measures.objectives` ("contrast" and "log_probability"), which gradient measures
differentiate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from ..adapters.capture.device_copy import inputs_to_device
from ..adapters.capture.features import run_encoder, wrap_encoder_states
from ..adapters.editing.shared_encoder import heard_once
from ..adapters.generation.model_inputs import Prepared
from ..adapters.model import Model
from ..adapters.transformers_types import ModelOutput
from ..errors import InputError
from ..inputs.clips.clip import Clip
from ..inputs.sentences.sentence import Sentence
from ..inputs.words.cue_and_target import cue_words
from ..mixing.measures.objectives import objective_of
from ..mixing.measures.token_objectives import Objective, of_tokens
from ..mixing.passes.item_view import Item
from ..mixing.passes.masked_target import is_masked_model, replace_target_by_mask
from ..mixing.passes.request import TEXT_UNITS, MixRequest, ObjectiveOption
from ..mixing.passes.view_kinds import make_view
from .removable_sources import Source, audio_frame_spans, join_sources, removable_sources
from .removals import RowIndices
from .runner import run_inputs

# Inputs: of an encoder that hears, of a decoder, and what an encoder has made of a sound.
_FEATURES_INPUT, _DECODER_IDS_INPUT, ENCODER_STATES = (
    "input_features",
    "decoder_input_ids",
    "encoder_states",
)


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
        is_masked = objective is None and isinstance(item, Sentence) and is_masked_model(model)
        if is_masked and isinstance(item, Sentence):
            item, objective = replace_target_by_mask(item)
        units = "token" if isinstance(item, Mapping) and not model.hears else units
        view = make_view(model, item, MixRequest(units=units, spans=audio_frame_spans(model, item)))
        if view.item is not None and isinstance(view.item, Clip) and not view.item.words:
            raise InputError(
                f"{view.item.name} has no words with times: give words=, or align it with "
                "speechmix.align"
            )
        stacks = tuple(model.stacks)
        view.prepare(stacks)
        if objective is None:
            has_foil = view.item is not None and view.item.foil is not None
            is_choice = has_foil and not model.classifies
            objective = "contrast" if is_choice else "log_probability"
        objective_function = objective_of(objective, model, view.item, view.prepared)
        details = objective_function.details
        if is_masked and details["kind"] == "logit":  # of one spelling: how likely it is
            position, token, label = (details[name] for name in ("position", "token", "label"))
            objective_function = of_tokens("log_probability", model, position, token, label=label)
        sources = removable_sources(model, view, units)
        return cls(model, view.item, view.prepared, objective_function, sources, units)

    @property
    def name(self) -> str:
        return "inputs" if self.item is None else str(self.item.name)

    @property
    def has_foil(self) -> bool:
        """Whether the margin is that of a choice between two spellings, which may flip."""
        return self.objective.details.get("kind") == "contrast"

    @property
    def read_positions(self) -> list[int]:
        """Positions whose logits the margin is made of; none if it is that of a whole text."""
        details = self.objective.details
        if "position" in details:
            return [details["position"]]
        return list(details.get("positions", ()))

    @property
    def deciding_rows(self) -> list[int]:
        """Positions of the stack's rows that the decision is made from; a classifier's head reads
        one of them."""
        details = self.objective.details
        return [details["row"]] if "row" in details else self.read_positions

    @cached_property
    def inputs(self) -> dict[str, Tensor]:
        """Inputs on the model's device, in the precision that states are computed in."""
        return self.moved(self.prepared.inputs)

    def moved(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Other inputs likewise."""
        return inputs_to_device(inputs, self.model.device, self.model.state_dtype)

    def margins(self, output: ModelOutput) -> Tensor:
        """Margin [R] of each of R runs, in double precision."""
        if isinstance(getattr(output, "logits", None), Tensor):
            output.logits = output.logits.double()
        return self.objective.function(output)

    @cached_property
    def margin(self) -> float:
        """Margin of the item as it is."""
        return self.input_margin(self.prepared.inputs)

    def input_margin(self, inputs: Mapping[str, Tensor], rows: RowIndices = None) -> float:
        """Run the whole model on other inputs; `rows` says which of their logits stand for the
        item's positions, if they have moved."""
        return float(run_inputs(self, [(inputs, rows)], self.objective.function)[0])

    def read_output(
        self, inputs: Mapping[str, Tensor], read: Callable[[ModelOutput], Tensor]
    ) -> Tensor:
        """What is read of the model's output on other inputs, perhaps of many runs."""
        run_model = self.model.run_with_head
        with self.model.in_use(self.model.state_dtype), torch.no_grad():
            inputs = self.moved(inputs)
            if ENCODER_STATES in inputs:
                states = wrap_encoder_states(inputs.pop(ENCODER_STATES))
                with heard_once(self.model):
                    return read(run_model(inputs, encoder_outputs=states))
            return read(run_model(inputs))

    @property
    def can_share_sound(self) -> bool:
        """Whether many runs can share what an encoder makes of a sound."""
        return (
            self.model.capabilities.has_shared_features
            and _DECODER_IDS_INPUT in self.prepared.inputs
        )

    @property
    def is_encoded(self) -> bool:
        """Whether the encoder has run on the item's sound."""
        return "encoder_output" in self.__dict__

    @cached_property
    def encoder_output(self) -> Tensor:
        """States of the encoder [1, T, D] for the item's sound."""
        return self.encode(self.inputs, self.prepared.sound)

    def encode(self, inputs: Mapping[str, Tensor], sound: str | None = None) -> Tensor:
        """Run the encoder; `sound` is the hash of the sound if the states may be cached."""
        sound_inputs = {name: inputs[name] for name in inputs if not name.startswith("decoder_")}
        with self.model.in_use(self.model.state_dtype), torch.no_grad():
            sound_inputs = self.moved(sound_inputs)
            states: Tensor
            if sound is not None and sound_inputs.keys() == {_FEATURES_INPUT}:
                states = run_encoder(self.model, sound_inputs, sound)[0]
            else:
                encoder = self.model.module.get_encoder()
                states = encoder(**sound_inputs, return_dict=True).last_hidden_state
            return states

    def with_encoder_states(
        self, inputs: Mapping[str, Tensor], states: Tensor
    ) -> dict[str, Tensor]:
        """Inputs with the states of the encoder in place of the sound."""
        return {ENCODER_STATES: states} | {
            name: tensor for name, tensor in inputs.items() if name.startswith("decoder_")
        }

    def select_sources(
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
        requested_words = [word for group in groups for word in group]
        if len(set(requested_words)) < len(requested_words):
            raise InputError(
                f"{self.name}: expected each word once, by itself or with others, found "
                f"words={list(words)}"
            )
        source_groups = [
            tuple(source for source in self.sources[stack] if source.index in group)
            for group in groups
        ]
        return tuple(
            group[0] if len(group) == 1 else join_sources(group) for group in source_groups if group
        )
