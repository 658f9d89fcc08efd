"""Fixtures: the figure of counts takes most of the time of a selection, and few tests look at it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from matplotlib.figure import Figure

from speechmix.studies.french import stage_counts


@pytest.fixture(scope="module", autouse=True)
def _counts_are_drawn_empty() -> Iterator[None]:
    """A test that looks at the figure puts the real function back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage_counts, "draw_count_figure", lambda table: Figure(figsize=(1, 1)))
        yield
