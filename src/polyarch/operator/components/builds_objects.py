"""What the operator makes for builds while the role ``builder`` is wanted. Pure.

One list of objects drives creation and deletion, so that what can be made cannot be forgotten.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from polyarch.builds import names
from polyarch.builds.machineos import api
from polyarch.kube import events, lease
from polyarch.kube.rbac import granted, role, rule
from polyarch.kube.resources import (
    CONFIGMAPS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    RUNTIME_CLASSES,
    SECRETS,
)
from polyarch.kube.server import SCRAPER_RIGHTS
from polyarch.operator.components import alerts
from polyarch.operator.operands import OperandDeployment, policy_documents, resource_rule, role_objects
from polyarch.operator.owned_objects import (
    Document,
    RolePermissions,
    combined,
    labels,
    metadata,
    reading_images,
    roles,
    service_account,
)
from polyarch.operator.settings import MACHINE_OS_NAMESPACE, ClusterCapabilities, OperatorSettings


def builds_operands(
    settings: OperatorSettings,
    cluster: ClusterCapabilities,
    *,
    tainted: Sequence[str] = (),
    ca_bundle: bytes = b"",
    registries: str = "",
    placed: bool = False,
) -> tuple[Document, ...]:
    """The objects for these settings; see :func:`role_objects`.

    ``tainted``: keys of the taints by architecture that nodes of this cluster have.
    """
    settings = msgspec.structs.replace(settings, machine_os=settings.machine_os_in(cluster))
    return role_objects(
        deployment(settings, tainted),
        settings.tolerating(*tainted),
        cluster,
        rbac=[
            *rbac(settings, cluster),
            *build_policies(settings),
            *(builder_policy(settings) if settings.admission_policies else ()),
        ],
        alerts=alerts.BUILDS,
        ca_bundle=ca_bundle,
        registries=registries,
        placed=placed,
    )


def deployment(settings: OperatorSettings, tainted: Sequence[str] = ()) -> OperandDeployment:
    """The role ``builder``: one replica leads, the others stand by."""
    return OperandDeployment(
        name=names.ROLE,
        container="builder",
        role="builder",
        replicas=settings.builder_replicas,
        cpu="50m",
        memory="128Mi",
        memory_limit="512Mi",
        asks_registries=True,
        global_credentials=False,
        spare="one",
        arguments=arguments(settings, tainted),
    )


def arguments(settings: OperatorSettings, tainted: Sequence[str] = ()) -> tuple[str, ...]:
    """Flags of ``polyarch run builder`` beyond those that every role gets."""
    keys = dict.fromkeys((*(settings.arch_taint_keys or names.ARCH_TAINT_KEYS), *tainted))
    given = [
        f"--builder-image={settings.builder_image}",
        f"--push-image={settings.push_image or settings.image}",
        f"--max-active-jobs={settings.max_active_jobs}",
        *(f"--arch-taint-key={key}" for key in keys),
        f"--machine-os={settings.machine_os}",
    ]
    if settings.allow_privileged_builds:
        given.append("--allow-privileged-builds")
    if settings.machine_os != "off" and settings.machine_os_namespace != MACHINE_OS_NAMESPACE:
        given.append(f"--machine-os-namespace={settings.machine_os_namespace}")
    return tuple(given)


# -- permissions -------------------------------------------------------------------------------------------------------


# The builder reads a Secret only by name, and only in namespaces where an admin bound :data:`names.NAMESPACE_ROLE`. Its
# permissions for machine OS images are a role of their own, which exists only where these are wanted. Tests compare the
# rules with what the parts of the role say they need.

IN_NAMESPACES: Final = (rule(SECRETS, "get"),)
"""The rules of ClusterRole ``polyarch-builds``, which an admin binds to the builder in a namespace."""
_ALL_KINDS: Final = (names.IMAGE_BUILDS, names.IMAGE_BUILD_RUNS)
_AGGREGATES: Final = "rbac.authorization.k8s.io/aggregate-to-"
VIEW_ROLE: Final = f"{names.ROLE}-view"
EDIT_ROLE: Final = f"{names.ROLE}-edit"
MACHINE_ROLE: Final = f"{names.ROLE}-machine-os"
FORMER_MACHINE_ROLES: Final = rule((ROLES, ROLE_BINDINGS), "get", "list", "delete", names=[MACHINE_ROLE])
"""What the operator always holds in every namespace: a former setting may have left this Role in any."""


def role_permissions(settings: OperatorSettings, cluster: ClusterCapabilities) -> RolePermissions:
    """The rules of the role ``builder``."""
    home = settings.namespace
    own = RolePermissions(
        cluster=(
            rule(names.IMAGE_BUILDS, "get", "list", "watch", "patch"),
            rule(names.IMAGE_BUILD_RUNS, "create", "get", "list", "watch", "patch", "delete"),
            rule(_ALL_KINDS, "patch", subresource="status"),
            # Where API servers check owner references, whoever writes one needs this of the owner.
            rule(_ALL_KINDS, "update", subresource="finalizers"),
            rule(JOBS, "create", "get", "list", "watch", "patch", "delete"),
            rule(CONFIGMAPS, "create", "get", "list", "watch", "patch", "delete"),
            rule((PODS, NODES, NAMESPACES), "list", "watch"),
            rule(RUNTIME_CLASSES, "get"),
            *events.RIGHTS,
            *SCRAPER_RIGHTS,
        ),
        namespaces={home: (*lease.rights(names.LEASE), rule(SECRETS, "get", names=[names.HMAC_SECRET]))},
    )
    # The credentials of a build are those that it names, so the cluster's own are no business of the builder.
    return combined(own, reading_images(home, openshift=cluster.openshift, global_secret=None, pull_secrets=False))


def machine_permissions(settings: OperatorSettings, cluster: ClusterCapabilities) -> RolePermissions:
    """The rules of machine OS images: a role of their own, which exists only where they are wanted."""
    if settings.machine_os_in(cluster) == "off":
        return RolePermissions((), {})
    kinds = (api.CONFIGS, api.BUILDS, api.POOLS)
    return RolePermissions(
        cluster=(
            rule((api.CONFIGS, api.POOLS), "get", "list", "watch", "patch"),
            rule(api.BUILDS, "create", "get", "list", "watch", "patch", "delete"),
            rule(api.RENDERED, "get", "list", "watch"),
            rule(api.CONTROLLER_CONFIGS, "list", "watch"),
            rule(kinds, "patch", subresource="status"),
            rule((api.CONFIGS, api.BUILDS), "update", subresource="finalizers"),
        ),
        namespaces={
            settings.machine_os_namespace: (rule(SECRETS, "get", "create", "patch"), rule(DEPLOYMENTS, "list", "watch"))
        },
    )


def people() -> list[Document]:
    """Aggregated to the roles of namespaces: who may create pods may create ImageBuilds."""
    marks = labels(names.ROLE)
    edit = {f"{_AGGREGATES}{role}": "true" for role in ("admin", "edit")}
    return [
        role(VIEW_ROLE, VIEWING, labels=marks | {f"{_AGGREGATES}view": "true"}),
        role(EDIT_ROLE, EDITING, labels=marks | edit),
    ]


VIEWING: Final = (rule(_ALL_KINDS, "get", "list", "watch"),)
EDITING: Final = (
    rule(names.IMAGE_BUILDS, "create", "update", "patch", "delete", "deletecollection"),
    rule(names.IMAGE_BUILD_RUNS, "delete", "deletecollection"),
)


def rbac(settings: OperatorSettings, cluster: ClusterCapabilities) -> list[Document]:
    """ServiceAccount, roles and bindings."""
    home, may_read_secrets = settings.namespace, settings.secret_access == "byName"
    return [
        service_account(names.ROLE, home, settings.account_annotations("builder")),
        *roles(names.ROLE, role_permissions(settings, cluster), home),
        *_machine_roles(settings, cluster),
        *([role(names.NAMESPACE_ROLE, IN_NAMESPACES, labels=labels(names.ROLE))] if may_read_secrets else []),
        *people(),
    ]


def _machine_roles(settings: OperatorSettings, cluster: ClusterCapabilities) -> list[Document]:
    allowed, account = machine_permissions(settings, cluster), [(settings.namespace, names.ROLE)]
    return [
        document
        for namespace, rules in (("", allowed.cluster), *allowed.namespaces.items())
        if rules
        for document in granted(MACHINE_ROLE, rules, account, namespace=namespace, labels=labels(names.ROLE))
    ]


# -- admission policies ------------------------------------------------------------------------------------------------


# Builds need Pod Security ``privileged`` on their namespace, which gives root on nodes to whoever may create pods
# there. In namespaces that an admin labels, the API server admits pods beyond ``baseline`` only from the Job
# controller, and Jobs with such pods only from the builder. A namespace's labels are not its tenants' to change.

POD_POLICY: Final = "build-pods.polyarch.dev"
JOB_POLICY: Final = "build-jobs.polyarch.dev"
BUILDER_POLICY: Final = f"{names.ROLE}.polyarch.dev"
POLICIES: Final = (POD_POLICY, JOB_POLICY, BUILDER_POLICY)
JOB_CONTROLLER: Final = ("system:serviceaccount:kube-system:job-controller", "system:kube-controller-manager")
"""Who makes pods of Jobs, by how the controller manager is started."""
_ALLOWED_CAPABILITIES: Final = (
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
)  # fmt: skip
_ALLOWED_SYSCTLS: Final = (
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
)  # fmt: skip
_ALLOWED_SELINUX: Final = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
_KINDS: Final = ("containers", "initContainers", "ephemeralContainers")


def build_policies(settings: OperatorSettings) -> list[Document]:
    """The ValidatingAdmissionPolicies and their bindings."""
    builder = f"system:serviceaccount:{settings.namespace}:{names.ROLE}"
    pods = [
        resource_rule(PODS, "CREATE", "UPDATE"),
        resource_rule(PODS, "UPDATE", subresource="ephemeralcontainers"),
    ]
    of_a_job = "object.metadata.ownerReferences.exists(o, o.kind == 'Job' && has(o.controller) && o.controller)"
    by_controller = (
        f"request.userInfo.username in {list(JOB_CONTROLLER)} && request.operation == 'CREATE' && "
        f"has(object.metadata.ownerReferences) && {of_a_job}"
    )
    # Whoever changes a pod that is there (labels, finalizers) may go on, but adds no container.
    unchanged = " && ".join(f"{_several('object.spec', each)} == {_several('oldObject.spec', each)}" for each in _KINDS)
    return [
        *_build_policy(
            POD_POLICY,
            pods,
            "object.spec",
            f"({by_controller}) || (request.operation == 'UPDATE' && {unchanged})",
            "in this namespace pods beyond Pod Security baseline are made for builds alone",
        ),
        *_build_policy(
            JOB_POLICY,
            [resource_rule(JOBS, "CREATE", "UPDATE")],
            "object.spec.template.spec",
            f"request.userInfo.username == '{builder}' || (request.operation == 'UPDATE' && "
            "object.spec.template.spec == oldObject.spec.template.spec)",
            "in this namespace Jobs with pods beyond Pod Security baseline are made by the builder alone",
        ),
    ]


SYSTEM_NAMESPACES: Final = ("kube-system", "kube-public", "kube-node-lease")
"""Where nothing is built, whoever makes an ImageBuild there."""


def builder_policy(settings: OperatorSettings) -> list[Document]:
    """What the builder writes: Jobs and ConfigMaps of builds, whose pods get no token of their ServiceAccount.

    An object is one of a build by our label, or by its owner where somebody took the label away. A Job mounts any
    Secret of its namespace, and polyarch's has the keys of its certificates and tokens.
    """
    owners = f"r.apiVersion.startsWith('{names.GROUP}/') || r.apiVersion.startsWith('{api.CONFIGS.group}/')"

    def of_a_build(object_: str) -> str:
        metadata = f"{object_}.metadata"
        labelled = f"has({metadata}.labels) && '{names.RUN_LABEL}' in {metadata}.labels"
        return f"({labelled} || has({metadata}.ownerReferences) && {metadata}.ownerReferences.exists(r, {owners}))"

    pod = "object.spec.template.spec"
    tokens = "v.projected.sources.exists(s, has(s.serviceAccountToken))"
    volumes = f"has({pod}.volumes) && {pod}.volumes.exists(v, has(v.projected) && has(v.projected.sources) && {tokens})"
    home = f"request.namespace == '{settings.namespace}'"
    own = f"{home} && request.name == '{names.ARCHITECTURES_CONFIGMAP}'"
    return policy_documents(
        metadata(BUILDER_POLICY, names.ROLE),
        [resource_rule(each, "CREATE", "UPDATE", "DELETE") for each in (JOBS, CONFIGMAPS)],
        {
            "nothing is built in Kubernetes' own namespaces": f"!(request.namespace in {list(SYSTEM_NAMESPACES)})",
            "nothing is built in polyarch's namespace": (
                f"request.resource.resource != 'jobs' || request.operation != 'CREATE' || !({home})"
            ),
            "the builder writes objects of builds alone": (
                f"request.resource.resource == 'configmaps' && {own} || "
                f"(request.operation == 'DELETE' || {of_a_build('object')}) && "
                f"(request.operation == 'CREATE' || {of_a_build('oldObject')})"
            ),
            "pods of builds get no token": (
                "request.resource.resource != 'jobs' || request.operation != 'CREATE' || "
                f"has({pod}.automountServiceAccountToken) && !{pod}.automountServiceAccountToken && !({volumes})"
            ),
        },
        account=(settings.namespace, names.ROLE),
        condition="builder",
    )


def _build_policy(name: str, rules: list[Document], spec: str, allowed: str, message: str) -> list[Document]:
    documents = policy_documents(
        metadata(name, names.ROLE),
        rules,
        {message: f"!variables.beyond || {allowed}"},
        variables=_beyond_baseline(spec),
    )
    documents[1]["spec"]["matchResources"] = {
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchLabels": {names.BUILD_PODS_LABEL: "builds"}},
        "objectSelector": {},
    }
    return documents


def _beyond_baseline(spec: str) -> dict[str, str]:
    """CEL variables; ``beyond`` is true for a pod that Pod Security ``baseline`` refuses, by any of its controls."""
    every = " + ".join(_several(spec, each) for each in ("containers", "initContainers"))
    later = _several(spec, "ephemeralContainers")

    def confined(context: str) -> str:
        windows, linux = f"{context}.windowsOptions", f"{context}.seLinuxOptions"
        typed = f"has({linux}.type) && !({linux}.type in {list(_ALLOWED_SELINUX)})"
        return " || ".join(
            (
                f"has({context}.seccompProfile) && {context}.seccompProfile.type == 'Unconfined'",
                f"has({context}.appArmorProfile) && {context}.appArmorProfile.type == 'Unconfined'",
                f"has({windows}) && has({windows}.hostProcess) && {windows}.hostProcess",
                f"has({linux}) && (has({linux}.user) || has({linux}.role) || {typed})",
            )
        )

    own = "c.securityContext"
    added = f"{own}.capabilities.add.exists(each, !(each in {list(_ALLOWED_CAPABILITIES)}))"
    container = " || ".join(
        (
            f"has({own}.privileged) && {own}.privileged",
            f"has({own}.procMount) && {own}.procMount != 'Default'",
            f"has({own}.capabilities) && has({own}.capabilities.add) && {added}",
            confined(own),
        )
    )
    ports = "has(c.ports) && c.ports.exists(p, has(p.hostPort) && p.hostPort != 0)"
    wrong = f"{ports} || has({own}) && ({container})"
    pod = f"{spec}.securityContext"
    host = " || ".join(f"has({spec}.{each}) && {spec}.{each}" for each in ("hostNetwork", "hostPID", "hostIPC"))
    sysctls = f"has({pod}.sysctls) && {pod}.sysctls.exists(s, !(s.name in {list(_ALLOWED_SYSCTLS)}))"
    paths = f"has({spec}.volumes) && {spec}.volumes.exists(v, has(v.hostPath))"
    return {
        "host": f"{host} || {paths} || has({pod}) && ({sysctls} || {confined(pod)})",
        "inContainers": f"({every}).exists(c, {wrong})",
        "inEphemeral": f"{later}.exists(c, {wrong})",
        "beyond": "variables.host || variables.inContainers || variables.inEphemeral",
    }


def _several(spec: str, kind: str) -> str:
    return f"(has({spec}.{kind}) ? {spec}.{kind} : [])"
