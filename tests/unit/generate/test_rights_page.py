"""The page of rights says what the functions grant."""

from pathlib import Path

import pytest
from tools.generate import rights_page

from polyarch.kube.rbac import grants
from polyarch.numa import names as numa
from polyarch.placement import names
from polyarch.taints import names as taints

ROOT = Path(__file__).parents[3]
SECTIONS = dict(part.split("\n", 1) for part in rights_page.rights_page().split("\n## ")[1:])


def rows(account):
    (section,) = [
        text for text in SECTIONS.values() if f"ServiceAccount `{account}`" in text or f"Role `{account}`" in text
    ]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if "|" in line][2:]


@pytest.mark.req("IN-040")
def test_the_page_is_what_the_functions_say():
    """``make generate`` writes it."""
    assert (ROOT / rights_page.PATH).read_text() == rights_page.rights_page()


@pytest.mark.req("PL-550")
@pytest.mark.parametrize(
    "account",
    [
        names.WEBHOOK,
        names.CONTROLLER,
        names.ENOEXEC_DAEMON,
        names.ENOEXEC_HANDLER,
        names.OPERATOR,
        taints.ROLE,
        taints.ADMISSION_ROLE,
        numa.EXPORTER,
        numa.SCHEDULER,
    ],
)
def test_every_right_of_every_role_is_on_the_page(account):
    """Nothing is granted that an administrator cannot read of."""
    listed = {
        (resource.strip("` "), name.strip("` "), verb)
        for _, resources, called, may, _ in rows(account)
        for resource in resources.split(",")
        for name in called.split(",")
        for verb in may.split(", ")
    }
    for variant in rights_page.variants():
        if (rights := variant.rights.get(account)) is None:
            continue
        for rules in (rights.cluster, *rights.namespaces.values()):
            for access in grants(rules):
                resource = f"{access.resource}.{access.group}" if access.group else access.resource
                assert (resource, access.name, access.verb) in listed


@pytest.mark.req("PL-371", "PL-421", "PL-550")
def test_the_page_says_when_a_right_is_granted():
    """Rights follow the policy."""
    told = {resources: when for _, resources, _, _, when in rows(names.CONTROLLER)}
    assert told["`pods/eviction`"] == "with a `sweep.action` of `evict`"
    assert told["`nodes`"].startswith("with ")
    assert [when for _, of, named, _, when in rows(names.WEBHOOK) if of == "`secrets`" and not named] == [
        "unless `images.secretAccess` is `none`"
    ]


@pytest.mark.req("TN-081")
def test_the_page_says_when_the_role_taints_may_evict():
    told = {resources: (may, when) for _, resources, _, may, when in rows(taints.ROLE)}
    assert told["`pods/eviction`"] == ("create", "with `pods.imageChange: evict`")
    assert not any("delete" in may or "update" in may for of, (may, _) in told.items() if "pods" in of or "nodes" in of)
