"""Find the stacks of a model by tracing one forward pass.

In: a small random model of transformers and inputs for it. Out: an `InferredArchitecture`. Nothing is
guessed: each path is that of a module whose recorded input and output show what it does. What was
not understood is left out and reported.

The result of tracing: stacks that were found, and a report of what was and was not understood.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace

import torch
from torch import Tensor, nn

from ...adapters.capture.forward_pass import use_attention
from ...adapters.capture.model_use import isolated_random_numbers
from ...adapters.families.specs import AttentionSpec, ConvolutionSpec, FeedForwardSpec, StackSpec
from ...adapters.loading.checkpoints import first_line
from ...adapters.transformers_types import ModelOutput
from .layer_description import LayerDescription, describe_layer
from .layer_lists import (
    NOT_DEFINED,
    TORCH_ATTENTION,
    LayerList,
    explain_missing_attention,
    find_layer_lists,
)
from .recording import Recording, record_forward_pass
from .stack_names import (
    StackNames,
    TracedStack,
    find_capped_scores,
    find_final_norm,
    find_shared_arguments,
    is_causal_list,
    is_positionwise_step,
)
from .traced_layer import TracedLayer, UntracedPartError

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


InputRunner = Callable[[Mapping[str, Tensor]], ModelOutput]


def infer_stacks(
    module: nn.Module, inputs: Mapping[str, Tensor], *, run: InputRunner | None = None
) -> InferredArchitecture:
    """Find the stacks of a model: its layers, and their attention blocks, norms and feed-forwards.

    Parameters
    ----------
    module : nn.Module
        Base model; paths are relative to it. Its weights should be random and differ from each
        other, also those of norms.
    inputs : mapping of str to Tensor
        One clip or sentence, as the model takes it.
    run : callable, optional
        ``run(inputs)`` runs the model, where that is not ``module(**inputs)``.

    Returns
    -------
    InferredArchitecture

    Examples
    --------
    >>> import transformers
    >>> shape = {"hidden_size": 8, "intermediate_size": 12, "num_attention_heads": 2, "vocab_size": 9}
    >>> bert = transformers.BertModel(transformers.BertConfig(num_hidden_layers=2, **shape))
    >>> found = infer_stacks(bert, {"input_ids": torch.arange(6)[None]})
    >>> found.stacks[0].blocks[0].output
    'attention.output.dense'
    """

    def run_inputs(tensors: Mapping[str, Tensor]) -> ModelOutput:
        with isolated_random_numbers():  # some models add noise, which must be the same in each run
            return module(**tensors) if run is None else run(tensors)

    was_training = module.training
    module.eval()
    try:
        return _Inference(module, inputs, run_inputs).infer()
    finally:
        module.train(was_training)


class _Inference:
    def __init__(self, root: nn.Module, inputs: Mapping[str, Tensor], run: InputRunner):
        self.root, self.inputs, self._run = root, inputs, run
        self.findings: list[str] = []
        self.unknowns: list[str] = []
        self._failed: list[LayerList] = []

    def infer(self) -> InferredArchitecture:
        implementation = self._choose_implementation()
        with use_attention(self.root, implementation):
            recording = record_forward_pass(self.root, lambda: self._run(self.inputs))
            layer_lists = find_layer_lists(self.root, recording)
            has_stacks = any(layer_list.attention_count for layer_list in layer_lists)
            traced_stacks = []
            for layer_list in layer_lists:
                try:
                    traced_stack = self._describe_list(layer_list, recording, has_stacks)
                    traced_stacks += [traced_stack] if traced_stack is not None else []
                except UntracedPartError as error:
                    self.unknowns.append(f"{layer_list.path}: {error}")
                    if layer_list.attention_count:
                        self._failed.append(layer_list)
        if not layer_lists:
            self.unknowns.append("no list of modules runs one after the other")
        names = StackNames.find(traced_stacks, self._failed, self.inputs, recording)
        self.findings += names.findings
        self.unknowns += names.unknowns
        return InferredArchitecture(
            type(self.root).__name__,
            str(getattr(getattr(self.root, "config", None), "model_type", "")),
            self._mark_eager(names.in_order()),
            tuple(self.findings),
            tuple(self.unknowns),
            names.heads,
        )

    def _choose_implementation(self) -> str:
        """The implementation that attention is read from: torch's function, if the model runs with
        it."""
        try:
            with use_attention(self.root, "sdpa"):
                recording = record_forward_pass(self.root, lambda: self._run(self.inputs))
        except Exception as error:  # refused, as for capped scores
            self.findings.append(f"runs under 'eager' attention alone: {first_line(error)}")
            return "eager"
        functions = {value.operation for value in recording.values}
        if functions.isdisjoint(TORCH_ATTENTION):
            self.findings.append(
                "attention is computed by the model's own code, not by torch's function"
            )
            return "eager"
        return "sdpa"

    def _describe_list(
        self, layer_list: LayerList, recording: Recording, has_stacks: bool
    ) -> TracedStack | None:
        count = len(layer_list.layers)
        if not layer_list.attention_count:
            if not has_stacks:
                raise UntracedPartError(
                    f"no attention runs in its layers: {explain_missing_attention(layer_list)}"
                )
            self.findings.append(f"{layer_list.path}: no attention in it, so no stack of the table")
            return None
        if layer_list.attention_count < count:
            raise UntracedPartError(
                f"{count - layer_list.attention_count} of {count} layers run no attention: "
                f"{explain_missing_attention(layer_list)}"
            )
        if layer_list.problems:
            raise UntracedPartError("; ".join(layer_list.problems))
        for index, layer in enumerate(layer_list.layers):
            count, result = (x.tensor.shape[-2] for x in (layer.states, layer.output))
            if count != result:
                raise UntracedPartError(
                    f"layer {index} makes {result} positions of {count}, so rows of a map are no frames "
                    f"({NOT_DEFINED})"
                )
        for index in layer_list.changed_steps:
            if not is_positionwise_step(layer_list, index, lambda: self._run(self.inputs)):
                raise UntracedPartError(f"something mixes positions behind layer {index}")
            self.findings.append(
                f"{layer_list.path}: states are changed behind layer {index}, each position by itself"
            )
        description = self._merge_layers(layer_list)
        final_norm, is_pooled = find_final_norm(self.root, recording, layer_list)
        if is_pooled:
            self.findings.append(
                f"{layer_list.path}: positions are averaged in front of {final_norm}"
            )
        causal = is_causal_list(layer_list, lambda: self._run(self.inputs))
        self.unknowns += [f"{layer_list.path}: {note}" for note in description.notes]
        return TracedStack(
            layer_list,
            description,
            StackSpec(
                "",
                layer_list.path,
                description.blocks,
                description.norm_order,
                final_norm=final_norm,
                causal=causal,
                feed_forwards=description.feed_forwards,
                convolution=description.convolution,
                closing_norm=description.closing_norm,
                parallel=description.parallel,
                shared=self._find_shared(layer_list),
                between=layer_list.between,
            ),
        )

    def _merge_layers(self, layer_list: LayerList) -> LayerDescription:
        """The one description of all layers; where a norm is an identity in some, that of the
        others."""
        descriptions = _join_rerun_layers([describe_layer(layer) for layer in layer_list.layers])
        merged = descriptions[-1]
        for layer, description in zip(layer_list.layers, descriptions, strict=True):
            if _fill_identity_norms(layer, description, merged) != merged:
                index = layer_list.layers.index(layer)
                notes = [note for x in descriptions if x.blocks[0].is_rerun for note in x.notes[:1]]
                raise UntracedPartError(
                    "; ".join(
                        [
                            *notes[:1],
                            f"layer {index} is built in another way than layer {len(descriptions) - 1}",
                        ]
                    )
                )
        return merged

    def _find_shared(self, layer_list: LayerList) -> tuple[str, ...]:
        doubled = {name: torch.cat([x, x]) for name, x in self.inputs.items()}
        try:
            return find_shared_arguments(layer_list, self.root, lambda: self._run(doubled))
        except Exception:  # many models take one clip at a time
            self.unknowns.append(
                f"{layer_list.path}: the model does not run on two clips, so arguments without an axis of clips "
                "were not looked for"
            )
            return ()

    def _mark_eager(self, stacks: tuple[StackSpec, ...]) -> tuple[StackSpec, ...]:
        """Mark attention that torch's function leaves something out of: capped scores."""
        if not stacks:
            return stacks
        try:
            with use_attention(self.root, "eager"):
                recording = record_forward_pass(self.root, lambda: self._run(self.inputs))
        except Exception as error:  # some classes lack what their own attention code needs
            self.unknowns.append(f"scores were not looked at under 'eager': {first_line(error)}")
            return stacks
        capped = {
            layer_list.path
            for layer_list in find_layer_lists(self.root, recording)
            if layer_list.attention_count and find_capped_scores(layer_list.layers[-1])
        }
        self.findings += [
            f"{path}: scores are capped, so attention is read off its softmax"
            for path in sorted(capped)
        ]
        return tuple(
            replace(spec, blocks=tuple(replace(block, needs_eager=True) for block in spec.blocks))
            if spec.layers in capped
            else spec
            for spec in stacks
        )


def _join_rerun_layers(descriptions: list[LayerDescription]) -> list[LayerDescription]:
    """Of layers that are described by attention's function alone, the same: where some take keys and
    values from an earlier layer, no layer's projections of them are named."""
    if not all(description.blocks[0].is_rerun for description in descriptions):
        return descriptions
    notes = list(dict.fromkeys(note for x in descriptions for note in x.notes))
    shared = any(not description.blocks[0].value for description in descriptions)
    return [
        replace(
            description,
            blocks=(replace(block, value="", key="") if shared else block,),
            key_heads=(0,) if shared else description.key_heads,
            notes=notes,
        )
        for description in descriptions
        for block in description.blocks
    ]


def _fill_identity_norms(
    layer: TracedLayer, description: LayerDescription, pattern: LayerDescription
) -> LayerDescription:
    """Take norms that are identities in this layer from another layer's description."""
    if len(description.blocks) != len(pattern.blocks):
        return description
    blocks = tuple(
        replace(block, norm=other.norm)
        if block.norm is None and other.norm and _is_identity(layer, other.norm)
        else block
        for block, other in zip(description.blocks, pattern.blocks, strict=True)
    )
    return replace(description, blocks=blocks)


def _is_identity(layer: TracedLayer, path: str) -> bool:
    return isinstance(layer.call.module.get_submodule(path), nn.Identity)
