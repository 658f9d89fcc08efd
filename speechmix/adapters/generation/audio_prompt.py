"""Prompt of an audio language model with the sound of a clip, and its answer.

    <|im_start|>user Audio 1: <|audio_bos|> sound <|audio_eos|> Transcribe the speech. <|im_end|> <|im_start|>assistant ANSWER

In: a model with its `Prompt` (`Model.with_prompt`), its processor, a clip. Out: inputs and tokens.
The processor writes the conversation (its chat template) and as many audio tokens as the sound has
positions. The prompt belongs to the model and its fingerprint: maps and interventions share it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...errors import InputError, ModelError
from ...files.json_files import JsonObject
from ...files.timing import phase
from ..capture.memory import check_fits
from ..transformers_types import Processor
from .audio_tokens import AudioTokens
from .decoder_text import check_ends_once, provided_text, text_with_foil
from .generated_texts import generate_text
from .model_inputs import Prepared
from .prompts import GeneratedText
from .token_words import align_tokens_to_words
from .tokens import Tokens

if TYPE_CHECKING:
    import numpy as np

    from ...inputs.clips.clip import Clip
    from ..model import Model

_OF_TEXT = ("input_ids", "attention_mask")


def prepare_with_prompt(model: Model, clip: Clip, stacks: tuple[str, ...]) -> Prepared:
    """Inputs of an audio language model: the prompt with the sound, and behind it the answer, where
    the decoder is asked about.

    Raises
    ------
    InputError
        If the clip is longer than the model hears at a time, or there is no answer: none given, and
        none that it can write.
    ModelError
        If the model was loaded without its processor.
    """
    asked = prepare_prompt(model, clip)
    ids, written = asked["input_ids"][0].tolist(), None
    if "decoder" not in stacks:
        return Prepared(dict(asked), audio_tokens=locate_audio_tokens(model, ids))
    text = provided_answer(model, clip)
    if text is None:
        written = generate_text(model, clip)
    tokens = _tokens_of(model, clip, ids, text, written)
    inputs = {**asked, "input_ids": torch.tensor([tokens.ids])}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    return Prepared(
        inputs,
        tokens,
        generated_text=written,
        audio_tokens=locate_audio_tokens(model, tokens.ids, answer=len(ids)),
    )


def prepare_prompt(model: Model, clip: Clip) -> dict[str, torch.Tensor]:
    """Inputs of the prompt with the clip's sound, a batch of one, as the model's processor makes
    them.

    Raises
    ------
    InputError, ModelError
        As `prepare_with_prompt`.
    """
    if model.processor is None:
        raise ModelError(
            f"{model.name} was loaded without its processor, which writes the prompt around the "
            "sound: load it with "
            "processor=transformers.AutoProcessor.from_pretrained(...), or pass prepared inputs. "
            "Two need a library of their "
            "own: Voxtral's pip install 'mistral-common[audio]', Qwen2.5-Omni's pip install "
            "torchvision"
        )
    audio = clip.audio(model.sample_rate)
    grid = model.grid(len(audio))
    limits = [grid.duration * model.sample_rate] if grid.is_fixed_window else []
    longest = min(
        [*limits, getattr(model.feature_extractor, "n_samples", len(audio))]
    )  # beyond that, extractors cut
    if len(audio) > longest:
        window = longest / model.sample_rate
        raise InputError(
            f"{clip.name}: {len(audio) / model.sample_rate:.2f} s of audio, but {model.name} hears "
            f"{window:g} s at a time. Cut "
            f"it at a pause: clip.cut(0.0, t) with t up to {window:g}"
        )
    check_fits(model, len(audio))
    with phase("features"):
        made = (model.family.build_chat_inputs or write_chat_inputs)(
            model.processor, audio, model.prompt.text
        )
    inputs = {name: torch.as_tensor(value) for name, value in made.items()}
    if not bool((inputs["input_ids"] == model.config.audio_token_id).any()):
        raise InputError(
            f"{clip.name}: of {len(audio) / model.sample_rate:.3f} s of audio the processor of "
            f"{model.name} makes no position "
            "for its decoder: use a longer clip"
        )
    locate_audio_tokens(model, inputs["input_ids"][0].tolist()).check(
        grid.n_frames, f"{model.name}, {clip.name}"
    )
    return inputs


def write_chat_inputs(
    processor: Processor, audio: np.ndarray, text: str
) -> Mapping[str, torch.Tensor]:
    """Inputs of a prompt with a sound, by a processor that is called with text and audio (all but
    Voxtral's).

    A chat template that knows no parts of a message is given the audio token within the text.

    Raises
    ------
    ModelError
        If no way to write the conversation leaves one audio token in it.
    """
    token = processor.audio_token
    parts = [{"type": "audio", "audio": "sound"}, {"type": "text", "text": text}]
    ways: list[Callable[[], str]] = (
        [lambda: text]
        if token in text
        else [lambda: _chat(processor, parts), lambda: _chat(processor, token + text)]
    )
    for way in ways:
        try:
            written = way()
        except Exception:  # a template raises what it likes; the next way may do
            continue
        if written.count(token) == 1:
            result: Mapping[str, torch.Tensor] = processor(
                text=[written], audio=[audio], return_tensors="pt", **_rate_of(processor)
            )
            return result
    raise ModelError(
        f"{type(processor).__name__}: its chat template leaves no place for one sound: give a "
        f"prompt that holds {token!r} "
        "itself, as the model was trained on, and that is taken as it is"
    )


def _chat(processor: Processor, content: Any) -> str:
    result: str = processor.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
    )
    return result


def _rate_of(processor: Processor) -> JsonObject:
    """Whisper's extractor wants to hear what the rate is."""
    extractor = getattr(processor, "feature_extractor", None)
    return {} if extractor is None else {"sampling_rate": extractor.sampling_rate}


def audio_inputs(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The inputs that the sound is in, without those of a prompt around it."""
    prompt = _OF_TEXT if "input_ids" in inputs else ()
    return {name: tensor for name, tensor in inputs.items() if name not in prompt}


def describe_prompt_and_answer(model: Model, prepared: Prepared) -> JsonObject:
    """What a map says of the decoder's text: the prompt, where sound and answer are among its
    positions, whose answer it is."""
    tokens, heard, written = prepared.tokens, prepared.audio_tokens, prepared.generated_text
    if tokens is None or heard is None:
        return {}
    told: JsonObject = {"sound_positions": [heard.start, heard.stop]}
    if heard.answer is None:
        return told
    by = (
        written.by
        if written
        else "answer given"
        if model.prompt.answer is not None
        else "the clip's text"
    )
    ids = tokens.ids[heard.answer :]
    cut = (
        {}
        if written is None or written.ended
        else {"answer_cut": f"after {len(ids)} tokens, as long as it may be"}
    )
    answer = {
        "answer": model.tokenizer.decode(ids, skip_special_tokens=True),
        "answer_by": by,
        **cut,
    }
    return {**told, "prompt": model.prompt.text, "answer_position": heard.answer, **answer}


def provided_answer(model: Model, clip: Clip) -> str | None:
    """The answer that is fed to the decoder where the model need not write it: one given, or what
    is said."""
    prompt = model.prompt
    answer = (
        prompt.answer
        if prompt.answer is not None or not prompt.transcribes
        else provided_text(model, clip)
    )
    return answer.strip() if answer and answer.strip() else None


def _tokens_of(
    model: Model, clip: Clip, prompt: list[int], text: str | None, written: GeneratedText | None
) -> Tokens:
    """All tokens of the decoder: the prompt's, of no word, and the answer's, of those words of the
    clip that are in it."""
    tokenizer, special = (
        model.tokenizer,
        set(model.tokenizer.all_special_ids) | {model.config.audio_token_id},
    )
    labels = [
        tokenizer.convert_ids_to_tokens(i) if i in special else tokenizer.decode([i]).strip() or "␣"
        for i in prompt
    ]
    kinds = ["special" if i in special else "token" for i in prompt]
    answer = _spelled(model, clip, text) if text is not None else _as_written(model, written)
    end = tokenizer.eos_token if written is None or written.ended else "<next>"
    tokens = Tokens(
        ids=[*prompt, *answer.ids],
        labels=[*labels, *answer.labels, end],
        words=[*[None] * len(prompt), *answer.words, None],
        kinds=[*kinds, *["token"] * len(answer.ids), "special"],
        ahead=1,
    )
    if text is None or clip.foil is None or clip.target is None:
        return tokens
    ids, foil_ids = (
        [*prompt, *spelling.ids, tokenizer.eos_token_id]
        for spelling in (answer, _spelled(model, clip, text_with_foil(clip, text)))
    )
    return tokens.decided(ids, foil_ids)


def _spelled(model: Model, clip: Clip, text: str) -> Tokens:
    tokens = Tokens(*align_tokens_to_words(model.tokenizer, text, clip.words or ()), kinds=[])
    check_ends_once(model, clip, text, tokens.ids)
    return tokens


def _as_written(model: Model, written: GeneratedText | None) -> Tokens:
    ids = [] if written is None else list(written.ids)
    return Tokens(
        ids, [model.tokenizer.decode([i]).strip() or "␣" for i in ids], [None] * len(ids), []
    )


def locate_audio_tokens(
    model: Model, ids: Sequence[int], *, answer: int | None = None
) -> AudioTokens:
    """Where sound is among the tokens that an audio language model is fed.

    Parameters
    ----------
    model : Model
        Of a family with a projector.
    ids : sequence of int [T]
    answer : int, optional
        As in `AudioTokens`.

    Raises
    ------
    InputError
        If there is no sound, or more than one.
    """
    token = getattr(model.config, "audio_token_id", None)
    places = [place for place, i in enumerate(ids) if i == token]
    if not places:
        raise InputError(
            f"{model.name}: no audio token ({token}) is among the {len(ids)} tokens fed to its "
            "decoder: the prompt must hold "
            "one for each position of the sound, as the model's processor makes them"
        )
    start, stop = places[0], places[-1] + 1
    if stop - start != len(places):
        raise InputError(
            f"{model.name}: the {len(places)} audio tokens should stand side by side, as one clip "
            "has them; they lie between "
            f"{start} and {stop} with others among them"
        )
    frames, positions = model.projector_step
    if len(places) % positions:
        raise InputError(
            f"{model.name}: audio tokens should come by {positions}, as its projector gives them; "
            f"found {len(places)}"
        )
    return AudioTokens(start, stop, frames, positions, answer)
