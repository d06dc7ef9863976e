#!/bin/sh
# The main job on the example, with a script in the model's place: one worker fixes the bug of a small repository.
# Usage: sh examples/shop/show.sh [claude|codex]
set -eu
kind=${1:-claude}
here=$(cd "$(dirname "$0")" && pwd)
mxs=${MXS:-"$here/../../.venv/bin/mxs"}
place=$(mktemp -d "${TMPDIR:-/tmp}/shop-XXXXXX")
shop=$place/shop
export MXS_HOME="$place/mxs"  # a state folder of its own: the example leaves nothing behind
trap '"$mxs" down >/dev/null; rm -rf "$place"' EXIT

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

cp -R "$here/repo" "$shop"
git -C "$shop" init -q -b main
git -C "$shop" add -A
git -C "$shop" -c user.name=You -c user.email=you@example.invalid commit -q -m "A shop with a bug"

say "mxs run $kind --repo SHOP --policy permissions.toml --actors actors --model script:fix.yaml"
"$mxs" run "$kind" "The test in tests/ fails. Find the bug and fix it." --name shop --repo "$shop" \
  --policy "$here/permissions.toml" --actors "$here/actors" --model "script:$here/fix.yaml" --no-input
id=$("$mxs" ps --all --json | python3 -c 'import json, sys; print(json.loads(sys.stdin.readline())["id"])')

say "mxs diff $id"
"$mxs" diff "$id"
say "mxs audit query --worker $id --kind tool.call"
"$mxs" audit query --worker "$id" --kind tool.call
say "mxs audit verify"
"$mxs" audit verify

say "With a real model:"
case $kind in
  codex) key=OPENAI_API_KEY ;;
  *) key=ANTHROPIC_API_KEY ;;
esac
echo "  cd YOUR-REPOSITORY && $key=… mxs run $kind \"The test in tests/ fails. Find the bug and fix it.\""
