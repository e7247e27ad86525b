// SPDX-License-Identifier: Apache-2.0

//go:build integration

package hostnet

import (
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

const procSys = "/proc/sys"

// cardAndBridge are phy0, configured as an uplink is, and br0; what phy0 has is returned.
func cardAndBridge(t *testing.T) (path, had string) {
	t.Helper()
	tap(t, "phy0")
	tap(t, "br0")
	run(t, "sysctl", "-qw", "net.ipv6.conf.phy0.disable_ipv6=0")
	configure(t)
	return filepath.Join(t.TempDir(), "card.json"), shown(t)
}

// bridgeHas waits until br0 has what phy0 had, and phy0 has nothing.
func bridgeHas(t *testing.T, had string) {
	t.Helper()
	now := strings.ReplaceAll(shownOf(t, "br0"), "br0", "phy0")
	if now != had {
		t.Errorf("the bridge has\n%s\nand not what the card had\n%s", now, had)
	}
	if left := shown(t); strings.Contains(left, "192.168.5") || strings.Contains(left, "fd50:") || strings.Contains(left, "via") {
		t.Errorf("the card still has\n%s", left)
	}
}

func TestCardMovesToBridgeAndBack(t *testing.T) {
	path, had := cardAndBridge(t)
	k := NewKeeper(quiet, path)
	must(t, k.Adopt("phy0", "br0", procSys))
	bridgeHas(t, had)
	if v := strings.TrimSpace(run(t, "sysctl", "-n", "net.ipv6.conf.phy0.disable_ipv6")); v != "1" {
		t.Errorf("disable_ipv6 of the card in the bridge is %s", v)
	}
	must(t, k.Adopt("phy0", "br0", procSys))
	bridgeHas(t, had)
	// What the card gets later moves as well.
	run(t, "ip", "addr", "add", "192.168.52.1/24", "dev", "phy0")
	must(t, k.Adopt("phy0", "br0", procSys))
	if now := shownOf(t, "br0"); !strings.Contains(now, "192.168.52.1/24") || !strings.Contains(now, "192.168.50.1/24") {
		t.Errorf("the bridge has\n%s", now)
	}
	run(t, "ip", "addr", "del", "192.168.52.1/24", "dev", "br0")

	// The bridge's interface vanishes with ovs-vswitchd.
	br, err := netlink.LinkByName("br0")
	must(t, err)
	must(t, k.step())
	must(t, netlink.LinkDel(br))
	tap(t, "br0")
	must(t, k.step())
	bridgeHas(t, had)

	must(t, k.Return("phy0", "br0", procSys, func() error {
		br, err := netlink.LinkByName("br0")
		must(t, err)
		return netlink.LinkDel(br)
	}))
	if now := shown(t); now != had {
		t.Errorf("the card has\n%s\nand not what it had\n%s", now, had)
	}
}

// An agent that ends in between loses nothing.
func TestInterruptedMovesOfCards(t *testing.T) {
	path, had := cardAndBridge(t)
	k := NewKeeper(quiet, path)
	must(t, k.Adopt("phy0", "br0", procSys))
	// As if it had ended after all was taken from the card.
	saved, err := load(path)
	must(t, err)
	saved.Index = 0
	must(t, saved.save(path))
	run(t, "ip", "addr", "flush", "dev", "br0", "scope", "global")
	k = NewKeeper(quiet, path)
	if k.Link() != "br0" {
		t.Errorf("keeps %q", k.Link())
	}
	must(t, k.Adopt("phy0", "br0", procSys))
	bridgeHas(t, had)

	failed := errors.New("no database")
	if err := k.Return("phy0", "br0", procSys, func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
	remove := func() error {
		br, err := netlink.LinkByName("br0")
		if err != nil {
			return nil //nolint:nilerr // it is gone
		}
		return netlink.LinkDel(br)
	}
	must(t, remove())
	k = NewKeeper(quiet, path)
	if k.Link() != "phy0" {
		t.Errorf("the card to be given back is %q", k.Link())
	}
	must(t, k.Return("phy0", "br0", procSys, remove))
	if now := shown(t); now != had {
		t.Errorf("the card has\n%s\nand not what it had\n%s", now, had)
	}
}

func TestFindCard(t *testing.T) {
	_, _ = cardAndBridge(t)
	run(t, "ip", "link", "add", "link", "phy0", "name", "upper0", "type", "macvlan")
	c, err := FindCard("phy0")
	must(t, err)
	for _, a := range []string{"192.168.50.1", "192.168.51.1", "fd50::1"} {
		if !slices.Contains(c.Addresses, netip.MustParseAddr(a)) {
			t.Errorf("addresses %v lack %s", c.Addresses, a)
		}
	}
	if !c.Default || c.Loopback || c.Master != "" || !slices.Equal(c.Uppers, []string{"upper0"}) || len(c.MAC) != 6 {
		t.Errorf("phy0 is %+v", c)
	}
	run(t, "ip", "link", "del", "upper0")
	run(t, "ip", "link", "add", "bond7", "type", "bridge")
	run(t, "ip", "link", "set", "br0", "master", "bond7")
	c, err = FindCard("br0")
	must(t, err)
	if c.Default || c.Master != "bond7" || len(c.Uppers) != 0 {
		t.Errorf("br0 is %+v", c)
	}
	run(t, "ip", "link", "del", "bond7")
	if c, err = FindCard("lo"); err != nil || !c.Loopback {
		t.Errorf("lo is %+v, %v", c, err)
	}
	if _, err = FindCard("none0"); err == nil || !strings.Contains(err.Error(), "interface none0 does not exist") {
		t.Errorf("error %v", err)
	}
}
