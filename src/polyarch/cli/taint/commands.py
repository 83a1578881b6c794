"""``polyarch taint``: the way to tainted nodes, and back.

The command lines alone; ``planning``, ``walk`` and ``cleaning`` do the work."""

from typing import Annotated, Literal

from cyclopts import App

from polyarch.cli.options.common import (
    AS_USUAL,
    FORMATS,
    OUTPUT_OPTION,
    USUAL_CLUSTER,
    ClusterFlags,
    Format,
    Verbosity,
    outputs,
    refuse_overwriting,
)
from polyarch.cli.options.help_page import epilogue
from polyarch.cli.options.images import DEFAULT_IMAGES, ImageOptions
from polyarch.cli.options.values import Name, Number, Placeholder, Seconds, flag, option, subject
from polyarch.cli.taint.options import UNCONFIGURED, ConfigurationFlags, Key, Preset

Outputs = Annotated[list[Format | str] | None, OUTPUT_OPTION]
Emit = Annotated[
    Literal["registration-policy", "guard-policies", "kubelet-flags", "nodepools", "runtimeclasses"],
    Placeholder("KIND"),
]
PLANNED, DONE, REMOVED = subject("What to print"), subject("How to do it"), subject("What to remove")

PLAN_EPILOGUE = epilogue(
    note="""\
Reads nodes, pods and every template of pods, looks their images up, and writes nothing.
Works with polyarch in the cluster and without it.""",
    examples=(
        ("See what is missing before arm64 nodes can be tainted", "polyarch taint plan"),
        ("See what another configuration would mean", "polyarch taint plan --config taints.yaml"),
        ("Have the same as JSON, without registries", "polyarch taint plan -o json --offline --platforms-file p.json"),
        ("Print what an autoscaler has to know", "polyarch taint plan --emit nodepools"),
        ("Print a RuntimeClass per architecture", "polyarch taint plan --emit runtimeclasses --handler runc"),
    ),
    exits=(
        (0, "nothing is in the way"),
        (1, "something would break if the nodes were tainted now"),
        (2, "the command line or a file it names is wrong"),
        (3, "the API server could not be asked"),
    ),
)

DryRun = Annotated[bool, flag("Have the API server check every write, and write nothing", group=DONE)]
Yes = Annotated[bool, flag("Do not ask", group=DONE)]
Limit = Annotated[Seconds, option("Longest wait for the controller", group=DONE)]
Continue = Annotated[
    bool, flag("Do not wait any longer for DaemonSets that are being rolled out", "--continue", group=DONE)
]

BOOTSTRAP_EPILOGUE = epilogue(
    note="""\
Adds tolerations to the templates of DaemonSets and to pods, and checks that every template
keeps a node. Nodes are not tainted. With polyarch in the cluster its ArchitectureTaints is
created with all nodes held back; without it the writes are made by this command. A run that
was stopped is continued by the same command.""",
    examples=(
        ("See what would be written", "polyarch taint bootstrap --dry-run"),
        ("Prepare the cluster", "polyarch taint bootstrap"),
        ("Prepare it from a script, for nodes of every architecture", "polyarch taint bootstrap --yes --mode both"),
    ),
    exits=(
        (0, "everything is ready"),
        (1, "something would break if the nodes were tainted now"),
        (2, "the command line or a file it names is wrong; nothing was written"),
        (3, "the API server refused, or it was not done in time; the same command goes on"),
    ),
)
APPLY_EPILOGUE = epilogue(
    note="""\
Does what bootstrap does, and then taints the nodes: architecture by architecture, the
smallest first, and the primary ones last. It stops as soon as pods appear that only the new
taint keeps pending. A run that was stopped is continued by the same command.""",
    examples=(
        ("See what would be written", "polyarch taint apply --dry-run"),
        ("Taint the nodes", "polyarch taint apply"),
        ("Taint them in spite of what plan names", "polyarch taint apply --accept-blocked"),
        ("Do not wait any longer for DaemonSets that roll out slowly", "polyarch taint apply --continue"),
    ),
    exits=(
        (0, "all nodes carry their taints"),
        (1, "something is in the way, or pods became pending"),
        (2, "the command line or a file it names is wrong; nothing was written"),
        (3, "the API server refused, or it was not done in time; the same command goes on"),
    ),
)
CLEAN_EPILOGUE = epilogue(
    note="""\
Works from anywhere, also if the controller is dead and the kind ArchitectureTaints is gone.
No pod is deleted, and none is evicted without --evict. Pods keep their tolerations: one that
is left over does nothing. Taints that others added stay where they are.""",
    examples=(
        ("See what would be removed", "polyarch taint clean --dry-run"),
        ("Remove the taints", "polyarch taint clean"),
        ("Also take the tolerations from DaemonSets", "polyarch taint clean --templates"),
        ("Remove what archaware-controller left on nodes", "polyarch taint clean --preset archaware --adopt"),
    ),
    exits=(
        (0, "a fresh list shows no taint and no gate of polyarch"),
        (1, "with --dry-run: something would be written"),
        (2, "the command line is wrong; nothing was written"),
        (3, "something is left, or the controller could not be stopped"),
    ),
)

app = App(name="taint", help="Taint nodes by architecture in the safe order, or remove the taints again.")


@app.command(help="Print what is missing before the nodes can be tainted", help_epilogue=PLAN_EPILOGUE)
def plan(
    *,
    emit: Annotated[
        Emit | None,
        option("Print this instead: objects, flags or patches for other parts of the cluster", group=PLANNED),
    ] = None,
    handler: Annotated[
        Name | None, option("Handler of the RuntimeClasses, as the container runtime calls it", group=PLANNED)
    ] = None,
    output: Outputs = None,
    configuration: ConfigurationFlags = UNCONFIGURED,
    images: ImageOptions = DEFAULT_IMAGES,
    cluster: ClusterFlags = USUAL_CLUSTER,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Print what is missing before the nodes can be tainted, and what would break."""
    messages = verbosity.messages()
    chosen = outputs(output, FORMATS)
    refuse_overwriting(chosen, [configuration.config, images.platforms_file])
    from polyarch.cli.taint.plan import TaintPlanOptions, run_plan

    return run_plan(
        TaintPlanOptions(emit=emit, handler=handler), configuration, cluster, images, chosen, messages=messages
    )


@app.command(help="Add every toleration that is missing, and taint no node", help_epilogue=BOOTSTRAP_EPILOGUE)
def bootstrap(
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    goes_on: Continue = False,
    deadline: Limit = 3600.0,
    output: Outputs = None,
    configuration: ConfigurationFlags = UNCONFIGURED,
    images: ImageOptions = DEFAULT_IMAGES,
    cluster: ClusterFlags = USUAL_CLUSTER,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Add every toleration that is missing, and taint no node."""
    messages = verbosity.messages()
    chosen = outputs(output, FORMATS)
    refuse_overwriting(chosen, [configuration.config, images.platforms_file])
    from polyarch.cli.taint.bootstrap import BootstrapRunOptions, run_steps

    manner = BootstrapRunOptions(taints=False, dry_run=dry_run, yes=yes, goes_on=goes_on, timeout=deadline)
    return run_steps(manner, configuration, cluster, images, chosen, messages=messages)


@app.command(help="Add every toleration that is missing, then taint the nodes", help_epilogue=APPLY_EPILOGUE)
def apply(
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    accept_blocked: Annotated[bool, flag("Taint the nodes in spite of blockers, which are named", group=DONE)] = False,
    adopt: Annotated[
        bool,
        flag("Also change taints that polyarch has not recorded, if its configuration makes them its own", group=DONE),
    ] = False,
    goes_on: Continue = False,
    batch: Annotated[
        Number, option("Nodes between two looks at pending pods, if no controller does the work", group=DONE)
    ] = 5,
    watch: Annotated[
        Seconds, option("How long to look for pending pods after the last node of an architecture", group=DONE)
    ] = 60.0,
    deadline: Limit = 3600.0,
    output: Outputs = None,
    configuration: ConfigurationFlags = UNCONFIGURED,
    images: ImageOptions = DEFAULT_IMAGES,
    cluster: ClusterFlags = USUAL_CLUSTER,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Add every toleration that is missing, then taint the nodes."""
    messages = verbosity.messages()
    chosen = outputs(output, FORMATS)
    refuse_overwriting(chosen, [configuration.config, images.platforms_file])
    from polyarch.cli.taint.bootstrap import BootstrapRunOptions, run_steps

    manner = BootstrapRunOptions(
        taints=True,
        dry_run=dry_run,
        batch=batch,
        watch=watch,
        yes=yes,
        accept_blocked=accept_blocked,
        adopt=adopt,
        goes_on=goes_on,
        timeout=deadline,
    )
    return run_steps(manner, configuration, cluster, images, chosen, messages=messages)


@app.command(help="Remove polyarch's taints from nodes, and its gates from pods", help_epilogue=CLEAN_EPILOGUE)
def clean(
    *,
    preset: Annotated[
        Preset | None, option("Where the key comes from", group=REMOVED, show_default="as the object says")
    ] = None,
    key: Annotated[Key | None, option("Key of the taints", group=REMOVED, show_default="as the object says")] = None,
    adopt: Annotated[
        bool, flag("Remove every taint with this key and a known architecture, whoever added it", group=REMOVED)
    ] = False,
    templates: Annotated[
        bool, flag("Also remove the tolerations that were added to DaemonSets", group=REMOVED)
    ] = False,
    evict: Annotated[
        bool, flag("Also evict pods with tolerations of polyarch; those that replace them have none", group=REMOVED)
    ] = False,
    include_bare: Annotated[
        bool, flag("With --evict: also pods without an owner, which nobody replaces", group=REMOVED)
    ] = False,
    dry_run: DryRun = False,
    force: Annotated[bool, flag("Go on although a controller runs that may add the taints again", group=DONE)] = False,
    yes: Yes = False,
    output: Outputs = None,
    cluster: ClusterFlags = USUAL_CLUSTER,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Remove polyarch's taints from nodes, and its gates from pods."""
    messages = verbosity.messages()
    chosen = outputs(output, FORMATS)
    from polyarch.cli.taint.clean import CleanOptions, run_clean

    asked = CleanOptions(
        dry_run=dry_run,
        preset=preset,
        key=key,
        adopt=adopt,
        templates=templates,
        evict=evict,
        include_bare=include_bare,
        force=force,
        yes=yes,
    )
    return run_clean(asked, cluster, chosen, messages=messages)
