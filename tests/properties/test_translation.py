"""The translation is total: whatever a pod and its annotations say, the answer is a job or a sentence (T8, T9, X7)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler import names
from scheduler.model.kubernetes import Container, Owner, Pod
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import UNLIMITED, JobSpec
from scheduler.place.fit import needs
from scheduler.policy.rules import ANY, Choice, Tenant
from scheduler.translate.job_options import job_options, user_input
from scheduler.translate.job_spec import MIB, MOST_AMOUNT, MOST_CPUS, Translation, TranslationContext, jobspec, peak
from scheduler.translate.values import MAX_TEXT
from tests.builders import CLUSTER, OWNER, key_of, pod

FREE = Tenant("alice", *(Choice("", (ANY,)) for _ in range(4)))
TRANSLATION = Translation(gres={"nvidia.com/gpu": "gpu"}, ignored=("example.org/*",))
AROUND = TranslationContext(TRANSLATION, CLUSTER, lambda _: 60)
KEYS = st.one_of(
    st.sampled_from(sorted(names.JOB_OPTIONS | names.GROUPING | names.WRITTEN_BY_US)).map(
        lambda key: names.PREFIX + key
    ),
    st.sampled_from(sorted(names.ALIASES) + sorted(names.ALIASES_REFUSED)).map(lambda key: names.ALIAS_PREFIX + key),
    st.text(max_size=20).map(lambda text: names.PREFIX + text),
    st.text(max_size=20),
)
VALUES = st.one_of(
    st.text(max_size=40),
    st.text("0123456789:-+.,eEkKmMgGtTiB \n", max_size=12),
    st.sampled_from(
        ["gpu:2", "gpu:h100:1", "4G", "1", "1-12:00:00", "true", "NaN", "-1", "1e99", "UNLIMITED", "x" * 200_000]
    ),
)
SAID = st.dictionaries(KEYS, VALUES, max_size=4)
AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "example.org/fpga"]), st.integers(0, 10**15), max_size=4
)
CONTAINERS = st.builds(Container, st.just("c"), AMOUNTS, AMOUNTS, st.booleans())
PODS = st.builds(
    Pod,
    st.just("uid"),
    st.just("hpc"),
    st.just("p"),
    annotations=SAID,
    restart_policy=st.sampled_from(["Always", "OnFailure", "Never"]),
    active_deadline_s=st.none() | st.integers(1, 10**9),
    containers=st.lists(CONTAINERS, max_size=3).map(tuple),
    init_containers=st.lists(CONTAINERS, max_size=3).map(tuple),
    overhead=AMOUNTS,
    pod_requests=AMOUNTS,
    pod_limits=AMOUNTS,
)
OWNERS = st.lists(st.builds(Owner, st.just(OWNER), SAID, st.none(), st.none() | st.integers(1, 10**6)), max_size=2)


@given(PODS, OWNERS.map(tuple))
@settings(max_examples=120)
def test_any_annotations_become_a_job_or_a_sentence(pod: Pod, owners: tuple[Owner, ...]) -> None:
    answer = jobspec(pod, owners, FREE, AROUND, key_of(pod))
    if isinstance(answer, Refusal):
        assert answer.message.isprintable()
        assert len(answer.message) < 400
        return
    assert answer.cpus_per_task >= 1
    assert answer.memory_mib >= 1
    assert all(count > 0 for _, count in answer.gres)
    assert answer.nice is None or answer.nice >= 0
    assert answer.time_limit_min is None or answer.time_limit_min == UNLIMITED or answer.time_limit_min >= 1
    assert names.parse_job_name(answer.name) == (CLUSTER, key_of(pod))
    assert "singleton" in answer.dependency
    assert "?" not in answer.dependency
    for text in (answer.name, answer.account, answer.partition, answer.constraints, answer.comment, answer.reservation):
        assert text.isprintable()
        assert len(text) <= MAX_TEXT


@given(PODS, OWNERS.map(tuple))
@settings(max_examples=120)
def test_whatever_the_annotations_say_no_user_is_charged_for_less_than_the_containers_may_take(
    pod: Pod, owners: tuple[Owner, ...]
) -> None:
    """T6."""
    answer = jobspec(pod, owners, FREE, AROUND, key_of(pod))
    if isinstance(answer, JobSpec):
        takes = peak(pod)
        assert answer.cpus_per_task * 1000 >= takes.get("cpu", 0)
        assert answer.memory_mib * 1024 * 1024 >= takes.get("memory", 0)
        charged = sum(count for name, count in answer.gres if name.partition(":")[0] == "gpu")
        assert charged >= takes.get("nvidia.com/gpu", 0)


@given(SAID, OWNERS.map(tuple))
@settings(max_examples=100)
def test_the_pod_wins_over_its_owners_key_by_key(said: dict[str, str], owners: tuple[Owner, ...]) -> None:
    alone, together = user_input(pod(annotations=said)), user_input(pod(annotations=said), owners)
    if isinstance(alone, Refusal):
        assert together == alone
    elif not isinstance(together, Refusal):
        assert dict(alone).items() <= dict(together).items()


@given(SAID)
@settings(max_examples=100)
def test_the_order_of_annotations_decides_nothing(said: dict[str, str]) -> None:
    one, other = job_options(pod(annotations=said)), job_options(pod(annotations=dict(reversed(said.items()))))
    if isinstance(one, Refusal):
        assert isinstance(other, Refusal)  # it may name another of several mistakes
    else:
        assert one == other


@given(PODS, CONTAINERS)
@settings(max_examples=100)
def test_a_pod_with_one_container_more_needs_no_less(pod: Pod, more: Container) -> None:
    larger = Pod("uid", "hpc", "p", containers=(*pod.containers, more), init_containers=pod.init_containers)
    smaller = Pod("uid", "hpc", "p", containers=pod.containers, init_containers=pod.init_containers)
    for resource, amount in needs(smaller).items():
        assert needs(larger)[resource] >= amount
    for resource, amount in peak(smaller).items():
        assert peak(larger)[resource] >= amount


@given(PODS)
@settings(max_examples=100)
def test_slurm_is_never_asked_for_less_cpu_than_kubernetes_counts(pod: Pod) -> None:
    """T2, T3: else two pods of one node would not fit where Slurm put them."""
    bare = Pod("uid", "hpc", "p", containers=pod.containers, init_containers=pod.init_containers, overhead=pod.overhead)
    spec = jobspec(bare, (), FREE, AROUND, "0" * 16)
    if isinstance(spec, Refusal):
        most = {"cpu": 1000 * MOST_CPUS, "memory": MIB * MOST_AMOUNT, "nvidia.com/gpu": MOST_AMOUNT}
        assert any(amount > most.get(resource, amount) for resource, amount in peak(bare).items())
        return
    counted = needs(bare)
    assert spec.cpus_per_task * 1000 >= counted.get("cpu", 0)
    assert spec.memory_mib * MIB >= counted.get("memory", 0)
    assert dict(spec.gres).get("gpu", 0) >= counted.get("nvidia.com/gpu", 0)
