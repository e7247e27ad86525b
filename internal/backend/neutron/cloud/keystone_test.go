// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// keystone answers any user with a token for the project p1, and notes what it was asked.
func keystone(t *testing.T, asked *string) string {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		if r.Method != http.MethodPost {
			_, _ = fmt.Fprintf(w, `{"versions": [{"id": "v2.0", "status": "CURRENT", "links": [{"rel": "self", "href": "%s/network/v2.0/"}]}]}`,
				s.URL)
			return
		}
		*asked = string(body)
		w.Header().Set("X-Subject-Token", "token")
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"token": {"expires_at": "2099-01-01T00:00:00.000000Z", "project": {"id": "p1", "name": "p"},
			"catalog": [{"type": "network", "name": "neutron", "id": "n", "endpoints": [
				{"interface": "public", "region": "r", "region_id": "r", "url": "%s/network", "id": "e"},
				{"interface": "public", "region": "other", "region_id": "other", "url": "http://other.test:9696", "id": "f"}]}]}}`, s.URL)
	})
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}
