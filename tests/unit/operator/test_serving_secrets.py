"""The Secrets that processes of polyarch read their certificates and keys from."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from cryptography.x509 import SubjectAlternativeName
from fake_api import FakeApi
from manual_clock import ManualClock

from polyarch.kube.certificate_rotation import authority_of, leaf_of
from polyarch.kube.resources import SECRETS
from polyarch.operator.certificates import RECORD_KEY, secret_of
from polyarch.operator.serving_secrets import ServingSecrets
from polyarch.operator.settings import OperatorSettings
from polyarch.placement import names
from polyarch.placement.decision import parse_keys

OWNER = {"apiVersion": "v1", "kind": "ServiceAccount", "name": names.OPERATOR, "uid": "u-1"}


class Kept:
    """An API server, and the reconciler as each new leader runs it."""

    def __init__(self, mode: Any) -> None:
        self.api = FakeApi()
        self.clock = ManualClock(start=0, now=datetime.now(UTC))
        self.settings = OperatorSettings(namespace="home", certificates=mode)

    async def reconcile(self) -> None:
        secrets = ServingSecrets(self.api, self.settings, owner=OWNER, clock=self.clock)
        await secrets.reconcile(secrets.key)

    def secret(self, name: str = names.CERTIFICATES_SECRET) -> dict[str, Any]:
        return self.api.read(SECRETS, name, "home")

    @property
    def keys(self) -> tuple[bytes, ...]:
        data = msgspec.convert(self.secret()["data"], dict[str, bytes])
        return parse_keys(data[RECORD_KEY])


@pytest.mark.req("PL-540")
async def test_one_leaf_serves_all_services_and_only_the_operator_has_the_ca() -> None:
    kept = Kept("self-managed")
    await kept.reconcile()
    leaf = leaf_of(kept.secret()["data"])
    assert leaf is not None
    assert authority_of(kept.secret(names.AUTHORITY_SECRET)["data"]).current is not None
    named = leaf.certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    for service in (names.OPERATOR, names.WEBHOOK, names.CONTROLLER, names.ENOEXEC_HANDLER):
        assert {f"{service}.home.svc", f"{service}.home.svc.cluster.local"} <= {each.value for each in named}
    assert kept.secret()["data"].keys() == {"tls.crt", "tls.key", RECORD_KEY}
    for name in (names.CERTIFICATES_SECRET, names.AUTHORITY_SECRET):
        assert kept.secret(name)["metadata"]["ownerReferences"] == [OWNER], "none outlives the operator"


@pytest.mark.req("PL-853")
async def test_the_last_two_keys_of_records_count() -> None:
    kept = Kept("self-managed")
    await kept.reconcile()
    (first,) = kept.keys
    kept.clock.advance(timedelta(days=89).total_seconds())
    await kept.reconcile()
    assert kept.keys == (first,), "not due yet"
    for _ in range(2):
        kept.clock.advance(timedelta(days=2).total_seconds())
        await kept.reconcile()
    second, *former = kept.keys
    assert former == [first]
    kept.clock.advance(timedelta(days=91).total_seconds())
    await kept.reconcile()
    assert kept.keys[1] == second
    assert kept.keys[0] not in (first, second)


@pytest.mark.req("PL-853")
async def test_a_damaged_key_is_replaced() -> None:
    kept = Kept("self-managed")
    await kept.reconcile()
    secret = kept.secret()
    secret["data"][RECORD_KEY] = "bm90IGEga2V5"
    kept.api.put(SECRETS, secret)
    await kept.reconcile()
    assert len(kept.keys) == 1


@pytest.mark.req("PL-541")
async def test_with_cert_manager_only_the_key_of_records_is_ours() -> None:
    """Whoever issues the certificate makes the Secret; ours is one entry of it."""
    kept = Kept("cert-manager")
    await kept.reconcile()
    assert not kept.api.objects
    issued = {
        "metadata": {"name": names.CERTIFICATES_SECRET, "namespace": "home", "uid": "u"},
        "data": {"tls.crt": "eA=="},
    }
    kept.api.put(SECRETS, issued)
    await kept.reconcile()
    assert kept.secret()["data"]["tls.crt"] == "eA=="
    assert len(kept.keys) == 1


@pytest.mark.req("PL-541")
async def test_the_service_ca_of_openshift_writes_other_secrets() -> None:
    kept = Kept("service-ca")
    await kept.reconcile()
    assert kept.secret()["data"].keys() == {RECORD_KEY}
    assert secret_of(names.OPERATOR, kept.settings.certificates) == "polyarch-operator-certificates"


@pytest.mark.req("PL-500")
@pytest.mark.parametrize("mode", ["self-managed", "service-ca"])
async def test_a_pass_that_finds_all_as_it_should_be_writes_nothing(mode: str) -> None:
    kept = Kept(mode)
    await kept.reconcile()
    before = len(kept.api.writes())
    await kept.reconcile()
    assert len(kept.api.writes()) == before
