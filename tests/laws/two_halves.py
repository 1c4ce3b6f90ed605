"""Both sides of an asynchronous game in two threads."""

import threading

from tests.laws.small_gan import batches

WAIT_S = 60.0


def run_halves(g, d, steps, k=1, delay=lambda: None):
    """Run G's side and D's to the end. g, d: a side and its half of the game; k: batches of a step."""
    errors = []

    def run(side, gan):
        stream = batches()
        try:
            for _ in range(steps):
                delay()
                side.step(gan, [next(stream) for _ in range(k)])
            if side is g[0]:
                side.wait_for_d(steps)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=half) for half in (g, d)]
    [thread.start() for thread in threads]
    [thread.join(WAIT_S) for thread in threads]
    assert not errors and not any(thread.is_alive() for thread in threads), errors
