"""Which client a URL asks for. Each is imported when it is needed: a saved answer is read without gRPC."""

from polyarch.clock import Clock, SystemClock
from polyarch.numa.host.podresources.address import parse
from polyarch.numa.host.podresources.client import Counting, PodResources, Uncounted


def open_podresources(url: str, *, counting: Counting | None = None, clock: Clock | None = None) -> PodResources:
    """A client for ``unix:///path`` or ``fake:///directory``; nothing is connected yet.

    Raises ValueError for any other URL.
    """
    address = parse(url)
    if address.fake:
        from polyarch.numa.host.podresources.saved_answers import SavedAnswers

        return SavedAnswers(address, counting=counting or Uncounted())
    from polyarch.numa.host.podresources.kubelet_socket import KubeletSocket

    return KubeletSocket(address, counting=counting or Uncounted(), clock=clock or SystemClock())
