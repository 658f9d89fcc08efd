"""Through which files of the package do `load`, `mix`, `explain`, `score` and `report` run?

    python benchmarks/files_of_calls.py          # a table: call, files of the core, of extensions, functions
    python benchmarks/files_of_calls.py mix      # the files of one call, in the order in which it meets them

Functions that run are counted, imports are not. The model and the clip are bundled ones.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import speechmix
from speechmix.inputs import bundled
from speechmix.reporting.pages.run_page import report
from speechmix.runs.score_clips import score_clips

PACKAGE = Path(speechmix.__file__).parent


def functions_of(call: Callable[[], object]) -> dict[str, set[str]]:
    """Return file -> its functions that a call runs, in the order in which it meets the files."""
    found: dict[str, set[str]] = {}

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            if frame.f_code.co_name == "<module>":
                return
            path = str(Path(frame.f_code.co_filename).relative_to(PACKAGE))
            found.setdefault(path, set()).add(frame.f_code.co_qualname)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found


def main() -> None:
    """Print the table, or the files of the call that is named."""
    folder = bundled.models()["tiny-french-whisper"]
    model, clip = speechmix.load(folder), bundled.clips()[0]
    run = Path(tempfile.mkdtemp()) / "run"
    calls: dict[str, Callable[[], object]] = {
        "load": lambda: speechmix.load(folder),
        "mix": lambda: speechmix.mix(model, clip),
        "explain": lambda: speechmix.explain(model, clip),
        "score": lambda: score_clips(model, [clip], run, progress=False),
        "report": lambda: report(run),
    }
    if len(sys.argv) > 1:
        print("\n".join(functions_of(calls[sys.argv[1]])))
        return
    print("| call | files of the core | of extensions | functions |\n|---|--:|--:|--:|")
    for name, call in calls.items():
        found = functions_of(call)
        outside = sum(path.startswith("extensions/") for path in found)
        print(
            f"| `{name}` | {len(found) - outside} | {outside} | {sum(map(len, found.values()))} |"
        )


if __name__ == "__main__":
    main()
