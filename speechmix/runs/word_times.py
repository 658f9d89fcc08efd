"""Word times of a run's clips: kept as they were placed, with the hash of what decides where the
words are.

In: a clip with text. Out: the clip with words, from the run's results or aligned now and then kept;
and its TextGrid.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict

from ..adapters.model import Model
from ..alignment import align
from ..alignment.alignment_result import REVISION
from ..errors import InputError, SpeechmixError
from ..files.cache_keys import digest
from ..files.json_files import JsonObject
from ..files.whole_files import whole_file
from ..inputs.clips.clip import Clip
from ..inputs.formats.word_files import write_textgrid
from ..inputs.words.timed_words import Word
from .results.result_store import Key, Results
from .results.run_folder import RunFolder

WORDS = "words"  # kind of result
MOST_TEXTGRIDS = 1_000  # clips of a run, above which there is no TextGrid for each


def load_or_align(
    results: Results, clip: Clip, aligner: Model | None, method: str
) -> tuple[Clip, Key, bool]:
    """Return a clip that has text with its words, their key, and whether they were aligned now and
    not by an earlier start.

    Parameters
    ----------
    results : Results
        Of the run's clips.
    clip : Clip
    aligner, method
        Of `speechmix.align`.
    """
    key = Key(clip.name, WORDS, _words_hash(clip, aligner, method))
    if key in results:
        return with_stored_words(clip, results.row(key)["content"]), key, False
    aligned = _quietly_aligned(clip, aligner, method)
    content: JsonObject = {
        "alignment": aligned.alignment,
        "doubts": list(aligned.doubts),
        "text": aligned.text,
    }
    content |= {"words": [_stored(word) for word in aligned.words or ()]}
    results.put(key, content=json.dumps(content, ensure_ascii=False))
    return aligned, key, True


def _stored(word: Word) -> JsonObject:
    return {name: value for name, value in asdict(word).items() if value or name != "pieces"}


def with_stored_words(clip: Clip, content: str) -> Clip:
    """Return a clip with the words that are kept of it.

    Raises
    ------
    InputError
        If they are not those of a clip.
    """
    try:
        stored = json.loads(content)
        words = [Word(**word) for word in stored["words"]]
        return clip.with_words(words, alignment=stored["alignment"]).with_doubts(stored["doubts"])
    except (SpeechmixError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"the word times that are kept of {clip.name!r} cannot be used ({error})"
        ) from error


def write_aligned_textgrid(folder: RunFolder, clip: Clip, *, replace: bool) -> None:
    """Write the TextGrid of an aligned clip; one that is there, which a hand may have corrected,
    only to be replaced."""
    path = folder.words / f"{clip.name}.TextGrid"
    if path.is_file() and not replace:
        return
    with whole_file(path) as unfinished:
        write_textgrid(unfinished, clip.words or (), clip.duration)


def _quietly_aligned(clip: Clip, aligner: Model | None, method: str) -> Clip:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # doubts are reported in the clip's own line
        return align(clip, model=aligner, method=method)


def _words_hash(clip: Clip, aligner: Model | None, method: str) -> str:
    """Hash of what decides where the words are."""
    clip_says = {name: clip.fingerprint_fields[name] for name in ("sound", "text", "language")}
    return digest(
        {
            **clip_says,
            "method": method,
            "aligner": aligner and aligner.fingerprint,
            "revision": REVISION,
        }
    )
