"""Every reader of a file that a user or an earlier run wrote."""

from __future__ import annotations

from . import readers_of_inputs, readers_of_results

TARGETS = (*readers_of_results.TARGETS, *readers_of_inputs.TARGETS)
