// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestServe answers by HTTPS only, TLS 1.2 or later, until it is to end.
func TestServe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	source := httptest.NewTLSServer(http.NotFoundHandler())
	defer source.Close()
	certificate := source.TLS.Certificates[0]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, l, func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil },
			newSite(t).h, slog.New(slog.DiscardHandler))
	}()
	client := source.Client()
	url := l.Addr().String() + "/.well-known/host-meta"
	answer, err := client.Get("https://" + url)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("HTTPS: %d", answer.StatusCode)
	}
	if plain, err := client.Get("http://" + url); err == nil {
		plain.Body.Close()
		if plain.StatusCode != http.StatusBadRequest {
			t.Errorf("HTTP: %d", plain.StatusCode)
		}
	}
	old, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11})
	if err == nil {
		old.Close()
		t.Error("TLS 1.1 is accepted")
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it does not end")
	}
}
