"""Hash a measure's code, so that stored maps of a changed function are not reused.

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

_PRIMITIVE_TYPES = (bool, int, float, complex, str, bytes, type(None))


def code_fingerprint(function: Any) -> str:
    """Hash of what a function does.

    Examples
    --------
    >>> code_fingerprint(lambda x: x + 1) == code_fingerprint(lambda x: x + 1)
    True
    >>> code_fingerprint(lambda x: x + 1) == code_fingerprint(lambda x: x + 2)
    False
    """
    return digest(_describe_value(function, ()))[:16]


def _describe_value(value: object, enclosing_functions: tuple[object, ...]) -> object:
    """A value as lists of text; a function by its code and what that refers to, other things by
    their type alone."""
    if isinstance(value, _PRIMITIVE_TYPES):
        return repr(value)
    if isinstance(value, frozenset | set):
        return ["set", *sorted(map(repr, value))]
    if isinstance(value, tuple | list):
        return [
            type(value).__name__,
            *(_describe_value(component, enclosing_functions) for component in value),
        ]
    if isinstance(value, dict):
        return [
            "dict",
            *(
                [repr(key), _describe_value(component, enclosing_functions)]
                for key, component in value.items()
            ),
        ]
    if isinstance(value, CodeType):
        return [
            value.co_code.hex(),
            list(value.co_names),
            [_describe_value(component, enclosing_functions) for component in value.co_consts],
        ]
    if isinstance(value, partial):
        return [
            _describe_value(component, enclosing_functions)
            for component in (value.func, value.args, value.keywords)
        ]
    if not isinstance(value, FunctionType) or value in enclosing_functions:
        return (
            f"{type(value).__module__}.{getattr(value, '__qualname__', type(value).__qualname__)}"
        )
    references = inspect.getclosurevars(value)
    module_globals = {
        name: referenced_value
        for name, referenced_value in references.globals.items()
        if isinstance(referenced_value, _PRIMITIVE_TYPES)
        or getattr(referenced_value, "__module__", None) == value.__module__
    }
    components = (
        value.__code__,
        value.__defaults__,
        value.__kwdefaults__,
        dict(references.nonlocals),
        module_globals,
    )
    return [_describe_value(component, (*enclosing_functions, value)) for component in components]
