"""Disk full, a folder that is none, a file in the way: one clear line, exit status 1, and what was
finished is kept."""

from __future__ import annotations

import os
import resource
import shutil
import signal

import numpy as np
import pytest
import soundfile

from speechmix.errors import StorageError
from speechmix.inputs import bundled
from speechmix.interfaces.cli import main
from tests.reliability.kills import snapshot

pytest.importorskip(
    "espeakng_loader", reason="words are placed by synthesis: extra speechmix[synthesis]"
)
pytest.importorskip("jiwer", reason="models transcribe: extra speechmix[french]")

ENDED, REFUSED = 0, 7


@pytest.fixture(scope="module")
def job():
    from tests.reliability.jobs import score_job

    return score_job(figures=1)


def limited(job, folder, most: int | None) -> int:
    """Exit status of a job whose files may not grow past so many bytes: as a full disk, but at a
    place of one's choice."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            if most is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            job(folder)
            status = ENDED
        except StorageError as error:
            status = REFUSED if "cannot write to" in str(error) and "\n" not in str(error) else 2
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    return os.WEXITSTATUS(os.waitpid(child, 0)[1])


def fill_at(job, tmp_path, places: int) -> None:
    folder = tmp_path / "run"
    assert limited(job, folder, None) == ENDED
    expected = snapshot(folder)
    sizes = sorted(
        {
            path.stat().st_size
            for path in folder.rglob("*")
            if path.is_file() and path.stat().st_size
        }
    )
    chosen = [sizes[i] - 1 for i in np.linspace(0, len(sizes) - 1, places // 2).round().astype(int)]
    chosen += list(np.linspace(1, sizes[-1] - 1, places - len(chosen)).round().astype(int))
    for most in map(int, chosen):
        shutil.rmtree(folder)
        assert limited(job, folder, most) == REFUSED, f"files up to {most} bytes"
        assert limited(job, folder, None) == ENDED
        assert snapshot(folder) == expected, f"files up to {most} bytes, then without limit"


@pytest.mark.usefixtures("undrawn")
def test_a_disk_full_while_a_part_is_written_loses_no_scores(job, tmp_path):
    folder = tmp_path / "run"
    assert limited(job, folder, None) == ENDED
    expected = snapshot(folder)
    (part,) = (folder / "results" / "tiny-french-ctc").glob("*.parquet")
    most = part.stat().st_size - 1
    shutil.rmtree(folder)
    assert limited(job, folder, most) == REFUSED
    assert limited(job, folder, None) == ENDED
    assert snapshot(folder) == expected


@pytest.mark.long
def test_a_disk_full_at_one_place(job, tmp_path):
    fill_at(job, tmp_path, 1)


@pytest.mark.long
def test_a_disk_full_at_50_places(job, tmp_path):
    fill_at(job, tmp_path, 50)


@pytest.mark.parametrize("case", ["a file", "below a file", "no such device"])
def test_an_output_that_cannot_be_written_is_one_line(case, tmp_path, capsys):
    clip = tmp_path / "a.wav"
    soundfile.write(clip, np.random.default_rng(0).standard_normal(8_000) / 10, 16_000)
    out = {"a file": clip, "below a file": clip / "run", "no such device": "/proc/speechmix/run"}[
        case
    ]
    model = str(bundled.models()["tiny-french-ctc"])
    assert (
        main(
            [
                "score",
                str(clip),
                "--model",
                model,
                "--units",
                "frame",
                "--out",
                str(out),
                "--device",
                "cpu",
            ]
        )
        == 1
    )
    (line,) = [
        line for line in capsys.readouterr().err.splitlines() if line.startswith("speechmix:")
    ]
    assert "cannot write to" in line
    assert clip.stat().st_size > 1000
