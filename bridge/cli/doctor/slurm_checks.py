"""Checks of the Slurm end: reachability, the token, and the users that it may act for."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from bridge.cli.doctor.findings import Check, Level, Result, count, error, ok, some, unknown, wait, warning
from bridge.cli.doctor.kubernetes_checks import skew
from bridge.cli.doctor.look_slurm import NOT_ACCEPTED
from bridge.cli.doctor.views import Choice, Observations, Observed, Token
from bridge.preflight.checks import operator, token_lacks_node_rights
from bridge.settings import LOOPBACK
from bridge.slurm.admin_reads import Verdict
from bridge.slurm.token import age, command
from bridge.slurm.user_tokens import advice
from scheduler.model import slurm_errors
from scheduler.policy.rules import ANY
from scheduler.policy.templates import is_template

FILE = "token file "  # how a source begins that is a file
LATE_SHARE = 0.2  # a program that renews tokens has done so when a fifth of the lifetime is left
SLOW_S = 0.5  # a ping that takes longer: slurmctld is busy, or far
OTHERS_MAY_NOT = (slurm_errors.AUTHENTICATION, 401, 403, 511)
NUMBERS = {"account": slurm_errors.ACCOUNT, "partition": slurm_errors.PARTITION, "qos": slurm_errors.QOS}


def _slurmrestd(seen: Observations) -> Iterator[Result]:
    url = seen.usable.slurm_url
    if seen.status_without_token.missing is None:
        yield ok(
            f"something answers at {url} (HTTP {seen.status_without_token.get()}); without a usable token it is not known if "
            "that is slurmrestd"
        )
        return
    found = seen.discovery.get()
    summary = f"Slurm {found.version}, cluster {found.cluster}, at {url} answers in {wait(seen.discovery.took_s)}"
    if seen.discovery.took_s > SLOW_S and found.responding:  # slurmrestd waits for a slurmctld that is away
        yield warning(f"{summary}: that is slow.", "Look at sdiag, and at the load of slurmctld's host.")
    else:
        yield ok(summary)
    if url.startswith("http://") and urlsplit(url).hostname not in LOOPBACK:
        yield warning(
            "The token travels unencrypted to another host (allow_plain_http).",
            "Put TLS in front of slurmrestd and use its https address.",
        )


def _api_version(seen: Observations) -> Iterator[Result]:
    found = seen.discovery.get()
    yield ok(f"{found.api}: external jobs; immediate allocations (job/allocate) and queued jobs (job/submit)")


def _slurmctld(seen: Observations) -> Iterator[Result]:
    """Two things may be wrong, and each has a row: slurmctld is away, or does not accept the token."""
    seen.discovery.get()
    if (missing := seen.jobs.missing) is not None and missing.because == NOT_ACCEPTED:
        yield ok("answers, but not to this token")
    elif missing is not None and missing.failed:
        raise missing
    else:
        yield ok("answers")


def _accounting(seen: Observations) -> Iterator[Result]:
    seen.discovery.get()
    if seen.accounting.get():
        yield ok("slurmdbd keeps the records: exit codes are recorded there, lost jobs are found by name")
    else:
        yield ok("without slurmdbd: how pods end is recorded nowhere in Slurm")


def _token(seen: Observations) -> Iterator[Result]:
    yield from _life(seen.token.get(), seen.now)
    if seen.acting_token.value is not None:
        yield from _life(seen.acting_token.value, seen.now)
    elif (missing := seen.acting_token.missing) is not None and missing.failed:
        yield error(missing.why, missing.do)
    if seen.usable.slurm_user_token_dir:
        yield from _of_users(seen)
    if (missing := seen.jobs.missing) is not None and missing.because == NOT_ACCEPTED:
        yield error(missing.why, missing.do)


def _of_users(seen: Observations) -> Iterator[Result]:
    """A row for each Slurm user whose token cannot be used or expires soon, and one row for all others."""
    fine = []
    for user, observed in sorted(seen.user_tokens.get().items()):
        if observed.missing is not None:
            yield error(f"{observed.missing.why} Pods of {user} are not run.", observed.missing.do)
        elif found := [result for result in _life(observed.get(), seen.now) if result.level is not Level.OK]:
            yield from found
        else:
            fine.append(user)
    if fine:
        yield ok(f"{seen.usable.slurm_user_token_dir} has tokens of {some(fine, 5)}")
    conf, token = seen.configuration.value, seen.acting_token.value or seen.token.value
    if conf is not None and token is not None:
        lacking = token_lacks_node_rights(seen.usable, token.user, conf.slurm_user)
        if lacking is not None:
            yield warning(lacking.what, lacking.do)


def _life(token: Token, now: float) -> Iterator[Result]:
    whose = f"{token.source}: user {token.user or 'none'}"
    if token.expires is None:
        yield ok(f"{whose}, does not expire")
    elif not token.file:
        yield warning(
            f"{whose}, ends in {age(token.expires - now)}, and a running bridge cannot get another one.",
            "Use --slurm-token-file: it is read again when it changes.",
        )
    elif token.issued is not None and token.expires - now < LATE_SHARE * (token.expires - token.issued):
        yield warning(
            f"{whose}, ends in {age(token.expires - now)} and was not renewed since {age(now - token.issued)}.",
            f"Check that the program that renews it runs. Renew it ({command(token.user)}).",
        )
    else:
        yield ok(f"{whose}, ends in {age(token.expires - now)}")
    if token.readable_by_all:
        path = token.source.removeprefix(FILE)
        yield warning(f"{token.source} can be read by every user of this host.", f"chmod o= {path}")


def _all_jobs(seen: Observations) -> Iterator[Result]:
    jobs = seen.jobs.get()
    summary = f"{count(jobs, 'job')} known to Slurm, listed in {wait(seen.jobs.took_s)}"
    if seen.configuration.missing is not None:
        yield ok(f"{summary}; whether PrivateData hides more cannot be seen: scontrol show config | grep PrivateData")
    elif seen.all_jobs.get():
        yield ok(summary)
    else:
        user, slurm_user = seen.token.get().user, seen.configuration.get().slurm_user
        yield error(
            f"PrivateData=jobs hides the jobs of other users from {user}: the bridge would consider its own jobs lost, "
            "and end their pods.",
            f"Use a token of {slurm_user}, or make {user} an operator: {operator(user)}.",
        )


def _users(seen: Observations) -> Iterator[Result]:
    """Can we act for each Slurm user of the policy?  Tried without effect (bridge/slurm/admin_reads.py)."""
    verdicts = {user: verdict for (user, option, _), verdict in seen.verdicts.items() if not option}
    if not verdicts:
        _needs(seen.jobs)
        seen.chosen("policy")
        yield unknown("not checked: the policy names no Slurm user")
        return
    may = [user for user, verdict in verdicts.items() if accepted(verdict)]
    for user, verdict in sorted(verdicts.items()):
        if user in may:
            continue
        token = (seen.user_tokens.value or {}).get(user)
        if token is not None and token.missing is not None:  # the finding about the token says it
            yield unknown(f"not checked: {user} has no token that can be used")
        else:
            yield _why_not(user, verdict.get(), seen)
    if may:
        whose = "the token may act for" if not seen.usable.slurm_user_token_dir else "their own tokens may act for"
        yield ok(f"{whose} {some(may, 5)} (tried with a submission that cannot succeed)")


def _needs(observed: Observed[int]) -> None:
    """Raises NotSeen."""
    observed.get()


def accepted(observed: Observed[Verdict]) -> bool:
    """True if Slurm takes it; a limit that is reached now is no mistake."""
    verdict = observed.value
    return verdict is not None and (verdict.may or verdict.number == slurm_errors.LIMIT)


def _why_not(user: str, verdict: Verdict, seen: Observations) -> Result:
    token = seen.acting_token.value or seen.token.value
    whose = token.user if token else ""
    if seen.usable.slurm_user_token_dir and verdict.number in OTHERS_MAY_NOT:
        do = advice(user)
        return error(f"{verdict.text.removesuffix(do).rstrip()} Pods of that user are not run.", do)
    if verdict.number in OTHERS_MAY_NOT:
        conf = seen.configuration.value
        return error(
            f"The token{f' of {whose}' if whose else ''} may not act for {user}: pods of that user are not run.",
            f"Use a token of SlurmUser ({conf.slurm_user if conf else 'scontrol show config | grep SlurmUser'}).",
        )
    if verdict.number == slurm_errors.USER:
        return error(
            f"The host of slurmctld has no user {user}: pods of that user are not run.",
            f"Make the account known there (id {user} must work), or correct the user in the policy.",
        )
    if verdict.number == NUMBERS["account"]:
        return error(
            f"User {user} has no account in Slurm: {verdict.text} (error {verdict.number}).",
            slurm_errors.remedy(verdict.number, user),
        )
    return error(f"Slurm would refuse jobs of {user}: {verdict.why_not}.", _look_in_log())


def _look_in_log() -> str:
    return "slurmctld's log says more at that time; a job_submit plugin may have refused it."


def _choices(seen: Observations) -> Iterator[Result]:
    """Does Slurm accept every account, partition and QOS that the policy offers to that user?"""
    _needs(seen.jobs)
    seen.chosen("policy")
    tried = {choice: verdict for choice, verdict in seen.verdicts.items() if choice[1]}
    known_users = {user for (user, option, _), verdict in seen.verdicts.items() if not option and accepted(verdict)}
    taken = 0
    for (user, option, value), observed in sorted(tried.items()):
        if accepted(observed):
            taken += 1
        elif user in known_users or (observed.value is not None and observed.value.number == NUMBERS[option]):
            yield _not_accepted(user, option, value, observed.get())
    skipped = {user for user, _, _ in tried if user not in known_users}
    unanswered = {user for user in skipped if seen.verdicts[user, "", ""].value is None}
    if refused_users := skipped - unanswered:
        yield unknown(f"not checked: what {some(refused_users)} may choose, for Slurm refuses that user altogether")
    if unanswered:
        yield unknown(
            f"not checked: what {some(unanswered)} may choose, for it is not known if Slurm accepts that user"
        )
    if taken:
        yield ok(f"Slurm accepts {taken:,} of the {len(tried):,} accounts, partitions and QOS that the policy offers")
    elif not tried:
        yield ok("the policy names no account, partition or QOS: Slurm's own defaults are used")


def refused(choice: Choice, verdict: Verdict, seen: Observations) -> Result:
    """Why Slurm does not accept this user or this choice, and what to do."""
    user, option, value = choice
    return _not_accepted(user, option, value, verdict) if option else _why_not(user, verdict, seen)


def _not_accepted(user: str, option: str, value: str, verdict: Verdict) -> Result:
    sentence = f'Slurm does not accept {option} "{value}" from {user}: {verdict.text} (error {verdict.number}).'
    if verdict.number not in slurm_errors.WITH_REMEDY:
        return warning(sentence, _look_in_log())
    do = f"{slurm_errors.remedy(verdict.number, user, **{option: value})}; or correct the policy."
    # Another number: Slurm knows the value, and refuses it together with another one of this user, or at this time.
    return error(sentence, do) if verdict.number == NUMBERS[option] else warning(sentence, do)


def _reservations(seen: Observations) -> Iterator[Result]:
    there = seen.reservations.get()
    policy = seen.chosen("policy").policy
    named = {name for tenant in policy.tenants for name in (tenant.reservation.default, *tenant.reservation.allowed)}
    named = {name for name in named - {"", ANY} if not is_template(name)}
    if missing := named - there:
        yield warning(
            f"The policy names reservations that Slurm does not have now: {some(missing)}; pods that choose it are refused.",
            "scontrol show reservation; reservations end by themselves.",
        )
    elif named:
        yield ok(f"all reservations of the policy exist: {some(named)}")


def _clock(seen: Observations) -> Iterator[Result]:
    yield skew("slurmctld", seen.slurm_clock.get() - seen.slurm_clock.at)


CHECKS = (
    Check("slurmrestd", _slurmrestd),
    Check("API", _api_version),
    Check("slurmctld", _slurmctld),
    Check("token", _token),
    Check("jobs", _all_jobs),
    Check("users", _users),
    Check("choices", _choices),
    Check("reservations", _reservations),
    Check("accounting", _accounting),
    Check("clock", _clock),
)
