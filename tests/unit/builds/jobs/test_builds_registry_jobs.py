"""The Jobs that do the builder's registry work."""

import json

import msgspec
import pytest
from build_orders import DIGEST, SETTINGS, identity, spec

from polyarch.builds.agent import PruneDocument
from polyarch.builds.jobs.manifests import RegistryJobSpec, index_manifests, prune_manifests
from polyarch.builds.registry import ChildImage, Publication

PUBLICATION = Publication(
    repository="registry.example.com/team/shop",
    children=(ChildImage(architecture="arm64", reference=f"registry.example.com/team/shop@{DIGEST}"),),
    tags=("shop-1",),
)


def asked(document, **more):
    given = {"output": {"pushSecret": {"name": "push"}, "pullSecrets": [{"name": "pull"}]}, **more}
    return RegistryJobSpec(
        metadata=identity("shop-1-index"), spec=spec(given), settings=SETTINGS, document=msgspec.to_builtins(document)
    )


@pytest.mark.req("BD-178")
def test_the_index_job_is_told_what_to_publish() -> None:
    config_map, job = index_manifests(asked(PUBLICATION))
    assert msgspec.json.decode(config_map["data"]["index.json"], type=Publication) == PUBLICATION
    assert config_map["immutable"] is True
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"] == [
        "polyarch",
        "run",
        "build-index",
        "--document=/polyarch/in/index.json",
        "--authfile=/polyarch/credentials/config.json",
        "--termination-log=/polyarch/termination-log",
    ]


@pytest.mark.req("BD-178")
def test_it_has_the_push_secret_only_and_runs_on_any_architecture() -> None:
    pod = index_manifests(asked(PUBLICATION))[1]["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert {each["operator"] for each in pod["tolerations"]} == {"Exists"}
    assert [each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each] == ["push"]
    assert "initContainers" not in pod
    assert pod["automountServiceAccountToken"] is False
    assert '"pull"' not in json.dumps(pod)


@pytest.mark.req("BD-178")
def test_it_may_take_as_long_as_the_index_may() -> None:
    job = index_manifests(asked(PUBLICATION, timeouts={"nodeWait": "10m", "index": "2m"}))[1]
    assert job["spec"]["activeDeadlineSeconds"] == 720


@pytest.mark.req("BD-151")
@pytest.mark.parametrize("make", [index_manifests, prune_manifests])
def test_registry_work_is_confined(make) -> None:
    (container,) = make(asked(PUBLICATION))[1]["spec"]["template"]["spec"]["containers"]
    context = container["securityContext"]
    assert (context["runAsNonRoot"], context["readOnlyRootFilesystem"]) == (True, True)
    assert context["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.req("BD-178")
def test_pruning_is_a_job_as_well() -> None:
    document = {"images": [{"repository": "r.example.com/shop", "digest": DIGEST, "kind": "index", "after": []}]}
    config_map, job = prune_manifests(asked(msgspec.convert(document, PruneDocument)))
    found = msgspec.json.decode(config_map["data"]["prune.json"], type=PruneDocument)
    assert [image.reference for image in found.images] == [f"r.example.com/shop@{DIGEST}"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"][:3] == ["polyarch", "run", "build-prune"]
