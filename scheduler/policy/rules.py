"""Who a namespace may be in Slurm, and what its pods may ask for (rules I).

A pod's annotations only choose within what the admin allows.  Where nothing is mapped and the admin set no default, the
answer is a clear no: the bridge never makes a job with privileges of its own.

The texts of a rule may be templates (templates.py).  `Policy.tenant` returns them filled and checked: a user that a template
gave is held to the same as one that the admin wrote out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from scheduler.model.amounts import NO_TEXT
from scheduler.model.kubernetes import Requirement
from scheduler.model.refusal import Refusal
from scheduler.model.selectors import holds
from scheduler.names import REFUSED
from scheduler.policy import templates
from scheduler.policy.templates import Origin

ANY = "*"
_SLURMS_OWN = "the user by whom Slurm runs (SlurmUser)"


@dataclass(frozen=True, slots=True)
class Choice:
    """One thing that an annotation may choose.

    default   used where the pod says nothing; "": Slurm's own default
    allowed   what a pod may name besides the default; ("*",): anything
    """

    default: str = ""
    allowed: tuple[str, ...] = ()

    def pick(self, what: str, wanted: str | None, where: str) -> str | Refusal:
        """What is used, or a no that names what would be allowed."""
        if wanted is None or wanted == self.default:
            return self.default
        if wanted in self.allowed or ANY in self.allowed:
            return wanted
        choices = sorted({self.default, *self.allowed} - {""})
        hint = f"Allowed here: {', '.join(choices)}." if choices else "None may be named here."
        return Refusal(REFUSED, f'The {what} "{wanted}" is not allowed for {where}. {hint}')


@dataclass(frozen=True, slots=True)
class Priority:
    """What pods of a PriorityClass ask for where they do not say it themselves.

    qos    "": nothing; else the rule must allow it.  nice: at least 0; None: nothing
    """

    qos: str = ""
    nice: int | None = None


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who a workload is in Slurm.  In a rule the texts may be templates; of `Policy.tenant` they are filled.

    max_jobs          so many jobs wait and run at a time; max_submit_rate: so many are submitted a second; None: no limit
    max_time_min      minutes, the longest time limit of a job; max_nodes: the most nodes of a job; None: no limit
    max_gres          GRES name to the most that all pods of a job may ask for together; a name counts all its types
    rule              of a filled one: which rule it is, for sentences
    filled            of a filled one: what its templates gave, in a sentence; "": it has none
    counts_with       of a filled one: jobs with the same value count together against max_jobs and max_submit_rate
    """

    user: str
    accounts: Choice = Choice()
    partitions: Choice = Choice()
    qos: Choice = Choice()
    reservations: Choice = Choice()
    max_jobs: int | None = None
    max_submit_rate: float | None = None
    max_time_min: int | None = None
    max_nodes: int | None = None
    max_gres: tuple[tuple[str, int], ...] = ()
    rule: str = field(default="The policy", compare=False)
    filled: str = field(default="", compare=False)
    counts_with: str = field(default="", compare=False)

    @property
    def choices(self) -> dict[str, Choice]:
        """What pods may choose, by what it is called."""
        return {
            "account": self.accounts,
            "partition": self.partitions,
            "qos": self.qos,
            "reservation": self.reservations,
        }

    @property
    def texts(self) -> list[str]:
        """Everything in it that may be a template."""
        return [self.user, *(text for each in self.choices.values() for text in (each.default, *each.allowed))]


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the policy.

    namespaces        patterns as in a shell ("team-*"); (): any name
    service_accounts  patterns; (): all of them
    selector          expressions on the labels of the namespace, all of which must hold; (): any labels
    """

    namespaces: tuple[str, ...]
    tenant: Tenant
    service_accounts: tuple[str, ...] = ()
    selector: tuple[Requirement, ...] = ()

    def matches(self, origin: Origin) -> bool:
        """True if this line is about pods from there."""
        return self.selects(origin.namespace, origin.labels) and (
            not self.service_accounts
            or any(fnmatchcase(origin.service_account, each) for each in self.service_accounts)
        )

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """True if this line is about some pods of that namespace.  A rule that says neither name nor label selects none."""
        return self.may_select(namespace) and all(holds(each, labels) for each in self.selector)

    def may_select(self, namespace: str) -> bool:
        """True if this line is about some pods of that namespace, whatever labels it has."""
        return any(fnmatchcase(namespace, each) for each in self.namespaces) or bool(
            not self.namespaces and self.selector
        )

    @property
    def about(self) -> str:
        """Which namespaces and service accounts it is about, for sentences."""
        said = [f"namespaces {', '.join(self.namespaces)}"] if self.namespaces else []
        if self.selector:
            said.append(f"namespace labels {', '.join(_written(each) for each in self.selector)}")
        if self.service_accounts:
            said.append(f"service accounts {', '.join(self.service_accounts)}")
        return "; ".join(said)


def _written(one: Requirement) -> str:
    """As kubectl's --selector writes it."""
    match one.operator:
        case "Exists":
            return one.key
        case "DoesNotExist":
            return f"!{one.key}"
        case "In" if len(one.values) == 1:
            return f"{one.key}={one.values[0]}"
    return f"{one.key} {one.operator.lower()} ({','.join(one.values)})"


@dataclass(frozen=True, slots=True)
class Policy:
    """The first rule that matches decides; then the default; then nobody.

    privileged   names, casefolded, to which nobody is mapped: SlurmUser, who may do anything to any job
    priorities   PriorityClass to what its pods ask for
    """

    rules: tuple[Rule, ...] = ()
    default: Tenant | None = None
    privileged: frozenset[str] = frozenset()
    priorities: Mapping[str, Priority] = field(default_factory=dict)

    def tenant(self, namespace: str, service_account: str, labels: Mapping[str, str] = NO_TEXT) -> Tenant | Refusal:
        """Who pods of that namespace, which has these labels, are in Slurm (I1); or a no in words."""
        origin = Origin(namespace, service_account, labels)
        place = next((place for place, rule in enumerate(self.rules) if rule.matches(origin)), len(self.rules))
        if place == len(self.rules) and self.default is None:
            return Refusal(
                REFUSED,
                f"Namespace {namespace} has no Slurm user: the admin's policy maps neither it nor a default. "
                "Ask for a line under `policy` in slurm-bridge's settings.",
            )
        return _Filling(self.called(place), origin, self.privileged).filled(self.tenants[place], place)

    def called(self, place: int) -> str:
        """How sentences name the rule at that place of `tenants`."""
        if place == len(self.rules):
            return "The default of the policy"
        return f"Rule {place + 1} of the policy ({self.rules[place].about})"

    @property
    def tenants(self) -> tuple[Tenant, ...]:
        """One a rule, in their order; then the default.  Their texts are as written."""
        return (*(rule.tenant for rule in self.rules), *([self.default] if self.default is not None else []))

    @property
    def has_templates(self) -> bool:
        """True if who is who follows from namespaces, labels or service accounts."""
        return any(templates.is_template(text) for tenant in self.tenants for text in tenant.texts)

    def can_give(self, user: str) -> bool:
        """True if some pod could be that Slurm user: only jobs of such a user can be ours (whose.py)."""
        return self._can_give(user, self.tenants)

    def can_give_in(self, namespace: str, user: str) -> bool:
        """The same of pods in that namespace, whatever its labels and their service accounts."""
        rules = [rule.tenant for rule in self.rules if rule.may_select(namespace)]
        return self._can_give(user, [*rules, *([self.default] if self.default else [])])

    def gives_in(self, namespace: str, labels: Mapping[str, str], user: str) -> bool:
        """True if pods of that namespace with these labels are that user, as some service account."""
        rules = [rule.tenant for rule in self.rules if rule.selects(namespace, labels)]
        origin = Origin(namespace, "", labels)
        for tenant in [*rules, *([self.default] if self.default else [])]:
            try:
                if templates.can_give(templates.narrowed(tenant.user, origin), user):
                    return True
            except templates.Missing:
                continue  # it gives nobody there
        return False

    def writes_out(self, user: str) -> bool:
        """True if a rule names that user without a template."""
        return any(tenant.user == user for tenant in self.tenants)

    def is_ordinary(self, user: str) -> bool:
        """False of root, of SlurmUser, and of what is no user's name: nothing is ever done as these."""
        return user.casefold() not in self.privileged and not templates.no_ordinary_user(user)

    def _can_give(self, user: str, tenants: tuple[Tenant, ...] | list[Tenant]) -> bool:
        return self.is_ordinary(user) and any(templates.can_give(tenant.user, user) for tenant in tenants)


@dataclass(frozen=True, slots=True)
class _Filling:
    """One rule, for pods from one place.  rule: how sentences name it"""

    rule: str
    origin: Origin
    privileged: frozenset[str]

    def filled(self, written: Tenant, place: int) -> Tenant | Refusal:
        """The same with all templates filled and checked; or why that cannot be, in words."""
        user = self._checked("user", written.user, self._no_user)
        if isinstance(user, Refusal):
            return user
        if user.casefold() in self.privileged:
            return Refusal(REFUSED, f'{self.rule} gives user "{user}", {_SLURMS_OWN}.')
        choices: dict[str, Choice] = {}
        for what, choice in written.choices.items():
            default = self._checked(what, choice.default, _no_name)
            if isinstance(default, Refusal):
                return default
            choices[what] = Choice(default, tuple(self._fillable(choice.allowed)))
        each = f" for {user}" if templates.is_template(written.user) else ""
        return replace(
            written,
            user=user,
            accounts=choices["account"],
            partitions=choices["partition"],
            qos=choices["qos"],
            reservations=choices["reservation"],
            rule=self.rule,
            filled=self._told(written, user, choices),
            counts_with=f"rule {place}{each}",
        )

    def _checked(self, what: str, text: str, problem: Callable[[str], str]) -> str | Refusal:
        if not templates.is_template(text):
            return text
        try:
            value = templates.fill(text, self.origin)
        except templates.Missing as missing:
            return Refusal(REFUSED, f'{self.rule} fills {what} from "{text}", and {missing}.')
        if why := problem(value):
            return Refusal(REFUSED, f'{self.rule} fills {what} from "{text}" with "{value}", which {why}.')
        return value

    def _no_user(self, user: str) -> str:
        if user.casefold() in self.privileged:
            return f"is {_SLURMS_OWN}"
        return templates.no_ordinary_user(user)

    def _fillable(self, allowed: tuple[str, ...]) -> Iterator[str]:
        """What may be chosen.  A template without its value allows nothing."""
        for text in allowed:
            value = self._checked("", text, _no_name)
            if not isinstance(value, Refusal):
                yield value

    def _told(self, written: Tenant, user: str, choices: Mapping[str, Choice]) -> str:
        given = {"user": (written.user, user)}
        given |= {what: (choice.default, choices[what].default) for what, choice in written.choices.items()}
        said = [f'{what} "{value}" ({text})' for what, (text, value) in given.items() if templates.is_template(text)]
        return f"{self.rule} gives here: {', '.join(said)}." if said else ""


def _no_name(value: str) -> str:
    return "" if templates.is_name(value) else "is no name that Slurm could know"


def with_filled(sentence: str, tenant: Tenant | Refusal) -> str:
    """The sentence; and what the templates of the rule gave, where Slurm may not know just that."""
    return sentence if isinstance(tenant, Refusal) or not tenant.filled else f"{sentence} {tenant.filled}"
