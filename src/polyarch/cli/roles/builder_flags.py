"""The flags of the builder: what its build pods run, and what it may do (``BuilderSettings``, BD-002).

``polyarch run operator`` takes them too and hands them to the builder that it deploys. A flag is declared once for all
roles: of two flags with one name only the first would be set.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from polyarch.cli.errors import UsageError
from polyarch.cli.options.values import Image, Namespace, Number, Placeholder, flag, option, subject

if TYPE_CHECKING:
    from polyarch.run.settings import BuilderSettings

BUILDER = subject("Builder")
MachineOS = Annotated[Literal["auto", "on", "off"], Placeholder("WHEN")]
TaintKey = Annotated[str, Placeholder("KEY")]
_TAINT_KEYS = ("kubernetes.io/arch", "supported-arch")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BuilderFlags:
    """Builds name images and profiles of their own only where these allow it."""

    builder_image: Annotated[Image, option("Image of build containers: sh and buildah", group=BUILDER)] = (
        "quay.io/buildah/stable:v1"
    )
    push_image: Annotated[
        Image,
        option(
            "Image of push containers: polyarch's",
            group=BUILDER,
            show_default="each build names one; for run operator its own image",
        ),
    ] = ""
    allow_privileged_builds: Annotated[bool, flag("Allow builds to ask for privileged containers", group=BUILDER)] = (
        False
    )
    arch_taint_key: Annotated[
        list[TaintKey] | None,
        option(
            "Key of an architecture taint that build pods tolerate; repeatable",
            group=BUILDER,
            show_default=", ".join(_TAINT_KEYS),
        ),
    ] = None
    max_active_jobs: Annotated[Number, option("Most unfinished build Jobs in the cluster", group=BUILDER)] = 20
    machine_os: Annotated[
        MachineOS | None,
        option(
            "Build MachineOSConfigs too; auto: where the cluster has that kind",
            group=BUILDER,
            show_default="auto, for run operator off",
        ),
    ] = None
    machine_os_namespace: Annotated[Namespace, option("Namespace of MachineOSConfig builds", group=BUILDER)] = (
        "openshift-machine-config-operator"
    )

    def settings(self) -> "BuilderSettings":
        """The same as a value of the process."""
        from polyarch.run.settings import BuilderSettings

        return BuilderSettings(
            builder_image=self.builder_image,
            push_image=self.push_image,
            allow_privileged=self.allow_privileged_builds,
            arch_taint_keys=tuple(dict.fromkeys(self.arch_taint_key)) if self.arch_taint_key else _TAINT_KEYS,
            max_active_jobs=self.max_active_jobs,
            machine_os=self.machine_os or "auto",
            machine_os_namespace=self.machine_os_namespace,
        )

    def check(self, role: str) -> None:
        """Raises ``UsageError`` for a limit that lets no build begin."""
        if self.max_active_jobs < 1:
            raise UsageError(f"run {role}: --max-active-jobs {self.max_active_jobs}: expected 1 or more")


DEFAULT_BUILDER = BuilderFlags()
