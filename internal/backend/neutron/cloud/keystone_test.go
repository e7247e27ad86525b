// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// keystone answers any user with a token for the project p1, and notes what it was asked. Its
// catalog has a Neutron in the region r, which it passes calls on to.
type keystone struct {
	*httptest.Server
	neutron http.Handler

	mu       sync.Mutex
	asked    string
	projects map[string]int // statuses of answers about them, by id
	password string         // the only one that is taken; empty: any is
	networks []string       // regions of endpoints of Neutron; that of the first is passed on to
	balanced []string       // regions of endpoints of Octavia
	settings string         // of the cloud in its file, beside how a user authenticates
}

// endpoints are those of a service in the catalog, in regions, the first of which is at an address.
func endpoints(regions []string, address string) string {
	var list []string
	for i, region := range regions {
		if i > 0 {
			address = "http://" + region + ".test"
		}
		list = append(list, fmt.Sprintf(`{"interface": "public", "region": %q, "region_id": %[1]q, "url": %[2]q, "id": "e%[3]d"},
			{"interface": "internal", "region": "inside", "region_id": "inside", "url": %[2]q, "id": "i%[3]d"}`, region, address, i))
	}
	return "[" + strings.Join(list, ", ") + "]"
}

func newKeystone(t *testing.T, neutron http.Handler) *keystone {
	t.Helper()
	k := unstartedKeystone(t, neutron)
	k.Start()
	return k
}

func unstartedKeystone(t *testing.T, neutron http.Handler) *keystone {
	t.Helper()
	k := &keystone{
		Server: httptest.NewUnstartedServer(nil), neutron: neutron, projects: map[string]int{},
		networks: []string{"r", "other"}, settings: "region_name: r",
	}
	k.Config.Handler = k
	t.Cleanup(k.Close)
	return k
}

// has sets the status of answers about a project.
func (k *keystone) has(project string, status int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.projects[project] = status
}

// only has one password be taken, and no token of another one.
func (k *keystone) only(password string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.password = password
}

// token is what a user gets for a password.
func (k *keystone) token() string { return "token" + k.password }

// refuses reports whether a call of Neutron has another token.
func (k *keystone) refuses(r *http.Request) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return r.Header.Get("X-Auth-Token") != k.token()
}

// ServeHTTP implements http.Handler.
func (k *keystone) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const ofNeutron = "/network"
	if k.neutron != nil && strings.HasPrefix(r.URL.Path, ofNeutron+"/v2.0/") && r.URL.Path != ofNeutron+"/v2.0/" {
		if k.refuses(r) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.StripPrefix(ofNeutron, k.neutron).ServeHTTP(w, r)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasPrefix(r.URL.Path, "/v3/projects/"):
		w.WriteHeader(k.projects[path.Base(r.URL.Path)])
		_, _ = fmt.Fprint(w, `{"project": {}}`)
	case r.Method != http.MethodPost:
		_, _ = fmt.Fprintf(w, `{"versions": [{"id": "v2.0", "status": "CURRENT", "links": [{"rel": "self", "href": "%s/network/v2.0/"}]}]}`,
			k.URL)
	case k.password != "" && !strings.Contains(string(body), fmt.Sprintf("%q", k.password)):
		w.WriteHeader(http.StatusUnauthorized)
	default:
		k.asked = string(body)
		w.Header().Set("X-Subject-Token", k.token())
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"token": {"expires_at": "2099-01-01T00:00:00.000000Z", "project": {"id": "p1", "name": "p"}, "catalog": [
			{"type": "network", "name": "neutron", "id": "n", "endpoints": %s},
			{"type": "load-balancer", "name": "octavia", "id": "o", "endpoints": %s}]}}`,
			endpoints(k.networks, k.URL+"/network"), endpoints(k.balanced, k.URL+"/octavia"))
	}
}

// cloudsFile is a file with a cloud c, with this to authenticate by.
func (k *keystone) cloudsFile(t *testing.T, auth string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "clouds.yaml")
	text := "clouds:\n  c:\n    auth: " + strings.Replace(auth, "%s", k.URL+"/v3", 1) + "\n    " + k.settings + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// byPassword is how a user authenticates.
const byPassword = `{auth_url: %s, username: u, password: s, project_name: p, user_domain_name: d, project_domain_name: d}`

// trusts has the file name an authority that signs servers' certificates; nil: that of keystone.
func (k *keystone) trusts(t *testing.T, authority []byte) {
	t.Helper()
	if authority == nil {
		authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: k.Certificate().Raw})
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, authority, 0o600); err != nil {
		t.Fatal(err)
	}
	k.settings += "\n    cacert: " + file
}
