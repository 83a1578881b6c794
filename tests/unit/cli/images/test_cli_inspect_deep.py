"""``polyarch inspect --deep``, ``--policy``, ``--short-names`` and layout directories."""

import importlib
import json

import pytest

pytestmark = pytest.mark.usefixtures("clean_home")


@pytest.fixture
def registry(start_writable):
    return start_writable()


@pytest.fixture
def run(inspected):
    return inspected


@pytest.fixture
def index(registry, parts):
    """``index("linux/arm64", config="linux/arm64", program="amd64")``: ``team/app:1``; its name."""

    def push(platform, *, config=None, program=None):
        layers = [parts.layer({"app": parts.elf(program)})] if program else []
        digest = parts.put_image(registry, "team/app", None, config or platform, layers, Entrypoint=["/app"])
        registry.push_index("team/app", "1", entries=[registry.entry(platform, digest)])
        return f"{registry.host}/team/app:1"

    return push


class TestDeep:
    def test_a_true_index_passes(self, run, index):
        image = index("linux/arm64", program="arm64")
        for depth in ("config", "elf"):
            assert run("--deep", depth, image)[0] == 0

    @pytest.mark.req("RG-048", "RG-141")
    def test_a_mislabelled_entry_ends_with_1_and_says_why(self, run, index):
        image = index("linux/arm64", config="linux/amd64")
        code, out, _ = run("--deep", "config", image)
        assert (code, "the entry says linux/arm64, its config linux/amd64" in out) == (1, True)
        assert run(image)[0] == 0

    @pytest.mark.req("RG-049", "RG-141")
    def test_a_wrong_program_ends_with_1_and_says_which(self, run, index):
        image = index("linux/arm64", program="amd64")
        assert run("--deep", "config", image)[0] == 0
        code, out, _ = run("--deep", "elf", "-o", "json", image)
        [answer] = json.loads(out)["images"]
        [warning] = answer["warnings"]
        assert (code, warning["code"]) == (1, "wrong-binary")
        assert "/app is for x86-64" in warning["message"]
        assert [each["platform"] for each in answer["platforms"]] == ["linux/arm64"]

    def test_a_missing_child_ends_with_1(self, run, registry):
        registry.push_index("team/app", "1", "linux/arm64", "linux/amd64")
        code, out, _ = run("--deep", "config", f"{registry.host}/team/app:1")
        assert (code, "child-missing" in out) == (1, True)

    def test_what_cannot_be_checked_is_no_finding(self, run, index):
        code, out, _ = run("--deep", "elf", index("linux/arm64"))
        assert (code, "binary-unchecked" in out) == (0, True)

    def test_a_look_that_is_cut_short_ends_with_3(self, run, index, registry):
        image = index("linux/arm64")
        registry.script("GET", "/blobs/", importlib.import_module("scripted_registry").Answer(403), forever=True)
        code, out, _ = run("--deep", "config", image)
        assert (code, "the look into it is not complete" in out) == (3, True)

    def test_images_that_stand_there_twice_are_looked_into_once(self, run, index, registry):
        image = index("linux/arm64", program="arm64")
        run("--deep", "config", image, image)
        digests = registry.requests("GET", "/manifests/sha256")
        assert len(digests) == 2  # for the look at bundle labels, and for this

    def test_it_needs_a_network(self, run):
        code, _, err = run("--deep", "config", "--offline", "nginx")
        assert (code, "--offline" in err) == (2, True)


@pytest.mark.req("RG-107")
class TestPolicy:
    @pytest.fixture
    def policy(self, tmp_path):
        def write(scopes, default="insecureAcceptAnything"):
            body = {
                "default": [{"type": default}],
                "transports": {"docker": {scope: [{"type": type_}] for scope, type_ in scopes.items()}},
            }
            path = tmp_path / "policy.json"
            path.write_text(json.dumps(body))
            return path

        return write

    def test_a_rejected_image_is_an_error_and_nothing_is_sent(self, run, index, registry, policy):
        image = index("linux/arm64")
        code, out, _ = run("--policy", policy({registry.host: "reject"}), image, "-o", "json")
        assert (code, json.loads(out)["images"][0]["error"]["code"]) == (3, "policy-rejected")
        assert registry.seen == []

    @pytest.mark.parametrize(
        ("choice", "code", "warned"), [(None, 0, True), ("warn", 0, True), ("skip", 0, False), ("deny", 3, False)]
    )
    def test_signatures_are_as_chosen(self, run, index, policy, choice, code, warned):
        options = ["--policy-signed", choice] if choice else []
        found, out, _ = run("--policy", policy({"": "signedBy"}), *options, index("linux/arm64"))
        assert (found, "signature-unchecked" in out) == (code, warned)

    def test_a_plan_knows_the_policy(self, run, policy):
        code, out, _ = run("--plan", "--policy", policy({"quay.io": "reject"}), "quay.io/a/b", "nginx")
        assert code == 3
        assert "the policy rejects it" in out.splitlines()[1]
        assert "registry-1.docker.io" in out.splitlines()[2]

    @pytest.mark.parametrize("body", ["{}", "no", '{"default":[{"type":"x"}]}'])
    def test_a_policy_that_is_none_is_a_usage_error(self, run, tmp_path, body):
        (tmp_path / "policy.json").write_text(body)
        assert run("--policy", tmp_path / "policy.json", "nginx")[0] == 2
        assert run("--policy", tmp_path / "nothing.json", "nginx")[0] == 2


@pytest.mark.req("RG-096")
class TestShortNames:
    @pytest.fixture
    def conf(self, tmp_path):
        def write(*registries, aliases=""):
            path = tmp_path / "registries.conf"
            path.write_text(f"unqualified-search-registries = {json.dumps(registries)}\n[aliases]\n{aliases}\n")
            return ["--short-names", "search", "--registries-conf", path]

        return write

    def test_the_registry_that_has_the_image_is_found(self, run, index, registry, start_writable, conf):
        other = start_writable()
        index("linux/arm64")
        code, out, _ = run(*conf(other.host, registry.host), "team/app:1", "-o", "json")
        [answer] = json.loads(out)["images"]
        assert (code, answer["image"], answer["reference"]) == (0, "team/app:1", f"{registry.host}/team/app:1")
        assert other.manifest_requests() == ["GET team/app/manifests/1"]

    def test_an_alias_is_asked_alone(self, run, index, registry, conf):
        index("linux/arm64")
        code, out, _ = run(*conf(aliases=f'"app" = "{registry.host}/team/app"'), "app:1")
        assert (code, "linux/arm64" in out) == (0, True)

    def test_nobody_has_it_and_all_are_named(self, run, registry, start_writable, conf):
        other = start_writable()
        code, out, _ = run(*conf(other.host, registry.host), "team/app:1", "-o", "json")
        error = json.loads(out)["images"][0]["error"]
        assert (code, error["code"], len(error["attempts"])) == (3, "not-found", 2)
        assert f"{other.host}/team/app:1, {registry.host}/team/app:1" in error["message"]

    def test_a_plan_shows_every_place(self, run, conf):
        code, out, _ = run("--plan", *conf("quay.io", "r.example"), "team/app:1")
        assert code == 0
        assert [line.split()[1] for line in out.splitlines()[1:]] == ["https://quay.io/v2", "https://r.example/v2"]

    def test_a_search_without_places_is_a_usage_error(self, run, conf):
        code, _, err = run(*conf(), "app")
        assert (code, "unqualified-search-registries" in err) == (2, True)


@pytest.mark.req("RG-120")
def test_a_layout_directory_is_inspected(run, parts, tmp_path):
    source = parts.WritableRegistry()
    digest = parts.put_image(source, "x", "1", "linux/riscv64")
    folder = tmp_path / "out" / "blobs" / "sha256"
    folder.mkdir(parents=True)
    for each in (*source.blobs.values(), source.manifests["x", digest][0]):
        (folder / parts.digest_of(each)[7:]).write_bytes(each)
    (tmp_path / "out" / "index.json").write_text(json.dumps({"manifests": [{"digest": digest}]}))
    (tmp_path / "out" / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    code, out, _ = run("--offline", f"oci:{tmp_path}/out", "-o", "json")
    [answer] = json.loads(out)["images"]
    assert (code, answer["digest"], answer["nodePlatforms"], answer["source"]) == (0, digest, ["linux/riscv64"], None)
    assert run(f"oci:{tmp_path}/nothing")[0] == 3
