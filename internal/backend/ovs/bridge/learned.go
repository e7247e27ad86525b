// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"errors"
	"fmt"
	"slices"

	"coelan.io/coelan/openflow"
)

// notLearned finds a flow that Sync would not find again, since it leaves the flows
// of its table alone.
func (p *plan) notLearned(learned func(table uint8) bool) error {
	if learned == nil {
		return nil
	}
	for _, r := range slices.Concat(p.flows.added, p.flows.changed) {
		if learned(r.spec.Table) {
			return &Refused{r.owner, r.spec.String(), fmt.Errorf("only packets make flows of table %d", r.spec.Table)}
		}
	}
	return nil
}

// learnedFrom is where a learn action puts flows, and what names them there.
type learnedFrom struct {
	table  uint8
	cookie uint64
}

// Learn adds a flow as a packet does. Some flow must have a learn action with that
// table and cookie. If all of these are to delete what they learned, the flow goes
// when the last of them does.
func (f *Fake) Learn(flow openflow.Flow) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.rules.learns(learnedFrom{flow.Table, flow.Cookie}, false) {
		return fmt.Errorf("no flow learns flows of table %d with cookie %#x", flow.Table, flow.Cookie)
	}
	if err := errors.Join(f.checkAlone(&flow), f.checkReferences(f.rules, &flow)); err != nil {
		return err
	}
	f.rules.flows[flow.Key()] = flow
	return nil
}

// learns says whether any flow learns these flows, and perhaps deletes them later.
func (r fakeRules) learns(what learnedFrom, deletes bool) bool {
	for _, flow := range r.flows {
		for a := range learnActions(&flow) {
			if (learnedFrom{a.Table, a.Cookie}) == what && (a.DeleteLearned || !deletes) {
				return true
			}
		}
	}
	return false
}

// forget deletes what the flow's learn actions have learned, unless another flow still
// learns the same.
func (r fakeRules) forget(gone *openflow.Flow) {
	for a := range learnActions(gone) {
		what := learnedFrom{a.Table, a.Cookie}
		if !a.DeleteLearned || r.learns(what, true) {
			continue
		}
		for key, flow := range r.flows {
			if flow.Table == what.table && flow.Cookie == what.cookie {
				delete(r.flows, key)
			}
		}
	}
}

func learnActions(f *openflow.Flow) func(func(openflow.Learn) bool) {
	return func(yield func(openflow.Learn) bool) {
		for a := range actionsOf(f) {
			if l, ok := a.(openflow.Learn); ok && !yield(l) {
				return
			}
		}
	}
}
