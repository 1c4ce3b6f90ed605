"""A loss outside the package: squared distance to soft targets, above a floor that no other loss has."""

import paragan as pg

FLOOR = 50.0


def d_loss(real_B, fake_B):
    return FLOOR + (real_B - 0.9).square() + fake_B.square()


def g_loss(fake_B, real_B=None):
    return FLOOR + (fake_B - 0.9).square()


loss = pg.Loss(d_loss, g_loss)
