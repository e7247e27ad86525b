// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/restconf/mapping"
)

// memory is an API that keeps objects with versions, as Kubernetes does.
type memory struct {
	mu      sync.Mutex
	world   *mapping.World
	version int
	// before is called before each commit, outside of the lock.
	before func()
	// watchers are called after each write.
	watchers []func(mapping.Resource)
}

func newMemory() *memory {
	return &memory{world: &mapping.World{
		Networks: map[string]*v1alpha1.Network{}, Routers: map[string]*v1alpha1.Router{},
		Ports: map[types.NamespacedName]*v1alpha1.Port{}, Namespaces: map[string]*corev1.Namespace{},
		Nodes: map[string]*corev1.Node{}, Pods: map[types.UID]*corev1.Pod{},
		Services: map[types.NamespacedName]*corev1.Service{}, Slices: map[types.NamespacedName]*discoveryv1.EndpointSlice{},
		Policies: map[types.NamespacedName]*networkingv1.NetworkPolicy{},
		Objects:  map[mapping.Resource]map[types.NamespacedName]client.Object{},
	}}
}

func (m *memory) Read(_ context.Context, _ []mapping.Resource, _ mapping.Entry) (*mapping.World, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.world.Clone(), nil
}

func (m *memory) Watch(_ context.Context, r mapping.Resource, changed func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watchers = append(m.watchers, func(of mapping.Resource) {
		if of == r {
			changed()
		}
	})
	return nil
}

func (m *memory) Commit(_ context.Context, changes []mapping.Change) error {
	if m.before != nil {
		m.before()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range changes {
		now := m.get(c.Resource, c.Object)
		resource := schema.GroupResource{Group: c.Resource.Group, Resource: c.Resource.Name}
		switch {
		case c.Verb == mapping.Create && now != nil:
			return apierrors.NewAlreadyExists(resource, c.Object.GetName())
		case c.Verb != mapping.Create && (now == nil || now.GetResourceVersion() != c.Object.GetResourceVersion()):
			return apierrors.NewConflict(resource, c.Object.GetName(), nil)
		}
	}
	for i, c := range changes {
		changes[i].Object = c.Object.DeepCopyObject().(client.Object)
		m.putAs(c.Resource, changes[i].Object, c.Verb == mapping.Delete)
	}
	for _, c := range changes {
		for _, changed := range m.watchers {
			changed(c.Resource)
		}
	}
	return nil
}

func (m *memory) get(r mapping.Resource, o client.Object) client.Object {
	switch o := o.(type) {
	case *v1alpha1.Network:
		if n := m.world.Networks[o.Name]; n != nil {
			return n
		}
	case *v1alpha1.Router:
		if r := m.world.Routers[o.Name]; r != nil {
			return r
		}
	case *v1alpha1.Port:
		if p := m.world.Ports[client.ObjectKeyFromObject(o)]; p != nil {
			return p
		}
	case *corev1.Service:
		if svc := m.world.Services[client.ObjectKeyFromObject(o)]; svc != nil {
			return svc
		}
	case *discoveryv1.EndpointSlice:
		if slice := m.world.Slices[client.ObjectKeyFromObject(o)]; slice != nil {
			return slice
		}
	case *networkingv1.NetworkPolicy:
		if p := m.world.Policies[client.ObjectKeyFromObject(o)]; p != nil {
			return p
		}
	default:
		if known := m.world.Objects[r][client.ObjectKeyFromObject(o)]; known != nil {
			return known
		}
	}
	return nil
}

// put stores an object of one of the kinds that a World has maps of its own for, or removes it.
func (m *memory) put(o client.Object, remove bool) { m.putAs(mapping.Resource{}, o, remove) }

func (m *memory) putAs(r mapping.Resource, o client.Object, remove bool) {
	m.version++
	o.SetResourceVersion(string(rune('0'+m.version/10)) + string(rune('0'+m.version%10)))
	if o.GetUID() == "" {
		o.SetUID(uuid.NewUUID())
	}
	switch o := o.(type) {
	case *v1alpha1.Network:
		m.world.Networks[o.Name] = o
		if remove {
			delete(m.world.Networks, o.Name)
		}
	case *v1alpha1.Router:
		m.world.Routers[o.Name] = o
		if remove {
			delete(m.world.Routers, o.Name)
		}
	case *v1alpha1.Port:
		m.world.Ports[client.ObjectKeyFromObject(o)] = o
		if remove {
			delete(m.world.Ports, client.ObjectKeyFromObject(o))
		}
	case *corev1.Service:
		m.world.Services[client.ObjectKeyFromObject(o)] = o
		if remove {
			delete(m.world.Services, client.ObjectKeyFromObject(o))
		}
	case *discoveryv1.EndpointSlice:
		m.world.Slices[client.ObjectKeyFromObject(o)] = o
		if remove {
			delete(m.world.Slices, client.ObjectKeyFromObject(o))
		}
	case *networkingv1.NetworkPolicy:
		m.world.Policies[client.ObjectKeyFromObject(o)] = o
		if remove {
			delete(m.world.Policies, client.ObjectKeyFromObject(o))
		}
	default:
		m.world.Put(r, o)
		if remove {
			delete(m.world.Objects[r], client.ObjectKeyFromObject(o))
		}
	}
}

// site is a handler over a memory, and what tests do with it. The token "admin" may do all,
// "reader" may list, "ports-a", "services-a", "networkpolicies-a" and "securitygroups-a" may do all
// with Ports, Services, NetworkPolicies or SecurityGroups of the namespace a.
type site struct {
	*testing.T
	api *memory
	h   http.Handler
}

func newSite(t *testing.T) *site {
	t.Helper()
	api := newMemory()
	h, err := newHandler(Options{Log: slog.New(slog.DiscardHandler), Kubernetes: reviewer(), API: api, Namespace: "coelan-system"})
	if err != nil {
		t.Fatal(err)
	}
	return &site{T: t, api: api, h: h}
}

// reviewer answers reviews of tokens and of access.
func reviewer() *fake.Clientset {
	api := fake.NewClientset()
	api.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
		if slices.Contains([]string{"admin", "reader", "ports-a", "services-a", "networkpolicies-a", "securitygroups-a"}, review.Spec.Token) {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: review.Spec.Token}}
		}
		return true, review, nil
	})
	api.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		want := review.Spec.ResourceAttributes
		review.Status.Allowed = review.Spec.User == "admin" || review.Spec.User == "reader" && want.Verb == "list" ||
			review.Spec.User == want.Resource+"-a" && want.Namespace == "a"
		return true, review, nil
	})
	return api
}

type reply struct {
	code int
	body string
	head http.Header
}

// as sends a request with a token.
func (s *site) as(token, method, path, body string, headers ...string) reply {
	s.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", yangData)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return s.serve(r)
}

// newRequest is a request as a client may send it; false if none can.
func newRequest(method, path, body string) (*http.Request, bool) {
	r, err := http.NewRequest(method, "https://example.com", strings.NewReader(body))
	if err != nil {
		return nil, false
	}
	if r.URL, err = url.ParseRequestURI(path); err != nil {
		return nil, false
	}
	r.Header.Set("Authorization", "Bearer admin")
	r.Header.Set("Content-Type", yangData)
	return r, true
}

func (s *site) serve(r *http.Request) reply {
	s.Helper()
	w := httptest.NewRecorder()
	s.h.ServeHTTP(w, r)
	answer := w.Result()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.Fatal(err)
	}
	return reply{answer.StatusCode, string(text), answer.Header}
}

func (s *site) do(method, path, body string, headers ...string) reply {
	s.Helper()
	return s.as("admin", method, path, body, headers...)
}

// want sends a request and fails if the status is another one.
func (s *site) want(code int, method, path, body string, headers ...string) reply {
	s.Helper()
	got := s.do(method, path, body, headers...)
	if got.code != code {
		s.Fatalf("%s %s: %d, want %d: %s", method, path, got.code, code, got.body)
	}
	return got
}

// same compares JSON.
func (s *site) same(got, want string) {
	s.Helper()
	var a, b any
	if err := json.Unmarshal([]byte(got), &a); err != nil {
		s.Fatalf("%v: %s", err, got)
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		s.Fatal(err)
	}
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	if sha256.Sum256(x) != sha256.Sum256(y) {
		s.Errorf("got  %s\nwant %s", x, y)
	}
}

// The samples are as the documents print them.
const (
	samplePool = `{
  "dhcp_allocation_pool:network": [
   {
      "dhcp_allocation_pool:allocation-pool": [
        {
          "dhcp_allocation_pool:subnet": "192.168.10.0/24",
          "dhcp_allocation_pool:allocate-to": "192.168.10.50",
          "dhcp_allocation_pool:gateway": "192.168.10.2",
          "dhcp_allocation_pool:allocate-from": "192.168.10.3"
         }
      ],
      "dhcp_allocation_pool:network-id": "pod-namespace"
    }
  ]
}`
	samplePod = `{
  "pod:pods": [
    {
      "pod:version": "Some version",
      "pod:uid": "AC092D9B-E9Eb-BAE2-eEd8-74Aca2B7Fa9C",
      "pod:interface": [
        {
          "pod:uid": "7bA91A3A-f17E-2eBB-eDec-3BBBEa27DCa7",
          "pod:ip-address": "0.147.0.7",
          "pod:network-id": "fBAD80df-B0B4-0580-8D14-11FcaCED2ac6",
          "pod:network-type": "FLAT",
          "pod:segmentation-id": "0"
        }
      ]
    }
  ]
}`
)

func TestSamplePool(t *testing.T) {
	s := newSite(t)
	s.api.world.Namespaces["pod-namespace"] = &corev1.Namespace{}
	s.want(204, "POST", "/restconf/config/dhcp_allocation_pool:dhcp_allocation_pool/", samplePool)
	n := s.api.world.Networks["pod-namespace"]
	if n == nil || n.Spec.Role != v1alpha1.Primary || n.Spec.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "pod-namespace" {
		t.Fatalf("network: %+v", n)
	}
	subnet := n.Spec.Subnets[0]
	if subnet.CIDR != "192.168.10.0/24" || subnet.Gateway != "192.168.10.2" || subnet.Ranges[0].From != "192.168.10.3" || subnet.Ranges[0].To != "192.168.10.50" {
		t.Errorf("subnet: %+v", subnet)
	}
	got := s.want(200, "GET", "/restconf/config/dhcp_allocation_pool:dhcp_allocation_pool/network/pod-namespace", "")
	s.same(got.body, `{"dhcp_allocation_pool:network":[{"network-id":"pod-namespace","allocation-pool":[{"subnet":"192.168.10.0/24",
		"allocate-from":"192.168.10.3","allocate-to":"192.168.10.50","gateway":"192.168.10.2"}]}]}`)
	// As a PUT, it leaves other networks as they are.
	s.want(201, "PUT", "/rests/data/dhcp_allocation_pool:dhcp_allocation_pool/network=other",
		`{"network":[{"network-id":"other","allocation-pool":[{"subnet":"10.9.0.0/16"}]}]}`)
	s.want(200, "PUT", "/restconf/config/dhcp_allocation_pool:dhcp_allocation_pool/", samplePool)
	if len(s.api.world.Networks) != 2 {
		t.Errorf("networks: %v", slices.Collect(maps.Keys(s.api.world.Networks)))
	}
}

func TestSamplePod(t *testing.T) {
	s := newSite(t)
	s.want(204, "POST", "/restconf/config/pod:coe", samplePod)
	key := types.NamespacedName{Namespace: "default", Name: "ac092d9b-e9eb-bae2-eed8-74aca2b7fa9c.7ba91a3a-f17e-2ebb-edec-3bbbea27dca7"}
	p := s.api.world.Ports[key]
	if p == nil || p.Spec.Network != "fbad80df-b0b4-0580-8d14-11fcaced2ac6" || !slices.Equal(p.Spec.Addresses, []string{"0.147.0.7"}) {
		t.Fatalf("port: %+v", p)
	}
	got := s.want(200, "GET", "/restconf/config/pod:coe/pods/AC092D9B-E9Eb-BAE2-eEd8-74Aca2B7Fa9C", "")
	s.same(got.body, `{"pod:pods":[{"uid":"ac092d9b-e9eb-bae2-eed8-74aca2b7fa9c","version":"Some version","interface":[{
		"uid":"7ba91a3a-f17e-2ebb-edec-3bbbea27dca7","ip-address":"0.147.0.7","network-id":"fbad80df-b0b4-0580-8d14-11fcaced2ac6",
		"network-type":"FLAT","segmentation-id":0}]}]}`)
	if got := s.do("POST", "/restconf/config/pod:coe", samplePod); got.code != 409 || !strings.Contains(got.body, "data-exists") {
		t.Errorf("again: %d %s", got.code, got.body)
	}
	s.want(200, "DELETE", "/restconf/config/pod:coe/pods/ac092d9b-e9eb-bae2-eed8-74aca2b7fa9c", "")
	if len(s.api.world.Ports) != 0 {
		t.Error("the Port is still there")
	}
}

// TestWatcherPod is what COE's watcher sends.
func TestWatcherPod(t *testing.T) {
	s := newSite(t)
	s.api.world.Nodes["worker1"] = &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.2.15"}}}}
	const uid, other = "11111111-2222-3333-4444-555555555555", "11111111-2222-3333-4444-666666666666"
	body := `{"pods":[{"uid":"` + uid + `","cluster-id":"00000000-0000-0000-0000-000000000001","name":"web-0","host-ip-address":"10.0.2.15","network-NS":"shop","port-mac-address":"",
		"interface":[{"uid":"` + uid + `","ip-address":"10.11.2.7","network-id":"00000000-0000-0000-0000-000000000000","network-type":"VXLAN"}]}]}`
	for range 2 {
		s.want(200, "PUT", "/restconf/config/pod:coe/pods/"+uid, body, "Content-Type", "application/json")
	}
	p := s.api.world.Ports[types.NamespacedName{Namespace: "shop", Name: uid}]
	if p == nil || p.Spec.Network != "default" || p.Spec.Node != "worker1" || p.ResourceVersion != "01" {
		t.Errorf("port: %+v", p)
	}
	// A pod of Kubernetes is only compared.
	s.api.world.Pods[other] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}, Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.11.2.7"}}}}
	s.want(200, "PUT", "/restconf/config/pod:coe/pods/"+other, strings.ReplaceAll(body, uid, other))
	wrong := s.want(400, "PUT", "/restconf/config/pod:coe/pods/"+other, strings.ReplaceAll(strings.ReplaceAll(body, uid, other), "web-0", "web-1"))
	if !strings.Contains(wrong.body, "pods[uid='"+other+"']/name") {
		t.Error(wrong.body)
	}
	if len(s.api.world.Ports) != 1 {
		t.Error("a Port was made for a pod of Kubernetes")
	}
}

// TestWatcherNode is what COE's watcher sends of a node, which Kubernetes has.
func TestWatcherNode(t *testing.T) {
	s := newSite(t)
	const uid = "11111111-2222-3333-4444-555555555555"
	s.api.world.Nodes["worker1"] = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "worker1", UID: uid},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.2.15"}}},
	}
	const path = "/restconf/config/k8s-node:k8s-nodes-info/k8s-nodes/"
	body := func(host, address string) string {
		return `{"k8s-node:k8s-nodes":[{"k8s-node:uid":"` + uid + `","k8s-node:cluster-id":"00000000-0000-0000-0000-000000000001",
			"k8s-node:host-name":"` + host + `","k8s-node:internal-ip-address":"` + address + `"}]}`
	}
	s.want(200, "PUT", path+uid, body("worker1", "10.0.2.15"))
	for _, wrong := range []string{body("worker2", "10.0.2.15"), body("worker1", "10.0.2.16")} {
		if got := s.want(400, "PUT", path+uid, wrong); !strings.Contains(got.body, "k8s-nodes[uid='"+uid+"']/") {
			t.Error(got.body)
		}
	}
	s.want(501, "DELETE", path+uid, "")
}

func TestELANAndVPN(t *testing.T) {
	s := newSite(t)
	s.want(204, "PATCH", "/restconf/data", `{"ietf-restconf:data":{
		"elan:elan-instances":{"elan-instance":[{"elan-instance-name":"red","segment-type":"elan:segment-type-vxlan","segmentation-id":70010,"description":"a tenant"}]},
		"dhcp_allocation_pool:dhcp_allocation_pool":{"network":[{"network-id":"red","allocation-pool":[{"subnet":"10.10.0.0/16","dns-servers":["10.10.0.53"]}]}]},
		"l3vpn:vpn-instances":{"vpn-instance":[{"vpn-instance-name":"red","ipv4-family":{"route-distinguisher":["64512:7"],"vpnTargets":{"vpnTarget":[
			{"vrfRTValue":"64512:100","vrfRTType":"both"},{"vrfRTValue":"64512:200","vrfRTType":"import_extcommunity"}]}}}]},
		"elan:elan-interfaces":{"elan-interface":[{"name":"a:vm","elan-instance-name":"red","static-mac-entries":[{"mac-address":"0A:00:00:00:00:01","ip-prefix":"10.10.0.9"}]}]}}}`)
	n, r := s.api.world.Networks["red"], s.api.world.Routers["red"]
	p := s.api.world.Ports[types.NamespacedName{Namespace: "a", Name: "vm"}]
	if n == nil || *n.Spec.VNI != 70010 || n.Spec.Subnets[0].CIDR != "10.10.0.0/16" || n.Spec.DNS.Nameservers[0] != "10.10.0.53" {
		t.Errorf("network: %+v", n)
	}
	if r == nil || !slices.Equal(r.Spec.ImportRouteTargets, []string{"64512:100", "64512:200"}) || !slices.Equal(r.Spec.ExportRouteTargets, []string{"64512:100"}) || r.Spec.RouteDistinguisher != "64512:7" {
		t.Errorf("router: %+v", r)
	}
	if p == nil || p.Spec.Network != "red" || p.Spec.MAC != "0a:00:00:00:00:01" || !slices.Equal(p.Spec.Addresses, []string{"10.10.0.9"}) {
		t.Errorf("port: %+v", p)
	}
	got := s.want(200, "GET", "/restconf/data/elan:elan-instances?fields=elan-instance(segment-type)", "")
	s.same(got.body, `{"elan:elan-instances":{"elan-instance":[{"elan-instance-name":"red","segment-type":"elan:segment-type-vxlan"}]}}`)
	got = s.want(200, "GET", "/restconf/data/l3vpn:vpn-instances/vpn-instance=red/ipv4-family/route-distinguisher", "")
	s.same(got.body, `{"l3vpn:route-distinguisher":["64512:7"]}`)
	for path, tag := range map[string]string{
		"elan:elan-instances/elan-instance=red": "in-use", "l3vpn:vpn-instances/vpn-instance=red": "in-use",
	} {
		if got := s.want(409, "DELETE", "/restconf/data/"+path, ""); !strings.Contains(got.body, tag) {
			t.Error(got.body)
		}
	}
	s.want(204, "DELETE", "/restconf/data/elan:elan-interfaces/elan-interface=a%3Avm", "")
	s.want(204, "DELETE", "/restconf/data/elan:elan-instances/elan-instance=red", "")
	s.want(204, "DELETE", "/restconf/data/l3vpn:vpn-instances/vpn-instance=red", "")
	s.want(404, "GET", "/restconf/data/elan:elan-instances/elan-instance=red", "")
}

// TestEditsKeepTheRest edits entries that a client of Kubernetes has made, with what the models
// have nothing for.
func TestEditsKeepTheRest(t *testing.T) {
	s := newSite(t)
	s.api.put(&v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "blue", Labels: map[string]string{"team": "x"}}, Spec: v1alpha1.NetworkSpec{
		Type: v1alpha1.Overlay, MTU: 1300,
		Subnets: []v1alpha1.Subnet{
			{CIDR: "10.1.0.0/16", Ranges: []v1alpha1.AddressRange{{From: "10.1.0.5", To: "10.1.0.9"}, {From: "10.1.1.0", To: "10.1.1.9"}}, Exclusions: []v1alpha1.Exclusion{"10.1.0.6"}},
			{CIDR: "10.2.0.0/16", Exclusions: []v1alpha1.Exclusion{"10.2.0.6"}},
		},
	}}, false)
	const entry = "/restconf/data/dhcp_allocation_pool:dhcp_allocation_pool/network=blue/allocation-pool=10.1.0.0%2F16"
	s.want(204, "PUT", entry+"/allocate-to", `{"dhcp_allocation_pool:allocate-to":"10.1.0.8"}`)
	n := s.api.world.Networks["blue"]
	if got := n.Spec.Subnets[0]; len(got.Ranges) != 2 || got.Ranges[0].To != "10.1.0.8" || len(got.Exclusions) != 1 {
		t.Errorf("the edited subnet: %+v", got)
	}
	if got := n.Spec.Subnets[1]; len(got.Exclusions) != 1 || n.Spec.MTU != 1300 || n.Labels["team"] != "x" {
		t.Errorf("the rest: %+v", n)
	}
}

func TestETags(t *testing.T) {
	s := newSite(t)
	const path = "/restconf/data/elan:elan-instances/elan-instance=lan"
	body := func(text string) string {
		return `{"elan:elan-instance":[{"elan-instance-name":"lan","segment-type":"elan:segment-type-vxlan","description":"` + text + `"}]}`
	}
	s.want(412, "PUT", path, body("one"), "If-Match", "*")
	first := s.want(201, "PUT", path, body("one"), "If-None-Match", "*").head.Get("ETag")
	s.want(412, "PUT", path, body("one"), "If-None-Match", "*")
	if got := s.want(200, "GET", path, "").head.Get("ETag"); got != first || got == "" {
		t.Errorf("entity-tag of the PUT %s, of the GET %s", first, got)
	}
	second := s.want(204, "PUT", path, body("two"), "If-Match", first).head.Get("ETag")
	s.want(412, "PUT", path, body("three"), "If-Match", first)
	s.want(412, "DELETE", path, "", "If-Match", first)
	// What the controller writes is no edit of the data.
	s.api.world.Networks["lan"].Status.VNI = 70001
	s.want(304, "GET", path+"?content=config", "", "If-None-Match", second)
	s.want(204, "DELETE", path, "", "If-Match", second)
}

// TestNoLostUpdate has another client write between the read and the write of an edit.
func TestNoLostUpdate(t *testing.T) {
	s := newSite(t)
	const path = "/restconf/data/l3vpn:vpn-instances/vpn-instance=red"
	s.want(201, "PUT", path, `{"l3vpn:vpn-instance":[{"vpn-instance-name":"red"}]}`)
	met := false
	s.api.before = func() {
		if met {
			return
		}
		met = true
		r := s.api.world.Routers["red"].DeepCopy()
		r.Spec.RouteDistinguisher = "64512:9"
		s.api.put(r, false)
	}
	s.want(204, "PATCH", path, `{"l3vpn:vpn-instance":[{"vpn-instance-name":"red","ipv4-family":{"vpnTargets":{"vpnTarget":[{"vrfRTValue":"64512:1","vrfRTType":"both"}]}}}]}`)
	if r := s.api.world.Routers["red"]; r.Spec.RouteDistinguisher != "64512:9" || len(r.Spec.ImportRouteTargets) != 1 {
		t.Errorf("router: %+v", r.Spec)
	}
}

// TestOneBadObject has an object that does not fit the models: the others are shown and edited.
func TestOneBadObject(t *testing.T) {
	s := newSite(t)
	s.api.put(&v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "bad"}, Spec: v1alpha1.PortSpec{Network: "lan", MAC: "0a:00:00:00:00:01", Addresses: []string{"none"}}}, false)
	s.api.put(&v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "good"}, Spec: v1alpha1.PortSpec{Network: "lan"}}, false)
	const path = "/restconf/data/elan:elan-interfaces"
	s.same(s.want(200, "GET", path, "").body, `{"elan:elan-interfaces":{"elan-interface":[{"name":"a:good","elan-instance-name":"lan"}]}}`)
	s.want(204, "DELETE", path+"/elan-interface=a%3Agood", "")
	if len(s.api.world.Ports) != 1 {
		t.Errorf("%d Ports are left", len(s.api.world.Ports))
	}
}

// TestClientsAtOnce has 20 clients of two replicas add to the same entry: no addition is lost.
func TestClientsAtOnce(t *testing.T) {
	s := newSite(t)
	other := newSite(t)
	h, err := newHandler(Options{Log: slog.New(slog.DiscardHandler), Kubernetes: reviewer(), API: s.api, Namespace: "coelan-system"})
	if err != nil {
		t.Fatal(err)
	}
	other.h = h
	const path, clients, writes = "/restconf/data/l3vpn:vpn-instances/vpn-instance=shared", 20, 3
	s.want(201, "PUT", path, `{"l3vpn:vpn-instance":[{"vpn-instance-name":"shared"}]}`)
	var wait sync.WaitGroup
	for c := range clients {
		replica := []*site{s, other}[c%2]
		wait.Go(func() {
			for i := range writes {
				body := fmt.Sprintf(`{"l3vpn:vpn-instance":[{"vpn-instance-name":"shared","ipv4-family":{"vpnTargets":{"vpnTarget":[
					{"vrfRTValue":"%d:%d","vrfRTType":"import_extcommunity"}]}}}]}`, c+1, i)
				for {
					got := replica.do("PATCH", path, body)
					if got.code == 204 {
						break
					}
					if got.code != 409 {
						t.Errorf("%d %s", got.code, got.body)
						return
					}
				}
			}
		})
	}
	wait.Wait()
	if got := len(s.api.world.Routers["shared"].Spec.ImportRouteTargets); got != clients*writes {
		t.Errorf("%d targets, want %d", got, clients*writes)
	}
}
