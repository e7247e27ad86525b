// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"coelan.io/coelan/internal/restconf/mapping"
	"coelan.io/coelan/internal/watcher/coe"
)

// sampleService is as the documents print it.
const sampleService = `{
  "service:service-information": {
    "service:services": [
      {
        "service:uid": "EeafFFB7-D9Fc-aAeD-FBc9-8Af8BFaacDD9",
        "service:cluster-ip-address": "5.21.5.0",
        "service:endpoints": [
          "AFbcF0EB-Fc3f-acea-A438-5CFDfCEfbcb0"
        ]
      }
    ]
  }
}`

// sampleMember is the pod that sampleService refers to.
const sampleMember = `{"pod:pods":[{"uid":"AFbcF0EB-Fc3f-acea-A438-5CFDfCEfbcb0","interface":[
	{"uid":"AFbcF0EB-Fc3f-acea-A438-5CFDfCEfbcb0","ip-address":"10.11.2.7","network-id":"00000000-0000-0000-0000-000000000000"}]}]}`

const (
	servicesPath  = "/restconf/data/service:service-information"
	endpointsPath = "/restconf/data/service:endpoints-info"
	selectedUID   = "55555555-2222-3333-4444-555555555555"
	plainUID      = "66666666-2222-3333-4444-555555555555"
)

func serviceMeta(namespace, name, uid string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}
}

// withServices is a site with Services of kubectl: with a selector, without, and that of the API
// server.
func withServices(t *testing.T) *site {
	s := newSite(t)
	ports := []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(8080)}}
	port := int32(8080)
	for _, svc := range []*corev1.Service{
		{ObjectMeta: serviceMeta("shop", "selected", selectedUID), Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.2", Selector: map[string]string{"app": "a"}, Ports: ports}},
		{ObjectMeta: serviceMeta("shop", "plain", plainUID), Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.3", Ports: ports}},
		{ObjectMeta: serviceMeta("default", "kubernetes", "77777777-2222-3333-4444-555555555555"), Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: ports}},
	} {
		s.api.world.Services[types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}] = svc
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: serviceMeta(svc.Namespace, svc.Name+"-1", ""), AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}}}, Ports: []discoveryv1.EndpointPort{{Port: &port}},
		}
		slice.Labels = map[string]string{discoveryv1.LabelServiceName: svc.Name}
		s.api.world.Slices[types.NamespacedName{Namespace: slice.Namespace, Name: slice.Name}] = slice
	}
	return s
}

// TestSampleService sends the sample of the documents: it leaves what no client can write.
func TestSampleService(t *testing.T) {
	s := withServices(t)
	delete(s.api.world.Services, types.NamespacedName{Namespace: "shop", Name: "plain"})
	if got := s.want(400, "PUT", "/restconf/config/service:service-information", sampleService); !strings.Contains(got.body, "afbcf0eb-fc3f-acea-a438-5cfdfcefbcb0") {
		t.Error(got.body)
	}
	s.want(204, "POST", "/restconf/config/pod:coe", sampleMember)
	for range 2 {
		s.want(200, "PUT", "/restconf/config/service:service-information", sampleService)
	}
	svc := s.api.world.Services[types.NamespacedName{Namespace: "default", Name: "service-eeafffb7-d9fc-aaed-fbc9-8af8bfaacdd9"}]
	if len(s.api.world.Services) != 3 || svc == nil || svc.Spec.ClusterIP != corev1.ClusterIPNone {
		t.Fatalf("%d Services, %+v", len(s.api.world.Services), svc)
	}
	got := s.want(200, "GET", "/restconf/config/service:service-information/services/EeafFFB7-D9Fc-aAeD-FBc9-8Af8BFaacDD9", "")
	s.same(got.body, `{"service:services":[{"uid":"eeafffb7-d9fc-aaed-fbc9-8af8bfaacdd9","name":"service-eeafffb7-d9fc-aaed-fbc9-8af8bfaacdd9",
		"network-NS":"default","cluster-ip-address":"5.21.5.0","endpoints":["afbcf0eb-fc3f-acea-a438-5cfdfcefbcb0"]}]}`)
	got = s.want(200, "GET", endpointsPath+"/endpoints=eeafffb7-d9fc-aaed-fbc9-8af8bfaacdd9/endpoint-addresses", "")
	s.same(got.body, `{"service:endpoint-addresses":[{"ip-address":"10.11.2.7"}]}`)
	s.want(200, "DELETE", "/restconf/config/service:service-information/services/eeafffb7-d9fc-aaed-fbc9-8af8bfaacdd9", "")
	if len(s.api.world.Services) != 2 || len(s.api.world.Slices) != 3 {
		t.Errorf("%d Services, %d slices", len(s.api.world.Services), len(s.api.world.Slices))
	}
}

// TestWatcherService is what Coelan's watcher sends of another cluster: it reads the same again.
func TestWatcherService(t *testing.T) {
	s := newSite(t)
	const cluster = "00000000-0000-0000-0000-000000000009"
	renderer := coe.Renderer{ClusterID: cluster, NetworkID: coe.DefaultNetworkID}
	name, port, dns, node := "http", int32(8080), int32(53), "worker1"
	source := &corev1.Service{ObjectMeta: serviceMeta("shop", "web", plainUID), Spec: corev1.ServiceSpec{
		ClusterIP: "10.96.0.9", ExternalIPs: []string{"203.0.113.1"}, LoadBalancerIP: "203.0.113.9", Selector: map[string]string{"app": "web"},
		Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("web"), NodePort: 30080}, {Name: "dns", Port: 53, TargetPort: intstr.FromInt32(53)}},
	}, Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}}}}}
	dnsName := "dns"
	ports := []discoveryv1.EndpointPort{{Name: &name, Port: &port}, {Name: &dnsName, Port: &dns}}
	slices := []*discoveryv1.EndpointSlice{
		{AddressType: discoveryv1.AddressTypeIPv4, Ports: ports, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.11.2.8"}, NodeName: &node}, {Addresses: []string{"10.11.2.9"}}}},
		{AddressType: discoveryv1.AddressTypeIPv6, Ports: ports, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"fd00:11::8"}, NodeName: &node}}},
	}
	bare := &corev1.Service{ObjectMeta: serviceMeta("shop", "db", selectedUID), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}}
	for range 2 {
		for _, e := range []struct {
			list  *coe.List
			entry coe.Entry
		}{
			{coe.Services, renderer.Service(source)}, {coe.Endpoints, renderer.Endpoints(source, slices)},
			{coe.Services, renderer.Service(bare)}, {coe.Endpoints, renderer.Endpoints(bare, []*discoveryv1.EndpointSlice{{AddressType: discoveryv1.AddressTypeIPv4}})},
		} {
			body, err := e.list.Body(e.entry)
			if err != nil {
				t.Fatal(err)
			}
			uid, container := e.entry["uid"].(string), "/"+e.list.Module+":"+e.list.Container
			s.want(200, "PUT", "/restconf/config"+container+"/"+e.list.Name+"/"+uid, string(body), "Content-Type", "application/json")
			read, err := e.list.Read([]byte(s.want(200, "GET", "/restconf/data"+container+"?content=config", "").body))
			if err != nil {
				t.Fatal(err)
			}
			want, err := e.list.Text(e.entry)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, read[uid].Text); diff != "" || e.list == coe.Services && read[uid].Cluster != cluster {
				t.Errorf("%s of cluster %q: %s", uid, read[uid].Cluster, diff)
			}
		}
	}
	if s.api.version != 5 {
		t.Errorf("%d writes, want those of two Services and three slices", s.api.version)
	}
	web, db := s.api.world.Services[types.NamespacedName{Namespace: "shop", Name: "web"}], s.api.world.Services[types.NamespacedName{Namespace: "shop", Name: "db"}]
	if web.Spec.ClusterIP != "" || web.Spec.Selector != nil || db.Spec.ClusterIP != corev1.ClusterIPNone {
		t.Errorf("%+v, %+v", web.Spec, db.Spec)
	}
	// The watcher of COE sends the uid of the Endpoints, and their cluster.
	s.want(200, "DELETE", "/restconf/config/service:endpoints-info/endpoints/"+plainUID, "")
	const coes = "88888888-2222-3333-4444-555555555555"
	s.want(200, "PUT", "/restconf/config/service:endpoints-info/endpoints/"+coes, `{"service:endpoints":[{"service:uid":"`+coes+`","service:cluster-id":"`+cluster+`","service:name":"web",
		"service:network-NS":"shop","service:endpoint-addresses":[{"service:ip-address":"10.11.2.8","service:host-name":"","service:node-name":"worker1"}],"service:endpoint-ports":[{"service:name":"http","service:port":8080}]}]}`)
	s.same(s.want(200, "GET", endpointsPath+"/endpoints="+coes, "").body, `{"service:endpoints":[{"uid":"`+coes+`","cluster-id":"`+cluster+`","name":"web","network-NS":"shop",
		"endpoint-addresses":[{"ip-address":"10.11.2.8","node-name":"worker1"}],"endpoint-ports":[{"name":"http","port":8080}]}]}`)
}

// TestServicesOfKubernetes shows what kubectl has made, and edits those without a selector.
func TestServicesOfKubernetes(t *testing.T) {
	s := withServices(t)
	for uid, name := range map[string]string{selectedUID: "selected", plainUID: "plain"} {
		for _, root := range []string{"/restconf/config", "/restconf/operational"} {
			got := s.want(200, "GET", root+"/service:service-information/services/"+uid+"/name", "")
			s.same(got.body, `{"service:name":"`+name+`"}`)
			got = s.want(200, "GET", root+"/service:endpoints-info/endpoints/"+uid+"/endpoint-addresses", "")
			s.same(got.body, `{"service:endpoint-addresses":[{"ip-address":"10.1.0.1"}]}`)
		}
	}
	s.want(204, "PATCH", endpointsPath+"/endpoints="+plainUID, `{"service:endpoints":[{"uid":"`+plainUID+`","endpoint-addresses":[{"ip-address":"10.1.0.2"}]}]}`)
	slice := s.api.world.Slices[types.NamespacedName{Namespace: "shop", Name: "plain-1"}]
	if len(slice.Endpoints) != 2 || slice.Endpoints[1].Addresses[0] != "10.1.0.2" {
		t.Errorf("%+v", slice)
	}
	s.want(204, "PUT", endpointsPath, `{"service:endpoints-info":{}}`)
	s.want(204, "PUT", servicesPath, `{"service:service-information":{}}`)
	if len(s.api.world.Services) != 2 || len(s.api.world.Slices) != 2 {
		t.Errorf("%d Services, %d slices", len(s.api.world.Services), len(s.api.world.Slices))
	}
}

// TestBadServices sends what is wrong: the error names the node, and nothing is written.
func TestBadServices(t *testing.T) {
	const fresh = "99999999-2222-3333-4444-555555555555"
	service := func(uid, text string) string { return `{"service:services":[{"uid":"` + uid + `",` + text + `}]}` }
	endpoints := func(uid, text string) string { return `{"service:endpoints":[{"uid":"` + uid + `",` + text + `}]}` }
	const web = `"name":"web","network-NS":"shop",`
	for name, c := range map[string]struct {
		method, path, body string
		code               int
		tag, says          string
	}{
		"no UUID":                      {"POST", servicesPath, service("seven", web+`"service-ports":[{"name":"","port":80}]`), 400, "invalid-value", "services"},
		"no uid":                       {"POST", servicesPath, `{"service:services":[{"name":"web"}]}`, 400, "missing-element", "services/uid"},
		"no name of a port":            {"POST", servicesPath, service(fresh, web+`"service-ports":[{"port":80}]`), 400, "missing-element", "service-ports/name"},
		"no number of a port":          {"POST", servicesPath, service(fresh, web+`"service-ports":[{"name":"a"}]`), 400, "missing-element", "service-ports/port"},
		"port 0":                       {"POST", servicesPath, service(fresh, web+`"service-ports":[{"name":"a","port":0}]`), 400, "invalid-value", "services"},
		"name of a port twice":         {"POST", servicesPath, service(fresh, web+`"service-ports":[{"name":"a","port":80},{"name":"a","port":81}]`), 400, "invalid-value", "service-ports"},
		"number of a port twice":       {"POST", servicesPath, service(fresh, web+`"service-ports":[{"name":"a","port":80},{"name":"b","port":80}]`), 400, "invalid-value", "service-ports/port"},
		"one of two ports has no name": {"POST", servicesPath, service(fresh, web+`"service-ports":[{"name":"","port":80},{"name":"b","port":81}]`), 400, "invalid-value", "service-ports/name"},
		"bad target port":              {"POST", servicesPath, service(fresh, web+`"service-ports":[{"name":"","port":80,"target-port":"70000"}]`), 400, "invalid-value", "service-ports/target-port"},
		"bad name of a target port":    {"POST", servicesPath, service(fresh, web+`"service-ports":[{"name":"","port":80,"target-port":"a b"}]`), 400, "invalid-value", "service-ports/target-port"},
		"wrong address":                {"POST", servicesPath, service(fresh, web+`"cluster-ip-address":"10.96.0.256"`), 400, "invalid-value", "cluster-ip-address"},
		"wrong external address":       {"POST", servicesPath, service(fresh, web+`"external-ip-address":["fe80::1%eth0"]`), 400, "invalid-value", "external-ip-address"},
		"external address twice":       {"POST", servicesPath, service(fresh, web+`"external-ip-address":["203.0.113.1","203.0.113.1"]`), 400, "invalid-value", "external-ip-address"},
		"unknown pod":                  {"POST", servicesPath, service(fresh, web+`"service-ports":[{"name":"","port":80}],"endpoints":["`+fresh+`"]`), 400, "invalid-value", "services[uid='" + fresh + "']/endpoints"},
		"ingress":                      {"POST", servicesPath, service(fresh, web+`"service-ports":[{"name":"","port":80}],"ingress-ip-address":["203.0.113.1"]`), 501, "operation-not-supported", "ingress-ip-address"},
		"name of kubectl's":            {"POST", servicesPath, service(fresh, `"name":"plain","network-NS":"shop","service-ports":[{"name":"","port":80}]`), 409, "data-exists", "/name"},
		"name of no object":            {"POST", servicesPath, service(fresh, `"name":"-a","service-ports":[{"name":"","port":80}]`), 400, "invalid-value", "/name"},
		"namespace of no object":       {"POST", servicesPath, service(fresh, `"network-NS":"../x","service-ports":[{"name":"","port":80}]`), 400, "invalid-value", "/network-NS"},
		"another name":                 {"PATCH", servicesPath + "/services=" + plainUID, service(plainUID, `"name":"other"`), 400, "invalid-value", "/name"},
		"another namespace":            {"PATCH", servicesPath + "/services=" + plainUID, service(plainUID, `"network-NS":"default"`), 400, "invalid-value", "/network-NS"},
		"another address":              {"PATCH", servicesPath + "/services=" + plainUID, service(plainUID, `"cluster-ip-address":"10.96.0.4"`), 400, "invalid-value", "cluster-ip-address"},
		"an address without ports":     {"DELETE", servicesPath + "/services=" + plainUID + "/service-ports=", "", 400, "missing-element", "service-ports"},
		"edit one with a selector":     {"PATCH", servicesPath + "/services=" + selectedUID, service(selectedUID, `"external-ip-address":["203.0.113.1"]`), 501, "operation-not-supported", "shop/selected has a selector"},
		"delete one with a selector":   {"DELETE", servicesPath + "/services=" + selectedUID, "", 501, "operation-not-supported", "shop/selected has a selector"},
		"endpoints of a selector":      {"PATCH", endpointsPath + "/endpoints=" + selectedUID, endpoints(selectedUID, `"endpoint-addresses":[{"ip-address":"10.1.0.9"}]`), 501, "operation-not-supported", "shop/selected has a selector"},
		"no endpoints of a selector":   {"DELETE", endpointsPath + "/endpoints=" + selectedUID, "", 501, "operation-not-supported", "shop/selected has a selector"},
		"the API server's":             {"DELETE", servicesPath + "/services=77777777-2222-3333-4444-555555555555", "", 501, "operation-not-supported", "kept by the API server"},
		"one good, one bad": {"PATCH", "/restconf/data", `{"service:service-information":{"services":[{"uid":"` + fresh + `",` + web + `"service-ports":[{"name":"","port":80}]}]},
			"service:endpoints-info":{"endpoints":[{"uid":"` + selectedUID + `","endpoint-addresses":[{"ip-address":"10.1.0.9"}]}]}}`, 501, "operation-not-supported", "endpoints[uid='" + selectedUID + "']"},
		"endpoints of an unknown uid":  {"POST", endpointsPath, endpoints(fresh, `"endpoint-addresses":[{"ip-address":"10.1.0.9"}]`), 400, "invalid-value", "endpoints[uid='" + fresh + "']/uid"},
		"endpoints of an unknown name": {"POST", endpointsPath, endpoints(fresh, web+`"endpoint-addresses":[{"ip-address":"10.1.0.9"}]`), 400, "invalid-value", "no Service shop/web"},
		"endpoints under another uid":  {"POST", endpointsPath, endpoints(fresh, `"name":"plain","network-NS":"shop","endpoint-addresses":[{"ip-address":"10.1.0.9"}]`), 409, "data-exists", plainUID},
		"endpoints under another name": {"PATCH", endpointsPath + "/endpoints=" + plainUID, endpoints(plainUID, `"name":"other"`), 400, "invalid-value", "/name"},
		"endpoint of no address":       {"POST", endpointsPath, endpoints(plainUID, `"endpoint-addresses":[{"host-name":"a"}]`), 400, "missing-element", "endpoint-addresses/ip-address"},
		"endpoint of a wrong address":  {"PATCH", endpointsPath + "/endpoints=" + plainUID, endpoints(plainUID, `"endpoint-addresses":[{"ip-address":"web"}]`), 400, "invalid-value", "endpoint-addresses/ip-address"},
		"endpoint twice":               {"PATCH", endpointsPath + "/endpoints=" + plainUID, endpoints(plainUID, `"endpoint-addresses":[{"ip-address":"fd00::1"},{"ip-address":"fd00:0::1"}]`), 400, "invalid-value", "endpoint-addresses"},
		"port of endpoints, no number": {"PATCH", endpointsPath + "/endpoints=" + plainUID, endpoints(plainUID, `"endpoint-ports":[{"name":"a"}]`), 400, "missing-element", "endpoint-ports/port"},
		"two numbers of a port":        {"PATCH", endpointsPath + "/endpoints=" + plainUID, endpoints(plainUID, `"endpoint-ports":[{"name":"","port":81}]`), 400, "invalid-value", "endpoint-ports"},
		"delete absent endpoints":      {"DELETE", endpointsPath + "/endpoints=" + fresh, "", 404, "invalid-value", fresh},
		"delete an absent Service":     {"DELETE", servicesPath + "/services=" + fresh, "", 404, "invalid-value", fresh},
	} {
		t.Run(name, func(t *testing.T) {
			s := withServices(t)
			got := s.do(c.method, c.path, c.body)
			got.refuses(t, c.code, c.tag, c.says)
			if s.api.version != 0 {
				t.Error("something was written")
			}
		})
	}
}

// TestServicesOfClients has a client that may list nothing but Services, and one with Ports alone.
func TestServicesOfClients(t *testing.T) {
	s := withServices(t)
	s.want(204, "POST", "/restconf/config/pod:coe", sampleMember)
	for _, path := range []string{servicesPath, endpointsPath} {
		if got := s.as("ports-a", "GET", path, ""); got.code != 403 {
			t.Errorf("%s: %+v", path, got)
		}
	}
	body := `{"service:services":[{"uid":"99999999-2222-3333-4444-555555555555","name":"web","network-NS":"a","service-ports":[{"name":"","port":80}]}]}`
	for _, user := range []string{"reader", "ports-a", "services-a"} {
		want := map[string]int{"services-a": 201}[user]
		if got := s.as(user, "POST", servicesPath, body); want == 0 && got.code != 403 || want != 0 && got.code != want {
			t.Errorf("%s: %+v", user, got)
		}
	}
	if got := s.as("services-a", "GET", servicesPath, ""); got.code != 200 || strings.Contains(got.body, plainUID) || !strings.Contains(got.body, `"web"`) {
		t.Errorf("%+v", got)
	}
	slices := `{"service:endpoints":[{"uid":"99999999-2222-3333-4444-555555555555","endpoint-addresses":[{"ip-address":"10.1.0.9"}],"endpoint-ports":[{"name":"","port":80}]}]}`
	if got := s.as("services-a", "POST", endpointsPath, slices); got.code != 403 || !strings.Contains(got.body, "may not create endpointslices a/web-restconf-1") {
		t.Errorf("%+v", got)
	}
	// A Port that it may not list is unknown to it, whatever its uid.
	member := strings.Replace(body, `"service-ports"`, `"endpoints":["AFbcF0EB-Fc3f-acea-A438-5CFDfCEfbcb0"],"service-ports"`, 1)
	if got := s.as("services-a", "PUT", servicesPath+"/services=99999999-2222-3333-4444-555555555555", member); got.code != 400 || !strings.Contains(got.body, "there is no pod and no Port") {
		t.Errorf("%+v", got)
	}
	if len(s.api.world.Slices) != 3 {
		t.Errorf("%d slices", len(s.api.world.Slices))
	}
}

// TestServiceAndEndpointsAtOnce makes both in one request.
func TestServiceAndEndpointsAtOnce(t *testing.T) {
	s := newSite(t)
	s.want(204, "PATCH", "/restconf/data", `{"service:endpoints-info":{"endpoints":[{"uid":"`+plainUID+`","endpoint-addresses":[{"ip-address":"10.1.0.1"}],"endpoint-ports":[{"name":"","port":80}]}]},
		"service:service-information":{"services":[{"uid":"`+plainUID+`","name":"web","service-ports":[{"name":"","port":80}]}]}}`)
	if len(s.api.world.Services) != 1 || len(s.api.world.Slices) != 1 {
		t.Errorf("%d Services, %d slices", len(s.api.world.Services), len(s.api.world.Slices))
	}
}

// TestAdopt has a Service own the slices that were made with it.
func TestAdopt(t *testing.T) {
	w := newMemory().world
	made := &corev1.Service{ObjectMeta: serviceMeta("a", "web", plainUID)}
	slice := func(service string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: service + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: service}}}
	}
	to := w.Clone()
	for _, name := range []string{"web", "other"} {
		to.Slices[types.NamespacedName{Namespace: "a", Name: name + "-1"}] = slice(name)
	}
	changes := mapping.Changes(w, to)
	mapping.Adopt(made, changes)
	for _, c := range changes {
		owners := c.Object.GetOwnerReferences()
		if got, want := len(owners) == 1 && owners[0].UID == plainUID, c.Object.GetName() == "web-1"; got != want {
			t.Errorf("%s has the owners %v", c.Object.GetName(), owners)
		}
	}
}
