"""What must not change a sentence: idle layers, order of heads, clips and names, copies. A model
that hears nothing says so."""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from torch import nn

import speechmix
from speechmix.inputs import bundled
from speechmix.reporting.pages.cue_need_sentences import short_answers
from speechmix.reporting.pages.result_sentences import result_sentences
from speechmix.reporting.pages.study_results import add_clip_groups
from speechmix.reporting.pages.study_tables import (
    contribution_cells,
    layer_rows,
    stack_rows,
    study_table,
)
from speechmix.runs.results.tidy_tables import add_identity, clip_table, list_share_rows
from tests.models.changed_models import deaf, padded, permuted

SOURCE = bundled.models()["tiny-french-whisper"]
CLIPS = [
    clip
    for clip in bundled.clips()
    if clip.meta["side"] == "left" and clip.meta.get("control") != "yes"
][:4]
MEASURES = ("value_zeroing", "attention")
TWINS = 2


@functools.cache  # changes are made to copies
def loaded(seed: int | None) -> speechmix.adapters.Model:
    init = {} if seed is None else {"init": "random", "seed": seed}
    return speechmix.load(SOURCE, **init)


def contributions(
    change: Callable[[nn.Module], nn.Module] | None = None, *, measures: tuple[str, ...] = MEASURES
) -> pd.DataFrame:
    """Cue contributions of the trained model and of its twins, all changed alike."""
    parts = []
    for seed in (None, *range(TWINS)):
        model = loaded(seed)
        scored = model if change is None else reloaded(change(model.module))
        for clip in CLIPS:
            maps = speechmix.mix(scored, clip, measures=measures)
            parts.append(
                add_identity(pd.DataFrame(list_share_rows(maps, clip, scored)), clip, model)
            )
    return pd.concat(parts, ignore_index=True)


def reloaded(module: nn.Module) -> speechmix.adapters.Model:
    """A changed model, from a folder in hub format."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(SOURCE, folder, dirs_exist_ok=True)
        module.save_pretrained(folder)
        return speechmix.load(
            folder, check=False
        )  # the self-check refuses a layer in which nothing has an effect


def cells_of(table: pd.DataFrame, clips: pd.DataFrame | None = None) -> pd.DataFrame:
    return contribution_cells(
        study_table(table, add_clip_groups(clip_table(CLIPS) if clips is None else clips))
    )


def said(cells: pd.DataFrame) -> list[str]:
    stacks = stack_rows(cells)
    return [*result_sentences(stacks, max_sentences=99), *short_answers(stacks, pd.DataFrame())]


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return contributions()


def test_idle_layers_change_no_sentence(table):
    found = cells_of(contributions(padded))
    layers = layer_rows(found)
    idle = layers[layers["layer"] % 2 == 0]
    assert (idle["mixing_strength"] < 0.01).all()
    assert (layers.loc[layers["layer"] % 2 == 1, "mixing_strength"] > 0.01).all()
    assert (idle["trained"] > 5).any(), "their shares look like any other's"
    numbers = ["trained", "random", "difference", "mixing_strength"]
    expected = stack_rows(cells_of(table))
    np.testing.assert_allclose(stack_rows(found)[numbers], expected[numbers], atol=0.02)
    assert said(found) == said(cells_of(table))


def test_the_order_of_heads_changes_no_sentence(table):
    found, expected = cells_of(contributions(permuted)), cells_of(table)
    assert said(found) == said(expected)
    np.testing.assert_allclose(found["trained"], expected["trained"], atol=1e-3)


def test_order_names_and_copies_of_clips_change_no_sentence(table):
    expected = said(cells_of(table))
    clips = clip_table(CLIPS)
    assert (
        said(cells_of(table.sample(frac=1, random_state=1), clips.sample(frac=1, random_state=2)))
        == expected
    )
    names = {name: f"x{number}" for number, name in enumerate(reversed(clips["clip"].tolist()))}
    renamed = (part.assign(clip=part["clip"].map(names)) for part in (table, clips))
    assert said(cells_of(*renamed)) == expected
    first = clips["clip"].iloc[0]
    copied = [
        pd.concat([part, part[part["clip"] == first].assign(clip="copy")])
        for part in (table, clips)
    ]
    assert said(cells_of(*(part.reset_index(drop=True) for part in copied))) == expected
    other_model = [text.replace("tiny-french-whisper", "renamed") for text in expected]
    assert said(cells_of(table.assign(model="renamed"))) == other_model


def test_a_deaf_decoder_is_said_to_move_nothing():
    found = stack_rows(cells_of(contributions(deaf, measures=("value_zeroing",))))
    cross = found[found["stack"] == "cross"]
    assert (cross["mixing_strength"] < 0.01).all()
    assert (cross["claim"] == "").all()
    (answer,) = short_answers(found, pd.DataFrame())
    assert "Cross-attention changes the target's representation by only" in answer
    (sentence,) = [text for text in result_sentences(found) if "cross-attention" in text]
    assert "so nothing is concluded from the cue's share there" in sentence
