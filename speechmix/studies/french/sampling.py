"""Draw a balanced sample of pairs.

In: candidates with their template and values. Out: names. What is drawn depends on the seed and the
names, never on the corpus's order. Mohebbi et al. (2023) draw 720 Det_Noun (half singular), 257
Pronoun_Verb and 23 Det_Noun_Verb, with seed 42; a Det_Noun_Verb counts once, though it gives two
examples (determiner -> noun, determiner + noun -> verb).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from ...errors import InputError
from ...files.json_files import JsonObject
from ...inputs.clips.corpus_row import seeded_uniform
from .pair_template import BALANCE_COLUMNS

PUBLISHED_SEED = 42
_PAPER_SUFFIX = "_paper"
# Values that are there even if no candidate has them.
_ALL_VALUES = {"number": ("p", "s")}


@dataclass(frozen=True)
class PairCandidate:
    """A pair that may be drawn; `values` are of the columns that can be balanced."""

    name: str
    template: str
    values: Mapping[str, str]

    @property
    def unit(self) -> str:
        """What the readings of one place in one sentence share: clip, template and where the cue
        begins."""
        return self.name.rpartition("-")[0]


def parse_draw(text: str) -> dict[str, int]:
    """Return counts by template as the command line has them; InputError unless each is name=count."""
    draw: dict[str, int] = {}
    for entry in text.split(","):
        name, _, count = (field_text.strip() for field_text in entry.partition("="))
        if not name or not count.isascii() or not count.isdigit() or int(count) < 1 or name in draw:
            raise InputError(
                "--draw takes each template once with a count from 1, as in "
                f"det_noun=720,pronoun_verb=257; found {entry!r}"
            )
        draw[name] = int(count)
    return draw


def check_draw_options(
    balance: Sequence[str], max_examples: int | None, draw: Mapping[str, int] | None
) -> None:
    """Raise `InputError` where nothing can be chosen so."""
    if set(balance) - set(BALANCE_COLUMNS) or (max_examples is not None and max_examples < 1):
        raise InputError(
            f"balance takes {', '.join(BALANCE_COLUMNS)} and max_examples a "
            f"number from 1; found {list(balance)}, {max_examples}"
        )
    if draw is not None and (max_examples is not None or not draw or min(draw.values()) < 1):
        raise InputError(
            f"draw takes counts from 1 by template, and not with max_examples; found {dict(draw)}, "
            f"max_examples={max_examples}"
        )


def draw_evenly(
    candidates: Sequence[PairCandidate], balance: Sequence[str], max_examples: int | None, seed: int
) -> set[str]:
    """Return the names drawn within each template and contrast: as many of each value.

    At most `max_examples` are drawn, those with the lowest lots; without columns to balance, all
    that there are up to this number. By "cue_pair", as many are drawn of each value of the other
    columns within each cue pair; a pair that lacks a value (on has no plural) is left out.
    """
    groups_by_kind: dict[tuple[str, ...], dict[tuple[str, ...], list[str]]] = {}
    group_columns = ("contrast", "cue_pair") if "cue_pair" in balance else ("contrast",)
    balance = [column for column in balance if column != "cue_pair"]
    for candidate in candidates:
        kind_groups = groups_by_kind.setdefault(
            (candidate.template, *(candidate.values.get(name, "") for name in group_columns)), {}
        )
        kind_groups.setdefault(tuple(candidate.values[column] for column in balance), []).append(
            candidate.name
        )
    drawn_names: set[str] = set()
    for groups in groups_by_kind.values():
        values = [
            _list_values(column, {key[i] for key in groups}) for i, column in enumerate(balance)
        ]
        min_count = min(len(groups.get(combination, ())) for combination in product(*values))
        for names in groups.values():
            max_count = min(max_examples or len(names), min_count if balance else len(names))
            drawn_names |= set(_draw_names(names, max_count, seed))
    return drawn_names


def _list_values(column: str, values: Collection[str]) -> tuple[str, ...]:
    """Values of a column that must be there, or are; a contrast of one number alone has none to
    balance ("")."""
    return (
        _ALL_VALUES.get(column, ())
        if set(values) & set(_ALL_VALUES.get(column, ()))
        else tuple(sorted(values))
    )


def find_lone_pairs(names: Iterable[str]) -> set[str]:
    """Names of the examples whose sentence has no other one; two readings of one pair count as one.

    The published evaluation takes only these, of what was drawn over all templates.

    Examples
    --------
    >>> sorted(find_lone_pairs(["a.det_noun.0-3", "a.det_noun.9-12", "b.both.0-3", "b.both.0-8"]))
    ['b.both.0-3', 'b.both.0-8']
    """
    units: dict[str, set[str]] = {}
    names = list(names)
    for name in names:
        units.setdefault(name.rsplit(".", 2)[0], set()).add(name.rpartition("-")[0])
    return {name for name in names if len(units[name.rsplit(".", 2)[0]]) == 1}


def draw_by_count(
    candidates: Sequence[PairCandidate],
    draw: Mapping[str, int],
    *,
    balance: Mapping[str, Sequence[str]],
    readings: Mapping[str, int],
    seed: int = PUBLISHED_SEED,
) -> tuple[set[str], list[JsonObject]]:
    """Return the names drawn, so many of each template that is named, none of the others.

    "det_noun" also stands for "det_noun_paper", where only that was mined. `readings` says how many
    examples each template gives of one position in a sentence: two readings count as one and are
    drawn together, or, if one of them cannot be used, not at all. `balance` names, by template, the
    columns of whose values as many are drawn; where there are fewer of one value, all of them are.
    The table has template, value ("" unless balanced), asked, there, drawn. InputError if a
    template is named that was not mined.
    """
    names: set[str] = set()
    table = []
    for requested, count in draw.items():
        template = _resolve_template(requested, readings)
        units = _group_readings(
            (candidate for candidate in candidates if candidate.template == template),
            readings[template],
        )
        groups = _group_units(units, balance.get(template, ()))
        for value_index, (value, value_units) in enumerate(groups.items()):
            requested_count = count // len(groups) + (value_index < count % len(groups))
            drawn_names = _draw_names(value_units, requested_count, seed)
            names |= {candidate.name for unit in drawn_names for candidate in units[unit]}
            counts = {
                "asked": requested_count,
                "there": len(value_units),
                "drawn": len(drawn_names),
            }
            table.append({"template": template, "value": " ".join(value), **counts})
    return names, table


def _resolve_template(requested: str, templates: Collection[str]) -> str:
    for name in (requested, requested + _PAPER_SUFFIX):
        if name in templates:
            return name
    raise InputError(
        f"--draw names the template {requested!r}, which was not mined; there are "
        f"{', '.join(sorted(templates))}"
    )


def _group_readings(
    candidates: Iterable[PairCandidate], readings: int
) -> dict[str, list[PairCandidate]]:
    """What counts as one: the readings of one place in a sentence, if all of them may be drawn."""
    units: dict[str, list[PairCandidate]] = {}
    for candidate in candidates:
        units.setdefault(candidate.unit, []).append(candidate)
    return {name: unit for name, unit in units.items() if len(unit) == readings}


def _group_units(
    units: Mapping[str, Sequence[PairCandidate]], columns: Sequence[str]
) -> dict[tuple[str, ...], list[str]]:
    """Units by the values of their first reading."""
    values_by_unit = {
        name: tuple(unit[0].values[column] for column in columns) for name, unit in units.items()
    }
    values = [
        _list_values(column, {key[i] for key in values_by_unit.values()})
        for i, column in enumerate(columns)
    ]
    groups: dict[tuple[str, ...], list[str]] = {combination: [] for combination in product(*values)}
    for name, key in values_by_unit.items():
        groups.setdefault(key, []).append(name)
    return groups


def _draw_names(names: Iterable[str], count: int, seed: int) -> list[str]:
    """The names with the lowest lots."""
    return sorted(names, key=lambda name: (seeded_uniform(name, seed), name))[:count]
