"""The Secrets that processes of polyarch read their certificates and keys from."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from cryptography.x509 import SubjectAlternativeName
from fake_api import FakeApi
from manual_clock import ManualClock

from polyarch.kube.certificate_rotation import authority_of, leaf_of
from polyarch.kube.resources import DEPLOYMENTS, MUTATING_WEBHOOKS, SECRETS, Resource
from polyarch.kube.review_tokens import ReviewTokens, path_with_token
from polyarch.objects import Unstructured
from polyarch.operator.certificates import RECORD_KEY, secret_of
from polyarch.operator.operands import KNOWS_TOKENS
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


# -- tokens of reviews -------------------------------------------------------------------------------------------------


class Sets:
    """The operands as the operator's caches have them: one webhook's Deployment and its configuration."""

    def __init__(self, path: str, *, revision: str = "1", knows: bool = True, complete_for: float = 3600.0) -> None:
        since = datetime.now(UTC) - timedelta(seconds=complete_for)
        annotations = dict(KNOWS_TOKENS) if knows else {}
        self._objects = {
            MUTATING_WEBHOOKS: {"webhooks": [{"clientConfig": {"service": {"path": path}}}]},
            DEPLOYMENTS: {
                "metadata": {"generation": 2, "annotations": {"deployment.kubernetes.io/revision": revision}},
                "spec": {"replicas": 1, "template": {"metadata": {"annotations": annotations}}},
                "status": {
                    **dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1),
                    "observedGeneration": 2,
                    "conditions": [{"type": "Progressing", "lastUpdateTime": since.isoformat()}],
                },
            },
        }

    def get(self, resource: Resource) -> Unstructured:
        return Unstructured(self._objects[resource])


BARE = "/add-pod-scheduling-gate"


async def path_registered(kept: Kept, sets: Sets) -> str:
    secrets = ServingSecrets(kept.api, kept.settings, owner=OWNER, clock=kept.clock)
    assert not secrets.is_known, "before the keys are known a token in force would be taken away"
    await secrets.reconcile(secrets.key)
    assert secrets.is_known
    key = secrets.review_key(sets.get(MUTATING_WEBHOOKS), sets.get(DEPLOYMENTS))
    return path_with_token(BARE, key)


@pytest.mark.req("PL-870")
async def test_a_first_installation_registers_a_token_at_once() -> None:
    kept = Kept("self-managed")
    await kept.reconcile()
    assert await path_registered(kept, Sets(BARE)) == path_with_token(BARE, kept.keys[0])


@pytest.mark.req("PL-870")
@pytest.mark.parametrize(
    ("state", "has_token"),
    [
        pytest.param({"knows": False}, False, id="the template is an older one"),
        pytest.param({"revision": "2", "complete_for": 5.0}, False, id="pods of an older template may be ending"),
        pytest.param({"revision": "2"}, True, id="the roll-out is over"),
    ],
)
async def test_no_token_is_registered_while_a_pod_may_answer_404(state: dict[str, Any], has_token: bool) -> None:
    """API servers would create pods past the webhook."""
    kept = Kept("self-managed")
    assert (await path_registered(kept, Sets(BARE, **state)) != BARE) is has_token


@pytest.mark.req("PL-870")
async def test_a_token_in_force_stays_through_roll_outs() -> None:
    kept = Kept("self-managed")
    await kept.reconcile()
    registered = path_with_token(BARE, kept.keys[0])
    assert await path_registered(kept, Sets(registered, revision="3", complete_for=1.0)) == registered


@pytest.mark.req("PL-870")
@pytest.mark.parametrize("mode", ["self-managed", "service-ca"])
async def test_a_new_key_is_registered_when_every_replica_has_it(mode: str) -> None:
    kept = Kept(mode)
    await kept.reconcile()
    old = path_with_token(BARE, kept.keys[0])
    kept.clock.advance(timedelta(days=91).total_seconds())
    assert await path_registered(kept, Sets(old)) == old
    new = path_with_token(BARE, kept.keys[0])
    assert new != old
    kept.clock.advance(170)
    assert await path_registered(kept, Sets(old)) == old
    kept.clock.advance(20)
    assert await path_registered(kept, Sets(old)) == new
    for path in (old, new):
        assert ReviewTokens(kept.keys).prove(BARE, path.rpartition("/")[2]), "both count meanwhile"
