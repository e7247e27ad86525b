// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"coelan.io/coelan/internal/backend/neutron/resource"
)

// maxCalls is how many calls a round makes: what is wanted may have changed meanwhile. parallel is
// how many of them are made at once, and how many make spare resources.
const (
	maxCalls = 50
	parallel = 4
)

// round makes the calls of one plan, or the first of them.
type round struct {
	*session
	have     *resource.Inventory
	want     *resource.Set
	tell     *teller
	outdated func() bool // something else is wanted by now, for longer than a round goes on
	problems []resource.Problem
	// failed are resources that could not be deleted: others of their Refs are not made yet.
	failed map[resource.Ref]bool
	left   bool // there are more calls to make
	made   int  // calls that had an answer
	// stale says that have may not be what there is.
	stale bool
}

// run makes calls, and brings have to what they did. An error is an *outage.
func (r *round) run(ctx context.Context, calls []resource.Call) error {
	calls, r.left = r.first(calls)
	more := false
	for len(calls) > 0 {
		if r.over() {
			r.left = true
			return nil
		}
		n := together(calls)
		perform, now := r.atOnce, calls[:n]
		switch {
		case onTrunk(calls[0]):
			perform = r.inOneCall
		case newRule(calls[0]):
			perform = r.rulesInOneCall
		case calls[0].Spare:
			now, more = r.few(now)
		}
		if err := perform(ctx, now); err != nil || more {
			r.left = r.left || more
			return err
		}
		calls = calls[n:]
	}
	return nil
}

// few are those of the calls for spare resources that this round makes, and whether there are more:
// a pod does not wait for them. Those that cannot be made now are not counted.
func (r *round) few(calls []resource.Call) (now []resource.Call, more bool) {
	for _, c := range calls {
		if len(now) == parallel {
			return now, true
		}
		if _, ready := r.prepare(&c); ready {
			now = append(now, c)
		}
	}
	return now, false
}

// over reports whether the round ends, though it has calls to make: what is wanted now may need
// others first. Each round makes some.
func (r *round) over() bool { return r.made > 0 && r.outdated() }

// first are the calls of this round, and whether there are more to make. Those that a round before
// this one has made in vain do not keep others from being made.
func (r *round) first(calls []resource.Call) (now []resource.Call, left bool) {
	made, as := 0, 0 // calls, and rules of the last one
	for _, c := range calls {
		if r.inVain(c) || c.Spare && r.refusedBefore(c) {
			continue
		}
		as++
		first := len(now) == 0 || !newRule(c) || !alike(c, now[len(now)-1]) || as > resource.RulesOfCall
		if first {
			as = 1
		}
		if made == maxCalls && first {
			return now, true
		}
		if first && !(c.Spare && !onTrunk(c)) {
			made++
		}
		now = append(now, c)
	}
	return now, false
}

// together is how many of the first calls are made at once, or as one.
func together(calls []resource.Call) int {
	n := 1
	for n < len(calls) && alike(calls[0], calls[n]) && !(newRule(calls[0]) && n == resource.RulesOfCall) {
		n++
	}
	return n
}

// alike reports whether two calls do the same to resources that do not refer to each other: to
// ports, or to rules of one new group.
func alike(a, b resource.Call) bool {
	if a.Ref.Kind == resource.Port {
		return b.Ref.Kind == resource.Port && a.Operation == b.Operation && a.Spare == b.Spare && a.Trunk == b.Trunk
	}
	return newRule(a) && newRule(b) && a.Attributes["security_group_id"] == b.Attributes["security_group_id"]
}

// answer is what came of a call.
type answer struct {
	resource.Call
	actual resource.Actual
	err    error
}

// atOnce makes calls of which none depends on another, some at once. When Neutron cannot be used,
// no further ones are made, and what is under way is waited for: it may have its effect.
func (r *round) atOnce(ctx context.Context, calls []resource.Call) error {
	answers := make(chan answer, parallel)
	var away error
	for running := 0; ; {
		more := len(calls) > 0 && away == nil && !r.over()
		if running == 0 && !more {
			break
		}
		if running < parallel && more {
			c := calls[0]
			calls = calls[1:]
			if attributes, ready := r.prepare(&c); ready {
				running++
				doubtful := r.doubtful[c.Ref]
				go func() {
					a, err := r.call(ctx, c, attributes, doubtful)
					answers <- answer{c, a, err}
				}()
			}
			continue
		}
		a := <-answers
		running--
		away = longer(away, r.finish(ctx, a))
	}
	r.left = r.left || len(calls) > 0
	return away
}

// oneByOne makes calls one after the other.
func (r *round) oneByOne(ctx context.Context, calls []resource.Call) error {
	for _, c := range calls {
		if err := r.atOnce(ctx, []resource.Call{c}); err != nil {
			return err
		}
	}
	return nil
}

// longer is of two errors, each an *outage or none, the one that asks for more patience.
func longer(a, b error) error {
	var first, second *outage
	if errors.As(a, &first) && errors.As(b, &second) && first.after < second.after {
		return b
	}
	return cmp.Or(a, b)
}

// refusedBefore reports whether Neutron has refused a spare resource, or for its quota another one,
// since all was read: that is still a problem, and not tried again until then.
func (r *round) refusedBefore(c resource.Call) bool {
	p, was := r.refused[c.Ref]
	for _, other := range r.refused {
		if !was && other.Reason == reasonQuota {
			p, was = other, true
		}
	}
	if was {
		r.say(p)
	}
	return was
}

// prepare completes a call and returns its attributes; false: it is not made in this attempt.
func (r *round) prepare(c *resource.Call) (attributes map[string]any, ready bool) {
	attributes, missing := r.resolve(c.Attributes)
	if r.absent(*c) {
		r.giveUp(*c, noProject(c.Object, c.Ref.Project))
		return nil, false
	}
	if c.Operation != resource.Delete && missing != nil || c.Operation == resource.Create && r.failed[c.Ref] {
		r.waits(*c)
		return nil, false
	}
	if why, full := r.attempt.full[quotaOf(*c)]; full && c.Operation == resource.Create {
		r.refuse(*c, why)
		return nil, false
	}
	if c.Ref.Kind == resource.Routes && c.ID == "" {
		router, there := r.have.Get(resource.Ref{Kind: resource.Router, Key: c.Ref.Key})
		if !there {
			r.waits(*c)
			return nil, false
		}
		c.ID = router.ID
	}
	if _, on := r.have.Subport(c.ID); on && c.GivesBack && attributes["device_id"] != nil {
		r.giveUp(*c, resource.Problem{}) // of why it has not left the trunk something is said
		return nil, false
	}
	if c.Was != (resource.Ref{}) || c.Adopts || c.Owed != (resource.Owed{}) {
		attributes["description"] = r.cluster.Owner(resource.Describe(c.Ref, c.Owed))
	}
	return attributes, true
}

// finish takes what came of a call. What Neutron refuses is a problem of the object.
func (r *round) finish(ctx context.Context, a answer) error {
	if a.Operation == resource.Create {
		r.note(a.err, a.Ref)
	}
	a.err = r.countUnanswered(ctx, a.Call, a.err)
	var refused *refusal
	r.pools = r.pools || a.Ref.Kind == resource.SubnetPool
	switch {
	case a.err == nil && (a.Operation == resource.Delete || a.GivesBack):
		r.have.Remove(a.Ref, a.ID)
		r.freed(a.Call)
		r.attempt.freed(quotaOf(a.Call))
		switch a.Ref.Kind {
		case resource.Router:
			r.have.Remove(resource.Ref{Kind: resource.Routes, Key: a.Ref.Key}, a.ID)
		case resource.SecurityGroup:
			r.have.RemoveRules(a.ID)
		}
	case a.err == nil:
		r.have.Remove(a.Was, a.ID)
		r.set(a.Ref, a.actual)
		r.freed(a.Call)
	case !errors.As(a.err, &refused):
		// What may have been made is looked for before it is made again. What may have been given
		// back may be wanted again, and a floating IP may lead elsewhere.
		r.stale = r.stale || a.GivesBack || a.Ref.Kind == resource.FloatingIP
		r.mayLead(a.Call)
		return a.err
	case refused.gone && a.Operation != resource.Delete && r.lookAgain(a.Ref):
		r.left = true // it, or what it refers to, is gone: the next round makes it
	default:
		// What an unanswered call has made is refused: a router's place, or a rule.
		if a.Ref.Kind == resource.Interface || a.Ref.Kind == resource.Association || refused.gone ||
			newRule(a.Call) && refused.reason == reasonRefused {
			r.lookAgain(a.Ref)
		}
		r.failed[a.Ref] = r.failed[a.Ref] || a.Operation == resource.Delete
		if refused.uncertain {
			r.mayLead(a.Call)
		}
		r.expose(a.Frees)
		r.refuse(a.Call, refused)
	}
	r.made++
	if a.err == nil && a.Ref.Kind == resource.SecurityGroup && a.Operation == resource.Create {
		return r.strip(ctx, a.actual)
	}
	return nil
}

// freed notes what a call has freed.
func (r *round) freed(c resource.Call) {
	if c.Frees != "" {
		r.tell.freed(c.Frees)
	}
}

// mayLead notes that a call of which it is not known what it has done may have a floating IP lead
// to a port.
func (r *round) mayLead(c resource.Call) {
	if attributes, missing := r.resolve(c.Attributes); c.Ref.Kind == resource.FloatingIP && missing == nil {
		port, _ := attributes["port_id"].(string)
		r.expose(port)
	}
}

// expose notes that a floating IP leads to a port, whatever is wanted. If an object waits for the
// port, the next round makes another one.
func (r *round) expose(port string) {
	if port != "" {
		r.have.Expose(port)
		_, waits := r.tell.withheld[port]
		r.left = r.left || waits
	}
}

// refuse says what Neutron refuses.
func (r *round) refuse(c resource.Call, why *refusal) {
	object := c.Object
	if object == "" {
		object = c.Ref.String()
	}
	p := resource.Problem{
		Object: object, Reason: why.reason, Message: c.Ref.Kind.String() + " of Neutron: " + why.about(c.Ref.Kind),
	}
	r.giveUp(c, p)
	if why.reason == reasonQuota {
		r.attempt.full[quotaOf(c)] = why
	}
	if c.Spare {
		r.refused[c.Ref] = p
	} else if why.reason == reasonQuota && c.Ref.Kind == resource.Port && c.Ref.Project == "" {
		r.short = true
	}
}

// say adds a problem, once.
func (r *round) say(p resource.Problem) {
	if !slices.Contains(r.problems, p) {
		r.problems = append(r.problems, p)
	}
}

// set notes what a call has made of a resource.
func (r *round) set(ref resource.Ref, a resource.Actual) {
	r.owned(ref.Kind, &a)
	r.have.Set(ref, a)
	switch ref.Kind {
	case resource.Router:
		r.have.Set(resource.Ref{Kind: resource.Routes, Key: ref.Key}, routesOf(a))
	}
	r.tell.of(ref)
}

// strip deletes the rules that Neutron gives a new security group, which let everything out. Those
// that are left when a call fails, the next plan deletes.
func (r *round) strip(ctx context.Context, group resource.Actual) error {
	rules, _ := group.Attributes["security_group_rules"].([]any)
	var calls []resource.Call
	for _, rule := range rules {
		attributes, _ := rule.(map[string]any)
		a := actual(attributes)
		description, _ := attributes["description"].(string)
		if _, ours := r.cluster.Owned(description); ours {
			continue
		}
		c := resource.Call{Operation: resource.Delete, Ref: resource.ForeignRule(a.ID), ID: a.ID}
		r.have.Set(c.Ref, a)
		calls = append(calls, c)
	}
	return r.oneByOne(ctx, calls)
}

// waits says that an object waits for another's resource, or for one of its own of which it is not
// said yet why it is not there.
func (r *round) waits(c resource.Call) {
	message := c.Ref.Kind.String() + " of Neutron: what it replaces is still there"
	if _, missing := r.resolve(c.Attributes); missing != nil {
		own, _ := r.want.Get(*missing)
		said := func(p resource.Problem) bool { return p.Object == c.Object }
		if own.Object == c.Object && slices.ContainsFunc(r.problems, said) {
			r.giveUp(c, resource.Problem{})
			return
		}
		message = c.Ref.Kind.String() + " of Neutron: waits for " + missing.String()
	}
	// Rules of a group wait for the same.
	r.giveUp(c, resource.Problem{Object: c.Object, Reason: "Waiting", Message: message})
}

// resolve is attributes with ids in place of Refs, or the first Ref that has none.
func (r *round) resolve(attributes resource.Attributes) (body map[string]any, missing *resource.Ref) {
	resolved, _ := resource.Resolve(attributes, func(ref resource.Ref) (string, bool) {
		a, there := r.have.Get(ref)
		return a.ID, there
	}).(map[string]any)
	if ref, found := resource.Unresolved(resolved); found {
		return nil, &ref
	}
	return resolved, nil
}
