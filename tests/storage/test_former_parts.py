"""Part files of runs that were scored before maps had mixing strengths are read, and go together with those of today."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from speechmix.errors import InputError
from speechmix.files.shards import Shard
from speechmix.storage import part_files
from speechmix.storage.folder import RunFolder
from speechmix.storage.part_files import Owner, opened_part
from speechmix.storage.results import Key, Results
from speechmix.storage.tables import STRENGTH

OWNER = Owner("m", "trained", None, "m", "0")
SHARE = {"cue": "les", "target": "livres", "stack": "encoder", "measure": "attention", "rows": "target", "layer": 0}
SHARE |= {"depth": 0.0, "contribution": 0.5, "share_of_length": 0.25, "length_matched": 0.25, "after_target": None}


def former_part(folder, rows):
    """A part file as versions without mixing strengths wrote it."""
    schema = part_files._FORMER_RESULTS.with_metadata(
        {part_files._TOLD: json.dumps({"owner": vars(OWNER), "shard": "1-of-1", "scores": {}, "maps": {}})}
    )
    path = (
        folder.results("m") / f"{part_files.part_name([(r['clip'], r['kind'], r['question']) for r in rows])}.parquet"
    )
    path.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, write_page_checksum=True)
    return path


def row(clip, contributions, kind="attention"):
    return {"clip": clip, "kind": kind, "question": "q", "contributions": contributions, "content": "", "vectors": b""}


def test_strengths_of_former_parts_are_missing(tmp_path):
    rows = [row("a", [SHARE, SHARE]), row("b", []), row("c", [SHARE])]
    part = opened_part(former_part(RunFolder(tmp_path), rows))
    assert part.read().schema.remove_metadata() == part_files.RESULTS
    for found in (part.read().to_pylist(), part.slice(0, 3, part_files.RESULTS.names).to_pylist()):
        assert found == [
            {**r, "contributions": [{**share, STRENGTH: None} for share in r["contributions"]]} for r in rows
        ]
    assert part.rows_of("c", ("contributions",)).to_pylist() == [{"contributions": [{**SHARE, STRENGTH: None}]}]
    assert part.read(("clip",)).to_pylist() == [{"clip": name} for name in "abc"]


def test_former_results_that_are_still_wanted_become_a_part_of_today_with_new_ones(tmp_path):
    folder = RunFolder(tmp_path)
    former_part(folder, [row("a", [], "ablation"), row("b", [SHARE])])
    with Results(folder, OWNER, Shard(), print) as results:
        former, new = Key("a", "ablation", "q"), Key("b", "attention", "of today")
        assert former in results
        results.put(new, contributions=[{**SHARE, STRENGTH: 0.3}])
        [part] = results.settled([former, new])
    assert [found["contributions"] for found in part.read().to_pylist()] == [[], [{**SHARE, STRENGTH: 0.3}]]
    assert pq.read_schema(part.path).remove_metadata() == part_files.RESULTS


def test_a_part_with_other_columns_is_still_an_error(tmp_path):
    path = former_part(RunFolder(tmp_path), [row("a", [])])
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["content"]).replace_schema_metadata(table.schema.metadata), path)
    with pytest.raises(InputError, match="expected the columns"):
        opened_part(path)
