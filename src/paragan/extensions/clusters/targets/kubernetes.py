"""Kubernetes: an Indexed Job with a headless Service, for `kubectl apply`.

A pod is a node of the run, and its index is the node's. The run folder must be on a volume that all
pods share. Words of the job are arguments of the container, never part of a script.
"""

import re
from dataclasses import replace
from typing import Any

import yaml

from paragan.core.errors import PREEMPTED, ConfigError, ParaganError
from paragan.extensions.clusters.job import ClusterJob, Target

_PORT = "29500"
_BUG = 1  # exit code of an unexpected error
_TEXT = "tag:yaml.org,2002:str"
_WORD = r"[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?"
_LABEL = re.compile(rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_WORD}=({_WORD})?", re.ASCII)
# texts that need no quotes: y, no, on, null and the like are no texts in YAML without them
_PLAIN = re.compile(r"(?i)(?!(y|n|yes|no|on|off|true|false|null)$)[a-z][-a-z0-9_./]*", re.ASCII)

# The ranks of one pod: starts them, passes SIGTERM on, and ends with the highest exit code. Ranks that fail together
# end with the code of the first; where codes differ, one was killed (128 and more) or pre-empted (85), and the others
# lost it (75). A rank gets one SIGTERM: a second one would end it with 143 while it exits. Tested with dash and bash.
_RANKS = """\
pids=
terminated=
trap 'stopped=1; terminated=1; kill -TERM $pids 2>/dev/null' TERM
rank=0
while [ "$rank" -lt "$LOCAL_WORLD_SIZE" ] && [ -z "$terminated" ]; do
    RANK=$((JOB_COMPLETION_INDEX * LOCAL_WORLD_SIZE + rank)) LOCAL_RANK=$rank "$@" &
    pids="$pids $!"
    rank=$((rank + 1))
done
if [ -n "$terminated" ]; then
    [ -n "$pids" ] || exit 85
    sleep 1 # the last rank may not have been in pids yet, and dash loses a signal to a process that it is just forking
    kill -TERM "$!" 2>/dev/null
fi
highest=0
for pid in $pids; do
    while :; do
        stopped=
        wait "$pid"
        code=$?
        [ -n "$stopped" ] && [ "$code" -gt 128 ] || break # otherwise the signal ended the wait
    done
    [ "$code" -le "$highest" ] || highest=$code
done
exit "$highest"
"""


def _render(job: ClusterJob) -> str:
    """Return the text of one Service and one Job, or one of each per seed. `job.site`: labels as KEY=VALUE."""
    if job.image is None:
        raise ConfigError("`launch kubernetes` needs an image that has paragan; pass --image IMAGE")
    job = replace(job, python=job.python or "python")
    documents = []
    for seed in job.seeds or (None,):
        name = job.name if seed is None else f"{job.name}-{seed}"
        documents += [_service(name), _job(job, name, seed)]
    # so wide that no text is folded
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1 << 20)


class _Dumper(yaml.SafeDumper):
    """Writer that quotes each text which any reader of YAML could take for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True  # equal labels are written twice, as by hand, not as `&id001` and `*id001`


class _Script(str):
    """A text that is written as a block of lines."""


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = None if _PLAIN.fullmatch(text) else '"'
    return dumper.represent_scalar(_TEXT, text, "|" if isinstance(text, _Script) else style)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(_Script, _represent_text)


def _service(name: str) -> dict[str, Any]:
    """Return the Service that gives pod 0 an address; it exists before the pods are ready."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"job-name": name},
        "ports": [{"name": "rendezvous", "port": int(_PORT)}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def _job(job: ClusterJob, name: str, seed: int | None) -> dict[str, Any]:
    """Return the Job of one run: its pods, which restart together, and the time they have."""
    metadata = {"name": name, "labels": _labels(job)}
    pods = {"metadata": {"labels": _labels(job)}, "spec": _pod(job, name, seed)}
    spec: dict[str, Any] = {
        "completionMode": "Indexed",
        "completions": job.nodes,
        "parallelism": job.nodes,
        "backoffLimit": job.retries * job.nodes,  # the ranks of all pods fail together
        "podFailurePolicy": {"rules": _failure_rules()},
        "template": pods,
    }
    if job.time_limit_min is not None:
        spec["activeDeadlineSeconds"] = 60 * job.time_limit_min
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _failure_rules() -> list[dict[str, Any]]:
    """Return what the end of a pod means: `FailJob` gives up, `Ignore` starts it again and does not count it."""
    exit_codes = {"containerName": "train", "operator": "In"}
    final = [_BUG, ParaganError.exit_code]  # another try would fail, too
    evicted = [{"type": "DisruptionTarget", "status": "True"}]
    return [
        {"action": "FailJob", "onExitCodes": {**exit_codes, "values": final}},
        {"action": "Ignore", "onExitCodes": {**exit_codes, "values": [PREEMPTED]}},
        {"action": "Ignore", "onPodConditions": evicted},
    ]


def _pod(job: ClusterJob, name: str, seed: int | None) -> dict[str, Any]:
    volumes: list[dict[str, Any]] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]
    for number, (claim, path) in enumerate(job.volumes):
        volume = f"volume-{number}"
        volumes.append({"name": volume, "persistentVolumeClaim": {"claimName": claim}})
        mounts.append({"name": volume, "mountPath": path})
    return {
        "restartPolicy": "Never",
        "subdomain": name,
        "terminationGracePeriodSeconds": job.save_s,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [{**_container(job, name, seed), "volumeMounts": mounts}],
        "volumes": volumes,
    }


def _container(job: ClusterJob, name: str, seed: int | None) -> dict[str, Any]:
    """Return the container of a pod, which runs the ranks of one node."""
    settings = [] if seed is None else [f"seed={seed}"]
    container = {
        "name": "train",
        "image": job.image,
        "command": ["sh", "-c", _Script(_literal(_RANKS)), "ranks"],  # "ranks": $0, the name of the script
        "args": [_literal(word) for word in job.command(*settings, "--out", job.out_of(seed))],
        "env": _environment(job, name),
        "resources": _resources(job),
    }
    if job.directory is not None:
        container["workingDir"] = _literal(str(job.directory))
    return container


def _environment(job: ClusterJob, name: str) -> list[dict[str, str]]:
    """Return the variables by which the ranks find each other, and those of the job."""
    rank_variables = {
        "MASTER_ADDR": f"{name}-0.{name}",
        "MASTER_PORT": _PORT,
        "WORLD_SIZE": str(job.size),
        "LOCAL_WORLD_SIZE": str(job.ranks_per_node),
        "OMP_NUM_THREADS": str(job.cpus_per_rank),
    }
    variables = rank_variables | dict(job.environment)
    return [{"name": name, "value": _literal(value)} for name, value in variables.items()]


def _resources(job: ClusterJob) -> dict[str, Any]:
    """Return what one pod requests; its use of memory and accelerators is also limited to that."""
    ranks = job.ranks_per_node
    limits: dict[str, Any] = {}
    if job.memory_mb is not None:
        limits["memory"] = f"{job.memory_mb * ranks}Mi"
    if job.gpus_per_rank:
        limits["nvidia.com/gpu"] = ranks
    return {"requests": {"cpu": ranks * job.cpus_per_rank, **limits}, "limits": limits}


def _labels(job: ClusterJob) -> dict[str, str]:
    labels = {"app.kubernetes.io/name": "paragan"}
    for word in job.site:
        if not _LABEL.fullmatch(word):
            raise ConfigError(f"--site: {word!r} is not a label KEY=VALUE of Kubernetes")
        key, _, value = word.partition("=")
        labels[key] = value
    return labels


def _literal(text: str) -> str:
    """Return a text in which Kubernetes replaces no `$(VARIABLE)`; it reads `$$` as `$` everywhere."""
    return text.replace("$", "$$")


TARGET = Target(suffix=".yaml", submit=lambda _, path: ["kubectl", "apply", "-f", str(path)], render=_render)
