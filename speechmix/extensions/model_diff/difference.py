"""`ModelDifference`: what changed between two versions of a model, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ...errors import InputError
from ...evaluation.statistics.intervals import MIN_GROUPS, bootstrap_interval
from ...files.text_files import write_table

if TYPE_CHECKING:
    from .changed_words import ClipDecisions
    from .layer_effects import ClipEffects
    from .weight_exchange import WeightGroup

ENDINGS = (".html", ".csv", ".parquet")
_NO_DIVERGENCE = 1e-9  # nats for each token: rounding


@dataclass(frozen=True, eq=False)
class ModelDifference:
    """Two versions of a model, compared on clips.

    Parameters
    ----------
    model_a, model_b : str
        A is the reference.
    groups : tuple of WeightGroup
        Parts of the model, in the order of computation.
    changed_groups : frozenset of WeightGroup
        Those whose weights differ.
    decisions : tuple of ClipDecisions
        One for each clip.
    effects : tuple of ClipEffects
        One for each clip.
    clip_groups : tuple of int
        Group of each clip, over which intervals are drawn.
    skipped : tuple of (str, str)
        Clips that were not compared, with the reason.
    provenance : dict
    """

    model_a: str
    model_b: str
    groups: tuple[WeightGroup, ...] = field(repr=False)
    changed_groups: frozenset[WeightGroup] = field(repr=False)
    decisions: tuple[ClipDecisions, ...] = field(repr=False)
    effects: tuple[ClipEffects, ...] = field(repr=False)
    clip_groups: tuple[int, ...] = field(repr=False)
    skipped: tuple[tuple[str, str], ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"A: {self.model_a}\nB: {self.model_b}", *self.findings]
        if len(self.changes):
            columns = ["clip", "A", "B", "first_layer", "layer", "effect", "head", "head_effect"]
            lines += ["", self.changes[columns].round(2).to_string(index=False, na_rep="")]
        return "\n".join([*lines, "", self.layers.round(3).to_string(index=False, na_rep="")])

    @property
    def changes(self) -> pd.DataFrame:
        """A row for each decision that A makes differently.

        Columns: clip, word (index in B's text), A, B (words), spelling (whether they differ in capitals or punctuation alone),
        margin_A, margin_B (log p(A's token) - log p(B's), nats), first_layer (part from which on A's states, patched into B,
        turn the word back), layer (part with the largest effect alone), effect (nats), turns_back (whether this part alone
        does), parts_alone (how many parts do), head (the head, or "rest", with the largest effect in it), head_effect.
        """
        rows = []
        for decisions, effects in zip(self.decisions, self.effects, strict=True):
            for index, change in enumerate(decisions.changes):
                first, largest = effects.first_layer(index), int(effects.effects[:, index].argmax())
                heads = {
                    part: values[index] - effects.intact_b[index]
                    for (group, part), values in effects.heads.items()
                    if group == largest
                }
                head = max(heads, key=lambda part: heads[part], default="")
                rows.append(
                    {
                        "clip": decisions.name,
                        "word": change.word_index,
                        "A": change.word_a,
                        "B": change.word_b,
                        "spelling": change.is_spelling,
                        "margin_A": effects.intact_a[index],
                        "margin_B": effects.intact_b[index],
                        "first_layer": "" if first is None else self.groups[first].label,
                        "layer": self.groups[largest].label,
                        "effect": effects.effects[largest, index],
                        "turns_back": bool(effects.alone[largest, index] > 0),
                        "parts_alone": int((effects.alone[:, index] > 0).sum()),
                        "head": head,
                        "head_effect": heads.get(head, np.nan),
                    }
                )
        columns = ["clip", "word", "A", "B", "spelling", "margin_A", "margin_B", "first_layer"]
        columns += ["layer", "effect", "turns_back", "parts_alone", "head", "head_effect"]
        return pd.DataFrame(rows, columns=columns)

    @property
    def layers(self) -> pd.DataFrame:
        """A row for each part of the model, in the order of computation.

        Columns: part, changed (whether its weights differ), turned (words that it turns back alone), effect (mean
        over changed words, nats) with low and high, divergence (how far the exchange lowers the divergence of B's
        output from A's, nats for each token) with its interval, local_error (of B's layer on A's states, relative to
        what A's layer adds), state_error (of the states behind it in B's own run, relative to A's).
        """
        margins = np.stack([e.effects[:, :-1].sum(axis=1) for e in self.effects], axis=1)
        counts = np.array([len(d.changes) for d in self.decisions])
        divergences = np.stack([e.effects[:, -1] for e in self.effects], axis=1)
        effect, low, high = self._mean_by_group(margins, counts)
        divergence, *divergence_limits = self._mean_by_group(divergences, np.ones(len(counts)))
        turned = sum((e.alone[:, :-1] > 0).sum(axis=1) for e in self.effects)
        return pd.DataFrame(
            {
                "part": [group.label for group in self.groups],
                "changed": [group in self.changed_groups for group in self.groups],
                "turned": turned,
                "effect": effect,
                "low": low,
                "high": high,
                "divergence": divergence,
                "divergence_low": divergence_limits[0],
                "divergence_high": divergence_limits[1],
                "local_error": np.mean([e.local_error for e in self.effects], axis=0),
                "state_error": np.mean([e.state_error for e in self.effects], axis=0),
            }
        )

    def _mean_by_group(
        self, sums: np.ndarray, counts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean [parts] of clips' sums [parts, clips], with the limits of its interval over groups that have any."""
        numbers = np.array(self.clip_groups)
        is_member = numbers == np.unique(numbers)[:, None]  # [groups, clips]
        group_counts = is_member @ counts
        has_any = group_counts > 0
        group_sums, group_counts = sums @ is_member[has_any].T, group_counts[has_any]
        total = group_counts.sum()
        mean = group_sums.sum(axis=1) / total if total else np.full(len(sums), np.nan)
        return (mean, *bootstrap_interval(group_sums, group_counts))

    @property
    def named(self) -> WeightGroup | None:
        """The part with the largest mean effect on the changed words; without any, that lowers the divergence most.

        None if the models say the same, or the interval includes zero. With fewer than five groups there is no interval, and
        words alone name a part.
        """
        layers = self.layers
        has_words = bool(len(self.changes))
        name, low = ("effect", "low") if has_words else ("divergence", "divergence_low")
        if layers["changed"].sum() == 0 or not (layers[name] > _NO_DIVERGENCE).any():
            return None
        row = int(layers[name].argmax())
        limit = float(layers[low].iloc[row])
        is_supported = has_words if np.isnan(limit) else limit > 0
        return self.groups[row] if is_supported else None

    @property
    def findings(self) -> list[str]:
        """What was found, in sentences."""
        from ...reporting.pages.result_sentences import format_count

        changes, layers = self.changes, self.layers
        count, n_clips = sum(d.changed_count for d in self.decisions), len(self.decisions)
        changed_clips = sum(d.changed_count > 0 for d in self.decisions)
        if not self.changed_groups:
            return [f"The weights are equal; {count} words changed in {n_clips} clips."]
        sentences = [
            f"{format_count(count, 'word')} changed in {changed_clips} of {format_count(n_clips, 'clip')}. B makes "
            f"{format_count(len(changes), 'decision')} differently"
            + (f" ({changes['spelling'].sum()} in spelling alone)" if len(changes) else "")
            + "; other changed words follow from the text before them."
        ]
        if self.named is None:
            return [
                *sentences,
                "No part of the model is named: no effect is above zero with its interval.",
            ]
        row = layers.iloc[self.groups.index(self.named)]
        if not len(changes):
            interval = _interval(row["divergence_low"], row["divergence_high"])
            return [
                *sentences,
                f"{row['part']} moves the output most: with A's weights there, the divergence falls by "
                f"{row['divergence']:.4f} nats for each token{interval}.",
            ]
        sentences.append(
            f"{row['part']} changes the words most: with A's weights there alone, A's words gain "
            f"{row['effect']:.2f} nats{_interval(row['low'], row['high'])}, and {row['turned']} of "
            f"{len(changes)} are turned back."
        )
        if unturned := int((~changes["turns_back"]).sum()):
            sentences.append(
                f"{unturned} are turned back by no single part: errors of several add up."
            )
        return sentences

    def save(self, path: str | PathLike[str]) -> Path:
        """Write a page (.html), or the table of changed words and that of parts (.csv, .parquet; the second as
        NAME_layers).

        Raises
        ------
        InputError
            For another ending.
        """
        path = Path(path)
        ending = path.suffix.lower()
        if ending not in ENDINGS:
            raise InputError(f"expected one of {', '.join(ENDINGS)}, found {str(path)!r}")
        if ending == ".html":
            from .difference_page import write_difference_page

            return write_difference_page(self, path)
        write_table(self.changes, path)
        write_table(self.layers, path.with_name(f"{path.stem}_layers{path.suffix}"))
        return path


def _interval(low: float, high: float) -> str:
    if np.isnan(low):
        return f" (no interval: fewer than {MIN_GROUPS} groups of clips)"
    return f" [{low:.2f}, {high:.2f}]" if high >= 0.01 else f" [{low:.4f}, {high:.4f}]"
