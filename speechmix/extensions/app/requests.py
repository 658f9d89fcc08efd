"""Parse and check the JSON requests of the page: clips, models and options.

In: a decoded JSON object and the `Session`. Out: a `Clip` with the text, words and boundaries that
the page has now, names of models, measures. An error is an `InputError` that the page shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...errors import InputError
from ...files.json_files import Json, JsonObject
from ...inputs.clips.clip import Clip
from ...inputs.formats.word_items import words_from_items
from ...inputs.sentences.sentence import Sentence
from .session import Session

_MAX_CHARACTERS, _MAX_WORDS, _MAX_MODELS = 5_000, 600, 4


@dataclass(frozen=True)
class ModelRequest:
    """Name a model of the page, and the seed of its untrained twin (None: the trained model)."""

    name: str
    seed: int | None = None

    @property
    def load_options(self) -> JsonObject:
        """Return the options of `Session.get_model`."""
        return (
            {"init": "trained", "seed": None}
            if self.seed is None
            else {"init": "random", "seed": self.seed}
        )


def require_json_object(fields: object) -> Mapping[str, Json]:
    """Check that a value is a JSON object, and return it.

    Raises
    ------
    InputError
        If it is not.
    """
    if not isinstance(fields, Mapping):
        raise InputError(f"expected a JSON object, found {type(fields).__name__}")
    return fields


def parse_requested_clip(session: Session, fields: Mapping[str, Json]) -> Clip:
    """Return the clip of a request: a recording with the text, words, cue and target of the page.

    Raises
    ------
    InputError
        If the recording is not stored, or its words are not valid.
    """
    clip_fields = require_json_object(fields.get("clip"))
    clip = session.get_recording(clip_fields.get("recording"))
    words = clip_fields.get("words")
    if words is not None and (
        not isinstance(words, Sequence) or isinstance(words, str) or len(words) > _MAX_WORDS
    ):
        raise InputError(f"expected a list of at most {_MAX_WORDS} words, found {str(words)[:80]}")
    text = _parse_text(clip_fields, "text", _MAX_CHARACTERS)
    untimed_clip = clip.replace(
        words=None,
        doubts=(),
        cue=None,
        target=None,
        text=text,
        language=_parse_text(clip_fields, "language", 12) or clip.language or session.language,
        name=_parse_text(clip_fields, "name", 300) or clip.name,
        foil=_parse_text(clip_fields, "foil", 200),
    )
    if not words:
        return untimed_clip
    cue, target = clip_fields.get("cue") or [], _parse_index(clip_fields, "target", len(words))
    if not isinstance(cue, list):
        raise InputError(f"expected the cue as a list of indices of words, found {cue!r:.80}")
    roles: JsonObject = {
        "cue": [_parse_index({"cue": i}, "cue", len(words)) for i in cue] or None,
        "target": target,
    }
    checked_words = words_from_items(words, where=f"clip {untimed_clip.name!r}")
    return untimed_clip.replace(
        words=checked_words, alignment=_parse_text(clip_fields, "alignment", 60) or "given", **roles
    )


def open_text(text: object) -> JsonObject:
    """Encode a typed text for the page: its words stand at whole numbers, in place of seconds.

    Raises
    ------
    InputError
        If it is no text with words, or too long.
    """
    sentence = _parse_sentence({"text": text})
    words = [[word.text, index, index + 1] for index, word in enumerate(sentence.words)]
    return {
        "name": sentence.text[:60],
        "text": sentence.text,
        "sentence": True,
        "seconds": len(words),
        "words": words,
        "recording": None,
        "cue": [],
        "target": next((i for i, word in enumerate(sentence.words) if word.text == "<mask>"), None),
    }


def _parse_sentence(fields: Mapping[str, Json]) -> Sentence:
    text = (_parse_text(fields, "text", _MAX_CHARACTERS) or "").replace("[MASK]", "<mask>")
    if not text:
        raise InputError("type a sentence first")
    return Sentence(text)


def parse_requested_item(session: Session, fields: Mapping[str, Json]) -> Clip | Sentence:
    """Return what a request is about: a clip, or a sentence that was typed."""
    item_fields = require_json_object(fields.get("clip"))
    if item_fields.get("sentence") is True:
        return _parse_sentence(item_fields)
    return parse_requested_clip(session, fields)


def parse_model_request(fields: Mapping[str, Json]) -> ModelRequest:
    """Return the model of a request."""
    name, seed = fields.get("model"), fields.get("seed")
    if not isinstance(name, str):
        raise InputError(f"expected the name of a model, found {name!r}")
    if seed is not None and not (type(seed) is int and 0 <= seed < 2**31):
        raise InputError(f"expected the seed of a twin as a whole number from 0, found {seed!r}")
    return ModelRequest(name, seed)


def parse_model_requests(fields: Mapping[str, Json]) -> list[ModelRequest]:
    """Return the models of a request, each once."""
    values = fields.get("models")
    if not isinstance(values, list) or not 1 <= len(values) <= _MAX_MODELS:
        raise InputError(f"expected 1 to {_MAX_MODELS} models, found {str(values)[:80]}")
    return list(dict.fromkeys(parse_model_request(require_json_object(model)) for model in values))


def parse_name_list(fields: Mapping[str, Json], field: str) -> list[str]:
    """Return a list of names, each once."""
    values = fields.get(field)
    if (
        not isinstance(values, list)
        or not values
        or not all(isinstance(name, str) for name in values)
    ):
        raise InputError(f"expected {field} as a list of names, found {str(values)[:80]}")
    return list(dict.fromkeys(values))


def parse_word_indices(fields: Mapping[str, Json]) -> list[int]:
    """Return sorted indices of words; the list may be empty."""
    values = fields.get("words")
    if not isinstance(values, list) or not all(type(index) is int for index in values):
        raise InputError(f"expected words as a list of whole numbers, found {str(values)[:80]}")
    return sorted(set(values))


def parse_choice(fields: Mapping[str, Json], field: str, allowed_values: Sequence[str]) -> str:
    """Return one of the allowed values; by default the first."""
    value = fields.get(field, allowed_values[0])
    if value not in allowed_values:
        raise InputError(
            f"{field} should be one of {', '.join(allowed_values)}; found {str(value)[:80]!r}"
        )
    result: str = value
    return result


def parse_layer_index(fields: Mapping[str, Json]) -> int:
    """Return the index of a layer, counted from 0."""
    layer = fields.get("layer", 0)
    if type(layer) is not int or layer < 0:
        raise InputError(f"expected a layer, counted from 0, found {layer!r}")
    return layer


def _parse_text(clip_fields: Mapping[str, Json], field: str, max_characters: int) -> str | None:
    value = clip_fields.get(field)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if not isinstance(value, str) or len(value) > max_characters:
        raise InputError(
            f"expected {field} as a text of at most {max_characters:,} characters, found {str(value)[:80]!r}"
        )
    return " ".join(value.split())


def _parse_index(clip_fields: Mapping[str, Json], role: str, count: int) -> int | None:
    index = clip_fields.get(role)
    if index is not None and not (type(index) is int and 0 <= index < count):
        raise InputError(
            f"expected the {role} as the index of one of {count} words, found {index!r}"
        )
    return index
