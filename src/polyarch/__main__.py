"""``python -m polyarch``: the same as the ``polyarch`` command."""

import sys

from polyarch.cli import main

sys.exit(main())
