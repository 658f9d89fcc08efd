"""The published ablation of speech as a kind of result: what the target loses without a word's sound and tokens.

In: a model with its head, a clip with text, words, cue and target. Out: rows of `ablate_speech`, a
table over all clips, and its means with a figure (`extensions.speech_ablation.speech_ablation`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...evaluation.statistics.groups import assign_groups, describe_groups
from ...files.parquet_files import read_parquet
from ...files.text_files import write_csv
from ...inputs.clips.clip import Clip
from ...runs.kinds.result_kind import FinishedResults, Result, ResultItem, ResultKind
from ...runs.results.run_folder import SPEECH_ABLATION
from ...runs.results.tidy_tables import clip_table
from .ablated_speech import MEANS, PART_COLUMNS, speech_ablation_figure
from .speech_ablation import ablate_speech, summarize_speech_ablation


def _compute(item: ResultItem) -> Result:
    return Result(ablate_speech(item.model, item.clip, **item.options).to_dict("records"))


def _cache_key(item: ResultItem) -> dict[str, object]:
    return {**item.ingredients, **item.options}


def clip_groups(
    clips: Sequence[Clip], group: str | None
) -> tuple[dict[str, dict[str, object]], str]:
    """By clip what it is grouped and parted by, and how many groups and speakers there are."""
    table = clip_table(clips)
    groups, ties = assign_groups(table, group)
    defaults = {"side": "all", **dict.fromkeys(PART_COLUMNS, ""), "control": "no"}
    facts = table.reindex(columns=list(defaults)).fillna(defaults).astype(str).assign(group=groups)
    rows = zip(table["clip"], facts.to_dict("records"), strict=True)
    columns = {clip: {str(name): cell for name, cell in row.items()} for clip, row in rows}
    return columns, describe_groups(table.assign(group=groups), ties)


def _clip_columns(clips: Sequence[Clip], group: str | None) -> Mapping[str, Mapping[str, object]]:
    return clip_groups(clips, group)[0]


def _finish(finished: FinishedResults) -> None:
    """Write the means over clips, and the figure of them."""
    from ...reporting.plots.figure_style import write_figure

    folder = finished.folder
    path = folder.table_path(SPEECH_ABLATION)
    means = summarize_speech_ablation(read_parquet(path)) if path.is_file() else None
    if means is None or means.empty:  # every clip is a control
        (folder.path / MEANS).unlink(missing_ok=True)
        return
    write_csv(means, folder.path / MEANS)
    figure = speech_ablation_figure(means)
    for ending in ("png", "pdf"):
        write_figure(figure, folder.page_file_path(SPEECH_ABLATION, ending))


SPEECH_ABLATION_KIND = ResultKind(
    SPEECH_ABLATION,
    _compute,
    cache_key=_cache_key,
    columns={},
    finish=_finish,
    clip_columns=_clip_columns,
)
