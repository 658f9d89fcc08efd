"""The French homophony study, from clips to a page: which layers let the cue (les) into the target
noun (livres)?

In: clips, or a corpus that they are mined of. Out: a run folder with maps, tables, figures and
`index.html`. `french_study` is the whole of it, and reads from top to bottom: models and their
random twins; clips of a manifest, of a corpus that is mined for them, or of the package; scores,
with the cue silenced stack by stack (ablation); the page. Every step goes on where it was stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...adapters.loading.load import load
from ...errors import InputError, SpeechmixError
from ...files.json_files import read_json_object
from ...files.whole_files import write_json
from ...inputs import bundled
from ...inputs.corpora.corpus_reading import listed_clips
from ...runs.executors.local_workers import LocalWorkers
from ...runs.results.run_folder import RunFolder
from ...runs.score_clips import score_clips
from ...runs.speech_ablations import speech_ablation
from .study_defaults import MEASURES, SEEDS, TWIN_CLIPS

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ...runs.scored_run import Run

_DEMO_EXPLAINED = 2  # clips of the package
TITLE = "French homophony"
SYNTHETIC = (
    "SYNTHETIC: espeak-ng speaks, and the models are tiny and trained on nothing else. The two "
    "members of a pair are "
    "bit-identical except around the cue, so only the cue tells the number. No evidence about real "
    "speech models."
)


def french_study(
    clips: str | PathLike[str] | Sequence[Clip] | None = None,
    *,
    corpus: str | PathLike[str] | None = None,
    models: Sequence[str | PathLike[str]] | None = None,
    out: str | PathLike[str] = "runs/french_homophony",
    language: str = "fr",
    seeds: Sequence[int] = SEEDS,
    twin_clips: int | None = TWIN_CLIPS,
    measures: Sequence[str] = MEASURES,
    stacks: Sequence[str] | None = None,
    mining: Mapping[str, Any] | None = None,
    selection: Mapping[str, Any] | None = None,
    textgrids: str | PathLike[str] | None = None,
    aligner: str | PathLike[str] | None = None,
    allow_outside: bool = False,
    probes: bool = True,
    explain: int | None = None,
    published_ablation: bool = False,
    figures: int = 4,
    workers: int = 1,
    device: str | None = None,
    overwrite: bool = False,
    verbose: bool = False,
) -> Path:
    """Score clips with models and their untrained twins, ablate the cue in each stack, and write
    one page.

    A study that was stopped goes on when it is called again with the same options. It prints how
    far it is, and its tables.

    Parameters
    ----------
    clips : path, hub id or sequence of Clip, optional
        A manifest of clips with cue and target, or the clips. By default they are made of `corpus`,
        and without one they are the synthetic clips of the package.
    corpus : path or hub id, optional
        What `mine_corpus` takes, such as a Common Voice release. Its study folder is
        ``out/corpus``.
    models : sequence of path or hub id, optional
        Each is scored trained and as untrained twins. By default the two tiny models of the
        package.
    out : path
        Folder of the run.
    language : str
        Of clips that do not say it.
    seeds : sequence of int
        Of the untrained twins; a claim takes 39.
    twin_clips : int, optional
        Clips on which twins after the first are scored, evenly chosen; all by default of None.
    measures, stacks : sequence of str
        As `mix` takes them.
    mining, selection : mapping, optional
        Keyword arguments of `mine_corpus` (templates, split, sample, ...) and of `select_examples`
        (balance, most, ...).
    textgrids : path, optional
        Folder of word times for the clips of a corpus.
    aligner : path or hub id, optional
        CTC or Whisper model that aligns clips without word times; by default they are aligned by
        synthesis.
    allow_outside : bool
        Whether a manifest may name files outside its folder.
    probes : bool
        Whether number is probed in the states.
    explain : int, optional
        How many clips of each model are explained; by default none, of the package's clips two.
    published_ablation : bool
        Whether the cue is also removed from the sound and from the decoder's tokens.
    figures : int
        Clips of which maps are drawn, for each trained model.
    workers : int
        Processes.
    device : str, optional
        "cpu", "cuda", ...
    overwrite : bool
        Whether to begin again in a folder that holds another run.
    verbose : bool
        Whether to print a line for each clip.

    Returns
    -------
    Path
        Of the page.

    Raises
    ------
    InputError
        If both clips and a corpus are given, or a file cannot be read.
    SpeechmixError
        If no clip could be scored; the run's ``skipped.csv`` says why, one by one.

    Examples
    --------
    >>> page = speechmix.french_study("clips.tsv", models=["openai/whisper-small"], out="runs/small")    # doctest: +SKIP
    """
    from ...reporting.pages.wording import format_twins
    from .corpus_examples import corpus_examples

    if clips is not None and corpus is not None:
        raise InputError(
            "expected clips or a corpus that they are made of, found both: leave one out"
        )
    print(format_twins(len(seeds)))
    sources = models or list(bundled.models().values())
    load_on_device = partial(load, device=device)
    trained = [partial(load_on_device, source) for source in sources]
    twins = [
        partial(load_on_device, source, init="random", seed=seed)
        for source in sources
        for seed in seeds
    ]
    load_aligner = partial(load_on_device, aligner) if aligner else None
    loaded_aligner = load_aligner() if load_aligner else None
    skipped: list[tuple[str, str]] = []
    if corpus is not None:
        mining = {"language": language, "allow_outside": allow_outside, **(mining or {})}
        study_clips = corpus_examples(
            corpus,
            Path(out) / "corpus",
            trained,
            loaded_aligner,
            skipped,
            mining=mining,
            selection=selection or {},
            textgrids=textgrids,
            overwrite=overwrite,
        )
    elif clips is None:
        study_clips, explain = bundled.clips(), _DEMO_EXPLAINED if explain is None else explain
    else:
        listed = (
            _listed(clips, allow_outside, skipped) if isinstance(clips, (str, PathLike)) else clips
        )
        study_clips = [
            clip if clip.language else clip.replace(language=language) for clip in listed
        ]
    if twin_clips and len(seeds) > 1 and len(study_clips) > twin_clips:
        print(
            f"To save time, twins after the first are scored on {twin_clips} of the "
            f"{len(study_clips)} clips."
        )
    options: dict[str, Any] = {
        "measures": measures,
        "stacks": stacks,
        "figures": figures,
        "ablation": True,
        "overwrite": overwrite,
        "progress": sys.stderr.isatty(),
        "report": print if verbose else lambda line: None,
        "skipped": skipped,
        "twin_clips": twin_clips or None,
        "probes": probes,
        "explain": explain or 0,
    }
    loaders = [*trained, *twins]
    executor = LocalWorkers(workers, device) if workers > 1 else None
    run = score_clips(
        loaders, study_clips, Path(out), aligner=load_aligner, executor=executor, **options
    )
    if published_ablation:
        try:
            speech_ablation(
                loaders,
                study_clips,
                Path(out),
                aligner=load_aligner,
                twin_clips=twin_clips or None,
                executor=executor,
            )
        except InputError as error:
            print(f"no ablation as published: {error}")
    return _report(run, corpus if clips is None else clips, seeds, is_mined=corpus is not None)


def _listed(
    manifest: str | PathLike[str], allow_outside: bool, skipped: list[tuple[str, str]]
) -> list[Clip]:
    """Clips of the manifest or set; rows that cannot be used are recorded."""
    return listed_clips(
        manifest,
        allow_outside=allow_outside,
        on_error=lambda row, name, error: skipped.append((name or f"row {row}", str(error))),
    )


def _study_notes(clips: str, seeds: Sequence[int]) -> list[str]:
    """What the page says first: which clips, by what name, and which untrained twins.

    Examples
    --------
    >>> _study_notes("fr", [0, 1])
    ['Clips: fr. Untrained twins: seeds 0 to 1.']
    """
    is_range = len(seeds) > 1 and list(seeds) == list(range(min(seeds), max(seeds) + 1))
    named = f"{min(seeds)} to {max(seeds)}" if is_range else ", ".join(map(str, seeds)) or "none"
    return [f"Clips: {clips}. Untrained twins: seeds {named}."]


def describe_page(
    run: str | PathLike[str], examples: str | PathLike[str], seeds: Sequence[int]
) -> None:
    """Let the page of a run of a study's examples begin as that of `french_study`, unless it has a
    title or notes of its own.

    Parameters
    ----------
    run, examples : path
        Folder of the run; data set that `select_examples` wrote.
    seeds : sequence of int
        Of the random twins.
    """
    from .dataset import dataset_info
    from .stage_counts import selection_facts

    path = RunFolder(Path(run)).page_description
    mined = dataset_info(examples).get("stages", {}).get("pairs", {})
    clips = Path(mined.get("source", examples)).name
    if path.exists():
        former = read_json_object(path)
        (of_no_twins,) = _study_notes(clips, [])
        is_ours = [
            str(note).startswith(of_no_twins.removesuffix("none."))
            for note in former.get("notes") or ()
        ]
        if former.get("title") != TITLE or is_ours != [True]:
            return
    chosen = {"selection": facts} if (facts := selection_facts(Path(examples))) else {}
    write_json(path, {"title": TITLE, "notes": _study_notes(clips, seeds), **chosen})


def _report(
    run: Run,
    source: str | PathLike[str] | Sequence[Clip] | None,
    seeds: Sequence[int],
    *,
    is_mined: bool,
) -> Path:
    """Print the run's tables and write its page."""
    from ...reporting.pages.study_page import write_study
    from ...reporting.pages.study_results import Study
    from ...reporting.pages.table_format import format_study_table
    from ...reporting.pages.transcription import transcription_notes
    from .stage_counts import selection_facts
    from .study_folder import EXAMPLES

    print(run.summary())
    if not run.done:
        raise SpeechmixError(f"no clip was scored; {run.out / 'skipped.csv'} says why, one by one")
    clips = "synthetic clips of the package" if source is None else "given in Python"
    if isinstance(source, (str, PathLike)):
        clips = Path(source).name
    notes = _study_notes(clips, seeds)
    notes = [SYNTHETIC, *notes] if source is None else notes
    chosen = selection_facts(run.out / "corpus" / EXAMPLES) if is_mined else {}
    write_json(
        RunFolder(run.out).page_description, {"title": TITLE, "notes": notes, "selection": chosen}
    )
    study = Study.of(run)
    for note in transcription_notes(study.run):
        print(note)
    if study.table.empty:
        print("no clip has both cue and target, so there is no cue contribution to report")
    else:
        print(
            "\ncue contribution in %, over whole stacks, at the deciding position where it is "
            "known:"
        )
        print(format_study_table(study.headline).to_string(index=False))
        if not study.ablation.empty:
            print("\nablation: target spelled right in % of the clips (chance is 50)")
            print(format_study_table(study.ablation).to_string(index=False))
    page = write_study(study, title=TITLE, notes=notes)
    print(f"\npage: {page}")
    return page
