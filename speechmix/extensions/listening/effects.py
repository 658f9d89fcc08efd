"""What an answer loses without its sound and without its prompt, and Shapley values of both.

In: a `Question`. Out: a row for each condition, all of them one run of the model (for each context of the answer):

    sound         the item as it is              no prompt          its own sound, without hint or prompt
    silence       zeros of the same length       nothing            silence, without hint or prompt
    noise         noise with its spectrum
    other sound   the sound of another item

Shapley values of sound, prompt and earlier answer are exact, over all eight sets: a run also shows what the model would
answer without the earlier tokens of the answer, because a decoder looks back alone. With v(S) the log-probability of
the right answer when only S is there, they add up to v(all) - v(nothing).

Shares of items that need the sound, are solved without it, or follow the text against the sound.

In: one row for each item (`item_table`). Out: a table of shares with confidence intervals over groups of items, for all
items and for each kind, and a verdict. With right(x) whether the answer to an item with the sound x is right:

    needs the sound     mean of right(own) - right(other), over items whose other sound has another answer
    changes             the answer with the other sound differs from that with the own sound, over the same items
    solved without      mean of right(silence) and right(noise)
    text dominance      conflict items that follow the text, of those that follow text or sound

An item that is right by luck with its own sound is as often right with another one: its mean is zero. The verdict rests
on exchanged recordings. Silence and noise are unusual inputs: a model that has learnt to ignore recordings may still
change its answer in silence. Groups of items that share a recording, a pair or a transcript have equal weight.
Intervals are exact binomial ones, with a group as one trial; that of the first share is of a difference of two.

Shares of an answer that come from sound, prompt and earlier answer, by layer.

In: a decoder map of an audio language model, whose rows and columns are prompt, sound and answer in
one row. Out: a table of shares that add up to one; and of a word of the clip, what it gives as it
is heard and as it is written.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ...errors import InputError
from ...evaluation.statistics.grouped_means import TableRow
from ...evaluation.statistics.intervals import (
    FEWEST_GROUPS,
    LEVEL,
    difference_interval,
    proportion_interval,
)
from ...inputs.words.cue_and_target import cue_words
from ...mixing.maps.mixing_map import MixingMap
from ..occlusion.shapley import exact_shapley
from .items import ListeningItem, group_items
from .questions import NOISE, OTHER, OWN, SILENCE, SOUNDS, Question

if TYPE_CHECKING:
    from torch import Tensor

    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip

NO_PROMPT, NOTHING = "no prompt", "nothing"
CONDITIONS = (*SOUNDS, NO_PROMPT, NOTHING)
PLAYERS = ("sound", "prompt", "earlier_answer")


def listening_effects(
    model: Model, item: ListeningItem, donor: Clip | None = None
) -> list[dict[str, Any]]:
    """Measure what a model answers with and without sound and prompt.

    Parameters
    ----------
    model : Model
        An audio language model, or a Whisper.
    item : ListeningItem
    donor : Clip, optional
        Whose sound takes the place of the item's own; without it that condition is left out.

    Returns
    -------
    list of dict
        For each condition: condition, choice (the answer), correct, probability (of the right answer, among the options
        if there are some), log_probability (nats), log_odds (against the other options; of an open answer its
        log-probability), text_probability (of the answer that the text suggests; NaN if there is none), mass
        (probability that the answer begins as one of the options), donor (name of the other item), passes (runs of the
        model for this condition). The condition "sound" also has the Shapley values in nats: shapley_sound,
        shapley_prompt, shapley_earlier_answer; NaN elsewhere, and where the prompt cannot be removed.

    Raises
    ------
    InputError
        If the model takes no prompt, the sound is too long, or the options cannot be told apart.

    Examples
    --------
    >>> rows = listening_effects(model, item, donor)                                      # doctest: +SKIP
    >>> [row["condition"] for row in rows]                                                # doctest: +SKIP
    ['sound', 'silence', 'noise', 'other sound', 'no prompt', 'nothing']
    """
    question = Question(model, item, donor)
    log_probs = run_conditions(question)
    values = _modality_shapley(question, log_probs)
    rows = []
    for name, condition_log_probs in log_probs.items():
        row = _condition_row(question, name, condition_log_probs)
        for player, value in values.items():
            row[f"shapley_{player}"] = value if name == OWN else np.nan
        rows.append(row)
    return rows


def run_conditions(question: Question) -> dict[str, list[Tensor]]:
    """Run the model in each condition that the item allows; log-probabilities behind the prompt by condition."""
    inputs: dict[str, Mapping[str, Tensor] | None] = {}
    for sound in SOUNDS if question.donor is not None else SOUNDS[:-1]:
        try:
            inputs[sound] = question.inputs(sound)
        except InputError:
            if sound != OTHER:  # another recording that cannot be used is no fault of this item
                raise
    for name, sound in ((NO_PROMPT, OWN), (NOTHING, SILENCE)):
        inputs[name] = question.remove_prompt(sound, inputs[sound] or {})
    return {
        name: question.log_probabilities(prepared)
        for name, prepared in inputs.items()
        if prepared is not None
    }


def _modality_shapley(
    question: Question, log_probs: Mapping[str, list[Tensor]]
) -> dict[str, float]:
    """Shapley values of sound, prompt and earlier answer, in nats; NaN where the prompt cannot be removed."""
    if NOTHING not in log_probs:
        return dict.fromkeys(PLAYERS, float("nan"))

    def right_log_probability(sound: bool, prompt: bool, earlier: bool) -> float:
        with_sound, without = (OWN, SILENCE) if prompt else (NO_PROMPT, NOTHING)
        rows = log_probs[with_sound if sound else without]
        by_option = question.reading.log_probabilities(rows, with_earlier=earlier)
        return float(by_option[0, question.reading.right])

    def margins(sets: np.ndarray) -> np.ndarray:
        return np.array([right_log_probability(*present) for present in sets.tolist()])

    return dict(zip(PLAYERS, exact_shapley(len(PLAYERS), margins).tolist(), strict=True))


def _condition_row(question: Question, name: str, log_probs: list[Tensor]) -> dict[str, Any]:
    item, reading = question.item, question.reading
    values = reading.log_probabilities(log_probs)[0]
    by_option = dict(zip(reading.options, values.exp().tolist(), strict=True))
    choice = reading.preferred(question.model, log_probs)
    return {
        "condition": name,
        "choice": choice,
        "correct": choice == item.answer,
        "probability": by_option[item.answer],
        "log_probability": float(values[reading.right]),
        "log_odds": float(reading.log_odds(log_probs)[0]),
        "text_probability": by_option.get(item.text_answer, np.nan),
        "mass": reading.option_mass(log_probs),
        "donor": "" if question.donor is None else question.donor.name,
        "passes": len(reading.contexts),
    }


def count_passes(model: Model, item: ListeningItem, *, has_donor: bool = True) -> int:
    """Count the runs of the model that an item costs, without running it: six for each context of its answers; less
    without a prompt or another recording."""
    without_prompt = 0 if item.full_prompt else 2
    contexts = len(Question(model, item).reading.contexts)
    return contexts * (len(CONDITIONS) - without_prompt - (not has_donor))


ALL_ITEMS = "all"
NEGLIGIBLE = 0.05  # share of items whose answer may change, of a model that does not listen
NEEDS, CHANGES, SOLVED, SOLVED_WITHOUT, DOMINANCE = SHARES = (
    "needs the sound",
    "answer changes with the sound",
    "solved with the sound",
    "solved without the sound",
    "text dominance",
)
VERDICTS = {
    "uses the sound": "The model uses the sound in {} of these items: with other recordings, fewer answers are right.",
    "does not use the sound": "On these items the model does not use the sound: at most 5 % of its answers change with "
    "other recordings.",
    "reacts to the sound": "The sound changes the answers of the model, but it is not shown to lead to the right ones.",
    "inconclusive": "These items do not show whether the model uses the sound: more of them are needed.",
    "too few groups": f"Nothing is claimed: fewer than {FEWEST_GROUPS} independent groups of items have another "
    "recording with another answer.",
}


def item_table(
    conditions: pd.DataFrame, items: Sequence[ListeningItem], group: str | None = None
) -> pd.DataFrame:
    """Summarize the conditions of each item in one row.

    Parameters
    ----------
    conditions : DataFrame
        Rows of `listening_effects` with the column item.
    items : sequence of ListeningItem
    group : str, optional
        As for `group_items`.

    Returns
    -------
    DataFrame
        item, kind, group, answer, choice; correct (with its sound); needs (1: right only with its own sound, -1: only
        with another, 0; NaN if the other sound has the same answer, or there is none); changes (1: the answer differs
        with the other sound, 0; NaN likewise); changes_muted (whether it differs in silence or noise); solved_without
        (0 to 1); follows ("sound", "text", "other"; empty without a conflict); chance; sound_effect (nats that the right
        answer loses, mean over silence, noise and another sound), prompt_effect; probabilities by condition; Shapley
        values.
    """
    by_name = {item.name: item for item in items}
    groups = group_items(items, group)
    rows = []
    for name, item_conditions in conditions.groupby("item", sort=False):
        item = by_name[str(name)]
        by_condition = item_conditions.set_index("condition").to_dict("index")
        rows.append(
            {"item": item.name, "kind": item.kind, "group": groups[item.name]}
            | _summarize_item(item, by_condition, by_name)
        )
    return pd.DataFrame(rows)


def _summarize_item(
    item: ListeningItem,
    by_condition: Mapping[Hashable, TableRow],
    by_name: Mapping[str, ListeningItem],
) -> dict[str, Any]:
    own_row, other_row = by_condition[OWN], by_condition.get(OTHER)
    muted = [by_condition[name] for name in (SILENCE, NOISE)]
    donor = by_name.get(own_row["donor"])
    needs = changes = np.nan
    if other_row and donor and donor.answer.casefold() != item.answer.casefold():
        needs = float(own_row["correct"]) - float(other_row["correct"])
        changes = float(own_row["choice"] != other_row["choice"])
    follows = ""
    if item.is_conflict:
        follows = {item.answer: "sound", item.text_answer: "text"}.get(own_row["choice"], "other")
    replaced = [*muted, other_row] if other_row else muted
    losses = [own_row["log_probability"] - row["log_probability"] for row in replaced]
    no_prompt = by_condition.get(NO_PROMPT, {}).get("log_probability", np.nan)
    return {
        "answer": item.answer,
        "choice": own_row["choice"],
        "correct": own_row["correct"],
        "needs": needs,
        "changes": changes,
        "changes_muted": any(row["choice"] != own_row["choice"] for row in muted),
        "solved_without": np.mean([row["correct"] for row in muted]),
        "follows": follows,
        "chance": item.chance,
        "sound_effect": float(np.mean(losses)),
        "prompt_effect": own_row["log_probability"] - no_prompt,
        "mass": own_row["mass"],
        **{f"probability ({name})": row["probability"] for name, row in by_condition.items()},
        **{f"shapley_{player}": own_row[f"shapley_{player}"] for player in PLAYERS},
    }


def listening_shares(table: pd.DataFrame) -> pd.DataFrame:
    """Compute the shares for all items and for each kind.

    Parameters
    ----------
    table : DataFrame
        As `item_table` returns it.

    Returns
    -------
    DataFrame
        kind ("all" first), share (its name), value, low, high (0 to 1; intervals of the kinds hold together, corrected
        by Bonferroni; NaN for fewer than 8 groups), items, groups, chance.
    """
    kinds = [kind for kind in table["kind"].unique() if kind]
    rows = _share_rows(ALL_ITEMS, table, LEVEL)
    for kind in kinds if len(kinds) > 1 else []:
        rows += _share_rows(kind, table[table["kind"] == kind], 1 - (1 - LEVEL) / len(kinds))
    return pd.DataFrame(rows)


def _share_rows(kind: str, table: pd.DataFrame, level: float) -> list[dict[str, Any]]:
    conflicts = table[table["follows"].isin(["sound", "text"])]
    columns = {
        NEEDS: table["needs"],
        CHANGES: table["changes"],
        SOLVED: table["correct"],
        SOLVED_WITHOUT: table["solved_without"],
        DOMINANCE: conflicts["follows"] == "text",
    }
    rows = []
    for name, values in columns.items():
        values = values.astype(float).dropna()
        if values.empty:
            continue
        members = table.loc[values.index]
        gains, losses = (
            (sign * values).clip(lower=0).groupby(members["group"]).mean() for sign in (1, -1)
        )
        count, limits = len(gains), (np.nan, np.nan)
        if count >= FEWEST_GROUPS and name == NEEDS:
            limits = difference_interval(gains.sum(), losses.sum(), count, level=level)
        elif count >= FEWEST_GROUPS:
            limits = proportion_interval(gains.sum(), count, level=level)
        value = float(gains.mean() - losses.mean())
        row = {"kind": kind, "share": name, "value": value, "low": limits[0], "high": limits[1]}
        counts = {"items": len(values), "groups": count, "chance": members["chance"].mean()}
        rows.append(row | counts)
    return rows


def find_share(shares: pd.DataFrame, name: str, kind: str = ALL_ITEMS) -> TableRow | None:
    """Return the row of a share; None if no item has it."""
    rows = shares[(shares["share"] == name) & (shares["kind"] == kind)].to_dict("records")
    return rows[0] if rows else None


def describe_shares(shares: pd.DataFrame, kind: str = ALL_ITEMS) -> dict[str, str]:
    """Return each share with its interval, in %, by its name.

    Examples
    --------
    >>> row = {"kind": "all", "share": NEEDS, "value": 0.5, "low": 0.375, "high": 0.62, "groups": 70, "chance": 0}
    >>> describe_shares(pd.DataFrame([row]))
    {'needs the sound': '50 % [38, 62]'}
    """
    texts = {}
    for row in shares[shares["kind"] == kind].to_dict("records"):
        count, text = row["groups"], f"{round(100 * row['value'])} %"
        if count >= FEWEST_GROUPS:
            text += f" [{round(100 * row['low'])}, {round(100 * row['high'])}]"
        else:
            text += f" ({count} group{'s' * (count != 1)}, no interval)"
        if row["share"] in (SOLVED, SOLVED_WITHOUT) and row["chance"] > 0:
            text += f" (guessing: {round(100 * row['chance'])} %)"
        texts[row["share"]] = text
    return texts


def listening_verdict(shares: pd.DataFrame) -> str:
    """Say whether the answers depend on the sound, from input to output.

    Returns
    -------
    {"uses the sound", "does not use the sound", "reacts to the sound", "inconclusive", "too few groups"}
        "Uses": the share of items that need the sound is above zero. "Does not use": at most 5 % of the answers change
        with the recording of another item (upper limit of the interval). "Reacts": answers change, but not shown toward
        the right one. All at 95 %.
    """
    needs, changes = find_share(shares, NEEDS), find_share(shares, CHANGES)
    if changes is None or changes["groups"] < FEWEST_GROUPS:
        return "too few groups"
    if needs is not None and needs["low"] > 0:
        return "uses the sound"
    if changes["high"] <= NEGLIGIBLE:
        return "does not use the sound"
    return "reacts to the sound" if changes["low"] > NEGLIGIBLE else "inconclusive"


ANSWER_PARTS = ("sound", "prompt", "answer")


def answer_shares(
    mixing_map: MixingMap, *, target: int | None = None, cue: int | Sequence[int] | None = None
) -> pd.DataFrame:
    """Compute the shares of audio, prompt and earlier answer in the generated answer, per layer.

    Parameters
    ----------
    mixing_map : MixingMap
        Of the decoder of an audio language model that was given a clip; raw, normalised or rolled
        out.
    target : int, optional
        Index of a word of the clip: only the rows that write it. By default the mean over all rows
        that write the answer; the one that writes its end is left out.
    cue : int or sequence of int, optional
        Index of a word of the clip, or of several, whose own shares are wanted too.

    Returns
    -------
    DataFrame
        Columns layer, sound, prompt, answer: shares of rows that sum to one. With a cue also
        cue_heard and cue_written: what its sound and its tokens in the answer give, each a part of
        the sound's and the answer's.

    Raises
    ------
    InputError
        If it is another map, or no row writes the target, or nothing is written.

    Examples
    --------
    >>> import numpy as np
    >>> from speechmix import MixingMap, Span
    >>> fed = (Span(0, 6, "les", word=0), Span(6, 7, "?", "token"), Span(7, 8, "oui", "token"))
    >>> written = (fed[0], Span(6, 7, "oui", "token"), Span(7, 8, "</s>", "special"))
    >>> scores = np.array([[[1.0, 0.0, 0.0], [3.0, 1.0, 0.0], [1.0, 1.0, 2.0]]])
    >>> places = {"sound_positions": [0, 6], "answer_position": 7}
    >>> answer_shares(MixingMap(scores, written, fed, "value_zeroing", "decoder", (0,), places), cue=0).to_dict("records")
    [{'layer': 0, 'sound': 0.75, 'prompt': 0.25, 'answer': 0.0, 'cue_heard': 0.75, 'cue_written':
    0.0}]
    """
    provenance = mixing_map.provenance
    if (
        mixing_map.stack != "decoder"
        or not {"sound_positions", "answer_position"} <= provenance.keys()
    ):
        raise InputError(
            "expected the decoder's map of an audio language model that was given a clip, which "
            "knows where sound and answer "
            f"are; found {mixing_map!r}"
        )
    rows = _answer_rows(mixing_map, provenance["answer_position"], target)
    part_names = np.array(
        [
            _find_part(span.start, provenance["sound_positions"], provenance["answer_position"])
            for span in mixing_map.sources
        ]
    )
    shares = mixing_map.mean_heads().normalized().scores[:, rows].mean(axis=1)
    table = {part: shares[:, part_names == part].sum(axis=1) for part in ANSWER_PARTS}
    if cue is not None:
        is_cue = np.array([span.word in cue_words(cue) for span in mixing_map.sources])
        table["cue_heard"] = shares[:, is_cue & (part_names == "sound")].sum(axis=1)
        table["cue_written"] = shares[:, is_cue & (part_names == "answer")].sum(axis=1)
    return pd.DataFrame({"layer": mixing_map.layers, **table})


def _find_part(position: int, sound: tuple[int, int], answer: int) -> str:
    """Return the part of the decoder's input that holds a position."""
    start, stop = sound
    return "sound" if start <= position < stop else "answer" if position >= answer else "prompt"


def _answer_rows(mixing_map: MixingMap, answer: int, target: int | None) -> list[int]:
    """List the rows that predict the answer, or one word of it."""
    rows = [
        row
        for row, span in enumerate(mixing_map.targets)
        if span.start >= answer - 1 and span.kind != "special" and target in (None, span.word)
    ]
    if not rows:
        description = "the answer" if target is None else f"word {target}"
        raise InputError(
            f"no row of {mixing_map!r} writes {description}: its answer is "
            f"{mixing_map.provenance.get('answer')!r}"
        )
    return rows
