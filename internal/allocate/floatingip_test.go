// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
)

// external is a Network that FloatingIPs have addresses of.
func external() *v1alpha1.Network {
	vlan := int32(7)
	return &v1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{Name: "office"},
		Spec: v1alpha1.NetworkSpec{
			Type: v1alpha1.VLAN, VLAN: &vlan, PhysicalNetwork: "p", IPAM: v1alpha1.Blocks, External: true,
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"may": "use"}},
			Subnets: []v1alpha1.Subnet{
				{CIDR: "192.0.2.0/24", Gateway: "192.0.2.254", Ranges: []v1alpha1.AddressRange{{From: "192.0.2.64", To: "192.0.2.254"}}},
				{CIDR: "2001:db8::/64"}, {CIDR: "198.51.100.0/24"},
			},
		},
		Status: v1alpha1.NetworkStatus{ID: 5},
	}
}

func floating(name string, spec v1alpha1.FloatingIPSpec, address string) *v1alpha1.FloatingIP {
	if spec.Network == "" {
		spec.Network = "office"
	}
	return &v1alpha1.FloatingIP{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}, Spec: spec,
		Status: v1alpha1.FloatingIPStatus{Address: address},
	}
}

func TestCheckFloatingIP(t *testing.T) {
	may := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"may": "use"}}}
	held := HeldAddresses([]*corev1.Node{{
		ObjectMeta: metav1.ObjectMeta{Name: "worker1"},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: "worker1"}, {Type: corev1.NodeExternalIP, Address: "192.0.2.70"},
		}},
	}}, []*v1alpha1.LoadBalancerPool{{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Status: v1alpha1.LoadBalancerPoolStatus{Ranges: []string{"192.0.2.80-192.0.2.90"}},
	}})
	asks := func(address string) v1alpha1.FloatingIPSpec { return v1alpha1.FloatingIPSpec{Address: address} }
	of := func(family v1alpha1.IPFamily) v1alpha1.FloatingIPSpec {
		return v1alpha1.FloatingIPSpec{IPFamily: family}
	}
	now := metav1.NewTime(time.Unix(1e9, 0))
	for _, c := range []struct {
		name      string
		spec      v1alpha1.FloatingIPSpec
		has       string
		network   func(*v1alpha1.Network) *v1alpha1.Network
		namespace *corev1.Namespace
		want      string
	}{
		{"no Network", of(""), "", func(*v1alpha1.Network) *v1alpha1.Network { return nil }, may,
			"NetworkNotFound: network office does not exist: create it, or name an external Network that does"},
		{"not external", of(""), "", func(n *v1alpha1.Network) *v1alpha1.Network {
			n.Spec.External = false
			return n
		}, may, "NetworkNotExternal: network office has no addresses for FloatingIPs: name a Network with external: true"},
		{"not ready", of(""), "192.0.2.99", func(n *v1alpha1.Network) *v1alpha1.Network {
			n.Status.ID = 0
			return n
		}, may, "NetworkNotReady: network office is not ready: its condition Ready says what to do"},
		{"subnets that cannot be read", of(""), "", func(n *v1alpha1.Network) *v1alpha1.Network {
			n.Spec.Subnets[0].CIDR = "all"
			return n
		}, may, `NetworkNotReady: network office: spec.subnets[0].cidr: "all" is not a CIDR without bits set after its length`},
		{"Network is leaving", of(""), "", func(n *v1alpha1.Network) *v1alpha1.Network {
			n.DeletionTimestamp = &now
			return n
		}, may, "NetworkNotReady: network office is being deleted: name another one"},
		{"Network is leaving, and it has an address", of(""), "192.0.2.99", func(n *v1alpha1.Network) *v1alpha1.Network {
			n.DeletionTimestamp = &now
			return n
		}, may, "any of 192.0.2.0/24 198.51.100.0/24"},
		{"other namespaces only", of(""), "192.0.2.99", nil, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
			"NamespaceNotAllowed: network office has no addresses for namespace a: give the namespace the labels of its spec.namespaceSelector"},
		{"unknown namespace", of(""), "", nil, nil,
			"NamespaceNotAllowed: network office has no addresses for namespace a: give the namespace the labels of its spec.namespaceSelector"},
		{"all namespaces", of(""), "", func(n *v1alpha1.Network) *v1alpha1.Network {
			n.Spec.NamespaceSelector = nil
			return n
		}, nil, "any of 192.0.2.0/24 198.51.100.0/24"},
		{"no address", asks("ten"), "", nil, may, `Invalid: spec.address: "ten" is not an address`},
		{"address of the other family", v1alpha1.FloatingIPSpec{Address: "192.0.2.99", IPFamily: v1alpha1.IPv6}, "", nil, may,
			"WrongFamily: spec.ipFamily: IPv6 is not the family of 192.0.2.99: leave it out"},
		{"in no subnet", asks("203.0.113.5"), "", nil, may,
			"AddressOutside: spec.address: 203.0.113.5 is in no subnet of the Network: ask for another one, or for none"},
		{"the gateway", asks("192.0.2.254"), "", nil, may,
			"AddressOutside: spec.address: 192.0.2.254 is the gateway of 192.0.2.0/24: ask for another one, or for none"},
		{"the network's address", asks("192.0.2.0"), "", nil, may,
			"AddressOutside: spec.address: 192.0.2.0 is not an address of an interface in 192.0.2.0/24: ask for another one, or for none"},
		{"the broadcast address", asks("198.51.100.255"), "", nil, may,
			"AddressOutside: spec.address: 198.51.100.255 is not an address of an interface in 198.51.100.0/24: ask for another one, or for none"},
		{"not handed out", asks("192.0.2.5"), "", nil, may,
			"AddressOutside: spec.address: address 192.0.2.5 is not one that network office hands out, and spec.fixed.addresses is Ranges: ask for another one, or for none"},
		{"not handed out, but it has it", asks("192.0.2.5"), "192.0.2.5", nil, may, "192.0.2.5"},
		{"a node's", asks("192.0.2.70"), "", nil, may,
			"AddressTaken: spec.address: 192.0.2.70 is that of node worker1: ask for another one, or for none"},
		{"a node's that came later", asks("192.0.2.70"), "192.0.2.70", nil, may, "192.0.2.70"},
		{"a pool's", asks("192.0.2.85"), "", nil, may,
			"AddressTaken: spec.address: 192.0.2.85 is that of loadbalancerpool web: ask for another one, or for none"},
		{"asked for", asks("192.0.2.91"), "", nil, may, "192.0.2.91"},
		{"asked for, IPv6", asks("2001:db8::99"), "", nil, may, "2001:db8::99"},
		{"no subnet of the family", of(v1alpha1.IPv6), "", func(n *v1alpha1.Network) *v1alpha1.Network {
			n.Spec.Subnets = n.Spec.Subnets[:1]
			return n
		}, may, "WrongFamily: network office has no IPv6 subnet: add one to it, or ask for the other ipFamily"},
		{"any", of(""), "", nil, may, "any of 192.0.2.0/24 198.51.100.0/24"},
		{"IPv6", of(v1alpha1.IPv6), "", nil, may, "any of 2001:db8::/64"},
		{"IPv6 comes first now", of(""), "192.0.2.99", func(n *v1alpha1.Network) *v1alpha1.Network {
			n.Spec.Subnets[0], n.Spec.Subnets[1] = n.Spec.Subnets[1], n.Spec.Subnets[0]
			return n
		}, may, "any of 192.0.2.0/24 198.51.100.0/24"},
	} {
		n := external()
		if c.network != nil {
			n = c.network(n)
		}
		v := CheckFloatingIP(floating("f", c.spec, c.has), n, c.namespace, held)
		got := v.Reason + ": " + v.Message
		switch {
		case v.Reason == "" && v.Fixed.IsValid():
			got = v.Fixed.String()
		case v.Reason == "":
			var prefixes []string
			for _, p := range v.Pools {
				prefixes = append(prefixes, p.Prefix.String())
			}
			got = "any of " + strings.Join(prefixes, " ")
		}
		if got != c.want {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
		}
	}

	// What others hold is left out, also where it is most of a subnet.
	n := external()
	n.Spec.Subnets[0].Ranges[0].To = "192.0.2.90"
	v := CheckFloatingIP(floating("f", of(""), ""), n, may, held)
	r, err := v.Pools[0].Whole().Range()
	if err != nil || r.Size() != 27-1-11 {
		t.Errorf("%d addresses are left, %v", r.Size(), err)
	}
}

func TestBindFloatingIP(t *testing.T) {
	overlay := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "lan"}, Spec: v1alpha1.NetworkSpec{Type: v1alpha1.Overlay}}
	port := func(node string, addresses ...string) *v1alpha1.Port {
		return &v1alpha1.Port{Status: v1alpha1.PortStatus{Node: node, Addresses: addresses}}
	}
	of := func(name string, second int64, spec v1alpha1.FloatingIPSpec, address string, judged bool) *v1alpha1.FloatingIP {
		f := floating(name, spec, address)
		f.CreationTimestamp = metav1.NewTime(time.Unix(second, 0))
		if f.Spec.Port == "" {
			f.Spec.Port = "db"
		}
		if judged {
			f.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}}
		}
		return f
	}
	mine := of("mine", 100, v1alpha1.FloatingIPSpec{}, "192.0.2.99", true)
	const taken = "refused PortTaken: port db has the older floatingip a/older of the family IPv4: a/mine gets it when that names another Port or none"
	const bound = "Bound on worker1: port db on node worker1"
	for _, c := range []struct {
		name   string
		target FloatingIPTarget
		want   string
	}{
		{"no Port", FloatingIPTarget{},
			"NotBound: no port db in namespace a; that of a pod's interface is pod.interface, such as web-0.eth0"},
		{"unbound Port", FloatingIPTarget{Port: port("", "10.0.0.5"), Network: overlay}, "NotBound: port db is on no node yet"},
		{"new Port", FloatingIPTarget{Port: port("")}, "NotBound: port db is on no node yet"},
		{"Port", FloatingIPTarget{Port: port("worker1", "fd00::5", "10.0.0.5"), Network: overlay}, bound},
		{"pod", FloatingIPTarget{Pod: &corev1.Pod{Spec: corev1.PodSpec{NodeName: "worker1"},
			Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.244.1.5"}}}}}, bound},
		{"Port on a physical Network", FloatingIPTarget{Port: port("worker1", "192.0.2.5"), Network: external()},
			"refused PortOnPhysicalNetwork: port db is on network office of type VLAN, which is a network of the outside itself: name a Port of an Overlay"},
		{"Port of the other family", FloatingIPTarget{Port: port("worker1", "fd00::5"), Network: overlay},
			"refused WrongFamily: port db has no IPv4 address for 192.0.2.99 to stand for: name a Port that has, or ask for the other ipFamily"},
		{"an older one", FloatingIPTarget{Port: port("worker1", "10.0.0.5"), Others: []*v1alpha1.FloatingIP{
			mine, of("older", 50, v1alpha1.FloatingIPSpec{}, "192.0.2.98", true)}}, taken},
		{"older ones", FloatingIPTarget{Others: []*v1alpha1.FloatingIP{
			of("old", 60, v1alpha1.FloatingIPSpec{}, "192.0.2.97", true), mine,
			of("older", 50, v1alpha1.FloatingIPSpec{}, "192.0.2.98", true)}}, taken},
		{"a younger one", FloatingIPTarget{Port: port("worker1", "10.0.0.5"), Others: []*v1alpha1.FloatingIP{
			of("younger", 150, v1alpha1.FloatingIPSpec{}, "192.0.2.98", true), mine.DeepCopy()}}, bound},
		{"an older one of the same second", FloatingIPTarget{Port: port("worker1", "10.0.0.5"), Others: []*v1alpha1.FloatingIP{
			of("nine", 100, v1alpha1.FloatingIPSpec{}, "192.0.2.98", true)}}, bound},
		{"an older one of the other family", FloatingIPTarget{Port: port("worker1", "10.0.0.5"), Others: []*v1alpha1.FloatingIP{
			of("older", 50, v1alpha1.FloatingIPSpec{}, "2001:db8::5", true)}}, bound},
		{"an older one that was refused", FloatingIPTarget{Port: port("worker1", "10.0.0.5"), Others: []*v1alpha1.FloatingIP{
			of("older", 50, v1alpha1.FloatingIPSpec{Address: "192.0.2.1"}, "", true)}}, bound},
		{"an older one that is new", FloatingIPTarget{Others: []*v1alpha1.FloatingIP{
			of("older", 50, v1alpha1.FloatingIPSpec{IPFamily: v1alpha1.IPv4}, "", false)}}, taken},
		{"an older one that is new, by its Network", FloatingIPTarget{Others: []*v1alpha1.FloatingIP{
			of("older", 50, v1alpha1.FloatingIPSpec{}, "", false)}, Networks: map[string]*v1alpha1.Network{"office": external()}}, taken},
		{"an older one of no Network", FloatingIPTarget{Port: port("worker1", "10.0.0.5"), Others: []*v1alpha1.FloatingIP{
			of("older", 50, v1alpha1.FloatingIPSpec{}, "", false)}}, bound},
	} {
		a := netip.MustParseAddr(mine.Status.Address)
		if got := showBinding(BindFloatingIP(mine, a, c.target)); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
		}
	}
	alone := floating("f", v1alpha1.FloatingIPSpec{}, "2001:db8::5")
	got := showBinding(BindFloatingIP(alone, netip.MustParseAddr(alone.Status.Address), FloatingIPTarget{}))
	if diff := cmp.Diff("Unassociated: neither spec.port nor spec.service names what to stand for", got); diff != "" {
		t.Errorf("without a Port (-want +got):\n%s", diff)
	}
}

func TestBindFloatingIPToService(t *testing.T) {
	of := func(name string, second int64, network v1alpha1.Name, address string) *v1alpha1.FloatingIP {
		f := floating(name, v1alpha1.FloatingIPSpec{Network: network, Service: "web"}, address)
		f.CreationTimestamp = metav1.NewTime(time.Unix(second, 0))
		return f
	}
	service := func(change func(*corev1.ServiceSpec)) *corev1.Service {
		v := &corev1.Service{Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.1", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		}}
		change(&v.Spec)
		return v
	}
	plain := service(func(*corev1.ServiceSpec) {})
	mine := of("mine", 100, "office", "192.0.2.99")
	const bound = "Bound: service web; Events of it say which node answers"
	const headless = "refused ServiceWithoutClusterIP: service web is headless or an ExternalName, which nothing is balanced for: name a Service with a ClusterIP"
	for _, c := range []struct {
		name    string
		f       *v1alpha1.FloatingIP
		service *corev1.Service
		others  []*v1alpha1.FloatingIP
		want    string
	}{
		{"no Service", mine, nil, nil, "NotBound: no service web in namespace a"},
		{"headless", mine, service(func(s *corev1.ServiceSpec) { s.ClusterIP = corev1.ClusterIPNone }), nil, headless},
		{"ExternalName", mine, service(func(s *corev1.ServiceSpec) { s.Type, s.ClusterIP = corev1.ServiceTypeExternalName, "" }), nil, headless},
		{"of the other family", of("six", 100, "office", "2001:db8::5"), plain, nil,
			"refused WrongFamily: service web has no IPv6 address for 2001:db8::5 to stand for: name a Service that has, or ask for the other ipFamily"},
		{"a Service", mine, plain, nil, bound},
		{"an older one", mine, plain, []*v1alpha1.FloatingIP{mine, of("older", 50, "office", "192.0.2.98")},
			"refused ServiceTaken: service web has the older floatingip a/older of the family IPv4 on network office: a/mine gets it when that names another Service or none"},
		{"an older one of another Network", mine, plain, []*v1alpha1.FloatingIP{of("older", 50, "dmz", "198.51.100.9")}, bound},
		{"an older one of the other family", mine, plain, []*v1alpha1.FloatingIP{of("older", 50, "office", "2001:db8::5")}, bound},
	} {
		b := BindFloatingIP(c.f, netip.MustParseAddr(c.f.Status.Address), FloatingIPTarget{Service: c.service, Others: c.others})
		if got := showBinding(b); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
		}
	}
}

func showBinding(b FloatingIPBinding) string {
	text := b.Reason
	if b.Refused {
		text = "refused " + text
	}
	if b.Node != "" {
		text += " on " + b.Node
	}
	return text + ": " + b.Message
}
