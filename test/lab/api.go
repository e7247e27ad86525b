// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// API is a small part of a Kubernetes API server: nodes and pods to get, list
// and watch, events to post. It is not one to learn from: it keeps no history
// and checks nothing.
type API struct {
	mu       sync.Mutex
	revision int
	objects  map[string]map[string]any // resource → name → object
	watchers map[*watcher]struct{}
	servers  []*http.Server
	events   []corev1.Event
}

// watcher is one open watch.
type watcher struct {
	resource string
	selector string
	queue    chan watchEvent
}

type watchEvent struct {
	Type   string `json:"type"`
	Object any    `json:"object"`
}

// apiAddress is where the API server is found on every node.
const apiAddress = "127.0.0.1:6443"

func newAPI() *API {
	return &API{
		revision: 1,
		objects:  map[string]map[string]any{"nodes": {}, "pods": {}},
		watchers: map[*watcher]struct{}{},
	}
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

// Events are the events that were posted, oldest first.
func (a *API) Events() []corev1.Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]corev1.Event(nil), a.events...)
}

// set adds or replaces an object and tells the watchers.
func (a *API) set(resource, key string, o metav1.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revision++
	o.SetResourceVersion(strconv.Itoa(a.revision))
	kind := "ADDED"
	if _, ok := a.objects[resource][key]; ok {
		kind = "MODIFIED"
	}
	a.objects[resource][key] = o
	a.tell(resource, watchEvent{kind, o})
}

// remove deletes an object and tells the watchers.
func (a *API) remove(resource, key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o, ok := a.objects[resource][key]; ok {
		a.revision++
		delete(a.objects[resource], key)
		a.tell(resource, watchEvent{"DELETED", o})
	}
}

func (a *API) tell(resource string, e watchEvent) {
	for w := range a.watchers {
		if w.resource == resource && selected(e.Object, w.selector) {
			w.queue <- e
		}
	}
}

// ServeHTTP answers in JSON, whatever the client prefers.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource, name := target(r.URL.Path)
	switch {
	case r.Method == http.MethodPost && resource == "events":
		a.postEvent(w, r)
	case r.Method != http.MethodGet || a.objects[resource] == nil:
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, r.Method+" "+r.URL.Path)
	case name != "":
		a.get(w, resource, name)
	case r.URL.Query().Get("watch") == "":
		a.list(w, resource, r.URL.Query().Get("fieldSelector"))
	case r.URL.Query().Get("sendInitialEvents") != "":
		status(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is not known here")
	default:
		a.watch(w, r, resource)
	}
}

// target finds resource and name in /api/v1/[namespaces/NS/]RESOURCE[/NAME].
func target(path string) (resource, name string) {
	parts := strings.Split(strings.TrimPrefix(path, "/api/v1/"), "/")
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	if len(parts) > 1 {
		name = parts[1]
	}
	return parts[0], name
}

func (a *API) get(w http.ResponseWriter, resource, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, ok := a.objects[resource][name]
	if !ok {
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, resource+" "+name)
		return
	}
	answer(w, http.StatusOK, o)
}

func (a *API) list(w http.ResponseWriter, resource, selector string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	items := []any{}
	for _, o := range a.objects[resource] {
		if selected(o, selector) {
			items = append(items, o)
		}
	}
	answer(w, http.StatusOK, map[string]any{
		"kind": map[string]string{"nodes": "NodeList", "pods": "PodList"}[resource], "apiVersion": "v1",
		"metadata": map[string]string{"resourceVersion": strconv.Itoa(a.revision)}, "items": items,
	})
}

// watch streams what changes from now on, after what changed since the list.
func (a *API) watch(w http.ResponseWriter, r *http.Request, resource string) {
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	watch := &watcher{resource, r.URL.Query().Get("fieldSelector"), make(chan watchEvent, 1000)}
	a.mu.Lock()
	if since < a.revision && since > 0 {
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

// selected says whether an object is one of those that a field selector asks
// for. The only one known is that of a node's pods.
func selected(o any, selector string) bool {
	node, ok := strings.CutPrefix(selector, "spec.nodeName=")
	pod, isPod := o.(*corev1.Pod)
	return !ok || !isPod || pod.Spec.NodeName == node
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
	_ = json.NewEncoder(w).Encode(o) // the client is gone: nobody to tell
}
