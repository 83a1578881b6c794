"""``polyarch up``, ``down``, ``status`` and ``polyarch sandbox …``: a real cluster without machines (SB-002 to SB-010).

Progress goes to stderr, the answer to stdout. ``-o json`` prints one document of schema ``polyarch.dev/sandbox/v1``.
"""

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import yaml
from cyclopts import App, Parameter

from polyarch.cli.cluster import kubeconfig as sandbox_kubeconfig
from polyarch.cli.cluster.progress import shown
from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.output.logs import errors_only
from polyarch.cli.output.render import Row, console, print_table
from polyarch.kube.errors import ApiError, ConnectionFailed
from polyarch.sandbox import document, processes, state
from polyarch.sandbox.binaries import search as binaries
from polyarch.sandbox.binaries import versions
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.document import Document
from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.registry import catalogue
from polyarch.sandbox.registry.seed import Seeded
from polyarch.sandbox.state import Folder, Numa, Settings, Taint

T = TypeVar("T")

Output = Annotated[Literal["text", "json", "yaml"], Parameter(name=["--output", "-o"])]
Name = Annotated[str, Parameter(name=["--name"], help="Which sandbox; several stand side by side.")]

UP_EPILOGUE = """Nothing needs root or a container, everything listens on loopback only. On a sandbox that runs, what \
is missing is started.

Examples:

- `polyarch up --nodes amd64=3,arm64=2` a cluster of five nodes
- `polyarch up --demo` what polyarch is for, in a minute
- `polyarch up -o json` one document for scripts

Exit codes:

- 0: it runs
- 1: --demo: a pod that could run did not
- 2: the command line or a file it names is wrong
- 3: a component did not start
"""
DOWN_EPILOGUE = """Its state is kept for the next `polyarch up`, unless --delete.

Examples:

- `polyarch down` stops every process of the sandbox
- `polyarch down --name test --delete` forgets the sandbox of that name, too

Exit codes:

- 0: it is stopped
- 2: the command line is wrong
- 3: there is no such sandbox, or it could not be stopped
"""
STATUS_EPILOGUE = """Examples:

- `polyarch status` every component, its address and where the logs are
- `polyarch status --name test -o json` one document for scripts

Exit codes:

- 0: all is well
- 1: a component or a node is not, or the sandbox is stopped
- 2: the command line is wrong
- 3: there is no such sandbox, or it could not be asked
"""
FETCH_EPILOGUE = """Examples:

- `polyarch sandbox fetch` in an image for CI, so that `polyarch up` starts at once there
- `polyarch sandbox fetch --assets /opt/binaries` takes what that folder holds

Exit codes:

- 0: all are there
- 2: the command line is wrong
- 3: a binary could not be had
"""
SEED_EPILOGUE = """FILE maps references to a list of platforms, or to a mapping with any of `platforms`, `kind` \
(index, image, artifact, bundle), `format` (oci, docker), `attestations`, `nested`, `withoutPlatform`, `missing`, \
`labels`, `unknown`, `private`, `users`, `identityTokens`, `scheme` (bearer, basic).

Examples:

- `polyarch sandbox seed images.yaml` images that exist nowhere else, for the sandbox's nodes and polyarch
- `polyarch sandbox seed - -o json < images.yaml` their digests for scripts

Exit codes:

- 0: pushed
- 2: the command line or FILE is wrong
- 3: there is no such sandbox, or its registry does not answer
"""
LIST_EPILOGUE = """Examples:

- `polyarch sandbox list` name, processes and kubeconfig of every sandbox
- `polyarch sandbox list -o json` one document for scripts

Exit codes:

- 0: listed, even if there are none
- 2: the command line is wrong
"""

app = App(name="sandbox", help="The sandbox's parts: binaries, images.")
up = App(name="up", help_epilogue=UP_EPILOGUE)
down = App(name="down", help_epilogue=DOWN_EPILOGUE)
status = App(name="status", help_epilogue=STATUS_EPILOGUE)


@up.default
def start(
    *,
    nodes: Annotated[str | None, Parameter(help="How many of which architecture.")] = None,
    numa: Annotated[str | None, Parameter(help="Layout of every node, ZONESxCPUS.")] = None,
    taint: Annotated[
        list[str] | None, Parameter(negative="", help="ARCHITECTURE:KEY[=VALUE]:EFFECT; may be repeated.")
    ] = None,
    name: Name = state.DEFAULT_NAME,
    only: Annotated[Literal["control-plane"] | None, Parameter(help="Start no polyarch.")] = None,
    fresh: Annotated[bool, Parameter(negative="", help="Forget an earlier sandbox of this name first.")] = False,
    demo: Annotated[bool, Parameter(negative="", help="Show the main job, with polyarch and without.")] = False,
    merge_kubeconfig: Annotated[
        bool, Parameter(negative="", help="Add the context to your own kubeconfig and make it the current one.")
    ] = False,
    registries_conf: Annotated[str | None, Parameter(help="A registries.conf for polyarch and the nodes.")] = None,
    ca: Annotated[str | None, Parameter(help="Certificates (PEM) to trust for registries.")] = None,
    assets: Annotated[str, Parameter(help="A folder that holds the binaries.")] = "",
    output: Output = "text",
) -> int:
    """Bring up a real control plane, a registry and fake nodes on this machine, and polyarch in it."""
    if demo and only:
        raise UsageError("--demo shows polyarch at work: leave --only out")
    settings = _settings(
        name,
        nodes=nodes,
        numa=numa,
        taints=taint,
        polyarch=only is None,
        registries_conf=registries_conf,
        ca=ca,
        fresh=fresh,
    )

    async def bring_up() -> tuple[Document, int]:
        with shown() as progress:
            sandbox = await Sandbox.start(settings, assets=assets, fresh=fresh, progress=progress)
        if merge_kubeconfig:
            _merge(sandbox)
        if demo:
            from polyarch.cli.cluster import demo as sandbox_demo

            outcome, code = await sandbox_demo.show(sandbox, quiet=output != "text")
            return await document.describe(sandbox, demo=outcome.demo), code
        return await document.describe(sandbox), 0

    result, code = _run(bring_up())
    if output == "text":
        if not demo:
            _print_summary(result)
    else:
        _print(msgspec.to_builtins(result), output)
    return code


@down.default
def stop(
    *,
    name: Name = state.DEFAULT_NAME,
    delete: Annotated[bool, Parameter(negative="", help="Forget its state, too.")] = False,
) -> int:
    """Stop the sandbox. Its state is kept for the next `polyarch up`, unless --delete."""

    async def end() -> None:
        sandbox = Sandbox.attach(name)
        if delete:
            merged = sandbox.state.merged_kubeconfig
            await sandbox.delete()
            if merged:
                sandbox_kubeconfig.remove(Path(merged), sandbox.context)
        else:
            await sandbox.stop()

    _run(end())
    option = "" if name == state.DEFAULT_NAME else f" --name {name}"
    again = f"stopped; `polyarch up{option}` brings it up again"
    print(f"sandbox {name} is {'deleted' if delete else again}", file=sys.stderr)
    return 0


@status.default
def show(*, name: Name = state.DEFAULT_NAME, output: Output = "text") -> int:
    """Show every component of the sandbox and whether it is well; exit code 1 if one is not."""

    async def look() -> Document:
        return await document.describe(Sandbox.attach(name))

    result = _run(look())
    if output == "text":
        _print_status(result)
    else:
        _print(msgspec.to_builtins(result), output)
    well = result.processes and all(process.healthy for process in result.processes)
    return 0 if well and all(node.ready for node in result.nodes) else 1


@app.command(help_epilogue=FETCH_EPILOGUE)
def fetch(
    *,
    assets: Annotated[str, Parameter(help="A folder that holds binaries already.")] = "",
    output: Output = "text",
) -> int:
    """Get the sandbox's binaries, and nothing else: for images and CI."""

    async def get() -> dict[str, Path]:
        with shown() as progress:
            return await binaries.find(assets=assets, progress=progress)

    found = _run(get())
    if output == "text":
        for program, path in found.items():
            print(f"{program}\t{path}")
    else:
        versioned = {
            "kubernetes": versions.KUBERNETES,
            "etcd": versions.ETCD,
            "registry": versions.REGISTRY,
            "binaries": {program: str(path) for program, path in found.items()},
        }
        _print({"schemaVersion": document.SCHEMA_VERSION, **versioned}, output)
    return 0


@app.command(help_epilogue=SEED_EPILOGUE)
def seed(
    file: Annotated[str, Parameter(help="YAML or JSON: image reference to platforms; - for standard input.")],
    /,
    *,
    name: Name = state.DEFAULT_NAME,
    output: Output = "text",
) -> int:
    """Push images to the sandbox's registry and print their digests."""
    data = _read_yaml(file)
    try:
        catalogue.read(data, file)
    except SandboxError as error:
        raise UsageError(str(error)) from error

    async def push() -> list[Seeded]:
        return await Sandbox.attach(name).registry.seed(data, origin=file)

    pushed = _run(push())
    if output == "text":
        for image in pushed:
            print(f"{image.image}\t{image.digest}\t{','.join(image.children)}")
    else:
        _print({"schemaVersion": document.SCHEMA_VERSION, "images": msgspec.to_builtins(pushed)}, output)
    return 0


@app.command(name="list", help_epilogue=LIST_EPILOGUE)
def list_(*, output: Output = "text") -> int:
    """List the sandboxes on this machine."""
    found = [(folder, _running(folder)) for folder in state.sandboxes()]
    if output == "text":
        for folder, running in found:
            print(f"{folder.name}\t{running or 'no'} processes\t{folder.kubeconfig}")
    else:
        listed = [
            {"name": folder.name, "running": running > 0, "kubeconfig": str(folder.kubeconfig)}
            for folder, running in found
        ]
        _print({"schemaVersion": document.SCHEMA_VERSION, "sandboxes": listed}, output)
    return 0


def _running(folder: Folder) -> int:
    return sum(processes.is_running(record) for record in processes.load(folder.records).values())


def _settings(
    name: str,
    *,
    nodes: str | None,
    numa: str | None,
    taints: list[str] | None,
    polyarch: bool,
    registries_conf: str | None,
    ca: str | None,
    fresh: bool,
) -> Settings:
    """What is asked for; what is not said stays as it was the last time."""
    try:
        known = None if fresh else Folder.of(name).load()
        settings = known.settings if known else Settings(name=name)
        changes: dict[str, Any] = {"polyarch": polyarch}
        if nodes is not None:
            changes["nodes"] = state.parse_nodes(nodes)
        if numa is not None:
            changes["numa"] = Numa.parse(numa)
        if taints is not None:
            changes["taints"] = tuple(Taint.parse(text) for text in taints)
        if registries_conf is not None:
            changes["registries_conf"] = _file("--registries-conf", registries_conf)
        if ca is not None:
            changes["ca"] = _file("--ca", ca)
        return msgspec.structs.replace(settings, **changes)
    except SandboxError as error:
        raise UsageError(str(error)) from error


def _file(option: str, path: str) -> str:
    """An absolute path: the sandbox's processes have another working folder."""
    if path and not Path(path).is_file():
        raise UsageError(f"{option} {path}: there is no such file")
    return str(Path(path).absolute()) if path else ""


def _run(work: Coroutine[object, object, T]) -> T:
    # stdout is for the answer; a live table on stderr is no place for warnings that it shows better.
    errors_only()
    try:
        return asyncio.run(work)
    except SandboxError as error:
        raise CouldNotComplete(str(error)) from error
    except (ApiError, ConnectionFailed) as error:
        raise CouldNotComplete(f"the sandbox's API server: {error}; see `polyarch status`") from error


def _merge(sandbox: Sandbox) -> None:
    path = sandbox_kubeconfig.user_file()
    sandbox_kubeconfig.merge(path, msgspec.json.decode(sandbox.kubeconfig.read_bytes()))
    sandbox.remember_merge(str(path))


def _read_yaml(file: str) -> Any:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        return yaml.safe_load(text)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: not YAML or JSON: {error}") from error


def _print(content: Any, output: str) -> None:
    if output == "json":
        print(msgspec.json.format(msgspec.json.encode(content), indent=2).decode())
    else:
        print(yaml.safe_dump(content, sort_keys=False), end="")


def _print_summary(result: Document) -> None:
    counts: dict[str, int] = {}
    for node in result.nodes:
        counts[node.architecture] = counts.get(node.architecture, 0) + 1
    nodes = ", ".join(f"{count} {architecture}" for architecture, count in counts.items()) or "none"
    option = "" if result.name == state.DEFAULT_NAME else f" --name {result.name}"
    print(f"sandbox     {result.name} (Kubernetes {result.version})")
    print(f"API server  {result.api_server}")
    print(f"nodes       {nodes}")
    print(f"registry    {result.registry.address} (plain HTTP; also stands for docker.io, quay.io and others)")
    print(f"kubeconfig  {result.kubeconfig}")
    print("\nNext:")
    print(f"  export KUBECONFIG={result.kubeconfig}")
    print("  kubectl get nodes -L kubernetes.io/arch")
    print("  kubectl run web --image=nginx:1.27")
    print(f"  polyarch status{option}    polyarch down{option}    polyarch up --demo{option}")


def _print_status(result: Document) -> None:
    if not result.processes:
        console().print(
            f"sandbox {result.name} is stopped; `polyarch up --name {result.name}` brings it up", markup=False
        )
        return
    rows = [
        Row(
            (
                process.name,
                str(process.pid),
                process.url,
                process.detail or ("" if process.healthy else "not ") + "healthy",
            ),
            "" if process.healthy else "red",
        )
        for process in result.processes
    ]
    rows += [
        Row((f"node {node.name}", "", "", "ready" if node.ready else "not ready"), "" if node.ready else "red")
        for node in result.nodes
    ]
    print_table(("COMPONENT", "PID", "ADDRESS", "STATE"), rows)
    print(f"\nlogs: {Path(result.audit_log).parent}")
