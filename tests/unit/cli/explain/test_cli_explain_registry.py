"""``polyarch explain`` beside a registry: what is asked, and when."""

import base64
import json

import pytest
import yaml

from polyarch.cli import main

pytestmark = pytest.mark.req("PL-730")


@pytest.fixture
def explain(tmp_path, capsys, clean_home):
    def run(image, *arguments):
        pod = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": image}]}}
        (tmp_path / "pod.yaml").write_text(yaml.safe_dump(pod))
        code = main(["explain", "-f", str(tmp_path / "pod.yaml"), "-o", "json", *arguments])
        captured = capsys.readouterr()
        return code, json.loads(captured.out)["pods"][0]["decision"], captured.err

    return run


def test_the_question_is_what_would_be_decided_now(explain, start_registry, parts):
    """A tag that was pushed again a moment ago is seen, whatever the cache says."""
    registry = start_registry()
    image = f"{registry.host}/team/app:1"
    parts.put_image(registry, "team/app", "1", "linux/arm64")
    assert explain(image)[1]["architectures"] == ["arm64"]
    parts.put_image(registry, "team/app", "1", "linux/s390x")
    code, decision, _ = explain(image)
    assert (code, decision["architectures"]) == (0, ["s390x"])


@pytest.mark.req("RG-140")
def test_options_of_whoever_asks_registries_count(explain, start_registry, parts, tmp_path):
    """Credentials from a file, and what was asked with -v."""
    registry = start_registry(auth="basic")
    registry.users = {"u": "p"}
    image = f"{registry.host}/team/app:1"
    parts.put_image(registry, "team/app", "1", "linux/arm64")
    code, decision, _ = explain(image)
    assert (code, decision["architectures"]) == (0, [])
    (tmp_path / "auth.json").write_text(
        json.dumps({"auths": {registry.host: {"auth": base64.b64encode(b"u:p").decode()}}})
    )
    code, decision, err = explain(image, "--authfile", str(tmp_path / "auth.json"), "-v")
    assert (code, decision["architectures"]) == (0, ["arm64"])
    assert f"polyarch: {image}: image of linux/arm64 from {registry.host} (" in err
