"""The published ablation of speech models: the cue silenced in the sound, its tokens blanked in the
decoder, or both.

In: a model with its head, a clip with cue and target. Out: a tidy table: by how much the
probability of the target's sub-tokens falls, as their mean and their largest change, and the
margin; beside it the published control (the target itself) and one of ours (another word of about
the cue's length). Protocol: Mohebbi et al. 2023, EMNLP, the ablation of cue words. Where its code
reads an encoder at the cue's own frames, this reads it at the target's.

Summarize the ablation of speech over clips, against untrained models and controls.

In: the table of an ablation (`extensions.speech_ablation.speech_ablation`) of trained models and of their random
twins, with the groups that clips belong to. Out: for each model, template, number, and way to take
a word away the mean drop with its interval over groups, the range of its untrained twins, and the
test of the difference.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch

from ...errors import InputError
from ...evaluation.statistics.intervals import mean_intervals
from ...evaluation.statistics.random_twin_comparison import compare_with_twins
from ...inputs.clips.clip import Clip
from ...inputs.words.cue_and_target import CONTROL, CUE
from ...interventions.decision import (
    ARG_MAX,
    TRANSCRIPT,
    Decision,
    list_readings,
    read_values,
    require_clip,
)
from ...interventions.removals import (
    DECODER_IDS,
    SOUND,
    SOUND_FILLS,
    Removal,
    fill_token_id,
    token_fills,
)
from ...interventions.runner import NO_REMOVAL, run_interventions
from ...interventions.value_knock_out import control_words
from .ablated_speech import ALL_PARTS, PART_COLUMNS, REMOVAL_KEYS

if TYPE_CHECKING:
    from ...adapters.model import Model

TARGET = "target"
TOKENS, BOTH = "tokens", "both"
CONDITIONS = (SOUND, TOKENS, BOTH)
MEAN, LARGEST, SIGNED_MAX = AGGREGATIONS = ("mean", "max", "signed max")
COLUMNS = (
    "silenced",
    "condition",
    "fill",
    "words",
    "tokens",
    "blank",
    "reading",
    "aggregation",
    "intact",
    "ablated",
    "drop",
)


def ablate_speech(
    model: Model,
    clip: Clip,
    *,
    sound_fills: Sequence[str] = ("zeros",),
    fills_of_tokens: Sequence[str | int] | None = None,
) -> pd.DataFrame:
    """Take cue, another word and target out of the sound, the decoder's tokens, and both, and read
    the target.

    With p(t) the probability of a sub-token t at the position that predicts it, the transcript's
    tokens before it being fed,

        drop(t) = p(t | clip as it is) - p(t | clip without the word)

    Parameters
    ----------
    model : Model
        Whisper, or with a CTC head (then only the sound can be silenced).
    clip : Clip
        With text, words, cue and target; a foil makes the margin that of a choice between two
        spellings.
    sound_fills : sequence of {"zeros", "room", "noise", "word"}
        What takes the place of a word's sound (`mute`); "zeros" as published.
    fills_of_tokens : sequence of {"unk", "pad", "mask", "remove"} or int, optional
        What takes the place of tokens. A tokenizer's unknown token, as published, is whatever a
        checkpoint says: in Whisper the end of text, which is no neutral blank; so by default "unk"
        stands beside "remove", the text without them. An int is the id of a token of one's own
        choice. The column blank says what was put in.

    Returns
    -------
    DataFrame
        Columns `COLUMNS`. silenced: "cue", "another word" or "target". condition: "sound",
        "tokens", "both"; of the target, as published, the one token just before it is blanked
        (which may be the cue's). words, tokens: what was taken away; blank: the token put in.
        intact, ablated, drop: what each reading says, by aggregation. Readings:

        - "arg-max": probability of the tokens that the intact model finds likeliest at the target's
          positions (as published); of a CTC model, at the target's own frames. "transcript": of the
          target's own tokens; of a CTC model, of its letters at the frames of the best path through
          the intact clip. Aggregations over sub-tokens (frames, letters): "mean"; "max", the change
          of greatest size, with its sign; "signed max", as published, the greatest of signed drops,
          which is above zero where changes are noise.
        - "margin" (nats): log p(target) - log p(foil), without a foil log p(target's tokens).
          "text" (nats, CTC): log p(text).

    Raises
    ------
    InputError
        If the clip lacks what is needed, or something asked for is not possible.
    ModelError
        If the model has no head.

    Examples
    --------
    >>> table = ablate_speech(model, clip)                                                # doctest: +SKIP
    >>> table[(table.reading == "arg-max") & (table.aggregation == "mean")]["drop"]       # doctest: +SKIP
    """
    decision = _prepare_decision(model, clip, sound_fills)
    clip = require_clip(decision)
    ablations = list(
        _list_ablations(decision, clip, sound_fills, _resolve_token_fills(model, fills_of_tokens))
    )
    intact_logits = run_interventions(decision, [NO_REMOVAL], reader=lambda output: output.logits)[
        0
    ]
    readings = list_readings(decision, torch.from_numpy(intact_logits))
    intact_values = read_values(decision, readings, torch.from_numpy(intact_logits))
    ablated_values = run_interventions(
        decision,
        [removals for _, removals in ablations],
        reader=lambda output: torch.tensor(
            [
                [*chain(*read_values(decision, readings, logits).values())]
                for logits in output.logits
            ],
            dtype=torch.float64,
        ),
    )
    ablated_readings = (_split_values(intact_values, run.tolist()) for run in ablated_values)
    rows = [
        {**cells, **row}
        for (cells, _), values in zip(ablations, ablated_readings, strict=True)
        for row in _reading_rows(intact_values, values)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _prepare_decision(model: Model, clip: Clip, sound_fills: Sequence[str]) -> Decision:
    if not clip.words or not clip.cue_words or clip.target is None:
        raise InputError(
            f"{clip.name}: the ablation of speech needs text, words with times, a cue and a target"
        )
    model.refuse_audio_tokens(
        f"{model.name}: the published ablation is of a Whisper or a CTC model; of an audio language "
        "model ask speechmix.ablate_input (its sound) or speechmix.knock_out (its sound, prompt "
        "and answer)"
    )
    if unknown_fills := set(sound_fills) - set(SOUND_FILLS):
        raise InputError(f"sound_fills should be of {SOUND_FILLS}, found {sorted(unknown_fills)}")
    if not sound_fills:
        raise InputError("sound_fills names nothing that could take the place of a word's sound")
    return Decision.prepare(model, clip)


def _resolve_token_fills(
    model: Model, requested_fills: Sequence[str | int] | None
) -> tuple[str | int, ...]:
    """Return the fills of tokens: by default the published one, if the tokenizer has it, and
    removal."""
    if requested_fills is not None:
        return tuple(requested_fills)
    return tuple(fill for fill in token_fills(model) if fill in ("unk", "remove"))


def _list_ablations(
    decision: Decision, clip: Clip, sound_fills: Sequence[str], fills: Sequence[str | int]
) -> Iterator[tuple[dict[str, str], tuple[Removal, ...]]]:
    """Yield all removals: cue, control word and target; in the audio, in the tokens, and in
    both."""
    target = () if clip.target is None else (clip.target,)
    for role, words in (
        (CUE, clip.cue_words),
        (CONTROL, control_words(clip)),
        (TARGET, target),
    ):
        if not words:
            continue
        text = " ".join((clip.words or ())[word].text for word in words)
        cells = {"silenced": role, "words": text, "tokens": "", "blank": ""}
        sound_removals = {fill: Removal(SOUND, tuple(words), fill) for fill in sound_fills}
        for sound_fill, sound_removal in sound_removals.items():
            yield {**cells, "condition": SOUND, "fill": sound_fill}, (sound_removal,)
        positions = _token_positions(decision, clip, role, words)
        tokens = decision.prepared.tokens
        if tokens is None or not positions:
            continue
        for fill in fills:
            cells["tokens"] = " ".join(tokens.labels[position] for position in positions)
            cells["blank"] = _fill_token(decision, fill)
            token_removal = Removal(DECODER_IDS, positions, fill)
            yield {**cells, "condition": TOKENS, "fill": str(fill)}, (token_removal,)
            for sound_fill, sound_removal in sound_removals.items():
                yield (
                    {**cells, "condition": BOTH, "fill": f"{sound_fill} + {fill}"},
                    (sound_removal, token_removal),
                )


def _token_positions(
    decision: Decision, clip: Clip, role: str, words: Sequence[int | None]
) -> tuple[int, ...]:
    """Return the positions of the decoder's tokens to blank; for the target the token before it."""
    tokens = decision.prepared.tokens
    if tokens is None:
        return ()
    token_words = tokens.words[: len(tokens.ids)]
    if role != TARGET:
        return tuple(
            position
            for position, word in enumerate(token_words)
            if word is not None and word in words
        )
    previous_position = token_words.index(clip.target) - 1
    return (previous_position,) if tokens.kinds[previous_position] == "token" else ()


def _fill_token(decision: Decision, fill: str | int) -> str:
    """Return the token of a fill as its tokenizer spells it."""
    token_id = fill_token_id(decision.model, fill)
    return "" if token_id is None else str(decision.model.tokenizer.convert_ids_to_tokens(token_id))


def _split_values(
    values: dict[str, list[float]], flat_values: Sequence[float]
) -> dict[str, list[float]]:
    """Split flat values by reading."""
    number_iterator = iter(flat_values)
    return {
        name: list(islice(number_iterator, len(reading_values)))
        for name, reading_values in values.items()
    }


def _reading_rows(
    intact: dict[str, list[float]], ablated: dict[str, list[float]]
) -> Iterator[dict[str, object]]:
    """Yield the drops of every reading, aggregated over sub-tokens."""
    for reading, intact_values in intact.items():
        ablated_values = ablated[reading]
        drops = [
            intact_value - ablated_value
            for intact_value, ablated_value in zip(intact_values, ablated_values, strict=True)
        ]
        if len(drops) == 1 and reading not in (ARG_MAX, TRANSCRIPT):
            yield {
                "reading": reading,
                "aggregation": "",
                "intact": intact_values[0],
                "ablated": ablated_values[0],
                "drop": drops[0],
            }
            continue
        mean = {
            "intact": sum(intact_values) / len(intact_values),
            "ablated": sum(ablated_values) / len(ablated_values),
        }
        yield {
            "reading": reading,
            "aggregation": MEAN,
            **mean,
            "drop": mean["intact"] - mean["ablated"],
        }
        sizes = {LARGEST: [abs(drop) for drop in drops], SIGNED_MAX: drops}
        for name, drop_sizes in sizes.items():
            index = drop_sizes.index(max(drop_sizes))
            values = {
                "intact": intact_values[index],
                "ablated": ablated_values[index],
                "drop": drops[index],
            }
            yield {"reading": reading, "aggregation": name, **values}


_RESULT_COLUMNS = (
    "trained trained_low trained_high random twins twin_low twin_high difference low high claim"
).split()
_CONTROL_COLUMNS = "other over_other over_other_low over_other_high".split()


def summarize_speech_ablation(
    table: pd.DataFrame,
    *,
    parts: Sequence[str] = PART_COLUMNS,
    aggregations: Sequence[str] = (MEAN, LARGEST, ""),
) -> pd.DataFrame:
    """Average drops over clips, for all of them and for each template and number.

    Parameters
    ----------
    table : DataFrame
        Columns of `ablate_speech`, and model, init, seed, clip, group, and those of `parts` that
        the clips have; side, of the target that the cue is on. Rows with "yes" in a column control
        are left out: there the cue decides nothing.
    parts : sequence of str
        What parts the clips; a column that has one value parts nothing.
    aggregations : sequence of str
        Of the table; "" are readings without sub-tokens.

    Returns
    -------
    DataFrame
        Columns side, model, those of `parts` ("all": of all clips), `REMOVAL_KEYS`, unit ("points" of
        probability, or "nats"); trained, with its 95 % interval over groups (trained_low,
        trained_high); random, twins, twin_low, twin_high: mean, number, and band of the untrained twins;
        difference, low, high, claim: trained - random, as in
        `random_twin_comparison.compare_with_twins`; the rows of the cue over all parts are primary;
        other: the trained
        model's mean drop without another word, and over_other, what is lost without the cue beyond
        that, within clips, with its interval over groups (rows of the cue alone); groups, clips.

    Examples
    --------
    >>> import itertools
    >>> way = {"silenced": "cue", "condition": "sound", "fill": "zeros", "reading": "arg-max", "aggregation": "mean"}
    >>> row = lambda clip, init: {"model": "m", "init": init, "clip": clip, "group": clip, "drop": 0.5, **way}
    >>> table = pd.DataFrame([row(*pair) for pair in itertools.product("abc", ("trained", "random"))])
    >>> summarize_speech_ablation(table)[["silenced", "unit", "trained", "random", "difference", "clips"]].values.tolist()
    [['cue', 'points', 50.0, 50.0, 0.0, 3]]
    """
    rows = table[table["control"] != "yes"] if "control" in table else table
    rows = rows[rows["aggregation"].isin(list(aggregations))]
    if rows.empty:
        return pd.DataFrame()
    is_probability = rows["reading"].isin([ARG_MAX, TRANSCRIPT])
    rows = rows.assign(
        unit=np.where(is_probability, "points", "nats"),
        contribution=rows["drop"].astype(float) * np.where(is_probability, 100, 1),
    )
    parts = [name for name in parts if name in rows and rows[name].nunique() > 1]
    merged_columns = [
        names
        for count in range(len(parts), -1, -1)
        for names in itertools.combinations(parts, count)
    ]
    all_rows = pd.concat(
        [rows.assign(**dict.fromkeys(names, ALL_PARTS)) for names in merged_columns],
        ignore_index=True,
    )
    all_rows = all_rows.assign(side=all_rows.get("side", ALL_PARTS))
    return _mean_drops(all_rows, ["side", "model", *parts, *REMOVAL_KEYS, "unit"])


def _mean_drops(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    primary = {"silenced": CUE, **{name: ALL_PARTS for name in PART_COLUMNS if name in by}}
    result = compare_with_twins(rows, by=by, group="group", primary=primary)
    trained_rows = rows[rows["init"] == "trained"]
    intervals = _group_intervals(trained_rows, by, "trained").join(
        _drops_beyond_control(trained_rows, by)
    )
    result = result.merge(intervals.reset_index(), on=by, how="left")
    for name in (*_RESULT_COLUMNS, *_CONTROL_COLUMNS):
        if name not in result and name != "claim":
            result[name] = np.nan
    order = [
        name
        for name in (*by, *_RESULT_COLUMNS, *_CONTROL_COLUMNS, "groups", "clips")
        if name in result
    ]
    return result[order]


def _group_intervals(rows: pd.DataFrame, by: list[str], name: str) -> pd.DataFrame:
    """Compute 95 % intervals over groups of the mean, by key: columns name_low, name_high."""
    means = rows.groupby([*by, "group"], sort=False)["contribution"].mean().unstack("group")
    low, high = mean_intervals(means.to_numpy(float))
    return pd.DataFrame({f"{name}_low": low, f"{name}_high": high}, index=means.index)


def _drops_beyond_control(trained_rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Compute the drop without the control word, and the cue's drop beyond it within clips."""
    keys = [name for name in by if name != "silenced"]
    cue, control = (trained_rows[trained_rows["silenced"] == word] for word in (CUE, CONTROL))
    paired = cue.merge(
        control[[*keys, "clip", "contribution"]],
        on=[*keys, "clip"],
        suffixes=("_of_cue", "_of_other"),
    )
    paired = paired.assign(
        contribution=paired["contribution_of_cue"] - paired["contribution_of_other"]
    )
    groups = paired.groupby(by, sort=False)
    means = pd.DataFrame(
        {
            "other": groups["contribution_of_other"].mean(),
            "over_other": groups["contribution"].mean(),
        }
    )
    return means.join(_group_intervals(paired, by, "over_other"))
