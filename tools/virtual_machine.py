"""A command in a virtual machine with another Debian: its kernel with cgroup v2, systemd, containerd, runc and buildah.

    python -m tools.virtual_machine trixie .venv/bin/pytest tests/real -v

The machine has this checkout, its environment, the interpreter and the built programs, each at the same path as here,
and no network. It needs root, ``mmdebstrap``, ``qemu-system-x86`` and ``e2fsprogs``. Without KVM the machine is about
fifteen times slower, which is longer than starts of the sandbox wait.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

PACKAGES: Final = (
    *("linux-image-cloud-amd64", "systemd-sysv", "dbus", "udev", "apparmor", "kmod", "procps", "ca-certificates"),
    *(
        "iproute2",
        "iptables",
        "containerd",
        "runc",
        "crun",
        "containernetworking-plugins",
        "buildah",
        "netavark",
        "qemu-user",
        "uidmap",
        "git",
    ),
)
HERE: Final = Path(__file__).resolve().parents[1]
CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "polyarch"
LEFT_OUT: Final = ("site-packages", "test", "__pycache__")
"""Of the interpreter: the environment has what is needed."""
SIZE: Final = "16G"
SERVICE: Final = """\
[Service]
Type=oneshot
ExecStart=/usr/local/sbin/run-command
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS1
[Install]
WantedBy=multi-user.target
"""
SCRIPT: Final = """\
#!/bin/sh
export HOME={home} XDG_CACHE_HOME={cache} PATH={path} LANG=C.UTF-8
uname -sr; stat -fc %T /sys/fs/cgroup; containerd --version; runc --version | head -1; buildah --version
cd {here} && {command}
echo "exit code $?"
systemctl poweroff --force
"""


def main(suite: str, command: Sequence[str]) -> int:
    """The exit code of the command; 1 if the machine ended before it."""
    folder = CACHE / "virtual-machines"
    folder.mkdir(parents=True, exist_ok=True)
    root, disk = folder / suite, folder / f"{suite}.img"
    if not root.exists():
        print(f"installing {suite} in {root}, once …", flush=True)
        install(suite, root)
    (kernel,), (initrd,) = (list((root / "boot").glob(f"{name}-*")) for name in ("vmlinuz", "initrd.img"))
    print("copying this checkout and what it needs …", flush=True)
    fill(root, command)
    disk.unlink(missing_ok=True)
    subprocess.run(["mkfs.ext4", "-q", "-d", str(root), str(disk), SIZE], check=True)
    return run(disk, kernel, initrd, folder / f"{suite}.log")


def install(suite: str, root: Path) -> None:
    """Debian in a folder, which appears once it is whole. Sid has mirrors that renew its index late."""
    unfinished = root.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    options = ["--variant=minbase", f"--include={','.join(PACKAGES)}", "--keyring=/usr/share/keyrings"]
    late = ['--aptopt=Acquire::Check-Valid-Until "false"'] if suite in {"sid", "unstable"} else []
    subprocess.run(["mmdebstrap", "--quiet", *options, *late, suite, str(unfinished)], check=True)
    unfinished.rename(root)


def fill(root: Path, command: Sequence[str]) -> None:
    """Put the checkout, its interpreter and the built programs into the folder, and what runs the command."""
    python = Path(sys.base_prefix)
    if python == Path("/usr"):
        raise SystemExit(
            "the environment has the distribution's Python, of which the machine has another version: "
            "make one with a Python of uv or pyenv"
        )
    copy(root, python, *LEFT_OUT)
    copy(root, CACHE / "sandbox")
    copy(root, HERE)
    script = root / "usr/local/sbin/run-command"
    path = f"{HERE}/.venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    script.write_text(
        SCRIPT.format(home=Path.home(), cache=CACHE.parent, path=path, here=HERE, command=shlex.join(command))
    )
    script.chmod(0o755)
    (root / "etc/systemd/system/run-command.service").write_text(SERVICE)
    for name in ("run-command.service", "containerd.service"):
        verb = "enable" if name.startswith("run") else "disable"
        subprocess.run(["systemctl", f"--root={root}", verb, "--quiet", name], check=True)


def copy(root: Path, source: Path, *besides: str) -> None:
    target = root / str(source).lstrip("/")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns(*besides))


def run(disk: Path, kernel: Path, initrd: Path, log: Path) -> int:
    """Start the machine, and print what the command prints."""
    has_kvm = bool(re.search(r"^flags.* (vmx|svm) ", Path("/proc/cpuinfo").read_text(), re.MULTILINE))
    acceleration = ["-accel", "kvm", "-cpu", "host"] if has_kvm else ["-accel", "tcg,thread=multi", "-cpu", "max"]
    machine = ["-machine", "q35", *acceleration, "-smp", "2", "-m", "6G", "-display", "none", "-nic", "none"]
    boot = ["-kernel", str(kernel), "-initrd", str(initrd), "-append", "root=/dev/vda rw console=ttyS0 panic=-1 quiet"]
    output = ["-serial", f"file:{log}", "-serial", "stdio", "-monitor", "none", "-no-reboot"]
    drive = ["-drive", f"file={disk},if=virtio,format=raw,cache=unsafe", "-device", "virtio-rng-pci"]
    print(f"starting the machine {'' if has_kvm else 'without KVM '}…", flush=True)
    command = ["qemu-system-x86_64", *machine, *boot, *output, *drive]
    code = 1
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line.rstrip(), flush=True)
            if found := re.fullmatch(r"exit code (\d+)", line.strip()):
                code = int(found[1])
    return code


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit("expected a suite of Debian and a command: trixie .venv/bin/pytest tests/real")
    sys.exit(main(sys.argv[1], sys.argv[2:]))
