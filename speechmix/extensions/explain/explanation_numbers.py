"""The numbers of an explanation: what measures assign to the sources of each written word, and the
effects of removing them.

In: what `speechmix.explain` computed. Out: `ExplanationNumbers`, arrays by choice [C] and source
[S], and what follows from them alone. Values are parts of a log-probability in nats, unless an attribution
says that they are parts of a logit, shares or sizes; above zero supports the word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from ...inputs.words.cue_and_target import number_repeated
from ...inputs.words.transcript_accuracy import normalize_transcript
from .effects import range_over_fills
from .specificity import LEAST_DISTANCE
from .word_audio import without_own_audio

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from .choices import Choice
    from .effects import Pair
    from .fills import Fill
    from .generated_tokens import SourceUnit, WrittenToken
    from .specificity import SpellingMargins
    from .transcript_errors import TranscriptError
    from .word_attributions import Attribution


@dataclass(frozen=True, eq=False)
class ExplanationNumbers:
    """What was computed about the words that a model wrote.

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
        What is explained [C]: errors against what was said first, then each unit, then what else
        units are held against.
    sources : tuple of SourceUnit
        What words may have come from [S].
    errors : tuple of TranscriptError
    said : tuple of str
        The reference; empty where there is none.
    values : ndarray [C]
        What is explained, in nats: the log-probability of a word, or its difference to that of
        something else.
    attributions : dict of measure to Attribution
    value_without, probability_without : ndarray [C, S]
        The same, and the probability of the word, with the source removed, over fills as in `drops`.
        NaN where it was not removed.
    fills : tuple of Fill
        What replaced the sources [F].
    value_by_fill : ndarray [F, C, S]
        What is explained, with the source replaced by each fill.
    own_sound : ndarray of bool [C, S]
        Whether the source is the audio segment of the very word that is explained.
    specific : dict of measure to ndarray [C, S]
        Share of the source for this word less its mean share for the other written words; NaN where
        there is none.
    distances : dict of measure to float
        How far the shares of a word are from the mean of the others', 0 to 1
        (`specificity.distance_between_words`); NaN for one written word.
    spellings : SpellingMargins
        Of a CTC model: margins between the text as written and with another spelling, with and
        without the sound of the words.
    pairs : tuple of Pair
        Sources taken away together, where that was asked for (``explain(pairs=4)``).
    frames : ndarray [F, 2]
        Beginning and end of each frame of the sound, in seconds, where an attribution tells them apart
        (``Attribution.by_frame``).
    left_out : tuple of (measure, reason)
    remarks : tuple of str
        What a reader must know of all words: that nobody seems to speak, and the sources are
        segments of the sound.
    layer_texts : tuple of str
        What the model would have written from the input of the first layer and from each layer,
        where a lens was asked for (``explain(lens="logit")``).
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
    attributions: Mapping[str, Attribution]
    value_without: np.ndarray
    probability_without: np.ndarray
    fills: tuple[Fill, ...]
    value_by_fill: np.ndarray
    own_sound: np.ndarray
    specific: Mapping[str, np.ndarray]
    distances: Mapping[str, float]
    spellings: SpellingMargins
    pairs: tuple[Pair, ...] = ()
    frames: np.ndarray = field(default_factory=lambda: np.empty((0, 2)), repr=False)
    left_out: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()
    layer_texts: tuple[str, ...] = ()
    clip: Clip | None = field(default=None, repr=False)
    provenance: Mapping[str, object] = field(default_factory=dict)

    @property
    def measures(self) -> list[str]:
        return list(self.attributions)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why it is not sure where the words of the sound are; their attributions and effects,
        is as doubtful."""
        return () if self.clip is None else tuple(self.clip.doubts)

    @property
    def drops(self) -> np.ndarray:
        """What each choice loses when a source is removed, in nats [C, S]: the median over
        fills; of earlier words that alternatives replace, the effect closest to zero."""
        drops: np.ndarray = self.values[:, None] - self.value_without
        return drops

    @property
    def drop_by_fill(self) -> np.ndarray:
        """The same for each fill, [F, C, S]."""
        drops: np.ndarray = self.values[:, None] - self.value_by_fill
        return drops

    @cached_property
    def drop_range(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest loss over fills, each [C, S]."""
        return range_over_fills(self.drop_by_fill)

    def tells_words_apart(self, measure: str) -> bool:
        """Whether a measure differs between the written words; true where there is only one to look
        at."""
        return not self.distances[measure] < LEAST_DISTANCE

    def choice_label(self, choice: int) -> str:
        """Label of a choice, numbered if the text has the word several times: "again (2)"."""
        label, unit_index = self.choices[choice].label, self.choices[choice].unit
        repeats = [unit.unit for unit in self.units if _plain(unit.label) == _plain(label)]
        return f"{label} ({repeats.index(unit_index) + 1})" if len(repeats) > 1 else label

    @cached_property
    def source_names(self) -> list[str]:
        """Names of the sources, numbered if there are several of one: "again (2)"."""
        return number_repeated([source.name for source in self.sources])

    def source_name(self, choice: int, source: int) -> str:
        """Name of a source, as one of a choice: its own sound is called so."""
        name = self.source_names[source]
        return f"{name} (own sound)" if self.own_sound[choice, source] else name

    def without_own_sound(self) -> Self:
        """The same with each word's own sound set aside.

        Nothing is assigned to it any more, shares are of all other sources, and its removal has no
        row. What is specific to a word stays a number of all sources.

        Examples
        --------
        >>> import speechmix
        >>> from speechmix.inputs import bundled
        >>> model = speechmix.load(bundled.models()["tiny-french-ctc"])
        >>> why = speechmix.explain(model, bundled.clips()[1], measures="occlusion")   # synthetic: "nos maisons"
        >>> why.top("maisons").name, why.without_own_sound().top("maisons").name
        ('maisons', 'nos')
        """
        is_own_sound = self.own_sound
        return replace(
            self,
            attributions={
                name: without_own_audio(attribution, is_own_sound, self.sources)
                for name, attribution in self.attributions.items()
            },
            value_without=np.where(is_own_sound, np.nan, self.value_without),
            probability_without=np.where(is_own_sound, np.nan, self.probability_without),
            value_by_fill=np.where(is_own_sound, np.nan, self.value_by_fill),
        )


def _plain(label: str) -> str:
    return normalize_transcript(label) or label
