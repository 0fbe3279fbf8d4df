"""The rules of the policy: the Slurm user of a namespace, and the options that its pods may choose (rules I).

A pod's annotations choose only among values that the admin allows.  If no rule maps a namespace and there is no default, its
pods are refused: the bridge never submits a job with its own privileges.

The texts of a rule may be templates (templates.py).  `Policy.tenant` returns them filled and checked.  A user from a
template gets the same checks as a user that the admin wrote out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from scheduler.model.amounts import NO_TEXT
from scheduler.model.kubernetes import Requirement
from scheduler.model.refusal import Refusal
from scheduler.model.selectors import holds
from scheduler.model.setting import setting
from scheduler.model.slurm import MAX_NICE
from scheduler.names import ACCOUNT, QOS, REFUSED
from scheduler.policy import templates
from scheduler.policy.templates import Origin

ANY = "*"
_IN_ANY_CASE = frozenset({ACCOUNT, QOS})  # Slurm keeps their names in lower case, and finds them in any case
_SLURMS_OWN = "the user that runs Slurm (SlurmUser)"


def is_same(option: str, one: str, other: str) -> bool:
    """True if Slurm takes both values of that option for the same one: case matters only in partitions and reservations."""
    return one == other or (option in _IN_ANY_CASE and one.casefold() == other.casefold())


@dataclass(frozen=True, slots=True)
class Choice:
    """The default and the allowed values of one option that an annotation may set.  The texts may be templates."""

    default: str = setting(
        "",
        "Value for pods that name none. Empty: the default of Slurm.\n"
        "Set it if the jobs of the namespace shall not use the default of Slurm.",
    )
    allowed: tuple[str, ...] = setting(
        (),
        'Values that a pod may name by its annotation, in addition to the default. `["*"]`: any value.\n'
        "Set it if pods may choose.",
    )

    def pick(self, option: str, wanted: str | None, where: str) -> str | Refusal:
        """The value to use; or a Refusal that names the allowed values.

        option   the annotation; wanted: its value, None: the pod has none; where: the namespace, in words
        """
        if wanted is None or is_same(option, wanted, self.default):
            return self.default
        if ANY in self.allowed or any(is_same(option, wanted, each) for each in self.allowed):
            return wanted
        choices = sorted({self.default, *self.allowed} - {""})
        none = "No value may be chosen here: ask for none, or have the admin allow this one in the policy."
        hint = f"Allowed here: {', '.join(choices)}." if choices else none
        return Refusal(REFUSED, f'The {option} "{wanted}" is not allowed for {where}. {hint}')


@dataclass(frozen=True, slots=True)
class Priority:
    """The QOS and nice value that pods of a PriorityClass get if their annotations set none."""

    qos: str = setting(
        "",
        "QOS of pods that name none. The rule of the pod's namespace must allow it.\n"
        "Set it, or `nice`, for each PriorityClass.",
    )
    nice: int | None = setting(
        None,
        "Nice value of pods that name none, as `sbatch --nice`. A higher value lowers the priority.\n"
        "Set it, or `qos`, for each PriorityClass.",
        ge=0,
        le=MAX_NICE,
    )


@dataclass(frozen=True, slots=True)
class Tenant:
    """The identity of a workload in Slurm.  The texts of a rule may be templates; `Policy.tenant` returns them filled.

    max_jobs          the most jobs that wait and run at a time; max_submit_rate: submissions a second; None: no limit
    max_time_min      minutes, the longest time limit of a job; max_nodes: the most nodes of a job; None: no limit
    max_gres          GRES name to the most that all pods of a job may ask for together; a name counts all its types
    rule              if filled: the name of the rule in sentences
    filled            if filled: a sentence with the values of the templates; "": there are no templates
    counts_with       if filled: jobs with the same value count together against max_jobs and max_submit_rate
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
        """Annotation to the values that pods may choose."""
        return {
            "account": self.accounts,
            "partition": self.partitions,
            "qos": self.qos,
            "reservation": self.reservations,
        }

    @property
    def texts(self) -> list[str]:
        """All texts that may be templates."""
        return [self.user, *(text for choice in self.choices.values() for text in (choice.default, *choice.allowed))]


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the policy.

    namespaces        patterns as in a shell ("team-*"); (): any name
    service_accounts  patterns; (): any service account
    selector          expressions on the labels of the namespace, all of which must hold; (): any labels
    """

    namespaces: tuple[str, ...]
    tenant: Tenant
    service_accounts: tuple[str, ...] = ()
    selector: tuple[Requirement, ...] = ()

    def matches(self, origin: Origin) -> bool:
        """True if the rule matches pods of this origin."""
        return self.selects(origin.namespace, origin.labels) and (
            not self.service_accounts
            or any(fnmatchcase(origin.service_account, pattern) for pattern in self.service_accounts)
        )

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """True if the rule matches some pods of that namespace.  A rule with neither names nor labels matches none."""
        return self.may_select(namespace) and all(holds(requirement, labels) for requirement in self.selector)

    def may_select(self, namespace: str) -> bool:
        """True if the rule can match pods of that namespace, whatever labels it has."""
        return any(fnmatchcase(namespace, pattern) for pattern in self.namespaces) or bool(
            not self.namespaces and self.selector
        )

    @property
    def about(self) -> str:
        """The namespaces and service accounts of the rule, for sentences."""
        parts = [f"namespaces {', '.join(self.namespaces)}"] if self.namespaces else []
        if self.selector:
            parts.append(f"namespace labels {', '.join(_written(requirement) for requirement in self.selector)}")
        if self.service_accounts:
            parts.append(f"service accounts {', '.join(self.service_accounts)}")
        return "; ".join(parts)


def _written(requirement: Requirement) -> str:
    """The expression as kubectl's --selector writes it."""
    match requirement.operator:
        case "Exists":
            return requirement.key
        case "DoesNotExist":
            return f"!{requirement.key}"
        case "In" if len(requirement.values) == 1:
            return f"{requirement.key}={requirement.values[0]}"
    return f"{requirement.key} {requirement.operator.lower()} ({','.join(requirement.values)})"


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules in order.  The first rule that matches decides, otherwise the default; without a default the pod is refused.

    privileged   names, casefolded, to which no pod is mapped: SlurmUser, which may change any job
    priorities   PriorityClass to the QOS and nice value of its pods
    """

    rules: tuple[Rule, ...] = ()
    default: Tenant | None = None
    privileged: frozenset[str] = frozenset()
    priorities: Mapping[str, Priority] = field(default_factory=dict)

    def tenant(self, namespace: str, service_account: str, labels: Mapping[str, str] = NO_TEXT) -> Tenant | Refusal:
        """The identity of pods of that namespace, which has these labels (I1); or a Refusal."""
        origin = Origin(namespace, service_account, labels)
        place = next((place for place, rule in enumerate(self.rules) if rule.matches(origin)), len(self.rules))
        if place == len(self.rules) and self.default is None:
            return Refusal(
                REFUSED,
                f"Namespace {namespace} has no Slurm user: the admin's policy has no rule for it, and no default. "
                "Ask the admin for a rule under `policy` in the settings of slurm-bridge.",
            )
        return _Filling(self.called(place), origin, self.privileged).filled(self.tenants[place], place)

    def called(self, place: int) -> str:
        """How sentences name the rule at that place of `tenants`."""
        if place == len(self.rules):
            return "The default of the policy"
        return f"Rule {place + 1} of the policy ({self.rules[place].about})"

    @property
    def tenants(self) -> tuple[Tenant, ...]:
        """The tenant of each rule in order, then the default; templates are not filled."""
        return (*(rule.tenant for rule in self.rules), *([self.default] if self.default is not None else []))

    @property
    def has_templates(self) -> bool:
        """True if a text of some rule is a template."""
        return any(templates.is_template(text) for tenant in self.tenants for text in tenant.texts)

    def can_give(self, user: str) -> bool:
        """True if the policy can map some pod to that Slurm user: only jobs of such users can be the bridge's."""
        return self._can_give(user, self.tenants)

    def can_give_in(self, namespace: str, user: str) -> bool:
        """True if the policy can map some pod of that namespace to that user, whatever the labels and service accounts."""
        rules = [rule.tenant for rule in self.rules if rule.may_select(namespace)]
        return self._can_give(user, [*rules, *([self.default] if self.default else [])])

    def gives_in(self, namespace: str, labels: Mapping[str, str], user: str) -> bool:
        """True if the policy maps some pod of that namespace, which has these labels, to that user."""
        rules = [rule.tenant for rule in self.rules if rule.selects(namespace, labels)]
        origin = Origin(namespace, "", labels)
        for tenant in [*rules, *([self.default] if self.default else [])]:
            with suppress(templates.Missing):  # a source has no value there
                if templates.can_give(templates.narrowed(tenant.user, origin), user):
                    return True
        return False

    def writes_out(self, user: str) -> bool:
        """True if a rule names that user without a template."""
        return any(tenant.user == user for tenant in self.tenants)

    def is_ordinary(self, user: str) -> bool:
        """False for root, for SlurmUser, and for texts that cannot be a user's name: the bridge never acts as these."""
        return user.casefold() not in self.privileged and not templates.no_ordinary_user(user)

    def _can_give(self, user: str, tenants: tuple[Tenant, ...] | list[Tenant]) -> bool:
        return self.is_ordinary(user) and any(templates.can_give(tenant.user, user) for tenant in tenants)


@dataclass(frozen=True, slots=True)
class _Filling:
    """Fills one rule for pods of one origin.  rule: how sentences name the rule"""

    rule: str
    origin: Origin
    privileged: frozenset[str]

    def filled(self, written: Tenant, place: int) -> Tenant | Refusal:
        """The tenant with all templates filled and checked; or a Refusal."""
        user = self._checked("user", written.user, self._no_user)
        if isinstance(user, Refusal):
            return user
        if user.casefold() in self.privileged:
            return Refusal(REFUSED, f'{self.rule} gives user "{user}", {_SLURMS_OWN}.')
        choices: dict[str, Choice] = {}
        for option, choice in written.choices.items():
            default = self._checked(option, choice.default, _no_name)
            if isinstance(default, Refusal):
                return default
            choices[option] = Choice(default, tuple(self._fillable(choice.allowed)))
        of_user = f" for {user}" if templates.is_template(written.user) else ""
        return replace(
            written,
            user=user,
            accounts=choices["account"],
            partitions=choices["partition"],
            qos=choices["qos"],
            reservations=choices["reservation"],
            rule=self.rule,
            filled=self._filled_in(written, user, choices),
            counts_with=f"rule {place}{of_user}",
        )

    def _checked(self, option: str, text: str, problem: Callable[[str], str]) -> str | Refusal:
        if not templates.is_template(text):
            return text
        try:
            value = templates.fill(text, self.origin)
        except templates.Missing as missing:
            return Refusal(REFUSED, f'{self.rule} fills {option} from "{text}", and {missing}.')
        if why := problem(value):
            return Refusal(REFUSED, f'{self.rule} fills {option} from "{text}" with "{value}", which {why}.')
        return value

    def _no_user(self, user: str) -> str:
        if user.casefold() in self.privileged:
            return f"is {_SLURMS_OWN}"
        return templates.no_ordinary_user(user)

    def _fillable(self, allowed: tuple[str, ...]) -> Iterator[str]:
        """The allowed values.  A template whose source has no value allows nothing."""
        for text in allowed:
            value = self._checked("", text, _no_name)
            if not isinstance(value, Refusal):
                yield value

    def _filled_in(self, written: Tenant, user: str, choices: Mapping[str, Choice]) -> str:
        given = {"user": (written.user, user)}
        given |= {option: (choice.default, choices[option].default) for option, choice in written.choices.items()}
        values = [
            f'{option} "{value}" ({text})' for option, (text, value) in given.items() if templates.is_template(text)
        ]
        return f"{self.rule} gives here: {', '.join(values)}." if values else ""


def _no_name(value: str) -> str:
    return "" if templates.is_name(value) else "is not a possible name in Slurm"


def with_filled(sentence: str, tenant: Tenant | Refusal) -> str:
    """The sentence, with the values of the rule's templates if Slurm may not know one of them."""
    return sentence if isinstance(tenant, Refusal) or not tenant.filled else f"{sentence} {tenant.filled}"
