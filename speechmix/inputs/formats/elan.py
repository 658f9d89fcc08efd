"""Read the tiers of an ELAN document (.eaf).

In: a path. Out: labelled intervals in seconds of the recording, by tier. Annotations that ELAN ties to
others have the times of these: a subdivided one is shared equally, in the order of its parts, as ELAN
draws it. Times count in the unit of the document (TIME_UNITS), from where the recording begins in it
(TIME_ORIGIN).

Tiers of labelled intervals as a file of ELAN (.eaf), beside its recording.

In: words or other labelled intervals by tier. Out: an annotation document of format 3.0
(http://www.mpi.nl/tools/elan/EAFv3.0.xsd) with one aligned tier each. ELAN counts in whole
milliseconds.

pympi-ling (1.71) is what tests compare with, and not what reads: it takes frames for milliseconds,
leaves out where a recording begins, gives all parts of an annotation the times of the whole, keeps the
last of two tiers of one name, and stops at a document without a schema or an identifier without digits.
It writes time slots out of order, a number of the last annotation that is wrong, and characters that
XML has not; a file that was there becomes a .bak file.
"""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from os import PathLike
from pathlib import Path, PurePath
from urllib.parse import unquote

from ...errors import InputError
from ...files.text_files import read_text
from ..audio.frame_grid import Seconds
from ..words.cue_and_target import number_repeated
from ..words.multipart_words import split_into_pieces
from ..words.timed_words import Word
from ..words.word_checks import check_words
from .textgrid import Intervals

_Times = dict[str, tuple[Seconds, Seconds]]  # of annotations by their id
_SECONDS_BY_UNIT = {
    "milliseconds": 0.001,
    "PAL-frames": 1 / 25,
    "PAL-50-frames": 1 / 50,
    "NTSC-frames": 1001 / 30_000,
}


def read_elan_tiers(path: str | PathLike[str], *, recording: str | None = None) -> Intervals:
    """Tiers by name, each a list of (label, start, end) in time order.

    Tiers of one name are told apart by numbers: "words (1)", "words (2)".

    Parameters
    ----------
    path : path of an .eaf file
    recording : str, optional
        Name of the recording, without its ending, for a document of several that begin at different
        times.

    Raises
    ------
    InputError
        If it is no ELAN document, its times are in an unknown unit, an annotation has no time, or it is
        not known which recording is meant.

    Examples
    --------
    >>> from speechmix.inputs.formats.elan import write_elan
    >>> from speechmix.inputs.words.timed_words import Word
    >>> write_elan("oui.eaf", {"words": [Word("oui", 0.1, 0.25)]}, 1.0)
    >>> read_elan_tiers("oui.eaf")
    {'words': [('oui', 0.1, 0.25)]}
    """
    try:
        document = ET.fromstring(read_text(path).encode("utf-8"))
        if document.tag != "ANNOTATION_DOCUMENT":
            raise InputError(f"{path}: expected an ELAN document, found XML of {document.tag!r}")
        elements = list(document.iter("TIER"))
        slots = _read_slots(document, recording, str(path))
        times: _Times = {}
        for tier in elements:
            times |= _aligned_times(tier, slots, str(path))
        for _ in range(_depth(document)):  # a parent may stand behind its children
            for tier in elements:
                times |= _times_of_references(tier, times, str(path))
        names = number_repeated([tier.attrib["TIER_ID"] for tier in elements], fold=str)
        return {name: _intervals(tier, times) for name, tier in zip(names, elements, strict=True)}
    except (ET.ParseError, KeyError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{path}: not a readable ELAN document ({type(error).__name__}: {str(error)[:200]}): open "
            "it in ELAN and save it again"
        ) from error


def _read_slots(document: ET.Element, recording: str | None, where: str) -> dict[str, Seconds]:
    """Times of the slots that have one, in seconds of the recording."""
    header = document.find("HEADER")
    unit = "milliseconds" if header is None else header.get("TIME_UNITS", "milliseconds")
    if unit not in _SECONDS_BY_UNIT:
        raise InputError(
            f"{where}: expected times in {', '.join(_SECONDS_BY_UNIT)}, found {unit!r}: save it in ELAN "
            "in milliseconds"
        )
    origin = _recording_origin(document, recording, where)
    return {
        slot.attrib["TIME_SLOT_ID"]: round(
            float(slot.attrib["TIME_VALUE"]) * _SECONDS_BY_UNIT[unit] + origin, 9
        )
        for slot in document.iter("TIME_SLOT")
        if "TIME_VALUE" in slot.attrib
    }


def _recording_origin(document: ET.Element, recording: str | None, where: str) -> Seconds:
    """Second of the recording at which the document's time is 0; recordings of one document may begin
    at different times."""
    origins = {
        PurePath(unquote(media.get("MEDIA_URL", ""))).stem: int(media.get("TIME_ORIGIN", 0)) / 1000
        for media in document.iter("MEDIA_DESCRIPTOR")
    }
    if recording in origins:
        return origins[recording or ""]
    if len(set(origins.values())) > 1:
        listing = ", ".join(f"{name!r} from {origin:g} s" for name, origin in origins.items())
        raise InputError(
            f"{where}: its recordings begin at different times ({listing}), none is called "
            f"{recording!r}: name the sound file like its recording"
        )
    return next(iter(origins.values()), 0.0)


def _aligned_times(tier: ET.Element, slots: dict[str, Seconds], where: str) -> _Times:
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
    times: _Times = {}
    for annotation, (start, end) in zip(annotations, names, strict=True):
        for side, slot in (("start", start), ("end", end)):
            if slot not in slots:
                label = annotation.findtext("ANNOTATION_VALUE") or ""
                raise InputError(
                    f"{where}: annotation {label!r} of tier {tier.get('TIER_ID')!r} has no {side} time "
                    f"(time slot {slot!r}): set its {side} in ELAN, or delete the annotation"
                )
        times[annotation.attrib["ANNOTATION_ID"]] = slots[start], slots[end]
    return times


def _times_of_references(tier: ET.Element, times: _Times, where: str) -> _Times:
    """Times of the annotations that refer to others whose times are known."""
    children_by_parent: defaultdict[str, list[ET.Element]] = defaultdict(list)
    for annotation in tier.iter("REF_ANNOTATION"):
        children_by_parent[annotation.attrib["ANNOTATION_REF"]].append(annotation)
    child_times: _Times = {}
    for parent, children in children_by_parent.items():
        if parent not in times:
            continue
        start, end = times[parent]
        step = (end - start) / len(children)
        for index, child in enumerate(
            _in_order(children, f"{where}, tier {tier.get('TIER_ID')!r}")
        ):
            edges = start + index * step, start + (index + 1) * step
            child_times[child.attrib["ANNOTATION_ID"]] = edges
    return child_times


def _in_order(children: Sequence[ET.Element], where: str) -> list[ET.Element]:
    """Parts of one annotation, each behind the one that it names as previous; others where they are
    in the file.

    InputError for a circle.
    """
    names = {child.attrib["ANNOTATION_ID"] for child in children}
    _refuse_circle(children, where)
    by_previous = {child.get("PREVIOUS_ANNOTATION"): child for child in children}
    ordered: dict[str, ET.Element] = {}
    for first in children:
        child: ET.Element | None = first
        if first.get("PREVIOUS_ANNOTATION") in names:
            continue
        while child is not None and child.attrib["ANNOTATION_ID"] not in ordered:
            ordered[child.attrib["ANNOTATION_ID"]] = child
            child = by_previous.get(child.attrib["ANNOTATION_ID"])
    unordered = [child for child in children if child.attrib["ANNOTATION_ID"] not in ordered]
    return [*ordered.values(), *unordered]


def _refuse_circle(children: Sequence[ET.Element], where: str) -> None:
    previous = {
        child.attrib["ANNOTATION_ID"]: child.get("PREVIOUS_ANNOTATION") for child in children
    }
    known_to_end: set[str | None] = set()
    for first in previous:
        circle: dict[str, None] = {}
        name: str | None = first
        while name in previous and name not in known_to_end and name not in circle:
            circle[name] = None
            name = previous[name]
        if name in circle:
            names = list(circle)[list(circle).index(name) :]
            raise InputError(
                f"{where}: the annotations {', '.join(map(repr, names[:8]))} follow each other in a circle "
                "(PREVIOUS_ANNOTATION), expected a first one: delete them in ELAN and divide their parent "
                "again"
            )
        known_to_end |= {*circle}


def _depth(document: ET.Element) -> int:
    return sum("PARENT_REF" in tier.attrib for tier in document.iter("TIER"))


def _intervals(tier: ET.Element, times: _Times) -> list[tuple[str, Seconds, Seconds]]:
    annotations = [*tier.iter("ALIGNABLE_ANNOTATION"), *tier.iter("REF_ANNOTATION")]
    intervals = [
        (annotation.findtext("ANNOTATION_VALUE") or "", *times[annotation.attrib["ANNOTATION_ID"]])
        for annotation in annotations
    ]
    return sorted(intervals, key=lambda interval: interval[1:])


_SCHEMA = "http://www.mpi.nl/tools/elan/EAFv3.0.xsd"
_XML_SCHEMA_INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
_LINGUISTIC_TYPE = "default-lt"
_INVALID_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MIME_TYPES = {
    ".wav": "audio/x-wav",
    ".mp3": "audio/mpeg",
    ".flac": "audio/flac",
    ".ogg": "audio/ogg",
}


def write_elan(
    path: str | PathLike[str],
    tiers: Mapping[str, Sequence[Word]],
    duration: Seconds,
    *,
    audio: str | PathLike[str] | None = None,
) -> None:
    """Write tiers as an ELAN document.

    Parameters
    ----------
    path : path to write; an existing file is replaced
    tiers : mapping of str to sequence of Word
        Labelled intervals by the tier's name, in time order.
    duration : float
        Seconds of audio.
    audio : path, optional
        The recording that ELAN opens with it.

    Raises
    ------
    InputError
        If the intervals of a tier cannot be right.

    Examples
    --------
    >>> write_elan("livres.eaf", {"words": [Word("les", 0.1, 0.25), Word("livres", 0.25, 0.7)]}, 1.0)
    """
    document = ET.Element(
        "ANNOTATION_DOCUMENT",
        {
            "AUTHOR": "speechmix",
            "DATE": datetime.now(UTC).isoformat(timespec="seconds"),
            "FORMAT": "3.0",
            "VERSION": "3.0",
            "xmlns:xsi": _XML_SCHEMA_INSTANCE,
            "xsi:noNamespaceSchemaLocation": _SCHEMA,
        },
    )
    header = ET.SubElement(document, "HEADER", {"MEDIA_FILE": "", "TIME_UNITS": "milliseconds"})
    if audio is not None:
        _add_media(header, Path(audio), Path(path))
    tiers = {
        name: split_into_pieces(check_words(words, duration=duration, where=str(path)))
        for name, words in tiers.items()
    }
    times_by_tier = {name: _round_to_milliseconds(words) for name, words in tiers.items()}
    boundaries = sorted(
        (time, tier, boundary_index)
        for tier, times in times_by_tier.items()
        for boundary_index, time in enumerate(chain(*times))
    )
    time_order = ET.SubElement(document, "TIME_ORDER")
    slot_ids = {}
    for slot_number, (time, tier, boundary_index) in enumerate(boundaries, 1):
        slot_ids[tier, boundary_index] = f"ts{slot_number}"
        ET.SubElement(
            time_order, "TIME_SLOT", {"TIME_SLOT_ID": f"ts{slot_number}", "TIME_VALUE": str(time)}
        )
    annotation_count = 0
    for tier, words in tiers.items():
        element = ET.SubElement(
            document,
            "TIER",
            {"LINGUISTIC_TYPE_REF": _LINGUISTIC_TYPE, "TIER_ID": _replace_invalid_characters(tier)},
        )
        for index, word in enumerate(words):
            annotation_count += 1
            annotation = ET.SubElement(ET.SubElement(element, "ANNOTATION"), "ALIGNABLE_ANNOTATION")
            annotation.set("ANNOTATION_ID", f"a{annotation_count}")
            annotation.set("TIME_SLOT_REF1", slot_ids[tier, 2 * index])
            annotation.set("TIME_SLOT_REF2", slot_ids[tier, 2 * index + 1])
            ET.SubElement(annotation, "ANNOTATION_VALUE").text = _replace_invalid_characters(
                word.text
            )
    ET.SubElement(header, "PROPERTY", {"NAME": "lastUsedAnnotationId"}).text = str(annotation_count)
    linguistic_type = {
        "GRAPHIC_REFERENCES": "false",
        "LINGUISTIC_TYPE_ID": _LINGUISTIC_TYPE,
        "TIME_ALIGNABLE": "true",
    }
    ET.SubElement(document, "LINGUISTIC_TYPE", linguistic_type)
    ET.indent(document, "    ")
    ET.ElementTree(document).write(path, encoding="UTF-8", xml_declaration=True)


def _replace_invalid_characters(text: str) -> str:
    """The text with what XML has no way to write replaced: ELAN would not open the file."""
    return _INVALID_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def _add_media(header: ET.Element, audio: Path, document: Path) -> None:
    """Name the recording: where it is now, and beside the document, where ELAN looks next."""
    attributes = {"MEDIA_URL": audio.resolve().as_uri()}
    with suppress(ValueError):  # on another drive, under Windows
        relative_path = Path(os.path.relpath(audio.resolve(), document.resolve().parent)).as_posix()
        attributes["RELATIVE_MEDIA_URL"] = f"./{relative_path}"
    attributes["MIME_TYPE"] = _MIME_TYPES.get(audio.suffix.lower(), "unknown")
    ET.SubElement(header, "MEDIA_DESCRIPTOR", attributes)


def _round_to_milliseconds(words: Sequence[Word]) -> list[tuple[int, int]]:
    """Starts and ends in whole milliseconds, in order, each at least 1 ms long."""
    times: list[tuple[int, int]] = []
    for word in words:
        start = max(round(1000 * word.start), times[-1][1] if times else 0)
        times.append((start, max(round(1000 * word.end), start + 1)))
    return times
