"""Errors of the links between a server and its workers."""

import pytest
import torch

from paragan.core.errors import RankError
from paragan.distributed.links.link import Message
from paragan.extensions.parameter_server.server_links import LinkPair


class BrokenEnd:
    """An end of a link whose other end has failed."""

    def send(self, message):
        raise RankError("rank 1 of the link is unreachable: Connection reset by peer") from RuntimeError("reset")

    def receive(self, wait_s):
        raise RankError("rank 0 of the link is unreachable: Connection reset by peer") from RuntimeError("reset")


@pytest.mark.parametrize(
    "act",
    [
        lambda pair: pair.send(Message(version=0, data=torch.empty(0, dtype=torch.uint8))),
        lambda pair: pair.receive(0.0),
        lambda pair: pair.receive(0.1),
    ],
)
def test_broken_link_names_the_rank_of_the_run_not_that_of_the_link(act):
    with pytest.raises(RankError, match=r"^the server on rank 0 is unreachable: reset"):
        act(LinkPair("the server on rank 0", BrokenEnd(), BrokenEnd()))
