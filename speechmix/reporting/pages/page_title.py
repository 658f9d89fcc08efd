"""Name a run by what was scored: its models and clips."""

from __future__ import annotations

from ...runs.results.open_run import StoredRun
from ...runs.results.scored_models import scored_models
from ..plots.figure_style import model_name, shorten_text
from .result_sentences import format_count, join_names

_MAX_NAMED_MODELS = 3


def describe_run(run: StoredRun) -> str:
    """Name the models and the clips of a run, such as "whisper-small and xlsr: 24 clips"."""
    names = list(dict.fromkeys(model_name(model.name) for model in scored_models(run)))
    models = f"{len(names)} models" if len(names) > _MAX_NAMED_MODELS else ""
    models = models or (join_names(names) if names else "no model")
    texts = run.clips["text"].fillna("").tolist() if "text" in run.clips else []
    if len(run.clips) != 1 or not texts[0]:
        return f"{models}: {format_count(len(run.clips), 'clip')}"
    return f"{models}: “{shorten_text(texts[0], 60)}”"


def default_title(run: StoredRun) -> str:
    """Return the title of a page that was given none."""
    return f"Context mixing in {describe_run(run)}"
