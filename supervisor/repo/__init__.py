"""The repository part: clone in, a commit per changing call, hand-over out, apply (architecture.md, decision 10).

    state = await inspect(path)                                            what is there; nothing is changed
    repository = await WorkerRepository.prepare(state, id, folder, workspace, rules, owner)
    await repository.record_changes(call, message)                         after each changing call
    await repository.hand_over()                                           one ref, `mxs/<id>`
    await repository.apply()                                               onto the work tree, uncommitted

Above it stands the supervisor; it imports nothing of ours from outside itself.
"""

from supervisor.repo.clone_in import LeftOut
from supervisor.repo.folders import Owner
from supervisor.repo.hand_over import ResultStat
from supervisor.repo.inspection import RepositoryState, UncommittedWork, inspect, work_tree_around
from supervisor.repo.path_rules import PathRules
from supervisor.repo.recording import ChangedFile, CommitRecord
from supervisor.repo.repository_error import ApplyConflictError, RepositoryError
from supervisor.repo.review import ReviewItem
from supervisor.repo.worker_repository import HandOver, LeftBehind, WorkerRepository

__all__ = [
    "ApplyConflictError",
    "ChangedFile",
    "CommitRecord",
    "HandOver",
    "LeftBehind",
    "LeftOut",
    "Owner",
    "PathRules",
    "RepositoryError",
    "RepositoryState",
    "ResultStat",
    "ReviewItem",
    "UncommittedWork",
    "WorkerRepository",
    "inspect",
    "work_tree_around",
]
