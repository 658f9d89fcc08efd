"""The page of a study: trained models against their random twins, cue contribution beside ablation, clips to listen to.

In: a finished `Run`, or its folder. Out: in the run's folder one HTML page, the figures as PNG and PDF, the headline as
Markdown and LaTeX, and the statistics layer by layer as CSV.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from ..errors import InputError
from ..evaluation.spelling import TRANSCRIBES
from ..experiments.checked_tables import described_run
from ..experiments.reading import STOPPED, open_run
from ..files.text_files import write_csv
from ..files.whole_files import write_json, write_text
from ..inputs.clips import Clip
from ..versions import versions
from .page import Part, page
from .study_clips import clip_cards, clip_table
from .study_figures import figures, pictures_of
from .study_parts import agreement_part, boundaries_part, length_part, models_part
from .study_tables import ablation_table, grouped_clips, headline, layer_statistics, shown, shown_layers, study_table
from .text_tables import latex, markdown
from .wording import LENGTH, READING, method, sentences

if TYPE_CHECKING:
    from ..experiments.run import Run

__all__ = [
    "ablation_table", "figures", "headline", "report", "shown", "study_table", "transcription_notes", "write_study",
]  # fmt: skip

_LAYERS = {
    "best layer": "At the best layer, chosen on one half of the groups and read on the other, and the other way round; so "
    "nothing was chosen on the data it is reported on, and p needs no correction over layers.",
    "all layers": "Mean over all layers of the stack.",
}
_ABLATION = (
    "Share of clips (%) in which the target's own spelling is likelier than its other spelling, with the cue's value vectors "
    "zeroed in all layers of one stack. 50 % is chance. A stack that carries the cue should show a high contribution above and "
    "fall to chance here."
)
_DEFAULT = (
    "The same by number. A model that no longer hears the cue and falls back on one number is right there and wrong in the "
    "other: 50 % together. It may then take much from the cue in that other number alone; see the figures by number."
)
_CONTROL = "Nouns that are spelled alike in both numbers: the cue decides nothing about them."
_EVERY_LAYER = (
    "Layers in which trained and random differ: permutation test in every layer, corrected over the layers of the stack by "
    "Benjamini and Hochberg (false discovery rate q < 0.05: of the layers named here about one in twenty is "
    "expected to be named by chance). All numbers are in layers.csv."
)


def report(folder: str | PathLike, **options) -> Path:
    """Write the page of a run again, from its folder; options as for `write_study`.

    Raises
    ------
    InputError
        If the folder holds no run, or a damaged one.
    """
    run = open_run(folder)
    known = described_run(run)
    options.setdefault("title", known.get("title") or run.out.resolve().name)
    options.setdefault("notes", known.get("notes") or [])
    return write_study(run, **options)


def write_study(
    run: Run,
    *,
    title: str,
    notes: list[str],
    asked: Sequence[str] = (),
    audio: str | PathLike | None = None,
    clips: Sequence[Clip] = (),
    published: bool = False,
    group: str | None = None,
    out: str | PathLike | None = None,
) -> Path:
    """Write figures, tables and the page of a run; returns the page's path.

    Parameters
    ----------
    run : Run
    title : str
    notes : list of str
        What a reader must know first; paragraphs.
    asked : sequence of str
        Clips to show besides those with most, median and least contribution.
    audio : path, optional
        Folder with the audio files, if they are no longer where the run found them.
    clips : sequence of Clip
        The run's clips, if they are at hand (clips in memory have no audio file).
    published : bool
        Draw the published figures beside the run's own.
    group : str, optional
        Column of the clip table that says which clips belong together; by default pair, sentence and target word.
    out : path, optional
        Where the page goes; ``index.html`` in the run's folder by default.

    Raises
    ------
    InputError
        If a clip that was asked for is not in the run, or the page cannot be written.
    """
    path = Path(out) if out else run.out / "index.html"
    if path.is_dir():
        raise InputError(f"{path} is a folder: expected the name of a file for the page, such as {path / 'index.html'}")
    try:
        parts = _parts(run, notes, asked, audio, clips, published, group)
        write_json(run.out / "report.json", {"title": title, "notes": notes})
        write_text(path, page(title, parts))
    except OSError as error:
        raise InputError(f"cannot write the page {path} and the tables in {run.out} ({error})") from error
    return path


def _parts(
    run: Run,
    notes: list[str],
    asked: Sequence[str],
    audio: str | PathLike | None,
    clips: Sequence[Clip],
    published: bool,
    group: str | None,
) -> list[Part]:
    """All parts of the page; their figures and tables are written on the way."""
    if described_run(run).get("state") == "running":
        notes = [STOPPED, *notes]
    table = study_table(run, group=group)
    known = headline(table) if len(table) else pd.DataFrame()
    parts: list[Part] = [("What was run", [*notes, _counts(run), *models_part(run), _versions(run)])]
    transcription = transcription_notes(run)
    if transcription:
        parts.append(("Do the models transcribe the clips?", transcription))
    layers = layer_statistics(table) if len(known) else None
    parts += _results(run, table, known, layers, group)
    parts += pictures_of(run, table, layers=layers, published=published)
    parts += length_part(run) + agreement_part(table) + boundaries_part(run, table)
    judged = ablation_table(run)
    if not judged.empty:
        by_number = ablation_table(run, by="number")
        parts.append(
            ("Ablation", [_ABLATION, shown(judged), *([_DEFAULT, shown(by_number)] if len(by_number) else [])])
        )
    if len(table) and len(control := table[table.control == "yes"]):
        invariant = headline(control.assign(control="no"))
        parts.append(("Control: invariant nouns", [_CONTROL + _few(invariant), shown(invariant)]))
    unreadable: list[str] = []
    cards = clip_cards(run, table, known, asked=asked, audio=audio, clips=clips, unreadable=unreadable)
    parts.append(("All clips", clip_table(run, table, known, cards)))
    parts.append(("Clips to listen to", [(_CHOSEN if len(known) else "") + _LISTENING, *cards]))
    left_out = [pd.DataFrame(run.skipped)] if run.skipped else []
    left_out += [f"{len(unreadable)} maps of the clips above cannot be read:", *unreadable[:20]] if unreadable else []
    parts.append(("Left out", left_out or ["Nothing was left out."]))
    return parts


_CHOSEN = (
    "Clips with the highest, the median and the lowest difference between trained and random by Value Zeroing, and those asked "
    "for. "
)
_LISTENING = (
    "Play a clip and its position moves over the map; click a word to hear it and to see what gives to it. Columns give, rows "
    "receive; silence and padding are left out."
)


def _results(run: Run, table: pd.DataFrame, known: pd.DataFrame, layers, group: str | None) -> list[Part]:
    """Headline in words and in tables, and layer by layer; nothing without a cue."""
    if table.empty:
        said = "No clip has both a cue and a target, so there is no cue contribution; maps and clips are below."
        return [("Cue contribution", [said])]
    if known.empty:
        return [
            (
                "Cue contribution",
                ["No contribution is a finite number: the scores of this run hold no value to report."],
            )
        ]
    ties = grouped_clips(run, group=group).attrs["ties"]
    units = f"groups of clips that share {ties}" if ties else "clips"
    tables = [item for name, text in _LAYERS.items() for item in (text, shown(headline(table, layers=name)))]
    write_csv(layers, run.out / "layers.csv")
    write_text(run.out / "headline.md", markdown(shown(known)) + "\n")
    caption = f"Cue contribution (%) at the best layer (cross-fitted), 95 % bootstrap intervals over {units}."
    write_text(run.out / "headline.tex", latex(shown(known), caption=caption))
    named = shown_layers(layers)
    everywhere_part = [("In which layers", [_EVERY_LAYER, named])] if len(named) else []
    explained = [READING, LENGTH, method(ties)]
    words = [*sentences(known), _many(known)]
    return [("In words", words), ("Cue contribution", [*explained, *tables]), *everywhere_part]


_FEW = " With fewer than six groups no test can reach p < 0.05, and intervals are too narrow: read those rows as anecdotes."


def _few(known: pd.DataFrame) -> str:
    return _FEW if (known.groups < 6).any() else ""


def _many(known: pd.DataFrame) -> str:
    return (
        f"The table below holds {len(known)} comparisons, each with its own interval: of twenty such intervals about one "
        "misses the truth by chance. A high contribution says that the cue's vectors enter the target's; whether the model "
        "then uses them is for ablation to say."
    ) + _few(known)


def transcription_notes(run: Run) -> list[str]:
    """Whether each trained model transcribes the clips at all, and what can be read if it does not."""
    notes = []
    for model, rates in run.transcripts.groupby("model", sort=False) if len(run.transcripts) else ():
        rate = rates.character_error_rate.mean()
        note = f"{model}: character error rate {100 * rate:.0f} % over {len(rates)} clips."
        if rate > TRANSCRIBES:
            note += (
                " It does NOT transcribe these clips. Its maps show how its layers mix these sounds; they say nothing of how "
                "it would decide a spelling, and its ablation row is no evidence."
            )
        notes.append(note)
    return notes


def _versions(run: Run) -> str:
    scored = described_run(run).get("versions")
    return f"Scored with {scored}." if scored == versions() else f"Scored with {scored}; this page by {versions()}."


def _counts(run: Run) -> str:
    clips = run.clips
    doubtful = int((clips.doubts != "").sum()) if "doubts" in clips else 0
    text = f"{len(clips)} clips; {run.done} scored (clip, model) pairs, {len(run.skipped)} left out."
    return text + (f" The word times of {doubtful} clips are doubtful." if doubtful else "")
