"""The page of a study: trained models against their untrained twins, cue contribution beside
ablation, clips to listen to.

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

from ...errors import InputError
from ...evaluation.cue_need import CHANCE, CHANCE_MARGIN, MARGIN, groups_for_equivalence
from ...evaluation.statistics.grouped_means import distinct, taken
from ...files.text_files import write_csv
from ...files.versions import versions
from ...files.whole_files import write_json, write_text
from ...inputs.clips.clip import Clip
from ...runs.results.open_run import STOPPED, StoredRun, contributing_versions
from ...runs.results.run_folder import RUNNING
from .cue_need_section import (
    controls_table,
    format_need_table,
    joint_sentences,
    need_by_number,
    short_answers,
)
from .explanation_section import explanation_part
from .faithfulness_section import faithfulness_part
from .html_page import FirstScreen, Item, Part, Picture, render_page
from .probing_section import probing_part
from .selection_section import selection_part, selection_sentence
from .speech_ablation_section import speech_ablation_part
from .study_clips import clip_cards, clip_table_items
from .study_figures import need_pictures, study_pictures
from .study_results import Study
from .study_sections import agreement_part, boundaries_part, length_part, models_part, times_part
from .study_tables import format_layer_claims, format_study_table
from .text_tables import latex_table, markdown_table
from .transcription import error_rate_notes, transcription_notes, transcription_warnings
from .wording import LENGTH, READING, format_count, method_text, result_sentences

if TYPE_CHECKING:
    from ...runs.scored_run import Run
    from .clip_card import ClipCard

_MOST_LEFT_OUT = 500  # rows of the table of what was left out
_NO_CUE = (
    "No clip has both a cue and a target, so there is no cue contribution; maps and clips "
    "are below."
)
_NO_NUMBER = "No contribution is a finite number: the scores of this run hold no value to report."
_STACKS = (
    "Whole stacks: the mean over the layers of a stack, each layer weighted by its mixing strength."
)
_ABLATION = (
    "Share of clips (%) in which the target's own spelling is likelier than its other spelling, "
    "with the cue's value vectors "
    "zeroed in all layers of one stack. 50 % is chance."
)
_NEED = (
    "What spelling loses when the cue's value vectors are zeroed, beside what it loses without "
    "another word of about its "
    "length "
    "(the control): share spelled right, mean over groups, with a 95 % interval; p of a sign test "
    "over groups, corrected over "
    "the rows of the model; and the mean drop of the margin log p(target) - log p(foil). Needed: p "
    "<= 0.05 and the "
    "interval above "
    f"zero. Not needed: at most {MARGIN:.0f} points are lost, by an equivalence test; one stack "
    f"takes {{one}} groups without a "
    f"loss, three stacks {{three}}. At chance: the intact model spells at most {CHANCE + CHANCE_MARGIN:.0f} % right, by "
    f"the same "
    "kind of test. Everything else is inconclusive."
).format(one=groups_for_equivalence(), three=groups_for_equivalence(3))
_OF_CONTROLS = {  # column of the table of controls: what it is
    "trained - untrained": "the claim: difference in the cue's contribution, in percentage points",
    "invariant nouns": "the same for nouns with one spelling for both numbers, where the cue "
    "cannot decide the spelling",
    "word after the target": "the same for an irrelevant word, the one after the target",
    "right (%)": "clips spelled right by the intact model",
    "cue ablated": "clips spelled right with the cue's values zeroed in that stack",
    "another word ablated": "clips spelled right with those of another word of about its length "
    "zeroed",
}
_READ_CONTROLS = (
    " A control as large as its claim means that the stack mixes in any word of that kind, not the "
    "cue for its number. "
    '"Inconclusive": the difference is one that clips or random weights can make.'
)
_DEFAULT = (
    "The same by number. A model that no longer hears the cue and falls back on one number is "
    "right there and wrong in the "
    "other: 50 % together. It may then take much from the cue in that other number alone; see the "
    "figures by number."
)
_CONTROL = "Nouns that are spelled alike in both numbers: the cue decides nothing about them."
_EVERY_LAYER = (
    "Layers in which trained and untrained models differ: the same test, corrected over all "
    "{count} layers and all whole "
    "stacks "
    "of a model, and an interval that leaves out zero. Layers below the floor of mixing strength "
    "take no part. All numbers are "
    "in layers.csv."
)
_CAUTION = (
    "A high contribution does not say that the model uses the cue: that is for ablation to say."
)
_CHOSEN = (
    "Clips with the highest, the median and the lowest difference between trained and untrained by "
    "Value Zeroing, and those "
    "asked for. "
)
_LISTENING = (
    "Play a clip and its position moves over the map; click a word to hear it and to see what "
    "contributes to it. Rows are "
    "targets, columns are sources; pauses and padding are left out."
)


def report(
    folder: str | PathLike,
    *,
    title: str | None = None,
    notes: list[str] | None = None,
    asked: Sequence[str] = (),
    audio: str | PathLike | None = None,
    clips: Sequence[Clip] = (),
    published: bool | str = False,
    group: str | None = None,
    out: str | PathLike | None = None,
) -> Path:
    """Write the page of a run again, from its folder; title and notes are those of before, other
    options as in `write_study`.

    Raises
    ------
    InputError
        If the folder holds no run, or a damaged one; and as `write_study`.
    """
    study = Study.of(folder, group=group)
    former = study.run.description
    return write_study(
        study,
        title=title if title is not None else former.get("title") or study.run.out.resolve().name,
        notes=notes if notes is not None else former.get("notes") or [],
        asked=asked,
        audio=audio,
        clips=clips,
        published=published,
        out=out,
    )


def write_study(
    study: Study | StoredRun | Run,
    *,
    title: str,
    notes: list[str],
    asked: Sequence[str] = (),
    audio: str | PathLike | None = None,
    clips: Sequence[Clip] = (),
    published: bool | str = False,
    out: str | PathLike | None = None,
) -> Path:
    """Write figures, tables and the page of a run; returns the page's path.

    Parameters
    ----------
    study : Study, StoredRun or Run
    title : str
    notes : list of str
        What a reader must know first; paragraphs.
    asked : sequence of str
        Clips to show besides those with most, median and least contribution.
    audio : path, optional
        Folder with the audio files, if they are no longer where the run found them.
    clips : sequence of Clip
        The run's clips, if they are at hand (clips in memory have no audio file).
    published : bool or {"target", "deciding"}
        Draw the published figures beside the run's numbers: True or "target" of all tokens of the
        target, as published; "deciding" of the one that decides between target and foil.
    out : path, optional
        Where the page goes; ``index.html`` in the run's folder by default.

    Raises
    ------
    InputError
        If a clip that was asked for is not in the run, or the page cannot be written.
    """
    study = study if isinstance(study, Study) else Study.of(study)
    folder = study.run.folder
    path = Path(out) if out else folder.page
    if path.is_dir():
        raise InputError(
            f"{path} is a folder: expected the name of a file for the page, such as "
            f"{path / 'index.html'}"
        )
    try:
        _write_tables(study)
        unreadable: list[str] = []
        cards = clip_cards(study, asked=asked, audio=audio, clips=clips, unreadable=unreadable)
        needs = need_pictures(study)
        parts = [
            *_clips_to_hear(study, cards),
            *explanation_part(study, audio=audio, clips=clips),
            *_claims(study, needs),
            *selection_part(study.run),
            *_transcription(study.run),
            *_results(study),
            *study_pictures(study, published=published),
            *length_part(study.run),
            *agreement_part(study.table),
            *boundaries_part(study),
            *_ablation(study),
            *speech_ablation_part(folder.path),
            *probing_part(study, published=published),
            *faithfulness_part(folder.path),
            *_control(study),
            *_all_clips(study, cards, unreadable),
            _provenance(study),
        ]
        kept = {"selection": chosen} if (chosen := study.run.description.get("selection")) else {}
        write_json(folder.page_description, {"title": title, "notes": notes, **kept})
        write_text(path, render_page(title, parts, first=_first_screen(study, notes, cards, needs)))
    except OSError as error:
        raise InputError(
            f"cannot write the page {path} and the tables in {folder.path} ({error})"
        ) from error
    return path


def _write_tables(study: Study) -> None:
    """Write the headline and the statistics layer by layer into the run's folder, where there is a
    number to report."""
    if study.layers is None:
        return
    folder, table = study.run.folder, format_study_table(study.headline)
    units = f"groups of clips that share {study.ties}" if study.ties else "clips"
    caption = (
        "Cue contribution (%) over whole stacks, layers weighted by mixing strength; 95 % "
        f"intervals over {units} and "
        f"untrained "
        "twins; p: rank among the twins, corrected over all stacks, layers and measures of a model."
    )
    write_csv(study.layers, folder.beside_page("layers", "csv"))
    write_csv(study.headline, folder.beside_page("headline", "csv"))
    write_text(folder.beside_page("headline", "md"), markdown_table(table) + "\n")
    write_text(folder.beside_page("headline", "tex"), latex_table(table, caption=caption))


def _first_screen(
    study: Study, notes: Sequence[str], cards: Sequence[ClipCard], needs: Sequence[Picture]
) -> FirstScreen:
    """What a reader must know, what the cue contributes and whether it is needed, one figure, one
    clip to hear."""
    run = study.run
    stopped = [STOPPED] if run.description.get("state") == RUNNING else []
    answer: list[str] = (
        short_answers(study.headline, study.need)
        if study.layers is not None
        else [_no_headline(study)]
    )
    return FirstScreen(
        notes=[*stopped, *notes, *_counts(run), *error_rate_notes(run)],
        warnings=transcription_warnings(run),
        answer=answer,
        figure=needs[0] if needs else None,
        clip=cards[0] if cards else None,
    )


def _no_headline(study: Study) -> str:
    return _NO_CUE if study.table.empty else _NO_NUMBER


def _claims(study: Study, needs: Sequence[Picture]) -> list[Part]:
    """What is claimed beside its controls, and the figures of the other sides of the cue."""
    if study.layers is None:
        return []
    controls = {"invariant nouns": study.control, "word after the target": study.after_target}
    table = controls_table(study.headline, study.need, controls)
    return [("Claims and their controls", [_said_controls(table), table, *needs[1:]])]


def _said_controls(table: pd.DataFrame) -> str:
    """What stands in the columns of the table of controls."""
    columns = "; ".join(
        f"{column}: {text}" for column, text in _OF_CONTROLS.items() if column in table
    )
    return f"Each row is one stack. {columns}.{_READ_CONTROLS}"


def _provenance(study: Study) -> Part:
    run = study.run
    return (
        "What was run",
        [*_further_twins(study), *models_part(run), _versions(run), *times_part(run)],
    )


def _transcription(run: StoredRun) -> list[Part]:
    """Whether its models transcribe the clips."""
    notes = transcription_notes(run)
    return [("Do the models transcribe the clips?", notes)] if notes else []


def _results(study: Study) -> list[Part]:
    """Headline in words and in tables, and layer by layer; nothing without a cue."""
    if study.layers is None:
        return []
    words: list[Item] = [
        *joint_sentences(study.headline, study.need, need_by_number(study.ablations))
    ]
    words += [*result_sentences(study.headline), _CAUTION]
    tables: list[Item] = [
        READING,
        LENGTH,
        method_text(study.ties, study.headline.twins),
        _STACKS,
        format_study_table(study.headline),
    ]
    parts: list[Part] = [("In words", words), ("Cue contribution", tables)]
    layers = format_layer_claims(study.layers)
    every_layer = _EVERY_LAYER.format(count=len(study.layers))
    return [*parts, ("In which layers", [every_layer, layers])] if len(layers) else parts


def _ablation(study: Study) -> list[Part]:
    if study.ablation.empty:
        return []
    items: list[Item] = [_ABLATION, format_study_table(study.ablation)]
    if len(study.need):
        items += [_NEED, format_need_table(study.need)]
    if len(study.ablation_by_number):
        items += [_DEFAULT, format_study_table(study.ablation_by_number)]
    return [("Ablation", items)]


def _control(study: Study) -> list[Part]:
    if study.control is None:
        return []
    return [("Control: invariant nouns", [_CONTROL, format_study_table(study.control)])]


def _clips_to_hear(study: Study, cards: Sequence[ClipCard]) -> list[Part]:
    """Clips to listen to, but the first, which is open above; closed until a reader opens them."""
    if len(cards) < 2:
        return []
    return [
        ("Clips to listen to", [(_CHOSEN if len(study.headline) else "") + _LISTENING, *cards[1:]])
    ]


def _all_clips(study: Study, cards: Sequence[ClipCard], unreadable: Sequence[str]) -> list[Part]:
    """All clips in a table, and what was left out."""
    skipped = study.run.skipped
    left_out: list[Item] = [pd.DataFrame(skipped[:_MOST_LEFT_OUT])] if skipped else []
    if len(skipped) > _MOST_LEFT_OUT:
        left_out.insert(
            0,
            f"The first {_MOST_LEFT_OUT} of {len(skipped):,}; all are in "
            f"{study.run.folder.skipped.name}.",
        )
    left_out += (
        [f"{len(unreadable)} maps of the clips above cannot be read:", *unreadable[:20]]
        if unreadable
        else []
    )
    return [
        ("All clips", clip_table_items(study, cards)),
        ("Left out", left_out or ["Nothing was left out."]),
    ]


def _further_twins(study: Study) -> list[str]:
    """That some untrained twins scored fewer clips than others, if so."""
    if study.table.empty or "seed" not in study.table:
        return []
    clips = distinct(
        taken(study.table, ["model", "seed", "clip"], study.table["init"] == "random"),
        ["model", "seed", "clip"],
    )
    scored = clips.groupby(["model", "seed"], observed=True).size()
    if scored.empty or scored.min() == scored.max():
        return []
    return [
        f"One untrained twin of each model scored {scored.max()} clips, the others {scored.min()} "
        "of them, evenly chosen. "
        "These say how much the draw of weights matters: twins are compared over the clips that "
        "all of them scored."
    ]


def _versions(run: StoredRun) -> str:
    scored = contributing_versions(run)
    page = "" if scored == [versions()] else f"; this page by {versions()}"
    return f"Scored with {'; and with '.join(scored) or 'versions that are not known'}{page}."


def _counts(run: StoredRun) -> list[str]:
    """Clips of the run, and those that were left out before it and in it."""
    clips = run.clips
    doubtful = int((clips.doubts != "").sum()) if "doubts" in clips else 0
    pairs = format_count(run.done, "scored (clip, model) pair")
    text = (
        f"{format_count(len(clips), 'clip')}; {pairs}, {len(run.skipped)} left out while scoring."
    )
    text += f" The word times of {format_count(doubtful, 'clip')} are doubtful." if doubtful else ""
    return [text for text in (selection_sentence(run), text) if text]
