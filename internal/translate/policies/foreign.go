// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/translate"
)

// foreignAddress is one that a pod's node says the pod has, and that is not the node's to give.
type foreignAddress struct {
	field string // of the pod, or of one of its Ports
	addr  netip.Addr
}

// placesOf are the places of a pod: the addresses that its node says, in the API or to a
// controller, as far as they are that node's. Those of other nodes' Ports for the pod do not
// count. Until its node or its block is known, an address does not count either: a rule that
// allows the pod does not allow the address, and one that denies it closes the endpoints that
// would have to match it.
func (e *Endpoints) placesOf(name types.NamespacedName, pod *policyPod) []policy.Place {
	var places []policy.Place
	var foreign []foreignAddress
	var ofPorts []netip.Addr // in the cluster
	for p := range e.podPorts[name] {
		if p.pod.UID != pod.uid || p.node != pod.node {
			continue
		}
		own := *p
		own.addresses, foreign = split(p.addresses, foreign, "port "+p.name+": status.addresses",
			func(a netip.Addr) bool {
				return e.owners.ownRange(pod.node, a) || e.owners.ownBlock(pod.node, p.network, a) ||
					e.owners.ownSingle(pod.node, p.network, p.namespace+"/"+p.name, a)
			})
		own.onNode, foreign = split(p.onNode, foreign, "port "+p.name+": status.nodeAddresses",
			func(a netip.Addr) bool {
				return e.owners.ownRange(pod.node, a)
			})
		for _, place := range own.places(e.spaces[p.network]) {
			if place.Space == intent.DefaultRouterName {
				ofPorts = append(ofPorts, place.Address)
			}
			places = append(places, place)
		}
	}
	inClusterToo := func(a netip.Addr) bool {
		return e.owners.ownRange(pod.node, a) || slices.Contains(ofPorts, a) || e.ownBlockInCluster(pod.node, a)
	}
	said, foreign := split(pod.addresses, foreign, "status.podIPs", inClusterToo)
	early, foreign := split(e.attached[name].Addresses, foreign, "attachment", inClusterToo)
	slices.SortFunc(foreign, func(a, b foreignAddress) int { return a.addr.Compare(b.addr) })
	e.setForeign(name, pod.node, foreign)
	return append(places, append(inCluster(said, false), inCluster(early, false)...)...)
}

// split returns the addresses that are the node's, and adds the others to foreign.
func split(list []netip.Addr, foreign []foreignAddress, field string, is func(netip.Addr) bool,
) ([]netip.Addr, []foreignAddress) {
	if !slices.ContainsFunc(list, func(a netip.Addr) bool { return !is(a) }) {
		return list, foreign
	}
	var own []netip.Addr
	for _, a := range list {
		if is(a) {
			own = append(own, a)
		} else {
			foreign = append(foreign, foreignAddress{field, a})
		}
	}
	return own, foreign
}

// ownBlockInCluster reports whether an address is of a block of the node, of any Network in the
// cluster's address space.
func (e *Endpoints) ownBlockInCluster(node string, a netip.Addr) bool {
	for network := range e.owners.of[node] {
		if e.owners.ownBlock(node, network, a) && slices.Contains(e.spaces[network], intent.DefaultRouterName) {
			return true
		}
	}
	return false
}

func (e *Endpoints) setForeign(name types.NamespacedName, node string, foreign []foreignAddress) {
	if slices.Equal(e.foreign[name], foreign) {
		return
	}
	e.renamed = true
	if len(foreign) == 0 {
		delete(e.foreign, name)
		drop(e.foreignOn, node, name)
		return
	}
	e.foreign[name] = foreign
	add(e.foreignOn, node, name)
}

// foreignProblems are of pods that have started: before, the watches of nodes and blocks may just
// be behind that of pods.
func (e *Endpoints) foreignProblems() []EndpointProblem {
	var problems []EndpointProblem
	for name, list := range e.foreign {
		pod := e.pods[name]
		if pod == nil || len(pod.addresses) == 0 || len(e.owners.ranges[pod.node]) == 0 {
			continue
		}
		for _, f := range list {
			problems = append(problems, EndpointProblem{NamespacedName: name, UID: pod.uid, Problem: translate.Problem{
				Object: "pod " + name.String(), Field: f.field, Value: f.addr.String(), Reason: translate.NotOwned,
				Text: "is neither of the podCIDRs nor of an AddressBlock of node " + pod.node +
					", so policies do not know the pod by it; a pod that another CNI plugin has connected has to be made again",
			}})
		}
	}
	return problems
}
