"""``polyarch report`` beside a registry and an API server: what is asked, with whose credentials."""

import asyncio
import base64
import json

import pytest
import yaml
from report_world import ARM64, answer_of, cluster, make_report, workload

from polyarch.cli import main
from polyarch.cli.options.images import ImageOptions, RegistryOptions
from polyarch.cli.output.messages import Messages
from polyarch.cli.report.inputs import AlternativeOptions, ask
from polyarch.kube.errors import NotFound
from polyarch.objects import DOCKER_CONFIG_JSON, ObjectMeta, Secret
from polyarch.reports.report import ReportOptions


@pytest.fixture
def reported(tmp_path, capsys, clean_home):
    """Runs the command; its exit code, the document, what it said besides."""

    def run(*arguments):
        code = main(["report", "-o", "json", "--no-cache", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, json.loads(captured.out) if captured.out else None, captured.err

    return run


@pytest.fixture
def manifests(tmp_path):
    """Deployments of these images, in a file."""

    def write(*images):
        documents = [
            {
                "kind": "Deployment",
                "metadata": {"name": f"w{number}"},
                "spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}},
            }
            for number, image in enumerate(images)
        ]
        path = tmp_path / "all.yaml"
        path.write_text(yaml.safe_dump_all(documents))
        return path

    return write


@pytest.mark.req("RP-003")
def test_each_image_is_asked_for_once(reported, manifests, start_registry, parts):
    registry = start_registry()
    parts.put_image(registry, "team/app", "1", "linux/arm64")
    image = f"{registry.host}/team/app:1"
    code, document, _ = reported("-f", manifests(image, image, image), "--target", "arm64")
    assert code == 0
    assert document["sums"][0]["readyShare"] == 1.0
    assert len([each for each in registry.manifest_requests() if each.endswith("/manifests/1")]) == 1


@pytest.mark.req("RP-040")
def test_an_index_costs_one_request_and_a_single_image_two(reported, manifests, start_registry, parts):
    """So 800 images, every second of which is an index, cost 1 200."""
    registry = start_registry()
    for number in range(4):
        registry.push_index(f"team/index{number}", "1", "linux/amd64", "linux/arm64")
        parts.put_image(registry, f"team/single{number}", "1", "linux/amd64")
    images = [f"{registry.host}/team/{kind}{number}:1" for kind in ("index", "single") for number in range(4)]
    code, document, _ = reported("-f", manifests(*images), "--target", "arm64")
    assert (code, document["sums"][0]["readyShare"]) == (0, 0.5)
    assert len(registry.seen) == 4 * 1 + 4 * 2


@pytest.mark.req("RP-012")
def test_newer_tags_are_asked_about_only_with_suggest(reported, manifests, start_registry, parts):
    registry = start_registry()
    answer = parts.Answer
    registry.script("GET", "tags/list", answer(body=json.dumps({"tags": ["1.0", "1.1", "0.9", "x"]}).encode()))
    parts.put_image(registry, "team/app", "1.0", "linux/amd64")
    parts.put_image(registry, "team/app", "1.1", "linux/arm64")
    file = manifests(f"{registry.host}/team/app:1.0")
    _, document, _ = reported("-f", file, "--target", "arm64")
    assert document["blockers"][0]["suggestion"]["kind"] == "publish"
    assert not registry.requests("GET", "tags")
    _, document, _ = reported("-f", file, "--target", "arm64", "--suggest")
    suggestion = document["blockers"][0]["suggestion"]
    assert (suggestion["kind"], suggestion["reference"]) == ("tag", f"{registry.host}/team/app:1.1")
    assert len(registry.requests("GET", "tags")) == 1


@pytest.mark.req("RP-012")
def test_a_registry_that_lists_no_tags_costs_the_suggestion_only(reported, manifests, start_registry, parts):
    registry = start_registry()
    parts.put_image(registry, "team/app", "1.0", "linux/amd64")
    code, document, _ = reported("-f", manifests(f"{registry.host}/team/app:1.0"), "--target", "arm64", "--suggest")
    assert (code, document["blockers"][0]["suggestion"]["kind"]) == (0, "publish")


class Secrets:
    """The part of a client that reads secrets; it has this one."""

    def __init__(self, secret):
        self.secret = secret
        self.read = []

    async def get(self, resource, name, *, namespace, type):
        self.read.append(f"{namespace}/{name}")
        if (namespace, name) != self.secret.metadata.key:
            raise NotFound(404)
        return self.secret


@pytest.mark.req("RP-003")
def test_pull_secrets_are_read_by_name_and_count_in_their_namespace(start_registry, parts, clean_home):
    registry = start_registry(auth="basic")
    registry.users = {"u": "p"}
    parts.put_image(registry, "team/app", "1", "linux/arm64")
    image = f"{registry.host}/team/app:1"
    auth = base64.b64encode(b"u:p").decode()
    data = {".dockerconfigjson": json.dumps({"auths": {registry.host: {"auth": auth}}}).encode()}
    client = Secrets(Secret(ObjectMeta(name="pull", namespace="shop"), DOCKER_CONFIG_JSON, data))
    facts = cluster(
        workload("with", image, imagePullSecrets=[{"name": "pull"}]), workload("without", image, namespace="other")
    )
    options = ImageOptions(no_cache=True, access=RegistryOptions())
    found = asyncio.run(ask(facts, options, Messages(quiet=True), client=client, beyond=AlternativeOptions()))
    report = make_report(facts, found.answers, ReportOptions(targets=(ARM64,)))
    assert answer_of(report, "with").verdict == "ready"
    assert answer_of(report, "without").verdict == "unknown"
    assert set(client.read) == {"shop/pull"}


@pytest.mark.req("RP-031")
@pytest.mark.parametrize(("refused", "code"), [("pods", 3), ("nodes", 3), ("cronjobs", 0)])
def test_exit_3_only_if_pods_or_nodes_are_forbidden(reported, start_registry, parts, tmp_path, refused, code):
    server = start_registry()
    node = {"metadata": {"name": "a"}, "status": {"nodeInfo": {"architecture": "arm64", "operatingSystem": "linux"}}}
    denied = {"kind": "Status", "apiVersion": "v1", "code": 403, "reason": "Forbidden", "message": "no"}

    def listed(items):
        return parts.Answer(
            body=json.dumps({"kind": "List", "metadata": {}, "items": items}).encode(),
            headers={"Content-Type": "application/json"},
        )

    json_type = {"Content-Type": "application/json"}
    server.script("GET", f"/{refused}$", parts.Answer(403, json.dumps(denied).encode(), json_type), forever=True)
    server.script("GET", "/nodes$", listed([node]), forever=True)
    server.script("GET", "^apis?/", listed([]), forever=True)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": server.url}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    found, document, err = reported("--kubeconfig", kubeconfig)
    assert found == code
    assert any(refused in note for note in document["notes"])
    assert document["targets"] == ["arm64"]
    assert (refused in err) == (code == 3)
