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
from ...evaluation.statistics.grouped_means import distinct_keys, select_cells
from ...files.versions import versions
from ...runs.results.open_run import StoredRun, contributing_versions
from .check_sections import model_items, time_items
from .cue_need_sentences import stack_sentences
from .cue_need_tables import controls_table, format_need_table, need_by_number
from .html_page import Item
from .page_sections import PageContent, PageSection
from .result_sentences import CONTRIBUTION_NOTE, LENGTH_NOTE, format_method, result_sentences
from .study_clips import clip_table_items
from .study_results import Study
from .study_tables import format_layer_claims
from .table_format import format_contribution_table
from .transcription import transcription_notes

_MAX_SKIPPED = 500  # rows of the table of what was left out
_STACKS_NOTE = (
    "Whole stacks: the mean over the layers of a stack, each layer weighted by its mixing strength."
)
_ABLATION_NOTE = (
    "Share of clips (%) in which the target's own spelling is likelier than its other spelling, "
    "with the cue's value vectors "
    "zeroed in all layers of one stack. 50 % is chance."
)
_NEED_NOTE = (
    "What spelling loses when the cue's value vectors are zeroed, beside what it loses without "
    "another word of about its "
    "length "
    "(the control): share spelled right, mean over groups, with a 95 % interval; p of a sign test "
    "over groups, corrected over "
    "the rows of the model; and the mean drop of the margin log p(target) - log p(foil). Needed: p "
    "<= 0.05 and the "
    "interval above "
    f"zero. Not needed: at most {MARGIN_POINTS:.0f} points are lost, by an equivalence test; one stack "
    f"takes {{one}} groups without a "
    f"loss, three stacks {{three}}. At chance: the intact model spells at most "
    f"{CHANCE_PERCENT + CHANCE_MARGIN_POINTS:.0f} % correctly, by the same kind of test. Everything else is inconclusive."
).format(one=groups_for_equivalence(), three=groups_for_equivalence(3))
_CONTROL_COLUMNS = {  # column of the table of controls: what it is
    "trained - untrained": "the claim: difference in the cue's contribution, in percentage points",
    "invariant nouns": "the same for nouns with one spelling for both numbers, where the cue "
    "cannot decide the spelling",
    "word after the target": "the same for an irrelevant word, the one after the target",
    "right (%)": "clips spelled right by the intact model",
    "cue ablated": "clips spelled right with the cue's values zeroed in that stack",
    "another word ablated": "clips spelled right with those of another word of about its length "
    "zeroed",
}
_CONTROLS_NOTE = (
    " A control as large as its claim means that the stack mixes in any word of that kind, not the "
    "cue for its number. "
    '"Inconclusive": the difference is one that clips or random weights can make.'
)
_BY_NUMBER_NOTE = (
    "The same by number. A model that no longer hears the cue and falls back on one number is "
    "right there and wrong in the "
    "other: 50 % together. It may then take much from the cue in that other number alone; see the "
    "figures by number."
)
_INVARIANT_NOTE = (
    "Nouns that are spelled alike in both numbers: the cue decides nothing about them."
)
_LAYERS_NOTE = (
    "Layers in which trained and untrained models differ: the same test, corrected over all "
    "{count} layers and all whole "
    "stacks "
    "of a model, and an interval that leaves out zero. Layers below the floor of mixing strength "
    "take no part. All numbers are "
    "in layers.csv."
)
_CONTRIBUTION_CAUTION = (
    "A high contribution does not say that the model uses the cue: that is for ablation to say."
)
_SHOWN_CLIPS_NOTE = (
    "Clips with the highest, the median and the lowest difference between trained and untrained by "
    "Value Zeroing, and those "
    "asked for. "
)
_PLAYER_NOTE = (
    "Play a clip and its position moves over the map; click a word to hear it and to see what "
    "contributes to it. Rows are "
    "targets, columns are sources; pauses and padding are left out."
)


def _claim_items(content: PageContent) -> list[Item]:
    """Return the table of differences with their controls, and the figures of the other sides."""
    study = content.study
    controls = {"invariant nouns": study.control, "word after the target": study.after_target}
    table = controls_table(study.headline, study.need, controls)
    columns = "; ".join(
        f"{column}: {text}" for column, text in _CONTROL_COLUMNS.items() if column in table
    )
    text = f"Each row is one stack. {columns}.{_CONTROLS_NOTE}"
    return [text, table, *content.need_figures[1:]]


def _word_items(content: PageContent) -> list[Item]:
    """Return the headline in sentences."""
    study = content.study
    sentences = stack_sentences(study.headline, study.need, need_by_number(study.ablations))
    return [*sentences, *result_sentences(study.headline), _CONTRIBUTION_CAUTION]


def _contribution_items(content: PageContent) -> list[Item]:
    """Return the headline as a table, and how to read it."""
    study = content.study
    method = format_method(study.ties, study.headline.twins)
    return [
        CONTRIBUTION_NOTE,
        LENGTH_NOTE,
        method,
        _STACKS_NOTE,
        format_contribution_table(study.headline),
    ]


def _layer_items(content: PageContent) -> list[Item]:
    """Return the layers with a significant difference."""
    layers = content.study.layers
    if layers is None or not len(claims := format_layer_claims(layers)):
        return []
    return [_LAYERS_NOTE.format(count=len(layers)), claims]


def _ablation_items(content: PageContent) -> list[Item]:
    study = content.study
    items: list[Item] = [_ABLATION_NOTE, format_contribution_table(study.ablation)]
    if len(study.need):
        items += [_NEED_NOTE, format_need_table(study.need)]
    if len(study.ablation_by_number):
        items += [_BY_NUMBER_NOTE, format_contribution_table(study.ablation_by_number)]
    return items


def _control_items(content: PageContent) -> list[Item]:
    control = content.study.control
    return [] if control is None else [_INVARIANT_NOTE, format_contribution_table(control)]


def _clip_card_items(content: PageContent) -> list[Item]:
    """Return the cards of all shown clips but the first, which is on the first screen."""
    selection_note = _SHOWN_CLIPS_NOTE if len(content.study.headline) else ""
    return [selection_note + _PLAYER_NOTE, *content.cards[1:]]


def _skipped_items(content: PageContent) -> list[Item]:
    """List the skipped items, and the maps that cannot be read."""
    skipped, unreadable_maps = content.run.skipped, content.unreadable_maps
    items: list[Item] = []
    if len(skipped) > _MAX_SKIPPED:
        file = content.run.folder.skipped_path.name
        items.append(f"The first {_MAX_SKIPPED} of {len(skipped):,}; all are in {file}.")
    if skipped:
        items.append(pd.DataFrame(skipped[:_MAX_SKIPPED]))
    if unreadable_maps:
        items += [
            f"{len(unreadable_maps)} maps of the clips above cannot be read:",
            *unreadable_maps[:20],
        ]
    return items or ["Nothing was left out."]


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
        f"One untrained twin of each model scored {clip_counts.max()} clips, the others {clip_counts.min()} "
        "of them, evenly chosen. "
        "These say how much the draw of weights matters: twins are compared over the clips that "
        "all of them scored."
    ]


def _versions_text(run: StoredRun) -> str:
    run_versions = contributing_versions(run)
    page_versions = "" if run_versions == [versions()] else f"; this page by {versions()}"
    return f"Scored with {'; and with '.join(run_versions) or 'versions that are not known'}{page_versions}."


CLIP_CARDS = PageSection(
    "Clips to listen to", _clip_card_items, lambda content: len(content.cards) > 1
)
CLAIMS = PageSection("Claims and their controls", _claim_items, lambda content: content.has_results)
TRANSCRIPTION = PageSection(
    "Do the models transcribe the clips?", lambda content: transcription_notes(content.run)
)
SENTENCES = PageSection("In words", _word_items, lambda content: content.has_results)
CONTRIBUTION = PageSection(
    "Cue contribution", _contribution_items, lambda content: content.has_results
)
LAYERS = PageSection("In which layers", _layer_items)
ABLATION = PageSection(
    "Ablation", _ablation_items, lambda content: not content.study.ablation.empty
)
CONTROL = PageSection("Control: invariant nouns", _control_items)
ALL_CLIPS = PageSection("All clips", lambda content: clip_table_items(content.study, content.cards))
SKIPPED = PageSection("Left out", _skipped_items)
PROVENANCE = PageSection("What was run", _provenance_items)
