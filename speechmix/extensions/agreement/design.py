"""Read a design of assimilation and speak it: does the next word license the changed sound?

In: a table of items, such as *vache* [vaʃ], which becomes [vaʒ] before *brille* (voiced: viable) and
not before *tombe* (unviable). Out: four synthetic clips per item and voice, form (kept, changed) by
context (viable, unviable), with words and phones. Target is the word that changes, cue the word
behind it, foil the changed spelling. The design is that of Darcy et al. 2009 (Phonology and Phonetics 14: Variation and
gradience in phonetics and phonology) without carrier sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any

from ...alignment.espeak import speak
from ...alignment.phones import spoken_phones
from ...errors import InputError
from ...files.user_tables import RowError, read_table
from ...inputs.clips.clip import Clip
from ...inputs.words.timed_words import Word
from ...inputs.words.unit_tiers import PHONE, unit_owners

_DESIGNS_DIR = Path(__file__).parent


@dataclass(frozen=True)
class AssimilationItem:
    """A word whose last phone changes before some words.

    Parameters
    ----------
    language : str
        Of the voice, "fr" or "en-us".
    before : str
        Words before the target ("la"), at least one.
    target, changed : str
        The word, and a spelling that the voice speaks with the changed phone ("vache", "vage").
    phone, changed_phone : str
        Last phone of each in IPA ("ʃ", "ʒ").
    viable, unviable : str
        A word behind the target that licenses the change ("brille"), and one that does not ("tombe").
    """

    language: str
    before: str
    target: str
    changed: str
    phone: str
    changed_phone: str
    viable: str
    unviable: str


def read_assimilation_design(source: str | PathLike[str] = "french") -> list[AssimilationItem]:
    """Read the items of a design.

    Parameters
    ----------
    source : str or path
        "french" (voicing), "english" (place: *clea[m] pan*), or a table (.tsv, .csv, .jsonl) with the columns of
        `AssimilationItem`; data_templates/assimilation.tsv is an example.

    Raises
    ------
    InputError
        For a table that cannot be read, an empty cell, or a target that is there twice.

    Examples
    --------
    >>> item = read_assimilation_design("english")[0]
    >>> item.target, item.changed_phone, item.viable, item.unviable
    ('clean', 'm', 'pan', 'dish')
    """
    packaged = _DESIGNS_DIR / f"{source}.tsv"
    path = packaged if str(source) == packaged.stem and packaged.is_file() else Path(source)
    columns = tuple(field.name for field in fields(AssimilationItem))
    items = dict[str, AssimilationItem]()
    for row, cells in read_table(path, required=columns):
        if isinstance(cells, RowError):
            raise cells
        if missing := [name for name in columns if not cells.get(name)]:
            raise InputError(f"{path}, row {row}: {missing[0]} is empty: fill every column")
        item = AssimilationItem(**{name: str(cells[name]) for name in columns})
        if item.target in items:
            raise InputError(f"{path}, row {row}: target {item.target!r} is there twice: keep one")
        items[item.target] = item
    if not items:
        raise InputError(f"{path}: there is no item below the header")
    return list(items.values())


def speak_assimilation_design(
    items: Sequence[AssimilationItem], *, variants: Sequence[str] = ("",), rate: int = 150
) -> list[Clip]:
    """Synthesise four clips for each item and voice (extra `synthesis`).

    Parameters
    ----------
    items : sequence of AssimilationItem
    variants : sequence of str
        Speaker variants of espeak-ng, such as "f4"; "" is the voice of the language itself.
    rate : int
        Words per minute.

    Returns
    -------
    list of Clip
        Synthetic. The text is the sentence with the unchanged spelling; ``meta`` has pair (the target: all clips of an item
        count as one), form, context and voice.

    Raises
    ------
    InputError
        If the voice does not end the target in the phone of the design.
    MissingExtraError
        If espeakng-loader is not installed.

    Examples
    --------
    >>> clips = speak_assimilation_design(read_assimilation_design("french")[:1])
    >>> [(clip.meta["form"], clip.meta["context"], clip.text) for clip in clips][2:]
    [('changed', 'viable', 'la vache brille'), ('changed', 'unviable', 'la vache tombe')]
    """
    return [
        _speak_cell(item, form, context, item.language + (variant and f"+{variant}"), rate)
        for item in items
        for variant in variants
        for form in ("kept", "changed")
        for context in ("viable", "unviable")
    ]


def speak_clip(
    spoken: str,
    *,
    voice: str,
    text: str | None = None,
    rate: int = 150,
    **details: Any,
) -> Clip:
    """Synthesise a clip that knows its words and phones (extra `synthesis`).

    Parameters
    ----------
    spoken : str
        What the voice says.
    voice, rate
        As in `speechmix.alignment.espeak.speak`.
    text : str, optional
        Another spelling with as many words, for the clip's text and words.
    **details
        Further fields of the clip: cue, target, foil, meta, ...

    Raises
    ------
    InputError
        As `speak`, or if the text has another number of words.

    Examples
    --------
    >>> clip = speak_clip("les amis", voice="fr+f4")
    >>> [phone.text for phone in clip.tiers["phone"]]
    ['l', 'e', 'z', 'a', 'm', 'i']
    """
    speech, labels = speak(spoken, voice=voice, rate=rate), (text or spoken).split()
    if len(labels) != len(speech.words):
        raise InputError(f"expected a text of {len(speech.words)} words, found {text!r}")
    words = [
        Word(label, word.start, word.end) for label, word in zip(labels, speech.words, strict=True)
    ]
    details = {"language": voice[:2], "text": " ".join(labels), **details}
    return Clip.from_array(
        speech.audio,
        speech.sample_rate,
        name=f"{spoken} ({voice})",
        words=words,
        tiers={PHONE: spoken_phones(speech)[0]},
        **details,
    )


def _speak_cell(item: AssimilationItem, form: str, context: str, voice: str, rate: int) -> Clip:
    trigger = item.viable if context == "viable" else item.unviable
    spelling, expected = (
        (item.target, item.phone) if form == "kept" else (item.changed, item.changed_phone)
    )
    target = len(item.before.split())
    clip = speak_clip(
        f"{item.before} {spelling} {trigger}",
        voice=voice,
        rate=rate,
        text=f"{item.before} {item.target} {trigger}",
        cue=target + 1,
        target=target,
        foil=item.changed,
        meta={"pair": item.target, "form": form, "context": context, "voice": voice},
    )
    phones = clip.tiers[PHONE]
    owners = unit_owners(phones, clip.spoken_words)
    labels = [phone.text for phone, owner in zip(phones, owners, strict=True) if owner == target]
    if labels[-1:] != [expected]:
        raise InputError(
            f"{item.target!r}, {form}: voice {voice!r} speaks {spelling!r} as [{' '.join(labels)}], "
            f"expected [{expected}] at its end: change the spelling, or the phone"
        )
    return clip
