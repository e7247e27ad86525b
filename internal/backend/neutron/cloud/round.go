// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"errors"
	"slices"

	"coelan.io/coelan/internal/backend/neutron/resource"
)

// maxCalls is how many calls a round makes: what is wanted may have changed meanwhile. maxSpare is
// how many of them make spare resources: a pod does not wait for many of these.
const (
	maxCalls = 50
	maxSpare = 3
)

// round makes the calls of one plan, or the first of them.
type round struct {
	*session
	have     *resource.Inventory
	want     *resource.Set
	found    func(resource.Resource, resource.Actual)
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
	spare := 0
	for _, c := range calls {
		if c.Spare && r.refusedBefore(c) {
			continue
		}
		if r.made == maxCalls || c.Spare && spare == maxSpare {
			r.left = true
			return nil
		}
		problems := len(r.problems)
		if err := r.one(ctx, c); err != nil {
			return err
		}
		r.made++
		if c.Spare {
			spare++
			for _, p := range r.problems[problems:] {
				r.refused[c.Ref] = p
			}
		}
	}
	return nil
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
	if was && !slices.Contains(r.problems, p) {
		r.problems = append(r.problems, p)
	}
	return was
}

// one makes one call. What Neutron refuses is a problem of the object.
func (r *round) one(ctx context.Context, c resource.Call) error {
	attributes, missing := r.resolve(c.Attributes)
	if c.Operation != resource.Delete && missing != nil || c.Operation == resource.Create && r.failed[c.Ref] {
		r.waits(c)
		return nil
	}
	if c.Ref.Kind == resource.Routes && c.ID == "" {
		router, there := r.have.Get(resource.Ref{Kind: resource.Router, Key: c.Ref.Key})
		if !there {
			r.waits(c)
			return nil
		}
		c.ID = router.ID
	}
	var a resource.Actual
	var err error
	switch c.Operation {
	case resource.Create:
		a, err = r.create(ctx, c.Ref, attributes)
	case resource.Update:
		if c.Was != (resource.Ref{}) || c.Adopts {
			attributes["description"] = r.owner(c.Ref)
		}
		a, err = r.change(ctx, c.Ref, c.ID, attributes)
	case resource.Delete:
		err = r.remove(ctx, c)
	}
	var refused *refusal
	switch {
	case err == nil && c.Operation == resource.Delete:
		r.have.Remove(c.Ref, c.ID)
		switch c.Ref.Kind {
		case resource.Router:
			r.have.Remove(resource.Ref{Kind: resource.Routes, Key: c.Ref.Key}, c.ID)
		case resource.SecurityGroup:
			r.have.RemoveRules(c.ID)
		}
	case err == nil && c.Ref.Kind == resource.SecurityGroup && c.Operation == resource.Create:
		r.set(c.Ref, a)
		return r.strip(ctx, a)
	case err == nil:
		r.have.Remove(c.Was, c.ID)
		r.set(c.Ref, a)
	case !errors.As(err, &refused):
		return err // what may have been made is looked for before it is made again
	case refused.gone && c.Operation == resource.Update:
		r.stale, r.left = true, true // or what it refers to is gone: the next round makes it
	default:
		// An interface that an unanswered call has made is refused.
		r.stale = r.stale || c.Ref.Kind == resource.Interface || refused.gone
		r.failed[c.Ref] = r.failed[c.Ref] || c.Operation == resource.Delete
		object := c.Object
		if object == "" {
			object = c.Ref.String()
		}
		r.problems = append(r.problems, resource.Problem{
			Object: object, Reason: refused.reason, Message: c.Ref.Kind.String() + " of Neutron: " + refused.text,
		})
	}
	return nil
}

// set notes what a call has made of a resource.
func (r *round) set(ref resource.Ref, a resource.Actual) {
	r.have.Set(ref, a)
	switch ref.Kind {
	case resource.Router:
		r.have.Set(resource.Ref{Kind: resource.Routes, Key: ref.Key}, routesOf(a))
	}
	if wanted, ok := r.want.Get(ref); ok && toldOf(wanted) {
		r.found(wanted, a)
	}
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
	for _, c := range calls {
		if err := r.one(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// waits says that an object waits for another's resource.
func (r *round) waits(c resource.Call) {
	message := c.Ref.Kind.String() + " of Neutron: what it replaces is still there"
	if _, missing := r.resolve(c.Attributes); missing != nil {
		message = c.Ref.Kind.String() + " of Neutron: waits for " + missing.String()
	}
	p := resource.Problem{Object: c.Object, Reason: "Waiting", Message: message}
	if !slices.Contains(r.problems, p) { // rules of a group wait for the same
		r.problems = append(r.problems, p)
	}
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
