"""Specs of ImageBuilds that are refused, and what the refusal says: by the API server and of a file alike."""

from typing import Any

Json = dict[str, Any]

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def spec(**members: Any) -> Json:
    """The smallest spec, with these members instead."""
    source = {"containerfile": "FROM docker.io/library/busybox:1.36\n"}
    output = {"repository": "registry.example.com/team/web"}
    return {"source": source, "output": output} | members


def source(**members: Any) -> Json:
    return spec(source=spec()["source"] | members)


def bare(**members: Any) -> Json:
    return spec(source=members)


def output(**members: Any) -> Json:
    return spec(output=spec()["output"] | members)


def git(**members: str) -> Json:
    usual = {"url": "https://git.example.com/team/web.git", "commit": COMMIT}
    return source(context={"type": "Git", "git": usual | members})


def wanted(**members: Any) -> Json:
    return spec(architectures=members)


def scheduled(**members: Any) -> Json:
    return spec(scheduling={"perArchitecture": [{"architecture": "arm64"} | members]})


def tolerating(**members: Any) -> Json:
    return scheduled(tolerations=[members])


REFUSED: tuple[tuple[str, Json, list[str]], ...] = (
    ("no source", {"output": spec()["output"]}, ["spec.source", "equired"]),
    ("no output", {"source": spec()["source"]}, ["spec.output", "equired"]),
    ("no containerfile", bare(), ["spec.source", "has no Containerfile"]),
    (
        "overrides with arguments alone",
        bare(overrides=[{"architecture": "arm64", "buildArgs": {"A": "b"}}]),
        ["spec.source", "has no Containerfile"],
    ),
    ("containerfile empty", bare(containerfile=""), ["spec.source.containerfile", "at least 1|must not be empty"]),
    (
        "containerfile too long",
        bare(containerfile="#" * (128 * 1024 + 1)),
        ["spec.source.containerfile", "131072|more than"],
    ),
    (
        "containerfile too many bytes",
        bare(containerfile="é" * (64 * 1024 + 1)),
        ["spec.source.containerfile", "longer than 131072 bytes"],
    ),
    (
        "two containerfiles",
        source(containerfileFrom={"name": "web"}),
        ["spec.source", "both containerfile and containerfileFrom"],
    ),
    (
        "two containerfiles in an override",
        source(overrides=[{"architecture": "arm64", "containerfile": "FROM a", "containerfileFrom": {"name": "web"}}]),
        ["spec.source.overrides[0]", "both containerfile and containerfileFrom"],
    ),
    ("override without architecture", source(overrides=[{}]), ["spec.source.overrides[0].architecture", "equired"]),
    (
        "override twice",
        source(overrides=[{"architecture": "arm64"}, {"architecture": "arm64"}]),
        ["spec.source.overrides[1]", "uplicate|twice"],
    ),
    ("alias", wanted(mode="Explicit", list=["x86_64"]), ["spec.architectures.list[0]", "'x86_64'", "write amd64"]),
    ("another alias", wanted(include=["aarch64"]), ["spec.architectures.include[0]", "'aarch64'", "write arm64"]),
    ("upper case", wanted(exclude=["ARM64"]), ["spec.architectures.exclude[0]", "'ARM64'", "write arm64"]),
    ("alias in upper case", wanted(include=["X86_64"]), ["spec.architectures.include[0]", "write amd64"]),
    (
        "no architecture at all",
        wanted(mode="Explicit", list=["noarch"]),
        ["spec.architectures.list[0]", "write the architectures to build for"],
    ),
    ("strange", wanted(include=["arm/v7"]), ["spec.architectures.include[0]", "such as amd64 or arm64"]),
    (
        "alias of an override",
        source(overrides=[{"architecture": "x86_64"}]),
        ["spec.source.overrides[0].architecture", "write amd64"],
    ),
    ("host alias", spec(emulation={"hosts": ["x86_64"]}), ["spec.emulation.hosts[0]", "write amd64"]),
    (
        "scheduling alias",
        spec(scheduling={"perArchitecture": [{"architecture": "aarch64"}]}),
        ["spec.scheduling.perArchitecture[0].architecture", "write arm64"],
    ),
    ("argument name", source(buildArgs={"my-mode": "a"}), ["spec.source.buildArgs", "letters, digits and '_'"]),
    ("argument lines", source(buildArgs={"MODE": "a\nb"}), ["spec.source.buildArgs.MODE", "no line breaks"]),
    ("argument length", source(buildArgs={"MODE": "a" * 4097}), ["spec.source.buildArgs.MODE", "4096"]),
    (
        "arguments",
        source(buildArgs={f"A{index}": "" for index in range(65)}),
        ["spec.source.buildArgs", "64"],
    ),
    ("automatic argument", source(buildArgs={"TARGETARCH": "arm64"}), ["spec.source.buildArgs", "SOURCE_DATE_EPOCH"]),
    (
        "automatic time",
        source(overrides=[{"architecture": "arm64", "buildArgs": {"SOURCE_DATE_EPOCH": "1"}}]),
        ["spec.source.overrides[0].buildArgs", "every build sets itself"],
    ),
    ("stage", source(target="a b"), ["spec.source.target"]),
    ("context type", source(context={"type": "Directory"}), ["spec.source.context.type", "ConfigMap"]),
    ("no git", source(context={"type": "Git"}), ["spec.source.context", "spec.source.context.git is required"]),
    (
        "git without its type",
        source(context={"git": {"url": "https://git.example.com/a", "commit": COMMIT}}),
        ["spec.source.context", "allowed with no other type"],
    ),
    (
        "another member",
        source(
            context={
                "type": "Image",
                "configMap": {"name": "web"},
                "image": {"reference": f"a.example/b@sha256:{'a' * 64}"},
            }
        ),
        ["spec.source.context", "spec.source.context.configMap", "allowed with no other type"],
    ),
    (
        "image by tag",
        source(context={"type": "Image", "image": {"reference": "registry.example.com/team/files:1"}}),
        ["spec.source.context.image.reference", "must end in a digest"],
    ),
    ("git by ssh", git(url="ssh://git.example.com/a"), ["spec.source.context.git.url", "https://", "credentials"]),
    ("git by scp", git(url="git@example.com:a"), ["spec.source.context.git.url", "https://"]),
    ("git with user", git(url="https://user:pw@git.example.com/a"), ["spec.source.context.git.url", "user name"]),
    ("git with token", git(url="https://token@git.example.com/a"), ["spec.source.context.git.url", "password"]),
    ("git without path", git(url="https://git.example.com"), ["spec.source.context.git.url", "HOST"]),
    ("git with space", git(url="https://git.example.com/a b"), ["spec.source.context.git.url", "without spaces"]),
    ("branch", git(commit="main"), ["spec.source.context.git.commit", "40 or 64 hex digits"]),
    ("short commit", git(commit=COMMIT[:12]), ["spec.source.context.git.commit", "40 or 64 hex digits"]),
    ("directory absolute", git(directory="/etc"), ["spec.source.context.git.directory", "inside the repository"]),
    ("directory outside", git(directory="a/../../b"), ["spec.source.context.git.directory", "inside the repository"]),
    ("secret id", source(secrets=[{"id": "a,b", "secret": {"name": "a", "key": "b"}}]), ["spec.source.secrets[0].id"]),
    ("secret without key", source(secrets=[{"id": "a", "secret": {"name": "a"}}]), ["spec.source.secrets[0].secret"]),
    ("base policy", spec(baseImages={"policy": "Always"}), ["spec.baseImages.policy", "OnBuild"]),
    (
        "no interval",
        spec(baseImages={"policy": "Interval"}),
        ["spec.baseImages", "spec.baseImages.interval is required"],
    ),
    (
        "interval short",
        spec(baseImages={"policy": "Interval", "interval": "4m59s"}),
        ["spec.baseImages.interval", "a duration from 5m to 8760h"],
    ),
    ("interval", spec(baseImages={"interval": "daily"}), ["spec.baseImages.interval"]),
    (
        "substitute twice",
        spec(baseImages={"substitute": [{"from": "a.example/b", "to": "c"}, {"from": "a.example/b", "to": "d"}]}),
        ["spec.baseImages.substitute[1]", "uplicate|twice"],
    ),
    ("mode", wanted(mode="All"), ["spec.architectures.mode", "Explicit"]),
    ("explicit without list", wanted(mode="Explicit"), ["spec.architectures", "spec.architectures.list is required"]),
    ("list empty", wanted(mode="Explicit", list=[]), ["spec.architectures.list", "at least 1"]),
    ("list with auto", wanted(list=["amd64"]), ["spec.architectures", "only with spec.architectures.mode: Explicit"]),
    (
        "include with explicit",
        wanted(mode="Explicit", list=["amd64"], include=["arm64"]),
        ["spec.architectures", "only with spec.architectures.mode: Auto"],
    ),
    (
        "included and excluded",
        wanted(include=["arm64", "s390x"], exclude=["s390x"]),
        ["spec.architectures", "name the same architecture"],
    ),
    ("listed twice", wanted(include=["arm64", "arm64"]), ["spec.architectures.include[1]", "uplicate|twice"]),
    ("list too long", wanted(include=[f"a{index}" for index in range(17)]), ["spec.architectures.include", "16"]),
    ("settle", wanted(settle="2h"), ["spec.architectures.settle", "0s to 1h"]),
    (
        "selector",
        wanted(nodeSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
        ["spec.architectures.nodeSelector", "needs? at least one value"],
    ),
    (
        "index never",
        wanted(mode="Explicit", list=["amd64", "arm64"]) | {"output": output(index="Never")["output"]},
        ["spec", "spec.output.index: Never"],
    ),
    ("repository without host", output(repository="team/web"), ["spec.output.repository", "host of a registry"]),
    ("repository of one word", output(repository="web"), ["spec.output.repository", "host of a registry"]),
    ("repository with tag", output(repository="a.example/web:1"), ["spec.output.repository", "no tag and no digest"]),
    (
        "repository with digest",
        output(repository=f"a.example/web@sha256:{'a' * 64}"),
        ["spec.output.repository", "no tag and no digest"],
    ),
    ("repository in upper case", output(repository="a.example/Web"), ["spec.output.repository", "lower-case letters"]),
    ("repository with port alone", output(repository="a.example:5000"), ["spec.output.repository", "host"]),
    ("repository with scheme", output(repository="https://a.example/web"), ["spec.output.repository"]),
    (
        "staging without host",
        output(stagingRepository="staging/web"),
        ["spec.output.stagingRepository", "host of a registry"],
    ),
    (
        "staging is the repository",
        output(stagingRepository="registry.example.com/team/web"),
        ["spec.output", "name another one"],
    ),
    ("tag", output(tags=["-latest"]), ["spec.output.tags[0]", "1 to 128"]),
    ("tag with colon", output(tags=["good", "web:1"]), ["spec.output.tags[1]", "1 to 128"]),
    ("tag empty", output(tags=[""]), ["spec.output.tags[0]", "1 to 128"]),
    ("tag too long", output(tags=["a" * 129]), ["spec.output.tags[0]", "1 to 128"]),
    ("tag twice", output(tags=["a", "a"]), ["spec.output.tags[1]", "uplicate|twice"]),
    ("tags", output(tags=[f"a{index}" for index in range(17)]), ["spec.output.tags", "16"]),
    ("format", output(format="oci"), ["spec.output.format", "OCI"]),
    (
        "annotations of a list",
        output(format="Docker", annotations={"a": "b"}),
        ["spec.output", "manifest lists of Docker have none"],
    ),
    ("nothing required", output(partial={"required": []}), ["spec.output.partial.required", "at least 1"]),
    ("push secret without name", output(pushSecret={}), ["spec.output.pushSecret.name", "equired"]),
    ("strategy", spec(strategy="Cross"), ["spec.strategy", "PreferNative"]),
    ("retries", spec(retries=11), ["spec.retries", "10"]),
    ("timeout", spec(timeouts={"build": "9s"}), ["spec.timeouts.build", "a duration from 10s to 168h"]),
    *(
        (f"{name} without end", spec(timeouts={name: text}), [f"spec.timeouts.{name}", "a duration from 10s to 168h"])
        for name, text in (
            ("nodeWait", "1000000h"),
            ("build", "2000000h"),
            ("preflight", "604801s"),
            ("index", "2562047h"),
        )
    ),
    (
        "interval without end",
        spec(baseImages={"policy": "Interval", "interval": "8761h"}),
        ["spec.baseImages.interval", "a duration from 5m to 8760h"],
    ),
    (
        "timeout of one without end",
        scheduled(buildTimeout="1000000h"),
        ["spec.scheduling.perArchitecture[0].buildTimeout", "a duration from 10s to 168h"],
    ),
    ("timeout in words", spec(timeouts={"index": "long"}), ["spec.timeouts.index"]),
    ("parallel", spec(scheduling={"maxParallel": -1}), ["spec.scheduling.maxParallel", "0"]),
    (
        "selected architecture",
        scheduled(nodeSelector={"kubernetes.io/arch": "amd64"}),
        ["spec.scheduling.perArchitecture[0].nodeSelector", "spec.strategy"],
    ),
    (
        "selected system",
        scheduled(nodeSelector={"a": "b", "beta.kubernetes.io/os": "linux"}),
        ["spec.scheduling.perArchitecture[0].nodeSelector", "beta.kubernetes.io/os"],
    ),
    (
        "resources",
        scheduled(resources={"requests": {"memory": "lots"}}),
        ["spec.scheduling.perArchitecture[0].resources.requests.memory"],
    ),
    ("toleration without key", tolerating(value="a"), ["tolerations[0]", "operator has to be Exists"]),
    ("toleration of any value", tolerating(key="a", operator="Exists", value="b"), ["tolerations[0]", "has a value"]),
    ("toleration for a time", tolerating(key="a", tolerationSeconds=5), ["tolerations[0]", "NoExecute"]),
    (
        "timeout of one",
        scheduled(buildTimeout="1s"),
        ["spec.scheduling.perArchitecture[0].buildTimeout", "a duration from 10s to 168h"],
    ),
    ("profile", spec(builder={"securityProfile": "Root"}), ["spec.builder.securityProfile", "UserNamespace"]),
    ("account", spec(builder={"serviceAccount": "A B"}), ["spec.builder.serviceAccount"]),
    ("time", spec(reproducible={"timestamp": -1}), ["spec.reproducible.timestamp", "0"]),
    ("access", spec(registryAccess="None"), ["spec.registryAccess", "Controller"]),
    ("no history", spec(history={"successful": 0}), ["spec.history.successful", "1"]),
    ("much history", spec(history={"failed": 101}), ["spec.history.failed", "100"]),
    ("kept images", spec(history={"images": "Prune"}), ["spec.history.images", "Delete"]),
    (
        "rebuild without token",
        spec(rebuild={"architectures": ["arm64"]}),
        ["spec.rebuild", "need a spec.rebuild.token"],
    ),
    ("token too long", spec(rebuild={"token": "a" * 64}), ["spec.rebuild.token", "63"]),
    ("suspend", spec(suspend="yes"), ["spec.suspend", "boolean|true or false"]),
)
"""Name, spec, and regular expressions that the message has all of."""

ACCEPTED: tuple[tuple[str, Json], ...] = (
    ("the smallest", spec()),
    ("by reference", bare(containerfileFrom={"name": "web"})),
    ("only overrides", bare(overrides=[{"architecture": "arm64", "containerfile": "FROM a"}])),
    ("longest containerfile", bare(containerfile="#" * (128 * 1024))),
    ("unknown architecture", wanted(mode="Explicit", list=["riscv64", "e2k"])),
    ("sixteen architectures", wanted(mode="Explicit", list=[f"arch{index}" for index in range(16)])),
    ("nobody is excluded", wanted(include=[], exclude=[])),
    ("one without index", wanted(mode="Explicit", list=["arm64"]) | {"output": output(index="Never")["output"]}),
    ("longest commit", git(commit="A" * 64, directory="images/web")),
    ("git by port", git(url="http://[::1]:8080/a.git")),
    ("config map", source(context={"type": "ConfigMap", "configMap": {"name": "files"}})),
    ("image", source(context={"type": "Image", "image": {"reference": f"a.example/b@sha256:{'a' * 64}"}})),
    ("secret", source(secrets=[{"id": "npmrc", "secret": {"name": "npm", "key": ".npmrc"}, "rebuildOnChange": True}])),
    ("argument", source(buildArgs={"_MODE": "a 'b' \"c\" $d ; é", "EMPTY": ""})),
    ("repository on a port", output(repository="localhost:5000/a/b/c__d-e.f", stagingRepository="10.0.0.1/staging")),
    ("repository by address", output(repository="[2001:db8::1]:5000/team/app", tags=["_", "1.0-rc.1", "A" * 128])),
    ("interval", spec(baseImages={"policy": "Interval", "interval": "5m"})),
    ("interval not used", spec(baseImages={"policy": "Never", "interval": "24h"})),
    (
        "longest",
        spec(timeouts={"build": "168h", "nodeWait": "10s"}, baseImages={"policy": "Interval", "interval": "8760h"}),
    ),
    (
        "scheduled",
        scheduled(
            nodeSelector={"disk": "fast"},
            tolerations=[{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoSchedule"}],
            resources={"requests": {"cpu": 2, "memory": "4Gi"}, "limits": {"memory": "4Gi"}},
            buildTimeout="10s",
            runtimeClassName="gvisor",
            priorityClassName="low",
        ),
    ),
    ("rebuild", spec(rebuild={"token": "2026-01-01", "architectures": ["arm64"]})),
    ("docker", output(format="Docker", annotations={})),
    ("partial", output(partial={"required": ["amd64"]}, annotations={"org.example/team": "web"})),
)
