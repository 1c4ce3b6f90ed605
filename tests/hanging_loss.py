"""The text of a loss that suspends its process at one call, or sleeps there.

MISHAP in the environment says which (`stop`, or seconds of sleep), on which rank of the first attempt (or any), and
at which call of which side: `stop,1,d,12`, `1000,any,g,30`.
"""

HANGING_LOSS = '''
"""The plain loss; at one call of a side it stops its process or sleeps."""
import os, signal, time
from paragan.losses.nonsaturating import d_loss as d_plain, g_loss as g_plain
from paragan.core.protocols import Loss

kind, rank, side, number = os.environ.get("MISHAP", "0,none,d,0").split(",")
is_first_attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
is_here = is_first_attempt and rank in ("any", os.environ.get("RANK"))
calls = {"d": 0, "g": 0}

def mishap(this):
    calls[this] += 1
    if not is_here or this != side or calls[this] != int(number):
        return
    os.kill(os.getpid(), signal.SIGSTOP) if kind == "stop" else time.sleep(float(kind))

def d_loss(*given):
    mishap("d")
    return d_plain(*given)

def g_loss(*given):
    mishap("g")
    return g_plain(*given)

loss = Loss(d_loss, g_loss)
'''
