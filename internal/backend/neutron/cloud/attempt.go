// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"errors"
	"time"

	"coelan.io/coelan/internal/backend/neutron/resource"
)

// attempt are rounds that follow each other without a pause, until no call is left. Each call is
// made once in it: else one that Neutron refuses would come first in each round, and keep those
// behind it from being made.
type attempt struct {
	// vain are the calls that were refused, or cannot be made yet, and what was said of each; the
	// zero Problem: something else was.
	vain map[callKey]resource.Problem
	// full are the quotas that are used up.
	full map[quota]*refusal
}

func newAttempt() attempt {
	return attempt{vain: map[callKey]resource.Problem{}, full: map[quota]*refusal{}}
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
func (r *round) countUnanswered(c resource.Call, err error) error {
	key := keyOf(c)
	var away *outage
	if !errors.As(err, &away) {
		delete(r.unanswered, key)
		if err == nil {
			delete(r.looked, c.Ref)
		}
		return err
	}
	r.unanswered[key]++
	if r.unanswered[key] <= maxUnanswered || away.says {
		return err
	}
	return &refusal{
		reason: reasonFailed, text: "it does not answer this call, but others: " + away.Error(), uncertain: true,
	}
}
