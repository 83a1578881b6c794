"""Which images' containers are run as processes of this machine. All others are only played. Pure."""

from functools import lru_cache

from polyarch.sandbox.pods.programs import buildah, installed, kube_scheduler


@lru_cache(maxsize=1024)
def repository_of(image: str) -> str:
    """Of an image with any tag or digest."""
    name = image.partition("@")[0]
    host, slash, rest = name.rpartition("/")
    return host + slash + rest.partition(":")[0]


def is_ours(image: str) -> bool:
    """Whether the image is polyarch's own."""
    return repository_of(image) == installed.REPOSITORY


def is_scheduler(image: str) -> bool:
    """Whether the image is the stock kube-scheduler's."""
    return repository_of(image) == kube_scheduler.REPOSITORY


def is_builder(image: str) -> bool:
    """Whether the image is buildah's, which build pods use."""
    return repository_of(image) == buildah.REPOSITORY


def is_run(image: str) -> bool:
    """Whether containers of the image are run."""
    return is_ours(image) or is_scheduler(image) or is_builder(image)
