"""What a measure of one's own is computed by, as a hash: a stored map is used only while the
function is the same.

In: a function. Out: 16 hexadecimal digits of its byte code, constants, defaults, and of the
functions and plain values that it closes over or takes from its own module. What other modules do
is not in it: their versions are in a run's description.
"""

from __future__ import annotations

import inspect
from functools import partial
from types import CodeType, FunctionType
from typing import Any

from ...files.cache_keys import digest

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def code_fingerprint(function: Any) -> str:
    """Hash of what a function does.

    Examples
    --------
    >>> code_fingerprint(lambda x: x + 1) == code_fingerprint(lambda x: x + 1)
    True
    >>> code_fingerprint(lambda x: x + 1) == code_fingerprint(lambda x: x + 2)
    False
    """
    return digest(_described(function, ()))[:16]


def _described(value: object, within: tuple[object, ...]) -> object:
    """A value as lists of text; a function by its code and what that refers to, other things by
    their type alone."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, frozenset | set):
        return ["set", *sorted(map(repr, value))]
    if isinstance(value, tuple | list):
        return [type(value).__name__, *(_described(part, within) for part in value)]
    if isinstance(value, dict):
        return ["dict", *([repr(key), _described(part, within)] for key, part in value.items())]
    if isinstance(value, CodeType):
        return [
            value.co_code.hex(),
            list(value.co_names),
            [_described(part, within) for part in value.co_consts],
        ]
    if isinstance(value, partial):
        return [_described(part, within) for part in (value.func, value.args, value.keywords)]
    if not isinstance(value, FunctionType) or value in within:
        return (
            f"{type(value).__module__}.{getattr(value, '__qualname__', type(value).__qualname__)}"
        )
    referred = inspect.getclosurevars(value)
    of_its_module = {
        name: other
        for name, other in referred.globals.items()
        if isinstance(other, _PLAIN) or getattr(other, "__module__", None) == value.__module__
    }
    parts = (
        value.__code__,
        value.__defaults__,
        value.__kwdefaults__,
        dict(referred.nonlocals),
        of_its_module,
    )
    return [_described(part, (*within, value)) for part in parts]
