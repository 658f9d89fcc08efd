"""All kinds of results by name; a user adds kinds with `register_kind`.

In: kinds. Out: the kind of a name. Workers get the kinds themselves, so a kind that is registered in
the process that starts them is enough; its functions must be in a module that workers can import.
"""

from __future__ import annotations

from ...errors import InputError
from ...extension import load_with_places
from .ablation import ABLATION_KIND, KNOCK_OUT_KIND
from .generated_texts import GENERATED_TEXTS_KIND, TRANSCRIPTS_KIND
from .map_results import CONTRIBUTIONS_KIND
from .result_kind import ResultKind
from .word_times import WORD_TIMES_KIND

# By the place at which a run computes them.
_CORE_KINDS: dict[int, ResultKind] = {
    10: WORD_TIMES_KIND,
    20: GENERATED_TEXTS_KIND,
    30: CONTRIBUTIONS_KIND,
    40: ABLATION_KIND,
    50: TRANSCRIPTS_KIND,
    90: KNOCK_OUT_KIND,
}
_PACKAGE_KINDS = [
    kind
    for _, kind in sorted(
        [*_CORE_KINDS.items(), *load_with_places("kinds", ResultKind)], key=lambda pair: pair[0]
    )
]
KINDS: dict[str, ResultKind] = {}
for _kind in _PACKAGE_KINDS:
    if _kind.name in KINDS:
        raise InputError(
            f"two result kinds are called {_kind.name!r}: an extension that is installed must give its own another name"
        )
    KINDS[_kind.name] = _kind
_RESERVED = {kind.name for kind in _PACKAGE_KINDS} | {"facts", "maps", "cue_contribution"}


def register_kind(kind: ResultKind) -> ResultKind:
    """Add a kind of result, for `score_clips(..., kinds=[name])`.

    Parameters
    ----------
    kind : ResultKind

    Returns
    -------
    ResultKind
        The same. A kind that is registered again under its name, as in a notebook, is replaced.

    Raises
    ------
    InputError
        If the name is that of a kind of the package, or no identifier.

    Examples
    --------
    >>> from speechmix.runs.kinds.result_kind import Result, ResultKind
    >>> kind = ResultKind("seconds", lambda item: Result([{"seconds": item.clip.duration}]))
    >>> register_kind(kind).name
    'seconds'
    >>> forget_kind("seconds")
    """
    if not kind.name.isidentifier() or kind.name in _RESERVED:
        raise InputError(
            f"a kind of result needs a name of letters, digits and _ that no kind of the package "
            f"has; found {kind.name!r}"
        )
    KINDS[kind.name] = kind
    return kind


def forget_kind(name: str) -> None:
    """Remove a kind that was registered."""
    if name not in _RESERVED:
        KINDS.pop(name, None)


def find_kind(name: str) -> ResultKind:
    """Return the kind of a name; InputError if there is none."""
    if name not in KINDS:
        raise InputError(
            f"no kind of result is called {name!r}: there are {', '.join(KINDS)}; add your own by "
            "register_kind, or by an extension"
        )
    return KINDS[name]
