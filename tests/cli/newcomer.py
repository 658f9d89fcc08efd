"""The two commands of docs/start.md for a recording of one's own, as they stand there;
`python -m tests.cli.newcomer` times them.

In: the page. Out: its commands as words, with a model that comes with the package in place of the
one from the hub; a recording of the sentence that they name, spoken by espeak-ng.
"""

from __future__ import annotations

import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import soundfile

from speechmix.inputs import bundled

PAGE = Path(__file__).resolve().parents[2] / "docs" / "start.md"


def commands() -> list[list[str]]:
    """The commands of the page's first block of shell that begins with `speechmix score`."""
    block = re.search(
        r"^```sh\n(speechmix score .*?)^```",
        PAGE.read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    assert block
    lines = block[1].replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


def with_bundled_model(words: list[str]) -> list[str]:
    """The same command, asking a model that needs no network."""
    folder = str(bundled.models()["tiny-french-whisper"])
    return [
        folder if before == "--model" else word
        for before, word in zip(["", *words], words, strict=False)
    ]


def record(folder: Path) -> Path:
    """What a newcomer brings: a recording of the sentence, under the name that the command has."""
    from speechmix.alignment.espeak import speak

    score = commands()[0]
    speech = speak(score[score.index("--text") + 1], voice="fr+f2")
    path = folder / score[2]
    soundfile.write(path, speech.audio, speech.sample_rate)
    return path


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        record(Path(folder))
        for number, words in enumerate(commands(), 1):
            began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            here = [sys.executable, "-m", *with_bundled_model(words)]
            done = subprocess.run(
                here, cwd=folder, env={**os.environ}, capture_output=True, text=True, check=True
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(
                f"command {number}, {words[1]}: {time.perf_counter() - began:.0f} s, of which "
                f"{busy:.0f} s at work"
            )
            print(done.stdout, end="")
            print(f"on standard error: {done.stderr!r}")


if __name__ == "__main__":
    main()
