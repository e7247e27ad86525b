// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package watcher

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/localapi"
)

// odl is a RESTCONF controller as OpenDaylight is: it takes what COE's models have and nothing
// else, and answers 200.
type odl struct {
	mu   sync.Mutex
	data map[string]map[string]json.RawMessage // entries by list and key
	// down has it answer 503. foul are names that it refuses.
	down bool
	foul map[string]bool
}

// model are the leaves of each list that COE's models have; of those that are lists, the entries'.
var model = map[string]map[string]any{
	"k8s-cluster:k8s-clusters-info/k8s-clusters": {"cluster-id": nil},
	"k8s-node:k8s-nodes-info/k8s-nodes": {
		"uid": nil, "cluster-id": nil, "host-name": nil, "external-ip-address": nil, "internal-ip-address": nil, "pod-cidr": nil,
	},
	"pod:coe/pods": {
		"uid": nil, "name": nil, "host-ip-address": nil, "cluster-id": nil, "network-NS": nil, "port-mac-address": nil,
		"interface": map[string]any{"uid": nil, "ip-address": nil, "network-id": nil, "network-type": nil},
	},
	"service:service-information/services": {
		"uid": nil, "name": nil, "cluster-id": nil, "cluster-ip-address": nil, "network-NS": nil, "external-ip-address": nil,
		"load-balancer-IP": nil, "ingress-ip-address": nil,
		"service-ports": map[string]any{"name": nil, "port": nil, "target-port": nil, "node-port": nil},
	},
	"service:endpoints-info/endpoints": {
		"uid": nil, "name": nil, "network-NS": nil,
		"endpoint-addresses": map[string]any{"ip-address": nil, "host-name": nil, "node-name": nil},
		"endpoint-ports":     map[string]any{"name": nil, "port": nil},
	},
}

func strict(entry map[string]any, leaves map[string]any) error {
	for name, value := range entry {
		children, ok := leaves[name]
		if !ok {
			return fmt.Errorf("schema node %s was not found", name)
		}
		of, isList := children.(map[string]any)
		if !isList {
			continue
		}
		list, ok := value.([]any)
		if !ok {
			return fmt.Errorf("%s is a list", name)
		}
		for _, e := range list {
			if err := strict(e.(map[string]any), of); err != nil {
				return err
			}
		}
	}
	for _, key := range []string{"uid", "cluster-id"} {
		if id, ok := entry[key].(string); ok {
			if _, err := uuid.Parse(id); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	return nil
}

func (o *odl) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	user, password, _ := r.BasicAuth()
	path, found := strings.CutPrefix(r.URL.Path, "/restconf/config/")
	switch {
	case o.down:
		http.Error(w, "starting", http.StatusServiceUnavailable)
	case user != "admin" || password != "admin":
		http.Error(w, "who?", http.StatusUnauthorized)
	case !found:
		http.NotFound(w, r)
	case r.Method == http.MethodGet:
		o.get(w, path)
	default:
		o.edit(w, r, path)
	}
}

func (o *odl) get(w http.ResponseWriter, container string) {
	for list, entries := range o.data {
		if in, name, _ := strings.Cut(list, "/"); in == container && len(entries) > 0 {
			data, err := json.Marshal(map[string]any{container: map[string]any{name: slices.Collect(maps.Values(entries))}})
			if err != nil {
				panic(err)
			}
			_, _ = w.Write(data)
			return
		}
	}
	http.Error(w, `{"errors":{"error":[{"error-tag":"data-missing"}]}}`, http.StatusNotFound)
}

func (o *odl) edit(w http.ResponseWriter, r *http.Request, path string) {
	i := strings.LastIndex(path, "/")
	list, key := path[:i], path[i+1:]
	leaves, known := model[list]
	module, _, _ := strings.Cut(list, ":")
	if !known {
		http.Error(w, "no such list "+list, http.StatusBadRequest)
		return
	}
	if o.data[list] == nil {
		o.data[list] = map[string]json.RawMessage{}
	}
	if r.Method == http.MethodDelete {
		if _, there := o.data[list][key]; !there {
			http.Error(w, "data-missing", http.StatusNotFound)
		}
		delete(o.data[list], key)
		return
	}
	body, err := io.ReadAll(r.Body)
	var tree map[string][]map[string]any
	if err == nil {
		err = json.Unmarshal(body, &tree)
	}
	name := module + ":" + list[strings.LastIndex(list, "/")+1:]
	if err == nil && (len(tree) != 1 || len(tree[name]) != 1) {
		err = fmt.Errorf("want one entry of %s", name)
	}
	if err == nil {
		err = strict(tree[name][0], leaves)
	}
	if err == nil && o.foul[fmt.Sprint(tree[name][0]["name"])] {
		err = fmt.Errorf("a foul name")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if o.data[list][key], err = json.Marshal(tree[name][0]); err != nil {
		panic(err)
	}
}

func (o *odl) change(do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	do()
}

// has are the entries of a list in short: "name address…", sorted.
func (o *odl) has(list string) []string {
	var all []string
	o.change(func() {
		for _, data := range o.data[list] {
			var e struct {
				Name      string
				Host      string           `json:"host-name"`
				ClusterIP string           `json:"cluster-ip-address"`
				Interface []map[string]any `json:"interface"`
				Addresses []map[string]any `json:"endpoint-addresses"`
				Ports     []map[string]any `json:"endpoint-ports"`
			}
			if err := json.Unmarshal(data, &e); err != nil {
				panic(err)
			}
			words := []string{e.Name + e.Host}
			if e.ClusterIP != "" {
				words = append(words, "VIP")
			}
			for _, i := range slices.Concat(e.Interface, e.Addresses) {
				words = append(words, fmt.Sprint(i["ip-address"]))
			}
			for _, p := range e.Ports {
				words = append(words, fmt.Sprint(p["port"]))
			}
			all = append(all, strings.Join(words, " "))
		}
	})
	slices.Sort(all)
	return all
}

// cluster is a real API, a controller and a watcher between the two.
type cluster struct {
	*testing.T
	api    kubernetes.Interface
	rest   *rest.Config
	odl    *odl
	config Config
	stop   context.CancelFunc
	done   chan error
}

func (c *cluster) start() {
	ctx, stop := context.WithCancel(context.Background())
	c.stop, c.done = stop, make(chan error, 1)
	go func() { c.done <- RunODL(ctx, slog.New(slog.DiscardHandler), rest.CopyConfig(c.rest), c.config) }()
}

func (c *cluster) end() {
	c.stop()
	if err := <-c.done; err != nil {
		c.Errorf("the watcher ends with %v", err)
	}
}

// becomes waits until a list of the controller is as wanted.
func (c *cluster) becomes(list string, want ...string) {
	c.Helper()
	var got []string
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if got = c.odl.has(list); slices.Equal(got, want) {
			return
		}
	}
	c.Errorf("%s (-want +got):\n%s", list, cmp.Diff(want, got))
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// pod makes a pod with addresses.
func (c *cluster) pod(name string, addresses ...string) *corev1.Pod {
	c.Helper()
	p, err := c.api.CoreV1().Pods("default").Create(c.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}, metav1.CreateOptions{})
	c.must(err)
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, HostIP: "192.0.2.1", HostIPs: []corev1.HostIP{{IP: "192.0.2.1"}}}
	for _, a := range addresses {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
	}
	p.Status.PodIP = addresses[0]
	p, err = c.api.CoreV1().Pods("default").UpdateStatus(c.Context(), p, metav1.UpdateOptions{})
	c.must(err)
	return p
}

func (c *cluster) remove(p *corev1.Pod) {
	c.Helper()
	c.must(c.api.CoreV1().Pods(p.Namespace).Delete(c.Context(), p.Name, *metav1.NewDeleteOptions(0)))
}

func (c *cluster) slice(name, service string, port int32, addresses ...string) *discoveryv1.EndpointSlice {
	c.Helper()
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &port}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	s, err := c.api.DiscoveryV1().EndpointSlices("default").Create(c.Context(), s, metav1.CreateOptions{})
	c.must(err)
	return s
}

const (
	podsList      = "pod:coe/pods"
	nodesList     = "k8s-node:k8s-nodes-info/k8s-nodes"
	servicesList  = "service:service-information/services"
	endpointsList = "service:endpoints-info/endpoints"
)

// TestWatcher has a watcher keep a strict controller as a real API is, through changes, refusals
// and the ends of either.
func TestWatcher(t *testing.T) {
	a := apitest.Start(t)
	api, err := kubernetes.NewForConfig(a.REST)
	if err != nil {
		t.Fatal(err)
	}
	o := &odl{data: map[string]map[string]json.RawMessage{podsList: {"x": json.RawMessage(`{"uid":"x","name":"theirs","cluster-id":"other"}`)}}, foul: map[string]bool{"foul": true}}
	server := httptest.NewServer(o)
	t.Cleanup(server.Close)
	c := &cluster{T: t, api: api, rest: a.REST, odl: o, config: DefaultConfig()}
	c.config.ODL.Host, c.config.Socket = server.URL, filepath.Join(t.TempDir(), "s")
	c.config.Reread = metav1.Duration{Duration: time.Second}
	c.config.LeaderElectionNamespace = "default"

	_, err = api.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
	c.must(err)
	web := c.pod("web-0", "10.11.2.7", "fd00:11::7")
	c.start()
	c.becomes(podsList, "theirs", "web-0 10.11.2.7 fd00:11::7")
	c.becomes(nodesList, "n1")
	c.becomes(servicesList, "kubernetes VIP")

	// Changes.
	old := c.pod("old", "10.11.2.8")
	_, err = api.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}},
	}, metav1.CreateOptions{})
	c.must(err)
	first, second := c.slice("web-1", "web", 8080, "10.11.2.7"), c.slice("web-2", "web", 9090, "10.11.2.8")
	c.becomes(podsList, "old 10.11.2.8", "theirs", "web-0 10.11.2.7 fd00:11::7")
	c.becomes(servicesList, "kubernetes VIP", "web VIP")
	awaitEndpoints := func(want string) {
		t.Helper()
		got := ""
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end) && got != want; time.Sleep(20 * time.Millisecond) {
			got = ""
			for _, e := range o.has(endpointsList) {
				if strings.HasPrefix(e, "web") {
					got = e
				}
			}
		}
		if got != want {
			t.Errorf("endpoints %q, want %q", got, want)
		}
	}
	awaitEndpoints("web 10.11.2.7 10.11.2.8 8080 9090")
	c.must(api.DiscoveryV1().EndpointSlices("default").Delete(t.Context(), second.Name, metav1.DeleteOptions{}))
	awaitEndpoints("web 10.11.2.7 8080")

	// The controller is away, and then has lost everything.
	o.change(func() { o.down = true })
	c.remove(old)
	late := c.pod("late", "10.11.2.9")
	c.status(func(s Report) bool { return s.Leading && !s.Connected && strings.Contains(s.Error, "503") })
	o.change(func() { o.down = false; clear(o.data) })
	c.becomes(podsList, "late 10.11.2.9", "web-0 10.11.2.7 fd00:11::7")
	c.becomes(nodesList, "n1")
	awaitEndpoints("web 10.11.2.7 8080")

	// The watcher is away.
	c.end()
	c.remove(late)
	c.must(api.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	c.must(api.DiscoveryV1().EndpointSlices("default").Delete(t.Context(), first.Name, metav1.DeleteOptions{}))
	again := c.pod("late", "10.11.2.10") // another pod of the name
	c.start()
	c.becomes(podsList, "late 10.11.2.10", "web-0 10.11.2.7 fd00:11::7")
	c.becomes(servicesList, "kubernetes VIP")
	awaitEndpoints("")

	// What is refused is told on its object, and holds up nothing else.
	foul := c.pod("foul", "10.11.2.11")
	fine := c.pod("fine", "10.11.2.12")
	c.becomes(podsList, "fine 10.11.2.12", "late 10.11.2.10", "web-0 10.11.2.7 fd00:11::7")
	c.status(func(s Report) bool { return s.Connected && s.Lists[2].Refused == 1 && s.Lists[2].Pending == 1 })
	c.event(foul.UID, "a foul name")

	// A pod that has ended has no address any more.
	web.Status.Phase = corev1.PodSucceeded
	_, err = api.CoreV1().Pods("default").UpdateStatus(t.Context(), web, metav1.UpdateOptions{})
	c.must(err)
	for _, p := range []*corev1.Pod{foul, fine, again} {
		c.remove(p)
	}
	c.becomes(podsList)
	c.status(func(s Report) bool {
		return s.Connected && s.OldestSeconds == 0 && s.Lists[2].Wanted+s.Lists[2].Pending+s.Lists[2].Refused == 0
	})
	c.end()
}

// status waits until what `coelan-watcher status` shows is right.
func (c *cluster) status(right func(Report) bool) {
	c.Helper()
	var s Report
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		out := &bytes.Buffer{}
		err := localapi.Query(c.Context(), "watcher", c.config.Socket, StatusPath, nil, out)
		if err == nil {
			err = json.Unmarshal(out.Bytes(), &s)
		}
		if err == nil && right(s) {
			return
		}
	}
	c.Errorf("status %+v", s)
}

// event waits for one about an object.
func (c *cluster) event(uid types.UID, text string) {
	c.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		list, err := c.api.CoreV1().Events("default").List(c.Context(), metav1.ListOptions{})
		c.must(err)
		if slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.UID == uid && e.Reason == "RefusedByController" && strings.Contains(e.Message, text)
		}) {
			return
		}
	}
	c.Errorf("no Event says %q", text)
}
