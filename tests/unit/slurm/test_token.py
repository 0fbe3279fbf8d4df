"""Tokens: read again when renewed, never shown, and every fault in a sentence that says what to do (I3, I4)."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from bridge.errors import ConfigError
from bridge.slurm.token import FileToken, LiteralToken, age, problem

NOW = 1_800_000_000.0


def jwt(**claims: object) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'HS256'})}.{part(claims)}.c2lnbmF0dXJl"


def test_a_renewed_token_is_used_from_the_next_call_on(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(jwt(sun="slurm", exp=NOW))
    source = FileToken(file)
    assert (source.token(), source.expires_at(), source.user) == (jwt(sun="slurm", exp=NOW), NOW, "slurm")

    renewed = tmp_path / "renewed"
    renewed.write_text(jwt(sun="slurm", exp=NOW + 900))
    os.replace(renewed, file)
    assert (source.token(), source.expires_at()) == (jwt(sun="slurm", exp=NOW + 900), NOW + 900)


def test_a_token_of_equal_length_written_in_place_is_noticed_by_its_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(jwt(exp=NOW))
    source = FileToken(file)
    source.token()
    file.write_text(jwt(exp=NOW + 1))
    os.utime(file, ns=(1, 1))
    assert source.expires_at() == NOW + 1


def test_an_unchanged_file_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text(jwt())
    source = FileToken(file)
    source.token()
    monkeypatch.setattr("builtins.open", None)
    assert source.token() == jwt()


def test_the_line_that_scontrol_prints_is_a_token_too(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"SLURM_JWT={jwt()}\n")
    assert FileToken(file).token() == jwt()


def test_an_expired_token_is_reported_with_its_age_and_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(jwt(exp=NOW - 3 * 3600))
    source = FileToken(file)
    assert problem(source, NOW) == (
        f"token file {file}: expired 3 h ago. Renew it (scontrol token username=slurm lifespan=3600, as root or SlurmUser) "
        "or point --slurm-token-file elsewhere."
    )
    assert source.token() == jwt(exp=NOW - 3 * 3600)  # whose clock is right is for Slurm to say
    file.write_text(jwt(username="alice", exp=NOW - 3 * 3600))
    assert "(scontrol token username=alice lifespan=3600, as root or SlurmUser)" in (problem(source, NOW) or ""), (
        "the user whom the old one names"
    )


def test_a_living_token_and_one_without_an_end_have_no_problem(tmp_path: Path) -> None:
    assert problem(LiteralToken(jwt(exp=NOW + 1)), NOW) is None
    assert problem(LiteralToken(jwt()), NOW) is None
    assert LiteralToken(jwt()).expires_at() is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"hello", "this is no token"),
        (b"a.b.c\nX-Evil: 1", "this is no token"),
        (b"\xff\xfe.b.c", "this is no token"),
        (b"a.b." + b"c" * 100_000, "this is no token"),
    ],
)
def test_a_file_that_holds_no_token_is_refused_without_showing_it(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=words) as caught:
        FileToken(file).token()
    assert str(file) in str(caught.value)
    assert not content.strip() or content.decode("latin-1")[:20] not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    source = FileToken(tmp_path / "none")
    with pytest.raises(ConfigError, match=r"there is no such file\. Point --slurm-token-file"):
        source.token()
    assert source.expires_at() is None
    assert (
        problem(source, NOW)
        == f"token file {tmp_path / 'none'}: there is no such file. Point --slurm-token-file to a file with a token."
    )


def test_a_token_whose_claims_cannot_be_read_is_left_to_slurm() -> None:
    source = LiteralToken("a.b.c")
    assert (source.token(), source.expires_at(), source.user) == ("a.b.c", None, "")


def test_no_representation_shows_the_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(jwt())
    source = FileToken(file)
    source.token()
    shown = repr(source) + repr(source._known) + repr(LiteralToken(jwt()))
    assert jwt() not in shown
    assert "c2lnbmF0dXJl" not in shown


@pytest.mark.parametrize(
    ("seconds", "words"), [(5, "5 s"), (90, "1 min"), (3 * 3600, "3 h"), (30 * 3600, "30 h"), (5 * 86400, "5 days")]
)
def test_ages_are_written_as_people_write_them(seconds: float, words: str) -> None:
    assert age(seconds) == words


@pytest.mark.parametrize("written", ["", "SLURM_JWT=", jwt(exp=NOW + 900)[:20], jwt(exp=NOW + 900)[:-4], None])
def test_a_file_in_the_middle_of_being_written_leaves_the_token_before_in_use(
    tmp_path: Path, written: str | None
) -> None:
    file = tmp_path / "token"
    file.write_text(jwt(exp=NOW + 60))
    source = FileToken(file)
    assert source.token() == jwt(exp=NOW + 60)
    if written is None:
        file.unlink()
    else:
        file.write_text(written)
    assert (source.token(), source.expires_at()) == (jwt(exp=NOW + 60), NOW + 60)
    assert problem(source, NOW) is None, "it works"
    assert source.trouble.startswith(f"token file {file}: ")
    assert "The token that was read before stays in use." in source.trouble
    told = problem(source, NOW + 60)
    assert told is not None
    assert told.startswith(f"token file {file}: ")
    assert "The token that was read before has expired." in told
    file.write_text(jwt(exp=NOW + 900))
    assert source.token() == jwt(exp=NOW + 900)
    assert problem(source, NOW) is None


def test_a_broken_file_is_a_problem_once_slurm_rejects_the_token_before(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(jwt(exp=NOW + 60))
    source = FileToken(file)
    used = source.token()
    file.write_text("")
    assert source.renew(used) is False
    told = problem(source, NOW)
    assert told is not None
    assert told.startswith(f"token file {file}: empty. The token that was read before is not accepted by Slurm.")
    file.write_text(jwt(exp=NOW + 61))
    assert (problem(source, NOW), source.trouble) == (None, "")


def test_the_log_reports_once_that_a_token_file_cannot_be_used_and_once_that_it_can_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    file = tmp_path / "token"
    file.write_text(jwt(exp=NOW + 60))
    source = FileToken(file)
    source.token()
    file.write_text("")
    for _ in range(3):
        source.token()
    assert [each.message.partition(". ")[0] for each in caplog.records] == [f"token file {file}: empty"]
    file.write_text(jwt(exp=NOW + 61))
    source.token()
    assert caplog.records[-1].message == f"token file {file} is in order again"
    assert jwt(exp=NOW + 60) not in caplog.text


def test_a_refused_token_is_read_again_though_its_file_does_not_look_changed(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(jwt(exp=NOW))
    times = (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    source = FileToken(file)
    assert source.renew(source.token()) is False
    file.write_text(jwt(exp=NOW + 1))  # as long as the one before
    os.utime(file, ns=times)
    assert source.token() == jwt(exp=NOW)
    assert source.renew(jwt(exp=NOW)) is True
    assert source.token() == jwt(exp=NOW + 1)
    assert source.renew(jwt(exp=NOW)) is True, "somebody else found it out already"


def test_a_key_with_shorter_signatures_is_taken_when_the_token_before_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(jwt(exp=NOW))
    source = FileToken(file)
    source.token()
    shorter = jwt(exp=NOW + 900)[:-4]
    file.write_text(shorter)
    assert source.token() == jwt(exp=NOW)
    assert source.renew(jwt(exp=NOW)) is True
    assert source.token() == shorter
