"""How a file gets damaged: a seeded choice of what disks, editors, downloads and other programs do
to bytes.

In: the bytes of a valid file and a random number generator. Out: other bytes. Text that is JSON is
also damaged as JSON (a value of another type, deep nesting), and so are the lines of a JSON-lines
file and the header of a safetensors file.
"""

from __future__ import annotations

import json
import random
import re
import struct
from typing import Any

NUMBERS = (
    b"-1",
    b"0",
    b"1e308",
    b"-1e308",
    b"1e-320",
    b"1e400",
    b"-0.0",
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"nan",
    b"inf",
    b"1_0",
    b"99999999999999999999",
    b"-2147483649",
    b"2147483648",
    b"18446744073709551616",
    b"1.5",
    b"0x10",
    b"",
    b"9" * 5000,
    "\u0663".encode(),
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    -1,
    0,
    2**31,
    2**63,
    2**64,
    10**400,
    1e308,
    -1e308,
    float("nan"),
    float("inf"),
    "",
    " ",
    "\0",
    "\ud800",
    "../../etc/passwd",
    "=1+1",
    "x" * 70_000,
    [],
    [[]],
    {},
    [None],
    [1, 2, 3],
    {"": None},
    {"a": {"b": []}},
    "3",
    1.5,
)
EXTREMES = (
    b"\xff" * 8,
    b"\0" * 8,
    b"\xff" * 7 + b"\x7f",
    b"\0" * 4 + b"\xff" * 4,
    struct.pack("<Q", 2**40),
)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return the bytes with one to three kinds of damage."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = rng.choice(_KINDS)(data, rng)
    return data


def flipped(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8, 64)) if data else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def overwritten(data: bytes, rng: random.Random) -> bytes:
    """Bytes replaced by extremes, mostly where headers are: a length or count that lies."""
    width = rng.choice((1, 2, 4, 8))
    place = rng.randrange(min(len(data), rng.choice((16, 64, 256, len(data) or 1))) or 1)
    return data[:place] + rng.choice(EXTREMES)[-width:] + data[place + width :]


def truncated(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.choice((0, 1, 8, rng.randrange(len(data) + 1), max(len(data) - 1, 0)))]


def inserted(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data) + 1)
    return (
        data[:place]
        + rng.choice((rng.randbytes(rng.randrange(1, 40)), b"\0", b"\n", b"\t", b'"', b",", b"\r"))
        + data[place:]
    )


def spliced(data: bytes, rng: random.Random) -> bytes:
    """A part left out, doubled or moved."""
    start, stop, place = (rng.randrange(len(data) + 1) for _ in range(3))
    part = data[min(start, stop) : max(start, stop)][:5000]
    rest = data.replace(part, b"", 1) if part and rng.random() < 0.6 else data
    return rest if rng.random() < 0.5 else rest[:place] + part + rest[place:]


def renumbered(data: bytes, rng: random.Random) -> bytes:
    """A number in a text replaced by an extreme one."""
    places = list(re.finditer(rb"-?\d+(?:\.\d+)?", data[:200_000]))
    if not places:
        return flipped(data, rng)
    found = rng.choice(places)
    return data[: found.start()] + rng.choice(NUMBERS) + data[found.end() :]


def recoded(data: bytes, rng: random.Random) -> bytes:
    """The text in another encoding, or no text at all."""
    try:
        text = data.decode("utf-8")
        return rng.choice(
            (
                text.encode("utf-16"),
                text.encode("utf-16-le"),
                text.encode("utf-8-sig"),
                text.encode("utf-32"),
                text.encode("cp1252", "replace"),
                text.replace("\n", "\r").encode(),
                text.replace(" ", "\u00a0").encode(),
                text.replace("\t", ";").replace(",", ";").encode(),
                text.upper().encode(),
                data[::-1],
            )
        )
    except UnicodeError:
        return rng.choice(
            (
                b"",
                b"<!DOCTYPE html><html></html>",
                b"{}",
                b"[]",
                b"null",
                rng.randbytes(300),
                data[::-1],
            )
        )


def restructured(data: bytes, rng: random.Random) -> bytes:
    """A value of a JSON text, of a line of JSON, or of a safetensors header replaced by one of
    another type."""
    if data[8:9] == b"{" and struct.unpack("<Q", data[:8])[0] < len(data):
        length = struct.unpack("<Q", data[:8])[0]
        header = restructured(data[8 : 8 + length], rng)
        return struct.pack("<Q", len(header)) + header + data[8 + length :]
    try:
        return _restructured(json.loads(data), rng)
    except (ValueError, RecursionError):
        lines = data.split(b"\n")
        place = rng.randrange(len(lines))
        try:
            lines[place] = _restructured(json.loads(lines[place]), rng)
        except (ValueError, RecursionError):
            return nested(data, rng)
        return b"\n".join(lines)


def _restructured(content: Any, rng: random.Random) -> bytes:
    holder: dict[Any, Any] = {"all": content}
    places = [(holder, "all")]
    for inside, key in places:
        value = inside[key]
        keys = (
            list(value)
            if isinstance(value, dict)
            else range(len(value))
            if isinstance(value, list)
            else ()
        )
        places += [(value, key) for key in keys]
    inside, key = rng.choice(places)
    value = inside[key]
    if (
        isinstance(value, str) and value[:1] in "[{" and value and rng.random() < 0.7
    ):  # JSON in JSON, as in a map's header
        inside[key] = restructured(value.encode("utf-8", "surrogatepass"), rng).decode(
            "utf-8", "replace"
        )
    elif isinstance(inside, dict) and rng.random() < 0.3:
        del inside[key]
    else:
        inside[key] = rng.choice(VALUES)
    return json.dumps(holder.get("all"), ensure_ascii=rng.random() < 0.5).encode(
        "utf-8", "surrogatepass"
    )


def nested(data: bytes, rng: random.Random) -> bytes:
    """Something deep in the place of a value."""
    deep = rng.choice(
        (
            b"[" * 100_000,
            b"[" * 100_000 + b"]" * 100_000,
            b'{"a":' * 50_000,
            b"(" * 5_000,
            b'"' * 999,
        )
    )
    places = list(re.finditer(rb"[\w.]+", data[:200_000]))
    if not places or rng.random() < 0.2:
        return deep
    found = rng.choice(places)
    return data[: found.start()] + deep + data[found.end() :]


_KINDS = (
    flipped,
    overwritten,
    truncated,
    inserted,
    spliced,
    renumbered,
    recoded,
    restructured,
    restructured,
    nested,
)
