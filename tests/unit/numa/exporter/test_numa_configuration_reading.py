"""The exporter's settings from files, environment and flags."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from polyarch.numa.exporter.configuration import LoadedConfiguration, load_configuration
from polyarch.numa.exporter.settings import ExporterSettings, InvalidExporterConfiguration
from polyarch.numa.facts import ContainerName, PodPattern


class Home:
    """A user's home, below which a configuration root is allowed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = path / ".rte"

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def read(self, *words: str, environment: Mapping[str, str] | None = None, root: bool = True) -> LoadedConfiguration:
        return load_configuration(
            [*words, *([str(self.root)] if root else [])],
            environment or {},
            home=self.path,
            host_name=lambda: "Host-1",
            service_account=self.path / "serviceaccount",
        )

    def wrong(self, *words: str, environment: Mapping[str, str] | None = None) -> str:
        with pytest.raises(InvalidExporterConfiguration) as caught:
            self.read(*words, environment=environment)
        return str(caught.value).replace(str(self.root), "ROOT").replace(str(self.path), "HOME")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.mark.req("NE-132")
def test_without_anything_the_defaults_hold(home: Home) -> None:
    assert home.read(root=False) == LoadedConfiguration(ExporterSettings(hostname="host-1", pod="Host-1"))


# Node name ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("NE-010")
def test_the_node_is_named_by_flag_then_variable_then_host(home: Home) -> None:
    variable = {"NODE_NAME": "node-1"}
    assert home.read("--hostname=flag-1", environment=variable).settings.hostname == "flag-1"
    assert home.read(environment=variable).settings.hostname == "node-1"
    assert home.read().settings.hostname == "host-1", "a kubelet registers it in lower case"


@pytest.mark.req("NE-010")
def test_an_unnamed_node_is_an_error_that_lists_the_sources(home: Home) -> None:
    with pytest.raises(
        InvalidExporterConfiguration, match=r"--hostname, or set nrtUpdater.hostname, NODE_NAME or the host"
    ):
        load_configuration([], {}, home=home.path, host_name=lambda: "")


# Layers ---------------------------------------------------------------------------------------------------------------


@pytest.mark.req("NE-130")
def test_later_files_win_then_flags(home: Home) -> None:
    home.write("daemon/config.yaml", "nrtUpdater: {hostname: a, patchResync: 1, heartbeat: 1000000000}")
    home.write("daemon/config.yaml.d/20.yaml", "nrtUpdater: {hostname: c}")
    home.write("daemon/config.yaml.d/10.yaml", "nrtUpdater: {hostname: b, patchResync: 2}")
    found = home.read().settings
    assert (found.hostname, found.publish.patch_resync, found.publish.heartbeat) == ("c", 2, 1.0)
    assert home.read("--hostname=d").settings.hostname == "d"


@pytest.mark.req("NE-130")
def test_the_environment_speaks_where_the_value_is_still_empty(home: Home) -> None:
    home.write("daemon/config.yaml", "nrtUpdater: {hostname: file}")
    assert home.read(environment={"NODE_NAME": "variable"}).settings.hostname == "file"


@pytest.mark.req("NE-130")
@pytest.mark.parametrize("versions", ["..data/config.yaml", "..2026_11_23/config.yaml"])
def test_versions_of_a_mounted_configmap_are_no_drop_ins(home: Home, versions: str) -> None:
    home.write(f"daemon/config.yaml.d/{versions}", "nrtUpdater: {hostname: old}")
    assert home.read().settings.hostname == "host-1"


@pytest.mark.req("NE-130")
def test_the_extra_file_wins_over_the_older_one(home: Home) -> None:
    older = home.write(
        "older/config.yaml", "podExclude: [{namespacePattern: a, namePattern: '*'}]\nresourceExclude: {a: [x], b: [y]}"
    )
    home.write("extra/config.yaml", "podExclude: [{namespacePattern: b, namePattern: 'c?'}]\nresourceExclude: {a: [z]}")
    found = home.read(f"--config={older}").settings.scan
    assert found.pod_exclude == (PodPattern("b", "c?"),), "lists are replaced"
    assert found.resource_exclude == {"a": ("z",), "b": ("y",)}, "maps are joined by key"


@pytest.mark.req("NE-131")
def test_every_key_of_the_daemon_reaches_its_setting(home: Home) -> None:
    home.write("daemon/config.yaml", DAEMON)
    found = home.read().settings
    assert found.kubeconfig == "/k"
    assert found.verbosity == 5
    assert (found.publish.patch_mode, found.publish.patch_resync, found.publish.oneshot) == (False, 3, True)
    assert (found.publish.no_publish, found.publish.podreadiness) == (True, False)
    assert found.hostname == "n"
    assert (found.host.sysfs, found.host.kubelet_config_file, found.host.podresources_socket) == (
        "/s",
        "/c",
        "fake:///f",
    )
    assert (found.host.topology_manager_policy, found.host.topology_manager_scope) == ("restricted", "pod")
    scan = found.scan
    assert scan.resource_exclude == {"*": ("memory",)}
    assert (scan.pods_fingerprint, scan.pods_fingerprint_method, scan.expose_timing) == (False, "all", True)
    assert (scan.pods_fingerprint_status_file, scan.exclude_terminal_pods) == ("/st", True)
    assert (scan.pod_exclude, scan.add_nrt_owner) == ((PodPattern("a", "b*"),), False)
    assert scan.reference_container == ContainerName("x", "y", "z")
    assert (found.triggers.sleep_interval, found.triggers.notify_file) == (2.5, "/nf")
    assert (found.triggers.max_events_per_second, found.triggers.refresh_node_resources) == (2.0, True)
    metrics = found.metrics
    assert (metrics.mode, metrics.port, metrics.address) == ("httptls", 1, "127.0.0.1")
    assert (metrics.certs_dir, metrics.cert_file, metrics.key_file) == ("/d", "cf", "kf")
    assert metrics.want_client_certificates


DAEMON = """
global: {verbose: 5, debug: true, kubeConfig: /k}
nrtUpdater: {hostname: n, patchMode: false, patchResync: 3, oneShot: true, noPublish: true}
resourceMonitor:
  sysfsRoot: /s
  resourceExclude: {"*": [memory]}
  refreshNodeResources: true
  podSetFingerprint: false
  podSetFingerprintMethod: all
  exposeTiming: true
  podSetFingerprintStatusFile: /st
  podExclude: [{namespacePattern: a, namePattern: b*}]
  excludeTerminalPods: true
topologyExporter:
  referenceContainer: {namespace: x, podName: y, containerName: z}
  topologyManagerPolicy: restricted
  topologyManagerScope: pod
  kubeletConfigFile: /c
  podResourcesSocketPath: fake:///f
  sleepInterval: 2500000000
  podReadinessEnable: false
  notifyFilePath: /nf
  maxEventPerTimeUnit: 4
  timeUnitToLimitEvents: 2000000000
  addNRTOwnerEnable: false
  metricsMode: httptls
  metricsPort: 1
  metricsAddress: 127.0.0.1
  metricsTLS: {certsDir: /d, certFile: cf, keyFile: kf, wantCliAuth: true}
"""


@pytest.mark.req("NE-065")
def test_the_reference_container_from_the_environment(home: Home) -> None:
    whole = {"REFERENCE_NAMESPACE": "a", "REFERENCE_POD_NAME": "b", "REFERENCE_CONTAINER_NAME": "c"}
    found = home.read(environment=whole).settings
    assert found.scan.reference_container == ContainerName("a", "b", "c")
    assert (found.namespace, found.pod) == ("a", "b"), "older DaemonSets name the own Pod so"
    del whole["REFERENCE_CONTAINER_NAME"]
    assert home.read(environment=whole).settings.scan.reference_container is None


@pytest.mark.req("NE-120")
def test_the_own_pod_is_named_by_its_own_variables_first(home: Home) -> None:
    home.path.joinpath("serviceaccount").mkdir()
    home.path.joinpath("serviceaccount/namespace").write_text("there\n")
    found = home.read(environment={"POD_NAME": "p", "REFERENCE_POD_NAME": "q"}).settings
    assert (found.namespace, found.pod) == ("there", "p")


@pytest.mark.req("NE-101")
def test_the_kubelet_is_asked_at_the_address_of_the_host_that_the_pod_is_told(home: Home) -> None:
    assert home.read(environment={"HOST_IP": "10.0.0.5"}).settings.host.kubelet_address == "10.0.0.5"


@pytest.mark.req("NE-072")
def test_a_watched_namespace_is_ignored_with_one_warning(home: Home) -> None:
    found = home.read("--watch-namespace=default")
    assert found.warnings == (
        "resourceMonitor.namespace (--watch-namespace) is ignored: usage of all namespaces counts",
    )
    assert found.settings == home.read().settings


@pytest.mark.req("NE-132")
def test_debug_is_a_level_of_the_logs(home: Home) -> None:
    assert home.read("--debug").settings.verbosity == 4
    assert home.read("--debug", "-v6").settings.verbosity == 6


@pytest.mark.req("NE-101")
def test_the_kubelets_address_is_the_hosts_unless_a_file_says_another(home: Home) -> None:
    variable = {"HOST_IP": "10.0.0.1"}
    assert home.read(environment=variable).settings.host.kubelet_address == "10.0.0.1"
    home.write("daemon/config.yaml", "topologyExporter: {kubeletAddress: 10.0.0.2}")
    assert home.read(environment=variable).settings.host.kubelet_address == "10.0.0.2"


# Topology manager -----------------------------------------------------------------------------------------------------


@pytest.mark.req("NE-100")
@pytest.mark.parametrize(
    ("words", "environment", "extra", "expected"),
    [
        ([], {}, "", (None, None)),
        (["--topology-manager-policy=none", "--topology-manager-scope=pod"], {}, "restricted", ("none", "pod")),
        ([], {"TOPOLOGY_MANAGER_POLICY": "none", "TOPOLOGY_MANAGER_SCOPE": "pod"}, "restricted", ("none", "pod")),
        (["--topology-manager-policy=none"], {"TOPOLOGY_MANAGER_SCOPE": "pod"}, "", ("none", "pod")),
        ([], {}, "restricted", ("restricted", "container")),
        (["--topology-manager-policy=none"], {}, "restricted", ("restricted", "container")),
        (["--topology-manager-policy=none"], {}, "", (None, None)),
    ],
    ids=["nothing", "flags", "variables", "both", "extra file", "half a flag, extra file", "half a flag"],
)
def test_the_first_source_with_policy_and_scope_counts(
    home: Home, words: list[str], environment: dict[str, str], extra: str, expected: tuple[str | None, str | None]
) -> None:
    if extra:
        home.write("extra/config.yaml", f"kubelet: {{topologyManagerPolicy: {extra}, topologyManagerScope: container}}")
    found = home.read(*words, environment=environment)
    host = found.settings.host
    assert (host.topology_manager_policy, host.topology_manager_scope) == expected
    assert bool(found.warnings) == (len(words) == 1 and not environment), "half a source is told"


# Roots ----------------------------------------------------------------------------------------------------------------


@pytest.mark.req("NE-134")
@pytest.mark.parametrize("root", ["/etc", "/etc/rte-other", "/", "/etc/rte/../passwd"])
def test_a_root_elsewhere_is_refused_with_the_list(home: Home, root: str) -> None:
    with pytest.raises(InvalidExporterConfiguration) as caught:
        load_configuration([root], {}, home=home.path)
    assert str(caught.value).startswith(
        f"{root}: configuration is read only below /etc/rte, /run/rte, /var/rte, /usr/local/etc/rte, "
        f"/etc/resource-topology-exporter, /run/user/"
    )
    assert f"{home.root}; move it, or add --allow-config-root" in str(caught.value)


@pytest.mark.req("NE-134")
def test_a_symlink_out_of_the_roots_is_refused(home: Home, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    home.root.symlink_to(elsewhere)
    assert home.wrong().startswith("ROOT: configuration is read only below ")


@pytest.mark.req("NE-134")
def test_the_older_file_is_below_a_root_as_well(home: Home) -> None:
    assert home.wrong("--config=/etc/passwd").startswith("/etc: configuration is read only below ")


@pytest.mark.req("NE-134")
def test_a_root_may_be_added(home: Home, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    home.root = elsewhere
    home.write("daemon/config.yaml", "nrtUpdater: {hostname: there}")
    assert home.read(f"--allow-config-root={tmp_path}").settings.hostname == "there"


@pytest.mark.req("NE-134")
def test_a_home_behind_a_symlink_is_a_home(tmp_path: Path) -> None:
    tmp_path.joinpath("var-home").mkdir()
    tmp_path.joinpath("home").symlink_to(tmp_path / "var-home")
    home = Home(tmp_path / "home")
    home.write("daemon/config.yaml", "nrtUpdater: {hostname: there}")
    assert home.read().settings.hostname == "there"


# Bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("NE-135")
@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("daemon/config.yaml", "a: [", "line 2: not YAML: "),
        ("daemon/config.yaml", "- a", "expected a mapping of keys, such as `kubelet:`"),
        ("daemon/config.yaml", "\x01", "not YAML: "),
        ("daemon/config.yaml", "a: 2026-99-99", "line 1: not YAML: the value is no timestamp"),
        ("daemon/config.yaml", "nrtUpdater: on-off", "nrtUpdater: expected a mapping of keys"),
        (
            "daemon/config.yaml",
            "nrtUpdater: {patchMode: 'yes'}",
            "nrtUpdater.patchMode: a text instead of true or false",
        ),
        ("daemon/config.yaml", "nrtUpdater: {patchResync: true}", "nrtUpdater.patchResync: true or false instead of a"),
        ("daemon/config.yaml", "nrtUpdater: {patchResync: -1}", "nrtUpdater.patchResync: -1 is out of range; expected"),
        ("daemon/config.yaml", "nrtUpdater: {hostname: [a]}", "nrtUpdater.hostname: a list instead of a text"),
        (
            "daemon/config.yaml.d/1.yaml",
            "topologyExporter: {sleepInterval: -5}",
            "topologyExporter.sleepInterval: a duration must not be negative",
        ),
        (
            "daemon/config.yaml",
            "topologyExporter: {sleepInterval: 60s}",
            "topologyExporter.sleepInterval: a text instead of whole nanoseconds, such as 1000000000 for one second",
        ),
        (
            "daemon/config.yaml",
            "topologyExporter: {metricsMode: tls}",
            "topologyExporter.metricsMode: unknown value 'tls'; expected one of disabled, http, httptls",
        ),
        (
            "daemon/config.yaml",
            "topologyExporter: {referenceContainer: {namespace: a}}",
            None,
        ),
        ("extra/config.yaml", "kubelet: {topologyManagerScope: node}", "kubelet.topologyManagerScope: unknown value"),
        (
            "extra/config.yaml",
            "resourceExclude: {'*': memory}",
            "resourceExclude: '*': a text instead of a list of res",
        ),
        ("extra/config.yaml", "podExclude: {a: b}", "podExclude: a mapping instead of a list of {namespacePattern, "),
        ("extra/config.yaml", "podExclude: [{namePattern: a}]", "podExclude: [0].namespacePattern: nothing instead of"),
        ("extra/config.yaml", "podExclude: [{name: a}]", "podExclude: [0]: unknown key 'name'; expected namespaceP"),
        (
            "extra/config.yaml",
            "podExclude: [{namespacePattern: '*', namePattern: '[a'}]",
            "podExclude: [0].namePattern: ",
        ),
    ],
)
def test_bad_input_is_file_key_reason(home: Home, file: str, text: str, message: str | None) -> None:
    home.write(file, text)
    found = home.wrong()
    if message is None:
        message = "topologyExporter.referenceContainer.podName: missing; a reference container has a namespace, a pod"
        assert found.startswith(message)
    else:
        assert found.startswith(f"ROOT/{file}: {message}")
        assert "\n" not in found


@pytest.mark.req("NE-067")
def test_a_malformed_pattern_is_an_error_that_shows_it(home: Home) -> None:
    home.write("extra/config.yaml", "podExclude: [{namespacePattern: '*', namePattern: 'a[b'}]")
    assert "a[b" in home.wrong()


@pytest.mark.req("NE-135")
def test_a_variable_of_the_environment_is_named(home: Home) -> None:
    found = home.wrong(environment={"TOPOLOGY_MANAGER_POLICY": "strict"})
    assert found.startswith("TOPOLOGY_MANAGER_POLICY: unknown value 'strict'; expected one of none, ")


@pytest.mark.req("NE-135")
def test_unknown_keys_are_warnings_or_with_strict_config_errors(home: Home) -> None:
    path = home.write(
        "daemon/config.yaml", "nrtUpdater: {hostnam: a}\nfuture: {b: {c: 1}}\nnrtUpdater.hostname: d\n1: e"
    )
    found = home.read()
    assert found.warnings == (
        f"{path}: nrtUpdater.hostnam: unknown key; did you mean nrtUpdater.hostname?",
        f"{path}: future: unknown key",
        f"{path}: nrtUpdater.hostname: unknown key",
        f"{path}: 1: unknown key",
    )
    assert found.settings.hostname == "host-1"
    assert home.wrong("--strict-config").startswith("ROOT/daemon/config.yaml: nrtUpdater.hostnam: unknown key")


@pytest.mark.req("NE-135")
def test_a_file_that_cannot_be_read_is_an_error_and_a_missing_one_is_not(home: Home) -> None:
    assert home.read("--config", str(home.root / "nothing.yaml")).settings.hostname == "host-1"
    (home.root / "daemon" / "config.yaml").mkdir(parents=True)
    assert home.wrong() == "ROOT/daemon/config.yaml: cannot be read: Is a directory"


@pytest.mark.req("NE-135")
def test_a_null_says_nothing(home: Home) -> None:
    home.write("daemon/config.yaml", "nrtUpdater:\ntopologyExporter: {metricsPort: null}")
    assert home.read().settings.metrics.port == 2112


@pytest.mark.req("NE-122")
def test_versions_and_ciphers_of_tls_are_known_by_go_and_iana(home: Home) -> None:
    suites = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256"
    found = home.read("--metrics-tls-min-version=VersionTLS13", f"--metrics-tls-cipher-suites={suites}").settings
    assert found.metrics.min_tls_version == "VersionTLS13"
    assert found.metrics.cipher_suites == tuple(suites.split(", "))
    assert "unknown cipher suite" in home.wrong("--metrics-tls-cipher-suites=TLS_MINE")
    assert "expected one of VersionTLS12, VersionTLS13" in home.wrong("--metrics-tls-min-version=VersionTLS10")
