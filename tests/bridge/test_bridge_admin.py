"""The admin channel: actors, policies, callers and records, asked as the supervisor asks."""

from pathlib import Path

import pytest

from bridge.contract.errors import MatrixError
from tests.bridge.running_bridge import RunningBridge
from tests.bridge.shop_actors import SHOP


async def test_the_same_path_twice_is_the_same_host_and_another_source_of_a_mount_is_refused(
    shop: RunningBridge, actors: Path, tmp_path: Path
) -> None:
    again = await shop.ask("actors.add", path=str(actors), guarded=True)
    assert again["mounts"] == ["demo.shop"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "shop.py").write_text(SHOP)
    with pytest.raises(MatrixError) as caught:
        await shop.ask("actors.add", path=str(other), guarded=False)
    assert str(actors) in caught.value.message
    assert str(other) in caught.value.message


async def test_lint_names_file_line_and_place_of_a_missing_description_without_importing(
    bridge: RunningBridge, tmp_path: Path
) -> None:
    module = tmp_path / "actors.py"
    module.write_text(
        "raise SystemExit('imported')\n"
        "class A(Actor):\n"
        "    mount = 'demo.a'\n"
        "    description = 'An actor'\n"
        "    accepts = {\n"
        "        'a.do': {'description': 'Does', 'schema': {\n"
        "            'x': {'type': 'string'},\n"
        "        }},\n"
        "    }\n"
    )
    problems = (await bridge.ask("actors.lint", path=str(module)))["problems"]
    assert isinstance(problems, list)
    (problem,) = problems
    assert isinstance(problem, dict)
    assert (problem["file"], problem["line"], problem["where"]) == (str(module), 7, "A.accepts.a.do.schema.x")


async def test_opening_a_caller_projects_exactly_the_ops_that_its_role_may_use(shop: RunningBridge) -> None:
    opened = await shop.open_caller()
    tools = opened["tools"]
    assert isinstance(tools, list)
    names = [tool["canonical"] for tool in tools if isinstance(tool, dict)]
    assert "acme.com/demo.shop/shop.reserve" in names
    assert "acme.com/demo.shop/shop.delete" not in names
    assert opened["moreTools"] == 0
    assert opened["native"] == {"allow": ["file.read", "shell.exec"], "ask": ["file.write"], "deny": []}


async def test_an_unknown_role_or_a_malformed_policy_opens_nothing(bridge: RunningBridge, tmp_path: Path) -> None:
    with pytest.raises(MatrixError) as unknown:
        await bridge.open_caller("nobody")
    assert "'coder', 'frugal'" in unknown.value.message
    bad = tmp_path / "bad.toml"
    bad.write_text("version = 1\nrolls = 2\n")
    with pytest.raises(MatrixError) as malformed:
        await bridge.open_caller(policy=str(bad))
    assert f"{bad}:2" in malformed.value.message
    assert bridge.records("policy.refused")


async def test_explain_answers_for_bus_ops_and_for_native_ones(bridge: RunningBridge) -> None:
    await bridge.open_caller()
    policy = str(bridge.home / "permissions.toml")
    bus = await bridge.ask("policy.explain", path=policy, role="coder", target="demo.x", op="shop.delete")
    native = await bridge.ask(
        "policy.explain",
        path=policy,
        role="coder",
        target="workers.w.workspace",
        op="file.read",
        paths=[{"shown": "secrets/a", "access": "read"}],
    )
    assert (bus["verdict"], bus["rule"]) == ("deny", "roles.coder.grants[0].deny[0]")
    assert (native["verdict"], native["reason"]) == ("deny", "PATH_DENIED")


async def test_a_record_with_the_same_key_is_appended_once_and_calls_cannot_be_forged(bridge: RunningBridge) -> None:
    first = await bridge.ask("record.append", key="k1", kind="worker.state", worker="w", run="r", state="running")
    again = await bridge.ask("record.append", key="k1", kind="worker.state", worker="w", run="r", state="running")
    assert first == again
    with pytest.raises(MatrixError):
        await bridge.ask("record.append", key="k2", kind="tool.result", worker="w", run="r")
