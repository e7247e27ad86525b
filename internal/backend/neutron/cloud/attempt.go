// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"time"

	"coelan.io/coelan/internal/backend/neutron/resource"
)

// attempt are rounds that follow each other without a pause, until no call is left, or for a
// minute. Each call is made once in it: else one that Neutron refuses would come first in each
// round, and keep those behind it from being made.
type attempt struct {
	// vain are the calls that were refused, or cannot be made yet, and what was said of each; the
	// zero Problem: something else was.
	vain map[callKey]resource.Problem
	// full are the quotas that are used up.
	full map[quota]*refusal
	// want is what was wanted when it began, and outdated says that something else was later, or
	// that all was read anew: what was in vain need not be any more.
	want     *resource.Set
	outdated bool
	began    time.Time
}

func newAttempt() attempt {
	return attempt{vain: map[callKey]resource.Problem{}, full: map[quota]*refusal{}}
}

// round notes what is wanted in a round, and whether all was read for it.
func (a *attempt) round(want *resource.Set, read bool) {
	if a.want == nil {
		a.want, a.began = want, time.Now()
		return
	}
	a.outdated = a.outdated || a.want != want || read
}

// again reports whether another one has to follow at once, of an attempt without calls left.
func (a *attempt) again() bool { return a.outdated && len(a.vain) > 0 }

// freed notes that a resource is gone: its quota has room.
func (a *attempt) freed(of quota) {
	if a.full[of] == nil {
		return
	}
	delete(a.full, of)
	maps.DeleteFunc(a.vain, func(k callKey, why resource.Problem) bool {
		return k.operation == resource.Create && k.ref.Kind == of.kind && k.ref.Project == of.project &&
			why.Reason == reasonQuota
	})
}

// callKey tells calls apart.
type callKey struct {
	operation resource.Operation
	ref       resource.Ref
	id        string
}

func keyOf(c resource.Call) callKey { return callKey{c.Operation, c.Ref, c.ID} }

// quota is what Neutron bounds: how many resources of a kind a project has.
type quota struct {
	kind    resource.Kind
	project string // as in Refs
}

func quotaOf(c resource.Call) quota { return quota{c.Ref.Kind, c.Ref.Project} }

// giveUp notes that a call is not made, or in vain, and says why.
func (r *round) giveUp(c resource.Call, why resource.Problem) {
	r.attempt.vain[keyOf(c)] = why
	if why != (resource.Problem{}) {
		r.say(why)
	}
}

// inVain reports whether a call has been made in vain in this attempt: that is still a problem, and
// what it was to delete is still there.
func (r *round) inVain(c resource.Call) bool {
	why, was := r.attempt.vain[keyOf(c)]
	if was {
		r.giveUp(c, why)
		r.failed[c.Ref] = r.failed[c.Ref] || c.Operation == resource.Delete
	}
	return was
}

// lookAgain has all be read anew because of what Neutron answers about a resource; false: it was
// lately, and the answer is the same.
func (r *round) lookAgain(about resource.Ref) bool {
	if at, was := r.looked[about]; was && time.Since(at) < r.resync {
		return false
	}
	r.looked[about], r.stale = time.Now(), true
	return true
}

// maxUnanswered is how often a call may end without an answer before those behind it are made: a
// Neutron that answers others is not away.
const maxUnanswered = 3

// countUnanswered counts how often a call has had no answer. It returns the error, or a refusal in
// its place if the call has had none too often.
func (r *round) countUnanswered(ctx context.Context, c resource.Call, err error) error {
	key := keyOf(c)
	var away *outage
	if !errors.As(err, &away) {
		delete(r.unanswered, key)
		if err == nil {
			delete(r.looked, c.Ref)
		}
		return err
	}
	if away.says {
		return err
	}
	r.unanswered[key]++
	if r.unanswered[key] <= maxUnanswered || !r.answersOthers(ctx) {
		return err
	}
	return &refusal{
		reason: reasonFailed, text: "it does not answer this call, but others: " + away.Error(), uncertain: true,
	}
}

// answersOthers reports whether Neutron answers another call.
func (r *round) answersOthers(ctx context.Context) bool {
	return !Away(r.do(ctx, http.MethodGet, "networks?limit=1&fields=id", nil, &map[string]any{}))
}
