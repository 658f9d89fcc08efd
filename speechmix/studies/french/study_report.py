"""The page of a study, and what the terminal says of it."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import SpeechmixError
from ...files.json_files import read_json_object
from ...files.whole_files import write_json
from ...inputs.corpora.corpus_reading import read_clips_or_corpus
from ...runs.results.run_folder import RunFolder

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ...runs.scored_run import Run

TITLE = "French homophony"
SYNTHETIC_NOTE = (
    "SYNTHETIC: all clips are spoken by the synthesizer espeak-ng. The models are tiny. They were "
    "trained on such synthetic speech only. Many French words sound the same in the singular and the "
    "plural (lettre, lettres). Each pair has one singular and one plural clip. Their sound is "
    "bit-identical except around one word, the cue (such as ma and mes). So only the cue tells singular "
    "from plural. The results are no evidence about models of real speech."
)


def read_study_clips(
    manifest: str | PathLike[str], allow_outside: bool, skipped: list[tuple[str, str]]
) -> list[Clip]:
    """Clips of the manifest or set; rows that cannot be used are recorded."""
    return read_clips_or_corpus(
        manifest,
        allow_outside=allow_outside,
        on_error=lambda row, name, error: skipped.append((name or f"row {row}", str(error))),
    )


def _study_notes(clips: str, seeds: Sequence[int]) -> list[str]:
    """What the page says first: which clips, by what name, and which untrained twins.

    Examples
    --------
    >>> _study_notes("fr", [0, 1])
    ['Clips: fr. Each trained model is compared with untrained twins (the same architecture with random weights): 2 (random
    seeds 0 to 1).']
    """
    is_range = len(seeds) > 1 and list(seeds) == list(range(min(seeds), max(seeds) + 1))
    seed_text = f"{min(seeds)} to {max(seeds)}" if is_range else ", ".join(map(str, seeds))
    word = "seed" if len(seeds) == 1 else "seeds"
    twins = (
        "Each trained model is compared with untrained twins (the same architecture with random "
        f"weights): {len(seeds)} (random {word} {seed_text})."
    )
    return [f"Clips: {clips}. {twins if seeds else 'There are no untrained twins.'}"]


def write_page_description(
    run: str | PathLike[str], examples: str | PathLike[str], seeds: Sequence[int]
) -> None:
    """Let the page of a run of a study's examples begin as that of `french_study`.

    A title or notes that the page has already are not replaced. `examples` is a data set that
    `select_examples` wrote; the seeds are those of the random twins.
    """
    from .dataset import read_dataset_metadata
    from .stage_counts import read_selection_metadata

    path = RunFolder(Path(run)).page_description_path
    pairs_options = read_dataset_metadata(examples).get("stages", {}).get("pairs", {})
    clips = Path(pairs_options.get("source", examples)).name
    if path.exists():
        stored_description = read_json_object(path)
        note_is_generated = [
            str(note).startswith(f"Clips: {clips}. ")
            for note in stored_description.get("notes") or ()
        ]
        if stored_description.get("title") != TITLE or note_is_generated != [True]:
            return
    selection = (
        {"selection": metadata} if (metadata := read_selection_metadata(Path(examples))) else {}
    )
    write_json(path, {"title": TITLE, "notes": _study_notes(clips, seeds), **selection})


def print_report(
    run: Run,
    source: str | PathLike[str] | Sequence[Clip] | None,
    seeds: Sequence[int],
    *,
    is_mined: bool,
) -> Path:
    """Print the run's tables and write its page."""
    from ...reporting.pages.result_sentences import adjacent_cue_sentence
    from ...reporting.pages.run_page import write_page
    from ...reporting.pages.study_results import Study
    from ...reporting.pages.table_format import format_contribution_table
    from ...reporting.pages.transcription import transcription_notes
    from .stage_counts import read_selection_metadata
    from .study_folder import EXAMPLES

    print(run.summary())
    if not run.done:
        raise SpeechmixError(f"no clip was scored; {run.out / 'skipped.csv'} says why, one by one")
    clips = (
        "synthetic clips that come with speechmix, the program that wrote this page"
        if source is None
        else "given in Python"
    )
    if isinstance(source, (str, PathLike)):
        clips = Path(source).name
    notes = _study_notes(clips, seeds)
    notes = [SYNTHETIC_NOTE, *notes] if source is None else notes
    selection = read_selection_metadata(run.out / "corpus" / EXAMPLES) if is_mined else {}
    write_json(
        RunFolder(run.out).page_description_path,
        {"title": TITLE, "notes": notes, "selection": selection},
    )
    study = Study.open(run)
    for note in transcription_notes(study.run):
        print(note)
    if study.table.empty:
        print("no clip has both cue and target, so there is no cue contribution to report")
    else:
        print(
            "\ncue contribution in %, over whole stacks, at the deciding position where it is "
            "known:"
        )
        print(format_contribution_table(study.headline).to_string(index=False))
        print(f"groups: {study.grouping}")
        if adjacent_cues := adjacent_cue_sentence(study.clips):
            print(adjacent_cues)
        if not study.ablation.empty:
            print("\nablation: target spelled right in % of the clips (chance is 50)")
            print(format_contribution_table(study.ablation).to_string(index=False))
    page = write_page(study, title=TITLE, notes=notes)
    print(f"\npage: {page}")
    return page
