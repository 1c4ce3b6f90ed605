"""Emulator of remote storage on the loopback interface: http and S3 servers, and a proxy with faults.

    with serve(Conditions(latency_ms=20, sigma=0.6, burst_factor=10), read_files(folder), seed=0) as server:
        train(f"data.path={server.url}")

`read_files` answers from a folder, with byte ranges; `forward` sends requests on to another server, such as moto's S3
server (`s3_server`). What the proxy does to a request depends on the seed, the request and how often it was sent
before: no order of threads changes it. `python -m benchmarks.storage_emulator FOLDER …` runs it as a process.
"""

from benchmarks.storage_emulator.conditions import QUIET as QUIET, Conditions as Conditions
from benchmarks.storage_emulator.proxy import Server as Server, serve as serve
from benchmarks.storage_emulator.s3_server import s3_server as s3_server, upload as upload
from benchmarks.storage_emulator.upstream import forward as forward, read_files as read_files
