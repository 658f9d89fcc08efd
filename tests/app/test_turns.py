"""Requests work one after the other, in their order; what fails, is taken back or comes too late
harms no other."""

from __future__ import annotations

import threading

import pytest
import torch

from speechmix.errors import InputError
from speechmix.extensions.app.request_queue import (
    CANCELLED,
    DONE,
    FAILED,
    WAITING,
    WORKING,
    QueueFullError,
    RequestQueue,
)


@pytest.fixture
def turns():
    with RequestQueue() as turns:
        yield turns


@pytest.fixture
def held(turns):
    """A job that is at work until `held.go` is set."""
    go, begun = threading.Event(), threading.Event()

    def work(told):
        begun.set()
        go.wait(20)
        return "first"

    job = turns.submit(work)
    assert begun.wait(20)
    job.go = go
    yield job
    go.set()


def test_one_at_a_time_in_order_and_each_is_told_its_place(turns, held):
    order, at_once, most = [], [], []

    def work(number):
        def inner(told):
            at_once.append(number)
            most.append(len(at_once))
            order.append(number)
            at_once.remove(number)
            return number

        return inner

    jobs = [turns.submit(work(number)) for number in range(10)]
    assert [turns.find_position(job.id).requests_ahead for job in jobs] == list(range(1, 11))
    assert {job.state for job in jobs} == {WAITING}
    assert held.state == WORKING
    held.go.set()
    assert [turns.wait(job.id).result for job in jobs] == list(range(10))
    assert order == list(range(10))
    assert max(most) == 1


def test_an_error_of_ours_is_an_answer_and_any_other_ends_one_request_alone(turns, capsys):
    def refuse(told):
        raise InputError("too long")

    def fall(told):
        raise ZeroDivisionError("oh")

    first, second, third = turns.submit(refuse), turns.submit(fall), turns.submit(lambda told: 3)
    assert (turns.wait(first.id).state, first.result) == (FAILED, "too long")
    assert turns.wait(second.id).state == FAILED
    assert "ZeroDivisionError" in second.result
    assert "ZeroDivisionError: oh" in capsys.readouterr().err
    assert (turns.wait(third.id).state, third.result) == (DONE, 3)


def test_what_works_stops_at_its_next_operation_and_the_next_request_runs(turns):
    begun = threading.Event()

    def work(told):
        begun.set()
        while True:
            torch.ones(3).sum()

    job, after = turns.submit(work), turns.submit(lambda told: "after")
    assert begun.wait(20)
    assert turns.cancel(job.id)
    assert turns.wait(job.id).state == CANCELLED
    assert turns.wait(after.id).result == "after"
    assert not turns.cancel(job.id)


def test_what_waits_can_be_taken_back(turns, held):
    ran = []
    job = turns.submit(lambda told: ran.append(1))
    after = turns.submit(lambda told: "after")
    assert turns.cancel(job.id)
    assert turns.find_position(after.id).requests_ahead == 1
    held.go.set()
    assert turns.wait(after.id).result == "after"
    assert (job.state, ran) == (CANCELLED, [])


def test_who_watches_hears_of_each_step(turns):
    steps, heard = threading.Event(), []

    def work(told):
        told("halfway", 2.0)
        steps.wait(20)
        return "done"

    job = turns.submit(work)
    other, version = turns.submit(lambda told: "other"), 0
    while not other.is_over:
        version, changed = turns.watch(version, 20)
        heard += [(one.id, one.state, one.note, before) for one, before in changed]
        if job.note:
            steps.set()
    assert (job.id, WORKING, "halfway", 0) in heard
    assert (other.id, WAITING, "", 1) in heard
    assert (job.result, other.result) == ("done", "other")
    assert turns.watch(turns.watch(0, 0)[0], 0)[1] == []  # nothing new: nothing is told


def test_too_many_are_refused_and_then_there_is_room_again(turns, held):
    jobs = [turns.submit(lambda told: None) for _ in range(32)]
    with pytest.raises(QueueFullError, match="32 requests are waiting"):
        turns.submit(lambda told: None)
    held.go.set()
    turns.wait(jobs[-1].id)
    assert turns.wait(turns.submit(lambda told: "room").id).result == "room"
    with pytest.raises(InputError, match="no longer stored"):
        turns.wait(held.id)  # of very many that are over, the oldest is forgotten


def test_nothing_is_taken_behind_the_end():
    turns = RequestQueue()
    turns.close()
    with pytest.raises(QueueFullError):
        turns.submit(lambda told: None)
