// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"sync"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/intent"
)

// numbers holds the newest OpenFlow ports of this node's bridge. A Port gets its number before
// intent has the Port, and loses it after intent has lost it, so a reader of a State and then the
// numbers finds one for each Port of this node. nil has none.
type numbers struct {
	mu      sync.Mutex
	current *pipeline.Numbers
}

func newNumbers(attached []attachment.Attachment, uplinks map[string]uint32) *numbers {
	ports := map[string]uint32{}
	for _, at := range attached {
		ports[at.Key.String()] = at.OFPort
	}
	return &numbers{current: pipeline.NewNumbers(ports, uplinks)}
}

func (n *numbers) get() *pipeline.Numbers {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.current
}

func (n *numbers) set(port string, number uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.current = n.current.WithPort(port, number)
}

func (n *numbers) delete(port string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.current = n.current.WithoutPort(port)
}

func (n *numbers) setEgress(states map[pipeline.ExternalKey]pipeline.EgressState) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.current = n.current.WithEgress(states)
}

func (n *numbers) setNextHopsDown(down map[pipeline.NextHopKey]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.current = n.current.WithNextHopsDown(down)
}

func (n *numbers) setNeighbours(known map[pipeline.NeighbourKey]intent.MAC) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.current = n.current.WithNeighbours(known)
}
