"""Why did the model write this word? What measures assign to its sources, and their effects.

In: a `Model` with its head, and a clip or a text. Out: an `Explanation`. The model writes
(`writers`), its words are aligned with what was said (`transcript_errors`), measures rank the
sources of each (`claims`), and the sources they rank first are removed from the input, one at a
time and with several fills (`effects`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InputError, SpeechmixError
from ..inputs.clips.clip import Clip
from ..inputs.sentences.sentence import Sentence
from ..inputs.words.timed_words import Word
from ..mixing.maps.measure_registry import MEASURE_FACTS, measure_facts
from .attributions import LOG_PROBABILITY, Claim, claim_of, claims_from_one_pass, defined_measures
from .choices import AGAINST, Choice, Readings, choices_of, units_of
from .effects import effects_of
from .explanation import Explanation
from .fills import fills_for
from .frame_attributions import frames_asked, named_for_frames, seconds_of_frames
from .generators import MOST_TOKENS, writing_of_clip, writing_of_text
from .source_pairs import MOST_PAIRED
from .source_words import find_source_words, with_silence
from .specificity import distance_between_words, specific_shares
from .spelling_prior import spelling_margins
from .transcript_errors import TranscriptError, transcript_errors
from .word_audio import own_sounds

if TYPE_CHECKING:
    from ..adapters.model import Model
    from .fills import Fills
    from .generated_tokens import Writing

_BY = ("word", "token")


def explain(
    model: Model,
    item: Clip | Sentence | str,
    *,
    text: str | None = None,
    measures: str | Sequence[str] | None = None,
    by: str = "word",
    against: str | Sequence[str] = ("reference",),
    top: int = 3,
    pairs: int = 0,
    frames: bool | str | Sequence[str] | None = None,
    include: Sequence[str] = (),
    sound_fill: str | Sequence[str] | None = None,
    token_fill: str | Sequence[str] | None = None,
    samples: int | None = None,
    seed: int = 0,
    max_tokens: int = MOST_TOKENS,
    aligner: Model | None = None,
    align_method: str = "auto",
) -> Explanation:
    """Why did the model write each of its words: what may it have come from, and does it go when
    that is taken away?

    Parameters
    ----------
    model : Model
        With its head: a CTC model, a Whisper, a text model that fills masks, goes on or translates.
    item : Clip, Sentence or str
        A clip's words are its sources; without word times they are aligned, its text or else the
        model's own transcript. The words of a clip with text (or words) are also the reference that
        the transcript is held against. A text for a masked model has ``<mask>`` in it, or a target;
        a causal one goes on from it.
    text : str, optional
        What to explain instead of what the model writes by itself: a transcript, a translation, a
        continuation (with the space it begins with), the words behind the masks.
    measures : str or sequence of str, optional
        "occlusion", "shapley", "alti_logit", "decompx", "lrp", measures of one number
        ("gradient_input", "integrated_gradients", "deeplift", "chefer") and measures of one layer
        ("value_zeroing", "attention", ..., rolled out or composed over the stacks). By default
        occlusion, gradient_input, and of alti_logit and decompx those defined for the model. Ask
        for rolled-out maps by name.
    by : {"word", "token"}
        What is explained, and what earlier text is as a source. Letters are the tokens of a CTC
        model.
    against : str or sequence of {"reference", "runner_up", "foil"}
        What a written word is also held against: what was said, where the model erred; the
        second-likeliest token at the token it was least sure of; the foil of the item's target.
    top : int
        How many sources that a measure ranks first are removed; 0 for none. Occlusion removes all.
    pairs : int
        Of so many sources of each word, those that stand first in the order of some measure (of
        occlusion only if there is no other), every two are taken away together, to tell either-or
        from both needed: of 4, six pairs a word. 2 to 8, or 0.
    frames : bool, str or sequence of str, optional
        Of which measures the frames of a sound are told apart, too: True, or names. By default of
        those whose words are made of frames (gradients, "chefer", "lrp"), which costs nothing more.
        Others take each frame as a source, beside the words; Value Zeroing then zeroes one frame
        after the other. Measures that take words away ("occlusion", "shapley") have none.
    include : sequence of {"silence"}
        The pauses of a clip (30 ms and more) are sources too.
    sound_fill : str or sequence of {"zeros", "room", "noise", "word"}, optional
        What replaces a word's sound (`speechmix.mute`), one run for each. By default silence
        ("zeros") and noise of the same level and spectrum.
    token_fill : str or sequence of str, optional
        What replaces a word of a text: "remove", "mask", "unk", "pad", or the text of any token. By
        default two neutral tokens (mask, unknown, a space, "e": the first that the tokenizer has
        and that mark no beginning or end) and removal.
    samples, seed : int, optional
        Of "shapley", as in `speechmix.shapley`.
    max_tokens : int
        How far a causal model goes on.
    aligner : Model, optional
        Places the words of a clip without word times. By default a text that came with a clip,
        whose language is known, is placed by synthesis, as in `speechmix score`; what the model
        itself wrote, and all else, by its CTC head, if it has one.
    align_method : str
        As in `speechmix.align`.

    Returns
    -------
    Explanation

    Raises
    ------
    InputError
        If the model writes nothing, or an option cannot be. A measure that is asked for by name and
        not defined for the model is an error, too; one that fails by default is recorded in
        ``left_out``.

    Notes
    -----
    Explained is the log-probability of a word, given what the model wrote before it (ALTI-Logit and
    DecompX: its logits; against something else: the difference of both, where that is the same).
    *Claimed* is a measure's number. The *effect of removal* is what an intervention does: the
    source is replaced, everything else stays, the text written before included. It is the median
    over fills, with its range. A source that a measure names and whose removal does nothing may
    have a duplicate; `measures="shapley"` sees that, with the first fill of each side alone.

    Examples
    --------
    >>> import speechmix
    >>> from speechmix.inputs import bundled
    >>> model = speechmix.load(bundled.models()["tiny-french-ctc"])
    >>> clip = next(clip for clip in bundled.clips() if clip.name == "left_00_pl")   # synthetic: "nos maisons"
    >>> why = speechmix.explain(model, clip, measures="occlusion")
    >>> why.text, why.top("maisons").label
    ('nos maisons', 'maisons')
    """
    if by not in _BY:
        raise InputError(f"by should be one of {_BY}, found {by!r}")
    against = (against,) if isinstance(against, str) else tuple(against)
    if set(against) - set(AGAINST):
        raise InputError(f"against should be some of {AGAINST}, found {against}")
    if set(include) - {"silence"}:
        raise InputError(f"include takes 'silence', found {tuple(include)}")
    if type(top) is not int or top < 0:
        raise InputError(
            f"expected top as how many sources are taken away, a whole number from 0, found {top!r}"
        )
    if type(pairs) is not int or pairs == 1 or not 0 <= pairs <= MOST_PAIRED:
        raise InputError(
            f"expected pairs as 0, or of how many sources, 2 to {MOST_PAIRED}; found {pairs!r}"
        )
    item = Sentence(item) if isinstance(item, str) else item
    asked_of_frames = frames_asked(frames, item)
    with model.unchanged():
        said: tuple[Word, ...] = ()
        if isinstance(item, Clip):
            said, item = find_source_words(model, item, text, aligner, align_method)
            clip = with_silence(item) if "silence" in include else item
            writing = writing_of_clip(model, clip, text=text, by_token=by == "token")
        else:
            writing = writing_of_text(
                model, item, text=text, by_token=by == "token", max_tokens=max_tokens
            )
        if not writing.sources:
            raise InputError(
                f"{item.name}: there is no word that what is written could have come from"
            )
        errors = transcript_errors(said, writing.words) if said else []
        units = units_of(writing, by_token=by == "token")
        choices = choices_of(writing, units, errors, against)
        fills = fills_for(writing, sound=sound_fill, text=token_fill)
        return _explained(
            writing,
            units,
            choices,
            errors,
            said,
            fills,
            measures,
            top=top,
            pairs=pairs,
            samples=samples,
            seed=seed,
            frames=asked_of_frames,
            framed=named_for_frames(frames),
        )


def _explained(
    writing: Writing,
    units: Sequence[Choice],
    choices: Sequence[Choice],
    errors: Sequence[TranscriptError],
    said: Sequence[Word],
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
    readings = Readings.of(writing, choices)
    names, left_out = _measure_names(writing, measures), list[tuple[str, str]]()
    if unasked := [name for name in framed if name not in names]:
        raise InputError(
            f"frames are asked of {', '.join(unasked)}, and measures are {', '.join(names)}: name "
            "it there, too"
        )
    of_words = [name for name in names if not frames(name)]
    claims, together = dict[str, Claim](), claims_from_one_pass(of_words, writing, choices)
    one_by_one = [name for name in names if measure_facts(name).one_by_one]
    for name in [name for name in names if name not in one_by_one]:
        try:
            claims[name] = together.get(name) or claim_of(
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
    effects = effects_of(
        writing, choices, readings, fills, claims, everything=bool(one_by_one), top=top, pairs=pairs
    )
    for name in one_by_one:  # the intervention itself as a measure: its attribution is its effect
        claims[name] = Claim(name, effects.values[:, None] - effects.value_without, LOG_PROBABILITY)
    claims = {name: claims[name] for name in names if name in claims}
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
        said=tuple(word.text for word in said),
        values=effects.values,
        claims=claims,
        value_without=effects.value_without,
        probability_without=effects.probability_without,
        fills=fills.all,
        value_by_fill=effects.value_by_fill,
        own_sound=own_sounds(writing, choices, errors),
        specific={name: specific_shares(claim.values, choices) for name, claim in claims.items()},
        distances={
            name: distance_between_words(claim.values, choices) for name, claim in claims.items()
        },
        spellings=spelling_margins(writing, choices),
        pairs=effects.pairs,
        frames=seconds_of_frames(writing)
        if any(claim.by_frame for claim in claims.values())
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


def _measure_names(writing: Writing, measures: str | Sequence[str] | None) -> list[str]:
    if measures is None:
        return list(defined_measures(writing))
    names = list(dict.fromkeys((measures,) if isinstance(measures, str) else measures))
    if not names:
        raise InputError(f"no measure asked for; there are {', '.join(MEASURE_FACTS)}")
    for name in names:
        measure_facts(name)  # raises an error that lists what there is
    return names
