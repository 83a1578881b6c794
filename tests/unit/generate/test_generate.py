"""``make generate`` writes what the code says, and its check finds every difference."""

from pathlib import Path

import pytest
import yaml
from tools.generate import __main__ as generate

from polyarch.cli.errors import UsageError
from polyarch.installation.objects import COMPONENTS, definitions
from polyarch.installation.settings import InstallationSettings
from polyarch.numa.api.topology_crd import topology_crd

PROJECT = Path(__file__).parents[3]
DOCUMENTS = {
    document["metadata"]["name"]: document
    for document in (*definitions(InstallationSettings(components=tuple(COMPONENTS))), topology_crd())
}


@pytest.mark.req("NE-004")
def test_the_files_in_deploy_are_what_the_code_says() -> None:
    """Among others."""
    assert generate.main(["--check", str(PROJECT)]) == 0


def test_generate_writes_updates_and_removes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pyproject.toml").touch()
    assert generate.main([str(tmp_path)]) == 0
    folder = tmp_path / "deploy" / "crds"
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{name}.yaml" for name in DOCUMENTS)
    for path in folder.iterdir():
        assert yaml.safe_load(path.read_text())["spec"] == DOCUMENTS[path.stem]["spec"]
    (folder / "placementpolicies.polyarch.dev.yaml").write_text("edited")
    (folder / "stray.yaml").touch()
    capsys.readouterr()
    assert generate.main(["--check", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "placementpolicies.polyarch.dev.yaml" in said
    assert "stray.yaml" in said
    assert "make generate" in said
    assert generate.main([str(tmp_path)]) == 0
    assert generate.main(["--check", str(tmp_path)]) == 0


@pytest.mark.parametrize("arguments", [["--verify"], ["a", "b"], ["/"]])
def test_generate_refuses_what_it_does_not_know(arguments: list[str]) -> None:
    with pytest.raises(UsageError, match="usage:"):
        generate.main(arguments)
