"""Keeps the policy that taints nodes when they register.

The leader applies policy and binding, keeps their list of architectures up to date, sets right what somebody changed,
and deletes both when taints are removed. The version is asked of the API server: a cluster whose API server serves none
taints nodes a moment after they registered, and the status says so.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.adoption import foreign, taking
from polyarch.kube.controller import NoRequeue, RequeueAfter, Result
from polyarch.kube.errors import Forbidden, Invalid, KubernetesError, NotFound
from polyarch.kube.informer import OnDemandInformer, Shares
from polyarch.kube.managed_fields import differences
from polyarch.kube.patches import JsonPatch
from polyarch.kube.rbac import rule
from polyarch.kube.requests import FIELD_MANAGER
from polyarch.kube.resources import Resource
from polyarch.objects import ObjectKey, Unstructured
from polyarch.taints.documents import GROUP, VERSIONS, bindings, newest_served, policies, registration_policy
from polyarch.taints.facts import TaintFacts
from polyarch.taints.metrics import TaintMetrics
from polyarch.taints.names import REGISTRATION_POLICY

log = structlog.get_logger(__name__)

_KINDS: Final = (policies(VERSIONS[0]), bindings(VERSIONS[0]))
RIGHTS: Final = (
    rule(_KINDS, "list", "watch", "patch", "delete", names=[REGISTRATION_POLICY]),
    rule(_KINDS, "create"),
)
"""RBAC rules of the keeper. RBAC cannot restrict ``create`` by name, and knows no versions."""
ASK_AGAIN: Final = 600.0
"""Seconds until an API server without these kinds is asked again: it may have been upgraded."""
FACTS_AGAIN: Final = 5.0
"""Seconds until the next look while the configuration is not known; its arrival calls, too."""
SYNC_LOOK: Final = 0.2
REFUSED_LOOK: Final = 10.0
OBJECT: Final = ObjectKey("", REGISTRATION_POLICY)


class KeepsPolicies(Protocol):
    """The part of the client that is needed here."""

    async def discover(self, group: str) -> tuple[Resource, ...]: ...

    async def apply(
        self, resource: Resource, document: Mapping[str, Any], *, type: type[Unstructured]
    ) -> Unstructured: ...

    async def patch(self, resource: Resource, name: str, patch: JsonPatch) -> Any: ...

    async def delete(self, resource: Resource, name: str) -> None: ...


class _Kind:
    """One of the two objects: its watch, and what was sent last."""

    def __init__(self, informers: Shares, resource: Resource, wake: Callable[[], None]) -> None:
        self.resource = resource
        self.watch = OnDemandInformer(informers, resource, Unstructured, lambda _: wake(), name=REGISTRATION_POLICY)
        self.watch.want(True)
        self._sent = b""
        self._answered = ""

    def is_kept(self, document: Mapping[str, Any]) -> bool:
        live = self.watch.get(OBJECT)
        if live is None:
            return False
        if self._sent == msgspec.json.encode(document) and live.metadata.resource_version == self._answered:
            return True  # the server may store a value in another form
        return not (
            differences(document, live.document, manager=FIELD_MANAGER)
            or foreign(document, live.document, manager=FIELD_MANAGER)
        )

    async def apply(self, client: KeepsPolicies, document: Mapping[str, Any]) -> None:
        if (live := self.watch.get(OBJECT)) is not None:
            others = foreign(document, live.document, manager=FIELD_MANAGER)
            if patch := taking(live.document, others, manager=FIELD_MANAGER):
                await client.patch(self.resource, REGISTRATION_POLICY, patch)
        written = await client.apply(self.resource, document, type=Unstructured)
        self._sent, self._answered = msgspec.json.encode(document), written.metadata.resource_version
        log.info("object applied", object=f"{self.resource} {REGISTRATION_POLICY}")


class RegistrationPolicyController:
    """A controller with one key. ``released``: the architectures whose nodes are tainted now; None: not known yet, and
    the policy stays as the leader before left it."""

    def __init__(
        self,
        *,
        facts: TaintFacts,
        client: KeepsPolicies,
        informers: Shares,
        released: Callable[[], frozenset[str] | None],
        wake: Callable[[], None],
        clock: Clock,
        metrics: TaintMetrics,
    ) -> None:
        self._facts = facts
        self._client = client
        self._informers = informers
        self._released = released
        self._wake = wake
        self._clock = clock
        self._metrics = metrics
        self._version: str | None = None
        self._kinds: tuple[_Kind, ...] = ()
        self._asked_at: float | None = None
        self.problem = ""
        """Why the policy is not as it should be, as a sentence without its full stop."""

    @property
    def is_served(self) -> bool | None:
        """Whether the API server has these kinds; None: not asked yet."""
        return None if self._asked_at is None else self._version is not None

    @property
    def is_gone(self) -> bool:
        """Neither object is there."""
        return all(kind.watch.is_known and kind.watch.get(OBJECT) is None for kind in self._kinds)

    async def reconcile(self, key: ObjectKey) -> Result:
        """One pass."""
        if not self._facts.is_ready:  # a configuration that cannot be read now may be there nevertheless
            return RequeueAfter(FACTS_AGAIN)
        settings = self._facts.settings
        if settings is not None and settings.state == "paused":
            return NoRequeue()
        version = await self._found()
        if version is None:
            return RequeueAfter(ASK_AGAIN)
        unknown = [kind.watch for kind in self._kinds if not kind.watch.is_known]
        if unknown:
            self.problem = next((watch.problem for watch in unknown if watch.problem), "")
            return RequeueAfter(REFUSED_LOOK if self.problem else SYNC_LOOK)
        try:
            if settings is not None and settings.state == "active" and settings.at_registration == "policy":
                released = self._released()
                if released is None:
                    return RequeueAfter(SYNC_LOOK)
                await self._keep(registration_policy(settings, released, version=version))
            else:
                await self._remove()
        except KubernetesError as error:
            refused = isinstance(error, Forbidden | Invalid)
            self._metrics.wrote("policy", "refused" if refused else "unanswered")
            self.problem = f"the policy for nodes at registration is not up to date: {error}"
            raise
        self.problem = ""
        return NoRequeue()

    async def _found(self) -> str | None:
        """Asks for the version once; a cluster without one is asked again now and then."""
        now = self._clock.monotonic()
        if self._version is None and (self._asked_at is None or now - self._asked_at >= ASK_AGAIN):
            self._version = newest_served(await self._client.discover(GROUP))
            self._asked_at = now
            if self._version is None:
                log.info("the API server serves no MutatingAdmissionPolicies: nodes are tainted after they registered")
                return None
            # The binding comes last, and goes first: a policy without one does nothing.
            resources = (policies(self._version), bindings(self._version))
            self._kinds = tuple(_Kind(self._informers, each, self._wake) for each in resources)
        return self._version

    async def _keep(self, documents: Sequence[Mapping[str, Any]]) -> None:
        for kind, document in zip(self._kinds, documents, strict=True):
            if not kind.is_kept(document):
                await kind.apply(self._client, document)
                self._metrics.wrote("policy", "done")

    async def _remove(self) -> None:
        for kind in reversed(self._kinds):
            if kind.watch.get(OBJECT) is None:
                continue
            try:
                await self._client.delete(kind.resource, REGISTRATION_POLICY)
            except NotFound:
                continue
            self._metrics.wrote("policy", "done")
            log.info("object deleted", object=f"{kind.resource} {REGISTRATION_POLICY}")
