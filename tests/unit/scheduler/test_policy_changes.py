"""Policy and labels change while pods wait and run, and while no bridge runs: whose jobs they are then (I8, V8)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import (
    Action,
    AllocateNow,
    BindPod,
    CancelJob,
    DeletePod,
    FailByDeadline,
    Outcome,
    ReadJob,
    SetPodCondition,
    SubmitJob,
    UpdateJob,
)
from scheduler.apply.events import new_world
from scheduler.events import (
    NamespaceSeen,
    NamespacesListed,
    NodeSeen,
    NodesListed,
    PodsListed,
    PolicyChanged,
    Scope,
    SlurmNodesPolled,
)
from scheduler.explain import explain
from scheduler.model.kubernetes import Namespace, Pod, PodPhase
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Job, Partition
from scheduler.model.text import dated
from scheduler.policy.rules import Choice, Policy, Rule, Tenant
from scheduler.state.jobs import MAX_UNREADABLE
from scheduler.state.named_job import TIME_FORMAT
from tests.builders import (
    CLUSTER,
    CONFIG,
    KUBE_SYSTEM,
    OF_A_BIND,
    START,
    Story,
    grant,
    job_of,
    key_of,
    node,
    pod,
    slurm_node,
)

NOW = START + 20
LABEL = "x/slurm-user"
BY_LABEL = Rule(("*",), Tenant(f"{{namespace.labels['{LABEL}']}}", partitions=Choice("", ("gpu",))))
TRAIN = pod("train")
DECIDES = "Rule 1 of the policy (namespaces hpc) decides here."
ENDS = (CancelJob, FailByDeadline, DeletePod)


def labelled(story: Story, namespace: str = "hpc", user: str = "") -> None:
    """The namespace is managed, and labelled with that user; with none where that is empty."""
    told = {names.MANAGED_LABEL: "true"} | ({LABEL: user} if user else {})
    story.sees(NamespaceSeen(Namespace(namespace, "1", told)))


def story_of(*rules: Rule, user: str = "alice", default: Tenant | None = None) -> Story:
    story = Story(replace(CONFIG, policy=Policy(rules or (BY_LABEL,), default, frozenset({"slurm"}))))
    labelled(story, user=user)
    return story


def says(story: Story, what: Pod = TRAIN, at: float = NOW) -> str:
    return explain(story.world, key_of(what), at).sentence


def submissions(story: Story, at: float) -> list[AllocateNow | SubmitJob]:
    return [each for each in story.decides(at) if isinstance(each, AllocateNow | SubmitJob)]


def lives_on(story: Story, states: dict[int, str], job: Job, *, at: float, seconds: int = 60) -> list[Action]:
    """Every action but reads and reports, which are answered."""
    found: list[Action] = []
    for second in range(seconds):
        story.polls(states, at=at + second)
        for action in story.decides(at + second):
            if isinstance(action, ReadJob):
                story.reads(job, at=at + second, granted=grant(job.id))
            elif not isinstance(action, SetPodCondition):
                found.append(action)
            story.ended(action, at=at + second)
    return found


# --- labels -------------------------------------------------------------------------------------------------------------


def test_a_pod_without_its_label_is_refused_in_words_and_submitted_once_the_label_is_there() -> None:
    story = story_of()
    labelled(story)
    story.sees(TRAIN)
    assert submissions(story, NOW) == []
    assert says(story).endswith("kubectl label namespace hpc x/slurm-user=VALUE.")
    labelled(story, user="bob")
    [asked] = submissions(story, NOW + 1)
    assert asked.spec.user == "bob"


def test_a_namespace_that_loses_its_label_keeps_its_pods_and_submits_nothing_new() -> None:
    story = story_of()
    shown = story.runs(TRAIN, 17, at=NOW)
    labelled(story)
    story.sees(pod("next"))
    job = job_of(TRAIN, 17, submitted=NOW)
    assert lives_on(story, {17: "RUNNING"}, job, at=NOW + 1) == []
    assert "has no label x/slurm-user" in says(story, pod("next"), NOW + 60)
    story.sees(replace(shown, phase=PodPhase.SUCCEEDED))
    [cancel] = story.acts(CancelJob, NOW + 70)
    assert (cancel.job_id, cancel.user) == (17, "alice")


def test_a_job_that_waits_keeps_its_user_and_its_pod_is_bound_to_what_it_is_granted() -> None:
    story = story_of()
    story.queues(TRAIN, 17, at=NOW)
    labelled(story, user="bob")
    job = job_of(TRAIN, 17, "PENDING", submitted=NOW)
    assert lives_on(story, {17: "PENDING"}, job, at=NOW + 1) == []
    story.polls({17: "RUNNING"}, at=NOW + 70)
    story.reads(replace(job, states=frozenset({"RUNNING"}), nodes="x1"), at=NOW + 70, granted=grant(17))
    [bind] = story.acts(BindPod, NOW + 70)
    assert bind.node == "x1"


def test_two_hundred_tenants_are_one_rule_and_each_has_the_limit_of_its_own() -> None:
    own = Tenant(f"{{namespace.labels['{LABEL}']}}", accounts=Choice("acct-{namespace}"), max_jobs=1)
    story = story_of(Rule(("team-*",), own))
    story.checked = False
    teams = [f"team-{number}" for number in range(200)]
    for number, team in enumerate(teams):
        labelled(story, team, user=f"user{number}")
        for name in ("first", "second"):
            story.sees(pod(f"{team}-{name}", namespace=team))
    asked: list[AllocateNow | SubmitJob] = []
    while plan := submissions(story, NOW):
        for each in plan:
            asked.append(each)
            story.ended(each, at=NOW, job_id=len(asked), grant=grant(len(asked)))
    assert sorted((each.spec.user, each.spec.account) for each in asked) == sorted(
        (f"user{number}", f"acct-{team}") for number, team in enumerate(teams)
    )


@pytest.mark.parametrize("user", ["root", "1000", "slurm", "SLURM"])
def test_no_label_makes_a_pod_root_or_slurm_itself(user: str) -> None:
    story = story_of(user=user)
    story.sees(TRAIN)
    assert lives_on(story, {}, job_of(TRAIN, 17), at=NOW) == []
    assert f'with "{user}", which ' in says(story)


def test_what_slurm_does_not_know_names_the_rule_and_what_it_gave() -> None:
    story = story_of(Rule(("*",), Tenant("alice", accounts=Choice("acct-{namespace}"))))
    story.sees(TRAIN)
    [asked] = submissions(story, NOW)
    refusal = Refusal(names.REFUSED, "Slurm refused it.", 2045)
    story.ended(asked, Outcome.REFUSED, at=NOW, refusal=refusal)
    told = (
        'Slurm refused it. Asked for: user "alice", account "acct-hpc", partition "main". '
        'Rule 1 of the policy (namespaces *) gives here: account "acct-hpc" (acct-{namespace}). '
        "What an admin can do: sacctmgr show association where user=alice account=acct-hpc shows if the user has the account."
        " If not: sacctmgr add user alice account=acct-hpc (before that, sacctmgr add account acct-hpc if Slurm has no such "
        "account). Otherwise the partition excludes it: see AllowAccounts and DenyAccounts in scontrol show partition main."
    )
    assert says(story).startswith(told)
    assert {each.message for each in story.acts(SetPodCondition, NOW + 1)} == {told}


@pytest.mark.parametrize(
    ("number", "named", "do"),
    [
        (2000, 'user "alice", account "teama", partition "main", qos "high"', "sinfo -s lists the partitions"),
        (2045, 'user "alice", account "teama"', "sacctmgr add user alice account=teama"),
        (2066, 'partition "main", qos "high"', "sacctmgr modify user alice set qos+=high"),
        (2053, 'reservation "maintenance"', "scontrol show reservation lists the reservations"),
        (2001, 'user "alice"', "scontrol update partition=PARTITION default=yes"),
        (2070, 'partition "main"', "scontrol update partition=main state=up"),
        (2003, 'partition "main"', "scontrol show partition main shows whose groups may use it (AllowGroups)"),
        (2002, 'partition "main"', "scontrol show partition main shows who may use it (RootOnly, AllocNodes, ReqResv)"),
        (2006, 'partition "main"', "scontrol show partition main shows MinNodes and MaxNodes"),
        (2051, 'partition "main"', "scontrol show partition main shows MaxTime"),
        (2014, 'partition "main"', "shows MaxCPUsPerNode, and sinfo -p main -o '%n %c %m %G %f' what its nodes have"),
        (2044, 'partition "main"', "scontrol show partition main shows MaxMemPerNode and MaxMemPerCPU"),
        (6010, 'user "alice"', "where `id alice` must work"),
    ],
)
def test_what_slurm_does_not_know_is_named_for_a_rule_without_templates_too(number: int, named: str, do: str) -> None:
    kept = Choice("maintenance")
    given = Tenant("alice", Choice("teama"), partitions=Choice("main"), qos=Choice("high"), reservations=kept)
    story = story_of(Rule(("hpc",), given))
    story.sees(TRAIN)
    [asked] = submissions(story, NOW)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=number)
    [told] = {each.message for each in story.acts(SetPodCondition, NOW + 1)}
    assert named in told
    assert DECIDES in told
    assert do in told


@pytest.mark.parametrize(
    ("number", "do"),
    [
        (
            2045,
            "sacctmgr show association where user=alice shows the accounts of the user. If there are none: sacctmgr add user "
            "alice account=ACCOUNT. Otherwise the partition excludes the default account: see AllowAccounts and DenyAccounts "
            "in scontrol show partition PARTITION.",
        ),
        (
            2066,
            "sacctmgr -P show association where user=alice format=account,defaultqos,qos shows the default QOS of the user "
            "in each account. The partition may exclude it: see AllowQos and DenyQos in scontrol show partition PARTITION.",
        ),
        (2070, "scontrol update partition=PARTITION state=up."),
        (2051, "scontrol show partition PARTITION shows MaxTime; a QOS may limit times, too."),
        (
            2050,
            "sacctmgr show association where user=alice account=ACCOUNT shows MaxSubmitJobs and more; the account and a QOS "
            "may have limits, too.",
        ),
    ],
)
def test_what_to_do_if_slurm_refuses_a_name_that_neither_the_job_nor_slurms_configuration_says(
    number: int, do: str
) -> None:
    story = story_of(Rule(("hpc",), Tenant("alice")))
    story.sees(SlurmNodesPolled((slurm_node("x1"), slurm_node("x2")), (Partition("main"),), NOW), TRAIN)
    [asked] = submissions(story, NOW)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=number)
    [told] = {each.message for each in story.acts(SetPodCondition, NOW + 1)}
    assert told.endswith(f'Asked for: user "alice". {DECIDES} What an admin can do: {do}')


@pytest.mark.parametrize(("number", "what"), [(2045, "Accounts"), (2066, "Qos")])
def test_a_refused_account_or_qos_is_shown_with_the_partition_that_the_job_named(number: int, what: str) -> None:
    given = Tenant("alice", accounts=Choice("teama"), partitions=Choice("gpu"), qos=Choice("high"))
    story = story_of(Rule(("hpc",), given))
    story.sees(TRAIN)
    [asked] = submissions(story, NOW)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=number)
    [told] = {each.message for each in story.acts(SetPodCondition, NOW + 1)}
    assert 'Asked for: user "alice", account "teama", partition "gpu", qos "high".' in told
    assert told.endswith(
        f"Otherwise the partition excludes it: see Allow{what} and Deny{what} in scontrol show partition gpu."
    )


def test_a_refused_pod_that_names_no_partition_shows_the_default_one() -> None:
    """An admin made the partition INACTIVE; Slurm's text names no partition."""
    story = story_of(Rule(("hpc",), Tenant("alice")))
    story.sees(TRAIN)
    [asked] = submissions(story, NOW)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2070)
    [told] = {each.message for each in story.acts(SetPodCondition, NOW + 1)}
    assert 'Asked for: user "alice", partition "main".' in told
    assert told.endswith("What an admin can do: scontrol update partition=main state=up.")


def test_an_unknown_partition_names_the_rule_that_gave_it() -> None:
    story = story_of(Rule(("*",), Tenant("alice", partitions=Choice("{namespace}"))))
    story.sees(TRAIN)
    assert submissions(story, NOW) == []
    assert says(story) == (
        'Slurm has no partition "hpc". It has: gpu, main. '
        'Rule 1 of the policy (namespaces *) gives here: partition "hpc" ({namespace}).'
    )


# --- another policy -----------------------------------------------------------------------------------------------------


def test_another_policy_is_in_force_for_what_is_not_submitted_yet() -> None:
    story = story_of(Rule(("other",), Tenant("bob")))
    story.sees(TRAIN)
    assert submissions(story, NOW) == []
    story.sees(PolicyChanged(Policy((Rule(("hpc",), Tenant("carol")),)), NOW + 1))
    [asked] = submissions(story, NOW + 1)
    assert asked.spec.user == "carol"


def test_what_slurm_refused_is_asked_for_again_by_another_policy() -> None:
    story = story_of(Rule(("hpc",), Tenant("alice", accounts=Choice("no-such"))))
    story.sees(TRAIN)
    [asked] = submissions(story, NOW)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2045)
    story.sees(PolicyChanged(Policy((Rule(("hpc",), Tenant("alice")),)), NOW + 30))
    [asked] = submissions(story, NOW + 30)
    assert asked.spec.account == ""


@pytest.mark.parametrize(("namespace", "is_asked"), [("hpc", True), ("other", False)])
def test_what_slurm_refused_is_asked_for_again_when_the_labels_of_its_namespace_change(
    namespace: str, is_asked: bool
) -> None:
    story = story_of()
    story.sees(TRAIN)
    [asked] = submissions(story, NOW)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2045)
    labelled(story, namespace, user="bob")
    assert [each.spec.user for each in submissions(story, NOW + 30)] == ["bob"] * is_asked


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_grant_is_judged_by_the_policy_that_holds_when_the_pod_is_bound(is_answered: bool) -> None:
    """What the submission decided of the pod's identity holds only until the policy changes."""
    story = story_of(Rule(("hpc",), Tenant("alice")))
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    nobody = PolicyChanged(Policy((Rule(("other",), Tenant("bob")),)), NOW + 1)
    if is_answered:
        story.ended(asked, at=NOW + 1, job_id=17, grant=grant(17))
        story.sees(nobody)
    else:
        story.sees(nobody)
        story.ended(asked, at=NOW + 1, job_id=17, grant=grant(17))
    story.world.validate()
    acts = story.decides(NOW + 1)
    assert not [each for each in acts if isinstance(each, BindPod)]
    [cancel] = [each for each in acts if isinstance(each, CancelJob)]
    assert "hpc" in cancel.reason


def test_pods_that_run_stay_under_another_policy_and_their_job_ends_with_them() -> None:
    story = story_of()
    shown = story.runs(TRAIN, 17, at=NOW)
    story.sees(PolicyChanged(Policy((Rule(("hpc",), Tenant("bob")),)), NOW + 1))
    assert lives_on(story, {17: "RUNNING"}, job_of(TRAIN, 17, submitted=NOW), at=NOW + 2) == []
    story.sees(replace(shown, phase=PodPhase.SUCCEEDED))
    [cancel] = story.acts(CancelJob, NOW + 90)
    assert (cancel.job_id, cancel.user) == (17, "alice")


def test_a_job_that_waits_follows_the_policy_in_what_slurm_can_change_in_place() -> None:
    story = story_of(Rule(("hpc",), Tenant("alice", partitions=Choice("main"))))
    story.queues(TRAIN, 17, at=NOW)
    story.sees(PolicyChanged(Policy((Rule(("hpc",), Tenant("alice", partitions=Choice("gpu"))),)), NOW + 1))
    [update] = lives_on(story, {17: "PENDING"}, job_of(TRAIN, 17, "PENDING"), at=NOW + 2, seconds=2)
    assert isinstance(update, UpdateJob)
    assert (update.user, update.changes, update.spec.partition) == ("alice", {"partition"}, "gpu")


def test_a_job_that_waits_is_not_changed_while_its_namespace_is_not_managed_and_its_pod_says_so() -> None:
    story = story_of(Rule(("hpc",), Tenant("alice", accounts=Choice("teama"))))
    story.queues(TRAIN, 17, at=NOW)
    story.sees(NamespaceSeen(Namespace("hpc", "1")))
    story.sees(PolicyChanged(Policy((Rule(("hpc",), Tenant("alice", accounts=Choice("teamb"))),)), NOW + 1))
    assert "Namespace hpc is not managed by slurm-bridge" in says(story, at=NOW + 2)
    assert not lives_on(story, {17: "PENDING"}, job_of(TRAIN, 17, "PENDING"), at=NOW + 2, seconds=3)
    labelled(story)
    [update] = lives_on(story, {17: "PENDING"}, job_of(TRAIN, 17, "PENDING"), at=NOW + 6, seconds=2)
    assert isinstance(update, UpdateJob)
    assert update.changes == {"account"}


def test_a_job_that_waits_as_the_former_user_follows_nothing_of_the_new_users_rule_and_its_pod_says_so() -> None:
    story = story_of(Rule(("hpc",), Tenant("alice", accounts=Choice("teama"))))
    story.queues(TRAIN, 17, at=NOW)
    bobs = Tenant("bob", accounts=Choice("teamb"), partitions=Choice("gpu"))
    story.sees(PolicyChanged(Policy((Rule(("hpc",), bobs),)), NOW + 1))
    job = job_of(TRAIN, 17, "PENDING", submitted=NOW)
    told = [each.message for each in story.acts(SetPodCondition, NOW + 2)]
    assert lives_on(story, {17: "PENDING"}, job, at=NOW + 2) == []
    note = (
        "The policy now gives the pod Slurm user bob, but job 17 still waits as user alice; recreate the pod to submit a "
        "job as bob."
    )
    assert [each for each in told if each.endswith(note)]


def test_a_job_of_another_user_under_the_id_of_a_former_job_gets_nothing_of_the_former_users_rule() -> None:
    """Slurm lost its jobs, and the answer to the submission of the second job was lost, too (V8)."""
    story = story_of(Rule(("hpc",), Tenant("alice", accounts=Choice("teama"))))
    story.queues(TRAIN, 17, at=NOW)
    of_bob = Policy((Rule(("hpc",), Tenant("bob", accounts=Choice("teamb"))),))
    story.sees(PolicyChanged(of_bob, NOW + 1))
    bobs = job_of(TRAIN, 17, "PENDING", user="bob", submitted=NOW + 5)
    assert lives_on(story, {17: "PENDING"}, bobs, at=NOW + 6, seconds=5) == []
    story.sees(PolicyChanged(Policy((Rule(("hpc",), Tenant("alice", accounts=Choice("teamc"))),)), NOW + 20))
    assert lives_on(story, {17: "PENDING"}, bobs, at=NOW + 21) == []


@pytest.mark.parametrize(("partition", "excluded"), [("main", ["x2"]), ("gpu", [])])
def test_a_job_that_waits_as_the_former_user_follows_the_nodes_of_its_partition_alone(
    partition: str, excluded: list[str]
) -> None:
    story = story_of(Rule(("hpc",), Tenant("alice", partitions=Choice("main"))))
    story.queues(TRAIN, 17, at=NOW)
    bobs = Tenant("bob", partitions=Choice(partition))
    story.sees(PolicyChanged(Policy((Rule(("hpc",), bobs),)), NOW + 1), NodeSeen(node("x2", unschedulable=True)))
    acts = lives_on(story, {17: "PENDING"}, job_of(TRAIN, 17, "PENDING", submitted=NOW), at=NOW + 2)
    assert [each.spec.excluded_nodes for each in acts if isinstance(each, UpdateJob)] == excluded


def test_pods_that_waited_for_a_limit_go_when_the_limit_is_gone() -> None:
    story = story_of(Rule(("hpc",), Tenant("alice", max_jobs=1)))
    story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(pod("next"))
    assert submissions(story, NOW + 2) == []
    story.sees(PolicyChanged(Policy((Rule(("hpc",), Tenant("alice")),)), NOW + 3))
    assert len(submissions(story, NOW + 3)) == 1


def test_jobs_that_there_are_count_against_the_limit_of_another_policy() -> None:
    story = story_of()
    story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(PolicyChanged(Policy((Rule(("hpc",), Tenant("alice", max_jobs=1)),)), NOW + 3))
    story.sees(pod("next"))
    assert submissions(story, NOW + 4) == []
    assert "max_jobs" in says(story, pod("next"), NOW + 4)


def test_a_job_whose_answer_was_lost_stays_the_pods_though_a_label_gives_another_user_before_it_is_found() -> None:
    """By a template the job could be anybody's; that this process asked for it as alice proves whose it is (V1)."""
    story = story_of()
    story.sees(TRAIN)
    [asked] = submissions(story, NOW)
    story.ended(asked, Outcome.UNKNOWN, at=NOW + 2)
    labelled(story, user="bob")
    acts = lives_on(story, {17: "RUNNING"}, job_of(TRAIN, 17, submitted=NOW), at=NOW + 3)
    assert [type(each) for each in acts] == [BindPod]


def test_a_job_that_is_found_before_its_answer_is_known_to_be_lost_stays_the_pods() -> None:
    story = story_of()
    story.sees(TRAIN)
    [asked] = submissions(story, NOW)
    labelled(story, user="bob")
    story.polls({17: "RUNNING"}, at=NOW + 1)
    [read] = story.acts(ReadJob, NOW + 1)
    job = job_of(TRAIN, 17, submitted=NOW)
    story.reads(job, at=NOW + 1, granted=grant(17))
    story.ended(read, at=NOW + 1)
    story.ended(asked, Outcome.UNKNOWN, at=NOW + 2)
    assert [type(each) for each in lives_on(story, {17: "RUNNING"}, job, at=NOW + 3)] == [BindPod]


def test_a_job_that_the_former_user_names_after_the_pod_long_after_the_lost_answer_is_left_alone() -> None:
    story = story_of()
    story.sees(TRAIN)
    [asked] = submissions(story, NOW)
    story.ended(asked, Outcome.UNKNOWN, at=NOW + 2)
    labelled(story)
    assert lives_on(story, {}, job_of(TRAIN, 17), at=NOW + 3) == []
    labelled(story, user="bob")
    acts = lives_on(story, {17: "RUNNING"}, job_of(TRAIN, 17, submitted=NOW + 63), at=NOW + 65, seconds=3)
    assert {each.spec.user for each in acts if isinstance(each, AllocateNow)} == {"bob"}
    assert 17 not in story.world.placeholders


# --- limits of a rule with a template ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("users", "asked"), [(("alice", "bob"), 2), (("alice", "alice"), 1)])
def test_each_user_of_a_template_has_the_limit_to_himself(users: tuple[str, str], asked: int) -> None:
    rule = replace(BY_LABEL, tenant=replace(BY_LABEL.tenant, max_jobs=1))
    story = story_of(rule)
    labelled(story, "hpc", user=users[0])
    labelled(story, "other", user=users[1])
    given: dict[str, Any] = {"says": {"begin": "now+1hour"}}
    story.sees(
        *(pod(f"{space}{number}", namespace=space, **given) for space in ("hpc", "other") for number in range(3))
    )
    assert len(submissions(story, NOW)) == asked


# --- across lives -------------------------------------------------------------------------------------------------------


WRITTEN_OUT = (Rule(("hpc",), Tenant("bob")), Rule(("other",), Tenant("alice")))


def test_a_job_that_waits_since_the_policy_gave_another_user_ends_before_its_pod_gets_a_job_of_its_own() -> None:
    """The policy changed while no bridge ran; singleton protects jobs of one user from one another only."""
    story = story_of(*WRITTEN_OUT)
    waits = replace(TRAIN, created=START - 100)
    story.sees(waits)
    job, found = job_of(TRAIN, 17, "PENDING", submitted=START - 90), []
    said: list[SetPodCondition] = []
    story.polls({17: "PENDING"}, at=START + 1)
    for second in range(1, 30):
        states = "CANCELLED" if found else "PENDING"
        story.polls({17: states}, at=START + second)
        for action in story.decides(START + second):
            if isinstance(action, ReadJob):
                story.reads(replace(job, states=frozenset({states})), at=START + second)
            elif isinstance(action, CancelJob | AllocateNow):
                found.append(action)
            elif isinstance(action, SetPodCondition):
                said.append(action)
            story.ended(action, at=START + second)
    assert [(each.condition, each.message) for each in said] == [
        (
            names.PENDING,
            "Slurm job 17 of alice ends first: it was made for the pod when the policy gave that user.",
        )
    ]
    first, second_one = found[:2]
    assert isinstance(first, CancelJob)
    assert (first.job_id, first.user) == (17, "alice")
    assert isinstance(second_one, AllocateNow)
    assert second_one.spec.user == "bob"


def test_a_job_of_a_former_user_that_the_hint_of_another_pod_hides_ends_before_its_pod_asks_for_its_own() -> None:
    """slurmctld lost its state and gave the id of a running pod to the waiting pod's job; no scan reads what pods show."""
    story = story_of(Rule(("other",), Tenant("bob")))
    runs = pod("runs", created=START - 200)
    story.sees(replace(TRAIN, created=START - 100), story.bound(runs, 17, started=START - 190))
    job = job_of(TRAIN, 17, user="bob", submitted=START - 90)
    assert lives_on(story, {17: "RUNNING"}, job, at=NOW, seconds=5) == [], "the policy gives nobody"
    both = Policy((Rule(("hpc",), Tenant("alice")), Rule(("other",), Tenant("bob"))))
    story.sees(PolicyChanged(both, NOW + 6))
    [cancel] = [
        each for each in lives_on(story, {17: "RUNNING"}, job, at=NOW + 6, seconds=2) if type(each) is CancelJob
    ]
    assert (cancel.job_id, cancel.user) == (17, "bob")
    acts = lives_on(story, {17: "CANCELLED"}, job, at=NOW + 8, seconds=5)
    assert [each.spec.user for each in acts if isinstance(each, AllocateNow)][:1] == ["alice"]


def given_a_user(late: float, *unread: int) -> Story:
    """The policy gives a user to the pod of an earlier process, while these running jobs have not been read."""
    story = story_of(Rule(("other",), Tenant("bob")))
    story.sees(replace(TRAIN, created=START - 100))
    story.polls(dict.fromkeys(unread, "RUNNING"), at=late)
    story.decides(late)
    story.sees(PolicyChanged(Policy((Rule(("hpc",), Tenant("alice")), Rule(("other",), Tenant("bob")))), late))
    return story


def test_a_pod_shows_which_job_of_a_former_user_ends_first_and_no_read_that_is_still_to_be_made() -> None:
    late = NOW + 60
    story = given_a_user(late, 18)
    said: list[str] = []
    ended: list[int] = []
    for second in range(1, 40):
        states = "CANCELLED" if ended else "RUNNING"
        story.polls({17: states, 18: "RUNNING"}, at=late + second)
        for action in story.decides(late + second):
            outcome = Outcome.DONE
            match action:
                case ReadJob(job_id=17):
                    story.reads(job_of(TRAIN, 17, states, user="bob", submitted=START - 90), at=late + second)
                case ReadJob():
                    outcome = Outcome.UNREACHED
                case CancelJob():
                    ended.append(action.job_id)
                case SetPodCondition():
                    said.append(action.message)
                case _:
                    raise AssertionError(action)
            story.ended(action, outcome, at=late + second)
    assert ended == [17]
    assert said == ["Slurm job 17 of bob ends first: it was made for the pod when the policy gave that user."]


def test_when_the_policy_changes_a_pod_of_an_earlier_process_waits_for_the_read_that_has_not_succeeded_yet() -> None:
    """However long ago the process began: a job that is not read yet may be the pod's, of the user that it had."""
    late = NOW + 60
    story = given_a_user(late, 17)
    assert story.decides(late + 1) == [], "the pod shows nothing about such a short time"
    story.reads(Job(17, "interactive", "carol", frozenset({"RUNNING"}), submitted=START), at=late + 2)
    assert [each.spec.user for each in submissions(story, late + 3)] == ["alice"]


def test_the_last_read_after_a_change_of_policy_lets_the_pods_that_waited_for_it_be_submitted_at_once() -> None:
    """The pods were visited again after half a second, because only the first reads after a start marked them."""
    late = NOW + 60
    story = given_a_user(late, 17, 18)
    assert submissions(story, late + 1) == []
    for job_id in (17, 18):
        assert submissions(story, late + 1.1) == []
        story.reads(Job(job_id, "interactive", "carol", frozenset({"RUNNING"}), submitted=START), at=late + 1.2)
    assert [each.spec.user for each in submissions(story, late + 1.3)] == ["alice"]


def test_reads_that_fail_again_and_again_let_the_pods_that_waited_for_them_be_submitted_at_once() -> None:
    late = NOW + 60
    story = given_a_user(late, 17)
    for second in range(1, MAX_UNREADABLE + 1):
        assert submissions(story, late + second) == []
        story.reads(None, job_id=17, at=late + second + 0.1)
    assert [each.spec.user for each in submissions(story, late + MAX_UNREADABLE + 0.2)] == ["alice"]


def changed_early(*pods: Pod) -> Story:
    """The policy gives a user to the pods of hpc before the lists of both clusters, of which the list of pods comes last."""
    story = story_of(Rule(("other",), Tenant("bob")))
    before, managed = story.world, {names.MANAGED_LABEL: "true"}
    story.world = new_world(before.config, started=START)
    both = Policy((Rule(("hpc",), Tenant("alice")), Rule(("other",), Tenant("bob"))))
    story.sees(
        PolicyChanged(both, START + 1),
        NamespacesListed((KUBE_SYSTEM, Namespace("hpc", "1", managed))),
        NodesListed(tuple((before.nodes or {}).values())),
        SlurmNodesPolled(tuple((before.slurm_nodes or {}).values()), tuple(before.partitions.values()), START + 2),
    )
    story.polls({17: "RUNNING"}, at=START + 2)
    story.sees(PodsListed(Scope.OTHERS, (), START + 8), PodsListed(Scope.OURS, pods, START + 8))
    return story


def test_a_pod_that_comes_after_the_start_waits_for_no_read_though_the_policy_changed_before_the_first_lists() -> None:
    story = changed_early(replace(TRAIN, created=START - 100))
    story.sees(pod("new", created=START + 9))
    assert [each.spec.name.partition("~")[0] for each in submissions(story, START + 9)] == ["hpc/new"]


def test_a_job_that_a_hint_hides_is_read_first_though_the_policy_changed_before_the_first_lists() -> None:
    runs = story_of().bound(pod("runs", created=START - 200), 17, started=START - 190)
    story = changed_early(replace(TRAIN, created=START - 100), runs)
    job, acts = job_of(TRAIN, 17, user="bob", submitted=START - 90), list[Action]()
    for at in range(int(START) + 8, int(START) + 20):
        acts += [each for each in story.decides(at) if not isinstance(each, ReadJob | SetPodCondition)]
        story.polls({17: "RUNNING"}, at=at)
        for read in story.acts(ReadJob, at):
            story.reads(job, at=at)
            story.ended(read, at=at)
    assert [type(each) for each in acts if getattr(each, "key", "") != key_of(runs)] == [CancelJob]


@pytest.mark.parametrize(
    ("namespace", "created", "is_read"),
    [("hpc", START - 100, True), ("other", START - 100, False), ("hpc", START + 5, False)],
    ids=["its namespace", "another namespace", "a pod of this process"],
)
def test_other_labels_make_a_waiting_pod_of_an_earlier_process_wait_for_reads_of_the_jobs_that_pods_hide(
    namespace: str, created: float, is_read: bool
) -> None:
    """One of these jobs may be of another user and the pod's.  Jobs whose pods are proven are not read again."""
    story = story_of()
    labelled(story)
    story.sees(replace(TRAIN, created=created))
    story.sees(story.bound(pod("hides", namespace="other", created=START - 200), 17, started=START - 190))
    story.polls({17: "RUNNING"}, at=NOW)
    assert not story.acts(ReadJob, NOW)
    labelled(story, namespace, user="alice")
    found = story.decides(NOW + 1)
    assert [each.job_id for each in found if isinstance(each, ReadJob)] == [17] * is_read
    assert bool([each for each in found if isinstance(each, AllocateNow)]) is (namespace == "hpc" and not is_read)


def test_after_a_change_of_policy_no_job_is_read_again_that_is_proven() -> None:
    story = story_of(Rule(("other",), Tenant("bob")))
    story.runs(pod("proven", namespace="other"), 18, at=NOW)
    story.sees(replace(TRAIN, created=START - 100))
    story.sees(story.bound(pod("hides", created=START - 200), 17, started=START - 190))
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=NOW)
    assert not story.acts(ReadJob, NOW)
    story.sees(PolicyChanged(Policy((Rule(("hpc",), Tenant("alice")), Rule(("other",), Tenant("bob")))), NOW + 1))
    assert [each.job_id for each in story.acts(ReadJob, NOW + 1)] == [17]


def test_lists_of_namespaces_before_the_first_poll_are_no_change_of_labels() -> None:
    """A new leader lists the namespaces twice.  If that counted as a change, its first pods would wait for reads of jobs."""
    story = story_of(Rule(("hpc",), Tenant("alice")))
    before, managed = story.world, {names.MANAGED_LABEL: "true"}
    story.world = new_world(before.config, started=START)
    runs = story.bound(pod("runs", created=START - 200), 17, started=START - 190)
    namespaces = NamespacesListed((KUBE_SYSTEM, Namespace("hpc", "1", managed)))
    story.sees(
        namespaces,
        namespaces,
        NodesListed(tuple((before.nodes or {}).values())),
        SlurmNodesPolled(tuple((before.slurm_nodes or {}).values()), tuple(before.partitions.values()), START + 2),
        PodsListed(Scope.OTHERS, (), START + 2),
        PodsListed(Scope.OURS, (replace(TRAIN, created=START - 100), runs), START + 2),
    )
    story.polls({17: "RUNNING"}, at=START + 3)
    assert [each.spec.user for each in submissions(story, START + 4)] == ["alice"]


def test_a_job_that_waits_as_another_user_ends_before_the_bind_because_singleton_does_not_hold_it_back() -> None:
    """The job of an earlier process was foreign while the labels gave bob, and is the pod's now that they give alice."""
    story = story_of(user="bob")
    waits = replace(TRAIN, created=START - 100)
    before = job_of(TRAIN, 17, submitted=START - 90)
    story.polls({17: "RUNNING"}, at=NOW)
    story.sees(waits)
    story.reads(before, at=NOW)
    story.queues(waits, 18, at=NOW + 1)
    labelled(story, user="alice")
    [cancel] = lives_on(story, {17: "RUNNING", 18: "PENDING"}, before, at=NOW + 2, seconds=2)
    assert isinstance(cancel, CancelJob)
    assert (cancel.job_id, cancel.user) == (18, "bob")
    [bind] = lives_on(story, {17: "RUNNING", 18: "CANCELLED"}, before, at=NOW + 4)
    assert isinstance(bind, BindPod)
    assert bind.job_id == 17


def test_a_job_that_was_named_after_a_pod_since_the_policy_changed_last_is_left_alone() -> None:
    story = story_of(*WRITTEN_OUT)
    story.sees(replace(TRAIN, created=START - 100))
    forged = job_of(TRAIN, 17, "PENDING", submitted=NOW + 30)
    acts = lives_on(story, {17: "PENDING"}, forged, at=NOW + 30, seconds=20)
    assert not [each for each in acts if isinstance(each, CancelJob)]


def runs_since_before(story: Story) -> Pod:
    shown = story.bound(replace(TRAIN, created=START - 100, annotations=OF_A_BIND), 17, started=START - 90)
    story.sees(shown)
    return shown


OTHER_POLICIES = {
    "a label gives another": (BY_LABEL, None),
    "so it does, and there is a default": (BY_LABEL, Tenant("carol")),
    "no rule names the former user": (Rule(("hpc",), Tenant("bob")), None),
    "no rule names anybody here": (Rule(("other",), Tenant("bob")), None),
}


@pytest.mark.parametrize(("rule", "default"), OTHER_POLICIES.values(), ids=OTHER_POLICIES)
def test_after_a_restart_with_another_policy_a_pod_still_ends_with_its_job(rule: Rule, default: Tenant | None) -> None:
    story = story_of(rule, user="bob", default=default)
    runs_since_before(story)
    job = job_of(TRAIN, 17, submitted=START - 95)
    assert lives_on(story, {17: "RUNNING"}, job, at=NOW) == []
    story.polls({17: "CANCELLED"}, at=NOW + 61)
    [read] = story.acts(ReadJob, NOW + 61)
    story.reads(replace(job, states=frozenset({"CANCELLED"})), at=NOW + 61)
    story.ended(read, at=NOW + 61)
    [end] = story.acts(FailByDeadline, NOW + 62)
    assert end.reason == "Slurm job 17 ended: CANCELLED"


def test_the_job_of_a_pod_ends_with_it_though_no_rule_names_its_user_any_more() -> None:
    story = story_of(Rule(("hpc",), Tenant("bob")))
    shown = runs_since_before(story)
    job = job_of(TRAIN, 17, submitted=START - 95)
    assert lives_on(story, {17: "RUNNING"}, job, at=NOW) == []
    story.sees(replace(shown, phase=PodPhase.SUCCEEDED))
    [cancel] = [each for each in lives_on(story, {17: "RUNNING"}, job, at=NOW + 60, seconds=2) if type(each) in ENDS]
    assert isinstance(cancel, CancelJob)
    assert (cancel.job_id, cancel.user) == (17, "alice")


@pytest.mark.parametrize("job_id", [18, 17], ids=["another id", "the id of the lost job again"])
def test_a_pod_keeps_the_job_that_replaced_a_lost_job_though_the_pod_does_not_show_it_yet(job_id: int) -> None:
    """The write of the new id failed, the process ended, and the next one has another policy (S7, V7)."""
    story = story_of(*WRITTEN_OUT)
    runs_since_before(story)
    job = job_of(TRAIN, job_id, submitted=START - 50)
    acts = lives_on(story, {job_id: "RUNNING"}, job, at=NOW)
    assert acts == []
    assert story.world.placeholders[job_id].key == key_of(TRAIN)


def test_nodes_of_a_lost_job_are_not_asked_for_as_a_new_user_while_a_job_that_pods_show_is_not_read() -> None:
    """It may be the job that replaced the lost job, as the former user, before the process ended (S7, V1)."""
    story = story_of(Rule(("hpc",), Tenant("carol")), Rule(("other",), Tenant("alice")))
    story.sees(story.bound(pod("other", namespace="other", created=START - 200), 18, started=START - 190))
    runs_since_before(story)
    found: list[Action] = []
    for at in range(int(START) + 1, int(START) + 16):
        story.polls({18: "RUNNING"}, at=at)
        if at == START + 8:
            story.sees(PolicyChanged(Policy(WRITTEN_OUT), at))
        for action in story.decides(at):
            found.append(action)
            if isinstance(action, ReadJob) and action.job_id == 17:
                story.reads(None, job_id=17, at=at)
            story.ended(action, Outcome.UNKNOWN, at=at)
    assert not [each for each in found if isinstance(each, AllocateNow | FailByDeadline)]
    job = job_of(TRAIN, 18, submitted=START - 50)
    acts = lives_on(story, {18: "RUNNING"}, job, at=START + 16)
    assert [each for each in acts if getattr(each, "key", "") == key_of(TRAIN)] == []
    assert story.world.placeholders[18].key == key_of(TRAIN)


def test_a_younger_job_of_another_user_that_got_the_id_is_not_the_pods() -> None:
    """slurmctld lost its state; a user whom the policy can give named a job after the pod, and it got the pod's id."""
    story = story_of(user="alice")
    runs_since_before(story)
    forged = job_of(TRAIN, 17, user="mallory", submitted=START - 10)
    acts = lives_on(story, {17: "RUNNING"}, forged, at=NOW, seconds=5)
    assert not [each for each in acts if isinstance(each, CancelJob | UpdateJob)]
    assert key_of(TRAIN) not in {job.key for job in story.world.placeholders.values() if job.user == "mallory"}


ORPHANS = [
    ("hpc/train", "", "alice", True),  # as its namespace gives
    ("hpc/train", "", "carol", False),  # its namespace gives another: somebody named his job after ours
    ("hpc/train", "", "root", False),
    ("deleted/train", "", "carol", True),  # nobody knows any more what it gave
    ("deleted/train", "", "root", False),
    ("deleted/train", "", "slurm", False),
    ("deleted/train", "", "0", False),
    ("mine", "hpc/train", "alice", True),  # its user chose the name
    ("mine", "my words; hpc/train", "alice", True),
    ("mine", "hpc/train", "carol", False),
    ("mine", "", "alice", False),  # it does not say where it comes from
]


@pytest.mark.parametrize(("readable", "comment", "user", "ended"), ORPHANS)
def test_a_job_whose_pods_are_unknown_is_ended_if_its_namespace_gives_its_user_or_is_gone(
    readable: str, comment: str, user: str, ended: bool
) -> None:
    story = story_of()
    job = replace(job_of(TRAIN, 17, user=user), name=names.job_name(readable, CLUSTER, key_of(TRAIN)), comment=comment)
    acts = lives_on(story, {17: "RUNNING"}, job, at=NOW)
    assert [(each.job_id, each.user) for each in acts if isinstance(each, CancelJob)][:1] == (
        [(17, user)] if ended else []
    )


def test_a_job_without_pods_is_ended_once_its_namespace_gives_its_user_again() -> None:
    story = story_of(user="")
    job = job_of(TRAIN, 17)
    assert lives_on(story, {17: "RUNNING"}, job, at=NOW) == []
    labelled(story, user="alice")
    assert [type(each) for each in lives_on(story, {17: "RUNNING"}, job, at=NOW + 60)][:1] == [CancelJob]


def test_a_job_of_another_cluster_or_without_a_name_of_the_bridge_is_never_touched_whatever_a_template_can_give() -> (
    None
):
    story = story_of()
    foreign = Job(17, f"x~k00000000.{key_of(TRAIN)}", "alice", frozenset({"RUNNING"}))
    assert lives_on(story, {17: "RUNNING"}, foreign, at=NOW) == []
    assert lives_on(story, {17: "RUNNING"}, replace(foreign, name="interactive"), at=NOW + 100) == []


def test_a_job_that_was_taken_over_stays_the_pods_without_a_doubt_when_the_policy_changes() -> None:
    story = story_of()
    runs_since_before(story)
    job = job_of(TRAIN, 17, submitted=START - 95)
    story.polls({17: "RUNNING"}, at=NOW)
    story.reads(job, at=NOW, granted=grant(17))
    story.sees(PolicyChanged(Policy((Rule(("hpc",), Tenant("bob")),)), NOW + 1))
    story.polls({17: "RUNNING"}, at=NOW + 2)
    story.reads(job, at=NOW + 2, granted=grant(17))
    assert lives_on(story, {17: "RUNNING"}, job, at=NOW + 3) == []
    assert story.world.placeholders[17].key == key_of(TRAIN)
    assert not story.world.rejected


@pytest.mark.parametrize(("at", "is_kept"), [(START + 5, True), (START + 13, False)], ids=["at first", "too late"])
def test_a_pod_keeps_the_job_whose_id_the_former_process_writes_late_though_a_label_gives_another_user(
    at: float, is_kept: bool
) -> None:
    """The write is on its way when the next process begins; it takes effect before the quiet period is over (S7, V7)."""
    story = story_of(user="bob")
    shown = runs_since_before(story)
    job = job_of(TRAIN, 18, submitted=START - 50)
    story.polls({18: "RUNNING"}, at=START + 1)
    story.reads(job, at=START + 1, granted=grant(18))
    named = {names.JOB_ID: "18", names.JOB_SINCE: dated(START - 49, TIME_FORMAT)}
    story.polls({18: "RUNNING"}, at=at)
    story.sees(replace(shown, annotations={**shown.annotations, **named}))
    acts = lives_on(story, {18: "RUNNING"}, job, at=at + 1, seconds=90)
    assert not is_kept or not [each for each in acts if isinstance(each, ENDS)]
    assert (18 in story.world.workloads[key_of(TRAIN)].jobs) is is_kept
