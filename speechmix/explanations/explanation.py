"""Explanation: what a model wrote, what measures claim for each word, and what taking the sources away showed.

In: what `speechmix.explain` computed. Out: a tidy table, a figure, a page with coloured words, files. Values are parts of a
log-probability in nats, unless a claim says that they are parts of a logit, shares or sizes; above zero speaks for the word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..files.whole_files import whole_file
from .tables import claims_table, frames_table, order_of, pairs_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ..inputs.clips import Clip
    from .choices import Choice
    from .claims import Claim
    from .pairs import Pair
    from .transcript_errors import TranscriptError
    from .written import SourceUnit, WrittenToken


TABLES = (".csv", ".parquet")
ENDINGS = (".html", ".png", ".svg", ".pdf", *TABLES)


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a model wrote its words.

    Parameters
    ----------
    item : str
    text : str
        What was written.
    by : str
        Who wrote it.
    tokens : tuple of WrittenToken
    units : tuple of Choice
        Each written word (or token), in order.
    choices : tuple of Choice
        What is explained [C]: errors against what was said first, then each unit, then what else units are held against.
    sources : tuple of SourceUnit
        What words may have come from [S].
    errors : tuple of TranscriptError
    said : tuple of str
        The reference; empty where there is none.
    values : ndarray [C]
        What is explained, in nats: the log-probability of a word, or its difference to that of something else.
    claims : dict of measure to Claim
    value_without, probability_without : ndarray [C, S]
        The same, and the probability of the word, with the source taken away; NaN where it was not.
    pairs : tuple of Pair
        Sources taken away together, where that was asked for (``explain(pairs=4)``).
    frames : ndarray [F, 2]
        Beginning and end of each frame of the sound, in seconds, where a claim tells them apart (``Claim.by_frame``).
    left_out : tuple of (measure, reason)
    clip : Clip or None
        With the words that are sources, if it is a sound.
    provenance : dict
    """

    item: str
    text: str
    by: str
    tokens: tuple[WrittenToken, ...]
    units: tuple[Choice, ...]
    choices: tuple[Choice, ...]
    sources: tuple[SourceUnit, ...]
    errors: tuple[TranscriptError, ...]
    said: tuple[str, ...]
    values: np.ndarray
    claims: Mapping[str, Claim]
    value_without: np.ndarray
    probability_without: np.ndarray
    pairs: tuple[Pair, ...] = ()
    frames: np.ndarray = field(default_factory=lambda: np.empty((0, 2)), repr=False)
    left_out: tuple[tuple[str, str], ...] = ()
    clip: Clip | None = field(default=None, repr=False)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def measures(self) -> list[str]:
        return list(self.claims)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why it is not sure where the words of the sound are; what is claimed of them, and shown, is as doubtful."""
        return () if self.clip is None else tuple(self.clip.doubts)

    @property
    def drops(self) -> np.ndarray:
        """What each choice loses when a source is taken away, in nats [C, S]."""
        return self.values[:, None] - self.value_without

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
        places = [
            place
            for place, choice in enumerate(self.choices)
            if choice.against == against and word in (choice.unit, choice.label)
        ]
        if len(places) != 1:
            there = ", ".join(f"{choice.unit} {choice.label!r}" for choice in self.choices if choice.against == against)
            raise InputError(
                f"expected one of the written words, or its number, found {word!r}; there are {there or 'none'}"
            )
        return places[0]

    def ranked(self, word: str | int, measure: str | None = None, against: str = "") -> list[SourceUnit]:
        """The sources of a word by what a measure claims, first first.

        Parameters
        ----------
        word, against
            As in `choice`.
        measure : str, optional
            The first by default.
        """
        values = self._claim(measure).values[self.choice(word, against)]
        return [self.sources[index] for index in order_of(values)]

    def top(self, word: str | int, measure: str | None = None, against: str = "") -> SourceUnit:
        """The source that a measure ranks first.

        Raises
        ------
        InputError
            If the measure says nothing of any source of this word.
        """
        ranked = self.ranked(word, measure, against)
        if not ranked:
            raise InputError(f"{measure or self.measures[0]} claims nothing of any source of {word!r}")
        return ranked[0]

    def to_dataframe(self) -> pd.DataFrame:
        """A row for each choice, source and measure, `tables.COLUMNS`: what is claimed, and what was shown.

        ``value`` is what is explained, in nats; ``value_without``, ``drop`` and ``probability_without`` are missing where the
        source was not taken away. ``rank`` counts from 1.
        """
        return claims_table(self)

    def pairs_to_dataframe(self) -> pd.DataFrame:
        """A row for each choice and pair of its sources, the largest difference from the sum first in each choice.

        Columns are ``item, written, unit, against, foil, first_side, first, second_side, second``; ``drop_first``,
        ``drop_second`` and ``drop_both``, in nats; ``beyond``, what both take away beyond the sum; ``kind`` ("either-or", "both
        needed" or ""); ``probability`` of the word and ``probability_without`` both. Empty where no pairs were asked for.

        Examples
        --------
        >>> import speechmix
        >>> from speechmix import bundled
        >>> model = speechmix.load(bundled.models()["tiny-french-ctc"])
        >>> why = speechmix.explain(model, bundled.clips()[1], measures="occlusion", pairs=4)   # synthetic: "nos maisons"
        >>> why.pairs_to_dataframe()[["written", "first", "second"]].values.tolist()
        [['nos', 'nos', 'maisons'], ['maisons', 'nos', 'maisons']]
        """
        return pairs_table(self)

    def frames_to_dataframe(self) -> pd.DataFrame:
        """A row for each choice, measure and frame of the sound, `tables.FRAME_COLUMNS`.

        ``onset`` and ``offset`` are seconds of the frame, ``source`` and ``label`` of the word that it is in (missing between
        words), ``claimed`` is in the unit of the measure. Empty where no measure tells frames apart.

        Examples
        --------
        >>> import speechmix
        >>> from speechmix import bundled
        >>> model = speechmix.load(bundled.models()["tiny-french-ctc"])
        >>> why = speechmix.explain(model, bundled.clips()[1], measures="lrp")   # synthetic: "nos maisons"
        >>> frames = why.frames_to_dataframe().query("written == 'nos' and label == 'maisons'")
        >>> words = why.to_dataframe().query("written == 'nos' and label == 'maisons'")
        >>> bool(abs(frames.claimed.sum() - words.claimed.item()) < 1e-6)   # a word is the sum of its frames
        True
        """
        return frames_table(self)

    def plot(self, word: str | int | None = None, *, measure: str | None = None, against: str = "") -> Figure:
        """Draw what each word came from, or one word with what is claimed and shown (`plots.explanations`)."""
        from ..plots.explanations import explained_text, explained_word

        if word is None:
            return explained_text(self, measure=measure)
        return explained_word(self, self.choice(word, against))

    def to_html(self, *, sound: bool = True) -> str:
        """A page that needs no other file: choose a word, and see what it came from.

        Parameters
        ----------
        sound : bool
            Put the sound into the page, so that parts of it can be played.
        """
        from .page import page_of

        return page_of(self, sound=sound)

    def _repr_html_(self) -> str:
        from .page import body_of

        return body_of(self, sound=self.clip is not None)

    def save(self, path: str | Path) -> Path:
        """Write a page (.html), a figure (.png, .svg, .pdf) or the table (.csv, .parquet).

        Where pairs were asked for, their table lies beside that of the claims: ``why_pairs.csv`` beside ``why.csv``.

        Raises
        ------
        InputError
            For another ending.
        """
        path = Path(path)
        ending = path.suffix.lower()
        if ending not in ENDINGS:
            raise InputError(f"expected a path that ends in one of {', '.join(ENDINGS)}, found {path.name!r}")
        if ending in TABLES:
            _write_table(self.to_dataframe(), path)
            if self.pairs:
                _write_table(self.pairs_to_dataframe(), path.with_name(f"{path.stem}_pairs{path.suffix}"))
            return path
        with whole_file(path) as unfinished:
            if ending == ".html":
                unfinished.write_text(self.to_html(), encoding="utf-8")
            else:
                self.plot().savefig(unfinished, format=ending[1:], dpi=150, bbox_inches="tight")
        return path

    def __str__(self) -> str:
        """What was written, where it errs, and where each word came from, as plain text."""
        lines = [f"{self.item}: {self.text}", f"  {self.by}"]
        lines += [f"  word times DOUBTFUL: {doubt}" for doubt in self.doubts]
        lines += [f"  error: {error}" for error in self.errors]
        for place, choice in enumerate(self.choices):
            lines.append(f"  {choice.name}  p = {choice.probability:.3g}")
            for name, claim in self.claims.items():
                order = order_of(claim.values[place])[:2]
                told = ", ".join(
                    f"{self.sources[i].name} {claim.values[place, i]:+.2g}{self._shown(place, i)}" for i in order
                )
                lines.append(f"    {f'{name} ({claim.unit})':<24} {told}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return (
            f"Explanation({self.item!r}: {len(self.units)} units of {self.text!r}, {len(self.sources)} sources, "
            f"{', '.join(self.claims)}; {len(self.errors)} errors)"
        )

    def _shown(self, place: int, source: int) -> str:
        without = self.probability_without[place, source]
        return "" if np.isnan(without) else f" (without it p = {without:.3g})"

    def _claim(self, measure: str | None) -> Claim:
        name = measure or next(iter(self.claims))
        if name not in self.claims:
            raise InputError(f"no claims of {name!r}; there are {', '.join(self.claims)}")
        return self.claims[name]


def _write_table(table: pd.DataFrame, path: Path) -> None:
    with whole_file(path) as unfinished:
        if path.suffix.lower() == ".csv":
            table.to_csv(unfinished, index=False)
        else:
            table.to_parquet(unfinished, index=False)
