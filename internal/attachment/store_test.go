// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
	"coelan.io/coelan/internal/reserved"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type counter struct{ n atomic.Int64 }

func (c *counter) next() int64 { return c.n.Add(1) }

func openTest(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func ranges(cidrs ...string) []ipam.Range {
	var prefixes []netip.Prefix
	for _, c := range cidrs {
		prefixes = append(prefixes, netip.MustParsePrefix(c))
	}
	r, err := ipam.Parse(prefixes)
	if err != nil {
		panic(err)
	}
	return r
}

var dual = ranges("10.0.0.0/22", "fd00:1::/64")

func request(id string) Plan {
	return Plan{
		Spec: Spec{
			Key: Key{ContainerID: id, IfName: "eth0"}, ConfName: "coelan",
			PodUID: "uid-" + id, PodNamespace: "default", PodName: "pod-" + id, Netns: "/run/netns/" + id,
			NetworkID: 1, MTU: 1450,
		},
		Ranges: dual,
	}
}

func mustAllocate(t testing.TB, s *Store, id string) Attachment {
	t.Helper()
	a, err := s.Allocate(request(id))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAllocateGivesEveryFieldAndSurvivesReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "state.db")
	s := openTest(t, path)
	got := mustAllocate(t, s, "c1")
	want := Attachment{
		Spec: Spec{
			Key: Key{"c1", "eth0"}, ConfName: "coelan",
			PodUID: "uid-c1", PodNamespace: "default", PodName: "pod-c1", Netns: "/run/netns/c1",
			HostInterface: HostInterface(Key{"c1", "eth0"}),
			NetworkID:     1, MTU: 1450, NetworkName: "default", PortName: "pod-c1.eth0",
		},
		MAC:       intent.MAC{0x0a, 0xce, 10, 0, 0, 2},
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/22"), netip.MustParsePrefix("fd00:1::2/64")},
		Gateways:  []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00:1::1")},
		OFPort:    16,
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}),
		cmpopts.IgnoreFields(Attachment{}, "Created")); diff != "" {
		t.Errorf("Allocate (-want +got):\n%s", diff)
	}
	if got.Created.IsZero() {
		t.Error("Created is not set")
	}
	if n := len(got.HostInterface); n > 15 {
		t.Errorf("host interface %q has %d bytes, the kernel takes 15", got.HostInterface, n)
	}
	s.Close()

	s = openTest(t, path)
	if diff := cmp.Diff([]Attachment{got}, s.List(), cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})); diff != "" {
		t.Errorf("after reopening (-want +got):\n%s", diff)
	}
}

func TestReleasedAddressesAndPortsComeLast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openTest(t, path)
	small := ranges("10.0.0.0/29") // 10.0.0.2 to .6
	allocate := func(id string) (Attachment, error) {
		r := request(id)
		r.Ranges = small
		return s.Allocate(r)
	}
	var order []string
	for _, id := range []string{"a", "b", "c"} {
		a, err := allocate(id)
		if err != nil {
			t.Fatal(err)
		}
		order = append(order, fmt.Sprint(a.Addresses[0].Addr(), " ", a.OFPort))
		if ok, err := s.Release(a.Key); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	s.Close()
	s = openTest(t, path) // where the search goes on is remembered too
	for _, id := range []string{"d", "e", "f", "g", "h", "i"} {
		a, err := allocate(id)
		var exhausted *ipam.ExhaustedError
		switch {
		case errors.As(err, &exhausted):
			order = append(order, err.Error())
		case err != nil:
			t.Fatal(err)
		default:
			order = append(order, fmt.Sprint(a.Addresses[0].Addr(), " ", a.OFPort))
		}
	}
	want := []string{
		"10.0.0.2 16", "10.0.0.3 17", "10.0.0.4 18", "10.0.0.5 19", "10.0.0.6 20", "10.0.0.2 21", "10.0.0.3 22", "10.0.0.4 23",
		"attachment i/eth0: podCIDR 10.0.0.0/29: all addresses are in use by pods of this node",
	}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOneKeyIsAllocatedOnce(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "state.db"))
	mustAllocate(t, s, "c1")
	if _, err := s.Allocate(request("c1")); !errors.Is(err, ErrExists) {
		t.Errorf("second Allocate: %v, want ErrExists", err)
	}
	r := request("c1")
	r.IfName = "net1" // another interface of the same container is another attachment
	if _, err := s.Allocate(r); err != nil {
		t.Error(err)
	}
	if ok, err := s.Release(Key{"c2", "eth0"}); ok || err != nil {
		t.Errorf("Release of an unknown key = %v, %v", ok, err)
	}
}

// Two IPv6 addresses would give the same MAC: the second is not handed out.
func TestMACsAreUnique(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "state.db"))
	r := request("c1")
	r.Ranges = ranges("fd00:1::/64")
	taken := netip.MustParseAddr("fd00:1::2")
	s.macs[macPlace{"default", reserved.PodMAC(taken)}] = Key{"other", "eth0"}
	a, err := s.Allocate(r)
	if err != nil {
		t.Fatal(err)
	}
	if got := a.Addresses[0].Addr(); got == taken {
		t.Errorf("got %s, whose MAC another attachment has", got)
	}
}

func TestParallelUseHandsOutNothingTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openTest(t, path)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 20 {
				a, err := s.Allocate(request(fmt.Sprintf("c%d-%d", worker, i)))
				if err != nil {
					t.Error(err)
					return
				}
				if i%3 == 0 {
					if _, err := s.Release(a.Key); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	before := s.List()
	s.Close()
	s = openTest(t, path) // fails if two have the same address, MAC or port
	if diff := cmp.Diff(before, s.List(), cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})); diff != "" {
		t.Errorf("after reopening (-want +got):\n%s", diff)
	}
	if n := len(before); n != 8*13 {
		t.Errorf("%d attachments, want %d", n, 8*13)
	}
}

func TestNodesAreSaved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openTest(t, path)
	for _, nodes := range []map[string][]byte{
		{"a": []byte(`{"x":1}`), "b": []byte(`{}`)},
		{"a": []byte(`{"x":2}`), "c": nil},
		{},
	} {
		if err := s.SaveObjects(kindNode, nodes); err != nil {
			t.Fatal(err)
		}
		s.Close()
		s = openTest(t, path)
		got := s.Objects(kindNode)
		if diff := cmp.Diff(nodes, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestNoSecondUserOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	openTest(t, path)
	lockWait(t, 100*time.Millisecond)
	_, err := Open(path)
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), path) {
		t.Errorf("Open = %v, want ErrLocked with the path", err)
	}
}

func lockWait(t *testing.T, d time.Duration) {
	t.Helper()
	old := lockTimeout
	lockTimeout = d
	t.Cleanup(func() { lockTimeout = old })
}
