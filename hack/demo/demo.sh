#!/usr/bin/env bash
# Shows pods of a real cluster talk through Coelan: brings up a sandbox, installs Coelan into it as a user would,
# starts pods on two workers, and tries every way a packet can take. `make demo` builds what it needs first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

name=${SANDBOX:-coelan}
sandbox() { bin/coelan sandbox --name "$name" "$@"; }
kubectl() { sandbox kubectl -- "$@"; }
in_client() { kubectl -n demo exec client -- "$@"; }

title() { printf '\n\033[1m%s\033[0m\n' "$*"; }

# check TEXT WANT COMMAND…: one line with what the command answered, which must match the regular expression WANT.
check() {
  local text=$1 want=$2 answer
  shift 2
  if answer=$("$@" 2>&1) && [[ $answer =~ $want ]]; then
    printf '  \033[32m✓\033[0m %-58s %s\n' "$text" "$(tr '\n' ' ' <<<"$answer")"
  else
    printf '  \033[31m✗\033[0m %s\n    %s\n    answered: %s\n' "$text" "$*" "$answer"
    exit 1
  fi
}

# address POD FAMILY: the pod's address, ready for a URL.
address() {
  local ip
  for ip in $(kubectl -n demo get pod "$1" -o 'jsonpath={.status.podIPs[*].ip}'); do
    case $2$ip in
      v6*:*) echo "[$ip]" ;;
      v4*.*) echo "$ip" ;;
    esac
  done
}

title "A cluster: one control plane, two workers, each with an Open vSwitch of its own"
sandbox up --cni none

title "Coelan"
sandbox load bin/images/coelan.tar
kubectl apply -f deploy/coelan.yaml
kubectl -n coelan-system rollout status daemonset/coelan-agent --timeout=120s
kubectl wait --for=condition=Ready node --all --timeout=60s
kubectl -n kube-system rollout status deployment/coredns --timeout=120s

title "Pods"
kubectl apply -f hack/demo/pods.yaml
kubectl -n demo wait --for=condition=Ready pod --all --timeout=120s
kubectl -n demo get pods -o 'custom-columns=POD:.metadata.name,NODE:.spec.nodeName,ADDRESSES:.status.podIPs[*].ip'

title "They reach"
curl=(curl -sS -g --fail --max-time 5)
for v in 4 6; do
  check "IPv$v, same node: client to web1" '^web1$' in_client "${curl[@]}" "http://$(address web1 v$v):8080/hostname"
  check "IPv$v, another node: client to web2" '^web2$' in_client "${curl[@]}" "http://$(address web2 v$v):8080/hostname"
  check "IPv$v, node to pod: worker1 to web2" '^web2$' \
    sandbox exec worker1 -- "${curl[@]}" "http://$(address web2 v$v):8080/hostname"
  check "IPv$v, Service: client to web.demo" '^web[12]$' in_client "${curl[@]}" -$v http://web.demo/hostname
  check "IPv$v, outside: client to outside.test, which sees" '192\.168\.33\.12:|fd00:192:168:33::12\]:' \
    in_client "${curl[@]}" -$v http://outside.test/clientip
done
check "DNS: client asks for web.demo" '10\.96\..*fd00:10:96' in_client dig +short +search web.demo A web.demo AAAA

title "Go on"
cat <<'TEXT'
  bin/coelan sandbox kubectl -- get pods -A -o wide
  bin/coelan sandbox exec worker1 -- ovs-vsctl show
  bin/coelan sandbox down
TEXT
