// SPDX-License-Identifier: Apache-2.0

//go:build integration

package hostnet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const procSys = "/proc/sys"

// cardAndBridge are phy0, configured as an uplink is, and br0; what phy0 has is returned.
func cardAndBridge(t *testing.T) (path, had string) {
	t.Helper()
	tap(t, "phy0")
	tap(t, "br0")
	run(t, "sysctl", "-qw", "net.ipv6.conf.phy0.disable_ipv6=0", "net.ipv4.conf.phy0.rp_filter=0", "net.ipv4.conf.phy0.arp_announce=2")
	run(t, "ip", "link", "set", "phy0", "mtu", "1400")
	configure(t)
	for _, c := range []string{
		"addr add 192.168.54.1/24 dev phy0 label phy0:1", "addr add 192.168.55.1/24 dev phy0 noprefixroute metric 7",
		"addr add fd51::1/64 nodad dev phy0 valid_lft 3600 preferred_lft 1800", "addr add 169.254.9.9/16 dev phy0",
		"route add 10.97.0.0/16 via 10.66.6.6 dev phy0 onlink advmss 1200 initcwnd 20 tos 0x10",
		"-6 route add fd97::/64 via fe80::77 dev phy0 proto bird pref high mtu 1350",
		"-6 route add fd96::/64 nexthop via fe80::7 dev phy0 nexthop via fe80::8 dev phy0",
		"-6 route add fd95::/64 via fe80::7 dev phy0 table 77",
		"route add 192.168.55.0/24 dev phy0 proto kernel scope link src 192.168.55.1 metric 100",
		"rule add iif phy0 lookup 77 priority 1077", "rule add from 192.168.50.1 oif phy0 lookup 77 priority 1078",
		"-6 rule add iif phy0 fwmark 0x7/0xf lookup 77 priority 1079",
		"neigh add 192.168.50.254 lladdr 0a:00:00:00:00:54 dev phy0", "neigh add fe80::77 lladdr 0a:00:00:00:00:77 dev phy0 router",
	} {
		run(t, "ip", strings.Fields(c)...)
	}
	t.Cleanup(func() {
		for _, c := range []string{"-4 rule del priority 1077", "-4 rule del priority 1078", "-6 rule del priority 1079"} {
			run(t, "ip", strings.Fields(c)...)
		}
	})
	return filepath.Join(t.TempDir(), "card.json"), everythingOf(t, "phy0")
}

// lifetimes end later or sooner.
var lifetimes = regexp.MustCompile(`(valid_lft|preferred_lft|expires) \d+sec`)

// everythingOf shows what an interface has, in the words of ip.
func everythingOf(t *testing.T, link string) string {
	t.Helper()
	var lines []string
	for _, c := range []string{
		"-4 -o addr show dev " + link, "-6 -o addr show dev " + link + " scope global", "-4 route show table all dev " + link,
		"-6 route show table all dev " + link, "-4 rule", "-6 rule", "-4 neigh show nud permanent dev " + link, "-6 neigh show nud permanent dev " + link,
	} {
		for _, l := range strings.Split(run(t, "ip", strings.Fields(c)...), "\n") {
			if strings.Contains(c, " rule") && !strings.Contains(l, link) || strings.Contains(l, "table local") ||
				strings.Contains(l, "fe80::/64") || strings.Contains(l, "ff00::/8") {
				continue
			}
			l = lifetimes.ReplaceAllString(strings.Join(strings.Fields(l), " "), "$1 some")
			l = strings.NewReplacer(" linkdown", "", link, "LINK", " nodad", "", " tentative", "", `\`, "").Replace(l)
			if _, after, found := strings.Cut(l, ": LINK "); found && strings.Contains(c, "addr") {
				l = after // without the number
			}
			lines = append(lines, strings.TrimSpace(l))
		}
	}
	slices.Sort(lines)
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

// bridgeHas says that br0 has what phy0 had, and phy0 has nothing.
func bridgeHas(t *testing.T, had string) {
	t.Helper()
	if diff := cmp.Diff(had, everythingOf(t, "br0")); diff != "" {
		t.Errorf("the bridge does not have what the card had (-card +bridge):\n%s", diff)
	}
	if left := everythingOf(t, "phy0"); strings.Contains(left, "inet") || strings.Contains(left, "via") || strings.Contains(left, "lookup") {
		t.Errorf("the card still has\n%s", left)
	}
	if v := strings.Fields(run(t, "sysctl", "-n", "net.ipv4.conf.br0.rp_filter", "net.ipv4.conf.br0.arp_announce",
		"net.ipv6.conf.phy0.disable_ipv6")); !slices.Equal(v, []string{"0", "2", "1"}) {
		t.Errorf("rp_filter and arp_announce of the bridge, disable_ipv6 of the card are %v", v)
	}
	if br, err := netlink.LinkByName("br0"); err != nil || br.Attrs().MTU != 1400 {
		t.Errorf("bridge %+v, %v, want MTU 1400", br, err)
	}
}

// cardHas says that phy0 has everything again, and br0 is gone.
func cardHas(t *testing.T, had string) {
	t.Helper()
	if diff := cmp.Diff(had, everythingOf(t, "phy0")); diff != "" {
		t.Errorf("the card does not have what it had (-before +after):\n%s", diff)
	}
	if rules := run(t, "ip", "rule") + run(t, "ip", "-6", "rule"); strings.Contains(rules, "br0") {
		t.Errorf("rules of the bridge are left:\n%s", rules)
	}
	for _, gone := range []string{"br0", "coelan-card3"} {
		if _, err := netlink.LinkByName(gone); err == nil {
			t.Errorf("%s is still there", gone)
		}
	}
}

// removeBridge does what Open vSwitch does when a bridge is removed.
func removeBridge() error {
	br, err := netlink.LinkByName("br0")
	if err != nil {
		return nil //nolint:nilerr // it is gone
	}
	return netlink.LinkDel(br)
}

// alone and shared are the two ways in which a card is in a bridge.
var placements = map[string]Placement{
	"alone":  {Card: "phy0", Bridge: "br0", Port: "phy0"},
	"shared": {Card: "phy0", Bridge: "br0", Port: "coelan-card3"},
}

func TestCardMovesToBridgeAndBack(t *testing.T) {
	for name, p := range placements {
		t.Run(name, func(t *testing.T) {
			path, had := cardAndBridge(t)
			run(t, "ip", "addr", "add", "fe80::54/64", "dev", "phy0", "nodad")
			k := NewKeeper(quiet, path, procSys)
			must(t, k.Prepare(p))
			if !p.HasPort() {
				t.Errorf("%s is not there", p.Port)
			}
			must(t, k.Adopt(p))
			bridgeHas(t, had)
			own := run(t, "ip", "-6", "-br", "addr", "show", "dev", "br0", "scope", "link")
			if strings.Contains(own, "fe80::54/64") != (name == "shared") {
				t.Errorf("the bridge has the link-local addresses %s", own)
			}
			must(t, k.Adopt(p))
			bridgeHas(t, had)
			// What the card gets later moves as well.
			run(t, "ip", "addr", "add", "192.168.52.1/24", "dev", "phy0")
			must(t, k.Adopt(p))
			if now := everythingOf(t, "br0"); !strings.Contains(now, "192.168.52.1/24") || !strings.Contains(now, "192.168.50.1/24") {
				t.Errorf("the bridge has\n%s", now)
			}
			run(t, "ip", "addr", "del", "192.168.52.1/24", "dev", "br0")

			// The bridge's interface is made anew. What ends by itself is not made again.
			must(t, k.step())
			must(t, removeBridge())
			tap(t, "br0")
			must(t, k.step())
			lasting := strings.Split(had, "\n")
			lasting = slices.DeleteFunc(lasting, func(l string) bool { return strings.Contains(l, "fd51::") })
			bridgeHas(t, strings.Join(lasting, "\n"))

			must(t, k.Return(p.Card, p.Bridge, removeBridge))
			cardHas(t, strings.Join(lasting, "\n"))
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Errorf("the file is still there: %v", err)
			}
		})
	}
}

// frames is a raw socket of an interface.
type frames struct {
	*testing.T
	fd int
}

func openFrames(t *testing.T, link string) frames {
	t.Helper()
	all := int(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL)))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	must(t, err)
	t.Cleanup(func() { must(t, unix.Close(fd)) })
	must(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: uint16(all), Ifindex: Index(link)}))
	must(t, unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1))
	must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}))
	return frames{t, fd}
}

// send broadcasts a frame with a VLAN tag, of the protocol for experiments.
func (f frames) send(vlan uint16, payload string) {
	f.Helper()
	frame := append(bytes.Repeat([]byte{0xff}, 6), 0x0a, 0, 0, 0, 0, 0x99, 0x81, 0)
	frame = append(binary.BigEndian.AppendUint16(frame, vlan), 0x88, 0xb5)
	_, err := unix.Write(f.fd, append(frame, payload...))
	must(f.T, err)
}

// receive returns the VLAN of a frame with a payload. The kernel gives the tag beside the frame.
func (f frames) receive(payload string) uint16 {
	f.Helper()
	for {
		frame, beside := make([]byte, 2048), make([]byte, 256)
		n, size, _, _, err := unix.Recvmsg(f.fd, frame, beside, 0)
		if err != nil {
			f.Fatalf("no frame with %q: %v", payload, err)
		}
		if !strings.HasSuffix(string(frame[:n]), payload) {
			continue
		}
		const vlan = 16 // tp_vlan_tci of struct tpacket_auxdata
		messages, err := unix.ParseSocketControlMessage(beside[:size])
		must(f.T, err)
		for _, m := range messages {
			if m.Header.Type == unix.PACKET_AUXDATA && binary.NativeEndian.Uint32(m.Data)&unix.TP_STATUS_VLAN_VALID != 0 {
				return binary.NativeEndian.Uint16(m.Data[vlan:])
			}
		}
		return binary.BigEndian.Uint16(frame[14:])
	}
}

// Frames with a VLAN tag pass a SharedPort both ways, to a bridge that takes the port's frames in
// as that of Open vSwitch does: those of a machine of OpenStack are of its pods.
func TestTaggedFramesOfASharedCard(t *testing.T) {
	veth(t, "phy0", "192.168.58.1/24")
	run(t, "ip", "link", "add", "br0", "type", "bridge")
	t.Cleanup(func() { must(t, removeBridge()) })
	p := placements["shared"]
	k := NewKeeper(quiet, filepath.Join(t.TempDir(), "card.json"), procSys)
	must(t, k.Prepare(p))
	run(t, "ip", "link", "set", p.Port, "master", "br0")
	must(t, k.Adopt(p))
	beyond, bridge := openFrames(t, "pphy0"), openFrames(t, "br0")
	beyond.send(7, "inwards")
	if vlan := bridge.receive("inwards"); vlan != 7 {
		t.Errorf("the bridge gets a frame of VLAN %d", vlan)
	}
	bridge.send(4094, "outwards")
	if vlan := beyond.receive("outwards"); vlan != 4094 {
		t.Errorf("a frame of VLAN %d leaves by the card", vlan)
	}
	if got := Under(p.Port); got != "phy0" || MTU(p.Port) != 1500 || MTU("none0") != 0 || Under("none0") != "" {
		t.Errorf("%s is above %q, with MTU %d", p.Port, got, MTU(p.Port))
	}
	must(t, k.Return(p.Card, p.Bridge, removeBridge))
}

var errKilled = errors.New("the agent was killed")

// killedAt is a keeper of an agent that is killed before one of its steps.
func killedAt(path string, at int) (k *Keeper, steps *int) {
	k, steps = NewKeeper(quiet, path, procSys), new(int)
	k.before = func(string) error {
		if *steps++; *steps > at {
			return errKilled
		}
		return nil
	}
	return k, steps
}

// What the card gets while it moves moves as well: an IPv6 address would be lost otherwise.
func TestAddressesDuringTheMoveOfACard(t *testing.T) {
	for name, p := range placements {
		t.Run(name, func(t *testing.T) {
			path, _ := cardAndBridge(t)
			k := NewKeeper(quiet, path, procSys)
			must(t, k.Prepare(p))
			k.before = func(step string) error {
				if step == "remove" {
					run(t, "ip", "addr", "add", "192.168.56.1/24", "dev", "phy0")
					run(t, "ip", "addr", "add", "fd56::1/64", "dev", "phy0", "nodad")
				}
				return nil
			}
			must(t, k.Adopt(p))
			for _, at := range []string{"192.168.56.1/24", "fd56::1/64"} {
				if shown := run(t, "ip", "addr", "show", "dev", "br0"); !strings.Contains(shown, at) {
					t.Errorf("%s is not on the bridge:\n%s", at, shown)
				}
			}
			if shown := run(t, "ip", "addr", "show", "dev", "phy0"); strings.Contains(shown, "192.168.56.1") {
				t.Errorf("the card still has\n%s", shown)
			}
		})
	}
}

// TestInterruptedMovesOfCards kills the agent before each step of the moves. The next one completes
// the move, or brings everything back, and at every moment the node has its address.
func TestInterruptedMovesOfCards(t *testing.T) {
	there := func(k *Keeper, p Placement) error { return errors.Join(k.Prepare(p), k.Adopt(p)) }
	back := func(k *Keeper, p Placement) error { return k.Return(p.Card, p.Bridge, removeBridge) }
	hasAddress := func(t *testing.T, step int) {
		t.Helper()
		if u, err := FindUplink(netip.MustParseAddr("192.168.50.1")); err != nil {
			t.Errorf("before step %d: %v", step, err)
		} else if u.Name != "phy0" && u.Name != "br0" {
			t.Errorf("before step %d the address is on %s", step, u.Name)
		}
		if _, err := FindUplink(netip.MustParseAddr("fd50::1")); err != nil {
			t.Errorf("before step %d: %v", step, err)
		}
	}
	for name, p := range placements {
		for _, tc := range []struct {
			name        string
			interrupted func(*Keeper, Placement) error
			first, next func(*Keeper, Placement) error
		}{
			{"to the bridge, again", there, nil, there},
			{"to the bridge, and back", there, nil, back},
			{"back, again", back, there, back},
			{"back, and to the bridge", back, there, there},
		} {
			t.Run(name+" "+tc.name, func(t *testing.T) {
				for at := 0; ; at++ {
					completed := false
					t.Run(fmt.Sprint(at), func(t *testing.T) {
						path, had := cardAndBridge(t)
						if tc.first != nil {
							must(t, tc.first(NewKeeper(quiet, path, procSys), p))
						}
						k, _ := killedAt(path, at)
						err := tc.interrupted(k, p)
						if completed = err == nil; !completed && !errors.Is(err, errKilled) {
							t.Fatal(err)
						}
						hasAddress(t, at)
						if _, err := netlink.LinkByName("br0"); err != nil {
							tap(t, "br0") // the agent asks for it first
						}
						must(t, tc.next(NewKeeper(quiet, path, procSys), p))
						if strings.HasSuffix(tc.name, "to the bridge") || tc.name == "to the bridge, again" {
							bridgeHas(t, without(had, everythingOf(t, "br0"), "fd51::"))
						} else {
							cardHas(t, without(had, everythingOf(t, "phy0"), "fd51::"))
						}
					})
					if completed || t.Failed() {
						return
					}
				}
			})
		}
	}
}

// without leaves out the lines with a word, unless what there is now has such.
func without(had, now, word string) string {
	if strings.Contains(now, word) {
		return had
	}
	lines := strings.Split(had, "\n")
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return strings.Contains(l, word) }), "\n")
}

func TestFindCard(t *testing.T) {
	_, _ = cardAndBridge(t)
	run(t, "ip", "link", "add", "link", "phy0", "name", "upper0", "type", "macvlan")
	c, err := FindCard("phy0", procSys)
	must(t, err)
	for _, a := range []string{"192.168.50.1", "192.168.51.1", "fd50::1"} {
		if !slices.Contains(c.Addresses, netip.MustParseAddr(a)) {
			t.Errorf("addresses %v lack %s", c.Addresses, a)
		}
	}
	if !c.Default || c.Loopback || c.Master != "" || !slices.Equal(c.Uppers, []string{"upper0"}) || len(c.MAC) != 6 ||
		!slices.Equal(c.Leased, []netip.Addr{netip.MustParseAddr("fd51::1")}) || c.LeasedRoute {
		t.Errorf("phy0 is %+v", c)
	}
	run(t, "ip", "link", "del", "upper0")
	run(t, "ip", "link", "add", "link", "phy0", "name", "coelan-card3", "type", "macvlan", "mode", "passthru")
	run(t, "ip", "-6", "route", "add", "default", "via", "fe80::99", "dev", "phy0", "proto", "ra", "expires", "600", "metric", "98")
	run(t, "sysctl", "-qw", "net.ipv6.conf.phy0.accept_ra=0")
	if c, err = FindCard("phy0", procSys); err != nil || len(c.Uppers) != 0 || !c.LeasedRoute {
		t.Errorf("phy0 is %+v, %v", c, err)
	}
	run(t, "ip", "link", "add", "bond7", "type", "bridge")
	run(t, "ip", "link", "set", "br0", "master", "bond7")
	c, err = FindCard("br0", procSys)
	must(t, err)
	if c.Default || c.Master != "bond7" || len(c.Uppers) != 0 {
		t.Errorf("br0 is %+v", c)
	}
	run(t, "ip", "link", "del", "bond7")
	if c, err = FindCard("lo", procSys); err != nil || !c.Loopback {
		t.Errorf("lo is %+v, %v", c, err)
	}
	if _, err = FindCard("none0", procSys); err == nil || !strings.Contains(err.Error(), "interface none0 does not exist") {
		t.Errorf("error %v", err)
	}
}
