"""Members of a tar, by its headers alone: what each is called, where its bytes are, and how many.

In: an uncompressed tar. Out: `Member`s in its order; their content is skipped, and read only if it
is needed.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ...errors import InputError
from ...files.user_tables import MAX_CELL_CHARACTERS, RowError
from ..audio.byte_ranges import ByteRange, open_bytes, open_unbuffered

# A tar begins with the name of its first member: so much of each that no name is taken for it.
_DECOMPRESSION_COMMANDS = {
    re.compile(rb"\x1f\x8b\x08"): "gunzip",
    re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"): "bunzip2",
    re.compile(rb"\xfd7zXZ\0"): "unxz",
    re.compile(rb"\x28\xb5\x2f\xfd"): "unzstd",
}
_MAX_SIGNATURE_BYTES = 10


class TruncatedTarError(InputError):
    """A tar that ends before it should; the members before were whole."""


class Member(NamedTuple):
    """A file in a tar, and where its bytes are."""

    name: str
    byte_range: ByteRange

    def read_content(self) -> bytes:
        """Read a small member; RowError if it is longer than a line of a table may be, or
        unreadable."""
        if self.byte_range.size > MAX_CELL_CHARACTERS:
            raise RowError(
                "too long",
                f"{self.name}: expected at most {MAX_CELL_CHARACTERS:,} bytes of text, found more",
            )
        try:
            with open_bytes(str(self.byte_range)) as file:
                return file.read()
        except (OSError, InputError) as error:
            raise RowError(
                "unreadable row", f"cannot read {self.name} of {self.byte_range.file} ({error})"
            ) from error


def read_members(tar: Path) -> Iterator[Member]:
    """Yield the files in a tar, in its order.

    InputError if it cannot be read, is no tar, or is compressed; TruncatedTarError behind the last
    whole member, if it was cut off.

    Examples
    --------
    >>> for member in read_members(Path("shard-000000.tar")):        # doctest: +SKIP
    ...     print(member.name, member.byte_range)
    """
    try:
        with open_unbuffered(tar) as file:
            tar_bytes = file.seek(0, os.SEEK_END)
            file.seek(0)
            _refuse_compressed(tar, file.read(_MAX_SIGNATURE_BYTES))
            file.seek(0)
            if not tar_bytes:
                raise TruncatedTarError(f"{tar}: expected a tar, found 0 bytes: fetch it again")
            with tarfile.open(fileobj=file, mode="r:") as archive:
                yield from _read_complete_members(tar, archive, tar_bytes)
                file.seek(archive.offset)
                if file.read(tarfile.BLOCKSIZE) != bytes(
                    tarfile.BLOCKSIZE
                ):  # a whole one ends in blocks of zeros
                    raise TruncatedTarError(
                        f"{tar}: it is damaged or was cut off behind {archive.offset:,} bytes: "
                        "fetch it again"
                    )
    except (tarfile.TarError, OSError, OverflowError) as error:
        raise InputError(
            f"{tar}: expected a tar, found something else ({error}): fetch it again"
        ) from error


def _read_complete_members(tar: Path, archive: tarfile.TarFile, tar_bytes: int) -> Iterator[Member]:
    """Members whose bytes are all there."""
    while True:
        try:
            entry = archive.next()
        except (tarfile.ReadError, ValueError) as error:  # of a number in a header too
            raise TruncatedTarError(f"{tar}: it was cut off ({error}): fetch it again") from error
        if entry is None:
            return
        vars(archive).update(members=[])  # else a list of all of them grows
        if entry.size < 0:  # it would lead back, and round for ever
            raise TruncatedTarError(
                f"{tar}: the header of {entry.name[:200]!r} is damaged: fetch it again"
            )
        if entry.isreg() and not entry.issparse():
            if entry.offset_data + entry.size > tar_bytes:
                raise TruncatedTarError(
                    f"{tar}: it was cut off in {entry.name[:200]!r}: fetch it again"
                )
            yield Member(
                _decode_member_name(entry.name), ByteRange(str(tar), entry.offset_data, entry.size)
            )


def _decode_member_name(name: str) -> str:
    """A member's name as text; one that is no UTF-8, as older tools write it, as Latin-1, which any
    bytes are."""
    try:
        name.encode("utf-8")
        return name
    except UnicodeEncodeError:
        return name.encode("utf-8", "surrogateescape").decode("latin-1")


def _refuse_compressed(tar: Path, first_bytes: bytes) -> None:
    command = next(
        (
            command
            for signature, command in _DECOMPRESSION_COMMANDS.items()
            if signature.match(first_bytes)
        ),
        None,
    )
    if command is not None:
        raise InputError(
            f"{tar} is compressed as a whole, so that no recording in it can be read by itself: "
            f"`{command}` it first "
            "(the recordings in it are compressed anyway)"
        )
