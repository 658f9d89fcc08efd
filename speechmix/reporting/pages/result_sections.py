"""Sections with the results of a run: claims, contribution, ablation, control, clips.

In: a `PageContent`. Out: the items of each section; none where there is nothing to say.

Page sections on checks: length, measure agreement, word boundaries, settings.

In: a `Study`. Out: parts of the page; none where there is nothing to say.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pandas as pd

from ...evaluation.boundary_sensitivity import (
    SHIFT_SECONDS,
    boundary_sensitivity,
    summarize_stability,
)
from ...evaluation.cue_contribution import length_exponent
from ...evaluation.cue_need import (
    CHANCE_MARGIN_POINTS,
    CHANCE_PERCENT,
    MARGIN_POINTS,
    groups_for_equivalence,
)
from ...evaluation.statistics.claim_rule import FEWEST_CLAIM_GROUPS
from ...evaluation.statistics.grouped_means import (
    curve_agreement,
    distinct_keys,
    measure_agreement,
    select_cells,
)
from ...evaluation.statistics.groups import choose_evenly
from ...evaluation.statistics.intervals import FEWEST_GROUPS
from ...files.cache_keys import versions
from ...mixing.maps.measure_registry import measure_label
from ...mixing.maps.mixing_map import MixingMap
from ...runs.results.open_run import StoredRun, list_versions, scored_models
from ...runs.results.run_times import sum_by_phase
from ..plots.cue_tables import DECIDING, select_target_rows
from .cue_need_sentences import controls_table, format_need_table, need_by_number, stack_sentences
from .html_page import Item, TermList
from .page_sections import PageContent, PageSection
from .result_sentences import explain_columns, result_sentences
from .study_clips import clip_table_items
from .study_results import Study
from .study_tables import KEYS, drop_control_clips
from .table_format import format_contribution_table
from .transcription import transcription_items

_MAX_MAPS = 60  # clips whose maps are read to see what length does
_GROUP_KEYS = ("model", "init", "stack")
_EXPONENT_NOTE = (
    "How the share of a word grows with its number of frames in untrained twins. An exponent of 0 "
    "means that length has no effect. An exponent of 2 means that a word of double length has four "
    "times the share. The exponent is the slope of a regression of log share on log number of frames, "
    "among the sources of one target. The column “length-matched” assumes 2 for Value Zeroing and 0 "
    "for other measures."
)
_AGREEMENT_NOTE = (
    "Spearman's rank correlation between two measures. Over clips: does the cue contribute most in "
    "the same clips? There is one correlation for each layer; the table has their mean, minimum and "
    "maximum. Over layers: does the cue contribute most in the same layers? 1 means the same order; 0 "
    "means no relation."
)
_OPTIONS_NOTE = "Options, for repeating the run (described in the documentation): {options}."
_TIMES_NOTE = (
    "Computing time of each phase in seconds, over all processes and restarts. A phase does not "
    "include the phases within it. Work that several measures share is counted for the first of "
    "them. times.csv has the times of each model."
)


def model_items(run: StoredRun) -> list[Item]:
    """Tabulate the models with the clips that each scored, and list the options."""
    rows = [
        {
            "model": model.name,
            "weights": model.init,
            "seed": "" if model.seed is None else str(model.seed),
            "fingerprint": model.weights,
            "clips": len(model.clips),
        }
        for model in scored_models(run)
    ]
    options = run.description.get("options", {})
    option_list = "; ".join(
        f"{name}: {_option_text(value)}"
        for name, value in options.items()
        if value not in (None, [], ())
    )
    return [
        *([pd.DataFrame(rows)] if rows else []),
        *([_OPTIONS_NOTE.format(options=option_list)] if option_list else []),
    ]


def time_items(run: StoredRun) -> list[Item]:
    """Tabulate where the time of the run went; empty if it is not known."""
    return [_TIMES_NOTE, sum_by_phase(run.times)] if len(run.times) else []


def _option_text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _length_items(content: PageContent) -> list[Item]:
    """Tabulate how a word's share grows with its frames in the untrained twins."""
    rows = []
    for model in scored_models(content.run):
        maps_by_measure: dict[tuple[str, str], list[MixingMap]] = defaultdict(list)
        for clip in choose_evenly(list(model.clips), _MAX_MAPS) if model.init == "random" else ():
            for measure_and_stack, mixing_map in model.maps(clip).items():
                maps_by_measure[measure_and_stack].append(mixing_map)
        for (measure, stack), maps in maps_by_measure.items():
            slope = length_exponent(maps)
            if np.isfinite(slope):
                columns = {"model": model.name, "stack": stack, "measure": measure}
                rows.append({**columns, "exponent": slope, "clips": len(maps)})
    if not rows:
        return []
    means = pd.DataFrame(rows).groupby(["model", "stack", "measure"], sort=False)
    table = means.agg(exponent=("exponent", "mean"), clips=("clips", "sum")).reset_index()
    table["exponent"] = table["exponent"].map("{:.2f}".format)
    return [_EXPONENT_NOTE, table]


def _agreement_items(content: PageContent) -> list[Item]:
    """Tabulate rank correlations between measures: over clips within layers, and of curves over
    layers."""
    table = content.study.table
    if table.empty or table.loc[table["contribution"].notna(), "measure"].nunique() < 2:
        return []
    table = drop_control_clips(table)
    correlations = measure_agreement(table, by=_GROUP_KEYS)
    pairs = correlations.groupby([*_GROUP_KEYS, "measure", "other"], sort=False)
    result = pairs.rho.agg(mean="mean", lowest="min", highest="max").reset_index()
    curves = curve_agreement(table, by=_GROUP_KEYS)[[*_GROUP_KEYS, "measure", "other", "rho"]]
    result = result.merge(curves, on=[*_GROUP_KEYS, "measure", "other"])
    result[["measure", "other"]] = result[["measure", "other"]].map(measure_label)
    for name in ("mean", "lowest", "highest", "rho"):
        result[name] = result[name].map(lambda value: "" if value != value else f"{value:.2f}")
    headings = {
        "init": "weights",
        "other": "other measure",
        "mean": "over clips: mean",
        "lowest": "over clips: minimum",
        "highest": "over clips: maximum",
        "rho": "over layers",
    }
    return [_AGREEMENT_NOTE, result.rename(columns=headings)]


def _boundary_items(content: PageContent) -> list[Item]:
    """Say how much shifted word boundaries change the results, if the run has such shifts."""
    study, shifted = content.study, content.run.boundaries
    if study.table.empty or shifted.empty:
        return []
    clips = study.table.drop_duplicates("clip")[["clip", "side", "group", "control"]].astype(object)
    shifted = shifted.merge(clips, on="clip")
    shifted = drop_control_clips(select_target_rows(shifted, DECIDING))
    sensitivity = boundary_sensitivity(
        shifted.assign(contribution=100 * shifted.contribution), by=KEYS, group="group"
    )
    if sensitivity["difference"].isna().all():
        return []
    milliseconds = round(1000 * SHIFT_SECONDS)
    text = (
        f"The boundaries of cue and target were shifted by {milliseconds} ms: both earlier, both "
        "later, the word longer, and the word shorter. This was done in "
        f"{shifted['clip'].nunique()} clips; the table has whole stacks. "
    )
    verdicts = summarize_stability(sensitivity, by=KEYS)
    if verdicts.empty:
        reason = f"a test needs {FEWEST_GROUPS} groups of clips and two untrained twins"
        differences = sensitivity[[*KEYS, "boundaries", "difference", "groups", "clips"]]
        return [
            f"{text}Whether the result depends on the boundaries is inconclusive: {reason}.",
            format_contribution_table(differences),
        ]
    text += (
        "The conclusion (the confidence interval is above zero, below zero, or includes zero) stays "
        f"the same in {int(verdicts.holds.sum())} of {len(verdicts)} rows."
    )
    verdicts[["holds", "same_layer"]] = verdicts[["holds", "same_layer"]].map(
        lambda is_same: "yes" if is_same else "no"
    )
    headings = {
        "smallest": "smallest difference",
        "largest": "largest difference",
        "same_layer": "same highest layer",
    }
    return [text, format_contribution_table(verdicts.rename(columns=headings))]


LENGTH_ALONE = PageSection("What length alone does", _length_items)
MEASURE_AGREEMENT = PageSection("Do the measures agree?", _agreement_items)
BOUNDARIES = PageSection("If word boundaries are off", _boundary_items)


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
