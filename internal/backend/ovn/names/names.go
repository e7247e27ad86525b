// SPDX-License-Identifier: Apache-2.0

// Package names has the names that Coelan gives to rows of OVN's northbound database. Both halves
// of the backend ovn use them: the controller writes the rows, and agents plug interfaces into
// them.
//
// A cluster's prefix ends at the first colon of a name, and only names of Ports have a slash: what
// objects of Kubernetes are named has neither. All other names begin with what they are for. So no
// two rows get one name, not even in the namespace "node" or with a cluster named like a Network.
package names

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
)

// OwnerKey is the entry of external_ids that says that a row is Coelan's: Cluster.Owner.
const OwnerKey = "coelan.io/owner"

// unnamed stands for a cluster without a name in owners.
const unnamed = "coelan"

// setBytes is how many bytes of a hash name a Port_Group or an Address_Set.
const setBytes = 10

// Cluster is the name of a Kubernetes cluster among those that share a northbound database. The
// empty name is for a cluster that needs no prefix.
type Cluster string

// ParseCluster checks the name of a cluster, which may be empty.
func ParseCluster(name string) (Cluster, error) {
	if name == "" {
		return "", nil
	}
	if name == unnamed {
		return "", fmt.Errorf("cluster %q: the name stands for a cluster without one, choose another", name)
	}
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return "", fmt.Errorf("cluster %q: %s", name, strings.Join(problems, "; "))
	}
	return Cluster(name), nil
}

// prefixed is a name with the cluster's prefix.
func (c Cluster) prefixed(name string) string {
	if c == "" {
		return name
	}
	return string(c) + ":" + name
}

// Switch is the name of the Logical_Switch of a Network. Where its addresses are of the nodes'
// ranges (Network.FromNodes), it has one for each node; else node is empty.
func (c Cluster) Switch(network, node string) string { return c.prefixed("net-" + at(network, node)) }

// Router is the name of the Logical_Router of a Router.
func (c Cluster) Router(router string) string { return c.prefixed("router-" + router) }

// RouterPort is the name of the Logical_Router_Port that joins the Network's switch; node is as for
// Switch.
func (c Cluster) RouterPort(network, node string) string {
	return c.prefixed("lrp-" + at(network, node))
}

// SwitchPort is the name of the Logical_Switch_Port that RouterPort belongs to.
func (c Cluster) SwitchPort(network, node string) string {
	return c.prefixed("lsp-" + at(network, node))
}

// PeerPort is the name of the Logical_Router_Port by which a Router reaches another one.
func (c Cluster) PeerPort(router, other string) string {
	return c.prefixed("peer-" + at(router, other))
}

// GatewayPort is the name of the Logical_Router_Port by which a Router leaves by an external
// Network.
func (c Cluster) GatewayPort(network, router string) string {
	return c.prefixed("gw-" + at(network, router))
}

// GatewaySwitchPort is the name of the Logical_Switch_Port that GatewayPort belongs to.
func (c Cluster) GatewaySwitchPort(network, router string) string {
	return c.prefixed("gwp-" + at(network, router))
}

// AccessPort is the name of the Logical_Router_Port by which a private Router reaches a node.
func (c Cluster) AccessPort(node, router string) string {
	return c.prefixed("node-" + at(node, router))
}

// AccessSwitchPort is the name of the Logical_Switch_Port that AccessPort belongs to.
func (c Cluster) AccessSwitchPort(node, router string) string {
	return c.prefixed("nodep-" + at(node, router))
}

// Fronts is the name of the Logical_Router between those of Front and the Router default.
func (c Cluster) Fronts() string { return c.prefixed("fronts") }

// FrontsPort is the name of the Logical_Router_Port of Fronts that leads to the Router default, and
// WayToFronts that of the one that it leads to.
func (c Cluster) FrontsPort() string { return c.prefixed("front-default") }

// WayToFronts is the name of the Router default's Logical_Router_Port that leads to Fronts.
func (c Cluster) WayToFronts() string { return c.prefixed("default-front") }

// Front is the name of the Logical_Router of a FloatingIP, namespace/name, that stands for a
// Service.
func (c Cluster) Front(object string) string { return c.prefixed("front-" + ofObject(object)) }

// FrontPort is the name of the Logical_Router_Port of Front on the external Network.
func (c Cluster) FrontPort(object string) string { return c.prefixed("front-out-" + ofObject(object)) }

// FrontSwitchPort is the name of the Logical_Switch_Port that FrontPort belongs to.
func (c Cluster) FrontSwitchPort(object string) string {
	return c.prefixed("front-outp-" + ofObject(object))
}

// FrontWayIn is the name of the Logical_Router_Port of Front that leads to Fronts, and FrontWayOut
// that of the one that it leads to.
func (c Cluster) FrontWayIn(object string) string { return c.prefixed("front-in-" + ofObject(object)) }

// FrontWayOut is the name of the Logical_Router_Port of Fronts that leads to Front.
func (c Cluster) FrontWayOut(object string) string { return c.prefixed("front-up-" + ofObject(object)) }

// ofObject is an object's name and namespace without a slash, which only names of Ports have.
func ofObject(object string) string {
	namespace, name, _ := strings.Cut(object, "/")
	return at(name, namespace)
}

// LocalnetPort is the name of the Logical_Switch_Port by which a physical Network reaches its wire.
func (c Cluster) LocalnetPort(network string) string { return c.prefixed("wire-" + network) }

// Port is the name of the Logical_Switch_Port of a Port object, namespace/name: the iface-id of its
// interface.
func (c Cluster) Port(object string) string { return c.prefixed(object) }

// ManagementPort is the name of the Logical_Switch_Port by which the node's kernel reaches pods.
func (c Cluster) ManagementPort(node string) string { return c.prefixed("mgmt-" + node) }

// at is the name of something, at another thing if there is one.
func at(name, where string) string {
	if where == "" {
		return name
	}
	return name + "@" + where
}

// Set is the name of a Port_Group or an Address_Set, which OVN's language of matches knows it by:
// letters, digits and low lines. It is made of the kind, such as as4, and a hash of the key.
func (c Cluster) Set(kind, key string) string {
	sum := sha256.Sum256([]byte(c.Owner(key)))
	return "coelan_" + kind + "_" + hex.EncodeToString(sum[:setBytes])
}

// Owner is the value of OwnerKey in a row: the cluster, and the row's own key, which begins with a
// kind and a slash. Rows of tables without external_ids have it as their name.
func (c Cluster) Owner(key string) string {
	if c == "" {
		return unnamed + "/" + key
	}
	return string(c) + "/" + key
}

// Owned returns the key in an owner; empty and false if the row is not this cluster's.
func (c Cluster) Owned(owner string) (key string, ok bool) {
	if key, ok = strings.CutPrefix(owner, c.Owner("")); !ok {
		return "", false
	}
	return key, true
}

// ManagementAddress is the node's own address in a subnet that it hands out: the last one, and for
// IPv4 the last before the broadcast address. False if the subnet has no room for it beside its
// gateway.
func ManagementAddress(subnet netip.Prefix) (netip.Addr, bool) {
	subnet = subnet.Masked()
	const minHostBits = 2
	if subnet.Addr().BitLen()-subnet.Bits() < minHostBits {
		return netip.Addr{}, false
	}
	b := subnet.Addr().AsSlice()
	for bit := subnet.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	if last.Is4() {
		return last.Prev(), true
	}
	return last, true
}

// ManagementAddresses are those of a node: one in each of its subnets of the Network default that
// has room.
func ManagementAddresses(n intent.Node) (addresses []netip.Addr) {
	for _, s := range n.Subnets {
		if s.Network != intent.DefaultNetworkName {
			continue
		}
		if a, ok := ManagementAddress(s.Prefix); ok {
			addresses = append(addresses, a)
		}
	}
	return addresses
}

// ManagementMAC is the address of the management port's interface: made from the IPv4 address if
// there is one, as that of pods.
func ManagementMAC(addresses []netip.Addr) intent.MAC {
	for _, a := range addresses {
		if a.Is4() {
			return reserved.PodMAC(a)
		}
	}
	if len(addresses) == 0 {
		return intent.MAC{}
	}
	return reserved.PodMAC(addresses[0])
}
