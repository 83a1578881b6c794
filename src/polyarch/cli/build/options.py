"""The options that the commands of ``polyarch build`` share. Declarations only, so that ``--help`` starts fast."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from polyarch.cli.options.common import ClusterFlags
from polyarch.cli.options.images import RegistryOptions
from polyarch.cli.options.values import (
    CLUSTER,
    REGISTRIES,
    CompletionSource,
    Context,
    File,
    Host,
    KeyValue,
    Name,
    Namespace,
    Path,
    Placeholder,
    Tag,
    flag,
    option,
    subject,
)

BUILT = subject("What to build")

Architectures = Annotated[str, Placeholder("ARCH,...")]
BuildName = Annotated[str, Placeholder("NAME"), CompletionSource("polyarch.cli.build.completions:builds")]
RunName = Annotated[str, Placeholder("NAME"), CompletionSource("polyarch.cli.build.completions:runs")]
BuildContext = Annotated[str, Placeholder("DIR|git:URL@COMMIT|image:REF@DIGEST")]
OverridePath = Annotated[str, Placeholder("ARCH=PATH")]
Repository = Annotated[str, Placeholder("REPOSITORY")]
Strategy = Annotated[Literal["Native", "PreferNative", "Emulated"], Placeholder("STRATEGY")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BuildFlags:
    """What an ImageBuild says; what is not given stays as it is, or has its default."""

    file: Annotated[
        File | None,
        option("ImageBuilds in a file; - is standard input", "-f", "--file", group=BUILT, hyphen=True),
    ] = None
    containerfile: Annotated[
        Path | None,
        option("Containerfile of all architectures; - is standard input", group=BUILT, hyphen=True),
    ] = None
    override: Annotated[
        list[OverridePath] | None,
        option("Containerfile of one architecture; repeatable", group=BUILT),
    ] = None
    context: Annotated[
        BuildContext | None,
        option("Files for COPY: a directory, a commit of a Git repository, or an image", group=BUILT),
    ] = None
    arg: Annotated[
        list[KeyValue] | None, option("Build argument, never a secret; repeatable", "--arg", group=BUILT)
    ] = None
    repository: Annotated[Repository | None, option("Where the image is pushed to", group=BUILT)] = None
    tag: Annotated[
        list[Tag] | None, option("Tag for the image, moved when it is complete; repeatable", "--tag", group=BUILT)
    ] = None
    push_secret: Annotated[
        Name | None, option("Secret with the credentials for the repository, in the namespace", group=BUILT)
    ] = None
    arch: Annotated[
        Architectures | None,
        option("Architectures to build for", group=BUILT, show_default="those of the worker nodes"),
    ] = None
    strategy: Annotated[
        Strategy | None,
        option("Native, PreferNative or Emulated builds", group=BUILT, show_default="Native"),
    ] = None
    fail_fast: Annotated[bool, flag("Cancel the other architectures as soon as one has failed", group=BUILT)] = False

    @property
    def inputs(self) -> tuple[str | None, ...]:
        """The files that are read, as they are named."""
        return (self.file, self.containerfile, *(each.partition("=")[2] for each in self.override or ()))

    @property
    def any(self) -> bool:
        """Whether anything besides a file is given."""
        given = (
            self.containerfile, self.override, self.context, self.arg, self.repository, self.tag, self.push_secret,
            self.arch, self.strategy,
        )  # fmt: skip
        return self.fail_fast or any(each is not None for each in given)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class NamespaceFlags:
    """Which cluster, and which namespace of it."""

    namespace: Annotated[
        Namespace | None,
        option("Namespace of the build", "-n", "--namespace", group=CLUSTER, show_default="as kubectl"),
    ] = None
    kubeconfig: Annotated[File | None, option("Kubeconfig", group=CLUSTER, show_default="as kubectl")] = None
    kube_context: Annotated[
        Context | None,
        option("Context of the kubeconfig", group=CLUSTER, show_default="the current one"),
    ] = None

    @property
    def cluster(self) -> ClusterFlags:
        """The cluster alone."""
        return ClusterFlags(kubeconfig=self.kubeconfig, context=self.kube_context)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RegistryFlags:
    """Who asks registries from here: for contexts that are pushed, and for plans. Builds have Secrets of their own."""

    authfile: Annotated[File | None, option("Use only this registry credentials file", group=REGISTRIES)] = None
    registries_conf: Annotated[
        File | None, option("Mirror configuration, see containers-registries.conf(5)", group=REGISTRIES)
    ] = None
    ca: Annotated[list[File] | None, option("CA certificates (PEM) to trust; repeatable", group=REGISTRIES)] = None
    insecure: Annotated[
        list[Host] | None,
        option("Allow plain HTTP and unverified TLS for HOST[:PORT]; repeatable", group=REGISTRIES),
    ] = None

    def options(self) -> RegistryOptions:
        """With the usual limits: --timeout is that of the build."""
        return RegistryOptions(
            authfile=self.authfile, registries_conf=self.registries_conf, ca=self.ca, insecure=self.insecure
        )


NO_WISH = BuildFlags()
NO_REGISTRY = RegistryFlags()
USUAL_NAMESPACE = NamespaceFlags()
