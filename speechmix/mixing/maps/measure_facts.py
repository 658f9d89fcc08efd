"""Properties that a measure declares about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal


@dataclass(frozen=True)
class MeasureFacts:
    """What is known of a measure.

    Parameters
    ----------
    name : str
    description : str
        What a score counts, in one line.
    citation : str
        Where the measure is defined.
    scope : {"layer", "model", "logit", "removal"}
        What its function gets: a captured attention block; the whole model as a differentiable
        function; the model and a logit, which it splits into contributions; or the margins of an
        item without any set of its sources. The first two give maps (`speechmix.mix`), the third
        contributions (`speechmix.logit_contributions`).
    objective : bool
        True if it explains one number of the model's output: its maps have a single row. Always
        true of "logit" and "removal".
    at_one_position : bool
        True if what it explains must be read at one position of the output. Always true of "logit".
    word : str
        How a word of several frames counts: "as a whole", "mean per frame" (pair of positions), ...
    length_exponent : mapping of str to float
        By distance ("" for any): b in the share n^b that a word of n frames gets, other things
        being equal. Empty: not known.
    residual : {"in", "out", "share"}
        Where the residual stream is: in a target's own score; left out, so that rolling maps out
        adds the identity (Abnar & Zuidema 2020); or, in cross-attention, what a row lacks to one.
    residual_size : bool
        True if a target's own score holds the size of the residual stream, so that a layer that
        changes nothing has the identity as its map: such maps are composed without mixing
        strengths.
    cross : bool
        True if it is defined for cross-attention.
    norms : int
        Layer norms behind the residual sum that it passes: it is then defined for post-norm stacks
        alone.
    no_heads : str
        Why there is no form per head, as the error says it; empty if there is one.
    word_from_frames : {"", "sum", "mean"}
        How the score of a word follows from those of its frames; empty if it does not.
    one_by_one : bool
        True if it removes each source alone, so that its scores are effects of removal.
    slow : bool
        True if "all" measures leave it out, for it takes up to a minute a clip.
    requires : str
        A package that it needs, which speechmix does not install.
    is_baseline : bool
        True if its scores know nothing of the model: others are compared with it.
    is_per_target : bool
        True if it gives one number for each target instead of one for each source.
    revision : int
        Raised by one when the same input gives other scores from now on, as after a correction:
        stored scores of a former revision are then made again, and never in one table with new
        ones.
    """

    name: str
    description: str
    citation: str
    scope: Literal["layer", "model", "logit", "removal"] = "layer"
    objective: bool = False
    at_one_position: bool = False
    word: str = "mean per frame"
    length_exponent: Mapping[str, float] = field(default_factory=dict)
    residual: Literal["in", "out", "share"] = "in"
    residual_size: bool = False
    cross: bool = True
    norms: int = 0
    no_heads: str = ""
    word_from_frames: Literal["", "sum", "mean"] = ""
    one_by_one: bool = False
    slow: bool = False
    requires: str = ""
    is_baseline: bool = False
    is_per_target: bool = False
    revision: int = 1

    def with_options(self, text: str) -> MeasureFacts:
        """Return the facts of the measure with options of its own, as "power=2,kind=max" has them.

        Its name then ends in them; `speechmix.mixing.measures.measure.Measure` checks them.
        """
        return replace(self, name=f"{self.name}:{text}")

    @property
    def gives_maps(self) -> bool:
        """Whether `speechmix.mix` computes it."""
        return self.scope in ("layer", "model")

    @property
    def is_layerwise(self) -> bool:
        """Whether its maps have a row for each target, so that layers can be rolled out or
        composed."""
        return self.gives_maps and not self.objective

    @property
    def reaches_audio(self) -> bool:
        """Whether its scores of an audio language model are of words of the sound, not of positions
        behind the projector."""
        return self.objective and self.scope != "logit"


def measure_label(name: str) -> str:
    """Return the name of a measure as readers see it in figures and pages.

    Examples
    --------
    >>> measure_label("value_zeroing")
    'value zeroing'
    """
    return name.replace("_", " ")
