"""Tidy tables of a run: what their rows are, and a writer that grows them clip by clip.

The same rows go to Parquet and to CSV, and are never all in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ...alignment.alignment_result import without_calibration_note
from ...evaluation.cue_contribution import (
    ROW_NAMES,
    cue_columns,
    cue_contribution,
    length_matched_share,
    target_strength,
)
from ...evaluation.statistics.random_twin_comparison import BASELINES
from ...files.json_files import Json, JsonObject
from ...files.text_files import quote_formulas
from ...files.whole_files import remove_recorded, replace_recorded, unfinished_name
from ...inputs.clips.clip import Clip
from ...inputs.words.cue_and_target import cue_text, cue_words, words_between
from ...inputs.words.transcript_accuracy import describe_accuracy
from ...inputs.words.unit_tiers import requested_unit, role_units
from ...mixing.maps.mixing_map import MixingMap

if TYPE_CHECKING:
    from ...adapters.model import Model

MAX_CSV_ROWS = 1_000_000
_ROWS_PER_WRITE = 100_000


def add_identity(table: pd.DataFrame, clip: Clip, model: Model) -> pd.DataFrame:
    """Put columns that say of which clip and model the rows are before the others."""
    names: JsonObject = {"clip": clip.name, "fingerprint": clip.fingerprint}
    names |= {"model": model.name, "init": model.init, "seed": model.seed}
    for position, (column, value) in enumerate(names.items()):
        table.insert(position, column, value)
    return table.astype({"seed": "Int64"})


class TableWriter:
    """Context manager that appends data frames to ``PATH.parquet`` and ``PATH.csv``.

    The files take the place of older ones when the block is left without an error; an empty table
    leaves no file. Rows are written some hundred thousand at a time. Numbers have seven digits in
    the CSV, and all in Parquet. A table of more than `MAX_CSV_ROWS` has no CSV, which nobody could
    open.
    """

    def __init__(self, path_without_suffix: Path):
        self._final = {
            ending: path_without_suffix.with_name(f"{path_without_suffix.name}.{ending}")
            for ending in ("parquet", "csv")
        }
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pd.DataFrame] = []
        self._rows = self._rows_waiting = 0
        self.keep_former = False  # set it, and the block leaves the files of before as they are

    def __enter__(self) -> TableWriter:
        self._unfinished = {ending: unfinished_name(path) for ending, path in self._final.items()}
        return self

    @property
    def has_rows(self) -> bool:
        """Whether anything was appended."""
        return self._writer is not None or bool(self._waiting)

    def append(self, table: pd.DataFrame) -> None:
        """Add rows; all tables must have the same columns."""
        if table.empty:
            return
        self._waiting.append(table)
        self._rows_waiting += len(table)
        if self._rows_waiting >= _ROWS_PER_WRITE:
            self._write()

    def _write(self) -> None:
        """One row group, and the same rows as CSV."""
        if not self._waiting:
            return
        if self._writer is None:
            self._schema = pa.Schema.from_pandas(self._waiting[0], preserve_index=False)
            self._writer = pq.ParquetWriter(
                self._unfinished["parquet"], self._schema, write_page_checksum=True
            )
        rows = pa.concat_tables(
            pa.Table.from_pandas(table, schema=self._schema, preserve_index=False)
            for table in self._waiting
        )
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        first, self._rows = self._rows == 0, self._rows + rows.num_rows
        if self._rows <= MAX_CSV_ROWS:
            table = quote_formulas(pd.concat(self._waiting, ignore_index=True))
            table.to_csv(
                self._unfinished["csv"],
                mode="a",
                header=first,
                index=False,
                encoding="utf-8",
                float_format="%.7g",
            )
        else:
            self._unfinished["csv"].unlink(missing_ok=True)
        self._waiting, self._rows_waiting = [], 0

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._write()
            if self._writer is not None:
                self._writer.close()
            if kind is None and not self.keep_former:
                for ending, path in self._final.items():
                    if self._unfinished[ending].is_file():
                        replace_recorded(self._unfinished[ending], path)
                    else:
                        remove_recorded(path)
        finally:
            for path in self._unfinished.values():
                with suppress(OSError):
                    path.unlink(missing_ok=True)


_SHARE_COLUMNS = ["cue", "target", "stack", "measure", "rows", "layer", "depth", "contribution"]
AFTER_TARGET = "after_target"  # column with the share of the word after the target, a control
STRENGTH = "mixing_strength"  # column: how far the block moves the rows that the contribution is of
_SHARE_COLUMNS += [*BASELINES, AFTER_TARGET, STRENGTH]


def contribution_table(
    maps: Mapping[tuple[str, str], MixingMap], clip: Clip, model: Model
) -> pd.DataFrame:
    """Cue contribution of one clip, with columns that say of which clip and model; see
    `list_share_rows`."""
    return add_identity(
        pd.DataFrame(list_share_rows(maps, clip, model), columns=_SHARE_COLUMNS), clip, model
    )


def list_share_rows(
    maps: Mapping[tuple[str, str], MixingMap], clip: Clip, model: Model
) -> list[JsonObject]:
    """Cue contribution per stack, measure and layer; nothing without cue and target.

    `rows` says of which rows of the map: all of the "target"'s, or the "deciding" one (decoder,
    with a foil). `depth` is 0 in the first layer of the stack and 1 in the last. `share_of_length`
    is what the cue would get if every frame (token) of the sources counted the same,
    `length_matched` what words of its length get by this measure
    (`speechmix.evaluation.cue_contribution`). `after_target` is what the word after the target gives
    it, which tells nothing of it: a control; missing where there is none, or it comes too late to
    be seen (decoder). `mixing_strength` is how far the layer's attention block moves the same rows
    (`MixingMap.mixing_strength`, their mean).
    """
    rows: list[JsonObject] = []
    cue, target = clip.cue_request, clip.target_request
    if cue is not None and target is not None:
        for (measure, stack), mixing_map in maps.items():
            row_kinds = _target_rows(mixing_map, clip)
            if not row_kinds:
                continue
            units_map = mixing_map.without("silence", "padding")
            lengths = [len(source) for source in units_map.sources]
            columns = cue_columns(units_map, cue, mixing_map)
            length = sum(lengths[column] for column in columns) / sum(lengths)
            cells = {
                "cue": role_text(clip, "cue"),
                "target": role_text(clip, "target"),
                "stack": stack,
                "measure": measure,
                "share_of_length": length,
            }
            cells["length_matched"] = length_matched_share(mixing_map, cue=cue)
            deepest = max(len(model.stacks[stack]) - 1, 1)
            for which in row_kinds:
                shares = cue_contribution(mixing_map, cue=cue, target=target, rows=which)
                strengths = target_strength(mixing_map, target=target, rows=which)
                controls = _share_to_word_after_target(mixing_map, clip, which)
                rows += [
                    {
                        **cells,
                        "rows": which,
                        "layer": layer,
                        "depth": layer / deepest,
                        "contribution": share,
                    }
                    | {**control, STRENGTH: strength}
                    for layer, share, control, strength in zip(
                        mixing_map.layers,
                        shares.tolist(),
                        controls,
                        strengths.tolist(),
                        strict=True,
                    )
                ]
    return rows


def _share_to_word_after_target(
    mixing_map: MixingMap, clip: Clip, rows: str
) -> list[dict[str, float]]:
    """For each layer what the first word after the target that is not the cue gives; missing where
    it gives nothing to see."""
    words, target = clip.words or (), clip.target or 0
    next_word = next(
        (word for word in range(target + 1, len(words)) if word not in clip.cue_words), None
    )
    source_words = {source.word for source in mixing_map.sources}
    if (
        next_word is None
        or clip.unit_roles
        or mixing_map.stack == "decoder"
        or next_word not in source_words
    ):
        return [{AFTER_TARGET: float("nan")} for _ in mixing_map.layers]
    shares = cue_contribution(mixing_map, cue=next_word, target=target, rows=rows)
    return [{AFTER_TARGET: share} for share in shares.tolist()]


def role_text(clip: Clip, name: str) -> str:
    """The "cue" or "target" of a clip as it is said; empty without one."""
    if name in clip.unit_roles:
        return clip.unit_roles[name].text
    return cue_text(clip.words or (), clip.cue if name == "cue" else clip.target)


def _target_rows(mixing_map: MixingMap, clip: Clip) -> list[str]:
    """Return the target rows whose cue contribution can be computed: in a decoder, a target the cue
    comes after has no cue column to look at.

    None of a decoder that was fed another text than the clip's: its own transcript, or a
    translation.
    """
    if mixing_map.stack != "encoder" and "decoder_text_by" in mixing_map.provenance:
        return []
    words_by_role = {"cue": clip.cue_words, "target": cue_words(clip.target)}
    for name, role in clip.unit_roles.items():
        if not role_units(mixing_map.sources if name == "cue" else mixing_map.targets, role):
            return []
        words_by_role[name] = tuple(word for word in role.words if word is not None)
    cue, target = words_by_role["cue"], words_by_role["target"]
    if mixing_map.stack == "decoder" and (
        min(cue) > target[0] or (clip.unit_roles and target[0] in cue)
    ):
        return []
    deciding = mixing_map.stack != "encoder" and "deciding_position" in mixing_map.provenance
    return ["target", "deciding"] if deciding else ["target"]


_CLIP_COLUMNS = (
    "clip",
    "seconds",
    "text",
    "cue",
    "target",
    "foil",
    "words_between",
    "alignment",
    "doubts",
    "language",
)
_SOURCE_COLUMNS = ("audio_file", "fingerprint", "sound")
# Columns of the other tables, and those the report puts beside them: merged with the clips they
# must keep their meaning.
_OTHER_TABLE_COLUMNS = """
    model init seed stack measure rows layer depth contribution share_of_length length_matched head source target_label
    source_label target_kind source_kind target_onset target_offset source_onset source_offset score share ablated margin
    right after_target mixing_strength transcript character_error_rate boundaries reason group run unit trained random
    difference
""".split()


def clip_table(clips: Sequence[Clip]) -> pd.DataFrame:
    """One row per clip, with the further columns of its manifest.

    A manifest's column that is called like one of a run's tables (clip, seconds, alignment,
    fingerprint, model, layer, ...) is here `manifest_<name>`, so that it can neither replace it nor
    clash with it when tables are merged.
    """
    return facts_table([clip_facts(clip) for clip in clips])


def clip_facts(clip: Clip) -> dict[str, JsonObject]:
    """What the clip table says of a clip: its own columns, the manifest's, and where it comes
    from."""
    clip_columns = {
        "clip": clip.name,
        "seconds": round(clip.duration, 3),
        "text": clip.text,
        "cue": role_text(clip, "cue"),
        "target": role_text(clip, "target"),
    }
    clip_columns |= {
        "foil": clip.foil,
        "words_between": words_between(clip.cue, clip.target),
        "alignment": clip.alignment,
        "doubts": " ".join(clip.doubts),
        "language": clip.language,
    }
    source = {"audio_file": str(clip.path.resolve()) if clip.path else ""}
    source |= {
        "fingerprint": getattr(clip, "fingerprint", ""),
        "sound": getattr(clip, "audio_hash", ""),
    }
    return {"own": clip_columns, "meta": dict(clip.meta), "source": source}


def facts_table(facts: Sequence[Mapping[str, Mapping[str, Json]]]) -> pd.DataFrame:
    """The clip table of what `clip_facts` says of each clip."""
    names = manifest_columns([column for of_clip in facts for column in of_clip["meta"]])
    rows = [
        {
            **row["own"],
            **{names[column]: cell for column, cell in row["meta"].items()},
            **row["source"],
        }
        for row in facts
    ]
    return pd.DataFrame(rows, columns=[*_CLIP_COLUMNS, *names.values(), *_SOURCE_COLUMNS])


def manifest_columns(columns: Sequence[str]) -> dict[str, str]:
    """What each further column of a manifest is called in the clip table.

    Examples
    --------
    >>> manifest_columns(["speaker", "seconds", "manifest_seconds"])
    {'speaker': 'speaker', 'seconds': 'manifest_seconds-2', 'manifest_seconds': 'manifest_seconds'}
    """
    reserved = {*_CLIP_COLUMNS, *_SOURCE_COLUMNS, *_OTHER_TABLE_COLUMNS}
    names = {column: column for column in dict.fromkeys(columns)}
    taken = reserved | {column for column in names if column not in reserved}
    for column in names:
        if column in reserved:
            names[column] = renamed = f"manifest_{column}"
            number = 1
            while names[column] in taken:
                number += 1
                names[column] = f"{renamed}-{number}"
            taken.add(names[column])
    return names


def result_line(
    clip: Clip, model: Model, shares: Sequence[Mapping[str, Json]], transcript: str | None = None
) -> str:
    """Describe a clip in one line.

    It has length, words, why their times are doubtful, the transcript (if given, compared with the
    clip's text), and where the cue contributes most. `shares` come from `list_share_rows`, of one
    or more measures.
    """
    count = len(clip.words or ())
    words = f"{count} word{'s' * (count != 1)}"
    phrases = [clip.name, model.writer, f"{clip.duration:.2f} s, {words}"]
    if doubts := without_calibration_note(" ".join(clip.doubts)):
        phrases.append(f"word times may be wrong: {doubts}")
    if transcript is not None:
        phrases.append(describe_accuracy(transcript, clip.text, clip.language))
    if shares and clip.cue_request is not None and clip.target_request is not None:
        cue, target = role_text(clip, "cue"), role_text(clip, "target")
        measure = shares[0]["measure"]
        decided = {
            row["stack"] for row in shares if row["rows"] == "deciding"
        }  # what figures and the page tell of
        peaks: dict[str, Mapping[str, Json]] = {}
        for row in shares:
            if (
                row["rows"] == ("deciding" if row["stack"] in decided else "target")
                and row["measure"] == measure
            ):
                highest = peaks.setdefault(row["stack"], row)
                if row["contribution"] > highest["contribution"]:
                    peaks[row["stack"]] = row
        peak_text = ", ".join(
            f"{p['stack']} {100 * p['contribution']:.1f} % ({ROW_NAMES[p['rows']]}, layer "
            f"{p['layer']})"
            for p in peaks.values()
        )
        adjacent = " (adjacent cue)" if words_between(clip.cue, clip.target) == 0 else ""
        phrases.append(f"{cue} -> {target}{adjacent}: {measure} peaks at {peak_text}")
    elif unit := requested_unit([clip.annotations["cue"], clip.annotations["target"]]):
        phrases.append(f"no share of the cue: no map has these {unit}s, score with units {unit!r}")
    return "  ".join(phrases)
