"""Where in the decoder the sound reaches the answer: layers, heads, and what removing heads does to sound and text.

In: a model and items. Out: `SoundRoutes`. With m(x) the log-odds of the right answer with the sound x, the effect of
the sound is m(own) - m(other), from input to output. Each removal is made in both runs; its effect is what is missing:

    effect = [m(own) - m(other)] - [m(own) - m(other)] with the removal

So a preference for one answer that has nothing to do with the sound cancels. Removals: the value vectors at all
positions of the sound are zeroed, in a window of layers or for one head (behind an encoder: in cross-attention). Patch:
the states of these positions are those of the other sound, from a layer on. Heads are named by a sign-flip test
over groups of items, corrected for all heads, and only if accuracy falls with other sounds: the weights of an untrained
model, too, prefer one of two kinds of sound in all items alike, which no test over items can tell from use.

What sound and text still do to the answer when the outputs of some heads of the decoder are zero.

In: questions and heads. Out: a table of both effects without these heads, and without as many random ones.

Effects of removals in the decoder for one item: by window of layers, by head, and by patched states.

In: a model, an item, another sound. Out: rows with the part of m(own) - m(other), the difference of the log-odds of the
right answer, that each removal takes away (see `sound_routes.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from tqdm.auto import tqdm

from ...adapters.patching.patched_runs import run_patches
from ...adapters.patching.patches import Patch, silence_heads
from ...adapters.transformers_types import ModelOutput
from ...errors import InputError, SpeechmixError
from ...evaluation.statistics.groups import choose_evenly
from ...evaluation.statistics.intervals import FEWEST_GROUPS, LEVEL, corrected_p, mean_interval
from ...interventions.value_knock_out import layer_windows
from ...reporting.pages.table_format import stack_phrase
from ..patching.patching import capture_states, match_positions
from .items import ListeningItem, choose_donors, group_items
from .questions import OTHER, OWN, Question

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip

INPUT, KNOCK_OUT, PATCH = "input", "knock-out", "patch"


def item_routes(
    model: Model, item: ListeningItem, donor: Clip, *, window: int = 1
) -> list[dict[str, Any]]:
    """Measure the effects of all removals for one item.

    Returns
    -------
    list of dict
        removal, stack, layer (the first), layer_count, head (NaN for all heads), effect (nats); of the row "input" also
        needs (1: right with its own sound only, -1: with the other only, 0).

    Raises
    ------
    InputError
        If its options first differ at different positions.
    """
    question = Question(model, item, donor)
    if len(question.reading.contexts) > 1:
        raise InputError(
            f"{item.name}: its options first differ at different positions: they cannot be compared in one run"
        )
    inputs = {sound: question.inputs(sound) for sound in (OWN, OTHER)}
    positions = {sound: question.sound_positions(sound, fed) for sound, fed in inputs.items()}
    stack = question.stack
    count = len(model.stacks[stack])
    layers = layer_windows(count, 1)
    # Windows that fit, the whole stack, and single heads.
    windows = [members for members in layer_windows(count, window) if len(members) == window]
    knock_outs: list[tuple[range, int | None]] = [
        (members, None) for members in dict.fromkeys([*windows, range(count)])
    ]
    knock_outs += product(layers, range(model.stacks[stack].heads))
    clean, removed = {}, {}
    for sound in (OWN, OTHER):
        patches = [
            Patch(stack, members, positions[sound], heads=None if head is None else (head,))
            for members, head in knock_outs
        ]
        clean[sound], removed[sound] = _run(question, inputs[sound], patches)
    total, needs = (clean[OWN] - clean[OTHER]).tolist()
    effects = total - (removed[OWN] - removed[OTHER])
    patches = _exchange_states(question, inputs[OTHER], positions)
    patched = clean[OWN][0] - _run(question, inputs[OWN], patches)[1]
    places = [(KNOCK_OUT, *knock_out) for knock_out in knock_outs]
    places += [(PATCH, layer, None) for layer in layers]
    rows: list[dict[str, Any]] = [
        {"removal": INPUT, "stack": INPUT, "layer": 0, "layer_count": 0, "head": np.nan}
        | {"effect": total, "needs": needs}
    ]
    for (removal, members, head), effect in zip(places, [*effects, *patched], strict=True):
        place = {"removal": removal, "stack": stack, "layer": members.start}
        number = np.nan if head is None else float(head)
        place |= {"layer_count": len(members), "head": number, "effect": float(effect)}
        rows.append(place)
    return rows


def _run(
    question: Question, inputs: Mapping[str, Tensor], patches: Sequence[Patch]
) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds of the right answer of the intact run, with whether it is preferred, and log-odds with each patch."""
    model, reading = question.model, question.reading
    [context] = reading.contexts

    def read(output: ModelOutput) -> Tensor:
        log_probs = [question.read_rows(output, inputs, context)]
        return torch.stack(
            [reading.log_odds(log_probs), reading.is_right(log_probs).double()], dim=1
        )

    with model.in_use(model.state_dtype):
        fed = question.with_answer(inputs, context)
        clean, patched = run_patches(model, fed, patches, read)
    return clean.numpy(), patched[:, 0].numpy()


def _exchange_states(
    question: Question,
    other: Mapping[str, Tensor],
    positions: Mapping[str, Sequence[int]],
) -> list[Patch]:
    """Put in the states of the other sound, from each layer on; behind an encoder its values in each layer of
    cross-attention."""
    model, stack, [context] = question.model, question.stack, question.reading.contexts
    what = "values" if stack == "cross" else "states"
    states = capture_states(model, question.with_answer(other, context), what)
    donor_positions = match_positions(len(positions[OWN]), positions[OTHER])
    patches = []
    for layer in range(len(model.stacks[stack])):
        new = states[stack, layer][..., donor_positions, :]
        replacement: dict[str, Any] = (
            {"values": {layer: new}} if what == "values" else {"states": new}
        )
        patches.append(Patch(stack, range(layer, layer + 1), positions[OWN], **replacement))
    return patches


_RANDOM_SETS = 10
EFFECTS = ("sound_effect", "text_effect")


def remove_heads(
    questions: Sequence[Question],
    groups: Mapping[str, str],
    heads: Sequence[tuple[int, int]],
    *,
    seed: int = 0,
    progress: bool = False,
) -> pd.DataFrame:
    """Set the output of heads to zero, and measure the effects of sound and text.

    Parameters
    ----------
    questions : sequence of Question
        With another sound.
    groups : mapping of str to str
        Group of each item.
    heads : sequence of (layer, head)
        Of the stack in which the decoder reads the sound.
    seed : int
        Of ten random sets of as many other heads.
    progress : bool

    Returns
    -------
    DataFrame
        heads ("none", "named", "random"); sound_effect: log-odds of the right answer with its own sound minus with
        another; text_effect: with the prompt (or hint) minus without, NaN if there is none (nats, means over groups);
        their low and high: 95 % intervals, of "random" the range of the sets.
    """
    stack = questions[0].model.stacks[questions[0].stack]
    others = [head for head in product(range(len(stack)), range(stack.heads)) if head not in heads]
    rng = np.random.default_rng(seed)
    sets: list[Sequence[tuple[int, int]]] = [[]]
    if heads and others:
        draws = [rng.permutation(len(others))[: len(heads)] for _ in range(_RANDOM_SETS)]
        sets += [heads, *([others[index] for index in draw] for draw in draws)]
    effects = []
    for question in tqdm(questions, unit="item", desc="removal", disable=not progress):
        inputs = question.inputs(OWN)
        conditions = [inputs, question.inputs(OTHER), question.remove_prompt(OWN, inputs)]
        own_odds, other_odds, no_prompt_odds = (
            _read_odds(question, sets, prepared) for prepared in conditions
        )
        effects.append([own_odds - other_odds, own_odds - no_prompt_odds])
    names = [groups[question.item.name] for question in questions]
    intact, *removed = (
        pd.DataFrame(rows, columns=EFFECTS).groupby(names).mean()
        for rows in np.array(effects).transpose(2, 0, 1)  # [sets, items, effects]
    )
    table = [_summarize("none", intact, mean_interval)]
    if removed:
        by_set = pd.DataFrame([means.mean() for means in removed[1:]])
        table.append(_summarize("named", removed[0], mean_interval))
        table.append(_summarize("random", by_set, lambda values: (values.min(), values.max())))
    return pd.DataFrame(table)


def _read_odds(
    question: Question,
    sets: Sequence[Sequence[tuple[int, int]]],
    inputs: Mapping[str, Tensor] | None,
) -> np.ndarray:
    """Log-odds of the right answer without each set of heads, [sets]; NaN without inputs."""
    if inputs is None:
        return np.full(len(sets), np.nan)
    with silence_heads(question.model, sets, question.stack):
        log_probs = question.log_probabilities(inputs, runs=len(sets))
    odds: np.ndarray = question.reading.log_odds(log_probs).numpy()
    return odds


def _summarize(
    name: str, values: pd.DataFrame, find_limits: Callable[[pd.Series], tuple[float, float]]
) -> dict[str, Any]:
    """Mean and limits of each effect."""
    row: dict[str, Any] = {"heads": name}
    for effect in EFFECTS:
        low, high = find_limits(values[effect])
        row |= {effect: values[effect].mean(), f"{effect}_low": low, f"{effect}_high": high}
    return row


MAX_ITEMS = 48
SMALLEST_SHARE = 0.05  # of the sound's effect, below which no head is named
_ALPHA = 1 - LEVEL


@dataclass(frozen=True, eq=False)
class SoundRoutes:
    """Where the sound reaches the answer.

    Parameters
    ----------
    layers : DataFrame
        removal ("input": the whole sound is exchanged; "knock-out"; "patch"), stack, layer (the first), layer_count,
        effect (nats, mean over groups), low, high (95 % for all rows of a removal together), share (of the effect of
        the input), groups.
    heads : DataFrame
        A row for each head: stack, layer, head, effect, share, p (corrected for all heads), named (p at most .05,
        and at least 5 % of the effect of the input; none unless accuracy falls with other sounds). Largest
        effect first.
    removal : DataFrame
        What is left when the outputs of the named heads are zero, and of as many random ones: heads ("none", "named",
        "random"), sound_effect, text_effect (nats), their low and high; for "random" the range over ten sets.
    skipped : tuple of (str, str)
    """

    layers: pd.DataFrame
    heads: pd.DataFrame
    removal: pd.DataFrame
    skipped: tuple[tuple[str, str], ...] = ()

    @property
    def named_heads(self) -> list[tuple[int, int]]:
        """Layer and head of the audio-specialist heads, largest effect first."""
        named = self.heads[self.heads["named"]]
        return list(zip(named["layer"].tolist(), named["head"].tolist(), strict=True))

    def summarize(self, verdict: str) -> str:
        """Say where the sound reaches the answer, and what the removals cannot show.

        Parameters
        ----------
        verdict : str
            Of `listening_verdict`: from input to output.
        """
        total = self.layers[self.layers["removal"] == INPUT].iloc[0]
        sentence = (
            f"Exchanging the sound changes the log-odds of the answer by {total['effect']:.2f} nats"
        )
        if np.isnan(total["low"]):
            return (
                f"{sentence}; nothing is claimed, for there are fewer than {FEWEST_GROUPS} groups."
            )
        if total["low"] <= 0:
            return f"{sentence}; this is not shown to be above zero, so no layer or head is named."
        lines = [f"{sentence} [{total['low']:.2f}, {total['high']:.2f}]."]
        knock_outs = self.layers[self.layers["removal"] == KNOCK_OUT]
        windows = knock_outs[knock_outs["layer_count"] < knock_outs["layer_count"].max()]
        above_zero = windows[windows["low"] > 0].sort_values("effect", ascending=False)
        if len(above_zero):
            best = above_zero.iloc[0]
            lines.append(
                f"Without the sound's values in one layer, {len(above_zero)} of {len(windows)} layers show an effect; it is "
                f"largest in layer {best['layer']} of {stack_phrase(best['stack'])}: {best['effect']:.2f} nats "
                f"[{best['low']:.2f}, {best['high']:.2f}]."
            )
        else:
            lines.append(
                "No removal in a single window of layers shows an effect. This does not mean that the model does not "
                f"listen: from input to output, it {verdict}. The sound may be read in several layers, or its evidence "
                "may have moved to other positions before."
            )
        names = ", ".join(f"{layer}.{head}" for layer, head in self.named_heads[:5])
        heads = f"Heads that carry the sound (layer.head): {names}."
        lines.append(heads if names else "No single head is shown to carry the sound.")
        return " ".join(lines)


def sound_routes(
    model: Model,
    items: Sequence[ListeningItem],
    *,
    window: int = 1,
    max_items: int = MAX_ITEMS,
    group: str | None = None,
    seed: int = 0,
    progress: bool = False,
    rows_by_item: Mapping[str, list[dict[str, Any]]] | None = None,
) -> SoundRoutes:
    """Find the layers and heads of the decoder that carry the sound to the answer.

    Parameters
    ----------
    model : Model
    items : sequence of ListeningItem
        At least two recordings with different answers. Items whose options first differ at different positions are skipped.
    window : int
        Number of consecutive layers that are changed together.
    max_items : int
        Items that are used, evenly chosen. Each costs two runs for each window and each head.
    group : str, optional
        As for `speechmix.listening`.
    seed : int
        Of the random heads.
    progress : bool
    rows_by_item : mapping of str to list of dict, optional
        What `item_routes` has returned for some items already.

    Returns
    -------
    SoundRoutes

    Raises
    ------
    InputError
        If no item can be used.

    Examples
    --------
    >>> routes = sound_routes(model, items)                                               # doctest: +SKIP
    >>> routes.named_heads                                                                # doctest: +SKIP
    [(11, 3), (14, 0)]
    """
    donors, groups = choose_donors(items), group_items(items, group)
    route_items = choose_route_items(items, max_items)
    skipped = list[tuple[str, str]]()
    rows_found = dict(rows_by_item or {})
    for item in tqdm(route_items, unit="item", desc="where", disable=not progress):
        try:
            if item.name not in rows_found:
                rows_found[item.name] = item_routes(model, item, donors[item.name], window=window)
        except SpeechmixError as error:
            skipped.append((item.name, str(error)))
    if not rows_found:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in skipped[:3])
        raise InputError(
            f"no item can be used to look into the decoder: {reasons or 'no two recordings have different answers'}"
        )
    rows = [{"group": groups[name]} | row for name, rows in rows_found.items() for row in rows]
    table = pd.DataFrame(rows)
    is_head = table["head"].notna()
    layers = _average_layers(table[~is_head])
    total = layers[layers["removal"] == INPUT].iloc[0]
    heads = _name_heads(table[is_head], float(total["effect"]), is_shown=_is_used(table))
    routes = SoundRoutes(layers, heads, pd.DataFrame(), tuple(skipped))
    questions = [
        Question(model, item, donors[item.name]) for item in route_items if item.name in rows_found
    ]
    named = routes.named_heads
    removal = remove_heads(questions, groups, named, seed=seed, progress=progress)
    return replace(routes, removal=removal)


def choose_route_items(
    items: Sequence[ListeningItem], max_items: int = MAX_ITEMS
) -> list[ListeningItem]:
    """Choose items, evenly, whose other sound has another answer."""
    answers = {item.name: item.answer.casefold() for item in items}
    others = {name: answers[donor.name] for name, donor in choose_donors(items).items()}
    useful = [
        item for item in items if item.name in others and others[item.name] != answers[item.name]
    ]
    return choose_evenly(useful, max_items)


def _average_layers(table: pd.DataFrame) -> pd.DataFrame:
    """Average effects over groups of items, with intervals that are corrected for all rows of a removal."""
    rows, keys = [], ["removal", "stack", "layer", "layer_count"]
    counts = dict(table.drop_duplicates(keys)["removal"].value_counts())
    total = table.loc[table["removal"] == INPUT].groupby("group")["effect"].mean().mean()
    for key, members in table.groupby(keys, sort=False):
        means = members.groupby("group")["effect"].mean()
        low, high = mean_interval(means, level=1 - _ALPHA / counts[key[0]])
        values = {"effect": means.mean(), "low": low, "high": high, "share": means.mean() / total}
        rows.append({**dict(zip(keys, key, strict=True)), **values, "groups": len(means)})
    return pd.DataFrame(rows)


def _is_used(table: pd.DataFrame) -> bool:
    """Whether own sounds make answers right, by a sign-flip test over groups; with few groups it is not shown."""
    by_group = table[table["removal"] == INPUT].groupby("group")["needs"].mean().to_numpy()
    return len(by_group) >= FEWEST_GROUPS and bool(corrected_p(by_group[None])[0] <= _ALPHA)


def _name_heads(table: pd.DataFrame, total: float, *, is_shown: bool) -> pd.DataFrame:
    """Test the effect of each head over groups of items, corrected for all heads; name none if the sound has no effect."""
    keys = ["stack", "layer", "head"]
    by_group = table.pivot_table(index=keys, columns="group", values="effect", aggfunc="mean")
    heads = by_group.index.to_frame(index=False).astype({"head": int})
    heads["effect"] = by_group.mean(axis=1).to_numpy()
    heads["share"] = heads["effect"] / total
    is_tested = by_group.shape[1] >= FEWEST_GROUPS
    heads["p"] = corrected_p(by_group.to_numpy()) if is_tested else np.nan
    heads["named"] = (heads["p"] <= _ALPHA) & (heads["share"] >= SMALLEST_SHARE) & is_shown
    return heads.sort_values("effect", ascending=False, kind="stable", ignore_index=True)
