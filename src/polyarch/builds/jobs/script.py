"""``build.sh``: what runs in the builder image, rendered for one architecture.

It needs ``sh`` and buildah; profile Rootless also ``unshare``, ``nsenter``, ``mount`` and ``sleep``, images in
Docker's format ``mkdir``, ``mv``, ``sha256sum`` and ``wc``, Git contexts ``git``, ``cat`` and ``rm``, entitlements
``cp`` and ``mkdir``. Every value that comes from a user stands in single quotes, so the shell reads no text of a user.
Every way out that is not classified ends with status 1: the status of buildah, and so of a ``RUN``, never becomes the
container's."""

from collections.abc import Iterable, Iterator
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from polyarch.builds import names
from polyarch.builds.api.resources import GitContext
from polyarch.builds.jobs import contract
from polyarch.builds.jobs.spec import ArchitectureJobSpec, MachineJobMounts
from polyarch.oci.image.elf import Machine, expected_machine

_SYNTAX_STAGE = "polyarch-syntax-check"
_IMAGE_ID = f"{contract.STORAGE}/image-id"
_FAILED = f"{contract.STORAGE}/failed"
_CHECKOUT = f"{contract.CONTEXT}/checkout"
_ENTITLED = f"{contract.STORAGE}/entitled"
_DOCKER_DIRECTORY = f"{contract.STORAGE}/docker"


def quoted(text: str) -> str:
    """The text as one word that the shell takes as it is."""
    return "'" + text.replace("'", "'\\''") + "'"


def build_script(job_spec: ArchitectureJobSpec) -> str:
    """The script for one architecture."""
    parts = [
        _BEGINNING,
        *([_USER_NAMESPACE] if job_spec.profile == "UserNamespace" else []),
        *([_ROOTLESS] if job_spec.profile == "Rootless" else []),
        _BUILDAH,
        _STORAGE,
        *([_given(job_spec.given)] if job_spec.given is not None else []),
        *([_EMULATION] if job_spec.emulated else []),
        _SYNTAX,
        _pulls(job_spec),
        _context(job_spec),
        _build(job_spec),
        _DOCKER if job_spec.spec.output.format == "Docker" else _OCI,
    ]
    return "\n".join(part.strip("\n") + "\n" for part in parts)


_BEGINNING = f"""
#!/bin/sh
set -eu
umask 022
export LC_ALL=C

# Ends with this code. $2 and $3 say why, in the container's termination message.
code=
end() {{
  escape "$3"
  printf '{{"v":1,"reason":"%s","message":"%s"}}\\n' "$2" "$escaped" >'{contract.TERMINATION_LOG}' || :
  printf '%s: %s\\n' "$2" "$3" >&2
  code=$1
  exit 1
}}

# Sets $escaped to the beginning of $1 as a JSON text has it.
escape() {{
  text=$(printf '%.900s' "$1")
  escaped=
  while [ -n "$text" ]; do
    rest=${{text#?}}
    character=${{text%"$rest"}}
    case $character in
    '"' | \\\\) escaped="$escaped\\\\$character" ;;
    [[:cntrl:]]) escaped="$escaped " ;;
    *) escaped="$escaped$character" ;;
    esac
    text=$rest
  done
}}

# Whatever failed without being classified ends with {contract.TRANSIENT}, and is tried again.
finish() {{
  status=$?
  trap - EXIT
  if [ -n "$code" ]; then exit "$code"; fi
  if [ "$status" -ne 0 ]; then exit {contract.TRANSIENT}; fi
}}
trap finish EXIT
"""

_USER_NAMESPACE = f"""
read -r inside outside count </proc/self/uid_map
if [ "$inside $outside $count" = '0 0 4294967295' ]; then
  end {names.NOT_IN_USER_NAMESPACE} UserNamespaceUnavailable \\
    'the node does not run this pod in a user namespace: use nodes that do, or securityProfile Rootless'
fi
"""

_INSIDE: Final = "inside"
_IDS: Final = ("1879048192 65536", "1 65535")
"""Ids of the node that a rootless build's namespace has: a range that systemd's table of ids leaves to nobody; where
the node has fewer itself, all but root's. One line, as a shell may write several of them one by one."""

_ROOTLESS = f"""
# Goes on as root of a user namespace whose ids the capabilities of this container map: no program of the image needs
# them, as newuidmap would, and no user of the image subordinate ids. A process that sleeps holds the namespace.
if [ "${{1-}}" != {_INSIDE} ]; then
  for program in unshare nsenter mount sleep; do
    if ! command -v "$program" >/dev/null; then
      end {names.BUILDER_UNUSABLE} BuilderImageUnusable "the builder image has no $program, which securityProfile \
Rootless needs for a user namespace: have util-linux in it, or take securityProfile UserNamespace"
    fi
  done
  if ! problem=$(unshare -U sh -c : 2>&1); then
    end {names.NOT_IN_USER_NAMESPACE} UserNamespaceUnavailable "the node lets no pod make a user namespace ($problem): \
allow it (user.max_user_namespaces, kernel.unprivileged_userns_clone), or build on other nodes"
  fi
  holder=$(unshare -U sh -c 'sleep 60 >/dev/null 2>&1 & echo "$!"')
  for map in uid_map gid_map; do
    if ! problem=$({{ echo '0 {_IDS[0]}' >"/proc/$holder/$map"; }} 2>&1) &&
      ! problem=$({{ echo '0 {_IDS[1]}' >"/proc/$holder/$map"; }} 2>&1); then
      end {names.NOT_IN_USER_NAMESPACE} UserNamespaceUnavailable "the pod may not map ids of its user namespace \
($problem): leave it root with capabilities SETUID and SETGID, which a policy or the runtime may have taken from it"
    fi
  done
  if ! problem=$(nsenter -t "$holder" -U unshare -m sh -c : 2>&1); then
    end {names.NOT_IN_USER_NAMESPACE} UserNamespaceUnavailable "the node lets no pod use a user namespace ($problem): \
allow it (kernel.apparmor_restrict_unprivileged_userns), or build on other nodes"
  fi
  exec nsenter -t "$holder" -U unshare -m /bin/sh "$0" {_INSIDE} "$holder"
fi
kill -9 "$2"
# Folders that buildah writes in as root belong to the node's: it gets others, which nobody else sees.
for folder in /run /var/lib/containers ~root; do
  if [ -d "$folder" ] && [ "$folder" != / ] && ! problem=$(mount -t tmpfs tmpfs "$folder" 2>&1); then
    end {names.NOT_IN_USER_NAMESPACE} UserNamespaceUnavailable "the node lets no pod mount in its user namespace: \
$problem"
  fi
done
"""

_BUILDAH = f"""
if ! command -v buildah >/dev/null; then
  end {names.BUILDER_UNUSABLE} BuilderImageUnusable 'the builder image has no buildah: name another one'
fi
"""

_STORAGE = f"""
in_storage() {{
  buildah --root="{contract.STORAGE}/$driver" --runroot='{contract.STORAGE}/run' --storage-driver="$driver" "$@"
}}
# Overlay where a mount works, else vfs, which works everywhere and copies much.
driver=overlay
if trial=$(in_storage from scratch 2>/dev/null) && in_storage mount "$trial" >/dev/null 2>&1; then
  in_storage rm "$trial" >/dev/null
else
  driver=vfs
  if ! problem=$(in_storage from --name=polyarch-trial scratch 2>&1); then
    case $problem in
    *'no space left'* | *'disk quota'* | *'annot allocate memory'*)
      printf '%s\\n' "$problem" >&2
      exit 1
      ;;
    esac
    end {names.BUILDER_UNUSABLE} BuilderImageUnusable "the buildah of the builder image makes no container here, not \
even an empty one ($problem)"
  fi
  in_storage rm polyarch-trial >/dev/null
fi
printf 'storage: %s\\n' "$driver" >&2
"""


def _given(given: MachineJobMounts) -> str:
    """How images are pulled on the nodes of a machine OS goes before how the builder pulls them. Who installs packages
    may write into the folders of an entitlement, so a ``RUN`` gets copies."""
    lines = [f"if [ -f '{contract.CONTAINERS}/registries.conf' ]; then unset CONTAINERS_REGISTRIES_CONF; fi"]
    for each in given.entitled:
        folder = f"{_ENTITLED}/{each.name}"
        lines += [f"mkdir -p '{folder}'", f"cp -L '{contract.ENTITLED}/{each.name}'/* '{folder}'"]
    return "\n".join(lines)


_EMULATION = f"""
# A tiny program of the target architecture has to run inside an empty chroot before anything of the user's does.
probe=$(in_storage from scratch)
in_storage copy --quiet --chmod=0755 "$probe" '{contract.IN}/{contract.PROBE}' /probe >/dev/null
if ! problem=$(in_storage run --isolation=chroot "$probe" /probe 2>&1); then
  case $problem in
  *'permission denied'* | *'operation not permitted'*)
    printf 'the emulator could not be tried: %s\\n' "$problem" >&2
    exit 1
    ;;
  esac
  end {names.EMULATOR_MISSING} EmulatorMissing "the node does not run programs of this architecture inside a chroot: \\
register an emulator with flag F (binfmt_misc), or build natively ($problem)"
fi
in_storage rm "$probe" >/dev/null
"""

_SYNTAX = f"""
# What buildah cannot read it will never read. It looks for the stage before it pulls or runs anything.
if ! problem=$(in_storage build --target={_SYNTAX_STAGE} --file='{contract.IN}/{contract.CONTAINERFILE}' \\
  '{contract.IN}' 2>&1); then
  case $problem in
  *'parse error'* | *'unknown instruction'* | *'no FROM statement'* | *'FROM requires'* | *'no instructions'*)
    end {names.USER_ERROR} ContainerfileInvalid "$problem"
    ;;
  esac
fi
"""

_ANONYMOUSLY = """
try() {
  problem=$(in_storage pull --quiet --platform=PLATFORM "docker://$1" 2>&1)
}
"""

_BY_CREDENTIALS = """
try() {
  for credentials in CREDENTIALS; do
    if problem=$(in_storage pull --quiet --platform=PLATFORM --authfile="$credentials" "docker://$1" 2>&1); then
      return 0
    fi
  done
  return 1
}
"""

_FETCH = """
# Pulls $1. What the registry refuses for good ends the build with code $2 and reason $3 (no access) or $4 (not there).
fetch() {
  if try "$1"; then return 0; fi
  case $problem in
  *'policy.json: no such file'*)
    end BUILDER_UNUSABLE BuilderImageUnusable "the builder image has no /etc/containers/policy.json, without which \\
buildah pulls nothing: have one in it ($problem)"
    ;;
  *'permission denied'* | *toomanyrequests* | *'Too Many Requests'*) ;;
  *unauthorized* | *'authentication required'* | *denied* | *'403 (Forbidden)'*)
    end "$2" "$3" "$1 may not be pulled: check the pull secrets ($problem)"
    ;;
  *'manifest unknown'* | *'name unknown'* | *'not found'* | *'no image found'*)
    end "$2" "$4" "$1 is not there ($problem)"
    ;;
  esac
  printf '%s: %s\\n' "$1" "$problem" >&2
  exit 1
}
"""


def _pulls(job_spec: ArchitectureJobSpec) -> str:
    files = [f"'{contract.PULL}/{at}.json'" for at, _ in enumerate(job_spec.spec.output.pull_secrets or ())]
    attempt = _BY_CREDENTIALS.replace("CREDENTIALS", " ".join(files)) if files else _ANONYMOUSLY
    platform = quoted(f"linux/{job_spec.architecture}")
    fetch = _FETCH.strip("\n").replace("BUILDER_UNUSABLE", str(names.BUILDER_UNUSABLE))
    lines = [attempt.strip("\n").replace("PLATFORM", platform), fetch]
    lines += [
        f"fetch {quoted(pull)} {names.USER_ERROR} BaseImageUnauthorized BaseImageNotFound"
        for pull in sorted({image.pull for image in job_spec.images})
    ]
    return "\n".join(lines)


# -- the context -------------------------------------------------------------------------------------------------------


def _context(job_spec: ArchitectureJobSpec) -> str:
    context = job_spec.spec.source.context
    if job_spec.given is not None:
        return _CONFIGMAP
    if context.type == "ConfigMap" and context.config_map is not None:
        return _CONFIGMAP
    if context.type == "Image" and context.image is not None:
        reference = quoted(context.image.reference)
        fetched = f"fetch {reference} {names.CONTEXT_UNAVAILABLE} InputMissing InputMissing"
        return f"{fetched}\nholder=$(in_storage from --pull=false {reference})\n{_MOUNTED}"
    if context.type == "Git" and context.git is not None:
        return _git(context.git)
    return f"context='{contract.CONTEXT}'"


_MOUNTED = 'context=$(in_storage mount "$holder")'
_CONFIGMAP = f"""
# The kubelet mounts links; a build needs files.
holder=$(in_storage from scratch)
for file in '{contract.CONTEXT}'/* '{contract.CONTEXT}'/.[!.]*; do
  if [ -f "$file" ]; then in_storage copy --quiet "$holder" "$file" / >/dev/null; fi
done
{_MOUNTED}
"""


def _git(context: GitContext) -> str:
    url, commit = quoted(context.url), quoted(context.commit)
    directory = quoted(f"{_CHECKOUT}/{context.directory}" if context.directory else _CHECKOUT)
    helper = ""
    if context.credentials is not None:
        parts = urlsplit(context.url)
        answer = f'!answer() {{ printf "username=%s\\npassword=%s\\n" "$(cat {contract.GIT}/username)" '
        answer += f'"$(cat {contract.GIT}/password)"; }}; answer'
        helper = " -c " + quoted(f"credential.{parts.scheme}://{parts.netloc}.helper={answer}")
    return _GIT.format(
        checkout=quoted(_CHECKOUT),
        url=url,
        commit=commit,
        directory=directory,
        helper=helper,
        code=names.CONTEXT_UNAVAILABLE,
    ).strip("\n")


_GIT = """
export GIT_CONFIG_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0 GIT_ALLOW_PROTOCOL=http:https
if ! command -v git >/dev/null; then
  end {code} InputMissing 'a Git context needs git, which the builder image does not have: set builder.image'
fi
git init --quiet {checkout}
if ! problem=$(git -C {checkout}{helper} fetch --quiet --depth=1 {url} {commit} 2>&1) &&
  ! problem=$(git -C {checkout}{helper} fetch --quiet {url} '+refs/*:refs/fetched/*' 2>&1); then
  printf '%s\\n' "$problem" >&2
  case $problem in
  *'not found'* | *'Authentication failed'* | *'could not read Username'* | *' 403'*)
    end {code} InputMissing "the Git context cannot be fetched: $problem"
    ;;
  esac
  exit 1
fi
if ! problem=$(git -C {checkout} -c advice.detachedHead=false checkout --quiet --detach {commit} 2>&1); then
  end {code} InputMissing "the Git context has no such commit: $problem"
fi
rm -rf {checkout}/.git
if ! context=$(cd -P {directory} 2>/dev/null && pwd -P); then
  end {code} InputMissing 'the Git context has no such directory'
fi
case $context/ in
{checkout}/*) ;;
*) end {code} InputMissing 'the directory of the Git context leads out of it' ;;
esac
"""


# -- the build ---------------------------------------------------------------------------------------------------------


def _build(job_spec: ArchitectureJobSpec) -> str:
    flags = " \\\n  ".join(_flags(job_spec))
    return f"{_RELAY}\n{_BUILD.replace('FLAGS', flags)}\n{_READ_ID}"


_RELAY = """
# Shows what comes in at once, and at the end prints the last line of it. It does not wait for processes that a build
# has left behind and that could still write.
ended='polyarch: the build has ended'
relay() {
  last=
  while IFS= read -r line && [ "$line" != "$ended" ]; do
    printf '%s\\n' "$line" >&2
    last=$line
  done
  printf '%s' "$last"
}
""".strip("\n")

_BUILD = f"""
# The last line on standard error is buildah's own, whatever a RUN wrote before it. It says with which instruction the
# build failed. What is not in the context is in no other attempt's either; another stage may have it the next time. The
# path is that of the context or, since buildah 1.44, of a copy of it. The status is not the pipe's, but a file.
exec 3>&1
problem=$({{ in_storage build \\
  FLAGS \\
  "$context" 2>&1 >&3 3>&- || : >'{_FAILED}'; printf '%s\\n' "$ended"; }} | relay)
exec 3>&-
if [ -e '{_FAILED}' ]; then
  case $problem in
  *'building at STEP "'*' --from='*) ;;
  *'building at STEP "'*'": checking on sources under "'*'": '*': no such file or directory' | \\
    *'building at STEP "'*'": no items matching glob "'*': no such file or directory')
    end {names.USER_ERROR} ContainerfileInvalid \\
      "the context does not have what this instruction copies: put it there, or correct the instruction ($problem)"
    ;;
  esac
  exit 1
fi
""".strip("\n")

_READ_ID = f"read -r image <'{_IMAGE_ID}' || [ -n \"$image\" ]"


def _flags(job_spec: ArchitectureJobSpec) -> Iterator[str]:
    spec = job_spec.spec
    yield "--isolation=chroot"
    yield "--pull=false"
    yield "--no-cache"
    yield "--identity-label=false"
    yield f"--format={'docker' if spec.output.format == 'Docker' else 'oci'}"
    yield f"--platform={quoted(f'linux/{job_spec.architecture}')}"
    yield f"--file='{contract.IN}/{contract.CONTAINERFILE}'"
    yield f"--iidfile='{_IMAGE_ID}'"
    if spec.source.target:
        yield f"--target={quoted(spec.source.target)}"
    if spec.reproducible.enabled:
        yield f"--timestamp={spec.reproducible.timestamp}"
        yield f"--build-arg=SOURCE_DATE_EPOCH={spec.reproducible.timestamp}"
    yield from _pairs("--build-arg", job_spec.arguments.items())
    yield from _pairs("--label", (spec.output.labels or {}).items())
    for at, secret in enumerate(spec.source.secrets or ()):
        yield f"--secret={quoted(f'id={secret.id},src={contract.SECRETS}/{at}')}"
    for image in sorted(job_spec.images):
        for written in sorted(set(image.written)):
            yield f"--build-context={quoted(f'{written}=docker-image://{image.pull}')}"
    for each in job_spec.given.entitled if job_spec.given is not None else ():
        yield f"--volume='{_ENTITLED}/{each.name}:{each.path}'"
    if spec.output.pull_secrets:
        yield f"--authfile='{contract.PULL}/0.json'"


def _pairs(flag: str, pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    return (f"{flag}={quoted(f'{name}={value}')}" for name, value in sorted(pairs))


_OCI = f"""
in_storage push --quiet --format=oci "$image" 'oci:{contract.LAYOUT}' >/dev/null
"""

_DOCKER = f"""
# buildah writes layouts of OCI images only: this puts Docker's manifest and blobs into one.
in_storage push --quiet --format=v2s2 "$image" 'dir:{_DOCKER_DIRECTORY}' >/dev/null
digest=$(sha256sum '{_DOCKER_DIRECTORY}/manifest.json')
digest=${{digest%% *}}
size=$(wc -c <'{_DOCKER_DIRECTORY}/manifest.json')
mkdir -p '{contract.LAYOUT}/blobs/sha256'
for file in '{_DOCKER_DIRECTORY}'/*; do
  case ${{file##*/}} in
  manifest.json) mv "$file" "{contract.LAYOUT}/blobs/sha256/$digest" ;;
  version) ;;
  *) mv "$file" '{contract.LAYOUT}/blobs/sha256/' ;;
  esac
done
printf '{{"imageLayoutVersion":"1.0.0"}}' >'{contract.LAYOUT}/oci-layout'
printf '{{"schemaVersion":2,"manifests":[{{"mediaType":"%s","digest":"sha256:%s","size":%d}}]}}' \\
  application/vnd.docker.distribution.manifest.v2+json "$digest" "$size" >'{contract.LAYOUT}/index.json'
"""


# -- emulation check ---------------------------------------------------------------------------------------------------


ADDRESS: Final = 0x400000
"""Where it is loaded: above what kernels forbid, aligned to the largest page (64 KiB)."""
_ALIGNMENT: Final = 0x10000
_EXECUTABLE, _LOAD, _READ_EXECUTE = 2, 1, 5


class _Exit(msgspec.Struct, frozen=True):
    """``exit(0)`` on one architecture: its instructions, and what ``e_flags`` has to say."""

    code: str
    """As the manuals write the instructions, in hexadecimal; words of 4 bytes are stored in the machine's order."""
    flags: int = 0
    bytewise: bool = False
    """The instructions are of many lengths and stand in the order of their bytes."""


_EXITS: Final = {
    # xor %ebx,%ebx; mov $1,%eax; int $0x80
    "386": _Exit("31db b801000000 cd80", bytewise=True),
    # xor %edi,%edi; mov $60,%eax; syscall
    "amd64": _Exit("31ff b83c000000 0f05", bytewise=True),
    # mov r0,#0; mov r7,#1; svc 0 (EABI 5)
    "arm": _Exit("e3a00000 e3a07001 ef000000", flags=0x05000000),
    # mov x0,#0; mov x8,#93; svc 0
    "arm64": _Exit("d2800000 d2800ba8 d4000001"),
    # ori $a0,$zero,0; ori $a7,$zero,93; syscall 0 (double-float ABI)
    "loong64": _Exit("03800004 0381740b 002b0000", flags=0x43),
    # li $a0,0; li $v0,4001; syscall (o32, MIPS32r2)
    "mips": _Exit("24040000 24020fa1 0000000c", flags=0x70001000),
    "mipsle": _Exit("24040000 24020fa1 0000000c", flags=0x70001000),
    # li $a0,0; li $v0,5058; syscall (n64, MIPS64r2)
    "mips64": _Exit("24040000 240213c2 0000000c", flags=0x80000000),
    "mips64le": _Exit("24040000 240213c2 0000000c", flags=0x80000000),
    # li r3,0; li r0,1; sc (ELFv2, whose entry point is code and no descriptor)
    "ppc64": _Exit("38600000 38000001 44000002", flags=2),
    "ppc64le": _Exit("38600000 38000001 44000002", flags=2),
    # li a0,0; li a7,93; ecall
    "riscv64": _Exit("00000513 05d00893 00000073"),
    # lghi %r2,0; svc 1
    "s390x": _Exit("a7290000 0a01", bytewise=True),
}


def emulation_check(architecture: str) -> bytes | None:
    """A program of the architecture that ends with status 0; None for one that is not known here."""
    known, machine = _EXITS.get(architecture), expected_machine(architecture)
    if known is None or machine is None:
        return None
    return _program(machine, known)


def _program(machine: Machine, known: _Exit) -> bytes:
    byte_order: Literal["little", "big"] = "little" if machine.little else "big"
    wide = machine.bits == 64
    header_size, segment_size = (64, 56) if wide else (52, 32)
    code = _instructions(known, little=machine.little)
    size = header_size + segment_size + len(code)

    def half(value: int) -> bytes:
        return value.to_bytes(2, byte_order)

    def word(value: int) -> bytes:
        return value.to_bytes(4, byte_order)

    def address(value: int) -> bytes:
        return value.to_bytes(8 if wide else 4, byte_order)

    identification = b"\x7fELF" + bytes([2 if wide else 1, 1 if machine.little else 2, 1]) + bytes(9)
    header = (
        identification
        + half(_EXECUTABLE)
        + half(machine.number)
        + word(1)
        + address(ADDRESS + header_size + segment_size)
        + address(header_size)
        + address(0)
        + word(known.flags)
        + half(header_size)
        + half(segment_size)
        + half(1)
        + half(0) * 3
    )
    place = address(0) + address(ADDRESS) * 2 + address(size) * 2
    if wide:
        segment = word(_LOAD) + word(_READ_EXECUTE) + place + address(_ALIGNMENT)
    else:
        segment = word(_LOAD) + place + word(_READ_EXECUTE) + address(_ALIGNMENT)
    return header + segment + code


def _instructions(known: _Exit, *, little: bool) -> bytes:
    parts = [bytes.fromhex(part) for part in known.code.split()]
    return b"".join(part[::-1] if little and not known.bytewise else part for part in parts)
