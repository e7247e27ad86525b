// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"coelan.io/coelan/internal/intent"
)

// counting are Views of one Rule with the number of changes so far as its ID. Like an Engine they
// are for one goroutine at a time, which the race detector checks.
type counting struct {
	changes  int
	pending  bool
	attached map[string]bool
}

func (c *counting) View(string) View {
	return View{Rules: []intent.Rule{{ID: fmt.Sprint(c.changes)}}}
}

func (c *counting) Attach(node string) View {
	c.attached[node] = true
	return c.View(node)
}

func (c *counting) Detach(node string) { delete(c.attached, node) }

func (c *counting) Deltas() map[string]Delta {
	deltas := map[string]Delta{}
	if c.pending {
		for node := range c.attached {
			deltas[node] = Delta{View: c.View(node)}
		}
	}
	c.pending = false
	return deltas
}

func (c *counting) NodesOf(intent.PolicyRef) []string {
	var nodes []string
	for node := range c.attached {
		nodes = append(nodes, node)
	}
	return nodes
}

func (c *counting) change() {
	c.changes++
	c.pending = true
}

// recorder records the changes that it receives. It has no lock, because the
// Publisher's is to suffice.
type recorder struct {
	views []string
	bases []uint64
}

func (r *recorder) Change(d Delta, b Basis) { r.note(d.View, b) }

// Begin lets other goroutines run: what they change must not come in between.
func (r *recorder) Begin(v View, b Basis) {
	r.note(v, b)
	runtime.Gosched()
}

func (r *recorder) note(v View, b Basis) {
	r.views = append(r.views, v.Rules[0].ID)
	r.bases = append(r.bases, b["Pod"].Seen)
}

// Subscribers that come and go while changes run get each change from their View on, once and in
// order, with the basis that belongs to it.
func TestSubscribersMissAndRepeatNothing(t *testing.T) {
	views := &counting{attached: map[string]bool{}}
	p := NewPublisher(views)
	p.Basis = func() Basis { return Basis{"Pod": {Seen: uint64(views.changes)}} }
	const changes, subscribers, turns = 2000, 6, 100
	var running sync.WaitGroup
	running.Go(func() {
		for range changes {
			p.Update((*counting).change)
		}
	})
	for i := range subscribers {
		running.Go(func() {
			node := fmt.Sprint("node-", i%2) // of each node several
			for range turns {
				r := &recorder{}
				cancel := p.Subscribe(node, r)
				for range rand.IntN(3) {
					p.Update((*counting).change)
				}
				cancel()
				first := r.bases[0]
				for j, got := range r.views {
					if want := first + uint64(j); got != fmt.Sprint(want) || r.bases[j] != want {
						t.Errorf("change %d from %d is %s of basis %d", j, first, got, r.bases[j])
						return
					}
				}
				p.NodesOf(intent.PolicyRef{})
			}
		})
	}
	running.Wait()
	if nodes := p.NodesOf(intent.PolicyRef{}); len(nodes) > 0 || len(p.subscribers) > 0 {
		t.Errorf("nodes %v and subscribers %v are left", nodes, p.subscribers)
	}
}

// While one subscriber of a node takes over from another, the first one's end does not end what the
// second one gets.
func TestSubscriberTakesOver(t *testing.T) {
	p := NewPublisher(&counting{attached: map[string]bool{}})
	first, second := &recorder{}, &recorder{}
	endFirst := p.Subscribe("a", first)
	p.Update((*counting).change)
	endSecond := p.Subscribe("a", second)
	p.Update((*counting).change)
	endFirst()
	p.Update((*counting).change)
	endSecond()
	p.Update((*counting).change)
	if got := fmt.Sprint(first.views, second.views); got != "[0 1 2] [1 2 3]" {
		t.Error("received", got)
	}
}
