"""The one error of this room: something that was written is wrong, and this is where."""


class InvalidConfiguration(ValueError):  # noqa: N818 - the name says what is the matter
    """The message is ``place: key: reason``: a file with its key, a variable of the environment, or a flag (NE-135)."""


class Unusable(ValueError):  # noqa: N818
    """A value that its setting does not take; the message is the reason alone, and who knows the place adds it."""
