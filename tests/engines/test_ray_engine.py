"""A run on Ray, on one machine as if on many: the tables of one process, whoever is killed, and
little is done twice."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import speechmix
from speechmix.errors import InputError, MissingExtraError, ModelError, SpeechmixError
from speechmix.extensions.clusters.block_worker import Pass
from speechmix.extensions.clusters.ray_executor import (
    FEWEST,
    RayExecutor,
    RayWorker,
    _ModelBlocks,
    split_into_blocks,
)
from speechmix.runs.kinds import map_results as store
from speechmix.runs.score_clips import score_clips
from tests.conftest import build
from tests.reliability.kills import snapshot

ray = pytest.importorskip("ray", reason="needs the extra cluster: pip install '.[cluster]'")
cluster_utils = pytest.importorskip("ray.cluster_utils")

ROOT = Path(__file__).resolve().parents[2]
WORDS = [("les", 0.1, 0.3), ("livres", 0.35, 0.55)]
COUNT = 200
OPTIONS = {"figures": 0, "progress": False, "targets": "target"}


def clips(count):
    """Clips of 0.6 s, in memory; the tenth has no words and no text, and is left out."""
    some = []
    for number in range(count):
        noise = np.random.default_rng(number).standard_normal(9_600).astype(np.float32) / 10
        facts = (
            {}
            if number == 9
            else {"words": WORDS, "text": "les livres", "cue": "les", "target": "livres"}
        )
        some.append(speechmix.Clip.from_array(noise, 16_000, name=f"clip-{number:03d}", **facts))
    return some


def save(folder):
    """A tiny model as a folder that every worker can load."""
    import transformers

    build("wav2vec2-post").save_pretrained(folder)
    transformers.Wav2Vec2FeatureExtractor().save_pretrained(folder)
    return folder


def load_noted(folder, log=None, deadly=(), **options):
    """Load a model in a process that notes the clips it begins, and is killed by some."""
    real = store.mix_items

    def noted(model, some, request, **further):
        with log.open("a") as file:
            file.writelines(f"{clip.name}\n" for clip in some)
        if any(clip.name in deadly for clip in some):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(model, some, request, **further)

    if log is not None:
        store.mix_items = noted
    return speechmix.load(folder, **options)


def loads(model, log=None, deadly=()):
    """The model and a random twin; the twin's clips are noted apart."""
    twin = partial(load_noted, model, log and log.with_suffix(".twin"), init="random", seed=3)
    return [partial(load_noted, model, log, deadly), twin]


def begun(log):
    return Counter(log.read_text().split()) if log.is_file() else Counter()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def cluster():
    """A head without work, where the driver is, and two machines."""
    former = os.environ.get("PYTHONPATH", "")
    os.environ |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{former}", "RAY_USAGE_STATS_ENABLED": "0"}
    head = {"num_cpus": 0, "object_store_memory": 2**27, "include_dashboard": False}
    machines = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        machines.add_node(num_cpus=1, object_store_memory=2**27)
    yield machines
    if ray.is_initialized():
        ray.shutdown()
    machines.shutdown()
    os.environ["PYTHONPATH"] = former


@pytest.fixture(scope="module")
def whole(model, tmp_path_factory):
    """What one process leaves."""
    out = tmp_path_factory.mktemp("whole") / "run"
    score_clips(loads(model), clips(COUNT), out, report=lambda line: None, **OPTIONS)
    return snapshot(out)


def on_ray(cluster, models, some, out, report=lambda line: None, **options):
    return score_clips(
        models,
        some,
        out,
        report=report,
        executor=RayExecutor(cluster.address, **options),
        **OPTIONS,
    )


def files(out):
    """Files and their hashes but of `run.json`, which names versions and times."""
    return {name: digest for name, digest in snapshot(out).items() if name != "run.json"}


def assert_same(out, whole):
    assert files(out) == {name: digest for name, digest in whole.items() if name != "run.json"}


@pytest.mark.long
def test_a_clip_that_kills_its_worker_is_left_out_and_the_rest_is_that_of_one_process(
    cluster, model, tmp_path
):
    some, log = clips(40), tmp_path / "log"
    run = on_ray(cluster, loads(model, log, deadly=("clip-021",)), some, tmp_path / "run")
    assert run.done == 38 + 39
    deaths = [row for row in run.skipped if row["clip"] == "clip-021"]
    assert [row["reason"][:27] for row in deaths] == ["2 workers died at this clip"]
    times = begun(log)
    assert times.pop("clip-021") == 2
    assert set(times) == {clip.name for clip in some} - {"clip-009", "clip-021"}
    assert (
        sum(times.values()) - len(times) <= FEWEST
    )  # the first death costs what its block had done
    # Started again without what kills: one clip is missing, and nothing else is begun.
    log = tmp_path / "again"
    run = on_ray(cluster, loads(model, log), some, tmp_path / "run")
    assert begun(log) == {"clip-021": 1}
    score_clips(loads(model), some, tmp_path / "whole", report=lambda line: None, **OPTIONS)
    assert files(tmp_path / "run") == files(tmp_path / "whole")


def fails_to_load(kind, *args):
    raise kind(*args)


@pytest.mark.parametrize(
    ("failure", "kind", "message"),
    [
        ((ModelError, "no such model"), ModelError, "^no such model$"),
        (
            (MissingExtraError, "peft", "peft", "an adapter"),
            SpeechmixError,
            "^an adapter needs peft: pip install",
        ),
        (
            (RuntimeError, "CUDA: busy"),
            SpeechmixError,
            r"block of 2 clips: RuntimeError: CUDA: busy \(.*test_ray_engine",
        ),
    ],
)
def test_whatever_a_worker_fails_by_is_a_row_that_stops_the_run(
    tmp_path, monkeypatch, failure, kind, message
):
    class Context:
        def get_node_id(self):
            return "here"

    monkeypatch.setattr(ray, "get_runtime_context", Context)
    asked = Pass(tmp_path, partial(fails_to_load, *failure), None, (), (), tmp_path / "notes")
    some = clips(2)
    (row,) = RayWorker(pickle.dumps(asked))(split_into_blocks(some, 2)[0]).to_pylist()
    with pytest.raises(kind, match=message):
        _ModelBlocks(None, some, None, print).take(row)


@pytest.mark.long
def test_what_cannot_be_loaded_is_said(cluster, model, tmp_path):
    with pytest.raises(ModelError, match="nowhere"):
        on_ray(cluster, [partial(speechmix.load, tmp_path / "nowhere")], clips(2), tmp_path / "run")
    with pytest.raises(InputError, match="functions that load a model"):
        on_ray(cluster, [speechmix.load(model)], clips(2), tmp_path / "run")
    with pytest.raises(InputError, match="two models are called"):
        on_ray(cluster, [partial(speechmix.load, model)] * 2, clips(2), tmp_path / "run")
    with pytest.raises(InputError, match="an executor or a shard"):
        score_clips([], clips(2), tmp_path / "run", executor=RayExecutor(), shard="1/2")


@pytest.mark.long
def test_two_machines_leave_what_one_process_leaves(cluster, model, whole, tmp_path):
    log = tmp_path / "log"
    lines = []
    on_ray(cluster, loads(model, log), clips(COUNT), tmp_path / "run", lines.append)
    assert_same(tmp_path / "run", whole)
    assert set(begun(log).values()) == {1}
    assert len(lines) >= 2 * (COUNT - 1)


@pytest.mark.long
def test_a_machine_that_dies_in_the_middle(cluster, model, whole, tmp_path):
    log, lines = tmp_path / "log", []

    def report(line):
        lines.append(line)
        if len(lines) == 60:
            machine = next(node for node in cluster.list_all_nodes() if node != cluster.head_node)
            cluster.remove_node(machine, allow_graceful=False)
            cluster.add_node(num_cpus=1, object_store_memory=2**27)

    on_ray(cluster, loads(model, log), clips(COUNT), tmp_path / "run", report)
    assert_same(tmp_path / "run", whole)
    repeated = sum(begun(log).values()) - (COUNT - 1)
    assert repeated <= FEWEST


@pytest.mark.long
def test_a_driver_that_is_killed_and_started_again(cluster, model, whole, tmp_path):
    log, out = tmp_path / "log", tmp_path / "run"
    code = f"""
from pathlib import Path
from speechmix.extensions.clusters.ray_executor import RayExecutor
from tests.engines import test_ray_engine as test
test.score_clips(test.loads(Path({str(model)!r}), Path({str(log)!r})), test.clips(test.COUNT), {str(out)!r},
                 executor=RayExecutor({cluster.address!r}), **test.OPTIONS)
"""
    driver = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.DEVNULL)
    while sum(begun(log).values()) < 100:
        assert driver.poll() is None
        time.sleep(0.05)
    driver.kill()
    driver.wait()
    on_ray(cluster, loads(model, log), clips(COUNT), out)
    assert_same(out, whole)
    repeated = sum(begun(log).values()) - (COUNT - 1)
    assert repeated <= 2 * FEWEST  # what each of two workers was at
