"""Soak test of a whole installation: churn of everything that polyarch looks after, and a fault every minute.

``python -m bench.soak --minutes 30``. A sandbox of its own runs polyarch as a user installs it: operator, webhook,
controller, exec-format-error monitor, taints, builder, exporters of NUMA zones and the scheduler of cells. Pods,
Deployments, pods that need a cell, ImageBuilds, reports of the monitor and nodes come and go; roles are killed, the API
server and the registry go away, break or refuse. At the end everything is looked at: each pod against the images and
policies of its time, memory, descriptors and tasks of each process, requests at rest, what is stuck, and what is left
after an uninstall. Exit code 1 if anything is wrong.

The processes of the roles reach the API server, and everybody the registry, through fault proxies (``tests/faults``).

Limits: a build is played by the sandbox; a tag that is not pulled ``Always`` may be answered from the cache for ten
minutes; memory is judged only for processes that stood for five minutes, in a short soak for less.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))
