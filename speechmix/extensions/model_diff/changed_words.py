"""Words that two versions of a model write differently, and the tokens that decide them.

In: models A and B, and a clip. Out: a `ClipDecisions`: both transcripts, and the decisions in which A differs from B. A
decoder is fed what B wrote: where A would write another token there, the models decide differently; all other changed
words follow from the text before them. Of a CTC model, B's text is compared with B's text with A's words in one place.
What is read of a run is the margin of each decision, log p(A's token or text) - log p(B's), and the divergence of the
output from A's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...adapters.capture.device_copy import inputs_to_device
from ...adapters.capture.model_use import run_encoder, wrap_encoder_states
from ...adapters.generation.decoder_text import decoder_lengths
from ...adapters.generation.greedy_generation import list_logits_processors, transcribe
from ...adapters.generation.text_tokens import generate_text
from ...adapters.transformers_types import ModelOutput
from ...inputs.words.transcript_accuracy import normalize_transcript
from ...mixing.maps.numerics import ctc_log_probability
from ..explain.generated_tokens import decode_pieces, draft_tokens
from ..explain.transcript_errors import align_words, list_runs

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip
    from ..explain.generated_tokens import Draft

_MAX_WORD_TOKENS = 8  # tokens of the word that A would write


@dataclass(frozen=True)
class WordChange:
    """A decision of B that A makes differently.

    Parameters
    ----------
    word_a, word_b : str
        What A would write, and what B wrote; empty for nothing.
    word_index : int
        Of B's word in B's transcript, of the next one where B wrote none.
    ids_a, ids_b : tuple of int
        The token of each, of a CTC model the whole text of each.
    row : int
        Position whose logits decide; 0 of a CTC model.
    """

    word_a: str
    word_b: str
    word_index: int
    ids_a: tuple[int, ...]
    ids_b: tuple[int, ...]
    row: int = 0

    @property
    def is_spelling(self) -> bool:
        """Whether both words differ in capitals or punctuation alone."""
        return normalize_transcript(self.word_a) == normalize_transcript(self.word_b)


@dataclass(frozen=True, eq=False)
class ClipDecisions:
    """What two models write about a clip, and how a run is read.

    Parameters
    ----------
    name : str
    text_a, text_b : str
        Transcripts, each by its own model.
    inputs : dict of str to Tensor
        Of both models; a decoder is fed what B wrote.
    changes : tuple of WordChange
    rows : slice
        Positions of the output that are compared.
    audio_hash : str, optional
        By which states of the encoder are cached.
    """

    name: str
    text_a: str
    text_b: str
    inputs: dict[str, Tensor] = field(repr=False)
    changes: tuple[WordChange, ...]
    rows: slice
    audio_hash: str | None = None

    @property
    def changed_count(self) -> int:
        """Words that differ between both transcripts, capitals and punctuation included."""
        return len(align_words(self.text_a.split(), self.text_b.split()))

    def read(self, logits: Tensor, log_probabilities_a: Tensor | None, blank: int | None) -> Tensor:
        """Read a run's logits [1, T, V]: the margin of each change, and the divergence from A in nats for each position
        (0 if A is not given), [changes + 1]."""
        scores = self.log_probabilities(logits)
        margins = []
        for change in self.changes:
            if blank is None:
                row = scores[change.row - self.rows.start]
                margins.append(row[change.ids_a[0]] - row[change.ids_b[0]])
            else:
                both = (change.ids_a, change.ids_b)
                of_a, of_b = (ctc_log_probability(scores, ids, blank=blank) for ids in both)
                margins.append(of_a - of_b)
        divergence = scores.new_zeros(())
        if log_probabilities_a is not None:
            terms = log_probabilities_a.exp() * (log_probabilities_a - scores)
            # What has no probability adds nothing: 0 * (-inf - ...) is no number.
            divergence = terms.nan_to_num(nan=0.0).sum(dim=-1).mean().clamp(min=0)
        return torch.stack([*margins, divergence]).cpu()

    def log_probabilities(self, logits: Tensor) -> Tensor:
        """Return what a run says at the compared positions, [rows, V]."""
        return logits[0, self.rows].double().log_softmax(dim=-1)


def find_changes(model_a: Model, model_b: Model, clip: Clip) -> ClipDecisions:
    """Transcribe a clip by both models, and find the decisions that differ.

    Errors are those of transcription.
    """
    clip = clip.replace(text=None, words=None, translation=None, cue=None, target=None, foil=None)
    prepared = model_b.family.prepare(model_b, clip, ("encoder",))
    inputs = {name: torch.as_tensor(tensor) for name, tensor in prepared.inputs.items()}
    if model_b.capabilities.decoding == "frames":
        return _find_ctc_changes(model_a, model_b, clip, inputs)
    sound = inputs_to_device(inputs, model_a.device, model_a.state_dtype)
    text_a, generated = generate_text(model_a, clip), generate_text(model_b, clip)
    ids, n_prefix = list(generated.ids), generated.n_prefix
    inputs["decoder_input_ids"] = torch.tensor([ids])
    drafts, words = draft_tokens(model_b, ids, n_prefix, ended=generated.ended)
    changes = []
    with model_a.in_use(model_a.state_dtype), torch.no_grad():
        states = run_encoder(model_a, sound, prepared.audio_hash)[0]
        logits = _run_decoder(model_a, states, ids)
        processors = list_logits_processors(model_a, n_prefix)
        for draft in drafts:
            token = _choose_token(logits[draft.position], ids[: draft.position + 1], processors)
            if token == draft.id:
                continue
            before = _word_beginning(ids[n_prefix : draft.position + 1], draft.word, drafts)
            word_index = len(words) if draft.word is None else draft.word
            changes.append(
                WordChange(
                    _write_word(model_a, states, ids[: draft.position + 1], before, token),
                    "" if draft.word is None else words[draft.word],
                    word_index,
                    (token,),
                    (draft.id,),
                    draft.position,
                )
            )
    stop = len(ids) if generated.ended else len(ids) - 1
    rows = slice(n_prefix - 1, max(stop, n_prefix))
    texts = text_a.text, generated.text
    return ClipDecisions(clip.name, *texts, inputs, tuple(changes), rows, prepared.audio_hash)


def _choose_token(logits: Tensor, ids: Sequence[int], processors: Sequence[Any]) -> int:
    """Return the token that greedy generation chooses behind some ids."""
    scores = logits.float()[None]
    for process_logits in processors:
        scores = process_logits(torch.tensor([ids], device=scores.device), scores)
    return int(scores[0].argmax())


def _word_beginning(ids: Sequence[int], word: int | None, drafts: Sequence[Draft]) -> list[int]:
    """Return the tokens of a word that lie before the deciding one."""
    if word is None:
        return []
    first = next(index for index, draft in enumerate(drafts) if draft.word == word)
    return list(ids[first:])


def _write_word(
    model: Model, states: Tensor, ids: Sequence[int], before: Sequence[int], token: int
) -> str:
    """Let a model write the rest of a word that begins with some tokens and goes on with `token`; "" for the end."""
    end, ids, word_ids = model.tokenizer.eos_token_id, list(ids), [*before]
    max_positions = min(decoder_lengths(model), default=len(ids) + _MAX_WORD_TOKENS)
    for _ in range(_MAX_WORD_TOKENS):
        pieces = decode_pieces(model, [*word_ids, token])
        if token == end or (len(pieces) > 1 and pieces[-1][:1].isspace() and word_ids):
            break
        word_ids.append(token)
        ids.append(token)
        if len(ids) > max_positions:  # behind a loop that filled them all
            break
        token = int(_run_decoder(model, states, ids)[-1].argmax())
    return "".join(decode_pieces(model, word_ids)).strip()


def _run_decoder(model: Model, states: Tensor, ids: Sequence[int]) -> Tensor:
    """Return logits [T, V] behind encoder states."""
    fed = {"decoder_input_ids": torch.tensor([ids], device=model.device)}
    output: ModelOutput = model.run_with_head(fed, encoder_outputs=wrap_encoder_states(states))
    logits: Tensor = output.logits[0]
    return logits


def _find_ctc_changes(
    model_a: Model, model_b: Model, clip: Clip, inputs: dict[str, Tensor]
) -> ClipDecisions:
    text_a, text_b = (transcribe(model, clip) for model in (model_a, model_b))
    words_a, words_b = text_a.split(), text_b.split()
    ids_b = tuple(model_b.tokenizer(text_b).input_ids)
    changes = []
    for rows, columns in list_runs(align_words(words_a, words_b)):
        of_a, of_b = words_a[rows.start : rows.stop], words_b[columns.start : columns.stop]
        mixed = [*words_b[: columns.start], *of_a, *words_b[columns.stop :]]
        ids_a = tuple(model_b.tokenizer(" ".join(mixed)).input_ids)
        changes.append(WordChange(" ".join(of_a), " ".join(of_b), columns.start, ids_a, ids_b))
    return ClipDecisions(clip.name, text_a, text_b, inputs, tuple(changes), slice(0, None))
