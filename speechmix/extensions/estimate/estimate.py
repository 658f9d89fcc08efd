"""What a run costs before it is begun: parameters, memory, seconds a clip on this machine and on a
GPU that is not here.

In: a hub id, a folder or a model, and what is to be asked. Out: an `Estimate`. Parameters, layers
and operations are counted on a model without weights; how fast this device multiplies matrices is
measured in a fraction of a second; seconds are operations by that rate, at a share of it that whole
passes were measured to reach. Seconds on a GPU are computed from the rate it is sold with. Each
number says which of the three it is.

Estimate: parameters, memory and seconds of a run, as a table and in words.

How many groups of clips a study needs, from a pilot run.

In: a run of a few clips with trained models and some twins. Out: for each primary row (whole stacks by
the leading measure) and each difference the number of groups that finds it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import torch

from ...adapters.binding.bound_layers import Stack, projection_weight
from ...adapters.capture.model_use import MAX_FEATURE_BYTES, MAX_STATE_BYTES
from ...adapters.delta_engine.matrix_products import MAX_STORED_BYTES
from ...adapters.model import Model
from ...adapters.transformers_types import PretrainedModule
from ...errors import InputError
from ...evaluation.statistics.claim_rule import DEFAULT_TWINS
from ...evaluation.statistics.random_twin_comparison import groups_for_difference
from ...mixing.passes.batches import ATTENTION_FLOATS, CPU_BATCH_BYTES, clip_bytes
from ...reporting.pages.cue_need_sentences import main_measure
from ...reporting.pages.study_results import Study
from .operation_count import Operations, build_meta_model, count_operations

if TYPE_CHECKING:
    from ...runs.results.open_run import StoredRun
    from ...runs.scored_run import Run

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


_MEASURED_SECONDS = 0.25


def estimate(
    source: str | Path | Model | PretrainedModule,
    *,
    clips: int = 1,
    seconds: float = 5.0,
    measures: str | Sequence[str] = ("value_zeroing",),
    targets: str | None = None,
    stacks: Sequence[str] | None = None,
    twins: int = 0,
    device: str | torch.device | None = None,
    revision: str | None = None,
) -> Estimate:
    """Estimate what it takes to score clips with a model, from its config alone.

    Parameters
    ----------
    source : str, Path, Model or transformers.PreTrainedModel
        As for `speechmix.load`. Of a hub id only the config is downloaded.
    clips : int
        How many.
    seconds : float
        Length of one, with 2.5 words a second and 1.5 tokens a word. A Whisper's encoder hears its
        whole window whatever the clip. For text models: a sentence that takes so long to say.
    measures : str or sequence of str
        As for `speechmix.mix`. Those that differentiate the whole model are named, and not counted.
    targets : {"target"}, optional
        Only the rows of a clip's target word, as `speechmix score --target-rows-only`; the whole
        map by default.
    stacks : sequence of str, optional
    twins : int
        Random twins that hear the same clips.
    device : str or torch.device, optional
        Whose rate is measured; by default where `speechmix.load` would put the model (a loaded
        model: where it is).
    revision : str, optional
        Branch, tag or commit on the hub.

    Returns
    -------
    Estimate
        Parameters and operations are exact, those of a first clip. Seconds here were within a
        factor of 2 of what Whisper's shapes took (target rows), by a rate measured while little
        else ran; other families and whole maps were not held against a clock. They leave out
        loading, alignment, figures and files. Memory is what tensors take beside Python and torch,
        computed and not measured.

    Raises
    ------
    InputError
        For options that `mix` would refuse, too, and a clip that is too long for the model.
    ModelError
        For a source that is none, or an unsupported architecture.

    Examples
    --------
    >>> import transformers
    >>> config = transformers.WhisperConfig(d_model=384, encoder_layers=4, decoder_layers=4, encoder_attention_heads=6,
    ...     decoder_attention_heads=6, encoder_ffn_dim=1536, decoder_ffn_dim=1536)
    >>> tiny = estimate(transformers.WhisperForConditionalGeneration(config), clips=40, twins=1)
    >>> tiny.parameters, tiny.stacks["encoder"]
    (37760640, (4, 6, 384))
    """
    _check_counts(clips=(clips, 1), twins=(twins, 0))
    if not (isinstance(seconds, (int, float)) and 0 < seconds < float("inf")):
        raise InputError(f"seconds should be the length of a clip, more than 0, found {seconds!r}")
    if targets not in (None, "target"):
        raise InputError(f"targets should be 'target' or None for the whole map, found {targets!r}")
    if device is None:
        model_device = getattr(source, "device", None)
        device = (
            model_device
            if isinstance(model_device, torch.device)
            else "cuda"
            if torch.cuda.is_available()
            else "cpu"
        )
    model = build_meta_model(source, revision=revision)
    measure_names = [measures] if isinstance(measures, str) else list(measures)
    operations = count_operations(
        model, seconds=seconds, measures=measure_names, targets=targets, stacks=stacks
    )
    widest_stack = max(model.stacks.values(), key=lambda stack: stack.width)
    rate = measure_matmul_rate(
        device, width=widest_stack.width, inner=_feed_forward_width(widest_stack)
    )
    torch_device = torch.device(device)
    threads = torch.get_num_threads()
    return Estimate(
        model=model.name,
        parameters=sum(weight.numel() for weight in model.module.parameters()),
        stacks={
            stack.name: (len(stack), stack.heads, stack.width) for stack in model.stacks.values()
        },
        operations=operations,
        clips=clips,
        seconds=float(seconds),
        twins=twins,
        weight_bytes=sum(
            weight.nbytes for weight in (*model.module.parameters(), *model.module.buffers())
        ),
        activation_bytes=clip_bytes(model),
        measure_bytes=_measure_bytes(model),
        device=f"{torch_device}, {threads} thread{'s' * (threads > 1)}"
        if torch_device.type == "cpu"
        else str(torch_device),
        rate=rate,
    )


def measure_matmul_rate(
    device: torch.device | str, *, width: int, inner: int, rows: int = 256
) -> float:
    """Billions of operations a second that a device reaches in the product [rows, width] x [width,
    inner] in float32.

    Takes a fraction of a second; the quickest of several, so that what else the machine does counts
    little.
    """
    states, weight = torch.ones(rows, width, device=device), torch.ones(width, inner, device=device)
    on_gpu, min_seconds, start_time = (
        torch.device(device).type == "cuda",
        float("inf"),
        time.perf_counter(),
    )
    repeats = 20 if on_gpu else 1
    while min_seconds == float("inf") or time.perf_counter() - start_time < _MEASURED_SECONDS:
        start = time.perf_counter()
        for _ in range(repeats):
            states @ weight
        if on_gpu:
            torch.cuda.synchronize(device)
        min_seconds = min(min_seconds, (time.perf_counter() - start) / repeats)
    return 2e-9 * rows * width * inner / min_seconds


def _check_counts(**counts: tuple[object, int]) -> None:
    for name, (number, minimum) in counts.items():
        if not isinstance(number, int) or number < minimum:
            raise InputError(
                f"{name} should be a whole number of at least {minimum}, found {number!r}"
            )


def _feed_forward_width(stack: Stack) -> int:
    """Width of a stack's feed-forwards."""
    return max(
        (
            projection_weight(feed_forward.up).shape[0]
            for feed_forward in stack.layers[0].feed_forwards
        ),
        default=4 * stack.width,
    )


def _measure_bytes(model: Model) -> int:
    """Bytes that measures hold at most beside a forward pass, on a CPU."""
    product_bytes = sum(
        4 * len(stack) * _feed_forward_width(stack) * stack.width
        for stack in model.stacks.values()
        if stack.spec.feed_forwards
    )
    cache_bytes = MAX_FEATURE_BYTES + MAX_STATE_BYTES if model.hears else 0
    return (
        CPU_BATCH_BYTES + 4 * ATTENTION_FLOATS + min(product_bytes, MAX_STORED_BYTES) + cache_bytes
    )


def groups_needed(
    pilot: str | PathLike[str] | Run | StoredRun,
    *,
    differences: Sequence[float] = (5.0, 10.0, 15.0),
    twins: int = DEFAULT_TWINS,
    group: str | None = None,
) -> pd.DataFrame:
    """Say how many groups of clips find a difference to untrained models in 80 % of studies.

    Parameters
    ----------
    pilot : path, Run or StoredRun
        A run of some clips (eight groups or more tell the spread roughly) with two twins or more.
    differences : sequence of float
        In percentage points.
    twins : int
        Of the planned study.
    group : str, optional
        Column of the clip table that says which clips belong together.

    Returns
    -------
    DataFrame
        side, model, stack, measure, group_sd (points, over groups of the pilot), twin_sd, and a column
        for each difference with the number of groups; missing where no number is enough. The
        spread of a pilot is known only roughly: with 10 groups the number may be half or three times
        as large.

    Raises
    ------
    InputError
        If the pilot has no trained model with two twins and two groups.

    Examples
    --------
    >>> speechmix.groups_needed("runs/pilot")  # doctest: +SKIP
    """
    study = Study.open(pilot, group=group)
    rows = main_measure(study.headline) if len(study.headline) else study.headline
    if rows.empty or not rows["twin_sd"].notna().any() or not rows["group_sd"].notna().any():
        raise InputError(
            "a pilot run needs a cue and a target, a trained model, two untrained twins and two groups of "
            "clips: score it with --twins 2 or more"
        )
    result = rows[["side", "model", "stack", "measure", "group_sd", "twin_sd"]].copy()
    for difference in differences:
        counts = [
            groups_for_difference(
                difference, row["group_sd"], row["twin_sd"], twins=twins, rows=int(row["rows"])
            )
            for row in rows.to_dict("records")
        ]
        result[f"{difference:g} points"] = pd.array(counts, dtype="Int64")
    return result.reset_index(drop=True)
