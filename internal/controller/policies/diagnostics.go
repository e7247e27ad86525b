// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/localapi"
	"coelan.io/coelan/internal/policy"
)

// diagnostics answers the coelan command. Every replica does.
type diagnostics struct {
	socket   string
	policies *Feed
	ovn      OVN     // nil: the backend is another
	neutron  Neutron // nil: the backend is another
}

// OVN is what the leader knows of OVN. *ovn.Runner is one.
type OVN interface {
	// Progress measures how long OVN takes to follow, or until ctx ends.
	Progress(ctx context.Context) (agentapi.OVNProgress, error)
	// Check compares OVN's northbound database with what is wanted.
	Check(ctx context.Context) (agentapi.OVNCheck, error)
}

// Neutron is what the leader knows of OpenStack's Neutron. *neutron.Runner is one.
type Neutron interface {
	// Status is what the last comparison has found.
	Status(ctx context.Context) (agentapi.NeutronStatus, error)
	// Check is what Neutron does not do of the objects that there are now.
	Check(ctx context.Context) (agentapi.NeutronCheck, error)
}

// followTimeout bounds the wait for OVN to follow, compareTimeout that for a comparison, during
// which the controller may be writing.
const (
	followTimeout  = 5 * time.Second
	compareTimeout = 20 * time.Second
)

// NeedLeaderElection says that every replica does it.
func (d *diagnostics) NeedLeaderElection() bool { return false }

// Start answers until ctx ends.
func (d *diagnostics) Start(ctx context.Context) error {
	l, err := localapi.Listen(ctx, d.socket)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	return localapi.Serve(ctx, l, d.handler())
}

func (d *diagnostics) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/policies", func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-d.policies.complete:
			localapi.Answer(w, d.policies.enforcementStatuses())
		default:
			http.Error(w, "not all policies are known yet", http.StatusServiceUnavailable)
		}
	})
	handle(mux, "GET /v1/ovn", d.ovn, followTimeout, OVN.Progress)
	handle(mux, "GET /v1/ovn/check", d.ovn, compareTimeout, OVN.Check)
	handle(mux, "GET /v1/neutron", d.neutron, followTimeout, Neutron.Status)
	handle(mux, "GET /v1/neutron/check", d.neutron, compareTimeout, Neutron.Check)
	return mux
}

// handle answers a question about what is behind a backend: null if the backend is another.
func handle[B, T any](
	mux *http.ServeMux, pattern string, behind B, timeout time.Duration, ask func(B, context.Context) (T, error),
) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if any(behind) == nil {
			localapi.Answer(w, nil)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		answer, err := ask(behind, ctx)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		localapi.Answer(w, answer)
	})
}

// statuses is of all policies, sorted.
func (p *Feed) enforcementStatuses() []policy.EnforcementStatus {
	p.mu.Lock()
	list := make([]policy.EnforcementStatus, 0, len(p.objects))
	for ref := range p.objects {
		s := policy.EnforcementStatus{Policy: ref}
		for _, problem := range p.problemsOf(ref) {
			s.Problems = append(s.Problems, reconcile.MessageOf(problem, problem.Object))
		}
		list = append(list, s)
	}
	p.mu.Unlock()
	refused := p.hub.Refused()
	for i := range list {
		if text := reconcile.RefusedMessage(refused[list[i].Policy]); text != "" {
			list[i].Problems = append(list[i].Problems, text)
		}
		programmed := p.hub.ProgrammedNodes(list[i].Policy)
		list[i].Nodes, list[i].ProgrammedNodes = programmed.Wanted, programmed.Programmed
	}
	slices.SortFunc(list, func(a, b policy.EnforcementStatus) int { return a.Policy.Compare(b.Policy) })
	return list
}
