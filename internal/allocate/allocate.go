// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/internal/vrf"
)

// Cluster is what Networks and Routers are judged by.
type Cluster struct {
	Networks []*v1alpha1.Network
	Routers  []*v1alpha1.Router
	Nodes    []*corev1.Node
}

// Verdict is what an object's status is to say. Without an ID it has no effect.
type Verdict struct {
	ID, VNI int32
	// Reason of the condition Ready: ReasonReady, or why not, with a message for people.
	Reason, Message string
	// Warning, if not empty, is about an object that has effect all the same.
	Warning string
}

// Ready says whether the object takes effect.
func (v Verdict) Ready() bool { return v.Reason == v1alpha1.ReasonReady }

// NetworkVerdict is a Network's.
type NetworkVerdict struct {
	Verdict
	Router  string // that it has joined; empty if none
	Subnets []string
}

// RouterVerdict is a Router's.
type RouterVerdict struct {
	Verdict
	RouteDistinguisher string
	Networks           []string // that have joined, sorted
}

// Allocation is the outcome of Allocate, by name.
type Allocation struct {
	Networks map[string]NetworkVerdict
	Routers  map[string]RouterVerdict
	// Next is where the next Allocate goes on.
	Next Numbers
}

// Allocate judges all Networks and Routers and numbers those that may take effect. What has a
// number keeps it as long as it is valid. Of two objects that want the same, the one that has
// effect already gets it, then the older one, then the first by name. An object that is being
// deleted keeps what it has and gets nothing new; then it is not in the outcome.
//
// The ids and VNIs of the default Network and Router are theirs also while they are not there.
func Allocate(c Cluster, numbers Numbers) Allocation {
	a := &allocator{
		numbers: newLedger(c, numbers), spaces: map[vrf.SpaceID]*vrf.Space{}, vlans: map[string]string{},
		out: Allocation{Networks: map[string]NetworkVerdict{}, Routers: map[string]RouterVerdict{}},
	}
	a.routers(inOrder(c.Routers, routerID))
	a.exchange = vrf.NewExchange(a.admitted)
	networks := inOrder(c.Networks, networkID)
	first := slices.IndexFunc(networks, func(n *v1alpha1.Network) bool { return n.Status.ID == 0 })
	if first < 0 {
		first = len(networks)
	}
	// The nodes' prefixes exist regardless of this decision. A Network that is in effect stays so,
	// with a warning.
	a.networks(networks[:first])
	a.nodes(c.Nodes)
	a.warn(networks[:first])
	a.networks(networks[first:])
	a.join()
	a.out.Next = a.numbers.next
	return a.out
}

type allocator struct {
	numbers  *ledger
	exchange *vrf.Exchange
	admitted []*v1alpha1.Router // those that are ready
	spaces   map[vrf.SpaceID]*vrf.Space
	// nodePrefixes are the podCIDRs, nodeAddresses the InternalIPs of all nodes.
	nodePrefixes, nodeAddresses vrf.Space
	// physical network and VLAN: the Network that has it.
	vlans map[string]string
	out   Allocation
}

func networkID(n *v1alpha1.Network) int32 { return n.Status.ID }

func routerID(r *v1alpha1.Router) int32 { return r.Status.ID }

// inOrder is the order of claims: what has an id first, then by age, then by name.
func inOrder[T metav1.Object](objects []T, id func(T) int32) []T {
	objects = slices.Clone(objects)
	slices.SortFunc(objects, func(a, b T) int {
		return cmp.Or(cmp.Compare(min(id(b), 1), min(id(a), 1)), translate.Older(a, b))
	})
	return objects
}

func (a *allocator) routers(list []*v1alpha1.Router) {
	for _, r := range list {
		if r.DeletionTimestamp != nil && r.Status.ID == 0 {
			continue
		}
		v := RouterVerdict{Verdict: a.router(r)}
		if v.Ready() {
			v.RouteDistinguisher = cmp.Or(r.Spec.RouteDistinguisher, fmt.Sprintf("64512:%d", v.ID))
			a.admitted = append(a.admitted, r)
		}
		a.out.Routers[r.Name] = v
	}
}

func (a *allocator) router(r *v1alpha1.Router) Verdict {
	if err := checkRouter(r); err != nil {
		return Verdict{Reason: v1alpha1.ReasonInvalid, Message: err.Error()}
	}
	return a.numbers.router(r)
}

func (a *allocator) networks(list []*v1alpha1.Network) {
	for _, n := range list {
		if n.DeletionTimestamp != nil && n.Status.ID == 0 {
			continue
		}
		a.out.Networks[n.Name] = a.network(n)
	}
}

// network checks everything before it claims anything: what takes no effect
// keeps nothing from others.
func (a *allocator) network(n *v1alpha1.Network) NetworkVerdict {
	refuse := func(reason, message string) NetworkVerdict {
		return NetworkVerdict{Verdict: Verdict{Reason: reason, Message: message}}
	}
	pools, err := checkNetwork(n)
	if err != nil {
		return refuse(v1alpha1.ReasonInvalid, err.Error())
	}
	router := translate.EffectiveRouter(n)
	if reason, message := a.mayJoin(n, router); reason != "" {
		return refuse(reason, message)
	}
	if message := a.overlap(n, router, pools); message != "" {
		return refuse(v1alpha1.ReasonSubnetOverlaps, message)
	}
	if other, taken := a.vlans[segment(n)]; taken && n.Spec.Type != v1alpha1.Overlay {
		return refuse(v1alpha1.ReasonVLANTaken, fmt.Sprintf("%s is network %s's already", segment(n), other))
	}
	v := NetworkVerdict{Verdict: a.numbers.network(n), Router: router}
	if !v.Ready() {
		return refuse(v.Reason, v.Message)
	}
	for _, p := range pools {
		a.claim(n, router, p)
		v.Subnets = append(v.Subnets, p.Prefix.String())
	}
	if n.Spec.Type != v1alpha1.Overlay {
		a.vlans[segment(n)] = n.Name
	}
	return v
}

// segment is the physical segment of a Network of type VLAN or Flat.
func segment(n *v1alpha1.Network) string {
	if n.Spec.VLAN != nil {
		return fmt.Sprintf("VLAN %d of physical network %s", *n.Spec.VLAN, n.Spec.PhysicalNetwork)
	}
	return "the untagged part of physical network " + n.Spec.PhysicalNetwork
}

// mayJoin is why a Network cannot join the Router, "" if it can.
func (a *allocator) mayJoin(n *v1alpha1.Network, router string) (reason, message string) {
	if router == "" || n.Name == intent.DefaultNetworkName {
		return "", ""
	}
	v, known := a.out.Routers[router]
	switch {
	case !known:
		return v1alpha1.ReasonRouterNotFound, fmt.Sprintf("router %s does not exist", router)
	case !v.Ready():
		return v1alpha1.ReasonInvalid, fmt.Sprintf("router %s is not ready: %s", router, v.Message)
	case n.Status.ID == 0 && a.isDeleted(router) && n.Labels[v1alpha1.LabelNamespace] == "":
		// A namespace's next pod must not wait for the pods of others.
		return v1alpha1.ReasonRouterNotFound, fmt.Sprintf("router %s is being deleted", router)
	}
	return "", ""
}

func (a *allocator) isDeleted(router string) bool {
	r, _ := a.exchange.Router(router)
	return r.DeletionTimestamp != nil
}

// join lists in each Router the Networks that have joined it.
func (a *allocator) join() {
	for name, v := range a.out.Networks {
		if r, known := a.out.Routers[v.Router]; known && v.Ready() {
			r.Networks = append(r.Networks, name)
			a.out.Routers[v.Router] = r
		}
	}
	for _, r := range a.out.Routers {
		slices.Sort(r.Networks)
	}
}
