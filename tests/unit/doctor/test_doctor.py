"""The doctor on two simulated clusters behind real HTTP: each is spoilt in one way, and that is what it finds (O5)."""

from __future__ import annotations

import socket
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from bridge.cli.doctor import command, look_slurm, questions, slurm_checks
from bridge.cli.doctor.findings import Finding, Level, exit_code
from bridge.cli.doctor.views import Observations
from bridge.errors import Unanswered
from bridge.simulation.kube import objects
from bridge.simulation.slurm.jobs import SimUser
from bridge.simulation.slurm.nodes import SlurmSimNode
from bridge.slurm import admin_reads
from bridge.slurm.admin_reads import NodeDetails
from bridge.slurm.client import SlurmClient
from scheduler import names
from tests.unit.doctor.clusters import POLICY, Both, kubeconfig, said, troubles
from tests.web_server import serving


@pytest.fixture
def both(tmp_path: Path) -> Both:
    return Both(tmp_path)


async def test_two_healthy_clusters_leave_nothing_to_do(both: Both) -> None:
    found = await both.findings()
    assert troubles(found) == []
    assert exit_code(found) == 0
    [users] = said(found, "users", Level.OK)
    assert users.startswith("the token may act for alice ")
    [nodes] = [each.sentence for each in found if (each.group, each.check) == ("Both", "nodes")]
    assert nodes == "2 nodes known to both, 2 of them external"


async def test_looking_changes_nothing(both: Both) -> None:
    before = both.kube.store.version
    await both.findings()
    assert both.kube.store.version == before
    assert both.slurm.jobs == {}
    assert both.slurm.next_id == 1


# --- an end that is not there ---------------------------------------------------------------------------------------


async def test_no_slurmrestd_is_one_error_and_the_rest_is_reported_as_not_checked(both: Both) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    found = await both.findings(slurm_url=nobody)
    assert troubles(found) == [("slurmrestd", Level.ERROR)]
    assert exit_code(found) == 2
    for check in ("jobs", "users", "scheduling", "external nodes", "partitions"):
        assert said(found, check, Level.UNKNOWN) == ["not checked: slurmrestd does not answer"]
    assert said(found, "rights", Level.OK)


async def test_no_api_server_is_one_error_and_slurm_is_looked_at_all_the_same(both: Both, tmp_path: Path) -> None:
    found = await both.findings(kubeconfig=str(tmp_path / "none"))
    assert troubles(found) == [("API server", Level.ERROR)]
    assert said(found, "namespaces", Level.UNKNOWN) == ["not checked: there is no way to Kubernetes"]
    assert said(found, "users", Level.OK)


async def test_a_settings_file_that_cannot_be_read_leaves_the_ends_to_be_looked_at(both: Both, tmp_path: Path) -> None:
    found = await both.findings(config=str(tmp_path / "none.yaml"))
    [sentence] = said(found, "file", Level.ERROR)
    assert sentence.startswith(f"{tmp_path}/none.yaml: cannot be read")
    assert said(found, "API server", Level.OK)
    assert said(found, "tenants", Level.UNKNOWN) == ["not checked: the settings cannot be used"]
    assert said(found, "slurmrestd", Level.UNKNOWN) == ["not checked: the settings cannot be used"]
    assert troubles(found) == [("file", Level.ERROR)], "that no Slurm is named cannot be known"


@pytest.mark.parametrize(
    ("key", "sentence", "do"),
    [
        ("bogus", "bogus: unknown key.", "Remove unknown keys, or correct them: "),
        ("log_levle", "log_levle: unknown key; did you mean log_level?", "Correct it: "),
    ],
)
async def test_an_unknown_settings_key_is_the_only_error_and_says_what_to_do(
    both: Both, key: str, sentence: str, do: str
) -> None:
    both.settings[key] = "1"
    found = await both.findings()
    assert troubles(found) == [("file", Level.ERROR)]
    [told] = [each for each in found if each.check == "file"]
    assert told.sentence.endswith(sentence)
    assert told.do.startswith(do)
    [slurmrestd] = said(found, "slurmrestd", Level.OK)
    assert " at http://127.0.0.1:" in slurmrestd, "the file names Slurm all the same"
    for check in ("users", "choices", "tenants", "partitions", "sizes", "namespaces"):
        assert said(found, check, Level.OK), "and whose jobs they are, and all the rest"
    assert not any(each.sentence.startswith("not checked: the settings") for each in found)


async def test_rules_outside_the_policy_are_one_error(both: Both) -> None:
    both.settings = {"http": "", **POLICY}
    found = await both.findings()
    assert troubles(found) == [("file", Level.ERROR)]
    assert said(found, "tenants", Level.UNKNOWN) == ["not checked: the settings cannot be used"]


async def test_a_key_with_a_mistake_that_might_name_slurm_is_no_second_error(both: Both) -> None:
    both.settings["slurm_url"] = "localhost:6820"
    found = await both.findings()
    assert troubles(found) == [("file", Level.ERROR)]
    assert said(found, "slurmrestd", Level.UNKNOWN) == ["not checked: the settings cannot be used"]


async def test_settings_that_are_no_yaml_say_what_to_do_and_so_does_their_token(both: Both, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("a: [")
    found = await both.findings(config=str(tmp_path / "bad.yaml"), slurm_token_file=None)
    [told] = [each for each in found if each.level is Level.ERROR]
    assert told.sentence == f"{tmp_path}/bad.yaml: is not YAML in line 1."
    assert told.do == "Correct it, or point --config at a settings file."
    assert said(found, "token", Level.UNKNOWN) == ["not checked: the settings cannot be used"]


async def test_a_kubeconfig_that_is_a_program_is_no_kubeconfig_and_what_to_do_is_distinguished(both: Both) -> None:
    found = await both.findings(kubeconfig=sys.executable)
    [told] = [each for each in found if each.level is Level.ERROR]
    assert (told.check, told.do) == ("API server", "Point --kubeconfig or KUBECONFIG at one.")
    assert told.sentence == f"kubeconfig {sys.executable}: not a kubeconfig (it is no text)."


async def test_an_address_that_does_not_answer_keeps_its_small_letter(both: Both) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{silent.getsockname()[1]}"
        (both.folder / "nobody").write_text(yaml.safe_dump(kubeconfig(server)))
        [sentence] = said(await both.findings(kubeconfig=str(both.folder / "nobody")), "API server", Level.ERROR)
    assert "Http" not in sentence
    assert server in sentence


@pytest.mark.parametrize("content", ["", "no token", None])
async def test_without_a_usable_token_it_is_still_reported_if_a_server_answers_at_the_url_of_slurmrestd(
    both: Both, tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "other-token"
    if content is not None:
        file.write_text(content)
    found = await both.findings(slurm_token_file=str(file))
    [told] = [each for each in found if each.level is Level.ERROR]
    assert told.check == "token"
    assert told.do, "what to do is no part of the sentence"
    assert told.do not in told.sentence
    [slurmrestd] = said(found, "slurmrestd", Level.OK)
    assert slurmrestd.startswith("something answers at http://127.0.0.1:")
    assert said(found, "jobs", Level.UNKNOWN) == ["not checked: there is no usable Slurm token"]


async def test_a_missing_token_and_a_silent_server_are_two_errors(both: Both, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
        found = await both.findings(slurm_url=nobody, slurm_token_file=str(tmp_path / "none"))
    assert troubles(found) == [("slurmrestd", Level.ERROR), ("token", Level.ERROR)]


async def test_a_slurmctld_that_is_away_is_distinguished_from_a_slurmrestd_that_is(both: Both) -> None:
    both.slurm.controller_up = False
    found = await both.findings()
    assert troubles(found) == [("slurmctld", Level.ERROR)]
    assert said(found, "slurmrestd", Level.OK)
    assert said(found, "users", Level.UNKNOWN) == ["not checked: slurmctld does not answer slurmrestd"]


async def test_a_slurmrestd_that_waits_for_slurmctld_is_not_called_slow(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_checks, "SLOW_S", -1.0)  # every answer takes longer
    assert troubles(await both.findings()) == [("slurmrestd", Level.WARNING)]
    both.slurm.controller_up = False
    assert troubles(await both.findings()) == [("slurmctld", Level.ERROR)]


async def test_a_read_that_fails_comes_with_advice(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(_: SlurmClient) -> Any:
        raise Unanswered("nodes", "Slurm", "no answer in time")

    monkeypatch.setattr(admin_reads, "nodes", fails)
    [problem] = [each for each in await both.findings() if each.level is Level.ERROR]
    assert problem.sentence == "No answer in time."
    assert "logs of slurmrestd and slurmctld" in problem.do


async def test_a_slurm_that_hangs_is_not_asked_every_question(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def hangs(name: str) -> Any:
        async def fails(*_: object, **_choice: str) -> Any:
            asked.append(name)
            raise Unanswered(name, "Slurm", "no answer in time")

        return fails

    monkeypatch.setattr(questions, "PATIENCE_S", 0.0)
    for name in ("clock", "configuration", "nodes", "reservations", "probe"):
        monkeypatch.setattr(admin_reads, name, hangs(name))
    found = await both.findings()
    assert asked == ["clock"]
    assert [each.sentence for each in found if each.level is Level.ERROR] == ["No answer in time."]
    assert said(found, "users", Level.UNKNOWN) == ["not checked: No answer in time."]


async def test_a_user_for_whom_slurm_gives_no_answer_is_not_called_refused(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_: SlurmClient, user: str, **_choice: str) -> Any:
        raise Unanswered("probe", "Slurm", "no answer in time")

    monkeypatch.setattr(admin_reads, "probe", fails)
    found = await both.findings()
    [problem] = [each for each in found if each.level is Level.ERROR]
    assert (problem.check, problem.sentence) == ("users", "No answer in time.")
    assert "slurmdbd and its database" in problem.do
    assert said(found, "choices", Level.UNKNOWN) == [
        "not checked: what alice may choose, for it is not known if Slurm accepts that user"
    ]


# --- the token ------------------------------------------------------------------------------------------------------


async def test_a_token_that_slurm_does_not_accept_is_one_error(both: Both) -> None:
    both.token = "a.wrong.token"
    found = await both.findings()
    assert troubles(found) == [("token", Level.ERROR)]
    assert exit_code(found) == 2
    assert said(found, "users", Level.UNKNOWN) == ["not checked: Slurm does not accept the token"]
    assert not any("a.wrong.token" in each.sentence + each.do for each in found)
    [sentence] = said(found, "token", Level.ERROR)
    assert sentence == (
        f"Token file {both.folder}/token: Slurm does not accept it, because it is of another cluster, or Slurm's key was "
        "replaced since. Make another one: scontrol token username=slurm lifespan=3600, as root or SlurmUser. "
        "Slurm's reason: Protocol authentication error (error 1007)."
    )


async def test_a_token_that_was_not_renewed_is_a_warning_in_time(both: Both) -> None:
    now = time.time()
    both.token = both.slurm.token("slurm", issued=now - 800, expires=now + 100.5)
    found = await both.findings()
    assert troubles(found) == [("token", Level.WARNING)]
    [sentence] = said(found, "token", Level.WARNING)
    assert sentence.endswith("user slurm, ends in 1 min and was not renewed since 13 min.")


async def test_a_short_life_is_no_trouble_while_most_of_it_is_left(both: Both) -> None:
    now = time.time()
    both.token = both.slurm.token("slurm", issued=now - 60, expires=now + 840)
    assert troubles(await both.findings()) == []


async def test_a_token_that_cannot_be_renewed_is_a_warning(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JWT", both.slurm.token("slurm", expires=time.time() + 86_400 * 30))
    found = await both.findings(slurm_token_file="")
    assert troubles(found) == [("token", Level.WARNING)]


async def test_a_token_file_that_every_user_can_read_is_a_warning(both: Both, tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.write_text(both.token)
    open_to_all.chmod(0o644)
    found = await both.findings(slurm_token_file=str(open_to_all))
    assert troubles(found) == [("token", Level.WARNING)]


async def test_with_a_token_for_each_user_each_is_looked_at(both: Both, tmp_path: Path) -> None:
    folder = tmp_path / "users"
    folder.mkdir(mode=0o700)
    both.slurm.users["bob"] = SimUser("bob", ("teama",))
    both.token = both.slurm.token("bob")
    rules = [*POLICY["rules"], {"namespaces": ["bob-*"], "user": "bob"}]
    both.settings |= {"policy": {"rules": rules}, "slurm_user_token_dir": str(folder)}
    for user in ("alice", "bob"):
        (folder / user).touch(mode=0o600)
        (folder / user).write_text(both.slurm.token(user))
    found = await both.findings()
    assert f"{folder} has tokens of alice, bob" in said(found, "token", Level.OK)
    assert any("their own tokens may act for alice, bob" in each for each in said(found, "users", Level.OK))
    [warned] = said(found, "token", Level.WARNING)
    assert warned.startswith("The Slurm token for nodes names user bob, not slurm.")
    (folder / "alice").write_text(both.slurm.token("bob"))
    (folder / "bob").unlink()
    found = await both.findings()
    assert said(found, "token", Level.ERROR) == [
        f"token file {folder}/alice: it is a token of bob, not of alice. Pods of alice are not run.",
        f"token file {folder}/bob: there is no such file. Pods of bob are not run.",
    ]
    assert said(found, "users", Level.ERROR) == []
    folder.joinpath("bob").touch(mode=0o600)
    folder.joinpath("bob").write_text("eyJhbGciOiJIUzI1NiJ9.eyJzdW4iOiJib2IifQ.c2ln")
    found = await both.findings()
    assert said(found, "users", Level.ERROR) == [
        f"slurm-bridge cannot act as Slurm user bob: token file {folder}/bob: Slurm does not accept it (error 1007). "
        "Pods of that user are not run."
    ]


async def test_a_folder_of_tokens_that_is_not_there_is_an_error(both: Both, tmp_path: Path) -> None:
    both.settings["slurm_user_token_dir"] = str(tmp_path / "none")
    found = await both.findings()
    assert f"slurm_user_token_dir: {tmp_path}/none: No such file or directory." in said(found, "token", Level.ERROR)


@pytest.mark.parametrize("expires", [None, -3600])
async def test_with_an_acting_token_that_cannot_be_used_nobody_is_said_to_be_accepted(
    both: Both, tmp_path: Path, expires: int | None
) -> None:
    """doctor said that the acting token acts for alice although its file was missing, and that it ends in -3600 s."""
    path = tmp_path / "acting"
    if expires is not None:
        path.touch(mode=0o600)
        path.write_text(both.slurm.token("slurm", expires=time.time() + expires))
    found = await both.findings(slurm_acting_token_file=str(path))
    [problem] = [each for each in found if each.level is Level.ERROR]
    assert problem.check == "token"
    assert problem.sentence == f"token file {path}: " + ("expired 1 h ago." if expires else "there is no such file.")
    assert said(found, "token", Level.OK), "the bridge's own token is good"
    assert said(found, "users", Level.UNKNOWN) == ["not checked: there is no usable Slurm token"]
    assert said(found, "choices", Level.OK) == []


async def test_a_user_whom_no_request_can_name_is_not_accepted(both: Both) -> None:
    both.settings["policy"] = {"rules": [{"namespaces": ["hpc"], "user": "jürgen"}]}
    assert said(await both.findings(), "users", Level.ERROR) == [
        "Slurm would refuse jobs of jürgen: a header or the path would hold a forbidden character."
    ]


async def test_a_user_for_whom_the_token_may_not_act_is_an_error_with_a_way_out(both: Both) -> None:
    both.token = both.slurm.token("alice")
    both.settings["policy"] = {"rules": [*POLICY["rules"], {"namespaces": ["slurm-*"], "user": "slurm"}]}
    found = await both.findings()
    assert said(found, "users", Level.ERROR) == [
        "The token of alice may not act for slurm: pods of that user are not run."
    ]
    assert said(found, "users", Level.OK)


async def test_a_user_whom_slurm_does_not_know_is_an_error(both: Both) -> None:
    both.settings["policy"] = {"rules": [{"namespaces": ["hpc"], "user": "nobodyhere"}]}
    found = await both.findings()
    assert said(found, "users", Level.ERROR) == [
        "The host of slurmctld has no user nobodyhere: pods of that user are not run."
    ]


@pytest.mark.parametrize(
    ("what", "value", "number"), [("account", "teamx", 2045), ("partition", "nope", 2000), ("qos", "nope", 2066)]
)
async def test_what_the_policy_offers_and_slurm_does_not_take_is_an_error(
    both: Both, what: str, value: str, number: int
) -> None:
    both.settings["policy"] = {"rules": [{"namespaces": ["hpc"], "user": "alice", what: {"allowed": [value]}}]}
    [sentence] = said(await both.findings(), "choices", Level.ERROR)
    assert sentence.startswith(f'Slurm does not accept {what} "{value}" from alice: ')
    assert sentence.endswith(f"(error {number}).")


async def test_a_reservation_that_is_not_there_is_a_warning(both: Both) -> None:
    both.slurm.reservations.add("maintenance")
    rule = {"namespaces": ["hpc"], "user": "alice", "reservation": {"allowed": ["maintenance", "gone"]}}
    both.settings["policy"] = {"rules": [rule]}
    [sentence] = said(await both.findings(), "reservations", Level.WARNING)
    assert "reservations that Slurm does not have now: gone;" in sentence


# --- Kubernetes -----------------------------------------------------------------------------------------------------


async def test_a_right_that_is_lacking_is_an_error_that_names_it(both: Both) -> None:
    both.kube.forbidden.add(("create", "pods/binding"))
    found = await both.findings()
    [sentence] = said(found, "rights", Level.ERROR)
    assert sentence == "May not create pods/binding in namespace hpc: its pods would wait."
    [advice] = [each.do for each in found if each.level is Level.ERROR]
    assert advice.startswith("kubectl apply -f manifests/base/rbac.yaml "), "its RoleBinding is there"


async def test_a_right_without_which_pods_run_is_a_warning(both: Both) -> None:
    both.kube.forbidden.add(("create", "events"))
    found = await both.findings()
    [sentence] = said(found, "rights", Level.WARNING)
    assert sentence == "May not create events in namespace hpc: its pods run, and lack a part of the bridge's work."
    assert exit_code(found) == 1


async def test_without_the_right_to_list_the_bridge_would_not_start(both: Both) -> None:
    both.kube.forbidden.add(("list", "pods"))
    [sentence] = said(await both.findings(), "rights", Level.ERROR)
    assert sentence == "May not list pods in all namespaces: the bridge would refuse to start."


@pytest.mark.parametrize("resource", ["nodes", "namespaces", "pods"])
async def test_a_missing_right_to_list_is_one_error_in_the_row_about_rights(both: Both, resource: str) -> None:
    both.kube.forbidden.add(("list", resource))
    found = await both.findings()
    assert troubles(found) == [("rights", Level.ERROR)]
    [sentence] = said(found, "rights", Level.ERROR)
    assert sentence.startswith(f"May not list {resource} in all namespaces")
    assert said(found, "readable", Level.UNKNOWN) == [
        f"not checked: Kubernetes does not let this client list {resource}"
    ]


async def test_rights_on_nodes_are_needed_only_where_nodes_are_labelled(both: Both) -> None:
    both.kube.forbidden.add(("patch", "nodes/status"))
    [sentence] = said(await both.findings(), "rights", Level.WARNING)
    assert sentence.startswith("May not patch nodes/status: nodes labelled slurm-bridge/external-node=true")


async def test_no_managed_namespace_is_a_warning_with_the_command(both: Both) -> None:
    both.kube.handle(time.time(), "DELETE", "/api/v1/namespaces/hpc", {}, b"{}", "application/json")
    found = await both.findings()
    [warned] = [each for each in found if each.check == "namespaces" and each.level is Level.WARNING]
    assert warned.do == f"kubectl label namespace NAME {names.MANAGED_LABEL}=true"


async def test_a_managed_namespace_without_a_slurm_user_is_a_warning(both: Both) -> None:
    both.kube.create(time.time(), "namespaces", objects.namespace("lost", {names.MANAGED_LABEL: "true"}))
    [sentence] = said(await both.findings(), "tenants", Level.WARNING)
    assert sentence == "These managed namespaces have no Slurm user, and their pods are refused: lost."


# --- nodes ----------------------------------------------------------------------------------------------------------


async def test_nodes_that_only_one_side_knows_are_named_and_no_trouble(both: Both) -> None:
    both.add_node("only-k8s")
    both.slurm.nodes["native"] = SlurmSimNode("native", external=False)
    found = await both.findings()
    [sentence] = [each.sentence for each in found if (each.group, each.check) == ("Both", "nodes")]
    assert sentence == (
        "2 nodes known to both, 2 of them external; only in Kubernetes: only-k8s; only in Slurm: native"
    )
    assert troubles(found) == []


async def test_not_one_common_node_is_an_error(both: Both) -> None:
    both.slurm.nodes = {name: SlurmSimNode(name) for name in ("a", "b")}
    found = await both.findings()
    assert troubles(found) == [("nodes", Level.ERROR)]
    assert exit_code(found) == 2
    for check in ("sizes", "partitions", "oversubscription", "others' pods"):
        assert said(found, check, Level.UNKNOWN) == ["not checked: no node is known to both clusters"]


async def test_two_nodes_that_claim_one_node_of_slurm_are_an_error_that_names_both(both: Both) -> None:
    [before] = said(await both.findings(), "node names", Level.OK)
    assert before == "each node has a name of its own in Slurm"
    impostor = objects.node("impostor", labels={names.SLURM_NODE_LABEL: "x1"})
    both.kube.create(time.time(), "nodes", impostor)
    found = await both.findings()
    [sentence] = said(found, "node names", Level.ERROR)
    assert sentence == (
        "The Kubernetes nodes impostor, x1 claim to be the same node of Slurm, x1: none of them is used."
    )
    assert exit_code(found) == 2


async def test_objects_that_cannot_be_decoded_are_named_and_hide_no_other(both: Both) -> None:
    assert said(await both.findings(), "readable", Level.OK)
    odd = objects.node("odd")
    odd["metadata"]["labels"] = 7
    both.kube.store.put("nodes", odd)
    found = await both.findings()
    [sentence] = said(found, "readable", Level.WARNING)
    assert sentence.startswith("1 object cannot be read, and are left alone: node odd (")
    assert exit_code(found) == 1
    [nodes] = [each.sentence for each in found if (each.group, each.check) == ("Both", "nodes")]
    assert nodes == "2 nodes known to both, 2 of them external"


async def test_a_drained_node_is_a_warning_with_its_reason(both: Both) -> None:
    both.slurm.drain("x1", "fan broken")
    [sentence] = said(await both.findings(), "nodes", Level.WARNING)
    assert sentence == "1 node of these out of service: x1 (DRAIN in Slurm: fan broken)."


async def test_nodes_that_are_all_cordoned_are_one_error(both: Both) -> None:
    for name in ("x1", "x2"):
        both.kube.store.put("nodes", {**both.kube.store.get("nodes", "", name), "spec": {"unschedulable": True}})
    found = await both.findings()
    assert troubles(found) == [("nodes", Level.ERROR)]
    assert said(found, "nodes", Level.ERROR) == ["0 nodes of 2 ready; cordoned: x1, x2."]


async def test_silent_nodes_that_slurm_powers_up_for_a_job_are_no_error(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = admin_reads.nodes

    async def powered_down(client: SlurmClient) -> tuple[NodeDetails, ...]:
        off = frozenset({"IDLE", "POWERED_DOWN"})
        return tuple(replace(each, node=replace(each.node, states=off)) for each in await asked(client))

    for name in ("x1", "x2"):
        node = both.kube.store.get("nodes", "", name)
        assert node is not None
        status = {**node["status"], "conditions": [{"type": "Ready", "status": "Unknown"}]}
        both.kube.store.put("nodes", {**node, "status": status})
    assert troubles(await both.findings()) == [("nodes", Level.ERROR)]
    monkeypatch.setattr(admin_reads, "nodes", powered_down)
    assert troubles(await both.findings()) == []


async def test_nodes_that_are_all_drained_are_an_error_with_the_reasons(both: Both) -> None:
    both.slurm.drain("x1", "fan broken")
    both.slurm.drain("x2", "service")
    [sentence] = said(await both.findings(), "nodes", Level.ERROR)
    assert sentence == (
        "No node is in service in both clusters: x1 (DRAIN in Slurm: fan broken), x2 (DRAIN in Slurm: service)."
    )


async def test_a_node_that_slurm_takes_for_larger_than_it_is(both: Both) -> None:
    both.slurm.nodes["x1"] = SlurmSimNode("x1", cpus=64)
    [sentence] = said(await both.findings(), "sizes", Level.WARNING)
    assert "x1 (64 CPUs, allocatable 8)" in sentence


async def test_static_external_nodes_with_devices_lose_them(both: Both) -> None:
    both.slurm.nodes["x1"] = SlurmSimNode("x1", cpus=8, memory_mib=16_000, devices={("gpu", "h100"): 4}, dynamic=False)
    found = await both.findings()
    assert troubles(found) == [("external nodes", Level.WARNING)]
    [sentence] = said(found, "external nodes", Level.WARNING)
    assert sentence.startswith("External nodes with devices are defined in slurm.conf: x1.")


async def test_an_external_node_that_slurm_takes_for_not_responding_is_an_error(both: Both) -> None:
    both.slurm.nodes["x2"].not_responding = True
    [sentence] = said(await both.findings(), "external nodes", Level.ERROR)
    assert sentence.startswith("External nodes that Slurm lists as not responding: x2.")


async def test_a_node_that_counts_as_used_without_a_used_cpu_has_lost_devices(both: Both) -> None:
    both.slurm.nodes["x1"].jobs.add(99)  # MIXED, and no core is taken: as slurmctld shows it
    [sentence] = said(await both.findings(), "external nodes", Level.ERROR)
    assert sentence.startswith("Devices count as used on nodes without a used CPU, so without a job: x1.")


@pytest.mark.parametrize(
    ("keeps", "names"),
    [
        ({}, "x1, x2"),
        ({"SuspendExcNodes": ["x[2-9]", "x1:1"]}, "x1"),
        ({"SuspendExcNodes": ["x[1-2]"]}, ""),
        ({"SuspendExcStates": ["CLOUD", "DYNAMIC_NORM"]}, ""),
        ({"SuspendProgram": ""}, ""),
    ],
)
async def test_external_nodes_that_slurm_may_power_down_are_an_error(
    both: Both, keeps: dict[str, Any], names: str
) -> None:
    time = {"set": True, "infinite": False, "number": 600}
    both.slurm.slurm_conf |= {"SuspendProgram": "/usr/sbin/off", "SuspendTime": time, **keeps}
    errors = said(await both.findings(), "power saving", Level.ERROR)
    told = f"Slurm powers down external nodes that are idle for 600 s (SuspendTime): {names}."
    assert [each.partition(" No slurmd")[0] for each in errors] == ([told] if names else [])


async def test_an_external_node_without_an_address_whose_name_does_not_resolve(both: Both) -> None:
    both.slurm.nodes["x1"].address = ""
    [sentence] = said(await both.findings(), "addresses", Level.WARNING)
    assert sentence.startswith("External nodes without NodeAddr, whose names do not resolve here: x1.")


async def test_pods_of_other_schedulers_on_shared_nodes_are_a_warning_except_pods_of_daemon_sets(both: Both) -> None:
    now = time.time()
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "log", "uid": "1", "controller": True}
    daemon = objects.pod("hpc", "log-1", scheduler="default-scheduler", nodeName="x1")
    daemon["metadata"]["ownerReferences"] = [owner]
    both.kube.create(now, "pods", daemon)
    assert troubles(await both.findings()) == []
    both.kube.create(now, "pods", objects.pod("hpc", "web", scheduler="default-scheduler", nodeName="x2"))
    [sentence] = said(await both.findings(), "others' pods", Level.WARNING)
    assert sentence.startswith("1 pod of other schedulers on x2 (hpc/web): ")


async def test_pods_of_another_bridge_have_jobs_and_are_no_warning(both: Both) -> None:
    placed = objects.pod("hpc", "web", scheduler="gpu-bridge", nodeName="x2")
    placed["metadata"]["annotations"] = {names.JOB_ID: "17"}
    both.kube.create(time.time(), "pods", placed)
    assert troubles(await both.findings()) == []


async def test_a_partition_of_the_policy_that_is_down_is_a_warning(both: Both) -> None:
    both.slurm.partitions["main"] = replace(both.slurm.partitions["main"], up=False)
    assert said(await both.findings(), "partitions", Level.WARNING) == [
        "Partition main is not up: new pods wait there (DOWN), or are refused (DRAIN, INACTIVE)."
    ]


# --- slurm.conf -----------------------------------------------------------------------------------------------------

CONFIGURATIONS = {
    "defer": ({"SchedulerParameters": ["defer"]}, "scheduling", "no immediate allocation (error 2125)"),
    "slow start": ({"SchedulerParameters": ["batch_sched_delay=20"]}, "scheduling", "only after 20 s"),
    "rare backfill": ({"SchedulerParameters": ["bf_interval=600"]}, "scheduling", "only every 600 s"),
    "no main loop": ({"SchedulerParameters": ["sched_interval=-1"]}, "scheduling", "turns that part"),
    "short passes": ({"SchedulerParameters": ["default_queue_depth=10"]}, "scheduling", "considers only so many jobs"),
    "strict order": ({"SchedulerType": "sched/builtin"}, "scheduling", "holds back all jobs behind it"),
    "whole nodes": ({"SelectType": "select/linear"}, "resources", "each pod takes one for itself"),
    "no memory": ({"SelectTypeParameters": ["CR_CORE"]}, "resources", "does not count memory"),
    "few jobs": ({"MaxJobCount": 1000}, "job limit", "3.3 jobs a second at most"),
    "forgotten at once": ({"MinJobAge": 2}, "job limit", "forgets ended jobs before"),
    "grace": ({"PreemptType": "preempt/partition_prio", "PreemptMode": ["SUSPEND", "GANG"]}, "preemption", "main"),
}


@pytest.mark.parametrize("case", CONFIGURATIONS)
async def test_what_in_slurm_conf_slows_or_harms_is_a_warning(both: Both, case: str) -> None:
    both.slurm.slurm_conf, check, words = CONFIGURATIONS[case]
    found = await both.findings()
    assert troubles(found) == [(check, Level.WARNING)]
    assert words in said(found, check, Level.WARNING)[0]


async def test_a_slurmctld_that_forgets_no_job_is_an_error(both: Both) -> None:
    both.slurm.slurm_conf = {"MinJobAge": 0}
    assert troubles(await both.findings()) == [("job limit", Level.ERROR)]


async def test_a_token_from_which_jobs_of_others_are_hidden_is_an_error(both: Both) -> None:
    """GET job/{id} then says of a job that it does not exist: the bridge would believe it."""
    both.slurm.slurm_conf = {"PrivateData": ["jobs"]}
    assert troubles(await both.findings()) == []
    both.token = both.slurm.token("alice")
    [sentence] = said(await both.findings(), "jobs", Level.ERROR)
    assert sentence.startswith("PrivateData=jobs hides the jobs of other users from alice")
    both.slurm.operators.add("alice")
    assert troubles(await both.findings()) == []


async def test_an_older_slurm_shows_no_slurm_conf_and_the_command_that_shows_it_is_named(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.simulation.slurm.rest.VERSIONS", ("v0.0.44",))
    found = await both.findings()
    assert troubles(found) == []
    [sentence] = said(found, "job limit", Level.UNKNOWN)
    assert "scontrol show config" in sentence


# --- our own --------------------------------------------------------------------------------------------------------


async def test_a_policy_without_rules_is_an_error(both: Both) -> None:
    both.settings["policy"] = {}
    found = await both.findings()
    assert troubles(found) == [("file", Level.ERROR)]
    assert said(found, "tenants", Level.UNKNOWN) == ["not checked: the policy maps no namespace to a Slurm user"]


async def test_a_forgotten_option_config_is_one_error_that_names_it(both: Both) -> None:
    found = await both.findings(config=None, slurm_token_file=None)
    assert troubles(found) == [("file", Level.ERROR)]
    [told] = [each for each in found if each.level is Level.ERROR]
    assert "--config FILE" in told.do
    assert said(found, "slurmrestd", Level.UNKNOWN) == ["not checked: no settings are named"]


async def test_a_bridge_that_is_not_ready_shows_why(both: Both) -> None:
    found = await _with_a_server(both, 503, "Slurm: nothing listens there.\n")
    [sentence] = said(found, "bridge", Level.WARNING)
    assert sentence.endswith("is not ready: Slurm: nothing listens there.")
    found = await _with_a_server(both, 503, "Slurm: no answer.\nKubernetes: no connection\n")
    [sentence] = said(found, "bridge", Level.WARNING)
    assert sentence.endswith("is not ready: Slurm: no answer; Kubernetes: no connection.")


async def test_a_bridge_that_lacks_what_another_row_misses_does_not_repeat_it(both: Both) -> None:
    both.slurm.controller_up = False
    found = await _with_a_server(both, 503, "Slurm: list of jobs: slurmctld does not answer.\n")
    assert troubles(found) == [("slurmctld", Level.ERROR)]
    [sentence] = said(found, "bridge", Level.UNKNOWN)
    assert sentence.endswith(" is not ready, for what other rows report")
    found = await _with_a_server(both, 503, "Slurm: list of jobs: no answer.\nthe loop has stood still for 20 s\n")
    assert troubles(found) == [("bridge", Level.WARNING), ("slurmctld", Level.ERROR)]
    [sentence] = said(found, "bridge", Level.WARNING)
    assert sentence.endswith(" is not ready: the loop has stood still for 20 s."), "no other row reports this"


@pytest.mark.parametrize(
    ("forbidden", "line"),
    [
        ("nodes", "Kubernetes: slurm-bridge may not list nodes in all namespaces."),
        ("", "slurm-bridge cannot act as Slurm user alice: token file users/alice: there is no such file."),
        (
            "",
            "Slurm: token file bob: Slurm does not accept it, because its user bob may not act for alice.",
        ),
        ("", 'policy: Slurm has no partition "gone". It has: empty, main.'),
        ("", "Slurm accounting, since 10:00: slurmdbd does not answer. 1 ended job waits to be recorded."),
    ],
)
async def test_what_only_the_bridge_reports_is_its_own_row_and_what_both_report_is_one_row(
    both: Both, forbidden: str, line: str
) -> None:
    status, text = (503, f"{line}\n") if forbidden else (200, f"ok\n{line}\n")
    assert troubles(await _with_a_server(both, status, text)) == [("bridge", Level.WARNING)]
    if forbidden:
        both.kube.forbidden.add(("list", forbidden))
    elif line.startswith("Slurm accounting"):
        both.slurm.accounting_up = False
    elif line.startswith("Slurm: token"):
        both.token = both.slurm.token("bob")
        both.slurm.users["bob"] = SimUser("bob", ("teama",))
    elif line.startswith("policy"):
        both.settings["policy"] = {"rules": [{**POLICY["rules"][0], "partition": {"allowed": ["main", "gone"]}}]}
    else:
        (both.folder / "users").mkdir(mode=0o700)
        both.settings["slurm_user_token_dir"] = str(both.folder / "users")
    found = await _with_a_server(both, status, text)
    assert said(found, "bridge", Level.WARNING) == []
    assert said(found, "bridge", Level.UNKNOWN)
    assert exit_code(found) == 2


@pytest.mark.parametrize(("status", "text"), [(404, "what?"), (200, "<html>"), (503, "no healthy upstream")])
async def test_another_program_at_the_http_address_is_an_error(both: Both, status: int, text: str) -> None:
    found = await _with_a_server(both, status, text, own=False)
    [sentence] = said(found, "bridge", Level.ERROR)
    assert sentence.startswith("A program other than slurm-bridge answers at http://127.0.0.1:")


async def test_no_bridge_on_this_host_is_no_trouble(both: Both) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        both.settings["http"] = f"127.0.0.1:{free.getsockname()[1]}"
    found = await both.findings()
    assert troubles(found) == []
    assert said(found, "bridge", Level.UNKNOWN)[0].startswith("no bridge answers at ")


async def _with_a_server(both: Both, status: int, text: str, *, own: bool = True) -> list[Finding]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=text)

    async with serving(answer, "/readyz", own=own) as url:
        both.settings["http"] = url.removeprefix("http://")
        return await both.findings()


async def test_a_token_of_another_kubernetes_is_reported_and_not_mistaken_for_a_server_that_is_away(both: Both) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.json_response({"kind": "Status", "message": "Unauthorized"}, status=401)

    async with serving(refuse, "/version") as url:
        access = kubeconfig(url)
        access["users"][0]["user"] = {"token": "not-of-this"}
        file = both.folder / "other"
        file.write_text(yaml.safe_dump(access))
        found = await both.findings(kubeconfig=str(file))
    [server] = [each for each in found if each.check == "API server"]
    assert server.sentence.casefold() == (
        f'kubeconfig {file}, context "it": the api server does not accept its token. renew it, or name one of this cluster '
        "(error 401)."
    )
    assert server.do == ""
    assert said(found, "rights", Level.UNKNOWN) == ["not checked: the API server does not accept the credentials"]


async def test_a_slurmdbd_that_is_away_is_one_finding_and_not_many(both: Both) -> None:
    both.slurm.accounting_up = False
    found = await both.findings()
    assert [each.check for each in found if each.level is Level.ERROR] == ["accounting"]
    [sentence] = said(found, "accounting", Level.ERROR)
    assert sentence == "slurmdbd does not answer (Unable to connect to database) (error 7000)."
    [finding] = [each for each in found if each.level is Level.ERROR]
    assert "systemctl status slurmdbd" in finding.do
    assert all("slurmdbd does not answer slurmrestd" in each for each in said(found, "partitions", Level.UNKNOWN))


async def test_a_bridge_that_works_without_slurmdbd_says_so(both: Both) -> None:
    found = await _with_a_server(both, 200, "ok\nSlurm accounting: slurmdbd does not answer.\n")
    [sentence] = said(found, "bridge", Level.WARNING)
    assert sentence.endswith(" works only in part: Slurm accounting: slurmdbd does not answer.")


def test_a_name_server_that_does_not_answer_holds_back_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread resolves names, and cannot be given up: the findings are printed before it has ended."""
    printed, was_printed = threading.Event(), list[bool]()

    def silent(*_: object, **__: object) -> list[object]:
        was_printed.append(printed.wait(10))
        return []

    async def look(*_: object) -> Observations:
        assert not await look_slurm._resolves("x1")
        return Observations(now=time.time())

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    monkeypatch.setattr(look_slurm, "RESOLVE_DEADLINE_S", 0.05)
    monkeypatch.setattr(command, "look", look)
    monkeypatch.setattr(command, "GROUPS", ())
    monkeypatch.setattr(command, "say", lambda _text: printed.set())
    assert command.main({}) == 0
    assert was_printed == [True]
