"""The values that an installation remembers, when an upgrade uses them again."""

import pytest

from polyarch.cli.errors import UsageError
from polyarch.cli.installation.install import earlier_settings, settings
from polyarch.installation.settings import InstallationSettings, Registries


@pytest.mark.req("IN-004")
def test_a_remembered_value_that_this_version_refuses_is_named() -> None:
    """With what to do about it, and no traceback."""
    with pytest.raises(UsageError) as caught:
        earlier_settings('{"registries": {"allowAddresses": ["lan"]}}')
    told = str(caught.value)
    assert "as it remembers them: registries.allowAddresses[0]: 'lan' is not an address range" in told
    assert "--values" in told


@pytest.mark.req("IN-030")
def test_remembered_texts_are_looked_at_as_those_of_a_file_are() -> None:
    """An installation of before may have them wrong."""
    earlier = InstallationSettings(registries=Registries(configuration="[[registry]"))
    with pytest.raises(UsageError, match=r"as it remembers them: registries\.configuration: is not TOML"):
        settings(None, earlier=earlier)
