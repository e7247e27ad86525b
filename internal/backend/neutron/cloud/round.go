// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"errors"

	"coelan.io/coelan/internal/backend/neutron/resource"
)

// maxCalls is how many calls a round makes: what is wanted may have changed meanwhile.
const maxCalls = 50

// round makes the calls of one plan, or the first of them.
type round struct {
	*session
	have     *resource.Inventory
	found    func(resource.Ref, resource.Actual)
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
	for ; len(calls) > 0; r.made++ {
		if r.made == maxCalls {
			r.left = true
			return nil
		}
		if err := r.one(ctx, calls[0]); err != nil {
			return err
		}
		calls = calls[1:]
	}
	return nil
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
		a, err = r.change(ctx, c.Ref, c.ID, attributes)
	case resource.Delete:
		err = r.remove(ctx, c)
	}
	var refused *refusal
	switch {
	case err == nil && c.Operation == resource.Delete:
		r.have.Remove(c.Ref, c.ID)
		if c.Ref.Kind == resource.Router {
			r.have.Remove(resource.Ref{Kind: resource.Routes, Key: c.Ref.Key}, c.ID)
		}
	case err == nil:
		r.set(c.Ref, a)
	case !errors.As(err, &refused):
		return err // what may have been made is looked for before it is made again
	case refused.gone && c.Operation == resource.Update:
		r.have.Remove(c.Ref, c.ID) // the next round makes it
		r.left = true
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
	case resource.Port:
		r.found(ref, a)
	}
}

// waits says that an object waits for another's resource.
func (r *round) waits(c resource.Call) {
	message := c.Ref.Kind.String() + " of Neutron: what it replaces is still there"
	if _, missing := r.resolve(c.Attributes); missing != nil {
		message = c.Ref.Kind.String() + " of Neutron: waits for " + missing.String()
	}
	r.problems = append(r.problems, resource.Problem{Object: c.Object, Reason: "Waiting", Message: message})
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
