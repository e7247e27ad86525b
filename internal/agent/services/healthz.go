// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// ServeHealthz serves /healthz and /livez as kube-proxy does, until ctx ends: load balancers ask
// there whether this node takes packets of Services with the policy Cluster. Both say no while the
// node does not forward; /healthz also when it is about to go.
func (s *Services) ServeHealthz(ctx context.Context) error {
	if !s.native || s.Config.HealthzBindAddress == "0" {
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { s.answerHealthz(w, true) })
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { s.answerHealthz(w, false) })
	var last string
	serveAgain(ctx, func() error {
		l, err := s.health.listen(s.Config.HealthzBindAddress)
		if err != nil {
			return err
		}
		s.setHealthz(nil)
		return serveHTTP(ctx, mux, l)
	}, func(err error) {
		s.setHealthz(err)
		if err != nil && err.Error() != last {
			last = err.Error()
			s.Log.Warn("cannot listen on services.healthzBindAddress; stop kube-proxy if it still runs on this node",
				"err", err)
		}
	})
	return nil
}

func (s *Services) setHealthz(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.healthzErr = err
}

// healthz is the body of an answer.
type healthz struct {
	LastUpdated  time.Time `json:"lastUpdated"`
	CurrentTime  time.Time `json:"currentTime"`
	NodeEligible *bool     `json:"nodeEligible,omitempty"`
}

func (s *Services) answerHealthz(w http.ResponseWriter, eligible bool) {
	s.mu.Lock()
	leaving := s.leaving
	s.mu.Unlock()
	err := s.Healthy()
	a := healthz{CurrentTime: time.Now()}
	s.healthyAt.CompareAndSwap(nil, &a.CurrentTime)
	if err == nil {
		s.healthyAt.Store(&a.CurrentTime)
	}
	a.LastUpdated = *s.healthyAt.Load()
	if eligible {
		stays := !leaving
		a.NodeEligible = &stays
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if err != nil || eligible && leaving {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	// An error here is a client that has gone.
	_ = json.NewEncoder(w).Encode(a)
}
