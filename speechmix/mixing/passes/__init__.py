"""From a model and a clip (or a text, or prepared inputs) to mixing maps: `mix`. Start at
forward_pass.py."""
