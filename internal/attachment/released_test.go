// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// keeps has a store keep the addresses of what is released, as the agent has it.
func keeps(s *Store) *Store {
	s.KeepReleased(func(a Attachment) []ReleasedAddress {
		var list []ReleasedAddress
		for _, p := range a.Addresses {
			list = append(list, ReleasedAddress{Address: p.Addr(), Space: a.space(), Zones: []uint16{1}})
		}
		return list
	})
	return s
}

func allocated(t *testing.T, s *Store, r Plan) Attachment {
	t.Helper()
	a, err := s.Allocate(r)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestReleased has addresses be kept from others until they are freed, also over a restart.
func TestReleased(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := keeps(openTest(t, path))
	a := allocated(t, s, request("a"))
	if _, err := s.Release(a.Key); err != nil {
		t.Fatal(err)
	}
	again := request("b")
	again.Ranges, again.Addresses = nil, []netip.Addr{a.Addresses[0].Addr()}
	refused := func(when string) {
		t.Helper()
		var taken *TakenError
		if _, err := s.Allocate(again); !errors.As(err, &taken) || !taken.Released || taken.By != "default/pod-a/eth0" {
			t.Errorf("%s: the address of a pod that is gone: %v", when, err)
		}
	}
	refused("released")
	if other := allocated(t, s, request("c")); other.Addresses[0] == a.Addresses[0] {
		t.Error("the next pod got the address")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = keeps(openTest(t, path))
	refused("after a restart")
	list := s.Released()
	want := []Released{{Was: "default/pod-a/eth0", Addresses: []ReleasedAddress{
		{Address: a.Addresses[0].Addr(), Zones: []uint16{1}}, {Address: a.Addresses[1].Addr(), Zones: []uint16{1}},
	}}}
	if diff := cmp.Diff(want, list, cmpopts.IgnoreFields(Released{}, "ID", "At"), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Fatalf("released (-want +got):\n%s", diff)
	}
	if err := s.Free(list[0].ID); err != nil {
		t.Fatal(err)
	}
	allocated(t, s, again)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s = keeps(openTest(t, path)); len(s.Released()) != 0 {
		t.Errorf("freed, and after a restart there is %+v", s.Released())
	}
}

// TestReleasedTwice releases a user's Port, which has the same key each time, before its first
// addresses are free.
func TestReleasedTwice(t *testing.T) {
	s := keeps(openTest(t, filepath.Join(t.TempDir(), "state.db")))
	for range 2 {
		mustRelease(t, s, allocated(t, s, request("a")).Key)
	}
	if list := s.Released(); len(list) != 2 || list[0].Addresses[0].Address == list[1].Addresses[0].Address {
		t.Errorf("released are %+v, want addresses of two", list)
	}
}

func mustRelease(t *testing.T, s *Store, k Key) {
	t.Helper()
	if _, err := s.Release(k); err != nil {
		t.Fatal(err)
	}
}

// TestReleasedUsed starts with a file in which a release that does not know of kept addresses has
// handed one out.
func TestReleasedUsed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := keeps(openTest(t, path))
	a := allocated(t, s, request("a"))
	mustRelease(t, s, a.Key)
	older := a
	older.Key.ContainerID = "b"
	older.Addresses, older.Gateways = a.Addresses[:1], a.Gateways[:1]
	if err := s.commit(change{Put: &older}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = keeps(openTest(t, path))
	if list := s.Released(); len(list) != 1 || len(list[0].Addresses) != 1 || list[0].Addresses[0].Address != a.Addresses[1].Addr() {
		t.Errorf("released are %+v, want the address that nothing has", list)
	}
}

// TestAllocateWhenFree has an ADD wait for the only address that there is.
func TestAllocateWhenFree(t *testing.T) {
	small := ranges("10.9.0.0/30") // the first is the gateway
	for _, fixed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := keeps(openTest(t, filepath.Join(t.TempDir(), "state.db")))
			r := request("a")
			r.Ranges = small
			a := allocated(t, s, r)
			again := request("b")
			again.Ranges = small
			if fixed {
				again.Ranges, again.Addresses = nil, []netip.Addr{a.Addresses[0].Addr()}
			}
			bounded, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := s.AllocateAllWhenFree(bounded, again); err == nil || bounded.Err() != nil {
				t.Fatalf("an address that a pod has: %v, and the end of the wait: %v", err, bounded.Err())
			}
			mustRelease(t, s, a.Key)
			if _, err := s.AllocateAllWhenFree(bounded, again); err == nil || bounded.Err() == nil {
				t.Fatalf("nothing was freed, and the ADD ended early: %v", err)
			}
			freed := make(chan error, 1)
			time.AfterFunc(time.Second, func() { freed <- s.Free(s.Released()[0].ID) })
			b, err := s.AllocateAllWhenFree(t.Context(), again)
			if err != nil || b[0].Addresses[0].Addr() != a.Addresses[0].Addr() {
				t.Errorf("got %v, %v", b, err)
			}
			if err := <-freed; err != nil {
				t.Error(err)
			}
		})
	}
}
