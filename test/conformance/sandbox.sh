# Sourced by the scripts beside it, which run upstream's suites: the sandbox called conformance, that goes when they end, and
# the directory for what they print. The environment's variables and their meaning are in docs/develop/conformance.md.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
report=$PWD/bin/conformance

sandbox() { local verb=$1; shift; bin/coelan sandbox "$verb" --name "${SANDBOX-conformance}" "$@"; }

down() {
  local status=$?
  [ -n "${KEEP-}" ] || sandbox down
  exit $status
}

up() {
  trap down EXIT
  sandbox up --cni "${CNI-}" --services "${SERVICES-}" --kube-proxy-mode "${KUBE_PROXY_MODE-}" --workers "${WORKERS-0}" \
    --zones "${ZONES-0}" --ip-family "${IP_FAMILY-}" --backend "${BACKEND-}"
  rm -rf "$report" && mkdir -p "$report"
}
