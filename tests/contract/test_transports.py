"""Links: what both kinds promise, and what only a link between processes has to survive."""

import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from paragan.core.errors import RankError
from paragan.distributed.links import gloo_link
from paragan.distributed.links.link import Message
from paragan.schemes.asynchronous.thread_step import ThreadLink
from tests.processes import wait_for

WAIT_S = 20.0


def groups(timeout_s):
    """The two ends of a gloo group, in one process: the call returns on either when both have come."""
    store, made = dist.HashStore(), [None, None]

    def join(rank):
        options = timedelta(seconds=timeout_s)
        made[rank] = dist.ProcessGroupGloo(dist.PrefixStore("pair", store), rank, 2, options)

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
    [thread.start() for thread in threads]
    [thread.join(WAIT_S) for thread in threads]
    return made


def over_gloo(timeout_s=WAIT_S, most_bytes=1 << 20):
    here, there = groups(timeout_s)
    return gloo_link.GlooSender(here, 1, timeout_s=timeout_s), gloo_link.GlooReceiver(
        there, 0, most_bytes, timeout_s=timeout_s
    )


def in_memory(timeout_s=WAIT_S):
    link = ThreadLink(timeout_s=timeout_s)
    return link, link


BOTH = pytest.mark.parametrize("ends", [in_memory, over_gloo])


def message(version, count=3):
    return Message(version=version, data=torch.full((count,), version % 251, dtype=torch.uint8))


@BOTH
def test_messages_come_whole_and_in_order(ends):
    post, inbox = ends()
    sizes = [3, 0, 100_000, 1]
    sent = threading.Thread(target=lambda: [post.send(message(n, size)) for n, size in enumerate(sizes)])
    sent.start()
    for number, size in enumerate(sizes):
        found = inbox.receive(WAIT_S)
        assert (found.version, len(found.data)) == (number, size)
        assert found.data.equal(message(number, size).data)
    sent.join(WAIT_S)
    both_close(post, inbox)


def both_close(post, inbox):
    if isinstance(post, ThreadLink):
        return  # threads have nothing to close
    closing = threading.Thread(target=inbox.close)
    closing.start()
    post.close()
    closing.join(WAIT_S)
    assert not closing.is_alive()


@BOTH
def test_waits_end_at_their_time_out(ends):
    post, inbox = ends()
    for wait_s in (0.0, 0.2):
        began = time.monotonic()
        assert inbox.receive(wait_s) is None
        assert time.monotonic() - began < WAIT_S
    both_close(post, inbox)


@BOTH
def test_who_sends_faster_than_is_taken_waits(ends):
    """Memory is bounded: of ten messages that nobody takes only a few are under way."""
    post, inbox = ends()
    sent = []
    thread = threading.Thread(target=lambda: [(post.send(message(n)), sent.append(n)) for n in range(10)])
    thread.start()
    wait_for(lambda: len(sent) >= 2)
    time.sleep(0.7)
    assert len(sent) <= 6
    assert [inbox.receive(WAIT_S).version for _ in range(10)] == list(range(10))
    thread.join(WAIT_S)
    both_close(post, inbox)


@BOTH
def test_slow_receiver_raises_at_the_time_out(ends):
    post, _ = ends(timeout_s=1.0)
    began = time.monotonic()
    with pytest.raises(RankError):
        [post.send(message(number)) for number in range(20)]
    assert time.monotonic() - began < 15


def test_closing_drops_what_is_under_way():
    post, inbox = over_gloo()
    [post.send(message(number)) for number in range(3)]
    both_close(post, inbox)
    assert inbox.receive(0.0) is None


def test_silence_is_not_death():
    """Nothing is sent for three times the time-out."""
    post, inbox = over_gloo(timeout_s=1.0)
    time.sleep(3.0)
    post.send(message(7))
    assert inbox.receive(WAIT_S).version == 7
    both_close(post, inbox)


def test_closed_end_raises_at_the_other_end():
    here, there = groups(1.0)
    inbox = gloo_link.GlooReceiver(there, 0, 1 << 20, timeout_s=1.0)  # nobody sends
    with pytest.raises(RankError, match="rank 0 of the link is unreachable"):
        inbox.receive(WAIT_S)
    assert inbox.receive(0.0) is None
    del here


def test_a_message_that_is_too_large_is_not_given_memory():
    post, inbox = over_gloo(timeout_s=2.0, most_bytes=10)
    post.send(message(1, count=11))
    with pytest.raises(RankError, match="sends a message of 11 bytes; the limit is 10"):
        inbox.receive(WAIT_S)
