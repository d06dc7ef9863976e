import os

import pytest

from supervisor import trust
from supervisor.configuration import Configuration, load, size_bytes
from supervisor.refusal import Refusal
from supervisor.trust import TrustStore, find_configuration

WHOLE = """
root = "acme.com"
role = "coder"
policy = "permissions.toml"
actors = ["actors"]
model = "script:fix.yaml"
[timeouts]
tool_ms = 1000
[limits]
memory = "512m"
pids = 64
"""


@pytest.fixture
def repo(tmp_path):
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "mxs.toml").write_text(WHOLE)
    (folder / "permissions.toml").write_text("version = 1\n")
    (folder / "fix.yaml").write_text("steps: []\n")
    (folder / "actors" / "parts").mkdir(parents=True)
    for name in ("stock.py", "_helper.py", "parts/deep.py"):
        (folder / "actors" / name).write_text("VALUE = 1\n")
    return folder


def test_every_path_in_the_file_is_relative_to_it(repo):
    found = load(repo / "mxs.toml")
    assert found.policy == str(repo / "permissions.toml")
    assert found.actors == (str(repo / "actors"),)
    assert found.model == f"script:{repo / 'fix.yaml'}"
    assert found.timeouts.tool_ms == 1000


@pytest.mark.parametrize(
    ("text", "message", "mend"),
    [
        ("rol = 'coder'", "mxs.toml:1: unknown key 'rol'", "'role'"),
        ("\n[limits]\nmemry = '1g'", "mxs.toml:3: unknown key 'limits.memry'", "'memory'"),
        ("[limits]\ncpus = 0", "mxs.toml:2: limits.cpus", "Correct"),
        ("[limits]\nmemory = 'much'", "'much' is not a size", "2g"),
        ("role = ", "not TOML", "Mend the line"),
    ],
)
def test_a_bad_file_is_refused_with_its_line_and_mend(tmp_path, text, message, mend):
    path = tmp_path / "mxs.toml"
    path.write_text(text)
    with pytest.raises(Refusal) as refused:
        load(path)
    assert message in refused.value.message
    assert mend in refused.value.mend
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("data", [b"\xff\xfe", b"#" * (300 * 1024)])
def test_a_file_that_is_no_text_or_too_large_is_refused(tmp_path, data):
    path = tmp_path / "mxs.toml"
    path.write_bytes(data)
    with pytest.raises(Refusal):
        load(path)


@pytest.mark.parametrize(("text", "size"), [("1", 1), ("2k", 2048), ("2G", 2 * 1024**3), ("10mb", 10 * 1024**2)])
def test_a_size_is_a_number_with_a_binary_unit(text, size):
    assert size_bytes(text, "here") == size


def test_a_repositorys_file_counts_only_after_it_was_trusted(repo, tmp_path):
    store = TrustStore(tmp_path / "home" / "trusted.json")
    ignored, notice = find_configuration(None, repo, tmp_path / "home", store)
    assert ignored == Configuration()
    assert "is ignored" in notice
    assert "mxs trust" in notice

    store.trust(repo / "mxs.toml")
    trusted, notice = find_configuration(None, repo, tmp_path / "home", store)
    assert trusted.role == "coder"
    assert notice == ""


NAMED = ["permissions.toml", "fix.yaml", "actors/stock.py", "actors/_helper.py", "actors/parts/deep.py"]


@pytest.mark.parametrize("changed", ["mxs.toml", *NAMED])
def test_trust_ends_when_the_file_or_anything_it_names_changes(repo, tmp_path, changed):
    store = TrustStore(tmp_path / "trusted.json")
    store.trust(repo / "mxs.toml")
    with (repo / changed).open("a") as file:
        file.write("# changed\n")
    assert not store.is_trusted(repo / "mxs.toml")


def test_trust_ends_when_a_file_of_actors_is_added_or_renamed_and_bytecode_that_nobody_reads_is_no_change(
    repo, tmp_path
):
    store = TrustStore(tmp_path / "trusted.json")
    store.trust(repo / "mxs.toml")
    (repo / "actors" / "__pycache__").mkdir()
    (repo / "actors" / "__pycache__" / "stock.pyc").write_bytes(b"x")
    assert store.is_trusted(repo / "mxs.toml")
    (repo / "actors" / "stock.py").rename(repo / "actors" / "other.py")
    assert not store.is_trusted(repo / "mxs.toml")
    store.trust(repo / "mxs.toml")
    (repo / "actors" / "new.py").touch()
    assert not store.is_trusted(repo / "mxs.toml")


def test_what_cannot_be_pinned_is_not_trusted(repo, tmp_path, monkeypatch):
    store = TrustStore(tmp_path / "trusted.json")
    (repo / "actors" / "elsewhere").symlink_to(tmp_path)
    with pytest.raises(Refusal, match="link to a folder"):
        store.trust(repo / "mxs.toml")
    (repo / "actors" / "elsewhere").unlink()
    os.mkfifo(repo / "actors" / "pipe.py")
    with pytest.raises(Refusal, match="neither a file nor a folder"):
        store.trust(repo / "mxs.toml")
    (repo / "actors" / "pipe.py").unlink()
    monkeypatch.setattr(trust, "MAX_BYTES", 10)
    with pytest.raises(Refusal, match="over 10 bytes"):
        store.trust(repo / "mxs.toml")


def test_a_file_named_on_the_command_line_is_trusted_by_being_named(repo, tmp_path):
    found, _ = find_configuration(repo / "mxs.toml", tmp_path, tmp_path, TrustStore(tmp_path / "trusted.json"))
    assert found.root == "acme.com"


def test_the_state_folders_file_counts_where_the_repository_has_none(tmp_path):
    (tmp_path / "mxs.toml").write_text('role = "reviewer"\n')
    found, _ = find_configuration(None, tmp_path / "elsewhere", tmp_path, TrustStore(tmp_path / "trusted.json"))
    assert found.role == "reviewer"
