// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"maps"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"coelan.io/coelan/internal/policy"
)

// Source is where the Views come from.
type Source interface {
	// Basis is what the Views are computed from at present.
	Basis() policy.Basis
	// Changed is closed when there is another Basis than at the time of the call.
	Changed() <-chan struct{}
	// Newest asks the API server for its present resource version of a kind. It may
	// be a second old.
	Newest(ctx context.Context, kind string) (uint64, error)
}

// lagTimeout is how long an agent that knows more waits for this controller: mostly
// it lags by milliseconds.
const lagTimeout = 5 * time.Second

// SetLagTimeout is for tests that do not wait so long. It is called before the Hub is used.
func (h *Hub) SetLagTimeout(d time.Duration) { h.lag = d }

// catchUp waits until the Views contain all changes that the agent has already, so that none of
// them is undone. Rewound says that the agent has changes that the API has never had: its data was
// restored from a backup, and what it has now counts. That is for the API server to decide, because
// what an agent says of itself proves nothing.
func (h *Hub) catchUp(ctx context.Context, has policy.Basis) (rewound bool, err error) {
	if h.Source == nil || len(has) == 0 {
		return false, nil
	}
	left := maps.Clone(has)
	timeout := time.NewTimer(h.lag)
	defer timeout.Stop()
	for {
		changed := h.Source.Changed()
		basis := h.Source.Basis()
		kind := basis.Lacks(left)
		if kind == "" {
			return rewound, nil
		}
		select {
		case <-changed:
			continue
		case <-ctx.Done():
			return false, status.FromContextError(ctx.Err()).Err()
		case <-timeout.C:
		}
		newest, err := h.Source.Newest(ctx, kind)
		switch {
		case err != nil:
			return false, status.Errorf(codes.Unavailable,
				"this controller may be behind, and the API server does not answer: %v", err)
		case newest >= left[kind].Changed:
			return false, status.Error(codes.Unavailable,
				fmt.Sprintf("this controller is behind: %v", basis.Missing(kind, left)))
		}
		rewound = true
		delete(left, kind)
		timeout.Reset(0)
	}
}

// SetBehind says why this controller is behind the API server; empty: it is not. Agents that are
// connected have to ask another one then, because nothing new reaches them here.
func (h *Hub) SetBehind(reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if reason != "" && h.behind == "" {
		close(h.away)
		h.away = make(chan struct{})
	}
	h.behind = reason
}

// Behind is what SetBehind has said.
func (h *Hub) Behind() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.behind
}

// leaving is closed when agents have to ask another controller.
func (h *Hub) leaving() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.away
}
