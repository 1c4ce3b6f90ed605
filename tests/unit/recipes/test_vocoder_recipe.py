"""The recipe `vocoder`: a run of a config on audio, its penalty, and what is refused."""

import torch

from paragan.core.outputs import DiscriminatorOutput, Outputs
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Batch, Rows, TurnInputs
from paragan.layers.log_mel import LogMel
from paragan.penalties import log_mel

SMALL = {
    "model.width": 32,
    "data.utterances": 4,
    "data.segment": 1024,
    "train.batch": 2,
    "every.log_steps": 1,
    "every.sample_kimg": 0.004,
}


def test_penalty_is_the_distance_of_spectrograms():
    fake, real = (torch.randn(3, 1, 512, requires_grad=True) * 0.1 for _ in range(2))
    made = log_mel.Penalty(log_mel.Options(weight=2.0))
    feed = TurnInputs(
        rows=Rows(step=0, first=0, count=3, total=3),
        seed=0,
        real=Batch(Rows(step=0, first=0, count=3, total=3), {"audio": real}),
        arguments=("audio",),
    )
    outputs = Outputs(fake=DiscriminatorOutput(torch.zeros(3)), images=fake)
    found = made(PenaltyContext(network=None, feed=feed, outputs=outputs, input_gradient=None))
    mel = LogMel(8000, 256, 64, 40)
    expected = 2 * (mel(fake) - mel(real)).abs().mean((1, 2))
    torch.testing.assert_close(found, expected)
