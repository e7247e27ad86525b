// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"net/netip"
	"testing"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
)

var (
	machineMAC = intent.MAC{0x52, 0x54, 0, 0, 0, 0x50}
	routerMAC  = intent.MAC{0x0a, 0xc0, 0xe1, 0, 0, 1}
	// linkLocal is the machine's address before it has any, ownMade the one that it makes itself.
	linkLocal = netip.MustParseAddr("fe80::5054:ff:fe00:50")
	ownMade   = netip.MustParseAddr("fd00:70::5054:ff:fe00:50")
)

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// network is one with all that there is to tell.
func network() intent.Network {
	return intent.Network{
		Name: "red", ID: 10, VNI: 10, Router: "red", MTU: 1400,
		Subnets: []intent.NetworkSubnet{
			{Prefix: prefix("10.70.0.0/24"), Gateway: addr("10.70.0.1")},
			{Prefix: prefix("10.71.0.0/24"), Gateway: addr("10.71.0.1")},
			{Prefix: prefix("fd00:70::/64"), Gateway: addr("fd00:70::1")},
		},
		DNS: intent.DNS{
			Servers:  []netip.Addr{addr("192.0.2.53"), addr("2001:db8::53")},
			Searches: []string{"red.example", "not..a.name", "example"},
		},
		DHCP: intent.DHCP{
			Enabled: true, Lease: time.Hour,
			Routes: []intent.Route{
				{Destination: prefix("192.168.99.0/24"), NextHop: addr("10.70.0.254")},
				{Destination: prefix("192.168.98.0/24"), NextHop: addr("10.71.0.254")},
			},
			NTP: []netip.Addr{addr("192.0.2.123"), addr("2001:db8::123")}, NextServer: addr("192.0.2.69"),
			BootFile: "tftp://192.0.2.69/boot",
		},
	}
}

// leaseOf is the Lease of a Port with addresses on a Network.
func leaseOf(t testing.TB, n intent.Network, addresses ...string) Lease {
	t.Helper()
	p := intent.Port{ID: "u1", Namespace: "shop", Pod: "db.1", Network: n.Name, Node: "n1", MAC: machineMAC}
	for _, a := range addresses {
		p.Addresses = append(p.Addresses, addr(a))
	}
	s, err := intent.NewStore().Update(func(tx *intent.Tx) error {
		tx.Replace(intent.Objects{
			Local:   intent.Local{Node: "n1", MTU: 1450},
			Routers: []intent.Router{{Name: "red", ID: 20, VNI: 20}}, Networks: []intent.Network{n},
			Ports: []intent.Port{p},
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	l, ok := LeaseOf(s, p, routerMAC)
	if !ok {
		t.Fatal("the Network's machines are not answered")
	}
	return l
}

// udp is a frame of the machine.
func udp(src, dst string, payload []byte) []byte {
	from, to := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
	p := packet.Header{Source: from.Addr(), Destination: to.Addr(), Protocol: packet.UDP, HopLimit: 1}.Packet(
		packet.UDPFrom(from, to, payload))
	return packet.Ethernet(packet.Broadcast, machineMAC.HardwareAddr(), p.Type(), p)
}

// opened is an answer's frame taken apart; it fails the test if the frame is not one that a machine
// would take.
func opened(t *testing.T, frame []byte) (dst [6]byte, p packet.IP, payload []byte) {
	t.Helper()
	whole, ok := packet.Parse(frame)
	if ok {
		whole, ok = whole.Whole()
	}
	if !ok || len(whole)+packet.EthernetLen != len(frame) || [6]byte(frame[6:12]) != routerMAC {
		t.Fatalf("not a whole packet of the router: % x", frame)
	}
	protocol, at, _ := whole.Transport()
	sum := packet.PseudoHeader(whole.Source(), whole.Destination(), protocol, len(whole)-at)
	if packet.Checksum(sum, whole[at:]) != 0 || !whole.Is6() && packet.Checksum(0, whole[:whole.HeaderLen()]) != 0 {
		t.Fatalf("wrong checksum: % x", frame)
	}
	return [6]byte(frame[:6]), whole, whole[at+udpLen:]
}
