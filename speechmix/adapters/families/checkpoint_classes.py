"""Which transformers class loads a checkpoint, read off its config."""

from __future__ import annotations

from collections.abc import Mapping

import transformers
from transformers.models.auto import modeling_auto

from ..transformers_types import Config

# Of the classes for a model type the first of these: speech models, then the bare model.
_MAPPINGS = (
    "MODEL_FOR_CTC_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_RNNT_MAPPING_NAMES",
    "MODEL_FOR_TDT_MAPPING_NAMES",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
    "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_MAPPING_NAMES",
)


def checkpoint_class(config: Config, default: str = "AutoModel") -> str:
    """Name the transformers class a checkpoint was saved from; the bare model where that is not
    known."""
    names = [name for name in config.architectures or [] if hasattr(transformers, name)]
    return names[0] if names else default


def class_of_model_type(model_type: str) -> str:
    """Name the class that transformers has for a model type, a speech model if there is one; empty
    for a type that it does not have."""
    names = (getattr(modeling_auto, mapping, {}).get(model_type) for mapping in _MAPPINGS)
    return next((name for name in names if isinstance(name, str)), "")


def ctc_checkpoint_class(config: Config) -> str:
    """Name the auto class of an encoder that may have a CTC head, or a classification head."""
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
