"""Who watches for the events of a stock builder of machine OS images finds them."""

import pytest
from machine_world import MachineWorld

from polyarch.builds.machineos.api import name_of


def stock(world, kind="MachineOSBuild"):
    """Reasons of the events about objects of a kind, in their order."""
    return [each.reason for each in world.told if each.about is not None and each.about.kind == kind]


@pytest.mark.req("BD-290")
def test_a_build_tells_its_way_at_the_machine_os_build():
    world = MachineWorld(architectures=("arm64",))
    world.build_all()
    assert stock(world) == [
        *("BuildStarted", "JobCreated", "BuildPreparing", "JobStarted"),
        *("JobCompleted", "BuildBuilding", "BuildCompleted", "JobDeleted"),
    ]
    completed = next(each for each in world.told if each.reason == "BuildCompleted")
    assert world.build["status"]["digestedImagePushSpec"] in completed.message


@pytest.mark.req("BD-290")
def test_each_event_names_its_object_whether_or_not_it_was_there_before():
    world = MachineWorld()
    world.reconcile()
    name = name_of(world.build)
    abouts = {each.about for each in world.told if each.about is not None}
    assert {(each.kind, each.name, each.uid) for each in abouts} == {
        ("MachineOSBuild", name, f"${{uid:MachineOSBuild/{name}}}")
    }
    world.told.clear()
    world.build_all()
    uids = {each.about.uid for each in world.told if each.about is not None}
    assert uids == {world.build["metadata"]["uid"]}


@pytest.mark.req("BD-290")
@pytest.mark.parametrize(
    ("ending", "told"),
    [
        (lambda world: world.fail("arm64"), {"JobFailed", "BuildFailed"}),
        (lambda world: world.delete_job(world.job_of("arm64")), {"BuildInterrupted"}),
    ],
    ids=["a Job fails", "a Job is deleted"],
)
def test_what_goes_wrong_is_told_once_and_so_is_that_it_is_right_again(ending, told):
    world = MachineWorld(architectures=("arm64",))
    world.reconcile()
    ending(world)
    world.settle()
    assert told <= set(stock(world))
    assert stock(world, "MachineOSConfig") == ["BuildDegraded"]
    world.annotate("machineconfiguration.openshift.io/rebuild", "")
    world.build_all()
    assert stock(world, "MachineOSConfig") == ["BuildDegraded", "BuildRecovered"]
    assert "BuildDeleted" in stock(world)


@pytest.mark.req("BD-290")
def test_a_new_rendered_config_is_told_at_the_pool():
    world = MachineWorld()
    world.build_all()
    world.roll("rendered-worker-2")
    world.build_all()
    (event,) = [each for each in world.told if each.about is not None and each.about.kind == "MachineConfigPool"]
    assert event.reason == "PoolConfigChanged"
    assert "from rendered-worker-1 to rendered-worker-2" in event.message


@pytest.mark.req("BD-290")
def test_a_change_of_the_spec_is_told_as_taken_in_or_as_wrong():
    world = MachineWorld()
    world.build_all()
    world.configure(containerFile=[{"containerfileArch": "NoArch", "content": "RUN other\n"}])
    world.build_all()
    assert stock(world, "MachineOSConfig") == ["ConfigReconciled"]
    world.configure(containerFile=[{"containerfileArch": "NoArch", "content": "RUNNING\n"}])
    world.settle()
    assert "ConfigReconcileFailed" in stock(world, "MachineOSConfig")


@pytest.mark.req("BD-290")
def test_nothing_is_told_when_nothing_changes():
    world = MachineWorld()
    world.build_all()
    world.told.clear()
    world.now += 3600
    world.settle()
    assert stock(world) == stock(world, "MachineOSConfig") == []
