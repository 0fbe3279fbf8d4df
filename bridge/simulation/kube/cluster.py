"""A simulated Kubernetes: the API server's rules, without a clock, a socket or a thread.

`handle` answers one request at a given time; `open_watch` and `changes_after` return what happened; `tick` lets the
cluster's own actors (kubelets, controllers, in `actors.py`) do what is due.  The same seed and the same calls give the same
cluster: UIDs, names and delays come from the seed.

The rules are those that concern a scheduler, as measured on a real 1.36: which binds and patches are accepted, how pods are
deleted, what conflicts, and the texts of the answers.  The contract suite sends the same requests to both.

Not simulated: admission beyond `admit`, RBAC beyond `forbidden`, finalizers of kinds other than pods, other API versions, and
what `limits.py` names.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from bridge.simulation.kube import limits
from bridge.simulation.kube.actors import Actors
from bridge.simulation.kube.kinds import KINDS, REVIEWS, Kind
from bridge.simulation.kube.objects import Object, condition, epoch, rfc3339, with_condition
from bridge.simulation.kube.patch import BadPatch, changed, merged, strategically_merged
from bridge.simulation.kube.store import BadSelector, Selection, Store, TooOld, selection
from bridge.simulation.kube.validation import (
    Refusal,
    check_amounts,
    check_identity,
    check_metadata,
    check_metadata_update,
    check_pod,
    check_pod_update,
    invalid,
)

Answer = tuple[int, dict[str, str], bytes]
JSON = {"content-type": "application/json"}
VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.0-simulated"}
LISTS_REMEMBERED = 64
JSON_PATCH = "application/json-patch"
_PATCHES: dict[str, Callable[[Any, Any], Any]] = {
    JSON_PATCH: changed,
    "application/strategic-merge-patch": strategically_merged,
}


@dataclass(frozen=True, slots=True)
class Target:
    """The object or list that a path names."""

    resource: str
    kind: Kind
    namespace: str
    name: str
    subresource: str


class KubeCluster:
    """One simulated cluster.

    started     epoch seconds
    admit       changes a pod that a client or a controller creates, as a mutating admission policy does
    forbidden   (verb, "resource" or "resource/subresource") that are answered 403; verbs as RBAC names them
    """

    def __init__(self, seed: int = 0, *, history: int = 20_000, started: float = 0.0) -> None:
        self.store = Store(history)
        self.rng = random.Random(seed)  # noqa: S311 -- repeatable is what it must be
        self.forbidden: set[tuple[str, str]] = set()
        self.admit: Callable[[Object, Object], Object] = lambda pod, _namespace: pod
        self._seed = seed
        self._uids = 0
        self._lists: dict[str, tuple[int, list[bytes]]] = {}
        self.actors = Actors(self)
        for name in ("default", "kube-system"):
            self.create(started, "namespaces", {"metadata": {"name": name}})

    # --- requests ---

    def handle(
        self,
        now: float,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes | None,
        content_type: str = "application/json",
    ) -> Answer:
        """Answer one request: (status, headers, body)."""
        try:
            if not path.startswith(("/api/", "/apis/")):
                return _plain(path)
            target = self._target(path)
            self._allowed(method, target, query)
            if target.subresource in _UNSERVED:
                raise Refusal(405, "MethodNotAllowed", _UNSERVED[target.subresource])
            read = _decoded(body, content_type)
            if method in ("POST", "PUT"):  # in a patch, null removes a field
                read = _without_null(read)
            if method == "DELETE" and body:
                query = read  # options in the body: those in the query do not count
            if query.get("dryRun"):
                with self.store.discarding():
                    return self._serve(now, method, target, query, read, content_type)
            return self._serve(now, method, target, query, read, content_type)
        except Refusal as refusal:
            return _status(refusal)

    def _serve(
        self, now: float, method: str, target: Target, query: Mapping[str, str], read: Object, content_type: str
    ) -> Answer:
        if method == "GET":
            return self._get(target, query)
        if method == "POST":
            return self._post(now, target, read)
        if method == "PATCH" and content_type.startswith("application/apply-patch"):
            return self._apply(now, target, read)
        if method == "PATCH":
            return _ok(self._patch(now, target, read, content_type, query.get("fieldManager", "")))
        if method == "PUT":
            if target.resource == "leases" and self.store.get("leases", target.namespace, target.name) is None:
                return self._create_by_put(now, target, read)
            return _ok(self._replace(now, target, read))
        if method == "DELETE":
            return _ok(self._delete(now, target, query, read))
        raise Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def open_watch(self, path: str, query: Mapping[str, str]) -> tuple[Selection, int] | Answer:
        """Begin a watch: its selection and the version it starts at, or the refusal as an answer."""
        try:
            target = self._target(path)
            self._allowed("GET", target, query)
            if query.get("sendInitialEvents"):  # clients list first then, as with a server that is older than this
                raise invalid("ListOptions", "", "sendInitialEvents", "Forbidden: it needs the WatchList feature gate")
            asked = query.get("resourceVersion", "")
            if asked and not asked.isdigit():
                raise Refusal(500, "", f'resourceVersion: Invalid value: "{asked}": invalid syntax')
            return _selection(target, query), int(asked or self.store.version)
        except Refusal as refusal:
            return _status(refusal)

    def changes_after(self, version: int, chosen: Selection) -> tuple[list[bytes], int, bool]:
        """(lines, version, ended): the lines of a watch after `version`, and the version to go on from unless it ended."""
        try:
            changes, newer = self.store.changes_since(version, chosen)
        except TooOld:
            status = _status_body(410, "Expired", f"too old resource version: {version} ({self.store.version})", {})
            return [_line("ERROR", msgspec.json.encode(status))], version, True
        return [_line(kind, raw) for kind, raw in changes], newer, False

    def bookmark(self, chosen: Selection, version: int) -> bytes:
        """The line of a watch that says that it is complete up to this version."""
        kind = next(kind for (_, plural), kind in KINDS.items() if plural == chosen.resource)
        meta = {"resourceVersion": str(version)}
        thing = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta}
        return _line("BOOKMARK", msgspec.json.encode(thing))

    def tick(self, now: float) -> None:
        """Let kubelets and controllers do what is due."""
        self.actors.act(now)

    def next_due(self) -> float | None:
        """When `tick` has something to do; None: not before something changes.  In the past: now."""
        return self.actors.next_due()

    def compact(self) -> None:
        """Forget the past: watches and half-read lists from before get 410."""
        self.store.compact()

    # --- verbs, for the actors too ---

    def create(self, now: float, resource: str, thing: Object) -> Object:
        """Create an object as the server does: uid, times, defaults.  Raises Refusal."""
        kind = next(kind for (_, plural), kind in KINDS.items() if plural == resource)
        meta = dict(thing.get("metadata") or {})
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = self._generate_name(resource, meta)
        name, namespace = str(meta.get("name") or ""), str(meta.get("namespace") or "")
        if kind.namespaced:
            self._must_take(namespace)
        meta |= {"uid": self._uid(), "creationTimestamp": rfc3339(now), "generation": 1}
        meta.pop("deletionTimestamp", None)
        made = {"kind": kind.kind, "apiVersion": kind.api_version} | thing | {"metadata": _without_empty(meta)}
        if resource == "pods" and (space := self.store.get("namespaces", "", namespace)):
            made = self.admit(made, space)
        made = _DEFAULTS.get(resource, _as_it_is)(made, now)
        check_metadata(kind.kind, meta)
        _check_for_controllers(kind.kind, resource, made, now)
        if self.store.get(resource, namespace, name):  # it judges the object first
            message = f'{resource} "{name}" already exists'
            raise Refusal(409, "AlreadyExists", message, name=name, kind=resource)
        return self.store.put(resource, made)

    def write_status(self, resource: str, thing: Object, status: Object) -> Object:
        """Replace an object's status, as an actor does."""
        return self.store.put(resource, {**thing, "status": status})

    def remove(self, now: float, resource: str, thing: Object, grace_s: int | None = None) -> Object:
        """Delete an object; a pod on a node first gets its grace, unless that is 0."""
        if resource == "namespaces":
            return self._remove_namespace(now, thing)
        if resource != "pods":
            return self.store.delete(resource, thing)
        return self._remove_pod(now, thing, grace_s)

    def _generate_name(self, resource: str, meta: Mapping[str, Any]) -> str:
        """A free name with the prefix `generateName`: the server generates another if one is taken (KEP-4420)."""
        while True:
            name = f"{meta['generateName']}{self.suffix()}"
            if not self.store.get(resource, str(meta.get("namespace") or ""), name):
                return name

    def suffix(self) -> str:
        """Five characters, as generated names have."""
        return "".join(self.rng.choices("bcdfghjklmnpqrstvwxz2456789", k=5))

    # --- reading ---

    def _get(self, target: Target, query: Mapping[str, str]) -> Answer:
        if target.subresource == "scale":
            return _ok(_scale(self._existing(target)))
        if target.name:
            return _ok(self._existing(target))
        limit = int(query.get("limit") or 0)
        if token := query.get("continue", ""):
            if token not in self._lists:
                raise Refusal(400, "BadRequest", "invalid continue token")
            version, rest = self._lists[token]
            if not self.store.is_remembered(version):
                message = "The provided continue parameter is too old to display a consistent list result."
                raise Refusal(410, "Expired", message)
        else:
            version, rest = self.store.version, self.store.matching(_selection(target, query))
        page, rest = (rest[:limit], rest[limit:]) if limit else (rest, [])
        meta = {"resourceVersion": str(version)}
        if rest:
            meta["continue"] = self._remember_list(version, rest)
        head = f'{{"kind":"{target.kind.kind}List","apiVersion":"{target.kind.api_version}","metadata":'
        return 200, JSON, head.encode() + msgspec.json.encode(meta) + b',"items":[' + b",".join(page) + b"]}"

    def _remember_list(self, version: int, rest: list[bytes]) -> str:
        """The token under which the rest of a consistent list is kept."""
        token = f"rv{version}-{len(rest)}-{self.suffix()}"
        self._lists[token] = (version, rest)
        while len(self._lists) > LISTS_REMEMBERED:
            del self._lists[next(iter(self._lists))]
        return token

    def _existing(self, target: Target) -> Object:
        found = self.store.get(target.resource, target.namespace, target.name)
        if found is None:
            message = f'{target.resource} "{target.name}" not found'
            raise Refusal(404, "NotFound", message, name=target.name, kind=target.resource)
        return found

    # --- writing ---

    def _post(self, now: float, target: Target, read: Object) -> Answer:
        if status := self._reviewed(target, read):
            body = msgspec.json.encode({**read, "status": status})
            return 201, JSON | limits.warning(limits.NO_ACCESS_RULES), body
        if target.subresource == "binding":
            self._bind(now, target, read)
        elif target.subresource == "eviction":
            pod = self._existing(target)
            _check_preconditions(target, pod, read.get("deleteOptions") or {})
            said = condition("DisruptionTarget", "True", "EvictionByEvictionAPI", "Eviction API: evicting", now)
            marked = with_condition(pod, said)
            self._remove_pod(now, pod if marked == pod else self.store.put("pods", marked), None)
        elif target.name:
            raise Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        else:
            meta = {**(read.get("metadata") or {})}
            if target.kind.namespaced:
                meta["namespace"] = target.namespace
            made = self.create(now, target.resource, {**read, "metadata": meta})
            headers = limits.warning(limits.NO_CONTROLLER.format(kind=target.kind.kind)) if target.kind.idle else {}
            return 201, JSON | headers, msgspec.json.encode(made)
        success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        return 201, JSON, msgspec.json.encode(success)

    def _bind(self, now: float, target: Target, binding: Object) -> None:
        """One write: node, annotations, labels and PodScheduled=True.  The node is not looked at."""
        pod, meta = self._existing(target), binding.get("metadata") or {}
        name, where = target.name, (binding.get("target") or {}).get("name")
        if meta.get("uid") and meta["uid"] != pod["metadata"]["uid"]:
            raise _precondition("pods", name, meta["uid"], pod["metadata"]["uid"])
        spec = pod["spec"]
        if pod["metadata"].get("deletionTimestamp"):
            raise _cannot_bind(name, f"pod {name} is being deleted, cannot be assigned to a host")
        if spec.get("nodeName"):
            raise _cannot_bind(name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
        if spec.get("schedulingGates"):
            raise _cannot_bind(name, f"pod {name} has non-empty .spec.schedulingGates")
        written = dict(pod["metadata"])
        for field in ("annotations", "labels"):
            if meta.get(field):
                written[field] = {**(written.get(field) or {}), **meta[field]}
        bound = {**pod, "metadata": written, "spec": {**spec, "nodeName": where}}
        self.store.put("pods", with_condition(bound, condition("PodScheduled", "True", "", "", now)))

    def _patch(self, now: float, target: Target, patch: Object, content_type: str, manager: str) -> Object:
        before = self._existing(target)
        change = _PATCHES.get(content_type.partition("+")[0].partition(";")[0], merged)
        try:
            after = change(before, patch)
        except BadPatch as error:
            raise invalid(target.kind.kind, target.name, "patch", f"Invalid value: {error}") from None
        deadlines = {(each.get("spec") or {}).get("activeDeadlineSeconds") for each in (before, after)}
        if manager and len(deadlines) > 1:
            after = {**after, "metadata": {**after["metadata"], "managedFields": [_wrote_the_deadline(manager)]}}
        return self._scaled(self._written(now, target, before, after), target)

    def _apply(self, now: float, target: Target, configuration: Object) -> Answer:
        """Server-side apply, as a merge: no field has an owner."""
        warned = JSON | limits.warning(limits.NO_FIELD_OWNERS)
        before = self.store.get(target.resource, target.namespace, target.name)
        if before is None:
            meta = {**(configuration.get("metadata") or {}), "name": target.name}
            if target.kind.namespaced:
                meta["namespace"] = target.namespace
            made = self.create(now, target.resource, {**configuration, "metadata": meta})
            return 201, warned, msgspec.json.encode(made)
        after = self._written(now, target, before, strategically_merged(before, configuration))
        return 200, warned, msgspec.json.encode(after)

    def _create_by_put(self, now: float, target: Target, thing: Object) -> Answer:
        """A PUT creates a Lease that does not exist, unless the request names a uid (Kubernetes facts 2)."""
        meta = dict(thing.get("metadata") or {})
        if meta.get("name", target.name) != target.name:
            raise Refusal(400, "BadRequest", "the name of the object does not match the name on the URL")
        if meta.get("uid"):
            message = f'Operation cannot be fulfilled on leases "{target.name}": there is no object with this uid'
            raise Refusal(409, "Conflict", message, name=target.name, kind=target.resource)
        meta |= {"name": target.name, "namespace": target.namespace}
        meta.pop("resourceVersion", None)
        return 201, JSON, msgspec.json.encode(self.create(now, "leases", {**thing, "metadata": meta}))

    def _replace(self, now: float, target: Target, thing: Object) -> Object:
        """A write without uid and version means the object of that name, whatever its version."""
        before = self._existing(target)
        old, new = before["metadata"], thing.get("metadata") or {}
        if target.resource == "leases" and not new.get("resourceVersion"):
            what = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
            raise Refusal(422, "Invalid", f'leases "{target.name}" is invalid: {what}', name=target.name, kind="Lease")
        known = {field: new.get(field) or old[field] for field in ("name", "uid", "resourceVersion")}
        known |= {"namespace": new.get("namespace") or old["namespace"]} if target.kind.namespaced else {}
        after = {**before, **thing, "metadata": {**new, **known}}
        if target.subresource == "scale":
            after = {**before, "spec": {**before["spec"], **thing["spec"]}}
        elif target.resource in _DEFAULTS and not target.subresource:
            after = _DEFAULTS[target.resource](after, now)
        return self._scaled(self._written(now, target, before, after), target)

    def _scaled(self, written: Object, target: Target) -> Object:
        return _scale(written) if target.subresource == "scale" else written

    def _written(self, now: float, target: Target, before: Object, after: Object) -> Object:
        """Write `after` in the place of `before`, as far as the rules of the kind allow."""
        kind, name = target.kind.kind, target.name
        old, new = before["metadata"], after["metadata"]
        check_identity(kind, old, new)
        if new.get("resourceVersion") != old["resourceVersion"]:
            message = f'Operation cannot be fulfilled on {target.resource} "{name}": the object has been modified'
            raise Refusal(409, "Conflict", message, name=name, kind=target.resource)
        if target.subresource == "status":
            after = {**before, "status": after.get("status") or {}}
        else:
            meta = _without_empty({**new, "creationTimestamp": old["creationTimestamp"]})
            check_metadata_update(kind, old, meta)
            after = {**after, "metadata": meta}
            if target.resource == "pods":
                after["spec"] = _tolerating(after["spec"])
            if target.resource in _HAVE_STATUS:
                after["status"] = before.get("status") or {}
            if after.get("spec") != before.get("spec"):
                _check_for_controllers(kind, target.resource, after, now)
                if target.resource == "pods":
                    check_pod(name, after["spec"])
                    check_pod_update(name, before["spec"], after["spec"])
                after["metadata"]["generation"] = old.get("generation", 1) + 1
        if after == before:
            return before  # nothing changed: no new version, no event
        written = self.store.put(target.resource, after)
        if old.get("finalizers") and not new.get("finalizers") and old.get("deletionGracePeriodSeconds") == 0:
            return self.store.delete(target.resource, written)  # it was only held by them
        return written

    def _delete(self, now: float, target: Target, query: Mapping[str, str], options: Object) -> Object:
        thing = self._existing(target)
        _check_preconditions(target, thing, options)
        grace = query.get("gracePeriodSeconds")
        return self.remove(now, target.resource, thing, None if grace is None else int(grace))

    def _remove_pod(self, now: float, pod: Object, grace_s: int | None) -> Object:
        """Two writes if the pod goes at once, as a watch on the real server shows; a grace can only be shortened."""
        meta, spec = pod["metadata"], pod["spec"]
        grace = spec.get("terminationGracePeriodSeconds", 30) if grace_s is None else grace_s
        grace = 1 if grace < 0 else grace
        began = now
        if meta.get("deletionTimestamp"):
            if grace_s is None or meta["deletionGracePeriodSeconds"] <= grace:
                return pod
            began = epoch(meta["deletionTimestamp"]) - meta["deletionGracePeriodSeconds"]
        elif not spec.get("nodeName") or pod["status"]["phase"] in ("Succeeded", "Failed"):
            grace = 0
        marked = {**meta, "deletionTimestamp": rfc3339(began + grace), "deletionGracePeriodSeconds": grace}
        pod = self.store.put("pods", {**pod, "metadata": marked})
        return pod if grace or marked.get("finalizers") else self.store.delete("pods", pod)

    def _remove_namespace(self, now: float, thing: Object) -> Object:
        """Delete all objects in the namespace first; the actors finish it when its last pod is gone."""
        name = thing["metadata"]["name"]
        for resource in [plural for (_, plural), kind in KINDS.items() if kind.namespaced]:
            for inside in [t for t in self.store.unordered(resource) if t["metadata"].get("namespace") == name]:
                self.remove(now, resource, inside)
        if any(pod["metadata"]["namespace"] == name for pod in self.store.unordered("pods")):
            return self.store.put("namespaces", {**thing, "status": {"phase": "Terminating"}})
        return self.store.delete("namespaces", thing)

    # --- small things ---

    def _target(self, path: str) -> Target:
        parts = path.strip("/").split("/")
        group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
        version = parts[1] if parts[0] == "api" else "/".join(parts[1:3])
        namespace = ""
        if len(rest) >= 3 and rest[0] == "namespaces" and ("", rest[2]) != ("", "status"):
            namespace, rest = rest[1], rest[2:]
        plural = rest[0] if rest else ""
        kind = KINDS.get((group, plural)) or REVIEWS.get((group, plural))
        if kind is None or kind.api_version != version or len(rest) > 3:
            raise Refusal(404, "NotFound", limits.NO_SUCH_KIND.format(plural="/".join(rest), version=version))
        name, subresource, *_ = *rest[1:], "", ""
        return Target(rest[0], kind, namespace, name, subresource)

    def _allowed(self, method: str, target: Target, query: Mapping[str, str]) -> None:
        verbs = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
        reading = "watch" if query.get("watch") in ("1", "true") else "get" if target.name else "list"
        verb, resource = verbs.get(method, reading), "/".join(filter(None, (target.resource, target.subresource)))
        if (verb, resource) in self.forbidden:
            message = f'{resource} is forbidden: User "slurm-bridge" cannot {verb} resource "{resource}"'
            raise Refusal(403, "Forbidden", message, kind=target.resource)

    def _reviewed(self, target: Target, read: Object) -> Object | None:
        """The answer to a question about rights; None: the request is not such a question."""
        asked = (read.get("spec") or {}).get("resourceAttributes") or {}
        resource = "/".join(filter(None, (asked.get("resource"), asked.get("subresource"))))
        match target.resource:
            case "selfsubjectaccessreviews":
                return {"allowed": (asked.get("verb"), resource) not in self.forbidden}
            case "selfsubjectrulesreviews":
                every = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
                paths = {"verbs": ["*"], "nonResourceURLs": ["*"]}
                return {"resourceRules": [every], "nonResourceRules": [paths], "incomplete": False}
            case "selfsubjectreviews":
                return {"userInfo": {"username": "slurm-bridge"}}
        return None

    def _must_take(self, namespace: str) -> None:
        found = self.store.get("namespaces", "", namespace)
        if found is None:
            message = f'namespaces "{namespace}" not found'
            raise Refusal(404, "NotFound", message, name=namespace, kind="namespaces")
        if found["status"].get("phase") == "Terminating":
            message = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise Refusal(403, "Forbidden", message, name=namespace, kind="namespaces")

    def _uid(self) -> str:
        self._uids += 1
        return f"{self._seed & 0xFFFFFFFF:08x}-0000-4000-8000-{self._uids:012x}"


# --- rules of single kinds ------------------------------------------------------------------------------------------

_MAKE_PODS = {"replicasets", "deployments", "jobs"}
_HAVE_STATUS = {"pods", "nodes", "namespaces", "replicasets", "deployments", "jobs", "persistentvolumeclaims"}
_UNSERVED = {"log": limits.NO_LOGS, "token": limits.NO_TOKENS} | dict.fromkeys(
    ("exec", "attach", "portforward", "ephemeralcontainers"), limits.NO_PROGRAM
)
_TOLERATED = [
    {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for what in ("not-ready", "unreachable")
]


def _as_it_is(thing: Object, _now: float) -> Object:
    return thing


def _new_pod(pod: Object, now: float) -> Object:
    spec, meta = dict(pod.get("spec") or {}), pod["metadata"]
    spec["containers"] = [_new_container(container) for container in spec.get("containers") or ()]
    if spec.get("initContainers"):
        spec["initContainers"] = [_new_container(container) for container in spec["initContainers"]]
    for field, default in (
        ("restartPolicy", "Always"),
        ("terminationGracePeriodSeconds", 30),
        ("schedulerName", "default-scheduler"),
        ("serviceAccountName", "default"),
        ("securityContext", {}),
        ("priority", 0),
    ):
        spec.setdefault(field, default)
    spec = _tolerating(spec)
    check_pod(meta["name"], spec)
    status: Object = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        message = "Scheduling is blocked due to non-empty scheduling gates"
        status["conditions"] = [condition("PodScheduled", "False", "SchedulingGated", message, now)]
    return {**pod, "spec": spec, "status": status}


def _tolerating(spec: Object) -> Object:
    """The spec of a new or changed pod after admission: the pod tolerates a lost node for a while."""
    given: list[dict[str, str]] = spec.get("tolerations") or []

    def is_tolerated(key: str) -> bool:
        return any(each.get("key", key) == key and each.get("effect", "NoExecute") == "NoExecute" for each in given)

    return {**spec, "tolerations": [*given, *(each for each in _TOLERATED if not is_tolerated(str(each["key"])))]}


def _without_empty(meta: Object) -> Object:
    """The metadata without lists and maps that are empty, which the server does not keep."""
    return {field: value for field, value in meta.items() if value not in ({}, [])}


def _check_for_controllers(kind: str, resource: str, thing: Object, now: float) -> None:
    """Raise Refusal where a controller could not act on the object: its numbers of pods and its pod template."""
    name, spec = thing["metadata"]["name"], thing.get("spec") or {}
    if resource not in _MAKE_PODS:
        return
    for field in ("replicas", "parallelism", "completions"):
        if field in spec and not isinstance(spec[field], int):
            raise invalid(kind, name, f"spec.{field}", f"Invalid value: {spec[field]!r}: must be an integer")
    template = (spec.get("template") or {}).get("spec") or {}
    try:
        _new_pod({"metadata": {"name": name}, "spec": template}, now)
    except Refusal as why:
        raise invalid(kind, name, "spec.template", str(why)) from None


def _new_container(container: Object) -> Object:
    """A resource with a limit and no request requests its limit."""
    check_amounts(container)
    asked = container.get("resources") or {}
    if asked.get("limits"):
        asked = {**asked, "requests": {**asked["limits"], **(asked.get("requests") or {})}}
    return {**container, "resources": asked}


def _new_node(node: Object, now: float) -> Object:
    """Nodes come with their status: in the simulation a kubelet is behind each from the start."""
    status = dict(node.get("status") or {})
    status.setdefault("conditions", [condition("Ready", "True", "KubeletReady", "simulated", now)])
    return {**node, "spec": node.get("spec") or {}, "status": status}


def _new_namespace(namespace: Object, _now: float) -> Object:
    meta = namespace["metadata"]
    labels = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": meta["name"]}
    return {**namespace, "metadata": {**meta, "labels": labels}, "status": {"phase": "Active"}}


def _new_claim(claim: Object, _now: float) -> Object:
    """Bind a claim at once if it names its volume; others wait for ever, since nothing provisions here."""
    bound = bool((claim.get("spec") or {}).get("volumeName"))
    return {**claim, "status": {"phase": "Bound" if bound else "Pending"}}


def _new_replicas(controller: Object, _now: float) -> Object:
    return {**controller, "spec": {"replicas": 1, **(controller.get("spec") or {})}}


def _new_deployment(deployment: Object, now: float) -> Object:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}
    made = _new_replicas(deployment, now)
    return {**made, "spec": {"strategy": rolling, **made["spec"]}}


def _new_job(job: Object, _now: float) -> Object:
    """Its pods have labels by which it, and `kubectl logs job/NAME`, selects them."""
    usual = {"parallelism": 1, "completions": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": False}
    spec, meta = job.get("spec") or {}, job["metadata"]
    template = spec.get("template") or {}
    given = template.get("metadata") or {}
    own = {"controller-uid": meta["uid"], "job-name": meta["name"]}
    prefixed = {f"batch.kubernetes.io/{key}": value for key, value in own.items()}
    template = {**template, "metadata": {**given, "labels": {**(given.get("labels") or {}), **own, **prefixed}}}
    selector = {"matchLabels": {"batch.kubernetes.io/controller-uid": meta["uid"]}}
    return {**job, "spec": {**usual, **spec, "selector": selector, "template": template}}


_DEFAULTS = {
    "pods": _new_pod,
    "replicasets": _new_replicas,
    "deployments": _new_deployment,
    "jobs": _new_job,
    "nodes": _new_node,
    "namespaces": _new_namespace,
    "persistentvolumeclaims": _new_claim,
}


def _scale(controller: Object) -> Object:
    """The Scale of a ReplicaSet or a Deployment."""
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": controller["metadata"],
        "spec": {"replicas": controller["spec"].get("replicas", 1)},
        "status": {"replicas": (controller.get("status") or {}).get("replicas", 0)},
    }


def _check_preconditions(target: Target, thing: Object, options: Object) -> None:
    wanted = options.get("preconditions") or {}
    if wanted.get("uid") and wanted["uid"] != thing["metadata"]["uid"]:
        message = (
            f'Operation cannot be fulfilled on {target.kind.kind} "{target.name}": the UID in the precondition '
            f"({wanted['uid']}) does not match the UID in record ({thing['metadata']['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise Refusal(409, "Conflict", message, name=target.name, kind=target.kind.kind)


def _wrote_the_deadline(manager: str) -> Object:
    """The entry of managed fields for the deadline; the simulation keeps no other, because no other is read (T7)."""
    wrote: Object = {"f:spec": {"f:activeDeadlineSeconds": {}}}
    return {"manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": wrote}


# --- answers --------------------------------------------------------------------------------------------------------


def _selection(target: Target, query: Mapping[str, str]) -> Selection:
    try:
        return selection(target.resource, target.namespace, query)
    except BadSelector as error:
        raise Refusal(400, "BadRequest", str(error)) from None


def _decoded(body: bytes | None, content_type: str) -> Any:
    """The object in a body of JSON; the HTTP shell turns other forms into JSON."""
    try:
        read = msgspec.json.decode(body) if body else {}
    except msgspec.DecodeError as error:
        raise Refusal(400, "BadRequest", f"couldn't get version/kind; json parse error: {error}") from None
    if not isinstance(read, dict) and not content_type.startswith(JSON_PATCH):
        raise Refusal(400, "BadRequest", "couldn't get version/kind; json parse error: not an object")
    return read


def _without_null(value: Any) -> Any:
    """The same without fields that are null, which count as not given."""
    if isinstance(value, dict):
        return {name: _without_null(each) for name, each in value.items() if each is not None}
    return [_without_null(each) for each in value] if isinstance(value, list) else value


def _line(kind: str, raw: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + raw + b"}"


def _ok(thing: Object) -> Answer:
    return 200, JSON, msgspec.json.encode(thing)


def _status(refusal: Refusal) -> Answer:
    body = _status_body(refusal.code, refusal.reason, refusal.message, refusal.details)
    return refusal.code, JSON, msgspec.json.encode(body)


def _status_body(code: int, reason: str, message: str, details: Object) -> Object:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return status | {"reason": reason, "details": details, "code": code}


def _plain(path: str) -> Answer:
    if path in ("/healthz", "/livez", "/readyz"):
        return 200, {"content-type": "text/plain"}, b"ok"
    if path == "/version":
        return 200, JSON, msgspec.json.encode(VERSION)
    return 404, {"content-type": "text/plain"}, b"404 page not found\n"


def _precondition(resource: str, name: str, wanted: str, found: str) -> Refusal:
    message = (
        f'Operation cannot be fulfilled on {resource} "{name}": Precondition failed: UID in precondition: {wanted}, '
        f"UID in object meta: {found}"
    )
    return Refusal(409, "Conflict", message, name=name, kind=resource)


def _cannot_bind(name: str, why: str) -> Refusal:
    message = f'Operation cannot be fulfilled on pods/binding "{name}": {why}'
    return Refusal(409, "Conflict", message, name=name, kind="pods/binding")
