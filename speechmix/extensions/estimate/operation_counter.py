"""Count tensor operations by torch's formulas, without hooks on modules.

In: code that runs inside the context manager. Out: floating-point operations; a multiplication and
an addition are two.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from ...adapters.transformers_types import HookArguments, HookKeywords


class OperationCounter(TorchDispatchMode):
    """Count the operations of tensors while the block lasts, as torch's formulas have them.

    On the meta device there are no numbers: whoever asks for one is told yes (one), as in "nothing
    is padded". Unlike torch's `FlopCounterMode` it hooks no modules, so that what runs within may
    differentiate.

    Examples
    --------
    >>> with OperationCounter() as counter:
    ...     product = torch.ones(2, 3, device="meta") @ torch.ones(3, 5, device="meta")
    ...     answer = bool((product == 0).all())
    >>> counter.operations, answer
    (60, True)
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = 0

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: HookArguments = (),
        kwargs: HookKeywords | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:
            return torch.ones((), dtype=args[0].dtype).item()
        result = func(*args, **kwargs)
        formula = flop_registry.get(func.overloadpacket)
        if formula is not None:
            self.operations += formula(*args, **kwargs, out_val=result)
        return result
