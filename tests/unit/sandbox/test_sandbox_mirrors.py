"""Public names lead to the sandbox's registry and nowhere else."""

from pathlib import Path

import pytest

from polyarch.oci.pull_sources import Configuration, sources
from polyarch.oci.reference import parse
from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.registry.seed import repository_here, write_registries_conf

ADDRESS = "127.0.0.1:5000"


def asked(tmp_path: Path, image: str, own: str = "") -> list[tuple[str, str, bool]]:
    """(host, repository, insecure) of every place that would be asked."""
    own_file = ""
    if own:
        (tmp_path / "own").mkdir(exist_ok=True)
        (tmp_path / "own" / "registries.conf").write_text(own)
        own_file = str(tmp_path / "own" / "registries.conf")
    write_registries_conf(tmp_path / "registries.conf", ADDRESS, own_file)
    configuration = Configuration.load(tmp_path / "registries.conf", environ={})
    return [(each.host, each.repository, each.insecure) for each in sources(parse(image), configuration)]


@pytest.mark.req("SB-005")
@pytest.mark.parametrize(
    ("image", "repository"),
    [
        ("nginx:1.27", "docker.io/library/nginx"),
        ("quay.io/acme/app", "quay.io/acme/app"),
        (f"{ADDRESS}/mine/app:1", "mine/app"),
        ("registry.example.com/a:1", "registry.example.com/a"),
    ],
)
def test_the_sandbox_is_the_only_place_asked(tmp_path: Path, image: str, repository: str) -> None:
    assert asked(tmp_path, image) == [(ADDRESS, repository, True)]
    reference = parse(image)
    assert repository_here(reference.registry, reference.repository, ADDRESS) == repository


@pytest.mark.req("SB-005")
def test_a_users_own_entry_wins_and_the_others_stay(tmp_path: Path) -> None:
    own = '[[registry]]\nprefix = "quay.io"\nlocation = "localhost:9999/q"\ninsecure = true\n'
    assert asked(tmp_path, "quay.io/acme/app", own) == [("localhost:9999", "q/acme/app", True)]
    assert asked(tmp_path, "nginx", own) == [(ADDRESS, "docker.io/library/nginx", True)]


@pytest.mark.req("SB-005")
def test_drop_ins_beside_the_users_file_count(tmp_path: Path) -> None:
    drop_ins = tmp_path / "own" / "registries.conf.d"
    drop_ins.mkdir(parents=True)
    (drop_ins / "a.conf").write_text('[[registry]]\nlocation = "ghcr.io"\nblocked = false\n')
    assert asked(tmp_path, "ghcr.io/a/b", "# nothing\n") == [("ghcr.io", "a/b", False)]
    assert asked(tmp_path, "ghcr.io/a/b") == [(ADDRESS, "ghcr.io/a/b", True)], "without the option they are gone"


@pytest.mark.req("SB-005")
@pytest.mark.parametrize(("own", "message"), [("[[registry", "not TOML"), ('registry = "x"', "not a list of tables")])
def test_a_users_file_that_is_none_is_named(tmp_path: Path, own: str, message: str) -> None:
    with pytest.raises(SandboxError, match=message) as caught:
        asked(tmp_path, "nginx", own)
    assert "own/registries.conf" in str(caught.value)


@pytest.mark.req("SB-005")
def test_a_host_the_sandbox_does_not_stand_for_is_refused_with_what_to_write() -> None:
    with pytest.raises(SandboxError, match=r"unknown\.example\.org.*use 127\.0\.0\.1:5000/a/b"):
        repository_here("unknown.example.org", "a/b", ADDRESS)
