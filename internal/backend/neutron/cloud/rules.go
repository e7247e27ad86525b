// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"coelan.io/coelan/internal/backend/neutron/resource"
)

// newRule reports whether a call makes a rule of a security group.
func newRule(c resource.Call) bool {
	return c.Operation == resource.Create && c.Ref.Kind == resource.SecurityGroupRule
}

// rulesInOneCall makes rules of one group at once: Neutron makes all or none. If it refuses them
// they are made one by one, so that a problem is only said of those that are to blame.
func (r *round) rulesInOneCall(ctx context.Context, calls []resource.Call) error {
	var ready []resource.Call
	var bodies []map[string]any
	for _, c := range calls {
		if attributes, ok := r.prepare(&c); ok {
			ready, bodies = append(ready, c), append(bodies, r.body(c.Ref, attributes))
		}
	}
	doubtful := func(c resource.Call) bool { return r.doubtful[c.Ref] }
	if len(ready) < 2 || slices.ContainsFunc(ready, doubtful) {
		return r.oneByOne(ctx, ready)
	}
	k := collections[resource.SecurityGroupRule]
	var answer map[string][]map[string]any
	err := r.do(ctx, http.MethodPost, k.path, map[string]any{k.plural: bodies}, &answer)
	made := answer[k.plural]
	if err == nil && len(made) != len(ready) {
		err = &outage{err: fmt.Errorf("Neutron was to make %d rules, and answers with %d", len(ready), len(made))}
	}
	err = r.countUnanswered(ctx, ready[0], err)
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		for _, c := range ready {
			r.note(err, c.Ref)
		}
		return r.oneByOne(ctx, ready)
	case err != nil:
		r.stale = true // they may be there
		return err
	}
	for i, c := range ready {
		r.set(c.Ref, actual(made[i]))
		r.made++
	}
	return nil
}
