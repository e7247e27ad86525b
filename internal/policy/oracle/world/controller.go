// SPDX-License-Identifier: Apache-2.0

package world

import (
	"maps"
	"slices"

	"pgregory.net/rapid"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/internal/translate/policies"
)

// Controller is what the controller makes of Worlds, and what the nodes know of it.
type Controller struct {
	engine    *policy.Engine
	endpoints *policies.Endpoints
	has       map[string]thing
	stores    map[string]*intent.Store // by node
}

// thing is an object that the controller watches.
type thing struct{ set, remove func() }

// NewController returns one that knows nothing.
func NewController() *Controller {
	return &Controller{
		engine: policy.NewEngine(), endpoints: policies.NewEndpoints(), has: map[string]thing{},
		stores: map[string]*intent.Store{},
	}
}

// Follow sends the controller all present objects, and deletions of others, in any order, and sends
// the nodes the changes: at the end, and once before.
func (c *Controller) Follow(t *rapid.T, w *World) {
	things := c.things(t, w)
	var steps []func()
	for _, name := range slices.Sorted(maps.Keys(c.has)) {
		if _, is := things[name]; !is {
			steps = append(steps, c.has[name].remove)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(things)) {
		steps = append(steps, things[name].set)
	}
	c.has = things
	early := rapid.IntRange(0, len(steps)).Draw(t, "tells early")
	for i, step := range rapid.Permutation(steps).Draw(t, "order") {
		if i == early {
			c.tell(t, w)
		}
		step()
	}
	c.tell(t, w)
}

func (c *Controller) things(t *rapid.T, w *World) map[string]thing {
	things := map[string]thing{}
	add := func(p policy.Policy, problems []translate.Problem) {
		if len(problems) > 0 {
			t.Fatalf("%s: %v", p.Ref, problems)
		}
		things[p.Ref.String()] = thing{func() { c.engine.SetPolicy(p) }, func() { c.engine.DeletePolicy(p.Ref) }}
	}
	for _, o := range w.NetworkPolicies {
		add(policies.NetworkPolicy(o))
	}
	for _, o := range w.ClusterNetworkPolicies {
		add(policies.ClusterNetworkPolicy(o))
	}
	for _, o := range w.SecurityGroups {
		add(policies.SecurityGroup(o))
	}
	for _, o := range w.Namespaces {
		things["namespace "+o.Name] = thing{
			func() { c.engine.SetNamespace(policies.Namespace(o)) }, func() { c.engine.DeleteNamespace(o.Name) },
		}
	}
	for _, o := range w.Nodes {
		things["node "+o.Name] = thing{
			func() { c.engine.SetNode(policies.Node(o, nil)); c.endpoints.SetNode(o) },
			func() { c.engine.DeleteNode(o.Name); c.endpoints.DeleteNode(o.Name) },
		}
	}
	for _, o := range w.blocks {
		things["block "+o.Name] = thing{func() { c.endpoints.SetBlock(o) }, func() { c.endpoints.DeleteBlock(o.Name) }}
	}
	for _, o := range w.routers {
		things["router "+o.Name] = thing{func() {
			c.endpoints.SetRouter(o)
		}, func() { c.endpoints.DeleteRouter(o.Name) }}
	}
	for _, o := range w.networks {
		things["network "+o.Name] = thing{func() {
			c.endpoints.SetNetwork(o)
		}, func() { c.endpoints.DeleteNetwork(o.Name) }}
	}
	for _, o := range w.Pods {
		things["pod "+o.Namespace+"/"+o.Name] = thing{func() {
			c.endpoints.SetPod(o)
		}, func() { c.endpoints.DeletePod(o.Namespace, o.Name) }}
	}
	for _, o := range slices.Concat(w.Ports, w.podPorts) {
		things["port "+o.Namespace+"/"+o.Name] = thing{func() {
			c.endpoints.SetPort(o)
		}, func() { c.endpoints.DeletePort(o.Namespace, o.Name) }}
	}
	return things
}

// tell gives the nodes what has changed for them; all that there is, if they are new.
func (c *Controller) tell(t *rapid.T, w *World) {
	set, gone := c.endpoints.Changes()
	for _, key := range gone {
		c.engine.DeleteEndpoint(key)
	}
	for _, e := range set {
		c.engine.SetEndpoint(e)
	}
	nodes, problems := translate.Nodes(w.Nodes)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	deltas, names := c.engine.Deltas(), []string{policy.AllNodes}
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	for _, name := range names {
		store, delta := c.stores[name], deltas[name]
		if store == nil {
			store, delta = intent.NewStore(), policy.Delta{View: c.engine.Attach(name)}
			c.stores[name] = store
		}
		_, err := store.Update(func(tx *intent.Tx) error {
			tx.SetLocal(intent.Local{Node: name, PolicyMode: intent.EnforcedPolicies})
			tx.ReplaceNodes(nodes)
			delta.Apply(tx)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// State is what a node knows, or all of them together (policy.AllNodes). Of Ports there are none.
func (c *Controller) State(node string) *intent.State { return c.stores[node].State() }

// Objects are those of the State of a node of the World.
func (w *World) Objects(t *rapid.T, node string) intent.Objects {
	c := NewController()
	c.Follow(t, w)
	s := c.State(node)
	return intent.Objects{
		Local: s.Local(), Nodes: slices.Collect(s.Nodes().All()),
		Rules: slices.Collect(s.Rules().All()), Subjects: slices.Collect(s.Subjects().All()),
		Peers: slices.Collect(s.Peers().All()),
	}
}

// DrawNext draws a World that follows on one: with other pods, or other policies, or
// both. Some policies stay.
func (w *World) DrawNext(t *rapid.T) *World {
	next := Draw(t)
	policies := next.Cluster
	if rapid.Bool().Draw(t, "pods and namespaces stay") {
		stays := *w
		next = &stays
		next.NetworkPolicies, next.ClusterNetworkPolicies, next.SecurityGroups = policies.NetworkPolicies,
			policies.ClusterNetworkPolicies, policies.SecurityGroups
	}
	switch pick(t, "policies stay", "none", "all", "all", "some") {
	case "all":
		next.NetworkPolicies, next.ClusterNetworkPolicies, next.SecurityGroups = w.NetworkPolicies,
			w.ClusterNetworkPolicies, w.SecurityGroups
	case "some":
		next.ClusterNetworkPolicies = w.ClusterNetworkPolicies[:len(w.ClusterNetworkPolicies)/2]
		next.SecurityGroups = w.SecurityGroups
	}
	return next
}
