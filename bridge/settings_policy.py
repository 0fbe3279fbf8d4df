"""The policy in the settings file: the Slurm user of each namespace, and the limits of its jobs (I1).

The policy is a part of the settings (bridge/settings.py).  No other part is read again at run time (policy_file.py).  The
file writes a rule otherwise than the scheduler uses it: times as sbatch takes them, selectors as Kubernetes writes them, the
tenant within its rule.  So these parts have models of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from scheduler.model.kubernetes import Requirement
from scheduler.model.slurm import UNLIMITED
from scheduler.policy import rules as core
from scheduler.policy import templates
from scheduler.translate import values


class Strict(BaseModel):
    """A part of the settings: unknown keys are mistakes, and the values do not change after they were read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _name_of_gres(name: str) -> str:
    if not re.fullmatch(values.GRES_NAME, name, re.ASCII):
        raise ValueError(f'"{name}" is not a GRES as Slurm names it (gpu, gpu:h100), without a count')
    return name


def _without_mistake(text: str) -> str:
    if why := templates.mistake(text):
        raise ValueError(f'"{text}" {why}')
    return text


def _fillable(choice: core.Choice) -> core.Choice:
    for text in (choice.default, *choice.allowed):
        _without_mistake(text)
    return choice


def _with_effect(priority: core.Priority) -> core.Priority:
    if priority == core.Priority():
        raise ValueError("has no effect: set qos or nice")
    return priority


GresName = Annotated[str, AfterValidator(_name_of_gres)]
Choice = Annotated[core.Choice, AfterValidator(_fillable)]
Priority = Annotated[core.Priority, AfterValidator(_with_effect)]


class Tenant(Strict):
    """The identity of a workload in Slurm."""

    user: str = Field(
        min_length=1,
        description="Slurm user of the jobs, or a template with `{namespace}`, `{namespace.labels['KEY']}` or "
        "`{serviceAccount}`. Root, SlurmUser and numbers are refused.\n"
        "Required. Clients that may write the source of a template choose the user.",
    )
    account: Choice = Field(default=core.Choice(), description="Accounts of the jobs.")
    partition: Choice = Field(default=core.Choice(), description="Partitions of the jobs.")
    qos: Choice = Field(default=core.Choice(), description="QOS of the jobs.")
    reservation: Choice = Field(default=core.Choice(), description="Reservations of the jobs.")
    max_jobs: int | None = Field(
        default=None,
        strict=True,
        ge=1,
        description="Number of jobs under this rule that may wait and run in Slurm at a time. If `user` is a template, "
        "each user is counted separately. Further pods wait. Not set: no limit.\n"
        "Set it if one tenant could fill the queue of Slurm (MaxJobCount).",
    )
    max_submit_rate: float | None = Field(
        default=None,
        strict=True,
        gt=0,
        le=10_000,
        description="Number of jobs under this rule that are submitted in a second. If `user` is a template, each user "
        "is counted separately. Further pods wait. Not set: no limit.\n"
        "Set it if the bursts of one tenant make slurmctld slow.",
    )
    max_time: str | None = Field(
        default=None,
        description='Longest time limit of a job, in quotes, as `sbatch --time` takes it ("2:00:00", "1-00:00:00"). '
        "Pods that name no time limit get this one, or the longest of their partition if that is shorter. Not set: no "
        "limit.\nSet it if jobs of the namespace must end within a certain time.",
    )
    max_nodes: int | None = Field(
        default=None,
        strict=True,
        ge=1,
        description="Largest number of nodes of one job. Not set: no limit.\n"
        "Set it if one gang must not take a whole partition.",
    )
    max_gres: Mapping[GresName, Annotated[int, Field(strict=True, ge=0)]] = Field(
        default={},
        description="Maps the name of a GRES to the largest number that all pods of one job may ask for together. "
        "`gpu` counts GPUs of all types.\n"
        "Set it if one job must not take all devices.",
    )

    def tenant(self) -> core.Tenant:
        """The same as a value of the scheduler."""
        return core.Tenant(
            self.user,
            accounts=self.account,
            partitions=self.partition,
            qos=self.qos,
            reservations=self.reservation,
            max_jobs=self.max_jobs,
            max_submit_rate=self.max_submit_rate,
            max_time_min=_minutes(self.max_time),
            max_nodes=self.max_nodes,
            max_gres=tuple(sorted(self.max_gres.items())),
        )

    @field_validator("user")
    @classmethod
    def _ordinary(cls, user: str) -> str:
        _without_mistake(user)
        if not templates.is_template(user) and (why := templates.no_ordinary_user(user)):
            raise ValueError(why)
        return user

    @field_validator("max_time", mode="before")
    @classmethod
    def _a_duration(cls, written: Any) -> Any:
        if isinstance(written, int) and not isinstance(written, bool):  # YAML reads an unquoted 2:00:00 as 7200
            said = f'must be in quotes, as sbatch --time takes it ("{written}" is minutes, "2:00:00" two hours)'
            raise ValueError(said)  # noqa: TRY004 - the only kind that pydantic makes a mistake of the file of
        try:
            _minutes(written if isinstance(written, str) else None)
        except values.Unreadable as why:
            raise ValueError(f'"{written}" {why}') from None
        return written


def _minutes(max_time: str | None) -> int | None:
    """The limit in minutes; None: it is not set, so there is no limit.  Raises Unreadable."""
    minutes = values.time_limit_min(max_time) if max_time is not None else UNLIMITED
    return None if minutes == UNLIMITED else minutes


class Expression(Strict):
    """One expression on the labels of a namespace."""

    key: str = Field(min_length=1, description="Key of the label.\nRequired.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        description="Operator of the expression, as in Kubernetes.\nRequired."
    )
    values: tuple[str, ...] = Field(
        default=(), description="Values of the label.\nRequired for `In` and `NotIn`, refused for the others."
    )

    @model_validator(mode="after")
    def _with_values(self) -> Expression:
        if (self.operator in ("In", "NotIn")) != bool(self.values):
            raise ValueError("values must be given for In and NotIn, and for nothing else")
        return self


class Selector(Strict):
    """A label selector as Kubernetes writes it; all of it must hold."""

    match_labels: Mapping[str, str] = Field(
        default={},
        alias="matchLabels",
        description="Maps the key of a label to the value that the namespace must have.\n"
        "Set it, or `matchExpressions`: an empty selector is refused.",
    )
    match_expressions: tuple[Expression, ...] = Field(
        default=(), alias="matchExpressions", description="Expressions on the labels of the namespace. All must hold."
    )

    def requirements(self) -> tuple[Requirement, ...]:
        """The same as a value of the scheduler."""
        labels = (Requirement(key, "In", (value,)) for key, value in sorted(self.match_labels.items()))
        return (
            *labels,
            *(
                Requirement(expression.key, expression.operator, expression.values)
                for expression in self.match_expressions
            ),
        )

    @model_validator(mode="after")
    def _not_empty(self) -> Selector:
        if not self.match_labels and not self.match_expressions:
            raise ValueError("selects every namespace: name a label under matchLabels, or use policy.default")
        return self


class Rule(Tenant):
    """One line of the policy; the first that matches decides."""

    namespaces: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description='Names of namespaces, as shell patterns ("team-*"). Not set: `namespace_selector` alone decides.\n'
        "Set it, or `namespace_selector`, in each rule.",
    )
    namespace_selector: Selector | None = Field(
        default=None,
        description="Label selector on the namespace. If the rule also has `namespaces`, both must match.",
    )
    service_accounts: tuple[str, ...] = Field(
        default=(),
        description="The rule matches only pods of these service accounts, as shell patterns. Empty: pods of all.\n"
        "Set it if the service accounts of a namespace are different Slurm users.",
    )

    def rule(self) -> core.Rule:
        """The same as a value of the scheduler."""
        selector = self.namespace_selector.requirements() if self.namespace_selector else ()
        return core.Rule(self.namespaces or (), self.tenant(), self.service_accounts, selector)

    @model_validator(mode="after")
    def _about_some(self) -> Rule:
        if self.namespaces is None and self.namespace_selector is None:
            raise ValueError(
                "selects no namespace: name some under namespaces, or their labels under namespace_selector"
            )
        if "" in (self.namespaces or ()) or "" in self.service_accounts:
            raise ValueError("an empty pattern matches nothing")
        return self


class Policy(Strict):
    """The identity of namespaces in Slurm."""

    rules: tuple[Rule, ...] = Field(
        default=(), description="Rules in their order. The first rule that matches decides."
    )
    default: Tenant | None = Field(
        default=None, description="What pods get that no rule matches. Not set: these pods are refused."
    )

    @property
    def tenants(self) -> list[Tenant]:
        """The rules in their order, then the default, if there is one."""
        return [*self.rules, *([self.default] if self.default else [])]

    def policy(self, slurm_user: str = "", priorities: Mapping[str, core.Priority] | None = None) -> core.Policy:
        """The policy for the scheduler.  slurm_user: the user of slurmctld, "slurm" or "slurm(64030)"; "": not known"""
        name = slurm_user.partition("(")[0].casefold()
        return core.Policy(
            tuple(rule.rule() for rule in self.rules),
            self.default.tenant() if self.default else None,
            frozenset({name} - {""}),
            dict(priorities or {}),
        )
