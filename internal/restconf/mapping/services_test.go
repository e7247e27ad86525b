// SPDX-License-Identifier: Apache-2.0

package mapping_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openconfig/ygot/ygot"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"coelan.io/coelan/internal/restconf/mapping"
	"coelan.io/coelan/internal/restconf/yangmodel"
)

const (
	uidA = "aaaaaaaa-2222-3333-4444-555555555555"
	uidB = "bbbbbbbb-2222-3333-4444-555555555555"
)

type (
	service         = yangmodel.Service_ServiceInformation_Services
	servicePort     = yangmodel.Service_ServiceInformation_Services_ServicePorts
	endpoints       = yangmodel.Service_EndpointsInfo_Endpoints
	endpointAddress = yangmodel.Service_EndpointsInfo_Endpoints_EndpointAddresses
	endpointPortKey = yangmodel.Service_EndpointsInfo_Endpoints_EndpointPorts_Key
	endpointPort    = yangmodel.Service_EndpointsInfo_Endpoints_EndpointPorts
)

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "a", Name: name}
}

func objectMeta(name, uid string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(uid)}
}

func tcp(name string, port int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: port, TargetPort: intstr.FromInt32(port)}
}

// slice is an EndpointSlice of a Service, as a client of Kubernetes writes it.
func slice(name, of string, family discoveryv1.AddressType, port int32, addresses ...string) *discoveryv1.EndpointSlice {
	portName, protocol := "", corev1.ProtocolTCP
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: objectMeta(name, ""), AddressType: family,
		Ports: []discoveryv1.EndpointPort{{Name: &portName, Port: &port, Protocol: &protocol}},
	}
	s.Labels = map[string]string{discoveryv1.LabelServiceName: of}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return s
}

// addServices adds Services as clients of Kubernetes write them, without selectors.
func addServices(w *mapping.World) {
	for _, s := range []*corev1.Service{
		{ObjectMeta: objectMeta("plain", uidA), Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.7", Ports: []corev1.ServicePort{tcp("", 80)}, ExternalIPs: []string{"203.0.113.1", "2001:DB8::1"},
			SessionAffinity: corev1.ServiceAffinityClientIP,
		}},
		{ObjectMeta: objectMeta("dns", uidB), Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.0.8",
			Ports: []corev1.ServicePort{tcp("tcp", 53), {Name: "other", Protocol: corev1.ProtocolTCP, Port: 54, TargetPort: intstr.FromString("web"), NodePort: 30054}},
		}},
		{ObjectMeta: objectMeta("headless", "cccccccc-2222-3333-4444-555555555555"), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}},
		{ObjectMeta: objectMeta("balanced", "dddddddd-2222-3333-4444-555555555555"), Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.9", LoadBalancerIP: "203.0.113.9", Ports: []corev1.ServicePort{tcp("http", 80)},
		}, Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}}}}},
	} {
		w.Services[key(s.Name)] = s
	}
	host, node, no := "db-0", "worker1", false
	named := slice("plain-1", "plain", discoveryv1.AddressTypeIPv4, 8080, "10.1.0.1", "10.1.0.2")
	named.Endpoints[1].Hostname, named.Endpoints[1].NodeName = &host, &node
	unready := slice("plain-2", "plain", discoveryv1.AddressTypeIPv6, 8080, "FD00::1", "fd00::2")
	unready.Endpoints[1].Conditions.Ready = &no
	for _, s := range []*discoveryv1.EndpointSlice{
		named, unready, slice("empty", "headless", discoveryv1.AddressTypeIPv4, 80), slice("of-none", "none", discoveryv1.AddressTypeIPv4, 80, "10.1.0.9"),
	} {
		w.Slices[key(s.Name)] = s
	}
}

// write writes an entry of a list, and returns the changes as text.
func write(t *testing.T, w *mapping.World, list string, e ygot.GoStruct) (changes []string, err error) {
	t.Helper()
	before := w.Clone()
	if err = mapping.Lists()[list].Write(w, e); err != nil {
		return nil, err
	}
	for _, c := range mapping.Changes(before, w) {
		changes = append(changes, string(c.Verb)+" "+c.Resource.Name+" "+c.Object.GetNamespace()+"/"+c.Object.GetName())
	}
	return changes, nil
}

func entryPorts(ports ...servicePort) map[string]*servicePort {
	all := map[string]*servicePort{}
	for _, p := range ports {
		all[*p.Name] = &p
	}
	return all
}

func port(name string, number int32, target string, node int32) servicePort {
	return servicePort{Name: ygot.String(name), Port: ygot.Int32(number), TargetPort: ygot.String(target), NodePort: ygot.Int32(node)}
}

func TestWriteService(t *testing.T) {
	cluster := ygot.String("00000000-0000-0000-0000-000000000001")
	prefer := corev1.IPFamilyPolicyPreferDualStack
	for name, c := range map[string]struct {
		entry *service
		want  corev1.ServiceSpec
		extra string
	}{
		"no address": {
			&service{ServicePorts: entryPorts(port("", 80, "8080", 0))},
			corev1.ServiceSpec{Ports: []corev1.ServicePort{{Protocol: "TCP", Port: 80, TargetPort: intstr.FromInt32(8080)}}}, "",
		},
		"an address": {
			&service{ClusterIpAddress: ygot.String("10.96.1.1"), ServicePorts: entryPorts(servicePort{Name: ygot.String("a"), Port: ygot.Int32(80)})},
			corev1.ServiceSpec{ClusterIP: "10.96.1.1", Ports: []corev1.ServicePort{tcp("a", 80)}}, "",
		},
		"no port": {
			&service{ClusterIpAddress: ygot.String("5.21.5.0")},
			corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}, `{"cluster-ip-address":"5.21.5.0"}`,
		},
		"external, node port, load balancer": {
			&service{ExternalIpAddress: []string{"203.0.113.5"}, LoadBalancer_IP: ygot.String("203.0.113.6"), ServicePorts: entryPorts(port("", 80, "web", 30080))},
			corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, ExternalIPs: []string{"203.0.113.5"}, LoadBalancerIP: "203.0.113.6",
				Ports: []corev1.ServicePort{{Protocol: "TCP", Port: 80, TargetPort: intstr.FromString("web"), NodePort: 30080}},
			}, "",
		},
		"another cluster's": {
			&service{
				ClusterId: cluster, ClusterIpAddress: ygot.String("10.96.0.7"), LoadBalancer_IP: ygot.String("203.0.113.6"), IngressIpAddress: []string{"203.0.113.6"},
				ExternalIpAddress: []string{"203.0.113.5"}, ServicePorts: entryPorts(port("", 80, "80", 30080)),
			},
			corev1.ServiceSpec{ExternalIPs: []string{"203.0.113.5"}, Ports: []corev1.ServicePort{tcp("", 80)}},
			`{"cluster-id":"00000000-0000-0000-0000-000000000001","cluster-ip-address":"10.96.0.7","load-balancer-IP":"203.0.113.6","ingress-ip-address":["203.0.113.6"],"node-ports":{"":30080}}`,
		},
		"another cluster's, headless": {
			&service{ClusterId: cluster, ServicePorts: entryPorts(port("", 80, "80", 0))},
			corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{tcp("", 80)}},
			`{"cluster-id":"00000000-0000-0000-0000-000000000001"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			c.entry.Uid, c.entry.Name, c.entry.Network_NS = ygot.String(uidA), ygot.String("web"), ygot.String("a")
			if changes, err := write(t, w, "service-information", c.entry); err != nil || !cmp.Equal(changes, []string{"create services a/web"}) {
				t.Fatalf("%v, %v", changes, err)
			}
			got := w.Services[key("web")]
			c.want.IPFamilyPolicy = &prefer
			if diff := cmp.Diff(c.want, got.Spec); diff != "" || got.Labels[mapping.LabelService] != uidA || got.Annotations[mapping.AnnotationService] != c.extra {
				t.Errorf("%s%v %v", diff, got.Labels, got.Annotations)
			}
			if changes, err := write(t, w, "service-information", mapping.Lists()["service-information"].Entries(w)[0]); err != nil || len(changes) > 0 {
				t.Errorf("again: %v, %v", changes, err)
			}
		})
	}
}

// TestServiceKeepsTheRest edits a Service of kubectl: what the model has no node for stays.
func TestServiceKeepsTheRest(t *testing.T) {
	w := full()
	w.Services[key("dns")].Spec.Ports[0].Protocol = corev1.ProtocolUDP
	changes, err := write(t, w, "service-information", &service{
		Uid: ygot.String(uidB), ServicePorts: entryPorts(port("tcp", 5353, "5353", 0), port("a", 99, "99", 0)),
	})
	if err != nil || !cmp.Equal(changes, []string{"update services a/dns"}) {
		t.Fatalf("%v, %v", changes, err)
	}
	got := w.Services[key("dns")].Spec
	want := []corev1.ServicePort{{Name: "tcp", Protocol: corev1.ProtocolUDP, Port: 5353, TargetPort: intstr.FromInt32(5353)}, tcp("a", 99)}
	if diff := cmp.Diff(want, got.Ports); diff != "" || got.ClusterIP != "10.96.0.8" || got.Type != corev1.ServiceTypeClusterIP {
		t.Errorf("%s%+v", diff, got)
	}
}

func address(ip string) *endpointAddress { return &endpointAddress{IpAddress: &ip} }

func addresses(list ...string) map[string]*endpointAddress {
	all := map[string]*endpointAddress{}
	for _, ip := range list {
		all[ip] = address(ip)
	}
	return all
}

func ports(name string, number int32) map[endpointPortKey]*endpointPort {
	return map[endpointPortKey]*endpointPort{{Name: name, Port: number}: {Name: &name, Port: &number}}
}

// inSlices are the addresses of a Service by slice.
func inSlices(w *mapping.World, service string) map[string][]string {
	all := map[string][]string{}
	for k, s := range w.Slices {
		if s.Labels[discoveryv1.LabelServiceName] != service {
			continue
		}
		all[k.Name] = []string{}
		for _, e := range s.Endpoints {
			all[k.Name] = append(all[k.Name], e.Addresses...)
		}
	}
	return all
}

func TestWriteEndpoints(t *testing.T) {
	for name, c := range map[string]struct {
		entry   *endpoints
		service string
		want    map[string][]string
	}{
		"of both families": {
			&endpoints{Uid: ygot.String(uidB), EndpointAddresses: addresses("10.1.0.3", "fd00::3", "10.1.0.4"), EndpointPorts: ports("tcp", 53)}, "dns",
			map[string][]string{"dns-restconf-1": {"10.1.0.3", "10.1.0.4"}, "dns-restconf-2": {"fd00::3"}},
		},
		"none": {&endpoints{Uid: ygot.String(uidB)}, "dns", map[string][]string{"dns-restconf-1": {}}},
		"by name, with the uid of the Endpoints": {
			&endpoints{Uid: ygot.String("eeeeeeee-2222-3333-4444-555555555555"), Name: ygot.String("dns"), Network_NS: ygot.String("a"), EndpointAddresses: addresses("10.1.0.3"), EndpointPorts: ports("tcp", 53)},
			"dns", map[string][]string{"dns-restconf-1": {"10.1.0.3"}},
		},
		"kubectl's, one more": {
			&endpoints{Uid: ygot.String(uidA), EndpointAddresses: addresses("10.1.0.1", "10.1.0.2", "10.1.0.3", "fd00::1"), EndpointPorts: ports("", 8080)}, "plain",
			map[string][]string{"plain-1": {"10.1.0.1", "10.1.0.2", "10.1.0.3"}, "plain-2": {"FD00::1", "fd00::2"}},
		},
		"kubectl's, one becomes ready": {
			&endpoints{Uid: ygot.String(uidA), EndpointAddresses: addresses("10.1.0.1", "fd00::2"), EndpointPorts: ports("", 8080)}, "plain",
			map[string][]string{"plain-1": {"10.1.0.1"}, "plain-2": {"fd00::2"}},
		},
		"kubectl's, a slice less": {
			&endpoints{Uid: ygot.String(uidA), EndpointAddresses: addresses("fd00::1"), EndpointPorts: ports("", 8080)}, "plain",
			map[string][]string{"plain-2": {"FD00::1", "fd00::2"}},
		},
		"kubectl's, other port": {
			&endpoints{Uid: ygot.String(uidA), EndpointAddresses: addresses("10.1.0.1", "10.1.0.5"), EndpointPorts: ports("", 9090)}, "plain",
			map[string][]string{"plain-1": {"10.1.0.1", "10.1.0.5"}, "plain-2": {"fd00::2"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := full()
			if _, err := write(t, w, "endpoints-info", c.entry); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, inSlices(w, c.service)); diff != "" {
				t.Error(diff)
			}
			for _, e := range mapping.Lists()["endpoints-info"].Entries(w) {
				if got := e.(*endpoints); *got.Name == c.service {
					want := *c.entry
					want.Name, want.Network_NS = got.Name, got.Network_NS
					if diff, err := ygot.Diff(&want, got); err != nil || len(diff.GetUpdate())+len(diff.GetDelete()) > 0 {
						t.Errorf("shown: %v, %v", err, diff)
					}
					if changes, err := write(t, w, "endpoints-info", got); err != nil || len(changes) > 0 {
						t.Errorf("again: %v, %v", changes, err)
					}
				}
			}
		})
	}
	t.Run("as many as slices take", func(t *testing.T) {
		w, e := full(), &endpoints{Uid: ygot.String(uidB), EndpointAddresses: map[string]*endpointAddress{}, EndpointPorts: ports("tcp", 53)}
		for i := range 2001 {
			ip := fmt.Sprintf("10.2.%d.%d", i/200, i%200)
			e.EndpointAddresses[ip] = address(ip)
		}
		if _, err := write(t, w, "endpoints-info", e); err != nil {
			t.Fatal(err)
		}
		var sizes []int
		for _, name := range []string{"dns-restconf-1", "dns-restconf-2", "dns-restconf-3"} {
			sizes = append(sizes, len(w.Slices[key(name)].Endpoints))
		}
		if !cmp.Equal(sizes, []int{1000, 1000, 1}) {
			t.Error(sizes)
		}
	})
}

// TestMembers is the leaf-list endpoints of the first draft: pods and Ports by their uids.
func TestMembers(t *testing.T) {
	const podUID, vm = "99999999-2222-3333-4444-555555555555", "11111111-2222-3333-4444-555555555550"
	w := full()
	w.Pods[podUID] = &corev1.Pod{
		ObjectMeta: objectMeta("web-0", podUID), Spec: corev1.PodSpec{NodeName: "worker1"},
		Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.3.0.1"}, {IP: "fd00:3::1"}}},
	}
	entry := func(uids ...string) *service {
		return &service{Uid: ygot.String(uidB), Endpoints: uids, ServicePorts: entryPorts(port("tcp", 53, "5353", 0))}
	}
	for _, step := range []struct {
		uids []string
		want map[string][]string
	}{
		{[]string{podUID}, map[string][]string{"dns-restconf-1": {"10.3.0.1"}, "dns-restconf-2": {"fd00:3::1"}}},
		{[]string{vm, podUID}, map[string][]string{"dns-restconf-1": {"10.3.0.1", "10.1.0.5"}, "dns-restconf-2": {"fd00:3::1", "fd00:0:1::9"}}},
		{[]string{vm}, map[string][]string{"dns-restconf-1": {"10.1.0.5"}, "dns-restconf-2": {"fd00:0:1::9"}}},
		{nil, map[string][]string{"dns-restconf-1": {}}},
	} {
		if _, err := write(t, w, "service-information", entry(step.uids...)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, inSlices(w, "dns")); diff != "" {
			t.Errorf("%v: %s", step.uids, diff)
		}
	}
}
