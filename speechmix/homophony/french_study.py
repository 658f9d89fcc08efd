"""The French homophony study, from clips to a page: which layers let the cue (les) into the target noun (livres)?

In: the options of `speechmix study`. Out: a run folder with maps, tables, figures and `index.html`. `study` is the whole of
it, and reads from top to bottom: models and their random twins; clips of a manifest, of a corpus that is mined for them, or
of the package; scores, with the cue silenced stack by stack (ablation); the page. Every step goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import bundled
from ..adapters import load
from ..corpora.reading import listed_clips
from ..errors import InputError, SpeechmixError
from ..experiments.run import score_clips
from ..experiments.speech_ablations import speech_ablation
from ..experiments.workers import score_in_workers
from .stage_lines import counted

if TYPE_CHECKING:
    from ..inputs.clips import Clip

SYNTHETIC = (
    "SYNTHETIC: espeak-ng speaks, and the models are tiny and trained on nothing else. The two members of a pair are "
    "bit-identical except around the cue, so only the cue tells the number. No evidence about real speech models."
)


def study(options: argparse.Namespace) -> Path:
    """Run the study, or go on with one that was stopped; returns the path of its page.

    Parameters
    ----------
    options : argparse.Namespace
        What `speechmix study` takes, as it takes it; workers as a number.

    Raises
    ------
    SpeechmixError
        If no clip could be scored; the run's ``skipped.csv`` says why, one by one.
    """
    from ..reports.wording import said_twins

    skipped: list[tuple[str, str]] = []
    further = f" After the first, each hears {options.twin_clips} clips at most." if options.twin_clips else ""
    print(said_twins(len(options.seeds)) + (further if len(options.seeds) > 1 else ""))
    sources = options.models or list(bundled.models().values())
    opened = partial(load, device=options.device)
    models = [partial(opened, source) for source in sources]
    twins = [partial(opened, source, init="random", seed=seed) for source in sources for seed in options.seeds]
    aligner = opened(options.aligner) if options.aligner else None
    if options.common_voice:
        clips = _mined(options, models, aligner, skipped)
    else:
        clips = _listed(options, skipped) if options.clips else bundled.clips()
    asked: dict[str, Any] = {
        "measures": options.measures,
        "stacks": options.stacks,
        "figures": options.figures,
        "ablation": True,
        "overwrite": options.overwrite,
        "progress": sys.stderr.isatty(),
        "report": print if options.verbose else lambda line: None,
        "skipped": skipped,
        "twin_clips": options.twin_clips or None,
        "probes": not options.no_probes,
    }
    if options.workers > 1:
        by: dict[str, Any] = {"workers": options.workers, "device": options.device}
        aligning = partial(opened, options.aligner) if options.aligner else None
        run = score_in_workers([*models, *twins], clips, options.out, aligner=aligning, **by, **asked)
    else:
        run = score_clips([*models, *twins], clips, options.out, aligner=aligner, **asked)
    if options.published_ablation:
        try:
            twin_clips = options.twin_clips or None
            speech_ablation([*models, *twins], clips, options.out, aligner=aligner, twin_clips=twin_clips)
        except InputError as error:
            print(f"no ablation as published: {error}")
    return _report(run, options)


def _listed(options, skipped: list[tuple[str, str]]) -> list[Clip]:
    """Clips of the manifest or set; rows that cannot be used are recorded."""
    clips = listed_clips(
        options.clips,
        allow_outside=options.allow_outside,
        on_error=lambda row, name, error: skipped.append((name or f"row {row}", str(error))),
    )
    return [clip if clip.language else clip.replace(language=options.language) for clip in clips]


def _mined(options, models, aligner, skipped: list[tuple[str, str]]) -> list[Clip]:
    """Examples mined from a corpus: pairs, word times, transcripts, selection. What is done already is not done again."""
    from .counts import summary
    from .dataset import read_examples
    from .drawing import parse_draw
    from .selection import select_examples
    from .stage_lines import options_of
    from .stages import align_corpus, mine_corpus, transcribe_corpus

    folder = Path(options.out) / "corpus"
    again = {"overwrite": options.overwrite, "progress": sys.stderr.isatty()}
    reading = {
        "split": options.split,
        "sample": options.sample,
        "seed": options.seed or 0,
        "language": options.language,
    }
    reading |= {"parser": options.parser, "lexicon": options.lexicon, "allow_outside": options.allow_outside}
    templates = options.template or ("french",)
    print(counted(mine_corpus(options.common_voice, folder, templates=templates, **reading, **again)))
    print(counted(align_corpus(folder, model=aligner, textgrids=options.textgrids, **again)))
    transcripts = transcribe_corpus(folder, models, **again)
    print("\n".join(map(counted, transcripts)))
    choosing = {"balance": options.balance, "most": options.most, "seed": options.seed}
    choosing |= {"draw": parse_draw(options.draw) if options.draw else None}
    choosing |= {"audible_only": options.audible, "keep_doubtful": options.keep_doubtful}
    examples = select_examples(folder, models=[options_of(path)["model"] for path in transcripts], **choosing)
    print(f"\n{summary(examples)}\n")
    clips = read_examples(examples, skipped=skipped)
    if not clips:
        raise SpeechmixError(f"no pair became an example: {examples / 'dropped.csv'} says why, one by one")
    return clips


def _report(run, options) -> Path:
    """Print the run's tables and write its page."""
    from ..reports.study import Study
    from ..reports.study_page import transcription_notes, write_study
    from ..reports.study_tables import shown

    print(run.summary())
    if not run.done:
        raise SpeechmixError(f"no clip was scored; {run.out / 'skipped.csv'} says why, one by one")
    study = Study.of(run)
    for note in transcription_notes(study.run):
        print(note)
    if study.table.empty:
        print("no clip has both cue and target, so there is no cue contribution to report")
    else:
        print("\ncue contribution in %, at the best layer (cross-fitted), at the deciding position where it is known:")
        print(shown(study.headline).to_string(index=False))
        if not study.ablation.empty:
            print("\nablation: target spelled right in % of the clips (chance is 50)")
            print(shown(study.ablation).to_string(index=False))
    source = options.clips or options.common_voice
    clips = Path(source).name if source else "synthetic clips of the package"
    notes = [f"Clips: {clips}. Random twins: seeds {', '.join(map(str, options.seeds)) or 'none'}."]
    page = write_study(study, title="French homophony", notes=notes if source else [SYNTHETIC, *notes])
    print(f"\npage: {page}")
    return page
