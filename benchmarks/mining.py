"""What mining finds and costs: agreement with gold trees, pairs by template and contrast, processor
seconds and memory.

    python -m benchmarks.mining [--trees FILE.conllu ...] [--sentences FOLDER_OR_FILE ...]

In: trees of Universal Dependencies (gold pairs are drawn by the rules of tests/homophony/gold.py),
and text files with a sentence a line. Out, printed: precision, recall and F1 by template; pairs of
the sentences by template, contrast and number; processor seconds and peak memory of `speechmix
mine` on them as one process. Nothing is asserted; not collected by pytest.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from speechmix.runs.journal.stage_lines import read_kept_lines
from speechmix.studies.french import Lexicon, load_template, mine
from tests.homophony.gold import OWN_RULES, THIRD_PERSON, compare

TEMPLATES = (
    ("det_noun", None),
    ("pronoun_verb", None),
    ("pronoun_verb", THIRD_PERSON),
    ("det_noun_verb", None),
)


def agreement(trees: Sequence[Path]) -> None:
    """Print the scores of the lexicon parser by template, and without each of the gold's own rules
    that matters to it."""
    lexicon = Lexicon.load()
    for name, cues in TEMPLATES:
        template = load_template(name)
        asked = (trees, template, lexicon, lambda text: mine(text, templates=[template]))  # noqa: B023
        score = compare(*asked, cues=cues)
        cue_forms = "il elle ils elles" if cues else "all cues"
        print(f"{name:13} {cue_forms:18} {score.shown()}")
        if cues is None:
            for rules in (*([rule] for rule in OWN_RULES), [*OWN_RULES]):
                other = compare(*asked, without=rules)
                if other != score:
                    print(f"    without {', '.join(rules)}: {other.shown()}")


def cost_and_counts(sentences: Sequence[Path]) -> None:
    """Mine the sentences by the command line; print what it took and what it gave."""
    with tempfile.TemporaryDirectory() as folder:
        manifest, study = Path(folder) / "sentences.tsv", Path(folder) / "study"
        (Path(folder) / "one.wav").touch()  # mining asks only whether the recording is there
        with manifest.open("w", encoding="utf-8") as file:
            file.write("path\tname\ttext\n")
            for number, line in enumerate(_lines(sentences)):
                file.write(f"one.wav\tclip_{number:06}\t{line}\n")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "speechmix", "mine", str(manifest), "--out", str(study)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(
            f"{seconds:.1f} s of processor time, {after.ru_maxrss / 1024:.0f} MiB at the "
            f"peak\n{printed}"
        )
        counts: Counter = Counter()
        for line in read_kept_lines(study / "pairs.jsonl"):
            for pair in line["pairs"]:
                kinds = (
                    pair["template"],
                    pair.get("contrast", pair.get("differs")),
                    pair["number"],
                )
                counts[*kinds] += 1
                counts[*kinds, "audible"] += pair["audible"]
                counts[*kinds, "audible, onset alike"] += pair["audible"] and not pair["liaison"]
        for kinds, count in sorted(counts.items(), key=lambda item: json.dumps(item[0])):
            print(f"{', '.join(map(str, kinds)):60} {count:8}")


def _lines(paths: Sequence[Path]):
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                yield from (
                    line.strip().replace("\t", " ")
                    for line in file.open(encoding="utf-8")
                    if line.strip()
                )


def main() -> None:
    """Read the arguments; print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trees", nargs="*", type=Path, default=[])
    parser.add_argument("--sentences", nargs="*", type=Path, default=[])
    options = parser.parse_args()
    if options.trees:
        agreement(options.trees)
    if options.sentences:
        cost_and_counts(options.sentences)


if __name__ == "__main__":
    main()
