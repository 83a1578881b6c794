"""Fields of other managers become ours, so that applying removes those that are not wanted."""

from typing import Any

import pytest

from polyarch.kube.adoption import ADDED_BY_PEOPLE, adoption, colliding, foreign, taking
from polyarch.kube.managed_fields import words_of
from polyarch.kube.patches import apply_patch


def entry(manager: str, *fields: str, operation: str = "Update", **more: Any) -> dict[str, Any]:
    """One of ``metadata.managedFields``: this manager has these fields of the spec."""
    own = {f"f:{field}": {} for field in fields}
    return {"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": own}, **more}


def live(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "7", "managedFields": list(entries)}}


def adopted(*entries: dict[str, Any]) -> list[dict[str, Any]]:
    document = live(*entries)
    patch = adoption(document, manager="polyarch", others={"manager", "helper"})
    assert patch is not None
    found: list[dict[str, Any]] = apply_patch(document, patch.operations)["metadata"]["managedFields"]
    return found


@pytest.mark.req("PL-503")
def test_what_a_former_manager_has_is_ours() -> None:
    (ours,) = adopted(entry("manager", "replicas", "paused"))
    assert ours == entry("polyarch", "replicas", "paused", operation="Apply")


@pytest.mark.req("PL-503")
def test_fields_of_several_are_put_together() -> None:
    (ours,) = adopted(entry("manager", "replicas"), entry("helper", "paused"))
    assert ours["fieldsV1"] == {"f:spec": {"f:replicas": {}, "f:paused": {}}}


@pytest.mark.req("PL-503")
def test_others_and_the_status_keep_theirs() -> None:
    person, status = entry("kubectl-edit", "paused"), entry("manager", "x", subresource="status")
    assert adopted(person, status, entry("manager", "replicas"))[:2] == [person, status]


@pytest.mark.req("PL-503")
def test_what_we_have_applied_since_stays_as_it_is() -> None:
    ours = entry("polyarch", "replicas", operation="Apply")
    assert adopted(ours, entry("manager", "replicas", "paused")) == [ours]


@pytest.mark.req("PL-503")
@pytest.mark.parametrize(
    "entries",
    [(), (entry("kubectl-edit", "paused"),), (entry("manager", "x", subresource="status"),)],
    ids=["of nobody", "of a person", "of the status alone"],
)
def test_without_fields_of_theirs_there_is_nothing_to_take_over(entries: tuple[dict[str, Any], ...]) -> None:
    assert adoption(live(*entries), manager="polyarch", others={"manager"}) is None


@pytest.mark.req("PL-503")
def test_an_object_that_has_changed_meanwhile_is_not_taken_over() -> None:
    patch = adoption(live(entry("manager", "replicas")), manager="polyarch", others={"manager"})
    assert patch is not None
    changed = live(entry("manager", "replicas"))
    changed["metadata"]["resourceVersion"] = "8"
    with pytest.raises(ValueError, match="resourceVersion"):
        apply_patch(changed, patch.operations)


OURS = {"name": "webhook", "port": 443, "protocol": "TCP"}
"""A port of a Service that we want."""


def service(*ports: dict[str, Any], managers: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    entries = [
        {"manager": name, "operation": "Apply" if name == "polyarch" else "Update", "fieldsV1": {"f:spec": fields}}
        for name, fields in (managers or {}).items()
    ]
    metadata = {"resourceVersion": "7", "managedFields": entries}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": list(ports), **spec}}


def port(number: int, protocol: str = "TCP") -> dict[str, Any]:
    """The fields of whoever has this port of a Service."""
    return {"f:ports": {f'k:{{"port":{number},"protocol":"{protocol}"}}': {".": {}, "f:port": {}}}}


@pytest.mark.req("PL-501")
@pytest.mark.parametrize(
    ("live", "found"),
    [
        (service(OURS), []),
        (service(OURS, {"port": 1}), ['.spec.ports[port=1,protocol="TCP"] belongs to somebody unknown']),
        (
            service(OURS, {"port": 8080}, managers={"kubectl": port(8080)}),
            ['.spec.ports[port=8080,protocol="TCP"] belongs to kubectl'],
        ),
        (
            service(OURS | {"protocol": "UDP"}, managers={"kubectl": port(443, "UDP")}),
            ['.spec.ports[port=443,protocol="UDP"] belongs to kubectl'],
        ),
        (service(OURS, {"port": 8443}, managers={"polyarch": port(8443)}), []),
        (
            service(OURS, {"port": 8443}, managers={"polyarch": port(8443), "helm": port(8443)}),
            ['.spec.ports[port=8443,protocol="TCP"] belongs to helm'],
        ),
        (service(OURS, type="ClusterIP"), []),
        (
            service(OURS, type="ExternalName", managers={"a": {"f:type": {}}, "b": {"f:type": {}}}),
            [".spec.type belongs to a and b"],
        ),
        (
            service(OURS, sessionAffinity="ClientIP", managers={"kubectl": {"f:sessionAffinity": {}}}),
            [".spec.sessionAffinity belongs to kubectl"],
        ),
        (service(OURS, clusterIP="10.0.0.1", managers={"kubectl": {"f:clusterIP": {}}}), []),
        (service(OURS, managers={"kubectl": {"f:externalIPs": {}}}), []),
        (service(OURS | {"nodePort": 30000}, managers={"kubectl": port(443)}), []),
    ],
    ids=[
        "nothing but ours",
        "an item that nobody owns",
        "an item of another manager",
        "an item whose key is another by one part",
        "an item of ours that we want no longer",
        "an item that we want no longer and somebody else does",
        "a default that nobody owns",
        "a field that two others own",
        "a field that we do not want",
        "a field that platforms set",
        "a field that is gone",
        "more in an item of ours",
    ],
)
def test_what_others_put_where_everything_is_ours_is_found(live: dict[str, Any], found: list[str]) -> None:
    others = foreign(service(OURS | {"targetPort": 9443}), live, manager="polyarch")
    assert [str(each.conflict()) for each in others] == found


@pytest.mark.req("PL-501")
def test_names_of_items_are_escaped_as_the_api_server_escapes_them() -> None:
    """Otherwise the entry of whoever owns the item would keep it, and the next apply would not remove it."""
    name = r'k:{"name":"A\u0026B\u003cC\u003e"}'
    fields = {"f:spec": {"f:variables": {name: {".": {}, "f:name": {}}}}}
    live = {
        "metadata": {"managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsV1": fields}]},
        "spec": {"variables": [{"name": "A&B<C>"}]},
    }
    (found,) = foreign({"kind": "MutatingAdmissionPolicy", "spec": {}}, live, manager="polyarch")
    assert (found.path[-1], found.managers) == (name, ("kubectl",))
    assert str(found.conflict()) == '.spec.variables[name="A&B<C>"] belongs to kubectl'


@pytest.mark.req("PL-501")
def test_what_is_taken_is_ours_alone_and_the_rest_stays_whose_it_was() -> None:
    """An empty member would own everything below it, so none is left behind."""
    status = {"manager": "kubectl", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}}
    both = {"f:ports": port(8080)["f:ports"] | port(443)["f:ports"], "f:sessionAffinity": {}}
    document = service(OURS, {"port": 8080}, managers={"kubectl": both, "gone": port(8080), "polyarch": port(443)})
    document["metadata"]["managedFields"].append(status)
    patch = taking(document, foreign(service(OURS), document, manager="polyarch"), manager="polyarch")
    assert patch is not None
    kubectl, kept, ours = apply_patch(document, patch.operations)["metadata"]["managedFields"]
    assert kubectl["fieldsV1"] == {"f:spec": {**port(443), "f:sessionAffinity": {}}}
    assert kept == status
    assert (ours["manager"], ours["operation"]) == ("polyarch", "Apply")
    assert ours["fieldsV1"]["f:spec"]["f:ports"].keys() == {*port(443)["f:ports"], *port(8080)["f:ports"]}
    assert taking(document, (), manager="polyarch") is None


@pytest.mark.req("PL-501")
def test_what_collides_is_everything_of_others_but_metadata_status_and_replicas() -> None:
    probe = {"f:livenessProbe": {"f:exec": {"f:command": {}}, "f:httpGet": {"f:path": {}}}}
    containers = {"f:containers": {'k:{"name":"web"}': {".": {}, "f:name": {}, **probe}}}
    template = {"f:metadata": {"f:annotations": {"f:restarted": {}}}, "f:spec": containers}
    fields = {"f:replicas": {}, "f:paused": {}, "f:template": template}
    live = {
        "metadata": {
            "managedFields": [
                {
                    "manager": "kubectl",
                    "operation": "Update",
                    "fieldsV1": {"f:metadata": {"f:labels": {}}, "f:spec": fields},
                },
                {"manager": "kcm", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}},
                {"manager": "polyarch", "operation": "Apply", "fieldsV1": {"f:spec": {"f:minReadySeconds": {}}}},
            ]
        }
    }
    web = {"name": "web", "livenessProbe": {"httpGet": {"path": "/"}}}
    desired = {"kind": "Deployment", "metadata": {}, "spec": {"template": {"spec": {"containers": [web]}}}}
    assert [str(each.conflict()) for each in colliding(desired, live, manager="polyarch")] == [
        ".spec.paused belongs to kubectl",
        '.spec.template.spec.containers[name="web"].livenessProbe.exec belongs to kubectl',
    ]


@pytest.mark.req("PL-501")
@pytest.mark.parametrize("spared", [(), ADDED_BY_PEOPLE], ids=["an operand", "the operator itself"])
def test_an_administrator_may_give_the_operator_variables_and_volumes(spared: tuple[str, ...]) -> None:
    def deployment(**pod: Any) -> dict[str, Any]:
        return {"kind": "Deployment", "spec": {"template": {"spec": pod}}}

    variables = [{"name": "OURS", "value": "1"}, {"name": "MORE", "value": "2"}]
    containers = [{"name": "web", "env": variables}, {"name": "sidecar"}]
    live = deployment(containers=containers, volumes=[{"name": "ca"}])
    wanted = deployment(containers=[{"name": "web", "env": variables[:1]}])
    found = {
        words_of(each.path).rpartition(".")[2] for each in foreign(wanted, live, manager="polyarch", spared=spared)
    }
    assert found == {'containers[name="sidecar"]'} | (set() if spared else {'env[name="MORE"]', 'volumes[name="ca"]'})
