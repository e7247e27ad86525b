// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package restconf

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/bcrypt"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/controller/reconcile"
)

// served is RESTCONF of two replicas over a real API, and the administrator's access to that.
type served struct {
	*testing.T
	server   *apitest.API
	client   client.Client
	api      kubernetes.Interface
	replicas [2]*httptest.Server
	token    string
	*loaded
}

// loaded is what clients under load have met: how often another one was first, and the labels that
// were written last.
type loaded struct {
	conflicts atomic.Int64
	labels    sync.Map
}

func serve(t *testing.T) *served {
	a := apitest.Start(t)
	c, err := client.New(a.REST, client.Options{Scheme: reconcile.NewScheme()})
	if err != nil {
		t.Fatal(err)
	}
	api, err := kubernetes.NewForConfig(a.REST)
	if err != nil {
		t.Fatal(err)
	}
	informers, err := cache.New(a.REST, cache.Options{Scheme: reconcile.NewScheme()})
	if err != nil {
		t.Fatal(err)
	}
	inBackground(t, informers.Start)
	s := &served{T: t, server: a, client: c, api: api, loaded: &loaded{}}
	for i := range s.replicas {
		h, err := newHandler(Options{
			Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Kubernetes: api, Namespace: "kube-system",
			API: &Store{Live: c, Cached: uidReader{c}, Client: c, Informers: informers}, Clients: ClusterAuthorities(api),
		})
		if err != nil {
			t.Fatal(err)
		}
		inBackground(t, h.streams.run)
		s.replicas[i] = httptest.NewTLSServer(h)
		t.Cleanup(s.replicas[i].Close)
	}
	s.token = s.account("admin", rbacv1.PolicyRule{
		APIGroups: []string{"", "coelan.io", "discovery.k8s.io", "networking.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"*"},
	})
	return s
}

// uidReader is a cache with the index of UIDs that is never late.
type uidReader struct{ client.Reader }

func (r uidReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	if o.FieldSelector == nil {
		return r.Reader.List(ctx, list, opts...)
	}
	uid, _ := o.FieldSelector.RequiresExactMatch(IndexUID)
	if err := r.Reader.List(ctx, list); err != nil {
		return err
	}
	all, err := apimeta.ExtractList(list)
	if err != nil {
		return err
	}
	return apimeta.SetList(list, slices.DeleteFunc(all, func(o runtime.Object) bool { return !slices.Contains(uidOf(o.(client.Object)), uid) }))
}

// inBackground calls run, and ends it with the test.
func inBackground(t *testing.T, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// account makes a service account with rights in all of the cluster, and returns a token of it.
func (s *served) account(name string, rules ...rbacv1.PolicyRule) string {
	s.Helper()
	meta := metav1.ObjectMeta{Name: "test-" + name}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	for _, o := range []client.Object{account, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: name, Namespace: "default"}, {Kind: "User", APIGroup: rbacv1.GroupName, Name: "user-" + name}},
	}} {
		if err := s.client.Create(s.Context(), o); err != nil {
			s.Fatal(err)
		}
	}
	token, err := s.api.CoreV1().ServiceAccounts("default").CreateToken(s.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return token.Status.Token
}

func (s *served) send(replica int, authorization, method, path, body string, headers ...string) reply {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, s.replicas[replica].URL+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Authorization", authorization)
	r.Header.Set("Content-Type", yangData)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := s.replicas[replica].Client().Do(r)
	if err != nil {
		s.Error(err)
		return reply{}
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.Error(err)
	}
	return reply{answer.StatusCode, string(text), answer.Header}
}

func (s *served) want(code int, method, path, body string, headers ...string) reply {
	s.Helper()
	got := s.send(0, "Bearer "+s.token, method, path, body, headers...)
	if got.code != code {
		s.Fatalf("%s %s: %d, want %d: %s", method, path, got.code, code, got.body)
	}
	return got
}

// same compares JSON.
func (s *served) same(got, want string) {
	s.Helper()
	(&site{T: s.T}).same(got, want)
}

func TestServed(t *testing.T) {
	s := serve(t)
	t.Run("samples", func(t *testing.T) { s.samples(t) })
	t.Run("kubectl", func(t *testing.T) { s.bothWays(t) })
	t.Run("services", func(t *testing.T) { s.services(t) })
	t.Run("policies", func(t *testing.T) { s.policies(t) })
	t.Run("objects", func(t *testing.T) { s.objects(t) })
	t.Run("streams", func(t *testing.T) { s.streams(t) })
	t.Run("refused by the API", func(t *testing.T) { s.refused(t) })
	t.Run("users", func(t *testing.T) { s.users(t) })
	t.Run("no lost update", func(t *testing.T) { s.noLostUpdate(t) })
	t.Run("yanglint", func(t *testing.T) { s.yanglint(t) })
}

// objects writes every node of the module coelan, which the API server judges and completes.
func (s *served) objects(t *testing.T) {
	s = s.on(t)
	for _, o := range wholeObjects {
		made := s.want(201, "POST", o.parent(), o.message())
		got := s.want(200, "GET", o.path()+"?content=config", "")
		s.same(got.body, o.message())
		if made.head.Get("ETag") == "" {
			t.Errorf("%s: no entity-tag", o.key)
		}
		s.want(204, "PATCH", o.path(), `{"coelan:`+o.list+`":[{`+keysOnly(o)+`,"description":"again"}]}`, "If-Match", got.head.Get("ETag"))
	}
	// What the API server adds is in the entity-tag of the answer.
	const small = "/restconf/data/coelan:networks/network=small"
	put := s.want(201, "PUT", small, `{"coelan:network":[{"name":"small","subnet":[{"cidr":"10.77.0.0/16"}]}]}`)
	s.want(204, "PUT", small, `{"coelan:network":[{"name":"small","subnet":[{"cidr":"10.77.0.0/16"},{"cidr":"10.78.0.0/16"}]}]}`, "If-Match", put.head.Get("ETag"))
	s.same(s.want(200, "GET", small+"?content=config", "").body,
		`{"coelan:network":[{"name":"small","type":"overlay","role":"secondary","ipam":"blocks","subnet":[{"cidr":"10.77.0.0/16"},{"cidr":"10.78.0.0/16"}]}]}`)
	// What the module allows and the API does not.
	for says, body := range map[string]string{
		"subnets can be added":         `{"coelan:network":[{"name":"small","subnet":[{"cidr":"10.79.0.0/16"}]}]}`,
		"type VLAN needs a vlan":       `{"coelan:network":[{"name":"small","type":"vlan","physical-network":"p"}]}`,
		"subnets must not overlap":     `{"coelan:network":[{"name":"small","subnet":[{"cidr":"10.77.0.0/16"},{"cidr":"10.78.0.0/16"},{"cidr":"10.77.1.0/24"}]}]}`,
		"must be an address, a prefix": `{"coelan:network":[{"name":"small","subnet":[{"cidr":"10.77.0.0/16","exclusion":["10.77.0.5-10.77"]},{"cidr":"10.78.0.0/16"}]}]}`,
	} {
		s.send(0, "Bearer "+s.token, "PUT", small, body).refuses(t, 400, "invalid-value", says)
	}
	s.want(204, "DELETE", small, "")
	for i := len(wholeObjects) - 1; i >= 0; i-- {
		s.want(204, "DELETE", wholeObjects[i].path(), "")
	}
}

// policies writes a NetworkPolicy, which the API server completes: written again, it stays as it
// is.
func (s *served) policies(t *testing.T) {
	s = s.on(t)
	body := ingressOf(`"ingress-ports":[{"network-policy-port":{"port":"80"}}],"from":[{"network-policy-peer":{"peer-pod-selector":{}}}]`)
	p := &networkingv1.NetworkPolicy{}
	key := client.ObjectKey{Namespace: "default", Name: "policy-" + policyUUID}
	version := ""
	for range 2 {
		s.want(200, "PUT", "/restconf/config/k8s:k8s/network-policies/network-policy/"+policyUUID, body)
		if err := s.client.Get(t.Context(), key, p); err != nil || len(p.Spec.PolicyTypes) != 1 {
			t.Fatalf("%v: %+v", err, p.Spec)
		}
		if version != "" && p.ResourceVersion != version {
			t.Errorf("written again without a change: version %s, then %s", version, p.ResourceVersion)
		}
		version = p.ResourceVersion
	}
	if got := s.want(400, "PUT", policyPath+policyUUID, policyOf(`"network-policy-spec":{"pod-selector":{"match-labels":[{"key":"no label"}]}}`)); !strings.Contains(got.body, "no label") {
		t.Error(got.body)
	}
	s.want(204, "DELETE", policyPath+policyUUID, "")
}

// streams has a client of one replica see what is written to another, and by kubectl, of each kind.
func (s *served) streams(t *testing.T) {
	s = s.on(t)
	l := (&site{T: t}).listen(s.replicas[1], s.token, runningStream)
	const uid = "99999999-3333-3333-4444-555555555555"
	r := &v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{Name: "streamed"}}
	if err := s.client.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	sees := func(want string) {
		t.Helper()
		for {
			for _, got := range l.edits() {
				if strings.HasPrefix(got, want) {
					return
				}
			}
		}
	}
	sees("create /l3vpn:vpn-instances/vpn-instance=streamed")
	s.want(201, "PUT", policyPath+policyUUID, ingressOf(""))
	sees("create /k8s:k8s/network-policies/network-policy=" + policyUUID)
	s.want(204, "DELETE", policyPath+policyUUID, "")
	sees("delete /k8s:k8s/network-policies/network-policy=" + policyUUID)
	s.want(201, "PUT", servicesPath+"/services="+uid, `{"service:services":[{"uid":"`+uid+`","name":"streamed"}]}`)
	sees("create /service:service-information/services=" + uid)
	s.want(201, "PUT", endpointsPath+"/endpoints="+uid, `{"service:endpoints":[{"uid":"`+uid+`","endpoint-addresses":[{"ip-address":"10.11.2.7"}]}]}`)
	sees("create /service:endpoints-info/endpoints=" + uid)
	s.want(204, "DELETE", endpointsPath+"/endpoints="+uid, "")
	sees("delete /service:endpoints-info/endpoints=" + uid)
	s.want(204, "DELETE", servicesPath+"/services="+uid, "")
	sees("delete /service:service-information/services=" + uid)
	if err := s.client.Delete(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	sees("delete /l3vpn:vpn-instances/vpn-instance=streamed")
}

// on is the same with another test.
func (s *served) on(t *testing.T) *served {
	c := *s
	c.T = t
	return &c
}

// samples are the bodies of the documents, as they are printed there.
func (s *served) samples(t *testing.T) {
	s = s.on(t)
	s.want(204, "POST", "/restconf/config/dhcp_allocation_pool:dhcp_allocation_pool/", samplePool)
	s.want(204, "POST", "/restconf/config/pod:coe", samplePod)
	n := &v1alpha1.Network{}
	if err := s.client.Get(t.Context(), client.ObjectKey{Name: "pod-namespace"}, n); err != nil || n.Spec.Subnets[0].Ranges[0].To != "192.168.10.50" {
		t.Errorf("%v: %+v", err, n.Spec)
	}
	p := &v1alpha1.Port{}
	key := client.ObjectKey{Namespace: "default", Name: "ac092d9b-e9eb-bae2-eed8-74aca2b7fa9c.7ba91a3a-f17e-2ebb-edec-3bbbea27dca7"}
	if err := s.client.Get(t.Context(), key, p); err != nil || p.Spec.Addresses[0] != "0.147.0.7" {
		t.Errorf("%v: %+v", err, p.Spec)
	}
	s.want(200, "DELETE", "/restconf/config/pod:coe/pods/AC092D9B-E9Eb-BAE2-eEd8-74Aca2B7Fa9C", "")
	s.want(404, "GET", "/restconf/config/pod:coe/pods/AC092D9B-E9Eb-BAE2-eEd8-74Aca2B7Fa9C", "")
}

// bothWays writes in the one and sees it in the other.
func (s *served) bothWays(t *testing.T) {
	s = s.on(t)
	p := &v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "vm"}, Spec: v1alpha1.PortSpec{Network: "lan", Addresses: []string{"10.20.0.9"}, MAC: "0a:00:00:00:00:09"}}
	if err := s.client.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	got := s.want(200, "GET", "/restconf/data/pod:coe/pods="+string(p.UID), "")
	if !strings.Contains(got.body, `"ip-address":"10.20.0.9"`) || !strings.Contains(got.body, `"name":"vm"`) {
		t.Error(got.body)
	}
	s.want(204, "PATCH", "/restconf/data/elan:elan-interfaces/elan-interface=default%3Avm",
		`{"elan:elan-interface":[{"name":"default:vm","description":"a machine"}]}`)
	if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil || p.Annotations["coelan.io/description"] != "a machine" {
		t.Errorf("%v: %+v", err, p)
	}
	s.want(204, "DELETE", "/restconf/data/pod:coe/pods="+string(p.UID), "")
	if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(p), p); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the Port is still there: %v", err)
	}
}

// services writes Services in the one and sees them in the other.
func (s *served) services(t *testing.T) {
	s = s.on(t)
	s.want(204, "POST", "/restconf/config/pod:coe", sampleMember)
	for range 2 {
		s.want(200, "PUT", "/restconf/config/service:service-information", sampleService)
	}
	const uid = "99999999-2222-3333-4444-555555555555"
	service := `{"service:services":[{"uid":"` + uid + `","name":"web","external-ip-address":["203.0.113.1"],"service-ports":[{"name":"http","port":80,"target-port":"8080"}]}]}`
	slices := `{"service:endpoints":[{"uid":"` + uid + `","endpoint-addresses":[{"ip-address":"10.11.2.7","node-name":"n1"},{"ip-address":"fd00:11::7"}],"endpoint-ports":[{"name":"http","port":8080}]}]}`
	s.want(204, "PATCH", "/restconf/data", `{"service:service-information":{`+service[1:len(service)-1]+`},"service:endpoints-info":{`+slices[1:len(slices)-1]+`}}`)
	svc, list := &corev1.Service{}, &discoveryv1.EndpointSliceList{}
	key := client.ObjectKey{Namespace: "default", Name: "web"}
	if err := s.client.Get(t.Context(), key, svc); err != nil || svc.Spec.ClusterIP == "" || svc.Spec.Selector != nil || svc.Spec.Ports[0].TargetPort.IntVal != 8080 || svc.Spec.ExternalIPs[0] != "203.0.113.1" {
		t.Errorf("%v: %+v", err, svc.Spec)
	}
	if err := s.client.List(t.Context(), list, client.MatchingLabels{discoveryv1.LabelServiceName: "web"}); err != nil || len(list.Items) != 2 {
		t.Fatalf("%v, %d slices", err, len(list.Items))
	}
	for _, slice := range list.Items {
		if o := slice.OwnerReferences; len(o) != 1 || o[0].UID != svc.UID {
			t.Errorf("%s has the owners %v", slice.Name, o)
		}
	}
	// What is written again changes nothing.
	version := svc.ResourceVersion
	s.want(204, "PUT", "/restconf/data/service:service-information/services="+uid, service)
	s.want(204, "PUT", "/restconf/data/service:endpoints-info/endpoints="+uid, slices)
	// kubectl edits; RESTCONF shows that, and edits it.
	if err := s.client.Get(t.Context(), key, svc); err != nil || svc.ResourceVersion != version {
		t.Errorf("%v: version %s, want %s", err, svc.ResourceVersion, version)
	}
	svc.Spec.Ports[0].Protocol, svc.Spec.Ports[0].Port = corev1.ProtocolUDP, 81
	if err := s.client.Update(t.Context(), svc); err != nil {
		t.Fatal(err)
	}
	s.same(s.want(200, "GET", "/restconf/data/service:service-information/services="+uid+"/service-ports", "").body,
		`{"service:service-ports":[{"name":"http","port":81,"target-port":"8080","node-port":0}]}`)
	s.want(204, "PUT", "/restconf/data/service:service-information/services="+uid+"/service-ports=http/port", `{"service:port":82}`)
	if err := s.client.Get(t.Context(), key, svc); err != nil || svc.Spec.Ports[0].Protocol != corev1.ProtocolUDP || svc.Spec.Ports[0].Port != 82 {
		t.Errorf("%v: %+v", err, svc.Spec.Ports)
	}
	s.want(200, "GET", "/restconf/data/service:service-information/services="+uid+"/cluster-ip-address", "")
	selected := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "selected"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "a"}, Ports: []corev1.ServicePort{{Port: 80}}}}
	if err := s.client.Create(t.Context(), selected); err != nil {
		t.Fatal(err)
	}
	path := "/restconf/data/service:service-information/services=" + string(selected.UID)
	if got := s.want(501, "PUT", path, `{"service:services":[{"uid":"`+string(selected.UID)+`"}]}`); !strings.Contains(got.body, "default/selected has a selector") {
		t.Error(got.body)
	}
	clash := `{"service:services":[{"uid":"88888888-2222-3333-4444-555555555555","name":"kubernetes","service-ports":[{"name":"","port":80}]}]}`
	s.want(409, "POST", "/restconf/data/service:service-information", clash)
	s.want(204, "DELETE", "/restconf/data/service:service-information/services="+uid, "")
	s.want(404, "GET", "/restconf/data/service:endpoints-info/endpoints="+uid, "")
	if err := s.client.List(t.Context(), list, client.MatchingLabels{discoveryv1.LabelServiceName: "web"}); err != nil || len(list.Items) != 0 {
		t.Errorf("%v, %d slices are left", err, len(list.Items))
	}
}

// refused are bodies that only the API knows to be wrong: nothing of them is written.
func (s *served) refused(t *testing.T) {
	s = s.on(t)
	for name, body := range map[string]string{
		"address of no Service": `{"service:service-information":{"services":[{"uid":"99999999-2222-3333-4444-555555555555","cluster-ip-address":"5.21.5.0","service-ports":[{"name":"","port":80}]}]},
			"l3vpn:vpn-instances":{"vpn-instance":[{"vpn-instance-name":"bad"}]}}`,
		"overlay without a subnet": `{"elan:elan-instances":{"elan-instance":[{"elan-instance-name":"bad"}]},"l3vpn:vpn-instances":{"vpn-instance":[{"vpn-instance-name":"bad"}]}}`,
		"overlapping pools": `{"dhcp_allocation_pool:dhcp_allocation_pool":{"network":[{"network-id":"bad","allocation-pool":[{"subnet":"10.3.0.0/16"},{"subnet":"10.3.1.0/24"}]}]},
			"l3vpn:vpn-instances":{"vpn-instance":[{"vpn-instance-name":"bad"}]}}`,
		"no such namespace": `{"elan:elan-interfaces":{"elan-interface":[{"name":"nowhere:vm","elan-instance-name":"lan"}]},"l3vpn:vpn-instances":{"vpn-instance":[{"vpn-instance-name":"bad"}]}}`,
	} {
		if got := s.want(400, "PATCH", "/restconf/data", body); !strings.Contains(got.body, "invalid-value") {
			t.Errorf("%s: %s", name, got.body)
		}
		var routers v1alpha1.RouterList
		if err := s.client.List(t.Context(), &routers); err != nil || len(routers.Items) != 0 {
			t.Errorf("%s: %v, Routers %v", name, err, routers.Items)
		}
	}
}

// users authenticate by a token, by Basic, and not at all; Kubernetes says what they may do.
func (s *served) users(t *testing.T) {
	s = s.on(t)
	reader := s.account("reader", rbacv1.PolicyRule{APIGroups: []string{"coelan.io"}, Resources: []string{"networks"}, Verbs: []string{"list"}})
	const path = "/restconf/data/elan:elan-instances"
	if got := s.send(0, "Bearer "+reader, "GET", path, ""); got.code != 200 || !strings.Contains(got.body, "pod-namespace") {
		t.Errorf("%+v", got)
	}
	if got := s.send(0, "Bearer "+reader, "DELETE", path+"/elan-instance=pod-namespace", ""); got.code != 403 {
		t.Errorf("%+v", got)
	}
	if got := s.send(0, "Bearer "+reader, "GET", "/restconf/data/pod:coe", ""); got.code != 403 {
		t.Errorf("%+v", got)
	}
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	users := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: UsersSecret}, Data: map[string][]byte{
		"odl": []byte(string(hash) + " user-reader"), "other": hash, "broken": []byte("secret"),
	}}
	if err := s.client.Create(t.Context(), users); err != nil {
		t.Fatal(err)
	}
	for credentials, want := range map[[2]string]int{
		{"odl", "secret"}: 200, {"odl", "wrong"}: 401, {"other", "secret"}: 403, {"broken", "secret"}: 401, {"none", "secret"}: 401, {"", ""}: 401,
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.SetBasicAuth(credentials[0], credentials[1])
		if got := s.send(1, r.Header.Get("Authorization"), "GET", path, ""); got.code != want {
			t.Errorf("%v: %d, want %d: %s", credentials, got.code, want, got.body)
		}
	}
}

// yanglint has another implementation of YANG read an answer with all data.
func (s *served) yanglint(t *testing.T) {
	s = s.on(t)
	for _, name := range []string{"dhcp_allocation_pool:dhcp_allocation_pool", "elan:elan-instances", "elan:elan-interfaces", "l3vpn:vpn-instances", "pod:coe", "k8s-node:k8s-nodes-info", "service:service-information", "service:endpoints-info", "k8s:k8s", "k8s-cluster:k8s-clusters-info", "l3vpn:vpn-interfaces", "ietf-interfaces:interfaces", "ietf-interfaces:interfaces-state"} {
		answer := s.want(200, "GET", "/restconf/data/"+name, "").body
		module, _, _ := strings.Cut(name, ":")
		file := filepath.Join(t.TempDir(), "answer.json")
		if err := os.WriteFile(file, []byte(answer), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "yanglint", "-p", "../../yang", "-t", "data", "../../yang/"+module+".yang", "../../yang/odl-l3vpn.yang", "../../yang/odl-interface.yang", "../../yang/iana-if-type.yang", file)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s\n%s", name, err, out, answer)
		}
	}
}

// noLostUpdate has 20 clients of two replicas add to the same entry.
func (s *served) noLostUpdate(t *testing.T) {
	s = s.on(t)
	const path, clients, writes = "/restconf/data/l3vpn:vpn-instances/vpn-instance=shared", 20, 3
	s.want(201, "PUT", path, `{"l3vpn:vpn-instance":[{"vpn-instance-name":"shared"}]}`)
	want := map[string]bool{}
	var wait sync.WaitGroup
	for c := range clients {
		for i := range writes {
			want[fmt.Sprintf("%d:%d", c+1, i)] = true
		}
		wait.Go(func() {
			for i := range writes {
				body := fmt.Sprintf(`{"l3vpn:vpn-instance":[{"vpn-instance-name":"shared","ipv4-family":{"vpnTargets":{"vpnTarget":[{"vrfRTValue":"%d:%d","vrfRTType":"import_extcommunity"}]}}}]}`, c+1, i)
				for {
					got := s.send(c%2, "Bearer "+s.token, "PATCH", path, body)
					if got.code == 204 {
						break
					}
					if got.code != 409 {
						t.Errorf("%+v", got)
						return
					}
				}
			}
		})
	}
	wait.Wait()
	r := &v1alpha1.Router{}
	if err := s.client.Get(t.Context(), client.ObjectKey{Name: "shared"}, r); err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(slices.Values(r.Spec.ImportRouteTargets)); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
		t.Errorf("%d targets of %d: %v", len(got), len(want), got)
	}
	// Of two that replace what they have both read, one is refused.
	tag := s.want(200, "GET", path, "").head.Get("ETag")
	empty := `{"l3vpn:vpn-instance":[{"vpn-instance-name":"shared"}]}`
	s.want(204, "PUT", path, empty, "If-Match", tag)
	if got := s.send(1, "Bearer "+s.token, "PUT", path, empty, "If-Match", tag); got.code != 412 {
		t.Errorf("%+v", got)
	}
}
