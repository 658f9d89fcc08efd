"""Fixtures: pages without the figures of the study, for tests that do not look at them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from speechmix.reporting.pages import study_figures


@contextlib.contextmanager
def study_figures_left_out() -> Iterator[None]:
    """Context in which pages have no figures of each side of the cue: that is most of a page's time,
    even if they are saved empty; test_page_in_chromium.py and test_study.py look at them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study_figures, "_study_figure_parts", lambda study, *, published: [])
        yield


@pytest.fixture
def no_study_figures() -> Iterator[None]:
    """Pages of a test have no figures of the study."""
    with study_figures_left_out():
        yield
