// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/dhcp/client"
)

// servers are DHCP servers that give each interface the same lease.
type servers struct {
	lease client.Lease
	err   error
	has   map[attachment.Key]bool
}

func (s *servers) Obtain(_ context.Context, p attachment.Plan) (client.Lease, error) {
	if s.err != nil {
		return client.Lease{}, s.err
	}
	s.has[p.Key] = true
	return s.lease, nil
}

func (s *servers) Release(_ context.Context, k attachment.Key) { delete(s.has, k) }

// newLeased is a world with a pod that has an interface on a Network of DHCP servers.
func newLeased(t *testing.T) (*world, *servers) {
	w, p := newPlanned(t)
	s := &servers{has: map[attachment.Key]bool{}, lease: client.Lease{
		Address: netip.MustParsePrefix("192.0.2.50/24"), Gateway: netip.MustParseAddr("192.0.2.1"), MTU: 1400,
		DNS: []netip.Addr{netip.MustParseAddr("192.0.2.53")}, Domains: []string{"example"},
		Routes: []client.Route{{Destination: netip.MustParsePrefix("198.51.100.0/24"), Router: netip.MustParseAddr("192.0.2.2")}},
	}}
	w.opts.Leases = s
	p.pods["pod-a"] = []attachment.Plan{p.on("wire", "net1", func(i *attachment.Plan) { i.Leased = true })}
	return w, s
}

func TestLeasedAddress(t *testing.T) {
	w, s := newLeased(t)
	out := w.must(addRequest("a"))
	at := w.store.List()[1]
	mac := attachment.MACOf(at.Key).String()
	want := []string{
		"eth0 0a:ce:0a:f4:01:02 10.244.1.2/24 gw 10.244.1.1", "eth0 0a:ce:0a:f4:01:02 fd00:10:244:1::2/64 gw fd00:10:244:1::1",
		"net1 " + mac + " 192.0.2.50/24 gw 192.0.2.1", "route 0.0.0.0/0 via 10.244.1.1", "route ::/0 via fd00:10:244:1::1",
		"route 198.51.100.0/24 via 192.0.2.2", "4 interfaces",
	}
	if diff := cmp.Diff(want, summary(t, out)); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	if at.MTU != 1400 || at.FixedAddresses || !at.Leased || at.DNS == nil || fmt.Sprint(at.DNS.Nameservers, at.DNS.Search) != "[192.0.2.53] [example]" {
		t.Errorf("recorded %+v", at)
	}
	w.must(addRequest("a")) // asks for nothing
	w.must(as("DEL", addRequest("a")))
	if len(s.has) > 0 || len(w.snapshot()) > 0 {
		t.Errorf("left behind: %v, %v", s.has, w.snapshot())
	}
}

// An ADD that fails later gives the lease back, and one without a lease leaves nothing.
func TestNoLease(t *testing.T) {
	w, s := newLeased(t)
	w.kernel.fails["Create"] = errors.New("no more interfaces")
	if _, err := w.Handle(t.Context(), addRequest("a")); err == nil || len(s.has) > 0 || len(w.snapshot()) > 0 {
		t.Errorf("%v; left behind: %v, %v", err, s.has, w.snapshot())
	}
	delete(w.kernel.fails, "Create")
	s.err = &PlanError{Reason: "NoDHCPLease", Message: "no DHCP server", Retry: true}
	_, err := w.Handle(t.Context(), addRequest("a"))
	if err == nil || !strings.Contains(err.Error(), "no DHCP server") || len(w.snapshot()) > 0 {
		t.Errorf("%v; left behind: %v", err, w.snapshot())
	}
}
