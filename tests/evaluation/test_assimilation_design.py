"""Designs of assimilation: the tables that come with the package, what is spoken, what is refused."""

from pathlib import Path

import pytest

from speechmix.errors import InputError
from speechmix.extensions.agreement.item_selection import (
    read_assimilation_design,
    speak_assimilation_design,
)
from speechmix.inputs.words.phone_labels import articulatory_features

TEMPLATE = Path(__file__).parents[2] / "data_templates" / "assimilation.tsv"


def test_the_example_is_the_beginning_of_the_french_design():
    items = read_assimilation_design(TEMPLATE)
    assert items == read_assimilation_design("french")[: len(items)]


@pytest.mark.parametrize(
    ("design", "changing"), [("french", {"voi"}), ("english", {"cor", "distr", "lab"})]
)
def test_a_change_is_in_the_assimilating_feature_and_the_viable_word_has_it(design, changing):
    pytest.importorskip("panphon", reason="the extra `phones` is not installed")
    items = read_assimilation_design(design)
    assert len(items) >= 8  # as many groups as an interval needs
    for item in items:
        before, after = articulatory_features(item.phone), articulatory_features(item.changed_phone)
        assert {name for name in before if before[name] != after[name]} <= changing
        assert item.viable[0] in ("b" if design == "french" else "bp")


def test_every_cell_is_spoken_as_the_design_says():
    pytest.importorskip("espeakng_loader", reason="the extra `synthesis` is not installed")
    for design, variants in (("french", ["f4"]), ("english", [""])):
        items = read_assimilation_design(design)
        clips = speak_assimilation_design(items, variants=variants)
        assert len(clips) == 4 * len(items) == len({clip.name for clip in clips})
        for clip in clips:
            item = next(item for item in items if item.target == clip.meta["pair"])
            target = clip.words[clip.target]
            phones = [
                phone
                for phone in clip.tiers["phone"]
                if target.start <= (phone.start + phone.end) / 2 < target.end
            ]
            is_kept = clip.meta["form"] == "kept"
            assert phones[-1].text == (item.phone if is_kept else item.changed_phone)
            assert phones[0].start == target.start
            assert target.text == item.target
            trigger = clip.words[clip.cue].text
            assert trigger == getattr(item, clip.meta["context"])
            assert clip.text == f"{item.before} {item.target} {trigger}"


def test_what_cannot_be_a_design_is_refused(tmp_path):
    header, first, *_ = TEMPLATE.read_text(encoding="utf-8").splitlines()
    for rows, message in (
        ([header], "there is no item"),
        ([header, first, first], "row 3: target 'vache' is there twice"),
        ([header, first.replace("brille", "")], "row 2: viable is empty"),
        ([header.replace("viable", "context")], "viable"),
    ):
        path = tmp_path / "design.tsv"
        path.write_text("\n".join(rows) + "\n", encoding="utf-8")
        with pytest.raises(InputError, match=message):
            read_assimilation_design(path)
    with pytest.raises(InputError, match=r"ending in \.tsv"):
        read_assimilation_design("klingon")
    pytest.importorskip("espeakng_loader", reason="the extra `synthesis` is not installed")
    wrong = tmp_path / "wrong.tsv"
    wrong.write_text(f"{header}\n{first.replace('vage', 'vache')}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"speaks 'vache' as \[v a ʃ\], expected \[ʒ\] at its end"):
        speak_assimilation_design(read_assimilation_design(wrong))
