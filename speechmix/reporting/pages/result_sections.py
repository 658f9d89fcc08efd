"""Sections with the results of a run: claims, contribution, ablation, control, clips.

In: a `PageContent`. Out: the items of each section; none where there is nothing to say.
"""

from __future__ import annotations

import pandas as pd

from ...evaluation.cue_need import (
    CHANCE_MARGIN_POINTS,
    CHANCE_PERCENT,
    MARGIN_POINTS,
    groups_for_equivalence,
)
from ...evaluation.statistics.claim_rule import FEWEST_CLAIM_GROUPS
from ...evaluation.statistics.grouped_means import distinct_keys, select_cells
from ...files.versions import versions
from ...runs.results.open_run import StoredRun, list_versions
from .check_sections import model_items, time_items
from .column_legend import explain_columns
from .cue_need_sentences import stack_sentences
from .cue_need_tables import controls_table, format_need_table, need_by_number
from .html_page import Item, TermList
from .page_sections import PageContent, PageSection
from .result_sentences import result_sentences
from .study_clips import clip_table_items
from .study_results import Study
from .table_format import format_contribution_table
from .transcription import transcription_items

_MAX_SKIPPED = 500  # rows of the table of what was left out
_ABLATION_NOTE = (
    "Spelling accuracy with the cue ablated in all layers of one stack. A clip counts as correct if "
    "the target has a higher probability than its other spelling. Chance is 50 %. The first table has "
    "the % of correct clips; every clip has the same weight."
)
_GROUP_MEANS_NOTE = (
    " The second table has means over groups of clips, so its accuracies differ slightly."
)
_NEED_TERMS = {
    "intact (%)": "Accuracy of the intact model: the mean over groups of clips, as in the next two "
    "columns.",
    "cue ablated (%)": "Accuracy with the cue ablated in this stack.",
    "another word (%)": "Accuracy with another word of about the same length ablated: a control.",
    "lost (points)": "Loss of accuracy by ablating the cue, with its exact confidence interval. The "
    "intervals of all rows hold together in 95 % of studies.",
    "margin lost (nats)": "Mean fall of the margin with the cue ablated.",
    "another word, margin lost": "Mean fall of the margin with another word ablated: a control.",
    "verdict": "Needed: the confidence interval is above zero, and there are at least "
    f"{FEWEST_CLAIM_GROUPS} groups. Not needed: an "
    f"equivalence test shows a loss below {MARGIN_POINTS:.0f} points. This verdict needs many groups, "
    f"even if no group has a loss. A table with one row needs {groups_for_equivalence()} "
    f"groups. A table with three rows needs {groups_for_equivalence(3)}. At chance: an equivalence "
    "test shows that the accuracy of the intact model is at most "
    f"{CHANCE_PERCENT + CHANCE_MARGIN_POINTS:.0f} %, so there is nothing to lose. Everything else is "
    "inconclusive.",
}
_CONTROL_TERMS = {  # column of the table of controls: what it is
    "trained - untrained (points)": "The result: how much more the cue contributes in the trained model than "
    "in the untrained twins, in percentage points.",
    "invariant nouns (points)": "First control: the same difference for nouns with one spelling for singular "
    "and plural. For them the cue does not decide the spelling.",
    "word after the target (points)": "Second control: the same difference with another source instead of "
    "the cue. It is the word after the target, or the word after the cue if the cue follows the target. "
    "This word does not decide the spelling either.",
    "intact (%)": "Spelling accuracy of the intact model: % of correct clips, as a mean over groups of "
    "clips.",
    "cue ablated (%)": "Spelling accuracy with the cue ablated in this stack.",
    "another word ablated (%)": "Third control: spelling accuracy with another word of about the same "
    "length ablated.",
}
_CONTROLS_NOTE = (
    "How to read a row: compare the result with {controls} clearly smaller, "
    "the result is specific to the cue. If {one} is as large as the result, or larger, the share "
    "of a word does not depend on whether the word decides the spelling. In this case, the "
    "result is no evidence that the model uses the grammatical number. Brackets hold the "
    "95 % interval to one more untrained model."
)
_CONTROL_NAMES = {"controls": "the first two controls. If both are", "one": "one control"}
_ONE_CONTROL_NAMES = {"controls": "its control. If the control is", "one": "it"}
_ABLATED_WORDS_NOTE = (
    "Compare the last two columns: if ablating another word costs much less accuracy, the loss is "
    "specific to the cue."
)
_BY_NUMBER_NOTE = (
    "Accuracy for singular and plural, in % of clips. A model without the cue may always choose one of "
    "the two. It is then correct for that number and wrong for the other: 50 % on average."
)
_INVARIANT_NOTE = (
    "A control: nouns with one spelling for singular and plural. The cue does not decide their "
    "spelling."
)
_CONTRIBUTION_CAUTION = (
    "A high contribution does not show that the model uses the cue. Only ablation can show that."
)
_SHOWN_CLIPS_NOTE = (
    "Clips with a left cue and clips with a right cue are ranked separately, by {value}. This section has the clips with the "
    "highest, the median and the lowest value, and requested clips. "
    "The first of these clips is at the top of the page. "
)
_ACCURACY_NOTE = (
    "Accuracies are means over groups of clips. For singular and plural, they are % of clips."
)
_PLAYER_NOTE = (
    "While a clip plays, a line moves over the map. Click a word to hear it and to see what "
    "contributes to it. In the map, each row is a target: a word that receives. Each column is a "
    "source: a word that contributes. The map leaves out silent stretches of the sound."
)


def _control_table_items(content: PageContent) -> list[Item]:
    """Return the table of differences with their controls, and the figures of the other sides."""
    study = content.study
    controls = {
        "invariant nouns (points)": study.control,
        "word after the target (points)": study.after_target,
    }
    table = controls_table(study.headline, study.need, controls)
    terms = TermList({name: text for name, text in _CONTROL_TERMS.items() if name in table})
    present_controls = [name for name in controls if name in table]
    names = _CONTROL_NAMES if len(present_controls) > 1 else _ONE_CONTROL_NAMES
    notes = [_CONTROLS_NOTE.format(**names)] if present_controls else []
    if {"cue ablated (%)", "another word ablated (%)"} <= set(table):
        notes.append(_ABLATED_WORDS_NOTE)
    return [terms, table, *notes, *content.need_figures[1:]]


def _word_items(content: PageContent) -> list[Item]:
    """Return the headline in sentences."""
    study = content.study
    sentences = stack_sentences(study.headline, study.need, need_by_number(study.ablations))
    notes = [_ACCURACY_NOTE] if len(study.need) else []
    return [*notes, *sentences, *result_sentences(study.headline), _CONTRIBUTION_CAUTION]


def _contribution_items(content: PageContent) -> list[Item]:
    """Return the headline as a table, and how to read it."""
    study = content.study
    table = format_contribution_table(study.headline)
    return [table, *explain_columns(study.headline, ties=study.ties)]


def _ablation_items(content: PageContent) -> list[Item]:
    study = content.study
    note = _ABLATION_NOTE + (_GROUP_MEANS_NOTE if len(study.need) else "")
    items: list[Item] = [note, format_contribution_table(study.ablation)]
    if len(study.need):
        table = format_need_table(study.need)
        terms = {name: text for name, text in _NEED_TERMS.items() if name in table}
        items += [table, TermList(terms)]
    if len(study.ablation_by_number):
        items += [_BY_NUMBER_NOTE, format_contribution_table(study.ablation_by_number)]
    return items


def _control_items(content: PageContent) -> list[Item]:
    control = content.study.control
    return [] if control is None else [_INVARIANT_NOTE, format_contribution_table(control)]


def _clip_card_items(content: PageContent) -> list[Item]:
    """Return the cards of all shown clips but the first, which is on the first screen."""
    value = (
        "the difference in contribution between the trained model and its untrained twins"
        if content.has_comparison
        else "the contribution of the cue"
    )
    selection_note = _SHOWN_CLIPS_NOTE.format(value=value) if len(content.study.headline) else ""
    return [selection_note + _PLAYER_NOTE, *content.cards[1:]]


def _skipped_items(content: PageContent) -> list[Item]:
    """List the skipped items, and the maps that cannot be read."""
    skipped, unreadable_maps = content.run.skipped, content.unreadable_maps
    items: list[Item] = []
    if len(skipped) > _MAX_SKIPPED:
        file = content.run.folder.skipped_path.name
        items.append(
            f"The first {_MAX_SKIPPED} of {len(skipped):,} skipped items. All are in {file}."
        )
    if skipped:
        items.append(pd.DataFrame(skipped[:_MAX_SKIPPED]))
    if unreadable_maps:
        items += [
            f"{len(unreadable_maps)} maps of the clips above cannot be read:",
            *unreadable_maps[:20],
        ]
    return items


def _provenance_items(content: PageContent) -> list[Item]:
    run = content.run
    return [
        *_unequal_twins_note(content.study),
        *model_items(run),
        _versions_text(run),
        *time_items(run),
    ]


def _unequal_twins_note(study: Study) -> list[str]:
    """Say it if some untrained twins scored fewer clips than others."""
    if study.table.empty or "seed" not in study.table:
        return []
    clips = distinct_keys(
        select_cells(study.table, ["model", "seed", "clip"], study.table["init"] == "random"),
        ["model", "seed", "clip"],
    )
    clip_counts = clips.groupby(["model", "seed"], observed=True).size()
    if clip_counts.empty or clip_counts.min() == clip_counts.max():
        return []
    return [
        f"One untrained twin of each model scored {clip_counts.max()} clips. The others scored "
        f"{clip_counts.min()} of them, evenly chosen. Twins are compared over the clips that all of "
        "them scored."
    ]


def _versions_text(run: StoredRun) -> str:
    run_versions = list_versions(run)
    page_versions = "" if run_versions == [versions()] else f"; this page by {versions()}"
    return f"Scored with {'; and with '.join(run_versions) or 'versions that are not known'}{page_versions}."


CLIP_CARDS = PageSection(
    "Clips to listen to", _clip_card_items, lambda content: len(content.cards) > 1
)
CONTROLS = PageSection(
    "Results and their controls", _control_table_items, lambda content: content.has_comparison
)
TRANSCRIPTION = PageSection(
    "Do the models transcribe the clips?",
    lambda content: transcription_items(content.run),
    lambda content: not content.is_single_clip,
)
SENTENCES = PageSection(
    "The results in words",
    _word_items,
    lambda content: content.has_results and not content.is_single_clip,
)
CONTRIBUTION = PageSection(
    "Contribution of the cue", _contribution_items, lambda content: content.has_results
)
ABLATION = PageSection(
    "Spelling with the cue ablated",
    _ablation_items,
    lambda content: not content.study.ablation.empty,
)
CONTROL = PageSection("Control: invariant nouns", _control_items)
ALL_CLIPS = PageSection("All clips", lambda content: clip_table_items(content.study, content.cards))
SKIPPED = PageSection("Skipped clips", _skipped_items)
PROVENANCE = PageSection("Models, options and versions", _provenance_items)
