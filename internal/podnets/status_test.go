// SPDX-License-Identifier: Apache-2.0

package podnets

import (
	"net/netip"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
)

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// three are a pod's interfaces in an order that is not that of the answer.
var three = []attachment.Attachment{
	{Spec: attachment.Spec{Key: attachment.Key{IfName: "net10"}, NetworkName: "blue", MTU: 1400}, MAC: intent.MAC{10, 0, 0, 0, 0, 3}},
	{
		Spec:      attachment.Spec{Key: attachment.Key{IfName: "net2"}, NAD: "shop/red", NetworkName: "red", MTU: 1450},
		MAC:       intent.MAC{10, 0, 0, 0, 0, 2},
		Addresses: prefixes("172.16.33.2/24", "fd33::2/64"), Gateways: addrs("172.16.33.1", "fd33::1"), DefaultRoutes: addrs("172.16.33.9"),
	},
	{
		Spec: attachment.Spec{
			Key: attachment.Key{IfName: "eth0"}, ConfName: "coelan", NetworkName: "default", Primary: true, MTU: 1450,
			DNS: &types.DNS{Nameservers: []string{"10.96.0.10"}, Search: []string{"x.y"}},
		},
		MAC:       intent.MAC{10, 0xce, 10, 244, 1, 2},
		Addresses: prefixes("10.244.1.2/24"), Gateways: addrs("10.244.1.1"),
	},
}

func TestNetworkStatus(t *testing.T) {
	want := `[{"name":"coelan","interface":"eth0","ips":["10.244.1.2"],"mac":"0a:ce:0a:f4:01:02","mtu":1450,"default":true,` +
		`"dns":{"nameservers":["10.96.0.10"],"search":["x.y"]}},` +
		`{"name":"shop/red","interface":"net2","ips":["172.16.33.2","fd33::2"],"mac":"0a:00:00:00:00:02","mtu":1450,"dns":{},"gateway":["172.16.33.9"]},` +
		`{"name":"blue","interface":"net10","mac":"0a:00:00:00:00:03","mtu":1400,"dns":{}}]`
	if diff := cmp.Diff(want, NetworkStatus(three)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := NetworkStatus(nil); got != "[]" {
		t.Errorf("of nothing: %s", got)
	}
}

func TestOVNInterfaces(t *testing.T) {
	want := `[{"ip_address":["172.16.33.2/24","fd33::2/64"],"mac_address":"0a:00:00:00:00:02","gateway_ip":["172.16.33.9","fd33::1"],"defaultGateway":"true","interface":"net2"},` +
		`{"ip_address":[],"mac_address":"0a:00:00:00:00:03","gateway_ip":[],"defaultGateway":"false","interface":"net10"},` +
		`{"ip_address":["10.244.1.2/24"],"mac_address":"0a:ce:0a:f4:01:02","gateway_ip":["10.244.1.1"],"interface":"*"}]`
	if diff := cmp.Diff(want, OVNInterfaces(three)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := OVNInterfaces(nil); got != "[]" {
		t.Errorf("of nothing: %s", got)
	}
}
