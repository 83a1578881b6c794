"""Signature policies: which requirement is the one that counts, and what it means here."""

import json

import pytest

from polyarch.oci.inspection import InspectionError, InspectionWarning, Status
from polyarch.oci.reference import parse
from polyarch.oci.signature_policy import InvalidPolicy, SignaturePolicy

REJECT = [{"type": "reject"}]
ACCEPT = [{"type": "insecureAcceptAnything"}]
SIGNED = [{"type": "signedBy", "keyType": "GPGKeys", "keyPath": "/etc/key.gpg"}]
SIGSTORE = [{"type": "sigstoreSigned", "keyPath": "/etc/cosign.pub"}]
DIGEST = "sha256:" + "a" * 64


def policy(scopes=None, *, default=ACCEPT, signed="warn", **transports):
    transports = {**transports, **({"docker": scopes} if scopes is not None else {})}
    body = json.dumps({"default": default, "transports": transports}).encode()
    return SignaturePolicy.from_json(body, origin="policy.json", signed=signed)


def rejects(judge, text):
    return isinstance(judge.judge(parse(text)), InspectionError)


@pytest.mark.req("RG-107")
@pytest.mark.parametrize(
    "scope",
    [
        "quay.io/team/sub/app:1.0",
        "quay.io/team/sub/app",
        "quay.io/team/sub",
        "quay.io/team",
        "quay.io",
        "*.io",
        "",
    ],
)
def test_every_kind_of_scope_is_found(scope):
    """Exact, repository, namespaces, host, *.host, then the transport's ""."""
    assert rejects(policy({scope: REJECT}), "quay.io/team/sub/app:1.0")


def test_the_most_specific_scope_counts():
    scopes = ["*.b.example", "a.b.example:5000", "a.b.example:5000/x", "a.b.example:5000/x/y", "a.b.example:5000/x/y:1"]
    image = "a.b.example:5000/x/y:1"
    for position, scope in enumerate(scopes):
        wider = dict.fromkeys(["", *scopes[:position]], ACCEPT)
        assert rejects(policy({**wider, scope: REJECT}), image)
        narrower = dict.fromkeys(scopes[position:], ACCEPT)
        assert not rejects(policy({**dict.fromkeys(["", *scopes[:position]], REJECT), **narrower}), image)


@pytest.mark.parametrize(
    ("scope", "image"),
    [
        ("quay.io/team/ap", "quay.io/team/app:1"),
        ("quay.io/te", "quay.io/team/app:1"),
        ("quay.io/team/app:1.1", "quay.io/team/app:1"),
        ("quay.io", "quay.io:5000/team/app:1"),
        ("quay.io:5000", "quay.io/team/app:1"),
        ("*.quay.io", "quay.io/team/app:1"),
        ("nginx", "nginx"),
        ("library/nginx", "nginx"),
    ],
)
def test_a_scope_is_no_prefix_of_text(scope, image):
    assert not rejects(policy({scope: REJECT}), image)


def test_docker_hub_is_written_out():
    assert rejects(policy({"docker.io/library/nginx": REJECT}), "nginx")
    assert rejects(policy({"docker.io": REJECT}), "index.docker.io/team/app")


def test_a_wildcard_covers_all_hosts_below_it_and_not_their_ports():
    judge = policy({"*.example.com": REJECT})
    assert rejects(judge, "a.example.com/x")
    assert rejects(judge, "a.b.example.com:5000/x")
    assert not rejects(judge, "example.com/x")


@pytest.mark.req("RG-013")
def test_with_a_digest_the_tag_opens_nothing():
    """The tag is for show, so a scope for it must not let another digest pass."""
    scopes = {"quay.io/team/app:1": ACCEPT, "quay.io/team/app": REJECT}
    assert not rejects(policy(scopes), "quay.io/team/app:1")
    assert rejects(policy(scopes), f"quay.io/team/app:1@{DIGEST}")
    assert not rejects(policy({f"quay.io/team/app@{DIGEST}": ACCEPT, "": REJECT}), f"quay.io/team/app:1@{DIGEST}")


@pytest.mark.req("RG-107")
def test_without_a_scope_the_default_counts():
    """Then `default`."""
    assert rejects(policy({"quay.io": ACCEPT}, default=REJECT), "nginx")
    assert not rejects(policy({"quay.io": REJECT}, default=ACCEPT), "nginx")


def test_other_transports_do_not_count_for_registries(tmp_path):
    judge = policy({"": ACCEPT}, oci={"": REJECT}, **{"docker-daemon": {"": REJECT}})
    assert not rejects(judge, "nginx")
    assert rejects(judge, f"oci:{tmp_path}")
    inner = policy({"": REJECT}, oci={str(tmp_path): ACCEPT, "": REJECT})
    assert not rejects(inner, f"oci:{tmp_path}/out:1")
    assert rejects(inner, "oci:/elsewhere")


def test_one_reject_among_requirements_rejects():
    assert rejects(policy({"": [*ACCEPT, *REJECT]}), "nginx")


@pytest.mark.req("RG-107")
@pytest.mark.parametrize("wanted", [SIGNED, SIGSTORE, [*ACCEPT, *SIGNED]])
def test_signatures_are_not_checked_and_that_is_said(wanted):
    """--policy-signed skip|warn|deny, default warn."""
    reference = parse("quay.io/team/app")
    assert policy({"": wanted}, signed="skip").judge(reference) is None
    warning = policy({"": wanted}).judge(reference)
    assert isinstance(warning, InspectionWarning)
    assert (warning.code, wanted[-1]["type"] in warning.message) == ("signature-unchecked", True)
    error = policy({"": wanted}, signed="deny").judge(reference)
    assert (error.code, error.error_class) == ("policy-rejected", "configuration")


def test_a_rejection_names_file_and_scope():
    error = policy({"quay.io/team": REJECT}).judge(parse("quay.io/team/app:1"))
    assert error.message.startswith("quay.io/team/app:1: the policy rejects it (policy.json, scope quay.io/team)")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"default":[]}',
        b'{"default":[{"type":"whatever"}]}',
        b'{"default":[{"type":"reject"}],"transports":{"docker":{"quay.io":[]}}}',
        b'{"default":[{"type":"reject"}],"transports":{"docker":{"quay.io":[{"type":"x"}]}}}',
        b'{"default":[{"type":"reject"}],"transport":{}}',
        b"\xff",
    ],
)
def test_a_policy_that_is_not_understood_is_refused(body):
    """A guess here would let images through."""
    with pytest.raises(InvalidPolicy, match=r"^policy.json: "):
        SignaturePolicy.from_json(body, origin="policy.json")


@pytest.mark.req("RG-107")
async def test_a_rejected_image_is_asked_from_nobody(registry, make_inspector, ref):
    """`reject` → `policy-rejected`, nothing sent."""
    registry.push_index("team/app", "1", "linux/amd64")
    inspector = make_inspector(signatures=policy({registry.host: REJECT}))
    answer = await inspector.inspect(ref("team/app:1"))
    assert (answer.status, answer.error.code) == (Status.ERROR, "policy-rejected")
    assert inspector.peek(ref("team/app:1")).error == answer.error
    assert registry.seen == []


async def test_an_accepted_image_is_read_with_a_word_on_its_signatures(registry, make_inspector, ref):
    registry.push_index("team/app", "1", "linux/amd64")
    answer = await make_inspector(signatures=policy({"": SIGNED})).inspect(ref("team/app:1"))
    assert (answer.status, [each.code for each in answer.warnings]) == (Status.RESOLVED, ["signature-unchecked"])
    answer = await make_inspector(signatures=policy({"": ACCEPT})).inspect(ref("team/app:1"))
    assert answer.warnings == ()


@pytest.mark.req("RG-107", "RG-115")
async def test_what_memory_knows_is_judged_too(registry, make_inspector, ref):
    """With a policy memory answers as without one, and says the same of signatures."""
    registry.push_index("team/app", "1", "linux/amd64", "linux/arm64")
    inspector = make_inspector(signatures=policy({"": SIGNED}))
    assert inspector.peek(ref("team/app:1")) is None
    answer = await inspector.inspect(ref("team/app:1"))
    known = inspector.peek(ref("team/app:1"))
    assert (known.platforms, known.warnings) == (answer.platforms, answer.warnings)
