"""Grounding as a result kind: the words that a model wrote about a recording, and what each came from.

In: a trained recogniser, and a recording or a block of a long one. Out: what `speechmix.ground` found, as JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...runs.kinds.result_kind import Result, ResultItem, ResultKind, stored_contents
from .calibration import WordCalibration
from .ground import ground
from .grounding import Grounding
from .windows import DecodingOptions

if TYPE_CHECKING:
    from ...runs.results.clip_result_files import Part


def _cache_key(item: ResultItem) -> dict[str, object] | None:
    if item.model.init != "trained" or item.is_partial_twin:
        return None
    clip = item.clip
    return {
        "weights": item.model.fingerprint,
        "dtype": str(item.model.state_dtype),
        "sound": clip.audio_hash,
        "language": clip.language,
        **item.options,
    }


def _compute(item: ResultItem) -> Result:
    fitted = item.options.get("calibration")
    calibration = None if fitted is None else WordCalibration.from_json(fitted)
    loop_heads, align = (bool(item.options.get(name, True)) for name in ("loop_heads", "align"))
    grounding = ground(
        item.model,
        item.clip,
        calibration=calibration,
        loop_heads=loop_heads,
        align=align,
        decoding=DecodingOptions(previous_text=bool(item.options.get("previous_text"))),
    )
    return Result(grounding.to_json())


# Version 2: the effect of silence and noise decides, without a fitted probability. Version 3: of a long loop, only the
# first repeats are traced to heads.
GROUNDING_KIND = ResultKind(
    "grounding", _compute, version=3, cache_key=_cache_key, needs_words=False
)


def stored_groundings(parts: Sequence[Part]) -> dict[str, Grounding]:
    """Return the groundings in parts of a run, by name of the clip.

    Raises
    ------
    InputError
        If a part is damaged.
    """
    contents = stored_contents(parts, GROUNDING_KIND.name)
    return {clip: Grounding.from_json(content) for _, clip, content in contents}
