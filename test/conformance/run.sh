#!/usr/bin/env bash
# Runs cases of Kubernetes' own end-to-end suite in a sandbox, from the control plane's place in the network, where
# nodes, pods and ports can be reached. Prints Ginkgo's summary and exits with its status.
#
#   run.sh DIRECTORY-OF-KUBERNETES-BINARIES FOCUS [SKIP]
#
# CNI=bridge runs them over the reference plugins, KEEP=1 leaves the sandbox up. All output is in bin/conformance/log.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
binaries=$1 focus=$2 skip=${3-}
report=$PWD/bin/conformance

sandbox() { local verb=$1; shift; bin/coelan sandbox "$verb" --name conformance "$@"; }

down() {
  local status=$?
  [ -n "${KEEP-}" ] || sandbox down
  exit $status
}
trap down EXIT

sandbox up --cni "${CNI:-coelan}"
rm -rf "$report" && mkdir -p "$report"
args=(
  --kubeconfig=/etc/kubernetes/admin.conf
  --kubectl-path="$binaries/kubectl"
  --provider=local
  --dump-logs-on-failure=false
  --report-dir="$report"
  --ginkgo.no-color
  --ginkgo.v
  --ginkgo.focus="$focus"
)
[ -z "$skip" ] || args+=(--ginkgo.skip="$skip")

# The name of each case that runs, its outcome, and the summary.
brief='/^Will run/ || /^\[sig-/ || /^• / { print; fflush() } /^Summarizing/ || /^Ran / { rest = 1 } rest'
sandbox exec cp -- "$binaries/e2e.test" "${args[@]}" 2>&1 | tee "$report/log" | awk "$brief"
