"""Explain why a model wrote each word: attributions and removal effects.

What measures assign to its sources, and their effects.

In: a `Model` with its head, and a clip or a text. Out: an `Explanation`. The model writes
(`writers`), its words are aligned with what was said (`transcript_errors`), measures rank the
sources of each (`word_attributions`), and the sources they rank first are removed from the input, one at a
time and with several fills (`effects`).

Compute the explanation of a written text: attributions and removal effects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...adapters.generation.decoder_text import spoken_language
from ...errors import InputError, SpeechmixError
from ...inputs.clips.clip import Clip
from ...inputs.clips.segments import SegmentOption
from ...inputs.sentences.sentence import Sentence
from ...inputs.words.timed_words import Word
from ...mixing.maps.measure_registry import MEASURE_FACTS, measure_facts
from ...mixing.passes.item_view import segment_item
from ..lens.lens import lens as read_lens
from .choices import AGAINST, Choice, Readings, list_choices, list_units, write_label
from .effects import MOST_PAIRED, measure_effects
from .explanation import Explanation
from .fills import choose_fills
from .model_text import MOST_TOKENS, write_about_clip, write_about_text
from .source_words import add_pauses, find_sources
from .specificity import distance_between_words, specific_shares, spelling_margins
from .transcript_errors import TranscriptError, transcript_errors
from .word_attributions import (
    LOG_PROBABILITY,
    Attribution,
    attribute_in_one_pass,
    compute_attribution,
    defined_measures,
    frame_request,
    frame_times,
    measures_with_frames,
)
from .word_audio import find_own_audio

if TYPE_CHECKING:
    from ...adapters.model import Model
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


_UNITS = ("word", "token")


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
    segments: SegmentOption | None = None,
    lens: str | None = None,
) -> Explanation:
    """Why did the model write each of its words: what may it have come from, and does it go when
    that is taken away?

    Parameters
    ----------
    model : Model
        With its head: a CTC model, a transducer, a Whisper, a text model that fills masks, goes on
        or translates, or a classifier, whose label is explained.
    item : Clip, Sentence or str
        A clip's words are its sources; without word times they are aligned, its text or else the
        model's own transcript; where nobody speaks, or no word can be placed, segments of the sound
        are, and ``remarks`` says so. The words of a clip with text (or words) are also the reference that
        the transcript is held against. A text for a masked model has ``<mask>`` in it, or a target;
        a causal one goes on from it.
    text : str, optional
        What to explain instead of what the model writes by itself: a transcript, a translation, a
        continuation (with the space it begins with), the words behind the masks, a label (or its
        number).
    measures : str or sequence of str, optional
        "occlusion", "shapley", "alti_logit", "decompx", "lrp", measures of one number
        ("gradient_input", "integrated_gradients", "deeplift", "chefer") and measures of one layer
        ("value_zeroing", "attention", ..., rolled out or composed over the stacks). By default
        occlusion, gradient_input (but of a recogniser with a decoder, where it costs more than all
        removals), and of alti_logit and decompx those defined for the model. Ask for rolled-out
        maps by name.
    by : {"word", "token"}
        What is explained, and what earlier text is as a source. Letters are the tokens of a CTC
        model.
    against : str or sequence of {"reference", "runner_up", "foil"}
        What a written word is also held against: what was said, where the model erred; the
        second-likeliest token at the token it was least sure of; the foil of the item's target. A
        label is held against the true one (``meta["label"]``), the runner-up, or one that is named.
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
        and that mark no beginning or end) and removal. A word that a recogniser with a decoder wrote
        before the explained one is replaced by its two best alternatives ("alternative",
        "second_alternative").
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
    segments : float or {"voice", "frames"}, optional
        Segments of the sound as sources instead of words, as in `speechmix.segment_clip`: seconds of
        each, stretches of voice, or frames. The padding of a fixed window (Whisper) is one more
        source, ``<padding>``: measures attribute to it, but there is no sound to remove.
    lens : {"logit", "encoder"}, optional
        Also list what the model would have written from each layer, by `speechmix.lens`.

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
    over fills, with its range; of alternatives, the effect closest to zero. A source that a measure
    names and whose removal does nothing may have a duplicate; `measures="shapley"` sees that, with
    the first fill of each side alone.

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
    if by not in _UNITS:
        raise InputError(f"by should be one of {_UNITS}, found {by!r}")
    against = (against,) if isinstance(against, str) else tuple(against)
    if set(against) - set(AGAINST) and not model.has_label_head:
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
    asked_of_frames = frame_request(frames, item)
    with model.unchanged():
        reference_words, remarks = tuple[Word | str, ...](), tuple[str, ...]()
        by_token = by == "token"
        if isinstance(item, Clip):
            item, reference_words, remarks = find_sources(
                model, item, text, aligner, align_method, segments
            )
            item = add_pauses(item) if "silence" in include else item
            if model.engine is not None:
                remarks = (*remarks, model.engine.remark(model, item))
        else:
            item = segment_item(model, item, segments)
        if model.has_label_head:
            writing = write_label(model, item, label=text, by_token=by_token)
        elif isinstance(item, Clip):
            writing = write_about_clip(model, item, text=text, by_token=by_token)
        else:
            writing = write_about_text(
                model, item, text=text, by_token=by_token, max_tokens=max_tokens
            )
        if not writing.sources:
            raise InputError(
                f"{item.name}: there is no word that what is written could have come from"
            )
        language = spoken_language(model, item.language) if isinstance(item, Clip) else None
        errors = (
            transcript_errors(reference_words, writing.words, language) if reference_words else []
        )
        units = list_units(writing, by_token=by_token)
        choices = list_choices(writing, units, errors, against)
        fills = choose_fills(writing, sound=sound_fill, text=token_fill)
        explanation = explain_writing(
            writing,
            units,
            choices,
            errors,
            reference_words,
            fills,
            measures,
            top=top,
            pairs=pairs,
            samples=samples,
            seed=seed,
            frames=asked_of_frames,
            framed=measures_with_frames(frames),
        )
        explanation = replace(explanation, remarks=remarks)
        if lens is None:
            return explanation
        if isinstance(item, Clip):  # a decoder reads what was written
            item = item.replace(words=None, cue=None, target=None, foil=None)
            item = item.replace(text=explanation.text)
        return replace(explanation, layer_texts=read_lens(model, item, kind=lens).texts)
