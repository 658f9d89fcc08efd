"""Model cards and their gallery, on SYNTHETIC runs made of numbers alone."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace

import numpy as np
import pytest

from speechmix.errors import InputError
from speechmix.evaluation.statistics.intervals import mean_interval
from speechmix.extensions.cards.card_texts import (
    card_markdown,
    card_page,
    gallery_table,
    rank_ranges,
    write_gallery,
    write_model_cards,
)
from speechmix.extensions.cards.model_card import CardEstimate, model_cards, read_model_card
from speechmix.interfaces.cli import main

from .synthetic_runs import synthetic_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("card") / "run"
    return synthetic_run(folder, clips=32, twins=9, models=("org/one", "two"))


@pytest.fixture(scope="module")
def cards(run):
    return model_cards(run)


class TestCard:
    def test_one_for_each_trained_model(self, cards):
        assert [card.model for card in cards] == ["org/one", "two"]
        profile = cards[0].profiles[0]
        assert profile.clips["count"] == 32
        assert profile.twins == 9
        assert {estimate.measure: estimate.verdict for estimate in profile.estimates} == {
            "value_zeroing": "more",
            "attention": "",
        }

    def test_sentences_are_of_this_model_alone(self, cards):
        assert "two" not in " ".join(cards[0].profiles[0].answers)

    def test_another_folder_gives_the_same_files(self, run, cards, tmp_path):
        elsewhere = synthetic_run(
            tmp_path / "elsewhere", clips=32, twins=9, models=("org/one", "two")
        )
        again = model_cards(elsewhere)
        assert json.dumps([card.to_json() for card in again]) == json.dumps(
            [card.to_json() for card in cards]
        )
        assert [card_page(card) for card in again] == [card_page(card) for card in cards]
        assert str(tmp_path) not in json.dumps([card.to_json() for card in again])

    @pytest.mark.usefixtures("undrawn")
    def test_is_read_back(self, cards, tmp_path):
        pages = write_model_cards(cards, tmp_path)
        assert [page.name for page in pages] == ["org_one.html", "two.html"]
        assert read_model_card(pages[0].with_suffix(".json")) == cards[0]
        assert pages[0].with_suffix(".md").read_text() == card_markdown(cards[0])

    @pytest.mark.usefixtures("undrawn")
    def test_several_runs_of_a_model_are_one_card(self, run):
        card = model_cards(run, run)[0]
        assert len(card.profiles) == 2
        assert "### Clips 2" in card_markdown(card)
        assert "Estimates (clips 2)" in card_page(card)

    def test_says_what_was_not_evaluated(self, cards):
        assert "No faithfulness evaluation was run" in card_markdown(cards[0])

    @pytest.mark.usefixtures("undrawn")
    def test_a_model_named_like_markup_stays_text(self, cards):
        page = card_page(replace(cards[0], model="<script>alert(1)</script>"))
        assert "<script>alert(1)" not in page

    def test_a_run_that_was_stopped_is_refused(self, tmp_path):
        run = synthetic_run(tmp_path / "run")
        description = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**description, "state": "running"}))
        with (
            pytest.warns(UserWarning, match="stopped"),
            pytest.raises(InputError, match="not finished"),
        ):
            model_cards(run)

    @pytest.mark.usefixtures("undrawn")
    def test_two_models_of_one_name_keep_their_cards(self, cards, tmp_path):
        one = replace(cards[0], model="checkpoint-500", weights="aaaaaaaaaa")
        other = replace(one, weights="bbbbbbbbbb")
        for _ in range(2):  # made again, each takes its own place
            assert [write_model_cards([card], tmp_path)[0].name for card in (one, other)] == [
                "checkpoint-500.html",
                "checkpoint-500-bbbbbbbb.html",
            ]
        assert read_model_card(tmp_path / "checkpoint-500.json") == one
        assert read_model_card(tmp_path / "checkpoint-500-bbbbbbbb.json") == other
        assert len(list(tmp_path.iterdir())) == 6

    @pytest.mark.usefixtures("undrawn")
    def test_a_file_that_is_no_card_is_not_written_over(self, cards, tmp_path):
        (tmp_path / "two.json").write_text("{}")
        write_model_cards([cards[1]], tmp_path)
        assert (tmp_path / "two.json").read_text() == "{}"

    @pytest.mark.usefixtures("undrawn")
    def test_flipped_bits_are_found(self, cards, tmp_path):
        write_model_cards([cards[1]], tmp_path)
        path, rng = tmp_path / "two.json", np.random.default_rng(0)
        written = path.read_bytes()
        for place in rng.integers(8 * len(written), size=200):
            damaged = bytearray(written)
            damaged[place // 8] ^= 1 << place % 8
            path.write_bytes(damaged)
            with contextlib.suppress(InputError):
                assert read_model_card(path) == cards[1]  # a blank between two values

    @pytest.mark.parametrize(
        ("field", "value"),
        [("low", 5000.0), ("value", float("inf")), ("value", "1"), ("groups", 2.5), ("label", 1)],
    )
    def test_an_impossible_estimate_is_refused(self, cards, tmp_path, field, value):
        """Also in a card of the first format, which had no checksum."""
        content = {**cards[0].to_json(), "speechmix_card": 1}
        (tmp_path / "card.json").write_text(json.dumps(content))
        assert read_model_card(tmp_path / "card.json") == cards[0]
        content["profiles"][0]["estimates"][0][field] = value
        (tmp_path / "card.json").write_text(json.dumps(content))
        with pytest.raises(InputError, match="damaged model card"):
            read_model_card(tmp_path / "card.json")

    @pytest.mark.parametrize(
        ("content", "message"),
        [("[]", "not a model card"), ('{"speechmix_card": 99}', "format 99"), ("{", "not valid")],
    )
    def test_other_files_are_refused(self, tmp_path, content, message):
        path = tmp_path / "card.json"
        path.write_text(content)
        with pytest.raises(InputError, match=message):
            read_model_card(path)

    def test_a_damaged_card_is_refused(self, cards, tmp_path):
        path = tmp_path / "card.json"
        content = cards[0].to_json()
        del content["profiles"][0]["estimates"][0]["value"]
        path.write_text(json.dumps(content))
        with pytest.raises(InputError, match="damaged"):
            read_model_card(path)


class TestRanks:
    def test_equal_models_are_rarely_separated(self):
        """30 models that do not differ: in at most 5 % of galleries any two are separated."""
        rng = np.random.default_rng(0)
        separated = 0
        for _ in range(60):
            samples = rng.normal(size=(30, 15))
            lows, highs = zip(*map(mean_interval, samples), strict=True)
            ranges = rank_ranges(samples.mean(axis=1), lows, highs, [15] * 30)
            separated += any(limits != (1, 30) for limits in ranges)
        assert separated <= 0.05 * 60

    def test_different_models_are(self):
        assert rank_ranges([5, 50, 90], [4, 49, 89], [6, 51, 91], [30] * 3) == [
            (3, 3),
            (2, 2),
            (1, 1),
        ]

    def test_order_of_models_changes_nothing(self):
        values, lows, highs = [3.0, 1.0, 9.0], [2.0, 0.5, 8.0], [4.0, 2.5, 10.0]
        ranges = rank_ranges(values, lows, highs, [20] * 3)
        turned = rank_ranges(values[::-1], lows[::-1], highs[::-1], [20] * 3)
        assert turned[::-1] == ranges


@pytest.mark.usefixtures("undrawn")
class TestGallery:
    def test_models_that_are_not_separated_share_their_ranks(self, cards):
        table, sort_keys = gallery_table([(card.model, card.profiles[0]) for card in cards])
        column = table.columns[1]
        assert table[column].str.endswith("rank 1 to 2").all()
        assert sort_keys[column] == [1, 1]

    def test_what_has_no_interval_is_not_ranked(self, cards):
        estimate = CardEstimate("cue need", "all", "encoder", "", "points", 5.0, None, None, "", 3)
        profile = replace(cards[0].profiles[0], estimates=[estimate])
        table, sort_keys = gallery_table([("a", profile), ("b", profile)])
        assert table.iloc[0, 1] == "5.0 (no interval), not ranked"
        assert np.isnan(next(iter(sort_keys.values()))).all()

    def test_other_clips_are_another_table(self, cards, tmp_path):
        profile = cards[0].profiles[0]
        clips = {**profile.clips, "fingerprint": "other"}
        other = replace(cards[1], profiles=[replace(profile, clips=clips)])
        write_model_cards([cards[0], other], tmp_path)
        page, _ = write_gallery(tmp_path)
        assert page.read_text().count("<table") == 2

    def test_other_files_are_skipped_with_a_reason(self, cards, tmp_path):
        write_model_cards(cards, tmp_path)
        (tmp_path / "notes.json").write_text("{}")
        page, reasons = write_gallery(tmp_path)
        odd = {"speechmix_card": 1, "model": "odd", "weights": "", "profiles": [{"clips": []}]}
        (tmp_path / "odd.json").write_text(json.dumps(odd))
        page, reasons = write_gallery(tmp_path)
        assert "notes.json is not a model card" in reasons[0]
        assert "odd.json is a damaged model card (profile: expected the fields clips" in reasons[1]
        assert 'href="org_one.html"' in page.read_text()

    def test_without_a_card_there_is_no_page(self, tmp_path):
        with pytest.raises(InputError, match="no model card"):
            write_gallery(tmp_path)


def test_commands(run, tmp_path, capsys):
    assert main(["card", str(run), "--out", str(tmp_path / "cards")]) == 0
    assert main(["gallery", str(tmp_path / "cards")]) == 0
    assert (tmp_path / "cards" / "index.html").is_file()
    assert "page:" in capsys.readouterr().out
