"""Plan the number of workers and their share of GPUs and cores.

In: sources of models, a device, a worker's number. Out: how many workers; variables that the
process of one is started with.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from ...adapters.capture.memory_check import free_bytes, weight_bytes

_PROCESS_BYTES = 2**30  # of Python, torch and transformers, and a clip on its way through a model
_GPU_VARIABLES = "CUDA_VISIBLE_DEVICES"


def plan_workers(
    sources: Sequence[str | Path], *, device: str | None = None, revision: str | None = None
) -> int:
    """How many workers are best on this machine, for models of these sources.

    One for each GPU; without one, one for each thread that torch would use in one process
    (`OMP_NUM_THREADS`, else the cores), as long as memory holds twice the weights of the largest
    model, and 1 GiB, for each.

    Parameters
    ----------
    sources : sequence of str or Path
        Folders or hub ids; of one that is not on this machine yet, the size is unknown and taken
        for nothing.
    device : str, optional
        As in `speechmix.load`: "cpu" leaves GPUs alone, "cuda:1" is one GPU.
    revision : str, optional

    Examples
    --------
    >>> plan_workers([], device="cuda:1")
    1
    """
    if device not in (None, "cpu", "cuda"):
        return 1
    if device != "cpu" and torch.cuda.is_available():
        return torch.cuda.device_count()
    workers = torch.get_num_threads()
    free = free_bytes(torch.device("cpu"))
    if free is None:
        return workers
    largest = max((weight_bytes(source, revision) for source in sources), default=0)
    return max(1, min(workers, free // (2 * largest + _PROCESS_BYTES)))


def assign_gpu(index: int, device: str | None) -> dict[str, str]:
    """Variable that shows a worker one of the GPUs that this process sees, in turn; none to leave
    it as it is."""
    if device not in (None, "cuda") or not torch.cuda.is_available():
        return {}
    names = [name for name in os.environ.get(_GPU_VARIABLES, "").split(",") if name]
    names = names or [*map(str, range(torch.cuda.device_count()))]
    return {_GPU_VARIABLES: names[(index - 1) % len(names)]}


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Have processes that are started now see these variables."""
    original_values = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in original_values.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
