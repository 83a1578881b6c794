"""Tokens that are renewed while we run, and programs that hand them out."""

import asyncio
import os
import stat
import sys
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from manual_clock import ManualClock

from polyarch.kube.credentials import ExecPlugin, PluginCredentials, TokenFile, credentials_of
from polyarch.kube.errors import ConfigurationError
from polyarch.kube.settings import ExecSettings, User

V1 = "client.authentication.k8s.io/v1"


@pytest.fixture
def clock():
    return ManualClock()


def authorization(credential) -> str:
    return dict(credential.headers).get("Authorization", "")


@pytest.mark.req("KR-001")
async def test_a_token_file_is_read_again_every_minute(tmp_path, clock):
    path = tmp_path / "token"
    path.write_text("one\n")
    tokens = TokenFile(User(token_file=str(path)), (), clock)
    assert authorization(await tokens.current()) == "Bearer one"
    path.write_text("two")
    clock.advance(59)
    assert authorization(await tokens.current()) == "Bearer one"
    clock.advance(1)
    assert authorization(await tokens.current()) == "Bearer two"


@pytest.mark.req("KR-001")
async def test_a_token_file_is_read_again_at_once_when_the_server_refuses_it(tmp_path, clock):
    path = tmp_path / "token"
    path.write_text("one")
    tokens = TokenFile(User(token_file=str(path)), (), clock)
    first = await tokens.current()
    assert not await tokens.refused(first), "the file still says the same: another try would be refused, too"
    path.write_text("two")
    assert await tokens.refused(first)
    assert authorization(await tokens.current()) == "Bearer two"
    assert await tokens.refused(first), "another request that was refused with the old token finds the new one"


@pytest.mark.req("KR-001")
async def test_the_last_good_token_serves_while_the_file_is_being_replaced(tmp_path, clock):
    path = tmp_path / "token"
    path.write_text("one")
    tokens = TokenFile(User(token_file=str(path)), (), clock)
    await tokens.current()
    for broken in (path.unlink, lambda: path.write_text(" \n"), lambda: path.write_bytes(b"\xff\xff")):
        broken()
        clock.advance(60)
        assert authorization(await tokens.current()) == "Bearer one"


@pytest.mark.req("KR-001")
async def test_a_token_file_that_never_was_is_an_error_naming_it(tmp_path, clock):
    user = User(path="/k", field="users[name=u].user.tokenFile", token_file=str(tmp_path / "gone"))
    with pytest.raises(ConfigurationError, match=r"/k: users\[name=u\].user.tokenFile: cannot read .*gone"):
        await TokenFile(user, (), clock).current()


@pytest.mark.req("KR-001")
@pytest.mark.parametrize(
    ("user", "header"),
    [
        (User(token="t", username="u", password="p"), "Bearer t"),
        (User(username="u", password="p"), "Basic dTpw"),
        (User(), ""),
    ],
)
async def test_which_of_several_ways_is_taken(user, header, clock):
    credentials = credentials_of(user, clock)
    credential = await credentials.current()
    assert authorization(credential) == header
    assert not await credentials.refused(credential)


@pytest.mark.req("KR-001")
async def test_impersonated_groups_are_all_sent(clock):
    user = User(token="t", impersonate=(("Impersonate-Group", "a"), ("Impersonate-Group", "b")))
    credential = await credentials_of(user, clock).current()
    assert [value for name, value in credential.headers if name == "Impersonate-Group"] == ["a", "b"]
    assert "Bearer" not in repr(credential)


def program(path: Path, body: str) -> str:
    path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def counting(path: Path, count: Path, status: str) -> str:
    """A plugin that counts its runs in a file and has the number in ``n``."""
    return program(
        path,
        f"""
count = {str(count)!r}
n = int(open(count).read()) + 1 if os.path.exists(count) else 1
open(count, "w").write(str(n))
print(json.dumps({{"apiVersion": {V1!r}, "kind": "ExecCredential", "status": {status}}}))
""",
    )


def settings(command: str, **extra) -> ExecSettings:
    return ExecSettings(path="/k", field="users[name=u].user.exec", command=command, api_version=V1, **extra)


def no_terminal() -> bool:
    return False


def plugin(command: str, *, timeout=None, **extra) -> ExecPlugin:
    return ExecPlugin(settings(command, **extra), timeout=timeout, terminal=no_terminal)


@pytest.mark.req("KR-001")
async def test_a_plugin_is_run_once_until_its_token_expires(tmp_path, clock):
    soon = (clock.now() + timedelta(minutes=10)).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = f'{{"token": f"token-{{n}}", "expirationTimestamp": {soon!r}}}'
    command = counting(tmp_path / "login", tmp_path / "count", status)
    credentials = PluginCredentials(plugin(command), (("X-Extra", "1"),), clock)
    found = await asyncio.gather(*(credentials.current() for _ in range(5)))
    assert {authorization(credential) for credential in found} == {"Bearer token-1"}
    assert dict(found[0].headers)["X-Extra"] == "1"
    clock.advance(599)
    assert authorization(await credentials.current()) == "Bearer token-1"
    clock.advance(1)
    assert authorization(await credentials.current()) == "Bearer token-2"


@pytest.mark.req("KR-001")
async def test_a_refused_token_makes_the_plugin_run_again_once_for_all(tmp_path, clock):
    command = counting(tmp_path / "login", tmp_path / "count", '{"token": f"token-{n}"}')
    credentials = PluginCredentials(plugin(command), (), clock)
    first = await credentials.current()
    assert await asyncio.gather(*(credentials.refused(first) for _ in range(5))) == [True] * 5
    assert authorization(await credentials.current()) == "Bearer token-2"
    assert (tmp_path / "count").read_text() == "2"


@pytest.mark.req("KR-001")
async def test_a_plugin_is_told_what_the_protocol_says(tmp_path):
    seen = tmp_path / "seen"
    command = program(
        tmp_path / "login",
        f"""
open({str(seen)!r}, "w").write(json.dumps([sys.argv[1:], os.environ["K"], os.environ["KUBERNETES_EXEC_INFO"],
                                            sys.stdin.read()]))
print(json.dumps({{"apiVersion": {V1!r}, "kind": "ExecCredential",
                   "status": {{"clientCertificateData": "CERT", "clientKeyData": "KEY"}}}}))
""",
    )
    issued = await plugin(command, args=("a", "b"), env=(("K", "V"),), cluster={"server": "https://c"}).run()
    assert issued.certificate == (b"CERT", b"KEY")
    assert "KEY" not in repr(issued)
    args, variable, info, stdin = msgspec.json.decode(seen.read_bytes())
    assert args == ["a", "b"]
    assert variable == "V"
    assert stdin == ""
    assert msgspec.json.decode(info) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {"server": "https://c"}},
    }


@pytest.mark.req("KR-001")
@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("print('no login', file=sys.stderr); sys.exit(3)", "failed with exit code 3: no login"),
        ("print('secret nonsense')", "did not print an ExecCredential"),
        ("print('{}')", "printed no apiVersion without kind"),
        ("print(json.dumps({'apiVersion': V + 'beta1', 'kind': 'ExecCredential'}))", "expected client.authentication"),
        ("print(json.dumps({'apiVersion': V, 'kind': 'ExecCredential', 'status': {}}))", "neither a token nor"),
        (
            "print(json.dumps({'apiVersion': V, 'kind': 'ExecCredential', 'status': {'clientKeyData': 'x'}}))",
            "neither a token nor",
        ),
        (
            "print(json.dumps({'apiVersion': V, 'kind': 'ExecCredential', 'status': {'clientCertificateData': 'x'}}))",
            "only one of",
        ),
        ("time.sleep(60)", r"did not answer within 0\.5 s"),
    ],
)
async def test_a_plugin_that_does_not_work_is_named_and_its_output_is_not(tmp_path, body, problem):
    command = program(tmp_path / "login", f"V = {V1!r}\n{body}")
    with pytest.raises(ConfigurationError, match=problem) as caught:
        await plugin(command, timeout=0.5 if "sleep" in body else None).run()
    assert "users[name=u].user.exec" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.req("KR-001")
async def test_a_missing_plugin_gives_the_install_hint(tmp_path):
    with pytest.raises(ConfigurationError, match=r"cannot run .*No such file.*\(pip install login\)"):
        await plugin(str(tmp_path / "login"), install_hint="pip install login").run()


@pytest.mark.req("KR-001")
async def test_a_plugin_that_must_ask_a_person_is_not_started_without_a_terminal(tmp_path):
    command = program(tmp_path / "login", f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(ConfigurationError, match="there is no terminal"):
        await plugin(command, interactive_mode="Always").run()
    assert not (tmp_path / "ran").exists()


@pytest.mark.req("KR-001")
async def test_a_cancelled_request_leaves_no_plugin_behind(tmp_path):
    pid = tmp_path / "pid"
    command = program(
        tmp_path / "login",
        f"open({str(pid) + '.new'!r}, 'w').write(str(os.getpid())); os.rename({str(pid) + '.new'!r}, {str(pid)!r}); "
        "time.sleep(60)",
    )
    task = asyncio.create_task(plugin(command).run())
    while not pid.exists():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
