#!/usr/bin/env bash
# Runs all that a change must pass, for `make test`. Many of the tests mostly wait, so what only compiles
# and what only reads the code, run in the background meanwhile, at the lowest priority: the tests have
# the machine whenever they want it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
logs=bin/test
mkdir -p "$logs"
# lint has go vet's checks, for all build tags; without this each go test makes them for all that it imports.
export GOFLAGS="-vet=off ${GOFLAGS-}"
# Generated cases are the same each time, so that what fails here fails again: `make explore` tries others.
export RAPID_SEED=${RAPID_SEED-1}

# The targets that run in the background, one after the other, in the order in which they are needed.
# Their outcomes come as lines "TARGET STATUS".
background=(sandbox-assets compile deps-neutron conformance-assets lint)

run_background() {
  # A session of its own has a scheduling group of its own, which must not count as much as the tests' one.
  echo 19 >/proc/self/autogroup || true
  renice -n 19 -p $$ >/dev/null
  for target in "$@"; do
    status=0
    make "$target" >"$logs/$target.log" 2>&1 || status=$?
    echo "$target $status"
  done
}
export -f run_background
export logs
exec {outcomes}< <(exec setsid bash -c 'run_background "$@"' background "${background[@]}" 2>/dev/null)
group=$!
trap 'kill -- -"$group" 2>/dev/null || true' EXIT

declare -A outcome
# await TARGET: returns when a target of the background is done; shows its output, and fails if it did.
await() {
  local target status
  while [ -z "${outcome[$1]-}" ]; do
    if ! read -r target status <&"$outcomes"; then
      echo "make $1 was ended in the background; see $logs/$1.log" >&2
      exit 1
    fi
    outcome[$target]=$status
  done
  printf '\n==== %s, in the background\n' "$1"
  cat "$logs/$1.log"
  [ "${outcome[$1]}" = 0 ] || { echo "make $1 failed, see above" >&2; exit 1; }
}

# failures LOG: the names of the tests that failed, and what they said. With -v tests that passed have
# their words in the log as well: each "=== RUN", "=== CONT" and "=== NAME" says for which test the next are.
failures() {
  awk '
    NR == FNR { if (/^ *--- FAIL: /) failed[$3]; next }
    /^=== / { test = $3; next }
    /^(ok|FAIL|make)/ { test = "" }
    /^ *(--- FAIL:|panic:|FAIL([^A-Za-z]|$))/ { print; next }
    /^ *[a-z0-9_]+\.go:[0-9]+:/ && (test == "" || test in failed)
  ' "$1" "$1" | cut -c1-300 | tail -n 60
}

# step NAME COMMAND…: runs the command between a line that names it and one that says how long it took.
# If it fails, what failed is said once more: the output has the logs of what the tests run, at length.
step() {
  local name=$1 began=$SECONDS
  shift
  printf '\n==== %s\n' "$name"
  if ! "$@" 2>&1 | tee "$logs/step.log"; then
    printf '\n==== what failed in %s\n' "$name"
    failures "$logs/step.log"
    exit 1
  fi
  printf '==== %s: %d s\n' "$name" $((SECONDS - began))
}

# together FIRST SECOND: makes two targets at a time, and shows the output of the second as it comes. The
# first has what the second leaves of the machine, or a tenth of it.
together() {
  local first second=0
  nice -n 10 make "$1" >"$logs/$1.log" 2>&1 & first=$!
  make "$2" || second=$?
  wait "$first" && first=0 || first=$?
  cat "$logs/$1.log"
  [ "$first" = 0 ] || { echo "make $1 failed, see above" >&2; exit 1; }
  [ "$second" = 0 ] || { echo "make $2 failed, see the output before that of make $1" >&2; exit 1; }
}

step unit make unit
step integration-brief make integration-brief
await sandbox-assets
# The tests of the controller count no packets and keep one processor busy. Those of the emulated machine do.
step 'apiserver and test-kernel-brief' together apiserver test-kernel-brief
step e2e-brief make e2e-brief
step test-ovn-brief make test-ovn-brief
await deps-neutron
step test-neutron-brief make test-neutron-brief
await lint
await conformance-assets
step conformance-brief make conformance-brief
printf '\nall of make test passed in %d min\n' $((SECONDS / 60))
