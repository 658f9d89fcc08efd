"""Score a Hugging Face data set by `dataset.map`.

In: a row (or a batch) with the columns of a manifest, the recording in `audio`. Out: plain columns,
for each measure and stack its scores in one list with their shape and labels, and the cue's
contribution. What is wrong with a row is a column, too.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from ...adapters.loading.load import load
from ...adapters.model import Model
from ...alignment import WORD
from ...errors import InputError, SpeechmixError
from ...evaluation.cue_contribution import cue_contribution
from ...files.json_files import Json, JsonObject
from ...inputs.clips.clip import Clip
from ...inputs.clips.manifests import TEXT_COLUMNS
from ...inputs.formats.word_items import words_from_items
from ...inputs.words.unit_tiers import PHONE
from ...mixing.maps.map_set import Maps
from ...mixing.maps.mixing_map import MixingMap
from ...mixing.passes.mix import mix_one
from ...mixing.passes.request import MixRequest
from ...runs.kinds.word_times import align_quietly

if TYPE_CHECKING:
    from datasets import Features

_AUDIO_COLUMNS = ("audio", "path", "file_name")
_UNCHANGED_TYPES = ("cue", "target", "foil", "language", "translation", "name")
_ERROR, _DOUBTS = "score_error", "score_doubts"
# What is said of each map: the ending of its column, and the type in its lists as `datasets` names
# it.
_LABEL_FIELDS = {
    "scores": "float32",
    "shape": "int64",
    "targets": "string",
    "sources": "string",
    "layers": "int64",
    "cue_contribution": "float64",
}


def scorer(
    model: Model | str | PathLike[str],
    *,
    aligner: Model | str | PathLike[str] | None = None,
    method: str = "auto",
    **options: Any,
) -> Scorer:
    """A function for `datasets.Dataset.map` that scores each row.

    Parameters
    ----------
    model : Model, str or path
        Of a hub id or a folder only the name is pickled: each process of ``map(num_proc=...)``
        loads it once.
    aligner : Model, str or path, optional
        Aligns rows that have a text and no words; without one by synthesis, which needs the row's
        language.
    method : str
        Of `speechmix.align`.
    **options
        Of `speechmix.mix`: measures, stacks, layers, units, ...

    Returns
    -------
    Scorer

    Raises
    ------
    InputError
        For an option that `mix` does not know.

    Examples
    --------
    >>> from datasets import load_dataset                                                        # doctest: +SKIP
    >>> rows = load_dataset("audiofolder", data_dir="clips", split="train")                      # doctest: +SKIP
    >>> score = speechmix.scorer("openai/whisper-small", measures="attention", stacks="encoder")  # doctest: +SKIP
    >>> scored = rows.map(score, features=score.features(rows.features))                         # doctest: +SKIP
    >>> np.reshape(scored[0]["attention_encoder_scores"], scored[0]["attention_encoder_shape"])  # doctest: +SKIP
    """
    return Scorer(model, aligner, method, MixRequest.of_run(options))


class Scorer:
    """Rows in, columns out; see `scorer`.

    A row has the recording in `audio` (what a column of type `Audio` gives, decoded or not, or a
    path) or `path`, and may have text, words (a list of [text, start, end] or of word, start, end,
    or the path of a word file), cue, target, foil, language. For every measure and stack come the
    columns ``<measure>_<stack>_``: scores (flat), shape, targets, sources, layers,
    cue_contribution; and `score_doubts` about word times, and `score_error`, null where all is
    well.
    """

    def __init__(
        self,
        model: Model | str | PathLike[str],
        aligner: Model | str | PathLike[str] | None,
        method: str,
        mix_request: MixRequest,
    ):
        self._model, self._aligner, self._method, self._mix_request = (
            model,
            aligner,
            method,
            mix_request,
        )
        self._loaded: dict[str, Model] = {}

    def __getstate__(self) -> JsonObject:
        return {**self.__dict__, "_loaded": {}}

    def __call__(self, rows: Mapping[str, Json]) -> JsonObject:
        """Columns of a row; of a batch, lists of them."""
        recordings = next(
            (rows[name] for name in _AUDIO_COLUMNS if name in rows and rows[name] is not None), None
        )
        if not any(name in rows for name in _AUDIO_COLUMNS):
            raise InputError(
                f"expected one of the columns {', '.join(_AUDIO_COLUMNS)}, found {', '.join(rows)}"
            )
        if not isinstance(recordings, list):
            return self._scored(rows)
        scored = [
            self._scored({name: rows[name][index] for name in rows})
            for index in range(len(recordings))
        ]
        return {name: [columns[name] for columns in scored] for name in self._columns}

    def features(self, of_rows: Features) -> Features:
        """Types of a data set's columns and of those that come: give them to `map`, whose first
        rows may all be errors."""
        from datasets import Features, List, Value

        text_columns = {
            name: Value(kind) for name, kind in self._columns.items() if name in (_ERROR, _DOUBTS)
        }
        lists = {
            name: List(Value(kind))
            for name, kind in self._columns.items()
            if name not in text_columns
        }
        return Features({**of_rows, **lists, **text_columns})

    @property
    def _columns(self) -> dict[str, str]:
        stacks = self._mix_request.stacks or tuple(self._at_hand("model").stacks)
        column_prefixes = [
            f"{measure}_{stack}" for measure in self._mix_request.measures for stack in stacks
        ]
        columns = {
            f"{column_prefix}_{field_name}": kind
            for column_prefix in column_prefixes
            for field_name, kind in _LABEL_FIELDS.items()
        }
        return {**columns, _DOUBTS: "string", _ERROR: "string"}

    def _at_hand(self, role: str) -> Model:
        source = self._model if role == "model" else self._aligner
        if isinstance(source, Model):
            return source
        if role not in self._loaded:
            self._loaded[role] = load(str(source))
        return self._loaded[role]

    def _scored(self, row: Mapping[str, Json]) -> JsonObject:
        columns: JsonObject = dict.fromkeys(self._columns)
        try:
            clip = self._aligned(clip_from_dataset_row(row))
            maps = mix_one(self._at_hand("model"), clip, **self._mix_request.options)
            return {**columns, **_result_cells(maps, clip), _DOUBTS: " ".join(clip.doubts) or None}
        except SpeechmixError as error:
            return {**columns, _ERROR: str(error)}

    def _aligned(self, clip: Clip) -> Clip:
        units = self._mix_request.units
        needs_phones = units == PHONE and PHONE not in clip.tiers
        needs_words = units == WORD and clip.words is None and bool(clip.text)
        if not needs_phones and not needs_words:
            return clip
        aligner = None if self._aligner is None else self._at_hand("aligner")
        tiers = (WORD, PHONE) if needs_phones else (WORD,)
        return align_quietly(clip, aligner, self._method, tiers)  # doubts are a column


def clip_from_dataset_row(row: Mapping[str, Json]) -> Clip:
    """Return the clip of a row of a data set.

    InputError if there is no recording, it cannot be read, or the words cannot be right.
    """
    details = {name: row[name] for name in _UNCHANGED_TYPES if row.get(name) not in (None, "")}
    details["text"] = next((row[name] for name in TEXT_COLUMNS if row.get(name)), None)
    if not isinstance(details["text"], str | None):
        raise InputError(f"expected a text, found {details['text']!r:.80}")
    words = row.get("words")
    words = (
        words.tolist() if isinstance(words, np.ndarray) else words
    ) or None  # rows in the format "numpy"
    if not isinstance(words, str | list | tuple | None):
        raise InputError(
            "expected words as a list of [text, start, end], or the path of a word file, found "
            f"{words!r:.80}"
        )
    details["words"] = words if words is None or isinstance(words, str) else words_from_items(words)
    sound: Any = next((row[name] for name in _AUDIO_COLUMNS if row.get(name) is not None), None)
    if isinstance(sound, str):
        return Clip.from_file(sound, **details)
    if isinstance(sound, Mapping) and sound.get("array") is None:
        if sound.get("bytes") is None:
            if not sound.get("path"):
                raise InputError("expected a recording, found none")
            return Clip.from_file(sound["path"], **details)
        return Clip.from_array(*_decode_audio(sound["bytes"]), **details)
    try:  # a dictionary, or the decoder that newer releases of datasets give
        samples, rate = np.asarray(sound["array"], np.float32), int(sound["sampling_rate"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            "expected a recording as a column Audio gives it (array, sampling_rate), found "
            f"{type(sound).__name__}: {error}"
        ) from error
    return Clip.from_array(samples, rate, **details)


def _decode_audio(content: bytes) -> tuple[np.ndarray, int]:
    import soundfile

    try:
        result: tuple[np.ndarray, int] = soundfile.read(io.BytesIO(content), dtype="float32")
        return result
    except (soundfile.LibsndfileError, TypeError) as error:
        raise InputError(
            f"the recording cannot be read ({error}): expected WAV, FLAC, OGG or MP3"
        ) from error


def _result_cells(maps: Maps, clip: Clip) -> JsonObject:
    cells: JsonObject = {}
    for (measure, stack), mixing_map in maps.items():
        of_map = {
            "scores": mixing_map.scores.ravel().astype(np.float32),
            "shape": list(mixing_map.scores.shape),
            "targets": _unit_labels(mixing_map.targets),
            "sources": _unit_labels(mixing_map.sources),
            "layers": list(mixing_map.layers),
            "cue_contribution": _cue_share(mixing_map, clip),
        }
        cells |= {f"{measure}_{stack}_{field_name}": cell for field_name, cell in of_map.items()}
    return cells


def _unit_labels(units: Sequence[Any]) -> list[str]:
    return [unit.label for unit in units]


def _cue_share(mixing_map: MixingMap, clip: Clip) -> list[float] | None:
    """The cue's share, layer by layer; None where the map has none."""
    if clip.cue_request is None or clip.target_request is None:
        return None
    try:
        result: list[float] | None = cue_contribution(
            mixing_map, cue=clip.cue_request, target=clip.target_request
        ).tolist()
        return result
    except InputError:  # the cue comes after the target in a decoder, or the map is of frames
        return None
