"""Clips without a language, read by a Whisper that knows English alone."""

from __future__ import annotations

import numpy as np
import pytest
import transformers

from speechmix import Clip
from speechmix.interfaces.cli.clip_options import add_model_language


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}
    for name, size in (("english", 51_864), ("all", 51_865)):
        made[name] = str(tmp_path_factory.mktemp(name))
        transformers.WhisperConfig(vocab_size=size).save_pretrained(made[name])
    return made


@pytest.mark.parametrize(
    ("models", "changes", "fields", "language"),
    [
        (["english"], {}, {}, "en"),
        ("english", {"align": "synthesis"}, {}, "en"),
        (["english", "all"], {}, {}, None),
        (["english"], {"aligner": "ctc"}, {}, None),
        (["english"], {"align": "whisper"}, {}, None),
        (["english"], {}, {"language": "fr"}, "fr"),
        (["english"], {}, {"text": None}, None),
        (["english"], {}, {"words": [("houses", 0.1, 0.2)]}, None),
        (["nowhere/at all"], {}, {}, None),
    ],
)
def test_only_what_synthesis_must_align_gets_the_only_language(
    folders, models, changes, fields, language
):
    clip = Clip.from_array(np.zeros(8_000), 16_000, name="a", text="houses").replace(**fields)
    sources = [folders.get(name, name) for name in models]
    options = {"model": sources if isinstance(models, list) else folders[models], "align": "auto"}
    (got,) = add_model_language([clip], {**options, **changes})
    assert got.language == language
