"""Forgetting an ended worker, with or without a supervisor. A result that is nowhere else is never lost by it."""

from supervisor.home import StateFolder
from supervisor.refusal import EXIT_FAILED, Refusal
from supervisor.repo import RepositoryError, WorkerRepository
from supervisor.worker_spec import WorkerRecord
from supervisor.worker_store import WorkerStore


async def remove_worker(home: StateFolder, record: WorkerRecord, *, force: bool) -> None:
    """Delete what is kept of `record`; its branch and the audit log stay.

    Raises `Refusal` for a worker that has not ended, and, unless `force`, for a result that was neither brought to the
    repository (and is still there) nor applied.
    """
    if record.state != "ended":
        mend = f"Stop it first: mxs stop {record.id}"
        raise Refusal(f"{record.id} is {record.state}.", mend, exit_code=EXIT_FAILED)
    if not force and not await _is_kept_elsewhere(home, record):
        mend = (
            f"See it with `mxs diff {record.id}`, bring it in with `mxs apply {record.id}`, or remove it with --force."
        )
        raise Refusal(f"The result of {record.id} is nowhere else than here.", mend, exit_code=EXIT_FAILED)
    WorkerStore(home).remove(record.id)


async def _is_kept_elsewhere(home: StateFolder, record: WorkerRecord) -> bool:
    folder = home.worker(record.id).repo
    if not (folder / "repository.json").exists():
        return True  # it ended before it had a workspace
    try:
        return await (await WorkerRepository.reopen(folder)).is_safe_to_remove()
    except RepositoryError:
        return False  # what cannot be looked at is not thrown away
