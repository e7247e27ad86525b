// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"net"
	"net/http"
	"time"
)

// The pauses between two tries to connect to the API server.
const (
	firstConnect = 100 * time.Millisecond
	lastConnect  = time.Second
)

// reconnecting has requests that read wait for the API server while nothing accepts their connections, until their contexts end.
// Watches that fail instead are tried again after up to a minute; meanwhile nobody would learn of a new pod, and its
// node would keep it closed.
type reconnecting struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t reconnecting) RoundTrip(r *http.Request) (*http.Response, error) {
	for pause := firstConnect; ; pause = min(2*pause, lastConnect) {
		response, err := t.RoundTripper.RoundTrip(r)
		var failed *net.OpError
		if err == nil || r.Method != http.MethodGet || !errors.As(err, &failed) || failed.Op != "dial" {
			return response, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-r.Context().Done():
			timer.Stop()
			return nil, err
		}
	}
}

// WrappedRoundTripper lets client-go find what is beneath.
func (t reconnecting) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }
