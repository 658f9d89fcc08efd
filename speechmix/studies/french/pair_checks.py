"""Why a pair is no example: what is wrong with it before models spell it, and how they spell it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ...files.json_files import Json, JsonObject
from ...runs.journal.stage_lines import options_of
from .example_rows import cue_places
from .sampling import PairCandidate
from .stage_counts import SelectionCounts
from .study_folder import (
    PAIRS,
)
from .transcripts import TranscriptComparison, cue_and_target_positions


def reason_against(
    example: Mapping[str, Json],
    pair: Mapping[str, Json],
    audible_only: bool,
    keep_doubtful: bool,
    doubts: list[str],
) -> tuple[str, str]:
    """Kind of reason and reason why a pair is no example, before anyone was asked to spell it;
    empty if it may be one."""
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
    compared: dict[str, TranscriptComparison],
    counts: SelectionCounts | None,
) -> tuple[str, str]:
    """Note what each model wrote and where; say which model did not spell cue or target right."""
    why = reason = ""
    for model, check_spelling in transcripts.items():
        cues = [
            place for place in map(compared[model].place_of, cue_places(pair)) if place is not None
        ]
        target = compared[model].place_of(tuple(pair["target"]))
        wrong = ["cue"] * (len(cues) < len(example["cue_indices"])) + ["target"] * (target is None)
        if counts is not None:
            counts.judge(model, line["key"], check_spelling, wrong)
        if wrong or target is None:
            why = why or f"{' and '.join(wrong)} misspelled by {model}"
            reason = (
                reason or f"{model} writes {check_spelling['transcript']!r} for {line['text']!r}"
            )
            continue
        columns, rows = cue_and_target_positions(check_spelling["tokens"], cues, target)
        judged = {
            "model": model,
            "transcript": check_spelling["transcript"],
            "wer": check_spelling["wer"],
        }
        example["models"].append({**judged, "cue_columns": columns, "target_rows": rows})
    return why, reason


def balance_rules(
    study: Path, candidates: Iterable[PairCandidate], balance: Sequence[str]
) -> tuple[dict[str, tuple[str, ...]], dict[str, int]]:
    """By template, the columns to balance (its own, and those asked for of all), and how many
    readings it gives."""
    mined = {
        template["name"]: template for template in options_of(study / PAIRS).get("templates", ())
    }
    templates = {
        name: mined.get(name, {})
        for name in (*mined, *(candidate.template for candidate in candidates))
    }
    balances = {
        name: tuple(dict.fromkeys((*own.get("balance", ()), *balance)))
        for name, own in templates.items()
    }
    return balances, {name: 2 if own.get("noun") else 1 for name, own in templates.items()}
