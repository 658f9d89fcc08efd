"""Entries of a template's table, each checked: an error names the entry and what was expected."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from ...errors import InputError
from ...files.json_files import JsonObject
from .tags import PARTS_OF_SPEECH

TomlTable: TypeAlias = JsonObject
AGREEMENTS = ("s", "p", "1s", "2s", "3s", "1p", "2p", "3p")


def entry_endings(table: TomlTable, where: str) -> dict[str, tuple[str, ...]]:
    return {
        entry_choice(agreement, AGREEMENTS, f"{where}: [target.endings]"): entry_strings(
            table, agreement, where
        )
        for agreement in table
    }


def entry_flag(table: TomlTable, name: str, where: str, *, default: bool) -> bool:
    flag = table.get(name, default)
    if not isinstance(flag, bool):
        raise InputError(f"{where}: {name} must be true or false, found {flag!r}")
    return flag


def refuse_unknown_entries(table: TomlTable, names: Iterable[str], where: str) -> None:
    unknown = sorted(set(table) - set(names))
    if unknown:
        raise InputError(
            f"{where}: unknown entry {', '.join(unknown)}; expected some of {', '.join(names)}"
        )


def entry_section(table: TomlTable, name: str, where: str) -> TomlTable:
    subtable = table.get(name, {})
    if not isinstance(subtable, dict):
        raise InputError(f"{where}: [{name}] must be a table, found {subtable!r}")
    return subtable


def entry_text(table: TomlTable, name: str, where: str) -> str:
    text = table.get(name)
    if not isinstance(text, str) or not text:
        raise InputError(f"{where}: {name} must be a text, found {text!r}")
    return text


def entry_strings(
    table: TomlTable, name: str, where: str, *, required: bool = False
) -> tuple[str, ...]:
    texts = table.get(name, [])
    if (
        not isinstance(texts, list)
        or not all(isinstance(item, str) for item in texts)
        or (required and not texts)
    ):
        raise InputError(f"{where}: {name} must be a list of texts, found {texts!r}")
    return tuple(texts)


def entry_choice(entry: object, choices: tuple[str, ...], where: str) -> str:
    if entry not in choices:
        raise InputError(f"{where} must be one of {choices}, found {entry!r}")
    return entry


def entry_choices(
    table: TomlTable, name: str, choices: tuple[str, ...], where: str
) -> tuple[str, ...]:
    return tuple(
        entry_choice(entry, choices, f"{where}: {name}")
        for entry in entry_strings(table, name, where)
    )


def entry_tags(table: TomlTable, where: str, *, required: bool = False) -> tuple[str, ...]:
    tags = entry_strings(table, "pos", where, required=required)
    return tuple(entry_choice(tag, PARTS_OF_SPEECH, f"{where}: pos") for tag in tags)
