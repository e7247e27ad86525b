// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"slices"

	"coelan.io/coelan/internal/intent"
)

// Engine knows all Namespaces, Nodes, Endpoints and Policies, and from these what each node has to know.
//
// Objects may come in any order, more than once, and refer to others that are not there yet: the Views depend only on what is
// there now. What is given to the Engine must not be changed afterwards. One goroutine at a time may use it.
type Engine struct {
	*reference
	attached map[string]View
}

// NewEngine returns one that knows nothing.
func NewEngine() *Engine {
	return &Engine{newReference(), map[string]View{}}
}

// SetNamespace adds a Namespace or replaces the one of its name. Until a Namespace is known no selector of namespaces selects
// it, and Endpoints in it are closed.
func (e *Engine) SetNamespace(n Namespace) { e.namespaces[n.Name] = n }

// DeleteNamespace forgets a Namespace.
func (e *Engine) DeleteNamespace(name string) { delete(e.namespaces, name) }

// SetNode adds a Node or replaces the one of its name.
func (e *Engine) SetNode(n Node) { e.nodes[n.Name] = n }

// DeleteNode forgets a Node. Endpoints on it stay.
func (e *Engine) DeleteNode(name string) { delete(e.nodes, name) }

// SetEndpoint adds an Endpoint or replaces the one of its Key.
func (e *Engine) SetEndpoint(p Endpoint) { e.endpoints[p.Key] = p }

// DeleteEndpoint forgets an Endpoint.
func (e *Engine) DeleteEndpoint(key string) { delete(e.endpoints, key) }

// SetPolicy adds a Policy or replaces the one of its Ref.
func (e *Engine) SetPolicy(p Policy) { e.policies[p.Ref] = p }

// DeletePolicy forgets a Policy.
func (e *Engine) DeletePolicy(ref intent.PolicyRef) { delete(e.policies, ref) }

// View returns what the node of that name has to know, whether or not there is such a Node.
func (e *Engine) View(node string) View { return e.view(node) }

// Attach returns the node's View and has Deltas tell what changes from now on. It may be called again for the same node.
func (e *Engine) Attach(node string) View {
	v := e.view(node)
	e.attached[node] = v
	return v
}

// Detach ends what Attach began.
func (e *Engine) Detach(node string) { delete(e.attached, node) }

// Deltas returns what has changed since the last call, by name of the attached nodes for which something has.
func (e *Engine) Deltas() map[string]Delta {
	deltas := map[string]Delta{}
	for node, old := range e.attached {
		now := e.view(node)
		e.attached[node] = now
		if d := e.delta(old, now); !d.Empty() {
			deltas[node] = d
		}
	}
	return deltas
}

// NodesOf returns the names of the nodes that have Endpoints that the Policy is for, sorted.
func (e *Engine) NodesOf(ref intent.PolicyRef) []string {
	p, ok := e.policies[ref]
	if !ok {
		return nil
	}
	nodes := map[string]bool{}
	for _, ep := range e.endpoints {
		if ep.Node != "" && e.governs(p, ep) {
			nodes[ep.Node] = true
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}
