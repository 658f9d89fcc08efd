"""Inseq's form of a map: axes and steps written out, back unchanged, files; and Inseq itself where
it is installed."""

from __future__ import annotations

import base64
import gzip
import json

import numpy as np
import pytest
from safetensors.numpy import load, save

import speechmix
from speechmix.errors import InputError, MissingExtraError
from speechmix.extensions.inseq.inseq_attribution import attribution_from_maps
from speechmix.extensions.inseq.inseq_conversion import from_inseq, to_inseq, write_inseq
from speechmix.inputs.words.spans import Span
from speechmix.mixing.maps.map_set import Maps
from speechmix.mixing.maps.mixing_map import MixingMap
from tests.models.text_models import bart, gpt2

SOURCE = tuple(
    Span(i, i + 1, label, kind, word)
    for i, (label, kind, word) in enumerate(
        [("un", "token", 0), ("do", "token", 0), ("it", "token", 1), ("</s>", "special", None)]
    )
)
WRITTEN = ["</s>", "dé", "fais", "le", "</s>"]
KINDS = ["special", "token", "token", "token", "special"]
WORDS = [None, 2, 2, 3, None]
HELD = tuple(Span(i, i + 1, WRITTEN[i], KINDS[i], WORDS[i]) for i in range(4))
PREDICTED = tuple(Span(i, i + 1, WRITTEN[i + 1], KINDS[i + 1], WORDS[i + 1]) for i in range(4))


def synthetic(heads: int = 0, dtype=np.float64) -> Maps:
    """SYNTHETIC numbers for a source of four tokens and four written ones, two layers; the encoder
    has three heads."""
    draw = np.random.default_rng(0)
    shape = (2, heads) if heads else (2,)
    told = {"model": "toy", "clip": "undo it", "text": "undo it", "decoder_text": "défais le"}
    decoder = np.tril(draw.random((*shape, 4, 4))).astype(dtype)
    cross, encoder = (draw.random((*shape, 4, 4)).astype(dtype) for _ in range(2))
    made = {
        "encoder": MixingMap(encoder, SOURCE, SOURCE, "alti", "encoder", (0, 1), told),
        "decoder": MixingMap(decoder, PREDICTED, HELD, "alti", "decoder", (3, 5), told),
        "cross": MixingMap(cross, PREDICTED, SOURCE, "alti", "cross", (3, 5), told),
    }
    return Maps({("alti", stack): one for stack, one in made.items()})


def assert_same(found: Maps, expected: Maps) -> None:
    assert list(found) == list(expected)
    for key, one in expected.items():
        np.testing.assert_array_equal(found[key].scores, one.scores)
        assert found[key].scores.dtype == one.scores.dtype
        for name in ("targets", "sources", "layers", "measure", "stack", "provenance"):
            assert getattr(found[key], name) == getattr(one, name), (key, name)


class TestForm:
    def test_axes_and_steps_written_out(self):
        maps = synthetic()
        cross, decoder = maps["alti", "cross"].scores, maps["alti", "decoder"].scores
        made = attribution_from_maps(list(maps.values()))
        assert made.source == ["▁un", "do", "▁it", "</s>"]
        assert made.target == ["</s>", "▁dé", "fais", "▁le", "</s>"]
        assert (made.start, made.stop) == (1, 5)  # the first is given
        for layer in range(2):
            for step in range(4):  # generates target[1 + step]
                for i in range(4):
                    assert made.from_source[i, step, layer] == cross[layer, step, i]
                for i in range(5):
                    found = made.from_target[i, step, layer]
                    assert np.isnan(found) if i > step else found == decoder[layer, step, i]
        np.testing.assert_array_equal(
            made.within_source[:, 1, 0], maps["alti", "encoder"].scores[0, 1]
        )

    def test_heads_are_the_last_axis(self):
        maps = synthetic(heads=3)
        made = attribution_from_maps([maps["alti", "cross"]])
        assert made.from_source.shape == (4, 4, 2, 3)
        assert made.from_source[0, 2, 1, 2] == maps["alti", "cross"].scores[1, 2, 2, 0]
        assert (made.start, made.target) == (
            0,
            ["▁dé", "fais", "▁le", "</s>"],
        )  # the cross map does not know the first

    def test_a_text_is_generated_from_its_second_token_on(self):
        maps = speechmix.mix(gpt2(), "the cat", measures="attention", units="token")
        made = attribution_from_maps([maps["attention", "decoder"]])
        assert made.target == ["▁t", "h", "e", "Ġ", "▁c", "a", "t", "<next>"]
        assert (made.start, made.stop) == (1, 8)
        assert made.from_source is None

    def test_a_composed_map_is_source_and_target(self):
        maps = speechmix.mix(
            bart(),
            speechmix.Sentence("the cat", translation="le ch"),
            measures="attention",
            units="token",
        )
        composed = maps.composed("attention")
        made = attribution_from_maps([composed])
        assert made.from_source.shape == (9, 7, 3)
        total = np.nansum(made.from_source, axis=0) + np.nansum(made.from_target, axis=0)
        np.testing.assert_allclose(total, 1, atol=1e-6)
        assert made.source[1:4] == ["▁t", "h", "e"]

    @pytest.mark.parametrize(
        ("maps", "pattern"),
        [
            (lambda m: [], "expected maps of one measure"),
            (lambda m: [m["alti", "cross"], m["alti", "cross"]], "one for each stack"),
            (lambda m: [m["alti", "encoder"], m["alti", "decoder"]], "through cross-attention"),
            (
                lambda m: [m["alti", "cross"].last_layer(), m["alti", "decoder"]],
                "same layers and heads",
            ),
            (
                lambda m: [rows(m["alti", "decoder"], [0, 2])],
                r"follow each other.*found rows at \[0, 2\]",
            ),
            (lambda m: [rows(m["alti", "cross"], [0, 1]), m["alti", "decoder"]], "same rows"),
        ],
    )
    def test_what_does_not_go_together(self, maps, pattern):
        with pytest.raises(InputError, match=pattern):
            attribution_from_maps(maps(synthetic()))


def rows(mixing_map: MixingMap, places: list[int]) -> MixingMap:
    """Some rows alone, as `mix(targets=)` gives them."""
    targets = tuple(mixing_map.targets[place] for place in places)
    return MixingMap(
        mixing_map.scores[..., places, :],
        targets,
        mixing_map.sources,
        mixing_map.measure,
        mixing_map.stack,
        mixing_map.layers,
    )


class TestFiles:
    """The JSON file, which needs no Inseq."""

    @pytest.mark.parametrize("heads", [0, 3])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_back_unchanged(self, tmp_path, heads, dtype):
        maps = synthetic(heads, dtype)
        assert_same(from_inseq(write_inseq(list(maps.values()), tmp_path / "a.json")), maps)

    @pytest.mark.parametrize(
        "one",
        [
            lambda m: m["alti", "encoder"],
            lambda m: m["alti", "decoder"],
            lambda m: m["alti", "decoder"].normalized().without("special"),
            lambda m: rows(m["alti", "decoder"], [1, 2]),
            lambda m: m["alti", "cross"].mean_layers(),
            lambda m: m.composed("alti"),
            lambda m: m.composed("alti", prefix=False),
        ],
        ids=[
            "encoder",
            "decoder",
            "without specials",
            "two rows",
            "mean of layers",
            "composed",
            "without prefix",
        ],
    )
    def test_one_map_alone(self, tmp_path, one):
        """After steps too; of what the layers 3 and 5 of a decoder are called nothing is lost."""
        made = one(synthetic())
        assert_same(
            from_inseq(write_inseq([made], tmp_path / "a.json")),
            Maps({(made.measure, made.stack): made}),
        )

    def test_real_maps_of_words(self, tmp_path):
        maps = speechmix.mix(gpt2(), "the cat", measures="attention")
        made = maps["attention", "decoder"]
        assert any(len(unit) > 1 for unit in made.sources)
        assert_same(from_inseq(write_inseq([made], tmp_path / "a.json")), maps)

    def test_the_file_is_what_inseq_writes(self, tmp_path):
        """Class names, base 64 of safetensors, tokens with ids: read by hand."""
        content = json.loads(
            write_inseq(list(synthetic().values()), tmp_path / "a.json").read_text(encoding="utf-8")
        )
        assert content["__instance_type__"] == [
            "inseq.data.attribution",
            "FeatureAttributionOutput",
        ]
        (sequence,) = content["attributes"]["sequence_attributions"]
        assert (
            sequence["__instance_type__"][1] == "MultiDimensionalFeatureAttributionSequenceOutput"
        )
        told = sequence["attributes"]
        assert told["target"][1]["attributes"]["token"] == "▁dé"
        tensor = load(base64.b64decode(told["source_attributions"]))["attribution"]
        np.testing.assert_array_equal(tensor[2, 1], synthetic()["alti", "cross"].scores[:, 1, 2])
        assert content["attributes"]["info"]["input_texts"] == ["undo it"]
        assert content["attributes"]["info"]["generated_texts"] == ["défais le"]

    def written_by_inseq(self, path, kind: str, source, target, **more):
        """A file as Inseq 0.7.1 writes it of its own methods, made by hand."""

        def text(array):
            return (
                None if array is None else base64.b64encode(save({"attribution": array})).decode()
            )

        def tokens(side):
            return [
                {
                    "__instance_type__": ["inseq.utils.typing", "TokenWithId"],
                    "attributes": {"id": 1, "token": t},
                }
                for t in side
            ]

        attributes = {
            "source": tokens(["▁un", "do", "</s>"]),
            "target": tokens(["<s>", "▁dé", "</s>"]),
            "source_attributions": text(source),
            "target_attributions": text(target),
            "step_scores": {},
            "sequence_scores": more,
            "attr_pos_start": 1,
            "attr_pos_end": 3,
        }
        sequence = {"__instance_type__": ["inseq.data.attribution", kind], "attributes": attributes}
        info = {"attribution_method": "saliency", "model_name": "toy"}
        content = {
            "attributes": {
                "info": info,
                "sequence_attributions": [sequence, sequence],
                "step_attributions": None,
            }
        }
        path.write_bytes(gzip.compress(json.dumps(content).encode()))
        return path

    def test_of_inseqs_own_through_the_whole_model(self, tmp_path):
        source = np.array([[0.5, 0.1], [0.3, 0.2], [0.2, 0.3]], np.float32)
        target = np.array([[0.0, 0.3], [np.nan, 0.1], [np.nan, np.nan]], np.float32)
        both = from_inseq(
            self.written_by_inseq(
                tmp_path / "a.json.gz", "FeatureAttributionSequenceOutput", source, target
            )
        )
        assert len(both) == 2
        found = both[0]["saliency", "composed"]
        assert [unit.label for unit in found.targets] == ["▁dé", "</s>"]
        assert [unit.label for unit in found.sources] == ["▁un", "do", "</s>", "<s>", "▁dé"]
        np.testing.assert_allclose(
            found.scores, [[[0.5, 0.3, 0.2, 0, 0], [0.1, 0.2, 0.3, 0.3, 0.1]]]
        )
        assert found.provenance["steps"] == ["from Inseq (saliency)"]

    def test_of_inseqs_own_with_every_dimension(self, tmp_path):
        scores = np.ones((3, 2, 8), np.float32)
        file = self.written_by_inseq(
            tmp_path / "a.json", "GranularFeatureAttributionSequenceOutput", scores, None
        )
        with pytest.raises(InputError, match=r"aggregate them in Inseq first"):
            from_inseq(file)

    @pytest.mark.parametrize(
        "content",
        [b"", b"{}", b"[1, 2]", b'{"attributes": {"info": {}, "sequence_attributions": [3]}}'],
    )
    def test_a_file_that_is_none(self, tmp_path, content):
        (tmp_path / "a.json").write_bytes(content)
        with pytest.raises(InputError, match="expected a JSON file that Inseq saved"):
            from_inseq(tmp_path / "a.json")

    def test_something_else(self):
        with pytest.raises(InputError, match="found int"):
            from_inseq(3)


def test_without_inseq_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "inseq", None)
    monkeypatch.setitem(__import__("sys").modules, "inseq.data.attribution", None)
    with pytest.raises(MissingExtraError, match=r"\[inseq\]'"):
        synthetic().to_inseq()


class TestInseqItself:
    """Where it is installed (extra `inseq`)."""

    @pytest.fixture(scope="class")
    def inseq(self):
        return pytest.importorskip(
            "inseq", reason="Inseq is not installed; its JSON form is tested without"
        )

    @pytest.fixture(scope="class")
    def model(self):
        model = bart()
        model.module.set_attn_implementation(
            "eager"
        )  # Inseq reads the weights that the model returns
        return model

    @pytest.fixture(scope="class")
    def maps(self, model):
        sentence = speechmix.Sentence("the cat", translation="le ch")
        return speechmix.mix(model, sentence, measures="attention", units="token", heads="each")

    def test_attention_is_what_inseq_computes(self, inseq, model, maps):
        """The same model and text through both, on the same axes and steps."""
        own = inseq.load_model(model.module, "attention", tokenizer=model.tokenizer).attribute(
            "the cat", "le ch", attribute_target=True, show_progress=False
        )
        ours, theirs = to_inseq(list(maps.values()))[0], own[0]
        for name in ("source_attributions", "target_attributions"):
            np.testing.assert_allclose(
                getattr(ours, name).numpy(), getattr(theirs, name).numpy(), atol=1e-6
            )
        encoder, own_encoder = (
            ours.sequence_scores["encoder_self_scores"],
            theirs.sequence_scores["encoder_self_attentions"],
        )
        np.testing.assert_allclose(encoder.numpy(), own_encoder.numpy(), atol=1e-6)
        assert [token.token.strip("▁") for token in ours.target] == [
            token.token for token in theirs.target
        ]
        assert (ours.attr_pos_start, ours.attr_pos_end) == (
            theirs.attr_pos_start,
            theirs.attr_pos_end,
        )
        back = from_inseq(own)
        assert set(back) == set(maps)
        for key, one in maps.items():
            np.testing.assert_allclose(back[key].scores, one.scores, atol=1e-6)
            assert [unit.label for unit in back[key].sources] == [
                unit.label for unit in one.sources
            ]

    def test_back_unchanged(self, inseq, maps):
        assert_same(from_inseq(maps.to_inseq()), maps)
        assert_same(from_inseq(synthetic(heads=3).to_inseq()), synthetic(heads=3))
        both = from_inseq(maps.to_inseq() + maps.to_inseq())
        assert [dict(one).keys() for one in both] == [dict(maps).keys()] * 2

    def test_its_views_and_aggregators(self, inseq, maps):
        output = synthetic().to_inseq()
        made = output.aggregate()[0]
        total = made.source_attributions.nansum(0) + made.target_attributions.nansum(0)
        np.testing.assert_allclose(total.numpy(), 1, atol=1e-6)
        words = output.aggregate(["mean", "subwords"])[0]
        assert [str(token) for token in words.source] == ["▁undo", "▁it", "</s>"]
        assert [str(token) for token in words.target] == ["</s>", "▁défais", "▁le", "</s>"]
        for view in (
            output,
            maps.to_inseq(),
            maps["attention", "encoder"].to_inseq(),
            maps["attention", "decoder"].to_inseq(),
        ):
            assert "</table>" in view.show(display=False, return_html=True)
        assert "fais" in output.show_tokens(display=False, return_html=True)

    def test_files_both_ways(self, inseq, maps, tmp_path):
        loaded = inseq.FeatureAttributionOutput.load(
            write_inseq(list(maps.values()), tmp_path / "ours.json")
        )
        assert "</table>" in loaded.show(display=False, return_html=True)
        for key, one in from_inseq(loaded).items():
            np.testing.assert_allclose(
                one.scores, maps[key].scores, rtol=1e-6
            )  # Inseq reads single precision
        maps.to_inseq().save(tmp_path / "theirs.json")
        assert_same(from_inseq(tmp_path / "theirs.json"), maps)
