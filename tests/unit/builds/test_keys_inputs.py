"""Inputs that are missing or wrong: named once, with the next action, and never quoted."""

from typing import Any

import msgspec
import pytest
from key_wishes import DATA, SPEC, changed, effective, wish

from polyarch.builds.facts.build_facts import InputData, MachineOSInputs, SecretFacts
from polyarch.builds.keys import effective_inputs

TOKEN = SPEC["source"]["secrets"][0]
DOCKER = SecretFacts(type="kubernetes.io/dockerconfigjson", keys=frozenset({".dockerconfigjson"}))


def problems(spec: Any = SPEC, data: InputData = DATA, **others: Any) -> list[tuple[str, str]]:
    return [(each.reason, each.message) for each in effective(spec, data, **others).problems]


def test_right_inputs_have_no_problems() -> None:
    assert problems() == []


@pytest.mark.req("BD-055")
def test_texts_and_arguments() -> None:
    """The override's text, else the common one; the override's arguments win one by one."""
    overrides = [
        {"architecture": "s390x", "containerfile": "FROM special\r\n"},
        {"architecture": "arm64", "buildArgs": {"MODE": "slow", "MORE": "1"}},
    ]
    found = effective(changed(SPEC, "source.overrides", overrides)).per_architecture
    assert {each: own.containerfile for each, own in found.items()} == {
        "amd64": "FROM busybox:1.36\nRUN true\n",
        "arm64": "FROM busybox:1.36\nRUN true\n",
        "s390x": "FROM special\n",
    }
    assert {each: own.text_name for each, own in found.items()} == {
        "amd64": "common",
        "arm64": "common",
        "s390x": "s390x",
    }
    assert found["arm64"].args == {"LEVEL": "2", "MODE": "slow", "MORE": "1"}
    assert found["amd64"].args == found["s390x"].args == {"LEVEL": "2", "MODE": "fast"}


@pytest.mark.req("BD-055")
def test_no_containerfile() -> None:
    """Every architecture without a text is named."""
    found = effective(changed(SPEC, "source.containerfile", None)).errors
    assert [(each.reason, each.architecture) for each in found] == [
        ("ContainerfileMissing", "amd64"),
        ("ContainerfileMissing", "arm64"),
    ]
    assert "for amd64" in found[0].message
    assert "source.overrides" in found[0].message


@pytest.mark.req("BD-057", "BD-320")
def test_faults_are_said_once() -> None:
    """A fault of the common text concerns nobody in particular; one of an override names its text."""
    spec = changed(SPEC, "source.containerfile", "FROM a\nRUNN\n")
    spec = changed(spec, "source.overrides", [{"architecture": "s390x", "containerfile": "FROM b\nCOPY x\n"}])
    found = effective(spec).errors
    assert [(each.reason, each.architecture, each.message) for each in found] == [
        (
            "ContainerfileInvalid",
            "",
            "Containerfile (common), line 2: unknown instruction 'RUNN'; expected RUN",
        ),
        (
            "ContainerfileInvalid",
            "s390x",
            "Containerfile (s390x), line 2: COPY has 'x'; expected COPY SOURCE… DESTINATION",
        ),
    ]


@pytest.mark.req("BD-058")
def test_unresolved_is_said_once_for_all_who_have_it() -> None:
    spec = changed(SPEC, "source.containerfile", "FROM a\nCOPY --from=b:$V x y\n")
    found = effective(spec)
    assert found.errors == ()
    assert [each.architecture for each in found.warnings] == ["amd64", "arm64"]
    assert [each.architecture for each in effective(changed(spec, "source.overrides", [])).warnings] == [""]


def test_target_that_is_no_stage() -> None:
    found = problems(changed(SPEC, "source.target", "final"))
    assert [reason for reason, _ in found] == ["ContainerfileInvalid"] * 2
    assert "there is no stage 'final'" in found[0][1]


@pytest.mark.req("BD-064")
@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            "source",
            {"containerfileFrom": {"name": "nowhere"}},
            "ConfigMap ns/nowhere, which source.containerfileFrom names, does not exist; create it",
        ),
        (
            "source",
            {"containerfileFrom": {"name": "texts", "key": "arm"}},
            "key 'arm' of ConfigMap ns/texts, which source.containerfileFrom names, does not exist (it has ",
        ),
        (
            "source.overrides",
            [{"architecture": "s390x", "containerfileFrom": {"name": "nowhere"}}],
            "ConfigMap ns/nowhere, which source.overrides[s390x].containerfileFrom names",
        ),
        (
            "source.context",
            {"type": "ConfigMap", "configMap": {"name": "gone"}},
            "ConfigMap ns/gone, which source.context.configMap.name names",
        ),
        (
            "source.secrets",
            [TOKEN | {"secret": {"name": "none", "key": "a"}}],
            "Secret ns/none, which source.secrets[token].secret names",
        ),
        (
            "source.secrets",
            [TOKEN | {"secret": {"name": "tokens", "key": "c"}}],
            "key 'c' of Secret ns/tokens, which source.secrets[token].secret names, does not exist (it has a, b)",
        ),
        ("output.pushSecret", {"name": "none"}, "Secret ns/none, which output.pushSecret.name names"),
        ("output.pullSecrets", [{"name": "none"}], "Secret ns/none, which output.pullSecrets[none] names"),
        (
            "source.context",
            {
                "type": "Git",
                "git": {"url": "https://x", "commit": 40 * "a", "credentials": {"name": "none"}},
            },
            "Secret ns/none, which source.context.git.credentials.name names",
        ),
    ],
)
def test_missing_objects(path: str, value: Any, message: str) -> None:
    """Object, field and next action are named."""
    data = msgspec.structs.replace(DATA, secrets={**DATA.secrets, "none": None})
    found = problems(changed(SPEC, path, value), data)
    assert [reason for reason, _ in found] == ["InputMissing"]
    assert found[0][1].startswith(message)


@pytest.mark.req("BD-064")
@pytest.mark.parametrize(
    ("secret", "words"),
    [
        (SecretFacts(type="Opaque"), "has the type 'Opaque'; expected kubernetes.io/dockerconfigjson"),
        (SecretFacts(type="kubernetes.io/dockercfg"), "has the type 'kubernetes.io/dockercfg'"),
        (msgspec.structs.replace(DOCKER, invalid="it is not JSON"), "cannot be used: it is not JSON"),
    ],
)
def test_unusable_push_secret(secret: SecretFacts, words: str) -> None:
    data = msgspec.structs.replace(DATA, secrets={**DATA.secrets, "push": secret})
    found = problems(changed(SPEC, "output.pushSecret", {"name": "push"}), data)
    assert [reason for reason, _ in found] == ["SecretInvalid"]
    assert words in found[0][1]


@pytest.mark.req("BD-064")
def test_programs_for_credentials_are_ignored_with_a_warning() -> None:
    """They run on the machine of whoever wrote the Secret; a log line of the builder reaches nobody."""
    secret = msgspec.structs.replace(DOCKER, has_helpers=True)
    data = msgspec.structs.replace(DATA, secrets={**DATA.secrets, "push": secret})
    found = effective(changed(SPEC, "output.pushSecret", {"name": "push"}), data)
    told = [each for each in found.warnings if each.reason == "CredentialHelpersIgnored"]
    assert [each.message.partition(",")[0] for each in told] == ["Secret ns/push"]
    assert found.errors == ()


@pytest.mark.req("BD-284")
def test_a_machine_os_takes_both_shapes() -> None:
    """``dockercfg`` is as good there."""
    data = msgspec.structs.replace(DATA, secrets={**DATA.secrets, "push": SecretFacts(type="kubernetes.io/dockercfg")})
    assert problems(changed(SPEC, "output.pushSecret", {"name": "push"}), data, machine=MachineOSInputs()) == []


@pytest.mark.req("BD-346")
def test_secrets_that_nobody_has_read_yet() -> None:
    """A key that does not depend on a Secret is known without it; its name is told."""
    data = msgspec.structs.replace(DATA, secrets={})
    found = effective(changed(SPEC, "output.pushSecret", {"name": "push"}), data)
    assert found.problems == ()
    assert found.unread_secrets == ("push", "tokens")
    keyed = effective(changed(SPEC, "source.secrets", [TOKEN | {"rebuildOnChange": True}]), data)
    assert [each.reason for each in keyed.errors] == ["InputMissing"]


@pytest.mark.req("BD-331")
def test_a_namespace_that_is_not_enabled() -> None:
    """Said once, with the command to run; and not where no Secret is named."""
    data = msgspec.structs.replace(DATA, readable=False)
    found = effective_inputs(
        wish(changed(SPEC, "output.pushSecret", {"name": "push"})), data, ("arm64",), operator_namespace="ops"
    ).problems
    assert [each.reason for each in found] == ["NamespaceNotEnabled"]
    assert "kubectl create rolebinding polyarch-builds --namespace ns --clusterrole polyarch-builds" in found[0].message
    assert found[0].message.endswith("--serviceaccount ops:polyarch-builder")
    assert problems(changed(SPEC, "source.secrets", []), data) == []


@pytest.mark.req("BD-064", "BD-320")
def test_a_text_that_is_no_text() -> None:
    """Bytes under binaryData are no Containerfile."""
    data = InputData(config_maps={**DATA.config_maps, "bytes": {"binaryData": {"Containerfile": "/w=="}}})
    spec = changed(SPEC, "source", {"containerfileFrom": {"name": "bytes"}})
    assert [(reason, "is not text" in message) for reason, message in problems(spec, data)] == [
        ("ContainerfileInvalid", True)
    ]


@pytest.mark.req("BD-323")
def test_the_largest_text() -> None:
    """128 KiB in any script work; one byte more is refused with the limit."""
    line = "RUN echo привет ☃\n"
    head = "FROM a\n"
    body = head + line * ((128 * 1024 - len(head)) // len(line.encode()))
    body += "#" * (128 * 1024 - len(body.encode()) - 1) + "\n"
    assert len(body.encode()) == 128 * 1024
    spec = changed(SPEC, "source.overrides", [])
    assert problems(changed(spec, "source.containerfile", body)) == []
    found = problems(changed(spec, "source.containerfile", f"{body}\n"))
    assert [reason for reason, _ in found] == ["ContainerfileInvalid"]
    assert "longer than 131072 bytes" in found[0][1]


@pytest.mark.req("BD-323")
def test_sixteen_architectures() -> None:
    architectures = tuple(f"arch{number}" for number in range(16))
    found = effective_inputs(wish(), DATA, architectures)
    assert sorted(found.per_architecture) == sorted(architectures)


@pytest.mark.req("BD-320")
def test_several_at_once() -> None:
    """One look at an ImageBuild finds all that is wrong with it."""
    spec = changed(SPEC, "source.containerfile", "RUN x\n")
    spec = changed(spec, "source.context", {"type": "ConfigMap", "configMap": {"name": "gone"}})
    spec = changed(spec, "source.secrets", [TOKEN | {"secret": {"name": "tokens", "key": "c"}}])
    spec = changed(spec, "baseImages.substitute", [{"from": "UPPER", "to": "x"}])
    assert sorted({reason for reason, _ in problems(spec)}) == ["ContainerfileInvalid", "InputInvalid", "InputMissing"]


@pytest.mark.req("BD-057", "BD-268")
def test_machine_text_goes_on_in_a_stage() -> None:
    """No FROM and no text are right there; ``configs`` is a stage and no image."""
    spec = changed(SPEC, "source.containerfile", "")
    spec = changed(
        spec,
        "source.overrides",
        [{"architecture": "s390x", "containerfile": "FROM configs\nCOPY --from=x a b\n"}],
    )
    found = effective(spec, machine=MachineOSInputs())
    assert found.problems == ()
    assert found.per_architecture["arm64"].containerfile == ""
    assert [base.name for base in found.per_architecture["s390x"].bases] == ["docker.io/library/x:latest"]


def test_bases_are_listed_once() -> None:
    """One look-up serves all uses; where it is needed for the build platform too, that is said."""
    body = (
        "FROM --platform=$BUILDPLATFORM busybox AS b\nFROM --platform=$BUILDPLATFORM other AS o\n"
        "FROM docker.io/library/busybox:latest\nCOPY --from=tool x y\nCOPY --from=b x y\nCOPY --from=o x y\n"
    )
    found = effective(changed(SPEC, "source.containerfile", body)).per_architecture["arm64"].bases
    assert [(base.name, base.for_target, base.for_build) for base in found] == [
        ("docker.io/library/busybox:latest", True, True),
        ("docker.io/library/other:latest", False, True),
        ("docker.io/library/tool:latest", True, False),
    ]
    assert found[0].written == ("busybox", "docker.io/library/busybox:latest")
    assert found[0].lines == (1, 3)


@pytest.mark.req("BD-062")
def test_a_pin_is_known_by_every_text_that_a_builder_may_compare() -> None:
    """buildah 1.28 looks for pins of a FROM before it expands arguments: without that text it would pull the tag, which
    may have moved."""
    text = "ARG V=1\nFROM a.example.com/x:${V}\nCOPY --from=a.example.com/x:1 /x /\n"
    found = effective(changed(SPEC, "source.containerfile", text)).per_architecture["amd64"].bases
    assert [(each.name, each.written) for each in found] == [
        ("a.example.com/x:1", ("a.example.com/x:${V}", "a.example.com/x:1"))
    ]
