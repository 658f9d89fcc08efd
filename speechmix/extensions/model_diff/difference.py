"""`ModelDifference`: what changed between two versions of a model, and where.

Compare two versions of one model: which words changed, and which layer changed them.

In: models A and B of one architecture (before and after quantisation or fine-tuning, with and without LoRA, or copies of two
engines), and clips. Out: a `ModelDifference`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from tqdm import tqdm

from ...errors import InputError, SpeechmixError
from ...evaluation.statistics.groups import assign_item_groups, build_item_table
from ...evaluation.statistics.intervals import MIN_GROUPS, bootstrap_interval
from ...files.text_files import write_table
from ...inputs.clips.clip import Clip
from .changed_words import find_changes
from .layer_effects import ClipEffects, measure_layer_effects
from .weight_exchange import check_comparable, find_changed_groups, list_groups

if TYPE_CHECKING:
    from ...adapters.model import Model
    from .changed_words import ClipDecisions
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


def diff(
    model_a: Model,
    model_b: Model,
    clips: Clip | Sequence[Clip],
    *,
    group: str | None = None,
    progress: bool = False,
) -> ModelDifference:
    """Find the words that two versions of a model write differently, and the layer and head that changed them.

    Parameters
    ----------
    model_a, model_b : Model
        Of one architecture: a Whisper or another encoder-decoder recogniser, or a CTC model. A is the reference (the float
        model, the model before fine-tuning), B the changed model.
    clips : Clip or sequence of Clip
        Recordings; their own texts are not used.
    group : str, optional
        Column of the clips' `meta` whose values are the groups of intervals; by default speakers, where there are several,
        else clips.
    progress : bool
        Show a bar.

    Returns
    -------
    ModelDifference

    Raises
    ------
    InputError
        If the models are no versions of one architecture, or no clip can be transcribed.

    Notes
    -----
    A changed word is decided where A, given what B wrote before, would write another token. Its *margin* is log p(A's token)
    - log p(B's token), in nats. Each part of B (a layer of a stack, what enters and what leaves it) gets A's weights, one at a
    time: the *effect* of a part is how far the margin rises; a positive margin turns the word back. Intervals are 95 %, from
    a bootstrap over groups of clips, at least five.

    Examples
    --------
    >>> import speechmix
    >>> from speechmix.inputs import bundled
    >>> model = speechmix.load(bundled.models()["tiny-french-ctc"])
    >>> difference = speechmix.diff(model, model, list(bundled.clips())[:2])    # synthetic
    >>> difference.named is None, len(difference.changes)
    (True, 0)
    """
    clips = [clips] if isinstance(clips, Clip) else list(clips)
    if not clips:
        raise InputError("diff needs recordings: give clips")
    check_comparable(model_a, model_b)
    groups = list_groups(model_b)
    changed = find_changed_groups(model_a, model_b, groups)
    table = build_item_table(clips)
    labels = assign_item_groups(table, clips, group)[0]
    decisions: list[ClipDecisions] = []
    effects: list[ClipEffects] = []
    clip_groups: list[str] = []
    skipped: list[tuple[str, str]] = []
    with model_a.unchanged(), model_b.unchanged():
        for clip, label in tqdm(list(zip(clips, labels, strict=True)), disable=not progress):
            try:
                of_clip = find_changes(model_a, model_b, clip)
                effects.append(measure_layer_effects(model_a, model_b, of_clip, groups, changed))
            except SpeechmixError as error:
                skipped.append((clip.name, str(error)))
                continue
            decisions.append(of_clip)
            clip_groups.append(str(label))
    if not decisions:
        raise InputError(f"no clip could be compared; the first: {skipped[0][1]}")
    return ModelDifference(
        model_a.name,
        model_b.name,
        tuple(groups),
        frozenset(changed),
        tuple(decisions),
        tuple(effects),
        tuple(pd.factorize(pd.Series(clip_groups))[0].tolist()),
        tuple(skipped),
        {"weights_a": model_a.fingerprint, "weights_b": model_b.fingerprint},
    )
