"""Fixtures: commands of a file share the models they load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from speechmix.adapters.loading import load as loading
from speechmix.adapters.model import Model


@pytest.fixture(scope="module")
def models_loaded_once() -> Iterator[None]:
    """Loading is most of the time of a small command; tests/adapters has tests of it."""
    load, loaded = loading.load, {}

    def load_once(*source: Any, **options: Any) -> Model:
        key = repr((source, sorted(options.items())))
        if key not in loaded:
            loaded[key] = load(*source, **options)
        return loaded[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "load", load_once)
        yield
