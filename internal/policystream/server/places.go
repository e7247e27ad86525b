// SPDX-License-Identifier: Apache-2.0

package server

import (
	"slices"
	"sync"
)

// streamsPerNode are served at a time: one, and those of agents that have gone without closing
// theirs. A node's token can make the controller hold no more.
const streamsPerNode = 4

// places are of the streams that are served.
type places struct {
	mu   sync.Mutex
	node map[string][]chan struct{} // the oldest first
}

func newPlaces() *places { return &places{node: map[string][]chan struct{}{}} }

// enter takes a place of the node's, if need be that of the oldest: its channel is closed. Leave
// has to be called when the stream ends.
func (p *places) enter(node string) (taken <-chan struct{}, leave func()) {
	mine := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	list := append(p.node[node], mine)
	if len(list) > streamsPerNode {
		close(list[0])
		list = list[1:]
	}
	p.node[node] = list
	return mine, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		left := slices.DeleteFunc(p.node[node], func(c chan struct{}) bool { return c == mine })
		if p.node[node] = left; len(left) == 0 {
			delete(p.node, node)
		}
	}
}
