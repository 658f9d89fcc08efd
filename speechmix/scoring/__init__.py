"""From a model and a clip (or a text, or prepared inputs) to mixing maps: `mix`."""

from .forward import mix

__all__ = ["mix"]
