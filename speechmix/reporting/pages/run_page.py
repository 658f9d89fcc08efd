"""Write the HTML page of a run.

In: a finished run, its folder, or a `Study` of it. Out: in the run's folder one HTML page, the
figures as PNG and PDF, the headline as Markdown, LaTeX and CSV, and the statistics layer by layer
as CSV.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from ...alignment.alignment_result import without_calibration_note
from ...errors import InputError
from ...evaluation.statistics.intervals import FEWEST_GROUPS
from ...extension import find_hook, load_with_places
from ...files.text_files import write_csv
from ...files.whole_files import write_json, write_text
from ...inputs.clips.clip import Clip
from ...runs.results.open_run import STOPPED, StoredRun, open_run
from ...runs.results.run_state import RUNNING
from ...runs.results.scored_models import scored_models
from .check_sections import BOUNDARIES, LENGTH_ALONE, MEASURE_AGREEMENT
from .cue_need_sentences import short_answers
from .html_page import FirstScreen, render_page
from .page_sections import PageContent, PageParts
from .page_title import default_title, describe_run
from .page_words import add_page_words
from .result_sections import (
    ABLATION,
    ALL_CLIPS,
    CLIP_CARDS,
    CONTRIBUTION,
    CONTROL,
    CONTROLS,
    PROVENANCE,
    SENTENCES,
    SKIPPED,
    TRANSCRIPTION,
)
from .result_sentences import adjacent_cue_sentence, format_count
from .selection_section import SELECTION, selection_sentence
from .study_clips import clip_cards
from .study_figures import FigureSections, draw_need_figures
from .study_results import Study
from .table_export import latex_table, markdown_table
from .table_format import format_contribution_table
from .transcription import transcription_warnings

if TYPE_CHECKING:
    from ...runs.scored_run import Run

_NO_CUE = (
    "No clip has both a cue and a target, so there is no cue contribution. The maps of the clips show "
    "what contributes to each word."
)
_CUE_NOTE = (
    "The report measures how much one word, the cue, contributes to another word, the target, inside "
    "a model. “Words used here”, below the summary, explains the terms."
)
_NO_NUMBER = "No contribution can be reported: no score of this run is a finite number."
_SINGLE_CLIP = (
    "This run has one clip, so there is no statistical test: a test compares at least "
    f"{FEWEST_GROUPS} groups of clips."
)
# By their place on the page.
_CORE_SECTIONS: dict[int, PageParts] = {
    10: CLIP_CARDS,
    30: CONTROLS,
    40: SELECTION,
    50: TRANSCRIPTION,
    60: SENTENCES,
    80: CONTRIBUTION,
    90: FigureSections(),
    100: LENGTH_ALONE,
    110: MEASURE_AGREEMENT,
    120: BOUNDARIES,
    130: ABLATION,
    170: CONTROL,
    180: ALL_CLIPS,
    190: SKIPPED,
    200: PROVENANCE,
}
# Further ones, which come behind all others.
SECTIONS: list[PageParts] = []


def report(
    folder: str | PathLike[str],
    *,
    title: str | None = None,
    notes: list[str] | None = None,
    chosen_clips: Sequence[str] = (),
    audio: str | PathLike[str] | None = None,
    clips: Sequence[Clip] = (),
    published: bool | str = False,
    group: str | None = None,
    out: str | PathLike[str] | None = None,
) -> Path:
    """Write the page of a run again, from its folder.

    Title and notes are by default those of before; options and errors are those of `write_page`,
    and InputError if the folder holds no run, or a damaged one.
    """
    select_run = find_hook("select_run_for_page")
    run = open_run(folder)
    study = Study(run if select_run is None else select_run(run), group)
    description = study.run.description
    return write_page(
        study,
        title=title or description.get("title"),
        notes=notes if notes is not None else description.get("notes") or [],
        chosen_clips=chosen_clips,
        audio=audio,
        clips=clips,
        published=published,
        out=out,
    )


def write_page(
    study: Study | StoredRun | Run,
    *,
    title: str | None,
    notes: list[str],
    chosen_clips: Sequence[str] = (),
    audio: str | PathLike[str] | None = None,
    clips: Sequence[Clip] = (),
    published: bool | str = False,
    out: str | PathLike[str] | None = None,
) -> Path:
    """Write figures, tables and the page of a run; return the page's path.

    The title is by default the models and clips of the run; `notes` are paragraphs: what a reader
    must know first. `chosen_clips` are shown besides those with the highest, median and lowest
    contribution. `clips` are the run's, if they are at hand (clips in memory have no audio file),
    and `audio` is the folder with the audio files, if they are no longer where the run found them.
    `published` draws the published figures beside the run's numbers: True or "target" for all
    tokens of the target, as published; "deciding" for the one that decides between target and foil.
    `out` is by default ``index.html`` in the run's folder. InputError if a requested clip is not in
    the run, or the page cannot be written.
    """
    study = study if isinstance(study, Study) else Study.open(study)
    folder = study.run.folder
    path = Path(out) if out else folder.page_path
    if path.is_dir():
        raise InputError(
            f"{path} is a folder: expected the name of a file for the page, such as "
            f"{path / 'index.html'}"
        )
    try:
        _write_tables(study)
        unreadable_maps: list[str] = []
        cards = clip_cards(
            study,
            chosen_clips=chosen_clips,
            audio=audio,
            clips=clips,
            unreadable_maps=unreadable_maps,
        )
        need_figures = draw_need_figures(study)
        content = PageContent(study, cards, need_figures, unreadable_maps, published, audio, clips)
        page_sections = [
            page_section for section in _all_sections() for page_section in section.parts(content)
        ]
        selection_entry = (
            {"selection": selection}
            if (selection := study.run.description.get("selection"))
            else {}
        )
        title_entry = {"title": title} if title else {}
        write_json(folder.page_description_path, {**title_entry, "notes": notes, **selection_entry})
        title = title or default_title(study.run)
        first_screen = add_page_words(_first_screen(content, notes), title, page_sections)
        write_text(path, render_page(title, page_sections, first=first_screen))
    except OSError as error:
        raise InputError(
            f"cannot write the page {path} and the tables in {folder.path} ({error})"
        ) from error
    return path


def _all_sections() -> list[PageParts]:
    """Sections of the core and of extensions in the order of the page, then further ones."""
    by_place = sorted(
        [*_CORE_SECTIONS.items(), *load_with_places("sections")], key=lambda pair: pair[0]
    )
    return [*(section for _, section in by_place), *SECTIONS]


def _write_tables(study: Study) -> None:
    """Write the headline and the statistics layer by layer into the run's folder, where there is a
    number to report."""
    if study.layers is None:
        return
    folder, table = study.run.folder, format_contribution_table(study.headline)
    units = f"groups of clips that share {study.ties}" if study.ties else "clips"
    caption = (
        "Contribution of the cue (%), mean over the layers of a stack, weighted by mixing strength. "
        f"95 % intervals of the difference to one more untrained model, over {units} and twins, which "
        "hold together for all rows of a measure."
    )
    write_csv(study.layers, folder.page_file_path("layers", "csv"))
    write_csv(study.headline, folder.page_file_path("headline", "csv"))
    write_text(folder.page_file_path("headline", "md"), markdown_table(table) + "\n")
    write_text(folder.page_file_path("headline", "tex"), latex_table(table, caption=caption))


def _first_screen(content: PageContent, notes: Sequence[str]) -> FirstScreen:
    """Build the first screen: notes, answer, one figure, one clip to hear."""
    study, run = content.study, content.run
    state_notes = [STOPPED] if run.description.get("state") == RUNNING else []
    if study.layers is None:
        answer = [_NO_CUE if study.table.empty else _NO_NUMBER]
    else:
        answer = short_answers(study.headline, study.need)
    return FirstScreen(
        notes=[*state_notes, *notes, *_count_notes(content)],
        warnings=transcription_warnings(run),
        answer=answer,
        figure=next(iter(content.need_figures), None),
        clip=next(iter(content.cards), None),
    )


def _count_notes(content: PageContent) -> list[str]:
    """Count the clips of the run, and those that were skipped before it and in it."""
    run, clips = content.run, content.run.clips
    models = scored_models(run)
    twins = " (untrained twins included)" if {model.init for model in models} > {"trained"} else ""
    text = (
        f"{describe_run(run)}. Scored with {format_count(len(models), 'model')}{twins}. "
        f"{format_count(run.done, 'result')}: one for each model and each of its clips. "
        f"{format_count(len(run.skipped), 'item')} skipped."
    )
    doubts = clips.doubts.fillna("").astype(str) if "doubts" in clips else pd.Series(dtype=str)
    own_doubts = doubts.map(without_calibration_note)
    if count := int((doubts != own_doubts).sum()):
        text += f" Scores of word times are not calibrated on the language of {format_count(count, 'clip')}."
    if doubtful_count := int((own_doubts != "").sum()):
        text += f" The word times of {format_count(doubtful_count, 'clip')} may be wrong."
    if content.has_results and not content.is_single_clip:
        text += f" Groups: {content.study.grouping} {adjacent_cue_sentence(clips)}".rstrip()
    notes = [selection_sentence(run), text]
    if content.has_results:
        notes.append(_CUE_NOTE)
        if content.is_single_clip:
            notes.append(_SINGLE_CLIP)
    return [note for note in notes if note]
