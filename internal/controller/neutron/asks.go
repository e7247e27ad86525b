// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend/neutron/compile"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/kuryr"
	"coelan.io/coelan/internal/wellknown"
)

// asks are the Ports with spec.neutronPort, by what resources call the object, and the answers that
// those get which have no MAC yet.
type asks struct {
	ports   map[string]*v1alpha1.Port
	answers map[string]offer
	// turns say in which turn a Port was asked for last; turn is the last one.
	turns map[string]int
	turn  int
}

// offer is what is said of the port that one object asks for.
type offer struct {
	v1alpha1.NeutronOffer
	asker types.UID
}

func newAsks() asks {
	return asks{ports: map[string]*v1alpha1.Port{}, answers: map[string]offer{}, turns: map[string]int{}}
}

// set takes a Port, or nil if it is gone, and reports whether another one asks than before.
func (a *asks) set(object string, p *v1alpha1.Port) bool {
	before := a.ports[object]
	if p != nil && p.Spec.NeutronPort == "" {
		p = nil
	}
	if p == nil {
		delete(a.ports, object)
	} else {
		a.ports[object] = p
	}
	if p != nil && before != nil && before.UID == p.UID {
		return false
	}
	delete(a.answers, object)
	delete(a.turns, object)
	return before != nil || p != nil
}

// maxAsks is for how many Ports one comparison asks: each takes a call before those for pods.
const maxAsks = 20

// next are the objects of the Ports that the next comparison asks for: of each namespace in turn,
// and those first that were asked for longest ago, so that Ports of one namespace do not keep those
// of others waiting. Ports with their answer are left out, and so are those with a MAC that are
// done with. More reports if one is left that waits for its first answer.
func (a *asks) next(done func(*v1alpha1.Port) bool) (objects []string, more bool) {
	var waiting []string
	for object, p := range a.ports {
		_, answered := a.answers[object]
		if p.Spec.MAC == "" && !answered && p.Status.Offered == nil || p.Spec.MAC != "" && !done(p) {
			waiting = append(waiting, object)
		}
	}
	before := func(x, y string) int {
		return cmp.Or(cmp.Compare(a.turns[x], a.turns[y]), cmp.Compare(x, y))
	}
	slices.SortFunc(waiting, before)
	place, places := map[string]int{}, map[string]int{} // of objects within namespaces
	for _, object := range waiting {
		namespace := a.ports[object].Namespace
		place[object] = places[namespace]
		places[namespace]++
	}
	slices.SortFunc(waiting, func(x, y string) int {
		return cmp.Or(cmp.Compare(place[x], place[y]), before(x, y))
	})
	a.turn++
	for i, object := range waiting {
		if i < maxAsks {
			a.turns[object] = a.turn
		} else if a.turns[object] == 0 || a.ports[object].Spec.MAC == "" {
			more = true
		}
	}
	return waiting[:min(len(waiting), maxAsks)], more
}

// askedOf says where a port has to be that a Port asks for: the project of its Network, and whether
// its node is a machine of OpenStack.
type askedOf func(*v1alpha1.Port) (project string, trunk bool)

// claims are for the ports that Ports ask for, but for those that are done with: taken already, or
// with a MAC that intent does not have. What the cluster itself refuses of what only asks is
// answered at once.
func (i *identities) claims(ctx context.Context, of askedOf, done func(resource.Ref) bool) []resource.Claim {
	i.mu.Lock()
	objects, more := i.asks.next(func(p *v1alpha1.Port) bool {
		project, _ := of(p)
		return done(borrowedRef(p, project))
	})
	var ports []*v1alpha1.Port
	for _, object := range objects {
		ports = append(ports, i.asks.ports[object])
	}
	i.mu.Unlock()
	if more {
		i.asked()
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var list []resource.Claim
	for _, p := range ports {
		if c := i.claim(ctx, p, of); c.Refused != "" && c.MAC == "" {
			i.answered(c, resource.Actual{}, c.Refused)
		} else {
			list = append(list, c)
		}
	}
	return list
}

func borrowedRef(p *v1alpha1.Port, project string) resource.Ref {
	return compile.BorrowedRef(p.Namespace+"/"+p.Name, p.Spec.NeutronPort).In(project)
}

// claim is for the port that a Port asks for. It proves to be the pod's by its device_id, which the
// program that made it has set: a Port alone, which users may make, is no proof.
func (i *identities) claim(ctx context.Context, p *v1alpha1.Port, of askedOf) resource.Claim {
	project, trunk := of(p)
	c := resource.Claim{
		Kind: resource.Port, ID: p.Spec.NeutronPort, By: targetOf(p).object(), Asker: string(p.UID),
		Ref: borrowedRef(p, project), MAC: p.Spec.MAC, Addresses: p.Spec.Addresses,
	}
	c.Device, c.Refused = i.device(ctx, p)
	c.Has = map[string][]any{
		"device_id": {c.Device}, "device_owner": {kuryr.DeviceOwner, ""}, "binding:host_id": {p.Spec.Node, ""},
		"network_id": {compile.NetworkRef(p.Spec.Network).In(project)},
	}
	if trunk { // Neutron itself sets the host and the owner
		c.Trunk = p.Spec.Node
		delete(c.Has, "binding:host_id")
		c.Has["device_owner"] = append(c.Has["device_owner"], resource.SubportOwner)
	}
	return c
}

// device is the UID, as its node knows it, of the pod that a Port is for, or why the pod cannot
// have a port on the Port's node.
func (i *identities) device(ctx context.Context, p *v1alpha1.Port) (uid, refused string) {
	if own := attachment.PortName(p.Spec.Pod.Name, p.Spec.Pod.Interface); p.Name != own {
		return "", fmt.Sprintf("the Port of interface %s of pod %s is %s", p.Spec.Pod.Interface, p.Spec.Pod.Name, own)
	}
	name, pod := p.Namespace+"/"+p.Spec.Pod.Name, &corev1.Pod{}
	there, err := i.Access.Find(ctx, p.Namespace, p.Spec.Pod.Name, pod)
	if err == nil && (!there || string(pod.UID) != p.Spec.Pod.UID) && p.Spec.MAC == "" {
		// The pod is new, and may not be known here yet.
		pod = &corev1.Pod{}
		err = i.Access.Live.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.Spec.Pod.Name}, pod)
	}
	switch {
	case err != nil:
		return "", fmt.Sprintf("pod %s cannot be read: %v", name, err)
	case string(pod.UID) != p.Spec.Pod.UID:
		return "", fmt.Sprintf("there is no pod %s with the UID %s", name, p.Spec.Pod.UID)
	case pod.Spec.NodeName != p.Spec.Node:
		return "", fmt.Sprintf("pod %s is on node %q, and node %q asks", name, pod.Spec.NodeName, p.Spec.Node)
	}
	return wellknown.PodUID(pod), ""
}

// answered takes what there is of a port that a Port asks for, and why the pod cannot have it.
func (i *identities) answered(c resource.Claim, a resource.Actual, refused string) {
	if c.MAC != "" {
		return // it has its answer
	}
	made := offer{asker: types.UID(c.Asker)}
	made.MAC, _ = a.Attributes["mac_address"].(string)
	made.Addresses = a.Addresses()
	if refused == "" && len(made.Addresses) == 0 {
		refused = "it has no address"
	}
	if refused != "" {
		made.NeutronOffer = v1alpha1.NeutronOffer{Refused: refused[:min(len(refused), maxRefused)]}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	p := i.asks.ports[c.By]
	if p == nil || p.UID != made.asker || p.Status.Offered != nil {
		return
	}
	i.asks.answers[c.By] = made
	i.changed(c.By)
}

// maxRefused is how long a reason may be.
const maxRefused = 1024
