"""YAML of others is read, or refused with its place, whatever stands in it."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml

from polyarch.cli.errors import UsageError
from polyarch.cli.input.objects import load_yaml, read_documents
from polyarch.cli.sandbox import local_cluster
from polyarch.kube import kubeconfig
from polyarch.kube.errors import ConfigurationError
from polyarch.numa.exporter.configuration import InvalidExporterConfiguration, read_yaml
from polyarch.numa.host.kubelet import InvalidKubeletConfiguration, yaml_mapping
from polyarch.operator.registry_settings import wrong_providers
from polyarch.sandbox.pods.programs import SchedulerPodContext, pod_scheduler_configuration
from polyarch.yaml_loader import SafeLoader

ODD = [
    "!!bool s3cret", "!!int ''", "!!int s3cret", "!!float ''", "!!float '.'", "!!float '1:x'", "!!timestamp s3cret",
    "2001-99-99", "2001-01-01 00:00:00 +99:99", "!!timestamp 2001-01-01T99:00:00Z", "!!int 0x", "!!int 1e9999",
    "9" * 5000, "{? !!bool x : 1}", "{? [a] : b}", "!!omap [1]", "!!binary é", "*none", "{<<: 3}",
    "!!python/name:os.system ''",
]  # fmt: skip


@pytest.mark.parametrize("text", ODD, ids=lambda text: text[:20])
def test_every_error_is_one_of_yaml_with_its_place(text: str) -> None:
    with pytest.raises(yaml.MarkedYAMLError) as caught:
        yaml.load(f"a: 1\nb: {text}\n", SafeLoader)
    assert (caught.value.problem_mark or caught.value.context_mark).line == 1
    assert "s3cret" not in f"{caught.value.problem}", "it may be a token"


def test_what_plain_yaml_says_is_read_as_ever() -> None:
    text = "a: [1, 0x1f, 1.5, yes, ~, 2001-01-01, 190:20:30, text]\nb: &b {c: d}\ne: {<<: *b}\n!!set {f}: g\n"
    text = text.replace("!!set {f}: g\n", "h: !!set {f}\n")
    assert yaml.load(text, SafeLoader) == yaml.safe_load(text)


def _file(read: Callable[[Path], object]) -> Callable[[Path, bytes], str]:
    def problem(path: Path, content: bytes) -> str:
        path.write_bytes(content)
        try:
            read(path)
        except (UsageError, ConfigurationError, InvalidExporterConfiguration, InvalidKubeletConfiguration) as error:
            return str(error)
        return ""

    return problem


READERS: Mapping[str, Callable[[Path, bytes], str]] = {
    "the registries ConfigMap": lambda path, content: wrong_providers(content, "providers"),
    "a kubeconfig": _file(kubeconfig._read),
    "a file that an option names": _file(lambda path: load_yaml("--file", str(path), expected="a file")),
    "a file of the sandbox": _file(lambda path: local_cluster._read_yaml(str(path))),
    "the kubeconfig to merge with": _file(local_cluster._read),
    "an exporter's configuration": _file(read_yaml),
    "a kubelet's configuration": _file(lambda path: yaml_mapping("kubelet", path.read_bytes())),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("text", [*ODD, "[" * 500], ids=lambda text: text[:20])
def test_a_reader_refuses_odd_values_with_a_problem(reader: str, text: str, tmp_path: Path) -> None:
    problem = READERS[reader](tmp_path / "file", f"a: 1\nb: {text}\n".encode())
    assert problem
    assert "s3cret" not in problem


@pytest.mark.parametrize("text", ODD, ids=lambda text: text[:20])
def test_objects_in_files_are_read_or_refused(text: str, tmp_path: Path) -> None:
    """They have a composer of their own, which takes tags for texts."""
    file = tmp_path / "objects.yaml"
    file.write_text(f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata:\n  b: {text}\n", encoding="utf-8")
    try:
        list(read_documents(str(file)))
    except UsageError as error:
        assert "objects.yaml" in str(error)  # noqa: PT017 - either is right


@pytest.mark.parametrize("text", ODD, ids=lambda text: text[:20])
def test_a_scheduler_gets_a_configuration_that_cannot_be_read_as_it_is(text: str) -> None:
    given = f"a: 1\nb: {text}\n"
    context = SchedulerPodContext(program="", address="", kubeconfig="", configuration="")
    assert pod_scheduler_configuration(given, context) == given
