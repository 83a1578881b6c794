"""``polyarch --install-completion``: a module of its own, so that no other command imports what finds out the shell."""

from cyclopts.completion.install import create_install_completion_command

from polyarch.cli.app import app

install = create_install_completion_command(app.install_completion, add_to_startup=True)
