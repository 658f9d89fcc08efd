"""Run the French homophone study, from clips to a page.

In: clips, or a corpus that they are mined of. Out: a run folder with maps, tables, figures and
`index.html`. `french_study` is the whole of it, and reads from top to bottom: models and their
random twins; clips of a manifest, of a corpus that is mined for them, or of the package; scores,
with the cue silenced stack by stack (ablation); the page. Every step goes on where it was stopped.

Clips for the French study, made of a corpus: pairs are mined, words aligned, sentences
transcribed, examples selected.

In: a corpus and models. Out: clips with cue and target. Each stage goes on where it was stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from ...adapters.loading.load import load
from ...errors import InputError, SpeechmixError
from ...extension import find_export
from ...files.json_files import Json, JsonObject
from ...inputs import bundled
from ...runs.journal.stage_files import list_started_shards
from ...runs.journal.stage_lines import read_stage_options, summarize_stage_output
from ...runs.progress import ProgressLines
from ...runs.score_clips import score_clips
from .dataset import read_examples
from .selection import select_examples
from .speaker_adaptation import align_study
from .stage_counts import format_stage_counts
from .stages import mine_corpus, transcribe_corpus, transcript_path
from .study_defaults import MEASURES, SEEDS, TWIN_CLIPS
from .study_folder import PAIRS, WORDS
from .study_report import print_report, read_study_clips

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip
    from ...runs.executors.executor import Executor


_BUNDLED_EXPLAINED_CLIPS = 2  # clips of the package


def french_study(
    clips: str | PathLike[str] | Sequence[Clip] | None = None,
    *,
    corpus: str | PathLike[str] | None = None,
    models: Sequence[str | PathLike[str]] | None = None,
    out: str | PathLike[str] = "runs/french_homophony",
    language: str = "fr",
    seeds: Sequence[int] = SEEDS,
    twin_clips: int | None = TWIN_CLIPS,
    group: str | None = None,
    measures: Sequence[str] = MEASURES,
    stacks: Sequence[str] | None = None,
    mining: Mapping[str, Json] | None = None,
    selection: Mapping[str, Json] | None = None,
    textgrids: str | PathLike[str] | None = None,
    aligner: str | PathLike[str] | None = None,
    allow_outside: bool = False,
    probes: bool = True,
    explain: int | None = None,
    published_ablation: bool = False,
    figures: int = 4,
    executor: Executor | None = None,
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
        Of the untrained twins; a conclusion takes 5.
    twin_clips : int, optional
        Clips on which twins after the first are scored, evenly chosen; all by default of None.
    group : str, optional
        A column of the clips that says which belong together; by default speakers, or pair, sentence
        and target word.
    measures, stacks : sequence of str
        As `mix` takes them.
    mining, selection : mapping, optional
        Keyword arguments of `mine_corpus` (templates, split, sample, ...) and of `select_examples`
        (balance, max_examples, ...).
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
    executor : Executor, optional
        Who scores, as in `speechmix.runs.score_clips.score_clips`: by default this process; `LocalWorkers(4)`,
        `RayExecutor(address)`. The stages of a corpus are done here.
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
    from ...reporting.pages.result_sentences import format_twins

    if clips is not None and corpus is not None:
        raise InputError(
            "expected clips or a corpus that they are made of, found both: leave one out"
        )
    print(format_twins(len(seeds)))
    sources = models or list(bundled.models().values())
    load_on_device = partial(load, device=device)
    trained_loaders = [partial(load_on_device, source) for source in sources]
    twin_loaders = [  # the trained model of the same architecture has passed the self-check
        partial(load_on_device, source, init="random", seed=seed, check=False)
        for source in sources
        for seed in seeds
    ]
    load_aligner = partial(load_on_device, aligner) if aligner else None
    loaded_aligner = load_aligner() if load_aligner else None
    skipped: list[tuple[str, str]] = []
    if corpus is not None:
        mining = {"language": language, "allow_outside": allow_outside, **(mining or {})}
        study_clips = make_corpus_examples(
            corpus,
            Path(out) / "corpus",
            trained_loaders,
            loaded_aligner,
            skipped,
            mining=mining,
            selection=selection or {},
            textgrids=textgrids,
            overwrite=overwrite,
        )
    elif clips is None:
        study_clips, explain = (
            bundled.clips(),
            _BUNDLED_EXPLAINED_CLIPS if explain is None else explain,
        )
    else:
        source_clips = (
            read_study_clips(clips, allow_outside, skipped)
            if isinstance(clips, (str, PathLike))
            else clips
        )
        study_clips = [
            clip if clip.language else clip.replace(language=language) for clip in source_clips
        ]
    if twin_clips and len(seeds) > 1 and len(study_clips) > twin_clips:
        print(
            f"To save time, twins after the first are scored on {twin_clips} of the "
            f"{len(study_clips)} clips."
        )
    options: JsonObject = {
        "measures": measures,
        "stacks": stacks,
        "figures": figures,
        "ablation": True,
        "overwrite": overwrite,
        "progress": sys.stderr.isatty() or ProgressLines(),
        "report": print if verbose else lambda line: None,
        "skipped": skipped,
        "twin_clips": twin_clips or None,
        "group": group,
        "probes": probes,
        "explain": explain or 0,
    }
    loaders = [*trained_loaders, *twin_loaders]
    run = score_clips(
        loaders, study_clips, Path(out), aligner=load_aligner, executor=executor, **options
    )
    if published_ablation:
        try:
            find_export("speech_ablation")(
                loaders,
                study_clips,
                Path(out),
                aligner=load_aligner,
                twin_clips=twin_clips or None,
                group=group,
                executor=executor,
            )
        except InputError as error:
            print(f"no ablation as published: {error}")
    return print_report(run, corpus if clips is None else clips, seeds, is_mined=corpus is not None)


def make_corpus_examples(
    corpus: str | PathLike[str],
    folder: Path,
    models: Sequence[Callable[[], Model]],
    aligner: Model | None,
    skipped: list[tuple[str, str]],
    *,
    mining: Mapping[str, Json],
    selection: Mapping[str, Json],
    textgrids: str | PathLike[str] | None,
    overwrite: bool,
) -> list[Clip]:
    """Examples mined from a corpus: pairs, word times, transcripts, selection. What is done already
    is not done again.

    A stage that was begun in shards goes on in them.
    """
    stage_options: JsonObject = {"overwrite": overwrite, "progress": sys.stderr.isatty()}
    for shard in list_started_shards(folder / PAIRS):
        mine_corpus(corpus, folder, shard=shard, **mining, **stage_options)
    print(summarize_stage_output(folder / PAIRS))
    for shard in list_started_shards(folder / WORDS):
        align_study(
            folder, model=aligner, textgrids=textgrids, shard=shard, log=print, **stage_options
        )
    print(summarize_stage_output(folder / WORDS))
    transcript_paths = [
        _transcribe_with(folder, load_model(), stage_options) for load_model in models
    ]
    model_labels = [read_stage_options(path)["model"] for path in sorted(transcript_paths)]
    examples = select_examples(folder, models=model_labels, **selection)
    print(f"\n{format_stage_counts(examples)}\n")
    clips = read_examples(examples, skipped=skipped)
    if not clips:
        raise SpeechmixError(
            f"no pair became an example: {examples / 'dropped.csv'} says why, one by one"
        )
    return clips


def _transcribe_with(folder: Path, model: Model, stage_options: JsonObject) -> Path:
    """What a model writes of the corpus, in one file or in the shards that were begun."""
    output = transcript_path(folder, model)
    for shard in list_started_shards(output):
        transcribe_corpus(folder, [model], shard=shard, **stage_options)
    print(summarize_stage_output(output))
    return output
