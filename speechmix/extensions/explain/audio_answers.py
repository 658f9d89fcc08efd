"""Answer of an audio language model about a clip, with its possible sources.

In: an audio language model with its prompt (`Model.with_prompt`), and a clip with words. Out: a
`Writing`. Its sources are the words of the sound, of which the decoder knows at which of its
positions they stand; the words of the prompt, found in the conversation that the processor wrote
(the template's own words are nobody's); and the words of the answer so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ...adapters.generation.audio_prompt import find_prompt_words
from ...errors import InputError
from ...inputs.clips.clip import Clip
from ...interventions.decision import Source, words_as_sources
from ...mixing.passes.request import MixRequest
from ...mixing.passes.view_kinds import make_view
from .decoder_drafts import draft_tokens, make_writing, text_sources
from .generated_tokens import SourceUnit, Writing, make_open_decision, read_logits

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
    view = make_view(prompted_model, clip, MixRequest(units="word"))
    view.prepare(("encoder", "decoder"))
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
