"""A loss outside the package: squared distance to soft targets."""

import paragan as pg


def d_loss(real_B, fake_B):
    return (real_B - 0.9).square() + fake_B.square()


def g_loss(fake_B, real_B=None):
    return (fake_B - 0.9).square()


loss = pg.Loss(d_loss, g_loss)
