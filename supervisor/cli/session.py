"""What a command starts from: the state folder, the defaults that count here, and a supervisor that has the actors.

The client resolves paths and trust; the supervisor gets absolute paths only.
"""

from dataclasses import dataclass
from pathlib import Path

from bridge.contract.json_types import JsonObject
from supervisor.configuration import Configuration
from supervisor.control.client import ControlClient, ensure_supervisor
from supervisor.home import StateFolder, state_home
from supervisor.refusal import Refusal
from supervisor.trust import TrustStore, find_configuration


def state_folder() -> StateFolder:
    """The state folder of this environment."""
    return StateFolder(state_home())


@dataclass(frozen=True)
class SharedOptions:
    """The shared options as given: None or empty where the configuration's value counts."""

    policy: Path | None = None
    actors: tuple[Path, ...] = ()
    root: str | None = None
    config: Path | None = None
    repo: Path = Path()


@dataclass(frozen=True)
class Session:
    """A connected command. `notice` is a sentence to show, empty when there is none."""

    home: StateFolder
    client: ControlClient
    configuration: Configuration
    policy: Path | None
    notice: str


def open_session(options: SharedOptions) -> Session:
    """Settle the defaults, find or start the supervisor, give it the actors. Raises `Refusal`."""
    home = state_folder()
    configuration, notice = find_configuration(
        options.config, options.repo.absolute(), home.root, TrustStore(home.trusted)
    )
    policy = options.policy or (Path(configuration.policy) if configuration.policy else None)
    if policy is not None and not policy.is_file():
        raise Refusal(f"{policy}: there is no such permission file.", "Check --policy, or the policy in mxs.toml.")
    actors = _existing([*options.actors, *(Path(actor) for actor in configuration.actors)])
    configured_root = configuration.root if configuration.root != "local" else None
    client = ensure_supervisor(home, options.root or configured_root)
    for path in actors:
        add_actors(client, path)
    return Session(home, client, configuration, policy.absolute() if policy else None, notice)


def add_actors(client: ControlClient, path: Path) -> JsonObject:
    """Give the supervisor a folder or file of actors; the same one twice is the same host."""
    return client.bridge("actors.add", {"path": str(path)})


def _existing(paths: list[Path]) -> list[Path]:
    for path in paths:
        if not path.exists():
            raise Refusal(f"{path}: there is no such folder or file of actors.", "Check --actors.")
    return list(dict.fromkeys(path.resolve() for path in paths))
