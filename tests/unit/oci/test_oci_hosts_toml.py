"""containerd's hosts directories."""

from pathlib import Path

import pytest

from polyarch.oci.mirror_files import ClientCertificate, InvalidMirrorConfiguration, Tls
from polyarch.oci.pull_sources import Blocked, Configuration, sources
from polyarch.oci.reference import parse

DIGEST = f"sha256:{'a' * 64}"


@pytest.fixture
def load(tmp_path: Path):
    """Loads hosts.toml texts by the name of their folder."""

    def load(files: dict[str, str], registries_conf: str = "") -> Configuration:
        for folder, text in files.items():
            (tmp_path / "hosts" / folder).mkdir(parents=True)
            (tmp_path / "hosts" / folder / "hosts.toml").write_text(text)
        conf = tmp_path / "registries.conf"
        conf.write_text(registries_conf)
        return Configuration.load(conf, [tmp_path / "hosts"], environ={})

    return load


def urls(image: str, configuration: Configuration) -> list[str]:
    found = sources(parse(image), configuration)
    return [f"{each.base_url}{each.path_prefix}{'?' if each.query else ''}{each.query}" for each in found]


HUB = """
server = "https://registry-1.docker.io"
[host."https://first.example:5000"]
[host."http://plain.example/proxy"]
[host."https://third.example/v2"]
[host."https://raw.example/api/registry"]
override_path = true
[host."https://registry-1.docker.io"]
"""


@pytest.mark.req("RG-094")
def test_hosts_are_asked_in_file_order_then_the_server(load) -> None:
    """/v2 appended unless present or overridden; ns for every host but the named one."""
    assert urls("nginx", load({"docker.io": HUB})) == [
        "https://first.example:5000/v2?ns=docker.io",
        "http://plain.example/proxy/v2?ns=docker.io",
        "https://third.example/v2?ns=docker.io",
        "https://raw.example/api/registry?ns=docker.io",
        "https://registry-1.docker.io/v2",
        "https://registry-1.docker.io/v2",
    ]


@pytest.mark.req("RG-094")
@pytest.mark.parametrize(
    ("image", "expected"),
    [
        pytest.param("nginx", "https://registry-1.docker.io/v2", id="docker.io without server"),
        pytest.param("quay.io/a", "https://quay.io/v2", id="another registry without server"),
        pytest.param("r.example:5000/a", "https://r.example:5000/v2", id="a registry with port"),
    ],
)
def test_without_server_the_registry_itself_is_asked_last(load, image: str, expected: str) -> None:
    configuration = load({"_default": '[host."https://m.example"]\n'})
    registry = parse(image).registry.replace(":", "%3A")
    assert urls(image, configuration) == [f"https://m.example/v2?ns={registry}", expected]


@pytest.mark.req("RG-094")
def test_the_folder_of_the_host_comes_before_the_default(load) -> None:
    """Port and all; containerd's spelling for file systems without colons too."""
    configuration = load(
        {
            "_default": 'server = "https://default.example"',
            "quay.io": 'server = "https://quay-mirror.example"',
            "r.example:5000": 'server = "https://ported.example"',
            "w.example_5000_": 'server = "https://underscored.example"',
        }
    )
    assert urls("quay.io/a", configuration) == ["https://quay-mirror.example/v2?ns=quay.io"]
    assert urls("quay.io:443/a", configuration) == ["https://default.example/v2?ns=quay.io%3A443"]
    assert urls("r.example:5000/a", configuration) == ["https://ported.example/v2?ns=r.example%3A5000"]
    assert urls("w.example:5000/a", configuration) == ["https://underscored.example/v2?ns=w.example%3A5000"]


CAPABILITIES = """
server = "https://s.example"
capabilities = ["pull"]
[host."https://resolves.example"]
capabilities = ["resolve"]
[host."https://pulls.example"]
capabilities = ["Pull"]
[host."https://pushes.example"]
capabilities = ["push"]
[host."https://all.example"]
"""


@pytest.mark.req("RG-094")
@pytest.mark.parametrize(
    ("image", "hosts"),
    [
        pytest.param("r.io/a:1", ["resolves.example", "all.example"], id="a tag needs resolve"),
        pytest.param(f"r.io/a@{DIGEST}", ["pulls.example", "all.example", "s.example"], id="a digest needs pull"),
        pytest.param(f"r.io/a:1@{DIGEST}", ["pulls.example", "all.example", "s.example"], id="both are a digest"),
    ],
)
def test_a_host_is_used_for_what_it_is_capable_of(load, image: str, hosts: list[str]) -> None:
    assert [each.host for each in sources(parse(image), load({"r.io": CAPABILITIES}))] == hosts


@pytest.mark.req("RG-094")
@pytest.mark.parametrize(
    "text",
    [
        pytest.param('capabilities = ["push"]', id="capabilities of the top level need a server"),
        pytest.param('server = "https://r.io"\ncapabilities = []', id="an empty list means all"),
        pytest.param("", id="an empty file"),
    ],
)
def test_a_registry_that_is_not_restricted_is_asked(load, text: str) -> None:
    assert urls("r.io/a:1", load({"r.io": text})) == ["https://r.io/v2"]


@pytest.mark.req("RG-094")
def test_no_capable_host_is_told(load, tmp_path: Path) -> None:
    """Naming the file and what is missing."""
    configuration = load({"r.io": 'server = "https://s.example"\ncapabilities = ["push"]'})
    with pytest.raises(Blocked, match=r"no host has the capability 'resolve' in .*/r\.io/hosts\.toml"):
        sources(parse("r.io/a:1"), configuration)


@pytest.mark.req("RG-094")
def test_certificates_and_headers_of_a_host_are_taken_over(load, tmp_path: Path) -> None:
    """Relative paths are relative to the file's folder."""
    text = """
    ca = "/etc/ca.pem"
    [host."https://one.example"]
    ca = ["a.pem", "/b.pem"]
    client = [["c.crt", "c.key"], ["d.pem", ""], "e.pem"]
    skip_verify = true
    [host."https://one.example".header]
    x-one = "1"
    x-many = ["2", "3"]
    [host."https://two.example"]
    client = "f.pem"
    """
    one, two, own = sources(parse("r.io/a:1"), load({"r.io": text}))
    folder = tmp_path / "hosts" / "r.io"
    assert one.tls == Tls(
        ca=(str(folder / "a.pem"), "/b.pem"),
        clients=(
            ClientCertificate(str(folder / "c.crt"), str(folder / "c.key")),
            ClientCertificate(str(folder / "d.pem")),
            ClientCertificate(str(folder / "e.pem")),
        ),
        skip_verify=True,
    )
    assert one.headers == (("x-one", "1"), ("x-many", "2"), ("x-many", "3"))
    assert two.tls.clients == (ClientCertificate(str(folder / "f.pem")),)
    assert own.tls.ca == ("/etc/ca.pem",)
    assert (one.insecure, own.insecure) == (False, False)


@pytest.mark.req("RG-087")
def test_values_of_headers_are_not_shown(load) -> None:
    """A header can be a key to the mirror."""
    text = '[host."https://m.example"]\n[host."https://m.example".header]\nauthorization = "Bearer hunter2"'
    source = sources(parse("r.io/a:1"), load({"r.io": text}))[0]
    assert source.headers == (("authorization", "Bearer hunter2"),)
    assert "hunter2" not in repr(source)
    assert "authorization" in repr(source)


@pytest.mark.req("RG-101")
def test_plain_http_is_marked_insecure(load) -> None:
    """Only the host that was named with http."""
    plain, own = sources(parse("r.io/a:1"), load({"r.io": '[host."http://m.example:5000"]'}))
    assert (plain.base_url, plain.insecure) == ("http://m.example:5000", True)
    assert own.insecure is False


@pytest.mark.req("RG-095")
def test_registries_conf_comes_before_the_hosts_directory(load) -> None:
    """The directory only serves what the file does not match."""
    configuration = load(
        {"_default": 'server = "https://hosts.example"'},
        '[[registry]]\nprefix = "quay.io/team"\nlocation = "conf.example/team"',
    )
    assert urls("quay.io/team/a", configuration) == ["https://conf.example/v2"]
    assert urls("quay.io/other/a", configuration) == ["https://hosts.example/v2?ns=quay.io"]


@pytest.mark.req("RG-094")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param('server = "ftp://a.b"', "'ftp://a.b' is not the URL of a registry", id="another scheme"),
        pytest.param('[host."https://a b"]', 'host."https://a b": ', id="no host"),
        pytest.param('[host."https://u:p@a.b"]', "is not the URL of a registry", id="user and password"),
        pytest.param('[host]\n"https://a.b" = 1', "must be a table", id="no table"),
        pytest.param('[host."https://a.b"]\ncapabilities = ["fly"]', "capability 'fly' is unknown", id="capability"),
        pytest.param('[host."https://a.b"]\nca = 1', "ca must be a list of texts", id="ca of another type"),
        pytest.param('[host."https://a.b"]\nclient = [[]]', "client must be a path", id="an empty pair"),
        pytest.param('[host."https://a.b"]\nskip_verify = 1', "skip_verify must be true or false", id="a type"),
        pytest.param(
            '[host."https://a.b".header]\nx = "a\\r\\nb"', "'x' is not a header", id="a header with line ends"
        ),
        pytest.param("server = ", "is not TOML", id="no TOML"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(load, text: str, message: str) -> None:
    with pytest.raises(InvalidMirrorConfiguration) as caught:
        load({"r.io": text})
    assert "r.io/hosts.toml" in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.req("RG-094")
def test_the_directory_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidMirrorConfiguration, match="is not a directory"):
        Configuration.load(hosts_dirs=[tmp_path / "missing"], environ={}, system_file=tmp_path / "none")


@pytest.fixture
def roots(tmp_path: Path):
    """Directories by name with the folders in them; None: a folder without hosts.toml."""

    def roots(given: dict[str, dict[str, str | None]]) -> Path:
        for root, folders in given.items():
            for folder, url in folders.items():
                path = tmp_path / root / folder
                path.mkdir(parents=True)
                if url is not None:
                    (path / "hosts.toml").write_text(f'[host."https://{url}"]')
        return tmp_path

    return roots


@pytest.mark.req("RG-094")
@pytest.mark.parametrize(
    ("given", "mirror"),
    [
        pytest.param({"a": {"r.io": "one"}, "b": {"r.io": "two"}}, "one", id="the first that has the host"),
        pytest.param({"a": {"q.io": "one"}, "b": {"r.io": "two"}}, "two", id="the second alone has it"),
        pytest.param({"a": {"_default": "one"}, "b": {"r.io": "two"}}, "one", id="a default hides what comes later"),
        pytest.param({"a": {"r.io": None}, "b": {"r.io": "two"}}, None, id="a folder of certificates"),
        pytest.param({"a": {"r.io": None, "_default": "one"}}, None, id="a folder of certificates before a default"),
        pytest.param({"b": {"r.io": "two"}}, "two", id="a directory that does not exist"),
        pytest.param({"a": {"q.io": "one"}, "b": {"_default": "two"}}, "two", id="the default of the second"),
    ],
)
@pytest.mark.parametrize("joined", [True, False], ids=["A:B", "twice"])
def test_of_several_directories_the_first_with_a_folder_for_the_host_counts(
    roots, given: dict[str, dict[str, str | None]], mirror: str | None, joined: bool
) -> None:
    root = roots(given)
    directories = [f"{root}/a:{root}/b"] if joined else [f"{root}/a", f"{root}/b"]
    configuration = Configuration.load(hosts_dirs=directories, environ={}, system_file=root / "none")
    expected = [f"https://{mirror}/v2?ns=r.io"] if mirror else []
    assert urls("r.io/x", configuration) == [*expected, "https://r.io/v2"]
