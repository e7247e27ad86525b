// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"maps"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend/neutron/compile"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
)

// foundRouter takes the router that Neutron has of a Router, and of others that are one with it.
func (r *Runner) foundRouter(of resource.Resource, a resource.Actual) {
	for other := range r.compiled.Routers().All() {
		if compile.RouterObject(compile.RouterOf(other)) == of.Object {
			r.identities.foundOther(compile.RouterObject(other.Name), a.ID)
		}
	}
}

// foundFloatingIP takes the floating IP that Neutron has of a FloatingIP. One with another address
// was of the last object of that name.
func (r *Runner) foundFloatingIP(of resource.Resource, a resource.Actual) {
	const address = "floating_ip_address"
	if a.Attributes[address] == of.Fixed[address] {
		r.identities.foundOther(of.Object, a.ID)
	}
}

// foundOther takes the id of the router, or the floating IP, that Neutron has of an object.
func (i *identities) foundOther(object, id string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.lookedOthers[object] = id
	if i.others[object] != id {
		i.others[object] = id
		i.changed(object)
	}
}

// forgetOthers forgets what was not found since the last call: it is gone. The caller holds mu.
func (i *identities) forgetOthers() {
	for object := range i.others {
		if i.lookedOthers[object] == "" {
			delete(i.others, object)
			i.changed(object)
		}
	}
	clear(i.lookedOthers)
}

// setNodePorts takes the Nodes that have a port. The others have lost theirs. The caller holds mu.
func (i *identities) setNodePorts(now map[string]bool) {
	for object, o := range i.objects {
		if o.kind == intent.KindNode && !now[object] {
			delete(i.ports, object)
			i.queue.Add(o.target)
		}
	}
	i.nodePorts = maps.Clone(now)
}

// nodePorts are the Nodes that have a port in Neutron, by what people call them.
func nodePorts(state *intent.State, have *resource.Inventory) map[string]bool {
	there := map[string]bool{}
	for n := range state.Nodes().All() {
		if _, ok := have.Get(compile.NodePortRef(n.Name)); ok {
			there[compile.NodeObject(n.Name)] = true
		}
	}
	return there
}

// writeOther writes into a Router or a FloatingIP which router, or floating IP, it is. Nothing of
// what it says is taken away before all was compared.
func (i *identities) writeOther(ctx context.Context, t target) error {
	i.mu.Lock()
	id, compared := i.others[t.object()], i.compared
	i.mu.Unlock()
	var o client.Object
	var says **v1alpha1.NeutronResource
	if t.kind == intent.KindRouter {
		router := &v1alpha1.Router{}
		o, says = router, &router.Status.Neutron
	} else {
		floating := &v1alpha1.FloatingIP{}
		o, says = floating, &floating.Status.Neutron
	}
	if err := i.Access.Get(ctx, t.key(), o); err != nil {
		return client.IgnoreNotFound(err)
	}
	if *says == nil && id == "" || *says != nil && ((*says).ID == id || id == "" && !compared) {
		return nil
	}
	status := map[string]any{"neutron": nil}
	if id != "" {
		status["neutron"] = v1alpha1.NeutronResource{ID: id}
	}
	change := map[string]any{"metadata": map[string]any{"uid": o.GetUID()}, "status": status}
	return patch(change, func(p client.Patch) error { return i.Access.Status().Patch(ctx, o, p) })
}
