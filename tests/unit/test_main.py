"""The command line: a mistake is one line, exit code 2, and never a traceback (bad input)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.__main__ import EXIT_CONFIG, EXIT_NOT_READ, EXIT_NOT_WRITTEN, main
from bridge.dev.command import HEADLESS_PODS, LIVE_PODS


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONFIG", "KUBECONFIG", "SLURM_URL", "SLURM_TOKEN_FILE", "HTTP"):
        monkeypatch.delenv(f"SLURM_BRIDGE_{name}", raising=False)
    monkeypatch.delenv("SLURM_JWT", raising=False)


def said(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["run", *arguments]) == EXIT_CONFIG
    printed = capfd.readouterr()
    assert printed.out == ""
    [line] = printed.err.splitlines()
    assert line.startswith("slurm-bridge: ")
    return line.removeprefix("slurm-bridge: ")


def test_a_settings_file_that_is_not_there(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    assert said(capfd, "--config", str(missing)) == (
        f"{missing}: cannot be read: No such file or directory. Name a settings file that exists and can be read."
    )


def test_an_unknown_key(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("slurm_ulr: x")
    assert said(capfd, "--config", str(file)) == f"{file}: slurm_ulr: unknown key; did you mean slurm_url?"


def test_no_token(capfd: pytest.CaptureFixture[str]) -> None:
    assert said(capfd, "--slurm-url", "http://localhost:1").startswith("no Slurm token is named. Name a file with")


def test_a_token_file_that_is_not_there(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    message = said(capfd, "--slurm-url", "http://localhost:1", "--slurm-token-file", str(tmp_path / "none"))
    assert str(tmp_path / "none") in message


def test_no_slurm(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JWT", "a.b.c")
    message = said(capfd)
    assert "a.b.c" not in message


def test_a_plain_url_to_another_host_by_environment(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_BRIDGE_SLURM_URL", "http://slurm:6820")
    assert "unencrypted" in said(capfd)


@pytest.mark.parametrize("arguments", [[], ["walk"], ["run", "--colour"], ["run", "--config"]])
def test_an_unknown_command_shows_the_usage(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == EXIT_CONFIG
    assert "usage: slurm-bridge" in capfd.readouterr().err


def test_a_release_that_no_bridge_hears(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    for http, said_then in (
        (
            "127.0.0.1:1",
            "no bridge answers at http://127.0.0.1:1. Run this command on the bridge's machine, or name its address: "
            "--bridge URL.",
        ),
        ("", "the settings name no http address of the bridge. Name it: --bridge URL."),
    ):
        file.write_text(f"slurm_url: http://127.0.0.1:1\nhttp: '{http}'\n")
        assert main(["release", "--config", str(file)]) == EXIT_CONFIG
        assert capfd.readouterr().err == f"slurm-bridge: {said_then}\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--port", "99999"), "--port 99999: a port is a number from 0 (any free one) to 65535."),
        (("--port", "-1"), "--port -1: a port is a number from 0 (any free one) to 65535."),
        (("--pods", "-3"), "--pods -3: at least 1 pod is needed."),
        (("--pods", "0", "--headless"), "--pods 0: at least 1 pod is needed."),
        (
            ("--port", "8000", "--headless"),
            "--port has no effect with --headless, which serves no page: remove one of the two options.",
        ),
        (("-o", "json"), "-o json has an effect only with --headless: add --headless, or remove -o json."),
        (
            ("--slurm-token-file", "token"),
            "--slurm-token-file has an effect only with --slurm-url URL: add --slurm-url URL, or remove --slurm-token-file.",
        ),
        (
            ("--slurm-user", "alice"),
            "--slurm-user has an effect only with --slurm-url URL: add --slurm-url URL, or remove --slurm-user.",
        ),
        (
            ("--image", "busybox"),
            "--image has an effect only with --kubeconfig FILE: add --kubeconfig FILE, or remove --image.",
        ),
    ],
)
def test_what_a_demo_cannot_do_is_reported_before_it_begins(
    capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], line: str
) -> None:
    assert main(["dev", *arguments]) == EXIT_CONFIG
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", f"slurm-bridge: {line}\n")


def test_the_help_of_the_demo_names_the_usual_number_of_pods(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["dev", "--help"])
    told = " ".join(capfd.readouterr().out.split())
    assert f"number of pods at a time, default {LIVE_PODS}; with --headless in all, default {HEADLESS_PODS}" in told


def test_its_version(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capfd.readouterr().out.startswith("slurm-bridge ")


FULL = "slurm-bridge: the answer cannot be written: No space left on device.\n"


@pytest.mark.parametrize(
    ("output", "code", "says"), [("| true", EXIT_NOT_READ, ""), (">/dev/full", EXIT_NOT_WRITTEN, FULL)]
)
def test_output_that_cannot_be_written_gives_no_traceback(tmp_path: Path, output: str, code: int, says: str) -> None:
    """As in `slurm-bridge doctor | head`, or on a full disk."""
    file = tmp_path / "settings.yaml"
    file.write_text("slurm_url: http://127.0.0.1:1\npolicy: {rules: [{namespaces: [hpc], user: alice}]}\n")
    program = f"{sys.executable} -m bridge policy check {file} {output}; exit ${{PIPESTATUS[0]}}"
    environ = os.environ | {"KUBECONFIG": str(tmp_path / "none")}
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False, env=environ)
    assert (done.returncode, done.stderr) == (code, says)


@pytest.mark.parametrize("asked", ["bridge --help", "bridge --version", "bridge.plugin.command queue --help"])
@pytest.mark.parametrize(("output", "code"), [("nobody reads", EXIT_NOT_READ), ("/dev/full", EXIT_NOT_WRITTEN)])
def test_a_help_that_cannot_be_written_gives_no_traceback(asked: str, output: str, code: int) -> None:
    if output == "nobody reads":
        read, write = os.pipe()
        os.close(read)
    else:
        write = os.open(output, os.O_WRONLY)
    try:
        done = subprocess.run(
            [sys.executable, "-m", *asked.split()], stdout=write, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(write)
    assert done.returncode == code
    assert len(done.stderr.splitlines()) == (code == EXIT_NOT_WRITTEN)


def test_a_mistake_is_not_reported_among_the_answers_if_standard_error_is_closed(tmp_path: Path) -> None:
    program = f"{sys.executable} -m bridge policy check {tmp_path}/none -o json 2>&-"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (EXIT_CONFIG, "")


def test_the_exit_code_of_a_mistake_stays_if_standard_error_cannot_be_written(tmp_path: Path) -> None:
    program = f"{sys.executable} -m bridge policy check {tmp_path}/none 2>/dev/full"
    assert subprocess.run(["bash", "-c", program], check=False).returncode == EXIT_CONFIG
