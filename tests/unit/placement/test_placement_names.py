"""Names that are a contract: literally those that manifests, alerts and scripts know."""

import pytest

from polyarch.placement import names
from polyarch.platforms import ASSUMED_ARCHITECTURES

M = "multiarch.openshift.io/"

CONTRACT = {
    "GATE": M + "scheduling-gate",
    "POD_PLACEMENT_FINALIZER": "finalizers.multiarch.openshift.io/pod-placement",
    "NO_POD_PLACEMENT_CONFIG_FINALIZER": "finalizers.multiarch.openshift.io/no-pod-placement-config",
    "ENOEXEC_EVENTS_FINALIZER": "finalizers.multiarch.openshift.io/enoexec-events",
    "SCHEDULING_GATE_LABEL": M + "scheduling-gate",
    "NODE_AFFINITY_LABEL": M + "node-affinity",
    "PREFERRED_NODE_AFFINITY_LABEL": M + "preferred-node-affinity",
    "SINGLE_ARCH_LABEL": M + "single-arch",
    "MULTI_ARCH_LABEL": M + "multi-arch",
    "NO_SUPPORTED_ARCH_LABEL": M + "no-supported-arch",
    "FALLBACK_ARCH_LABEL": M + "fallback-arch",
    "IMAGE_INSPECT_ERROR_LABEL": M + "image-inspect-error",
    "IMAGE_INSPECT_ERROR_COUNT_LABEL": M + "image-inspect-error-count",
    "EXEC_FORMAT_ERROR_LABEL": M + "exec-format-error",
    "IMAGE_INSPECT_ERROR_ANNOTATION": M + "image-inspect-error",
    "PREFERRED_AFFINITY_SOURCES_ANNOTATION": M + "preferred-affinity-sources",
    "DECISION_ANNOTATION": "polyarch.dev/placement-decision",
    "SKIP_ANNOTATION": "polyarch.dev/skip-placement",
    "ENOEXEC_EVENT_ERROR_LABEL": M + "enoexec-event-error",
    "CONTROLLER": "pod-placement-controller",
    "WEBHOOK": "pod-placement-web-hook",
    "ENOEXEC_HANDLER": "enoexec-event-handler-controller",
    "ENOEXEC_DAEMON": "enoexec-event-daemon",
    "WEBHOOK_CONFIGURATION": "pod-placement-mutating-webhook-configuration",
    "POD_WEBHOOK": "pod-placement-scheduling-gate.multiarch.openshift.io",
    "POD_WEBHOOK_PATH": "/add-pod-scheduling-gate",
    "CPPC_WEBHOOK": "validate-clusterpodplacementconfig.multiarch.openshift.io",
    "CPPC_WEBHOOK_PATH": "/validate-multiarch-openshift-io-v1beta1-clusterpodplacementconfig",
    "PPC_WEBHOOK": "validate-podplacementconfig.multiarch.openshift.io",
    "PPC_WEBHOOK_PATH": "/validate-multiarch-openshift-io-v1beta1-podplacementconfig",
    "CONVERSION_PATH": "/convert",
    "OPERATOR_LEASE": "operator-208d7abd.multiarch.openshift.io",
    "CONTROLLER_LEASE": "ppc-controllers-208d7abd.multiarch.openshift.io",
    "ENOEXEC_LEASE": "enoexecevent-controllers-208d7abd.multiarch.openshift.io",
    "OPERATOR": "polyarch-operator",
    "CERTIFICATES_SECRET": "polyarch-certificates",
    "AUTHORITY_SECRET": "polyarch-ca",
    "READINGS_SECRET": "polyarch-image-readings",
    "OPERAND_LABEL": M + "operand",
    "OPERAND": "pod-placement-controller",
    "CONTROLLER_LABEL": "controller",
}


@pytest.mark.req("PL-001", "PL-002", "PL-003", "PL-004")
@pytest.mark.parametrize("constant", CONTRACT)
def test_the_name_is_the_one_that_others_know(constant: str) -> None:
    """PL-001, PL-002, PL-003 (gate and finalizers), PL-004."""
    assert getattr(names, constant) == CONTRACT[constant]


@pytest.mark.req("PL-004")
def test_every_architecture_with_a_label_has_the_label_of_its_name() -> None:
    expected = {name: M + name for name in ASSUMED_ARCHITECTURES}
    assert expected == names.ARCHITECTURE_LABELS


@pytest.mark.req("PL-004")
def test_labels_that_placement_owns_are_exactly_those_of_the_table() -> None:
    """A key more would be taken from users, a key less would be left behind as a stale result."""
    assert {key.removeprefix(M) for key in names.OWN_LABELS} == {
        "scheduling-gate",
        "node-affinity",
        "preferred-node-affinity",
        "single-arch",
        "multi-arch",
        *ASSUMED_ARCHITECTURES,
        "no-supported-arch",
        "fallback-arch",
        "image-inspect-error",
        "image-inspect-error-count",
        "exec-format-error",
    }


@pytest.mark.req("PL-004")
def test_the_opt_out_is_an_input_and_not_owned() -> None:
    assert names.SKIP_ANNOTATION not in names.OWN_ANNOTATIONS


@pytest.mark.req("PL-004")
def test_errors_of_enoexec_events_are_the_five_words() -> None:
    assert names.ENOEXEC_EVENT_ERRORS == (
        "wrong-namespace",
        "pod-not-found",
        "node-not-found",
        "container-not-found",
        "reconciliation-error",
    )


@pytest.mark.req("PL-002")
def test_prometheus_rules_keep_their_three_names() -> None:
    assert names.PROMETHEUS_RULES == ("multiarch-tuning-operator", "execformaterrormonitor", "execformaterrorsdetected")
