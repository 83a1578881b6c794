"""Whether an apply would change anything is read from ``managedFields``; recorded ones of Kubernetes 1.36."""

import copy

import pytest

from polyarch.kube.errors import Conflict, StatusCause
from polyarch.kube.managed_fields import FieldConflict, conflicts_of, differences, overridden

DESIRED = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {
        "name": "web",
        "namespace": "demo",
        "labels": {"app.kubernetes.io/name": "web"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u-1", "controller": True}],
        "finalizers": ["polyarch.dev/one"],
    },
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "nodeSelector": {"kubernetes.io/arch": "arm64"},
                "containers": [
                    {
                        "name": "web",
                        "image": "quay.io/x/web:1",
                        "args": ["--port=80"],
                        "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}],
                        "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                    }
                ],
                "volumes": [{"name": "tmp", "emptyDir": {}}],
            },
        },
    },
}
FIELDS = {
    "f:metadata": {
        "f:finalizers": {'v:"polyarch.dev/one"': {}},
        "f:labels": {"f:app.kubernetes.io/name": {}},
        "f:ownerReferences": {'k:{"uid":"u-1"}': {}},
    },
    "f:spec": {
        "f:replicas": {},
        "f:selector": {},
        "f:template": {
            "f:metadata": {"f:labels": {"f:app": {}}},
            "f:spec": {
                "f:containers": {
                    'k:{"name":"web"}': {
                        ".": {},
                        "f:args": {},
                        "f:env": {'k:{"name":"POD"}': {".": {}, "f:name": {}, "f:valueFrom": {"f:fieldRef": {}}}},
                        "f:image": {},
                        "f:name": {},
                        "f:ports": {
                            'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}},
                            'k:{"containerPort":80,"protocol":"UDP"}': {
                                ".": {},
                                "f:containerPort": {},
                                "f:protocol": {},
                            },
                        },
                    }
                },
                "f:nodeSelector": {},
                "f:volumes": {'k:{"name":"tmp"}': {".": {}, "f:emptyDir": {}, "f:name": {}}},
            },
        },
    },
}


def live(fields=FIELDS, *others, change=lambda document: None):
    """The object after the apply, with the server's defaults, and with what somebody changed since."""
    document = copy.deepcopy(DESIRED)
    container = document["spec"]["template"]["spec"]["containers"][0]
    container["imagePullPolicy"] = "IfNotPresent"
    container["ports"][0]["protocol"] = "TCP"
    container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] = "v1"
    document["spec"]["strategy"] = {"type": "RollingUpdate"}
    document["metadata"] |= {"uid": "u-9", "resourceVersion": "7", "generation": 1}
    ours = {
        "manager": "polyarch",
        "operation": "Apply",
        "apiVersion": "apps/v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    document["metadata"]["managedFields"] = [ours, *others]
    change(document)
    return document


def wanted(change):
    document = copy.deepcopy(DESIRED)
    change(document)
    return document


def container(document):
    return document["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.req("KR-051")
def test_what_was_applied_differs_in_nothing():
    """Defaults of the server are no difference, not in members, not in keys of a list, not within one field."""
    assert differences(DESIRED, live(), manager="polyarch") == ()


@pytest.mark.req("KR-051")
@pytest.mark.parametrize(
    ("change", "fields"),
    [
        pytest.param(lambda d: d["spec"].update(replicas=3), [".spec.replicas"], id="another value"),
        pytest.param(
            lambda d: container(d).update(image="quay.io/x/web:2"),
            ['.spec.template.spec.containers[name="web"].image'],
            id="in a list element",
        ),
        pytest.param(
            lambda d: container(d)["args"].append("-v"),
            ['.spec.template.spec.containers[name="web"].args'],
            id="in a list that is one field",
        ),
        pytest.param(
            lambda d: d["spec"]["template"]["spec"]["nodeSelector"].clear(),
            [".spec.template.spec.nodeSelector"],
            id="less in a map that is one field",
        ),
        pytest.param(lambda d: d["spec"].update(paused=True), [".spec.paused"], id="a further field"),
        pytest.param(lambda d: d["spec"].pop("replicas"), [".spec.replicas"], id="a field that is given up"),
        pytest.param(lambda d: d["metadata"]["labels"].update(a="b"), [".metadata.labels.a"], id="a further label"),
        pytest.param(
            lambda d: d["metadata"].update(labels={}),
            ['.metadata.labels["app.kubernetes.io/name"]'],
            id="a label that is given up",
        ),
        pytest.param(
            lambda d: d["metadata"]["ownerReferences"][0].update(uid="u-2"),
            ['.metadata.ownerReferences[uid="u-1"]', ".metadata.ownerReferences[0]"],
            id="another owner",
        ),
        pytest.param(
            lambda d: d["metadata"]["ownerReferences"][0].update(controller=False),
            ['.metadata.ownerReferences[uid="u-1"]'],
            id="the same owner in another way",
        ),
        pytest.param(
            lambda d: d["metadata"].update(finalizers=["polyarch.dev/two"]),
            ['.metadata.finalizers[="polyarch.dev/one"]', ".metadata.finalizers[0]"],
            id="another element of a set",
        ),
        pytest.param(
            lambda d: container(d)["ports"].pop(0),
            ['.spec.template.spec.containers[name="web"].ports[containerPort=80,protocol="TCP"]'],
            id="one port less",
        ),
        pytest.param(
            lambda d: container(d)["env"][0]["valueFrom"]["fieldRef"].update(fieldPath="metadata.uid"),
            ['.spec.template.spec.containers[name="web"].env[name="POD"].valueFrom.fieldRef'],
            id="one field with a default in it",
        ),
    ],
)
def test_every_change_of_what_is_desired_is_a_difference(change, fields):
    assert differences(wanted(change), live(), manager="polyarch") == tuple(fields)


def without(*path):
    fields = copy.deepcopy(FIELDS)
    node = fields
    for key in path[:-1]:
        node = node[key]
    del node[path[-1]]
    return fields


KUBECTL = {
    "manager": "kubectl-edit",
    "operation": "Update",
    "apiVersion": "apps/v1",
    "fieldsV1": {"f:spec": {"f:replicas": {}}},
}


@pytest.mark.req("KR-051")
def test_a_value_that_somebody_took_is_a_difference_with_their_name():
    """Whoever changes a field takes it out of our set, also if the value came back since."""
    taken = live(without("f:spec", "f:replicas"), KUBECTL, change=lambda d: d["spec"].update(replicas=5))
    assert differences(DESIRED, taken, manager="polyarch") == (".spec.replicas",)
    assert overridden(DESIRED, taken, manager="polyarch") == (FieldConflict(".spec.replicas", "kubectl-edit"),)
    same_value = live(without("f:spec", "f:replicas"), KUBECTL)
    assert differences(DESIRED, same_value, manager="polyarch") == (".spec.replicas",)
    assert overridden(DESIRED, same_value, manager="polyarch") == (), "the field is shared, nothing is taken"


@pytest.mark.req("KR-051")
def test_fields_of_others_that_we_do_not_desire_are_none_of_our_business():
    scaler = {**KUBECTL, "fieldsV1": {"f:spec": {"f:minReadySeconds": {}}}}
    status = {**KUBECTL, "manager": "kcm", "subresource": "status", "fieldsV1": {"f:status": {"f:replicas": {}}}}
    changed = live(FIELDS, scaler, status, change=lambda d: d["spec"].update(minReadySeconds=9))
    assert differences(DESIRED, changed, manager="polyarch") == ()
    assert overridden(DESIRED, changed, manager="polyarch") == ()


@pytest.mark.req("KR-051")
@pytest.mark.parametrize(
    "entry",
    [{"manager": "somebody"}, {"operation": "Update"}, {"apiVersion": "apps/v1beta1"}, {"subresource": "status"}],
    ids=["by another manager", "not by apply", "in another version", "of a subresource"],
)
def test_what_we_never_applied_differs_as_a_whole(entry):
    document = live()
    document["metadata"]["managedFields"][0] |= entry
    assert differences(DESIRED, document, manager="polyarch") == (".spec", ".metadata")


@pytest.mark.req("KR-052")
def test_a_status_is_compared_with_the_fields_applied_to_the_subresource():
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    desired = {"apiVersion": "x.dev/v1", "kind": "X", "metadata": {"name": "x", "uid": "u"}, "status": status}
    fields = {
        "f:status": {"f:conditions": {'k:{"type":"Ready"}': {".": {}, "f:type": {}, "f:status": {}}}},
    }
    entry = {"manager": "polyarch", "operation": "Apply", "apiVersion": "x.dev/v1", "fieldsV1": fields}
    foreign = {"type": "Other", "status": "False"}
    document = {
        "metadata": {"managedFields": [{**entry, "subresource": "status"}]},
        "status": {"conditions": [foreign, *status["conditions"]]},
    }
    assert differences(desired, document, manager="polyarch", subresource="status") == ()
    document["status"]["conditions"][1] = {"type": "Ready", "status": "False"}
    assert differences(desired, document, manager="polyarch", subresource="status") == (
        '.status.conditions[type="Ready"].status',
    )
    assert differences(desired, document, manager="polyarch") == (".status",)


@pytest.mark.req("KR-051")
def test_defaults_of_kubernetes_are_none_of_a_custom_resource():
    """``protocol: TCP`` that we no longer want has to go where no server would add it again."""
    desired = {"apiVersion": "x.dev/v1", "kind": "X", "metadata": {"name": "x"}, "spec": {"ports": [{"port": 1}]}}
    entry = {
        "manager": "polyarch",
        "operation": "Apply",
        "apiVersion": "x.dev/v1",
        "fieldsV1": {"f:spec": {"f:ports": {}}},
    }
    document = {"metadata": {"managedFields": [entry]}, "spec": {"ports": [{"port": 1, "protocol": "TCP"}]}}
    assert differences(desired, document, manager="polyarch") == (".spec.ports",)


@pytest.mark.req("KR-051")
def test_a_refused_apply_names_the_other_managers():
    causes = (
        StatusCause("FieldManagerConflict", 'conflict with "kubectl" using apps/v1', ".spec.replicas"),
        StatusCause("FieldManagerConflict", 'conflict with "helm"', ".spec.paused"),
    )
    assert conflicts_of(Conflict(409, reason="Conflict", causes=causes)) == (
        FieldConflict(".spec.replicas", "kubectl"),
        FieldConflict(".spec.paused", "helm"),
    )
    assert str(conflicts_of(Conflict(409, causes=causes))[0]) == ".spec.replicas belongs to kubectl"
    assert conflicts_of(Conflict(409, reason="Conflict")) == ()
