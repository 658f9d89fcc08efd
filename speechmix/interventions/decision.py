"""Decision: one number that a model computes for an item, and the positions of each word.

In: a model and a clip, sentence or prepared inputs. Out: a `Decision` with its *margin* (nats):

    with a foil     log p(target) - log p(foil): at the deciding position of a decoder; of the whole
                    text for a CTC model; at [MASK] for a masked model; of the next token for a
                    causal model
    without a foil  log p of the target's tokens; of the whole text for a CTC model, and where
                    segments of the sound take the place of words, so that there is no target
    classifier      log p of the label that the model predicts for the intact text

These are `measures.objectives` ("contrast" and "log_probability"), which gradient measures
differentiate. A `Source` is what an intervention can take away: a stack, a word, several together, or a token.
A `Reading` says at which rows of any logits of the clip the probability of which token is read:

    arg-max     tokens that the intact model finds likeliest where the target is predicted; of a CTC model, at its own frames
    transcript  the target's own tokens there; of a CTC model its letters, at their frames on the best path through the clip
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from transformers.modeling_outputs import CausalLMOutput

from ..adapters.capture.device_copy import inputs_to_device
from ..adapters.capture.forward_pass import Capture, use_attention
from ..adapters.capture.model_use import run_encoder, wrap_encoder_states
from ..adapters.generation.emission_paths import best_ctc_path
from ..adapters.generation.model_inputs import PreparedInputs
from ..adapters.model import Model
from ..adapters.patching.patched_runs import share_encoder_states
from ..adapters.transformers_types import ModelOutput
from ..errors import InputError
from ..inputs.clips.clip import Clip
from ..inputs.sentences.sentence import Sentence
from ..inputs.words.cue_and_target import cue_words
from ..inputs.words.multipart_words import join_words
from ..inputs.words.spans import Span
from ..inputs.words.words_in_text import locate_target
from ..mixing.maps.numerics import ctc_log_probability
from ..mixing.measures.objectives import resolve_objective
from ..mixing.measures.token_objectives import Objective, token_objective
from ..mixing.passes.item_view import Item
from ..mixing.passes.request import TEXT_UNITS, MixRequest, ObjectiveOption
from ..mixing.passes.view_kinds import is_masked_model, make_view, replace_target_by_mask
from .removals import RowIndices
from .runner import ENCODER_STATES, run_inputs

if TYPE_CHECKING:
    from torch import Tensor

    from ..adapters.generation.model_inputs import AudioTokens
    from ..adapters.model import Model
    from ..mixing.passes.item_view import Item, View


@dataclass(frozen=True)
class Source:
    """What an intervention removes from a stack: a word, several together, or a token.

    `index` counts the item's words (of several, the first); of a token it is the position, of
    prepared inputs the unit of the stack. `positions` are frames or tokens of the stack; `members`,
    of several words, each by itself. `word_index` is the word that this is, or that a token belongs
    to; None for several words and prepared inputs.
    """

    index: int
    label: str
    positions: tuple[int, ...]
    members: tuple[Source, ...] = ()
    word_index: int | None = None

    @property
    def word_indices(self) -> tuple[int, ...]:
        """Indices of all its words."""
        return tuple(member.index for member in self.members) or (self.index,)


def join_sources(sources: tuple[Source, ...]) -> Source:
    """Join several words to one source."""
    positions = tuple(position for source in sources for position in source.positions)
    return Source(
        sources[0].index, " ".join(source.label for source in sources), positions, sources
    )


def words_as_sources(spans: Sequence[Span], words: Sequence[str] | None) -> tuple[Source, ...]:
    """Join spans to sources by word, without spans of no word; each by itself without words."""
    if words is None:
        return tuple(Source(i, span.label, tuple(span.positions)) for i, span in enumerate(spans))
    positions: dict[int, list[int]] = {}
    for span in spans:
        if span.word is not None:
            positions.setdefault(span.word, []).extend(span.positions)
    return tuple(
        Source(word, words[word], tuple(positions[word]), word_index=word)
        for word in sorted(positions)
    )


def audio_and_answer_sources(
    spans: Sequence[Span], words: Sequence[str], answer_position: int
) -> tuple[Source, ...]:
    """List the words of an audio language model's decoder: in the audio, then in the answer with
    the next indices.

    Examples
    --------
    >>> said_twice = [Span(3, 9, "les", word=0), Span(12, 13, "les", "token", 0)]
    >>> [(source.index, source.label, source.positions[0]) for source in audio_and_answer_sources(said_twice, ["les"], 12)]
    [(0, 'les', 3), (1, 'les (written)', 12)]
    """
    audio_sources = words_as_sources(
        [span for span in spans if span.start < answer_position], words
    )
    answer_sources = words_as_sources(
        [span for span in spans if span.start >= answer_position], words
    )
    return audio_sources + tuple(
        replace(source, index=len(words) + source.index, label=f"{source.label} (written)")
        for source in answer_sources
    )


def tokens_as_sources(spans: Sequence[Span]) -> tuple[Source, ...]:
    """List the tokens of a text as sources, without special tokens."""
    return tuple(
        Source(span.start, span.label, tuple(span.positions), word_index=span.word)
        for span in spans
        if span.word is not None
    )


def removable_sources(model: Model, view: View, units: str) -> dict[str, tuple[Source, ...]]:
    """List the sources ("word" or "token") of each stack that can be removed from an item; its view
    is prepared for all stacks."""
    words = None if view.item is None else [word.text for word in view.item.words or ()]
    sources = {
        stack: tokens_as_sources(view.sources(stack))
        if units == "token" and words is not None
        else words_as_sources(view.sources(stack), words)
        for stack in model.capabilities.prepared_stacks
    }
    audio_tokens = view.prepared.audio_tokens
    if audio_tokens is not None and audio_tokens.answer_position is not None and words is not None:
        sources["decoder"] = audio_and_answer_sources(
            view.sources("decoder"), words, audio_tokens.answer_position
        )
    elif audio_tokens is not None and not sources["encoder"]:
        sources["encoder"] = _audio_frame_sources(model, view.prepared.inputs, audio_tokens)
    return sources


def audio_frame_spans(model: Model, item: Item) -> list[list[tuple[int, int]]] | None:
    """Return each frame of prepared audio as a span; None for other items, whose words or tokens
    are the sources."""
    if not model.capabilities.has_shared_features or not isinstance(item, Mapping):
        return None
    sound_input, rows = torch.as_tensor(next(iter(item.values()))), model.family.feature_rows
    if model.family.is_traced:  # how features become frames is not in the table
        return [[(frame, frame + 1)] for frame in range(_count_frames(model, item))]
    n_samples = sound_input.shape[-1] if rows is None else rows[0] * sound_input.shape[1] + rows[1]
    grid = model.grid(n_samples)
    return [grid.position_ranges([(frame, frame + 1)]) for frame in range(grid.n_frames)]


def _count_frames(model: Model, inputs: Mapping[str, object]) -> int:
    """Run the encoder of prepared inputs, and count its frames."""
    counts: list[int] = []
    tensors = {name: torch.as_tensor(value) for name, value in inputs.items()}
    with (
        model.in_use(model.state_dtype),
        torch.no_grad(),
        use_attention(model.module, model.readable_attention),
        Capture(
            [model.stacks["encoder"]], lambda block: counts.append(block.n_sources), layers=(0,)
        ),
    ):
        moved = inputs_to_device(tensors, model.device, model.state_dtype)
        model.family.run(model.base, moved, ("encoder",))
    return counts[0]


def _audio_frame_sources(
    model: Model, inputs: Mapping[str, Tensor], audio_tokens: AudioTokens
) -> tuple[Source, ...]:
    """Return each frame that became a position of an audio language model's decoder as a source.

    The projector may have padded its last step."""
    count = audio_tokens.n_windows * audio_tokens.frames
    if model.family.feature_rows is not None:
        count = min(count, inputs["input_features"].shape[1])
    return tuple(Source(frame, str(frame), (frame,)) for frame in range(count))


_FEATURES_INPUT, _DECODER_IDS_INPUT = "input_features", "decoder_input_ids"


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
        if model.hears and isinstance(item, Clip) and not item.words:
            raise InputError(
                f"{item.name} has no words with times: give words=, align it with "
                "speechmix.align, or divide its sound with speechmix.segment_clip"
            )
        request = MixRequest(units=units, spans=audio_frame_spans(model, item))
        view = make_view(model, item, request, model.capabilities.prepared_stacks)
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
        run_model, model = self.model.run_with_head, self.model
        with model.in_use(model.state_dtype, is_sampling=self.objective.is_custom), torch.no_grad():
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


ARG_MAX, TRANSCRIPT, MARGIN, TEXT = READINGS = ("arg-max", "transcript", "margin", "text")


@dataclass(frozen=True)
class Reading:
    """Probabilities of a word's sub-tokens; `name` is "arg-max" or "transcript".

    By sub-token, `rows` are one row, or the frames of a letter, over which the mean is taken, and
    `ids` say which token is read there.
    """

    name: str
    rows: list[list[int]]
    ids: list[int]

    def of(self, logits: Tensor) -> list[float]:
        """Return the probability of each sub-token from logits [T, V]."""
        return [
            logits[rows].softmax(dim=-1)[:, token].mean().item()
            for rows, token in zip(self.rows, self.ids, strict=True)
        ]


def list_readings(decision: Decision, intact_logits: Tensor) -> list[Reading]:
    """List the readings of a clip's target in the logits [T, V] of the clip as it is; an InputError
    if the target has no token, or no frame."""
    clip = require_clip(decision)
    if decision.prepared.tokens is None:
        frames = _target_frames(decision, clip)
        labels, label_indices = target_labels(decision, clip)
        paths, _ = best_ctc_path(
            intact_logits.float().log_softmax(dim=-1).cpu(),
            labels,
            blank=decision.model.config.pad_token_id,
        )
        target_frames = [paths[label_index] for label_index in label_indices]
        transcript_reading = Reading(
            TRANSCRIPT, target_frames, [labels[label_index] for label_index in label_indices]
        )
        rows = [[frame] for frame in frames]
    else:
        tokens = decision.prepared.tokens
        label_indices = [
            label_index
            for label_index, word in enumerate(tokens.words[: len(tokens.ids)])
            if word == clip.target
        ]
        rows = [[label_index - 1] for label_index in label_indices]
        transcript_reading = Reading(
            TRANSCRIPT, rows, [tokens.ids[label_index] for label_index in label_indices]
        )
    return [
        Reading(ARG_MAX, rows, [int(intact_logits[row].argmax()) for (row,) in rows]),
        transcript_reading,
    ]


def read_values(
    decision: Decision, readings: Sequence[Reading], logits: Tensor
) -> dict[str, list[float]]:
    """Read the values of a target from logits [T, V]: for each reading, a number per sub-token."""
    values = {reading.name: reading.of(logits) for reading in readings}
    values[MARGIN] = [decision.compute_margins(CausalLMOutput(logits=logits[None])).item()]
    if decision.prepared.tokens is None:
        clip, model = require_clip(decision), decision.model
        labels = model.tokenizer(_clip_text(clip)).input_ids
        scores = logits.log_softmax(dim=-1)
        values[TEXT] = [ctc_log_probability(scores, labels, blank=model.config.pad_token_id).item()]
    return values


def require_clip(decision: Decision) -> Clip:
    """Return the clip of a decision; an InputError if it is about a text, or prepared inputs."""
    if not isinstance(decision.item, Clip):
        raise InputError(f"{decision.name}: expected a clip, whose sound can be silenced")
    return decision.item


def _clip_text(clip: Clip) -> str:
    return clip.text or join_words(clip.spoken_words)


def _target_frames(decision: Decision, clip: Clip) -> tuple[int, ...]:
    frames = [
        source.positions for source in decision.sources["encoder"] if source.index == clip.target
    ]
    if not frames:
        raise InputError(f"{clip.name}: the target has no frame to be read at")
    return frames[0]


def target_labels(decision: Decision, clip: Clip) -> tuple[list[int], list[int]]:
    """Return the labels of the whole text, and the indices of the target's labels."""
    text, tokenizer = _clip_text(clip), decision.model.tokenizer
    span = locate_target(clip.words or (), clip.target or 0, text, where=clip.name)
    labels = list(tokenizer(text).input_ids)
    target_labels, remaining_labels = (
        list(tokenizer(text_piece).input_ids)
        for text_piece in (text[slice(*span)], text[span[0] :].rstrip())
    )
    # Counted from the end: a space before the target may be a label of its own.
    start = len(labels) - len(remaining_labels)
    if not target_labels or labels[start : start + len(target_labels)] != target_labels:
        raise InputError(
            f"{clip.name}: the letters of {text[slice(*span)]!r} are not labels of their own in "
            "this model"
        )
    return labels, list(range(start, start + len(target_labels)))
