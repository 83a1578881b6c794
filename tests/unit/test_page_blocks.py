"""The fenced blocks of the pages: commands that exist, manifests whose fields exist, and what runs each of them.

A block of the guide is run by a test, or :data:`NOT_RUN` says why not. Whatever is run or not, ``polyarch`` has to
understand every command of its own, with all options.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml
from cyclopts import CycloptsError

from polyarch.cli.app import app
from polyarch.cli.options.usage_errors import with_values
from polyarch.installation.objects import definitions
from polyarch.installation.settings import InstallationSettings
from polyarch.manifests.configuration import Configuration
from polyarch.manifests.scan.text import SourceText
from polyarch.platforms import ASSUMED_ARCHITECTURES

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted(
    page.relative_to(ROOT).as_posix()
    for pattern in ("README.md", "docs/*.md", "docs/guide/**/*.md", "examples/*.md", "deploy/**/*.md")
    for page in ROOT.glob(pattern)
)
FENCED: Final = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
CODE: Final = re.compile(r"`(polyarch [^`\n]+)`")
SEPARATORS: Final = frozenset("|&;()<>")
LACKS_A_VALUE: Final = "requires an argument"

NOT_RUN: Final = {
    "aks.md": "needs a cloud; tests/cluster/test_credential_plugins.py has another program of the same protocol",
    "bundles.md": "operator-sdk itself cannot be had; tests/cluster/test_integrations_olm.py runs its validator",
    "eks.md": "needs a cloud; tests/oracles/test_ecr_credential_provider.py runs its program as the page has it",
    "first-steps.md": "one block starts a sandbox, one waits for an event; the tests of the sandbox do both",
    "gke.md": "as aks.md",
    "image-indexes.md": "one block pushes to quay.io; tests/cluster/test_index_cluster.py pushes elsewhere",
    "image.md": "tests/cluster/test_packaging_image.py builds, runs and joins images",
    "integrations.md": "tests/cluster/test_integrations_*.py run each in its own program",
    "kubectl-plugin.md": "needs a release; tests/cluster/test_packaging_krew.py runs its archive in kubectl",
    "migration.md": "one block for the predecessor's own subscription",
    "numa-migration.md": "one command for a node that had the predecessor's exporter",
    "openshift.md": "OpenShift's own program",
    "placement.md": "one block with a pod that slipped past; the tests of the sweep make such pods",
    "sandbox.md": "a sandbox inside of a sandbox; the tests of the sandbox start, seed and stop them",
    "symptoms.md": "something is broken in most: the tests of each message break it",
}
"""Pages of the guide with console blocks that no test runs as they stand there, and why."""
PARTIAL: Final = {"placement.md": "placementpolicies.polyarch.dev", "report.md": "placementpolicies.polyarch.dev"}
"""Pages to the kind whose ``spec`` they show without the rest of the object."""
VALUES: Final = frozenset(InstallationSettings.__struct_encode_fields__)
CHECKS: Final = frozenset({"platforms", "require", "exclude", "severity", "failOn"})


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """Info string and content of each; what a block is indented by is taken off."""
    for indent, said, content in FENCED.findall(text(page)):
        yield said.strip(), re.sub(f"^{indent}", "", content, flags=re.MULTILINE)


def command_lines(page: str) -> Iterator[str]:
    """Of the blocks: after a ``$``, or where a block without a language begins a line with ``polyarch``."""
    for said, content in blocks(page):
        for command in re.split(r"^\$ ", content, flags=re.MULTILINE)[1:] if said.startswith("console") else ():
            yield whole(command.splitlines())
        if said.startswith("yaml"):  # of a pipeline
            yield from re.findall(r"^ *- (polyarch .*)$", content, re.MULTILINE)
        if not said:
            yield from (line for line in content.splitlines() if line.startswith("polyarch "))


def whole(lines: list[str]) -> str:
    """A command without what it prints: it goes on after a backslash, and until its quotation ends."""
    taken = ""
    for line in lines:
        taken += line
        if taken.endswith("\\"):
            taken = taken[:-1]
        elif not taken.count("'") % 2:
            break
    return taken


def calls(line: str) -> Iterator[list[str]]:
    """The words after each ``polyarch`` that a line of the shell runs."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if not set(word) <= SEPARATORS:
            words.append(word)
            continue
        at = next((at for at, each in enumerate(words) if "=" not in each), len(words))
        own, *rest = words[at:] or [""]
        if own == "kubectl" and rest[:1] == ["polyarch"]:
            own, *rest = rest
        if own.rpartition("/")[2] == "polyarch":
            yield rest
        words = []


def refusal(words: list[str]) -> str:
    """What the command line says to these words; empty: it would go to work."""
    if words[0].startswith("-"):  # --help, --version
        return ""
    try:
        app.parse_args(with_values(words), exit_on_error=False, print_error=False)
    except CycloptsError as error:
        return str(error)
    return ""


COMMANDS: Final = [
    pytest.param(words, id=f"{page}: {' '.join(words)}"[:120])
    for page in PAGES
    for line in command_lines(page)
    for words in calls(line)
]
NAMED: Final = [
    pytest.param(words, id=f"{page}: {' '.join(words)}"[:120])
    for page in PAGES
    for code in CODE.findall(FENCED.sub("", text(page)).replace("\\|", "|"))
    if not set("…[{") & set(code)
    for words in calls(code)
    if words
]


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_of_a_page_is_understood(words: list[str]) -> None:
    assert refusal(words) == ""


@pytest.mark.parametrize("words", NAMED)
def test_a_command_that_a_page_names_exists_with_its_options(words: list[str]) -> None:
    """``polyarch up --numa``, in a sentence, lacks a value only."""
    said = refusal(words)
    assert not said or LACKS_A_VALUE in said


SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    f"{group}/{version['name']} {each['spec']['names']['kind']}": version["schema"]["openAPIV3Schema"]
    for each in definitions(InstallationSettings(components=("placement", "taints", "builds", "numa")))
    for group in [each["spec"]["group"]]
    for version in each["spec"]["versions"]
}
BY_NAME: Final = {
    each["metadata"]["name"]: f"{each['spec']['group']}/{each['spec']['versions'][-1]['name']} "
    f"{each['spec']['names']['kind']}"
    for each in definitions(InstallationSettings(components=("placement", "taints", "builds", "numa")))
}


def unknown(value: Any, schema: dict[str, Any], path: str) -> list[str]:
    """Fields that the schema does not have, and values that its enumerations do not."""
    found = []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{path}: {value!r} is none of {schema['enum']}")
    if isinstance(value, list):
        for at, each in enumerate(value):
            found += unknown(each, schema.get("items", {}), f"{path}[{at}]")
    elif isinstance(value, dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        rest = schema.get("additionalProperties")
        members = schema.get("properties", {})
        for name, each in value.items():
            if name in members or isinstance(rest, dict):
                found += unknown(each, members.get(name, rest), f"{path}.{name}")
            elif members and path != ".metadata":
                found.append(f"{path}.{name} does not exist")
    return found


def problems(page: str, content: str) -> list[str]:
    """What is wrong with a YAML block, as far as it is clear what it is."""
    found = []
    for document in yaml.safe_load_all(content.replace("sha256:…", f"sha256:{0:064}")):
        if not isinstance(document, dict) or any("script" in (each or ()) for each in document.values()):
            continue  # no object, or jobs of a pipeline
        kind = f"{document.get('apiVersion')} {document.get('kind')}"
        if set(document) == {"spec"}:
            kind = BY_NAME[PARTIAL[Path(page).name]]
        if schema := SCHEMAS.get(kind):
            found += unknown(document, schema, "")
        elif "polyarch.dev" in kind or "openshift.io" in kind:
            found.append(f"{kind} does not exist")
        elif "kind" not in document and document.keys() <= VALUES:
            msgspec.convert(document, InstallationSettings)
        elif document.keys() & CHECKS:
            Configuration.read(SourceText.of(page, content.encode()))
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if any(said.startswith("yaml") for said, _ in blocks(page))])
def test_a_manifest_of_a_page_has_only_fields_that_exist(page: str) -> None:
    assert [each for said, content in blocks(page) if said.startswith("yaml") for each in problems(page, content)] == []


def test_a_page_of_the_guide_is_run_or_it_is_said_why_not() -> None:
    """A page with a block that is new and not run has to be listed, and one that is run now must not be."""
    unrun = {
        Path(page).name
        for page in PAGES
        if page.startswith("docs/guide/") and any(said == "console" for said, _ in blocks(page))
    }
    assert unrun == NOT_RUN.keys()


NAMED_BY_OBJECTS: Final = {"ImageBuildRun"}
"""Kinds that nobody writes by hand."""
FOREIGN: Final = frozenset(
    {"tolerations", "nodeSelector", "namespaceSelector", "labelSelector", "podSelector", "resources"}
)
"""Members whose content is Kubernetes' own."""
GUIDE: Final = "\n".join(text(page) for page in PAGES if page.startswith("docs/guide/"))


def fields(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, member in schema.get("properties", {}).items():
        yield f"{path}.{name}"
        if name not in FOREIGN:
            yield from fields(member, f"{path}.{name}")
            yield from fields(member.get("items", {}), f"{path}.{name}[]")


@pytest.mark.parametrize("kind", [kind for kind in SCHEMAS if kind.split()[-1] not in NAMED_BY_OBJECTS])
def test_every_field_is_named_by_a_page_of_the_guide(kind: str) -> None:
    """A field that no page names is found by nobody but who reads the definition."""
    spec = SCHEMAS[kind]["properties"].get("spec", {})
    unnamed = [path for path in fields(spec) if not re.search(rf"\b{re.escape(path.rpartition('.')[2])}\b", GUIDE)]
    assert unnamed == []


def test_the_guide_names_the_architectures_that_nodes_are_taken_to_have() -> None:
    """Other pages refer to this one."""
    sentence = re.search(r"assumes linux nodes on (.*?), the architectures", text("docs/guide/lint.md"), re.DOTALL)
    assert sentence is not None
    assert sorted(re.findall(r"`(\w+)`", sentence[1])) == list(ASSUMED_ARCHITECTURES)
