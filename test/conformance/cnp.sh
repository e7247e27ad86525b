#!/usr/bin/env bash
# Runs upstream's suite of ClusterNetworkPolicies in a sandbox, with all features. Prints each test's outcome and how many
# there were of each, and exits with the suite's status.
#
#   cnp.sh TEST-BINARY [RUN] [SKIP]
#
# RUN and SKIP are regular expressions for the tests' names, such as CNPAdminTierGress. All output is in bin/conformance/log.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/sandbox.sh"
suite=$1 run=${2-} skip=${3-}

up
sandbox policies experimental
args=(-test.v -test.timeout 20m -test.run "^TestConformance\$/$run" -all-features)
[ -z "$skip" ] || args+=(-test.skip "/($skip)")

# Outcomes as they come, and their numbers: of tests, and of what they consist of.
brief='/^ *--- / { print; fflush(); count[/^        ---/ ? "cases" : /^    ---/ ? "tests" : "", $2]++ }
  /^ *[a-z_-]+\.go:[0-9]+: FAILED|Expected connection|Error Trace/ { print; fflush() }
  END { for (of in count) { split(of, key, SUBSEP); if (key[1]) printf "%s: %s %d\n", key[1], key[2], count[of] } }'
KUBECONFIG=$(sandbox kubeconfig) "$suite" "${args[@]}" 2>&1 | tee "$report/log" | awk "$brief"
