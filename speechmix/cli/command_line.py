"""The command line: `speechmix COMMAND`; each command is one call of the library."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..errors import InputError, SpeechmixError

_SCORE_EPILOG = """examples:
  speechmix score livre.wav --model openai/whisper-small --text "elle a perdu les livres" --cue les --target livres
  speechmix score --manifest clips.tsv --model facebook/wav2vec2-base --random-twin 0 --measure value_zeroing --out runs/a
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0 done, 1 nothing could be done, 2 wrong usage."""
    options = _parser().parse_args(arguments)
    try:
        return options.command(options)
    except SpeechmixError as error:
        print(f"speechmix: {error}", file=sys.stderr)
        return 1
    except OSError as error:  # a table or page that cannot be written, a pipe that was closed
        print(f"speechmix: {error}: free some space, or write somewhere else", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("speechmix: stopped; the same command goes on where it was", file=sys.stderr)
        return 130


def _check(options) -> int:
    from ..adapters import load
    from ..versions import versions

    model = load(options.model, device=options.device, dtype=options.dtype, revision=options.revision)
    print(model.describe())
    parts = [
        name for name, part in (("feature extractor", model.feature_extractor), ("tokenizer", model.tokenizer)) if part
    ]
    print(f"  processor: {', '.join(parts) or 'none found (prepared inputs only)'}")
    print("  self-check passed: attention rows sum to one, replay equals the forward pass, zeroing has an effect")
    print(versions())
    return 0


def _score(options) -> int:
    from functools import partial

    from ..adapters import load
    from ..experiments.run import score_clips
    from ..scoring.question import Question

    skipped: list[tuple[str, str]] = []
    clips = _clips(options, skipped)
    loading = {"device": options.device, "dtype": options.dtype, "revision": options.revision}
    told = {"task": options.task, "language": options.spoken_as, "timestamps": options.timestamps or None}
    told = {name: value for name, value in told.items() if value is not None}

    def loaded(source: str, **further):
        model = load(source, **loading, **further)
        return model.with_prefix(**told) if told else model

    models = [partial(loaded, source) for source in options.model]
    models += [
        partial(loaded, source, init="random", seed=seed)
        for source in options.model
        for seed in options.random_twin or ()
    ]
    run = score_clips(
        models,
        clips,
        options.out,
        aligner=load(options.aligner, device=options.device) if options.aligner else None,
        align_method=options.align,
        figures=0 if options.no_figures else None,
        overwrite=options.overwrite,
        progress=sys.stderr.isatty() if options.progress is None else options.progress,
        report=_say,
        skipped=skipped,
        measures=options.measure or Question.measures,
        stacks=options.stack,
        layers=options.layer,
        units=options.units,
        heads=options.heads,
        pooling=options.pooling,
        distance=options.distance,
        rounding=options.rounding,
        include=options.include or [],
        targets="target" if options.target_rows_only else None,
        **({"product_dtype": options.product_dtype} if options.product_dtype else {}),
    )
    print(run.summary())
    return 0 if run.done else 1


def _ablate(options) -> int:
    import pandas as pd

    from ..adapters import load
    from ..alignment import align
    from ..experiments.tables import identified
    from ..files.text_files import write_csv
    from ..interventions.ablation import ablate
    from .published_ablation import ablate_as_published

    skipped: list[tuple[str, str]] = []
    clips = _clips(options, skipped)
    if options.published:
        return ablate_as_published(options, clips, skipped)
    if len(options.model) > 1:
        raise InputError(f"expected one --model, found {', '.join(options.model)}; several go with --published")
    model = load(options.model[0], device=options.device, dtype=options.dtype, revision=options.revision)
    aligner = load(options.aligner, device=options.device) if options.aligner else None
    tables = []
    for clip in clips:
        try:
            table = ablate(model, align(clip, model=aligner, method=options.align), stacks=options.stack)
        except SpeechmixError as error:
            skipped.append((clip.name, str(error)))
            continue
        tables.append(identified(table, clip, model))
        margins = "  ".join(f"{row.ablated} {row.margin:+.2f}" for row in table.itertuples())
        _say(f"{clip.name}  log p(target) - log p({clip.foil}), by what is silenced: {margins}")
    if tables:
        table = pd.concat(tables, ignore_index=True)
        rates = table.groupby("ablated", sort=False).right.mean().mul(100)
        print("target spelled right (%), by what is silenced: " + ", ".join(f"{k} {v:.0f}" for k, v in rates.items()))
        if options.out:
            write_csv(table, options.out)
    for name, reason in skipped:
        print(f"skipped {name}: {reason}")
    print(f"{len(tables)} done, {len(skipped)} skipped")
    return 0 if tables else 1


def _clips(options, skipped: list[tuple[str, str]]) -> list:
    """Clips named on the command line and in a manifest; manifest rows that cannot be used are recorded."""
    from ..corpora.reading import listed_clips
    from ..files.names import distinct_names
    from ..inputs.clips import Clip

    description = {name: getattr(options, name) for name in ("text", "translation", "words", "cue", "target", "foil")}
    if len(options.clips) != 1 and any(description.values()):
        raise InputError(
            "--text, --translation, --words, --cue, --target and --foil describe one clip; several go into a manifest"
        )
    clips = [
        Clip.from_file(path, language=options.language, tier=options.tier, **description) for path in options.clips
    ]
    if options.manifest:

        def record(row: int, name: str, error: InputError) -> None:
            skipped.append((name or f"row {row}", str(error)))

        clips += listed_clips(options.manifest, tier=options.tier, allow_outside=options.allow_outside, on_error=record)
    clips = distinct_names(clips)
    if not clips:
        reasons = "; ".join(reason for _, reason in skipped[:3])
        raise InputError(f"no clip to score: {reasons or 'name audio files, or give --manifest'}")
    clips = [clip if clip.language else clip.replace(language=options.language) for clip in clips]
    if options.cut:
        if len(clips) != 1:
            raise InputError("--cut takes a part of one clip")
        clips = [clips[0].cut(*options.cut)]
    return clips


def _say(line: str) -> None:
    from tqdm.auto import tqdm

    tqdm.write(line)


def _seconds(text: str) -> tuple[float, float]:
    start, _, end = text.partition(":")
    return float(start), float(end)


def _parser() -> argparse.ArgumentParser:
    from .. import __version__
    from .faithfulness import add_commands as add_faithfulness_commands
    from .homophony import add_commands
    from .probing import add_commands as add_probe_commands
    from .published_ablation import add_options as add_ablation_options
    from .reports import add_commands as add_report_commands
    from .text_faithfulness import add_commands as add_text_commands

    parser = argparse.ArgumentParser(
        prog="speechmix", description="Context mixing in speech Transformers: which words build which, layer by layer."
    )
    parser.add_argument("--version", action="version", version=f"speechmix {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    check = commands.add_parser("check", help="load a model, check that its layers are understood, say what was found")
    check.add_argument("model", help="hub id or folder")
    check.set_defaults(command=_check)

    score = commands.add_parser(
        "score",
        help="score clips: maps, tables and figures",
        epilog=_SCORE_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    score.set_defaults(command=_score)
    _add_clip_options(score)
    _add_model_options(score)
    _add_measure_options(score)
    ablate = commands.add_parser(
        "ablate", help="silence the cue's values stack by stack and read whether the target is still spelled right"
    )
    ablate.set_defaults(command=_ablate)
    _add_clip_options(ablate)
    ablate.add_argument(
        "--model", action="append", required=True,
        help="hub id or folder, with a CTC or language-model head; with --published several times, if there are several",
    )  # fmt: skip
    ablate.add_argument("--stack", action="append", help="encoder, decoder, cross (default: all there are)")
    ablate.add_argument("--out", help="CSV file for the table")
    add_ablation_options(ablate)
    for command in (check, score, ablate):
        command.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: cuda if there is one)")
        command.add_argument("--dtype", help="precision of the weights (default: float32)")
        command.add_argument("--revision", help="branch, tag or commit on the hub")
    add_faithfulness_commands(commands)
    add_probe_commands(commands)
    add_text_commands(commands)
    add_commands(commands)
    add_report_commands(commands)
    return parser


def _add_clip_options(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("clips")
    group.add_argument("clips", nargs="*", metavar="CLIP", help="audio files: WAV, FLAC, MP3, OGG")
    group.add_argument(
        "--manifest", "--corpus",
        help="TSV, CSV or JSONL with columns path, text, words, cue, target, foil; or a set that says as much: tars "
        "of WebDataset, a folder of Lhotse Shar or of datasets",
    )  # fmt: skip
    group.add_argument("--allow-outside", action="store_true", help="let the manifest name files outside its folder")
    group.add_argument("--text", help="what is said")
    group.add_argument("--translation", help="what a Whisper told to translate should write (default: what it writes)")
    group.add_argument("--words", help="word times: TextGrid, CTM, JSON, TSV or CSV")
    group.add_argument("--tier", help="which tier of a TextGrid holds the words")
    group.add_argument("--cue", help="a word, word:occurrence ('les:2'), or its index; several: 'le club'")
    group.add_argument("--target", help="likewise, one word")
    group.add_argument("--foil", help="the other spelling of the target ('livre' for 'livres')")
    group.add_argument("--language", default="fr", help="language spoken (default: fr)")
    group.add_argument("--cut", type=_seconds, metavar="FROM:TO", help="score only these seconds of the clip")
    group.add_argument(
        "--align", choices=("auto", "ctc", "whisper", "synthesis"), default="auto", help="how to place a text's words"
    )
    group.add_argument("--aligner", metavar="MODEL", help="CTC or Whisper model that aligns (default: by synthesis)")


def _add_model_options(score: argparse.ArgumentParser) -> None:
    from ..inputs.clip_facts import TASKS

    group = score.add_argument_group("models")
    group.add_argument("--model", action="append", required=True, help="hub id or folder; may be given several times")
    group.add_argument(
        "--random-twin",
        type=int,
        action="append",
        metavar="SEED",
        help="also the randomly initialised twin with this seed",
    )
    group.add_argument("--task", choices=TASKS, help="what a Whisper is told to do (default: transcribe)")
    group.add_argument(
        "--spoken-as", metavar="LANGUAGE", help="language a Whisper is told is spoken (default: that of the clip)"
    )
    group.add_argument("--timestamps", action="store_true", help="timestamp tokens around what a Whisper writes")


def _add_measure_options(score: argparse.ArgumentParser) -> None:
    from ..scoring.question import ALLOWED, AUDIO_UNITS, Question

    group = score.add_argument_group("scores")
    group.add_argument(
        "--measure",
        action="append",
        help="value_zeroing (default), attention, attention_norm, alti ...; may be repeated",
    )
    group.add_argument(
        "--stack", action="append", help="encoder, decoder, cross (default: all there are); may be repeated"
    )
    group.add_argument(
        "--layer", type=int, action="append", help="score only this layer, counted from 0; may be repeated"
    )
    for option in ("units", "heads", "pooling", "distance", "rounding"):
        values = AUDIO_UNITS if option == "units" else ALLOWED[option]
        group.add_argument(f"--{option}", choices=values, default=getattr(Question, option))
    group.add_argument(
        "--product-dtype", help="bfloat16 (on a GPU also tf32): matrix products of Value Zeroing, scores within 0.5 %%"
    )
    group.add_argument(
        "--include",
        action="append",
        choices=ALLOWED["include"],
        help="make these units of the map; may be repeated",
    )
    group.add_argument("--target-rows-only", action="store_true", help="only the target word's rows: much faster")
    output = score.add_argument_group("output")
    output.add_argument("--out", required=True, help="folder for maps, tables and figures")
    output.add_argument("--no-figures", action="store_true")
    output.add_argument("--overwrite", action="store_true", help="start afresh in a folder that holds another run")
    output.add_argument(
        "--progress", action=argparse.BooleanOptionalAction, default=None, help="show a bar (default: in a terminal)"
    )


if __name__ == "__main__":
    sys.exit(main())
