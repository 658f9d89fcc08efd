"""Counts of what each stage of the study kept and dropped.

In: a study folder and the choices of the selection. Out: tables (counts, models, examples, dropped)
and a figure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from ...files.json_files import JsonObject
from ...files.text_files import read_csv, write_csv
from ...inputs.words.transcript_accuracy import character_error_rate
from ...runs.journal.stage_lines import lines
from .cue_number_pairs import describe_confounded_numbers
from .study_folder import PAIRS, WORDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KEPT_OUTCOME = "kept"


class SelectionCounts:
    """Counts of one selection, beginning with what the stages before it dropped.

    Models are in the order in which they transcribe.
    """

    def __init__(self, study: Path, models: list[str]):
        self.outcome_counts: dict[tuple[str, str, str], int] = Counter()
        self.dropped_rows: list[tuple[str, str, str, str]] = []
        self.example_counts: Counter[tuple[str, ...]] = Counter()
        self.draw_rows: list[JsonObject] = []
        self.model_counts: dict[str, Counter[str]] = {model: Counter() for model in models}
        self.character_error_rates: dict[str, float] = dict.fromkeys(
            models, 0.0
        )  # summed over all transcribed clips
        self._last_clip_by_model: dict[str, str] = {}
        unaligned_keys: set[str] = set()
        for line in lines(study / WORDS):
            if "why" in line:
                self._count_dropped("align", "clips", line["key"], line["why"], line["reason"])
                unaligned_keys.add(line["key"])
            else:
                self.outcome_counts["align", "clips", _KEPT_OUTCOME] += 1
        for line in lines(study / PAIRS):
            for candidate in line.get("dropped_pairs", ()):
                self.outcome_counts["mine", "pairs", _generalize_reason(candidate["reason"])] += 1
            if "why" in line:
                # Sentences without a pair are the rule: they are counted, and listed in
                # pairs.jsonl.
                self._count_dropped(
                    "mine",
                    "clips",
                    line["key"],
                    line["why"],
                    line["reason"],
                    listed=line["why"] != "no pair",
                )
                continue
            self.outcome_counts["mine", "clips", _KEPT_OUTCOME] += 1
            self.outcome_counts["mine", "pairs", _KEPT_OUTCOME] += len(line["pairs"])
            if line["key"] in unaligned_keys:
                self.outcome_counts["select", "pairs", "words not placed"] += len(line["pairs"])

    def _count_dropped(
        self, stage: str, unit: str, name: str, why: str, reason: str, *, listed: bool = True
    ) -> None:
        self.outcome_counts[stage, unit, why] += 1
        if listed:
            self.dropped_rows.append((stage, name, why, reason))

    def count_dropped_pair(self, name: str, why: str, reason: str) -> None:
        self._count_dropped("select", "pairs", name, why, reason)

    def count_transcript_errors(self, line: JsonObject, transcripts: dict[str, JsonObject]) -> None:
        """Note the errors of all models in one transcribed clip, whether or not a pair of it is
        chosen."""
        for model, transcript in transcripts.items():
            rate = character_error_rate(line["text"], transcript["transcript"])
            self.model_counts[model].update(
                all_clips=1, all_errors=transcript["errors"], all_words=transcript["words"]
            )
            self.character_error_rates[model] += rate

    def count_spelling(
        self, model: str, clip: str, transcript: JsonObject, wrong: list[str]
    ) -> None:
        """Note whether a model spelled a pair right, and, once a clip, its errors."""
        counter = self.model_counts[model]
        if self._last_clip_by_model.get(model) != clip:
            self._last_clip_by_model[model] = clip
            counter.update(clips=1, errors=transcript["errors"], words=transcript["words"])
        counter.update(
            pairs=1,
            cue_right="cue" not in wrong,
            target_right="target" not in wrong,
            both_right=not wrong,
        )

    def count_example(self, row: JsonObject) -> None:
        self.outcome_counts["select", "pairs", _KEPT_OUTCOME] += 1
        key = (row["template"], row["number"] or "", (row["cue_word"] or "").lower())
        self.example_counts[(*key, str(row["audible"]), str(row["liaison"]))] += 1

    def stage_table(self) -> pd.DataFrame:
        """stage, unit (clips or pairs), outcome ("kept", or why not), count; most frequent reasons
        first."""
        order = ("mine", "align", "select")
        rows = sorted(
            self.outcome_counts.items(),
            key=lambda item: (
                order.index(item[0][0]),
                item[0][1],
                item[0][2] != _KEPT_OUTCOME,
                -item[1],
                item[0][2],
            ),
        )
        return pd.DataFrame(
            [(*key, count) for key, count in rows], columns=["stage", "unit", "outcome", "count"]
        )

    def model_table(self) -> pd.DataFrame:
        """model; clips with pairs that were compared, word error rate, pairs, and the share of them
        (%) whose cue, target, both are right; all clips that were transcribed, and their word and
        mean character error rate."""
        share_columns = ("cue_right", "target_right", "both_right")
        overall_columns = (
            "transcribed_clips",
            "transcribed_wer_percent",
            "transcribed_cer_percent",
        )
        rows = []
        for model, counter in self.model_counts.items():
            wer = round(100 * counter["errors"] / max(1, counter["words"]), 2)
            correct_shares = {
                name: round(100 * counter[name] / max(1, counter["pairs"]), 1)
                for name in share_columns
            }
            all_wer = round(100 * counter["all_errors"] / max(1, counter["all_words"]), 2)
            all_cer = round(
                100 * self.character_error_rates[model] / max(1, counter["all_clips"]), 2
            )
            overall_values = dict(
                zip(overall_columns, (counter["all_clips"], all_wer, all_cer), strict=True)
            )
            row = {
                "model": model,
                "clips": counter["clips"],
                "wer_percent": wer,
                "pairs": counter["pairs"],
                **correct_shares,
                **overall_values,
            }
            rows.append(row)
        return pd.DataFrame(
            rows,
            columns=["model", "clips", "wer_percent", "pairs", *share_columns, *overall_columns],
        )

    def example_table(self) -> pd.DataFrame:
        """template, number, cue, audible, liaison, count."""
        rows = sorted((*key, count) for key, count in self.example_counts.items())
        return pd.DataFrame(
            rows, columns=["template", "number", "cue", "audible", "liaison", "count"]
        )


def write_counts(folder: Path, counts: SelectionCounts) -> None:
    """Write the tables and the figure into the folder of a data set."""
    write_csv(counts.stage_table(), folder / "counts.csv")
    write_csv(counts.model_table(), folder / "models.csv")
    write_csv(counts.example_table(), folder / "examples.csv")
    if counts.draw_rows:
        write_csv(pd.DataFrame(counts.draw_rows), folder / "draws.csv")
    write_csv(
        pd.DataFrame(counts.dropped_rows, columns=["stage", "name", "why", "reason"]),
        folder / "dropped.csv",
    )
    from ...reporting.plots.figure_style import write_figure

    write_figure(draw_count_figure(counts.stage_table()), folder / "counts.png", dpi=150)


def draw_count_figure(table: pd.DataFrame) -> Figure:
    """Draw what each stage kept and why it dropped the rest.

    The table comes from `SelectionCounts.stage_table`.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    groups = list(table.groupby(["stage", "unit"], sort=False))
    heights = [len(rows) for _, rows in groups] or [1]
    figure = Figure(
        figsize=(8.5, 0.9 + 0.27 * sum(heights) + 0.75 * len(heights)),
        layout="constrained",
        facecolor="white",
    )
    axes_list = figure.subplots(
        len(heights), 1, squeeze=False, height_ratios=[height + 0.6 for height in heights]
    )[:, 0]
    for axes, ((stage, unit), rows) in zip(axes_list, groups, strict=False):
        labels = [label if len(label) <= 60 else label[:57] + "..." for label in rows.outcome]
        colours = ["#2a6f97" if outcome == _KEPT_OUTCOME else "#c9ced6" for outcome in rows.outcome]
        bars = axes.barh(range(len(rows)), rows["count"], color=colours)
        axes.bar_label(bars, labels=[f"{count:,}" for count in rows["count"]], padding=3, size=8)
        axes.set_yticks(range(len(rows)), labels, size=8, parse_math=False)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.margins(x=0.12)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        axes.tick_params(axis="x", labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(f"{stage}: {unit}", size=9, loc="left", parse_math=False)
    return figure


def format_stage_counts(folder: Path) -> str:
    """Tables of a data set's folder as lines to print."""
    sections = defaultdict(str)
    for name in ("counts", "models", "examples"):
        table = read_csv(folder / f"{name}.csv")
        sections[name] = table.to_string(index=False) if len(table) else f"no {name}"
    if (folder / "draws.csv").is_file():
        draws = read_csv(folder / "draws.csv").fillna({"value": ""})
        sections["draws"] = draws.to_string(index=False)
        incomplete_draws = draws[draws["drawn"] < draws["asked"]]
        sections["few"] = "\n".join(
            f"fewer than asked for: {template}{f' {value}' if value else ''}: all {drawn_count} there "
            f"are, of {requested_count}"
            for template, value, drawn_count, requested_count in incomplete_draws[
                ["template", "value", "drawn", "asked"]
            ].itertuples(index=False)
        )
    examples = read_csv(folder / "examples.csv")
    if len(examples):
        sections["confounded"] = "\n".join(describe_confounded_numbers(examples))
    return "\n\n".join(section for section in sections.values() if section)


def read_selection_metadata(folder: Path) -> JsonObject:
    """Return what the page of a run says of how its clips were chosen.

    The folder is a data set that `select_examples` wrote. "stages" are rows of counts.csv, [stage,
    unit, outcome, count]; "models" are rows of models.csv by column, with error rates of all
    transcribed clips. Empty for a data set without these tables.
    """
    paths = [Path(folder) / f"{name}.csv" for name in ("counts", "models")]
    if not all(path.is_file() for path in paths):
        return {}
    stages, models = map(read_csv, paths)
    rows = (
        stages[["stage", "unit", "outcome"]]
        .astype(str)
        .assign(count=stages["count"].astype(int))
        .to_numpy()
        .tolist()
    )
    numbers = models.drop(columns="model").astype(float)
    return {
        "stages": rows,
        "models": numbers.assign(model=models["model"].astype(str)).to_dict("records"),
    }


def _generalize_reason(reason: str) -> str:
    """Reason without the word it is about."""
    return reason if "'" not in reason else reason.split("'")[0] + "..." + reason.rsplit("'", 1)[-1]
