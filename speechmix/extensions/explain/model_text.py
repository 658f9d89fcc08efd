"""What a model writes: a transcript, a translation, a continuation, the word behind a mask.

In: a model and an item, or a text that is given instead of the model's own. Out: a `Writing`. A CTC
model's letters are placed at the frame of each one's run where it is likeliest; a decoder's tokens
are those of its greedy search (`adapters.generation`), fed to it again.

Answer of an audio language model about a clip, with its possible sources.

In: an audio language model with its prompt (`Model.with_prompt`), and a clip with words. Out: a
`Writing`. Its sources are the words of the sound, of which the decoder knows at which of its
positions they stand; the words of the prompt, found in the conversation that the processor wrote
(the template's own words are nobody's); and the words of the answer so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch

from ...adapters.generation.audio_prompt import find_prompt_words
from ...adapters.generation.decoder_context import GeneratedText
from ...adapters.generation.decoder_text import decoder_tokens
from ...adapters.generation.emission_paths import feed_path
from ...adapters.generation.model_inputs import PreparedInputs, Tokens
from ...adapters.generation.text_tokens import MASK, encode_sentence, generate_text
from ...errors import InputError
from ...inputs.clips.clip import Clip
from ...inputs.sentences.sentence import Sentence
from ...interventions.decision import Source, tokens_as_sources, words_as_sources
from ...mixing.measures.token_objectives import require_head
from ...mixing.passes.item_view import View
from ...mixing.passes.request import MixRequest
from ...mixing.passes.view_kinds import is_masked_model, make_view, replace_target_by_mask
from .generated_tokens import (
    Draft,
    SourceUnit,
    Writing,
    draft_given_letters,
    draft_letters,
    draft_tokens,
    make_open_decision,
    make_writing,
    padding_sources,
    prompt_sources,
    read_logits,
    text_sources,
    token_label,
)

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.words.spans import Span


def write_answer(model: Model, clip: Clip, *, text: str | None, by_token: bool) -> Writing:
    """What the model answers about a clip with words, or the answer that it is asked about.

    Raises
    ------
    InputError
        If the model cannot answer: it has random weights, and no answer is given.
    """
    answer_text = model.prompt.answer if text is None else text
    prompted_model = model.with_prompt(model.prompt.text, answer=answer_text)
    view = make_view(prompted_model, clip, MixRequest(units="word"), ("encoder", "decoder"))
    prepared, spans = view.prepared, tuple(view.sources("encoder"))
    audio_segment = prepared.audio_tokens
    if audio_segment is None or audio_segment.answer_position is None:
        raise InputError(f"{clip.name}: {model.label} was fed no answer")
    texts = [word.text for word in clip.words or ()]
    among_tokens = {
        source.index: source
        for source in words_as_sources(_sound_spans(view.sources("decoder")), texts)
    }
    times = {span.word: (span.onset, span.offset, span.times) for span in spans}
    in_encoder = words_as_sources(spans, texts)
    sources = [
        SourceUnit(
            "sound", source, *times[source.index], heard_at=among_tokens[source.index].positions
        )
        for source in in_encoder
    ]
    ids = prepared.inputs["input_ids"][0].tolist()
    sources += _prompt_sources(prompted_model, ids[: audio_segment.answer_position])
    generated_answer = prepared.generated_text
    drafts, words = draft_tokens(
        prompted_model,
        ids,
        audio_segment.answer_position,
        ended=generated_answer is None or generated_answer.ended,
    )
    sources += text_sources(drafts, words, by_token=by_token)
    decision = make_open_decision(
        prompted_model,
        clip,
        prepared,
        {"encoder": in_encoder, "decoder": tuple(among_tokens.values())},
    )
    by = "given" if generated_answer is None else generated_answer.by
    return make_writing(
        prompted_model, decision, drafts, words, sources, read_logits(decision), by, spans
    )


def _sound_spans(spans: Iterable[Span]) -> list[Span]:
    return [span for span in spans if span.onset is not None]


def _prompt_sources(model: Model, ids: Sequence[int]) -> list[SourceUnit]:
    """Words of the prompt, by the tokens that spell them; none where the conversation does not hold
    it as it was given, or where a token holds the end of one word and the whole of the next."""
    return [
        SourceUnit("asked", Source(index, word, positions, word_index=index))
        for index, (word, positions) in enumerate(find_prompt_words(model, ids))
        if positions
    ]


MOST_TOKENS = 20  # of a continuation


def write_about_clip(model: Model, clip: Clip, *, text: str | None, by_token: bool) -> Writing:
    """What a model writes about a clip with words, or the text that it is asked about.

    Raises
    ------
    InputError
        If the model cannot spell, or no letter or token is written.
    """
    require_head(model)
    if model.output_kind == "audio tokens":
        return write_answer(model, clip, text=text, by_token=by_token)
    view = make_view(model, clip, MixRequest(units="word"), ("encoder",))
    prepared, spans = view.prepared, tuple(view.sources("encoder"))
    audio_sources = words_as_sources(spans, [word.text for word in clip.words or ()])
    times = {span.word: (span.onset, span.offset, span.times) for span in spans}
    sources = [SourceUnit("sound", source, *times[source.index]) for source in audio_sources]
    sources += padding_sources(spans)
    if model.output_kind == "frames":
        _require_recognizer(model)
        decision = make_open_decision(model, clip, prepared, {"encoder": audio_sources})
        logits = read_logits(decision)
        drafts, words = (
            draft_letters(model, logits)
            if text is None
            else draft_given_letters(model, logits, text)
        )
        by = "given" if text is not None else f"transcript of the model ({model.label}, greedy)"
    else:
        generated_text = _transcribe_ids(model, clip, text)
        ids, by = list(generated_text.ids), generated_text.by
        prepared.inputs["decoder_input_ids"] = torch.tensor([ids])
        prepared.tokens = Tokens.from_ids(ids, model.tokenizer, label_offset=1)
        if model.capabilities.is_transducer:
            feed_path(model, prepared, ids, generated_text if text is None else None)
        # A transducer chooses no end: the sound ends.
        ended = generated_text.ended and not model.capabilities.is_transducer
        drafts, words = draft_tokens(model, ids, generated_text.n_prefix, ended=ended)
        decision = make_open_decision(
            model, clip, prepared, {"encoder": audio_sources, "cross": audio_sources}
        )
        sources += prompt_sources(model, ids)
        sources += text_sources(drafts, words, by_token=by_token)
        logits = read_logits(decision)
    return make_writing(model, decision, drafts, words, sources, logits, by, spans)


def write_about_text(
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
        If the model writes no text, or a masked model is given no mask.
    """
    if model.output_kind == "cross-attention":
        return _translate(model, sentence, text, by_token=by_token)
    if is_masked_model(model):
        return _fill_masks(model, sentence, text, by_token=by_token)
    if model.output_kind == "causal":
        return _continue_text(model, sentence, text, by_token=by_token, max_tokens=max_tokens)
    raise InputError(
        f"{model.name} writes no text: expected a masked, causal or sequence-to-sequence model "
        "with its head"
    )


def _require_recognizer(model: Model) -> None:
    """Refuse a model that cannot write text about sound, as one without its tokenizer."""
    if not model.can_transcribe:
        raise InputError(
            f"{model.label} cannot transcribe a clip: expected a speech recogniser with its "
            f"processor{model.missing_processor}"
        )


def _transcribe_ids(model: Model, clip: Clip, text: str | None) -> GeneratedText:
    """What a decoder is fed: what the model writes, or a given text."""
    _require_recognizer(model)
    if text is None:
        return generate_text(model, clip)
    spoken = Clip.from_array(
        clip.audio(model.sample_rate), model.sample_rate, text=text, language=clip.language
    )
    explained_clip = (
        spoken.replace(translation=text) if model.prefix.task == "translate" else spoken
    )
    tokens = decoder_tokens(model, explained_clip)
    return GeneratedText(tuple(tokens.ids), tokens.n_prefix, text, "given")


def _read_sources(
    view: View, sentence: Sentence, stack: str, *, by_token: bool
) -> tuple[Source, ...]:
    if by_token:
        return tokens_as_sources(view.sources(stack))
    return words_as_sources(view.sources(stack), [word.text for word in sentence.words])


def _translate(model: Model, sentence: Sentence, text: str | None, *, by_token: bool) -> Writing:
    explained_sentence = sentence if text is None else sentence.replace(translation=text)
    view = make_view(model, explained_sentence, MixRequest(units="token"), tuple(model.stacks))
    prepared = view.prepared
    tokens = prepared.decoder_tokens
    read = _read_sources(view, explained_sentence, "encoder", by_token=by_token)
    ended = prepared.generated_text is None or prepared.generated_text.ended
    drafts, words = draft_tokens(model, tokens.ids, tokens.n_prefix, ended=ended)
    decision = make_open_decision(
        model, explained_sentence, prepared, {"encoder": read, "cross": read}
    )
    sources = [
        *(SourceUnit("read", source) for source in read),
        *text_sources(drafts, words, by_token=by_token),
    ]
    by = "given" if prepared.generated_text is None else prepared.generated_text.by
    return make_writing(model, decision, drafts, words, sources, read_logits(decision), by)


def _continue_text(
    model: Model, sentence: Sentence, text: str | None, *, by_token: bool, max_tokens: int
) -> Writing:
    view = make_view(model, sentence, MixRequest(units="token"), tuple(model.stacks))
    prompt = view.prepared.inputs["input_ids"][0].tolist()
    if text is None:
        ids, ended = _generate_continuation(model, prompt, max_tokens)
        by = f"continuation of the model ({model.label}, greedy)"
    else:
        ids = encode_sentence(model, Sentence(f"{sentence.text}{text}"))[0]["input_ids"][0].tolist()
        ended, by = False, "given"
    n_prompt = next(
        (position for position, (a, b) in enumerate(zip(prompt, ids, strict=False)) if a != b),
        len(prompt),
    )
    drafts, words = draft_tokens(model, ids, n_prompt, ended=ended)
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
    decision = make_open_decision(model, sentence, prepared, {"decoder": read})
    sources = [
        *(SourceUnit("read", source) for source in read),
        *text_sources(drafts, words, by_token=by_token),
    ]
    return make_writing(model, decision, drafts, words, sources, read_logits(decision), by)


def _generate_continuation(
    model: Model, prompt: Sequence[int], max_tokens: int
) -> tuple[list[int], bool]:
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


def _fill_masks(model: Model, sentence: Sentence, text: str | None, *, by_token: bool) -> Writing:
    if MASK not in sentence.text:
        sentence = replace_target_by_mask(sentence)[0].replace(foil=sentence.foil)
    view = make_view(model, sentence, MixRequest(units="token"), tuple(model.stacks))
    prepared = view.prepared
    mask_positions = [
        p for p, id_ in enumerate(prepared.text_tokens.ids) if id_ == model.tokenizer.mask_token_id
    ]
    if not mask_positions:
        raise InputError(
            f"{sentence.name!r}: write {MASK} where {model.name} should write a word, or give a "
            "target"
        )
    masked = set(mask_positions)
    read = tuple(
        source
        for source in _read_sources(view, sentence, "encoder", by_token=by_token)
        if not masked & set(source.positions)
    )
    decision = make_open_decision(model, sentence, prepared, {"encoder": read})
    logits = read_logits(decision)
    ids = (
        [int(logits[mask_position].argmax()) for mask_position in mask_positions]
        if text is None
        else _encode_mask_text(model, text, len(mask_positions))
    )
    labels = [token_label(model, id_) for id_ in ids]
    drafts = [
        Draft(id_, labels[i], mask_position, i)
        for i, (id_, mask_position) in enumerate(zip(ids, mask_positions, strict=True))
    ]
    by = "given" if text is not None else f"likeliest of the model ({model.label})"
    return make_writing(
        model, decision, drafts, labels, [SourceUnit("read", source) for source in read], logits, by
    )


def _encode_mask_text(model: Model, text: str, count: int) -> list[int]:
    """Ids of the words that are said to stand behind masks."""
    ids: list[int] = model.tokenizer(text, add_special_tokens=False).input_ids
    if len(ids) != count:
        raise InputError(
            f"text={text!r} has {len(ids)} tokens in {model.name}, and there are {count} masks"
        )
    return ids
