"""``polyarch explain``: why a pod is where it is, or what would become of one.

The command line alone; ``deciding`` does the work."""

from typing import Annotated, Literal

from cyclopts import App

from polyarch.cli.errors import UsageError
from polyarch.cli.options.common import (
    AS_USUAL,
    USUAL_CLUSTER,
    ClusterFlags,
    Verbosity,
    output_option,
    outputs,
    refuse_overwriting,
)
from polyarch.cli.options.help_page import epilogue
from polyarch.cli.options.images import DEFAULT_IMAGES, ImageOptions
from polyarch.cli.options.values import CLUSTER, File, Namespace, Placeholder, flag, option, subject

FORMATS = ("text", "json", "yaml", "patch")
ExplainFormat = Annotated[Literal["text", "json", "yaml", "patch"], Placeholder("FORMAT[=FILE]")]
Stage = Annotated[Literal["admission", "controller"], Placeholder("STAGE")]
PodName = Annotated[str, Placeholder("POD")]

EPILOGUE = epilogue(
    note="Explains what placement decided for a pod, and what it would decide now; nothing is changed anywhere.",
    examples=(
        ("Explain a pod in the cluster", "polyarch explain web-7d4b -n shop"),
        ("Explain manifests before they are applied", "polyarch explain -f deploy.yaml --objects policy.yaml"),
        ("Explain what a chart renders", "helm template CHART | polyarch explain -f -"),
        (
            "Print the JSON patch, without registries",
            "polyarch explain -f pod.yaml --offline --platforms-file platforms.json -o patch",
        ),
    ),
    exits=(
        (0, "all is well"),
        (1, "the recorded decision is not the one of now, or a pod can run nowhere"),
        (2, "the command line or a file it names is wrong"),
        (3, "the API server or a registry could not be asked"),
    ),
)
EXPLAINED = subject("What to explain")


def explain_pods(
    pod: Annotated[PodName | None, option("A pod in the cluster, NAME or pod/NAME", group=EXPLAINED)] = None,
    *,
    file: Annotated[
        list[File] | None,
        option(
            "Manifests with pods or workloads; - is standard input; repeatable",
            "-f",
            "--file",
            group=EXPLAINED,
            hyphen=True,
        ),
    ] = None,
    objects: Annotated[
        list[File] | None,
        option(
            "Configurations, policies, namespaces, RuntimeClasses, nodes and what makes nodes (NodePools, MachineSets, "
            "…) to decide with; repeatable",
            group=EXPLAINED,
        ),
    ] = None,
    stage: Annotated[Stage, option("Decide as the webhook, or as the controller", group=EXPLAINED)] = "admission",
    cold: Annotated[bool, flag("Decide as if no image were known yet", group=EXPLAINED)] = False,
    output: Annotated[list[ExplainFormat | str] | None, output_option(*FORMATS)] = None,
    namespace: Annotated[
        Namespace | None,
        option("Namespace of the pod, or of manifests without one", "-n", "--namespace", group=CLUSTER),
    ] = None,
    cluster: ClusterFlags = USUAL_CLUSTER,
    images: ImageOptions = DEFAULT_IMAGES,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Say why a pod is where it is, or what would become of it; returns the exit code."""
    messages = verbosity.messages()
    wanted = outputs(output, FORMATS)
    refuse_overwriting(wanted, [*(file or ()), *(objects or ()), images.platforms_file])
    if (pod is None) == (file is None):
        raise UsageError("explain takes either the name of a pod in the cluster, or -f with files; give one of them")
    if pod is not None and pod.partition("/")[0] not in ("pod", "pods") and "/" in pod:
        raise UsageError(
            f"{pod!r} is not a pod; name one as NAME or pod/NAME, or explain a workload's manifest: "
            f"kubectl get {pod} -o yaml | polyarch explain -f -"
        )
    from polyarch.cli.explain.explain import ExplainOptions, run_explain

    asked = ExplainOptions(
        pod=pod,
        files=file or (),
        objects=objects or (),
        stage=stage,
        cold=cold,
        namespace=namespace,
        cluster=cluster,
    )
    return run_explain(asked, images, wanted, messages=messages)


explain = App(name="explain", help_epilogue=EPILOGUE)
explain.default(explain_pods)
