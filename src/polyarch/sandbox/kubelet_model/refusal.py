"""Why a kubelet does not admit a pod."""


class Refused(Exception):  # noqa: N818 - what is wrong
    """The pod fails with this reason; the text is the kubelet's."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    @classmethod
    def unexpected(cls, problem: str) -> "Refused":
        """What the scheduler should have prevented."""
        return cls("UnexpectedAdmissionError", f"Allocate failed due to {problem}, which is unexpected")

    @classmethod
    def unaligned(cls) -> "Refused":
        """The topology manager found no cells that the policy allows."""
        return cls("TopologyAffinityError", "Resources cannot be allocated with Topology locality")
