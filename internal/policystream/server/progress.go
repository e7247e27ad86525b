// SPDX-License-Identifier: Apache-2.0

package server

import (
	"iter"
	"maps"
	"slices"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
)

// progress is which policies are in effect on an agent's node, as they are now.
type progress struct {
	tally    *tally
	rules    map[string]intent.PolicyRef   // the node's, by ID
	subjects map[string][]intent.PolicyRef // the policies of each, by key
	uses     map[intent.PolicyRef]int      // of subjects
	// open are those that have changed since: by the version that the change is in,
	// 0: it is pending.
	open    map[intent.PolicyRef]uint64
	counted map[intent.PolicyRef]bool // in the tally; nil: the agent has left
	refused map[intent.PolicyRef]bool // by the switch
}

func newProgress(t *tally) progress {
	return progress{
		tally: t, rules: map[string]intent.PolicyRef{}, subjects: map[string][]intent.PolicyRef{},
		uses: map[intent.PolicyRef]int{}, open: map[intent.PolicyRef]uint64{}, counted: map[intent.PolicyRef]bool{},
		refused: map[intent.PolicyRef]bool{},
	}
}

// change takes note of what a change is about. That a group has got another address is not counted
// as a change of the policies that name it.
func (p progress) change(d policy.Delta) {
	touched := map[intent.PolicyRef]bool{}
	for _, r := range d.Rules {
		p.rules[r.ID] = r.Policy
		touched[r.Policy] = true
	}
	for _, s := range d.Subjects {
		p.subject(s.Key, p.policies(s), touched)
	}
	for _, key := range d.RemovedSubjects {
		p.subject(key, nil, touched)
	}
	for _, id := range d.RemovedRules {
		if ref, ok := p.rules[id]; ok {
			touched[ref] = true
			delete(p.rules, id)
		}
	}
	for ref := range touched {
		p.open[ref] = 0
	}
	p.review(maps.Keys(touched))
}

// policies are those that govern the Subject, each once.
func (p progress) policies(s intent.Subject) []intent.PolicyRef {
	list := slices.Concat(s.IngressIsolation, s.EgressIsolation, s.SecurityGroups)
	for _, id := range s.Rules {
		if ref, ok := p.rules[id]; ok {
			list = append(list, ref)
		}
	}
	slices.SortFunc(list, intent.PolicyRef.Compare)
	return slices.Compact(list)
}

func (p progress) subject(key string, policies []intent.PolicyRef, touched map[intent.PolicyRef]bool) {
	for _, ref := range p.subjects[key] {
		touched[ref] = true
		if p.uses[ref]--; p.uses[ref] == 0 {
			delete(p.uses, ref)
		}
	}
	for _, ref := range policies {
		touched[ref] = true
		p.uses[ref]++
	}
	if policies == nil {
		delete(p.subjects, key)
	} else {
		p.subjects[key] = policies
	}
}

// taken says that all that was pending is in that version.
func (p progress) taken(version uint64) {
	for ref, in := range p.open {
		if in == 0 {
			p.open[ref] = version
		}
	}
}

func (p progress) programmed(version uint64) {
	var done []intent.PolicyRef
	for ref, in := range p.open {
		if in != 0 && in <= version {
			done = append(done, ref)
			delete(p.open, ref)
		}
	}
	p.review(slices.Values(done))
}

// refuse has these policies not count, and others again; false if the agent has left.
func (p *progress) refuse(list []policy.Refusal) bool {
	if p.counted == nil {
		return false
	}
	before := p.refused
	p.refused = make(map[intent.PolicyRef]bool, len(list))
	for _, r := range list {
		p.refused[r.Object] = true
	}
	p.review(maps.Keys(before))
	p.review(maps.Keys(p.refused))
	return true
}

// leave is the end.
func (p *progress) leave() {
	for ref := range p.counted {
		p.tally.add(ref, -1)
	}
	p.counted = nil
}

// review brings the tally up to date.
func (p progress) review(refs iter.Seq[intent.PolicyRef]) {
	if p.counted == nil {
		return
	}
	for ref := range refs {
		_, open := p.open[ref]
		done := !open && p.uses[ref] > 0 && !p.refused[ref]
		switch {
		case done && !p.counted[ref]:
			p.counted[ref] = true
			p.tally.add(ref, 1)
		case !done && p.counted[ref]:
			delete(p.counted, ref)
			p.tally.add(ref, -1)
		}
	}
}
