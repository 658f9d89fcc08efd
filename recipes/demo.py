"""What `make demo` runs: the French study on synthetic speech, and beside it forty clips of the English
study with a real recogniser (extra `real`), whose lines follow.

    python recipes/demo.py

The nouns of the English clips are twenty that the recogniser writes right in the first sentence, with the
cue before the target: enough for a conclusion, and few clips are transcribed in vain. Both pages are in
`runs`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

RECIPES, RUNS = Path(__file__).parent, Path("runs")
FRENCH = (
    "--model bundled:tiny-french-whisper --measure value_zeroing --no-probes --figures 1".split()
)
NOUNS = (
    "actor,baker,bishop,brother,captain,chicken,cousin,customer,dentist,director,dragon,driver,friend,"
    "governor,lion,lord,monkey,monster,neighbor,player"
)
ENGLISH = f"--clips 40 --side left --nouns {NOUNS} --twins 0 --workers 2".split()


def command(recipe: str, options: list[str], out: Path) -> list[str]:
    """Return the command of a recipe, with the folder of its run."""
    return [sys.executable, str(RECIPES / recipe), *options, "--out", str(out)]


def print_lines(log: Path, process: subprocess.Popen[bytes]) -> None:
    """Print what a process has written to a file, and what it goes on to write, until it ends."""
    with log.open(encoding="utf-8", errors="replace") as lines:
        while True:
            has_ended = process.poll() is not None
            print(lines.read(), end="", flush=True)
            if has_ended:
                return
            time.sleep(0.2)


def main() -> int:
    """Run both studies at once; returns the exit status of the French one."""
    RUNS.mkdir(exist_ok=True)
    log = RUNS / "demo_english.log"
    english_command = command("english_homophony.py", ENGLISH, RUNS / "demo_english")
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # of each process: there are enough
    with (
        log.open("wb") as output,
        subprocess.Popen(
            english_command, stdout=output, stderr=subprocess.STDOUT, env=one_thread
        ) as english,
    ):
        try:
            french = subprocess.run(
                command("french_homophony.py", FRENCH, RUNS / "demo"), env=one_thread, check=False
            )
            print("\nEnglish homophony, a real recogniser:", flush=True)
            print_lines(log, english)
        finally:
            english.terminate()
    if english.returncode:
        print("The English study did not end; it needs the extra `real`, and espeak-ng.")
    return french.returncode


if __name__ == "__main__":
    sys.exit(main())
