"""Store one kind of result in the folder of a run, for the commands whose `--out` may be a run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .clip_options import SkippedItems, create_aligner_loader
from .model_options import create_loaders, list_engine_kinds
from .score_options import choose_executor

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip


def compute_kind_in_run(
    options: argparse.Namespace,
    clips: Sequence[Clip],
    kind: str,
    kind_options: Mapping[str, object],
    skipped: SkippedItems,
) -> int:
    """Compute a kind of result for clips in the run of `--out`, and return the exit status."""
    from ...runs.score_clips import compute_kinds

    run = compute_kinds(
        create_loaders(options, options.model),
        clips,
        options.out,
        {kind: kind_options, **list_engine_kinds(options)},
        group=vars(options).get("group"),
        aligner=create_aligner_loader(options),
        align_method=options.align,
        executor=choose_executor(options, options.model),
        progress=sys.stderr.isatty(),
        skipped=skipped,
    )
    print(run.summary())
    return 0 if run.done or not run.is_complete else 1
