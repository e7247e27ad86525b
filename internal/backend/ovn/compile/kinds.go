// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
)

// kinds are all kinds, in any order.
func kinds(o Options) []Kind {
	return []Kind{
		networkKind{o.Cluster},
		routerKind{o.Cluster},
		linkKind{o.Cluster},
		nodeKind{o.Cluster},
		rangeKind{},
		portKind{o.Cluster},
		gatewayKind{o.Cluster},
		floatingKind{o.Cluster},
		frontKind{cluster: o.Cluster},
		newAccessKind(o.Cluster, ownLayout{o.Cluster}),
		egressKind{},
		newServiceKind(o.Cluster),
		balancingKind{o.Cluster},
		newPolicyKind(o.Cluster),
	}
}

// switchRef is the Logical_Switch of a Network; node is empty unless the Network's addresses are of
// the nodes' ranges.
func switchRef(network, node string) nb.Ref {
	return nb.Ref{Table: "Logical_Switch", Key: "Network/" + networkKey(network, node)}
}

// switchOf is the Logical_Switch that a Port on a node is on. All Networks with addresses of the
// nodes' ranges have one on each node, since they share its subnets.
func switchOf(n intent.Network, node string) nb.Ref {
	if n.FromNodes() {
		return switchRef(intent.DefaultNetworkName, node)
	}
	return switchRef(n.Name, "")
}

// routerRef is the Logical_Router of a Router.
func routerRef(router string) nb.Ref { return nb.Ref{Table: "Logical_Router", Key: "Router/" + router} }

// portRef is the Logical_Switch_Port of a Port object, namespace/name.
func portRef(object string) nb.Ref {
	return nb.Ref{Table: "Logical_Switch_Port", Key: "Port/" + object}
}

// managementRef is the Logical_Switch_Port of a node's management port.
func managementRef(node string) nb.Ref {
	return nb.Ref{Table: "Logical_Switch_Port", Key: "Node/" + node}
}

// states are the States that there are of two.
func states(from, to *intent.State) []*intent.State {
	if from == nil {
		return []*intent.State{to}
	}
	return []*intent.State{from, to}
}

func ptr[T any](v T) *T { return &v }
