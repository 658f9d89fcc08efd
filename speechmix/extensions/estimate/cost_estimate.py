"""Estimate: parameters, memory and seconds of a run, as a table and in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .operation_count import Operations

if TYPE_CHECKING:
    import pandas as pd

# Operations a second in float32 (no tensor cores, which round), in billions, as their makers state
# them.
GPU_PEAKS = {"NVIDIA A100": 19_500.0, "NVIDIA H100 SXM": 67_000.0, "NVIDIA RTX 4090": 82_600.0}
GPU_SHARE = 0.4  # of the peak
SHARE_OF_PRODUCTS = (
    0.75  # of the rate of one matrix product, reached by whole passes and measures on a CPU
)


def format_seconds(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 180:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@dataclass(frozen=True)
class Estimate:
    """What scoring some clips with a model, and with random twins of it, takes.

    Attributes
    ----------
    model : str
    parameters : int
        Counted.
    stacks : dict of str to (layers, heads, width)
        Counted.
    operations : Operations
        Floating-point operations of one clip, counted.
    clips, seconds, twins
        As asked; seconds is the length of a clip.
    weight_bytes, activation_bytes, measure_bytes : int
        Bytes, computed: of the weights in float32; of the widest layer of a forward pass; of what
        measures hold beside it (attention of some rows, pairs of rows and sources, matrices made of
        the weights, sounds heard last).
    device : str
        Where the rate was measured, with the number of threads on a CPU.
    rate : float
        Billions of operations a second that a matrix product of the model's shape reaches there,
        measured.
    """

    model: str
    parameters: int
    stacks: dict[str, tuple[int, int, int]]
    operations: Operations
    clips: int
    seconds: float
    twins: int
    weight_bytes: int
    activation_bytes: int
    measure_bytes: int
    device: str
    rate: float

    @property
    def memory_bytes(self) -> int:
        """Bytes beside Python and torch themselves; models are taken one after the other, so twins
        need no more."""
        return self.weight_bytes + self.activation_bytes + self.measure_bytes

    @property
    def seconds_per_clip(self) -> float:
        """On this device, from the measured rate."""
        return self.operations.total / (self.rate * 1e9 * SHARE_OF_PRODUCTS)

    @property
    def total_seconds(self) -> float:
        """Of all clips, with the model and each of its twins."""
        return self.seconds_per_clip * self.clips * (1 + self.twins)

    @property
    def gpu_seconds_per_clip(self) -> dict[str, float]:
        """By card, of the arithmetic alone: computed, not measured."""
        return {
            card: self.operations.total / (peak * 1e9 * GPU_SHARE)
            for card, peak in GPU_PEAKS.items()
        }

    @property
    def row(self) -> dict[str, object]:
        """The numbers that a table of models has in a row."""
        gpu_seconds = self.gpu_seconds_per_clip
        return {
            "model": self.model,
            "million parameters": round(self.parameters / 1e6, 1),
            "stacks (layers x heads)": ", ".join(
                f"{name} {n} x {heads}" for name, (n, heads, _) in self.stacks.items()
            ),
            "width": max(width for _, _, width in self.stacks.values()),
            "memory (GB)": round(self.memory_bytes / 1e9, 2),
            "GFLOP a clip": round(self.operations.total / 1e9, 1),
            "of it the forward pass (%)": round(
                100 * self.operations.forward / self.operations.total
            ),
            "s a clip here": _round_to_two_digits(self.seconds_per_clip),
            **{
                f"s a clip, {card}": _round_to_two_digits(seconds)
                for card, seconds in gpu_seconds.items()
            },
        }

    def to_dataframe(self) -> pd.DataFrame:
        """Return the numbers as a table of one row; `pandas.concat` joins the tables of several
        models."""
        import pandas as pd

        return pd.DataFrame([self.row])

    def text(self) -> str:
        """Lines for people; each says whether its numbers are counted, measured or computed."""
        operations, gpu_seconds = self.operations, self.gpu_seconds_per_clip
        parts = [
            ("forward pass", operations.forward),
            ("reading attention", operations.attention_reading),
        ]
        shares = ", ".join(
            f"{name} {_format_billions(n)}"
            for name, n in (*parts, *operations.measures.items())
            if n
        )
        layers = ", ".join(
            f"{name} {n} layers x {heads} heads" for name, (n, heads, _) in self.stacks.items()
        )
        twins = f" and {self.twins} random twin{'s' * (self.twins > 1)}" if self.twins else ""
        lines = [
            f"{self.model}: {self.parameters / 1e6:,.1f} million parameters; {layers} (counted)",
            f"  memory      {self.memory_bytes / 1e9:.2f} GB: weights {self.weight_bytes / 1e9:.2f}, a "
            "forward pass "
            f"{self.activation_bytes / 1e9:.2f}, measures {self.measure_bytes / 1e9:.2f} (computed)",
            f"  operations  {_format_billions(operations.total)} GFLOP for a clip of {self.seconds:g} s: "
            f"{shares} (counted)",
            f"  here        {format_seconds(self.seconds_per_clip)} a clip, {format_seconds(self.total_seconds)} "
            f"for {self.clips} "
            f"clip{'s' * (self.clips > 1)} with the model{twins} (computed; {self.device}: "
            f"{self.rate:,.0f} GFLOP/s measured, "
            f"{SHARE_OF_PRODUCTS:.0%} of it taken)",
            "  on a GPU    "
            + ", ".join(
                f"{card} {format_seconds(seconds)}" for card, seconds in gpu_seconds.items()
            )
            + f" a clip (computed from {GPU_SHARE:.0%} of the peak in float32, not measured)",
        ]
        if operations.uncounted:
            lines.append(
                f"  not counted: {', '.join(operations.uncounted)}, which differentiate the whole "
                "model"
            )
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()


def _format_billions(number: int) -> str:
    return f"{number / 1e9:,.1f}" if number >= 1e8 else f"{number / 1e9:.1g}"


def _round_to_two_digits(number: float) -> float:
    """Two digits: an estimate has no more."""
    return float(f"{number:.2g}")
