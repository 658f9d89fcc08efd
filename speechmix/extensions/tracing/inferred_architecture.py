"""The result of tracing: stacks that were found, and a report of what was and was not understood."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields

from ...adapters.families.specs import AttentionSpec, ConvolutionSpec, FeedForwardSpec, StackSpec

_Spec = StackSpec | AttentionSpec | FeedForwardSpec | ConvolutionSpec
_CLASSES = (StackSpec, AttentionSpec, FeedForwardSpec, ConvolutionSpec)


@dataclass(frozen=True)
class InferredArchitecture:
    """Stacks of a model that were found by tracing.

    Parameters
    ----------
    name : str
        Class of the model.
    model_type : str
        Its ``config.model_type``.
    stacks : tuple of StackSpec
        Paths are relative to the base model.
    findings : tuple of str
        Sentences about what was found.
    unknowns : tuple of str
        Sentences about what was not understood, or is not in the table.
    heads : dict of str to int
        Attention heads of each stack.

    Examples
    --------
    >>> spec = StackSpec("encoder", "layers", (AttentionSpec.of("attn"),), "pre")
    >>> found = InferredArchitecture("MyModel", "mine", (spec,), ("1 stack",), ())
    >>> print(found.text())
    MyModel (model type 'mine'): 1 stack found
    found:
      1 stack
    """

    name: str
    model_type: str
    stacks: tuple[StackSpec, ...]
    findings: tuple[str, ...]
    unknowns: tuple[str, ...]
    heads: dict[str, int] = field(default_factory=dict)

    def text(self) -> str:
        """Return the report, a line for each sentence."""
        count = len(self.stacks)
        lines = [
            f"{self.name} (model type {self.model_type!r}): {count} stack{'s' * (count != 1)} found"
        ]
        for title, sentences in (
            ("found", self.findings),
            ("not understood, or not in the table", self.unknowns),
        ):
            if sentences:
                lines += [f"{title}:", *(f"  {sentence}" for sentence in sentences)]
        return "\n".join(lines)

    def table_source(self) -> str:
        """Return the table as the text of a Python file, for review.

        Examples
        --------
        >>> spec = StackSpec("encoder", "layers", (AttentionSpec.of("attn"),), "pre")
        >>> source = InferredArchitecture("MyModel", "mine", (spec,), (), ()).table_source()
        >>> variables = {}
        >>> exec(source, variables)
        >>> variables["STACKS"] == (spec,)
        True
        """
        comments = [f"# {line}".rstrip() for line in self.text().splitlines()]
        return "\n".join(
            [
                f'"""Stacks of {self.name}, found by tracing. Review them before use."""',
                "",
                "from speechmix.adapters import AttentionSpec, ConvolutionSpec, FeedForwardSpec, StackSpec",
                "",
                *comments,
                f"MODEL_TYPE = {self.model_type!r}",
                "STACKS = (",
                *(f"    {line}" for spec in self.stacks for line in _format_spec(spec, ",")),
                ")",
                "",
            ]
        )


def _format_spec(spec: _Spec, end: str) -> Iterator[str]:
    """Lines of the call that makes a spec; values that are the default are left out."""
    yield f"{type(spec).__name__}("
    for spec_field in fields(spec):
        value = getattr(spec, spec_field.name)
        if spec_field.default is not MISSING and value == spec_field.default:
            continue
        if isinstance(value, _CLASSES):
            first, *rest = _format_spec(value, ",")
            yield f"    {spec_field.name}={first}"
            yield from (f"    {line}" for line in rest)
        elif isinstance(value, tuple) and value and isinstance(value[0], _CLASSES):
            yield f"    {spec_field.name}=("
            for item in value:
                yield from (f"        {line}" for line in _format_spec(item, ","))
            yield "    ),"
        else:
            yield f"    {spec_field.name}={value!r},"
    yield f"){end}"
