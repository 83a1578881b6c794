"""The Job of one architecture and the ConfigMaps of its inputs."""

import base64
import json

import msgspec
import pytest
from build_orders import DIGEST, OWNER, SETTINGS, identity, order

from polyarch.builds.jobs import contract
from polyarch.builds.jobs.manifests import architecture_manifests
from polyarch.builds.jobs.spec import PulledImage

EVERYTHING = {
    "source": {
        "context": {
            "type": "Git",
            "git": {"url": "https://git.example.com/x.git", "commit": "a" * 40, "credentials": {"name": "git"}},
        },
        "secrets": [
            {"id": "token", "secret": {"name": "npm", "key": "token"}},
            {"id": "other", "secret": {"name": "more", "key": "x"}},
        ],
    },
    "output": {"pushSecret": {"name": "push"}, "pullSecrets": [{"name": "pull-a"}, {"name": "pull-b"}]},
}
FULL = msgspec.structs.replace(SETTINGS, registries_conf="[[registry]]\n", trust_bundle="-----BEGIN CERTIFICATE-----\n")


def job(*arguments, **more):
    return architecture_manifests(order(*arguments, **more))[-1]


def pod(*arguments, **more):
    return job(*arguments, **more)["spec"]["template"]["spec"]


def containers(found):
    return {each["name"]: each for each in (*found["initContainers"], *found["containers"])}


class TestWhere:
    @pytest.mark.req("BD-140")
    def test_native_jobs_are_bound_to_their_architecture(self):
        found = pod()
        assert found["nodeSelector"] == {"kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux"}
        assert found["tolerations"] == [
            {"key": "kubernetes.io/arch", "operator": "Equal", "value": "arm64"},
            {"key": "supported-arch", "operator": "Equal", "value": "arm64"},
        ]

    @pytest.mark.req("BD-140")
    def test_the_users_scheduling_of_that_architecture_is_added(self):
        mine = {"key": "team", "operator": "Exists"}
        scheduling = [
            {"architecture": "amd64", "nodeSelector": {"not": "mine"}},
            {
                "architecture": "arm64",
                "nodeSelector": {"disk": "fast", "kubernetes.io/arch": "amd64"},
                "tolerations": [mine],
                "runtimeClassName": "gvisor",
                "priorityClassName": "low",
            },
        ]
        found = pod({"scheduling": {"perArchitecture": scheduling}})
        assert found["nodeSelector"] == {"disk": "fast", "kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux"}
        assert found["tolerations"][-1] == mine
        assert (found["runtimeClassName"], found["priorityClassName"]) == ("gvisor", "low")

    @pytest.mark.req("BD-140")
    def test_where_the_image_runs_is_not_where_it_is_built(self):
        selector = {"matchLabels": {"pool": "edge"}}
        assert pod({"architectures": {"nodeSelector": selector}}) == pod()

    @pytest.mark.req("BD-141")
    def test_emulated_jobs_go_to_their_host(self):
        found = pod(host="amd64")
        assert found["nodeSelector"]["kubernetes.io/arch"] == "amd64"
        assert {each["value"] for each in found["tolerations"]} == {"amd64"}

    @pytest.mark.req("BD-155")
    def test_a_job_is_made_without_asking_for_nodes(self):
        """An order knows no nodes; a riscv64 Job is like any other, and its pending pod wakes an autoscaler."""
        found = pod(architecture="riscv64")
        assert found["nodeSelector"]["kubernetes.io/arch"] == "riscv64"


class TestJob:
    @pytest.mark.req("BD-142")
    def test_one_pod_with_retries_that_evictions_do_not_use_up(self):
        found = job({"retries": 2, "timeouts": {"nodeWait": "10m", "build": "2h"}})["spec"]
        found.pop("template")
        assert found == {
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 2,
            "activeDeadlineSeconds": 7800,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailJob",
                        "onExitCodes": {"operator": "In", "values": [40, 41, 42, 43, 44, 45, 46, 47]},
                    },
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                ]
            },
        }

    @pytest.mark.req("BD-142")
    def test_an_architecture_may_have_more_time(self):
        scheduling = {"perArchitecture": [{"architecture": "arm64", "buildTimeout": "3h"}]}
        found = job({"timeouts": {"nodeWait": "10s", "build": "1h"}, "scheduling": scheduling})
        assert found["spec"]["activeDeadlineSeconds"] == 3 * 3600 + 10

    @pytest.mark.req("BD-143")
    def test_the_pod_has_no_access_to_the_cluster(self):
        template = job()["spec"]["template"]
        found = template["spec"]
        assert found["restartPolicy"] == "Never"
        assert found["automountServiceAccountToken"] is False
        assert found["enableServiceLinks"] is False
        assert found["terminationGracePeriodSeconds"] == 10
        assert template["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
        assert "hostNetwork" not in found

    @pytest.mark.req("BD-143")
    def test_requests_by_default_and_the_users_instead(self):
        usual = {"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "4Gi"}
        assert containers(pod())["build"]["resources"] == {"requests": usual}
        mine = {"requests": {"cpu": "4"}, "limits": {"memory": "512Mi"}}
        scheduling = {"perArchitecture": [{"architecture": "arm64", "resources": mine}]}
        assert containers(pod({"scheduling": scheduling}))["build"]["resources"] == {
            "requests": {"cpu": "4", "ephemeral-storage": "4Gi"},
            "limits": {"memory": "512Mi"},
        }, "a request of 1Gi above a limit of 512Mi would be refused"

    @pytest.mark.req("BD-081")
    def test_labels_are_on_job_pods_and_configmaps(self):
        config_map, found = architecture_manifests(order())
        labels = identity().labels
        places = (found["metadata"], found["spec"]["template"]["metadata"], config_map["metadata"])
        assert [place["labels"] for place in places] == [labels] * 3
        assert found["metadata"]["annotations"]["polyarch.dev/arch-key"] == "a" * 64
        assert found["metadata"]["annotations"]["polyarch.dev/repository"] == "registry.example.com/team/shop"
        assert found["metadata"]["ownerReferences"] == config_map["metadata"]["ownerReferences"] == [OWNER]


class TestContainers:
    @pytest.mark.req("BD-144")
    def test_build_comes_before_push_with_its_own_image(self):
        found = pod()
        assert [each["name"] for each in found["initContainers"]] == ["build"]
        assert [each["name"] for each in found["containers"]] == ["push"]
        assert containers(found)["build"]["image"] == SETTINGS.builder_image
        assert containers(found)["push"]["image"] == SETTINGS.push_image
        mine = pod({"builder": {"image": "own/builder:1", "pushImage": "own/push:1", "serviceAccount": "robot"}})
        assert (containers(mine)["build"]["image"], containers(mine)["push"]["image"]) == (
            "own/builder:1",
            "own/push:1",
        )
        assert mine["serviceAccountName"] == "robot"

    @pytest.mark.req("BD-144", "BD-330")
    def test_each_credential_is_in_one_container_only(self):
        """The user's code, which runs in ``build``, can read nothing that pushes; ``push`` nothing of the user's."""
        found = pod(EVERYTHING, settings=FULL)
        mounted = {name: {each["name"] for each in one["volumeMounts"]} for name, one in containers(found).items()}
        secret = {"credentials": "push", "pull": "build", "secrets": "build", "git": "build"}
        for volume, owner in secret.items():
            assert [name for name, volumes in mounted.items() if volume in volumes] == [owner], volume
        by_name = {each["name"]: each for each in found["volumes"]}
        assert by_name["credentials"]["secret"]["secretName"] == "push"
        pulls = [each["secret"] for each in by_name["pull"]["projected"]["sources"]]
        assert [(each["name"], each["items"][0]["path"]) for each in pulls] == [
            ("pull-a", "0.json"),
            ("pull-b", "1.json"),
        ]
        secrets = [each["secret"] for each in by_name["secrets"]["projected"]["sources"]]
        assert [(each["name"], each["items"]) for each in secrets] == [
            ("npm", [{"key": "token", "path": "0"}]),
            ("more", [{"key": "x", "path": "1"}]),
        ]

    @pytest.mark.req("BD-145")
    def test_no_volume_reaches_the_node_and_each_emptydir_has_a_limit(self):
        for volume in pod(EVERYTHING, settings=FULL)["volumes"]:
            assert "hostPath" not in volume
            if "emptyDir" in volume:
                assert volume["emptyDir"]["sizeLimit"]
        assert {"in", "layout", "storage", "context", "architectures", "trust"} <= {
            each["name"] for each in pod(EVERYTHING, settings=FULL)["volumes"]
        }

    @pytest.mark.req("BD-145")
    def test_only_build_writes_to_the_layout_and_has_storage(self):
        found = containers(pod())
        mounts = {name: {each["name"]: each for each in one["volumeMounts"]} for name, one in found.items()}
        assert "readOnly" not in mounts["build"]["layout"]
        assert mounts["push"]["layout"]["readOnly"] is True
        assert "storage" not in mounts["push"]

    @pytest.mark.req("BD-049")
    def test_the_list_of_architectures_is_mounted_if_it_is_there(self):
        found = pod()
        volume = next(each for each in found["volumes"] if each["name"] == "architectures")
        assert volume["configMap"]["optional"] is True
        for one in containers(found).values():
            mount = next(each for each in one["volumeMounts"] if each["name"] == "architectures")
            assert mount["mountPath"] == "/polyarch/architectures"

    @pytest.mark.req("BD-149")
    def test_messages_are_written_where_user_code_cannot_write(self):
        for one in containers(pod()).values():
            assert not one["terminationMessagePath"].startswith("/dev")
            assert one["terminationMessagePolicy"] == "FallbackToLogsOnError"
        assert f"--termination-log={contract.TERMINATION_LOG}" in containers(pod())["push"]["command"]

    @pytest.mark.req("BD-333")
    def test_nothing_but_names_of_secrets_and_fixed_words_in_arguments_and_environment(self):
        found = containers(pod(EVERYTHING, settings=FULL, arguments={"MODE": "not-here"}))
        assert found["push"]["command"] == [
            "polyarch",
            "run",
            "build-push",
            "--layout=/polyarch/layout/image",
            "--repository=registry.example.com/team/shop",
            "--architecture=arm64",
            "--tag=shop-1-arm64",
            "--authfile=/polyarch/credentials/config.json",
            "--termination-log=/polyarch/termination-log",
            "--registries-conf=/polyarch/in/registries.conf",
            "--ca=/polyarch/trust/ca-bundle.crt",
        ]
        assert found["build"]["command"] == ["/bin/sh", "/polyarch/in/build.sh"]
        assert {each["name"] for each in found["build"]["env"]} == {
            "HOME",
            "TMPDIR",
            "CONTAINERS_REGISTRIES_CONF",
            "SSL_CERT_DIR",
        }
        assert "env" not in found["push"]
        assert "not-here" not in json.dumps(pod(EVERYTHING, arguments={"MODE": "not-here"}))

    @pytest.mark.req("BD-075")
    def test_proxies_reach_every_container_that_asks_registries(self):
        proxies = (("HTTPS_PROXY", "http://proxy.example:3128"), ("NO_PROXY", ".svc"))
        found = pod(settings=msgspec.structs.replace(SETTINGS, proxies=proxies))
        for name in ("build", "push"):
            given = {each["name"]: each["value"] for each in containers(found)[name]["env"]}
            assert dict(proxies).items() <= given.items()

    @pytest.mark.req("BD-235")
    def test_without_a_tag_it_is_pushed_by_digest_only(self):
        assert not [each for each in containers(pod(tag=""))["push"]["command"] if "--tag" in each]


class TestInputs:
    @pytest.mark.req("BD-145")
    def test_the_inputs_are_immutable_and_name_the_containerfile(self):
        config_map, _ = architecture_manifests(order())
        assert config_map["metadata"]["name"] == "shop-1-arm64-in"
        assert config_map["immutable"] is True
        assert config_map["data"]["Containerfile"] == "FROM scratch\nCOPY . /\n"
        assert config_map["data"]["build.sh"].startswith("#!/bin/sh\nset -eu\n")
        assert "binaryData" not in config_map

    @pytest.mark.req("BD-147")
    def test_emulated_jobs_bring_a_program_of_the_target(self):
        config_map = architecture_manifests(order(host="amd64"))[0]
        assert base64.b64decode(config_map["binaryData"]["probe"])[:4] == b"\x7fELF"

    @pytest.mark.req("BD-072")
    def test_a_configmap_context_is_copied_as_the_key_saw_it(self):
        """The user's ConfigMap may change before the pod starts; what is built must be what the key says."""
        data = {"data": {"b": "2", "a": "1"}, "binaryData": {"c": "AA=="}}
        _, copied, found = architecture_manifests(order(context_data=data))
        assert (copied["metadata"]["name"], copied["immutable"]) == ("shop-1-arm64-context", True)
        assert (copied["data"], copied["binaryData"]) == ({"a": "1", "b": "2"}, {"c": "AA=="})
        volume = next(each for each in found["spec"]["template"]["spec"]["volumes"] if each["name"] == "context")
        assert volume == {"name": "context", "configMap": {"name": "shop-1-arm64-context"}}

    def test_the_build_document_says_what_the_script_says(self):
        images = [PulledImage(written=("busybox:1", "busybox:${V}"), pull=f"docker.io/library/busybox@{DIGEST}")]
        document = {"output": {"labels": {"a": "b"}}, "source": {"secrets": [{"id": "s"}]}}
        config_map = architecture_manifests(order(document, images=images, arguments={"A": "1"}, host="amd64"))[0]
        found = msgspec.json.decode(config_map["data"]["build.json"], type=contract.BuildDocument)
        assert found == contract.BuildDocument(
            architecture="arm64",
            arguments={"A": "1"},
            labels={"a": "b"},
            timestamp=0,
            images=dict.fromkeys(images[0].written, images[0].pull),
            secrets=("s",),
            emulated=True,
        )

    @pytest.mark.req("BD-006")
    def test_equal_orders_give_equal_bytes(self):
        one = order({"output": {"labels": {"a": "1", "b": "2"}}}, arguments={"x": "1", "y": "2"})
        other = order({"output": {"labels": {"b": "2", "a": "1"}}}, arguments={"y": "2", "x": "1"})
        assert json.dumps(architecture_manifests(one)) == json.dumps(architecture_manifests(other))

    @pytest.mark.req("BD-323")
    @pytest.mark.parametrize("text", ["", "x" * 128 * 1024, "RUN echo 日本語 مرحبا\n"])
    def test_any_containerfile_goes_in_unchanged(self, text):
        assert architecture_manifests(order(containerfile=text))[0]["data"]["Containerfile"] == text

    @pytest.mark.req("BD-275")
    def test_other_names_for_the_inputs(self):
        config_map, found = architecture_manifests(order(metadata=identity(inputs="containerfile-worker-1")))
        assert config_map["metadata"]["name"] == "containerfile-worker-1"
        volume = next(each for each in found["spec"]["template"]["spec"]["volumes"] if each["name"] == "in")
        assert volume["configMap"]["name"] == "containerfile-worker-1"
