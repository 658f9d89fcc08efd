"""Find the weights of linear layers in an ONNX graph whose exporter lost their names.

In: a file. Out: weights by the names that they had in PyTorch. Exporters keep the names of biases, norms,
convolutions and embeddings; a matrix becomes a constant without a name. It is named after the bias that
is added behind it; the keys of attention, which have no bias in Whisper, are what the queries are
multiplied with. Quantised weights, dynamic or static, are dequantised; quantised activations are left
out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import MissingExtraError, ModelError
from .byte_reader import damaged_file_error

_PRODUCTS = ("MatMul", "Gemm", "MatMulInteger")
# What lies between a product and the next one, and changes no number but by a constant factor.
_PASSED = (
    "Reshape",
    "Transpose",
    "Mul",
    "Div",
    "Add",
    "Cast",
    "Identity",
    "Unsqueeze",
    "Squeeze",
    "QuantizeLinear",
    "DequantizeLinear",
    "DynamicQuantizeLinear",
)
_MAX_STEPS = 24


class OnnxGraph:
    """Nodes and constants of a model; of a branch (with or without cached keys) the one without."""

    def __init__(self, path: Path) -> None:
        try:
            import onnx
        except ImportError as error:
            raise MissingExtraError("onnx", "engines", f"the model {path}") from error
        self.path = path
        self._to_array = onnx.numpy_helper.to_array
        try:
            graphs = [*_graphs(onnx.load(path).graph)]
        except Exception as error:  # of protobuf, and of files beside it
            raise damaged_file_error(path, "model of ONNX", error) from error
        self._nodes = [node for graph in graphs for node in graph.node]
        self._constants = {value.name: value for graph in graphs for value in graph.initializer}
        quantised_last = sorted(self._constants, key=lambda name: "_quantized" in name)
        self._stored_names = {_original_name(name): name for name in reversed(quantised_last)}
        self._producers = {name: node for node in self._nodes for name in node.output if name}
        self._consumers: dict[str, list[Any]] = defaultdict(list)
        for node in self._nodes:
            for name in node.input:
                self._consumers[name].append(node)

    @property
    def names(self) -> set[str]:
        """Names of constants as they were before quantisation and before optimum merged decoders."""
        return set(self._stored_names)

    @property
    def has_quantised_activations(self) -> bool:
        """Whether values that are no constants are rounded, by scales that the file holds."""
        return any(
            node.op_type == "QuantizeLinear" and self.array(node.input[0]) is None
            for node in self._nodes
        )

    def types(self) -> str:
        """Name the type that most weights are stored in."""
        names = {1: "f32", 2: "uint8", 3: "int8", 10: "f16", 16: "bf16"}
        sizes: dict[str, int] = defaultdict(int)
        for value in self._constants.values():
            sizes[names.get(value.data_type, "other")] += int(np.prod(value.dims, dtype=object))
        return max(sizes, key=lambda name: sizes[name], default="none")

    def array(self, name: str) -> np.ndarray | None:
        """Return a constant, dequantised; None for what depends on the input."""
        if name in self._constants:
            return np.asarray(self._to_array(self._constants[name]))
        node = self._producers.get(name)
        if node is None:
            return None
        if node.op_type == "Constant":
            return np.asarray(self._to_array(node.attribute[0].t))
        if node.op_type == "DequantizeLinear":
            value, *scale = (self.array(part) for part in node.input)
            return None if value is None else _dequantise(value, scale, _attribute(node, "axis", 1))
        if node.op_type in ("Identity", "Cast", "Transpose"):
            value = self.array(node.input[0])
            order = _attribute(node, "perm", None) if node.op_type == "Transpose" else None
            return value if value is None or node.op_type != "Transpose" else value.transpose(order)
        return None

    def named(self, name: str) -> np.ndarray:
        """Return a constant by the name that it had in PyTorch; a ModelError if there is none."""
        stored_name = self._stored_names.get(name, name)
        value = self.array(stored_name)
        if value is not None and "_quantized" in stored_name:
            return _dequantise(value, self._scale(stored_name), 0)
        if value is not None:
            return value
        raise ModelError(f"{self.path}: damaged, or another model: no weight {name!r:.90}")

    def _scale(self, name: str) -> list[np.ndarray | None]:
        """Scale and zero point of a quantised constant, of a decoder merged before or after."""
        for prefix in (re.sub(r"_quantized(_merged_\d+)?$", "", name), name):
            parts = [self.array(f"{prefix}_{part}") for part in ("scale", "zero_point")]
            if parts[0] is not None:
                return parts
        return [None]

    def linear_weights(self) -> dict[str, np.ndarray]:
        """Return the matrices [out, in] of linear layers by name, ``...weight``."""
        weights: dict[str, np.ndarray | str] = {}
        outputs: dict[str, np.ndarray] = {}
        for node in self._nodes:
            if node.op_type in _PRODUCTS and (matrix := self._matrix(node)) is not None:
                outputs[node.output[0]] = matrix
                if (name := self._bias_behind(node)) is not None:
                    weights[f"{name}.weight"] = matrix
                    if name.endswith("q_proj"):
                        keys = self._multiplied_with(node.output[0])
                        weights[name.removesuffix("q_proj") + "k_proj.weight"] = keys
        return {
            name: outputs[value] if isinstance(value, str) else value
            for name, value in weights.items()
            if not isinstance(value, str) or value in outputs
        }

    def added_constant(self, shape: tuple[int, int]) -> np.ndarray | None:
        """Return the constant of a shape that is added somewhere: positions, whose name may be lost."""
        for node in self._nodes:
            for name in node.input if node.op_type == "Add" else ():
                value = self.array(name)
                if value is not None and value.shape[-2:] == shape and value.size == np.prod(shape):
                    return value.reshape(shape)
        return None

    def _matrix(self, node: Any) -> np.ndarray | None:
        """The constant [out, in] that a product multiplies with; None for a product of two inputs."""
        value = self.array(node.input[1])
        if value is None or value.ndim != 2:
            return None
        if (
            node.op_type == "MatMulInteger"
        ):  # behind it the scale of the input times that of the matrix
            zero = self.array(node.input[3]) if len(node.input) > 3 else None
            return _dequantise(value, [self._scale(node.input[1])[0], zero], 1).T
        return value if _attribute(node, "transB", 0) else value.T

    def _bias_behind(self, node: Any) -> str | None:
        if node.op_type == "Gemm" and len(node.input) > 2:
            return self._named_bias(node.input[2])
        for _ in range(5):  # Cast, Mul of scales, QuantizeLinear, DequantizeLinear, Add
            behind = self._consumers[node.output[0]]
            if len(behind) != 1 or behind[0].op_type not in _PASSED:
                return None
            node = behind[0]
            if node.op_type == "Add":
                return next(filter(None, map(self._named_bias, node.input)), None)
        return None

    def _named_bias(self, name: str) -> str | None:
        for _ in range(_MAX_STEPS):  # a damaged graph may go in circles
            node = self._producers.get(name)
            if node is None or node.op_type not in _PASSED:
                break
            name = node.input[0]
        name = _original_name(name)
        is_bias = name.endswith(".bias") and name in self._stored_names
        return name.removesuffix(".bias") if is_bias else None

    def _multiplied_with(self, queries: str) -> str:
        """Output of the product with a constant that the queries are multiplied with: the keys."""
        names = [queries]
        for _ in range(_MAX_STEPS):
            behind = [node for name in names for node in self._consumers[name]]
            for node in behind:
                if node.op_type == "MatMul" and self._matrix(node) is None:
                    other = next(name for name in node.input if name not in names)
                    return self._product_before(other)
            names = [node.output[0] for node in behind if node.op_type in _PASSED]
        return ""

    def _product_before(self, name: str) -> str:
        for _ in range(_MAX_STEPS):
            node = self._producers.get(name)
            if node is None or node.op_type in _PRODUCTS:
                return name
            changing = [part for part in node.input if self.array(part) is None]
            if node.op_type not in _PASSED or not changing:
                return ""
            name = changing[0]
        return ""


def _graphs(graph: Any) -> Iterator[Any]:
    """Yield a graph and those within it; of two branches the second, without cached keys."""
    yield graph
    for node in graph.node:
        if node.op_type == "If":
            for attribute in node.attribute:
                if attribute.name == "else_branch":
                    yield from _graphs(attribute.g)


def _original_name(name: str) -> str:
    """Name of a weight in PyTorch: optimum adds "_merged_0" to those that two decoders share."""
    return re.sub(r"(_merged_\d+|_quantized)+$", "", name)


def _attribute(node: Any, name: str, default: Any) -> Any:
    for attribute in node.attribute:
        if attribute.name == name:
            return list(attribute.ints) or attribute.i
    return default


def _dequantise(value: np.ndarray, scale: list[np.ndarray | None], axis: int) -> np.ndarray:
    factor, zero = scale[0], scale[1] if len(scale) > 1 else None
    if factor is None:
        raise ValueError("a quantised weight without a scale")

    def along_axis(numbers: np.ndarray) -> np.ndarray:
        if numbers.size == 1:
            return numbers.astype(np.float32).reshape([1] * value.ndim)
        if numbers.size != value.shape[axis]:  # else two lengths would be multiplied
            raise ValueError(f"{numbers.size} scales of a weight of the shape {value.shape}")
        shape = [1] * value.ndim
        shape[axis] = numbers.size
        return numbers.astype(np.float32).reshape(shape)

    numbers = value.astype(np.float32)
    numbers = numbers if zero is None else numbers - along_axis(zero)
    return np.asarray(numbers * along_axis(factor))
