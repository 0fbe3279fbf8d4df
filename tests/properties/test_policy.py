"""Nothing reaches a job that the policy does not give, whatever pods, namespaces, labels and annotations say (I1).

100,000 pods go through the pure translation.  What the policy may give is computed here again, in a few lines that share
nothing with the code under test.  Pods are made by one seeded generator, most of them a step beside what is allowed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bridge.settings import Settings
from scheduler import names
from scheduler.model.kubernetes import Owner, OwnerRef, Pod
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import UNLIMITED, JobSpec
from scheduler.policy.tenants import Identities
from scheduler.translate.job_spec import Translation, TranslationContext, jobspec
from tests.builders import CLUSTER, pod

PODS = 100_000
SLURM_USER = "slurmd-owner"
USER_LABEL, ACCOUNT_LABEL, MORE_LABEL = "x/slurm-user", "x/account", "x/more"
GRES = {"nvidia.com/gpu": "gpu"}
SETTINGS = Settings.model_validate(
    {
        "policy": {
            "rules": [
                {"namespaces": ["plain"], "user": "alice", "account": {"allowed": ["teama"]}, "max_time": "60"},
                {
                    "namespaces": ["team-*"],
                    "service_accounts": ["svc-*"],
                    "user": "k8s-{serviceAccount}",
                    "qos": {"default": "normal", "allowed": ["high"]},
                    "max_gres": {"gpu": 2},
                },
                {
                    "namespace_selector": {"matchLabels": {"tenant": "yes"}},
                    "user": f"{{namespace.labels['{USER_LABEL}']}}",
                    "account": {
                        "default": f"{{namespace.labels['{ACCOUNT_LABEL}']}}",
                        "allowed": ["{namespace}-dev", "{namespace.labels['x/more']}"],
                    },
                    "partition": {"default": "main", "allowed": ["gpu"]},
                    "reservation": {"allowed": ["maint"]},
                    "max_time": "2:00:00",
                    "max_nodes": 4,
                    "max_gres": {"gpu": 8, "gpu:h100": 1},
                },
            ],
            "default": {"user": "guest-{namespace}", "partition": {"allowed": ["*"]}},
        },
        "priority_classes": {"high": {"qos": "high"}, "low": {"nice": 100}, "odd": {"qos": "other", "nice": 7}},
    }
)


@dataclass(frozen=True)
class Gives:
    """What one rule gives at most.  choices: account, partition, qos, reservation; None: anything"""

    user: str
    choices: tuple[set[str] | None, ...]
    minutes: int | None = None
    nodes: int | None = None
    gpus: int | None = None
    h100: int | None = None


def given(namespace: str, labels: Mapping[str, str], account: str) -> Gives | None:
    """By the rules above, read by a person; None: nothing."""
    nothing: set[str] = {""}
    if namespace == "plain":
        return Gives("alice", ({"", "teama"}, nothing, nothing, nothing), minutes=60)
    if namespace.startswith("team-") and account.startswith("svc-"):
        return Gives(f"k8s-{account}", (nothing, nothing, {"normal", "high"}, nothing), gpus=2)
    if labels.get("tenant") == "yes":
        user, paid = labels.get(USER_LABEL, ""), labels.get(ACCOUNT_LABEL, "")
        if not user or not paid or user.lower() in ("root", SLURM_USER) or user.lstrip("+-").isdecimal():
            return None
        accounts: tuple[set[str] | None, ...] = (
            {paid, f"{namespace}-dev", labels.get(MORE_LABEL) or paid},
            {"main", "gpu"},
            nothing,
            {"", "maint"},
        )
        return Gives(user, accounts, minutes=120, nodes=4, gpus=8, h100=1)
    return Gives(f"guest-{namespace}", (nothing, None, nothing, nothing))


class Chance:
    """Pods and what is around them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def one(self, *of: Any) -> Any:
        return self._random.choice(of)

    def labels(self) -> dict[str, str]:
        users = ("alice", "bob", "root", "Root", "0", "1000", SLURM_USER, SLURM_USER.upper(), "", "{namespace}")
        made = {
            "tenant": self.one("yes", "yes", "yes", "no"),
            USER_LABEL: self.one(*users),
            ACCOUNT_LABEL: self.one("teamb", ""),
            MORE_LABEL: self.one("teama", "", ""),
        }
        return {key: value for key, value in made.items() if self._random.random() < 0.9}

    def says(self) -> dict[str, str]:
        values = {
            names.ACCOUNT: ("teama", "teamb", "root", "team-a-dev", "space-dev", "*", "{namespace}"),
            names.PARTITION: ("main", "gpu", "secret", "main,gpu", "*"),
            names.QOS: ("normal", "high", "other", "*"),
            names.RESERVATION: ("maint", "other"),
            names.TIME_LIMIT: ("30", "60", "61", "2:00:00", "2:01:00", "UNLIMITED"),
            names.TIME_MIN: ("10", "100", "300"),
            names.NICE: ("0", "5", "-5"),
            names.MIN_NODES: ("1", "2", "5"),
            names.MAX_NODES: ("1", "4", "5"),
            names.GRES: ("gpu:2", "gpu:h100:1", "gpu:h100:2", "gpu:a100:9"),
            names.COMMENT: ("as root", f"user={SLURM_USER}"),
            names.JOB_NAME: ("a job", "x~k00000000.0123456789abcdef"),
            "user": ("root",),
            "user-id": ("0",),
        }
        keys = [key for key in values if self._random.random() < 0.06]
        return {key: self.one(*values[key]) for key in keys}

    def pod(self, namespace: str) -> tuple[Pod, tuple[Owner, ...], int]:
        """The pod, its owners, and how many members its workload has."""
        made = pod(
            namespace=namespace,
            gpu=self.one(0, 0, 0, 1, 2, 3, 9),
            says=self.says(),
            labels=self.labels(),  # of the pod: none of them is a source
            service_account=self.one("default", "svc-a", "svc-root", "svc-", "x-svc-a", "root", ""),
            restart_policy=self.one("Never", "Always"),
            active_deadline_s=self.one(None, None, None, 60, 3601, 7201, 99_999_999),
            priority_class=self.one("", "high", "low", "odd", "system-cluster-critical"),
        )
        lifted = {names.PREFIX + key: value for key, value in self.says().items()} if self.one(0, 0, 1) else {}
        foreign = {**self.labels(), "slurmjob.slinky.slurm.net/user": "root"} if self._random.random() < 0.02 else {}
        owner = Owner(OwnerRef("batch/v1", "Job", "train", "uid"), annotations=lifted)
        return replace(made, annotations={**made.annotations, **foreign}), (owner,), self.one(1, 1, 2, 4, 5, 16)


def beyond(spec: JobSpec, gives: Gives, pods: int) -> list[str]:
    """What of the job the policy does not give.  pods: how many members its workload has"""
    asked = (spec.account, spec.partition, spec.qos, spec.reservation)
    wrong = [
        f"{value!r}"
        for value, allowed in zip(asked, gives.choices, strict=True)
        if allowed is not None and value not in allowed
    ]
    if spec.user != gives.user:
        wrong.append(f"user {spec.user}")
    minutes = spec.time_limit_min
    if gives.minutes is not None and (minutes is None or minutes == UNLIMITED or minutes > gives.minutes):
        wrong.append(f"{minutes} minutes")
    if gives.nodes is not None and max(spec.min_nodes or 1, min(pods, spec.max_nodes or pods)) > gives.nodes:
        wrong.append("nodes")
    devices = Counter(dict(spec.gres))
    if (
        gives.gpus is not None
        and sum(count for name, count in devices.items() if name.split(":")[0] == "gpu") > gives.gpus
    ):
        wrong.append("GPUs")
    if gives.h100 is not None and devices["gpu:h100"] > gives.h100:
        wrong.append("H100s")
    if (spec.nice or 0) < 0:
        wrong.append("nice")
    return wrong


def translated(
    rng: Chance,
    identities: Identities,
    translation_context: TranslationContext,
    spaces: list[tuple[str, dict[str, str]]],
) -> Any:
    """One pod: what became of it, and what the policy gives there."""
    namespace, labels = rng.one(*spaces)
    what, owners, pods = rng.pod(namespace)
    tenant = identities.of(namespace, labels, what.service_account)
    gives = given(namespace, labels, what.service_account)
    if isinstance(tenant, Refusal):
        return what, gives, tenant, pods
    return (
        what,
        gives,
        jobspec(what, owners, tenant, translation_context, names.workload_key(what.uid), pods=pods),
        pods,
    )


def test_nothing_reaches_a_job_that_the_policy_does_not_give() -> None:
    rng = Chance(seed=15)
    policy = SETTINGS.core_policy(SLURM_USER)
    longest: Callable[[str], int | None] = {"": 10_000, "main": UNLIMITED}.get
    translation_context = TranslationContext(Translation(GRES), CLUSTER, longest, policy.priorities)
    identities, spaces = Identities(policy), []
    jobs, users = 0, Counter[str]()
    for number in range(PODS):
        if number % 500 == 0:  # other namespaces, and other labels of the same: what was remembered must not be used
            named = ("plain", "team-a", "team-b", "space", "root", "0", "other", "plain-2")
            spaces = [(name, rng.labels()) for name in named]
        what, gives, found, pods = translated(rng, identities, translation_context, spaces)
        if isinstance(found, Refusal):
            assert found.message, what
            continue
        assert gives is not None, (what, found)
        assert beyond(found, gives, pods) == [], (what, found, gives)
        jobs += 1
        users[found.user] += 1
    assert jobs > PODS / 10, "most pods are refused for something, but not nearly all"
    assert {"alice", "bob", "k8s-svc-root", "guest-root", "guest-0", "{namespace}"} <= users.keys(), users
    assert not {"root", "Root", "0", "1000", "", SLURM_USER, SLURM_USER.upper()} & users.keys()
