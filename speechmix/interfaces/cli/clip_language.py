"""Give clips without a language that of models that know no other.

In: clips and the options of a command. Out: the clips; `--language` is not needed if a Whisper for
English is all that reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import SpeechmixError

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip


def add_model_language(clips: list[Clip], values: Mapping[str, Any]) -> list[Clip]:
    """Return clips, English where synthesis has to align them and each model is a Whisper for
    English."""
    is_unknown = [
        not clip.language and clip.words is None and clip.text is not None for clip in clips
    ]
    models = values.get("model") or []
    is_aligned_by_model = values.get("aligner") or values.get("align") not in ("auto", "synthesis")
    if not any(is_unknown) or not models or is_aligned_by_model:
        return clips
    from ...adapters.generation.decoder_prefix import is_english_only
    from ...adapters.loading.checkpoints import read_config
    from ...adapters.loading.model_source import resolve_path_or_id

    revision = values.get("revision")
    try:
        configs = [
            read_config(resolve_path_or_id(source), {"revision": revision} if revision else {})
            for source in ([models] if isinstance(models, str) else models)
        ]
    except SpeechmixError:  # which loading the model says better
        return clips
    if not all(map(is_english_only, configs)):
        return clips
    return [
        clip.replace(language="en") if unknown else clip
        for clip, unknown in zip(clips, is_unknown, strict=True)
    ]
