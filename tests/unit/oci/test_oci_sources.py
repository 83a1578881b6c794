"""Mirrors from registries.conf: where an image is asked for, in order."""

from pathlib import Path

import pytest

from polyarch.oci.mirror_files import InvalidMirrorConfiguration
from polyarch.oci.pull_sources import Blocked, Configuration, PullSource, sources
from polyarch.oci.reference import parse

DIGEST = f"sha256:{'a' * 64}"
NOWHERE = Path("/nonexistent/registries.conf")


@pytest.fixture
def load(tmp_path: Path):
    """Loads the text as registries.conf."""

    def load(text: str, **drop_ins: str) -> Configuration:
        file = tmp_path / "registries.conf"
        file.write_text(text)
        for name, content in drop_ins.items():
            (tmp_path / "registries.conf.d").mkdir(exist_ok=True)
            (tmp_path / "registries.conf.d" / f"{name}.conf").write_text(content)
        return Configuration.load(file, environ={})

    return load


def places(image: str, configuration: Configuration) -> list[str]:
    """As a plan prints them: host, repository and selector, mirrors with a plus, insecure ones with an exclamation."""
    return [shown(source) for source in sources(parse(image), configuration)]


def shown(source: PullSource) -> str:
    selector = f"@{source.digest[:8]}" if source.digest else f":{source.tag}"
    signs = ("+" if source.mirror else "") + ("!" if source.insecure else "")
    return f"{signs}{source.base_url.removeprefix('https://')}/{source.repository}{selector}"


@pytest.mark.req("RG-095")
def test_without_configuration_the_registry_is_asked_directly() -> None:
    assert places("quay.io/a:1", Configuration()) == ["quay.io/a:1"]
    assert places("nginx", Configuration()) == ["registry-1.docker.io/library/nginx:latest"]
    source = sources(parse("quay.io/a:1"), Configuration())[0]
    assert (source.path_prefix, source.query, source.mirror, source.insecure) == ("/v2", "", False, False)


@pytest.mark.req("RG-120")
def test_a_layout_directory_has_no_source() -> None:
    """It is read, not asked for."""
    assert sources(parse("oci:dir"), Configuration()) == []


@pytest.mark.req("RG-101")
def test_a_host_named_insecure_is() -> None:
    """Only the host named, port and all."""
    configuration = Configuration.load(insecure_hosts=["Registry.local:5000"], environ={}, system_file=NOWHERE)
    assert places("registry.local:5000/a:1", configuration) == ["!registry.local:5000/a:1"]
    assert places("registry.local/a:1", configuration) == ["registry.local/a:1"]


PREFIXES = """
[[registry]]
prefix = "quay.io/team"
location = "mirror.example/team-copy"
[[registry]]
prefix = "quay.io/team/app"
location = "mirror.example/the-app"
[[registry]]
prefix = "quay.io/team/app:pinned"
location = "mirror.example/the-app:other"
[[registry]]
prefix = "*.example.org"
location = "proxy.example/org"
[[registry]]
prefix = "*.deep.example.org"
[[registry]]
location = "docker.io"
[[registry]]
prefix = "ported.example"
location = "other.example"
"""


@pytest.mark.req("RG-091", "RG-092")
@pytest.mark.parametrize(
    ("image", "place"),
    [
        pytest.param("quay.io/team/x:1", "mirror.example/team-copy/x:1", id="a prefix of components"),
        pytest.param("quay.io/teams/x:1", "quay.io/teams/x:1", id="not within a component"),
        pytest.param("quay.io/team/app/sub:1", "mirror.example/the-app/sub:1", id="the longest prefix wins"),
        pytest.param("quay.io/team/app:1", "mirror.example/the-app:1", id="a boundary at the tag"),
        pytest.param(f"quay.io/team/app@{DIGEST}", "mirror.example/the-app@sha256:a", id="at the digest"),
        pytest.param("quay.io/team/app:pinned", "mirror.example/the-app:other", id="a prefix with tag"),
        pytest.param("quay.io/team/app:pinned2", "mirror.example/the-app:pinned2", id="not within a tag"),
        pytest.param("a.example.org/x:1", "proxy.example/org/x:1", id="a wildcard replaces the whole host"),
        pytest.param("a.b.example.org/x:1", "proxy.example/org/x:1", id="a wildcard is any number of labels"),
        pytest.param("example.org/x:1", "example.org/x:1", id="a wildcard is not the domain itself"),
        pytest.param("evilexample.org/x:1", "evilexample.org/x:1", id="a wildcard begins at a label"),
        pytest.param("a.example.org:5000/x:1", "a.example.org:5000/x:1", id="a wildcard without port"),
        pytest.param("a.deep.example.org/x:1", "a.deep.example.org/x:1", id="a wildcard without location"),
        pytest.param("nginx:1", "registry-1.docker.io/library/nginx:1", id="the prefix is the location"),
        pytest.param("ported.example/x:1", "other.example/x:1", id="a host without port"),
        pytest.param("ported.example:5000/x:1", "ported.example:5000/x:1", id="a host with another port"),
    ],
)
def test_the_longest_prefix_on_a_boundary_decides(load, image: str, place: str) -> None:
    assert places(image, load(PREFIXES)) == [place]


MIRRORS = """
[[registry]]
location = "quay.io"
insecure = true
[[registry.mirror]]
location = "all.example"
[[registry.mirror]]
location = "digests.example/q"
pull-from-mirror = "digest-only"
insecure = true
[[registry.mirror]]
location = "tags:5000"
pull-from-mirror = "tag-only"
[[registry]]
location = "strict.example"
mirror-by-digest-only = true
[[registry.mirror]]
location = "all.example/strict"
"""


@pytest.mark.req("RG-092")
@pytest.mark.parametrize(
    ("image", "expected"),
    [
        pytest.param(
            "quay.io/a:1",
            ["+all.example/a:1", "+tags:5000/a:1", "!quay.io/a:1"],
            id="mirrors as listed, then the primary; digest-only left out for a tag",
        ),
        pytest.param(
            f"quay.io/a@{DIGEST}",
            ["+all.example/a@sha256:a", "+!digests.example/q/a@sha256:a", "!quay.io/a@sha256:a"],
            id="tag-only left out for a digest",
        ),
        pytest.param(
            f"quay.io/a:1@{DIGEST}",
            ["+all.example/a@sha256:a", "+!digests.example/q/a@sha256:a", "!quay.io/a@sha256:a"],
            id="tag and digest count as digest",
        ),
        pytest.param("strict.example/a:1", ["strict.example/a:1"], id="mirror-by-digest-only with a tag"),
        pytest.param(
            f"strict.example/a@{DIGEST}",
            ["+all.example/strict/a@sha256:a", "strict.example/a@sha256:a"],
            id="mirror-by-digest-only with a digest",
        ),
    ],
)
def test_mirrors_come_first_as_far_as_they_serve(load, image: str, expected: list[str]) -> None:
    assert places(image, load(MIRRORS)) == expected


BLOCKED = """
[[registry]]
location = "quay.io"
blocked = true
[[registry.mirror]]
location = "good.example"
[[registry.mirror]]
location = "quay.io/mirror"
[[registry]]
location = "alone.example"
blocked = true
[[registry]]
prefix = "moved.example"
location = "alone.example/moved"
"""


@pytest.mark.req("RG-092")
def test_blocked_takes_the_primary_away_and_mirrors_within_a_blocked_prefix(load) -> None:
    assert places("quay.io/a:1", load(BLOCKED)) == ["+good.example/a:1"]


@pytest.mark.req("RG-092")
@pytest.mark.parametrize(
    ("image", "prefix"),
    [
        pytest.param("alone.example/a:1", "alone.example", id="blocked without mirror"),
        pytest.param("moved.example/a:1", "alone.example", id="moved into a blocked prefix"),
    ],
)
def test_with_nothing_left_file_and_prefix_are_named(load, tmp_path: Path, image: str, prefix: str) -> None:
    with pytest.raises(Blocked) as caught:
        places(image, load(BLOCKED))
    assert str(tmp_path / "registries.conf") in str(caught.value)
    assert f"prefix {prefix} " in str(caught.value)


@pytest.mark.req("RG-090")
def test_drop_ins_replace_the_registry_of_equal_prefix_wholly(load) -> None:
    """By file name, a later entry replaces an earlier one, mirrors and all; scalars replace."""
    configuration = load(
        """
        unqualified-search-registries = ["docker.io"]
        [[registry]]
        location = "quay.io"
        [[registry.mirror]]
        location = "first.example"
        [[registry]]
        location = "kept.example"
        insecure = true
        [aliases]
        a = "quay.io/a"
        """,
        **{
            "20-b": '[[registry]]\nlocation = "quay.io"\n[[registry.mirror]]\nlocation = "third.example"\n'
            '[aliases]\nb = "quay.io/b"',
            "10-a": 'unqualified-search-registries = ["quay.io"]\n[[registry]]\nlocation = "quay.io"\n'
            '[[registry.mirror]]\nlocation = "second.example"',
        },
    )
    assert places("quay.io/a:1", configuration) == ["+third.example/a:1", "quay.io/a:1"]
    assert places("kept.example/a:1", configuration) == ["!kept.example/a:1"]
    assert configuration.search == ("quay.io",)
    assert configuration.aliases == {"a": "quay.io/a", "b": "quay.io/b"}


@pytest.mark.req("RG-090")
def test_members_of_other_tools_are_left_to_them(load) -> None:
    configuration = load('short-name-mode = "enforcing"\n[[registry]]\nlocation = "quay.io"\nfuture = 1')
    assert places("quay.io/a:1", configuration) == ["quay.io/a:1"]


@pytest.mark.req("RG-091")
def test_of_equally_long_prefixes_the_last_loaded_wins(load) -> None:
    text = (
        '[[registry]]\nprefix = "*.b.c"\nlocation = "x.example"\n[[registry]]\nprefix = "a.b.c"\nlocation = "y.example"'
    )
    assert places("a.b.c/i:1", load(text)) == ["y.example/i:1"]
    first, second = (
        text.split('\n[[registry]]\nprefix = "a.b.c"')[0],
        '[[registry]]\nprefix = "a.b.c"\nlocation = "y.example"',
    )
    assert places("a.b.c/i:1", load(f"{second}\n{first}")) == ["x.example/i:1"]


@pytest.mark.req("RG-090")
def test_the_users_file_comes_before_the_systems(tmp_path: Path) -> None:
    """One of them, not both."""
    home, system = tmp_path / "home", tmp_path / "etc" / "registries.conf"
    users = home / ".config/containers/registries.conf"
    for file, location in ((users, "user.example"), (system, "system.example")):
        file.parent.mkdir(parents=True)
        file.write_text(f'[[registry]]\nprefix = "quay.io"\nlocation = "{location}"\n')

    def places_now() -> list[str]:
        return places("quay.io/a:1", Configuration.load(environ={"HOME": str(home)}, system_file=system))

    assert places_now() == ["user.example/a:1"]
    users.unlink()
    assert places_now() == ["system.example/a:1"]
    drop_in = system.parent / "registries.conf.d" / "x.conf"
    drop_in.parent.mkdir()
    system.rename(drop_in)
    assert places_now() == ["system.example/a:1"], "drop-ins without a file beside them count"
    drop_in.unlink()
    assert places_now() == ["quay.io/a:1"]


@pytest.mark.req("RG-090")
def test_the_variable_of_podman_names_the_file(tmp_path: Path) -> None:
    """Before the user's; an option goes before it, and the file it names must exist."""
    users, named, given = (
        tmp_path / ".config/containers/registries.conf",
        tmp_path / "env.conf",
        tmp_path / "given.conf",
    )
    for file in (users, named, given):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'[[registry]]\nprefix = "quay.io"\nlocation = "{file.stem}.example"\n')
    environ = {"HOME": str(tmp_path), "CONTAINERS_REGISTRIES_CONF": str(named)}

    def places_by(option: Path | None = None) -> list[str]:
        return places("quay.io/a:1", Configuration.load(option, environ=environ, system_file=NOWHERE))

    assert places_by() == ["env.example/a:1"]
    assert places_by(given) == ["given.example/a:1"]
    named.unlink()
    with pytest.raises(InvalidMirrorConfiguration, match=r"env\.conf"):
        places_by()
    environ["CONTAINERS_REGISTRIES_CONF"] = ""
    assert places_by() == ["registries.example/a:1"]


REFUSED = [
    pytest.param("[[registry]]\ninsecure = true", "registry 1: prefix and location are both missing", id="empty"),
    pytest.param('[[registry]]\nprefix = "quay.io"', "registry 1: location is missing", id="prefix alone"),
    pytest.param(
        '[[registry]]\nlocation = "a.b"\n[[registry.mirror]]\ninsecure = true',
        "registry 1, mirror 1: location of the mirror is missing",
        id="mirror without location",
    ),
    pytest.param(
        '[[registry]]\nlocation = "a.b"\npull-from-mirror = "all"',
        "registry 1: pull-from-mirror belongs to a [[registry.mirror]]",
        id="pull-from-mirror on the registry",
    ),
    pytest.param(
        '[[registry]]\nlocation = "a.b"\nmirror-by-digest-only = true\n[[registry.mirror]]\nlocation = "c.d"\n'
        'pull-from-mirror = "all"',
        "mirror 1: pull-from-mirror together with mirror-by-digest-only",
        id="both filters",
    ),
    pytest.param(
        '[[registry]]\nlocation = "a.b"\n[[registry.mirror]]\nlocation = "c.d"\npull-from-mirror = "some"',
        "pull-from-mirror is 'some'; expected one of all, digest-only, tag-only",
        id="an unknown value",
    ),
    pytest.param(
        '[[registry]]\nlocation = "a.b"\n[[registry]]\nprefix = "x.y"\nlocation = "a.b"\ninsecure = true',
        "a.b is insecure = true here and false in",
        id="contradicting insecure",
    ),
    pytest.param(
        '[[registry]]\nlocation = "a.b"\nblocked = true\n[[registry]]\nprefix = "x.y"\nlocation = "a.b"',
        "a.b is blocked = false here and true in",
        id="contradicting blocked",
    ),
    pytest.param('[registries.search]\nregistries = ["a.b"]', "version 2 needed", id="version 1"),
    pytest.param('[[registry]]\nlocation = "https://a.b"', "has a scheme", id="a URL"),
    pytest.param('[[registry]]\nlocation = "a.b/UP"', "upper-case letter", id="a location that names nothing"),
    pytest.param('[[registry]]\nlocation = "a b"', "not a host name", id="a location that is no host"),
    pytest.param('[[registry]]\nprefix = "*.a.b/x"\nlocation = "c.d"', "path after a wildcard", id="wildcard path"),
    pytest.param('[[registry]]\nlocation = "*.a.b"', "location cannot be a wildcard", id="wildcard location"),
    pytest.param('[[registry]]\nlocation = "a.b"\ninsecure = "yes"', "insecure must be true or false", id="a type"),
    pytest.param("[registry]\nlocation = 'a.b'", "registry must be an array of tables", id="one bracket"),
    pytest.param("[[registry]", "is not TOML", id="no TOML"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_a_file_that_cannot_be_meant_is_refused_with_file_and_entry(
    load, tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(InvalidMirrorConfiguration) as caught:
        load(text)
    assert str(caught.value).startswith(str(tmp_path / "registries.conf"))
    assert message in str(caught.value)


@pytest.mark.req("RG-093")
def test_contradictions_between_files_are_refused_too(load) -> None:
    """Naming both files."""
    with pytest.raises(
        InvalidMirrorConfiguration, match=r"a\.b is insecure = true here and false in .*registries\.conf"
    ) as caught:
        load(
            '[[registry]]\nlocation = "a.b"',
            x='[[registry]]\nprefix = "c.d"\nlocation = "a.b"\ninsecure = true',
        )
    assert caught.value.origin.endswith("x.conf")


@pytest.mark.req("RG-090")
def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidMirrorConfiguration, match=r"missing\.conf: cannot be read: No such file"):
        Configuration.load(tmp_path / "missing.conf", environ={})


@pytest.mark.req("RG-090")
def test_a_file_of_other_bytes_is_named(tmp_path: Path) -> None:
    file = tmp_path / "registries.conf"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidMirrorConfiguration, match="is not UTF-8 at byte 0"):
        Configuration.load(file, environ={})


@pytest.mark.req("RG-092")
def test_a_rule_that_makes_an_impossible_name_is_named_when_it_is_met(load) -> None:
    """Prefixes that end in a repository need a location with one."""
    configuration = load('[[registry]]\nprefix = "quay.io/a"\nlocation = "mirror.example"')
    with pytest.raises(
        InvalidMirrorConfiguration, match=r"registry 1 \(quay\.io/a\): location 'mirror\.example' makes of"
    ):
        sources(parse("quay.io/a:1"), configuration)
    assert places("quay.io/a/b:1", configuration) == ["mirror.example/b:1"]


@pytest.mark.req("RG-084")
def test_credentials_are_looked_up_for_the_place_that_is_asked(load) -> None:
    """A mirror's own name, Docker Hub under its usual one."""
    configuration = load('[[registry]]\nlocation = "docker.io"\n[[registry.mirror]]\nlocation = "m.example/hub"')
    mirror, primary = sources(parse("nginx:1"), configuration)
    assert mirror.reference.canonical == "m.example/hub/library/nginx:1"
    assert primary.reference.canonical == "docker.io/library/nginx:1"
