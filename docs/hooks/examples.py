"""Run the Python blocks of the pages in docs/, and keep what they print.

    python docs/hooks/examples.py            # run all pages, write what they print into them (and the pictures they save)
    python docs/hooks/examples.py start.md   # one page

In: a page. All its ```python blocks run one after the other in one namespace, in an empty folder; a
```text block right behind a Python block is what it prints. A block behind the line `<!-- skip:
REASON -->` is left alone. `tests/test_docs.py` runs the same and compares.
"""

from __future__ import annotations

import contextlib
import io
import os
import platform
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
if platform.machine() in ("x86_64", "AMD64"):  # int8 of CTranslate2 differs between processors
    os.environ.setdefault("CT2_FORCE_CPU_ISA", "AVX2")

_BLOCK = re.compile(
    r"(?P<skip><!-- skip: [^\n]* -->\n+)?^```python\n(?P<code>.*?)^```$(?P<text>\n\n```text\n(?P<printed>.*?)^```$)?",
    re.DOTALL | re.MULTILINE,
)
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])")


@dataclass
class Example:
    """A Python block: its code, what the page says it prints (None: nothing said), and what it did
    print."""

    code: str
    expected: str | None
    line: int
    printed: str = ""


def pages() -> list[Path]:
    """All pages with Python blocks."""
    return [
        path
        for path in sorted(DOCS.rglob("*.md"))
        if "```python" in path.read_text(encoding="utf-8")
    ]


def examples(text: str) -> Iterator[Example]:
    """Blocks of a page that are to run."""
    for match in _BLOCK.finditer(text):
        if not match["skip"]:
            yield Example(match["code"], match["printed"], text[: match.start()].count("\n") + 1)


def run(path: Path, folder: Path) -> list[Example]:
    """Run a page's blocks in `folder`; what a block raises goes through, with the page's name and
    line."""
    found = list(examples(path.read_text(encoding="utf-8")))
    namespace: dict[str, object] = {"__name__": "__main__"}
    before = Path.cwd()
    os.chdir(folder)
    try:
        for example in found:
            code = compile("\n" * example.line + example.code, str(path), "exec")
            with contextlib.redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(code, namespace)
            example.printed = printed.getvalue()
    finally:
        os.chdir(before)
    return found


def same_text(one: str, other: str) -> bool:
    """Whether two texts are equal up to spaces and the rounding of numbers.

    Examples
    --------
    >>> same_text("share 0.49, 12 %", "share  0.48, 13 %"), same_text("share 0.49", "share 0.4"), same_text("a 1", "b 1")
    (True, False, False)
    """
    if _NUMBER.sub("#", one).split() != _NUMBER.sub("#", other).split():
        return False
    return all(
        _near(a, b) for a, b in zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    )


def _near(one: str, other: str) -> bool:
    """Equal up to two units of the last printed place, or to a thousandth."""
    decimals = [len(number.partition(".")[2].partition("e")[0]) for number in (one, other)]
    a, b = float(one), float(other)
    if "e" in one or "e" in other:
        return abs(a - b) <= 0.1 * max(abs(a), abs(b))
    return decimals[0] == decimals[1] and abs(a - b) <= max(
        2.01 * 10.0 ** -decimals[0], 1e-3 * abs(a)
    )


def rewrite(path: Path) -> None:
    """Run a page, and write what its blocks print into their ```text blocks, and the pictures they
    save into images/."""
    text = path.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        ran = iter(run(path, Path(folder)))

        def printed(match: re.Match) -> str:
            if match["skip"]:
                return match[0]
            output = next(ran).printed
            if not match["text"]:
                return match[0]
            lines = "\n".join(line.rstrip() for line in output.rstrip().splitlines())
            return match[0][: match.start("text") - match.start()] + f"\n\n```text\n{lines}\n```"

        path.write_text(_BLOCK.sub(printed, text), encoding="utf-8")
        for picture in Path(folder).glob("*.png"):
            shutil.copy(picture, DOCS / "images" / picture.name)


if __name__ == "__main__":
    import sys

    import transformers

    transformers.utils.logging.disable_progress_bar()
    for one in [DOCS / name for name in sys.argv[1:]] or pages():
        rewrite(one)
        print(one.relative_to(DOCS))
