"""deletion_curves(): what is left of a label's probability when the tokens that a measure ranks
first are taken away.

For any labelled text: a classifier is asked for the label that it gives, a masked or causal model
for its target word. Tokens go in the order of a measure's row, one by one or in bins, and the other
way round only they are kept. With p(k) and q(k) the probability with the first k of W tokens
removed, and with only those kept, p(0) = q(W) that of the whole text:

    comprehensiveness    mean over k of p(0) - p(k)       sufficiency    mean over k of p(0) - q(k)
    deletion, insertion  area under p, under q, over the share of tokens, divided by the width of the curve

One by one, the first two leave out the ends, where the order plays no part (`scores`). In bins of b
% the first ceil(b W / 100) tokens go. DeYoung et al. 2020, ERASER, ACL; Petsiuk et al. 2018, BMVC;
as a test of measures in Ferrando et al. 2022 (ALTI).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ...errors import InputError, SpeechmixError
from ...inputs.sentences.sentence import Sentence
from ...interventions.decision import Decision
from ...interventions.input_ablation import stack_of_side
from ...interventions.removal_margins import RemovalMargins
from ...interventions.token_removal import TOKEN_FILLS, token_fills
from ...mixing.passes.request import TEXT_UNITS
from .deletion_results import DeletionCurves
from .evaluated_item import maps_by_measure
from .leaderboard import ORACLE, VALUE_COLUMNS
from .options import DEFAULT_MEASURES, FEWEST_WORDS, measures_of
from .scores import of_curves, order_of
from .to_output import goes_to_output, output_scores
from .trial import grouped, shown
from .words import RESIDUAL_ROLLOUT, WordScores, orders, random_orders, source_words, word_scores

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...mixing.maps.mixing_map import Maps

BINS = (1, 5, 10, 20, 50)  # percent of a text's tokens, as published
_AGGREGATIONS = ("rollout", RESIDUAL_ROLLOUT, "mean", "last")


def deletion_curves(
    model: Model,
    texts: Iterable[Sentence | str],
    *,
    measures: str | Sequence[str] = DEFAULT_MEASURES,
    bins: Sequence[float] | None = BINS,
    fill: str | None = None,
    aggregation: str = "rollout",
    units: str = "token",
    fewest: int = FEWEST_WORDS,
    draws: int = 10,
    progress: bool = False,
) -> DeletionCurves:
    """Remove (or keep) what each measure ranks first in labelled texts, and read what is left of
    the label's probability.

    Parameters
    ----------
    model : Model
        A text model with a classification head, or with a language-model head.
    texts : iterable of Sentence or str
        For a classifier any text; the label is what the model gives it as it is, whatever
        ``meta["label"]`` says (which is compared with it). For a language model, sentences with a
        target.
    measures : str or sequence of str
        Or "all" that are defined for the model.
    bins : sequence of float, optional
        Percent of a text's tokens that are removed together; None: one by one, W + 1 points a text.
    fill : {"mask", "unk", "pad", "remove"}, optional
        What takes a token's place; by default the first that the model's tokenizer has.
    aggregation : {"rollout", "residual rollout", "mean", "last"}
        Of layers, as for `speechmix.blank_out`. A gradient measure is taken at the input instead
        ("to the output"), as are measures whose parts add up to a logit, "occlusion" and "shapley".
    units : {"token", "word"}
    fewest : int
        Tokens that a text needs.
    draws : int
        Random orders, whose mean is the baseline.
    progress : bool
        Show a bar over texts.

    Returns
    -------
    DeletionCurves

    Raises
    ------
    InputError
        For an option that cannot be, a measure that is not defined, or no texts. A text that cannot
        be judged is recorded in `left_out`.

    Examples
    --------
    >>> classifier = speechmix.load("distilbert-base-uncased-finetuned-sst-2-english")    # doctest: +SKIP
    >>> curves = speechmix.deletion_curves(classifier, ["a gorgeous , witty film"])       # doctest: +SKIP
    >>> print(curves.text())                                                              # doctest: +SKIP
    """
    items = [Sentence(text) if isinstance(text, str) else text for text in texts]
    fill = _checked(model, items, bins, fill, aggregation, units)
    names = measures_of(model, measures)
    labels, groups, _ = grouped(items)
    parts: dict[str, list[dict[str, Any]]] = {
        "values": [],
        "points": [],
        "texts": [],
        "left_out": [],
    }
    options = {
        "bins": bins,
        "fill": fill,
        "aggregation": aggregation,
        "fewest": fewest,
        "draws": draws,
    }
    for index in shown(range(len(items)), model, progress):
        place = {"item": labels[index], "group": groups[index]}
        try:
            text = _Text(
                Decision.of(model, items[index].replace(foil=None), units=units), names, options
            )
            tables = {"values": text.values(), "points": text.points(), "texts": [text.label()]}
            for name, rows in tables.items():
                parts[name] += [{**place, **row} for row in rows]
            parts["left_out"] += [{"item": labels[index], **note} for note in text.notes]
        except SpeechmixError as error:
            parts["left_out"].append({"item": labels[index], "what": "item", "reason": str(error)})
    facts = {
        "model": model.name,
        "init": model.init,
        "seed": model.seed,
        "weights": model.fingerprint,
    }
    return DeletionCurves(
        pd.DataFrame(parts["values"], columns=VALUE_COLUMNS),
        pd.DataFrame(parts["points"]),
        pd.DataFrame(parts["texts"]),
        pd.DataFrame(parts["left_out"], columns=["item", "what", "reason"]),
        {**facts, **options, "units": units, "measures": list(names)},
    )


def _checked(
    model: Model, items: Sequence[Sentence], bins, fill: str | None, aggregation: str, units: str
) -> str:
    """The fill, after all options were looked at."""
    if not model.capabilities.is_single_text_stack:
        raise InputError(
            f"expected a masked or causal model or a classifier of texts, found {model.name}: "
            "speechmix.faithfulness has the "
            "curves of others, as metrics"
        )
    if not items:
        raise InputError("expected texts, found none")
    if bins is not None and (
        not len(bins) or list(bins) != sorted(set(bins)) or not 0 < bins[0] <= bins[-1] <= 100
    ):
        raise InputError(
            f"bins should be percent of the tokens, above 0 to 100 and rising, found {bins!r}"
        )
    if aggregation not in _AGGREGATIONS:
        raise InputError(f"aggregation should be one of {_AGGREGATIONS}, found {aggregation!r}")
    if units not in TEXT_UNITS:
        raise InputError(f"units should be one of {TEXT_UNITS}, found {units!r}")
    possible = token_fills(model)
    if fill is not None and fill not in possible:
        raise InputError(
            f"fill should be one of {possible} for {model.name} (of {TOKEN_FILLS}), found {fill!r}"
        )
    return possible[0] if fill is None else fill


class _Text:
    """Curves of one text."""

    def __init__(self, decision: Decision, measures: Sequence[str], options: Mapping[str, Any]):
        self._decision, self._options = decision, options
        self._stack = stack_of_side(decision, "text")
        self._sources = source_words(decision, self._stack)
        if len(self._sources) < options["fewest"]:
            raise InputError(
                f"expected at least {options['fewest']} {decision.units}s to remove, found "
                f"{len(self._sources)}"
            )
        self._removals = RemovalMargins(decision, "text", options["fill"])
        maps, self.notes = maps_by_measure(
            decision, [name for name in measures if not goes_to_output(name)]
        )
        self._vectors = [vector for name in measures for vector in self._of_measure(maps, name)]
        self._vectors += [
            *orders(decision, self._stack),
            WordScores(self._stack, ORACLE, "", None, self._drops()),
        ]
        drawn = random_orders(decision, self._stack, options["draws"])
        counts = self._counts()
        by_order = self._curves(
            [order_of(scores) for scores in (*(v.scores for v in self._vectors), *drawn)], counts
        )
        self._found = list(zip(self._vectors, by_order, strict=False))
        at_random = np.mean(by_order[len(self._vectors) :], axis=0)
        self._found.append((WordScores(self._stack, "random", "", None, drawn[0]), at_random))
        self._shares = (
            100 * counts / len(self._sources)
            if options["bins"] is None
            else np.array([0, *options["bins"]])
        )

    def label(self) -> dict[str, Any]:
        """What the text is asked for, how sure the model is of it, and whether that is the label it
        came with."""
        told, item = self._decision.objective.details, self._decision.item
        gold = "" if item is None else item.meta.get("label", "")
        intact = float(self._removals.probabilities(self._removals.margins([()]))[0])
        right = told["label"] == gold if gold and self._decision.model.classifies else None
        return {
            "label": told["label"],
            "probability": intact,
            "gold": gold,
            "right": right,
            "units": len(self._sources),
        }

    def values(self) -> list[dict[str, Any]]:
        """Metrics of every order."""
        judge = f"blank ({self._options['fill']})"
        return [
            {
                **self._place(vector),
                "words": len(self._sources),
                "judge": judge,
                "metric": metric,
                "value": value,
                "chance": np.nan,
            }
            for vector, (removed, kept) in self._found
            for metric, value in self._metrics(removed, kept).items()
        ]

    def points(self) -> list[dict[str, Any]]:
        """Every point of every curve: percent of tokens, how many, probability with them removed,
        and with them alone."""
        return [
            {**self._place(vector), "share": share, "count": count, "removed": left, "kept": alone}
            for vector, curves in self._found
            for share, count, left, alone in zip(self._shares, self._counts(), *curves, strict=True)
        ]

    def _place(self, vector: WordScores) -> dict[str, Any]:
        return {name: value for name, value in vector._asdict().items() if name != "scores"}

    def _of_measure(self, maps: Mapping[str, Maps], name: str) -> list[WordScores]:
        """Scores of the texts' tokens; none, with a note, where there are none."""
        asked = self._options["aggregation"]
        try:
            if goes_to_output(name):
                return list(output_scores(self._decision, name))
            if name not in maps:
                return []
            vectors = [
                v
                for v in word_scores(maps[name], name, self._decision, (asked,))
                if v.stack == self._stack
            ]
        except SpeechmixError as error:
            self.notes.append({"what": name, "reason": str(error)})
            return []
        if not vectors:
            self.notes.append(
                {"what": name, "reason": f"{name} has no {asked}: ask for another aggregation"}
            )
        return vectors

    def _drops(self) -> np.ndarray:
        """What each token alone costs: the oracle's order."""
        probabilities = self._removals.probabilities(
            self._removals.margins([(), *((source.index,) for source in self._sources)])
        )
        return probabilities[0] - probabilities[1:]

    def _counts(self) -> np.ndarray:
        """How many tokens are removed at each point, from none on."""
        total, bins = len(self._sources), self._options["bins"]
        # Rounded first: 20 % of 15 tokens are 3, and 3.0000000000000004 in floating point.
        return (
            np.arange(total + 1)
            if bins is None
            else np.array([0, *(ceil(round(b * total / 100, 9)) for b in bins)])
        )

    def _curves(self, ranked: Sequence[Sequence[int]], counts: np.ndarray) -> np.ndarray:
        """Curves of removal and of what is kept, [orders, 2, points]; all sets of tokens are run
        together, each once."""
        indices = [source.index for source in self._sources]
        words = [[indices[place] for place in order] for order in ranked]
        removed = [order[:count] for order in words for count in counts]
        absent = [order[count:] for order in words for count in counts]
        margins = self._removals.margins([*removed, *absent])
        probabilities = self._removals.probabilities(margins).reshape(2, len(words), len(counts))
        return probabilities.swapaxes(0, 1)

    def _metrics(self, removed: np.ndarray, kept: np.ndarray) -> dict[str, float]:
        if self._options["bins"] is None:
            return of_curves(removed, kept)
        intact, width = removed[0], self._shares[-1] - self._shares[0]
        return {
            "comprehensiveness": float(np.mean(intact - removed[1:])),
            "sufficiency": float(np.mean(intact - kept[1:])),
            "deletion": float(np.trapezoid(removed, self._shares) / width),
            "insertion": float(np.trapezoid(kept, self._shares) / width),
        }
