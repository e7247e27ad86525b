// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// refusing refuses the first connections.
type refusing struct {
	times int
	asked int
}

func (r *refusing) RoundTrip(*http.Request) (*http.Response, error) {
	if r.asked++; r.asked <= r.times {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
	return httptest.NewRecorder().Result(), nil
}

func TestReconnecting(t *testing.T) {
	ask := func(ctx context.Context, method string, under http.RoundTripper) error {
		request := httptest.NewRequestWithContext(ctx, method, "https://api.invalid/api/v1/pods", http.NoBody)
		response, err := reconnecting{under}.RoundTrip(request)
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}
	t.Run("reading waits", func(t *testing.T) {
		under := &refusing{times: 2}
		if err := ask(t.Context(), http.MethodGet, under); err != nil || under.asked != 3 {
			t.Errorf("asked %d times, %v, want the third to be answered", under.asked, err)
		}
	})
	t.Run("writing does not", func(t *testing.T) {
		under := &refusing{times: 1}
		if err := ask(t.Context(), http.MethodPut, under); err == nil || under.asked != 1 {
			t.Errorf("asked %d times, %v, want the first error", under.asked, err)
		}
	})
	t.Run("nobody waits longer than the request", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		under := &refusing{times: 100}
		var failed *net.OpError
		if err := ask(ctx, http.MethodGet, under); !errors.As(err, &failed) || under.asked != 1 {
			t.Errorf("asked %d times, %v, want the first error", under.asked, err)
		}
	})
}
