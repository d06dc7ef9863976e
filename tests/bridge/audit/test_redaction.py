"""Secrets go, by form and by value; ordinary code stays byte for byte."""

import json
import string
import sysconfig
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.audit import redaction
from bridge.audit.redaction import Redactor

REDACTOR = Redactor(b"k" * 32)
B62 = string.ascii_letters + string.digits


def token(alphabet: str, size: int) -> st.SearchStrategy[str]:
    return st.text(alphabet=alphabet, min_size=size, max_size=size)


SECRETS = st.one_of(
    token(B62 + "-_", 40).map("sk-ant-api03-{}".format),
    token(B62 + "-_", 40).map("sk-proj-{}".format),
    token(B62, 47).map("sk-1{}".format),
    token(B62, 36).map("ghp_{}".format),
    token(B62, 40).map("github_pat_{}".format),
    token(string.ascii_uppercase + string.digits, 16).map("AKIA{}".format),
    token(B62, 20).map("xoxb-1{}".format),
    st.tuples(token(B62, 20), token(B62, 40), token(B62, 20)).map(lambda parts: "eyJ{}.eyJ{}.{}".format(*parts)),
    token(B62 + "+/\n", 200).map("-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----".format),
)


@given(
    secret=SECRETS,
    before=st.sampled_from(["", " ", "key=", '"', "(", "\n"]),
    after=st.sampled_from(["", " ", '"', "\n"]),
)
def test_a_secret_of_a_known_form_is_replaced_wherever_it_stands(secret: str, before: str, after: str) -> None:
    value = {"command": f"curl {before}{secret}{after}", "list": [secret], secret: 1}
    redacted = json.dumps(REDACTOR.redact(value))  # type: ignore[arg-type]  # a literal of nested JSON
    assert json.dumps(secret)[1:-1] not in redacted
    assert secret[-12:-2] not in redacted or "KEY" in secret


@pytest.mark.parametrize(
    "text",
    [
        "curl -H 'Authorization: Bearer abcdef0123456789'",
        '{"authorization": "Basic YWJjOmRlZmdoaQ=="}',
        "curl -H 'x-api-key: abcdef0123456789'",
        "git clone https://user:abcdef0123456789@host/repo",
        "AWS_SECRET_ACCESS_KEY=abcdef0123456789 make",
        'export DB_PASSWORD="abcdef0123456789"',
    ],
)
def test_a_secret_in_a_command_is_replaced_and_the_command_stays_readable(text: str) -> None:
    redacted = REDACTOR.text(text)
    assert "abcdef0123456789" not in redacted
    assert "YWJjOmRlZmdoaQ" not in redacted
    assert redacted.split()[0].split("=")[0] == text.split()[0].split("=")[0]


@pytest.mark.parametrize(
    "name", ["password", "PASSWORD", "client_secret", "api-key", "accessToken", "token", "Authorization", "dbPassword"]
)
def test_a_member_with_a_telling_name_is_replaced_at_any_depth(name: str) -> None:
    redacted = REDACTOR.redact({"a": [{name: "hunter2"}]})
    assert "hunter2" not in json.dumps(redacted)
    assert REDACTOR.redact(redacted) == redacted, "a marker is left alone"


@given(secret=st.text(min_size=8, max_size=40))
def test_a_known_value_is_replaced_whatever_it_looks_like(secret: str) -> None:
    redactor = Redactor(b"k" * 32)
    redactor.learn([secret])
    assert secret not in json.dumps(redactor.redact({"a": [f"x{secret}y"], secret: secret}), ensure_ascii=False)


def test_a_known_value_is_found_encoded_too() -> None:
    redactor = Redactor(b"k" * 32)
    redactor.learn(["s3cret/value+1", "short"])
    assert redactor.text("a=s3cret%2Fvalue%2B1 b=czNjcmV0L3ZhbHVlKzE= c=short").count("[redacted:known:") == 2


def test_equal_secrets_look_equal_and_another_key_looks_different() -> None:
    secret = "ghp_" + "a1" * 18
    first, second = REDACTOR.text(f"x {secret}"), REDACTOR.text(f"y {secret} z")
    assert first.split()[1] == second.split()[1]
    assert Redactor(b"other").text(f"x {secret}") != first


def test_the_code_of_the_standard_library_stays_as_it_is() -> None:
    folder = Path(sysconfig.get_path("stdlib"))
    files = [*folder.glob("*.py"), *folder.glob("email/*.py"), *folder.glob("http/*.py")]
    assert len(files) > 100
    for file in files:
        code = file.read_text(encoding="utf-8", errors="replace")
        assert REDACTOR.text(code) == code, file.name


def test_its_own_code_stays_as_it_is() -> None:
    code = Path(redaction.__file__).read_text()
    assert REDACTOR.redact({"path": "redaction.py", "content": code}) == {"path": "redaction.py", "content": code}


@pytest.mark.parametrize(
    "text",
    [
        'password = getpass.getpass("Password: ")',
        "token = next(tokens)",
        'client = Client(api_key=os.environ["API_KEY"])',
        "API_KEY=$(cat key) run",
        'headers = {"Authorization": f"Bearer {token}"}',
        ".sk-folding-cube-animation { color: red }",
        "git checkout task-management-for-the-new-and-very-long-branch",
        "postgres://{user}:{password}@host/db",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "xoxo-hugs-and-kisses-everyone",
    ],
)
def test_code_and_prose_that_only_speak_of_secrets_stay(text: str) -> None:
    assert REDACTOR.text(text) == text


@pytest.mark.parametrize("name", ["nextToken", "pageToken", "tokens", "maxTokens", "keyword"])
def test_members_that_only_sound_telling_stay(name: str) -> None:
    assert REDACTOR.redact({name: "abc"}) == {name: "abc"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet=string.ascii_lowercase + " \n(){}[]=:,.é\u202e"),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet="abcdef"), inner),
    max_leaves=8,
)


@given(value=JSON)
def test_a_value_without_secrets_is_equal_afterwards(value: object) -> None:
    assert REDACTOR.redact(value) == value  # type: ignore[arg-type]  # hypothesis cannot type a recursive strategy


@pytest.mark.parametrize(
    "piece", ["eyJ", "sk-ant-", "-----BEGIN PRIVATE KEY-----", "://a:", "authorization: ", "A" * 9, "xoxb-"]
)
def test_a_hostile_text_of_a_mebibyte_is_done_in_bounded_time(piece: str) -> None:
    hostile = piece * (1024 * 1024 // len(piece))
    started_s = time.process_time()
    REDACTOR.text(hostile)
    assert time.process_time() - started_s < 5, "linear work takes some 10 ms, quadratic work hours"


ANY_TEXT = st.lists(
    st.sampled_from(
        ["sk-ant-" + "a1" * 8, "AKIA" + "A1" * 8, "://u:hunter2hunter@h", "DB_TOKEN=abcdef0123456789", "known value"]
    )
    | st.text(max_size=8),
    max_size=4,
).map("".join)
ANY_NAME = st.sampled_from(["password", "pass_word", "API-Key", "to\u212aen", "nextToken", "tokens", "a"]) | ANY_TEXT


@given(
    value=st.recursive(
        st.none() | st.integers() | ANY_TEXT, lambda inner: st.lists(inner) | st.dictionaries(ANY_NAME, inner)
    )
)
def test_a_value_whose_text_is_called_free_is_one_that_redacting_would_not_change(value: object) -> None:
    redactor = Redactor(b"k" * 32)
    redactor.learn(["known value", 'kn"own\\value'])
    if redactor.is_free(json.dumps(value, separators=(",", ":"))):
        assert redactor.redact(value) == value  # type: ignore[arg-type]  # hypothesis cannot type a recursive strategy


def test_an_ordinary_call_is_told_from_its_text_alone() -> None:
    call = {"payload": {"sku": "WIDGET-42"}, "policy": "sha256:9f86d081", "tokens": {"input": 3}, "result": [147]}
    assert REDACTOR.is_free(json.dumps(call, separators=(",", ":")))
