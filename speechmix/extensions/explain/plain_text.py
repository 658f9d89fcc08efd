"""An explanation as plain text: each word, what measures assign to its first sources, and the
effects of removing sources.

In: an `Explanation`. Out: lines for a terminal (`summary_text`, one for each word), and all of it (`explanation_text`),
also for a page where no script runs.

What a reader must know before trusting one word's numbers, in plain sentences.

In: an `Explanation` and the index of a choice. Out: sentences: measures and effects of removal
disagree about the first source; fills disagree; a CTC model prefers a spelling without any sound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...alignment.alignment_result import without_calibration_note
from ...inputs.words.cue_and_target import end_sentence, name_in_sentence
from .choices import Choice
from .fills import Fill
from .generated_tokens import BLANK, END, SPACE
from .removals import OCCLUSION
from .tables import sort_sources

if TYPE_CHECKING:
    from .explanation_numbers import ExplanationNumbers

LEAST_NATS = 0.1  # an effect below this is none: then no source is first, and no sign counts


def list_remarks(explanation: ExplanationNumbers, choice_index: int) -> list[str]:
    """Sentences about one choice.

    Parameters
    ----------
    explanation : ExplanationNumbers
        `Explanation.without_own_sound` says it of the other sources.
    choice_index : int
        Among its choices.
    """
    return [
        *_spelling_remarks(explanation, choice_index),
        *_measure_remarks(explanation, choice_index),
        *_fill_remarks(explanation, choice_index),
    ]


def _spelling_remarks(explanation: ExplanationNumbers, choice_index: int) -> list[str]:
    margin, prior = (
        explanation.spellings.margin[choice_index],
        explanation.spellings.prior[choice_index],
    )
    if not np.isfinite(prior):
        return []
    by_fill = explanation.spellings.prior_by_fill[:, choice_index]
    low, high = (min(by_fill), max(by_fill)) if prior >= 0 else (-max(by_fill), -min(by_fill))
    return [
        f"The log probability of the text as written is {_compare_probability(margin)} than that of "
        "the text with the other spelling. If fills replace all words in the sound, it is "
        f"{_compare_probability(prior)} ({low:.1f} to {high:.1f} over the fills). "
        f"So the sound changes this difference by {margin - prior:+.1f} nats."
    ]


def _compare_probability(margin: float) -> str:
    return f"{abs(margin):.1f} nats {'higher' if margin >= 0 else 'lower'}"


def _measure_remarks(explanation: ExplanationNumbers, choice_index: int) -> list[str]:
    if np.isfinite(explanation.drops[choice_index]).sum() < 2:
        return []
    largest = _largest_source(explanation.drops[choice_index])
    others: dict[int, list[str]] = {}
    for name, attribution in explanation.attributions.items():
        known_values = np.where(
            np.isfinite(explanation.drops[choice_index]), attribution.values[choice_index], np.nan
        )
        first = _largest_source(known_values, least=0.0)
        if name != OCCLUSION and first is not None and first != largest:
            others.setdefault(first, []).append(name.replace("_", " "))
    if not others:
        return []
    named = "; ".join(
        f"{_join_names(names)} {'assigns' if len(names) == 1 else 'assign'} the highest score to "
        f"{explanation.source_name(choice_index, source)}"
        for source, names in others.items()
    )
    if largest is None:
        return [
            f"No single removal has an effect above {LEAST_NATS} nats. {end_sentence(f'However, {named}')}"
        ]
    return [
        f"Removing {explanation.source_name(choice_index, largest)} has the largest effect. "
        f"{end_sentence(f'However, {named}')}"
    ]


def _fill_remarks(explanation: ExplanationNumbers, choice_index: int) -> list[str]:
    drops, sentences = explanation.drop_by_fill[:, choice_index], []
    for side in ("sound", "text"):
        rows = [row for row, fill in enumerate(explanation.fills) if fill.side == side]
        firsts = {row: _largest_source(drops[row]) for row in rows if np.isfinite(drops[row]).any()}
        if len(set(firsts.values())) > 1:
            what = "segment" if side == "sound" else "word"
            first_sources_text = " ".join(
                f"{_fill_phrase(explanation.fills[row])}, "
                + (
                    f"no {what} has an effect above {LEAST_NATS} nats."
                    if source is None
                    else end_sentence(
                        f"it is {name_in_sentence(explanation.source_name(choice_index, source))}"
                    )
                )
                for row, source in firsts.items()
            )
            whole = "the sound" if side == "sound" else "the text"
            sentences.append(
                f"The {what} of {whole} with the largest effect differs between fills. "
                f"{first_sources_text}"
            )
    low, high = explanation.drop_range
    mixed = np.flatnonzero((low[choice_index] <= -LEAST_NATS) & (high[choice_index] >= LEAST_NATS))
    if len(mixed):
        named = _join_names(
            [explanation.source_name(choice_index, index) for index in mixed.tolist()]
        )
        sentences.append(
            f"Whether the removal of {named} raises or lowers the word's probability depends on the "
            "fill."
        )
    return sentences


def _largest_source(values: np.ndarray, *, least: float = LEAST_NATS) -> int | None:
    """The source with the largest value; None if no value reaches the least."""
    filled_values = np.where(np.isfinite(values), values, -np.inf)
    return (
        int(filled_values.argmax()) if len(filled_values) and filled_values.max() > least else None
    )


def _fill_phrase(fill: Fill) -> str:
    return "After removal" if fill.name == "remove" else f"With {fill.label}"


def _join_names(labels: Sequence[str]) -> str:
    names = [name_in_sentence(label) for label in labels]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


SAME_FOR_ALL = "almost the same for every word"
_MAX_SOURCES = 2  # sources in a line
_LABEL_WIDTH = 24  # characters
DECIDING_NATS = 1.0  # that a source must change to decide a word
_LEGEND = (
    "p: the model's probability of the word (or label) that it wrote.",
    "In parentheses after a measure: its unit. 1 nat is a factor of 2.7 in probability.",
    "(own sound): the sound at the time of the word itself. (written): an earlier word of the text.",
    "[a to b]: lowest and highest effect over the fills, which replace a removed source.",
    "specific: the source's share of the attribution for this word minus its mean share for the "
    "other words, in percentage points.",
)
_BYTE_LEGEND = "<0xC3> and similar: one byte of a letter, for example of an accented letter."
_BYTE_LABEL = re.compile(r"<0x[0-9A-F]{2}>")
_LABEL_PHRASES = {BLANK: "no letter", END: "the end of the text", SPACE: "a space"}


def summary_text(explanation: ExplanationNumbers) -> str:
    """What decided each word, a line for each, below at most three lines about all; errors first."""
    errors = [index for index, choice in enumerate(explanation.choices) if choice.error is not None]
    explained = {explanation.choices[index].error for index in errors}
    words = [index for index, choice in enumerate(explanation.choices) if choice.error is None]
    count = len(explanation.errors)
    error_count = f"{count} error{'s' * (count > 1)}; " if count else ""
    lines = [
        f"{explanation.item}: {explanation.text}",
        f"  {explanation.by}; {error_count}effects of replacing a "
        "source, in nats (1 nat is a factor of 2.7 in probability)",
    ]
    if remarks := " ".join([*explanation.remarks, *format_doubts(explanation)]):
        lines.append(f"  {remarks}")
    lines += [
        f"  error: {end_sentence(str(explanation.errors[explanation.choices[index].error or 0]))} "
        f"{_line_label(explanation, index)} {_format_deciding(explanation, index)}"
        for index in errors
    ]
    lines += [
        f"  error: {error}"
        for number, error in enumerate(explanation.errors)
        if number not in explained
    ]
    names = [_line_label(explanation, index) for index in words]
    width = min(_LABEL_WIDTH, max(map(len, names), default=0))
    lines += [
        f"  {name:<{width}}  p = {explanation.choices[index].probability:<8.3g} "
        f"{_format_deciding(explanation, index)}"
        for name, index in zip(names, words, strict=True)
    ]
    return "\n".join(lines)


def _line_label(explanation: ExplanationNumbers, index: int) -> str:
    return choice_heading(explanation.choices[index], explanation.choice_label(index))


def _format_deciding(explanation: ExplanationNumbers, index: int) -> str:
    """The strongest supporter and the strongest opponent of a choice."""
    drops = explanation.drops[index]
    removed = np.flatnonzero(np.isfinite(drops))
    if not len(removed):
        first = next(iter(explanation.attributions))
        order, text = _format_attribution(explanation, index, first)
        return f"{first}: {text}" if order else "no source can be removed"
    most, least = (int(removed[at]) for at in (drops[removed].argmax(), drops[removed].argmin()))
    if drops[most] < DECIDING_NATS:
        text = f"no single source decides (largest effect {drops[most]:+.1f})"
    else:
        text = f"{explanation.source_name(index, most)} {drops[most]:+.1f}"
    if drops[least] <= -DECIDING_NATS:
        text += f"; against it: {explanation.source_name(index, least)} {drops[least]:+.1f}"
    return text


def format_doubts(explanation: ExplanationNumbers) -> list[str]:
    """One remark with all reasons why the word times may be wrong; none if there is no doubt."""
    doubts = " ".join(explanation.doubts)
    if without_calibration_note(doubts):
        return [f"The word times may be wrong: {doubts}"]
    return [doubts] if doubts else []


def explanation_text(explanation: ExplanationNumbers) -> str:
    """All words of an explanation with their first sources."""
    lines = [f"{explanation.item}: {explanation.text}", f"  {explanation.by}"]
    lines += [f"  {line}" for line in _list_legend(explanation)]
    lines += [f"  {remark}" for remark in explanation.remarks]
    lines += [f"  {doubt}" for doubt in format_doubts(explanation)]
    lines += [f"  error: {error}" for error in explanation.errors]
    besides = explanation.without_own_sound()
    for choice_index, choice in enumerate(explanation.choices):
        lines.append(f"  {_line_label(explanation, choice_index)}  p = {choice.probability:.3g}")
        for name, attribution in explanation.attributions.items():
            if name == OCCLUSION:
                continue
            mark = "" if explanation.tells_words_apart(name) else f"; {SAME_FOR_ALL}"
            lines.append(
                _format_line(
                    f"{name} ({attribution.unit}{mark})",
                    *_format_with_and_without_own(
                        explanation, besides, choice_index, _format_attribution, name
                    ),
                )
            )
        title = (
            "occlusion (loss, nats)"
            if OCCLUSION in explanation.attributions
            else "removal (loss, nats)"
        )
        lines += (
            [_format_line(title, *of_effect)]
            if (
                of_effect := _format_with_and_without_own(
                    explanation, besides, choice_index, _format_effects
                )
            )[0]
            else []
        )
        remarks, of_others = (
            list_remarks(explanation, choice_index),
            list_remarks(besides, choice_index),
        )
        lines += [f"    {remark}" for remark in remarks]
        lines += [
            f"    Among the other sources: {remark}"
            for remark in of_others
            if remark not in remarks
        ]
    return "\n".join(lines)


def choice_heading(choice: Choice, label: str | None = None) -> str:
    """Name a choice as a question; a word that the text has several times by its numbered label.

    Examples
    --------
    >>> choice_heading(Choice(0, "nos", (0,), 0, 1.0))
    'nos'
    >>> from speechmix.extensions.explain.choices import Contrast
    >>> contrast = Contrast(2, 7, 8, "s", "(nothing)", 0.1)
    >>> choice_heading(Choice(0, "nos", (0,), 0, 1.0, "runner_up", contrast))
    'In “nos”: why “s” and not no letter?'
    """
    label = label or choice.label
    if choice.contrast is None:
        return label
    written_phrase, other = (
        _LABEL_PHRASES.get(part, f"“{part}”")
        for part in (choice.contrast.label, choice.contrast.foil_label)
    )
    if choice.contrast.label == choice.label:
        return f"Why {_LABEL_PHRASES.get(choice.label, f'“{label}”')} and not {other}?"
    where = "At the end" if choice.label == END else f"In “{label}”"
    return f"{where}: why {written_phrase} and not {other}?"


def _list_legend(explanation: ExplanationNumbers) -> list[str]:
    """The meaning of what the lines contain."""
    headings = map(choice_heading, explanation.choices)
    has_bytes = any(_BYTE_LABEL.search(heading) for heading in headings)
    return [*_LEGEND, *([_BYTE_LEGEND] if has_bytes else [])]


def _format_with_and_without_own(
    explanation: ExplanationNumbers,
    besides: ExplanationNumbers,
    choice_index: int,
    listed: Callable[..., tuple[list[int], str]],
    *names: str,
) -> tuple[str, str]:
    """The first sources, and those besides the word's own sound where that is one of them."""
    sources, sources_text = listed(explanation, choice_index, *names)
    others = (
        listed(besides, choice_index, *names)[1]
        if explanation.own_sound[choice_index, sources].any()
        else ""
    )
    return sources_text, others


def _format_line(title: str, sources_text: str, others: str) -> str:
    return f"    {title:<24} {sources_text}" + (f"; other sources only: {others}" if others else "")


def _format_attribution(
    explanation: ExplanationNumbers, choice_index: int, name: str
) -> tuple[list[int], str]:
    attribution = explanation.attributions[name]
    order = sort_sources(attribution.values[choice_index])[:_MAX_SOURCES]
    return order, ", ".join(
        f"{explanation.source_name(choice_index, i)} "
        f"{attribution.values[choice_index, i]:+.2g}{_format_specific(explanation, choice_index, name, i)}"
        for i in order
    )


def _format_effects(explanation: ExplanationNumbers, choice_index: int) -> tuple[list[int], str]:
    (low, high), order = (
        explanation.drop_range,
        sort_sources(explanation.drops[choice_index])[:_MAX_SOURCES],
    )
    return order, ", ".join(
        f"{explanation.source_name(choice_index, i)} "
        f"{explanation.drops[choice_index, i]:+.3g}{_format_range(low[choice_index, i], high[choice_index, i])}"
        f"{_format_specific(explanation, choice_index, OCCLUSION, i)}, without it p = "
        f"{explanation.probability_without[choice_index, i]:.3g}"
        for i in order
    )


def _format_range(low: float, high: float) -> str:
    return "" if low == high else f" [{low:+.3g} to {high:+.3g}]"


def _format_specific(
    explanation: ExplanationNumbers, choice_index: int, name: str, source: int
) -> str:
    """In points of share."""
    specific = explanation.specific.get(name)
    if specific is None or np.isnan(specific[choice_index, source]):
        return ""
    return f" (specific {100 * specific[choice_index, source]:+.0f})"
