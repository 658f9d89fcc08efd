"""Outcome of a run: counts, skipped clips and tables.

In: a run's folder, counts and reasons while it goes on. Out: `Run`, which reads a table at each
access.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from ..files.parquet_files import read_parquet
from ..files.text_files import read_csv
from .results.run_folder import ABLATION, CONTRIBUTIONS, TRANSCRIPTS, RunFolder


@dataclass
class Run:
    """What a run did.

    Attributes
    ----------
    out : Path
    done : int
        (clip, model) pairs scored, resumed ones included.
    skipped : list of dict
        clip, model, reason.
    is_complete : bool
        Whether the tables are written: not while other shards are missing.
    """

    out: Path
    done: int = 0
    skipped: list[dict[str, str]] = field(default_factory=list)
    is_complete: bool = True

    def skip(self, clip: str, reason: object, model: str = "") -> None:
        self.skipped.append({"clip": clip, "model": model, "reason": str(reason)})

    @property
    def contributions(self) -> pd.DataFrame:
        """Table of cue contributions; empty if no clip has cue and target."""
        return self._table(CONTRIBUTIONS)

    @property
    def ablation(self) -> pd.DataFrame:
        """Table of ablations; empty if none was asked for or possible."""
        return self._table(ABLATION)

    @property
    def transcripts(self) -> pd.DataFrame:
        """Table of transcripts by trained models; empty if none was asked for or possible."""
        return self._table(TRANSCRIPTS)

    @property
    def clips(self) -> pd.DataFrame:
        """Table of the clips; all but seconds is text, for names may look like numbers ("001")."""
        return read_csv(RunFolder(self.out).clips_path).astype({"seconds": float})

    def _table(self, name: str) -> pd.DataFrame:
        path = RunFolder(self.out).table_path(name)
        return read_parquet(path) if path.is_file() else pd.DataFrame()

    def summary(self, *, said: Sequence[str] = ()) -> str:
        """Return one count, and the reasons but those that are in lines which were said already."""
        lines = [f"{self.done} done, {len(self.skipped)} skipped; results in {self.out}"]
        reasons: dict[tuple[str, str], list[str]] = {}
        for row in self.skipped:
            if any(row["reason"] in line and row["clip"] in line for line in said):
                continue
            reasons.setdefault((row["clip"], row["reason"]), []).append(row["model"])
        for (clip, reason), models in list(reasons.items())[:20]:
            by = (
                f" by {len(models)} models"
                if len(models) > 1
                else f" by {models[0]}"
                if models[0]
                else ""
            )
            lines.append(f"  skipped {clip}{by}: {reason}")
        if len(reasons) > 20:
            lines.append(f"  ... and {len(reasons) - 20} more in skipped.csv")
        return "\n".join(lines)
