"""What can be done with types of speech model, against runs by hand; with all types, which is the long run
that makes a part of docs/families.md, in a test that is long."""

from __future__ import annotations

import json
import re

import pytest
from transformers.models.auto import modeling_auto

import speechmix
from tests import abilities, mapping_coverage
from tests.abilities import ABILITIES, make_subject
from tests.families_measured import COVERAGE_FILE

_COVERAGE = json.loads(
    COVERAGE_FILE.read_text(encoding="utf-8")
)  # listing the types imports them all
TYPES = {
    (kind, name): dict(getattr(modeling_auto, mapping_coverage.SPEECH_MAPPINGS[kind]))
    for kind, _, name in (key.partition(": ") for key in _COVERAGE)
}
LOADED = [key for key in TYPES if _COVERAGE[": ".join(key)]["status"] == mapping_coverage.LOADS]
QUICK = {
    ("CTC", "wav2vec2"): tuple(ABILITIES),
    ("CTC", "parakeet_ctc"): ("interventions", "explain"),
    ("transducer", "parakeet_rnnt"): ("interventions",),
    ("audio language model", "qwen2_5_omni_thinker"): ("maps",),
    ("audio classifier", "wavlm"): ("maps", "interventions", "explain"),
}
_ERROR = re.compile(r"\de[+-]\d+")


@pytest.mark.parametrize(
    "key",
    [
        # A transducer has the same encoder, and the last test explains the same model.
        pytest.param(key, marks=[pytest.mark.long] * (key == ("CTC", "parakeet_ctc")))
        for key in QUICK
    ],
    ids=" ".join,
)
def test_abilities_are_those_of_runs_by_hand(key):
    subject = make_subject(key[1], TYPES[key])
    for name in QUICK[key]:
        errors = _ERROR.findall(ABILITIES[name](subject))
        assert errors, name
        assert max(map(float, errors)) < 1e-6, name


@pytest.mark.long
@pytest.mark.parametrize("key", LOADED, ids=" ".join)
def test_no_type_has_a_fault(key):
    for name, cell in abilities.measure_type(key[1], TYPES[key]).items():
        assert not cell.startswith("fault"), (name, cell)
        limit = 1e-3 if "float32" in cell else 1e-6  # there, rounding as a share of small changes
        assert all(float(error) < limit for error in _ERROR.findall(cell)), (name, cell)


def test_a_decoder_that_writes_into_encoder_states_leaves_those_of_other_runs():
    """Moonshine Streaming's: each knock-out is the same alone and among others."""
    subject = make_subject("moonshine_streaming", TYPES["speech to text", "moonshine_streaming"])
    options = {"stacks": ["decoder"], "objective": abilities.last_logit}
    both, second = (
        speechmix.knock_out(subject.model, subject.inputs, words=words, batch_size=1, **options)
        for words in ([[1], [3]], [[3]])
    )
    assert both.scores("decoder")[:, 1] == pytest.approx(second.scores("decoder")[:, 0], abs=1e-12)


def test_a_ctc_model_of_word_pieces_places_words_and_explains_each():
    subject = make_subject("parakeet_ctc", TYPES["CTC", "parakeet_ctc"])
    clip = subject.clip.replace(words=None, target=None)
    placed = speechmix.align(clip, model=subject.model, method="ctc")
    assert [word.text for word in placed.words] == abilities.TEXT.split()
    why = speechmix.explain(subject.model, subject.clip, text=abilities.TEXT, measures="occlusion")
    assert [unit.label for unit in why.units] == abilities.TEXT.split()
