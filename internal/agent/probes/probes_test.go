// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Each probe answers by its own question, and says what is wrong.
func TestProbes(t *testing.T) {
	var stuck, notReady error
	s := Server{
		Metrics: prometheus.NewRegistry(),
		Healthy: func() error { return stuck }, Ready: func() error { return notReady },
	}
	check := func(path string, code int, text string) {
		t.Helper()
		w := httptest.NewRecorder()
		s.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != code || !strings.Contains(w.Body.String(), text) {
			t.Errorf("%s: %d %q, want %d %q", path, w.Code, w.Body, code, text)
		}
	}
	check("/healthz", http.StatusOK, "ok")
	check("/readyz", http.StatusOK, "ok")
	notReady = errors.New("no bridge")
	check("/healthz", http.StatusOK, "ok")
	check("/readyz", http.StatusServiceUnavailable, "no bridge")
	stuck = errors.New("loop objects: stuck")
	check("/healthz", http.StatusInternalServerError, "loop objects: stuck")
	check("/metrics", http.StatusOK, "")
}
