// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"errors"
	"net/netip"
	"path/filepath"
	"testing"
)

// An attachment gets another address, over a restart; what it had is kept from others until it is
// freed, and an address of another one it does not get.
func TestReaddress(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := keeps(openTest(t, path))
	a, b := allocated(t, s, request("a")), allocated(t, s, request("b"))
	to := func(text string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(text)} }
	now, err := s.Readdress(a.Key, to("192.0.2.7/24"))
	if err != nil || now.OFPort != a.OFPort || now.MAC != a.MAC || now.Addresses[0] != to("192.0.2.7/24")[0] {
		t.Fatalf("it has %+v, %v", now, err)
	}
	if list := s.Released(); len(list) != 1 || len(list[0].Addresses) != len(a.Addresses) {
		t.Errorf("released are %+v", list)
	}
	var taken *TakenError
	if _, err := s.Readdress(a.Key, b.Addresses); !errors.As(err, &taken) || taken.By != "default/pod-b/eth0" {
		t.Errorf("the address of another attachment: %v", err)
	}
	if _, err := s.Readdress(b.Key, a.Addresses); !errors.As(err, &taken) || !taken.Released {
		t.Errorf("an address that is not free yet: %v", err)
	}
	if _, err := s.Readdress(Key{ContainerID: "none", IfName: "eth0"}, nil); !errors.Is(err, ErrGone) {
		t.Errorf("no attachment: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = keeps(openTest(t, path))
	if now, _ := s.Get(a.Key); len(now.Addresses) != 1 || now.Addresses[0].String() != "192.0.2.7/24" {
		t.Errorf("after a restart it has %v", now.Addresses)
	}
	if now, err := s.Readdress(a.Key, nil); err != nil || len(now.Addresses) != 0 {
		t.Errorf("without an address: %v, %v", now.Addresses, err)
	}
	if list := s.Released(); len(list) != 2 {
		t.Errorf("released are %+v", list)
	}
	if ok, err := s.Release(a.Key); !ok || err != nil {
		t.Errorf("released: %t, %v", ok, err)
	}
}

// A disk that fails leaves the attachment with what it had.
func TestReaddressFails(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "state.db"))
	a := allocated(t, s, request("a"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var failed *WriteError
	if _, err := s.Readdress(a.Key, []netip.Prefix{netip.MustParsePrefix("192.0.2.7/24")}); !errors.As(err, &failed) {
		t.Errorf("%v", err)
	}
	if now, _ := s.Get(a.Key); now.Addresses[0] != a.Addresses[0] {
		t.Errorf("it has %v", now.Addresses)
	}
	if _, taken := s.addresses[place{a.space(), netip.MustParseAddr("192.0.2.7")}]; taken {
		t.Error("the address that it has not got is taken")
	}
}
