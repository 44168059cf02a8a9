"""Slots and the bounded queue."""

import asyncio

import pytest

from verifier_server.errors import QueueFullError
from verifier_server.scheduler import Scheduler


async def hold(scheduler: Scheduler, order: list[int], name: int, release: asyncio.Event) -> None:
    async with scheduler.turn():
        order.append(name)
        await release.wait()


def test_turns_come_in_order_of_arrival_and_the_queue_refuses_when_full() -> None:
    async def scenario() -> None:
        scheduler, order, release = Scheduler(slots=1, capacity=2), [], asyncio.Event()
        tasks = [asyncio.create_task(hold(scheduler, order, i, release)) for i in range(3)]
        await asyncio.sleep(0)
        assert (scheduler.running, scheduler.queued) == (1, 2)
        with pytest.raises(QueueFullError) as refusal:
            async with scheduler.turn():
                pass
        assert refusal.value.retry_after_s > 0
        release.set()
        await asyncio.gather(*tasks)
        assert order == [0, 1, 2]
        assert (scheduler.running, scheduler.queued) == (0, 0)

    asyncio.run(scenario())


def test_a_cancelled_request_leaves_the_queue_and_a_cancelled_run_frees_its_slot() -> None:
    async def scenario() -> None:
        scheduler, order, never = Scheduler(slots=1, capacity=5), [], asyncio.Event()
        running, waiting = (asyncio.create_task(hold(scheduler, order, i, never)) for i in range(2))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(0)
        assert (scheduler.running, scheduler.queued) == (1, 0)
        running.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)
        assert scheduler.running == 0

    asyncio.run(scenario())


def test_a_slot_given_at_the_moment_of_cancellation_is_not_lost() -> None:
    async def scenario() -> None:
        scheduler, order, release = Scheduler(slots=1, capacity=5), [], asyncio.Event()
        first, second = (asyncio.create_task(hold(scheduler, order, i, release)) for i in range(2))
        await asyncio.sleep(0)
        release.set()
        await asyncio.sleep(0)  # first ends and hands its slot to second, which has not woken yet
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        assert (scheduler.running, scheduler.queued) == (0, 0)
        async with scheduler.turn() as turn:
            assert turn.slot == 0

    asyncio.run(scenario())


def test_a_waiter_that_release_has_dropped_is_still_cancelled_properly() -> None:
    async def scenario() -> None:
        scheduler, order, release = Scheduler(slots=1, capacity=5), [], asyncio.Event()
        first, second = (asyncio.create_task(hold(scheduler, order, i, release)) for i in range(2))
        await asyncio.sleep(0)
        second.cancel()  # its future is cancelled, but the task has not woken yet
        release.set()
        first_result, second_result = await asyncio.gather(first, second, return_exceptions=True)
        assert first_result is None
        assert isinstance(second_result, asyncio.CancelledError)
        assert (scheduler.running, scheduler.queued) == (0, 0)

    asyncio.run(scenario())
