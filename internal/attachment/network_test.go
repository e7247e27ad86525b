// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
	"coelan.io/coelan/internal/reserved"
)

// blocks are ranges of one subnet.
func blocks(t testing.TB, subnet string, prefixes ...string) []ipam.Range {
	t.Helper()
	var list []ipam.Range
	for _, p := range prefixes {
		s := netip.MustParsePrefix(subnet)
		r, err := ipam.Block{Prefix: netip.MustParsePrefix(p), Subnet: s, Gateway: s.Addr().Next()}.Range()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// on is a request of a secondary interface on a Network.
func on(network, id, ifName string, ranges []ipam.Range) Plan {
	r := request(id)
	r.IfName, r.NetworkName, r.BlockSpace, r.Ranges = ifName, network, true, ranges
	r.Subnets = []intent.NetworkSubnet{
		{Prefix: netip.MustParsePrefix("10.9.0.0/24"), Gateway: netip.MustParseAddr("10.9.0.1")},
		{Prefix: netip.MustParsePrefix("fd09::/64")},
	}
	return r
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func text(a Attachment) string {
	return fmt.Sprint(a.NetworkName, " ", a.Addresses, " ", a.MAC, " ", a.NodeAddresses, " ", a.DefaultRoutes)
}

// A journal that a release without Networks wrote is read, and says what it said then.
func TestJournalOfAnOlderRelease(t *testing.T) {
	data, err := os.ReadFile("testdata/v1.db")
	if err != nil {
		t.Fatal(err)
	}
	s, path, err := openBytes(t, data)
	if err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		list := s.List()
		if len(list) != 2 {
			t.Fatalf("attachments: %v", list)
		}
		want := Attachment{
			Spec: Spec{
				Key: Key{"c1", "eth0"}, ConfName: "coelan", PodUID: "uid-c1", PodNamespace: "default", PodName: "pod-c1", Netns: "/run/netns/c1",
				NetworkID: 1, MTU: 1450,
				NetworkName: "default", Primary: true, PortName: "pod-c1.eth0",
			},
			MAC:           intent.MAC{0x0a, 0xce, 10, 0, 0, 3},
			Addresses:     []netip.Prefix{netip.MustParsePrefix("10.0.0.3/22"), netip.MustParsePrefix("fd00:1::3/64")},
			Gateways:      []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00:1::1")},
			OFPort:        17,
			DefaultRoutes: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00:1::1")},
		}
		if diff := cmp.Diff(want, list[0], addresses, cmpopts.IgnoreFields(Attachment{}, "Created", "HostInterface")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if nodes := s.Objects(kindNode); string(nodes["n1"]) != `{"a":1}` || len(nodes) != 1 {
			t.Errorf("nodes: %q", nodes)
		}
	}
	check()
	a := mustAllocate(t, s, "c9") // goes on where the older release was
	if a.Addresses[0].Addr().String() != "10.0.0.5" || a.OFPort != 19 {
		t.Errorf("next: %v, port %d", a.Addresses, a.OFPort)
	}
	if _, err := s.Release(a.Key); err != nil {
		t.Fatal(err)
	}
	s.journal.unsure = true // the file is rewritten, in today's form
	if err := s.SaveObjects("Network", map[string][]byte{"red": []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if s, err = open(path, 0); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	check()
}

// Tenants with the same subnet get the same addresses and MACs, each its own from the first on.
func TestOverlappingNetworks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openTest(t, path)
	ranges := blocks(t, "10.9.0.0/24", "10.9.0.16/28")
	var got []string
	for i, network := range []string{"red", "blue", "red", "blue"} {
		a, err := s.Allocate(on(network, fmt.Sprint("c", i), "net1", ranges))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, text(a))
	}
	want := []string{
		"red [10.9.0.16/24] 0a:ce:0a:09:00:10 [] []", "blue [10.9.0.16/24] 0a:ce:0a:09:00:10 [] []",
		"red [10.9.0.17/24] 0a:ce:0a:09:00:11 [] []", "blue [10.9.0.17/24] 0a:ce:0a:09:00:11 [] []",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := s.Used("red", ranges[0].Prefix()); n != 2 {
		t.Errorf("%d addresses of red are used, want 2", n)
	}
	if n := len(s.On("blue")); n != 2 {
		t.Errorf("%d attachments on blue, want 2", n)
	}
	before := s.List()
	s.Close()
	s = openTest(t, path)
	if diff := cmp.Diff(before, s.List(), addresses); diff != "" {
		t.Errorf("after reopening (-before +after):\n%s", diff)
	}
	// Where the search goes on is remembered too.
	a, err := s.Allocate(on("red", "c9", "net1", ranges))
	if err != nil || a.Addresses[0].String() != "10.9.0.18/24" {
		t.Errorf("next: %v, %v", a.Addresses, err)
	}
}

// A tenant's pod has an address for its node, of the families that it has itself; no
// other pod gets that.
func TestNodeAddresses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openTest(t, path)
	r := on("red", "c1", "eth0", blocks(t, "10.9.0.0/24", "10.9.0.0/28"))
	r.NodeRanges, r.Default4, r.Default6 = dual, true, true
	a, err := s.Allocate(r)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := text(a), "red [10.9.0.2/24] 0a:ce:0a:09:00:02 [10.0.0.2/22] [10.9.0.1]"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if fmt.Sprint(a.NodeGateways) != "[10.0.0.1]" {
		t.Errorf("gateways of the node: %v", a.NodeGateways)
	}
	if b := mustAllocate(t, s, "c2"); b.Addresses[0].Addr().String() != "10.0.0.3" {
		t.Errorf("the next pod's address is %s, want 10.0.0.3", b.Addresses[0])
	}
	s.Close()
	s = openTest(t, path)
	if ok, err := s.Release(a.Key); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if len(s.addresses) != 2 {
		t.Errorf("held after the release: %v", s.addresses)
	}
}

// Node addresses and those of pods on the default Network are one space, of which nothing
// is handed out twice.
func TestNodeAddressesRunOut(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "state.db"))
	small := ranges("10.0.0.0/29") // 10.0.0.2 to .6
	var got []string
	var err error
	for i := 0; err == nil && i < 10; i++ {
		r := request(fmt.Sprint("c", i))
		r.Ranges = small
		if i%2 == 0 {
			r = on(fmt.Sprint("net-", i), r.ContainerID, "eth0", blocks(t, "10.9.0.0/24", "10.9.0.0/28"))
			r.NodeRanges = small
		}
		var a Attachment
		if a, err = s.Allocate(r); err == nil && i%2 == 0 {
			got = append(got, a.NodeAddresses[0].Addr().String())
		} else if err == nil {
			got = append(got, a.Addresses[0].Addr().String())
		}
		s.cursors = cursors{Port: s.cursors.Port} // the search begins at the first
	}
	if diff := cmp.Diff([]string{"10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var exhausted *ipam.ExhaustedError
	if !errors.As(err, &exhausted) || exhausted.Blocks {
		t.Errorf("error %v, want that the podCIDR is exhausted", err)
	}
}

// Blocks are used one after the other; when all are full the error names them, and a
// further one is used.
func TestSeveralBlocks(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "state.db"))
	ranges := append(blocks(t, "10.9.0.0/24", "10.9.0.16/31", "10.9.0.32/31"), blocks(t, "fd09::/64", "fd09::10/124")...)
	var got []string
	for i := range 4 {
		a, err := s.Allocate(on("red", fmt.Sprint("c", i), "net1", ranges))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(a.Addresses))
	}
	want := []string{"[10.9.0.16/24 fd09::10/64]", "[10.9.0.17/24 fd09::11/64]", "[10.9.0.32/24 fd09::12/64]", "[10.9.0.33/24 fd09::13/64]"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, err := s.Allocate(on("red", "c9", "net1", ranges))
	var exhausted *ipam.ExhaustedError
	if !errors.As(err, &exhausted) || !exhausted.Blocks || fmt.Sprint(exhausted.CIDRs) != "[10.9.0.16/31 10.9.0.32/31]" {
		t.Fatalf("error %v, want the two blocks of IPv4", err)
	}
	a, err := s.Allocate(on("red", "c9", "net1", append(ranges, blocks(t, "10.9.0.0/24", "10.9.0.48/31")...)))
	if err != nil || a.Addresses[0].Addr().String() != "10.9.0.48" {
		t.Errorf("with one more: %v, %v", a.Addresses, err)
	}
}

func TestFixedAddressesAndMAC(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "state.db"))
	mac := intent.MAC{2, 0, 0, 0, 0, 9}
	r := on("red", "c1", "net1", blocks(t, "10.9.0.0/24", "10.9.0.0/28"))
	r.Addresses, r.MAC = addrs("10.9.0.5", "10.9.0.7", "fd09::5"), &mac
	r.Default4, r.Default6, r.Gateways = true, true, []netip.Addr{netip.MustParseAddr("10.9.0.9")}
	a, err := s.Allocate(r)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := text(a), "red [10.9.0.5/24 10.9.0.7/24 fd09::5/64] 02:00:00:00:00:09 [] [10.9.0.9]"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if !a.FixedAddresses || !a.FixedMAC || a.PortKey() != "default/pod-c1.net1" {
		t.Errorf("attachment: %+v", a)
	}
	for name, tt := range map[string]struct {
		change func(*Plan)
		want   string
	}{
		"address": {func(r *Plan) { r.Addresses, r.MAC = addrs("10.9.0.7"), nil },
			"attachment c2/net1: address 10.9.0.7 on Network red belongs to default/pod-c1/net1"},
		"MAC": {func(r *Plan) { r.MAC = &mac },
			"attachment c2/net1: MAC 02:00:00:00:00:09 on Network red belongs to default/pod-c1/net1"},
		// The pod that takes the place of one that is not gone yet is another one.
		"address of the pod before": {func(r *Plan) { r.PodName = "pod-c1"; r.Addresses = addrs("10.9.0.5") },
			"address 10.9.0.5 on Network red belongs to default/pod-c1/net1"},
		"MAC made from the address": {func(r *Plan) {
			r.Addresses, r.MAC = addrs("10.9.0.8"), nil
			s.macs[macPlace{"red", reserved.PodMAC(netip.MustParseAddr("10.9.0.8"))}] = a.Key
		}, "MAC 0a:ce:0a:09:00:08 on Network red belongs to"},
	} {
		r := on("red", "c2", "net1", blocks(t, "10.9.0.0/24", "10.9.0.0/28"))
		tt.change(&r)
		_, err := s.Allocate(r)
		var taken *TakenError
		if !errors.As(err, &taken) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v\nwant %s", name, err, tt.want)
		}
		if len(s.pending) != 0 || len(s.List()) != 1 {
			t.Errorf("%s: something is left: %v", name, s.pending)
		}
	}
	for _, want := range []string{"10.9.0.2", "10.9.0.3", "10.9.0.4", "10.9.0.6"} {
		// fixed ones are passed over.
		b, err := s.Allocate(on("red", "other-"+want, "net1", blocks(t, "10.9.0.0/24", "10.9.0.0/28")))
		if err != nil || b.Addresses[0].Addr().String() != want {
			t.Errorf("got %v, %v, want %s", b.Addresses, err, want)
		}
	}
}

func TestHold(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "state.db"))
	ranges := blocks(t, "10.9.0.0/24", "10.9.0.0/28")
	at := func(s string) netip.Addr { return netip.MustParseAddr(s) }
	a, err := s.Allocate(on("red", "c1", "net1", ranges)) // 10.9.0.2
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Hold("red", at("10.9.0.3"), "shop/vm"); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Hold("blue", at("10.9.0.3"), "shop/other"); err != nil {
		t.Errorf("on another Network: %v", err)
	}
	var taken *TakenError
	if err := s.Hold("red", at("10.9.0.3"), "shop/other"); !errors.As(err, &taken) || taken.By != "shop/vm" {
		t.Errorf("held twice: %v", err)
	}
	if err := s.Hold("red", at("10.9.0.2"), "shop/vm"); !errors.As(err, &taken) || taken.By != "default/pod-c1.net1" {
		t.Errorf("held although attached: %v", err)
	}
	if err := s.Hold("red", at("10.9.0.2"), a.PortKey()); err != nil {
		t.Errorf("held for the one who has it: %v", err)
	}
	b, err := s.Allocate(on("red", "c2", "net1", ranges))
	if err != nil || b.Addresses[0].Addr().String() != "10.9.0.4" {
		t.Errorf("got %v, %v, want 10.9.0.4", b.Addresses, err)
	}
	r := on("red", "c3", "net1", nil)
	r.Addresses = addrs("10.9.0.3")
	if _, err := s.Allocate(r); !errors.As(err, &taken) || taken.By != "shop/vm" {
		t.Errorf("fixed address held for another: %v", err)
	}
	r.PodNamespace, r.PortName = "shop", "vm"
	if _, err := s.Allocate(r); err != nil {
		t.Errorf("fixed address held for itself: %v", err)
	}
	s.Unhold("red", at("10.9.0.3"), "shop/other")
	if len(s.held) != 3 {
		t.Errorf("held: %v", s.held)
	}
	s.Unhold("red", at("10.9.0.3"), "shop/vm")
	if len(s.held) != 2 {
		t.Errorf("held: %v", s.held)
	}
}

// A user's Port gets a number and nothing else.
func TestPorts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openTest(t, path)
	for i, name := range []string{"vm-1", "vm-2"} {
		a, err := s.Allocate(Plan{
			Spec: Spec{
				Key: PortKey("shop", name), NetworkName: "red", BlockSpace: true, HostInterface: "tap" + name,
				PodNamespace: "shop", PortName: name,
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if a.String() != "port:shop/"+name || !a.IsPort() || a.PodRef() != "shop/"+name || a.HostInterface != "tap"+name || a.OFPort != uint32(16+i) {
			t.Errorf("port: %+v", a)
		}
	}
	before := s.List()
	s.Close()
	s = openTest(t, path)
	if diff := cmp.Diff(before, s.List(), addresses, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("after reopening (-before +after):\n%s", diff)
	}
	if (Key{"c1", "eth0"}).IsPort() {
		t.Error("a container is a Port")
	}
}

// Of several requests all are fulfilled, or none.
func TestAllocateAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openTest(t, path)
	list, err := s.AllocateAll(request("c1"), on("red", "c1", "net1", blocks(t, "10.9.0.0/24", "10.9.0.16/28")), on("red", "c1", "net2", blocks(t, "10.9.0.0/24", "10.9.0.16/28")))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range list {
		got = append(got, fmt.Sprint(a.Key, " ", a.Addresses[0], " ", a.OFPort))
	}
	if diff := cmp.Diff([]string{"c1/eth0 10.0.0.2/22 16", "c1/net1 10.9.0.16/24 17", "c1/net2 10.9.0.17/24 18"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(s.Of("c1")) != 3 || len(s.Of("c")) != 0 {
		t.Error("Of does not list a container's attachments")
	}
	held := fmt.Sprint(len(s.addresses), len(s.macs), len(s.ports))
	_, err = s.AllocateAll(request("c2"), on("red", "c2", "net1", blocks(t, "10.9.0.0/24", "10.9.0.17/32")))
	var failed *AllocationError
	if !errors.As(err, &failed) || failed.Index != 1 || failed.Key.IfName != "net1" {
		t.Errorf("error %v, want that of the second request", err)
	}
	if now := fmt.Sprint(len(s.addresses), len(s.macs), len(s.ports)); now != held || len(s.pending) != 0 {
		t.Errorf("held %s after a failure, %s before", now, held)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(data, []byte("\n")); n != 2 {
		t.Errorf("%d lines in the journal, want one commit after the first", n)
	}
	if ok, err := s.Release(Key{"c1", "net1"}, Key{"c1", "eth0"}, Key{"c1", "net2"}, Key{"c1", "net9"}); !ok || err != nil {
		t.Errorf("Release: %v, %v", ok, err)
	}
	if len(s.addresses)+len(s.macs)+len(s.ports)+len(s.pending)+len(s.List()) != 0 {
		t.Error("something is held after the release")
	}
}

func TestInterfaceWithoutAddress(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "state.db"))
	a, err := s.Allocate(on("wire", "c1", "net1", nil))
	if err != nil || len(a.Addresses) != 0 || a.MAC[0] != 0x0a || a.MAC[1] != 0xce || a.MAC == (intent.MAC{0x0a, 0xce}) {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestObjectsAreSavedByKind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openTest(t, path)
	for _, step := range []struct {
		kind    string
		objects map[string][]byte
	}{
		{"Network", map[string][]byte{"red": []byte("1"), "blue": []byte("2")}},
		{"Router", map[string][]byte{"red": []byte("3")}},
		{"Network", map[string][]byte{"red": []byte("4")}},
	} {
		if err := s.SaveObjects(step.kind, step.objects); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SaveObjects(kindNode, map[string][]byte{"red": []byte("5")}); err != nil {
		t.Fatal(err)
	}
	for _, unsure := range []bool{false, true} { // as a history, and written anew
		s.journal.unsure = unsure
		mustAllocate(t, s, fmt.Sprint("c", unsure))
		s.Close()
		s = openTest(t, path)
		got := fmt.Sprintf("%s %s %s %s", s.Objects("Network"), s.Objects("Router"), s.Objects("node"), s.Objects("Port"))
		if want := "map[red:4] map[red:3] map[red:5] map[]"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// Where a Network's search goes on is forgotten with its last attachment, when the
// file is rewritten.
func TestCursorsDoNotPileUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openTest(t, path)
	for i := range 50 {
		a, err := s.Allocate(on(fmt.Sprint("net-", i), "c", "net1", blocks(t, "10.9.0.0/24", "10.9.0.16/28")))
		if err != nil {
			t.Fatal(err)
		}
		if i < 49 {
			if _, err := s.Release(a.Key); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.journal.unsure = true
	mustAllocate(t, s, "c1")
	s.Close()
	s = openTest(t, path)
	if len(s.cursors.Networks) != 1 {
		t.Errorf("cursors of %d Networks, want one", len(s.cursors.Networks))
	}
}

func TestPortName(t *testing.T) {
	long := strings.Repeat("a", 250)
	for _, tt := range []struct{ pod, ifName, want string }{
		{"web-0", "eth0", "web-0.eth0"},
		{"a.b", "net1", "a.b.net1"},
		{"web-0", "Net_1", "web-0.6d6d4b0c4f"},
		{long, "net1", long[:242] + ".0f65b9d1b1"},
	} {
		got := PortName(tt.pod, tt.ifName)
		if len(got) > 253 || !objectName.MatchString(got) {
			t.Errorf("%q is no object's name", got)
		}
		if i := strings.LastIndex(tt.want, "."); got[:i] != tt.want[:i] || len(got) != len(tt.want) {
			t.Errorf("PortName(%s, %s) = %s, want %s", tt.pod, tt.ifName, got, tt.want)
		}
	}
	if PortName("web-0", "A") == PortName("web-0", "B") {
		t.Error("two interfaces have the same Port")
	}
}

// Interfaces on a bridge beside the integration bridge have each a VLAN of their own there, also
// those that are chosen at the same time, and one that goes leaves its VLAN to the next.
func TestVLANsOfABridge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openTest(t, path)
	on := func(bridge, id string) Plan {
		p := request(id)
		p.Bridge = bridge
		return p
	}
	list, err := s.AllocateAll(on("brk8s", "c1"), on("brk8s", "c2"), on("other", "c3"), request("c4"))
	if err != nil {
		t.Fatal(err)
	}
	check := func(want ...uint16) {
		t.Helper()
		var got []uint16
		for _, a := range list {
			got = append(got, a.VLAN)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("VLANs (-want +got):\n%s", diff)
		}
	}
	check(1, 2, 1, 0)
	if _, err := s.Release(list[0].Key); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = openTest(t, path)
	if list, err = s.AllocateAll(on("brk8s", "c5"), on("brk8s", "c6")); err != nil {
		t.Fatal(err)
	}
	check(1, 3)
	if a, _ := s.Get(list[1].Key); a.Bridge != "brk8s" || a.VLAN != 3 {
		t.Errorf("stored: %+v", a)
	}
}

// A bridge has as many interfaces as there are VLANs, and says so.
func TestBridgeWithoutAVLANLeft(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "state.db"))
	for vlan := uint16(1); vlan <= lastVLAN; vlan++ {
		s.vlans[vlanPlace{"brk8s", vlan}] = Key{ContainerID: "x"}
	}
	p := request("c1")
	p.Bridge = "brk8s"
	if _, err := s.Allocate(p); err == nil || !strings.Contains(err.Error(), "bridge brk8s has 4094 interfaces of pods") {
		t.Errorf("error %v", err)
	}
}

// Addresses in slots: those of both families are at the same distance, near the beginning; one that
// is released comes last among these; and what finds no slot gets any address.
func TestInSlots(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "state.db"))
	s.InSlots(4, 4, 0)
	mustAllocate := func(t *testing.T, s *Store, id string) Attachment {
		t.Helper()
		p := request(id)
		p.PodName = id // each is of a kind of its own
		a, err := s.Allocate(p)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	ends := func(a Attachment) string { return fmt.Sprint(a.Addresses[0].Addr(), " ", a.Addresses[1].Addr()) }
	var all []Attachment
	for i := range 6 {
		all = append(all, mustAllocate(t, s, fmt.Sprint("c", i)))
	}
	if got := ends(all[0]) + ", " + ends(all[5]); got != "10.0.0.2 fd00:1::2, 10.0.0.7 fd00:1::7" {
		t.Errorf("the first and the last have %s", got)
	}
	for _, i := range []int{1, 3} {
		if _, err := s.Release(all[i].Key); err != nil {
			t.Fatal(err)
		}
	}
	// Free near the beginning are 3, 5, 8 and on; 7 was the last.
	for i, want := range []string{"10.0.0.8 fd00:1::8", "10.0.0.9 fd00:1::9"} {
		if got := ends(mustAllocate(t, s, fmt.Sprint("next", i))); got != want {
			t.Errorf("then one has %s, want %s", got, want)
		}
	}
	fixed := request("fixed")
	fixed.Addresses = []netip.Addr{netip.MustParseAddr("10.0.0.12")}
	if _, err := s.Allocate(fixed); err != nil {
		t.Fatal(err)
	}
	// Pods that come and go move on only until enough are free that others had.
	highest := byte(0)
	for i := range 50 {
		a := mustAllocate(t, s, fmt.Sprint("more", i))
		v4, v6 := a.Addresses[0].Addr().As4(), a.Addresses[1].Addr().As16()
		if v4[3] != v6[15] || v4[3] == 12 {
			t.Errorf("not of one slot, or of one that is not free: %s", ends(a))
		}
		highest = max(highest, v4[3])
		if _, err := s.Release(a.Key); err != nil {
			t.Fatal(err)
		}
	}
	if highest > 16 {
		t.Errorf("one pod after the other, of 8 and a fixed address, have addresses up to %d", highest)
	}
}
