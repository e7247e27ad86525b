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

// Port is the port that an attachment on the named node stands for. The id of a user's Port is that of RemoteID: it moves
// from node to node.
func Port(at attachment.Attachment, node string) intent.Port {
	p := intent.Port{
		ID: at.Key.String(), Namespace: at.PodNamespace, Pod: at.PodName, Interface: at.IfName, UID: at.PodUID,
		Network: cmp.Or(at.NetworkName, intent.DefaultNetworkName), Node: node, MAC: at.MAC, OFPort: at.OFPort,
	}
	if at.IsPort() {
		p.Interface = ""
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

// FixedPorts translates the Ports that nodes other than the named one have bound, and whose addresses say nothing of
// where they are: virtual machines, and pods that asked for an address. They come sorted by id.
func FixedPorts(objects []*v1alpha1.Port, node string) ([]intent.Port, []Problem) {
	var ports []intent.Port
	var problems []Problem
	for _, o := range objects {
		if o.Status.Node == "" || o.Status.Node == node || len(o.Status.Addresses) == 0 {
			continue
		}
		p := intent.Port{
			ID: RemoteID(o.Namespace, o.Name), Namespace: o.Namespace, Pod: o.Name,
			Network: o.Spec.Network, Node: o.Status.Node,
		}
		if o.Spec.Pod != nil {
			p.Pod, p.Interface, p.UID = o.Spec.Pod.Name, o.Spec.Pod.Interface, o.Spec.Pod.UID
		}
		if problem, ok := onWire(o, &p); !ok {
			problems = append(problems, problem)
			continue
		}
		ports = append(ports, p)
	}
	slices.SortFunc(ports, func(a, b intent.Port) int { return cmp.Compare(a.ID, b.ID) })
	sortProblems(problems)
	return ports, problems
}

// onWire reads what a Port has on the wire.
func onWire(o *v1alpha1.Port, p *intent.Port) (Problem, bool) {
	problem := Problem{Object: "port " + o.Namespace + "/" + o.Name, Reason: Malformed}
	for i, text := range o.Status.Addresses {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Is4In6() {
			problem.Field, problem.Value, problem.Text = fmt.Sprintf("status.addresses[%d]", i), text, "is not an address"
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
