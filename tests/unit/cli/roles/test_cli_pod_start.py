"""What a pod's words start without the libraries of the command line is what the command line would start."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numa_cluster import planned

from polyarch.cli import main
from polyarch.cli.app import app, run_command
from polyarch.cli.roles.flags import KINDS, USUAL, RoleChoice
from polyarch.cli.roles.pod_start import PREFIX, program_of_pod
from polyarch.cli.roles.reexec import Reexec
from polyarch.installation.objects import operator_objects
from polyarch.installation.settings import InstallationSettings, OperatorPods
from polyarch.numa.api.resources import SchedulerSettings
from polyarch.operator.components import builds_objects, placement_objects, taints_objects
from polyarch.operator.components.numa_scheduler_objects import SchedulerParts, scheduler_objects
from polyarch.operator.operands import operand_objects
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings

pytestmark = pytest.mark.req("PL-810")

Json = dict[str, Any]
POD = {"POD_NAMESPACE": "tools", "POD_IP": "10.1.2.3", "POD_NAME": "x", "NODE_NAME": "worker-1", "HOST_IP": "10.1.2.4"}


def of_command_line(words: list[str], variables: dict[str, str]) -> Reexec | None:
    """What the command line makes of them; None if it makes nothing that runs."""
    found: list[Reexec] = []
    with pytest.MonkeyPatch.context() as patch:
        for name in [each for each in os.environ if each.startswith(PREFIX)]:
            patch.delenv(name)
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.setattr(Reexec, "run", lambda self, *, own: found.append(self) or 0)
        run_command(["run", *words])
    return found[0] if found else None


# -- the pods that there are -------------------------------------------------------------------------------------------


def containers() -> Iterator[Json]:
    own = OperatorSettings(
        image="polyarch:1",
        builds="on",
        global_pull_secret=("a", "b"),
        secret_access="none",
        registries_configmap="mirrors",
        allow_addresses=("10.0.0.0/8", "fd00::/8"),
        deny_addresses=("10.1.0.0/16",),
        allow_privileged_builds=True,
        arch_taint_keys=("one", "two"),
    )
    cluster = ClusterCapabilities()
    documents = [*operator_objects(InstallationSettings()), *placement_objects.monitor_objects(own, cluster)]
    documents += placement_objects.monitor_objects(own, cluster, verbose=True)
    pods = OperatorPods(environment={"POLYARCH_TOLERATION": "a:NoSchedule b", "POLYARCH_CA": "", "OTHER": "x"})
    documents += operator_objects(InstallationSettings(operator=pods))
    for role in (
        placement_objects.webhook_deployment(own),
        placement_objects.controller_deployment(own),
        taints_objects.deployment(own),
        builds_objects.deployment(own),
    ):
        documents += operand_objects(role, own, cluster)
    documents += planned({"poolName": "worker"}).documents or ()
    parts = SchedulerParts(
        settings=SchedulerSettings(),
        operator=own,
        owner=None,
        image="kube-scheduler:1",
        replicas=2,
        on_control_plane=True,
        guaranteed=False,
    )
    documents += scheduler_objects(parts)
    for document in documents:
        if document["kind"] in ("Deployment", "DaemonSet"):
            several = document["spec"]["template"]["spec"]["containers"]
            yield from (each for each in several if each.get("args", ("",))[0] == "run")


CONTAINERS = list(containers())


def test_every_role_is_among_them() -> None:
    assert {each["args"][1] for each in CONTAINERS} == {
        *(each.label for each in RoleChoice if each is not RoleChoice.ALL),
        "numa-exporter",
        "numa-extender",
    }


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda each: " ".join(each["args"][1:3]))
def test_every_pod_of_ours_starts_without_the_command_line(
    container: Json, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    expanded = re.compile(r"\$\((\w+)\)")
    fixed = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    variables = (
        POD
        | {"POLYARCH_SANDBOX_CONTAINER": "/x.json"}
        | {name: expanded.sub(lambda found: POD[found[1]], value) for name, value in fixed.items()}
    )
    words = [expanded.sub(lambda found: POD[found[1]], each) for each in container["args"][1:]]
    content = {"mode": "exact"} if container["args"][1] == "numa-extender" else {"kind": "KubeletConfiguration"}
    (tmp_path / "config.yaml").write_text(json.dumps(content))
    words = [re.sub(r"^(--config|--kubelet-config-file)=.*", rf"\1={tmp_path}/config.yaml", each) for each in words]
    program = program_of_pod(words, variables)
    assert program is not None
    assert program == of_command_line(words, variables)


# -- any words ---------------------------------------------------------------------------------------------------------


TEXTS = ("", "1", "0", "07", "-1", "5000", "+3", "1_0", "0x10", "true", "false", "True", "yes", "none", "null", "a,b")
CHOICES = ("json", "console", "node", "handler", "on", "off", "auto", "byName", "Always", "x=y", "key=v:NoSchedule")
STRANGE = ("10.0.0.0/8", "fd00::1", "-x", "--quiet", "[1]", '{"a":1}', "é", "\u2028", "@f", "tools", "a\tb", "~", "a b")
VALUES = st.sampled_from([*TEXTS, *CHOICES, *STRANGE])
NAMES = st.sampled_from([*KINDS, "plan", "print_settings", "settings_as_read", "version", "help", "network", "nope"])
FLAGS = NAMES.map(lambda name: "--" + name.replace("_", "-"))
WORDS = st.one_of(
    st.tuples(FLAGS, VALUES).map("=".join),
    st.sampled_from([name for name, kind in KINDS.items() if kind is bool]).map(
        lambda name: "--" + name.replace("_", "-")
    ),
    FLAGS,
    st.sampled_from(
        [
            "--no-leader-elect",
            "-q",
            "-v",
            "-n",
            "--",
            "extra",
            "--no_quiet",
            "--Bind=x",
            "--metrics_port=1",
            "-v=4",
            "-v=x",
            "-h",
            "--sleep-interval=10s",
            "--listen=:1",
        ]
    ),
)
VARIABLES = st.dictionaries(
    NAMES.map(lambda name: PREFIX + name.upper())
    | st.sampled_from(["POLYARCH_", "POLYARCH_bind", "POLYARCH_BUILD", "POLYARCH_SANDBOX_CONTAINER"]),
    VALUES,
    max_size=2,
)
ROLES = st.sampled_from(
    [*(each.label for each in RoleChoice), "numa-exporter", "numa-extender", "all-of-it", "BUILDER"]
)


@settings(max_examples=60, deadline=None)
@given(role=ROLES, words=st.lists(WORDS, max_size=3), variables=VARIABLES)
@example(role="placement-webhook", words=["--ca=a", "--ca=b", "--allow-address="], variables={})
@example(role="operator", words=["--network-policies=false"], variables={})
@example(role="operator", words=[], variables={"POLYARCH_NETWORK_POLICIES": "false", "POLYARCH_TOLERATION": " a  b "})
@example(role="operator", words=["--toleration=a"], variables={"POLYARCH_TOLERATION": "b c"})
@example(role="builder", words=["--max-active-jobs=0"], variables={})
@example(role="exec-monitor", words=["--side=node"], variables={"POLYARCH_NODE_NAME": "w"})
@example(role="numa-extender", words=["--listen=:1", "-v=4"], variables={})
@example(role="numa-exporter", words=["--bind=1"], variables={})
def test_any_words_that_start_a_role_directly_start_it_as_the_command_line_does(
    role: str, words: list[str], variables: dict[str, str]
) -> None:
    program = program_of_pod([role, *words], variables)
    if program is not None:
        assert program == of_command_line([role, *words], variables)


def test_no_words_and_other_commands_are_the_command_lines() -> None:
    for words in ([], ["--help"], ["build-push", "--layout=x"], ["operator", "--help"], ["numa-exporter", "--version"]):
        assert program_of_pod(words, {}) is None, words


def test_the_command_line_has_every_flag_with_the_same_default() -> None:
    arguments = app["run"].assemble_argument_collection()
    declared = {each.field_info.names[0]: each.field_info.default for each in arguments if not each.children}
    usual = {name: getattr(USUAL, name) or None for name in KINDS}
    assert {name: default or None for name, default in declared.items() if name in KINDS} == usual


# -- the process -------------------------------------------------------------------------------------------------------

LOADED = """
import sys
sys.argv = ["polyarch", "run", "placement-webhook", "--cert-dir=.", "--kubeconfig=missing"]
from polyarch.cli import main
code = main()
print(code, *(name for name in ("cyclopts", "polyarch.cli.app", "rich") if name in sys.modules))
print(*(each for each in sys.path if each in ("", sys.argv[0])))
"""


def test_a_pod_never_loads_the_libraries_of_the_command_line(tmp_path: Path) -> None:
    """And no module of the directory in which it starts takes the place of one of ours."""
    (tmp_path / "trustme_no_one.py").touch()
    done = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == ["2", ""]
    assert done.stderr.startswith("polyarch: run placement-webhook: missing")


def test_a_role_is_played_in_the_process_that_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[tuple[str, msgspec.Struct]] = []
    monkeypatch.setattr(Reexec, "play", lambda self: played.append((self.module, self.settings)) or 0)
    monkeypatch.setattr(os, "execv", lambda *_: pytest.fail("it started over"))
    monkeypatch.setattr(sys, "argv", ["polyarch", "run", "taints", "--namespace=tools"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert main() == 0
    [(module, settings)] = played
    assert (module, settings.process.namespace) == ("role_process", "tools")  # type: ignore[attr-defined]
