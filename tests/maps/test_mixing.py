"""MixingMap: shapes, explicit steps, tables, and files that come back as they were."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import speechmix
from speechmix.errors import InputError
from speechmix.inputs.words.spans import SPAN_KINDS, Span
from speechmix.mixing.maps.map_set import Maps

finite = st.floats(allow_nan=False, allow_infinity=False, width=32)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | finite | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def spans(draw):
    start = draw(st.integers(0, 3000))
    return Span(
        start,
        start + draw(st.integers(1, 300)),
        draw(texts),
        draw(st.sampled_from(SPAN_KINDS)),
        draw(st.none() | st.integers(0, 40)),
        draw(st.none() | finite),
        draw(st.none() | finite),
    )


@st.composite
def mixing_maps(draw):
    layers = draw(st.lists(st.integers(0, 47), min_size=1, max_size=3, unique=True).map(sorted))
    targets = draw(st.lists(spans(), min_size=1, max_size=4))
    sources = draw(st.lists(spans(), min_size=1, max_size=4))
    heads = draw(st.none() | st.integers(1, 3))
    shape = (len(layers), *(() if heads is None else (heads,)), len(targets), len(sources))
    dtype = draw(st.sampled_from(["float32", "float64"]))
    scores = np.random.default_rng(draw(st.integers(0, 1000))).random(shape).astype(dtype)
    return speechmix.MixingMap(
        np.where(scores < 0.2, 0, scores).astype(dtype),
        tuple(targets),
        tuple(sources),
        draw(st.sampled_from(["value_zeroing", "attention"])),
        draw(st.sampled_from(["encoder", "decoder", "cross"])),
        tuple(layers),
        draw(st.dictionaries(texts, json_values, max_size=3)),
    )


def small(
    kinds=("word", "silence", "word", "padding"), layers=2, heads=None, measure="value_zeroing"
):
    labels = tuple(
        Span(i, i + 1, f"é{i}", kind, i, i * 0.1, (i + 1) * 0.1) for i, kind in enumerate(kinds)
    )
    shape = (layers, *(() if heads is None else (heads,)), len(kinds), len(kinds))
    return speechmix.MixingMap(
        np.random.default_rng(0).random(shape),
        labels,
        labels,
        measure,
        "encoder",
        tuple(range(layers)),
        {"model": "tiny"},
    )


class TestFiles:
    @given(mixing_maps())
    @settings(
        max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    def test_saved_map_comes_back_as_it_was(self, tmp_path, mixing_map):
        path = mixing_map.save(tmp_path / "carte é 1.safetensors")
        back = speechmix.MixingMap.load(path)
        np.testing.assert_array_equal(back.scores, mixing_map.scores)
        assert back.scores.dtype == mixing_map.scores.dtype
        for name in ("targets", "sources", "measure", "stack", "layers", "provenance"):
            assert getattr(back, name) == getattr(mixing_map, name), name

    def test_steps_are_saved(self, tmp_path):
        path = small().without("padding").normalized().save(tmp_path / "a.safetensors")
        assert speechmix.MixingMap.load(str(path)).provenance["steps"] == [
            "without padding",
            "normalized",
        ]

    def test_view_of_a_map_is_saved_whole(self, tmp_path):
        found = small()
        turned = speechmix.MixingMap(
            found.scores.transpose(0, 2, 1),
            found.sources,
            found.targets,
            found.measure,
            found.stack,
            found.layers,
        )
        back = speechmix.MixingMap.load(turned.save(tmp_path / "a.safetensors"))
        np.testing.assert_array_equal(back.scores, turned.scores)

    def test_map_of_a_model_comes_back(self, tmp_path):
        from tests.conftest import build, inputs_of

        model = speechmix.load(build("whisper-80"), init="random", seed=3)
        inputs = inputs_of(model)
        maps = speechmix.mix(
            model,
            {**inputs, "input_features": inputs["input_features"].float()},
            spans=[(0, 9), (9, 60)],
        )
        for found in maps.values():
            back = speechmix.MixingMap.load(found.save(tmp_path / "a.safetensors"))
            assert back.provenance == found.provenance
            assert (back.provenance["init"], back.provenance["seed"]) == ("random", 3)

    @pytest.mark.parametrize(
        "content", [None, b"", b"not a safetensors file at all", "folder", "other"]
    )
    def test_other_files_are_refused(self, tmp_path, content):
        from safetensors.numpy import save_file

        path = tmp_path / "x.safetensors"
        if content == "folder":
            path.mkdir()
        elif content == "other":
            save_file({"scores": np.zeros((1, 1, 1))}, path)
        elif content is not None:
            path.write_bytes(content)
        with pytest.raises(InputError, match=r"x\.safetensors"):
            speechmix.MixingMap.load(path)


class TestSteps:
    @given(mixing_maps())
    @settings(max_examples=60, deadline=None)
    def test_normalised_rows_sum_to_one_or_stay_zero(self, mixing_map):
        normalized = mixing_map.normalized()
        sums = normalized.scores.sum(axis=-1)
        zero = (mixing_map.scores == 0).all(axis=-1)
        np.testing.assert_allclose(sums[~zero], 1, rtol=1e-5)
        assert (sums[zero] == 0).all()
        np.testing.assert_allclose(normalized.normalized().scores, normalized.scores, rtol=1e-5)
        assert normalized.provenance["steps"][-1] == "normalized"

    @given(mixing_maps())
    @settings(max_examples=60, deadline=None)
    def test_raw_scores_stay_as_they_are(self, mixing_map):
        before = mixing_map.scores.copy()
        mixing_map.normalized()
        mixing_map.mean_heads()
        mixing_map.without("word", "silence")
        np.testing.assert_array_equal(mixing_map.scores, before)

    def test_without_drops_rows_and_columns(self):
        found = small()
        kept = found.without("silence", "padding")
        assert (
            [span.kind for span in kept.targets]
            == [span.kind for span in kept.sources]
            == ["word", "word"]
        )
        np.testing.assert_array_equal(kept.scores, found.scores[:, [0, 2]][:, :, [0, 2]])
        assert found.without("padding").without("silence").scores.tolist() == kept.scores.tolist()

    def test_without_works_per_head(self):
        found = small(heads=3)
        np.testing.assert_array_equal(
            found.without("silence").scores, found.scores[:, :, [0, 2, 3]][..., [0, 2, 3]]
        )

    def test_without_what_is_not_there_changes_nothing(self):
        assert small().without("special").scores.tolist() == small().scores.tolist()

    def test_mean_over_heads_and_normalising_do_not_commute(self):
        found = small(heads=3)
        np.testing.assert_allclose(found.mean_heads().scores, found.scores.mean(axis=1))
        assert (
            np.abs(
                found.mean_heads().normalized().scores - found.normalized().mean_heads().scores
            ).max()
            > 1e-3
        )
        assert small().mean_heads().scores.shape == (2, 4, 4)

    @pytest.mark.parametrize("shape", [(2, 4, 3), (1, 4, 4), (4, 4), (2, 3, 4, 5), (2, 2, 2, 4, 4)])
    def test_scores_of_another_shape_are_refused(self, shape):
        found = small()
        with pytest.raises(InputError, match=r"\(2, 4, 4\), found shape"):
            speechmix.MixingMap(
                np.zeros(shape), found.targets, found.sources, "attention", "encoder", (0, 1)
            )

    def test_rollout_of_a_part_of_the_rows_is_refused(self):
        found = small()
        part = speechmix.MixingMap(
            found.scores[:, :2], found.targets[:2], found.sources, "attention", "encoder", (0, 1)
        )
        with pytest.raises(InputError, match="2 targets and 4 sources"):
            part.rollout()


class TestTable:
    @given(mixing_maps())
    @settings(max_examples=40, deadline=None)
    def test_one_row_per_score(self, mixing_map):
        table = mixing_map.to_dataframe()
        assert len(table) == mixing_map.scores.size
        assert ("head" in table.columns) == mixing_map.has_heads
        assert set(table["layer"]) == set(mixing_map.layers)
        np.testing.assert_array_equal(table["score"], mixing_map.scores.ravel())
        row = table.iloc[-1]
        target, source = mixing_map.targets[-1], mixing_map.sources[-1]
        assert (row["target_label"], row["source_label"]) == (target.label, source.label)
        assert (row["target_kind"], row["source_kind"]) == (target.kind, source.kind)
        for value, expected in (
            (row["target_onset"], target.onset),
            (row["source_offset"], source.offset),
        ):
            assert np.isnan(value) if expected is None else value == expected

    def test_score_is_found_by_its_labels(self):
        table = small(heads=2).to_dataframe()
        row = table[
            (table.layer == 1)
            & (table["head"] == 0)
            & (table.target_label == "é2")
            & (table.source_label == "é0")
        ]
        assert row.score.tolist() == [small(heads=2).scores[1, 0, 2, 0]]
        assert set(table.measure) == {"value_zeroing"}


def test_maps_are_a_mapping():
    found = small()
    maps = Maps({("value_zeroing", "encoder"): found})
    assert dict(maps) == {("value_zeroing", "encoder"): found}
    assert repr(maps) == "Maps(value_zeroing/encoder)"
    assert repr(found) == "MixingMap(value_zeroing, encoder: 2 layers, 4 targets x 4 sources)"
    assert "3 heads" in repr(small(heads=3))
