"""What keeps a process from going on, as errors of the command line: wrong settings are 2, the rest of the world is 3.

An error that nobody expected stays what it is, with its traceback.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from polyarch.cli.errors import CommandError, CouldNotComplete, UsageError
from polyarch.kube.certificates import CertificateError
from polyarch.kube.errors import ConfigurationError, KubernetesError
from polyarch.kube.lease import LeadershipError

ErrorTypes = tuple[type[Exception], ...]


@contextmanager
def explained(name: str, *, usage: Callable[[], ErrorTypes] = lambda: ()) -> Iterator[None]:
    """``UsageError`` and ``CouldNotComplete`` with what was the matter with the process ``name``.

    ``usage`` tells further errors that settings cause. It is asked once something was raised, so that a process that
    goes well does not load their modules.
    """
    try:
        yield
    except (Exception, BaseExceptionGroup) as error:
        ending = _ending(name, error, usage)
        if ending is None:
            raise
        raise ending from None


def _ending(name: str, error: BaseException, usage: Callable[[], ErrorTypes]) -> CommandError | None:
    """None for an error that is nobody's fault but ours."""
    if isinstance(error, (ConfigurationError, *usage())):
        return UsageError(f"{name}: {error}")
    if isinstance(error, KubernetesError | OSError):
        return CouldNotComplete(f"{name}: {error}")
    if not isinstance(error, BaseExceptionGroup):
        return None
    known, unknown = error.split((OSError, KubernetesError, CertificateError, LeadershipError))
    if known is None or unknown is not None:
        return None
    return CouldNotComplete(f"{name}: {'; '.join(dict.fromkeys(str(leaf) for leaf in _leaves(known)))}")


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
