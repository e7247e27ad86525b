// SPDX-License-Identifier: Apache-2.0

package programmed

import (
	"sync"

	"coelan.io/coelan/internal/controller/findings"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/trigger"
)

// verdict is what becomes of an object in the system behind a backend.
type verdict struct {
	unsupported string // what the system does not do of it; empty: it does all
	missing     string // why the system does not have it yet; empty: it has
}

// Verdicts are those of all FloatingIPs and Egresses that take effect, and of Ports of which the
// system does not do all. They say of an object only what the system has been compared with, so
// that a condition does not say for a moment that all is well. The methods are safe for concurrent
// use.
type Verdicts struct {
	mu sync.Mutex
	// wanted are what problems there are with the objects of the newest State; stale says that
	// others than those of the last judgement are wanted.
	wanted map[intent.PolicyRef]string
	stale  bool
	failed string // of the last judgement
	judged bool   // there was one
	all    map[intent.PolicyRef]verdict
	news   map[intent.PolicyKind]*news
}

// news are the objects of one kind to look at.
type news struct {
	wake    trigger.Trigger
	objects map[intent.PolicyRef]struct{}
}

// New returns Verdicts on nothing.
func New() *Verdicts {
	v := &Verdicts{all: map[intent.PolicyRef]verdict{}, news: map[intent.PolicyKind]*news{}}
	for _, kind := range []intent.Kind{intent.KindFloatingIP, intent.KindEgress, intent.KindPort} {
		v.news[intent.PolicyKind(kind)] = &news{trigger.New(), map[intent.PolicyRef]struct{}{}}
	}
	return v
}

// Want notes what the system is to have, and what it does not do of that, before it is compared.
func (v *Verdicts) Want(s *intent.State, problems []findings.Finding) {
	wanted := map[intent.PolicyRef]string{}
	for f := range s.FloatingIPs().All() {
		wanted[findings.RefTo(intent.KindFloatingIP, f.Name)] = ""
	}
	for e := range s.EgressPaths().All() {
		wanted[findings.RefTo(intent.KindEgress, e.Name)] = ""
	}
	for _, p := range problems {
		if ref := findings.Ref(p.Object); v.news[ref.Kind] != nil {
			wanted[ref] = p.Message
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.wanted, v.stale = wanted, true
}

// Judge notes what came of a comparison; nil: the system has all. What it had before an error it
// still has.
func (v *Verdicts) Judge(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.wanted == nil {
		return // the system was away before it was known what it is to have
	}
	failed := ""
	if err != nil {
		failed = err.Error()
	}
	if !v.stale && v.judged && v.failed == failed {
		return
	}
	all := make(map[intent.PolicyRef]verdict, len(v.wanted))
	for ref, unsupported := range v.wanted {
		before, known := v.all[ref]
		now := verdict{unsupported: unsupported, missing: failed}
		if known && before.missing == "" {
			now.missing = ""
		}
		if all[ref] = now; !known || before != now {
			v.look(ref)
		}
	}
	for ref := range v.all {
		if _, still := all[ref]; !still {
			v.look(ref)
		}
	}
	if !v.judged {
		for _, n := range v.news {
			n.wake.Fire() // for those that have waited
		}
	}
	v.all, v.stale, v.failed, v.judged = all, false, failed, true
}

// look asks for an object to be looked at; v.mu is held.
func (v *Verdicts) look(ref intent.PolicyRef) {
	n := v.news[ref.Kind]
	n.objects[ref] = struct{}{}
	n.wake.Fire()
}

// of is the verdict on an object; nil if there is none. Before the first judgement nothing is
// known: then the object is asked for again.
func (v *Verdicts) of(ref intent.PolicyRef) (found *verdict, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.judged {
		v.news[ref.Kind].objects[ref] = struct{}{}
		return nil, false
	}
	if of, is := v.all[ref]; is {
		return &of, true
	}
	return nil, true
}

// take returns the objects of a kind to look at.
func (v *Verdicts) take(kind intent.PolicyKind) map[intent.PolicyRef]struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	list := v.news[kind].objects
	v.news[kind].objects = map[intent.PolicyRef]struct{}{}
	return list
}
