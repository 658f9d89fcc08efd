"""The French homophony study, from clips to a page: which layers let the cue (les) into the target noun (livres)?

In: the options of `speechmix study`. Out: a run folder with maps, tables, figures and `index.html`. `study` is the whole of
it, and reads from top to bottom: models and their random twins; clips of a manifest, of a corpus that is mined for them, or
of the package; scores, with the cue silenced stack by stack (ablation); the page. Every step goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import bundled
from ..adapters import load
from ..corpora.reading import listed_clips
from ..engines.workers import score_in_workers
from ..errors import InputError, SpeechmixError
from ..experiments.run import score_clips
from ..experiments.speech_ablations import speech_ablation
from ..files.json_files import read_json_object
from ..files.whole_files import write_json
from ..stages.stage_lines import counted
from ..storage.folder import RunFolder

if TYPE_CHECKING:
    from ..adapters.model import Model
    from ..inputs.clips import Clip

TITLE = "French homophony"
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
        "explain": options.explain,
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
    """Examples mined from a corpus: pairs, word times, transcripts, selection. What is done already is not done again.

    A stage that was begun in shards goes on in them.
    """
    from ..stages.stage_files import begun_shards
    from ..stages.stage_lines import options_of
    from .adapting import align_study
    from .counts import summary
    from .dataset import read_examples
    from .drawing import parse_draw
    from .selection import select_examples
    from .stages import mine_corpus
    from .study import PAIRS, WORDS

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
    for shard in begun_shards(folder / PAIRS):
        mine_corpus(options.common_voice, folder, templates=templates, shard=shard, **reading, **again)
    print(counted(folder / PAIRS))
    for shard in begun_shards(folder / WORDS):
        align_study(folder, model=aligner, textgrids=options.textgrids, shard=shard, report=print, **again)
    print(counted(folder / WORDS))
    transcripts = [_transcribed(folder, load_model(), again) for load_model in models]
    choosing = {"contrasts": options.contrast, "balance": options.balance, "most": options.most, "seed": options.seed}
    choosing |= {"draw": parse_draw(options.draw) if options.draw else None}
    choosing |= {"audible_only": options.audible, "keep_doubtful": options.keep_doubtful}
    choosing["one_pair_per_sentence"] = options.one_pair_per_sentence
    examples = select_examples(folder, models=[options_of(path)["model"] for path in sorted(transcripts)], **choosing)
    print(f"\n{summary(examples)}\n")
    clips = read_examples(examples, skipped=skipped)
    if not clips:
        raise SpeechmixError(f"no pair became an example: {examples / 'dropped.csv'} says why, one by one")
    return clips


def _transcribed(folder: Path, model: Model, again: dict[str, bool]) -> Path:
    """What a model writes of the corpus, in one file or in the shards that were begun."""
    from ..stages.stage_files import begun_shards
    from .stages import transcribe_corpus, transcripts_of

    output = transcripts_of(folder, model)
    for shard in begun_shards(output):
        transcribe_corpus(folder, [model], shard=shard, **again)
    print(counted(output))
    return output


def study_notes(clips: str, seeds: Sequence[int]) -> list[str]:
    """What the page says first: which clips, by what name, and which untrained twins.

    Examples
    --------
    >>> study_notes("fr", [0, 1])
    ['Clips: fr. Untrained twins: seeds 0 to 1.']
    """
    is_range = len(seeds) > 1 and list(seeds) == list(range(min(seeds), max(seeds) + 1))
    named = f"{min(seeds)} to {max(seeds)}" if is_range else ", ".join(map(str, seeds)) or "none"
    return [f"Clips: {clips}. Untrained twins: seeds {named}."]


def describe_page(run: str | PathLike, examples: str | PathLike, seeds: Sequence[int]) -> None:
    """Let the page of a run of a study's examples begin as that of `study`, unless it has a title or notes of its own.

    Parameters
    ----------
    run, examples : path
        Folder of the run; data set that `select_examples` wrote.
    seeds : sequence of int
        Of the random twins.
    """
    from .counts import selection_facts
    from .dataset import about

    path = RunFolder(Path(run)).page_description
    mined = about(examples).get("stages", {}).get("pairs", {})
    clips = Path(mined.get("source", examples)).name
    if path.exists():
        former = read_json_object(path)
        (of_no_twins,) = study_notes(clips, [])
        is_ours = [str(note).startswith(of_no_twins.removesuffix("none.")) for note in former.get("notes") or ()]
        if former.get("title") != TITLE or is_ours != [True]:
            return
    chosen = {"selection": facts} if (facts := selection_facts(Path(examples))) else {}
    write_json(path, {"title": TITLE, "notes": study_notes(clips, seeds), **chosen})


def _report(run, options) -> Path:
    """Print the run's tables and write its page."""
    from ..reports.study import Study
    from ..reports.study_page import write_study
    from ..reports.study_tables import shown
    from ..reports.transcription import transcription_notes
    from .counts import selection_facts
    from .study import EXAMPLES

    print(run.summary())
    if not run.done:
        raise SpeechmixError(f"no clip was scored; {run.out / 'skipped.csv'} says why, one by one")
    source = options.clips or options.common_voice
    clips = Path(source).name if source else "synthetic clips of the package"
    notes = study_notes(clips, options.seeds)
    notes = notes if source else [SYNTHETIC, *notes]
    chosen = selection_facts(Path(options.out) / "corpus" / EXAMPLES) if options.common_voice else {}
    write_json(RunFolder(run.out).page_description, {"title": TITLE, "notes": notes, "selection": chosen})
    study = Study.of(run)
    for note in transcription_notes(study.run):
        print(note)
    if study.table.empty:
        print("no clip has both cue and target, so there is no cue contribution to report")
    else:
        print("\ncue contribution in %, over whole stacks, at the deciding position where it is known:")
        print(shown(study.headline).to_string(index=False))
        if not study.ablation.empty:
            print("\nablation: target spelled right in % of the clips (chance is 50)")
            print(shown(study.ablation).to_string(index=False))
    page = write_study(study, title=TITLE, notes=notes)
    print(f"\npage: {page}")
    return page
