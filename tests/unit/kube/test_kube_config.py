"""Kubeconfigs as kubectl reads them, the pod's service account, and errors that name file and field."""

import base64
import textwrap
from pathlib import Path

import pytest

from polyarch.kube import config
from polyarch.kube.config import load
from polyarch.kube.errors import ConfigurationError
from polyarch.kube.settings import User
from polyarch.proxies import Proxy


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


PLAIN = """
    apiVersion: v1
    kind: Config
    current-context: main
    preferences: {}
    clusters:
    - name: home
      cluster: {server: "https://home:6443/"}
    users:
    - name: me
      user: {token: secret-token}
    contexts:
    - name: main
      context: {cluster: home, user: me, namespace: demo}
    - name: other
      context: {cluster: home, user: me}
"""


@pytest.fixture
def kubeconfig(tmp_path):
    return write(tmp_path / "config", PLAIN)


@pytest.mark.req("KR-001")
def test_the_current_context_of_an_explicit_file(kubeconfig):
    found = load(str(kubeconfig), environ={})
    assert found.server == "https://home:6443"
    assert found.namespace == "demo"
    assert found.user.token == "secret-token"
    assert found.origin == f"{kubeconfig}, context main"
    assert found.context == "main"


@pytest.mark.req("KR-001")
def test_another_context_and_the_default_namespace(kubeconfig):
    assert load(str(kubeconfig), "other", environ={}).namespace == "default"


@pytest.mark.req("KR-001")
def test_secrets_are_not_in_the_text_of_a_configuration(kubeconfig):
    assert "secret-token" not in repr(load(str(kubeconfig), environ={}))


@pytest.mark.req("KR-001")
def test_the_list_is_merged_the_first_to_say_so_wins(tmp_path):
    """KUBECONFIG=a:missing:b; what a defines b cannot change, what b adds is there."""
    one = write(
        tmp_path / "a" / "config",
        """
        current-context: main
        contexts:
        - {name: main, context: {cluster: home, user: me}}
        clusters:
        - {name: home, cluster: {server: "https://first:1", certificate-authority: ca.crt}}
        """,
    )
    two = write(
        tmp_path / "b" / "config",
        """
        current-context: other
        clusters:
        - {name: home, cluster: {server: "https://second:2"}}
        users:
        - {name: me, user: {client-certificate: me.crt, client-key: keys/me.key}}
        """,
    )
    found = load(environ={"KUBECONFIG": f"{one}:{tmp_path / 'missing'}::{two}"})
    assert found.server == "https://first:1"
    # Paths are relative to the file that has them.
    assert found.tls.ca.file == str(tmp_path / "a" / "ca.crt")
    assert found.tls.certificate.file == str(tmp_path / "b" / "me.crt")
    assert found.tls.key.file == str(tmp_path / "b" / "keys" / "me.key")


@pytest.mark.req("KR-001")
def test_without_anything_it_is_the_file_in_the_home_directory(tmp_path):
    write(tmp_path / ".kube" / "config", PLAIN)
    assert load(environ={"HOME": str(tmp_path)}).server == "https://home:6443"


@pytest.mark.req("KR-001")
def test_a_user_without_a_home_directory_gives_a_file_or_is_told_of_one(kubeconfig, monkeypatch):
    """Such as the user of a container that no file of users knows."""
    monkeypatch.setattr(config.Path, "home", _no_home)
    assert load(str(kubeconfig), environ={}).server
    with pytest.raises(ConfigurationError, match=r"^/\.kube/config"):
        load(environ={})


def _no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.req("KR-001")
def test_data_wins_over_files_and_is_decoded(tmp_path):
    data = base64.b64encode(b"PEM").decode()
    path = write(
        tmp_path / "config",
        f"""
        current-context: c
        contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
        clusters: [{{name: c, cluster: {{server: "https://c", certificate-authority: gone.crt,
          certificate-authority-data: {data}, tls-server-name: inner, insecure-skip-tls-verify: true,
          disable-compression: true}}}}]
        users: [{{name: u, user: {{client-certificate-data: {data}, client-key-data: {data}}}}}]
        """,
    )
    found = load(str(path), environ={})
    assert found.tls.ca.read() == found.tls.certificate.read() == found.tls.key.read() == b"PEM"
    assert found.tls.server_name == "inner"
    assert found.tls.skip_verify
    assert not found.compression


@pytest.mark.req("KR-001")
def test_json_with_tabs_is_a_kubeconfig_too(tmp_path):
    path = tmp_path / "config"
    path.write_text(
        '{\n\t"current-context": "c",\n\t"contexts": [{"name": "c", "context": {"cluster": "c"}}],\n'
        '\t"clusters": [{"name": "c", "cluster": {"server": "http://c:1"}}], "users": null}'
    )
    assert load(str(path), environ={}).server == "http://c:1"


@pytest.mark.req("KR-001")
def test_impersonation_password_and_token_file(tmp_path):
    path = write(
        tmp_path / "config",
        """
        current-context: c
        contexts: [{name: c, context: {cluster: c, user: u}}]
        clusters: [{name: c, cluster: {server: "https://c"}}]
        users:
        - name: u
          user: {tokenFile: t, username: n, password: p, as: jane, as-uid: "7", as-groups: [a, b]}
        """,
    )
    user = load(str(path), environ={}).user
    assert user.token_file == str(tmp_path / "t")
    assert (user.username, user.password) == ("n", "p")
    assert user.impersonate == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
    )


EXEC = """
    current-context: c
    contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
    clusters:
    - name: c
      cluster:
        server: "https://c"
        certificate-authority-data: UEVN
        proxy-url: http://proxy:3128
        extensions:
        - {{name: other, extension: 1}}
        - {{name: client.authentication.k8s.io/exec, extension: {{audience: x}}}}
    users:
    - name: u
      user:
        exec: {exec}
"""


@pytest.mark.req("KR-001")
def test_a_credential_plugin_with_cluster_information(tmp_path):
    text = EXEC.format(
        exec="{apiVersion: client.authentication.k8s.io/v1, command: ./bin/login, args: [a], "
        "env: [{name: K, value: V}], provideClusterInfo: true, interactiveMode: Never, installHint: get it}"
    )
    found = load(str(write(tmp_path / "config", text)), environ={})
    plugin = found.user.exec
    assert plugin.command == str(tmp_path / "bin" / "login")
    assert plugin.args == ("a",)
    assert plugin.env == (("K", "V"),)
    assert plugin.cluster == {
        "server": "https://c",
        "certificate-authority-data": "UEVN",
        "proxy-url": "http://proxy:3128",
        "config": {"audience": "x"},
    }
    assert found.proxy == Proxy("http://proxy:3128")


@pytest.mark.req("KR-001")
def test_a_bare_command_is_looked_up_on_path(tmp_path):
    text = EXEC.format(exec="{apiVersion: client.authentication.k8s.io/v1beta1, command: login}")
    plugin = load(str(write(tmp_path / "config", text)), environ={}).user.exec
    assert plugin.command == "login"
    assert plugin.cluster is None


def broken(**parts: str) -> str:
    sections = {
        "current-context": "c",
        "contexts": "[{name: c, context: {cluster: c, user: u}}]",
        "clusters": "[{name: c, cluster: {server: 'https://c'}}]",
        "users": "[{name: u, user: {token: t}}]",
    } | {key.replace("_", "-"): value for key, value in parts.items()}
    return "\n".join(f"{key}: {value}" for key, value in sections.items())


@pytest.mark.req("KR-001")
@pytest.mark.parametrize(
    ("text", "field", "problem"),
    [
        ("a: [\n", "line 2", "is not YAML"),
        ("{", "line ", "is not YAML"),
        ("\x00", "", "is not YAML"),
        ("[1, 2]", "", "expected `object`, got `array`"),
        (broken(clusters="{}"), "clusters", "expected `array | null`, got `object`"),
        (
            broken(clusters="[{name: c, cluster: {server: 5}}]"),
            "clusters[0].cluster.server",
            "expected `str`, got `int`",
        ),
        (broken(users="[{name: u, user: {token: 12345}}]"), "users[0].user.token", "expected `str`, got `int`"),
        (broken(users="[{user: {}}]"), "users[0]", "missing required field `name`"),
        (broken(current_context="x"), "current-context", "there is no context 'x' (there are: c)"),
        (broken(current_context="''"), "current-context", "is not set (give --context; there are: c)"),
        (broken(clusters="[]"), "contexts[name=c].context.cluster", "there is no cluster 'c' (there are: none)"),
        (broken(users="[{name: v}]"), "contexts[name=c].context.user", "there is no user 'u' (there are: v)"),
        (broken(contexts="[{name: c}]"), "contexts[name=c].context.cluster", "is not set"),
        (
            broken(clusters="[{name: c, cluster: {server: 'c:6443'}}]"),
            "clusters[name=c].cluster.server",
            "expected a URL",
        ),
        (broken(clusters="[{name: c, cluster: {server: 'https://c:x'}}]"), "clusters[name=c].cluster.server", "Port"),
        (broken(clusters="[{name: c}]"), "clusters[name=c].cluster.server", "expected a URL"),
        (
            broken(clusters="[{name: c, cluster: {server: 'https://c', certificate-authority-data: '!'}}]"),
            "clusters[name=c].cluster.certificate-authority-data",
            "is not base64",
        ),
        (
            broken(clusters="[{name: c, cluster: {server: 'https://c', proxy-url: 'socks5://p:1'}}]"),
            "clusters[name=c].cluster.proxy-url",
            "has the unsupported scheme 'socks5'",
        ),
        (broken(users="[{name: u, user: {client-key: k}}]"), "users[name=u].user.client-certificate", "needs both"),
        (
            broken(users="[{name: u, user: {auth-provider: {name: gcp}}}]"),
            "users[name=u].user.auth-provider",
            "removed from Kubernetes in 1.26",
        ),
        (
            broken(users="[{name: u, user: {exec: {command: x, apiVersion: client.authentication.k8s.io/v1alpha1}}}]"),
            "users[name=u].user.exec.apiVersion",
            "found 'client.authentication.k8s.io/v1alpha1'",
        ),
        (
            broken(
                users="[{name: u, user: {exec: {command: x, interactiveMode: Maybe, "
                "apiVersion: client.authentication.k8s.io/v1}}}]"
            ),
            "users[name=u].user.exec.interactiveMode",
            "found 'Maybe'",
        ),
    ],
)
def test_a_broken_kubeconfig_names_the_file_and_the_field(tmp_path, text, field, problem):
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load(str(path), environ={})
    assert caught.value.path == str(path)
    assert caught.value.field.startswith(field)
    assert problem in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.req("KR-001")
def test_an_unknown_context_lists_those_there_are(kubeconfig):
    with pytest.raises(ConfigurationError, match=r"no context 'x' \(there are: main, other\)"):
        load(str(kubeconfig), "x", environ={})


@pytest.mark.req("KR-001")
def test_a_file_that_is_not_there_or_not_readable(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load(str(tmp_path / "missing"), environ={})
    with pytest.raises(ConfigurationError, match="Is a directory"):
        load(str(tmp_path), environ={})
    with pytest.raises(ConfigurationError, match="no such kubeconfig"):
        load(environ={"HOME": str(tmp_path)})


@pytest.mark.req("KR-001")
def test_a_certificate_file_that_vanished_names_its_field(tmp_path):
    text = broken(clusters="[{name: c, cluster: {server: 'https://c', certificate-authority: gone.crt}}]")
    path = tmp_path / "config"
    path.write_text(text)
    found = load(str(path), environ={})
    with pytest.raises(ConfigurationError, match=r"certificate-authority: cannot read .*gone\.crt: No such file"):
        found.tls.ca.read()


@pytest.fixture
def service_account(tmp_path):
    root = tmp_path / "serviceaccount"
    root.mkdir()
    for name, text in (("token", "t"), ("ca.crt", "PEM"), ("namespace", "operators\n")):
        (root / name).write_text(text)
    return root


@pytest.mark.req("KR-001")
@pytest.mark.parametrize(
    ("host", "server"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_in_cluster(service_account, host, server):
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}
    found = config.in_cluster(environ, service_account)
    assert found.server == server
    assert found.namespace == "operators"
    assert found.user.token_file == str(service_account / "token")
    assert found.tls.ca.read() == b"PEM"
    assert config.running_in_cluster(environ, service_account)


@pytest.mark.req("KR-001")
def test_in_cluster_says_what_is_missing(service_account):
    with pytest.raises(ConfigurationError, match="KUBERNETES_SERVICE_HOST"):
        config.in_cluster({}, service_account)
    (service_account / "token").unlink()
    with pytest.raises(ConfigurationError, match="automountServiceAccountToken"):
        config.in_cluster({"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"}, service_account)


def served_by(tmp_path: Path, cluster: str, environ: dict[str, str]):
    text = f"""
    current-context: c
    contexts: [{{name: c, context: {{cluster: c}}}}]
    clusters: [{{name: c, cluster: {{{cluster}}}}}]
    """
    return load(str(write(tmp_path / "config", text)), environ=environ)


@pytest.mark.req("KR-001")
@pytest.mark.parametrize(
    ("cluster", "no_proxy", "proxy"),
    [
        pytest.param("server: 'https://api:6443'", "", Proxy("http://p:1"), id="the environment's"),
        pytest.param("server: 'https://api:6443'", "api:6443", None, id="but not for what NO_PROXY names"),
        pytest.param("server: 'https://api'", "api:443", None, id="with the scheme's own port"),
        pytest.param("server: 'http://api'", "", None, id="of another scheme"),
        pytest.param(
            "server: 'https://api', proxy-url: 'http://me:secret@own:2'",
            "*",
            Proxy("http://own:2", "Basic bWU6c2VjcmV0"),
            id="the kubeconfig's whatever the environment says",
        ),
    ],
)
def test_the_proxy_before_the_api_server(tmp_path, cluster, no_proxy, proxy):
    """As kubectl; the rules of the environment are those of ``test_proxies.py``."""
    found = served_by(tmp_path, cluster, {"HTTPS_PROXY": "http://p:1", "NO_PROXY": no_proxy})
    assert found.proxy == proxy
    assert "secret" not in repr(found)
    assert "bWU6" not in repr(found)


@pytest.mark.req("KR-001")
def test_a_proxy_that_cannot_be_used_names_its_variable_where_it_is_needed(tmp_path):
    """And its password nowhere."""
    environ = {"HTTPS_PROXY": "socks5://me:secret@p:1"}
    with pytest.raises(ConfigurationError, match="environment: HTTPS_PROXY has the unsupported scheme") as caught:
        served_by(tmp_path, "server: 'https://api:6443'", environ)
    assert "secret" not in str(caught.value)
    assert served_by(tmp_path, "server: 'https://127.0.0.1:6443'", environ).proxy is None


def test_a_user_shows_what_kind_it_is_but_no_secret():
    assert repr(User(token="abc", username="me", password="xyz")) == "User(token, username)"
