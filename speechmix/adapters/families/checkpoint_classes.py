"""Which transformers class loads a checkpoint, read off its config."""

from __future__ import annotations

from collections.abc import Mapping

import transformers

from ..transformers_types import Config


def checkpoint_class(config: Config) -> str:
    """Name the transformers class a checkpoint was saved from; the bare model where that is not
    known."""
    names = [name for name in config.architectures or [] if hasattr(transformers, name)]
    return names[0] if names else "AutoModel"


def ctc_checkpoint_class(config: Config) -> str:
    """Name the auto class of an encoder that may have a CTC head, or one that gives labels."""
    return class_of_head(
        config,
        {
            "ForCTC": "AutoModelForCTC",
            "ForSequenceClassification": "AutoModelForAudioClassification",
        },
        "AutoModel",
    )


def class_of_head(config: Config, class_by_ending: Mapping[str, str], default: str) -> str:
    """Name the class for the head that a checkpoint was saved with, by how its class name ends."""
    return next(
        (
            class_name
            for ending, class_name in class_by_ending.items()
            if any(name.endswith(ending) for name in config.architectures or [])
        ),
        default,
    )
