"""Definitions of the kinds of machine OS builds, written by hand with the constraints of v1 of their API.

Fields that no constraint is about take anything. The API server checks every status that tests make the builder write.
"""

from typing import Any

from polyarch.builds.machineos import api
from polyarch.kube.resources import Resource

ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TEXT = {"type": "string", "minLength": 1, "maxLength": 253}
NAMED = {"type": "object", "required": ["name"], "properties": {"name": TEXT}}
BY_DIGEST = (
    r"^([a-zA-Z0-9-]+\\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?/([a-zA-Z0-9-_]{1,61}/)?[a-zA-Z0-9-_.]*?@sha256:[0-9a-f]{64}$"
)
BY_TAG = r"^([a-zA-Z0-9-]+\\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?/([a-zA-Z0-9-_]{1,61}/)*[a-zA-Z0-9-_.]+:[a-zA-Z0-9._-]+$"
IN_CLUSTER = r"^[^.]+\\.[^.]+\\.svc:\\d+\\/[^\\/]+\\/[^\\/]+:[^\\/]+$"
TERMINAL = "['Failed', 'Interrupted', 'Succeeded']"


def rule(text: str, message: str, **more: Any) -> dict[str, Any]:
    return {"rule": text, "message": message, **more}


def reference(*required: str) -> dict[str, Any]:
    """An ObjectReference: an empty group is refused."""
    return {
        "type": "object",
        "required": list(required),
        "properties": {
            "group": {**TEXT, "pattern": r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"},
            "resource": TEXT,
            "namespace": {"type": "string", "maxLength": 253},
            "name": TEXT,
        },
    }


def conditions(*rules: dict[str, Any], most: int = 8) -> dict[str, Any]:
    """metav1.Condition, keyed by type."""
    members = {
        "type": {**TEXT, "maxLength": 316},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "reason": {
            "type": "string",
            "minLength": 1,
            "maxLength": 1024,
            "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        },
        "message": {"type": "string", "maxLength": 32768},
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "observedGeneration": {"type": "integer", "minimum": 0},
    }
    found: dict[str, Any] = {
        "type": "array",
        "maxItems": most,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": members,
        },
    }
    return {**found, "x-kubernetes-validations": list(rules)} if rules else found


def definition(kind: Resource, spec: dict[str, Any], status: dict[str, Any], *rules: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": {"spec": spec, "status": status}}
    if rules:
        schema["x-kubernetes-validations"] = list(rules)
    version = {
        "name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }  # fmt: skip
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Cluster",
            "names": {"plural": kind.plural, "kind": kind.kind, "singular": kind.kind.lower()},
            "versions": [version],
        },
    }


CONFIG_SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["machineConfigPool", "imageBuilder", "renderedImagePushSecret", "renderedImagePushSpec"],
    "properties": {
        "machineConfigPool": NAMED,
        "imageBuilder": {
            "type": "object",
            "required": ["imageBuilderType"],
            "properties": {"imageBuilderType": {"type": "string", "enum": ["Job"]}},
        },
        "baseImagePullSecret": NAMED,
        "renderedImagePushSecret": NAMED,
        "renderedImagePushSpec": {
            "type": "string",
            "minLength": 1,
            "maxLength": 447,
            "x-kubernetes-validations": [
                rule(f"self.matches('{BY_TAG}') || self.matches('{IN_CLUSTER}')", "must be host/path:tag")
            ],
        },
        "containerFile": {
            "type": "array",
            "maxItems": 7,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["containerfileArch"],
            "items": {
                "type": "object",
                "required": ["content"],
                "properties": {
                    "containerfileArch": {
                        "type": "string",
                        "enum": ["ARM64", "AMD64", "PPC64LE", "S390X", "NoArch"],
                        "default": "NoArch",
                    },
                    "content": {"type": "string", "maxLength": 4096},
                },
            },
        },
    },
}
CONFIG_STATUS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "observedGeneration": {
            "type": "integer",
            "minimum": 0,
            "x-kubernetes-validations": [rule("self >= oldSelf", "must not go back")],
        },
        "currentImagePullSpec": {
            "type": "string",
            "maxLength": 447,
            "x-kubernetes-validations": [rule(f"self.matches('{BY_DIGEST}')", "must be by digest")],
        },
        "machineOSBuild": reference("group", "resource", "name"),
        "conditions": conditions(),
    },
}
BUILD_SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["machineConfig", "machineOSConfig", "renderedImagePushSpec"],
    "properties": {
        "machineConfig": NAMED,
        "machineOSConfig": NAMED,
        "renderedImagePushSpec": CONFIG_SPEC["properties"]["renderedImagePushSpec"],
    },
    "x-kubernetes-validations": [rule("self == oldSelf", "is immutable")],
}
FIXED = {
    "type": "string",
    "format": "date-time",
    "x-kubernetes-validations": [rule("self == oldSelf", "is immutable once set")],
}
BUILD_STATUS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "conditions": conditions(
            rule("self.filter(c, c.status == 'True').size() <= 1", "one condition at most is True"),
            rule(
                f"oldSelf.exists(o, o.type in {TERMINAL} && o.status == 'True') ? self == oldSelf : true",
                "conditions are frozen once the build has ended",
            ),
            rule(
                "oldSelf.exists(o, o.status == 'True') ? self.exists(c, c.status == 'True') : true",
                "a build that has begun cannot be as if it had not",
            ),
            rule(
                "oldSelf.exists(o, o.type == 'Building' && o.status == 'True')"
                " ? !self.exists(c, c.type == 'Prepared' && c.status == 'True') : true",
                "a build that is building is not prepared again",
            ),
        ),
        "builder": {
            "type": "object",
            "required": ["imageBuilderType"],
            "properties": {
                "imageBuilderType": {"type": "string", "enum": ["Job"]},
                "job": reference("group", "resource", "namespace", "name"),
            },
            "x-kubernetes-validations": [rule("has(self.job)", "a builder of type Job has a job")],
        },
        "relatedObjects": {
            "type": "array",
            "maxItems": 10,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name", "resource"],
            "items": reference("group", "resource", "name"),
        },
        "buildStart": FIXED,
        "buildEnd": FIXED,
        "digestedImagePushSpec": CONFIG_STATUS["properties"]["currentImagePullSpec"],
    },
    "x-kubernetes-validations": [
        rule(
            "has(self.buildEnd) ? has(self.buildStart) && self.buildStart < self.buildEnd : true",
            "the end is after the start",
        ),
        rule(
            f"has(self.conditions) && self.conditions.exists(c, c.type in {TERMINAL} && c.status == 'True')"
            " ? has(self.buildEnd) : true",
            "a build that has ended says when",
        ),
        rule(
            "has(self.conditions) && (!oldSelf.hasValue() || !has(oldSelf.value().conditions))"
            " ? self.conditions.size() == 5 && self.conditions.all(c, c.status == 'False') : true",
            "all five conditions are False first",
            optionalOldSelf=True,
        ),
    ],
}


def definitions() -> list[dict[str, Any]]:
    return [
        definition(api.CONFIGS, CONFIG_SPEC, CONFIG_STATUS),
        definition(api.BUILDS, BUILD_SPEC, BUILD_STATUS),
        definition(api.POOLS, ANYTHING, {**ANYTHING, "properties": {"conditions": _pool_conditions()}}),
        definition(api.RENDERED, ANYTHING, ANYTHING),
        definition(api.CONTROLLER_CONFIGS, ANYTHING, ANYTHING),
    ]


def _pool_conditions() -> dict[str, Any]:
    """Those of a pool are older than metav1.Condition: a reason may be empty."""
    members = {each: {"type": "string"} for each in ("type", "status", "reason", "message")}
    return {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["type", "status"],
            "properties": {
                **members,
                "lastTransitionTime": {"type": "string", "format": "date-time", "nullable": True},
            },
        },
    }
