"""Compute the explanation of a written text: attributions and removal effects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...errors import InputError, SpeechmixError
from ...inputs.clips.clip import Clip
from ...inputs.words.timed_words import Word
from ...mixing.maps.measure_registry import MEASURE_FACTS, measure_facts
from .attribution import LOG_PROBABILITY, Attribution
from .choices import Choice, Readings
from .effects import measure_effects
from .explanation import Explanation
from .frame_attributions import frame_times
from .specificity import distance_between_words, specific_shares
from .spelling_prior import spelling_margins
from .transcript_errors import TranscriptError
from .word_attributions import attribute_in_one_pass, compute_attribution, defined_measures
from .word_audio import find_own_audio

if TYPE_CHECKING:
    from .fills import Fills
    from .generated_tokens import Writing


def explain_writing(
    writing: Writing,
    units: Sequence[Choice],
    choices: Sequence[Choice],
    errors: Sequence[TranscriptError],
    reference_words: Sequence[Word | str],
    fills: Fills,
    measures: str | Sequence[str] | None,
    *,
    top: int,
    pairs: int,
    samples: int | None,
    seed: int,
    frames: Callable[[str], bool | None],
    framed: Sequence[str],
) -> Explanation:
    """Compute attributions and effects of all choices; the options are those of `explain`."""
    readings = Readings.of(writing, choices)
    names, left_out = _check_measure_names(writing, measures), list[tuple[str, str]]()
    if unasked := [name for name in framed if name not in names]:
        raise InputError(
            f"frames are asked of {', '.join(unasked)}, and measures are {', '.join(names)}: name "
            "it there, too"
        )
    of_words = [name for name in names if not frames(name)]
    attributions, together = (
        dict[str, Attribution](),
        attribute_in_one_pass(of_words, writing, choices),
    )
    one_by_one = [name for name in names if measure_facts(name).one_by_one]
    for name in [name for name in names if name not in one_by_one]:
        try:
            attributions[name] = together.get(name) or compute_attribution(
                name,
                writing,
                choices,
                readings,
                fills,
                samples=samples,
                seed=seed,
                frames=frames(name),
            )
        except SpeechmixError as error:
            if measures is not None:
                raise
            left_out.append((name, str(error)))
    effects = measure_effects(
        writing,
        choices,
        readings,
        fills,
        attributions,
        everything=bool(one_by_one),
        top=top,
        pairs=pairs,
    )
    for name in one_by_one:  # the intervention itself as a measure: its attribution is its effect
        attributions[name] = Attribution(
            name, effects.values[:, None] - effects.value_without, LOG_PROBABILITY
        )
    attributions = {name: attributions[name] for name in names if name in attributions}
    model, decision = writing.model, writing.decision
    return Explanation(
        item=decision.name,
        text=writing.text,
        by=writing.by,
        tokens=writing.tokens,
        units=tuple(units),
        choices=tuple(choices),
        sources=writing.sources,
        errors=tuple(errors),
        said=tuple(word.text if isinstance(word, Word) else word for word in reference_words),
        values=effects.values,
        attributions=attributions,
        value_without=effects.value_without,
        probability_without=effects.probability_without,
        fills=fills.all,
        value_by_fill=effects.value_by_fill,
        own_sound=find_own_audio(writing, choices, errors),
        specific={
            name: specific_shares(attribution.values, choices)
            for name, attribution in attributions.items()
        },
        distances={
            name: distance_between_words(attribution.values, choices)
            for name, attribution in attributions.items()
        },
        spellings=spelling_margins(writing, choices),
        pairs=effects.pairs,
        frames=frame_times(writing)
        if any(attribution.by_frame for attribution in attributions.values())
        else np.empty((0, 2)),
        left_out=tuple(left_out),
        clip=decision.item if isinstance(decision.item, Clip) else None,
        provenance={
            "model": model.name,
            "init": model.init,
            "seed": model.seed,
            "weights": model.fingerprint,
            "item": decision.name,
            **fills.names,
            **({"prompt": model.prompt.text} if model.converses else {}),
        },
    )


def _check_measure_names(writing: Writing, measures: str | Sequence[str] | None) -> list[str]:
    if measures is None:
        return list(defined_measures(writing))
    names = list(dict.fromkeys((measures,) if isinstance(measures, str) else measures))
    if not names:
        raise InputError(f"no measure asked for; there are {', '.join(MEASURE_FACTS)}")
    for name in names:
        measure_facts(name)  # raises an error that lists what there is
    return names
