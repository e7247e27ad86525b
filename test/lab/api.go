// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// API is a small part of a Kubernetes API server: objects of any kind to create, get, list, watch,
// patch and delete, with selectors, UIDs and the subresource status. It is not one to learn from:
// it keeps no history and checks no schema.
type API struct {
	mu       sync.Mutex
	revision int
	objects  map[string]map[string]object // resource → namespace/name → object
	changed  map[string]int               // resource → revision of its last change
	absent   map[string]bool              // groups that are not known
	watchers map[*watcher]struct{}
	nodes    []*Node
	servers  []*http.Server
	events   []corev1.Event
	numbers  int // of Networks and Routers
}

// object is one as JSON has it.
type object map[string]any

// watcher is one open watch.
type watcher struct {
	query query
	queue chan watchEvent
}

type watchEvent struct {
	Type   string `json:"type"`
	Object object `json:"object"`
}

// apiAddress is where the API server is found on every node.
const apiAddress = "127.0.0.1:6443"

func newAPI() *API {
	a := &API{
		revision: 1, objects: map[string]map[string]object{}, changed: map[string]int{}, absent: map[string]bool{},
		watchers: map[*watcher]struct{}{},
	}
	a.AddNamespace(defaultNamespace, nil)
	return a
}

// listen serves the API on a node's loopback until the node ends.
func (a *API) listen(n *Node) error {
	var l net.Listener
	err := n.Do(func() (err error) {
		l, err = net.Listen("tcp", apiAddress)
		return err
	})
	if err != nil {
		return fmt.Errorf("API server on %s: %w", n.Name, err)
	}
	srv := &http.Server{Handler: a}
	a.mu.Lock()
	a.servers = append(a.servers, srv)
	if !slices.Contains(a.nodes, n) {
		a.nodes = append(a.nodes, n)
	}
	a.mu.Unlock()
	go func() { _ = srv.Serve(l) }()
	return nil
}

// Stop closes the API server on all nodes, with every open connection.
func (a *API) Stop() {
	a.mu.Lock()
	servers := a.servers
	a.servers = nil
	a.mu.Unlock()
	for _, s := range servers {
		s.Close()
	}
}

// Resume serves again after Stop, with all objects.
func (a *API) Resume() error {
	a.mu.Lock()
	nodes := slices.Clone(a.nodes)
	a.mu.Unlock()
	for _, n := range nodes {
		if err := a.listen(n); err != nil {
			return err
		}
	}
	return nil
}

// SetAbsent has the API not know a group, such as k8s.cni.cncf.io, or know it again: its
// definitions are not installed.
func (a *API) SetAbsent(group string, absent bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.absent[group] = absent
}

// Events are the events that were posted, oldest first.
func (a *API) Events() []corev1.Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.events)
}

// put stores an object and tells the watchers. The caller holds mu.
func (a *API) put(resource, key string, o object) {
	a.revision++
	a.changed[resource] = a.revision
	o.meta()["resourceVersion"] = strconv.Itoa(a.revision)
	if a.objects[resource] == nil {
		a.objects[resource] = map[string]object{}
	}
	old := a.objects[resource][key]
	a.objects[resource][key] = o
	a.tell(resource, old, o)
}

// drop deletes an object and tells the watchers. The caller holds mu.
func (a *API) drop(resource, key string) {
	if o, ok := a.objects[resource][key]; ok {
		a.revision++
		a.changed[resource] = a.revision
		delete(a.objects[resource], key)
		gone := o.clone()
		gone.meta()["resourceVersion"] = strconv.Itoa(a.revision)
		a.tell(resource, gone, nil)
	}
}

// tell has each watcher see the change as one of what it selects.
func (a *API) tell(resource string, old, now object) {
	for w := range a.watchers {
		if w.query.resource != resource {
			continue
		}
		before, after := old != nil && w.query.selects(old), now != nil && w.query.selects(now)
		switch {
		case before && after:
			w.queue <- watchEvent{"MODIFIED", now}
		case after:
			w.queue <- watchEvent{"ADDED", now}
		case before && now != nil:
			w.queue <- watchEvent{"DELETED", now}
		case before:
			w.queue <- watchEvent{"DELETED", old}
		}
	}
}

// query is what a request's address says.
type query struct {
	group, resource       string // resource is resource.group
	namespace, name       string
	status                bool
	labels                labels.Selector
	fields                fields.Selector
	watch, initial, valid bool
	since                 int
}

// parse reads /api/v1/… and /apis/GROUP/VERSION/…, followed by
// [namespaces/NS/]RESOURCE[/NAME[/status]].
func parse(r *http.Request) query {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var q query
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		q.group, parts = parts[1], parts[3:]
	default:
		return q
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		q.namespace, parts = parts[1], parts[2:]
	}
	q.resource = parts[0]
	if q.group != "" {
		q.resource += "." + q.group
	}
	if len(parts) > 1 {
		q.name = parts[1]
	}
	q.status = len(parts) > 2 && parts[2] == "status"
	v := r.URL.Query()
	var lErr, fErr error
	q.labels, lErr = labels.Parse(v.Get("labelSelector"))
	q.fields, fErr = fields.ParseSelector(v.Get("fieldSelector"))
	q.watch, q.initial = v.Get("watch") != "", v.Get("sendInitialEvents") != ""
	q.since, _ = strconv.Atoi(v.Get("resourceVersion"))
	q.valid = lErr == nil && fErr == nil
	return q
}

func (q query) key() string { return objectKey(q.namespace, q.name) }

func objectKey(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// selects knows the field selectors of a name and of a node's pods.
func (q query) selects(o object) bool {
	namespace, _ := o.meta()["namespace"].(string)
	name, _ := o.meta()["name"].(string)
	node, _ := o.part("spec")["nodeName"].(string)
	return (q.namespace == "" || q.namespace == namespace) && q.labels.Matches(labels.Set(o.labels())) &&
		q.fields.Matches(fields.Set{"metadata.name": name, "spec.nodeName": node})
}

func (o object) part(name string) object {
	switch p := o[name].(type) {
	case map[string]any:
		return p
	case object:
		return p
	}
	return object{}
}

func (o object) meta() object { return o.part("metadata") }

func (o object) labels() map[string]string {
	m := map[string]string{}
	for k, v := range o.meta().part("labels") {
		m[k], _ = v.(string)
	}
	return m
}

func (o object) clone() object {
	c := maps.Clone(o)
	c["metadata"] = maps.Clone(map[string]any(o.meta()))
	return c
}

// ServeHTTP answers in JSON, whatever the client prefers.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := parse(r)
	a.mu.Lock()
	absent := a.absent[q.group]
	a.mu.Unlock()
	switch {
	case q.resource == "" || !q.valid || absent:
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, r.Method+" "+r.URL.Path)
	case r.Method == http.MethodPost && q.resource == "events":
		a.postEvent(w, r)
	case r.Method == http.MethodPost:
		a.create(w, r, q)
	case r.Method == http.MethodPatch:
		a.patch(w, r, q)
	case r.Method == http.MethodDelete:
		a.delete(w, r, q)
	case r.Method != http.MethodGet:
		status(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, r.Method)
	case q.name != "":
		a.get(w, q)
	case !q.watch:
		a.list(w, q)
	case q.initial:
		status(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is not known here")
	default:
		a.watch(w, r, q)
	}
}

func (a *API) get(w http.ResponseWriter, q query) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, ok := a.objects[q.resource][q.key()]
	if !ok {
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, q.resource+" "+q.key())
		return
	}
	answer(w, http.StatusOK, o)
}

func (a *API) list(w http.ResponseWriter, q query) {
	a.mu.Lock()
	defer a.mu.Unlock()
	items := []object{}
	kind, version := "", "v1"
	for _, o := range a.objects[q.resource] {
		kind, _ = o["kind"].(string)
		version, _ = o["apiVersion"].(string)
		if q.selects(o) {
			items = append(items, o)
		}
	}
	if kind == "" {
		kind, version = kindOf(q.resource)
	}
	answer(w, http.StatusOK, map[string]any{
		"kind": kind + "List", "apiVersion": version,
		"metadata": map[string]string{"resourceVersion": strconv.Itoa(a.revision)}, "items": items,
	})
}

// watch streams what changes from now on, after what changed since the list.
func (a *API) watch(w http.ResponseWriter, r *http.Request, q query) {
	watch := &watcher{q, make(chan watchEvent, 10000)}
	a.mu.Lock()
	if q.since < a.changed[q.resource] && q.since > 0 {
		// No history is kept: the client must list again.
		a.mu.Unlock()
		status(w, http.StatusGone, metav1.StatusReasonExpired, "too old a resource version")
		return
	}
	a.watchers[watch] = struct{}{}
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.watchers, watch)
		a.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "application/json")
	flush := http.NewResponseController(w)
	for encode := json.NewEncoder(w); flush.Flush() == nil; {
		select {
		case <-r.Context().Done():
			return
		case e := <-watch.queue:
			if encode.Encode(e) != nil {
				return
			}
		}
	}
}

func (a *API) postEvent(w http.ResponseWriter, r *http.Request) {
	var e corev1.Event
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		status(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	a.mu.Lock()
	a.events = append(a.events, e)
	a.mu.Unlock()
	answer(w, http.StatusCreated, e)
}

func status(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	answer(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}

func answer(w http.ResponseWriter, code int, o any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(o) // the client is gone
}
