"""Tables with one thing wrong: the self-check refuses all of them.

Every path that a wrong table names leads to a module. What says the same is left out, by criteria
that do not ask the self-check:

- a path that leads to the same module, an activation that gives the same numbers on a grid;
- a shared argument without an axis of length one, which is never repeated for more clips;
- a reading of attention that gives the same weights, values and context;
- a table that says less, and nothing else: no feed-forwards at all, no `query`, attention that is
  read off its softmax, something between layers where states do change.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
import torch
import transformers
from torch import nn

import speechmix
from speechmix.adapters import StackSpec, family_of_type
from speechmix.adapters.binding import layer_check as projection_check
from speechmix.adapters.binding.bound_layers import bind_stack
from speechmix.adapters.binding.self_check import self_check
from speechmix.adapters.capture import attention_calls
from speechmix.adapters.capture.forward_pass import arguments_by_name
from speechmix.adapters.families import registry
from tests.adapters.test_as_given import with_sinks
from tests.models import ALL_FAMILIES, build
from tests.models.more_families import _TEXT, MORE_FAMILIES

# Fresh models: their norms are alike, and most biases are zero.
ARCHITECTURES = (
    "wav2vec2-post",
    "wav2vec2-stable",
    "wav2vec2-adapters",
    "wavlm-stable",
    "whisper-80",
    "bert",
    "gpt2",
    "llama",
    "mistral",
    "gemma3_text",
    "bart",
    "wav2vec2-bert",
    "parakeet",
    "granite-speech-encoder",
    "gpt_neox",
    "falcon, two norms",
    "t5",
    "modernbert",
    "moonshine",
    "speecht5",
    "olmo2",
    "deberta-v2",
    "deberta-v2, convolution",
    "qwen2-audio",
    "qwen2.5-omni",
    "gemma2",
    "phi3",
    "qwen3_moe",
    "opt, post-norm",
    "ast",
    "llama, not described",
    "bert, not described",
    "whisper-80, not described",
    "parakeet, not described",
)
_UNDESCRIBED = ", not described"  # tables without feed-forwards: layers are replayed
_EXTRA = "sabotaged_"  # names of lists and activations that are added to a model
_SAMPLE_SIZE = 40


@dataclass(frozen=True)
class Sabotage:
    """A wrong table, or a wrong reading of attention calls."""

    architecture: str
    kind: str
    label: str
    tables: tuple[StackSpec, ...] | None = None
    head_count: int | None = None
    change_call: Callable | None = None


@functools.cache
def sabotaged_model(name: str) -> nn.Module:
    """A fresh model with more lists of its layers and more activations, none of which it runs."""
    name = name.removesuffix(_UNDESCRIBED)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if name in ALL_FAMILIES:
            module = build(name)
        elif name == "deberta-v2, convolution":
            config = transformers.DebertaV2Config(
                relative_attention=True, pos_att_type=["c2p"], conv_kernel_size=3, **_TEXT
            )
            module = transformers.DebertaV2Model(config)
        else:
            module = MORE_FAMILIES[name].build()
    module = module.double().eval().requires_grad_(False)
    for spec in right_tables(name, module):
        path = spec.layers.rpartition(".")[0]
        holder, layers = module.base_model.get_submodule(path), list(layers_of(module, spec))
        orders = {
            "reversed": layers[::-1],
            "rotated": layers[1:] + layers[:1],
            "first_missing": layers[1:],
            "last_missing": layers[:-1],
            "first_twice": layers[:1] + layers,
            "second_missing": layers[:1] + layers[2:],
        }
        for label, order in orders.items():
            holder.__dict__[f"{_EXTRA}{label}"] = nn.ModuleList(order)
        for layer in layers:
            activations = [nn.ReLU(), nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.Tanh()]
            layer.add_module(f"{_EXTRA}activations", nn.ModuleList(activations))
    return module


def right_tables(name: str, module: nn.Module) -> tuple[StackSpec, ...]:
    changes = {"feed_forwards": ()} if name.endswith(_UNDESCRIBED) else {}
    return tuple(
        replace(spec, **changes)
        for spec in family_of_type(module.config.model_type).stacks(module.config)
        if hasattr(module.base_model, spec.layers.split(".")[0])
    )


def layers_of(module: nn.Module, spec: StackSpec) -> nn.ModuleList:
    return module.base_model.get_submodule(spec.layers)


class _Maker:
    """Makes the sabotaged tables of the layers that one or two stacks study."""

    def __init__(self, name: str, spec: StackSpec):
        self.name, self.module = name, sabotaged_model(name)
        self.tables, self.spec = right_tables(name, self.module), spec
        self.layer = layers_of(self.module, spec)[0]
        parts = [(path, part) for path, part in self.layer.named_modules() if path]
        self.norms = [path for path, part in parts if _axes(part) == 1]
        self.projections = [path for path, part in parts if _axes(part) == 2]
        self.convolutions = [path for path, part in parts if isinstance(part, nn.Conv1d)]
        self.activations = [
            path
            for path, part in parts
            if not list(part.children())
            and not list(part.parameters())
            and not isinstance(part, nn.Dropout | nn.Identity)
        ]

    def sabotage(self, kind: str, label: str, change: Callable[[StackSpec], StackSpec]) -> Sabotage:
        """The same change in all stacks of these layers."""
        tables = tuple(
            change(table) if table.layers == self.spec.layers else table for table in self.tables
        )
        return Sabotage(self.name, kind, f"{self.spec.name}: {label}", tables)

    def replace_field(self, kind: str, field: str, value: object) -> Sabotage:
        return self.sabotage(
            kind, f"{field}={value!r}", lambda table: replace(table, **{field: value})
        )

    def replace_in(self, kind: str, group: str, index: int, **values: object) -> Sabotage:
        """Another value in one of the table's blocks or feed-forwards."""

        def change(table: StackSpec) -> StackSpec:
            entries = list(getattr(table, group))
            entries[index] = replace(entries[index], **values)
            return replace(table, **{group: tuple(entries)})

        return self.sabotage(kind, f"{group}[{index}] {values}", change)

    def others(self, path: str | None, paths: list[str]) -> list[str]:
        """Paths to other modules than this one."""
        own = None if path is None else self.layer.get_submodule(path.partition(":")[0])
        return [other for other in paths if self.layer.get_submodule(other) is not own]

    def other_activations(self, path: str) -> list[str]:
        grid = torch.linspace(-6, 6, 241, dtype=torch.double)
        expected = self.layer.get_submodule(path)(grid)
        return [
            other
            for other in self.others(path, self.activations)
            if (y := _try_activation(self.layer.get_submodule(other), grid)) is not None
            and not torch.equal(y, expected)
        ]

    def iterate(self) -> Iterator[Sabotage]:
        yield from self.iterate_attention()
        yield from self.iterate_feed_forwards()
        yield from self.iterate_convolution()
        yield from self.iterate_stack()

    def iterate_attention(self) -> Iterator[Sabotage]:
        for index, block in enumerate(self.spec.blocks):
            for role in ("value", "key", "query", "output"):
                path = getattr(block, role)
                for other in self.others(path, self.projections) if path else ():
                    yield self.replace_in(f"{role} projection", "blocks", index, **{role: other})
            if block.norm:
                for other in self.others(block.norm, self.norms):
                    yield self.replace_in("attention norm", "blocks", index, norm=other)
                if self.spec.feed_forwards:
                    yield self.replace_in("attention norm", "blocks", index, norm=None)
            for other in (*self.others(block.branch_norm, self.norms), None):
                if other != block.branch_norm:
                    yield self.replace_in("branch norm", "blocks", index, branch_norm=other)
            modules = [block.value, block.module.rpartition(".")[0]]
            modules += [other.module for other in self.spec.blocks]
            modules += [feed.up.partition(":")[0] for feed in self.spec.feed_forwards]
            for other in self.others(block.module, [path for path in modules if path]):
                yield self.replace_in("attention module", "blocks", index, module=other)
            if block.needs_eager:
                yield self.replace_in("attention module", "blocks", index, needs_eager=False)
        blocks = self.spec.blocks
        if len(blocks) > 1:
            yield self.replace_field("block index", "blocks", blocks[::-1])
            for index in range(len(blocks)):
                yield self.replace_field("block index", "blocks", (blocks[index],))
            yield self.sabotage(
                "block index",
                "the other one",
                lambda table: replace(table, block_index=1 - table.block_index),
            )
        yield self.replace_field("block index", "block_index", len(blocks))
        yield self.replace_field("block index", "block_index", -1)

    def iterate_feed_forwards(self) -> Iterator[Sabotage]:
        feeds = self.spec.feed_forwards
        for index, feed in enumerate(feeds):
            change = functools.partial(self.replace_in, "feed-forward", "feed_forwards", index)
            for other in self.others(feed.norm, self.norms):
                yield self.replace_in("feed-forward norm", "feed_forwards", index, norm=other)
            for other in (*self.others(feed.branch_norm, self.norms), None):
                if other != feed.branch_norm:
                    yield self.replace_in("branch norm", "feed_forwards", index, branch_norm=other)
            for role in ("up", "down", "gate"):
                path = getattr(feed, role)
                for other in self.others(path, self.projections) if path else ():
                    yield change(**{role: other})
            for other in self.other_activations(feed.activation):
                yield self.replace_in("activation", "feed_forwards", index, activation=other)
            for factor in (0.0, 0.25, 0.5, 0.99, 1.01, 2.0, -1.0):
                yield self.replace_in("scale", "feed_forwards", index, scale=factor * feed.scale)
            yield change(up=feed.down, down=feed.up)
            if feed.gate:
                yield change(gate=None)
                yield change(gate=feed.up, up=feed.gate)
                yield change(gate=feed.up)
                yield change(up=feed.gate)
            else:
                yield change(gate=feed.up)
                yield change(gate=f"{feed.up}:0", up=f"{feed.up}:1")
        kind = "list of feed-forwards"
        for index in range(len(feeds)):
            yield self.replace_field(kind, "feed_forwards", (*feeds, feeds[index]))
            if len(feeds) > 1:
                yield self.replace_field(kind, "feed_forwards", feeds[:index] + feeds[index + 1 :])
        if len(feeds) > 1:
            yield self.replace_field(kind, "feed_forwards", feeds[::-1])
        for index, feed in enumerate(feeds):
            if feed.norm != self.spec.blocks[0].norm:
                swap = functools.partial(_swap_norms, index)
                yield self.sabotage("norms swapped", f"of feed-forward {index}", swap)

    def iterate_convolution(self) -> Iterator[Sabotage]:
        convolution, kind = self.spec.convolution, "convolution"
        if convolution is None:
            return
        yield self.replace_field(kind, "convolution", None)
        choices = {
            "norm": self.norms,
            "depthwise_norm": self.norms,
            "expand": self.convolutions,
            "depthwise": self.convolutions,
            "contract": self.convolutions,
        }
        changes = [
            {role: other}
            for role, paths in choices.items()
            for other in self.others(getattr(convolution, role), paths)
        ]
        changes += [
            {"activation": other} for other in self.other_activations(convolution.activation)
        ]
        changes.append({"causal": not convolution.causal})
        changes.append({"expand": convolution.contract, "contract": convolution.expand})
        changes.append({"norm": convolution.depthwise_norm, "depthwise_norm": convolution.norm})
        for values in changes:
            yield self.replace_field(kind, "convolution", replace(convolution, **values))

    def iterate_stack(self) -> Iterator[Sabotage]:
        spec = self.spec
        yield self.sabotage(
            "norm order",
            "the other one",
            lambda table: replace(table, norm_order="post" if table.norm_order == "pre" else "pre"),
        )
        for table in self.tables:
            if table.layers == spec.layers:
                changed = replace(table, causal=not table.causal)
                tables = tuple(changed if x is table else x for x in self.tables)
                yield Sabotage(self.name, "causal", f"{table.name}: {changed.causal}", tables)
        if spec.feed_forwards:
            yield self.replace_field("parallel", "parallel", not spec.parallel)
        for other in (*self.others(spec.closing_norm, self.norms), None):
            if other != spec.closing_norm:
                yield self.replace_field("closing norm", "closing_norm", other)
        yield from self.iterate_final_norms()
        path = spec.layers.rpartition(".")[0]
        lists = [f"{path}.{name}".lstrip(".") for name in self.extra_lists()]
        lists += [table.layers for table in self.tables if table.layers != spec.layers]
        for other in lists:
            yield self.replace_field("list of layers", "layers", other)
        for count in (1, 3, 5, 8):
            yield Sabotage(self.name, "number of heads", f"{spec.name}: {count}", None, count)
        yield self.replace_field("shared", "shared", (*spec.shared, "no_argument"))
        for name in self.repeatable_arguments():
            yield self.replace_field("shared", "shared", tuple({*spec.shared} - {name}))
        if spec.between or not self.changes_between():
            yield self.replace_field("between", "between", "" if spec.between else "a convolution")

    @functools.cached_property
    def layer_runs(self) -> list[tuple[torch.Tensor, dict, torch.Tensor]]:
        """Input, other arguments and output of each layer for the tiny input."""
        runs = []

        def keep(layer, args, kwargs, output):
            states, others = arguments_by_name(layer, args, kwargs)
            output = output[0] if isinstance(output, tuple) else output
            runs.append((states.clone(), others, output.clone()))  # some models add in place

        hooks = [
            layer.register_forward_hook(keep, with_kwargs=True)
            for layer in layers_of(self.module, self.spec)
        ]
        model = speechmix.load(self.module, check=False)
        inputs = model.family.tiny_inputs(model.config)
        inputs = {name: x.double() if x.is_floating_point() else x for name, x in inputs.items()}
        try:
            model.family.run(model.base, inputs, tuple(model.stacks))
        except speechmix.SpeechmixError:
            pass  # sound of a whole window does not fit the decoder's few tokens
        finally:
            for hook in hooks:
                hook.remove()
        return runs

    def repeatable_arguments(self) -> list[str]:
        """Shared arguments of the first layer that begin with an axis of one: others are never
        repeated for more clips, whether the table calls them shared or not."""
        return [name for name in self.spec.shared if len(self.layer_runs[0][1][name]) == 1]

    def changes_between(self) -> bool:
        """Whether states change between layers: a table that names that says less, for measures
        refuse then."""
        pairs = zip(self.layer_runs, self.layer_runs[1:], strict=False)
        return any(not torch.equal(first[2], second[0]) for first, second in pairs)

    def extra_lists(self) -> list[str]:
        holder = self.module.base_model.get_submodule(self.spec.layers.rpartition(".")[0])
        layer_count = len(layers_of(self.module, self.spec))
        names = [name for name in vars(holder) if name.startswith(_EXTRA)]
        # of two layers, rotated is reversed and the second is the last
        drop = {f"{_EXTRA}rotated", f"{_EXTRA}second_missing"} if layer_count == 2 else set()
        return [name for name in names if name not in drop]

    def iterate_final_norms(self) -> Iterator[Sabotage]:
        spec, base = self.spec, self.module.base_model
        own = spec.final_norm and base.get_submodule(spec.final_norm)
        paths = [
            path
            for path, part in base.named_modules()
            if _axes(part) == 1 and part is not own and part.weight.shape == _width(base, spec)
        ]
        inner = [path for path in paths if path.startswith(f"{spec.layers}.")]
        last = f"{spec.layers}.{len(layers_of(self.module, spec)) - 1}."
        kept = [path for path in paths if path not in inner or path.startswith(last)]
        for other in (*kept, None):
            if other != spec.final_norm:
                yield self.replace_field("final norm", "final_norm", other)

    def iterate_readings(self) -> Iterator[Sabotage]:
        for label, change_call in READINGS.items():
            yield Sabotage(self.name, "reading of attention", label, change_call=change_call)


def _axes(part: nn.Module) -> int:
    weight = getattr(part, "weight", None)
    return weight.ndim if isinstance(weight, torch.Tensor) else 0


def _width(base: nn.Module, spec: StackSpec) -> torch.Size:
    norm = spec.blocks[0].norm or spec.blocks[0].branch_norm
    weights = [
        layer.get_submodule(norm).weight
        for layer in base.get_submodule(spec.layers)
        if _axes(layer.get_submodule(norm))
    ]
    return weights[0].shape


def _try_activation(part: nn.Module, grid: torch.Tensor) -> torch.Tensor | None:
    try:
        return part(grid)
    except Exception:  # no function of single numbers
        return None


def _swap_norms(index: int, table: StackSpec) -> StackSpec:
    """The norm of the first attention block for that of a feed-forward, and the other way round."""
    first, feed = table.blocks[0], table.feed_forwards[index]
    feeds = list(table.feed_forwards)
    feeds[index] = replace(feed, norm=first.norm)
    return replace(
        table,
        blocks=(replace(first, norm=feed.norm), *table.blocks[1:]),
        feed_forwards=tuple(feeds),
    )


def _with_mask(call, shift: int):
    """The mask moved by some positions; a mask of a band where there is none."""
    if call.alpha is not None:
        return replace(call, alpha=call.alpha.roll(shift, -1))
    rows, columns = call.query.shape[1], call.key.shape[1]
    mask = call.mask
    if mask is None:
        mask = torch.ones(rows, columns, dtype=torch.bool)[None]
        mask = mask.tril(shift) if call.causal else mask.triu(-1 - abs(shift))
        return replace(call, mask=mask, causal=False)
    return replace(call, mask=mask.roll(shift, -1))


def _with_window(call):
    """A window that is one position shorter."""
    if call.alpha is not None or call.mask is None:
        return _with_mask(call, -1)
    keeps = call.mask if call.mask.dtype == torch.bool else call.mask > -1e30
    shorter = keeps & keeps.roll(1, -1)
    return replace(call, mask=shorter | torch.eye(*shorter.shape[-2:], dtype=torch.bool))


READINGS = {
    "values shifted": lambda call: replace(call, value=call.value.roll(1, 1)),
    "keys shifted": lambda call: (
        replace(call, key=call.key.roll(1, 1)) if call.alpha is None else _with_mask(call, 2)
    ),
    "mask one later": lambda call: _with_mask(call, 1),
    "mask one earlier": lambda call: _with_mask(call, -1),
    "window one shorter": _with_window,
    "heads of values permuted": lambda call: replace(call, value=call.value.roll(1, 0)),
    "all heads permuted": lambda call: replace(
        call,
        **{
            name: x.roll(1, 0)
            for name in ("query", "key", "value", "alpha")
            if (x := getattr(call, name)) is not None
        },
        mask=call.mask.roll(1, 0) if call.mask is not None and call.mask.ndim == 3 else call.mask,
        context=None if call.context is None else call.context.roll(1, 1),
    ),
    "other scale": lambda call: (
        replace(call, scale=1.1 * call.scale)
        if call.alpha is None
        else replace(call, alpha=(1.1 * call.alpha.clamp_min(1e-30).log()).softmax(-1))
    ),
    "context one later": lambda call: (
        replace(call, value=call.value.roll(-1, 1))
        if call.context is None
        else replace(call, context=call.context.roll(1, 0))
    ),
}


@functools.cache
def sabotages_of(name: str) -> tuple[Sabotage, ...]:
    """All sabotages of an architecture, each once."""
    found: dict[object, Sabotage] = {}
    by_layers = {spec.layers: spec for spec in reversed(right_tables(name, sabotaged_model(name)))}
    makers = [_Maker(name, spec) for spec in by_layers.values()]
    for sabotage in (x for maker in makers for x in maker.iterate()):
        found.setdefault((sabotage.tables, sabotage.head_count), sabotage)
    right = right_tables(name, sabotaged_model(name))
    found.pop((right, None), None)
    heads = family_of_type(sabotaged_model(name).config.model_type).heads
    counts = {heads(sabotaged_model(name).config, spec.name) for spec in right}
    kept = [x for x in found.values() if x.head_count not in counts]
    return (*kept, *makers[0].iterate_readings())


def is_refused(sabotage: Sabotage) -> bool:
    module = sabotaged_model(sabotage.architecture)
    family = family_of_type(module.config.model_type)
    tables = sabotage.tables or right_tables(sabotage.architecture, module)
    changes: dict[str, Callable] = {"stacks": lambda config: tables}
    if sabotage.head_count is not None:
        changes["heads"] = lambda config, stack: sabotage.head_count
    readers = {name: getattr(attention_calls, name) for name in ("_read_sdpa", "_read_weights")}
    readers["read_multi_head"] = attention_calls.read_multi_head
    is_equivalent = [sabotage.change_call is not None]

    def change_call(call):
        changed = sabotage.change_call(call)
        is_equivalent[0] &= torch.allclose(changed.weights(), call.weights()) and all(
            getattr(changed, name) is None
            or torch.equal(getattr(changed, name), getattr(call, name))
            for name in ("value", "context")
        )
        return changed

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry._FAMILIES, module.config.model_type, replace(family, **changes))
        if sabotage.change_call is not None:
            for name, reader in readers.items():

                def read(*args, reader=reader, **kwargs):
                    calls = reader(*args, **kwargs)
                    if isinstance(calls, list):
                        return [change_call(call) for call in calls]
                    return change_call(calls)

                patch.setattr(attention_calls, name, read)
        try:
            speechmix.load(module)
        except speechmix.SpeechmixError:
            return True
    return is_equivalent[0]


def sample(sabotages: list[Sabotage], count: int) -> list[Sabotage]:
    """Every so-manieth one."""
    return sabotages[:: max(1, len(sabotages) // count)]


def list_unnoticed(sabotages: list[Sabotage]) -> list[tuple[str, str, str]]:
    return [
        (sabotage.architecture, sabotage.kind, sabotage.label)
        for sabotage in sabotages
        if not is_refused(sabotage)
    ]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_right_table_passes(name):
    assert not is_refused(Sabotage(name, "nothing", "the right tables"))


def test_a_sample_of_sabotaged_tables_is_refused():
    all_sabotages = [x for name in ARCHITECTURES for x in sabotages_of(name)]
    assert not list_unnoticed(sample(all_sabotages, _SAMPLE_SIZE))


@pytest.mark.long
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_all_sabotaged_tables_are_refused(name):
    assert not list_unnoticed(list(sabotages_of(name)))


def test_there_are_a_thousand_of_all_kinds():
    kinds = Counter(x.kind for name in ARCHITECTURES for x in sabotages_of(name))
    assert kinds.total() >= 1000
    assert len(kinds) >= 20
    assert len(ARCHITECTURES) >= 10


@pytest.mark.parametrize("is_right", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_check_leaves_the_very_weights(is_right, dtype):
    """Gains of fresh norms are varied meanwhile, and a projection's output is changed."""
    module = build("gemma3_text").to(dtype)
    before = {name: (weight, weight.clone()) for name, weight in module.named_parameters()}
    versions = [weight._version for weight, _ in before.values()]
    hooks = [len(part._forward_hooks) for part in module.modules()]
    model = speechmix.load(module, check=False)
    if not is_right:
        block = replace(model.stacks["decoder"].spec.blocks[0], value="self_attn.k_proj")
        spec = replace(model.stacks["decoder"].spec, blocks=(block,))
        bound = bind_stack(spec, model.base, model.stacks["decoder"].heads)
        model.stacks["decoder"] = bound
    with contextlib.nullcontext() if is_right else pytest.raises(speechmix.SpeechmixError):
        self_check(model)
    after = dict(module.named_parameters())
    assert all(after[name] is weight for name, (weight, _) in before.items())
    assert all(torch.equal(weight, copy) for weight, copy in before.values())
    assert [weight._version for weight in after.values()] == versions
    assert [len(part._forward_hooks) for part in module.modules()] == hooks


@pytest.mark.long  # 24 layers of width 1024
def test_the_check_takes_half_a_second():
    sizes = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
    config = transformers.Wav2Vec2Config(
        **sizes, intermediate_size=4096, do_stable_layer_norm=True, feat_extract_norm="layer"
    )
    model = speechmix.load(transformers.Wav2Vec2ForCTC(config))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    seconds = []
    for _ in range(5):
        begun = time.process_time()
        self_check(model)
        seconds.append(time.process_time() - begun)
    torch.set_num_threads(threads)
    assert min(seconds) <= 0.5


@pytest.mark.parametrize(
    ("value", "keys_are_multiples"), [("v_proj", True), ("k_proj", True), ("q_proj", False)]
)
def test_scaled_values_are_those_of_their_projection_alone(monkeypatch, value, keys_are_multiples):
    """MiMo multiplies its values by 0.707; all its projections have one width."""
    monkeypatch.setattr(registry, "_FAMILIES", dict(registry._FAMILIES))
    module = with_sinks("mimo_v2_flash")
    assert module.config.attention_value_scale == 0.707
    if keys_are_multiples:
        for layer in module.model.layers:
            layer.self_attn.k_proj.weight.data.copy_(2 * layer.self_attn.v_proj.weight)
    family = family_of_type("mimo_v2_flash")
    (spec,) = family.stacks(module.config)
    table = replace(spec, blocks=(replace(spec.blocks[0], value=f"self_attn.{value}"),))
    speechmix.register(replace(family, stacks=lambda config: (table,)))
    is_right = value == "v_proj"
    expected = contextlib.nullcontext() if is_right else pytest.raises(speechmix.SpeechmixError)
    with expected as error:
        speechmix.load(module)
    assert is_right or f"'self_attn.{value}' does not make the value vectors" in str(error.value)


def test_multiples_are_numbers_times_one_factor():
    generator = torch.Generator().manual_seed(0)
    packed = torch.randn(8, 192, generator=generator)
    output, other = packed[:, :64], packed[:, 64:128]
    values = output.unflatten(-1, (4, 16)).transpose(0, 1)
    by_head = torch.tensor([1.0, 1.0, 1.0, 2.0])[:, None, None]
    largest = values * other.abs().max() / output.abs().max()
    assert projection_check._are_multiples(values, packed)
    assert projection_check._are_multiples(0.707 * values, output)
    assert projection_check._are_multiples(0.707 * values.repeat_interleave(2, dim=0), output)
    assert not projection_check._are_multiples(by_head * values, output)
    assert not projection_check._are_multiples(values.softmax(dim=-1), output)
    assert not projection_check._are_multiples(largest, other)
