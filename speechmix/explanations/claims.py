"""What is claimed: how much each source counts for each written word, by measures of the whole model.

In: a `Writing`, its choices and their readings. Out: a `Claim` for each measure, [choices, sources]. Measures of one layer
(Value Zeroing, attention, ...) are rolled out, or composed over encoder, cross-attention and decoder; those of one number
(gradients) are taken where sources enter the model, of a word's tokens one by one where they must be read at one position;
ALTI-Logit and DecompX are sums over a logit's parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError, SpeechmixError
from ..interventions.shapley import Remembered, shapley_values
from ..maps.facts import TO_OUTPUT, facts_of
from ..scoring.carried_parts import check_carried
from ..scoring.forward import mix_one
from ..scoring.maps_and_logits import maps_and_logits
from ..scoring.several_objectives import maps_of_each
from ..scoring.to_logit import logit_contributions, writing_stack
from .by_source import by_source, row_at
from .choices import Choice, Readings, positions_of, possible_sources
from .taken_away import Fills, read_without

if TYPE_CHECKING:
    from ..inputs.spans import Span
    from ..maps.logit_contributions import LogitContributions
    from ..maps.mixing import Maps
    from .written import Writing

OCCLUSION, SHAPLEY, ALTI_LOGIT = "occlusion", "shapley", "alti_logit"
TAKING_AWAY = (OCCLUSION, SHAPLEY)
LOG_PROBABILITY, LOGIT, SHARE, SIZE = "log-probability", "logit", "share", "size"


Logit = tuple[int, ...]  # position, token, and a foil's token


@dataclass(frozen=True, eq=False)
class Claim:
    """What a measure says of the sources.

    Parameters
    ----------
    measure : str
    values : ndarray [C, S]
        NaN where a source stands behind what is explained, or the measure does not reach it.
    of : {"log-probability", "logit", "share", "size"}
        What the values are parts of; a share and a size know no sign.
    totals : ndarray [C] or None
        What values and `rest` add up to, where they do.
    errors : ndarray [C, S] or None
        Standard errors of sampled values.
    """

    measure: str
    values: np.ndarray
    of: str
    totals: np.ndarray | None = None
    errors: np.ndarray | None = None

    @property
    def unit(self) -> str:
        """What its numbers are counted in: nats of a log-probability, else what they are parts of."""
        return "nats" if self.of == LOG_PROBABILITY else self.of

    @property
    def rest(self) -> np.ndarray | None:
        """What is left for nobody: biases, feed-forwards, silence, the prefix; [C]."""
        return None if self.totals is None else self.totals - np.nansum(self.values, axis=1)


def defined_measures(writing: Writing) -> tuple[str, ...]:
    """The measures that are asked for by default: those that are cheap and defined for the model."""
    if writing.model.converses:
        return OCCLUSION, "gradient_input"
    names = [OCCLUSION, "value_zeroing", "gradient_input"]
    for name, check in (("alti_logit", writing_stack), ("decompx", check_carried)):
        try:
            check(writing.model)
            names.append(name)
        except InputError:
            continue
    return tuple(names)


def claim_of(
    measure: str,
    writing: Writing,
    choices: Sequence[Choice],
    readings: Readings,
    fills: Fills,
    *,
    samples: int | None = None,
    seed: int = 0,
) -> Claim:
    """What one measure claims.

    Raises
    ------
    InputError
        If there is no such measure, or it is not defined for the model.
    """
    if measure != SHAPLEY:
        _check_reaches_the_sound(writing, measure)
    if measure == SHAPLEY:
        claim = _shapley(writing, readings, fills, samples=samples, seed=seed)
    elif measure in TO_OUTPUT:
        claim = _to_logit(measure, writing, choices)
    elif facts_of(measure).objective:
        claim = _gradient(measure, writing, choices)
    else:
        claim = _of_layers(measure, writing, choices)
    return _of_possible(claim, writing, choices)


def claims_from_one_pass(measures: Sequence[str], writing: Writing, choices: Sequence[Choice]) -> dict[str, Claim]:
    """What those measures claim that can share one forward pass, if there are several: those of layers, and ALTI-Logit.

    Where one of them fails none is there, and `claim_of` says which.
    """
    of_layers = [name for name in measures if name not in (*TAKING_AWAY, *TO_OUTPUT) and not facts_of(name).objective]
    with_logits = ALTI_LOGIT in measures
    if not of_layers or len(of_layers) + with_logits < 2 or writing.model.converses:
        return {}
    try:
        if with_logits:
            asked, objectives = _logits_asked(writing, choices)
            whole = {"spans": _spans(writing)}
            maps, parts = maps_and_logits(writing.model, writing.inputs, of_layers, objectives, **whole)
            found = {ALTI_LOGIT: _sums(ALTI_LOGIT, writing, asked, dict(zip(objectives, parts, strict=True)))}
        else:
            maps, found = _maps(writing, of_layers), {}
        found |= {name: _rolled_out(name, writing, choices, maps) for name in of_layers}
    except SpeechmixError:
        return {}
    return {name: _of_possible(claim, writing, choices) for name, claim in found.items()}


def _of_possible(claim: Claim, writing: Writing, choices: Sequence[Choice]) -> Claim:
    """A claim without what stands behind what is explained."""
    values = np.where(possible_sources(writing, choices), claim.values, np.nan)
    return Claim(claim.measure, values, claim.of, claim.totals, claim.errors)


def _check_reaches_the_sound(writing: Writing, measure: str) -> None:
    """Raise for an audio language model's maps and parts, which end where sound enters its decoder.

    What they say of the decoder's positions is where the sound was, not what is still known there: an encoder may have taken a
    word to all of them.

    Raises
    ------
    InputError
    """
    if writing.model.converses and (measure in TO_OUTPUT or not facts_of(measure).objective):
        raise InputError(
            f"{measure} of {writing.model.name} ends where its sound enters the decoder, behind the projector, and would name "
            "places and not words of the sound; ask occlusion, shapley or gradient_input, or each stack for itself "
            "(speechmix.mix, speechmix.logit_contributions)"
        )


def _shapley(writing: Writing, readings: Readings, fills: Fills, *, samples: int | None, seed: int) -> Claim:
    """A game for each side: all its sources are players, and what is read of all words are its margins."""
    values = np.full((readings.of_choices.shape[1], len(writing.sources)), np.nan)
    errors = np.zeros_like(values)
    for side in dict.fromkeys(source.side for source in writing.sources if fills.can_replace(source)):
        players = [index for index, source in enumerate(writing.sources) if source.side == side]

        def margins(sets: np.ndarray, players: Sequence[int] = players) -> np.ndarray:
            taken = [[player for player, there in zip(players, row, strict=True) if not there] for row in sets]
            return read_without(writing, taken, fills, readings.read) @ readings.of_choices

        of_side, of_errors = shapley_values(len(players), Remembered(margins), samples=samples, seed=seed)
        values[:, players], errors[:, players] = of_side.T, of_errors.T
    return Claim(SHAPLEY, values, LOG_PROBABILITY, errors=errors)


def _to_logit(measure: str, writing: Writing, choices: Sequence[Choice]) -> Claim:
    """Parts of the logits of all tokens of a word, added up."""
    asked, objectives = _logits_asked(writing, choices)
    made = logit_contributions(
        writing.model, writing.inputs, objective=list(objectives), measure=measure, spans=_spans(writing)
    )
    parts = made if isinstance(made, list) else [made]
    return _sums(measure, writing, asked, dict(zip(objectives, parts, strict=True)))


def _logits_asked(writing: Writing, choices: Sequence[Choice]) -> tuple[list[list[Logit]], list[Logit]]:
    """Logits that explain each choice, and all of them, each once."""
    asked = [_logits_of(writing, choice) for choice in choices]
    return asked, list(dict.fromkeys(objective for of_choice in asked for objective in of_choice))


def _sums(
    measure: str, writing: Writing, asked: Sequence[Sequence[Logit]], parts: Mapping[Logit, LogitContributions]
) -> Claim:
    """Parts of the logits that explain each choice, added up."""
    some = next(iter(parts.values()))
    columns = {
        side: (some.sources[side], np.stack([of_one.total(side) for of_one in parts.values()])) for side in some.sides
    }
    by_logit = dict(zip(parts, by_source(writing, columns), strict=True))
    values = [np.sum([by_logit[logit] for logit in of_choice], axis=0) for of_choice in asked]
    totals = np.array([sum(parts[logit].logit for logit in of_choice) for of_choice in asked])
    return Claim(measure, np.stack(values), LOGIT, totals)


def _logits_of(writing: Writing, choice: Choice) -> list[Logit]:
    """Which logits explain a choice, as objectives: each token's, or one less its foil's."""
    if choice.contrast is not None:
        return [(choice.contrast.position, choice.contrast.id, choice.contrast.foil)]
    return [(writing.tokens[place].position, writing.tokens[place].id) for place in choice.tokens]


def _gradient(measure: str, writing: Writing, choices: Sequence[Choice]) -> Claim:
    """Measures of one number, taken at the states that enter the first layer of each stack."""
    stacks = [stack for stack in ("encoder", "decoder") if stack in writing.model.stacks]
    at_once = not facts_of(measure).at_one_position
    asked: list[list[Any]] = [
        [_number_of(writing, choice)] if at_once else list(_logits_of(writing, choice)) for choice in choices
    ]
    objectives = list(dict.fromkeys(objective for of_choice in asked for objective in of_choice))
    whole = {"stacks": stacks, "layers": 0, "spans": _spans(writing)}
    maps = maps_of_each(writing.model, writing.inputs, objectives, measure, **whole)
    rows = {
        objective: _first_row(writing, of_one, measure, stacks)
        for objective, of_one in zip(objectives, maps, strict=True)
    }
    values = [np.sum([rows[objective] for objective in of_choice], axis=0) for of_choice in asked]
    return Claim(measure, np.stack(values), SIZE)


def _first_row(writing: Writing, maps: Maps, measure: str, stacks: Sequence[str]) -> np.ndarray:
    """Values [S] of the sources, of maps of one row."""
    return by_source(writing, {stack: _columns(maps[measure, stack]) for stack in stacks})[0]


def _number_of(writing: Writing, choice: Choice) -> Callable[[Any], Any]:
    """What is read of a choice, as a function of the output of one run."""
    readings = Readings.of(writing, [choice])
    rows = np.flatnonzero(readings.of_choices[:, 0]).tolist()
    return lambda output: readings.read(output)[0, rows].sum()


def _of_layers(measure: str, writing: Writing, choices: Sequence[Choice]) -> Claim:
    """A measure of one layer, by a pass of its own."""
    return _rolled_out(measure, writing, choices, _maps(writing, [measure]))


def _maps(writing: Writing, measures: Sequence[str]) -> Maps:
    stacks = tuple(writing.model.stacks)
    return mix_one(writing.model, writing.inputs, measures=measures, stacks=stacks, spans=_spans(writing))


def _rolled_out(measure: str, writing: Writing, choices: Sequence[Choice], maps: Maps) -> Claim:
    """Measures of one layer, rolled out or composed; the mean of the rows that a word is read from."""
    model = writing.model
    if "cross" in model.stacks:
        whole = maps.composed(measure)
        split = len(whole.sources) - len(whole.targets)
        scores = whole.mean_heads().scores[-1]
        columns = {
            "encoder": (whole.sources[:split], scores[:, :split]),
            "decoder": (whole.sources[split:], scores[:, split:]),
        }
    else:
        (stack,) = model.stacks
        whole = maps[measure, stack].rollout()
        columns = {stack: (whole.sources, whole.mean_heads().scores[-1])}
    shares = by_source(writing, columns)
    rows = [[row_at(whole.targets, position) for position in positions_of(writing, choice)] for choice in choices]
    return Claim(measure, np.stack([shares[places].mean(axis=0) for places in rows]).astype(float), SHARE)


def _columns(mixing_map: Any) -> tuple[Sequence[Span], np.ndarray]:
    return mixing_map.sources, mixing_map.mean_heads().scores[0]


def _spans(writing: Writing) -> list[Span] | None:
    return None if writing.spans is None else list(writing.spans)
