"""What a model card is made of: estimates with intervals, and the profile of one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...files.cache_keys import digest
from ...files.json_files import JsonObject


@dataclass(frozen=True)
class CardEstimate:
    """One number of a profile with its 95 % interval.

    Attributes
    ----------
    quantity : {"cue contribution", "cue need", "character error rate"}
        Trained minus untrained; spelling accuracy lost without the cue; of the transcripts.
    side, stack, measure : str
        Empty where they do not apply.
    unit : str
    value : float
    low, high : float or None
        None where there is no interval.
    verdict : str
        What is claimed; empty: nothing.
    groups : int
        Independent groups of clips.
    """

    quantity: str
    side: str
    stack: str
    measure: str
    unit: str
    value: float
    low: float | None
    high: float | None
    verdict: str
    groups: int

    @property
    def label(self) -> str:
        """What the number is of, in words."""
        side = f"{self.side} cue" if self.side not in ("", "all") else ""
        details = ", ".join(filter(None, [self.stack, self.measure.replace("_", " "), side]))
        return f"{self.quantity} ({details})" if details else self.quantity

    @property
    def text(self) -> str:
        """The number with its interval, as people read it."""
        if self.low is None or self.high is None:
            return f"{self.value:.1f} (no interval)"
        return f"{self.value:.1f} ({self.low:.1f} to {self.high:.1f})"


@dataclass(frozen=True)
class MixingProfile:
    """What one run shows of a model.

    Attributes
    ----------
    clips : dict
        count, groups, grouping (both with speakers, in a sentence), seconds, languages, fingerprint
        (of sounds, texts, words, cues and targets).
    options : dict
        Options of the run that decide its numbers.
    twins : int
        Untrained twins of the model.
    answers, notes : list of str
        The run's conclusions in sentences; what a reader must know about its clips.
    estimates : list of CardEstimate
    layers : list of dict
        side, stack, measure, and for each layer: difference, low, high, mixing_strength.
    measures : list of dict
        Faithfulness evaluation of each measure; empty if the run has none.
    versions : str
        Of the software that computed the scores.
    """

    clips: JsonObject
    options: JsonObject
    twins: int
    answers: Sequence[str]
    notes: Sequence[str]
    estimates: Sequence[CardEstimate]
    layers: Sequence[JsonObject]
    measures: Sequence[JsonObject]
    versions: str

    @property
    def comparison_key(self) -> str:
        """Hash of what two profiles must share before their numbers may be compared."""
        return digest([self.clips["fingerprint"], self.options])
