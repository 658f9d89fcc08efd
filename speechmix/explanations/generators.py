"""What a model writes: a transcript, a translation, a continuation, the word behind a mask.

In: a model and an item, or a text that is given instead of the model's own. Out: a `Writing`. A CTC
model's letters are placed at the frame of each one's run where it is likeliest; a decoder's tokens
are those of its greedy search (`adapters.generation`), fed to it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..adapters.generation.ctc_paths import best_ctc_path
from ..adapters.generation.decoder_text import decoder_tokens
from ..adapters.generation.generated_texts import generate_text
from ..adapters.generation.model_inputs import PreparedInputs
from ..adapters.generation.text_tokens import MASK, encode_sentence
from ..adapters.generation.tokens import Tokens
from ..errors import InputError
from ..inputs.clips.clip import Clip
from ..inputs.sentences.sentence import Sentence
from ..interventions.removable_sources import Source, tokens_as_sources, words_as_sources
from ..mixing.passes.item_view import View
from ..mixing.passes.masked_target import is_masked_model, replace_target_by_mask
from ..mixing.passes.request import MixRequest
from ..mixing.passes.view_kinds import make_view
from .audio_answers import answer_about
from .generated_drafts import drafts_of_ids, finished, text_sources
from .generated_tokens import (
    Draft,
    SourceUnit,
    Writing,
    decision_on,
    group_pieces,
    label_of,
    logits_on,
)

if TYPE_CHECKING:
    from ..adapters.model import Model

MOST_TOKENS = 20  # of a continuation


def writing_of_clip(model: Model, clip: Clip, *, text: str | None, by_token: bool) -> Writing:
    """What a model writes about a clip with words, or the text that it is asked about.

    Raises
    ------
    InputError
        If the model cannot spell, or no letter or token is written.
    """
    if model.output_kind == "audio tokens":
        return answer_about(model, clip, text=text, by_token=by_token)
    view = make_view(model, clip, MixRequest(units="word"))
    view.prepare(("encoder",))
    prepared, spans = view.prepared, tuple(view.sources("encoder"))
    heard = words_as_sources(spans, [word.text for word in clip.words or ()])
    times = {span.word: (span.onset, span.offset, span.times) for span in spans}
    sources = [SourceUnit("sound", source, *times[source.index]) for source in heard]
    if model.output_kind == "frames":
        decision = decision_on(model, clip, prepared, {"encoder": heard})
        logits = logits_on(decision)
        drafts, words = (
            _letters(model, logits) if text is None else _letters_of_text(model, logits, text)
        )
        by = "given" if text is not None else f"transcript of the model ({model.label}, greedy)"
    else:
        ids, n_prefix, ended, by = _transcribed(model, clip, text)
        prepared.inputs["decoder_input_ids"] = torch.tensor([ids])
        prepared.tokens = Tokens.from_ids(ids, model.tokenizer, label_offset=1)
        drafts, words = drafts_of_ids(model, ids, n_prefix, ended=ended)
        decision = decision_on(model, clip, prepared, {"encoder": heard, "cross": heard})
        sources += text_sources(drafts, words, by_token=by_token)
        logits = logits_on(decision)
    return finished(model, decision, drafts, words, sources, logits, by, spans)


def writing_of_text(
    model: Model,
    sentence: Sentence,
    *,
    text: str | None,
    by_token: bool,
    max_tokens: int = MOST_TOKENS,
) -> Writing:
    """What a model writes about a text: its translation, how it goes on, what stands behind its
    masks.

    Raises
    ------
    InputError
        If the model classifies, or a masked model is given no mask.
    """
    if model.output_kind == "labels":
        raise InputError(
            f"{model.name} writes nothing, it gives a label: ask speechmix.shapley or "
            "speechmix.ablate_input"
        )
    if model.output_kind == "cross-attention":
        return _translation(model, sentence, text, by_token=by_token)
    if is_masked_model(model):
        return _behind_masks(model, sentence, text, by_token=by_token)
    if model.output_kind == "causal":
        return _continuation(model, sentence, text, by_token=by_token, max_tokens=max_tokens)
    raise InputError(
        f"{model.name} writes no text: expected a masked, causal or sequence-to-sequence model "
        "with its head"
    )


def _letters(model: Model, logits: Tensor) -> tuple[list[Draft], list[str]]:
    """Letters of the greedy path; a run of one letter is written once."""
    scores, ids = logits.log_softmax(dim=-1), logits.argmax(dim=-1).tolist()
    placed = []
    for id_, run in groupby(range(len(ids)), key=ids.__getitem__):
        frames = list(run)
        if id_ != model.config.pad_token_id:
            placed.append((id_, max(frames, key=lambda frame: float(scores[frame, id_]))))
    return _drafts_of_letters(model, placed)


def _letters_of_text(model: Model, logits: Tensor, text: str) -> tuple[list[Draft], list[str]]:
    """Letters of a given text at the frames of its best path."""
    scores, ids = logits.log_softmax(dim=-1), model.tokenizer(text).input_ids
    frames, _ = best_ctc_path(scores.float(), ids, blank=model.config.pad_token_id)
    peaks = [
        max(run, key=lambda frame: float(scores[frame, id_]))
        for id_, run in zip(ids, frames, strict=True)
    ]
    return _drafts_of_letters(model, list(zip(ids, peaks, strict=True)))


def _drafts_of_letters(
    model: Model, placed: Sequence[tuple[int, int]]
) -> tuple[list[Draft], list[str]]:
    delimiter = getattr(model.tokenizer, "word_delimiter_token_id", None)
    special = set(model.tokenizer.all_special_ids) - {delimiter}
    kept = [(id_, frame) for id_, frame in placed if id_ not in special]
    owners, words = group_pieces(
        [" " if id_ == delimiter else label_of(model, id_) for id_, _ in kept]
    )
    drafts = [
        Draft(id_, label_of(model, id_), frame, word)
        for (id_, frame), word in zip(kept, owners, strict=True)
    ]
    return drafts, words


def _transcribed(model: Model, clip: Clip, text: str | None) -> tuple[list[int], int, bool, str]:
    """Ids that a decoder is fed, how many of them are given, whether the text ends behind them, who
    wrote it."""
    if not model.can_transcribe:
        raise InputError(
            f"{model.label} cannot transcribe a clip: expected a speech recogniser with its "
            "processor"
        )
    if text is None:
        written = generate_text(model, clip)
        return list(written.ids), written.n_prefix, written.ended, written.by
    spoken = Clip.from_array(
        clip.audio(model.sample_rate), model.sample_rate, text=text, language=clip.language
    )
    given = spoken.replace(translation=text) if model.prefix.task == "translate" else spoken
    tokens = decoder_tokens(model, given)
    return list(tokens.ids), tokens.n_prefix, True, "given"


def _read_sources(
    view: View, sentence: Sentence, stack: str, *, by_token: bool
) -> tuple[Source, ...]:
    if by_token:
        return tokens_as_sources(view.sources(stack))
    return words_as_sources(view.sources(stack), [word.text for word in sentence.words])


def _translation(model: Model, sentence: Sentence, text: str | None, *, by_token: bool) -> Writing:
    asked = sentence if text is None else sentence.replace(translation=text)
    view = make_view(model, asked, MixRequest(units="token"))
    view.prepare(tuple(model.stacks))
    prepared = view.prepared
    tokens = prepared.decoder_tokens
    read = _read_sources(view, asked, "encoder", by_token=by_token)
    ended = prepared.generated_text is None or prepared.generated_text.ended
    drafts, words = drafts_of_ids(model, tokens.ids, tokens.n_prefix, ended=ended)
    decision = decision_on(model, asked, prepared, {"encoder": read, "cross": read})
    sources = [
        *(SourceUnit("read", source) for source in read),
        *text_sources(drafts, words, by_token=by_token),
    ]
    by = "given" if prepared.generated_text is None else prepared.generated_text.by
    return finished(model, decision, drafts, words, sources, logits_on(decision), by)


def _continuation(
    model: Model, sentence: Sentence, text: str | None, *, by_token: bool, max_tokens: int
) -> Writing:
    view = make_view(model, sentence, MixRequest(units="token"))
    view.prepare(tuple(model.stacks))
    prompt = view.prepared.inputs["input_ids"][0].tolist()
    if text is None:
        ids, ended = _gone_on(model, prompt, max_tokens)
        by = f"continuation of the model ({model.label}, greedy)"
    else:
        ids = encode_sentence(model, Sentence(f"{sentence.text}{text}"))[0]["input_ids"][0].tolist()
        ended, by = False, "given"
    n_prompt = next(
        (place for place, (a, b) in enumerate(zip(prompt, ids, strict=False)) if a != b),
        len(prompt),
    )
    drafts, words = drafts_of_ids(model, ids, n_prompt, ended=ended)
    if n_prompt == 0:
        raise InputError(
            f"{sentence.name!r}: nothing stands before the text that is to be explained"
        )
    fed = torch.tensor([ids])
    prepared = PreparedInputs(
        {"input_ids": fed, "attention_mask": torch.ones_like(fed)},
        Tokens.from_ids(ids, model.tokenizer),
    )
    read = tuple(
        source
        for source in _read_sources(view, sentence, "decoder", by_token=by_token)
        if source.positions[0] < n_prompt
    )
    decision = decision_on(model, sentence, prepared, {"decoder": read})
    sources = [
        *(SourceUnit("read", source) for source in read),
        *text_sources(drafts, words, by_token=by_token),
    ]
    return finished(model, decision, drafts, words, sources, logits_on(decision), by)


def _gone_on(model: Model, prompt: Sequence[int], max_tokens: int) -> tuple[list[int], bool]:
    """Prompt and greedy continuation by transformers' own `generate`, without the end; and whether
    there was one."""
    fed = torch.tensor([prompt], device=model.device)
    with model.in_use(model.state_dtype), torch.no_grad():
        ids = model.module.generate(
            input_ids=fed,
            attention_mask=torch.ones_like(fed),
            num_beams=1,
            do_sample=False,
            max_new_tokens=max_tokens,
        )[0].tolist()
    end = model.tokenizer.eos_token_id
    ended = len(ids) > len(prompt) and ids[-1] == end
    return (ids[:-1] if ended else ids), ended


def _behind_masks(model: Model, sentence: Sentence, text: str | None, *, by_token: bool) -> Writing:
    if MASK not in sentence.text:
        sentence = replace_target_by_mask(sentence)[0].replace(foil=sentence.foil)
    view = make_view(model, sentence, MixRequest(units="token"))
    view.prepare(tuple(model.stacks))
    prepared = view.prepared
    places = [
        p for p, id_ in enumerate(prepared.text_tokens.ids) if id_ == model.tokenizer.mask_token_id
    ]
    if not places:
        raise InputError(
            f"{sentence.name!r}: write {MASK} where {model.name} should write a word, or give a "
            "target"
        )
    masked = set(places)
    read = tuple(
        source
        for source in _read_sources(view, sentence, "encoder", by_token=by_token)
        if not masked & set(source.positions)
    )
    decision = decision_on(model, sentence, prepared, {"encoder": read})
    logits = logits_on(decision)
    ids = (
        [int(logits[place].argmax()) for place in places]
        if text is None
        else _behind(model, text, len(places))
    )
    labels = [label_of(model, id_) for id_ in ids]
    drafts = [
        Draft(id_, labels[i], place, i)
        for i, (id_, place) in enumerate(zip(ids, places, strict=True))
    ]
    by = "given" if text is not None else f"likeliest of the model ({model.label})"
    return finished(
        model, decision, drafts, labels, [SourceUnit("read", source) for source in read], logits, by
    )


def _behind(model: Model, text: str, count: int) -> list[int]:
    """Ids of the words that are said to stand behind masks."""
    ids: list[int] = model.tokenizer(text, add_special_tokens=False).input_ids
    if len(ids) != count:
        raise InputError(
            f"text={text!r} has {len(ids)} tokens in {model.name}, and there are {count} masks"
        )
    return ids
