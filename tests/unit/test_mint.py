"""The mint: tokens as Slurm takes them, in files that no other user may read, renewed at half of their lifetime."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bridge.errors import ConfigError
from bridge.mint.files import Mint, key_of
from bridge.mint.token import minted
from bridge.mint.users import Users
from bridge.slurm.token import claims_of
from tests.patience import PATIENCE_S

NOW = 1_800_000_000
KEY = b"\x00" * 31 + b"\n"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "jwt_hs256.key"
    path.touch(mode=0o600)
    path.write_bytes(KEY)
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def ends(out: Path) -> dict[str, float | None]:
    return {path.name: claims_of(path.read_text().strip()).exp for path in sorted(out.iterdir())}


def test_a_token_has_the_claims_of_slurmctld_and_the_signature_of_the_whole_key_file() -> None:
    header, claims, signature = minted(KEY, "alice", NOW, 900).split(".")

    def read(part: str) -> bytes:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))

    assert json.loads(read(header)) == {"alg": "HS256", "typ": "JWT"}
    assert json.loads(read(claims)) == {"exp": NOW + 900, "iat": NOW, "sun": "alice"}
    assert read(signature) == hmac.new(KEY, f"{header}.{claims}".encode(), hashlib.sha256).digest()
    assert "=" not in header + claims + signature


def test_each_user_has_a_file_that_no_other_user_may_read(key: Path, out: Path) -> None:
    assert Mint(str(out), str(key), 900).renew(("alice", "bob"), NOW) == 2
    assert ends(out) == {"alice": NOW + 900, "bob": NOW + 900}
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o600}


def test_a_group_may_read_them_where_one_is_named(key: Path, out: Path) -> None:
    Mint(str(out), str(key), 900, group=os.getgid()).renew(("alice",), NOW)
    stat = (out / "alice").stat()
    assert (stat.st_mode & 0o777, stat.st_gid) == (0o640, os.getgid())


def test_a_token_is_renewed_at_half_of_its_life_and_not_before(key: Path, out: Path) -> None:
    mint = Mint(str(out), str(key), 900)
    mint.renew(("alice",), NOW)
    before = (out / "alice").stat().st_ino
    assert mint.renew(("alice",), NOW + 449) == 0
    assert mint.renew(("alice",), NOW + 450) == 1
    assert ends(out) == {"alice": NOW + 1350}
    assert (out / "alice").stat().st_ino != before, "the file is replaced, not written in place"


def test_a_clock_that_was_set_back_a_file_that_is_gone_and_a_new_user_are_each_a_reason_to_write(
    key: Path, out: Path
) -> None:
    mint = Mint(str(out), str(key), 900)
    mint.renew(("alice",), NOW)
    assert mint.renew(("alice",), NOW - 3600) == 1
    (out / "alice").unlink()
    assert mint.renew(("alice",), NOW - 3600) == 1
    assert mint.renew(("alice", "bob"), NOW - 3600) == 1


def test_who_is_not_named_any_more_loses_the_file_and_files_of_others_are_left(key: Path, out: Path) -> None:
    (out / "kept").write_text("somebody's")
    mint = Mint(str(out), str(key), 900)
    mint.renew(("alice", "bob"), NOW)
    mint.renew(("bob",), NOW + 1)
    assert sorted(path.name for path in out.iterdir()) == ["bob", "kept"]


def test_a_new_key_is_used_from_the_next_token_on(key: Path, out: Path) -> None:
    mint = Mint(str(out), str(key), 900)
    mint.renew(("alice",), NOW)
    key.write_bytes(b"another" * 8)
    mint.renew(("alice",), NOW + 500)
    assert (out / "alice").read_text().strip() == minted(b"another" * 8, "alice", NOW + 500, 900)


def test_a_link_in_the_place_of_a_new_file_is_not_followed(key: Path, out: Path, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (out / ".alice.new").symlink_to(tmp_path / "victim")
    Mint(str(out), str(key), 900).renew(("alice",), NOW)
    assert (tmp_path / "victim").read_text() == "mine"
    assert ends(out) == {"alice": NOW + 900}


def test_a_file_that_cannot_be_written_lets_the_tokens_of_no_other_user_expire(key: Path, out: Path) -> None:
    mint = Mint(str(out), str(key), 900)
    (out / "bob").mkdir()
    for later in (0, 450, 900):
        with pytest.raises(ConfigError, match=r"token file .*/bob: "):
            mint.renew(["alice", "bob", "carol"], NOW + later)
    (out / "bob").rmdir()
    assert ends(out) == {"alice": NOW + 1800, "carol": NOW + 1800}


def test_a_file_that_cannot_be_removed_or_a_key_that_is_gone_keeps_the_token_of_no_user_who_left(
    key: Path, out: Path
) -> None:
    mint = Mint(str(out), str(key), 900)
    mint.renew(["alice", "bob", "carol"], NOW)
    (out / "bob").unlink()
    (out / "bob").mkdir()
    key.unlink()
    with pytest.raises(ConfigError, match="key file"):
        mint.renew(["dora"], NOW + 1)
    assert [path.name for path in out.iterdir()] == ["bob"]


def test_a_folder_that_is_not_there_is_reported(key: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"token file .*/none/alice: No such file or directory\. Name a folder"):
        Mint(str(tmp_path / "none"), str(key), 900).renew(("alice",), NOW)


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        (KEY, 0o644, r"every user of this host can read or write it\. chmod o= "),
        (b"", 0o600, "has 0 bytes, which is not a key"),
        (b"k" * 70_000, 0o600, "which is not a key"),
    ],
)
def test_a_key_that_is_none_or_everybodys_is_refused(tmp_path: Path, content: bytes, mode: int, why: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=why):
        key_of(str(path))


def test_users_come_from_the_command_line_files_and_policies_and_files_are_read_again(tmp_path: Path) -> None:
    listed, settings = tmp_path / "users", tmp_path / "settings.yaml"
    listed.write_text("bob\n# nobody\n\n carol   # of the third team\n")
    settings.write_text(
        "policy: {rules: [{namespaces: [a], user: alice}, {namespaces: ['t-*'], user: '{namespace}'}], "
        "default: {user: dave}}\n"
    )
    users = Users(("slurm",), (str(listed),), (str(settings),))
    assert users.now() == ("slurm", "bob", "carol", "alice", "dave")
    listed.write_text("erin\n")
    assert users.now() == ("slurm", "bob", "carol", "alice", "dave"), "the file may be half written"
    assert users.now() == ("slurm", "erin", "alice", "dave")


def test_no_token_is_removed_while_the_users_file_is_being_written(tmp_path: Path) -> None:
    listed, names = tmp_path / "users", "alice\nbob\ncarolina\n"
    listed.write_text(names)
    users = Users((), (str(listed),))
    seen = {users.now()}
    for end in (0, 6, 15):
        listed.write_text(names[:end])
        seen.add(users.now())
    listed.write_text(f"{names}dora\n")
    seen.add(users.now())
    assert seen == {("alice", "bob", "carolina")}
    assert users.now() == ("alice", "bob", "carolina", "dora")


@pytest.mark.parametrize(
    "text",
    ["root\n", "\xff", "".join(f"u{each}\n" for each in range(10_001)), None],
    ids=["root", "no text", "too many", "gone"],
)
def test_a_users_file_that_cannot_be_used_any_more_lets_the_tokens_of_nobody_expire(
    key: Path, out: Path, tmp_path: Path, text: str | None
) -> None:
    listed = tmp_path / "users"
    listed.write_text("bob\n")
    users, mint = Users(("alice",), (str(listed),)), Mint(str(out), str(key), 900)
    mint.renew(users.now(), NOW)
    if text is None:
        listed.unlink()
    else:
        listed.write_bytes(text.encode("latin-1"))
    for later in (450, 900, 1350):
        mint.renew(users.now(), NOW + later)
    assert set(ends(out).values()) == {NOW + 1350 + 900}
    assert str(listed) in users.trouble
    listed.write_text("carol\n")
    users.now()
    assert users.now() == ("alice", "carol")
    assert users.trouble == ""


@pytest.mark.parametrize("user", ["root", "ROOT", "slurm", "0", "../alice", ".alice", "-x", "a b", "a" * 300])
def test_whom_a_file_may_not_name(tmp_path: Path, user: str) -> None:
    listed = tmp_path / "users"
    listed.write_text(f"alice\n{user}\n")
    with pytest.raises(ConfigError, match=r"line 2: .*Name an ordinary user of Slurm\.$"):
        Users((), (str(listed),)).now()


def test_a_policy_may_not_name_slurm_user(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("policy: {default: {user: slurmadm}}\n")
    with pytest.raises(ConfigError, match="is SlurmUser, whose token is minted only for --user"):
        Users((), (), (str(settings),), slurm_user="slurmadm").now()


@pytest.mark.parametrize("user", ["root", "../alice", ""])
def test_whom_the_command_line_may_not_name(user: str) -> None:
    with pytest.raises(ConfigError, match=r"^--user: "):
        Users((user,))


def command(key: Path, out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "bridge", "mint", "--key", str(key), "--out", str(out), *more]


def test_it_notifies_systemd_when_the_tokens_are_there_and_ends_with_sigterm(
    key: Path, out: Path, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(tmp_path / "notify"))
        told.settimeout(60)
        process = subprocess.Popen(
            command(key, out, "--user", "alice"),
            env=os.environ | {"NOTIFY_SOCKET": str(tmp_path / "notify")},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert told.recv(64) == b"READY=1"
        end = ends(out)["alice"]
        assert end is not None
        assert 0 < end - time.time() <= 900
        process.send_signal(signal.SIGTERM)
        assert told.recv(64) == b"STOPPING=1"
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert (out / "alice").read_text().strip() not in said
    assert "wrote 1 token to" in said


def test_it_goes_on_without_the_key_and_says_so_once(key: Path, out: Path, tmp_path: Path) -> None:
    listed = tmp_path / "users"
    listed.write_text("alice\n")
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command(key, out, "--users-file", str(listed), "--lifetime", "900"), stderr=log)
    said = tmp_path / "log"
    _until(lambda: (out / "alice").exists())
    content = key.read_bytes()
    key.unlink()
    listed.write_text("alice\nbob\n")
    _until(lambda: "key file" in said.read_text())
    key.touch(mode=0o600)
    key.write_bytes(content)
    _until(lambda: "tokens can be written again" in said.read_text())
    process.terminate()
    assert process.wait(PATIENCE_S) == 0
    assert sorted(ends(out)) == ["alice", "bob"]
    assert said.read_text().count("No such file or directory") == 1


def _until(seen) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + PATIENCE_S
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.05)  # between two looks


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ((), "mint: no user is named."),
        (("--user", "alice", "--lifetime", "5"), "--lifetime: '5' is not a number of seconds from 10 to 86400."),
        (("--user", "alice", "--group", "no-such-group"), "--group: this host has no group 'no-such-group'."),
        (("--user", "alice", "--group", "4294967295"), "--group: this host has no group '4294967295'."),
        (("--user", "alice", "--group", "9" * 5_000), f"--group: this host has no group '{'9' * 80}'."),
        (
            ("--user", "alice", "--lifetime", "9" * 5_000),
            f"--lifetime: '{'9' * 40}' is not a number of seconds from 10 to 86400.",
        ),
        (("--user", "root"), "--user: 'root' may do anything in Slurm. Name an ordinary user of Slurm."),
    ],
)
def test_a_mistake_at_start_is_one_line_and_exit_code_2(key: Path, out: Path, more: tuple[str, ...], why: str) -> None:
    done = subprocess.run(command(key, out, *more), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"slurm-bridge: {why}")
    assert done.stderr.count("\n") == 1
    assert list(out.iterdir()) == []
