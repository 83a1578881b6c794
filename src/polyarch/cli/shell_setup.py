"""``polyarch --install-completion`` of earlier releases, which works for one release more."""

from pathlib import Path
from typing import Any

from cyclopts.completion.install import create_install_completion_command

from polyarch.cli.app import app
from polyarch.cli.output.messages import Messages


def _install(**options: Any) -> Path:
    Messages().warn("--install-completion is deprecated: use polyarch completion SHELL")
    return app.install_completion(**options)


install = create_install_completion_command(_install, add_to_startup=True)
