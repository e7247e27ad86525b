// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/backend/neutron/neutronfake"
)

// quotasOf are the quotas of networks and ports of a project that has these.
func quotasOf(project string, networks, ports int) []Quota {
	return []Quota{
		{Project: project, Resource: "network", Used: networks, Limit: 10},
		{Project: project, Resource: "port", Used: ports, Limit: -1},
	}
}

// shown are the quotas of networks and ports.
func shown(list []Quota) (some []Quota) {
	for _, q := range list {
		if q.Resource == "network" || q.Resource == "port" {
			some = append(some, q)
		}
	}
	return some
}

// Each resource that is made has its quota, with what calls under way have reserved.
func TestQuotaDetails(t *testing.T) {
	answer := `{"quota": {"rbac_policy": {"limit": 5, "used": 1, "reserved": 0}`
	for i, name := range []string{
		"network", "subnet", "port", "router", "floatingip", "security_group", "security_group_rule",
	} {
		answer += fmt.Sprintf(`, %q: {"limit": %d, "used": %d, "reserved": 2}`, name, 100+i, 10*i)
	}
	asked := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.EscapedPath()
		_, _ = fmt.Fprint(w, answer, "}}")
	}))
	t.Cleanup(server.Close)
	api, _, err := Access{Endpoint: server.URL, Project: "p"}.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	got, err := newQuotaReader(api, Options{}, func() { calls++ }).read(t.Context(), "a/b")
	if err != nil || asked != "GET /v2.0/quotas/a%2Fb/details" || calls != 1 {
		t.Errorf("%v, asked %s, %d calls", err, asked, calls)
	}
	want := []Quota{
		{"a/b", "network", 2, 100}, {"a/b", "subnet", 12, 101}, {"a/b", "port", 22, 102}, {"a/b", "router", 32, 103},
		{"a/b", "floatingip", 42, 104}, {"a/b", "security_group", 52, 105}, {"a/b", "security_group_rule", 62, 106},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +read):\n%s", diff)
	}
}

// Quotas are read project by project. Where they are not shown there are none, which the log says
// once; while Neutron is away they are what they were.
func TestQuotas(t *testing.T) {
	n := neutronfake.Start(t)
	w := &world{T: t, neutron: n}
	n.Quota("networks", 10)
	w.call("POST", "networks", `{"network": {"project_id": "p"}}`)
	w.call("POST", "networks", `{"network": {"project_id": "p"}}`)
	w.call("POST", "networks", `{"network": {"project_id": "q"}}`)
	api, _, err := Access{Endpoint: n.URL, Project: "p"}.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	q := newQuotaReader(api, Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, func() {})
	all := append(quotasOf("p", 2, 0), quotasOf("q", 1, 0)...)
	none := func(int, string, string) neutronfake.Fault { return neutronfake.None }
	fails := func(f neutronfake.Fault) func(int, string, string) neutronfake.Fault {
		return func(int, string, string) neutronfake.Fault { return f }
	}
	for _, step := range []struct {
		name   string
		change func()
		want   []Quota
		logged int // so far
	}{
		{"both", func() {}, all, 0},
		{"Neutron is away", func() { n.Fail(fails(neutronfake.Busy)) }, all, 1},
		{"it fails inside", func() { n.Fail(fails(neutronfake.Broken)) }, all, 2},
		{"it is back", func() { n.Fail(none) }, all, 2},
		{"one is not the user's", func() { n.ShowQuotas("q", false) }, all[:2], 3},
		{"and stays so", func() {}, all[:2], 3},
		{"it is", func() { n.ShowQuotas("q", true) }, all, 3},
		{"no extension", func() { n.ShowQuotas(neutronfake.AllProjects, false) }, nil, 5},
		{"still none", func() {}, nil, 5},
		{"Neutron is away again", func() { n.Fail(fails(neutronfake.Busy)) }, nil, 5},
	} {
		step.change()
		if diff := cmp.Diff(step.want, shown(q.readAll(t.Context(), []string{"p", "q"}))); diff != "" {
			t.Errorf("%s (-want +read):\n%s", step.name, diff)
		}
		if logged := strings.Count(log.String(), "level=INFO"); logged != step.logged {
			t.Errorf("%s: logged %d times, want %d:\n%s", step.name, logged, step.logged, log.String())
		}
	}
}

// quotaWorld is a world with a Client that reads quotas.
type quotaWorld struct {
	*world
	mu   sync.Mutex
	last []Quota
	read chan struct{} // there are others
}

func newQuotaWorld(t *testing.T, change func(*Client)) *quotaWorld {
	w := &quotaWorld{read: make(chan struct{}, 1)}
	w.world = newWorldWith(t, func(c *Client) {
		change(c)
		c.o.Quotas = func(list []Quota) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.last = list
			select {
			case w.read <- struct{}{}:
			default:
			}
		}
	})
	return w
}

// awaitQuotas returns when all is as wanted and these quotas are read.
func (w *quotaWorld) awaitQuotas(want []Quota) {
	w.Helper()
	for end := time.After(bound); ; {
		w.mu.Lock()
		diff := cmp.Diff(want, shown(w.last))
		w.mu.Unlock()
		if diff == "" {
			return
		}
		select {
		case <-w.reports: // the Client waits for that
		case <-w.read:
		case <-end:
			w.Fatalf("quotas (-want +read):\n%s", diff)
		}
	}
}

// Quotas are those of the cluster's project, of the settings' and of those that something is wanted
// in, as of the last reading.
func TestQuotasFollowReadings(t *testing.T) {
	w := newQuotaWorld(t, func(c *Client) { c.o.Projects, c.o.Resync = []string{"named"}, 100*time.Millisecond })
	w.neutron.Quota("networks", 10)
	w.set(inProject(tenant(3), "q"))
	w.awaitQuotas(slices.Concat(quotasOf("p", 0, 2), quotasOf("named", 0, 0), quotasOf("q", 1, 3)))
}

// No call waits for quotas, and that they cannot be read is no outage.
func TestQuotasKeepNothingWaiting(t *testing.T) {
	asked, release := make(chan struct{}, 100), make(chan struct{})
	var once sync.Once
	let := func() { once.Do(func() { close(release) }) }
	w := newQuotaWorld(t, func(*Client) {})
	t.Cleanup(let)
	w.neutron.Quota("networks", 10)
	w.neutron.Arrive(func(_, path string) {
		if strings.HasPrefix(path, "quotas/") {
			asked <- struct{}{}
			<-release
		}
	})
	w.client.Reread()
	<-asked
	w.set(tenant(2))
	o := w.await("ports, while quotas are not answered", func(o outcome) bool { return w.settled(o) || o.err != nil })
	if o.err != nil {
		t.Error(o.err)
	}
	let()
	w.client.Reread()
	w.awaitQuotas(quotasOf("p", 1, 4))
}
