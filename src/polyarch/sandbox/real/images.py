"""polyarch's own image for real nodes, made of the installation that runs: Python, polyarch and what it depends on.

No container engine, base image or network is needed, and the image holds exactly the code whose ``polyarch up`` was
called. ``make image`` builds the image of a release.
"""

import asyncio
import hashlib
import importlib.metadata
import importlib.util
import io
import os
import py_compile
import re
import shutil
import ssl
import stat
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Final, NamedTuple

import msgspec

import polyarch
from polyarch.oci.documents import OCI_INDEX, OCI_MANIFEST
from polyarch.operator.settings import DEFAULT_BUILDER_IMAGE, DEFAULT_IMAGE
from polyarch.platforms import Platform
from polyarch.sandbox.binaries import cache_home
from polyarch.sandbox.control_plane import Layout
from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.files import write_json, write_private
from polyarch.sandbox.real import machine
from polyarch.sandbox.registry.images import OCI_CONFIG, Manifest, described, platform_document
from polyarch.sandbox.registry.seed import Registry
from polyarch.sandbox.state import Folder
from polyarch.sandbox.versions import host_architecture

HOME: Final = "opt/polyarch"
PUSHED: Final = "image.json"
EXTRAS: Final = ("fast", "numa")
"""Those that the image of a release has."""
KEPT_LAYERS: Final = 8
"""In the cache: those that were used last."""
LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
LEFT_OUT: Final = {
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "lib2to3",
    "ensurepip",
    "pydoc_data",
    "__pycache__",
}
USER: Final = "65532:65532"
CAPABILITIES: Final = "security.capability"
"""The extended attribute of a file with capabilities."""
_ENTRY: Final = "#!{python} -P\nimport sys\nfrom polyarch.cli import main\nsys.exit(main())\n"


class ImageFiles(NamedTuple):
    """An image to be: content by path, and how it starts."""

    files: Mapping[str, Path]
    entry_point: tuple[str, ...]
    environment: Mapping[str, str]
    user: str = ""
    layers: tuple[bytes, ...] = ()
    """Layers below the one of these files, as archives; lowest first."""


def of_program(program: Path, path: str) -> ImageFiles:
    """An image of one static program, at this path."""
    return ImageFiles({path.lstrip("/"): program}, (path,), {"PATH": str(Path(path).parent)})


def of_installation(folder: Path, cache: Path) -> ImageFiles:
    """polyarch's; ``folder`` is for files that are made for it. Layers of which nothing has changed are taken from
    ``cache``: that of Python and the distributions, which is nine tenths of the image, and that of polyarch."""
    environment = {
        "PATH": f"/{HOME}/bin:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": f"/{HOME}/site",
        "PYTHONHOME": str(sys.base_prefix),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONNOUSERSITE": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    base, own = dict(_base_files()), dict(_own_files())
    layers = (
        kept_layer(cache, base | _machine_files(), lambda: _with_libraries(base, folder)),
        kept_layer(cache, own, lambda: _with_entry_point(own, folder)),
    )
    return ImageFiles({}, (f"/{HOME}/bin/polyarch",), environment, USER, layers)


def kept_layer(cache: Path, inputs: Mapping[str, Path], make: Callable[[], Mapping[str, Path]]) -> bytes:
    """The layer of the files that ``make`` returns, which depend on ``inputs`` and on the interpreter alone."""
    kept = cache / f"layer-{_fingerprint(inputs)}.tar"
    try:
        content = kept.read_bytes()
        kept.touch()
    except FileNotFoundError:
        content = _archive(make())
        write_private(kept, content)
        for each in sorted(cache.glob("layer-*.tar"), key=lambda each: each.stat().st_mtime)[:-KEPT_LAYERS]:
            each.unlink(missing_ok=True)
    return content


def _base_files() -> Iterator[tuple[str, Path]]:
    """Target and source of each file, but for the libraries of the machine that these need."""
    python = Path(sys.executable).resolve()
    yield _inside(python), python
    library = Path(sysconfig.get_path("stdlib"))
    for source in _files(library, besides={"site-packages", "dist-packages"}):
        yield _inside(source), source
    for target, source in _distributions():
        yield f"{HOME}/site/{target}", source


def _with_libraries(files: dict[str, Path], folder: Path) -> dict[str, Path]:
    python = Path(sys.executable).resolve()
    programs = [path for path in files.values() if path == python or ".so" in path.suffixes]
    brought = {path.resolve() for path in files.values()}  # a package finds its own libraries by their place
    files = files | {_inside(path): path for path in _libraries(programs) if path.resolve() not in brought}
    files |= _written(_ETC, folder)
    if authorities := ssl.get_default_verify_paths().cafile:
        files["etc/ssl/certs/ca-certificates.crt"] = Path(authorities)
    return _with_bytecode(files, folder)


def _with_entry_point(files: dict[str, Path], folder: Path) -> dict[str, Path]:
    entry = folder / "polyarch"
    entry.write_text(_ENTRY.format(python=f"/{_inside(Path(sys.executable).resolve())}"))
    entry.chmod(0o755)
    return _with_bytecode(files | {f"{HOME}/bin/polyarch": entry}, folder)


def _with_bytecode(files: dict[str, Path], folder: Path) -> dict[str, Path]:
    sources = [(target, source) for target, source in files.items() if source.suffix == ".py"]
    compiled = folder / "compiled"
    return files | {importlib.util.cache_from_source(name): _compiled(each, compiled / name) for name, each in sources}


BUILDER_PROGRAMS: Final = ("buildah", "unshare", "nsenter", "mount", "sleep", "mkdir", "mv", "cp", "sha256sum", "wc")
"""What the script of a build calls besides its shell; Git contexts would need more."""
NETWORK_HELPERS: Final = tuple(
    Path(folder) / "podman/netavark" for folder in ("/usr/local/libexec", "/usr/local/lib", "/usr/libexec", "/usr/lib")
)
"""Where buildah looks in newer versions for the program without which it makes no container, however it is isolated."""
POLICY: Final = Path("/etc/containers/policy.json")


def of_builder(folder: Path) -> ImageFiles:
    """An image in which build pods run the buildah of this machine; ``folder`` as in :func:`of_installation`."""
    files = of_programs(BUILDER_PROGRAMS) | _written(_ETC | {"run/.keep": ""}, folder)  # rootless builds mount there
    if authorities := ssl.get_default_verify_paths().cafile:
        files["etc/ssl/certs/ca-certificates.crt"] = Path(authorities)
    if POLICY.exists():
        files[_inside(POLICY)] = POLICY
    if helper := next((path for path in NETWORK_HELPERS if path.exists()), None):
        files |= {_inside(path): path for path in (helper, *_libraries([helper]))}
    return ImageFiles(files, ("/bin/sh",), {"PATH": "/usr/bin:/bin"})


def of_programs(names: Iterable[str]) -> dict[str, Path]:
    """A shell and programs of this machine in ``/usr/bin``, with their libraries, by path. SandboxError if one is
    missing."""
    found = {name: shutil.which(name, path=machine.search_path()) for name in ("sh", *names)}
    if missing := [name for name, path in found.items() if path is None]:
        raise SandboxError(f"an image of programs of this machine: it has no {', '.join(missing)}")
    programs = {name: Path(path) for name, path in found.items() if path is not None}
    files = {f"usr/bin/{name}": path for name, path in programs.items()} | {"bin/sh": programs["sh"]}
    return files | {_inside(path): path for path in _libraries(list(programs.values()))}


def _written(contents: Mapping[str, str], folder: Path) -> dict[str, Path]:
    """Files with these contents, below the folder."""
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return {name: folder / name for name in contents}


def _compiled(source: Path, target: Path) -> Path:
    """The bytecode of a module: what Python has kept, if it is of this source, else made now."""
    kept = Path(importlib.util.cache_from_source(str(source)))
    known = source.stat()
    expected = importlib.util.MAGIC_NUMBER + bytes(4) + int(known.st_mtime).to_bytes(4, "little")
    try:
        with kept.open("rb") as file:
            if file.read(12) == expected:
                return kept
    except FileNotFoundError:
        pass
    mode = PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), cfile=str(target), dfile=str(source), invalidation_mode=mode, quiet=2)
    if not target.exists():  # a template, or for another version of Python: nobody imports it
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    return target


_ETC: Final = {
    "etc/passwd": "root:x:0:0::/:/bin/sh\nnonroot:x:65532:65532::/:/bin/sh\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}


def _inside(path: Path) -> str:
    return str(path).lstrip("/")


def _files(folder: Path, *, besides: set[str]) -> Iterator[Path]:
    for each in sorted(folder.iterdir()):
        if each.name in LEFT_OUT or each.name in besides or each.name.startswith("_tkinter"):
            continue
        if each.is_dir():
            yield from _files(each, besides=besides)
        elif each.suffix not in {".pyc", ".a"}:
            yield each


def _own_files() -> Iterator[tuple[str, Path]]:
    """Target and source of each file of polyarch."""
    own = Path(polyarch.__file__).parent
    for source in _files(own, besides=set()):
        yield f"{HOME}/site/polyarch/{source.relative_to(own)}", source
    metadata = importlib.metadata.distribution("polyarch")
    for listed in metadata.files or ():
        if listed.parts[0].endswith(".dist-info") and Path(str(listed.locate())).is_file():
            yield f"{HOME}/site/{listed}", Path(str(listed.locate()))


def _distributions() -> Iterator[tuple[str, Path]]:
    """Target below ``site`` and source of each file of the distributions that polyarch needs."""
    for name in sorted(_needed("polyarch", set(EXTRAS))):
        for listed in importlib.metadata.distribution(name).files or ():
            source = Path(str(listed.locate())).resolve()
            inside = str(listed)
            if inside.startswith("..") or LEFT_OUT & set(listed.parts[:-1]) or source.suffix == ".pyc":
                continue
            if source.is_file():
                yield inside, source


def _needed(name: str, extras: set[str]) -> set[str]:
    """The distributions that this one needs, with theirs, as they are installed."""
    found: set[str] = set()
    waiting = [(name, extras)]
    while waiting:
        one, wanted = waiting.pop()
        try:
            requirements = importlib.metadata.distribution(one).requires or ()
        except importlib.metadata.PackageNotFoundError:
            continue  # an extra that this installation lacks
        for text in requirements:
            needed, _, marker = text.partition(";")
            match = re.match(r"[A-Za-z0-9._-]+", needed.strip())
            extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", marker)
            if match is None or (extra and extra[1] not in wanted) or _is_absent(match[0]):
                continue
            if match[0] not in found:
                found.add(match[0])
                waiting.append((match[0], set()))
    return found


def _is_absent(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return True
    return False


def _libraries(programs: list[Path]) -> set[Path]:
    """The shared libraries of these programs and extensions, as the dynamic linker of this machine finds them."""
    asked = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False, timeout=60)
    paths = re.findall(r"(?:=>\s+|^\s+)(/\S+) \(0x", asked.stdout, re.MULTILINE)
    if not paths:
        raise SandboxError(f"polyarch's image: ldd names no library of {programs[0]}: {asked.stderr.strip()}")
    return {Path(each) for each in paths}


def _archive(files: Mapping[str, Path]) -> bytes:
    """A layer with these files."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted({str(parent) for each in files for parent in Path(each).parents} - {"."}):
            entry = tarfile.TarInfo(path)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for path in ("tmp", "var/tmp"):
            temporary = tarfile.TarInfo(path)
            temporary.type, temporary.mode = tarfile.DIRTYPE, 0o1777
            archive.addfile(temporary)
        for path, source in sorted(files.items()):
            data, known = source.read_bytes(), source.stat()
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            entry.mtime = int(known.st_mtime)  # by which Python knows that bytecode is of its source
            entry.mode = 0o755 if known.st_mode & stat.S_IXUSR or ".so" in source.suffixes else 0o644
            entry.mode |= known.st_mode & (stat.S_ISUID | stat.S_ISGID)
            entry.pax_headers = _capabilities(source)
            archive.addfile(entry, io.BytesIO(data))
    return content.getvalue()


def manifest(wanted: ImageFiles, architecture: str) -> Manifest:
    """An index with the image of these files for this architecture."""
    contents = (*wanted.layers, *([_archive(wanted.files)] if wanted.files else []))
    layers = [described(LAYER, each) for each in contents]
    platform = Platform.of("linux", architecture)
    configuration = msgspec.json.encode(
        {
            **platform_document(platform),
            "config": {
                "Entrypoint": list(wanted.entry_point),
                "Env": [f"{name}={value}" for name, value in wanted.environment.items()],
                **({"User": wanted.user} if wanted.user else {}),
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [each.digest for each in layers]},
        }
    )
    image = msgspec.json.encode(
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": described(OCI_CONFIG, configuration).document(),
            "layers": [each.document() for each in layers],
        }
    )
    child = Manifest(described(OCI_MANIFEST, image), image, (configuration, *contents))
    listed = child.descriptor.document(platform=platform_document(platform))
    index = msgspec.json.encode({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [listed]})
    return Manifest(described(OCI_INDEX, index), index, children=(child,))


def _capabilities(source: Path) -> dict[str, str]:
    """The file capabilities of a program, as a tar archive has them."""
    try:
        known = os.getxattr(source, CAPABILITIES)
    except OSError:
        return {}
    return {f"SCHILY.xattr.{CAPABILITIES}": known.decode("utf-8", "surrogateescape")}


def fingerprint() -> str:
    """Changes with every file of polyarch's image."""
    return _fingerprint({**dict(_base_files()), **dict(_own_files()), **_machine_files()})


def _fingerprint(files: Mapping[str, Path]) -> str:
    digest = hashlib.sha256(f"{sys.version} {Path(sys.executable).resolve()}\n".encode())
    for target, source in files.items():
        known = source.stat()
        digest.update(f"{target} {known.st_size} {known.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _machine_files() -> dict[str, Path]:
    """What changes with the machine's own libraries and authorities."""
    paths = [Path("/etc/ld.so.cache"), Path(ssl.get_default_verify_paths().cafile or "/etc/ssl/cert.pem")]
    return {str(each): each for each in paths if each.exists()}


class OwnImage(msgspec.Struct, frozen=True):
    """polyarch's image in the registry of a sandbox, and what it was made of."""

    digest: str
    fingerprint: str
    buildah: str = ""
    """Version of the buildah in the builder image; empty if there is none."""


def pushed_image(folder: Folder) -> OwnImage | None:
    """None before the first start."""
    try:
        return msgspec.json.decode((folder.root / PUSHED).read_bytes(), type=OwnImage)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


async def push_images(layout: Layout, registry: Registry, *, builds: bool) -> None:
    """Push polyarch's image, unless the registry has it, the program of the NUMA scheduler, and with ``builds`` the
    image of build pods."""
    folder, known = layout.folder, pushed_image(layout.folder)
    current, architecture = await asyncio.to_thread(fingerprint), host_architecture()
    made, cache = folder.root / "image", cache_home(os.environ) / "images"
    if known is None or known.fingerprint != current:
        own = await asyncio.to_thread(lambda: manifest(of_installation(made, cache), architecture))
        await registry.push(DEFAULT_IMAGE, own)
        await asyncio.to_thread(shutil.rmtree, made)
        known = OwnImage(own.digest, current, known.buildah if known is not None else "")
        write_json(folder.root / PUSHED, known)
        scheduler = of_program(layout.binaries["kube-scheduler"], "/usr/local/bin/kube-scheduler")
        await registry.push(
            f"registry.k8s.io/kube-scheduler:v{layout.kubernetes}",
            await asyncio.to_thread(manifest, scheduler, architecture),
        )
    if builds and (version := await asyncio.to_thread(_buildah_version)) != known.buildah:
        builder = await asyncio.to_thread(lambda: manifest(of_builder(made), architecture))
        await registry.push(DEFAULT_BUILDER_IMAGE, builder)
        await asyncio.to_thread(shutil.rmtree, made)
        write_json(folder.root / PUSHED, msgspec.structs.replace(known, buildah=version))


def _buildah_version() -> str:
    asked = subprocess.run(
        [machine.program("buildah"), "--version"], capture_output=True, text=True, check=False, timeout=60
    )
    return asked.stdout.strip() or "unknown"
