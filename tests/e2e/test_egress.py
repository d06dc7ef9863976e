"""`mxs run --egress`: a real worker reaches the listed host through the gateway's tunnel, and no other."""

import shutil

import pytest

from tests.e2e.conftest import SHOP, git
from tests.e2e.local_upstream import local_upstream

pytestmark = pytest.mark.container

KEY = "sk-of-the-listed-host"
ADDRESS = "127.0.0.2"  # the host's own loopback, at an address that no NO_PROXY rule of the container names

VISIT = """
import ssl, sys, urllib.request
trusting = ssl.create_default_context(cafile="ca.pem")
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=20, context=trusting).read().decode())
except OSError as fault:
    print("not reached:", fault)
"""

SCRIPT = """
steps:
  - call: {{tool: shell, args: {{command: "env | grep -ci '^https*_proxy='"}}}}
    expect: "4"
  - call: {{tool: shell, args: {{command: "python3 visit.py https://{listed}/listed"}}}}
    expect: '"object": "list"'
  - call: {{tool: shell, args: {{command: "python3 visit.py https://{other}/other"}}}}
    expect: "not reached: .*403"
  - call: {{tool: shell, args: {{command: "env -u https_proxy -u HTTPS_PROXY python3 visit.py https://{listed}/past"}}}}
    expect: "not reached"
  - say: "Done."
"""


@pytest.fixture
def visitor(shop):
    """The shop with a program that visits a page."""
    (shop / "visit.py").write_text(VISIT)
    return shop


def test_a_worker_reaches_the_listed_host_and_no_other(mxs, kind, visitor, script, tmp_path):
    with local_upstream(KEY, tmp_path, ADDRESS) as listed, local_upstream(KEY, address=ADDRESS) as other:
        shutil.copy(tmp_path / "ca.pem", visitor)
        git(visitor, "add", "-A")
        git(visitor, "commit", "-q", "-m", "A visitor")
        words = ("--repo", visitor, "--policy", SHOP / "permissions.toml", "--actors", SHOP / "actors")
        pairs = {"listed": f"{ADDRESS}:{listed.port}", "other": f"{ADDRESS}:{other.port}"}

        outcome = mxs.run(kind, *words, "--egress", pairs["listed"], *script(SCRIPT.format(**pairs)), check=0)

    assert [request.path for request in listed.received] == ["/listed"]
    assert other.connections == 0
    tunnels = outcome.of("egress")
    assert [(tunnel["host"], tunnel["port"]) for tunnel in tunnels] == [(ADDRESS, listed.port)]
    assert tunnels[0]["bytesIn"] > 0
    refused = [event for event in outcome.of("refusedRequest") if event["method"] == "CONNECT"]
    assert [event["path"] for event in refused] == [pairs["other"]], "the worker's own traffic does not use the proxy"


def test_a_malformed_egress_value_is_a_usage_error_with_the_mend(mxs, shop_words, script, kind):
    done = mxs("run", kind, "x", *shop_words, "--egress", "*.example.com:443", *script("steps: [{say: hi}]"), check=2)

    assert "Write HOST:PORT" in " ".join(done.stderr.split())
