// SPDX-License-Identifier: Apache-2.0

package mapping_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openconfig/ygot/ygot"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/restconf/mapping"
)

func newWorld() *mapping.World {
	return &mapping.World{
		Networks: map[string]*v1alpha1.Network{}, Routers: map[string]*v1alpha1.Router{},
		Ports: map[types.NamespacedName]*v1alpha1.Port{}, Namespaces: map[string]*corev1.Namespace{},
		Nodes: map[string]*corev1.Node{}, Pods: map[types.UID]*corev1.Pod{},
		Services: map[types.NamespacedName]*corev1.Service{}, Slices: map[types.NamespacedName]*discoveryv1.EndpointSlice{},
		Policies: map[types.NamespacedName]*networkingv1.NetworkPolicy{},
	}
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// full is a World with objects of all kinds, with fields that models have and have not.
func full() *mapping.World {
	w := newWorld()
	vni, vlan := int32(70001), int32(7)
	named := meta("ns-shop-worker1")
	named.Annotations = map[string]string{v1alpha1.AnnotationELAN: "192.168.33.12:shop", "other": "x"}
	for _, n := range []*v1alpha1.Network{
		{ObjectMeta: meta("overlay"), Spec: v1alpha1.NetworkSpec{
			Type: v1alpha1.Overlay, Role: v1alpha1.Secondary, IPAM: v1alpha1.Blocks, VNI: &vni, Router: "r", MTU: 1300,
			Subnets: []v1alpha1.Subnet{
				{CIDR: "10.1.0.0/16", Ranges: []v1alpha1.AddressRange{{From: "10.1.0.5", To: "10.1.0.9"}, {From: "10.1.1.5", To: "10.1.1.9"}}, Exclusions: []v1alpha1.Exclusion{"10.1.0.7"}},
				{CIDR: "fd00:0:1::/64", Gateway: "fd00:0:1::0:5"},
			},
			DNS: &v1alpha1.DNS{Nameservers: []v1alpha1.Address{"10.1.0.53", "fd00::53"}, Searches: []string{"example.com"}},
		}},
		{ObjectMeta: meta("vlan"), Spec: v1alpha1.NetworkSpec{Type: v1alpha1.VLAN, Role: v1alpha1.Secondary, VLAN: &vlan, PhysicalNetwork: "office", External: true, Subnets: []v1alpha1.Subnet{{CIDR: "192.0.2.0/24"}}}},
		{ObjectMeta: meta("default"), Spec: v1alpha1.NetworkSpec{Type: v1alpha1.Overlay, Role: v1alpha1.Primary, IPAM: v1alpha1.PodCIDR}},
		{ObjectMeta: named, Spec: v1alpha1.NetworkSpec{Type: v1alpha1.Overlay, Role: v1alpha1.Primary, IPAM: v1alpha1.PodCIDR, Node: "worker1"}},
	} {
		w.Networks[n.Name] = n
	}
	families := meta("six")
	families.Annotations = map[string]string{mapping.AnnotationFamilies: "ipv6"}
	for _, r := range []*v1alpha1.Router{
		{ObjectMeta: meta("r"), Spec: v1alpha1.RouterSpec{
			RouteDistinguisher: "64512:3", ImportRouteTargets: []v1alpha1.RouteTarget{"64512:9", "64512:1"}, ExportRouteTargets: []v1alpha1.RouteTarget{"64512:1", "64512:2"},
			Routes: []v1alpha1.Route{{Destination: "10.9.0.0/16", NextHop: "10.1.0.5"}},
		}},
		{ObjectMeta: meta("plain")},
		{ObjectMeta: families, Spec: v1alpha1.RouterSpec{RouteDistinguisher: "1:1"}},
	} {
		w.Routers[r.Name] = r
	}
	for i, p := range []*v1alpha1.Port{
		{ObjectMeta: meta("vm"), Spec: v1alpha1.PortSpec{Network: "overlay", MAC: "0A:00:00:00:00:01", Addresses: []v1alpha1.Address{"10.1.0.5", "fd00:0:1::9"}, Node: "worker1", SecurityGroups: []v1alpha1.GroupName{"web"}}},
		{ObjectMeta: meta("bare"), Spec: v1alpha1.PortSpec{Network: "overlay"}},
		{ObjectMeta: meta("pod.eth0"), Spec: v1alpha1.PortSpec{Network: "default", Pod: &v1alpha1.PortPod{Name: "pod", UID: "u", Interface: "eth0"}}},
	} {
		p.Namespace, p.UID = "a", types.UID("11111111-2222-3333-4444-55555555555"+string(rune('0'+i)))
		w.Ports[types.NamespacedName{Namespace: "a", Name: p.Name}] = p
	}
	addServices(w)
	addPolicies(w)
	w.Namespaces["kube-system"] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "00000000-2222-3333-4444-555555555555"}}
	return w
}

// TestWriteWhatIsThere writes every entry as it is shown: no object changes, whatever it has that
// the models have nothing for.
func TestWriteWhatIsThere(t *testing.T) {
	for name, l := range mapping.Lists() {
		if l.Write == nil {
			continue
		}
		from := full()
		from.Nodes["worker1"] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker1", UID: "7"}}
		entries := l.Entries(from)
		if len(entries) == 0 {
			t.Errorf("%s has no entries", name)
		}
		for _, e := range entries {
			to := from.Clone()
			if err := l.Write(to, e); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for _, c := range mapping.Changes(from, to) {
				t.Errorf("%s: %s of %s (-old +new):\n%s", name, c.Verb, c.Object.GetName(), cmp.Diff(c.Old, c.Object))
			}
		}
	}
}

// TestThereAndBack writes every entry into an empty World: what that shows is the same.
func TestThereAndBack(t *testing.T) {
	for name, l := range mapping.Lists() {
		if l.Remove == nil || l.Show != nil || name == "vpn-interfaces" || name == "interfaces" {
			continue // what is in no object of its own, or is the object itself
		}
		for _, e := range l.Entries(full()) {
			w := newWorld()
			if name == "endpoints-info" {
				w.Services = full().Services // endpoints are those of a Service
			}
			if err := l.Write(w, e); err != nil {
				if name != "elan-instances" && name != "dhcp_allocation_pool" {
					t.Errorf("%s: %v", name, err)
				}
				continue // 192.168.33.12:shop is no name of a Network
			}
			got := l.Entries(w)
			if len(got) != 1 {
				t.Errorf("%s: %d entries", name, len(got))
				continue
			}
			if diff, err := ygot.Diff(e, got[0]); err != nil || len(diff.GetUpdate())+len(diff.GetDelete()) > 0 {
				t.Errorf("%s: %v, %v", name, err, diff)
			}
		}
	}
}

// TestOrder makes Networks before the Ports on them, and deletes last.
func TestOrder(t *testing.T) {
	from, to := full(), full()
	delete(to.Networks, "vlan")
	to.Networks["new"] = &v1alpha1.Network{ObjectMeta: meta("new")}
	to.Ports[types.NamespacedName{Name: "new"}] = &v1alpha1.Port{ObjectMeta: meta("new")}
	to.Routers["plain"].Spec.RouteDistinguisher = "1:9"
	var got []string
	for _, c := range mapping.Changes(from, to) {
		got = append(got, string(c.Verb)+" "+c.Resource.Name)
	}
	if diff := cmp.Diff([]string{"create networks", "create ports", "update routers", "delete networks"}, got); diff != "" {
		t.Error(diff)
	}
}
