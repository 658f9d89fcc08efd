"""Which transformers class loads a checkpoint, read off its config."""

from __future__ import annotations

import transformers

from ..transformers_types import Config


def checkpoint_class(config: Config) -> str:
    """Name the transformers class a checkpoint was saved from; the bare model where that is not
    known."""
    names = [name for name in config.architectures or [] if hasattr(transformers, name)]
    return names[0] if names else "AutoModel"


def ctc_checkpoint_class(config: Config) -> str:
    """Name the auto class of an encoder that may have a CTC head."""
    names = config.architectures or []
    return "AutoModelForCTC" if any(name.endswith("ForCTC") for name in names) else "AutoModel"
