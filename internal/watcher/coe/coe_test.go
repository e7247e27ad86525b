// SPDX-License-Identifier: Apache-2.0

package coe

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	podID  = "11111111-2222-3333-4444-555555555555"
	second = "3733c6f4-098d-5783-8577-60a31ea0fd0d"
)

var renderer = Renderer{ClusterID: "cluster", NetworkID: DefaultNetworkID}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(podID)}
}

// of has the text of an entry, and the body of its request.
func of(t *testing.T, l *List, e Entry) string {
	t.Helper()
	body, err := l.Body(e)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string][]json.RawMessage
	if err := json.Unmarshal(body, &tree); err != nil || len(tree[l.Module+":"+l.Name]) != 1 {
		t.Fatalf("body %s, %v", body, err)
	}
	return string(tree[l.Module+":"+l.Name][0])
}

func TestEntries(t *testing.T) {
	ips := func(all ...string) (list []corev1.PodIP) {
		for _, ip := range all {
			list = append(list, corev1.PodIP{IP: ip})
		}
		return list
	}
	pod := func(change func(*corev1.Pod)) Entry {
		p := &corev1.Pod{ObjectMeta: meta("web-0")}
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, HostIP: "192.0.2.1", PodIPs: ips("10.11.2.7")}
		change(p)
		return renderer.Pod(p)
	}
	nic := func(uid, ip string) string {
		return fmt.Sprintf(`{"ip-address":%q,"network-id":%q,"network-type":"VXLAN","uid":%q}`, ip, DefaultNetworkID, uid)
	}
	podWith := func(interfaces string) string {
		return `{"cluster-id":"cluster","host-ip-address":"192.0.2.1","interface":[` + interfaces + `],"name":"web-0","network-NS":"shop","uid":"` + podID + `"}`
	}
	service := &corev1.Service{ObjectMeta: meta("web"), Spec: corev1.ServiceSpec{
		ClusterIP: "10.96.0.9", ExternalIPs: []string{"203.0.113.1"}, LoadBalancerIP: "203.0.113.9",
		Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("web"), NodePort: 30080}},
	}, Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}, {Hostname: "lb"}}}}}
	headless := &corev1.Service{ObjectMeta: meta("web"), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}}
	for name, tc := range map[string]struct {
		list *List
		got  Entry
		want string
	}{
		"cluster": {Clusters, renderer.Cluster(), `{"cluster-id":"cluster"}`},
		"node": {Nodes, renderer.Node(&corev1.Node{ObjectMeta: meta("n1"), Spec: corev1.NodeSpec{PodCIDR: "10.11.2.0/24"}, Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: "Hostname", Address: "n1"}, {Type: "InternalIP", Address: "192.0.2.1"}, {Type: "InternalIP", Address: "fd00::1"}, {Type: "ExternalIP", Address: "203.0.113.7"}},
		}}), `{"cluster-id":"cluster","external-ip-address":"203.0.113.7","host-name":"n1","internal-ip-address":"192.0.2.1","pod-cidr":"10.11.2.0/24","uid":"` + podID + `"}`},
		"node without addresses": {Nodes, renderer.Node(&corev1.Node{ObjectMeta: meta("n1")}), `{"cluster-id":"cluster","host-name":"n1","uid":"` + podID + `"}`},
		"pod":                    {Pods, pod(func(*corev1.Pod) {}), podWith(nic(podID, "10.11.2.7"))},
		"pod of both families": {
			Pods, pod(func(p *corev1.Pod) { p.Status.PodIPs = ips("10.11.2.7", "fd00:11::7") }),
			podWith(nic(podID, "10.11.2.7") + "," + nic(second, "fd00:11::7")),
		},
		"service": {Services, renderer.Service(service), `{"cluster-id":"cluster","cluster-ip-address":"10.96.0.9","external-ip-address":["203.0.113.1"],` +
			`"ingress-ip-address":["203.0.113.9"],"load-balancer-IP":"203.0.113.9","name":"web","network-NS":"shop",` +
			`"service-ports":[{"name":"http","node-port":30080,"port":80,"target-port":"web"}],"uid":"` + podID + `"}`},
		"headless service": {Services, renderer.Service(headless), `{"cluster-id":"cluster","name":"web","network-NS":"shop","uid":"` + podID + `"}`},
	} {
		if tc.got == nil {
			t.Errorf("%s: no entry", name)
		} else if got := of(t, tc.list, tc.got); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, tc.want)
		}
	}
	for name, change := range map[string]func(*corev1.Pod){
		"without an address": func(p *corev1.Pod) { p.Status.PodIPs = nil },
		"succeeded":          func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
		"failed":             func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
		"of the host":        func(p *corev1.Pod) { p.Spec.HostNetwork = true },
	} {
		if e := pod(change); e != nil {
			t.Errorf("pod %s: %v", name, e)
		}
	}
	host := renderer
	host.HostNetwork = true
	if host.Pod(&corev1.Pod{Spec: corev1.PodSpec{HostNetwork: true}, Status: corev1.PodStatus{PodIPs: ips("192.0.2.1")}}) == nil {
		t.Error("a pod of the host is missing though it is asked for")
	}
}

// TestFurtherInterfaces has a pod with interfaces on networks that the controller knows, and on
// others.
func TestFurtherInterfaces(t *testing.T) {
	const red = "7ba91a3a-f17e-2ebb-edec-3bbbea27dca7"
	r := renderer
	r.Networks = map[string]string{"red": red, "shop/blue": "blue"}
	p := &corev1.Pod{ObjectMeta: meta("web-0"), Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.11.2.7"}}}}
	for name, c := range map[string]struct {
		status string
		want   []string
	}{
		"none": {"", nil},
		"two": {`[{"name":"coelan","interface":"eth0","ips":["10.11.2.7"],"default":true},{"name":"red","interface":"net1","ips":["10.20.0.5","fd00:20::5"]},
			{"name":"shop/blue","interface":"net2","ips":["10.30.0.5"],"mac":"02:00:00:00:00:01"}]`, []string{red + " 10.20.0.5", red + " fd00:20::5", "blue 10.30.0.5"}},
		"unknown network":  {`[{"name":"green","interface":"net1","ips":["10.20.0.5"]},{"name":"blue","interface":"net2","ips":["10.30.0.5"]}]`, nil},
		"the first":        {`[{"name":"red","interface":"eth0","ips":["10.20.0.5"],"default":true}]`, nil},
		"twice":            {`[{"name":"red","interface":"net1","ips":["10.20.0.5"]},{"name":"red","interface":"net1","ips":["10.20.0.6"]}]`, []string{red + " 10.20.0.5"}},
		"without address":  {`[{"name":"red","interface":"net1"}]`, nil},
		"no address":       {`[{"name":"red","interface":"net1","ips":["none","fe80::1%eth0","10.20.0.5/16","10.20.0.6"]}]`, []string{red + " 10.20.0.6"}},
		"no JSON":          {`[{"name":"red"`, nil},
		"no list":          {`{"name":"red","interface":"net1","ips":["10.20.0.5"]}`, nil},
		"of another type":  {`[{"name":7,"interface":"net1","ips":["10.20.0.5"]}]`, nil},
		"without its name": {`[{"name":"red","ips":["10.20.0.5"]}]`, nil},
	} {
		p.Annotations = map[string]string{AnnotationNetworkStatus: c.status}
		var got []string
		uids := map[any]bool{}
		for _, e := range r.Pod(p)["interface"].([]Entry) {
			uids[e["uid"]] = true
			if e["network-id"] != DefaultNetworkID {
				got = append(got, fmt.Sprint(e["network-id"], " ", e["ip-address"]))
			}
		}
		if strings.Join(got, ",") != strings.Join(c.want, ",") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if len(uids) != len(c.want)+1 {
			t.Errorf("%s: uids are not unique: %v", name, uids)
		}
	}
	if got := renderer.Pod(p)["interface"].([]Entry); len(got) != 1 {
		t.Errorf("without networks: %v", got)
	}
}

// FuzzFurtherInterfaces has any client that may annotate a pod write the annotation.
func FuzzFurtherInterfaces(f *testing.F) {
	f.Add(`[{"name":"red","interface":"net1","ips":["10.20.0.5","fd00:20::5","::ffff:10.0.0.1"]}]`)
	f.Add(`[{"name":"red","interface":"net1","ips":[null]},null,7]`)
	r := renderer
	r.Networks = map[string]string{"red": "red"}
	f.Fuzz(func(t *testing.T, status string) {
		p := &corev1.Pod{ObjectMeta: meta("web-0"), Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.11.2.7"}}}}
		p.Annotations = map[string]string{AnnotationNetworkStatus: status}
		if _, err := Pods.Body(r.Pod(p)); err != nil {
			t.Error(err)
		}
		for _, e := range r.Pod(p)["interface"].([]Entry) {
			if _, err := netip.ParseAddr(e["ip-address"].(string)); err != nil || e["uid"] == "" {
				t.Errorf("%v", e)
			}
		}
	})
}

// Endpoints are of all slices: subsets with other ports, both families; only what is ready.
func TestEndpoints(t *testing.T) {
	no, node, hostname := false, "n1", "db-0"
	ports := func(name string, port int32) []discoveryv1.EndpointPort {
		return []discoveryv1.EndpointPort{{Name: &name, Port: &port}, {Name: &name}}
	}
	list := []*discoveryv1.EndpointSlice{
		{AddressType: discoveryv1.AddressTypeIPv6, Ports: ports("http", 8080), Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"fd00::2"}}}},
		{AddressType: discoveryv1.AddressTypeIPv4, Ports: ports("http", 8080), Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.11.2.8"}, NodeName: &node, Hostname: &hostname},
			{Addresses: []string{"10.11.2.9"}, Conditions: discoveryv1.EndpointConditions{Ready: &no}},
		}},
		{AddressType: discoveryv1.AddressTypeIPv4, Ports: ports("http", 9090), Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.11.2.7"}}}},
		{AddressType: discoveryv1.AddressTypeFQDN, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"example.com"}}}},
	}
	svc := &corev1.Service{ObjectMeta: meta("web")}
	want := `{"endpoint-addresses":[{"ip-address":"10.11.2.7"},{"host-name":"db-0","ip-address":"10.11.2.8","node-name":"n1"},{"ip-address":"fd00::2"}],` +
		`"endpoint-ports":[{"name":"http","port":8080},{"name":"http","port":9090}],"name":"web","network-NS":"shop","uid":"` + podID + `"}`
	if got := of(t, Endpoints, renderer.Endpoints(svc, list)); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	if e := renderer.Endpoints(svc, nil); e != nil {
		t.Errorf("endpoints of a Service without slices: %v", e)
	}
}

// What a controller has is compared by its meaning: with or without modules' names, in any order of
// lists, and whatever else it has.
func TestRead(t *testing.T) {
	mine := Entry{"uid": "a", "cluster-id": "c", "name": "web", "interface": []Entry{{"uid": "1", "ip-address": "10.0.0.1"}, {"uid": "2", "ip-address": "10.0.0.2"}}}
	text, err := Pods.Text(mine)
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]Remote{
		`{"pod:coe":{"pods":[{"uid":"a","cluster-id":"c","name":"web","interface":[{"uid":"2","ip-address":"10.0.0.2"},{"ip-address":"10.0.0.1","uid":"1"}]}]}}`:                                                         {text, "c"},
		`{"coe":{"pod:pods":[{"pod:uid":"a","pod:cluster-id":"c","pod:name":"web","pod:version":"7","pod:interface":[{"pod:uid":"1","pod:ip-address":"10.0.0.1"},{"pod:uid":"2","pod:ip-address":"10.0.0.2","x":1}]}]}}`: {text, "c"},
		`{"pod:coe":{"pods":[{"uid":"a"}]}}`:                               {`{"uid":"a"}`, ""},
		`{"pod:coe":{"pods":[{"uid":"a","interface":[],"cluster-id":7}]}}`: {`{"cluster-id":7,"uid":"a"}`, ""},
	} {
		got, err := Pods.Read([]byte(body))
		if err != nil || len(got) != 1 || got["a"] != want {
			t.Errorf("%s: %v, %v; want %v", body, got, err, want)
		}
	}
	for _, body := range []string{`{}`, `{"pod:coe":{}}`, `{"pod:coe":null}`, `{"service:coe":{"pods":{}}}`} {
		if got, err := Pods.Read([]byte(body)); err != nil || len(got) != 0 {
			t.Errorf("%s: %v, %v", body, got, err)
		}
	}
	for _, body := range []string{``, `[]`, `<html>`, `{"pod:coe":{"pods":[{"name":"x"}]}}`, `{"pod:coe":{"pods":[7]}}`, `{"pod:coe":{"pods":[{"uid":7}]}}`} {
		if got, err := Pods.Read([]byte(body)); err == nil || !strings.Contains(err.Error(), "pod:coe") {
			t.Errorf("%s: %v, %v", body, got, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"pod:coe":{"pods":[{"uid":"a","interface":[{"uid":"b"}]}]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, list := range Lists {
			_, _ = list.Read(body)
		}
	})
}
