"""Damaged files for every reader: what comes of them, counted.

``python -m tests.reliability.fuzz --inputs 10000`` writes a table: by reader, how many inputs were
read as if nothing had happened (the same result), read to another right result, refused with an
error of speechmix, and how many were a fault: another exception, a wrong result, more than 10
seconds or 4 GB. Everything follows from the seed.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from speechmix.errors import SpeechmixError

from .mutations import mutated
from .readers import TARGETS
from .target import Target

SECONDS, BYTES = 10, 4 * 2**30
OUTCOMES = ("the same", "another", "refused", "fault")


class TooSlow(BaseException):
    """Raised in a reader that takes longer than it may."""


@contextmanager
def time_limit() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TooSlow(f"more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def limit_memory() -> None:
    """Let this process take 4 GB more than it has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BYTES,) * 2)


def fuzz(
    target: Target, inputs: int, seed: int, folder: Path, progress: Path | None = None
) -> tuple[Counter, list[str]]:
    """Count the outcomes of a reader, and describe its faults."""
    target.write(folder)
    files = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    victims = sorted(
        {path for pattern in target.damage for path in folder.glob(pattern) if path in files}
    )
    expected = target.read(folder)
    counts: Counter = Counter()
    faults: list[str] = []
    for number in range(inputs):
        rng = random.Random(f"{seed} {target.name} {number}")
        restore(folder, files)
        victim = rng.choice(victims)
        damaged = mutated(files[victim], rng)
        victim.write_bytes(damaged)
        if progress is not None:
            progress.write_text(f"{target.name}, input {number}, {victim.name}")
        outcome = outcome_of(target, folder, expected)
        if damaged == files[victim] and outcome != "the same":
            outcome = f"undamaged, and yet: {outcome}"
        counts[outcome if outcome in OUTCOMES else "fault"] += 1
        if outcome not in OUTCOMES:
            faults.append(f"{target.name}, input {number} ({victim.name}): {outcome}")
    return counts, faults


def outcome_of(target: Target, folder: Path, expected: Any) -> str:
    clear_caches()
    try:
        with time_limit(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = target.read(folder)
    except SpeechmixError as error:
        return "refused" if str(error).strip() else "an error that says nothing"
    except (Exception, TooSlow) as error:
        last = traceback.extract_tb(error.__traceback__)[-3:]
        where = " < ".join(
            f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(last)
        )
        return f"{type(error).__name__}: {error!s:.200} at {where}"
    if repr(found) == repr(expected):
        return "the same"
    return f"a wrong result: {found!r:.200}" if target.exact else "another"


def clear_caches() -> None:
    from speechmix.inputs.audio import audio_source as audio

    audio._decode_cached.cache_clear()


def restore(folder: Path, files: dict[Path, bytes]) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        if path not in files and path.is_file():
            path.unlink()
    for path, content in files.items():
        if not path.is_file() or path.read_bytes() != content:
            path.write_bytes(content)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000, help="over all readers")
    parser.add_argument("--seed", type=int, default=14)
    parser.add_argument("--only", help="readers whose names hold this")
    parser.add_argument("--out", type=Path, help="where to write counts and faults as JSON")
    options = parser.parse_args()
    targets = [target for target in TARGETS if options.only is None or options.only in target.name]
    limit_memory()
    counts, faults = {}, []
    for index, target in enumerate(targets):
        folder = Path(tempfile.mkdtemp())
        inputs = options.inputs // len(targets) + (index < options.inputs % len(targets))
        progress = options.out.with_suffix(".now") if options.out else None
        counts[target.name], more = fuzz(target, inputs, options.seed, folder, progress)
        faults += more
        shutil.rmtree(folder)
    print(as_table(counts))
    print("\n".join(faults))
    if options.out:
        options.out.write_text(json.dumps({"counts": counts, "faults": faults}))
    return 1 if faults else 0


def as_table(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Markdown: a row a reader, and their sum."""
    rows = [
        (name, *(count.get(outcome, 0) for outcome in OUTCOMES)) for name, count in counts.items()
    ]
    rows.append(("all", *(sum(column) for column in list(zip(*rows, strict=True))[1:])))
    lines = [
        f"| reader | inputs | {' | '.join(OUTCOMES)} |",
        f"|---{'|---:' * (len(OUTCOMES) + 1)}|",
    ]
    return "\n".join(
        lines
        + [
            f"| {name} | {sum(row):,} | {' | '.join(f'{n:,}' for n in row)} |"
            for name, *row in rows
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
