"""Explanation: what a model wrote, and why, as a table, a figure, a page with coloured words,
files, plain text.

In: the numbers of `speechmix.explain` (`explanation_numbers`). Out: whatever a reader wants of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ...errors import InputError
from ...files.text_files import write_table
from ...files.whole_files import whole_file
from .explanation_numbers import ExplanationNumbers
from .tables import attribution_table, effects_table, frames_table, pairs_table, sort_sources

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .generated_tokens import SourceUnit
    from .word_attributions import Attribution

TABLES = (".csv", ".parquet")
ENDINGS = (".html", ".png", ".svg", ".pdf", *TABLES)


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(ExplanationNumbers):
    """Why a model wrote its words: the numbers of `ExplanationNumbers`, by word, as a table, a
    figure or a page."""

    def choice(self, word: str | int, against: str = "") -> int:
        """Place of a choice among `choices`.

        Parameters
        ----------
        word : str or int
            A written word, or the number of a unit.
        against : {"", "reference", "runner_up", "foil"}

        Raises
        ------
        InputError
            If there is none, or several are written so: give the number of the unit then.
        """
        matching = [
            choice_index
            for choice_index, choice in enumerate(self.choices)
            if choice.against == against
            and word in (choice.unit, choice.label, self.choice_label(choice_index))
        ]
        if len(matching) != 1:
            available = ", ".join(
                f"{choice.unit} {self.choice_label(choice_index)!r}"
                for choice_index, choice in enumerate(self.choices)
                if choice.against == against
            )
            raise InputError(
                f"expected one of the written words, or its number, found {word!r}; there are "
                f"{available or 'none'}"
            )
        return matching[0]

    def ranked(
        self, word: str | int, measure: str | None = None, against: str = ""
    ) -> list[SourceUnit]:
        """The sources of a word by the attribution of a measure, largest first.

        Parameters
        ----------
        word, against
            As in `choice`.
        measure : str, optional
            The first by default.
        """
        values = self._find_attribution(measure).values[self.choice(word, against)]
        return [self.sources[index] for index in sort_sources(values)]

    def top(self, word: str | int, measure: str | None = None, against: str = "") -> SourceUnit:
        """The source that a measure ranks first.

        Raises
        ------
        InputError
            If the measure says nothing of any source of this word.
        """
        ranked = self.ranked(word, measure, against)
        if not ranked:
            raise InputError(
                f"{measure or self.measures[0]} has no attribution for any source of {word!r}"
            )
        return ranked[0]

    def to_dataframe(self, *, own_sound: bool = True) -> pd.DataFrame:
        """A row for each choice, source and measure, `tables.COLUMNS`: the attribution, and the
        effect of removal.

        ``value`` is what is explained, in nats; ``value_without``, ``drop`` and
        ``probability_without`` are medians over fills, missing where the source was not removed,
        ``drop_low`` and ``drop_high`` their range. ``specific`` is the share of the source for this
        word less its mean share for the other written words, ``distance`` how well the measure
        tells words apart. ``spelling_margin`` and ``spelling_prior`` are those of
        `SpellingMargins`. ``rank`` counts from 1. The table's `attrs`, which parquet files keep, say
        who wrote the text (``by``), and what is remarked of all words.

        Parameters
        ----------
        own_sound : bool
            With each word's own sound; else as of `without_own_sound`.
        """
        table = attribution_table(self if own_sound else self.without_own_sound())
        table.attrs = {"by": self.by, "remarks": [*self.remarks]}
        return table

    def effects_to_dataframe(self) -> pd.DataFrame:
        """A row for each choice, removed source and fill, `tables.EFFECT_COLUMNS`: what the word is
        worth without it, in nats.

        Examples
        --------
        >>> import speechmix
        >>> from speechmix.inputs import bundled
        >>> model = speechmix.load(bundled.models()["tiny-french-ctc"])
        >>> why = speechmix.explain(model, bundled.clips()[1], measures="occlusion")   # synthetic: "nos maisons"
        >>> why.effects_to_dataframe().query("written == 'nos' and label == 'nos'")["fill"].tolist()
        ['silence', 'noise']
        """
        return effects_table(self)

    def pairs_to_dataframe(self) -> pd.DataFrame:
        """A row for each choice and pair of its sources, the largest difference from the sum first
        in each choice.

        Columns are ``item, written, unit, against, foil, first_side, first, second_side, second``;
        ``drop_first``, ``drop_second`` and ``drop_both``, in nats; ``beyond``, what both take away
        beyond the sum; ``kind`` ("either-or", "both needed", "undone" or ""); ``fills``, with which
        all of these were read: those whose ``beyond`` is the median; ``probability`` of the word
        and ``probability_without`` both. Empty where no pairs were asked for.

        Examples
        --------
        >>> import speechmix
        >>> from speechmix.inputs import bundled
        >>> model = speechmix.load(bundled.models()["tiny-french-ctc"])
        >>> why = speechmix.explain(model, bundled.clips()[1], measures="occlusion", pairs=4)   # synthetic: "nos maisons"
        >>> why.pairs_to_dataframe()[["written", "first", "second"]].values.tolist()
        [['nos', 'nos', 'maisons'], ['maisons', 'nos', 'maisons']]
        """
        return pairs_table(self)

    def frames_to_dataframe(self) -> pd.DataFrame:
        """A row for each choice, measure and frame of the sound, `tables.FRAME_COLUMNS`.

        ``onset`` and ``offset`` are seconds of the frame, ``source`` and ``label`` of the word that
        it is in (missing between words), ``attribution`` is in the unit of the measure. Empty where no
        measure tells frames apart.

        Examples
        --------
        >>> import speechmix
        >>> from speechmix.inputs import bundled
        >>> model = speechmix.load(bundled.models()["tiny-french-ctc"])
        >>> why = speechmix.explain(model, bundled.clips()[1], measures="lrp")   # synthetic: "nos maisons"
        >>> frames = why.frames_to_dataframe().query("written == 'nos' and label == 'maisons'")
        >>> words = why.to_dataframe().query("written == 'nos' and label == 'maisons'")
        >>> bool(abs(frames.attribution.sum() - words.attribution.item()) < 1e-6)   # a word is the sum of its frames
        True
        """
        return frames_table(self)

    def plot(self, *, measure: str | None = None, ax: Axes | None = None) -> Axes:
        """Draw the attributions of all words by one measure (`plots.explained_text`)."""
        from .explanation_figures import explained_text

        return explained_text(self, measure=measure, ax=ax)

    def show(self, word: str | int, *, against: str = "") -> Figure:
        """Draw one word, with its attributions by each measure and the effects of removal
        (`plots.explained_word`)."""
        from .explanation_figures import explained_word

        return explained_word(self, self.choice(word, against))

    def to_html(self, *, sound: bool = True) -> str:
        """A page that needs no other file: choose a word, and see what it came from.

        Parameters
        ----------
        sound : bool
            Put the sound into the page, so that parts of it can be played.
        """
        from .page import explanation_page

        return explanation_page(self, sound=sound)

    def _repr_html_(self) -> str:
        from .page import explanation_body

        return explanation_body(self, sound=self.clip is not None)

    def save(self, path: str | Path) -> Path:
        """Write a page (.html), a figure (.png, .svg, .pdf) or the table (.csv, .parquet).

        Where pairs were asked for, their table lies beside that of the attributions: ``why_pairs.csv``
        beside ``why.csv``.

        Raises
        ------
        InputError
            For another ending.
        """
        path = Path(path)
        ending = path.suffix.lower()
        if ending not in ENDINGS:
            raise InputError(
                f"expected a path that ends in one of {', '.join(ENDINGS)}, found {path.name!r}"
            )
        if ending in TABLES:
            write_table(self.to_dataframe(), path)
            if self.pairs:
                pairs_path = path.with_name(f"{path.stem}_pairs{path.suffix}")
                write_table(self.pairs_to_dataframe(), pairs_path)
            return path
        with whole_file(path) as unfinished:
            if ending == ".html":
                unfinished.write_text(self.to_html(), encoding="utf-8")
            else:
                _save_figure(self.plot(), unfinished, ending[1:])
        return path

    def __str__(self) -> str:
        """What was written, where it errs, and what decided each word: a line for each. `details` has the rest."""
        from .plain_text import summary_text

        return summary_text(self)

    def details(self) -> str:
        """Return the first sources of each word by each measure, their effects and remarks, as plain text."""
        from .plain_text import explanation_text

        return explanation_text(self)

    def __repr__(self) -> str:
        return (
            f"Explanation({self.item!r}: {len(self.units)} units of {self.text!r}, "
            f"{len(self.sources)} sources, "
            f"{', '.join(self.attributions)}; {len(self.errors)} errors)"
        )

    def _find_attribution(self, measure: str | None) -> Attribution:
        name = measure or next(iter(self.attributions))
        if name not in self.attributions:
            raise InputError(
                f"no attributions of {name!r}; there are {', '.join(self.attributions)}"
            )
        return self.attributions[name]


def _save_figure(ax: Axes, path: Path, kind: str) -> None:
    from matplotlib import pyplot

    figure = cast("Figure", ax.get_figure(root=True))  # the one that `plot` made
    figure.savefig(path, format=kind, dpi=150, bbox_inches="tight")
    pyplot.close(figure)
