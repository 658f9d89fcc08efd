"""The French homophony study: which layers let the cue (le / les) into the target noun (livre / livres)?

With a manifest of clips (path, text, cue, target; foil and words if you have them) it scores each clip with the models
named and with their randomly initialised twins, draws layer-wise cue contribution per stack and measure, silences the
cue stack by stack (ablation), and writes one page:

    python recipes/french_homophony.py --clips clips.tsv --models openai/whisper-small --seeds 0 1 2 --out runs/small

Without arguments it runs the same study on what comes with the package: two tiny recognisers trained on synthetic French,
and synthetic clips. There it is known which word carries the number, so it shows whether the measures find it; it is no
evidence about real speech models.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import speechmix
from speechmix import bundled
from speechmix.experiments.run import score_clips

MEASURES = ("value_zeroing", "attention", "attention_norm")
SYNTHETIC = (
    "SYNTHETIC: espeak-ng speaks, and the models are tiny and trained on nothing else. The two members of a pair are "
    "bit-identical except around the cue, so only the cue tells the number. No evidence about real speech models."
)


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    skipped: list[tuple[str, str]] = []
    try:
        clips = _clips(options, skipped)
        sources = options.models or list(bundled.models().values())
        load = partial(speechmix.load, device=options.device)
        models = [partial(load, source) for source in sources]
        models += [partial(load, source, init="random", seed=seed) for source in sources for seed in options.seeds]
        run = score_clips(
            models,
            clips,
            options.out,
            measures=options.measures,
            stacks=options.stacks,
            aligner=speechmix.load(options.aligner, device=options.device) if options.aligner else None,
            figures=options.figures,
            ablation=True,
            overwrite=options.overwrite,
            progress=sys.stderr.isatty(),
            report=print if options.verbose else lambda line: None,
            skipped=skipped,
        )
    except speechmix.SpeechmixError as error:
        print(f"french_homophony: {error}", file=sys.stderr)
        return 1
    return _report(run, options, synthetic=not options.clips)


def _clips(options, skipped: list[tuple[str, str]]) -> list[speechmix.Clip]:
    """Clips of the manifest; rows that cannot be used are recorded. Those that come with the package without one."""
    if not options.clips:
        return bundled.clips()
    clips = speechmix.read_clips(
        options.clips,
        allow_outside=options.allow_outside,
        on_error=lambda row, name, error: skipped.append((name or f"row {row}", str(error))),
    )
    for clip in clips:
        clip.language = clip.language or options.language
    return clips


def _report(run, options, *, synthetic: bool) -> int:
    from speechmix.reports.study import ablation_table, headline, shown, study_table, transcription_notes, write_study

    print(run.summary())
    for note in transcription_notes(run):
        print(note)
    table = study_table(run)
    if table.empty:
        print("no clip has both cue and target, so there is no cue contribution to report")
    else:
        print("\ncue contribution in %, at the best layer (cross-fitted), at the deciding position where it is known:")
        print(shown(headline(table)).to_string(index=False))
        judged = ablation_table(run)
        if not judged.empty:
            print("\nablation: target spelled right in % of the clips (chance is 50)")
            print(shown(judged).to_string(index=False))
    clips = "synthetic clips of the package" if synthetic else str(Path(options.clips).name)
    notes = [f"Clips: {clips}. Random twins: seeds {', '.join(map(str, options.seeds)) or 'none'}."]
    page = write_study(run, title="French homophony", notes=[SYNTHETIC, *notes] if synthetic else notes)
    print(f"\npage: {page}")
    return 0 if run.done else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--clips",
        "--manifest",
        metavar="MANIFEST",
        help="TSV, CSV or JSONL with path, text, cue, target (foil, words, language; default: the package's own clips)",
    )
    parser.add_argument("--allow-outside", action="store_true", help="let the manifest name files outside its folder")
    parser.add_argument(
        "--models",
        nargs="+",
        help="hub ids or folders, each scored trained and as random twins (default: the package's)",
    )
    parser.add_argument(
        "--seeds", nargs="*", type=int, default=[0, 1, 2], help="seeds of the random twins (default: 0 1 2)"
    )
    parser.add_argument("--measures", nargs="+", default=list(MEASURES), help=f"default: {' '.join(MEASURES)}")
    parser.add_argument("--stacks", nargs="+", help="encoder, decoder, cross (default: all there are)")
    parser.add_argument("--aligner", help="CTC model that places the words of clips without word times")
    parser.add_argument("--language", default="fr", help="language of clips that do not say (default: fr)")
    parser.add_argument("--device", help="cpu, cuda, ... (default: cuda if there is one)")
    parser.add_argument("--out", default="runs/french_homophony", help="folder of the run; a stopped run goes on there")
    parser.add_argument("--overwrite", action="store_true", help="start afresh in a folder that holds another run")
    parser.add_argument("--figures", type=int, default=4, help="clips to draw a figure of, per model (default: 4)")
    parser.add_argument("--verbose", action="store_true", help="print a line a clip")
    return parser


if __name__ == "__main__":
    sys.exit(main())
