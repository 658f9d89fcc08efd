"""Word times as a kind of result: where the words of a clip's text are in its recording.

In: a clip with text but no words, and the aligner of a job. Out: words with times, stored once for
each clip, for all models and all jobs in the folder. A job computes this kind before all others.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict

from ...adapters.model import Model
from ...alignment import WORD, align
from ...alignment.alignment_result import PHONE_REVISION, REVISION, later_changes
from ...errors import InputError, SpeechmixError
from ...files.json_files import Json, JsonObject
from ...inputs.clips.clip import Clip
from ...inputs.words.timed_words import Word
from ...inputs.words.unit_tiers import PHONE
from .result_kind import Result, ResultItem, ResultKind


def alignment_options(
    method: str, aligner: str | None, is_required: bool, needs_phones: bool = False
) -> dict[str, Json]:
    """Return the options of the kind.

    `aligner` is the fingerprint of the model that aligns. `is_required` says whether a clip that
    has neither words nor text fails, `needs_phones` whether clips get phones, too.
    """
    phones: dict[str, Json] = {"phones": True} if needs_phones else {}
    return {"method": method, "aligner": aligner, "is_required": is_required, **phones}


def _cache_key(item: ResultItem) -> dict[str, object] | None:
    clip, options = item.clip, item.options
    needs_phones = "phones" in options
    if PHONE in clip.tiers if needs_phones else clip.words is not None:
        return None
    if not (clip.words or clip.text or options["is_required"]):
        return None
    ingredients = clip.fingerprint_fields
    key: dict[str, object] = {name: ingredients[name] for name in ("sound", "text", "language")}
    if needs_phones:
        key |= {"phones": PHONE_REVISION, "words": ingredients["words"]}
    chosen_options = {name: options[name] for name in ("method", "aligner")}
    return {
        **key,
        **chosen_options,
        "revision": REVISION,
        **later_changes(options["method"], clip.language, has_model=options["aligner"] is not None),
    }


def _compute(item: ResultItem) -> Result:
    has_phones = "phones" in item.options
    tiers = (WORD, PHONE) if has_phones else (WORD,)
    clip = align_quietly(item.clip, item.loaded_model, item.options["method"], tiers)
    words = [_word_fields(word) for word in clip.words or ()]
    content: JsonObject = {
        "alignment": clip.alignment,
        "doubts": list(clip.doubts),
        "text": clip.text,
    }
    if has_phones:
        content["phones"] = [_word_fields(phone) for phone in clip.tiers[PHONE]]
    return Result({**content, "words": words})


WORD_TIMES_KIND = ResultKind("words", _compute, cache_key=_cache_key)


def align_quietly(
    clip: Clip, aligner: Model | None, method: str, tiers: Sequence[str] = (WORD,)
) -> Clip:
    """Align a clip as `speechmix.align` does, without warnings: its doubts are reported with it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return align(clip, model=aligner, method=method, tiers=tiers)


def _word_fields(word: Word) -> JsonObject:
    return {
        name: value
        for name, value in asdict(word).items()
        if value or name not in ("pieces", "source_label")
    }


def add_stored_words(clip: Clip, content: str) -> Clip:
    """Return a clip with its stored words; InputError if they are not those of a clip."""
    try:
        stored = json.loads(content)
        words = [Word(**word) for word in stored["words"]]
        aligned = clip.with_words(words, alignment=stored["alignment"])
        if "phones" in stored:
            phones = [Word(**phone) for phone in stored["phones"]]
            aligned = aligned.replace(tiers={**clip.tiers, PHONE: phones})
        return aligned.with_doubts(stored["doubts"])
    except (SpeechmixError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"the stored word times of {clip.name!r} cannot be used ({error})"
        ) from error
