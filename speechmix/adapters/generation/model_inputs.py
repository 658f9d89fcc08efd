"""What a model is fed: the inputs made from a clip or a sentence, and the tokens of each side.

In: tensors by the name of the module's argument. Out: `PreparedInputs`, which a family's table returns.

Decoder positions that stand for sound, and the encoder frames of each.

In an audio language model the encoder's output goes through a projector and takes the place of
audio tokens in the decoder's input. In: the ids that are fed, and the projector's step: so many
frames become so many positions (Qwen2-Audio and Qwen2.5-Omni 2 and 1, Voxtral 4 and 1,
Granite-speech 15 and 3). Out: an `AudioTokens`, read off the ids, which turns words and frames of
the sound into units of the decoder, by the rule of frames: a position belongs to the word that the
centre of its frames lies in.

Tokens of a text or decoder, each with its label and word.

Input position p of a decoder holds token p and predicts token p + 1. So, behind an encoder, a
word's *source columns* are the positions that hold its tokens, and its *target rows* the positions
one earlier, which predict them (Mohebbi et al. 2023). text_tokens.py makes the tokens of sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from ...errors import InputError
from ...inputs.audio.frame_grid import FrameGrid
from ...inputs.words.multipart_words import split_parts
from ...inputs.words.spans import Span
from ..transformers_types import HookArguments, HookKeywords, Tokenizer

if TYPE_CHECKING:
    from .decoder_context import GeneratedText


@dataclass
class PreparedInputs:
    """Model inputs made from a clip or a sentence.

    `tokens` are the decoder's and `source_tokens` those of an encoder that reads text; None where
    there is no such stack. `generated_text` is what the model generated itself, where its decoder
    is fed that. `audio_hash` names the sound that the inputs were made of, where results from it
    are cached (model_use.py).
    """

    inputs: dict[str, torch.Tensor]
    tokens: Tokens | None = None
    source_tokens: Tokens | None = None
    generated_text: GeneratedText | None = None
    audio_hash: str | None = None
    audio_tokens: AudioTokens | None = None

    @property
    def decoder_tokens(self) -> Tokens:
        """The decoder's tokens; an InputError if nothing is fed to a decoder."""
        if self.tokens is None:
            raise InputError("these inputs feed no decoder: give a text, or decoder_input_ids")
        return self.tokens

    @property
    def deciding_frame(self) -> int | None:
        """Frame at which a transducer decides between two spellings; None of other models."""
        row = None if self.tokens is None else self.tokens.deciding_row
        frames = self.inputs.get("decoder_frames")
        return None if row is None or frames is None else int(frames[0, row])

    @property
    def text_tokens(self) -> Tokens:
        """Tokens of the text that is read: the encoder's, or those of the only decoder."""
        return self.decoder_tokens if self.source_tokens is None else self.source_tokens


class HashedInputs(dict[str, Tensor]):
    """Prepared inputs with the hash of their sound, so that what is cached for that sound serves
    them too."""

    def __init__(self, inputs: Mapping[str, torch.Tensor], audio_hash: str | None):
        super().__init__(inputs)
        self.audio_hash = audio_hash


@dataclass(frozen=True)
class AudioTokens:
    """Positions of a decoder that stand for sound: the half-open range start to stop.

    The projector's step: positions [start + k positions, start + (k + 1) positions) stand for the
    encoder's frames [k frames, (k + 1) frames). `answer_position` holds the answer's first token;
    None if it is not known where the prompt ends.
    """

    start: int
    stop: int
    frames: int
    positions: int
    answer_position: int | None = None

    @property
    def n_windows(self) -> int:
        """How many times the projector stepped."""
        return (self.stop - self.start) // self.positions

    def check(self, n_frames: int, name: str) -> None:
        """Raise an InputError if so many frames of the encoder cannot have become these positions."""
        if (
            not n_frames < (self.n_windows + 1) * self.frames
            or not (self.n_windows - 1) * self.frames < n_frames
        ):
            raise InputError(
                f"{name}: its encoder gives {n_frames} frames of sound, of which {self.frames} at "
                "a time become "
                f"{self.positions} positions of the decoder; but there are "
                f"{self.stop - self.start} audio tokens. Take both "
                "from one call of the model's processor"
            )

    def list_clip_spans(
        self, grid: FrameGrid, spans_on: Callable[[FrameGrid], list[Span]]
    ) -> list[Span]:
        """Convert the units of a clip's sound, as ``spans_on(grid)`` makes them, to positions of
        the decoder.

        More words than steps of the projector are an InputError.
        """
        try:
            return [
                self._to_positions(span)
                for span in spans_on(grid.group_frames(self.frames, self.n_windows))
            ]
        except InputError as error:
            raise InputError(
                f"in the decoder, where {self.frames} frames of the encoder are one: {error}. The "
                "encoder's own maps are had "
                "with stacks=['encoder']"
            ) from error

    def convert_frame_spans(self, spans: Sequence[Span]) -> list[Span]:
        """Ranges of the encoder's frames as ranges of the decoder's positions; each has at least
        one."""
        windows = FrameGrid(self.n_windows * self.frames, 1.0, 0.5, 1.0, 0.0).group_frames(
            self.frames, self.n_windows
        )
        position_spans = []
        for span in spans:
            ranges = [windows.frames_between(*frames) for frames in span.ranges]
            ranges = [(start, stop) for start, stop in ranges if start < stop] or ranges[:1]
            start, stop = ranges[0]
            if start >= stop:
                start = min(start, span.start // self.frames)
                ranges = [(start, max(stop, start + 1))]
            position_spans.append(self._to_positions(span.with_ranges(ranges)))
        return position_spans

    def list_window_spans(self) -> list[Span]:
        """Every step of the projector as a unit of its own."""
        return [
            self._to_positions(Span(window, window + 1, str(window), "frame"))
            for window in range(self.n_windows)
        ]

    def list_units(
        self, tokens: Tokens, audio_spans: Sequence[Span]
    ) -> tuple[list[Span], list[Span]]:
        """Targets and sources of the decoder: prompt, sound and answer in one row.

        A source is what its position holds. So is a target up to the answer; from there on its
        position is labelled with the token that it writes, as behind an encoder. So a word that is
        said and written is a source in its sound, and source and target in its text.
        """
        first_predicting_position = (
            len(tokens.ids) if self.answer_position is None else self.answer_position - 1
        )
        sources, targets = [], []
        for position in range(len(tokens.ids)):
            if self.start <= position < self.stop:
                audio_spans_here = [span for span in audio_spans if span.start == position]
                sources += audio_spans_here
                targets += [replace(span, word=None) for span in audio_spans_here]
            elif tokens.kinds[position] != "padding":
                sources.append(tokens.position_span(position))
                targets.append(
                    tokens.position_span(
                        position, label_offset=int(position >= first_predicting_position)
                    )
                )
        return targets, sources

    def _to_positions(self, span: Span) -> Span:
        return span.with_ranges(
            [
                (self.start + self.positions * start, self.start + self.positions * stop)
                for start, stop in span.ranges
            ]
        )


class _StopBeforeDecoder(Exception):
    """Raised where the decoder would begin, when only the encoder is measured."""


def run_with_audio(base: nn.Module, inputs: Mapping[str, Any], stacks: tuple[str, ...]) -> Any:
    """Run an audio language model's base, no further than the stacks need.

    An InputError says that there are no tokens for the decoder, or not one audio token for each
    position of the sound.
    """
    ids, decoder = inputs.get("input_ids"), cast("nn.Module", base.language_model)
    if ids is None:
        if "decoder" in stacks or "feature_attention_mask" in inputs:
            raise InputError(
                "an audio language model needs input_ids, with its audio tokens, beside "
                "input_features: give both, as its "
                "processor makes them"
            )
        encoder: Any = base.audio_tower if hasattr(base, "audio_tower") else base.encoder
        return encoder(inputs["input_features"])

    def check_position_count(module: nn.Module, args: HookArguments, kwargs: HookKeywords) -> None:
        if "decoder" not in stacks:
            raise _StopBeforeDecoder
        length = kwargs["inputs_embeds"].shape[1]
        if length != ids.shape[1]:
            raise InputError(
                f"{ids.shape[1]} tokens became {length} positions of the decoder: there must be "
                "one audio token for each "
                "position of the sound, as the model's processor makes them"
            )

    hook = decoder.register_forward_pre_hook(check_position_count, with_kwargs=True)
    try:
        return base(**inputs, use_cache=False)
    except _StopBeforeDecoder:
        return None
    except ValueError as error:  # transformers counts audio tokens and what the projector gives
        if isinstance(error, InputError) or "audio" not in str(error).lower():
            raise
        raise InputError(f"the sound does not fit the audio tokens: {error}") from error
    finally:
        hook.remove()


@dataclass(frozen=True)
class Tokens:
    """Tokens that a model is fed, one position each, and the labels of its maps' rows and columns.

    `labels`, `words` (index of the clip's or sentence's word, None for special tokens) and `kinds`
    ("token", "special", "padding") have an entry for each of the T ids, and one more with
    `label_offset` 1. That offset says which token labels a target row: the one its position holds
    (0, texts), or the next, which it predicts (1, decoders behind an encoder). `word_labels` are
    the words as text, for units="word". `deciding_index` is the first token in which target and
    foil differ (it may be the end of text; the position before it predicts it), and `foil_id` the
    foil's token there.
    """

    ids: list[int]
    labels: list[str]
    words: list[int | None]
    kinds: list[str]
    label_offset: int = 0
    word_labels: Sequence[str] = ()
    units: str = "token"
    deciding_index: int | None = None
    foil_id: int | None = None

    @classmethod
    def from_ids(
        cls,
        ids: list[int],
        tokenizer: Tokenizer = None,
        *,
        mask: Sequence[int] | None = None,
        label_offset: int = 0,
    ) -> Tokens:
        """Tokens of prepared inputs: words are not known, nor what the last position predicts.
        `mask` [T] is 0 for padding."""
        special_ids = set(getattr(tokenizer, "all_special_ids", ())) - {
            getattr(tokenizer, "mask_token_id", None)
        }
        if tokenizer is None:
            labels = [str(i) for i in ids]
        else:
            labels = (
                [tokenizer.decode([i]) for i in ids]
                if label_offset
                else tokenizer.convert_ids_to_tokens(ids)
            )
        kinds = [
            "padding" if not is_shown else "special" if i in special_ids else "token"
            for i, is_shown in zip(ids, mask or [1] * len(ids), strict=True)
        ]
        return cls(
            ids,
            [*labels, *["<next>"] * label_offset],
            [None] * (len(ids) + label_offset),
            [*kinds, *["special"] * label_offset],
            label_offset,
        )

    @property
    def n_prefix(self) -> int:
        """How many special tokens come before the text: they are given, not predicted."""
        return next(
            (index for index, kind in enumerate(self.kinds) if kind == "token"), len(self.ids)
        )

    @property
    def deciding_row(self) -> int | None:
        """Position that predicts the deciding token; None where none decides, or nothing predicts
        it."""
        return self.deciding_index - 1 if self.deciding_index else None

    def sources(self) -> list[Span]:
        """Columns, by what positions hold: tokens, or words with special tokens between them;
        padding is no unit."""
        return self._list_spans(0)

    def targets(self) -> list[Span]:
        """Rows, by what positions hold or predict (`label_offset`)."""
        return self._list_spans(self.label_offset)

    def position_span(self, position: int, *, label_offset: int = 0) -> Span:
        """One position as a unit, labelled with the token that it holds, or the one that it
        predicts."""
        token = position + label_offset
        return Span(
            position, position + 1, self.labels[token], self.kinds[token], self.words[token]
        )

    def with_deciding_token(self, ids: Sequence[int], foil_ids: Sequence[int]) -> Tokens:
        """Return the tokens with the one that decides between two spellings; unchanged where one is
        the other's beginning.

        `ids` and `foil_ids` are all tokens with the target and with the foil; of a decoder also the
        one that the last position predicts.
        """
        deciding_index = first_difference(ids, foil_ids)
        return (
            self
            if deciding_index is None
            else replace(self, deciding_index=deciding_index, foil_id=foil_ids[deciding_index])
        )

    def _list_spans(self, label_offset: int) -> list[Span]:
        spans = []
        span_indices: dict[
            int, int
        ] = {}  # which span a word is: one in several parts goes on behind others
        for (kind, word), positions in groupby(
            range(len(self.ids)), key=lambda p: self._kind_and_word(p + label_offset)
        ):
            if kind == "padding":
                continue
            start, *later_positions = positions
            if word is None or self.units == "token":
                spans += [
                    self.position_span(p, label_offset=label_offset)
                    for p in (start, *later_positions)
                ]
                continue
            tokens = (start, start + len(later_positions) + 1)
            if word in span_indices and len(split_parts(self.word_labels[word])) > 1:
                spans[span_indices[word]] = spans[span_indices[word]].with_ranges(
                    [*spans[span_indices[word]].ranges, tokens]
                )
            else:
                span_indices[word] = len(spans)
                spans.append(Span(*tokens, self.word_labels[word], "word", word))
        return spans

    def _kind_and_word(self, token: int) -> tuple[str, int | None]:
        return self.kinds[token], self.words[token]


def first_difference(ids: Sequence[int], others: Sequence[int]) -> int | None:
    """Index of the first token in which two texts differ; None where one is the other's beginning.

    Examples
    --------
    >>> first_difference([4, 8, 2], [4, 9, 6, 2])
    1
    """
    return next(
        (index for index, (a, b) in enumerate(zip(ids, others, strict=False)) if a != b), None
    )
