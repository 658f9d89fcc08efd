"""The French homophony study: which layers let the cue (le / les) into the target noun (livre / livres)?

With a manifest of clips (path, text, cue, target; foil and words if you have them) it scores each clip with the models
named and with their randomly initialised twins, draws layer-wise cue contribution per stack and measure, silences the
cue stack by stack (ablation), and writes one page:

    python recipes/french_homophony.py --clips clips.tsv --models openai/whisper-small --seeds 0 1 2 --out runs/small

With a Common Voice release (or a data set of `datasets`, such as the paper's) it first makes the clips itself: it mines the
sentences for pairs, places the words, lets the models transcribe, and keeps what all of them spell right; see
`speechmix mine --help`. It stops and goes on at any point; `--out` holds the data set in `corpus/examples`:

    python recipes/french_homophony.py --common-voice cv-corpus-21.0-2025-03-14/fr --split test --balance number --most 360 \\
        --models openai/whisper-small openai/whisper-medium --aligner jonatasgrosman/wav2vec2-large-xlsr-53-french

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
from speechmix.homophony.commands import add_mining_options, add_selection_options, counted

MEASURES = ("value_zeroing", "attention", "attention_norm")
SYNTHETIC = (
    "SYNTHETIC: espeak-ng speaks, and the models are tiny and trained on nothing else. The two members of a pair are "
    "bit-identical except around the cue, so only the cue tells the number. No evidence about real speech models."
)


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    skipped: list[tuple[str, str]] = []
    try:
        sources = options.models or list(bundled.models().values())
        load = partial(speechmix.load, device=options.device)
        models = [partial(load, source) for source in sources]
        aligner = load(options.aligner) if options.aligner else None
        clips = _mined(options, models, aligner, skipped) if options.common_voice else _clips(options, skipped)
        models += [partial(load, source, init="random", seed=seed) for source in sources for seed in options.seeds]
        run = score_clips(
            models,
            clips,
            options.out,
            measures=options.measures,
            stacks=options.stacks,
            aligner=aligner,
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
    return _report(run, options, synthetic=not (options.clips or options.common_voice))


def _mined(options, models, aligner, skipped: list[tuple[str, str]]) -> list[speechmix.Clip]:
    """Examples mined from a corpus: pairs, word times, transcripts, selection. What is done already is not done again."""
    from speechmix.homophony.counts import summary
    from speechmix.homophony.dataset import read_examples
    from speechmix.homophony.journal import options_of
    from speechmix.homophony.selection import select_examples
    from speechmix.homophony.stages import align_corpus, mine_corpus, transcribe_corpus

    study = Path(options.out) / "corpus"
    again = {"overwrite": options.overwrite, "progress": sys.stderr.isatty()}
    reading = {"split": options.split, "sample": options.sample, "seed": options.seed, "language": options.language}
    reading |= {"parser": options.parser, "lexicon": options.lexicon, "allow_outside": options.allow_outside}
    print(
        counted(mine_corpus(options.common_voice, study, templates=options.template or ("french",), **reading, **again))
    )
    print(counted(align_corpus(study, model=aligner, textgrids=options.textgrids, **again)))
    transcripts = transcribe_corpus(study, models, **again)
    print("\n".join(map(counted, transcripts)))
    choosing = {"balance": options.balance, "most": options.most, "seed": options.seed}
    choosing |= {"audible_only": options.audible, "keep_doubtful": options.keep_doubtful}
    examples = select_examples(study, models=[options_of(path)["model"] for path in transcripts], **choosing)
    print(f"\n{summary(examples)}\n")
    clips = read_examples(examples, skipped=skipped)
    if not clips:
        raise speechmix.SpeechmixError(f"no pair became an example: {examples / 'dropped.csv'} says why, one by one")
    return clips


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
    if not run.done:
        print(f"french_homophony: no clip was scored; {run.out / 'skipped.csv'} says why, one by one", file=sys.stderr)
        return 1
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
    clips = "synthetic clips of the package" if synthetic else str(Path(options.clips or options.common_voice).name)
    notes = [f"Clips: {clips}. Random twins: seeds {', '.join(map(str, options.seeds)) or 'none'}."]
    page = write_study(run, title="French homophony", notes=[SYNTHETIC, *notes] if synthetic else notes)
    print(f"\npage: {page}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--clips",
        "--manifest",
        metavar="MANIFEST",
        help="TSV, CSV or JSONL with path, text, cue, target (foil, words, language; default: the package's own clips)",
    )
    parser.add_argument(
        "--common-voice",
        "--corpus",
        metavar="FOLDER",
        help="make the clips from a Common Voice release folder, a manifest without cues, or a data set (folder or hub id)",
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
    corpus = parser.add_argument_group("a corpus (--common-voice)")
    corpus.add_argument("--textgrids", metavar="FOLDER", help="word times by the Montreal Forced Aligner")
    add_mining_options(corpus)
    add_selection_options(corpus)
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
