"""One tokenizer for the files of other engines, which tests that do not look at it share."""

from __future__ import annotations

import pytest

from speechmix.extensions.engines import whisper_tokens
from tests.formats import writers


@pytest.fixture(scope="session")
def tokenizer():
    special = whisper_tokens.special_tokens(writers.ENGLISH, "file")
    return whisper_tokens.create_tokenizer(writers.made_up_tokens(), special, "file")


@pytest.fixture
def quick_tokenizer(tokenizer, monkeypatch):
    """One tokenizer for all files: each would take a second."""
    monkeypatch.setattr(whisper_tokens, "create_tokenizer", lambda *_: tokenizer)
