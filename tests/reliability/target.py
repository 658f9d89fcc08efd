"""What a reader under test is: a folder of valid files, which of them get damaged, and what a right
result is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from speechmix import Clip

SHIPPED = Path(__file__).parents[2] / "data_templates"
RATE = 16_000


@dataclass(frozen=True)
class Target:
    """A reader under test; see the module's text."""

    name: str
    write: Callable[[Path], None]
    read: Callable[[Path], Any]
    damage: tuple[str, ...] = ("*",)
    exact: bool = False


def require(true: bool, what: object) -> None:
    if not true:
        raise AssertionError(f"not a right result: {what!r:.300}")


def tone(folder: Path, name: str = "clip.wav", seconds: float = 2.0) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, 0.3 * np.sin(np.arange(int(RATE * seconds)) / 9), RATE)
    return path


def copied(*names: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for name in names:
            shutil.copy(SHIPPED / name, folder)

    return write


def text_file(name: str, text: str, *also: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_text(text, encoding="utf-8")
        for other in also:
            tone(folder, other)

    return write


def look_over(clips: list[Clip]) -> None:
    for clip in clips:
        require(
            bool(clip.name)
            and isinstance(clip.text, str | None)
            and isinstance(clip.foil, str | None),
            clip,
        )
        require(all(clip.words[i].text for i in clip.cue_words), clip)
        require(clip.duration > 0 and bool(repr(clip)), clip)
        json.dumps(dict(clip.meta))
