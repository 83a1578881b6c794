"""Whether pods get their tolerations at admission: is the webhook registered, and does somebody answer (TN-025)?

It counts as registered and available if the MutatingWebhookConfiguration has an entry for pods, and the Service that
the entry names has a ready endpoint. An entry with a URL, for a process outside the cluster, is taken at its word.

Pure.
"""

from collections.abc import Iterable

import msgspec

from polyarch.objects import ObjectMeta
from polyarch.taints.names import POD_WEBHOOK_PATH, ROLE


class ServiceReference(msgspec.Struct, frozen=True, gc=False):
    """admissionregistration.k8s.io/v1 ServiceReference."""

    namespace: str = ""
    name: str = ""
    path: str = ""


class ClientConfig(msgspec.Struct, frozen=True, gc=False):
    """admissionregistration.k8s.io/v1 WebhookClientConfig."""

    service: ServiceReference | None = None
    url: str = ""

    @property
    def path(self) -> str:
        return self.service.path if self.service is not None else self.url


class Webhook(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """admissionregistration.k8s.io/v1 MutatingWebhook."""

    name: str = ""
    client_config: ClientConfig = ClientConfig()


class WebhookConfiguration(msgspec.Struct, frozen=True, gc=False):
    """admissionregistration.k8s.io/v1 MutatingWebhookConfiguration."""

    metadata: ObjectMeta = ObjectMeta()
    webhooks: list[Webhook] | None = None


class EndpointConditions(msgspec.Struct, frozen=True, gc=False):
    """discovery.k8s.io/v1 EndpointConditions; an absent ``ready`` means ready."""

    ready: bool | None = None


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    """discovery.k8s.io/v1 Endpoint."""

    conditions: EndpointConditions = EndpointConditions()


class EndpointSlice(msgspec.Struct, frozen=True, gc=False):
    """discovery.k8s.io/v1 EndpointSlice."""

    metadata: ObjectMeta = ObjectMeta()
    endpoints: list[Endpoint] | None = None


def admission_problem(
    configuration: WebhookConfiguration | None, slices: Iterable[EndpointSlice], *, namespace: str
) -> str:
    """Why pods do not get their tolerations at admission; empty: they do."""
    entries = [
        each.client_config
        for each in (configuration.webhooks or () if configuration is not None else ())
        if each.client_config.path.endswith(POD_WEBHOOK_PATH)
    ]
    if not entries:
        return f"MutatingWebhookConfiguration {ROLE} has no entry for pods, so they get no tolerations"
    for entry in entries:
        service = entry.service
        if service is None:
            continue
        if (service.namespace, service.name) != (namespace, ROLE):
            return (
                f"MutatingWebhookConfiguration {ROLE} points at Service {service.namespace}/{service.name}, not at "
                f"{namespace}/{ROLE}"
            )
        if not any(endpoint.conditions.ready is not False for each in slices for endpoint in each.endpoints or ()):
            return f"Service {namespace}/{ROLE} has no ready endpoint, so pods get no tolerations"
    return ""
