"""What comes with the package: two tiny French recognisers and the clips to study them on, all of
it synthetic.

Out: folders to load (`models`) and pairs of clips (`clips`). Both were made by
``recipes/train_tiny_models.py``.
"""

from __future__ import annotations

import functools
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..clips.clip import Clip

_HERE = Path(__file__).parent


def models() -> dict[str, Path]:
    """Return name -> folder of the trained models, for `speechmix.load`.

    The first call unpacks the weights into the user's cache.

    Examples
    --------
    >>> sorted(models())
    ['tiny-french-ctc', 'tiny-french-whisper']
    """
    from .packed_weights import unpack_model

    return {
        packed.parent.name: unpack_model(packed.parent)
        for packed in sorted(_HERE.glob("models/*/weights.planes.xz"))
    }


def manifest_path(source: str | PathLike[str]) -> Path:
    """Return the bundled clips' manifest for ``"bundled:clips"``, any other path as it is.

    Examples
    --------
    >>> manifest_path("bundled:clips").name, manifest_path("clips.tsv").name
    ('manifest.jsonl', 'clips.tsv')
    """
    return _HERE / "clips" / "manifest.jsonl" if str(source) == "bundled:clips" else Path(source)


def clips() -> list[Clip]:
    """Return the evaluation clips, both members of each pair, with words, cue and target.

    `Clip.meta` has side, number, pair, template, noun, voice, control and other_text.

    Examples
    --------
    >>> clips()[0].meta["side"]
    'left'
    """
    return list(_read_clips())


@functools.cache
def _read_clips() -> tuple[Clip, ...]:
    """Clips are immutable, and these are the same in each call."""
    from ..clips.manifests import read_clips

    return tuple(read_clips("bundled:clips"))
