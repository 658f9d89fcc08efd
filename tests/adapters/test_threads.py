"""Threads that measure models with common parts take turns, and leave other threads' random numbers
alone."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from threading import Event, Thread

import numpy as np
import pytest
import torch
from torch.nn.functional import dropout
from torch.overrides import _get_current_function_mode

import speechmix
from speechmix.adapters.capture.model_use import _GeneratorMode, isolated_random_numbers
from speechmix.adapters.capture.module_access import exclusive_access
from speechmix.interventions.decision import Decision
from speechmix.interventions.runner import run_inputs
from speechmix.mixing.measures.measure_functions import find_measure
from speechmix.mixing.passes import forward_pass
from tests.conftest import build, inputs_of
from tests.models import audio_classifiers


def test_a_model_and_its_base_take_turns():
    module = build("bert")
    got, let_go = Event(), Event()

    def want_base():
        with exclusive_access(module.bert):
            got.set()

    with exclusive_access(module):
        thread = Thread(target=want_base)
        thread.start()
        assert not got.wait(0.2)
        with exclusive_access(module.bert):  # the same thread has it already
            assert not got.wait(0.05)
    thread.join(10)
    assert got.is_set()
    with exclusive_access(module.bert):  # and the other way round
        got.clear()
        thread = Thread(
            target=lambda: [exclusive_access(module).__enter__(), got.set(), let_go.wait(10)]
        )
        thread.start()
        assert not got.wait(0.2)
    assert got.wait(10)
    let_go.set()
    thread.join(10)


def test_models_that_share_a_weight_alone_take_turns():
    first, second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    second.weight = first.weight
    got = Event()
    with exclusive_access(first):
        thread = Thread(target=lambda: [exclusive_access(second).__enter__(), got.set()])
        thread.start()
        assert not got.wait(0.2)
    thread.join(10)
    assert got.is_set()


def test_maps_of_a_model_and_its_base_in_four_threads_are_those_of_one():
    module = build("bert").half()  # is raised to float32 for each call
    whole, base = speechmix.load(module), speechmix.load(module.bert)
    inputs = inputs_of(whole)
    options = {"measures": ["value_zeroing", "attention"]}
    expected = speechmix.mix(whole, inputs, **options)
    with ThreadPoolExecutor(4) as threads:
        found = [
            threads.submit(speechmix.mix, (whole, base)[number % 2], inputs, **options)
            for number in range(16)
        ]
        for future in found:
            for key, mixing_map in future.result().items():
                np.testing.assert_array_equal(mixing_map.scores, expected[key].scores)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    assert all(weight.dtype == torch.float16 for weight in module.parameters())


def test_numbers_that_another_thread_draws_meanwhile_are_not_repeated():
    module = build("bert")
    model = speechmix.load(module)
    inputs = inputs_of(model)
    drawn = []

    def draw_elsewhere(*_):
        thread = Thread(target=lambda: drawn.append(torch.rand(4)))
        thread.start()
        thread.join()

    module.bert.encoder.register_forward_hook(draw_elsewhere)
    speechmix.mix(model, inputs, measures="attention")
    speechmix.mix(model, inputs, measures="attention")
    seen = torch.stack([*drawn, torch.rand(4)])
    assert len(drawn) >= 2
    assert len(torch.unique(seen, dim=0)) == len(seen)


def test_a_pass_draws_its_own_numbers_the_same_every_time():
    before = torch.get_rng_state()
    with isolated_random_numbers():
        first = [
            torch.rand(3),
            torch.empty(2).uniform_(),
            torch.randint(9, (4,)),
            torch.bernoulli(torch.full((3,), 0.5)),
            torch.randn_like(torch.ones(3, dtype=torch.float64)),
            torch.rand_like(input=torch.ones(3), dtype=torch.float64),
        ]
        with isolated_random_numbers():  # nested: goes on
            inner = torch.rand(3)
    with isolated_random_numbers():
        again = [
            torch.rand(3),
            torch.empty(2).uniform_(),
            torch.randint(9, (4,)),
            torch.bernoulli(torch.full((3,), 0.5)),
            torch.randn_like(torch.ones(3, dtype=torch.float64)),
            torch.rand_like(input=torch.ones(3), dtype=torch.float64),
        ]
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(inner, first[0])


def test_runs_of_a_model_with_noise_share_it_alone_and_in_a_batch():
    """Without, the differences of runs would be those of their noise."""
    model = speechmix.load(audio_classifiers.build_classifier("wav2vec2"))
    model.module.wav2vec2.feature_projection.register_forward_hook(
        lambda module, args, output: (
            output[0] + torch.randn(len(output[0]))[:, None, None] * torch.randn_like(output[0]),
            output[1],
        )
    )
    inputs = {"input_values": torch.randn(1, 8_000, dtype=torch.float64)}
    options = {"objective": lambda output: output.logits[..., 1], "words": [[1], [4], [9]]}
    together, single = (
        speechmix.knock_out(model, inputs, batch_size=size, **options) for size in (None, 1)
    )
    assert together.scores("encoder") == pytest.approx(single.scores("encoder"), abs=1e-12)
    decision = Decision.prepare(model, inputs, objective=options["objective"])
    changed = [({"input_values": inputs["input_values"] * gain}, None) for gain in (1, 0.5, 0.1)]
    batch = run_inputs(decision, changed, decision.objective.function)
    alone = [run_inputs(decision, [each], decision.objective.function)[0] for each in changed]
    assert batch == pytest.approx(alone, abs=1e-12)
    assert batch[0] == pytest.approx(decision.margin, abs=1e-12) != batch[1]


def is_isolated(model, inputs, **options) -> bool:
    """Whether a pass runs under the mode that intercepts each operation."""
    seen = set()
    run = model.family.run

    def watched(*arguments):
        seen.add(isinstance(_get_current_function_mode(), _GeneratorMode))
        return run(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "family", replace(model.family, run=watched))
        speechmix.mix(model, inputs, **options)
    [isolated] = seen
    return isolated


def user_supplied_measure(name):
    return replace(find_measure(name), is_builtin=False)


def test_operations_are_intercepted_only_where_numbers_may_be_drawn(monkeypatch):
    module = build("bert")
    model, unchecked = speechmix.load(module), speechmix.load(module, check=False)
    inputs, attention = inputs_of(model), {"measures": "attention"}
    assert not is_isolated(model, inputs, **attention)
    assert is_isolated(unchecked, inputs, **attention)
    assert is_isolated(model, inputs, objective=lambda output: output.sum(), **attention)
    hook = module.bert.register_forward_hook(lambda *_: None)
    assert is_isolated(model, inputs, **attention)
    hook.remove()
    module.bert.forward = module.bert.forward
    assert is_isolated(model, inputs, **attention)
    del module.bert.forward
    assert not is_isolated(copy(model), inputs, **attention)
    with monkeypatch.context() as patch:
        patch.setattr(forward_pass, "find_measure", user_supplied_measure)
        assert is_isolated(model, inputs, **attention)
    module.bert.pooler = torch.nn.Identity()
    assert is_isolated(model, inputs, **attention)


def test_a_check_notices_dropout_that_no_generator_can_be_given_to():
    model = speechmix.load(build("bert"))
    for draw in (lambda: dropout(torch.ones(3), 0.1), lambda: torch.rand(3)):
        with model.check_random_numbers():
            draw()
        assert model.random_number_check.needs_isolation
    with model.check_random_numbers():
        torch.ones(3).sum()
    assert not model.random_number_check.needs_isolation


def test_a_model_that_draws_nothing_in_its_check_and_something_later_is_named(monkeypatch):
    module = build("bert")
    model = speechmix.load(module)
    inputs = inputs_of(model)
    run = type(module.bert.encoder).forward
    monkeypatch.setattr(
        type(module.bert.encoder),
        "forward",
        lambda encoder, states, *given, **options: run(
            encoder, states + torch.randn_like(states), *given, **options
        ),
    )
    with pytest.warns(UserWarning, match="drew random numbers, and none when it was loaded"):
        speechmix.mix(model, inputs, measures="attention")
    before = torch.get_rng_state()
    first, second = (speechmix.mix(model, inputs, measures="attention") for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    assert all((first[key].scores == second[key].scores).all() for key in first)


@pytest.mark.parametrize("intervene", [speechmix.knock_out, speechmix.ablate_input])
def test_an_objective_that_draws_takes_no_number_of_the_caller(intervene):
    model = speechmix.load(build("bert"))
    inputs, before = inputs_of(model), torch.get_rng_state()
    drawn = []

    def objective(output):
        drawn.append(torch.rand(()))
        return output.logits[:, 0, 0] + drawn[-1]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        intervene(model, inputs, objective=objective)
    assert drawn
    assert torch.equal(before, torch.get_rng_state())
