// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
)

func TestPort(t *testing.T) {
	at := attachment.Attachment{
		Spec: attachment.Spec{
			Key:    attachment.Key{ContainerID: "3f2a", IfName: "eth0"},
			PodUID: "uid", PodNamespace: "shop", PodName: "web-0",
		},
		MAC:       intent.MAC{0x0a, 0xce, 10, 244, 1, 2},
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.244.1.2/24"), netip.MustParsePrefix("fd00:10:244:1::2/64")},
		OFPort:    16,
	}
	want := intent.Port{
		ID: "3f2a/eth0", Namespace: "shop", Pod: "web-0", Interface: "eth0", UID: "uid",
		Network: "default", Node: "worker1", MAC: at.MAC,
		Addresses: []netip.Addr{netip.MustParseAddr("10.244.1.2"), netip.MustParseAddr("fd00:10:244:1::2")},
	}
	if diff := cmp.Diff(want, Port(at, "worker1"), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("Port (-want +got):\n%s", diff)
	}
}

func TestDefaultNetworkIsRouted(t *testing.T) {
	network, router := Default()
	if network.Router != router.Name || network.ID != 1 || network.VNI != 1 || router.ID != 1 {
		t.Errorf("Default() = %+v, %+v", network, router)
	}
}
