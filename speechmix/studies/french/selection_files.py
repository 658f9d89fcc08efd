"""Transcripts and outputs that a selection reads and writes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ...errors import InputError
from ...runs.journal.stage_files import list_outputs
from ...runs.journal.stage_lines import read_stage_options
from .study_folder import (
    TRANSCRIPTS,
)


def list_transcribed_models(study: Path) -> list[str]:
    names = list(_transcript_paths_by_model(study))
    if not names:
        raise InputError(
            f"no transcripts in {study / TRANSCRIPTS}: transcribe first, or select with models=[]"
        )
    return names


def _transcript_paths_by_model(study: Path) -> dict[str, Path]:
    """Transcripts by the names of their models."""
    outputs = {}
    for path in list_outputs(study / TRANSCRIPTS):
        model = read_stage_options(path).get("model")
        if model is None:
            raise InputError(
                f"{path.with_suffix('')}* does not say of which model it is: transcribe again, or "
                "delete it"
            )
        outputs[model] = path
    return outputs


def transcript_paths(study: Path, models: Iterable[str]) -> list[Path]:
    """Transcripts of the models, checked to belong to the pairs and words at hand."""
    outputs = _transcript_paths_by_model(study)
    missing_models = [model for model in models if model not in outputs]
    if missing_models:
        raise InputError(
            f"no transcripts of {', '.join(missing_models)}: there are those of "
            f"{', '.join(outputs) or 'no model'}"
        )
    return [outputs[model] for model in models]
