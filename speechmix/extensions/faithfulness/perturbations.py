"""Reference perturbations by name: what is changed in the input or in the model, to see which words
a decision needs.

In: a name as in ``perturbations=``, alone ("mute") or with fills ("mute (zeros)"). Out: its
`Perturbation`, which says what it changes and computes the effects of it. `register_perturbation`
adds a custom one.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from ...errors import InputError
from ...mixing.measures.measure import code_fingerprint

Effects = Callable[..., Any]  # see `Perturbation.function`

# What a function of a perturbation can read, by keyword argument.
PERTURBATION_OPTIONS = ("fills", "value")


@dataclass(frozen=True)
class Perturbation:
    """A way to change an input or a model, whose effects measures are compared with.

    Parameters
    ----------
    name : str
    description : str
        What it changes, in one line.
    function : callable
        ``function(decision, pair, **options)`` returns the effect of removing each word, dict of
        word index to drop (nats), or a list of `curves.RemovalEffects`; `pair` is the decision of the
        pair's other member, or None. Of ``reads="states"``: ``function(model, item, stack,
        **options)`` returns maps of how far states move, and notes of what was not possible. It has
        keyword arguments for the options that it reads: `fills` (names, empty for all) and `value`
        ("margin", "probability").
    side : {"", "sound", "text"}
        The side of the input that it changes; empty if neither, or if the item decides.
    reads : {"decision", "states"}
        What shows the effect.
    applies : callable, optional
        ``applies(decision, has_pair)``: whether it is used by default for an item. A custom one is
        used when it is named.
    reported_last : bool
        True if a measure that is evaluated intervenes in the same way: it is reported last.
    """

    name: str
    description: str
    function: Effects
    side: Literal["", "sound", "text"] = ""
    reads: Literal["decision", "states"] = "decision"
    applies: Callable[..., bool] | None = None
    reported_last: bool = False
    is_builtin: bool = False

    @cached_property
    def option_names(self) -> tuple[str, ...]:
        """The options that the function reads."""
        parameters = inspect.signature(self.function).parameters.values()
        return tuple(
            parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY
        )

    @property
    def identity(self) -> str:
        """What a stored result knows it by: its name, of a custom one with a hash of its
        function."""
        return self.name if self.is_builtin else f"{self.name} {code_fingerprint(self.function)}"


PERTURBATIONS: dict[str, Perturbation] = {}


def register_perturbation(
    name: str, *, description: str, **options: Any
) -> Callable[[Effects], Effects]:
    """Add a custom reference perturbation, by decorating its function; see `Perturbation` for what
    it gets and returns.

    Parameters
    ----------
    name : str
        By which ``speechmix.faithfulness(perturbations=...)`` calls it.
    description : str
    **facts
        side ("sound" or "text", whose words it changes), reads, reported_last.

    Raises
    ------
    InputError
        If the name is taken, a fact is unknown, or the function has a keyword argument that no
        caller has.

    Examples
    --------
    >>> @register_perturbation("reversed", description="a word's sound is played backwards", side="sound")
    ... def reverse_words(decision, pair):
    ...     return {word: 0.0 for word in range(3)}
    >>> get_perturbation("reversed")[0].side
    'sound'
    >>> forget_perturbation("reversed")
    """
    unknown_options = set(options) - {"side", "reads", "reported_last"}
    if unknown_options:
        raise InputError(
            f"{name}: no fact {', '.join(sorted(unknown_options))}; there are side, reads, reported_last"
        )

    def add(function: Effects) -> Effects:
        perturbation = Perturbation(name, description, function, **options)
        _check_perturbation(perturbation)
        PERTURBATIONS[name] = perturbation
        return function

    return add


def register_builtin(name: str, **options: Any) -> Callable[[Effects], Effects]:
    """Add one of the package's own."""

    def add(function: Effects) -> Effects:
        PERTURBATIONS[name] = Perturbation(name, function=function, is_builtin=True, **options)
        return function

    return add


def forget_perturbation(name: str) -> None:
    """Remove a custom perturbation."""
    if name in PERTURBATIONS and not PERTURBATIONS[name].is_builtin:
        del PERTURBATIONS[name]


def get_perturbation(name: str) -> tuple[Perturbation, tuple[str, ...]]:
    """Look up a perturbation, and the fills that its name has in parentheses.

    Raises
    ------
    InputError
        If there is none of this name, or it has no fills.

    Examples
    --------
    >>> perturbation, fills = get_perturbation("mute (zeros)")
    >>> perturbation.name, fills
    ('mute', ('zeros',))
    """
    kind, fills = split_fills_from_name(name)
    perturbation = PERTURBATIONS.get(kind)
    if perturbation is None or (fills and "fills" not in perturbation.option_names):
        raise InputError(
            f"perturbations are {', '.join(sorted(PERTURBATIONS))}, and of one fill, as 'mute (zeros)'; found "
            f"{name!r}"
        )
    return perturbation, fills


def is_reported_last(name: str) -> bool:
    """Whether a perturbation is reported apart; False for an unknown name, as in a table of another
    session."""
    perturbation = PERTURBATIONS.get(split_fills_from_name(name)[0])
    return perturbation is not None and perturbation.reported_last


def perturbation_side(name: str) -> str:
    """Return the side of the input that a perturbation changes; empty for an unknown name."""
    perturbation = PERTURBATIONS.get(split_fills_from_name(name)[0])
    return "" if perturbation is None else perturbation.side


def custom_perturbation_identities(names: Iterable[str]) -> dict[str, str]:
    """Return the identities of custom perturbations, which are part of a cache key."""
    perturbations = (PERTURBATIONS.get(split_fills_from_name(name)[0]) for name in names)
    return {
        perturbation.name: perturbation.identity
        for perturbation in perturbations
        if perturbation is not None and not perturbation.is_builtin
    }


def split_fills_from_name(name: str) -> tuple[str, tuple[str, ...]]:
    """Split the name of a perturbation, or of a measure of scope "removal", from its fills.

    Examples
    --------
    >>> split_fills_from_name("mute (zeros, room)"), split_fills_from_name("patch")
    (('mute', ('zeros', 'room')), ('patch', ()))
    """
    match = re.fullmatch(r"(\S+) \((\w+(?:, \w+)*)\)", name)
    return (match.group(1), tuple(match.group(2).split(", "))) if match else (name, ())


def _check_perturbation(perturbation: Perturbation) -> None:
    name, existing = perturbation.name, PERTURBATIONS.get(perturbation.name)
    if not re.fullmatch(r"[\w-]+", name) or (existing is not None and existing.is_builtin):
        raise InputError(
            "a custom perturbation needs a name of its own, of letters, digits, - and _; found "
            f"{name!r}"
        )
    if perturbation.reads not in ("decision", "states") or perturbation.side not in (
        "",
        "sound",
        "text",
    ):
        raise InputError(f"{name}: reads 'decision' or 'states', of side 'sound' or 'text'")
    if perturbation.reads == "decision" and not perturbation.side:
        raise InputError(f"{name}: say which words it changes, with side='sound' or side='text'")
    unknown_options = set(perturbation.option_names) - set(PERTURBATION_OPTIONS)
    if unknown_options:
        raise InputError(
            f"{name}: no caller has the option {', '.join(sorted(unknown_options))}; there are {PERTURBATION_OPTIONS}"
        )
