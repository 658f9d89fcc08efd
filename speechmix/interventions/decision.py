"""Decision: one number that a model computes for an item, and the positions of each word.

In: a model and a clip, sentence or prepared inputs. Out: a `Decision` with its *margin* (nats):

    with a foil     log p(target) - log p(foil): at the deciding position of a decoder; of the whole
                    text for a CTC model; at [MASK] for a masked model; of the next token for a
                    causal model
    without a foil  log p of the target's tokens; of the whole text for a CTC model, and where
                    segments of the sound take the place of words, so that there is no target
    classifier      log p of the label that the model predicts for the intact text

These are `measures.objectives` ("contrast" and "log_probability"), which gradient measures
differentiate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from ..adapters.capture.device_copy import inputs_to_device
from ..adapters.capture.encoder_cache import run_encoder, wrap_encoder_states
from ..adapters.generation.model_inputs import PreparedInputs
from ..adapters.model import Model
from ..adapters.patching.shared_encoder import share_encoder_states
from ..adapters.transformers_types import ModelOutput
from ..errors import InputError
from ..inputs.clips.clip import Clip
from ..inputs.sentences.sentence import Sentence
from ..inputs.words.cue_and_target import cue_words
from ..mixing.measures.objectives import resolve_objective
from ..mixing.measures.token_objectives import Objective, token_objective
from ..mixing.passes.item_view import Item
from ..mixing.passes.masked_target import is_masked_model, replace_target_by_mask
from ..mixing.passes.request import TEXT_UNITS, MixRequest, ObjectiveOption
from ..mixing.passes.view_kinds import make_view
from .removable_sources import Source, audio_frame_spans, join_sources, removable_sources
from .removals import RowIndices
from .runner import run_inputs

# Names of inputs: audio features, tokens of a decoder, and encoder states in place of the audio.
_FEATURES_INPUT, _DECODER_IDS_INPUT, ENCODER_STATES = (
    "input_features",
    "decoder_input_ids",
    "encoder_states",
)


@dataclass(frozen=True, eq=False)
class Decision:
    """A decision of a model about an item, and the sources of each stack.

    Parameters
    ----------
    model : Model
    item : Clip, Sentence or None
        The item that the model gets; None for prepared inputs.
    prepared : PreparedInputs
    objective : Objective
    sources : dict of stack to tuple of Source
        In the decoder of an audio language model, a word's audio has the word's index. The words of
        the answer follow, with the next indices.
    units : {"word", "token"}
        Units of the sources of a text.

    Examples
    --------
    >>> model = speechmix.load("bert-base-uncased")                                       # doctest: +SKIP
    >>> sentence = speechmix.Sentence("the keys are here", target="are", foil="is")       # doctest: +SKIP
    >>> Decision.prepare(model, sentence).margin                                               # doctest: +SKIP
    4.1
    """

    model: Model
    item: Clip | Sentence | None
    prepared: PreparedInputs
    objective: Objective
    sources: Mapping[str, tuple[Source, ...]] = field(repr=False)
    units: str = "word"

    @classmethod
    def prepare(
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
            With a target, and a foil for a choice between two spellings. A masked model gets its
            mask in place of the target.
        objective : optional
            Another number than the margin, as in `mix`; prepared inputs need (position, token id, foil's
            id), a classifier takes the name of a label, or of two, as (label,) or (label, label).
        units : {"word", "token"}
            Units of the sources of a text, without special tokens.

        Raises
        ------
        InputError
            If there is no target, or no generated token decides it; if units="token" and the item is
            a clip.
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
                f"{view.item.name} has no words with times: give words=, align it with "
                "speechmix.align, or divide its sound with speechmix.segment_clip"
            )
        view.prepare(model.capabilities.prepared_stacks)
        if objective is None:
            has_foil = view.item is not None and view.item.foil is not None
            is_choice = has_foil and not model.has_label_head
            objective = "contrast" if is_choice else "log_probability"
        objective_function = resolve_objective(objective, model, view.item, view.prepared)
        details = objective_function.details
        if is_masked and details["kind"] == "logit":  # of one spelling: how likely it is
            position, token, label = (details[name] for name in ("position", "token", "label"))
            objective_function = token_objective(
                "log_probability", model, position, token, label=label
            )
        sources = removable_sources(model, view, units)
        return cls(model, view.item, view.prepared, objective_function, sources, units)

    @property
    def name(self) -> str:
        return "inputs" if self.item is None else str(self.item.name)

    @property
    def has_foil(self) -> bool:
        """Return whether the margin compares two spellings."""
        return self.objective.details.get("kind") == "contrast"

    @property
    def read_positions(self) -> list[int]:
        """Positions whose logits make the margin; none if it is that of a whole text."""
        details = self.objective.details
        if "position" in details:
            return [details["position"]]
        return list(details.get("positions", ()))

    @property
    def deciding_rows(self) -> list[int]:
        """Rows of the last stack that make the decision; for a classifier, the row its head reads."""
        details = self.objective.details
        return [details["row"]] if "row" in details else self.read_positions

    @cached_property
    def inputs(self) -> dict[str, Tensor]:
        """Inputs on the model's device, in the dtype of its states."""
        return self.move_inputs(self.prepared.inputs)

    def move_inputs(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Move other inputs to the model's device and dtype."""
        return inputs_to_device(inputs, self.model.device, self.model.state_dtype)

    def compute_margins(self, output: ModelOutput) -> Tensor:
        """Compute the margin [R] of each of R runs, in double precision."""
        if isinstance(getattr(output, "logits", None), Tensor):
            output.logits = output.logits.double()
        return self.objective.function(output)

    @cached_property
    def margin(self) -> float:
        """Margin of the intact item."""
        return self.input_margin(self.prepared.inputs)

    def input_margin(self, inputs: Mapping[str, Tensor], rows: RowIndices = None) -> float:
        """Run the whole model on other inputs, and compute the margin.

        `rows` has the row of the new logits for each position of the item, if they have moved."""
        return float(run_inputs(self, [(inputs, rows)], self.objective.function)[0])

    def read_output(
        self, inputs: Mapping[str, Tensor], read: Callable[[ModelOutput], Tensor]
    ) -> Tensor:
        """Run the model on other inputs, of one or many runs, and read its output."""
        run_model = self.model.run_with_head
        with self.model.in_use(self.model.state_dtype), torch.no_grad():
            inputs = self.move_inputs(inputs)
            if ENCODER_STATES in inputs:
                states = wrap_encoder_states(inputs.pop(ENCODER_STATES))
                with share_encoder_states(self.model):
                    return read(run_model(inputs, encoder_outputs=states))
            return read(run_model(inputs))

    @property
    def can_share_encoder(self) -> bool:
        """Return whether runs with the same audio can share encoder states."""
        return (
            self.model.capabilities.has_shared_features
            and _DECODER_IDS_INPUT in self.prepared.inputs
        )

    @property
    def is_encoded(self) -> bool:
        """Return whether the encoder states of the item are computed already."""
        return "encoder_output" in self.__dict__

    @cached_property
    def encoder_output(self) -> Tensor:
        """Encoder states [1, T, D] of the item's audio."""
        return self.encode(self.inputs, self.prepared.audio_hash)

    def encode(self, inputs: Mapping[str, Tensor], sound: str | None = None) -> Tensor:
        """Run the encoder; `sound` is the hash of the audio if the states may be cached."""
        sound_inputs = {name: inputs[name] for name in inputs if not name.startswith("decoder_")}
        with self.model.in_use(self.model.state_dtype), torch.no_grad():
            sound_inputs = self.move_inputs(sound_inputs)
            states: Tensor
            if self.model.capabilities.is_transducer:
                states = self.model.module.get_audio_features(**sound_inputs).pooler_output
            elif sound is not None and sound_inputs.keys() == {_FEATURES_INPUT}:
                states = run_encoder(self.model, sound_inputs, sound)[0]
            else:
                encoder = self.model.module.get_encoder()
                states = encoder(**sound_inputs, return_dict=True).last_hidden_state
            return states

    def with_encoder_states(
        self, inputs: Mapping[str, Tensor], states: Tensor
    ) -> dict[str, Tensor]:
        """Return inputs with encoder states in place of the audio."""
        return {ENCODER_STATES: states} | {
            name: tensor for name, tensor in inputs.items() if name.startswith("decoder_")
        }

    def layer_count(self, stack: str) -> int:
        """Return the number of layers in which sources of a stack can be changed.

        Raises
        ------
        InputError
            For the text of a transducer, whose prediction network has no attention.
        """
        if stack not in self.model.stacks and stack in self.sources:
            raise InputError(
                f"{self.model.name} has no attention layers in its {stack}: take stacks=['encoder'], "
                "or change its text with speechmix.ablate_input(model, item, sides=['text'])"
            )
        return len(self.model.stacks[stack])

    def select_sources(
        self, stack: str, words: Sequence[int | Sequence[int]] | None
    ) -> tuple[Source, ...]:
        """Return some sources of a stack, or all for None; several words in a tuple are one source.

        Raises
        ------
        InputError
            If there is no such stack, or a word occurs twice.
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
