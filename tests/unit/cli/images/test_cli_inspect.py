"""``polyarch inspect`` as a user runs it, against a scripted registry."""

import csv
import io
import json
import stat
import sys

import pytest
import yaml

from polyarch.cli import main
from polyarch.oci.platforms_file import AnswerFile
from polyarch.oci.reference import parse

IMAGE_KEYS = [
    "image",
    "reference",
    "status",
    "kind",
    "digest",
    "mediaType",
    "platforms",
    "nodePlatforms",
    "neutralReason",
    "skipped",
    "warnings",
    "missing",
    "source",
    "cached",
    "requests",
    "error",
]

pytestmark = pytest.mark.usefixtures("clean_home")


@pytest.fixture
def run(inspected):
    return inspected


@pytest.fixture
def registry(start_registry):
    registry = start_registry()
    registry.push_index("team/app", "1", "linux/amd64", "linux/arm64")
    registry.push_index("team/app", "2", "linux/s390x", "linux/amd64", "windows/amd64")
    registry.push_index("team/app", "v7", "linux/arm/v7")
    registry.push_index("team/app", "v3", "linux/amd64/v3")
    registry.push_index("team/app", "386", "linux/386")
    win = registry.entry("windows/amd64")
    win["platform"]["os.version"] = "10.0.17763.1"
    registry.push_index("team/app", "win", entries=[win])
    registry.push_index("team/app", "empty")
    registry.push_image("team/app", "silent", None, os="linux")
    return registry


@pytest.mark.req("RG-143")
class TestRows:
    def test_one_row_per_image_and_nothing_else_on_stdout(self, registry, run):
        code, out, err = run(f"{registry.host}/team/app:1", f"{registry.host}/team/app:2")
        digest = registry.tags["team/app", "1"].removeprefix("sha256:")[:12]
        lines = [line.split() for line in out.splitlines()]
        assert lines[0] == ["IMAGE", "KIND", "DIGEST", "PLATFORMS", "NOTES"]
        assert lines[1] == [f"{registry.host}/team/app:1", "index", digest, "linux/amd64,linux/arm64", "-"]
        assert lines[2][3] == "linux/amd64,linux/s390x,windows/amd64"
        assert (code, len(lines), err) == (0, 3, "")

    @pytest.mark.req("RG-140")
    def test_repeated_images_are_asked_once_and_printed_where_they_stand(self, registry, run):
        names = [f"{registry.host}/team/app:{tag}" for tag in ("1", "2", "1")]
        _, out, _ = run(*names)
        assert [line.split()[0] for line in out.splitlines()[1:]] == names
        assert len(registry.seen) == 2

    def test_errors_name_the_next_action_and_not_the_image_twice(self, registry, run):
        code, out, _ = run(f"{registry.host}/team/none:1")
        row = out.splitlines()[1]
        assert code == 3
        assert row.count("team/none") == 1
        assert "HTTP 404 MANIFEST_UNKNOWN" in row
        assert "check the spelling" in row

    def test_what_a_registry_says_goes_to_stderr(self, registry, run):
        registry.headers = {"Warning": '299 - "closing soon"'}
        _, out, err = run(f"{registry.host}/team/app:1")
        assert "closing soon" not in out
        assert err == f"{registry.host} says: closing soon\n"

    def test_names_from_an_image_cannot_move_the_cursor(self, registry, run):
        registry.push_index("team/app", "evil", "linux/\x1b[2Jamd64", "linux/arm64")
        _, out, _ = run(f"{registry.host}/team/app:evil")
        assert "\x1b" not in out

    @pytest.mark.req("RG-063")
    def test_rate_limits_on_request(self, registry, run):
        registry.headers = {"RateLimit-Limit": "100;w=21600", "RateLimit-Remaining": "76;w=21600"}
        _, out, err = run("--rate-limit", f"{registry.host}/team/app:1")
        assert "76" not in out
        assert err.splitlines()[1].split() == [registry.host, "100", "76", "21600", "s"]

    @pytest.mark.req("RG-063")
    def test_no_rate_limit_is_a_sentence_not_an_empty_table(self, registry, run):
        _, _, err = run("--rate-limit", f"{registry.host}/team/app:1")
        assert "no registry reported a rate limit" in err
        assert "REMAINING" not in err


@pytest.mark.req("RG-141")
class TestExitCodes:
    @pytest.mark.parametrize(
        ("tag", "options", "code"),
        [
            pytest.param("1", [], 0, id="resolved"),
            pytest.param("1", ["--require", "amd64,linux/arm64"], 0, id="has what is required"),
            pytest.param("1", ["--require", "amd64", "--require", "s390x"], 1, id="lacks what is required"),
            pytest.param("v7", ["--require", "linux/arm/v7"], 0, id="has the variant"),
            pytest.param("v7", ["--require", "linux/arm/v6"], 1, id="has another variant"),
            pytest.param("v7", ["--require", "arm"], 0, id="no variant is asked for"),
            pytest.param("v7", ["--require", "armel"], 1, id="an alias that says a variant"),
            pytest.param("1", ["--require", "linux/amd64/v1"], 0, id="the usual variant"),
            pytest.param("1", ["--require", "linux/amd64/v3"], 1, id="a newer variant"),
            pytest.param("v3", ["--require", "linux/amd64/v1"], 1, id="only a newer variant"),
            pytest.param("v3", ["--require", "amd64"], 1, id="a variant that no node pulls by itself"),
            pytest.param("win", ["--require", "windows(10.0.17763.9)/amd64"], 0, id="the build of Windows"),
            pytest.param("win", ["--require", "windows(10.0.26100.1)/amd64"], 1, id="another build of Windows"),
            pytest.param("386", ["--require", "amd64"], 0, id="nodes run it all the same"),
            pytest.param("empty", [], 1, id="no platforms"),
            pytest.param("silent", [], 1, id="unknown"),
            pytest.param("none", [], 3, id="an error"),
        ],
    )
    def test_of_one_image(self, registry, run, tag, options, code):
        assert run(f"{registry.host}/team/app:{tag}", *options)[0] == code

    def test_the_worst_counts_and_all_are_processed(self, registry, run):
        names = [f"{registry.host}/team/app:{tag}" for tag in ("none", "silent", "1")]
        code, out, _ = run(*names)
        assert (code, len(out.splitlines())) == (3, 4)
        code, out, _ = run(*names[1:])
        assert (code, len(out.splitlines())) == (1, 3)

    def test_a_neutral_image_lacks_nothing(self, registry, run):
        labels = {"operators.operatorframework.io.bundle.package.v1": "thing"}
        registry.push_image("team/bundle", "1", "linux/amd64", labels=labels)
        code, out, _ = run("--require", "s390x", f"{registry.host}/team/bundle:1")
        assert (code, out.splitlines()[1].split()[3:]) == (0, ["any", "operator", "bundle"])

    def test_what_is_lacking_is_named(self, registry, run):
        _, out, _ = run("--require", "s390x,ppc64le,amd64", f"{registry.host}/team/app:1")
        assert "lacks linux/s390x, linux/ppc64le" in out


@pytest.mark.req("RG-141")
class TestUsage:
    """Exit 2, found before the first request, and said with place and next action."""

    @pytest.fixture
    def files(self, tmp_path):
        contents = {
            "list.txt": "nginx\n\n  # comment\nNot/Good # why\nquay.io/a/b:1 # fine\n a//b\n",
            "binary.txt": b"\xff\xfe",
            "twice.yaml": "nginx: [linux/amd64]\nnginx: [linux/arm64]\n",
            "broken.yaml": "nginx: [linux/amd64\n",
            "bad-platform.yaml": "nginx: [linux]\n",
            "auth.json": "{not json",
            "mirrors.conf": '[[registry]]\nprefix = "r.example"\nlocation = "m.example/UPPER"\n',
            "broken.conf": "[[registry]\n",
            "ca.pem": "no certificate",
        }
        for name, content in contents.items():
            (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path

    @pytest.mark.req("RG-132")
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            pytest.param([], ["no image given", "--from-file FILE"], id="nothing to do"),
            pytest.param(["Bad Ref"], ["'Bad Ref'", "white space", "character 4"], id="no reference"),
            pytest.param(
                ["--from-file", "@list.txt"],
                ["list.txt:4: ", "'not/good'", "list.txt:6: ", "'//'"],
                id="lines of a list",
            ),
            pytest.param(
                ["--from-file", "@missing.txt"], ["missing.txt", "No such file"], id="a list that is not there"
            ),
            pytest.param(["--from-file", "@binary.txt"], ["binary.txt", "UTF-8"], id="a list that is no text"),
            pytest.param(["nginx", "--require", "linux"], ["--require", "'linux'"], id="a platform"),
            pytest.param(["nginx", "--concurrency", "0"], ["--concurrency 0"], id="concurrency"),
            pytest.param(["nginx", "--timeout", "0"], ["--timeout 0"], id="timeout"),
            pytest.param(["nginx", "--timeout", "nan"], ["--timeout nan"], id="timeout nan"),
            pytest.param(["nginx", "--max-wait", "-1"], ["--max-wait -1"], id="max-wait"),
            pytest.param(["nginx", "--insecure", "https://x"], ["--insecure https://x"], id="insecure"),
            pytest.param(
                ["nginx", "--no-cache", "--cache-dir", "x"], ["--no-cache", "cannot be combined"], id="contradiction"
            ),
            pytest.param(["nginx", "--ca", "@none.pem"], ["--ca", "none.pem"], id="a CA that is not there"),
            pytest.param(["nginx", "--ca", "@ca.pem"], ["ca.pem"], id="a CA that is none"),
            pytest.param(["nginx", "--certs-dir", "@none"], ["--certs-dir"], id="certs-dir"),
            pytest.param(["nginx", "--hosts-dir", "@none"], ["--hosts-dir"], id="hosts-dir"),
            pytest.param(["nginx", "--authfile", "@none.json"], ["none.json", "no such file"], id="authfile"),
            pytest.param(["nginx", "--authfile", "@auth.json"], ["auth.json"], id="authfile that is no JSON"),
            pytest.param(["nginx", "--registries-conf", "@broken.conf"], ["broken.conf"], id="registries.conf"),
            pytest.param(
                ["r.example/a:1", "--registries-conf", "@mirrors.conf"],
                ["mirrors.conf", "m.example/UPPER"],
                id="a mirror that makes an impossible name",
            ),
            pytest.param(["nginx", "--platforms-file", "@none.yaml"], ["none.yaml"], id="platforms file"),
            pytest.param(
                ["nginx", "--platforms-file", "@twice.yaml"],
                ["twice.yaml:2:1", "'nginx' is given twice"],
                id="the same key twice",
            ),
            pytest.param(["nginx", "--platforms-file", "@broken.yaml"], ["broken.yaml:2:1"], id="no YAML"),
            pytest.param(
                ["nginx", "--platforms-file", "@bad-platform.yaml"],
                ["bad-platform.yaml", "nginx", "'linux'"],
                id="a bad platform",
            ),
            pytest.param(["nginx", "-o", "xml"], ["xml"], id="an unknown format"),
            pytest.param(["nginx", "--unknown"], ["--unknown"], id="an unknown option"),
            pytest.param(["nginx", "--plan", "-o", "csv"], ["--plan", "csv"], id="a plan as CSV"),
        ],
    )
    def test_it_is_said_what_is_wrong(self, files, registry, run, arguments, says):
        given = [str(files / each[1:]) if each.startswith("@") else each for each in arguments]
        code, out, err = run(*given)
        message = err.replace("\n", " ")
        assert (code, out, registry.seen) == (2, "", [])
        for part in says:
            assert part.lower() in message.lower()

    def test_of_many_bad_lines_the_first_are_shown(self, tmp_path, run):
        file = tmp_path / "list"
        file.write_text("A//b\n" * 50)
        _, _, err = run("--from-file", file)
        assert (err.count("A//b"), "and 30 more" in err) == (20, True)


@pytest.mark.req("RG-140")
class TestLists:
    """``-f``."""

    def test_a_file_after_the_command_line(self, registry, run, tmp_path):
        file = tmp_path / "images.txt"
        file.write_text(f"# ours\n{registry.host}/team/app:2   # the second\n\n")
        _, out, _ = run(f"{registry.host}/team/app:1", "--from-file", file)
        assert [line.split()[0][-1] for line in out.splitlines()[1:]] == ["1", "2"]

    def test_standard_input(self, registry, run, monkeypatch):
        text = io.TextIOWrapper(io.BytesIO(f"{registry.host}/team/app:1\r\n".encode()))
        monkeypatch.setattr(sys, "stdin", text)
        code, out, _ = run("--from-file", "-")
        assert (code, len(out.splitlines())) == (0, 2)


@pytest.mark.req("RG-142")
class TestDocuments:
    def test_json(self, registry, run):
        registry.headers = {"RateLimit-Limit": "100;w=60", "RateLimit-Remaining": "90;w=60"}
        attested = registry.entry("unknown/unknown", annotations={"vnd.docker.reference.type": "attestation-manifest"})
        entries = [registry.entry("linux/s390x"), attested, registry.entry("linux/amd64/v3")]
        digest = registry.push_index("team/app", "3", entries=entries)
        names = [f"docker://{registry.host}/team/app:{tag}" for tag in ("3", "none", "silent")]
        code, out, _ = run("-o", "json", "--require", "arm64", *names)
        document = json.loads(out)
        assert code == 3
        assert list(document) == ["schemaVersion", "images", "rateLimits", "summary"]
        assert document["schemaVersion"] == "polyarch.dev/inspect/v1"
        assert document["summary"] == {"resolved": 1, "neutral": 0, "unknown": 1, "error": 1}
        assert document["rateLimits"] == {registry.host: {"limit": 100, "remaining": 90, "window": 60}}
        assert [list(image) for image in document["images"]] == [IMAGE_KEYS] * 3
        first, absent, silent = document["images"]
        assert (first["image"], first["reference"]) == (names[0], f"{registry.host}/team/app:3")
        assert first["digest"] == digest
        assert first["platforms"][0] == {
            "platform": "linux/amd64/v3",
            "os": "linux",
            "architecture": "amd64",
            "variant": "v3",
            "osVersion": "",
            "osFeatures": [],
            "digest": entries[2]["digest"],
            "size": 500,
        }
        assert first["nodePlatforms"] == ["linux/s390x"], "no runtime takes amd64/v3 by itself"
        assert first["skipped"] == [{"digest": attested["digest"], "reason": "attestation"}]
        assert (first["missing"], first["error"], first["requests"]) == (["linux/arm64"], None, 1)
        assert first["source"] == {"host": registry.host, "mirror": False, "insecure": False}
        assert (absent["error"]["code"], absent["error"]["class"]) == ("not-found", "absent")
        assert (absent["error"]["status"], absent["error"]["retryAfter"], absent["error"]["attempts"]) == (
            404,
            None,
            [],
        )
        assert silent["warnings"] == [{"code": "empty-architecture", "message": silent["warnings"][0]["message"]}]

    def test_yaml_is_the_same_document(self, registry, run):
        name = f"{registry.host}/team/app:1"
        run(name)
        _, as_json, _ = run("-o", "json", name)
        _, as_yaml, _ = run("-o", "yaml", name)
        assert yaml.safe_load(as_yaml) == json.loads(as_json)

    def test_csv(self, registry, run):
        names = [f"{registry.host}/team/app:{tag}" for tag in ("1", "none")]
        _, out, _ = run("-o", "csv", "--require", "s390x", *names)
        rows = list(csv.DictReader(io.StringIO(out)))
        assert [row["image"] for row in rows] == names
        assert (rows[0]["platforms"], rows[0]["missing"]) == ("linux/amd64 linux/arm64", "linux/s390x")
        assert (rows[1]["status"], rows[1]["error"]) == ("error", "not-found")

    @pytest.mark.req("RG-130", "RG-132")
    def test_the_document_is_a_platforms_file(self, registry, run, tmp_path):
        """And then nobody is asked."""
        names = [f"{registry.host}/team/app:{tag}" for tag in ("1", "empty", "silent")]
        _, out, _ = run("-o", "json", *names)
        assert AnswerFile.from_mapping(json.loads(out)).get(parse(names[0])) is not None
        file = tmp_path / "platforms.json"
        file.write_text(out)
        seen = len(registry.seen)
        code, again, _ = run("--offline", "--platforms-file", file, "-o", "json", *names)
        said = [(image["status"], image["platforms"]) for image in json.loads(out)["images"]]
        assert [(image["status"], image["platforms"]) for image in json.loads(again)["images"]] == said
        assert (code, len(registry.seen)) == (1, seen)

    def test_offline_what_is_missing_is_an_error(self, registry, run, tmp_path):
        file = tmp_path / "platforms.yaml"
        file.write_text("nginx: [linux/amd64, linux/arm64]\n")
        code, out, _ = run("--offline", "--platforms-file", file, "nginx", f"{registry.host}/team/app:1")
        assert (code, registry.seen) == (3, [])
        assert "linux/amd64,linux/arm64" in out
        assert "no answer in the platforms file" in out


@pytest.mark.req("RG-114")
class TestCache:
    def test_a_second_run_asks_for_nothing(self, registry, run, tmp_path):
        name = f"{registry.host}/team/app:1"
        run(name)
        code, _, _ = run(name)
        assert (code, len(registry.seen)) == (0, 1)
        (file,) = (tmp_path / "cache" / "polyarch").glob("*.sqlite")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600

    def test_fresh_checks_the_tag(self, registry, run, clock_passes):
        name = f"{registry.host}/team/app:1"
        run(name)
        clock_passes(6)
        run("--fresh", name)
        assert registry.requests()[1:] == ["HEAD team/app/manifests/1"]

    @pytest.fixture
    def clock_passes(self, tmp_path):
        """Makes what is on disk older."""
        import sqlite3

        def older(seconds):
            connection = sqlite3.connect(tmp_path / "cache" / "polyarch" / "registry-cache.sqlite")
            with connection:
                connection.execute("UPDATE tags SET checked = checked - ?", (seconds,))
            connection.close()

        return older

    def test_without_a_cache_everything_is_asked_again(self, registry, run, tmp_path):
        name = f"{registry.host}/team/app:1"
        run("--no-cache", name)
        run("--no-cache", name)
        assert len(registry.seen) == 2
        assert not (tmp_path / "cache").exists()

    def test_a_place_of_ones_own(self, registry, run, tmp_path):
        run("--cache-dir", tmp_path / "here", f"{registry.host}/team/app:1")
        assert (tmp_path / "here").is_dir()
        assert not (tmp_path / "cache").exists()

    def test_a_damaged_one_costs_one_remark(self, registry, run, tmp_path):
        directory = tmp_path / "cache" / "polyarch"
        directory.mkdir(parents=True)
        (directory / "registry-cache.sqlite").write_bytes(b"scribble" * 1000)
        code, out, err = run(f"{registry.host}/team/app:1")
        assert (code, len(out.splitlines()), len(err.splitlines())) == (0, 2, 1)
        assert "set aside" in err


class TestSources:
    def test_mirrors_answer_and_are_named(self, registry, start_registry, run, tmp_path):
        conf = tmp_path / "registries.conf"
        conf.write_text(
            f'[[registry]]\nlocation = "r.example"\n'
            f'[[registry.mirror]]\nlocation = "{registry.host}"\ninsecure = true\n'
        )
        code, out, _ = run("--registries-conf", conf, "r.example/team/app:1")
        assert code == 0
        assert f"from mirror {registry.host}" in out

    def test_credentials_come_from_a_file(self, start_registry, run, tmp_path):
        registry = start_registry(auth="basic")
        registry.users["robot"] = "marker-password"
        registry.push_index("team/app", "1", "linux/amd64", "linux/arm64")
        file = tmp_path / "auth.json"
        file.write_text(json.dumps({"auths": {registry.host: {"username": "robot", "password": "marker-password"}}}))
        assert run(f"{registry.host}/team/app:1")[0] == 3
        code, out, err = run("--authfile", file, f"{registry.host}/team/app:1")
        assert code == 0
        assert "marker" not in out + err

    @pytest.mark.req("RG-097")
    def test_the_plan_asks_nobody(self, registry, run, tmp_path):
        conf = tmp_path / "registries.conf"
        conf.write_text(
            f'[[registry]]\nlocation = "r.example"\n[[registry.mirror]]\nlocation = "{registry.host}/proxy"\n'
            'insecure = true\n[[registry]]\nlocation = "bad.example"\nblocked = true\n'
        )
        auth = tmp_path / "auth.json"
        auth.write_text(
            json.dumps(
                {
                    "auths": {"r.example": {"username": "robot", "password": "marker-password"}},
                    "credHelpers": {registry.host: "unheard-of"},
                }
            )
        )
        options = ("--plan", "--registries-conf", conf, "--authfile", auth)
        code, out, err = run(*options, "r.example/team/app:1", "bad.example/x:1")
        assert (code, registry.seen) == (3, [])
        rows = [line.split() for line in out.splitlines()]
        assert rows[1][1:5] == [f"https://{registry.host}/v2", "proxy/team/app", "1", "mirror"]
        assert "a credential helper (not run now)" in out
        assert rows[2][1:5] == ["https://r.example/v2", "team/app", "1", "primary"]
        assert f"{auth} (r.example)" in out
        assert "blocked" in out.splitlines()[3]
        assert "marker" not in out + err
        code, out, _ = run(*options, "-o", "json", "r.example/team/app:1")
        document = json.loads(out)
        assert (code, document["schemaVersion"]) == (0, "polyarch.dev/inspect-plan/v1")
        assert [each["mirror"] for each in document["images"][0]["sources"]] == [True, False]


def test_the_help_has_examples_and_exit_codes(capsys):
    assert main(["inspect", "--help"]) == 0
    out = capsys.readouterr().out
    assert "polyarch inspect --require amd64,arm64 --from-file images.txt" in out
    assert "Exit codes" in out
    assert "--deep" in out
