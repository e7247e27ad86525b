// SPDX-License-Identifier: Apache-2.0

package podplan

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/podnets"
)

// subnetID is the id of a subnet of Neutron.
func subnetID(n int) string { return fmt.Sprintf("8e2d1c5a-37a0-4f39-9d5d-%012d", n) }

// kuryrDefinition is a NetworkAttachmentDefinition as Kuryr has it.
func kuryrDefinition(namespace, name, config string, subnet int, more string) *kube.Definition {
	d := definition(namespace, name, config)
	d.Annotations = map[string]string{podnets.AnnotationKuryrConfig: fmt.Sprintf(`{"subnetId": %q%s}`, subnetID(subnet), more)}
	return d
}

// inNeutron has a Network say which subnets of Neutron its own are.
func inNeutron(n *v1alpha1.Network, ids ...int) *v1alpha1.Network {
	n.Status.Neutron = &v1alpha1.NeutronNetwork{ID: "net-" + n.Name}
	for i, id := range ids {
		n.Status.Neutron.Subnets = append(n.Status.Neutron.Subnets, v1alpha1.NeutronSubnet{
			CIDR: n.Spec.Subnets[i].CIDR, ID: subnetID(id),
		})
	}
	return n
}

// both is a Network with subnets 1, of IPv4, 2, of IPv6, and 3, of IPv4 again.
func both() *v1alpha1.Network {
	return inNeutron(network("both", 8, "lan", v1alpha1.NetworkSpec{
		Role: v1alpha1.Secondary, Subnets: []v1alpha1.Subnet{
			{CIDR: "10.8.0.0/24", Routes: []v1alpha1.Route{{Destination: "10.9.0.0/16", NextHop: "10.8.0.9"}}},
			{CIDR: "fd00:8::/64", Routes: []v1alpha1.Route{{Destination: "fd00:9::/32", NextHop: "fd00:8::9"}}},
			{CIDR: "10.88.0.0/24"},
		},
	}), 1, 2, 3)
}

// subnetWorld has a Network for all namespaces and one for the tenant red in Neutron, and
// NetworkAttachmentDefinitions for their subnets in the namespace shop.
func subnetWorld(t *testing.T) *world {
	w := newWorld(t, config.MapFlat)
	w.Neutron = true
	w.api.Add(both(),
		inNeutron(network("red", 3, "red", v1alpha1.NetworkSpec{
			Role: v1alpha1.Primary, NamespaceSelector: selects("tenant", "red"), Subnets: subnets("10.2.0.0/24"), MTU: 1300,
		}), 4),
		kuryrDefinition("shop", "four", "", 1, ""), kuryrDefinition("shop", "six", "", 2, ""),
		kuryrDefinition("shop", "second", "", 3, ""), kuryrDefinition("shop", "red", "", 4, ""),
		kuryrDefinition("shop", "none", "", 5, ""), kuryrDefinition("shop", "sriov", "", 1, `, "driverType": "sriov"`),
		kuryrDefinition("shop", "agrees", `{"type": "coelan-cni", "network": "both"}`, 1, ""),
		kuryrDefinition("shop", "differs", `{"type": "coelan-cni", "network": "lan"}`, 1, ""),
		kuryrDefinition("shop", "for-multus", `{"type": "coelan-cni"}`, 2, ""),
	)
	return w
}

func onBoth(ifName, nad, cidr string, routes ...attachment.Route) attachment.Plan {
	return with(planned(ifName, "both", 8), func(i *attachment.Plan) {
		i.NAD, i.Subnets, i.Routes = nad, subnet(cidr), routes
	})
}

var (
	route4 = attachment.Route{Destination: netip.MustParsePrefix("10.9.0.0/16"), NextHop: netip.MustParseAddr("10.8.0.9")}
	route6 = attachment.Route{Destination: netip.MustParsePrefix("fd00:9::/32"), NextHop: netip.MustParseAddr("fd00:8::9")}
)

// A pod that names a definition of Kuryr's gets an interface on the subnet, if its namespace may
// have one on the Network.
func TestOnSubnet(t *testing.T) {
	const where = "annotation k8s.v1.cni.cncf.io/networks, element 1: NetworkAttachmentDefinition shop/"
	for name, tc := range map[string]struct {
		namespace, networks string
		change              func(*world)
		want                attachment.Plan
		err                 string // reason: part of the message
	}{
		"of IPv4":           {networks: "four", want: onBoth("net1", "shop/four", "10.8.0.0/24", route4)},
		"of IPv6":           {networks: "six@eth1", want: onBoth("eth1", "shop/six", "fd00:8::/64", route6)},
		"names its Network": {networks: "agrees", want: onBoth("net1", "shop/agrees", "10.8.0.0/24", route4)},
		"an address": {
			networks: `[{"name": "second", "ips": ["10.88.0.9"]}]`,
			want: with(onBoth("net1", "shop/second", "10.88.0.0/24"), func(i *attachment.Plan) {
				i.Addresses = []netip.Addr{netip.MustParseAddr("10.88.0.9")}
			}),
		},
		"a tenant's own": {
			namespace: "red", networks: "shop/red", want: with(planned("net1", "red", 3), func(i *attachment.Plan) {
				i.NAD, i.Subnets, i.MTU = "shop/red", subnet("10.2.0.0/24"), 1300
			}),
		},
		"another tenant's": {
			networks: "red", err: "NamespaceNotAllowed: " + where + "red: network red does not take pods of this namespace",
		},
		"another tenant's, and one of its own in spec.config": {
			networks: "red", change: func(w *world) {
				w.api.Add(kuryrDefinition("shop", "red", `{"type": "coelan-cni", "network": "lan"}`, 4, ""))
			},
			err: "NamespaceNotAllowed: " + where + "red: network red does not take pods of this namespace",
		},
		"names another Network": {
			networks: "differs", err: "Invalid: " + where + "differs: spec.config names network lan, and annotation openstack.org/kuryr-config a subnet of network both",
		},
		"of no Network": {
			networks: "none", err: "NetworkNotFound: " + where + "none: no network has the subnet " + subnetID(5) + " of Neutron",
		},
		"of two Networks": {
			networks: "four", change: func(w *world) {
				w.api.Add(inNeutron(network("twice", 9, "lan", v1alpha1.NetworkSpec{Role: v1alpha1.Secondary, Subnets: subnets("10.8.0.0/24")}), 1))
			},
			err: "Invalid: " + where + "four: networks both and twice have the subnet",
		},
		"of two Networks, of which one takes the pod": {
			networks: "four", change: func(w *world) {
				w.api.Add(inNeutron(network("another", 9, "lan", v1alpha1.NetworkSpec{
					Role: v1alpha1.Secondary, NamespaceSelector: selects("tenant", "red"), Subnets: subnets("10.8.0.0/24"),
				}), 1))
			},
			want: onBoth("net1", "shop/four", "10.8.0.0/24", route4),
		},
		"of two Networks, of which none takes the pod": {
			networks: "red", change: func(w *world) {
				w.api.Add(inNeutron(network("another", 9, "lan", v1alpha1.NetworkSpec{
					Role: v1alpha1.Secondary, NamespaceSelector: selects("tenant", "red"), Subnets: subnets("10.2.0.0/24"),
				}), 4))
			},
			err: "NamespaceNotAllowed: " + where + "red: network another does not take pods of this namespace",
		},
		"of which pods get no addresses": {
			networks: "second", err: "Invalid: " + where + "second: pods get addresses of the first subnet of each family, and 10.88.0.0/24 is another one of network both",
		},
		"a driver that Coelan does not have": {
			networks: "sriov", err: `Invalid: ` + where + `sriov: annotation openstack.org/kuryr-config, driverType "sriov": asks for a virtual function`,
		},
		"malformed": {
			networks: "four", change: func(w *world) {
				d := definition("shop", "four", "")
				d.Annotations = map[string]string{podnets.AnnotationKuryrConfig: "{"}
				w.api.Add(d)
			},
			err: "Invalid: " + where + "four: annotation openstack.org/kuryr-config \"{\": malformed JSON",
		},
		"another backend": {
			networks: "four", change: func(w *world) { w.Neutron = false },
			err: "Invalid: " + where + "four: annotation openstack.org/kuryr-config names a subnet of Neutron, and the cluster's backend is another: name a Network in spec.config",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := subnetWorld(t)
				if tc.change != nil {
					tc.change(w)
				}
				namespace := "shop"
				if tc.namespace != "" {
					namespace = tc.namespace
				}
				got, err := w.Plan(t.Context(), w.pod(namespace, "p", map[string]string{podnets.AnnotationNetworks: tc.networks}))
				if tc.err != "" {
					wantPlanError(t, err, tc.err)
					return
				}
				if err != nil || len(got) != 2 {
					t.Fatalf("%d interfaces, %v", len(got), err)
				}
				if diff := cmp.Diff(tc.want, got[1], values); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A Network that the controller is about to bring about in Neutron is waited for.
func TestSubnetThatIsMadeNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := subnetWorld(t)
		time.AfterFunc(2*time.Second, func() {
			w.api.Add(inNeutron(network("lan", 4, "lan", v1alpha1.NetworkSpec{Role: v1alpha1.Secondary, Subnets: subnets("10.3.0.0/24")}), 5))
		})
		got, err := w.Plan(t.Context(), w.pod("shop", "p", map[string]string{podnets.AnnotationNetworks: "none"}))
		if err != nil || len(got) != 2 {
			t.Fatalf("%d interfaces, %v", len(got), err)
		}
		want := with(onLAN("net1"), func(i *attachment.Plan) { i.NAD = "shop/none" })
		if diff := cmp.Diff(want, got[1], values); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// Multus calls for an interface without saying for which definition: the pod's annotation does.
func TestDelegateOnSubnet(t *testing.T) {
	w := subnetWorld(t)
	w.serves = false
	for _, tc := range []struct {
		networks string
		want     attachment.Plan
		err      string
	}{
		{"lan,for-multus", onBoth("net2", "", "fd00:8::/64", route6), ""},
		{"lan,red", attachment.Plan{}, "NamespaceNotAllowed: network red does not take pods of this namespace"},
	} {
		ask := w.pod("shop", "p", map[string]string{podnets.AnnotationNetworks: tc.networks})
		ask.IfName = "net2"
		got, err := w.Plan(t.Context(), ask)
		if tc.err != "" {
			wantPlanError(t, err, tc.err)
			continue
		}
		if diff := cmp.Diff([]attachment.Plan{tc.want}, got, values); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
}

// Addresses are of the subnets of the plan alone, and of the first one of each family.
func TestRangesOfSubnets(t *testing.T) {
	w := subnetWorld(t)
	four, six, second := subnet("10.8.0.0/24"), subnet("fd00:8::/64"), subnet("10.88.0.0/24")
	for name, tc := range map[string]struct {
		of, want []intent.NetworkSubnet
	}{
		"all":   {[]intent.NetworkSubnet{four[0], six[0], second[0]}, []intent.NetworkSubnet{four[0], six[0]}},
		"one":   {four, four},
		"other": {six, six},
	} {
		t.Run(name, func(t *testing.T) {
			ranges, err := w.Ranges(t.Context(), "both", tc.of, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []intent.NetworkSubnet
			for _, r := range ranges {
				got = append(got, intent.NetworkSubnet{Prefix: r.Subnet(), Gateway: r.Gateway()})
			}
			if diff := cmp.Diff(tc.want, got, values); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	_, err := w.Ranges(t.Context(), "both", second, nil)
	wantPlanError(t, err, "NetworkNotReady: network both has none of the subnets")
}
