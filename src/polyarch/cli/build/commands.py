"""``polyarch build``: one image for every architecture, built in the cluster.

The command lines alone; ``submission``, ``forecast``, ``overview`` and ``podlogs`` do the work."""

from typing import Annotated, Literal

from cyclopts import App

from polyarch.cli.build.options import (
    NO_REGISTRY,
    NO_WISH,
    USUAL_NAMESPACE,
    Architectures,
    BuildFlags,
    BuildName,
    NamespaceFlags,
    RegistryFlags,
    RunName,
)
from polyarch.cli.options.common import AS_USUAL, FORMATS, OUTPUT_OPTION, Format, Verbosity, outputs, refuse_overwriting
from polyarch.cli.options.help_page import epilogue
from polyarch.cli.options.values import File, Placeholder, Seconds, flag, option, subject

Outputs = Annotated[list[Format | str] | None, OUTPUT_OPTION]
Container = Annotated[Literal["build", "push"], Placeholder("CONTAINER")]
RUNS, SHOWN = subject("How to do it"), subject("What to show")

RUN_EPILOGUE = epilogue(
    note="""\
Applies an ImageBuild, and follows it until its image is published. Each architecture is built on
its own nodes, and only if something changed that can change its image. What a command line said
of a build stays said: the next one needs only what is new.
Ctrl-C stops following; the build goes on.""",
    examples=(
        (
            "Build ./Containerfile for the architectures of the worker nodes",
            "polyarch build run shop --repository registry.example.com/team/shop",
        ),
        (
            "With the files of a folder, a tag, and another Containerfile for arm64",
            "polyarch build run shop --context . --tag 1.4 --override arm64=Containerfile.arm64",
        ),
        (
            "From CI, at the commit that it was started for",
            "polyarch build run shop --context git:https://git.example.com/shop.git@$COMMIT --timeout 3600",
        ),
        ("From a file", "polyarch build run -f shop.yaml"),
        ("Build one architecture again, whatever has changed", "polyarch build run shop --rebuild=arm64"),
        (
            "Print the ImageBuild instead of applying it",
            "polyarch build run shop --repository quay.io/team/shop --dry-run -o yaml",
        ),
    ),
    exits=(
        (0, "the image is published; with --no-wait: applied"),
        (1, "the build failed, was interrupted or superseded"),
        (2, "the command line or the build itself is wrong"),
        (3, "it could not be completed: the API server, a registry, or --timeout"),
        (130, "Ctrl-C: the build goes on"),
    ),
)

PLAN_EPILOGUE = epilogue(
    note="""\
Says what the builder would do now, and why, for each architecture: what is taken from where, and
which part of the inputs makes a build necessary. Writes nothing. With --facts neither a cluster
nor a registry is asked: the file holds now, objects, registry and settings.""",
    examples=(
        ("See what a change would cost before it is applied", "polyarch build plan -f shop.yaml"),
        ("See why something is built, with the inputs of every key", "polyarch build plan shop --keys"),
        ("Print the Jobs that would be made", "polyarch build plan shop --jobs"),
        ("Have CI fail while something is left to be done", "polyarch build plan shop --check"),
        ("Plan without a cluster", "polyarch build plan --facts facts.yaml -o json"),
    ),
    exits=(
        (0, "planned; with --check: everything is as it should be, or is being made"),
        (1, "with --check: there is something to do"),
        (2, "the command line, a file or the build itself is wrong"),
        (3, "the API server or a registry could not be asked"),
    ),
)
STATUS_EPILOGUE = epilogue(
    examples=(
        ("List the builds of a namespace", "polyarch build status -n team"),
        ("List all builds, also of machine OS images", "polyarch build status -A"),
        ("See each architecture of one build, and what would release it", "polyarch build status shop"),
        ("Watch it", "polyarch build status shop --watch"),
    ),
    exits=(
        (0, "shown, whatever the state is"),
        (2, "the command line is wrong, or there is no such build"),
        (3, "the API server could not be asked"),
    ),
)
LOGS_EPILOGUE = epilogue(
    note="Of the run at work, or else of the newest one; each line begins with its architecture.",
    examples=(
        ("Read what all architectures say", "polyarch build logs shop"),
        ("Follow one of them, across attempts", "polyarch build logs shop --arch arm64 -f"),
        ("Read attempts that failed before", "polyarch build logs shop --previous"),
        ("Read the push of an earlier run", "polyarch build logs shop --run shop-86db15901a-1 --container push"),
    ),
    exits=(
        (0, "printed"),
        (2, "the command line is wrong, or there is no such build or run"),
        (3, "the API server could not be asked"),
        (130, "Ctrl-C"),
    ),
)

app = App(name="build", help="Build one image for every architecture in the cluster, natively.")


@app.command(help="Build an image for every architecture, and follow it", help_epilogue=RUN_EPILOGUE)
def run(
    name: Annotated[BuildName | None, option("Name of the ImageBuild", group=RUNS)] = None,
    *,
    wish: BuildFlags = NO_WISH,
    rebuild: Annotated[
        Architectures | None,
        option("Build again: these architectures, or what a plain --rebuild finds worth it", group=RUNS),
    ] = None,
    no_wait: Annotated[bool, flag("Apply it, and do not follow it", group=RUNS)] = False,
    timeout: Annotated[
        Seconds | None, option("Longest time to follow it", "--timeout", group=RUNS, show_default="no limit")
    ] = None,
    dry_run: Annotated[bool, flag("Print what would be applied, and write nothing", group=RUNS)] = False,
    output: Outputs = None,
    where: NamespaceFlags = USUAL_NAMESPACE,
    registry: RegistryFlags = NO_REGISTRY,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Apply an ImageBuild and follow it until its image is published; returns the exit code."""
    messages = verbosity.messages()
    chosen = outputs(output, FORMATS)
    refuse_overwriting(chosen, wish.inputs)
    from polyarch.cli.build.run import BuildRunOptions, run_build

    asked = BuildRunOptions(name=name, rebuild=rebuild, wait=not no_wait, timeout=timeout, dry_run=dry_run)
    return run_build(asked, wish, where, registry.options(), chosen, messages=messages)


@app.command(help="Say what would be built, and why", help_epilogue=PLAN_EPILOGUE)
def plan(
    name: Annotated[BuildName | None, option("Name of the ImageBuild", group=SHOWN)] = None,
    *,
    file: Annotated[
        File | None,
        option(
            "ImageBuilds to plan for, in place of the stored ones; - is standard input",
            "-f",
            "--file",
            group=SHOWN,
            hyphen=True,
        ),
    ] = None,
    facts: Annotated[
        File | None, option("Everything that the plan is made of; - is standard input", group=SHOWN, hyphen=True)
    ] = None,
    keys: Annotated[bool, flag("Also print the inputs that each key is made of", group=SHOWN)] = False,
    jobs: Annotated[bool, flag("Also print the Jobs that would be made", group=SHOWN)] = False,
    check: Annotated[bool, flag("Exit with 1 if there is something to do", group=SHOWN)] = False,
    output: Outputs = None,
    where: NamespaceFlags = USUAL_NAMESPACE,
    registry: RegistryFlags = NO_REGISTRY,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Say what the builder would do now, and why; returns the exit code."""
    messages = verbosity.messages()
    chosen = outputs(output, FORMATS)
    refuse_overwriting(chosen, [file, facts])
    from polyarch.cli.build.plan import BuildPlanOptions, run_plan

    asked = BuildPlanOptions(name=name, file=file, facts=facts, keys=keys, jobs=jobs, check=check)
    return run_plan(asked, where, registry.options(), chosen, messages=messages)


@app.command(help="Show builds and what keeps them", help_epilogue=STATUS_EPILOGUE)
def status(
    name: Annotated[BuildName | None, option("Name of the ImageBuild", group=SHOWN, show_default="all")] = None,
    *,
    all_namespaces: Annotated[
        bool, flag("Builds of all namespaces, and of machine OS images", "-A", "--all-namespaces", group=SHOWN)
    ] = False,
    watch: Annotated[bool, flag("Show it again and again, until Ctrl-C", "-w", "--watch", group=SHOWN)] = False,
    output: Outputs = None,
    where: NamespaceFlags = USUAL_NAMESPACE,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Show builds, or the architectures of one; returns the exit code."""
    messages = verbosity.messages()
    chosen = outputs(output, FORMATS)
    from polyarch.cli.build.status import BuildStatusOptions, run_status

    asked = BuildStatusOptions(name=name, everywhere=all_namespaces, watch=watch)
    return run_status(asked, where, chosen, messages=messages)


@app.command(help="Print what the pods of a build say", help_epilogue=LOGS_EPILOGUE)
def logs(
    name: Annotated[BuildName, option("Name of the ImageBuild", group=SHOWN)],
    *,
    run: Annotated[RunName | None, option("One of its runs", group=SHOWN, show_default="the newest one")] = None,
    arch: Annotated[Architectures | None, option("These architectures", group=SHOWN, show_default="all")] = None,
    follow: Annotated[bool, flag("Go on until the run is over", "-f", "--follow", group=SHOWN)] = False,
    container: Annotated[Container | None, option("The build or the push", group=SHOWN, show_default="both")] = None,
    previous: Annotated[bool, flag("Attempts before the newest one", group=SHOWN)] = False,
    output: Outputs = None,
    where: NamespaceFlags = USUAL_NAMESPACE,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Print logs of all architectures, each line with its architecture; returns the exit code."""
    messages = verbosity.messages()
    chosen = outputs(output, FORMATS)
    from polyarch.cli.build.logs import BuildLogsOptions, run_logs

    asked = BuildLogsOptions(name=name, run=run, arch=arch, follow=follow, container=container, previous=previous)
    return run_logs(asked, where, chosen, messages=messages)
