"""Says where to look, once everything is healthy: the last service of the compose stack to start."""

from __future__ import annotations

import os
from urllib.parse import quote

# What Prometheus shows at first: how long pods wait for their bind (the median), and how many workloads are in which phase.
GRAPHS = (
    "histogram_quantile(0.5,sum by(le)(rate(slurm_bridge_create_to_bind_seconds_bucket[1m])))",
    "slurm_bridge_workloads",
)
GRAPH = "&".join(
    f"g{i}.expr={quote(query, safe='')}&g{i}.tab=graph&g{i}.range_input=15m" for i, query in enumerate(GRAPHS)
)
PLACES = (
    ("Prometheus", "PROMETHEUS_PORT", f"/query?{GRAPH}", ""),
    ("Jaeger", "JAEGER_PORT", "/search?service=slurm-bridge", "one trace a workload"),
    ("slurm-bridge", "BRIDGE_PORT", "/metrics", "and /readyz"),
    ("Grafana", "GRAFANA_PORT", "/d/slurm-bridge-latency", "only with: docker compose --profile grafana up -d"),
)
KUBECTL = """\
kubectl:      docker compose exec -T load cat /admin/kubeconfig-outside > compose.kubeconfig
              kubectl --kubeconfig compose.kubeconfig get pods -A -o wide --watch
Slurm:        docker compose exec slurmctld squeue
The end:      docker compose --profile grafana down -v"""


def text(environment: dict[str, str]) -> str:
    """All of it, with the ports that are published."""
    lines = [
        f"{name + ':':<13} http://127.0.0.1:{environment[port]}{path:<30} {what}".rstrip()
        for name, port, path, what in PLACES
    ]
    return "\n".join(["Everything is healthy.", *lines, KUBECTL])


if __name__ == "__main__":
    print(text(dict(os.environ)), flush=True)
