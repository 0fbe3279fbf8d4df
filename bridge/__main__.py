"""The command line of slurm-bridge.  Each command imports what it needs when it runs."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
from collections.abc import Sequence

from bridge.cli.terminal import NotWritten, discard_output, tell, use_any_encoding, written
from bridge.errors import ConfigError

EXIT_CONFIG = 2
KUBECONFIG = "kubeconfig; default: the first of KUBECONFIG, ~/.kube/config, the service account of the pod"
EXIT_NOT_WRITTEN = 1
EXIT_NOT_READ = 141  # as a shell reports a program that SIGPIPE ended


def main(arguments: list[str] | None = None) -> int:
    """Run a command.  Returns its exit code: 2 after one line that says what is wrong in the settings, and what to do.

    If the reader of the output closed it, the exit code is 141; if the output cannot be written, 1.
    """
    use_any_encoding()
    try:
        with written():  # the help, or the version
            options = _parser().parse_args(arguments)
        code: int = options.command(options)
    except BrokenPipeError:  # as in `slurm-bridge doctor | head`
        discard_output()
        return EXIT_NOT_READ
    except NotWritten as error:
        discard_output()
        tell(f"slurm-bridge: {error}")
        return EXIT_NOT_WRITTEN
    except ConfigError as error:
        tell(f"slurm-bridge: {error}")
        return EXIT_CONFIG
    except KeyboardInterrupt:
        return 130
    return code


def helps() -> dict[str, str]:
    """The help of each command by its name, also of commands of commands ("policy show")."""
    return {name: parser.format_help() for name, parser in _parsers()[1].items()}


def _parser() -> argparse.ArgumentParser:
    return _parsers()[0]


def _parsers() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The parser of the command line, and that of each command by its name."""
    parser = argparse.ArgumentParser(
        prog="slurm-bridge", description="A Kubernetes scheduler that asks Slurm for the nodes."
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    ends, form = _ends(), _form()
    run = add_command(commands, "run", parents=[ends], help="schedule pods of a Kubernetes cluster through Slurm")
    _add_http(run)
    _add_http_token(run)
    run.set_defaults(command=_run)
    doctor = add_command(
        commands, "doctor", parents=[ends, form], help="check both clusters, and say what to do; changes nothing"
    )
    doctor.set_defaults(command=_doctor)
    _add_explain(
        add_command(
            commands,
            "explain",
            parents=[ends, form],
            help="show a pod's history, its job, and why it waits; with -f: could the pods of a manifest run, and where",
        )
    )
    _add_release(
        add_command(
            commands, "release", help="confirm that many jobs that are missing in Slurm are gone: end their pods"
        )
    )
    _add_uninstall(
        add_command(commands, "uninstall", parents=[ends], help="take back what the bridge put into both clusters")
    )
    of_policy = _add_policy(
        add_command(commands, "policy", help="check a policy, or show what it gives to the pods of a namespace"),
        ends,
        form,
    )
    _add_webhook(add_command(commands, "webhook", help="set the scheduler of new pods, for Kubernetes before 1.36"))
    _add_mint(add_command(commands, "mint", help="write short-lived tokens of Slurm users, from Slurm's key"))
    _add_dev(
        add_command(
            commands,
            "dev",
            parents=[_form(wide=False)],
            help="see it work: a page with two simulated clusters, or your own",
        )
    )
    return parser, {**commands.choices, **of_policy}


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    *,
    help: str,  # noqa: A002 - the name that argparse gives it
    parents: Sequence[argparse.ArgumentParser] = (),
) -> argparse.ArgumentParser:
    """Add a command.  Its own help begins with the sentence that the list of commands has."""
    return commands.add_parser(name, parents=parents, help=help, description=f"{help[0].upper()}{help[1:]}.")


def _add_explain(explain: argparse.ArgumentParser) -> None:
    about = explain.add_mutually_exclusive_group(required=True)
    about.add_argument("pod", nargs="?", metavar="POD", help="name of a pod, or NAMESPACE/NAME")
    about.add_argument(
        "-f",
        dest="file",
        metavar="FILE",
        help="a manifest instead of a pod (-: standard input): could it run, and where? Exit code 1: the job of a pod of "
        "the file would be refused; 2: not tried, because the file or a cluster cannot be read",
    )
    explain.add_argument("-n", "--namespace", help="namespace of the pod; default: that of the kubeconfig's context")
    _add_running_bridge(explain)
    explain.set_defaults(command=_explain)


def _add_release(release: argparse.ArgumentParser) -> None:
    release.add_argument("--config", metavar="FILE", help="settings, YAML (SLURM_BRIDGE_CONFIG)")
    _add_running_bridge(release)
    release.set_defaults(command=_release)


def _add_uninstall(uninstall: argparse.ArgumentParser) -> None:
    pods = uninstall.add_mutually_exclusive_group()
    pods.add_argument(
        "--wait", action="store_true", help="wait until the running pods have ended by themselves (default)"
    )
    pods.add_argument("--end-pods", action="store_true", help="end the running pods, with their grace")
    uninstall.add_argument("--dry-run", action="store_true", help="print what would be done, and change nothing")
    _add_http(uninstall)
    uninstall.set_defaults(command=_uninstall)


def _add_policy(
    policy: argparse.ArgumentParser, ends: argparse.ArgumentParser, form: argparse.ArgumentParser
) -> dict[str, argparse.ArgumentParser]:
    commands = policy.add_subparsers(required=True, metavar="COMMAND")
    check = add_command(commands, "check", parents=[form], help="find mistakes in the policy of a settings file")
    check.add_argument("config", metavar="FILE", help="settings, YAML (-: standard input)")
    check.add_argument("--kubeconfig", metavar="FILE", help=KUBECONFIG)
    check.add_argument(
        "-n",
        "--namespace",
        action="append",
        default=[],
        metavar="NAME[,KEY=VALUE…]",
        help="check this namespace, with these labels, instead of those in Kubernetes; may be repeated",
    )
    check.set_defaults(command=_policy_check)
    show = add_command(
        commands,
        "show",
        parents=[ends, form],
        help="show the Slurm user, account and limits of the pods of a namespace",
    )
    show.add_argument("-n", "--namespace", required=True, help="namespace of the pods")
    show.add_argument("--service-account", metavar="NAME", help="service account of the pods; default: default")
    show.add_argument("--labels", metavar="KEY=VALUE,…", help="labels of the namespace, instead of those in Kubernetes")
    show.set_defaults(command=_policy_show)
    return {f"policy {name}": parser for name, parser in commands.choices.items()}


def _add_webhook(webhook: argparse.ArgumentParser) -> None:
    webhook.add_argument(
        "--listen", metavar="HOST:PORT", help="address for API servers; default: :8443, on all interfaces"
    )
    webhook.add_argument(
        "--intercept",
        choices=("unnamed", "all"),
        default="unnamed",
        help="pods that name no scheduler (default), or also pods that name another one",
    )
    webhook.add_argument("--kubeconfig", metavar="FILE", help=KUBECONFIG)
    webhook.add_argument(
        "--secret",
        metavar="NAMESPACE/NAME",
        help="Secret that holds its own certificate; default: slurm-bridge/slurm-bridge-webhook",
    )
    webhook.add_argument(
        "--configuration",
        metavar="NAME",
        help="the MutatingWebhookConfiguration whose caBundle is written; default: slurm-bridge-webhook",
    )
    webhook.add_argument(
        "--tls-cert-file", metavar="FILE", help="a certificate instead of its own, read again when it is renewed"
    )
    webhook.add_argument("--tls-key-file", metavar="FILE", help="the key of that certificate")
    webhook.set_defaults(command=_webhook)


def _add_mint(mint: argparse.ArgumentParser) -> None:
    mint.add_argument("--key", metavar="FILE", required=True, help="Slurm's jwt_hs256.key; no other process needs it")
    mint.add_argument(
        "--out", metavar="DIR", required=True, help="folder for the tokens; each file has the name of its user"
    )
    mint.add_argument("--user", metavar="NAME", action="append", help="a user to mint for; may be repeated")
    mint.add_argument(
        "--users-file",
        metavar="FILE",
        action="append",
        help="users to mint for, one name a line; read again when it changes",
    )
    mint.add_argument(
        "--policy",
        metavar="FILE",
        action="append",
        help="settings of a bridge: mints for the users that its rules name; read again when they change",
    )
    mint.add_argument(
        "--slurm-user", metavar="NAME", default="slurm", help="SlurmUser; no file may name it; default: slurm"
    )
    mint.add_argument(
        "--lifetime",
        metavar="SECONDS",
        default="900",
        help="lifetime of a token, which is renewed at half of it; default: 900",
    )
    mint.add_argument("--group", metavar="GROUP", help="a group that may read the tokens; default: none")
    mint.set_defaults(command=_mint)


def _add_dev(dev: argparse.ArgumentParser) -> None:
    dev.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the random load and faults")
    dev.add_argument(
        "--pods",
        type=int,
        metavar="N",
        help="number of pods at a time, default 24; with --headless in all, default 12",
    )
    dev.add_argument("--headless", action="store_true", help="no page; ends when N pods were bound and have ended")
    dev.add_argument("--port", type=int, help="port of the page, on 127.0.0.1; default: any free port")
    dev.add_argument("--kubeconfig", default="", metavar="FILE", help="a real Kubernetes instead of the simulated one")
    dev.add_argument(
        "--slurm-url",
        default="",
        metavar="URL",
        help="a real Slurm instead of the simulated one: slurmrestd, http://HOST:PORT",
    )
    dev.add_argument("--slurm-token-file", default="", metavar="FILE", help="token for that Slurm (or SLURM_JWT)")
    dev.add_argument(
        "--slurm-user", default="", metavar="NAME", help="Slurm user of the jobs there; default: the token's user"
    )
    dev.add_argument("--image", default="", help="image of the pods on a real Kubernetes; it must have `sleep`")
    dev.set_defaults(command=_dev)


def _ends() -> argparse.ArgumentParser:
    """The options that name both clusters, the same for every command that calls them."""
    ends = argparse.ArgumentParser(add_help=False)
    ends.add_argument("--config", metavar="FILE", help="settings, YAML; -: standard input (SLURM_BRIDGE_CONFIG)")
    ends.add_argument("--kubeconfig", metavar="FILE", help=KUBECONFIG)
    ends.add_argument("--slurm-url", metavar="URL", help="slurmrestd, http://HOST:PORT (SLURM_BRIDGE_SLURM_URL)")
    ends.add_argument(
        "--slurm-token-file",
        metavar="FILE",
        help="file with the JWT of a Slurm user who may act for others (SLURM_BRIDGE_SLURM_TOKEN_FILE); without it, the "
        "token itself in SLURM_JWT",
    )
    return ends


def _form(*, wide: bool = True) -> argparse.ArgumentParser:
    """The option that chooses the output format, the same for every command that prints an answer."""
    form = argparse.ArgumentParser(add_help=False)
    form.add_argument(
        "-o",
        "--output",
        choices=("text", "wide", "json") if wide else ("text", "json"),
        default="text",
        help="output format; default: text" + (", as wide as the terminal" if wide else " (json: with --headless)"),
    )
    return form


def _add_http(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--http", metavar="HOST:PORT", help="address of the page, /readyz and /metrics; default: 127.0.0.1:8080"
    )


def _add_running_bridge(command: argparse.ArgumentParser) -> None:
    """Options of a command that calls the running bridge."""
    _add_http_token(command)
    command.add_argument("--bridge", metavar="URL", help="address of the running bridge; default: the setting http")


def _add_http_token(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--http-token-file",
        metavar="FILE",
        help="file with the bearer token of the page, /explain, /nodes and /release",
    )


def _version() -> str:
    from importlib.metadata import version

    return f"slurm-bridge {version('slurm-bridge')}"


def _run(options: argparse.Namespace) -> int:
    gc.disable()  # loading makes no garbage; the bridge enables it again
    from bridge import app, settings
    from bridge.cli.log_output import log_to_stderr
    from bridge.event_loop import new_event_loop

    chosen = settings.load(vars(options), os.environ)
    log_to_stderr(chosen.log_level)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        path = settings.path_of(vars(options), os.environ) or ""
        path = "" if path == settings.STANDARD_INPUT else path  # which does not change
        runner.run(app.run(chosen, path, lambda: settings.load(vars(options), os.environ)))
    return 0


def _uninstall(options: argparse.Namespace) -> int:
    from bridge import settings
    from bridge.cli.log_output import log_to_stderr
    from bridge.cli.uninstall import main as uninstall

    chosen = settings.load(vars(options), os.environ)
    log_to_stderr("error" if options.dry_run else chosen.log_level)
    return uninstall(chosen, end_pods=options.end_pods, dry_run=options.dry_run)


def _doctor(options: argparse.Namespace) -> int:
    from bridge.cli.doctor.command import main as doctor

    return doctor(vars(options))


def _explain(options: argparse.Namespace) -> int:
    from bridge.cli.explain import main as explain

    return explain(vars(options))


def _release(options: argparse.Namespace) -> int:
    from bridge.cli.release import main as release

    return release(vars(options))


def _policy_check(options: argparse.Namespace) -> int:
    from bridge.cli.policy_check import main as check

    given = vars(options)
    return check(given, given.pop("namespace"))


def _policy_show(options: argparse.Namespace) -> int:
    from bridge.cli.policy_show import main as show

    return show(vars(options))


def _webhook(options: argparse.Namespace) -> int:
    from bridge.webhook.command import main as webhook

    return webhook(vars(options))


def _mint(options: argparse.Namespace) -> int:
    from bridge.mint.command import main as mint

    return mint(vars(options))


def _dev(options: argparse.Namespace) -> int:
    from bridge.dev.command import Options, main

    given = {key: value for key, value in vars(options).items() if key != "command"}
    return main(Options(**given))


if __name__ == "__main__":
    sys.exit(main())
