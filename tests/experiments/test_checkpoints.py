"""Checkpoints are found and put in the order of their steps: folders of a Trainer, patterns, the hub."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import huggingface_hub
import pytest

from speechmix.errors import InputError, ModelError
from speechmix.extensions.trajectories.checkpoints import Checkpoint, list_checkpoints, read_step
from speechmix.inputs import bundled

WHISPER = bundled.models()["tiny-french-whisper"]
COMMIT = "0123456789012345678901234567890123456789"


def make(folder, *names):
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text("{}")
    return folder


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("checkpoint-500", 500),
        ("step1000", 1000),
        ("step-20", 20),
        ("stage1-step20k-tokens3B", 20_000),
        ("step2m", 2_000_000),
        ("seed3_step7", 7),
        ("v2-1500", 1500),
        ("0", 0),
    ],
)
def test_the_step_is_in_the_name(name, step):
    assert read_step(name) == step


def test_a_name_without_a_number_is_refused():
    with pytest.raises(InputError, match="expected a training step"):
        read_step("main")


@pytest.mark.parametrize("name", ["step" + "7" * 5000, "checkpoint-" + "1" * 13])
def test_a_number_that_no_training_reaches_is_refused(name):
    with pytest.raises(InputError, match=r"found a number of 13 digits|of 5,000 digits"):
        read_step(name)


def test_leading_zeros_are_no_number():
    assert read_step("step" + "0" * 5000 + "20k") == 20_000


def test_a_damaged_processor_above_the_checkpoints_is_named(tmp_path):
    (tmp_path / "preprocessor_config.json").write_text('{"feature_size": ')
    (checkpoint,) = list_checkpoints(make(tmp_path, "checkpoint-2") / "checkpoint-2")
    with pytest.raises(ModelError, match=r"preprocessor_config\.json is damaged"):
        checkpoint.load(device="cpu")
    (tmp_path / "preprocessor_config.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot read the processor in"):
        checkpoint.load(device="cpu")


def test_folders_of_a_trainer_come_by_number(tmp_path):
    folder = make(tmp_path / "seed-0", *(f"checkpoint-{n}" for n in (1000, 20, 500, 0)))
    (folder / "config.json").write_text("{}")  # the final model, which a Trainer writes there
    (folder / "runs").mkdir()
    steps = [checkpoint.step for checkpoint in list_checkpoints(folder)]
    assert steps == [0, 20, 500, 1000]
    for sources in (
        str(folder / "checkpoint-*"),
        [folder / "checkpoint-1000", folder / "checkpoint-20"],
    ):
        assert {checkpoint.training for checkpoint in list_checkpoints(sources)} == {"seed-0"}
    assert [c.step for c in list_checkpoints(str(folder / "checkpoint-*"))] == steps


def test_several_trainings_keep_their_order(tmp_path):
    one, other = make(tmp_path / "b", "checkpoint-2"), make(tmp_path / "a", "checkpoint-1")
    assert [c.label for c in list_checkpoints([one, other])] == ["b@step2", "a@step1"]


@pytest.mark.parametrize(
    ("sources", "revisions", "message"),
    [
        (["x/s", "y/s"], None, "two checkpoints are called s@step1"),
        (["empty"], None, "no checkpoint is in"),
        (["x/s/none-*"], None, "no folder with a config.json matches"),
        (["nobody/model"], None, "say which revisions"),
        (["x/s"], "step*", "and .* is a folder"),
        ([], None, "found none"),
    ],
)
def test_what_is_no_training_is_said(tmp_path, monkeypatch, sources, revisions, message):
    make(tmp_path / "x" / "s", "checkpoint-1")
    make(tmp_path / "y" / "s", "checkpoint-1")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        list_checkpoints(sources, revisions)


@pytest.fixture
def hub(monkeypatch):
    """A model on the hub with branches and tags."""
    names = ["main", "step1000", "step20", "other-7"]

    def list_repo_refs(repo):
        branches, tags = (
            [SimpleNamespace(name=name) for name in part] for part in (names[:3], names[3:])
        )
        return SimpleNamespace(branches=branches, tags=tags)

    monkeypatch.setattr(huggingface_hub, "list_repo_refs", list_repo_refs)


def test_revisions_on_the_hub_match_a_pattern(hub):
    found = list_checkpoints("org/model", "step*")
    assert [(c.label, c.revision) for c in found] == [
        ("org/model@step20", "step20"),
        ("org/model@step1000", "step1000"),
    ]
    assert [c.step for c in list_checkpoints("org/model", ["step*", "other-7"])] == [7, 20, 1000]
    assert [c.step for c in list_checkpoints("org/model", "step3")] == [3]  # taken as it is
    with pytest.raises(InputError, match="no branch or tag matches epoch"):
        list_checkpoints("org/model", "epoch*")


def test_offline_revisions_come_from_the_cache(tmp_path, monkeypatch):
    folder = tmp_path / "models--org--model"
    shutil.copytree(WHISPER, folder / "snapshots" / COMMIT)
    (folder / "refs").mkdir()
    for name in ("main", "step20"):
        (folder / "refs" / name).write_text(COMMIT)

    def fail(repo):
        raise huggingface_hub.errors.OfflineModeIsEnabled("offline")

    monkeypatch.setattr(huggingface_hub, "list_repo_refs", fail)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    scan = huggingface_hub.scan_cache_dir
    monkeypatch.setattr(huggingface_hub, "scan_cache_dir", lambda: scan(tmp_path))
    [checkpoint] = list_checkpoints("org/model", "step*")
    assert checkpoint.step == 20
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    model = checkpoint.load(device="cpu")
    assert (model.name, model.can_transcribe) == ("org/model@step20", True)
    with pytest.raises(InputError, match="cannot be listed, and none is in the cache"):
        list_checkpoints("org/another", "step*")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "none"))
    with pytest.raises(InputError, match="cannot be listed, and none is in the cache"):
        list_checkpoints("org/model", "step*")


def test_a_checkpoint_is_loaded_under_its_label_with_the_processor_above(tmp_path):
    folder = tmp_path / "seed-0" / "checkpoint-500"
    shutil.copytree(WHISPER, folder)
    for path in [*folder.glob("*tok*"), *folder.glob("*processor*"), *folder.glob("vocab*")]:
        path.rename(folder.parent / path.name)
    model = Checkpoint("seed-0", 500, str(folder)).load(device="cpu")
    assert (model.name, model.can_transcribe) == ("seed-0@step500", True)
    twin = Checkpoint("seed-0", 500, str(folder)).load(device="cpu", init="random", seed=1)
    assert twin.name == "seed-0"  # whatever the step
