// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/names"
	"coelan.io/coelan/internal/reserved"
)

// holders says to which Ports the addresses and MACs of Networks belong. An agent writes what it
// likes into the status of the Ports of its node's pods, so the AddressBlocks decide: each agent
// creates those of its own node only.
type holders struct {
	networks map[string]intent.Network
	singles  map[string]*v1alpha1.AddressBlock // of one address, by name
	blocks   []intent.Block                    // those in effect, sorted as by Blocks
	objects  map[intent.Block]*v1alpha1.AddressBlock
	// ofNode reports whether an address of the nodes' own subnets belongs to a pod's Port; nil: no
	// such address belongs to any.
	ofNode func(o *v1alpha1.Port, a netip.Addr) bool
}

func newHolders(objects []*v1alpha1.AddressBlock, networks []intent.Network, blocks []intent.Block) *holders {
	h := &holders{
		networks: make(map[string]intent.Network, len(networks)), singles: map[string]*v1alpha1.AddressBlock{},
		blocks: blocks, objects: make(map[intent.Block]*v1alpha1.AddressBlock, len(blocks)),
	}
	for _, n := range networks {
		h.networks[n.Name] = n
	}
	for _, o := range objects {
		p, err := parsePrefix(o.Spec.CIDR)
		b := intent.Block{Network: o.Spec.Network, Prefix: p, Node: o.Spec.Node}
		first := h.objects[b]
		switch {
		case err != nil:
		case p.IsSingleIP():
			h.singles[o.Name] = o
		case first == nil || o.CreationTimestamp.Before(&first.CreationTimestamp):
			h.objects[b] = o
		}
	}
	return h
}

// judge reports whether all that a bound Port has belongs to it.
func (h *holders) judge(o *v1alpha1.Port, p intent.Port) (Problem, bool) {
	problem := Problem{Object: "port " + o.Namespace + "/" + o.Name, Reason: NotOwned}
	for i, a := range p.Addresses {
		if !h.address(o, a) {
			problem.Field, problem.Value = fmt.Sprintf("status.addresses[%d]", i), a.String()
			problem.Text = "is not the Port's by an AddressBlock of node " + o.Status.Node
			switch {
			case !o.Spec.ByAgent():
				problem.Text = "is not the Port's by an AddressBlock of the controller"
			case h.networks[o.Spec.Network].FromNodes():
				problem.Text = notOfNode + o.Status.Node
			}
			return problem, false
		}
	}
	if !ownMAC(o, p) {
		problem.Field, problem.Value = "status.mac", p.MAC.String()
		problem.Text = "is neither asked for in spec.mac nor made from the first address"
		return problem, false
	}
	return problem, true
}

// address reports whether an address belongs to a bound Port: by the block of the single address,
// or to one that an agent has made by the block that its node hands out.
func (h *holders) address(o *v1alpha1.Port, a netip.Addr) bool {
	n, whole := h.networks[o.Spec.Network], netip.PrefixFrom(a, a.BitLen())
	if n.FromNodes() {
		return h.ofNode != nil && h.ofNode(o, a)
	}
	ofGateway := func(s intent.NetworkSubnet) bool { return s.Gateway == a }
	if whole.Addr() != a || !inSubnet(n, whole) || slices.ContainsFunc(n.Subnets, ofGateway) {
		return false
	}
	around := h.around(n.Name, a)
	claim := h.singles[names.BlockName(n.Name, whole)]
	if claim == nil || claim.Spec.Network != n.Name || claim.Spec.CIDR != whole.String() ||
		!ClaimStands(claim, around) {
		return o.Spec.ByAgent() && around != nil && around.Spec.Node == o.Status.Node
	}
	node := "" // the controller claims for users' Ports
	if o.Spec.ByAgent() {
		node = o.Status.Node
	}
	return claim.Spec.Node == node && claim.Spec.Port == o.Namespace+"/"+o.Name
}

// around is the block of several addresses that one of them is in, nil if no node has it.
func (h *holders) around(network string, a netip.Addr) *v1alpha1.AddressBlock {
	at, exact := slices.BinarySearchFunc(h.blocks, a, func(b intent.Block, a netip.Addr) int {
		return cmp.Or(cmp.Compare(b.Network, network), b.Prefix.Addr().Compare(a))
	})
	if !exact {
		at--
	}
	if at < 0 || h.blocks[at].Network != network || !h.blocks[at].Prefix.Contains(a) {
		return nil
	}
	return h.objects[h.blocks[at]]
}

// ownMAC reports whether a bound Port may have its MAC. A pod's is made from its address, or was
// asked for when its Port was created, as those of dynamic Ports are; those of users' Ports are the
// controller's.
func ownMAC(o *v1alpha1.Port, p intent.Port) bool {
	asked := SameMAC(o.Spec.MAC, p.MAC) && !reserved.IsPodMAC(p.MAC) && !reserved.IsRouterMAC(p.MAC)
	return !o.Spec.ByAgent() || asked || p.MAC == reserved.PodMAC(p.Addresses[0])
}

// notOfNode is why an address does not belong to a Port of the node that is named after it.
const notOfNode = "is not one that pods have of the podCIDRs of node "

// boundPort is a Port that a node has bound, and what is made of it.
type boundPort struct {
	object *v1alpha1.Port
	port   intent.Port
}

// portMAC is a MAC on a Network.
type portMAC struct {
	network string
	mac     intent.MAC
}

func (b boundPort) mac() portMAC { return portMAC{b.port.Network, b.port.MAC} }

// macOwners are the Ports that have a MAC alone. Of two, a user's has it, which the controller has
// compared with all others; else the older one.
func macOwners(ports []boundPort) map[portMAC]*v1alpha1.Port {
	owners := map[portMAC]*v1alpha1.Port{}
	for _, p := range ports {
		other, o := owners[p.mac()], p.object
		if other == nil || !o.Spec.ByAgent() && other.Spec.ByAgent() ||
			o.Spec.ByAgent() == other.Spec.ByAgent() && Older(o, other) < 0 {
			owners[p.mac()] = o
		}
	}
	return owners
}

// SameMAC reports whether a text is that MAC.
func SameMAC(text string, mac intent.MAC) bool {
	other, err := intent.ParseMAC(text)
	return err == nil && other == mac
}
