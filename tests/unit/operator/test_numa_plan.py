"""What the operator does for a NUMAResourcesOperator, and what its status and conditions say."""

from typing import Any

import pytest
from numa_cluster import (
    PRIVILEGED,
    Json,
    condition,
    degraded,
    exporter,
    found,
    names,
    nodes,
    operator,
    planned,
    pool,
    rolled_out,
    settled,
)

from polyarch.operator.certificates import CERTIFICATES, ISSUERS
from polyarch.operator.components import numa_facts
from polyarch.operator.components.numa_facts import ExporterPlan

WORKERS = {"poolName": "worker"}
LEGACY = {**WORKERS, "annotations": {"config.node.openshift-kni.io/selinux-policy": "custom"}}
MACHINE_CONFIG = "51-numaresourcesoperator-worker"
LABEL = "pod-security.kubernetes.io/enforce"
PAUSE = "config.numa-operator.openshift.io/pause-reconciliation"


class TestOrder:
    """What is checked before anything is changed."""

    @pytest.mark.req("NO-040")
    def test_another_name_gets_its_condition_and_nothing_else(self) -> None:
        """The second object is degraded; nothing else happens."""
        made = planned(given=operator(WORKERS, name="mine"))
        reason, message = degraded(made)
        assert reason == "IncorrectNUMAResourcesOperatorResourceName"
        assert "the only NUMAResourcesOperator is named numaresourcesoperator" in message
        assert (made.documents, made.status) == (None, None)

    @pytest.mark.req("NO-040", "NO-100")
    def test_paused_leaves_even_the_status_alone(self) -> None:
        assert planned(given=operator({}, annotations={PAUSE: "enabled"})) == ExporterPlan()

    @pytest.mark.req("NO-100")
    @pytest.mark.parametrize("value", ["true", "Enabled", "disabled", ""])
    def test_any_other_value_is_not_set(self, value: str) -> None:
        assert planned(given=operator(WORKERS, annotations={PAUSE: value})).documents

    @pytest.mark.req("NO-041")
    def test_an_image_is_taken_only_where_the_operator_is_told_so(self) -> None:
        given = operator(WORKERS, imageSpec="registry.example/rte:v1")
        reason, message = degraded(made := planned(given=given))
        assert reason == "CustomUserImage"
        assert "EXPORTER_IMAGE_RESTRICTION=false" in message
        assert made.documents is None
        assert exporter(planned(given=given, image_restricted=False))["image"] == "registry.example/rte:v1"

    @pytest.mark.req("NO-041")
    def test_the_default_is_the_operators_own_image(self) -> None:
        made = planned(WORKERS, settings={"image": "registry.example/polyarch@sha256:1f"})
        assert exporter(made)["image"] == "registry.example/polyarch@sha256:1f"

    @pytest.mark.req("NO-004")
    @pytest.mark.parametrize(
        ("spec", "said"),
        [
            ({"logLevel": "Loud"}, "spec.logLevel: 'Loud' is not one of"),
            ({"podExcludes": [{"namespace": "a"}, {"namespace": "[", "name": "*"}]}, "spec.podExcludes[1].namespace"),
            ({"nodeGroups": "worker"}, "spec.nodeGroups: must be a list"),
        ],
    )
    def test_what_an_older_schema_let_in_changes_nothing(self, spec: Json, said: str) -> None:
        """Unknown enums and malformed globs; exporters keep what they have."""
        made = planned(given={**operator(WORKERS), "spec": {"nodeGroups": [WORKERS], **spec}})
        assert said in degraded(made)[1]
        assert made.documents is None

    @pytest.mark.req("NO-005")
    def test_a_negative_period(self) -> None:
        reason, message = degraded(planned({**WORKERS, "config": {"infoRefreshPeriod": "-5s"}}))
        assert reason == "ValidationErrorUnderNodeGroups"
        assert "spec.nodeGroups[0].config.infoRefreshPeriod" in message

    @pytest.mark.req("NO-040", "NO-044", "NO-046")
    def test_without_the_api_of_topologies_nothing_is_deployed(self) -> None:
        made = planned(WORKERS, api_problem="customresourcedefinitions noderesourcetopologies: forbidden")
        reason, message = degraded(made)
        assert reason == "InternalError"
        assert message.startswith("FailedAPISync: customresourcedefinitions noderesourcetopologies")
        assert made.documents is None


class TestNamespace:
    """Pods that mount directories of their node."""

    @pytest.mark.req("NO-057")
    @pytest.mark.parametrize("labels", [{}, {LABEL: "restricted"}], ids=["no level", "restricted"])
    def test_the_label_is_required(self, labels: Json) -> None:
        """Degraded naming the label and the command."""
        made = planned(WORKERS, namespace_labels=labels)
        assert f"needs the label {LABEL}: privileged" in degraded(made)[1]
        assert f"kubectl label --overwrite namespace polyarch-system {LABEL}=privileged" in degraded(made)[1]
        assert made.documents is None

    @pytest.mark.req("NO-050")
    def test_the_namespace_has_to_exist(self) -> None:
        made = planned(WORKERS, namespace_labels=None, settings={"numa_namespace": "numaresources"})
        assert "there is no namespace numaresources" in degraded(made)[1]

    @pytest.mark.req("NO-057")
    @pytest.mark.parametrize("labels", [None, {}, PRIVILEGED], ids=["absent", "unlabelled", "labelled"])
    def test_it_is_labelled_only_when_the_operator_manages_it(self, labels: Json | None) -> None:
        made = planned(WORKERS, namespace_labels=labels, settings={"manage_namespace": True})
        assert made.namespace is not None
        assert made.namespace["metadata"] == {"name": "polyarch-system", "labels": PRIVILEGED}
        assert planned(WORKERS).namespace is None

    @pytest.mark.req("NO-057")
    def test_openshift_has_constraints_instead(self) -> None:
        made = planned(WORKERS, platform="openshift", pools=(pool("worker"),), namespace_labels={})
        assert not made.is_degraded

    @pytest.mark.req("NO-050")
    def test_everything_is_in_the_namespace_for_numa(self) -> None:
        made = planned(WORKERS, settings={"numa_namespace": "numaresources"})
        places = {each["metadata"].get("namespace", "") for each in made.documents or ()}
        assert places == {"", "numaresources"}


class TestSettings:
    @pytest.mark.req("NO-002")
    def test_nothing_is_deployed_without_groups(self) -> None:
        """Available."""
        made = planned()
        assert (made.documents, made.certificate, made.namespace) == ((), None, None)
        assert condition(made, "Available")[:2] == ("True", "AsExpected")

    @pytest.mark.req("NO-070")
    def test_what_a_removed_group_had_is_no_longer_wanted(self) -> None:
        """Found by owner and label, not by name."""
        both = planned(WORKERS, {"poolName": "left", "nodeSelector": {"matchLabels": {"zone": "a"}}})
        one = planned(WORKERS)
        gone = {each["metadata"]["name"] for each in both.documents or ()} - {
            each["metadata"]["name"] for each in one.documents or ()
        }
        assert gone == {"numaresourcesoperator-left"}
        for each in both.documents or ():
            assert each["metadata"]["labels"]["multiarch.openshift.io/operand"] == "polyarch-numa-exporter"
            assert each["metadata"]["ownerReferences"][0]["uid"] == "4f6c"

    @pytest.mark.req("NO-042")
    def test_offline_there_is_no_owner(self) -> None:
        """A file has no uid, and a reference without one would have everything deleted."""
        given = operator(WORKERS)
        del given["metadata"]["uid"]
        made = planned(given=given)
        assert all("ownerReferences" not in each["metadata"] for each in made.documents or ())

    @pytest.mark.req("NO-038", "NO-043")
    def test_the_same_facts_make_the_same_plan(self) -> None:
        """Whatever the order in which nodes are known."""
        assert planned(WORKERS, nodes=nodes("b", "a", "c")) == planned(WORKERS, nodes=nodes("c", "b", "a"))


class TestCertificates:
    """Whatever the fingerprint setting."""

    @pytest.mark.req("NO-064")
    @pytest.mark.parametrize("fingerprinting", ["Disabled", "Enabled", "EnabledExclusiveResources"])
    def test_the_certificate_does_not_hang_on_the_fingerprint(self, fingerprinting: str) -> None:
        made = planned({**WORKERS, "config": {"podsFingerprinting": fingerprinting}})
        mounted = {each["name"]: each["mountPath"] for each in exporter(made)["volumeMounts"]}
        assert mounted["certificate"] == "/etc/secrets/rte"
        assert "--metrics-mode=httptls" in exporter(made)["args"]

    @pytest.mark.req("NO-064")
    def test_the_operators_own_authority_signs(self) -> None:
        signed = planned(WORKERS).certificate
        assert signed is not None
        assert (signed.namespace, signed.secret) == ("polyarch-system", "rte-metrics-service-cert")
        assert "numaresources-rte-metrics-service.polyarch-system.svc" in signed.dns_names

    @pytest.mark.req("NO-064")
    def test_cert_manager_signs_where_it_is(self) -> None:
        made = planned(WORKERS, served=frozenset((ISSUERS, CERTIFICATES)))
        certificate = found(made, "Certificate")["spec"]
        assert certificate["secretName"] == "rte-metrics-service-cert"
        assert certificate["issuerRef"]["name"] == found(made, "Issuer")["metadata"]["name"]
        assert made.certificate is None

    @pytest.mark.req("NO-064")
    @pytest.mark.parametrize("platform", ["openshift", "hypershift"])
    def test_openshift_signs_by_annotation(self, platform: str) -> None:
        made = planned(WORKERS, platform=platform, pools=(pool("worker"),))
        annotations = found(made, "Service")["metadata"]["annotations"]
        assert annotations == {"service.beta.openshift.io/serving-cert-secret-name": "rte-metrics-service-cert"}
        assert made.certificate is None

    @pytest.mark.req("NO-064")
    def test_without_any_of_them_metrics_have_no_tls_and_the_message_says_so(self) -> None:
        """Neither → mode http and a message."""
        made = settled(WORKERS, has_own_authority=False)
        assert "--metrics-mode=http" in exporter(made)["args"]
        assert "certificate" not in {each["name"] for each in exporter(made)["volumeMounts"]}
        assert "metrics are served without TLS" in condition(made, "Available")[2]


class TestReadiness:
    def live(self, **status: Any) -> dict[str, Json]:
        (document,) = (each for each in planned(WORKERS).documents or () if each["kind"] == "DaemonSet")
        return {document["metadata"]["name"]: rolled_out(document, **status)}

    @pytest.mark.req("NO-090")
    def test_available(self) -> None:
        """Exactly one of three, and what is available can be upgraded."""
        made = planned(WORKERS, daemon_sets=self.live())
        held = {each.type: each.status for each in made.conditions or ()}
        assert (held["Available"], held["Upgradeable"], held["Progressing"], held["Degraded"]) == (
            "True",
            "True",
            "False",
            "False",
        )
        assert condition(made, "Available")[1:] == ("AsExpected", "worker: 3 nodes")
        assert made.requeue_after is None

    @pytest.mark.req("NO-093")
    @pytest.mark.parametrize(
        ("status", "counts"),
        [
            ({"numberReady": 2}, "2/3"),
            ({"updatedNumberScheduled": 1}, "3/3"),
            ({"observedGeneration": 1}, "3/3"),
            ({"observedGeneration": None}, "3/3"),
        ],
        ids=["not ready", "old template", "generation not seen", "nothing seen"],
    )
    def test_progressing(self, status: Json, counts: str) -> None:
        """Ready pods of an old template do not count."""
        made = planned(WORKERS, daemon_sets=self.live(**status))
        assert condition(made, "Progressing") == (
            "True",
            "DaemonSetIsUpdating",
            f"polyarch-system/numaresourcesoperator-worker is updating ({counts})",
        )
        assert made.requeue_after == 5.0
        assert (made.status or {})["daemonsets"] == []

    @pytest.mark.req("NO-093")
    def test_a_new_template_that_nobody_has_seen_yet(self) -> None:
        """Between the change of the object and the DaemonSet that follows it."""
        made = planned({**WORKERS, "config": {"infoRefreshPeriod": "1m"}}, daemon_sets=self.live())
        assert condition(made, "Progressing")[0] == "True"

    @pytest.mark.req("NO-093")
    def test_an_absent_daemon_set_is_being_created(self) -> None:
        assert "worker is being created" in condition(planned(WORKERS), "Progressing")[2]

    @pytest.mark.req("NO-093")
    def test_after_ten_minutes_without_progress(self) -> None:
        """Up to five pods and their waiting reason, and back by itself."""
        name = "numaresourcesoperator-worker"
        pods = tuple(f"{name}-{number}: ImagePullBackOff" for number in range(6))
        facts = {"daemon_sets": self.live(numberReady=0), "waiting_pods": {name: pods}}
        assert not planned(WORKERS, stalled_for={name: 599.0}, **facts).is_degraded
        made = planned(WORKERS, stalled_for={name: 600.0}, **facts)
        reason, message = degraded(made)
        assert reason == "InternalError"
        assert "is updating (0/3) and has got no further for 10 minutes" in message
        assert "numaresourcesoperator-worker-4: ImagePullBackOff and 1 more" in message
        assert made.documents, "it goes on"
        assert not planned(WORKERS, stalled_for={name: 600.0}, daemon_sets=self.live()).is_degraded

    @pytest.mark.req("NO-043", "NO-093")
    def test_a_node_that_is_down_for_days_is_no_reason_to_write_every_minute(self) -> None:
        """The same is said after hours, and pods are not read every five seconds."""
        live = self.live(numberReady=2)
        name = "numaresourcesoperator-worker"
        first, later = (planned(WORKERS, stalled_for={name: each}, daemon_sets=live) for each in (600.0, 7200.0))
        assert first.is_degraded
        assert first.conditions == later.conditions
        assert later.requeue_after == 60.0

    @pytest.mark.req("NO-039")
    def test_a_daemon_set_with_nothing_to_run_is_ready(self) -> None:
        made = planned(WORKERS, nodes=(), daemon_sets=self.live(desired=0))
        assert condition(made, "Available") == ("True", "AsExpected", "worker: 0 nodes")


class TestStatus:
    @pytest.mark.req("NO-003")
    def test_groups_are_told_once_they_are_ready(self) -> None:
        """``selector`` is the group's name, ``config`` has the defaults."""
        made = settled({**WORKERS, "config": {"infoRefreshPause": "Enabled"}})
        assert (made.status or {})["nodeGroups"] == [
            {
                "daemonsets": {"namespace": "polyarch-system", "name": "numaresourcesoperator-worker"},
                "config": {
                    "podsFingerprinting": "EnabledExclusiveResources",
                    "infoRefreshMode": "Periodic",
                    "infoRefreshPeriod": "10s",
                    "infoRefreshPause": "Enabled",
                    "tolerations": [{"operator": "Exists"}],
                },
                "selector": "worker",
            }
        ]
        assert (made.status or {})["daemonsets"] == [
            {"namespace": "polyarch-system", "name": "numaresourcesoperator-worker"}
        ]

    @pytest.mark.req("NO-063")
    def test_the_status_shows_that_nothing_is_published(self) -> None:
        made = settled({**WORKERS, "config": {"infoRefreshPause": "Enabled"}})
        assert "nothing is published for worker" in condition(made, "Available")[2]

    @pytest.mark.req("NO-003")
    def test_pools_are_told_of_on_openshift_alone(self) -> None:
        made = settled(WORKERS, platform="openshift", pools=(pool("worker"),))
        (told,) = (made.status or {})["machineconfigpools"]
        assert (told["name"], told["conditions"]) == ("worker", [{"type": "Updated", "status": "True"}])
        assert told["config"]["infoRefreshPeriod"] == "10s"
        assert "machineconfigpools" not in (settled(WORKERS).status or {})

    @pytest.mark.req("NO-094")
    def test_related_objects(self) -> None:
        def related(**facts: Any) -> set[tuple[str, str, str]]:
            status = planned(WORKERS, **facts).status or {}
            return {(each["group"], each["resource"], each["name"]) for each in status["relatedObjects"]}

        usual = {
            ("", "namespaces", "polyarch-system"),
            ("topology.node.k8s.io", "noderesourcetopologies", ""),
            ("apps", "daemonsets", "numaresourcesoperator-worker"),
        }
        assert related() == usual
        group = "machineconfiguration.openshift.io"
        assert related(platform="openshift", pools=(pool("worker"),)) == usual | {
            (group, "kubeletconfigs", ""),
            (group, "machineconfigs", ""),
        }


class TestExtraConditions:
    """They inform, and never degrade."""

    @pytest.mark.req("NO-091")
    def test_pools_that_are_paused(self) -> None:
        """The rest proceeds."""
        pools = (pool("b", paused=True), pool("a", paused=True), pool("c"), pool("other", paused=True))
        groups = ({"poolName": "a"}, {"poolName": "b"}, {"poolName": "c"})
        made = planned(*groups, platform="openshift", pools=pools)
        status, _, message = condition(made, "MachineConfigPoolPaused")
        assert (status, message) == ("True", "paused MachineConfigPools: a, b")
        assert made.documents
        assert (
            condition(planned(*groups[2:], platform="openshift", pools=pools), "MachineConfigPoolPaused")[0] == "False"
        )
        assert condition(planned(WORKERS), "MachineConfigPoolPaused")[0] == "Unknown"

    @pytest.mark.req("NO-091")
    def test_settings_of_kubelets(self) -> None:
        """Counts per finding, five nodes named; information only."""
        many = tuple(f"n{number}" for number in range(7))
        made = settled(
            WORKERS,
            nodes=nodes(*many, "good", "silent"),
            findings={
                **dict.fromkeys(many, (numa_facts.CPU_MANAGER,)),
                "good": (),
                "elsewhere": (numa_facts.MEMORY_MANAGER,),
            },
        )
        status, _, message = condition(made, "TopologySettingsChecked")
        assert (status, message) == (
            "False",
            "7 of 8 nodes without CPU manager policy static: n0, n1, n2, n3, n4 and 2 more",
        )
        assert condition(made, "Available")[0] == "True"

    @pytest.mark.req("NO-091")
    def test_nothing_to_find_and_nothing_known(self) -> None:
        assert condition(planned(WORKERS, findings={"n1": ()}), "TopologySettingsChecked")[0] == "True"
        assert condition(planned(WORKERS), "TopologySettingsChecked")[0] == "Unknown"

    @pytest.mark.req("NO-091", "NO-092")
    def test_they_are_there_when_something_is_wrong(self) -> None:
        """A status that is written whole loses no condition."""
        types = {each.type for each in planned({}).conditions or ()}
        assert types == {each.type for each in settled(WORKERS).conditions or ()}


class TestMachines:
    """The legacy SELinux policy of OpenShift."""

    def facts(self, *, target: bool, rolled_out: bool, updated: bool = True) -> Json:
        def made_of(has: bool) -> Json:
            return {"source": [{"name": "00-worker"}, *([{"name": MACHINE_CONFIG}] if has else [])]}

        status = {
            "configuration": made_of(rolled_out),
            "conditions": [{"type": "Updated", "status": "True" if updated else "False"}],
        }
        one = pool("worker", status=status)
        one["spec"]["configuration"] = made_of(target)
        return {"platform": "openshift", "pools": (one,)}

    @pytest.mark.req("NO-057")
    def test_the_machine_config_comes_first(self) -> None:
        """Progressing until the pool has rolled it out; the exporters come then."""
        made = planned(LEGACY, **self.facts(target=False, rolled_out=False))
        config = found(made, "MachineConfig")
        assert config["metadata"]["name"] == MACHINE_CONFIG
        assert config["metadata"]["labels"]["machineconfiguration.openshift.io/role"] == "worker"
        assert (condition(made, "Progressing")[:2], made.requeue_after) == (
            ("True", "MachineConfigPoolIsUpdating"),
            60.0,
        )
        assert names(made, "DaemonSet") == []

    @pytest.mark.req("NO-057")
    @pytest.mark.parametrize("updated", [True, False])
    def test_the_pool_has_it(self, updated: bool) -> None:
        made = planned(LEGACY, **self.facts(target=True, rolled_out=True, updated=updated))
        assert names(made, "DaemonSet") == (["numaresourcesoperator-worker"] if updated else [])

    @pytest.mark.req("NO-038", "NO-057")
    def test_exporters_that_run_are_not_taken_away_meanwhile(self) -> None:
        running = {"numaresourcesoperator-worker": {"metadata": {"name": "numaresourcesoperator-worker"}}}
        facts = self.facts(target=True, rolled_out=False, updated=False)
        assert names(planned(LEGACY, daemon_sets=running, **facts), "DaemonSet")

    @pytest.mark.req("NO-057", "NO-070")
    def test_it_goes_with_the_annotation(self) -> None:
        made = planned(WORKERS, **self.facts(target=True, rolled_out=True))
        assert names(made, "MachineConfig") == []
        assert condition(made, "Progressing")[1] == "MachineConfigPoolIsUpdating"

    @pytest.mark.req("NO-057")
    def test_other_changes_of_a_pool_are_not_awaited(self) -> None:
        """Without the annotation a pool may roll out what it likes."""
        made = planned(WORKERS, **self.facts(target=False, rolled_out=False, updated=False))
        assert condition(made, "Progressing")[1] == "DaemonSetIsUpdating"
