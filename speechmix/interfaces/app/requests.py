"""What the page asks for: JSON read into clips, models and options, and nothing believed that was
not checked.

In: a decoded JSON object and the `Session`. Out: a `Clip` as the page has it by now (its text,
words and borders), names of models, measures. Whatever is wrong is an `InputError` that the page
shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...errors import InputError
from ...files.json_files import Json, JsonObject
from ...inputs.clips.clip import Clip
from ...inputs.formats.word_items import words_from_items
from .session import Session

_MOST_LETTERS, _MOST_WORDS, _MOST_MODELS = 5_000, 600, 4


@dataclass(frozen=True)
class ModelRequest:
    """Which weights: a model of the page, and the seed of its random twin (None: the trained
    ones)."""

    name: str
    seed: int | None = None

    @property
    def which(self) -> JsonObject:
        """Options of `Session.model`."""
        return (
            {"init": "trained", "seed": None}
            if self.seed is None
            else {"init": "random", "seed": self.seed}
        )


def json_fields(asked: object) -> Mapping[str, Json]:
    """Return a JSON object as it is.

    Raises
    ------
    InputError
        If it is something else.
    """
    if not isinstance(asked, Mapping):
        raise InputError(f"expected a JSON object, found {type(asked).__name__}")
    return asked


def requested_clip(session: Session, asked: Mapping[str, Json]) -> Clip:
    """Return the clip that a request is about: a recording with the text, words and roles that the
    page has.

    Raises
    ------
    InputError
        If the recording is not here, or its words cannot be right.
    """
    told = json_fields(asked.get("clip"))
    clip = session.recording(told.get("recording"))
    words = told.get("words")
    if words is not None and (
        not isinstance(words, Sequence) or isinstance(words, str) or len(words) > _MOST_WORDS
    ):
        raise InputError(f"expected a list of at most {_MOST_WORDS} words, found {str(words)[:80]}")
    text = _text(told, "text", _MOST_LETTERS)
    bare = clip.replace(
        words=None,
        doubts=(),
        cue=None,
        target=None,
        text=text,
        language=_text(told, "language", 12) or clip.language or session.language,
        name=_text(told, "name", 300) or clip.name,
        foil=_text(told, "foil", 200),
    )
    if not words:
        return bare
    cue, target = told.get("cue") or [], _index(told, "target", len(words))
    if not isinstance(cue, list):
        raise InputError(f"expected the cue as a list of indices of words, found {cue!r:.80}")
    roles: JsonObject = {
        "cue": [_index({"cue": i}, "cue", len(words)) for i in cue] or None,
        "target": target,
    }
    checked = words_from_items(words, where=f"clip {bare.name!r}")
    return bare.replace(words=checked, alignment=_text(told, "alignment", 60) or "given", **roles)


def requested_model(asked: Mapping[str, Json]) -> ModelRequest:
    """Which model a request is for."""
    name, seed = asked.get("model"), asked.get("seed")
    if not isinstance(name, str):
        raise InputError(f"expected the name of a model, found {name!r}")
    if seed is not None and not (type(seed) is int and 0 <= seed < 2**31):
        raise InputError(f"expected the seed of a twin, a whole number from 0, found {seed!r}")
    return ModelRequest(name, seed)


def requested_models(asked: Mapping[str, Json]) -> list[ModelRequest]:
    """Several of them, each once."""
    listed = asked.get("models")
    if not isinstance(listed, list) or not 1 <= len(listed) <= _MOST_MODELS:
        raise InputError(f"expected 1 to {_MOST_MODELS} models, found {str(listed)[:80]}")
    return list(dict.fromkeys(requested_model(json_fields(model)) for model in listed))


def requested_names(asked: Mapping[str, Json], field: str) -> list[str]:
    """A list of names."""
    listed = asked.get(field)
    if (
        not isinstance(listed, list)
        or not listed
        or not all(isinstance(name, str) for name in listed)
    ):
        raise InputError(f"expected {field} as a list of names, found {str(listed)[:80]}")
    return list(dict.fromkeys(listed))


def requested_word_indices(asked: Mapping[str, Json]) -> list[int]:
    """Indices of words, perhaps none."""
    listed = asked.get("words")
    if not isinstance(listed, list) or not all(type(index) is int for index in listed):
        raise InputError(f"expected words as a list of whole numbers, found {str(listed)[:80]}")
    return sorted(set(listed))


def requested_choice(asked: Mapping[str, Json], field: str, allowed: Sequence[str]) -> str:
    """One of a few; the first if nothing is said."""
    value = asked.get(field, allowed[0])
    if value not in allowed:
        raise InputError(
            f"{field} should be one of {', '.join(allowed)}; found {str(value)[:80]!r}"
        )
    result: str = value
    return result


def requested_layer(asked: Mapping[str, Json]) -> int:
    """A layer, counted from 0."""
    layer = asked.get("layer", 0)
    if type(layer) is not int or layer < 0:
        raise InputError(f"expected a layer, counted from 0, found {layer!r}")
    return layer


def _text(told: Mapping[str, Json], field: str, most: int) -> str | None:
    value = told.get(field)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if not isinstance(value, str) or len(value) > most:
        raise InputError(
            f"expected {field} as a text of at most {most:,} characters, found {str(value)[:80]!r}"
        )
    return " ".join(value.split())


def _index(told: Mapping[str, Json], role: str, count: int) -> int | None:
    index = told.get(role)
    if index is not None and not (type(index) is int and 0 <= index < count):
        raise InputError(
            f"expected the {role} as the index of one of {count} words, found {index!r}"
        )
    return index
