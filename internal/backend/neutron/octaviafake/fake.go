// SPDX-License-Identifier: Apache-2.0

// Package octaviafake is an Octavia in memory for tests, beside a Neutron in memory that has its
// VIP ports. It refuses what the real one refuses: attributes and filters that it does not know,
// what a provider cannot do, and each change of a load balancer that it is working on. A table of
// cases, Cases, holds for both.
package octaviafake

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/neutron/neutronfake"
)

// object is a resource as the API shows it.
type object = map[string]any

// item is a resource, and what it is of.
type item struct {
	object
	kind           string
	balancer, pool string // ids; empty: of none
}

func (i *item) id() string { return fmt.Sprint(i.object["id"]) }

func (i *item) status() string { return fmt.Sprint(i.object[status]) }

func (i *item) set(to string) { i.object[status] = to }

const status = "provisioning_status"

// The statuses of the API.
const (
	Active        = "ACTIVE"
	Error         = "ERROR"
	pendingCreate = "PENDING_CREATE"
	pendingUpdate = "PENDING_UPDATE"
	pendingDelete = "PENDING_DELETE"
)

// Octavia is the server.
type Octavia struct {
	*httptest.Server
	neutron *neutronfake.Neutron

	mu      sync.Mutex
	items   []*item // in the order in which they were made
	due     map[string]time.Time
	takes   time.Duration
	held    bool
	failing map[string]bool
	quotas  map[string]int
	faults  func(method, path string) Fault
	calls   []string
	numbers int
	page    int
}

// Fault is how a call fails; the zero value: it does not.
type Fault struct {
	Status     int
	RetryAfter string
	// Done says that the call has its effect all the same.
	Done bool
}

// Start runs an Octavia until the test ends.
func Start(t testing.TB, neutron *neutronfake.Neutron) *Octavia {
	o := &Octavia{
		neutron: neutron, due: map[string]time.Time{}, failing: map[string]bool{}, quotas: map[string]int{},
		faults: func(string, string) Fault { return Fault{} }, page: 1000,
	}
	o.Server = httptest.NewServer(o)
	t.Cleanup(o.Close)
	return o
}

// Takes is how long each change of a load balancer takes; at first none.
func (o *Octavia) Takes(d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.takes = d
}

// Hold has what is begun stay PENDING until Release.
func (o *Octavia) Hold() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = true
}

// Release ends Hold.
func (o *Octavia) Release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = false
}

// Break has changes of resources of a collection, such as pools, end in ERROR, or no more.
func (o *Octavia) Break(collection string, broken bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.settle()
	o.failing[collection] = broken
}

// Fail has calls fail.
func (o *Octavia) Fail(faults func(method, path string) Fault) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.faults = faults
}

// Quota bounds how many resources a collection may have; negative: it does not.
func (o *Octavia) Quota(collection string, most int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.quotas[collection] = most
	if most < 0 {
		delete(o.quotas, collection)
	}
}

// Page bounds how many resources a list has at once.
func (o *Octavia) Page(size int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.page = size
}

// Calls are all calls so far, such as "GET pools".
func (o *Octavia) Calls() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.calls)
}

// All are the resources of a collection, such as members, of all pools.
func (o *Octavia) All(collection string) (list []map[string]any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.settle()
	for _, i := range o.of(collection) {
		list = append(list, maps.Clone(o.show(i)))
	}
	return list
}

// refused is an answer that is an error.
type refused struct {
	status int
	text   string
}

func refuse(status int, format string, args ...any) *refused {
	return &refused{status, fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) *refused {
	return refuse(http.StatusBadRequest, format, args...)
}

func absent(kind, id string) *refused {
	return refuse(http.StatusNotFound, "%s %s not found.", collections[kind].class, id)
}

// ServeHTTP implements http.Handler.
func (o *Octavia) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/v2.0/lbaas/")
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls = append(o.calls, r.Method+" "+path)
	o.settle()
	if f := o.faults(r.Method, path); f.Status != 0 {
		if f.Done {
			o.answer(r, path)
		}
		if f.RetryAfter != "" {
			w.Header().Set("Retry-After", f.RetryAfter)
		}
		w.WriteHeader(f.Status)
		return
	}
	code, answer, err := o.answer(r, path)
	switch {
	case err != nil:
		write(w, err.status, object{"faultcode": "Client", "faultstring": err.text, "debuginfo": nil})
	case answer == nil:
		w.WriteHeader(code)
	default:
		write(w, code, answer)
	}
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (o *Octavia) answer(r *http.Request, path string) (int, any, *refused) {
	parts := strings.Split(path, "/")
	kind, pool := parts[0], ""
	if len(parts) >= 3 && kind == "pools" && parts[2] == "members" {
		kind, pool, parts = "members", parts[1], parts[2:]
		if o.find("pools", pool) == nil {
			return 0, nil, absent("pools", pool)
		}
	}
	c := collections[kind]
	if c == nil || kind == "members" && pool == "" || len(parts) > 2 {
		return 0, nil, refuse(http.StatusNotFound, "The resource could not be found.")
	}
	if r.Method == http.MethodGet && len(parts) == 1 {
		return o.list(r, kind, pool)
	}
	body, err := bodyOf(r)
	if err != nil {
		return 0, nil, err
	}
	switch {
	case r.Method == http.MethodPost && len(parts) == 1:
		return o.create(kind, pool, body)
	case r.Method == http.MethodPut && len(parts) == 1 && kind == "members":
		return o.batch(o.find("pools", pool), body)
	case len(parts) == 1:
		return 0, nil, refuse(http.StatusMethodNotAllowed, "Method Not Allowed")
	}
	i := o.find(kind, parts[1])
	if i == nil || i.pool != pool && kind == "members" {
		return 0, nil, absent(kind, parts[1])
	}
	switch r.Method {
	case http.MethodGet:
		return http.StatusOK, object{c.singular: o.show(i)}, nil
	case http.MethodDelete:
		return o.remove(i, r.URL.Query().Get("cascade") == "true")
	}
	return o.change(i, body)
}

func bodyOf(r *http.Request) (body object, err *refused) {
	if r.Method != http.MethodPost && r.Method != http.MethodPut {
		return nil, nil
	}
	if failure := json.NewDecoder(r.Body).Decode(&body); failure != nil {
		return nil, invalid("Request is not in valid JSON format")
	}
	return body, nil
}

// of are the resources of a kind.
func (o *Octavia) of(kind string) (list []*item) {
	for _, i := range o.items {
		if i.kind == kind {
			list = append(list, i)
		}
	}
	return list
}

func (o *Octavia) find(kind string, id any) *item {
	for _, i := range o.of(kind) {
		if i.object["id"] == id {
			return i
		}
	}
	return nil
}

// show is what the API says of a resource.
func (o *Octavia) show(i *item) object {
	ids := func(kind string, with func(*item) bool) []object {
		list := []object{}
		for _, other := range o.of(kind) {
			if with(other) {
				list = append(list, object{"id": other.id()})
			}
		}
		return list
	}
	shown := maps.Clone(i.object)
	inPool := func(other *item) bool { return other.pool == i.id() }
	switch i.kind {
	case "loadbalancers":
		for _, kind := range []string{"listeners", "pools"} {
			shown[kind] = ids(kind, func(other *item) bool { return other.balancer == i.id() })
		}
	case "pools":
		serves := func(other *item) bool { return other.object["default_pool_id"] == i.id() }
		shown["listeners"] = ids("listeners", serves)
		shown["members"] = ids("members", inPool)
		shown["healthmonitor_id"] = nil
		if monitors := ids("healthmonitors", inPool); len(monitors) > 0 {
			shown["healthmonitor_id"] = monitors[0]["id"]
		}
	case "healthmonitors":
		shown["pools"] = []object{{"id": i.pool}}
	}
	if i.kind == "listeners" || i.kind == "pools" {
		shown["loadbalancers"] = []object{{"id": i.balancer}}
	}
	return shown
}
