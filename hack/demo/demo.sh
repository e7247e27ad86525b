#!/usr/bin/env bash
# Shows pods of a real cluster talk through Coelan: brings up a sandbox, installs Coelan into it as a user would,
# starts pods on two workers, and tries every way a packet can take. Then a policy that stops a connection that runs, two
# tenants with the same subnet, floating IPs for both, and a pod with three interfaces. `make demo` builds what it needs first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

name=${SANDBOX:-coelan}
sandbox() { bin/coelan sandbox --name "$name" "$@"; }
kubectl() { sandbox kubectl -- "$@"; }
in_client() { kubectl -n demo exec client -- "$@"; }

title() { printf '\n\033[1m%s\033[0m\n' "$*"; }

# check TEXT WANT COMMAND…: one line with what of the command's answer matches the regular expression WANT.
check() {
  local text=$1 want=$2 answer
  shift 2
  if answer=$("$@" 2>&1) && [[ $answer =~ $want ]]; then
    printf '  \033[32m✓\033[0m %-54s %s\n' "$text" "$(grep -oE "$want" <<<"$answer" | xargs)"
  else
    printf '  \033[31m✗\033[0m %s\n    %s\n    answered: %s\n' "$text" "$*" "$answer"
    exit 1
  fi
}

# fails COMMAND…: exits with 0 if the command does not.
fails() { ! "$@" >/dev/null 2>&1 && echo "no answer"; }

# of_family v4|v6: those of the addresses on standard input.
of_family() { tr ' ' '\n' | { [ "$1" = v6 ] && grep : || grep -v :; }; }

# address POD FAMILY: the pod's address, as URLs have it.
address() {
  kubectl -n demo get pod "$1" -o 'jsonpath={.status.podIPs[*].ip}' | of_family "$2" | sed 's/.*:.*/[&]/'
}

# node NAME FAMILY: the node's address.
node() { kubectl get node "$1" -o 'jsonpath={.status.addresses[?(@.type=="InternalIP")].address}' | of_family "$2"; }

title "A cluster: one control plane, two workers, each with an Open vSwitch of its own"
sandbox up --cni none --services native

title "Coelan"
sandbox load bin/images/coelan.tar
kubectl apply -f deploy/coelan.yaml
kubectl -n coelan-system rollout status daemonset/coelan-agent --timeout=120s
kubectl -n coelan-system rollout status deployment/coelan-controller --timeout=120s
kubectl wait --for=condition=Ready node --all --timeout=60s
kubectl -n kube-system rollout status deployment/coredns --timeout=120s

title "Pods"
kubectl apply -f hack/demo/pods.yaml
kubectl -n demo wait --for=condition=Ready pod --all --timeout=120s
kubectl -n demo get pods -o 'custom-columns=POD:.metadata.name,NODE:.spec.nodeName,ADDRESSES:.status.podIPs[*].ip'

title "They reach"
curl=(curl -sS -g --fail --max-time 5)
for v in 4 6; do
  [ $v = 4 ] && record=A sees='192\.168\.33\.12:[0-9]+' service='10\.96\.[0-9.]+'
  [ $v = 6 ] && record=AAAA sees='\[fd00:192:168:33::12\]:[0-9]+' service='fd00:10:96:[0-9a-f:]+'
  check "IPv$v, same node: client to web1" '^web1$' in_client "${curl[@]}" "http://$(address web1 v$v):8080/hostname"
  check "IPv$v, another node: client to web2" '^web2$' in_client "${curl[@]}" "http://$(address web2 v$v):8080/hostname"
  check "IPv$v, node to pod: worker1 to web2" '^web2$' \
    sandbox exec worker1 -- "${curl[@]}" "http://$(address web2 v$v):8080/hostname"
  check "IPv$v, pod to node: client to worker2" ' 0% packet loss' in_client ping -q -c 1 -W 2 "$(node worker2 v$v)"
  check "IPv$v, DNS: client asks for web.demo" "$service" in_client dig +short +search web.demo $record
  check "IPv$v, Service: client to web.demo" '^web[12]$' in_client "${curl[@]}" -$v http://web.demo/hostname
  check "IPv$v, outside: client to outside.test, which sees" "$sees" in_client "${curl[@]}" -$v http://outside.test/clientip
done

title "How a packet goes from client to web2"
export KUBECONFIG
KUBECONFIG=$(sandbox kubeconfig)
bin/coelan trace demo/client demo/web2

title "A policy, and a connection that runs"
answers=$(mktemp)
trap 'rm -f "$answers"' EXIT
# Ten questions a second over one TCP connection. The first line is the process that ends them; then with each answer whether it
# took a new connection.
kubectl -n demo exec client -- bash -c 'echo $$; trap "kill \$!; exit 0" TERM; "$@" & wait' - curl -sSN --rate 10/s -w ' %{num_connects}\n' \
  "http://$(address web2 v4):8080/echo?msg=[1-100000]" >"$answers" &
# answers_go on|off: whether answers come within a second; tried again for as long as a connection may take to go on.
answers_go() {
  local before after
  for _ in {1..20}; do
    before=$(wc -l <"$answers")
    sleep 1
    after=$(wc -l <"$answers")
    case $1 in
      on) [ "$after" -gt "$before" ] && [ "$before" -gt 1 ] && echo "answer $((after - 1))" && return ;;
      off) [ "$after" -eq "$before" ] && echo "none after answer $((after - 1))" && return ;;
    esac
  done
  return 1
}
check "client asks web2" '^answer [0-9]+$' answers_go on
kubectl apply -f hack/demo/policy.yaml
check "client asks web2, not allowed any more" '^none after answer [0-9]+$' answers_go off
bin/coelan trace demo/client demo/web2:8080
kubectl -n demo label pod client may=ask
check "client asks web2, allowed again" '^answer [0-9]+$' answers_go on
check "TCP connections that it took" '^1$' awk 'NF == 2 { n += $2 } END { print n }' "$answers"
in_client bash -c "kill $(head -1 "$answers")"
wait
bin/coelan get policystats

title "Two tenants with the same subnet"
kubectl apply -f hack/demo/tenants.yaml
for tenant in red blue; do kubectl -n $tenant wait --for=condition=Ready pod --all --timeout=120s; done
kubectl apply -f hack/demo/store.yaml # later, so that the web servers have the first address of their blocks
kubectl -n red wait --for=condition=Ready pod/red-store --timeout=120s
kubectl get networks.coelan.io,routers.coelan.io
kubectl get ports.coelan.io -A

# inside NAMESPACE POD IP_FAMILY_OPTION: the pod's address on its Network, as URLs have it.
inside() {
  kubectl -n "$1" exec "$2" -- ip "$3" -o addr show dev eth0 scope global | awk '{ sub("/.*", "", $4); print $4 }' | sed 's/.*:.*/[&]/'
}
in_red() { kubectl -n red exec client -- "$@"; }
in_blue() { kubectl -n blue exec client -- "$@"; }
for v in 4 6; do
  same=$(inside red red-web -$v)
  store=$(inside red red-store -$v)
  [ "$same" = "$(inside blue blue-web -$v)" ] || { echo "the tenants' web servers have different addresses" >&2; exit 1; }
  check "IPv$v, red's client asks $same" '^red-web$' in_red "${curl[@]}" "http://$same:8080/hostname"
  check "IPv$v, blue's client asks $same" '^blue-web$' in_blue "${curl[@]}" "http://$same:8080/hostname"
  check "IPv$v, red's client asks $store" '^red-store$' in_red "${curl[@]}" "http://$store:8080/hostname"
  check "IPv$v, blue's client asks $store" '^no answer$' fails in_blue curl -sS -g --max-time 2 "http://$store:8080/hostname"
done
check "DNS: red's client asks for web.demo" '10\.96\.[0-9.]+' in_red dig +short +search web.demo A

title "Floating IPs: outside.test and the two tenants"
# A further card of each node leads to a network of its own, of which the fabric is the gateway.
machine_pid() { sandbox status | awk -v machine="$1" '$1 == machine { print $NF }'; }
in_fabric() { sandbox exec fabric -- "$@"; }
in_fabric ip link add office type bridge
in_fabric ip addr add 198.51.100.1/24 dev office
in_fabric ip link set office up
for node in cp worker1 worker2; do
  nsenter -t "$(machine_pid fabric)" -n \
    ip link add "office-$node" master office type veth peer name office0 netns "$(machine_pid $node)"
  in_fabric ip link set "office-$node" up
  sandbox exec $node -- ip link set office0 up
  # The userspace datapath reads frames as they are.
  in_fabric ethtool -K "office-$node" tx off >/dev/null
  sandbox exec $node -- ethtool -K office0 tx off >/dev/null
done
in_fabric ethtool -K office tx off >/dev/null
kubectl -n coelan-system get configmap coelan-config -o yaml |
  sed 's/uplinks: {}/uplinks: {office: {interface: office0}}/' | kubectl apply -f -
kubectl -n coelan-system rollout restart daemonset/coelan-agent
kubectl -n coelan-system rollout status daemonset/coelan-agent --timeout=120s
kubectl apply -f hack/demo/floatingips.yaml
for tenant in red blue; do kubectl -n $tenant wait --for=condition=Ready floatingip/web --timeout=60s; done
from_outside() { in_fabric "${curl[@]}" --interface 203.0.113.1 "$@"; }
check "outside.test asks 198.51.100.32" '^red-web$' from_outside http://198.51.100.32:8080/hostname
check "outside.test asks 198.51.100.33" '^blue-web$' from_outside http://198.51.100.33:8080/hostname
check "outside.test asks red-web, which sees" '203\.0\.113\.1:[0-9]+' from_outside http://198.51.100.32:8080/clientip
check "red-web asks outside.test, which sees" '198\.51\.100\.32:[0-9]+' \
  kubectl -n red exec red-web -- "${curl[@]}" -4 http://outside.test/clientip
check "blue-web asks outside.test, which sees" '198\.51\.100\.33:[0-9]+' \
  kubectl -n blue exec blue-web -- "${curl[@]}" -4 http://outside.test/clientip
bin/coelan get floatingips

title "A pod with three interfaces"
sandbox multus definitions # NetworkAttachmentDefinitions; Multus itself is not needed
kubectl apply -f hack/demo/interfaces.yaml
kubectl -n demo wait --for=condition=Ready pod/three pod/disk --timeout=120s
kubectl -n demo exec three -- ip -br addr show scope global
in_disk() { kubectl -n demo exec disk -- "$@"; }
check "eth0: client to three" '^three$' in_client "${curl[@]}" "http://$(address three v4):8080/hostname"
check "storage0: disk to three" '^three$' in_disk "${curl[@]}" http://172.16.0.99:8080/hostname

title "Go on"
cat <<TEXT
  export KUBECONFIG=$KUBECONFIG
  bin/coelan status
  bin/coelan sandbox kubectl -- get pods -A -o wide
  bin/coelan sandbox kubectl -- get networks.coelan.io,routers.coelan.io,addressblocks.coelan.io
  bin/coelan sandbox exec worker1 -- ovs-vsctl show
  bin/coelan sandbox down
TEXT
