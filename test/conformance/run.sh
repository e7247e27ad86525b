#!/usr/bin/env bash
# Runs cases of Kubernetes' own end-to-end suite in a sandbox, from a machine of it, by default that of the control plane,
# which reaches nodes, pods and ports. Prints each case's outcome and Ginkgo's summary, and exits with its status.
#
#   run.sh DIRECTORY-OF-KUBERNETES-BINARIES FOCUS [SKIP]
#
# All output is in bin/conformance/log.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/sandbox.sh"
binaries=$1 focus=$2 skip=${3-}

up
state=$(sandbox status) || true # of which the exit status says that not yet all is ready
if [[ $state == *"Services by Coelan"* ]]; then
  sandbox kubectl apply -f test/conformance/pool.yaml
fi
(umask 077 && sandbox exec cp -- cat /etc/kubernetes/admin.conf >"$report/kubeconfig")
args=(
  --kubeconfig="$report/kubeconfig"
  --kubectl-path="$binaries/kubectl"
  --provider=local
  --num-nodes="$(sandbox kubectl get nodes -l node-role.kubernetes.io/worker= -o name | wc -l)" # else many cases find too few
  --dump-logs-on-failure=false
  --report-dir="$report"
)
# Cases mostly wait, so that several at a time take no more than the time of the slowest. Ginkgo runs those that are
# marked as serial by themselves, after the others.
ginkgo=(--procs="${PROCS-4}" --no-color -v --timeout=3h --output-dir="$report" --focus="$focus")
[ -z "$skip" ] || ginkgo+=(--skip="$skip")

# The outcome and the name of each case, and the summary.
brief='/^(•|P|S) \[/ { outcome = $0; next }
  outcome && /^\[/ { print outcome, $0; fflush() } { outcome = "" }
  /^Summarizing/ || /^Ran / { rest = 1 } rest'
sandbox exec "${FROM-cp}" -- "$binaries/ginkgo" "${ginkgo[@]}" "$binaries/e2e.test" -- "${args[@]}" 2>&1 | tee "$report/log" | awk "$brief"
