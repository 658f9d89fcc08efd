"""The decoder's tokens for a clip: prefix, transcript, and which word each token belongs to.

Input position p holds token p and predicts token p + 1. So a word's *source columns* are the positions that hold its
tokens, and its *target rows* the positions one earlier, which predict them (Mohebbi et al. 2023).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from ..errors import InputError
from ..inputs.spans import Span

if TYPE_CHECKING:
    from ..inputs.clips import Clip
    from .model import Model

_LANGUAGE_TOKEN = re.compile(r"<\|([a-z]{2,3})\|>")


@dataclass(frozen=True)
class DecoderTokens:
    """Decoder input of U tokens, and the U tokens they predict.

    Parameters
    ----------
    ids : list of int [U]
    labels : list of str [U + 1]
        Tokens as text; entry U is the end of text, predicted by the last position.
    words : list of int or None [U + 1]
        The clip's word each token belongs to; None for special tokens.
    special : list of bool [U + 1]
    deciding : int, optional
        First token in which the target and its foil differ (U: the end of text); it is predicted one position earlier.
    foil_id : int, optional
        The foil's token there.
    """

    ids: list[int]
    labels: list[str]
    words: list[int | None]
    special: list[bool]
    deciding: int | None = None
    foil_id: int | None = None

    @classmethod
    def from_ids(cls, ids: list[int], tokenizer=None) -> DecoderTokens:
        """Tokens of prepared inputs: no words are known, and what the last position predicts is not either."""
        special_ids = set(getattr(tokenizer, "all_special_ids", ()))
        labels = [tokenizer.decode([i]) if tokenizer is not None else str(i) for i in ids]
        special = [i in special_ids for i in ids]
        return cls(ids, [*labels, "<next>"], [None] * (len(ids) + 1), [*special, True])

    def sources(self) -> list[Span]:
        """Columns: what each input position holds."""
        return [self._span(p, p) for p in range(len(self.ids))]

    def targets(self) -> list[Span]:
        """Rows: what each input position predicts."""
        return [self._span(p, p + 1) for p in range(len(self.ids))]

    def _span(self, position: int, token: int) -> Span:
        kind = "special" if self.special[token] else "token"
        return Span(position, position + 1, self.labels[token], kind, self.words[token])


def decoder_tokens(model: Model, clip: Clip) -> DecoderTokens:
    """Teacher-forced decoder input for a clip's text: <|startoftranscript|> language task <|notimestamps|> text.

    With a foil, the deciding token is looked up too.

    Raises
    ------
    InputError
        If the clip has no text, or the language is not known.
    ModelError
        If the model has no tokenizer.
    """
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise InputError(
            f"{model.name} was loaded without a tokenizer, so {clip.name} cannot be fed to its decoder: "
            "load with processor=, or ask for stacks=['encoder']"
        )
    text = _text_of(clip)
    if not text.strip():
        raise InputError(f"{clip.name} has no text to feed the decoder: give text=, or ask for stacks=['encoder']")
    tokens = _tokenised(model, clip, text)
    if clip.foil is None or clip.target is None:
        return tokens
    end = tokenizer.eos_token_id
    mine, theirs = [*tokens.ids, end], [*_tokenised(model, clip, text_with_foil(clip)).ids, end]
    deciding = next(i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b)
    return replace(tokens, deciding=deciding, foil_id=theirs[deciding])


def text_with_foil(clip: Clip) -> str:
    """Return the clip's text with the target word spelled as its foil.

    Raises
    ------
    InputError
        If the target is not in the text, or the foil is spelled like it.
    """
    text = _text_of(clip)
    place = locate_words([word.text for word in clip.words], text)[clip.target]
    if place is None:
        raise InputError(f"{clip.name}: the target {clip.words[clip.target].text!r} is not in the text {text!r}")
    other = text[: place[0]] + clip.foil + text[place[1] :]
    if other == text:
        raise InputError(f"{clip.name}: the foil {clip.foil!r} is spelled like the target")
    return other


def _text_of(clip: Clip) -> str:
    """What is said, as it is fed to a decoder; the words in a row where no text was given."""
    return clip.text or " ".join(word.text for word in clip.words or ())


def _tokenised(model: Model, clip: Clip, text: str) -> DecoderTokens:
    tokenizer = model.tokenizer
    text = " " + text.strip()  # Whisper was trained on text that follows a space
    prefix = decoder_prefix(model, clip)
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    places = locate_words([word.text for word in clip.words or ()], text)
    words = [_word_at(offsets, places) for offsets in encoded["offset_mapping"]]
    labels = [
        text[a:b].strip() or ("␣" if text[a:b] else tokenizer.decode([i]))
        for i, (a, b) in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
    ]
    n_prefix, n_text = len(prefix), len(words)
    return DecoderTokens(
        ids=[*prefix, *encoded["input_ids"]],
        labels=[*tokenizer.convert_ids_to_tokens(prefix), *labels, tokenizer.eos_token],
        words=[*[None] * n_prefix, *words, None],
        special=[*[True] * n_prefix, *[False] * n_text, True],
    )


def decoder_prefix(model: Model, clip: Clip) -> list[int]:
    """Ids the decoder starts from: start, language and task where the model is multilingual, no timestamps."""
    vocabulary = model.tokenizer.get_vocab()
    prefix = [model.config.decoder_start_token_id]
    languages = {m.group(1): i for token, i in vocabulary.items() if (m := _LANGUAGE_TOKEN.fullmatch(token))}
    # Every Whisper vocabulary holds the language tokens; the English-only models start at another id and never use them.
    multilingual = getattr(getattr(model.module, "generation_config", None), "is_multilingual", None)
    if multilingual is None:
        multilingual = model.config.vocab_size >= 51_865 or (bool(languages) and model.config.vocab_size < 51_864)
    if multilingual and languages:
        language = clip.language or _detected(model, clip, languages)
        if language not in languages:
            raise InputError(
                f"{clip.name}: {model.name} has no language {language!r}; it has {', '.join(sorted(languages))}"
            )
        prefix += [languages[language], vocabulary["<|transcribe|>"]]
    if "<|notimestamps|>" in vocabulary:
        prefix.append(vocabulary["<|notimestamps|>"])
    return prefix


def _detected(model: Model, clip: Clip, languages: dict[str, int]) -> str:
    """Return the language the model itself finds likeliest; a random model cannot be asked."""
    if model.init == "random" or model.module is model.base:
        raise InputError(f"{clip.name}: say the language (language='fr'): {model.label} cannot detect it by itself")
    features = model.features(clip.audio(model.sample_rate))["input_features"]
    start = torch.tensor([[model.config.decoder_start_token_id]], device=model.device)
    with model.in_use(), torch.no_grad():
        logits = model.module(features.to(model.device, model.dtype), decoder_input_ids=start).logits[0, -1]
    return max(languages, key=lambda name: logits[languages[name]].item())


def locate_words(words: list[str], text: str) -> list[tuple[int, int] | None]:
    """Find each word's characters in a text, left to right, case and apostrophe style aside; None where it is not.

    Examples
    --------
    >>> locate_words(["les", "amis", "les"], "Les amis, les vrais")
    [(0, 3), (4, 8), (10, 13)]
    """

    def plain(string: str) -> str:
        return "".join(c.lower() if len(c.lower()) == 1 else c for c in string).replace("’", "'")

    haystack, reached, places = plain(text), 0, []
    for word in words:
        needle = re.escape(plain(word).strip())
        match = re.compile(rf"(?<!\w){needle}(?!\w)").search(haystack, reached) or re.compile(needle).search(
            haystack, reached
        )
        places.append(match.span() if match and needle else None)
        reached = match.end() if match else reached
    return places


def _word_at(offsets: tuple[int, int], places: list[tuple[int, int] | None]) -> int | None:
    """Index of the word that shares characters with a token."""
    start, stop = offsets
    for index, place in enumerate(places):
        if place is not None and max(start, place[0]) < min(stop, place[1]):
            return index
    return None
