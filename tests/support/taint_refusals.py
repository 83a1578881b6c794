"""Specs of ArchitectureTaints that are refused, and what the refusal says: by the API server and of a file alike."""

from typing import Any

Json = dict[str, Any]


def taint(**members: Any) -> Json:
    return {"taint": members}


def selecting(**selector: Any) -> Json:
    return {"nodes": {"selector": selector}}


def compatible(*entries: tuple[str, list[str]]) -> Json:
    return {"compatibility": [{"node": node, "runs": runs} for node, runs in entries]}


REFUSED: tuple[tuple[str, Json, list[str]], ...] = (
    ("state", {"state": "off"}, ["spec.state", "active"]),
    ("mode", {"mode": "all"}, ["spec.mode", "secondary-only"]),
    ("primary unknown", {"primaryArchitectures": ["vax"]}, ["spec.primaryArchitectures[0]", "amd64"]),
    ("primary empty", {"primaryArchitectures": []}, ["spec.primaryArchitectures", "at least 1"]),
    ("primary twice", {"primaryArchitectures": ["arm64", "arm64"]}, ["spec.primaryArchitectures[1]"]),
    (
        "primary too many",
        {"primaryArchitectures": ["386", "amd64", "arm", "arm64", "mips", "ppc64", "ppc64le", "riscv64", "s390x"]},
        ["spec.primaryArchitectures", "8"],
    ),
    ("architecture unknown", {"architectures": ["unknown"]}, ["spec.architectures[0]", "ppc64le"]),
    ("architecture alias", {"architectures": ["x86_64"]}, ["spec.architectures[0]", "amd64"]),
    ("preset", taint(preset="eks"), ["spec.taint.preset", "archaware"]),
    ("custom without key", taint(preset="custom"), ["spec.taint", "spec.taint.key is required"]),
    ("key without custom", taint(key="a/b"), ["spec.taint", "only with spec.taint.preset: custom"]),
    ("key with gke", taint(preset="gke", key="a/b"), ["spec.taint", "only with spec.taint.preset: custom"]),
    ("key empty", taint(preset="custom", key=""), ["spec.taint.key", "is not the key of a taint"]),
    ("key invalid", taint(preset="custom", key="a b"), ["spec.taint.key", "is not the key of a taint"]),
    ("key without name", taint(preset="custom", key="a.example/"), ["spec.taint.key", "is not the key of a taint"]),
    ("key too long", taint(preset="custom", key="a" * 64), ["spec.taint.key", "is not the key of a taint"]),
    ("effect", taint(effect="Evict"), ["spec.taint.effect", "NoSchedule"]),
    ("no acknowledgement", taint(effect="NoExecute"), ["spec.taint", "spec.taint.acknowledgeEviction to true"]),
    (
        "acknowledged with no",
        taint(effect="NoExecute", acknowledgeEviction=False),
        ["spec.taint", "spec.taint.acknowledgeEviction to true"],
    ),
    ("ownership", taint(ownership="mine"), ["spec.taint.ownership", "recorded"]),
    ("only primary", {"architectures": ["amd64"]}, ["spec", "only primary architectures", "mode secondary-only"]),
    (
        "only primary, several",
        {"architectures": ["amd64", "arm64"], "primaryArchitectures": ["arm64", "amd64", "s390x"]},
        ["spec", "only primary architectures"],
    ),
    ("rollout", {"nodes": {"rollout": "fast"}}, ["spec.nodes.rollout", "immediate"]),
    ("pace zero", {"nodes": {"perMinute": 0}}, ["spec.nodes.perMinute", "1"]),
    ("pace too high", {"nodes": {"perMinute": 601}}, ["spec.nodes.perMinute", "600"]),
    ("pace as text", {"nodes": {"perMinute": "60"}}, ["spec.nodes.perMinute", "integer|whole number"]),
    ("system", {"nodes": {"operatingSystems": ["aix"]}}, ["spec.nodes.operatingSystems[0]", "windows"]),
    ("no system", {"nodes": {"operatingSystems": []}}, ["spec.nodes.operatingSystems", "at least 1"]),
    ("registration", {"nodes": {"atRegistration": "always"}}, ["spec.nodes.atRegistration", "policy"]),
    (
        "selector operator",
        selecting(matchExpressions=[{"key": "a", "operator": "Gt", "values": ["1"]}]),
        ["spec.nodes.selector.matchExpressions[0].operator", "DoesNotExist"],
    ),
    (
        "selector without values",
        selecting(matchExpressions=[{"key": "a", "operator": "In"}]),
        ["spec.nodes.selector.matchExpressions[0]", "values", "In", "needs? at least one value"],
    ),
    (
        "selector with values",
        selecting(matchExpressions=[{"key": "a", "operator": "Exists", "values": ["b"]}]),
        ["spec.nodes.selector.matchExpressions[0]", "values", "Exists"],
    ),
    (
        "selector key",
        selecting(matchExpressions=[{"key": "a b", "operator": "Exists"}]),
        ["spec.nodes.selector.matchExpressions[0].key", "is not a label"],
    ),
    ("selector label", selecting(matchLabels={"-a": "b"}), ["spec.nodes.selector.matchLabels", "is not a label"]),
    ("selector value", selecting(matchLabels={"a": "b c"}), ["spec.nodes.selector.matchLabels", "a"]),
    (
        "namespace selector",
        {"pods": {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "NotIn"}]}}},
        ["spec.pods.namespaceSelector.matchExpressions[0]", "needs? at least one value"],
    ),
    (
        "pod selector",
        {"pods": {"podSelector": {"matchLabels": {"/a": "b"}}}},
        ["spec.pods.podSelector.matchLabels", "a"],
    ),
    ("excluded everything", {"pods": {"excludeNamespaces": ["*"]}}, ["spec.pods.excludeNamespaces[0]", "prefix"]),
    ("excluded form", {"pods": {"excludeNamespaces": ["a", "B"]}}, ["spec.pods.excludeNamespaces[1]", "prefix"]),
    ("unknown answers", {"pods": {"onUnknown": "keep"}}, ["spec.pods.onUnknown", "primary-only"]),
    ("gate too short", {"pods": {"gateTimeout": "9s"}}, ["spec.pods.gateTimeout", "10s to 1h"]),
    ("gate too long", {"pods": {"gateTimeout": "61m"}}, ["spec.pods.gateTimeout", "10s to 1h"]),
    ("gate form", {"pods": {"gateTimeout": "5 minutes"}}, ["spec.pods.gateTimeout"]),
    ("timeout", {"pods": {"onTimeout": "gate"}}, ["spec.pods.onTimeout", "keep"]),
    ("no common", {"pods": {"onNoCommon": "warn"}}, ["spec.pods.onNoCommon", "deny"]),
    ("running", {"pods": {"running": "evict"}}, ["spec.pods.running", "tolerate"]),
    ("image change", {"pods": {"imageChange": "ignore"}}, ["spec.pods.imageChange", "event"]),
    ("templates", {"daemonSets": {"templates": "off"}}, ["spec.daemonSets.templates", "reconcile"]),
    ("rollouts", {"daemonSets": {"maxConcurrentRollouts": 51}}, ["spec.daemonSets.maxConcurrentRollouts", "50"]),
    ("rollout timeout", {"daemonSets": {"rolloutTimeout": "0s"}}, ["spec.daemonSets.rolloutTimeout", "1s to"]),
    ("runs itself", compatible(("arm64", ["arm", "arm64"])), ["spec.compatibility[0]", "its own node"]),
    ("runs nothing", compatible(("arm64", [])), ["spec.compatibility[0].runs", "at least 1"]),
    ("node twice", compatible(("arm64", ["arm"]), ("arm64", ["386"])), ["spec.compatibility[1]"]),
    ("node unknown", compatible(("vax", ["arm"])), ["spec.compatibility[0].node", "amd64"]),
    ("no node", {"compatibility": [{"runs": ["arm"]}]}, ["spec.compatibility[0].node", "equired"]),
)
"""Name, spec, and regular expressions that the message matches."""

ACCEPTED: tuple[tuple[str, Json], ...] = (
    ("nothing", {}),
    ("states", {"state": "paused"}),
    ("removing", {"state": "removing"}),
    ("all modes alike", {"mode": "tolerations", "architectures": ["amd64"]}),
    ("both", {"mode": "both", "architectures": ["amd64", "arm64"]}),
    ("managed", {"architectures": ["amd64", "arm64"]}),
    ("secondary only", {"architectures": ["arm64"]}),
    ("gke", taint(preset="gke", ownership="adopt")),
    ("openshift", taint(preset="openshift")),
    ("custom", taint(preset="custom", key="example.org/arch")),
    ("custom without domain", taint(preset="custom", key="arch", effect="PreferNoSchedule")),
    ("evicting", taint(effect="NoExecute", acknowledgeEviction=True)),
    (
        "nodes",
        {
            "nodes": {
                "selector": {
                    "matchLabels": {"pool": "", "example.org/a": "b"},
                    "matchExpressions": [
                        {"key": "a", "operator": "In", "values": ["b", ""]},
                        {"key": "c", "operator": "DoesNotExist"},
                    ],
                },
                "excludeControlPlane": True,
                "operatingSystems": ["windows", "linux"],
                "rollout": "immediate",
                "perMinute": 600,
                "atRegistration": "none",
            }
        },
    ),
    (
        "pods",
        {
            "pods": {
                "namespaceSelector": {},
                "podSelector": {"matchLabels": {"a": "b"}},
                "excludeNamespaces": ["a", "b-*"],
                "onUnknown": "none",
                "gateTimeout": "1h",
                "onTimeout": "keep",
                "onNoCommon": "deny",
                "running": "skip",
                "imageChange": "evict",
            }
        },
    ),
    ("sets", {"daemonSets": {"templates": "ignore", "maxConcurrentRollouts": 50, "rolloutTimeout": "1h30m"}}),
    ("compatible", compatible(("arm64", ["arm"]), ("amd64", ["386"]))),
)
