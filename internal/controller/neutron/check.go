// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/controller/findings"
)

// mostFindings are in an answer: while a quota is used up there may be one for each pod.
const mostFindings = 100

// patience is how long an answer waits for changes that Neutron does not have yet. It leaves time
// for the comparison of the northbound database.
const patience = 12 * time.Second

// comparison is what the last comparison with Neutron has found.
type comparison struct {
	at       time.Time // zero: there was none yet
	revision uint64    // of the State that was compared
	since    time.Time // since when Neutron can be used, or cannot
	counts   map[resource.Kind]int
}

// next is the comparison after this one. Have is what Neutron has; nil: it could not be read yet.
func (c comparison) next(
	now time.Time, revision uint64, have *resource.Inventory, failed, failedBefore bool,
) comparison {
	next := comparison{at: now, revision: revision, since: c.since, counts: c.counts}
	if c.at.IsZero() || failed != failedBefore {
		next.since = now
	}
	if have != nil {
		next.counts = have.Counts()
	}
	return next
}

// resources are the counts of kinds of which there are any. Routes are a part of their router.
func (c comparison) resources() (list []agentapi.NeutronResources, all int) {
	list = []agentapi.NeutronResources{}
	for _, k := range resource.Kinds() {
		if n := c.counts[k]; n > 0 && k != resource.Routes {
			list = append(list, agentapi.NeutronResources{Kind: k.String(), Count: n})
			all += n
		}
	}
	return list, all
}

// limit reports whether a finding is about what Neutron has nothing for, so that the object alone
// can be changed. Trunks are for Neutron's administrator to add.
func limit(f findings.Finding) bool {
	return f.Reason != "TrunksUnsupported" && slices.ContainsFunc([]string{"Unsupported", "Ignored", "Kept"},
		func(part string) bool { return strings.Contains(f.Reason, part) })
}

// ofObjects are the findings of a check about objects, and what is none.
func ofObjects(list []findings.Finding) (found, limits agentapi.Findings) {
	found = agentapi.Findings{}
	for _, f := range list {
		to := &found
		if limit(f) {
			to = &limits
		}
		to.Add("object", f.Object, "%s: %s", f.Reason, f.Message)
	}
	return found, limits
}

// errNotLeading is the answer of replicas that do not know what Neutron has.
var errNotLeading = errors.New("this controller does not lead: another one asks Neutron")

// known is what is known now: of Neutron, with its quotas, of the supplement and of load balancers.
func (r *Runner) known() (c comparison, cloud, nb, lb outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	quotas, _ := nearlyExceeded(r.quotas)
	return r.compared, outcome{slices.Concat(quotas, r.cloud.list), r.cloud.err}, r.nb, r.lb
}

// Status is what the last comparison has found. It is an error in replicas that do not lead.
func (r *Runner) Status(context.Context) (agentapi.NeutronStatus, error) {
	if !r.leads.Load() {
		return agentapi.NeutronStatus{}, errNotLeading
	}
	c, cloud, nb, lb := r.known()
	found, _ := ofObjects(slices.Concat(cloud.list, nb.list, lb.list))
	s := agentapi.NeutronStatus{
		Where: r.Cloud.String(), Compared: c.at, Failure: text(cloud.err), Since: c.since, Problems: len(found),
	}
	s.Resources, _ = c.resources()
	return s, nil
}

// Check is what Neutron does not do of the objects that there are now: it waits until they have
// been compared. Nothing is read or written for it. It is an error in replicas that do not lead.
func (r *Runner) Check(ctx context.Context) (agentapi.NeutronCheck, error) {
	if !r.leads.Load() {
		return agentapi.NeutronCheck{}, errNotLeading
	}
	select {
	case <-r.Intent.Ready():
	default:
		return agentapi.NeutronCheck{}, errors.New("this controller does not know all of the cluster's objects yet")
	}
	behind := r.awaitCompared(ctx, r.Intent.Intent().State().Revision())
	c, cloud, nb, lb := r.known()
	check := agentapi.NeutronCheck{}
	check.Findings, check.Limits = ofObjects(slices.Concat(cloud.list, nb.list, lb.list))
	var all agentapi.Findings
	switch {
	case cloud.err != nil:
		all.Add("neutron", r.Cloud.String(), "since %s: %v", c.since.Format(time.RFC3339), cloud.err)
	case c.at.IsZero():
		all.Add("neutron", r.Cloud.String(), "has not been compared yet")
	case behind:
		all.Add("neutron", r.Cloud.String(), "is behind the cluster's objects, and was as they asked for at %s: "+
			"it has much to do, or does not answer", c.at.Format(time.RFC3339))
	}
	if lb.err != nil {
		all.Add("octavia", r.Cloud.String(), "load balancers are not looked at: %v", lb.err)
	}
	check.Findings = append(all, check.Findings...)
	if check.More = len(check.Findings) - mostFindings; check.More > 0 {
		check.Findings = check.Findings[:mostFindings]
	}
	check.More = max(check.More, 0)
	_, check.Resources = c.resources()
	if r.supplement != nil {
		check.Northbound = new(r.supplement.check(ctx, nb.err))
	}
	check.OK = len(check.Findings) == 0 && (check.Northbound == nil || check.Northbound.OK)
	return check, nil
}

// awaitCompared waits until the State of a revision, or a newer one, has been compared, or Neutron
// cannot be used, and reports whether the wait was in vain.
func (r *Runner) awaitCompared(ctx context.Context, revision uint64) (behind bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		changed := r.outcomes.Changed()
		if c, cloud, _, _ := r.known(); cloud.err != nil || !c.at.IsZero() && c.revision >= revision {
			return false
		}
		select {
		case <-ctx.Done():
			return true
		case <-changed:
		}
	}
}

// check compares the rows beside Neutron's. Failure is why they are not as wanted, if that is
// known.
func (s *supplement) check(ctx context.Context, failure error) agentapi.OVNCheck {
	select {
	case <-s.begun:
	default:
		failure = errors.New("Neutron is to be read first, which names the rows that these are beside")
	}
	return s.client.CheckOr(ctx, func() error { return failure })
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
