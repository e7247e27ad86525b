// SPDX-License-Identifier: Apache-2.0

// Package neutronfake is a Neutron in memory for tests. It refuses what the real one refuses:
// bodies with attributes that it does not know, addresses and MACs that are taken, and the removal
// of what is in use. A table of cases, Cases, holds for both.
package neutronfake

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// object is a resource.
type object = map[string]any

// Neutron is the server.
type Neutron struct {
	*httptest.Server

	mu      sync.Mutex
	arrive  func(method, path string)
	numbers int
	// all are resources by collection, each in the order in which they were made.
	all map[string][]object
	// found says where in its collection a resource was, by ID, when it was looked for last.
	found map[any]int
	// calls counts; faults says of a call by its number how it fails.
	calls  int
	faults func(number int, method, path string) Fault
	quotas map[string]int
	// hidden are the projects of which no quotas are shown, see ShowQuotas.
	hidden map[string]bool
	page   int
	// noTrunks says that the extension is missing.
	noTrunks bool
	// noBGPVPNs says that this one is, bgpvpnsForbidden that the client is no administrator.
	noBGPVPNs, bgpvpnsForbidden bool
}

// Fault is how a call fails; the zero value: it does not.
type Fault struct {
	Status int
	// Kind and Message are those of Neutron's error; empty: the answer has no body, as that of a
	// proxy.
	Kind, Message string
	RetryAfter    string // the header; empty: there is none
	// Done says that the call has its effect all the same.
	Done bool
}

// String names tests.
func (f Fault) String() string {
	switch {
	case f == None:
		return "none"
	case f.Done:
		return fmt.Sprint(f.Status, " with its effect")
	}
	return fmt.Sprint(f.Status)
}

// The faults that most tests need.
var (
	None   Fault
	Busy   = Fault{Status: http.StatusServiceUnavailable, RetryAfter: "0"}
	Lost   = Fault{Status: http.StatusServiceUnavailable, RetryAfter: "0", Done: true}
	Broken = Fault{
		Status: http.StatusInternalServerError, Kind: "HTTPInternalServerError",
		Message: "Request Failed: internal server error while processing your request.",
	}
	Silent = Fault{Status: http.StatusGatewayTimeout}
	// UsedUp is that no tenant network is left.
	UsedUp = Fault{
		Status: http.StatusServiceUnavailable, Kind: "NoNetworkAvailable",
		Message: "Unable to create the network. No tenant network is available for allocation.",
	}
	// Missing is that something is not there that the call names.
	Missing = Fault{Status: http.StatusNotFound, Kind: "PortNotFound", Message: "Port could not be found."}
)

// Start runs a Neutron until the test ends.
func Start(t testing.TB) *Neutron {
	n := &Neutron{
		all: map[string][]object{}, found: map[any]int{}, arrive: func(string, string) {},
		faults: func(int, string, string) Fault { return None }, quotas: map[string]int{}, hidden: map[string]bool{},
		page: 1000,
	}
	n.Server = httptest.NewServer(n)
	t.Cleanup(n.Close)
	return n
}

// Fail has calls fail.
func (n *Neutron) Fail(faults func(number int, method, path string) Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = faults
}

// Arrive has a function called with each call before it is looked at, with several at once.
func (n *Neutron) Arrive(arrive func(method, path string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.arrive = arrive
}

// Page bounds how many resources a list has at once.
func (n *Neutron) Page(size int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.page = size
}

// NoTrunks has there be no extension of that name.
func (n *Neutron) NoTrunks() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.noTrunks = true
}

// Calls is how many there were.
func (n *Neutron) Calls() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.calls
}

// All are the resources of a collection, such as ports.
func (n *Neutron) All(collection string) []map[string]any {
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []map[string]any
	for _, o := range n.all[collection] {
		list = append(list, clone(o))
	}
	return list
}

func clone(o object) object {
	data, _ := json.Marshal(o)
	var c object
	_ = json.Unmarshal(data, &c)
	return c
}

// refused is an answer that is an error.
type refused struct {
	status        int
	kind, message string
}

func (r *refused) Error() string { return r.kind + ": " + r.message }

func refuse(status int, kind, format string, args ...any) *refused {
	return &refused{status, kind, fmt.Sprintf(format, args...)}
}

// ServeHTTP implements http.Handler.
func (n *Neutron) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/v2.0/")
	n.mu.Lock()
	arrive := n.arrive
	n.mu.Unlock()
	arrive(r.Method, path)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls++
	fault := n.faults(n.calls, r.Method, path)
	if fault != None && !fault.Done {
		fail(w, fault)
		return
	}
	status, answer, err := n.answer(r, path)
	switch {
	case fault.Done:
		fail(w, fault)
	case err != nil:
		write(w, err.status, object{"NeutronError": object{"type": err.kind, "message": err.message, "detail": ""}})
	case answer == nil:
		w.WriteHeader(status)
	default:
		write(w, status, answer)
	}
}

func fail(w http.ResponseWriter, f Fault) {
	if f.RetryAfter != "" {
		w.Header().Set("Retry-After", f.RetryAfter)
	}
	if f.Kind == "" {
		w.WriteHeader(f.Status)
		return
	}
	write(w, f.Status, object{"NeutronError": object{"type": f.Kind, "message": f.Message, "detail": ""}})
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (n *Neutron) answer(r *http.Request, path string) (int, any, *refused) {
	if project, is := quotaDetails(path); is && r.Method == http.MethodGet {
		return n.details(project)
	}
	path, prefixed := strings.CutPrefix(path, bgpvpnPrefix)
	parts := strings.Split(path, "/")
	c := collections[parts[0]]
	if c == nil || parts[0] == "trunks" && n.noTrunks || prefixed && n.noBGPVPNs ||
		prefixed != (parts[0] == "bgpvpns") {
		return 0, nil, refuse(http.StatusNotFound, "HTTPNotFound", "The resource could not be found.")
	}
	var body object
	if (r.Method == http.MethodPost || r.Method == http.MethodPut) && r.ContentLength != 0 {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			return 0, nil, refuse(http.StatusBadRequest, "HTTPBadRequest",
				"The server could not comply with the request: %v", err)
		}
	}
	if prefixed && len(parts) > 2 && parts[2] == "router_associations" {
		return n.associations(r.Method, parts[1], parts[3:], body)
	}
	if err := n.forbidden(r, prefixed); err != nil {
		return 0, nil, err
	}
	switch {
	case r.Method == http.MethodGet && len(parts) == 1:
		return http.StatusOK, n.list(r, parts[0]), nil
	case r.Method == http.MethodPost && len(parts) == 1:
		return n.post(c, parts[0], body)
	case r.Method == http.MethodPut && len(parts) == 3:
		if parts[0] == "trunks" {
			return n.subports(parts[1], parts[2], body)
		}
		return n.interfaces(parts[1], parts[2], body)
	}
	i := slices.IndexFunc(n.all[parts[0]], func(o object) bool { return o["id"] == parts[1] })
	tags := len(parts) == 4 && parts[2] == "tags"
	if i < 0 && tags {
		return 0, nil, refuse(http.StatusNotFound, "TagResourceNotFound", "Resource %s %s could not be found.",
			parts[0], parts[1])
	}
	if i < 0 {
		return 0, nil, refuse(http.StatusNotFound, c.class+"NotFound", "%s %s could not be found.", c.class, parts[1])
	}
	o := n.all[parts[0]][i]
	if tags {
		have, _ := o["tags"].([]any)
		o["tags"] = append(have, parts[3])
		return http.StatusCreated, nil, nil
	}
	switch r.Method {
	case http.MethodGet:
		return http.StatusOK, object{c.singular: o}, nil
	case http.MethodDelete:
		if err := n.unused(parts[0], o); err != nil {
			return 0, nil, err
		}
		n.all[parts[0]] = slices.Delete(n.all[parts[0]], i, i+1)
		n.removed(parts[0], o)
		return http.StatusNoContent, nil, nil
	}
	changes, _ := body[c.singular].(object)
	changed, err := n.changed(c, parts[0], o, changes)
	if err != nil {
		return 0, nil, err
	}
	n.all[parts[0]][i] = changed
	return http.StatusOK, object{c.singular: changed}, nil
}

// list is what a filter leaves, from a marker on, up to the page's size.
func (n *Neutron) list(r *http.Request, collection string) object {
	query := r.URL.Query()
	skipping := query.Get("marker") != ""
	found := []object{}
	var links []object
	for _, o := range n.all[collection] {
		if skipping {
			skipping = o["id"] != query.Get("marker")
			continue
		}
		fits := true
		for name, values := range query {
			if name != "limit" && name != "marker" {
				text, _ := o[name].(string)
				tags, _ := o[name].([]any)
				fits = fits && (slices.Contains(values, text) || slices.Contains(tags, any(values[0])))
			}
		}
		if fits && len(found) == n.page {
			links = append(links, object{"rel": "next", "href": n.URL})
			break
		}
		if fits && collection == "security-groups" {
			o = n.withItsRules(o)
		}
		if fits {
			found = append(found, n.shown(collection, o))
		}
	}
	return object{collections[collection].plural: found, collections[collection].plural + "_links": links}
}
