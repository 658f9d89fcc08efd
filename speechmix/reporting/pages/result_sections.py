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
from .cue_need_sentences import joint_sentences
from .cue_need_tables import controls_table, format_need_table, need_by_number
from .html_page import Item
from .page_sections import PageContent, PageSection
from .study_clips import clip_table_items
from .study_results import Study
from .study_sections import models_part, times_part
from .study_tables import format_layer_claims
from .table_format import format_contribution_table
from .transcription import transcription_notes
from .wording import LENGTH, READING, method_text, result_sentences

_MOST_LEFT_OUT = 500  # rows of the table of what was left out
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
    f"zero. Not needed: at most {MARGIN_POINTS:.0f} points are lost, by an equivalence test; one stack "
    f"takes {{one}} groups without a "
    f"loss, three stacks {{three}}. At chance: the intact model spells at most "
    f"{CHANCE_PERCENT + CHANCE_MARGIN_POINTS:.0f} % correctly, by the same kind of test. Everything else is inconclusive."
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


def _claim_items(content: PageContent) -> list[Item]:
    """What is claimed beside its controls, and the figures of the other sides of the cue."""
    study = content.study
    controls = {"invariant nouns": study.control, "word after the target": study.after_target}
    table = controls_table(study.headline, study.need, controls)
    columns = "; ".join(
        f"{column}: {text}" for column, text in _OF_CONTROLS.items() if column in table
    )
    text = f"Each row is one stack. {columns}.{_READ_CONTROLS}"
    return [text, table, *content.needs[1:]]


def _word_items(content: PageContent) -> list[Item]:
    """The headline in words."""
    study = content.study
    sentences = joint_sentences(study.headline, study.need, need_by_number(study.ablations))
    return [*sentences, *result_sentences(study.headline), _CAUTION]


def _contribution_items(content: PageContent) -> list[Item]:
    """The headline as a table, and how to read it."""
    study = content.study
    method = method_text(study.ties, study.headline.twins)
    return [READING, LENGTH, method, _STACKS, format_contribution_table(study.headline)]


def _layer_items(content: PageContent) -> list[Item]:
    """Layers of which something is claimed."""
    layers = content.study.layers
    if layers is None or not len(claims := format_layer_claims(layers)):
        return []
    return [_EVERY_LAYER.format(count=len(layers)), claims]


def _ablation_items(content: PageContent) -> list[Item]:
    study = content.study
    items: list[Item] = [_ABLATION, format_contribution_table(study.ablation)]
    if len(study.need):
        items += [_NEED, format_need_table(study.need)]
    if len(study.ablation_by_number):
        items += [_DEFAULT, format_contribution_table(study.ablation_by_number)]
    return items


def _control_items(content: PageContent) -> list[Item]:
    control = content.study.control
    return [] if control is None else [_CONTROL, format_contribution_table(control)]


def _clips_to_hear(content: PageContent) -> list[Item]:
    """Clips to listen to, but the first, which is open above; closed until a reader opens them."""
    chosen = _CHOSEN if len(content.study.headline) else ""
    return [chosen + _LISTENING, *content.cards[1:]]


def _left_out_items(content: PageContent) -> list[Item]:
    """What was left out, and maps that cannot be read."""
    skipped, unreadable = content.run.skipped, content.unreadable
    items: list[Item] = []
    if len(skipped) > _MOST_LEFT_OUT:
        file = content.run.folder.skipped.name
        items.append(f"The first {_MOST_LEFT_OUT} of {len(skipped):,}; all are in {file}.")
    if skipped:
        items.append(pd.DataFrame(skipped[:_MOST_LEFT_OUT]))
    if unreadable:
        items += [f"{len(unreadable)} maps of the clips above cannot be read:", *unreadable[:20]]
    return items or ["Nothing was left out."]


def _provenance_items(content: PageContent) -> list[Item]:
    run = content.run
    return [*_further_twins(content.study), *models_part(run), _versions(run), *times_part(run)]


def _further_twins(study: Study) -> list[str]:
    """That some untrained twins scored fewer clips than others, if so."""
    if study.table.empty or "seed" not in study.table:
        return []
    clips = distinct_keys(
        select_cells(study.table, ["model", "seed", "clip"], study.table["init"] == "random"),
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


CLIPS_TO_HEAR = PageSection(
    "Clips to listen to", _clips_to_hear, lambda content: len(content.cards) > 1
)
CLAIMS = PageSection("Claims and their controls", _claim_items, lambda content: content.has_results)
TRANSCRIPTION = PageSection(
    "Do the models transcribe the clips?", lambda content: transcription_notes(content.run)
)
IN_WORDS = PageSection("In words", _word_items, lambda content: content.has_results)
CONTRIBUTION = PageSection(
    "Cue contribution", _contribution_items, lambda content: content.has_results
)
LAYERS = PageSection("In which layers", _layer_items)
ABLATION = PageSection(
    "Ablation", _ablation_items, lambda content: not content.study.ablation.empty
)
CONTROL = PageSection("Control: invariant nouns", _control_items)
ALL_CLIPS = PageSection("All clips", lambda content: clip_table_items(content.study, content.cards))
LEFT_OUT = PageSection("Left out", _left_out_items)
PROVENANCE = PageSection("What was run", _provenance_items)
