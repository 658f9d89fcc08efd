"""Define what a section of a run page is, and what sections are made of.

In: a `PageContent`, the study with the cards and pictures that several sections share. Out: titled
parts of the page. A new section is one file with a `PageSection`, which an extension names in its
`sections`; `run_page.SECTIONS` takes further ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ...errors import InputError
from ...inputs.clips.clip import Clip
from ...runs.results.open_run import StoredRun
from .html_page import Item, Part, Picture
from .study_results import Study

if TYPE_CHECKING:
    from .clip_card import ClipCard


@dataclass(frozen=True, eq=False)
class PageContent:
    """Study, cards and pictures that the sections of a page are made of.

    Parameters
    ----------
    study : Study
    cards : sequence of ClipCard
        Clips to hear; the first is on the first screen.
    need_figures : sequence of Picture
        Contribution above need, for each side of the cue; the first is on the first screen.
    unreadable_maps : sequence of str
        What could not be read of the maps of these clips.
    published, audio, clips
        As of `run_page.write_page`.
    """

    study: Study
    cards: Sequence[ClipCard] = ()
    need_figures: Sequence[Picture] = ()
    unreadable_maps: Sequence[str] = ()
    published: bool | str = False
    audio: str | PathLike[str] | None = None
    clips: Sequence[Clip] = ()

    @property
    def run(self) -> StoredRun:
        """The run that the study is of."""
        return self.study.run

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self.study.run.folder.path

    @property
    def is_single_clip(self) -> bool:
        """Whether the run has one clip, for which there is no statistic."""
        return len(self.run.clips) == 1

    @property
    def has_comparison(self) -> bool:
        """Whether trained models can be compared with untrained twins, over several clips."""
        headline = self.study.headline
        is_compared = len(headline) > 0 and headline.difference.notna().any()
        return bool(is_compared) and not self.is_single_clip

    @property
    def has_results(self) -> bool:
        """Whether there is a cue contribution to report."""
        return self.study.layers is not None


@runtime_checkable
class PageParts(Protocol):
    """Protocol of anything that returns titled parts of a page, such as `PageSection`."""

    def parts(self, content: PageContent) -> list[Part]:
        """Return the parts with their titles; nothing where there is nothing to say."""


def _is_always_available(content: PageContent) -> bool:
    return True


@dataclass(frozen=True)
class PageSection:
    """Section of a run page with one title.

    Parameters
    ----------
    title : str
    render : callable
        Makes the items of the section; none if there is nothing to say. The message of an
        `InputError` that it raises, as for a damaged table, is shown instead.
    is_available : callable
        Whether the section has anything to render.

    Examples
    --------
    >>> section = PageSection("Clips", lambda content: [f"{len(content.run.clips)} clips"])
    >>> section.title
    'Clips'
    """

    title: str
    render: Callable[[PageContent], Sequence[Item]]
    is_available: Callable[[PageContent], bool] = _is_always_available

    def parts(self, content: PageContent) -> list[Part]:
        """Return the section under its title; nothing where there is nothing to say."""
        try:
            rendered = self.render(content) if self.is_available(content) else []
            if isinstance(rendered, str):
                raise TypeError(
                    f"a section returns a list of items, found the text {rendered!r:.80}"
                )
            items = [*rendered]
        except InputError as error:
            items = [str(error)]
        return [(self.title, items)] if items else []
