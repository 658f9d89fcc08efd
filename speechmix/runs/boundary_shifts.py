"""Score some clips of a run again with their word boundaries moved by 20 ms; see
`evaluation.boundary_sensitivity`.

In: a finished run and its models. Out: ``boundaries.parquet`` and ``.csv`` in the run's folder, cue
contributions with a column `boundaries`; the run's page then says whether the conclusion holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from os import PathLike

from ..adapters import Model
from ..errors import InputError, SpeechmixError
from ..evaluation.boundary_sensitivity import SHIFT_SECONDS, VARIANTS, move_word_boundaries
from ..evaluation.statistics.groups import choose_evenly
from ..inputs.clips.clip import Clip
from ..mixing.passes.mix import mix_one
from ..mixing.passes.request import MixRequest
from .results.open_run import StoredRun, open_run
from .results.run_folder import BOUNDARIES
from .results.stored_maps import read_clip_maps, read_stored_clip
from .results.tidy_tables import TableWriter, contribution_table
from .scored_run import Run

_OPTIONS = ("measures", "stacks", "layers", "heads", "pooling", "rounding")


def score_moved_words(
    run: Run | StoredRun,
    models: Iterable[Model | Callable[[], Model]],
    *,
    clips: Sequence[Clip] = (),
    most: int = 20,
    shift: float = SHIFT_SECONDS,
    audio: str | PathLike[str] | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> int:
    """Score clips of a run with every variant of their boundaries, the target's rows alone.

    The models are those of the run, trained and random. At most `most` clips are taken, evenly over
    the run's; edges move by `shift` seconds. Clips that are not given are read from where the run
    found them, or from `audio`. `report` gets a line for each clip that is left out. The result is
    how many clips were scored by all models. InputError if no clip of the run has cue, target and
    audio.
    """
    stored = open_run(run)
    scored = _rescore(stored, clips, most, audio, report)
    options = MixRequest.read_stored(stored.description["options"], _OPTIONS)
    failed: set[str] = set()
    with TableWriter(stored.folder.path / BOUNDARIES) as table:
        for model in models:
            model = model if isinstance(model, Model) else model()
            for clip in scored:
                try:
                    for variant in VARIANTS:
                        moved = move_word_boundaries(clip, variant, shift=shift)
                        shares = contribution_table(
                            mix_one(model, moved, targets="target", **options), moved, model
                        )
                        table.append(shares.assign(boundaries=variant))
                except SpeechmixError as error:
                    failed.add(clip.name)
                    report(f"{clip.name}  {model.label}  SKIPPED: {error}")
    return len(scored) - len(failed)


def _rescore(
    run: StoredRun,
    clips: Sequence[Clip],
    most: int,
    audio: str | PathLike[str] | None,
    report: Callable[[str], None],
) -> list[Clip]:
    """Clips with cue and target, evenly over the run's; both members of a pair where there are
    pairs."""
    table, at_hand = run.contributions, {clip.name: clip for clip in clips}
    names = list(dict.fromkeys(table["clip"].astype(str))) if len(table) else []
    if "pair" in run.clips:
        pairs = (
            run.clips[run.clips["clip"].isin(names)].groupby("pair", sort=False)["clip"].agg(list)
        )
        names = [name for pair in choose_evenly(list(pairs), max(most // 2, 1)) for name in pair]
    else:
        names = choose_evenly(names, most)
    candidates = []
    for name in names:
        try:
            candidates.append(
                at_hand.get(name)
                or read_stored_clip(run, name, read_clip_maps(run, name), audio=audio)
            )
        except SpeechmixError as error:  # another recording by now, in which the words cannot be
            report(f"{name}  SKIPPED: {error}")
    usable = [
        clip
        for clip in candidates
        if clip is not None and clip.words and None not in (clip.cue, clip.target)
    ]
    if not usable:
        raise InputError(
            f"no clip of {run.out} has a cue, a target and audio that is still there: name its "
            "folder (audio=), or give clips="
        )
    return usable
