"""The values that an installation remembers, when an upgrade uses them again (IN-004, IN-030)."""

import pytest

from polyarch.cli.errors import UsageError
from polyarch.cli.installation.install import earlier_settings, settings
from polyarch.installation.settings import InstallationSettings, Registries


def test_in_004_a_remembered_value_that_this_version_refuses_is_named() -> None:
    """IN-004: with what to do about it, and no traceback."""
    with pytest.raises(UsageError) as caught:
        earlier_settings('{"registries": {"allowAddresses": ["lan"]}}')
    told = str(caught.value)
    assert "as it remembers them: registries.allowAddresses[0]: 'lan' is not an address range" in told
    assert "--values" in told


def test_in_030_remembered_texts_are_looked_at_as_those_of_a_file_are() -> None:
    """IN-030: an installation of before may have them wrong."""
    earlier = InstallationSettings(registries=Registries(configuration="[[registry]"))
    with pytest.raises(UsageError, match=r"as it remembers them: registries\.configuration: is not TOML"):
        settings(None, earlier=earlier)
