"""The kubectl commands that people use most, in an order in which each finds what it is about, and where `dev` differs.

A journey (integration/journeys/test_kubectl.py) runs them against `slurm-bridge dev` and against a real API server.  Exit
code and output are equal, up to what differs between any two clusters, unless the command names a limit: a sentence of
bridge/simulation/kube/limits.py, which docs/dev.md explains.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from bridge.simulation.kube import limits

Shown = Callable[[str], object]


def everything(text: str) -> object:
    return text


def heading(text: str) -> object:
    """The first line: the columns of a table."""
    return text.partition("\n")[0]


def headings(text: str) -> object:
    """The text before the colon at the start of each line.  The order of such lines may differ."""
    return set(re.findall(r"(?m)^([A-Z][A-Za-z -]*|[a-z][A-Za-z]*):", text))


def exit_code(_text: str) -> object:
    return None


@dataclass(frozen=True, slots=True)
class Command:
    """One command, as it is typed after `kubectl`.

    line     {image} is the image of pods, {node} the node of pod `one`, {folder} a folder with pod.yaml and settings.yaml
    shown    what of the output is compared
    limit    "": none
    refused  `dev` refuses the command with that sentence; else it does the same as a real server, and warns
    """

    line: str
    shown: Shown = everything
    limit: str = ""
    refused: bool = False

    @property
    def name(self) -> str:
        """The command without its arguments, as docs/dev.md names it."""
        words = self.line.split(" ")
        return " ".join(words[:2] if words[0] in ("auth", "create") or words[1] == "--server-side" else words[:1])


def _refused(line: str, limit: str) -> Command:
    return Command(line, limit=limit, refused=True)


def _idle(line: str, kind: str) -> Command:
    return Command(line, limit=limits.NO_CONTROLLER.format(kind=kind))


COMMANDS = (
    # The cluster.
    Command("version", headings),
    Command("cluster-info"),
    Command("api-versions", exit_code),
    Command("api-resources", heading),
    Command("explain pod.spec.nodeName"),
    Command("explain job.spec.backoffLimit"),
    Command("explain deployment", headings),
    Command("get namespaces", heading),
    Command("get nodes", heading),
    Command("get nodes -o wide", heading),
    Command("top pods"),
    # Rights.
    Command("auth can-i create pods", limit=limits.NO_ACCESS_RULES),
    Command("auth can-i --list", heading, limits.NO_ACCESS_RULES),
    Command("auth whoami", heading, limits.NO_ACCESS_RULES),
    # A pod.
    Command("run one --image={image} --restart=Never -- sleep 600"),
    Command("wait --for=condition=Ready pod/one --timeout=60s"),
    Command("get pods one"),
    Command("get pod one -o wide", heading),
    Command("get pod one -o yaml", headings),
    Command("get pod one -o jsonpath='{{.spec.schedulerName}},{{.status.phase}}'"),
    Command("get pods -l run=one --field-selector=status.phase=Running -o name"),
    Command("get pods --all-namespaces", heading),
    Command("get pod nobody"),
    Command("describe pod one", headings),
    Command("get events --for pod/one", heading),
    Command("label pod one team=a"),
    Command("annotate pod one note=b"),
    Command("""patch pod one -p '{{"metadata":{{"labels":{{"team":"c"}}}}}}'"""),
    Command("get pods -l 'run in (one,two),team notin (a)' -o name"),
    Command("get events --sort-by=.lastTimestamp", heading),
    Command("edit pod one"),
    _refused("logs one", limits.NO_LOGS),
    _refused("exec one -- date", limits.NO_PROGRAM),
    _refused("attach one", limits.NO_PROGRAM),
    _refused("cp one:/etc/hosts {folder}/hosts", limits.NO_PROGRAM),
    _refused("port-forward one 18080:80", limits.NO_PROGRAM),
    _refused("debug one --image={image} --attach=false", limits.NO_PROGRAM),
    # A manifest.
    Command("apply -f {folder}/pod.yaml --dry-run=server"),
    Command("apply -f {folder}/pod.yaml"),
    Command("apply -f {folder}/pod.yaml"),
    Command("diff -f {folder}/pod.yaml"),
    Command("replace --force -f {folder}/pod.yaml"),
    Command("delete -f {folder}/pod.yaml"),
    Command("apply --server-side -f {folder}/settings.yaml", limit=limits.NO_FIELD_OWNERS),
    Command("replace -f {folder}/settings.yaml"),
    Command("apply -f {folder}/misspelt.yaml"),
    Command("create -f {folder}/list.yaml"),
    Command("delete -f {folder}/list.yaml"),
    # Controllers.
    Command("create deployment web --image={image} --replicas=2"),
    Command("rollout status deployment web --timeout=60s", exit_code),
    Command("scale deployment web --replicas=1"),
    Command("set image deployment/web *=elsewhere"),
    Command("rollout restart deployment web"),
    Command("rollout history deployment web", heading),
    Command("rollout undo deployment web"),
    Command("""patch deployment web --type=json -p '[{{"op":"replace","path":"/spec/replicas","value":2}}]'"""),
    Command("wait --for=condition=Available deployment/web --timeout=60s"),
    Command("get deployments,replicasets -l app=web", heading),
    _idle("expose deployment web --port=80", "Service"),
    _idle("autoscale deployment web --min=1 --max=3 --cpu=50%", "HorizontalPodAutoscaler"),
    Command("get hpa web", heading),
    Command("get all", heading),
    Command("describe deployment web", headings),
    Command("set env deployment web A=b"),
    Command("set resources deployment web --limits=cpu=1,memory=64Mi"),
    Command("delete deployment,service,hpa web"),
    Command("create job sum --image={image} -- sleep 600"),
    Command("wait --for=jsonpath={{.status.active}}=1 job/sum --timeout=60s"),
    Command("wait --for=condition=Ready pod -l job-name=sum --timeout=60s", exit_code),
    _refused("logs job/sum", limits.NO_LOGS),
    Command("get jobs sum"),
    Command("describe job sum", headings),
    Command("delete job sum"),
    _idle("create cronjob nightly --image={image} --schedule=@yearly -- sleep 1", "CronJob"),
    Command("create job tonight --from=cronjob/nightly"),
    Command("get cronjobs nightly"),
    Command("delete job/tonight cronjob/nightly"),
    # Other kinds.
    Command("create namespace {space}-more"),
    Command("label namespace {space}-more a=b"),
    Command("delete namespace {space}-more"),
    Command("create configmap more --from-literal=a=b"),
    Command("create secret generic password --from-literal=a=b"),
    Command("create serviceaccount robot"),
    _idle("create quota few --hard=pods=50", "ResourceQuota"),
    Command("get configmap/more secret/password serviceaccount/robot"),
    _refused("create token robot", limits.NO_TOKENS),
    _refused(
        "create role reader --verb=get --resource=pods",
        limits.NO_SUCH_KIND.format(plural="roles", version="rbac.authorization.k8s.io/v1"),
    ),
    Command("delete configmap/more secret/password serviceaccount/robot quota/few"),
    # Nodes.
    Command("describe node {node}", headings),
    Command("taint node {node} a=b:PreferNoSchedule"),
    Command("taint node {node} a-"),
    Command("cordon {node}"),
    Command("uncordon {node}"),
    Command("drain {node} --pod-selector=run=one --force --ignore-daemonsets"),
    Command("uncordon {node}"),
    Command("run two --image={image} --restart=Never -- sleep 600"),
    Command("delete pod two"),
)
