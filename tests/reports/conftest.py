"""Fixtures of the tests of pages."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure


@pytest.fixture
def undrawn(monkeypatch):
    """Figures are saved empty, for tests of what a page says: drawing is most of a page's time, and other tests look at it."""
    saved = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda figure, *files, **_: saved(Figure(figsize=(1, 1)), *files, **_))
