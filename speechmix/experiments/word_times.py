"""Word times of a run's clips: kept as they were placed, with the hash of what decides where the words are.

In: a clip with text. Out: the clip with words, from the run's folder or aligned now and then kept (JSON and TextGrid).
"""

from __future__ import annotations

import warnings
from dataclasses import asdict

from ..adapters.model import Model
from ..alignment import align
from ..errors import SpeechmixError
from ..files.identity import digest
from ..files.whole_files import whole_file
from ..inputs.clips import Clip
from ..inputs.spans import Word
from ..inputs.word_files import write_textgrid
from .checked_json import Report, stored_json, write_checked
from .folder import RunFolder


def with_words(folder: RunFolder, clip: Clip, aligner: Model | None, method: str, report: Report) -> Clip:
    """Return a clip that has text with its words: those that are kept, or aligned now.

    Parameters
    ----------
    folder : RunFolder
    clip : Clip
    aligner, method
        Of `speechmix.align`.
    report : callable
        Gets a line for what is damaged.
    """
    question = _question(clip, aligner, method)
    return _stored(folder, clip, question, report) or _store(folder, _quietly_aligned(clip, aligner, method), question)


def _quietly_aligned(clip: Clip, aligner: Model | None, method: str) -> Clip:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # doubts are reported in the clip's own line
        return align(clip, model=aligner, method=method)


def _question(clip: Clip, aligner: Model | None, method: str) -> str:
    """Hash of what decides where the words are."""
    clip_says = {name: clip.ingredients[name] for name in ("sound", "text", "language")}
    return digest({**clip_says, "method": method, "aligner": aligner and aligner.fingerprint})


def _store(folder: RunFolder, clip: Clip, question: str) -> Clip:
    """Keep the word times of an aligned clip."""
    words = clip.words or ()
    content = {
        "question": question,
        "alignment": clip.alignment,
        "doubts": list(clip.doubts),
        "text": clip.text,
        "words": [asdict(word) for word in words],
    }
    with whole_file(folder.words / f"{clip.name}.TextGrid") as unfinished:
        write_textgrid(unfinished, words, clip.duration)
    write_checked(folder.words / f"{clip.name}.json", content)
    return clip


def _stored(folder: RunFolder, clip: Clip, question: str, report: Report) -> Clip | None:
    """Return the clip with the word times that are kept, or None if they are of another question."""
    path = folder.words / f"{clip.name}.json"
    content = stored_json(path, report)
    if content.get("question") != question or not path.with_suffix(".TextGrid").is_file():
        return None
    try:
        aligned = clip.with_words([Word(**word) for word in content["words"]], alignment=content["alignment"])
        return aligned.with_doubts(content["doubts"])
    except (SpeechmixError, KeyError, TypeError) as error:
        report(f"{path} is damaged and made again ({error})")
        return None
