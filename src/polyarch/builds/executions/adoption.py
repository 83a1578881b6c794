"""Jobs that go on under another execution, and Jobs of others that are waited for (BD-093).

At most one live Job for each namespace, repository, architecture and key exists at any time: a new execution takes over
the Jobs of those that it supersedes, and waits for those that belong to a build of somebody else. Pure.
"""

from polyarch.builds import names
from polyarch.builds.executions.state import FINAL_CHILD, recorded_child
from polyarch.builds.executions.target import Target, forced_alike
from polyarch.builds.facts.facts import Execution, Facts, JobFacts
from polyarch.builds.facts.history import own_executions


def live(job: JobFacts) -> bool:
    """Whether a Job is still at work."""
    return job.complete is None and job.failure is None and not job.deleting


def adoptable(job: JobFacts, execution: Execution) -> bool:
    """Whether a Job's outcome is still to be had: it works, or it is done and its child was not recorded."""
    if job.failure is not None or job.deleting:
        return False
    record = recorded_child(execution, job.architecture)
    return job.complete is None or record is None or record.phase not in FINAL_CHILD


def same_work(job: JobFacts, target: Target, architecture: str) -> bool:
    """Whether a Job makes the wanted child at the wanted place."""
    return (
        job.namespace == target.namespace
        and job.role == names.ARCH_ROLE
        and job.architecture == architecture
        and job.key == target.keys[architecture]
        and (not job.repository or job.repository == target.pushed_to)
    )


def adoption(facts: Facts, target: Target, architecture: str, *, execution: str) -> JobFacts | None:
    """The Job that ``execution`` takes over: one that does the wanted work for another execution of the same wish."""
    others = {each.name: each for each in own_executions(facts) if each.name != execution}
    found = [
        job
        for job in facts.jobs
        if job.run in others
        and same_work(job, target, architecture)
        and adoptable(job, others[job.run])
        and _counts(others[job.run], target, architecture)
    ]
    return min(found, key=lambda job: (job.created, job.name), default=None)


def shared(facts: Facts, target: Target, architecture: str, *, execution: str) -> JobFacts | None:
    """A live Job of somebody else's execution that does the wanted work: it is waited for, and its child reused."""
    found = [job for job in facts.jobs if same_work(job, target, architecture) and live(job) and job.run != execution]
    return min(found, key=lambda job: (job.created, job.name), default=None)


def own_job(facts: Facts, execution: Execution, architecture: str) -> JobFacts | None:
    """The Job of an execution for an architecture: the recorded one, else the one labelled or named so (S2, S4)."""
    record = next((each for each in execution.children if each.architecture == architecture), None)
    jobs = [job for job in facts.jobs if job.namespace == execution.namespace and job.role == names.ARCH_ROLE]
    if record is not None and record.job_uid:
        return next((job for job in jobs if job.uid == record.job_uid), None)
    own = [job for job in jobs if job.run == execution.name and job.architecture == architecture]
    return min(own, key=lambda job: (job.deleting, job.created, job.name), default=None)


def _counts(execution: Execution, target: Target, architecture: str) -> bool:
    """A forced architecture takes over only Jobs that were made for the same token (BD-136)."""
    if not target.forces(architecture):
        return True
    return execution.forced is not None and forced_alike(execution.forced, target.forced, architecture)
