// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// testSettings is a Host on kernel settings in a directory.
func testSettings(t *testing.T, values map[string]string) (*Host, func(name string) string) {
	t.Helper()
	dir := t.TempDir()
	for name, value := range values {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := sysctls{dir: dir}
	return &Host{sysctls: s}, func(name string) string {
		v, err := s.get(strings.Split(name, "/")...)
		if err != nil {
			t.Error(err)
		}
		return v
	}
}

func bothFamilies() Desired {
	return Desired{
		Gateway: Gateway{Name: "gw0", MTU: 1450, Addresses: []netip.Prefix{
			netip.MustParsePrefix("10.244.1.1/24"), netip.MustParsePrefix("fd44:1::1/64"),
		}},
		Uplink: "eth0", Services: Services{Native: true},
	}
}

// A node forwards what it has pods of. An uplink goes on listening to router advertisements if it
// did before, and values that are right are not written.
func TestForwardingSettings(t *testing.T) {
	h, value := testSettings(t, map[string]string{
		"net/ipv4/ip_forward": "0", "net/ipv4/conf/all/send_redirects": "1", "net/ipv6/conf/all/forwarding": "0",
		"net/ipv6/conf/eth0/accept_ra": "1",
	})
	n, err := h.applyForwarding(bothFamilies())
	if n != 4 || err != nil {
		t.Errorf("%d writes, %v", n, err)
	}
	for name, want := range map[string]string{
		"net/ipv4/ip_forward": "1", "net/ipv4/conf/all/send_redirects": "0", "net/ipv6/conf/all/forwarding": "1",
		"net/ipv6/conf/eth0/accept_ra": "2",
	} {
		if got := value(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if n, err := h.applyForwarding(bothFamilies()); n != 0 || err != nil {
		t.Errorf("again: %d writes, %v", n, err)
	}
	only4 := bothFamilies()
	only4.Gateway.Addresses, only4.Services.Native = only4.Gateway.Addresses[:1], false
	h, value = testSettings(t, map[string]string{
		"net/ipv4/ip_forward": "0", "net/ipv4/conf/all/send_redirects": "1", "net/ipv6/conf/all/forwarding": "0",
	})
	if n, err := h.applyForwarding(only4); n != 1 || err != nil {
		t.Errorf("%d writes, %v", n, err)
	}
	if value("net/ipv6/conf/all/forwarding") != "0" || value("net/ipv4/conf/all/send_redirects") != "1" {
		t.Error("settings of what the node does not have were written")
	}
	h, _ = testSettings(t, map[string]string{"net/ipv4/ip_forward": "0"})
	if _, err = h.applyForwarding(bothFamilies()); err == nil ||
		!strings.Contains(err.Error(), "net/ipv6/conf/all/forwarding does not exist; is the address family turned off?") {
		t.Errorf("without IPv6: %v", err)
	}
}

// The gateway's settings are written for the families in use, and a network card under a bridge is
// kept from answering unless it is stricter already.
func TestInterfaceSettings(t *testing.T) {
	values := map[string]string{"net/ipv4/conf/eth1/arp_ignore": "0", "net/ipv4/conf/eth2/arp_ignore": "2"}
	for _, s := range gatewaySysctls {
		values["net/"+s.family+"/conf/gw0/"+s.name] = "9"
	}
	h, value := testSettings(t, values)
	d := bothFamilies()
	d.Cards = []string{"eth1", "eth2", "none"}
	if n, err := h.applyGatewaySysctls(d); n != len(gatewaySysctls) || err != nil {
		t.Errorf("%d writes, %v", n, err)
	}
	for _, s := range gatewaySysctls {
		if got := value("net/" + s.family + "/conf/gw0/" + s.name); got != s.value {
			t.Errorf("%s of %s is %s, want %s", s.name, s.family, got, s.value)
		}
	}
	if n, err := h.applyCards(d); n != 1 || err != nil {
		t.Errorf("cards: %d writes, %v", n, err)
	}
	if value("net/ipv4/conf/eth1/arp_ignore") != "1" || value("net/ipv4/conf/eth2/arp_ignore") != "2" {
		t.Error("the cards' settings are wrong")
	}
}

// The tables of neighbors have room for what all pods of a node talk to, in the families in use.
func TestNeighborSettings(t *testing.T) {
	const v4, v6 = "net/ipv4/neigh/default/gc_thresh3", "net/ipv6/neigh/default/gc_thresh3"
	h, value := testSettings(t, map[string]string{v4: "1024", v6: "1024"})
	d := bothFamilies()
	d.Gateway.Addresses = d.Gateway.Addresses[:1]
	if n, err := h.applyNeighbors(d); n != 1 || err != nil || value(v4) != "65536" || value(v6) != "1024" {
		t.Errorf("%d writes, %v; IPv4 has %s and IPv6 %s", n, err, value(v4), value(v6))
	}
}
