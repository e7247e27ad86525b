// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
)

// Addresses wait for flows without their Port, however often the intent changes after that.
func TestReleasedAddressesWaitForTheirRevision(t *testing.T) {
	store, stop := intent.NewStore(), errors.New("enough")
	change := func(f func(*intent.Tx)) uint64 {
		s, err := store.Update(func(tx *intent.Tx) error { f(tx); return nil })
		if err != nil {
			t.Fatal(err)
		}
		return s.Revision()
	}
	var asked []uint64
	r := &releases{tracker: tracker{intent: store}, applied: func(_ context.Context, revision uint64) error {
		asked = append(asked, revision)
		return stop
	}}
	settle := func(want uint64) {
		t.Helper()
		if err := r.Settled(t.Context()); !errors.Is(err, stop) {
			t.Fatal(err)
		}
		if got := asked[len(asked)-1]; got != want {
			t.Errorf("waits for revision %d, want %d", got, want)
		}
	}
	var at attachment.Attachment
	at.Key = attachment.Key{ContainerID: "c", IfName: "eth0"}
	change(func(tx *intent.Tx) { tx.SetPort(intent.Port{ID: at.Key.String()}) })
	settle(0) // an earlier run released it
	gone := change(func(tx *intent.Tx) { tx.DeletePort(at.Key.String()) })
	r.released(at)
	change(func(tx *intent.Tx) { tx.SetPort(intent.Port{ID: "another"}) })
	settle(gone)
}

// What a Port has opened by its Router's gateway is forgotten with the Port.
func TestReleasedFromGateway(t *testing.T) {
	store := intent.NewStore()
	s, err := store.Update(func(tx *intent.Tx) error {
		tx.SetLocal(intent.Local{Node: "n1"})
		for i, name := range []string{"red", "blue"} {
			tx.SetRouter(intent.Router{Name: name, ID: intent.RouterID(7 + i)})
			tx.SetNetwork(intent.Network{Name: name, Router: name})
		}
		tx.SetGatewayAddress(intent.GatewayAddress{Router: "red", Node: "n1", Network: "office", Address: netip.MustParseAddr("192.0.2.1")})
		tx.SetGatewayAddress(intent.GatewayAddress{Router: "blue", Node: "n2", Network: "office", Address: netip.MustParseAddr("192.0.2.2")})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	own, inCluster := netip.MustParsePrefix("10.60.0.9/24"), netip.MustParsePrefix("10.244.1.9/24")
	for network, want := range map[string][]attachment.ReleasedAddress{
		"red":  {{Address: own.Addr(), Zones: []uint16{7, 1<<15 + 7}}, {Address: inCluster.Addr(), Zones: []uint16{1<<15 + 7, 1, 65535}}},
		"blue": {{Address: own.Addr(), Zones: []uint16{8}}, {Address: inCluster.Addr(), Zones: []uint16{1, 65535}}},
	} {
		at := attachment.Attachment{Spec: attachment.Spec{NetworkName: network}, Addresses: []netip.Prefix{own}, NodeAddresses: []netip.Prefix{inCluster}}
		if diff := cmp.Diff(want, released(s, at), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", network, diff)
		}
	}
}
