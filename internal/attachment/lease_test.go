// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"errors"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
)

func leaseOf(container string) Lease {
	return Lease{Key: Key{ContainerID: container, IfName: "net1"}, ConfName: "cni0", Pod: "default/" + container}
}

func podCIDRs(t *testing.T, list ...string) ([]ipam.Range, Plan) {
	t.Helper()
	var prefixes []netip.Prefix
	var p Plan
	for _, text := range list {
		prefix := netip.MustParsePrefix(text)
		prefixes = append(prefixes, prefix)
		p.Subnets = append(p.Subnets, intent.NetworkSubnet{Prefix: prefix, Gateway: prefix.Addr().Next()})
	}
	ranges, err := ipam.Parse(prefixes)
	if err != nil {
		t.Fatal(err)
	}
	return ranges, p
}

// Leases and attachments share the podCIDRs, also over restarts and compactions of the file.
func TestLease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openTest(t, path)
	ranges, none := podCIDRs(t, "10.0.0.0/29", "fd00::/64")
	l, err := s.Lease(leaseOf("a"), ranges, none)
	if err != nil {
		t.Fatal(err)
	}
	if l.Addresses[0] != netip.MustParsePrefix("10.0.0.2/29") || l.Gateways[0] != netip.MustParseAddr("10.0.0.1") || len(l.Addresses) != 2 {
		t.Errorf("lease %+v", l)
	}
	again, err := s.Lease(leaseOf("a"), ranges, none)
	if diff := cmp.Diff(l, again, cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})); err != nil || diff != "" {
		t.Errorf("once more: %v, %s", err, diff)
	}
	pod := Plan{Spec: Spec{Key: Key{ContainerID: "p", IfName: "eth0"}, PodName: "p", PodNamespace: "default"}, Ranges: ranges}
	if a := allocated(t, s, pod); a.Addresses[0] != netip.MustParsePrefix("10.0.0.3/29") {
		t.Errorf("the pod has %v", a.Addresses)
	}
	fixed := none
	fixed.Addresses = []netip.Addr{netip.MustParseAddr("10.0.0.3")}
	var taken *TakenError
	if _, err := s.Lease(leaseOf("b"), ranges, fixed); !errors.As(err, &taken) || taken.By != "default/p/eth0" {
		t.Errorf("lease of a pod's address: %v", err)
	}
	pod.ContainerID, pod.Ranges, pod.Addresses = "q", nil, []netip.Addr{netip.MustParseAddr("10.0.0.2")}
	if _, err := s.Allocate(pod); !errors.As(err, &taken) || taken.By != "default/a/net1" {
		t.Errorf("pod with a leased address: %v", err)
	}
	if _, err := s.Lease(Lease{Key: Key{ContainerID: "p", IfName: "eth0"}}, ranges, none); !errors.Is(err, ErrExists) {
		t.Errorf("lease of an attachment: %v", err)
	}

	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, path)
	if diff := cmp.Diff([]Lease{l}, s.Leases(), cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
	for _, c := range []string{"b", "c", "d"} {
		if _, err := s.Lease(leaseOf(c), ranges, none); err != nil {
			t.Fatal(err)
		}
	}
	var full *ipam.ExhaustedError
	if _, err := s.Lease(leaseOf("e"), ranges, none); !errors.As(err, &full) {
		t.Errorf("lease without a free address: %v", err)
	}
	for range 2 {
		if err := s.EndLease(l.Key); err != nil {
			t.Fatal(err)
		}
	}
	if last, err := s.Lease(leaseOf("e"), ranges, none); err != nil || last.Addresses[0] != l.Addresses[0] {
		t.Errorf("after one has ended: %+v, %v", last, err)
	}
}

// What cannot be written is not leased.
func TestLeaseOnAFullDisk(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "state.db"))
	ranges, none := podCIDRs(t, "10.0.0.0/29")
	if _, err := s.Lease(leaseOf("a"), ranges, none); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var write *WriteError
	if _, err := s.Lease(leaseOf("b"), ranges, none); !errors.As(err, &write) {
		t.Errorf("lease: %v", err)
	}
	if err := s.EndLease(leaseOf("a").Key); !errors.As(err, &write) || len(s.Leases()) != 1 {
		t.Errorf("end: %v, left %v", err, s.Leases())
	}
}
