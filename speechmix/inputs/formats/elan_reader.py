"""Read the tiers of an ELAN document (.eaf).

In: a path. Out: labelled intervals in seconds, by tier. Annotations that ELAN ties to others have the
times of these: a subdivided one is shared equally, as ELAN draws it.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import groupby
from os import PathLike

from ...errors import InputError
from ...files.text_files import read_text
from ..audio.frame_grid import Seconds
from .textgrid import Intervals

_Times = dict[str, tuple[Seconds, Seconds]]  # of annotations by their id


def read_elan_tiers(path: str | PathLike[str]) -> Intervals:
    """Tiers by name, each a list of (label, start, end) in time order.

    Raises
    ------
    InputError
        If it is no ELAN document, or an annotation has no time.

    Examples
    --------
    >>> from speechmix.inputs.formats.elan_writer import write_elan
    >>> from speechmix.inputs.words.timed_words import Word
    >>> write_elan("oui.eaf", {"words": [Word("oui", 0.1, 0.25)]}, 1.0)
    >>> read_elan_tiers("oui.eaf")
    {'words': [('oui', 0.1, 0.25)]}
    """
    try:
        document = ET.fromstring(read_text(path).encode("utf-8"))
        slots = {
            slot.attrib["TIME_SLOT_ID"]: float(slot.attrib["TIME_VALUE"]) / 1000
            for slot in document.iter("TIME_SLOT")
            if "TIME_VALUE" in slot.attrib
        }
        times: _Times = {}
        for tier in document.iter("TIER"):
            times |= _aligned_times(tier, slots)
        for _ in range(_depth(document)):  # a parent may stand behind its children
            for tier in document.iter("TIER"):
                times |= _times_of_references(tier, times)
        tiers = {tier.attrib["TIER_ID"]: _intervals(tier, times) for tier in document.iter("TIER")}
    except (ET.ParseError, KeyError, ValueError) as error:
        raise InputError(
            f"{path}: not a readable ELAN document ({type(error).__name__}: {str(error)[:200]}): open "
            "it in ELAN and save it again"
        ) from error
    if document.tag != "ANNOTATION_DOCUMENT":
        raise InputError(f"{path}: expected an ELAN document, found XML of {document.tag!r}")
    return tiers


def _aligned_times(tier: ET.Element, slots: dict[str, Seconds]) -> _Times:
    """Times of the annotations that have slots; those of slots without a time lie equally spaced
    between the times around them."""
    annotations = list(tier.iter("ALIGNABLE_ANNOTATION"))
    names = [
        (annotation.attrib["TIME_SLOT_REF1"], annotation.attrib["TIME_SLOT_REF2"])
        for annotation in annotations
    ]
    successor = dict(names)
    for first in [start for start, _ in names if start in slots]:
        chain = [first]
        while chain[-1] in successor and len(chain) <= len(names):
            chain.append(successor[chain[-1]])
            if chain[-1] in slots:
                break
        if chain[-1] in slots:
            step = (slots[chain[-1]] - slots[first]) / max(1, len(chain) - 1)
            slots.update(
                {name: slots[first] + index * step for index, name in enumerate(chain[1:-1], 1)}
            )
    return {
        annotation.attrib["ANNOTATION_ID"]: (slots[start], slots[end])
        for annotation, (start, end) in zip(annotations, names, strict=True)
    }


def _times_of_references(tier: ET.Element, times: _Times) -> _Times:
    """Times of the annotations that refer to others whose times are known."""
    child_times: _Times = {}
    references = list(tier.iter("REF_ANNOTATION"))
    for parent, group in groupby(references, key=lambda item: item.attrib["ANNOTATION_REF"]):
        if parent not in times:
            continue
        start, end = times[parent]
        children = list(group)
        step = (end - start) / len(children)
        for index, child in enumerate(children):
            edges = start + index * step, start + (index + 1) * step
            child_times[child.attrib["ANNOTATION_ID"]] = edges
    return child_times


def _depth(document: ET.Element) -> int:
    return sum("PARENT_REF" in tier.attrib for tier in document.iter("TIER"))


def _intervals(tier: ET.Element, times: _Times) -> list[tuple[str, Seconds, Seconds]]:
    annotations = [*tier.iter("ALIGNABLE_ANNOTATION"), *tier.iter("REF_ANNOTATION")]
    intervals = [
        (annotation.findtext("ANNOTATION_VALUE") or "", *times[annotation.attrib["ANNOTATION_ID"]])
        for annotation in annotations
    ]
    return sorted(intervals, key=lambda interval: interval[1:])
