"""What the Jobs of a machine OS build are given, under the names of stock builders."""

import base64
import gzip

import pytest
from machine_world import MachineWorld

from polyarch.builds.facts.build_facts import SecretFacts
from polyarch.builds.jobs import contract
from polyarch.builds.machineos import api
from polyarch.builds.machineos.api import name_of
from polyarch.builds.machineos.job_objects import (
    MAX_FILE_BYTES,
    TRUST_FILE,
    UnreadableFile,
    ignition_file,
    trust_bundle,
)

CAS = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"
SUBSCRIBED = "etc-pki-entitlement-worker"


def entitled(world):
    world.secrets[SUBSCRIBED] = SecretFacts(type="Opaque", resource_version="1", keys=frozenset({"entitlement.pem"}))
    return world


def jobs(world):
    world.reconcile()
    return list(world.jobs.values())


def volumes(job):
    return {each["name"]: each for each in job["spec"]["template"]["spec"]["volumes"]}


def container(job):
    (found,) = job["spec"]["template"]["spec"]["initContainers"]
    return found


def inputs(world, job):
    return world.config_maps[contract.configmap_name(job["metadata"]["name"])]["data"]


@pytest.mark.req("BD-130")
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda world: setattr(world, "trust", CAS), id="trust bundle"),
        pytest.param(entitled, id="a subscription"),
        pytest.param(
            lambda world: world.named.update({"etc-yum-repos-d": {"data": {"a.repo": ""}}}), id="repositories"
        ),
    ],
)
def test_the_trust_bundle_and_the_presence_of_entitlements_build_all_again(change):
    world = MachineWorld()
    world.build_all()
    first = world.config["status"]["currentImagePullSpec"]
    change(world)
    world.build_all()
    assert len(world.made) == 4
    assert world.config["status"]["currentImagePullSpec"] != first


@pytest.mark.req("BD-074")
def test_what_is_in_an_entitlement_is_no_input():
    world = entitled(MachineWorld())
    world.build_all()
    world.secrets[SUBSCRIBED] = SecretFacts(type="Opaque", resource_version="2", keys=frozenset({"renewed.pem"}))
    world.build_all()
    assert len(world.made) == 2


@pytest.mark.req("BD-275")
def test_everything_that_is_shared_has_its_stock_name_and_an_owner_for_each_job():
    world = MachineWorld()
    world.trust = CAS
    made = jobs(world)
    names = api.ephemeral_name(name_of(world.build))
    there = world.copies | world.config_maps
    assert set(there) >= {text for key, text in names.items() if key != "digest"}
    for key in ("containerfile", "mc", "additionaltrustbundle", "base", "final"):
        owners = there[names[key]]["metadata"]["ownerReferences"]
        assert {each["uid"] for each in owners} == {each["metadata"]["uid"] for each in made}, key
        assert not any(each.get("controller") for each in owners)
    texts = world.config_maps[names["containerfile"]]["data"]
    assert texts == {
        f"Containerfile.{architecture}": inputs(world, world.jobs[world.job_of(architecture)])["Containerfile"]
        for architecture in ("amd64", "arm64")
    }


@pytest.mark.req("BD-275")
def test_one_architecture_has_one_containerfile():
    world = MachineWorld(architectures=("arm64",))
    (job,) = jobs(world)
    stored = world.config_maps[api.ephemeral_name(name_of(world.build))["containerfile"]]
    assert stored["data"] == {"Containerfile": inputs(world, job)["Containerfile"]}


@pytest.mark.req("BD-275")
def test_the_context_is_the_rendered_config_and_the_cas_of_nodes():
    world = MachineWorld(architectures=("arm64",))
    world.trust = CAS
    (job,) = jobs(world)
    names = api.ephemeral_name(name_of(world.build))
    sources = volumes(job)[contract.CONTEXT_VOLUME]["projected"]["sources"]
    assert [each["configMap"]["name"] for each in sources] == [names["mc"], names["additionaltrustbundle"]]
    bundle = world.config_maps[names["additionaltrustbundle"]]["binaryData"][TRUST_FILE]
    assert base64.b64decode(bundle).decode() == CAS
    given = inputs(world, job)
    assert f"COPY {TRUST_FILE} " in given["Containerfile"]
    assert given[contract.TRUST_FILE] == CAS, "images are pulled and pushed with them, too"


@pytest.mark.req("BD-275")
def test_buildah_finds_how_nodes_pull_images_where_it_looks_first():
    (job,) = jobs(MachineWorld(architectures=("arm64",)))
    sources = volumes(job)[contract.CONTAINERS_VOLUME]["projected"]["sources"]
    assert [
        (each["configMap"]["name"].rpartition("-worker-")[0], each["configMap"]["optional"]) for each in sources
    ] == [
        ("etc-policy", True),
        ("etc-registries", True),
    ]
    home = {each["name"]: each["value"] for each in container(job)["env"]}["HOME"]
    mounts = {each["name"]: each["mountPath"] for each in container(job)["volumeMounts"]}
    assert mounts[contract.CONTAINERS_VOLUME] == f"{home}/.config/containers"


@pytest.mark.req("BD-074")
def test_a_run_finds_the_files_of_an_entitlement():
    world = entitled(MachineWorld(architectures=("arm64",)))
    (job,) = jobs(world)
    assert volumes(job)["etc-pki-entitlement"]["secret"]["secretName"] == SUBSCRIBED
    assert ":/etc/pki/entitlement'" in inputs(world, job)[contract.BUILD_SCRIPT]
    assert f"{api.ENTITLED}etc-pki-entitlement" in job["metadata"]["annotations"]
    (push,) = job["spec"]["template"]["spec"]["containers"]
    assert "etc-pki-entitlement" not in {each["name"] for each in push["volumeMounts"]}


def config(source, **more):
    files = [{"path": "/etc/other"}, {"path": "/etc/x", "contents": {"source": source, **more}}]
    return {"spec": {"config": {"storage": {"files": files}}}}


def packed(text):
    return "data:;base64," + base64.b64encode(gzip.compress(text.encode())).decode()


@pytest.mark.req("BD-275")
@pytest.mark.parametrize(
    ("rendered", "text"),
    [
        pytest.param(config("data:,a%20b%0A"), "a b\n", id="percent"),
        pytest.param(config("data:text/plain;charset=utf-8;base64,w6QK"), "ä\n", id="base64"),
        pytest.param(config(packed("x"), compression="gzip"), "x", id="gzip"),
        pytest.param({"spec": {}}, None, id="no config"),
        pytest.param({"spec": {"config": {"storage": {"files": None}}}}, None, id="no files"),
    ],
)
def test_files_of_a_rendered_config_are_found_however_they_are_written(rendered, text):
    assert ignition_file(rendered, "/etc/x") == text


@pytest.mark.req("BD-320")
@pytest.mark.parametrize(
    ("source", "more"),
    [
        ("https://example.com/x", {}),
        ("data:;base64,====", {}),
        ("data:,%ff", {}),
        ("data:,plain", {"compression": "gzip"}),
        (packed("x" * (MAX_FILE_BYTES + 1)), {"compression": "gzip"}),
    ],
    ids=["a URL", "no base64", "no text", "not packed", "too large"],
)
def test_a_file_that_cannot_be_read_is_named(source, more):
    with pytest.raises(UnreadableFile, match="/etc/x"):
        ignition_file(config(source, **more), "/etc/x")


@pytest.mark.req("BD-074")
@pytest.mark.parametrize(
    ("encoded", "text"),
    [("", ""), (base64.b64encode(CAS.encode()).decode(), CAS), ("eA==", None), ("x", None), ("/w==", None)],
    ids=["none", "CAs", "no certificate", "no base64", "no text"],
)
def test_the_trust_bundle_of_a_controller_config(encoded, text):
    assert trust_bundle(encoded) == text
