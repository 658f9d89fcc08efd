"""Reasons to exclude a pair: faults of the pair, or its spelling by models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ...files.json_files import Json, JsonObject
from ...runs.journal.stage_lines import read_stage_options
from .example_rows import cue_spans
from .sampling import PairCandidate
from .stage_counts import SelectionCounts
from .study_folder import (
    PAIRS,
)
from .transcript_comparison import TranscriptComparison, cue_and_target_positions


def find_exclusion_reason(
    example: Mapping[str, Json],
    pair: Mapping[str, Json],
    audible_only: bool,
    keep_doubtful: bool,
    doubts: list[str],
) -> tuple[str, str]:
    """Kind of reason and reason why a pair is no example, before any model spells it; empty if it
    may be one."""
    indices = [*example["cue_indices"], example["target"]]
    if None in indices or len(set(indices)) < len(indices):
        return (
            "not two words",
            f"{example['cue_word']!r} and {example['target_word']!r} are not one word each",
        )
    for role, index in zip(
        [*["cue"] * len(example["cue_indices"]), "target"], indices, strict=True
    ):
        word = example["words"][index]
        if word["end"] <= word["start"]:
            return "no time", f"the {role} {word['text']!r} has no length in the alignment"
    if doubts and not keep_doubtful:
        return "doubtful alignment", " ".join(doubts)
    if audible_only and not (pair.get("audible") and not pair.get("liaison")):
        return (
            "not audible",
            "the cue cannot be told by ear, or liaison betrays the number at the target",
        )
    return "", ""


def check_spelling(
    example: Mapping[str, Json],
    line: Mapping[str, Json],
    pair: Mapping[str, Json],
    transcripts: Mapping[str, JsonObject],
    comparisons: dict[str, TranscriptComparison],
    counts: SelectionCounts | None,
) -> tuple[str, str]:
    """Note what each model wrote and where; say which model did not spell cue or target right."""
    reason_kind = reason = ""
    for model, transcript in transcripts.items():
        found_cues = [
            span for span in map(comparisons[model].find_span, cue_spans(pair)) if span is not None
        ]
        found_target = comparisons[model].find_span(tuple(pair["target"]))
        misspelled_roles = ["cue"] * (len(found_cues) < len(example["cue_indices"])) + [
            "target"
        ] * (found_target is None)
        if counts is not None:
            counts.count_spelling(model, line["key"], transcript, misspelled_roles)
        if misspelled_roles or found_target is None:
            reason_kind = reason_kind or f"{' and '.join(misspelled_roles)} misspelled by {model}"
            reason = reason or f"{model} writes {transcript['transcript']!r} for {line['text']!r}"
            continue
        cue_columns, target_rows = cue_and_target_positions(
            transcript["tokens"], found_cues, found_target
        )
        model_entry = {
            "model": model,
            "transcript": transcript["transcript"],
            "wer": transcript["wer"],
        }
        example["models"].append(
            {**model_entry, "cue_columns": cue_columns, "target_rows": target_rows}
        )
    return reason_kind, reason


def balance_rules(
    study: Path, candidates: Iterable[PairCandidate], balance: Sequence[str]
) -> tuple[dict[str, tuple[str, ...]], dict[str, int]]:
    """By template, the columns to balance (those of the template, and those requested for all), and
    how many readings it gives."""
    mined_templates = {
        template["name"]: template
        for template in read_stage_options(study / PAIRS).get("templates", ())
    }
    templates = {
        name: mined_templates.get(name, {})
        for name in (*mined_templates, *(candidate.template for candidate in candidates))
    }
    columns_by_template = {
        name: tuple(dict.fromkeys((*template.get("balance", ()), *balance)))
        for name, template in templates.items()
    }
    return columns_by_template, {
        name: 2 if template.get("noun") else 1 for name, template in templates.items()
    }
