"""Write the HTML page of a run.

In: a finished run, its folder, or a `Study` of it. Out: in the run's folder one HTML page, the
figures as PNG and PDF, the headline as Markdown, LaTeX and CSV, and the statistics layer by layer
as CSV.

Name a run by what was scored: its models and clips.

Explain the words that a page uses, in a list below its summary.

In: the first screen, title and parts of a page. Out: the first screen with the explanations of
those words that the page uses, and no others.

Say how the clips of a run were chosen from a corpus, with counts and reasons.

In: a `StoredRun` whose page description holds the counts of the selection
(`french.stage_counts.read_selection_metadata`). Out: a sentence for the first screen and a part of the page;
nothing for a run of clips that were not chosen from a corpus.
"""

from __future__ import annotations

import re
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from ...alignment.alignment_result import without_calibration_note
from ...errors import InputError
from ...evaluation.statistics.intervals import FEWEST_GROUPS
from ...extension import describe_error, find_hook, load_with_places
from ...files.text_files import write_csv
from ...files.whole_files import write_json, write_text
from ...inputs.clips.clip import Clip
from ...runs.results.open_run import STOPPED, StoredRun, open_run, scored_models
from ...runs.results.run_folder import RUNNING
from ..plots.figure_style import model_name, shorten_text
from .cue_need_sentences import short_answers
from .html_page import (
    FirstScreen,
    Item,
    Part,
    Picture,
    SortableTable,
    TermList,
    check_item,
    render_page,
)
from .page_sections import PageContent, PageParts, PageSection
from .result_sections import (
    ABLATION,
    ALL_CLIPS,
    BOUNDARIES,
    CLIP_CARDS,
    CONTRIBUTION,
    CONTROL,
    CONTROLS,
    LENGTH_ALONE,
    MEASURE_AGREEMENT,
    PROVENANCE,
    SENTENCES,
    SKIPPED,
    TRANSCRIPTION,
)
from .result_sentences import adjacent_cue_sentence, format_count, join_names
from .study_clips import clip_cards
from .study_figures import FigureSections, draw_need_figures
from .study_results import Study
from .table_format import format_contribution_table, latex_table, markdown_table
from .transcription import transcription_warnings

if TYPE_CHECKING:
    from ...runs.scored_run import Run


_MAX_NAMED_MODELS = 3


def describe_run(run: StoredRun) -> str:
    """Name the models and the clips of a run, such as "whisper-small and xlsr: 24 clips"."""
    names = list(dict.fromkeys(model_name(model.name) for model in scored_models(run)))
    models = f"{len(names)} models" if len(names) > _MAX_NAMED_MODELS else ""
    models = models or (join_names(names) if names else "no model")
    texts = run.clips["text"].fillna("").tolist() if "text" in run.clips else []
    if len(run.clips) != 1 or not texts[0]:
        return f"{models}: {format_count(len(run.clips), 'clip')}"
    return f"{models}: “{shorten_text(texts[0].removesuffix('.'), 60)}”"


def default_title(run: StoredRun) -> str:
    """Return the title of a page that was given none."""
    return f"Context mixing in {describe_run(run)}"


# Word: (pattern that finds it on the page, explanation). In the order of the list.
_WORDS = {
    "homophony": (
        r"homophon",
        "Words with different spellings sound the same, such as French lettre and lettres.",
    ),
    "pair": (
        r"\b(of|share) (a|the) pair\b|\beach pair\b",
        "Two clips of one sentence that differ in one property, such as singular and plural.",
    ),
    "cue": (
        r"\bcue\b",
        "The word whose contribution to the target is measured. A left cue is before the target; a "
        "right cue is after it.",
    ),
    "target": (
        r"\btarget\b",
        "The word that receives the contribution. Its other spelling, if there is one, is the foil.",
    ),
    "contribution": (
        r"\bcontribut",
        "Inside the model, vectors represent each word. A measure estimates how much each word "
        "contributes to the target's vector, the target itself included. These shares add up to "
        "100 %. The contribution of the cue is its share.",
    ),
    "Value Zeroing": (
        r"\bvalue.zeroing\b",
        "A measure of contribution. In each layer, a word passes information to other words through "
        "its value vectors. Value Zeroing sets those of one word to zero in one layer. It measures how "
        "much the target's vector changes.",
    ),
    "encoder, decoder, cross-attention (stack)": (
        r"\b(encoder|decoder|cross-attention|stacks?)\b",
        "The encoder processes the sound. The decoder writes the text. Through cross-attention, the "
        "decoder reads the output of the encoder. Each is a stack of layers: steps that compute new "
        "vectors from those of the step before. A CTC model has an encoder only. It predicts a letter, "
        "or none, for each short stretch of sound.",
    ),
    "untrained twin": (
        r"\b(untrained|twins?)\b",
        "A model of the same architecture as the trained model, with random weights.",
    ),
    "ablation": (
        r"\bablat",
        "To ablate the cue, its value vectors are set to zero in the layers of a stack. Then these "
        "layers pass no information from the cue to other words. If spelling needs the cue there, "
        "spelling accuracy falls.",
    ),
    "spelling accuracy": (
        r"\bspelling accuracy\b",
        "The % of clips in which the model prefers the target to its other spelling.",
    ),
    "margin, nat": (
        r"\b(margin|nats?)\b",
        "The margin is log p(target) − log p(other spelling). p is the model's probability. The unit "
        "of log p is the nat. 1 nat is a factor of 2.7.",
    ),
    "mixing strength": (
        r"\bmixing strength\b",
        "How much the target's vector changes if a layer passes nothing from other words to it, "
        "relative to the size of the vector.",
    ),
    "group": (
        r"\bgroups?\b",
        "Clips that belong together, such as those of one speaker or one pair. They are not "
        "independent, so each group counts as one observation.",
    ),
    "deciding position": (
        r"\bdeciding position\b",
        "A model writes text in tokens: letters or parts of words. The deciding position predicts the "
        "first token in which the two spellings differ.",
    ),
    "probe": (
        r"\bprobes?\b",
        "A classifier that predicts a label, such as singular or plural, from the model's vectors.",
    ),
    "source": (
        r"\bsources?\b",
        "A word that contributes to another word: a spoken word (a stretch of the sound), or a word "
        "that the model has already written.",
    ),
    "fill": (
        r"\bfills?\b",
        "What replaces a source that is removed: in the sound, silence or noise, for example; in the "
        "text, a space or another token. Or the word is deleted from the text.",
    ),
}


def add_page_words(first: FirstScreen, title: str, page_sections: Sequence[Part]) -> FirstScreen:
    """Add explanations of the words that a page uses to its first screen.

    Examples
    --------
    >>> add_page_words(FirstScreen(), "A run", [("Figures", ["Dashed: untrained twins."])]).words
    {'untrained twin': 'A model of the same architecture as the trained model, with random weights.'}
    """
    first_items = [first.figure, first.clip]
    texts = [title, *first.notes, *first.warnings, *first.answer]
    texts += [text for item in first_items if item is not None for text in _item_texts(item)]
    for heading, items in page_sections:
        texts += [heading, *(text for item in items for text in _item_texts(item))]
    page_text = "\n".join(texts)
    words = {
        word: explanation
        for word, (pattern, explanation) in _WORDS.items()
        if re.search(pattern, page_text, re.IGNORECASE)
    }
    return replace(first, words=words)


def _item_texts(item: Item) -> Iterator[str]:
    """Yield the texts of an item that a reader sees."""
    if isinstance(item, str):
        yield item
    elif isinstance(item, TermList):
        yield from item.terms
        yield from item.terms.values()
    elif isinstance(item, Picture):
        yield item.caption
    elif isinstance(item, (pd.DataFrame, SortableTable)):
        table = item.table if isinstance(item, SortableTable) else item
        yield from map(str, table.columns)
        for name in table:
            if table[name].dtype.kind == "O":
                yield from map(str, table[name].unique())
    else:
        for name in ("heading", "summary", "text"):
            yield str(getattr(item, name, ""))


_TITLE = "How the clips were chosen"
_KEPT_OUTCOME = "kept"
_STEP_PHRASES = {  # stage and unit: what is counted, and what is left after the stage
    ("mine", "clips"): ("Rows of the corpus", "with a cue and a target"),
    ("mine", "pairs"): ("Pairs of cue and target in them", "that can be used"),
    ("align", "clips"): ("Rows with such a pair", "with word times"),
    ("select", "pairs"): ("Pairs of cue and target", "chosen as clips"),
}
_INTRODUCTION = (
    "A row of the corpus can hold several pairs of cue and target. Each chosen pair becomes a clip. "
    "If models are named as a reason, only clips were chosen in which all models spell cue and "
    "target correctly. The results hold for such clips, not for the whole corpus."
)
_RATES_NOTE = "Error rates of each model: over all transcribed clips, and over the scored clips."


def selection_sentence(run: StoredRun) -> str:
    """Say how many clips of a corpus were chosen; "" for a run that was not chosen from a
    corpus."""
    outcomes_by_step = _outcome_counts(run)
    if ("mine", "clips") not in outcomes_by_step:
        return ""
    rows = outcomes_by_step["mine", "clips"]
    text = (
        f"Of {format_count(sum(rows.values()), 'row')} of the corpus, {rows.get(_KEPT_OUTCOME, 0)} "
        "have a cue and a target."
    )
    if ("select", "pairs") in outcomes_by_step:
        pairs = outcomes_by_step["select", "pairs"]
        text += (
            f" Of {format_count(sum(pairs.values()), 'pair')} of cue and target, "
            f"{pairs.get(_KEPT_OUTCOME, 0)} were chosen."
        )
    return f"{text} See “{_TITLE}”."


def _selection_items(content: PageContent) -> list[Item]:
    """Return a table of the stages, and error rates of all transcribed clips and of the scored
    ones."""
    run = content.run
    outcomes_by_step = _outcome_counts(run)
    if not outcomes_by_step:
        return []
    rows = [
        _stage_row(*_STEP_PHRASES[step], outcomes) for step, outcomes in outcomes_by_step.items()
    ]
    skipped = {str(row["clip"]) for row in run.skipped} - set(run.clips["clip"])
    reasons = [str(row["reason"]) for row in run.skipped if str(row["clip"]) in skipped]
    scored = {_KEPT_OUTCOME: len(run.clips), **Counter(reasons)}
    rows.append(_stage_row("Clips", "scored", scored))
    items: list[Item] = [_INTRODUCTION, pd.DataFrame(rows)]
    if len(rates := _error_rates(run)):
        items += [_RATES_NOTE, rates]
    return items


def _error_rates(run: StoredRun) -> pd.DataFrame:
    """Tabulate by model the error rates (%) of all transcribed clips and of the scored ones."""
    scored_rates = _scored_error_rates(run)
    rows = []
    for model_counts in _selection(run).get("models", ()):
        name = str(model_counts["model"])
        rate = scored_rates.get(name)
        rows.append(
            {
                "model": name,
                "clips transcribed": int(model_counts["transcribed_clips"]),
                "word error rate (%)": float(model_counts["transcribed_wer_percent"]),
                "character error rate (%)": float(model_counts["transcribed_cer_percent"]),
                "clips scored": "" if rate is None else str(rate[0]),
                "character error rate of these (%)": float("nan")
                if rate is None
                else 100 * rate[1],
            }
        )
    return pd.DataFrame(rows)


def _scored_error_rates(run: StoredRun) -> dict[str, tuple[int, float]]:
    """Return the number of scored clips and their mean character error rate for each trained
    model."""
    if not len(run.transcripts):
        return {}
    rates_by_model = run.transcripts.groupby("model", sort=False)["character_error_rate"]
    return {str(model): (len(rates), float(rates.mean())) for model, rates in rates_by_model}


def _selection(run: StoredRun) -> Mapping[str, Any]:
    return run.description.get("selection") or {}


def _outcome_counts(run: StoredRun) -> dict[tuple[str, str], dict[str, int]]:
    """Return the outcomes of each stage with their counts, in the order of the stages."""
    outcomes_by_step: dict[tuple[str, str], dict[str, int]] = {}
    for stage, unit, outcome, count in _selection(run).get("stages", ()):
        if (stage, unit) in _STEP_PHRASES:
            outcomes_by_step.setdefault((stage, unit), {})[str(outcome)] = int(count)
    return {step: outcomes_by_step[step] for step in _STEP_PHRASES if step in outcomes_by_step}


def _stage_row(unit: str, result: str, outcomes: Mapping[str, int]) -> dict[str, object]:
    dropped = {outcome: count for outcome, count in outcomes.items() if outcome != _KEPT_OUTCOME}
    return {
        "step": f"{unit} {result}",
        "before": sum(outcomes.values()),
        "after": outcomes.get(_KEPT_OUTCOME, 0),
        "skipped": sum(dropped.values()),
        "reasons": _list_reasons(dropped),
    }


def _list_reasons(dropped: Mapping[str, int], max_reasons: int = 8) -> str:
    """List reasons with their counts, the most frequent first."""
    sorted_reasons: Sequence[tuple[str, int]] = sorted(dropped.items(), key=lambda item: -item[1])
    other_count = sum(count for _, count in sorted_reasons[max_reasons:])
    return "; ".join(
        [
            *(f"{count} {reason}" for reason, count in sorted_reasons[:max_reasons]),
            *([f"{other_count} for other reasons"] if other_count else []),
        ]
    )


SELECTION = PageSection(_TITLE, _selection_items)


_NO_CUE = (
    "No clip has both a cue and a target, so there is no cue contribution. The maps of the clips show "
    "what contributes to each word."
)
_CUE_NOTE = (
    "The report measures how much one word, the cue, contributes to another word, the target, inside "
    "a model. “Words used here”, below the summary, explains the terms."
)
_NO_CLIP = "No clip could be scored. “Skipped clips” says why."
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
        page_sections = _section_parts(content)
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


def _section_parts(content: PageContent) -> list[Part]:
    """Return the parts of all sections.

    One that raises is left out: the page and a warning say so, ``page_errors.txt`` says where.
    """
    parts: list[Part] = []
    tracebacks: list[str] = []
    errors_path = content.study.run.folder.page_file_path("page_errors", "txt")
    for section in _all_sections():
        try:
            section_parts = section.parts(content)
            for _, items in section_parts:
                for item in items:
                    check_item(item)
        except Exception as error:  # somebody else's section raises what it likes
            if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
                raise  # a full disk, as of figures that are written
            title = getattr(section, "title", type(section).__name__)
            reason = describe_error(error)
            warnings.warn(
                f"the section {title!r} is left out: {reason} (see {errors_path})", stacklevel=3
            )
            tracebacks.append(f"{title}\n{''.join(traceback.format_exception(error))}")
            section_parts = [
                (title, [f"This section is left out: {reason}. See {errors_path.name}."])
            ]
        parts += section_parts
    if tracebacks:
        write_text(errors_path, "\n".join(tracebacks))
    else:
        errors_path.unlink(missing_ok=True)
    return parts


def _all_sections() -> list[PageParts]:
    """Sections of the core and of extensions in the order of the page, then further ones."""
    by_place = sorted(
        [*_CORE_SECTIONS.items(), *load_with_places("sections", PageParts)],
        key=lambda pair: pair[0],
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
        no_answer = _NO_CUE if study.table.empty else _NO_NUMBER
        answer = [no_answer if len(run.clips) else _NO_CLIP]
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
    own_doubts = doubts.map({text: without_calibration_note(text) for text in doubts.unique()})
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
