"""What can be read off a model's states, layer by layer: probes with their baselines. Start at
probe.py."""

from .probe import probe
from .probe_results import Probes

__all__ = ["Probes", "probe"]
