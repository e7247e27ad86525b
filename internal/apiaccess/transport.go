// SPDX-License-Identifier: Apache-2.0

package apiaccess

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"coelan.io/coelan/internal/retry"
)

// The pauses between two tries to connect.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = time.Second
)

// transport sees which requests get a connection. One that reads, and may wait, waits for a
// connection as long as its context allows.
type transport struct {
	http.RoundTripper
	access *Access
}

// attempt is one try of a request to get a connection.
type attempt struct {
	connected atomic.Bool
	mu        sync.Mutex
	address   string
}

type attemptKey struct{}

// dialed notes the address of a connection that was made for the request.
func (t *attempt) dialed(address string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.address = address
}

func (t *attempt) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.address
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	waits := r.Method == http.MethodGet && (t.access.WaitForReads || ctx.Value(waitKey{}) != nil)
	for backoff := retry.New(firstPause, lastPause); ; {
		try := &attempt{}
		trace := &httptrace.ClientTrace{
			GotConn: func(httptrace.GotConnInfo) { try.connected.Store(true) },
		}
		traced := httptrace.WithClientTrace(context.WithValue(ctx, attemptKey{}, try), trace)
		response, err := t.RoundTripper.RoundTrip(r.WithContext(traced))
		if err == nil || try.connected.Load() {
			t.access.reached()
			if err != nil || !waits || !t.access.starting(response) {
				return response, err
			}
			_ = response.Body.Close()
			if retry.Sleep(ctx, lastPause) {
				continue
			}
			return nil, ctx.Err()
		}
		if ctx.Err() != nil {
			return response, err
		}
		if address := try.last(); address != "" {
			// It accepts connections, and TLS fails: another address may be right.
			t.access.note(address, false)
		}
		t.access.lost(err)
		var untrusted *tls.CertificateVerificationError
		if !waits || errors.As(err, &untrusted) {
			return response, err
		}
		if !backoff.Wait(ctx) {
			return nil, err
		}
	}
}

// startTime is how long after its return an API server may refuse what it has not loaded the rights
// to yet.
const startTime = 15 * time.Second

// starting says whether a refusal may be that of an API server that has just started: it accepts
// connections before it knows roles and definitions. Watches that are refused would be tried again
// ever later.
func (a *Access) starting(r *http.Response) bool {
	switch {
	case r.StatusCode == http.StatusForbidden, r.StatusCode == http.StatusTooManyRequests:
	case r.StatusCode >= http.StatusInternalServerError:
	default:
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Since(a.returned) < startTime
}

// WrappedRoundTripper lets client-go find what is beneath.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// lost and reached log the first request that gets no connection, and the first one that does
// again.
func (a *Access) lost(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.away {
		return
	}
	a.away = true
	a.Log.Warn("no API server is reachable, retrying", "err", err)
	select {
	case <-a.unreachable:
	default:
		close(a.unreachable)
	}
}

func (a *Access) reached() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.away {
		a.away, a.returned = false, time.Now()
		a.Log.Info("an API server is reachable again")
	}
}
