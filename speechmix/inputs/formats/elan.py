"""Tiers of labelled intervals as a file of ELAN (.eaf), beside its recording.

In: words or other labelled intervals by tier. Out: an annotation document of format 3.0
(http://www.mpi.nl/tools/elan/EAFv3.0.xsd) with one aligned tier each. ELAN counts in whole
milliseconds.
"""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from os import PathLike
from pathlib import Path

from ..audio.frame_grid import Seconds
from ..words.multipart_words import split_into_pieces
from ..words.timed_words import Word
from ..words.word_checks import check_words

_SCHEMA = "http://www.mpi.nl/tools/elan/EAFv3.0.xsd"
_INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
_TYPE = "default-lt"
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
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
            "xmlns:xsi": _INSTANCE,
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
    timed = {name: _milliseconds(words) for name, words in tiers.items()}
    places = sorted(
        (time, tier, place)
        for tier, times in timed.items()
        for place, time in enumerate(chain(*times))
    )
    order = ET.SubElement(document, "TIME_ORDER")
    slots = {}
    for number, (time, tier, place) in enumerate(places, 1):
        slots[tier, place] = f"ts{number}"
        ET.SubElement(order, "TIME_SLOT", {"TIME_SLOT_ID": f"ts{number}", "TIME_VALUE": str(time)})
    last = 0
    for tier, words in tiers.items():
        element = ET.SubElement(
            document, "TIER", {"LINGUISTIC_TYPE_REF": _TYPE, "TIER_ID": _writable(tier)}
        )
        for index, word in enumerate(words):
            last += 1
            annotation = ET.SubElement(ET.SubElement(element, "ANNOTATION"), "ALIGNABLE_ANNOTATION")
            annotation.set("ANNOTATION_ID", f"a{last}")
            annotation.set("TIME_SLOT_REF1", slots[tier, 2 * index])
            annotation.set("TIME_SLOT_REF2", slots[tier, 2 * index + 1])
            ET.SubElement(annotation, "ANNOTATION_VALUE").text = _writable(word.text)
    ET.SubElement(header, "PROPERTY", {"NAME": "lastUsedAnnotationId"}).text = str(last)
    kind = {"GRAPHIC_REFERENCES": "false", "LINGUISTIC_TYPE_ID": _TYPE, "TIME_ALIGNABLE": "true"}
    ET.SubElement(document, "LINGUISTIC_TYPE", kind)
    ET.indent(document, "    ")
    ET.ElementTree(document).write(path, encoding="UTF-8", xml_declaration=True)


def _writable(text: str) -> str:
    """The text with what XML has no way to write replaced: ELAN would not open the file."""
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def _add_media(header: ET.Element, audio: Path, document: Path) -> None:
    """Name the recording: where it is now, and beside the document, where ELAN looks next."""
    media = {"MEDIA_URL": audio.resolve().as_uri()}
    with suppress(ValueError):  # on another drive, under Windows
        beside = Path(os.path.relpath(audio.resolve(), document.resolve().parent)).as_posix()
        media["RELATIVE_MEDIA_URL"] = f"./{beside}"
    media["MIME_TYPE"] = _MIME_TYPES.get(audio.suffix.lower(), "unknown")
    ET.SubElement(header, "MEDIA_DESCRIPTOR", media)


def _milliseconds(words: Sequence[Word]) -> list[tuple[int, int]]:
    """Starts and ends in whole milliseconds, in order, each at least 1 ms long."""
    times: list[tuple[int, int]] = []
    for word in words:
        start = max(round(1000 * word.start), times[-1][1] if times else 0)
        times.append((start, max(round(1000 * word.end), start + 1)))
    return times
