// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
)

// Port is the port that an attachment on the named node stands for. The id of a user's Port is that
// of RemoteID: it moves from node to node.
func Port(at attachment.Attachment, node string) intent.Port {
	p := intent.Port{
		ID: at.Key.String(), Namespace: at.PodNamespace, Pod: at.PodName, Interface: at.IfName, UID: at.PodUID,
		Network: cmp.Or(at.NetworkName, intent.DefaultNetworkName), Node: node, MAC: at.MAC, MTU: at.MTU,
		Object: cmp.Or(at.PortName, attachment.PortName(at.PodName, at.IfName)),
	}
	if at.IsPort() {
		p.Interface, p.MTU = "", 0 // its guest's is not known
	}
	for _, a := range at.Addresses {
		p.Addresses = append(p.Addresses, a.Addr())
	}
	for _, a := range at.NodeAddresses {
		p.NodeAddresses = append(p.NodeAddresses, a.Addr())
	}
	return p
}

// remotePrefix begins the ids of Ports that are bound on other nodes.
const remotePrefix = "port:"

// RemoteID is the id in intent of a Port that another node has bound.
func RemoteID(namespace, name string) string { return remotePrefix + namespace + "/" + name }

// IsRemote says whether an id in intent is one that RemoteID made.
func IsRemote(id string) bool {
	return len(id) > len(remotePrefix) && id[:len(remotePrefix)] == remotePrefix
}

// FixedPorts translates the Ports that nodes other than the named one have bound, and that cannot
// be located by their addresses: virtual machines, and pods that asked for an address or a MAC.
// They come sorted by id. A Port that has an address or a MAC that does not belong to it is left
// out: else the agent of one node could bring any traffic to it. networks and blocks are those in
// effect, of which those of single addresses are none; claims are all AddressBlocks.
func FixedPorts(objects []*v1alpha1.Port, claims []*v1alpha1.AddressBlock,
	networks []intent.Network, blocks []intent.Block, node string,
) ([]intent.Port, []Problem) {
	holders := newHolders(claims, networks, blocks)
	var bound []boundPort
	var problems []Problem
	for _, o := range objects {
		// Where DHCP servers of a physical network give the addresses, there is no AddressBlock
		// to judge a Port by, and other nodes need not know it.
		n, known := holders.networks[o.Spec.Network]
		if !known || n.Leased || o.Status.Node == "" || len(o.Status.Addresses) == 0 {
			continue
		}
		p, problem, ok := readPort(o)
		if ok {
			problem, ok = holders.judge(o, p)
		}
		if ok {
			bound = append(bound, boundPort{o, p})
		} else if p.Node != node {
			problems = append(problems, problem)
		}
	}
	var ports []intent.Port
	owners := macOwners(bound)
	for _, b := range bound {
		if b.port.Node == node {
			continue
		}
		if other := owners[b.mac()]; other != b.object {
			problems = append(problems, macTaken(b.object, other))
			continue
		}
		ports = append(ports, b.port)
	}
	slices.SortFunc(ports, func(a, b intent.Port) int { return cmp.Compare(a.ID, b.ID) })
	sortProblems(problems)
	return ports, problems
}

// macTaken is what is wrong with a Port with a MAC that another one has.
func macTaken(o, other *v1alpha1.Port) Problem {
	return Problem{
		Object: "port " + o.Namespace + "/" + o.Name, Reason: NotOwned, Field: "status.mac", Value: o.Status.MAC,
		Text: "is that of port " + other.Namespace + "/" + other.Name,
	}
}

// readPort is what a Port that a node has bound says of itself.
func readPort(o *v1alpha1.Port) (intent.Port, Problem, bool) {
	p := intent.Port{
		ID: RemoteID(o.Namespace, o.Name), Namespace: o.Namespace, Pod: o.Name, Object: o.Name,
		ObjectUID: string(o.UID), Network: o.Spec.Network, Node: o.Status.Node, NeutronPort: o.Spec.NeutronPort,
	}
	if o.Spec.Pod != nil {
		p.Pod, p.Interface, p.UID = o.Spec.Pod.Name, o.Spec.Pod.Interface, o.Spec.Pod.UID
	}
	problem, ok := onWire(o, &p)
	return p, problem, ok
}

// onWire reads what a Port has on the wire.
func onWire(o *v1alpha1.Port, p *intent.Port) (Problem, bool) {
	problem := Problem{Object: "port " + o.Namespace + "/" + o.Name, Reason: Malformed}
	for i, text := range o.Status.Addresses {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Is4In6() {
			problem.Field, problem.Value, problem.Text = fmt.Sprintf("status.addresses[%d]", i), text,
				"is not an address"
			return problem, false
		}
		p.Addresses = append(p.Addresses, a)
	}
	var err error
	if p.MAC, err = intent.ParseMAC(o.Status.MAC); err != nil {
		problem.Field, problem.Value, problem.Text = "status.mac", o.Status.MAC, "is not a MAC address"
		return problem, false
	}
	return problem, true
}
