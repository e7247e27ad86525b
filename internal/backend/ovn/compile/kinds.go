// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
)

// kinds are all kinds, in any order.
func kinds(o Options) []Kind {
	return []Kind{
		portKind{o.Cluster},
	}
}

// switchRef is the Logical_Switch of a Network; node is empty unless the Network's addresses are of
// the nodes' ranges.
func switchRef(network, node string) nb.Ref {
	key := "Network/" + network
	if node != "" {
		key += "@" + node
	}
	return nb.Ref{Table: "Logical_Switch", Key: key}
}

// switchOf is the Logical_Switch that a Port on a node is on.
func switchOf(n intent.Network, node string) nb.Ref {
	if n.FromNodes() {
		return switchRef(n.Name, node)
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
