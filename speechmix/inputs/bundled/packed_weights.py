"""Weights of the bundled models in a small form, for the wheel.

A float16 file compresses by 8 %. With the even bytes first and the odd bytes behind them it
compresses by 16 %, because sign and exponent, which repeat, are then next to each other. In front of
them is the digest of the weights, so that a file in the cache is checked without unpacking.
"""

from __future__ import annotations

import lzma
import os
import tempfile
from hashlib import sha256
from pathlib import Path

from ...errors import StorageError
from ...files.whole_files import whole_file

_PACKED_NAME = "weights.planes.xz"
_WEIGHTS_NAME = "model.safetensors"


def pack_weights(folder: Path) -> None:
    """Replace model.safetensors in a folder by weights.planes.xz, for the wheel."""
    weights = (folder / _WEIGHTS_NAME).read_bytes()
    planes = lzma.compress(weights[::2] + weights[1::2], preset=9 | lzma.PRESET_EXTREME)
    (folder / _PACKED_NAME).write_bytes(sha256(weights).digest() + planes)
    (folder / _WEIGHTS_NAME).unlink()


def unpack_model(folder: Path) -> Path:
    """Return a folder with the files of a packed model and its model.safetensors.

    It is in the user's cache, or in the temporary folder if the cache cannot be written. Files
    there that differ (damaged, or of somebody else) are written again. StorageError if neither can
    be written.
    """
    contents = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
    packed = contents.pop(_PACKED_NAME)
    key = sha256(b"".join([*contents.values(), packed])).hexdigest()[:16]
    errors = []
    for cache in _cache_dirs():
        unpacked = cache / "speechmix" / key / folder.name
        try:
            _write_files(unpacked, contents)
            _write_weights(unpacked / _WEIGHTS_NAME, packed)
        except OSError as error:
            errors.append(str(error))
            continue
        return unpacked
    raise StorageError(
        f"cannot unpack the bundled model {folder.name} ({'; '.join(errors)}): set XDG_CACHE_HOME to "
        "a folder that can be written"
    )


def _cache_dirs() -> tuple[Path, Path]:
    user_cache = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(user_cache), Path(tempfile.gettempdir())


def _write_weights(path: Path, packed: bytes) -> None:
    """Unpack the weights, unless they are there."""
    digest, planes = packed[: sha256().digest_size], packed[sha256().digest_size :]
    if path.is_file() and sha256(path.read_bytes()).digest() == digest:
        return
    with whole_file(path) as unfinished:
        unfinished.write_bytes(_join_planes(lzma.decompress(planes)))


def _join_planes(planes: bytes) -> bytes:
    weights = bytearray(len(planes))
    half = (len(planes) + 1) // 2
    weights[::2], weights[1::2] = planes[:half], planes[half:]
    return bytes(weights)


def _write_files(folder: Path, contents: dict[str, bytes]) -> None:
    """Write the files that are not there as they should be, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        path = folder / name
        if not (path.is_file() and path.read_bytes() == content):
            with whole_file(path) as unfinished:
                unfinished.write_bytes(content)
