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
