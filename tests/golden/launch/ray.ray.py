"""The ranks of a job on a Ray cluster: an actor on each node starts them, and starts them again.

`launch ray` fills in JOB, and `ray job submit` runs the file. It needs nothing but Ray.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

JOB: dict[str, Any] = {'runs': [['python3', '-P', '-m', 'paragan', 'train', 'digits', 'train.batch=64', 'seed=0', '--out',
           'runs/digits/seed-0'],
          ['python3', '-P', '-m', 'paragan', 'train', 'digits', 'train.batch=64', 'seed=7', '--out',
           'runs/digits/seed-7']],
 'directory': '/home/me/my runs',
 'environment': {'OMP_NUM_THREADS': '4', 'WORLD_SIZE': '4', 'LOCAL_WORLD_SIZE': '2', 'A': 'b c'},
 'nodes': 2,
 'resources': {'CPU': 8, 'GPU': 2, 'memory': 16777216000},
 'retries': 3,
 'save_s': 120}
