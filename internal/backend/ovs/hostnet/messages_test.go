// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"encoding/binary"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/mdlayher/netlink"
	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
)

const (
	gatewayIndex = 7
	uplinkIndex  = 2
)

// message is one of the kernel's: a header of some bytes, and attributes.
func message(t *testing.T, typ uint16, header []byte, attributes ...netlink.Attribute) netlink.Message {
	t.Helper()
	data, err := netlink.MarshalAttributes(attributes)
	if err != nil {
		t.Fatal(err)
	}
	return netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(typ)}, Data: append(header, data...)}
}

func text(typ uint16, s string) netlink.Attribute {
	return netlink.Attribute{Type: typ, Data: append([]byte(s), 0)}
}

func number(typ uint16, n uint32) netlink.Attribute {
	return netlink.Attribute{Type: typ, Data: binary.NativeEndian.AppendUint32(nil, n)}
}

func linkMessage(t *testing.T, name string) netlink.Message {
	return message(t, unix.RTM_NEWLINK, make([]byte, unix.SizeofIfInfomsg), text(unix.IFLA_IFNAME, name))
}

func addressMessage(t *testing.T, scope byte) netlink.Message {
	header := make([]byte, unix.SizeofIfAddrmsg)
	header[3] = scope
	return message(t, unix.RTM_NEWADDR, header)
}

func routeMessage(t *testing.T, protocol byte, device uint32) netlink.Message {
	header := make([]byte, unix.SizeofRtMsg)
	header[5] = protocol
	return message(t, unix.RTM_NEWROUTE, header, number(unix.RTA_OIF, device))
}

func neighbourMessage(t *testing.T, device uint32, address netip.Addr) netlink.Message {
	header := make([]byte, unix.SizeofNdMsg)
	binary.NativeEndian.PutUint32(header[4:], device)
	return message(t, unix.RTM_NEWNEIGH, header, netlink.Attribute{Type: unix.NDA_DST, Data: address.AsSlice()})
}

func settingMessage(t *testing.T, index int32) netlink.Message {
	return message(t, unix.RTM_NEWNETCONF, make([]byte, 4), number(1, uint32(index))) //nolint:gosec // as the kernel writes it
}

func tableMessage(t *testing.T, kind uint16, name string) netlink.Message {
	return message(t, unix.NFNL_SUBSYS_NFTABLES<<8|kind, make([]byte, 4), text(unix.NFTA_TABLE_NAME, name))
}

// What pods bring with them when they come and go starts no comparison; what Coelan has in the
// kernel does.
func TestEventsThatMatter(t *testing.T) {
	h := &Host{desired: &Desired{Gateway: Gateway{Name: "gw0"}, Uplink: "eth0", Cards: []string{"eth1"}}}
	h.gateway.Store(gatewayIndex)
	h.nft.port.Store(99)
	own := tableMessage(t, unix.NFT_MSG_NEWRULE, servicesTable)
	own.Header.PID = 99
	for name, tc := range map[string]struct {
		family int
		m      netlink.Message
		want   bool
	}{
		"the gateway":                  {unix.NETLINK_ROUTE, linkMessage(t, "gw0"), true},
		"the uplink":                   {unix.NETLINK_ROUTE, linkMessage(t, "eth0"), true},
		"a card":                       {unix.NETLINK_ROUTE, linkMessage(t, "eth1"), true},
		"a pod's interface":            {unix.NETLINK_ROUTE, linkMessage(t, "co12345678"), false},
		"a pod's link-local address":   {unix.NETLINK_ROUTE, addressMessage(t, unix.RT_SCOPE_LINK), false},
		"an address":                   {unix.NETLINK_ROUTE, addressMessage(t, unix.RT_SCOPE_UNIVERSE), true},
		"a route of Coelan's":          {unix.NETLINK_ROUTE, routeMessage(t, byte(Protocol), uplinkIndex), true},
		"a route of the kernel's":      {unix.NETLINK_ROUTE, routeMessage(t, unix.RTPROT_KERNEL, uplinkIndex), false},
		"the bridge's neighbour":       {unix.NETLINK_ROUTE, neighbourMessage(t, gatewayIndex, datapath.ServiceSourceIPv4), true},
		"a pod as neighbour":           {unix.NETLINK_ROUTE, neighbourMessage(t, gatewayIndex, netip.MustParseAddr("10.244.1.9")), false},
		"its namesake elsewhere":       {unix.NETLINK_ROUTE, neighbourMessage(t, uplinkIndex, datapath.ServiceSourceIPv4), false},
		"settings of the gateway":      {unix.NETLINK_ROUTE, settingMessage(t, gatewayIndex), true},
		"settings of all":              {unix.NETLINK_ROUTE, settingMessage(t, -1), true},
		"settings of a pod":            {unix.NETLINK_ROUTE, settingMessage(t, 42), false},
		"something else":               {unix.NETLINK_ROUTE, message(t, unix.RTM_NEWRULE, nil), false},
		"Coelan's table":               {unix.NETLINK_NETFILTER, tableMessage(t, unix.NFT_MSG_DELTABLE, tableName), true},
		"the table of host ports":      {unix.NETLINK_NETFILTER, tableMessage(t, unix.NFT_MSG_NEWRULE, hostPortsTable), true},
		"a table of others":            {unix.NETLINK_NETFILTER, tableMessage(t, unix.NFT_MSG_NEWRULE, "filter"), false},
		"the table of Services, ours":  {unix.NETLINK_NETFILTER, own, false},
		"the end of a batch":           {unix.NETLINK_NETFILTER, tableMessage(t, unix.NFT_MSG_NEWGEN, tableName), false},
		"a message that is cut":        {unix.NETLINK_ROUTE, netlink.Message{Header: netlink.Header{Type: unix.RTM_NEWNEIGH}}, false},
		"the table of Services":        {unix.NETLINK_NETFILTER, tableMessage(t, unix.NFT_MSG_DELRULE, servicesTable), true},
		"events that the kernel drops": {unix.NETLINK_NETFILTER, lost, true},
	} {
		t.Run(name, func(t *testing.T) {
			h.doubt.Store(false)
			if got := h.relevant(tc.family, tc.m); got != tc.want {
				t.Errorf("relevant: %v, want %v", got, tc.want)
			}
			doubtful := name == "the table of Services" || name == "events that the kernel drops"
			if h.doubt.Load() != doubtful {
				t.Errorf("the table of Services is looked at again: %v, want %v", !doubtful, doubtful)
			}
		})
	}
	if (&Host{}).relevant(unix.NETLINK_ROUTE, linkMessage(t, "gw0")) {
		t.Error("a host that is to have nothing compares")
	}
}

// A keeper follows its interface and the routes that people make; neighbors follow next hops.
func TestEventsOfUplinks(t *testing.T) {
	k := NewKeeper(slog.New(slog.DiscardHandler), filepath.Join(t.TempDir(), "uplink.json"), "")
	if err := k.Set("br-ext", netip.MustParseAddr("192.0.2.1")); err != nil {
		t.Fatal(err)
	}
	n := NewNeighbours(slog.New(slog.DiscardHandler), newTables())
	n.index.Store(uplinkIndex)
	for name, tc := range map[string]struct {
		m                  netlink.Message
		keeper, neighbours bool
	}{
		"the uplink":                    {linkMessage(t, "br-ext"), true, true},
		"another interface":             {linkMessage(t, "eth9"), false, true},
		"a pod's interface":             {linkMessage(t, "co12345678"), false, false},
		"a route of people's":           {routeMessage(t, unix.RTPROT_BOOT, 5), true, true},
		"a route of Coelan's":           {routeMessage(t, byte(Protocol), 5), false, true},
		"a route of the kernel's":       {routeMessage(t, unix.RTPROT_KERNEL, 5), false, false},
		"a route of the uplink's":       {routeMessage(t, unix.RTPROT_KERNEL, uplinkIndex), false, true},
		"a pod's link-local address":    {addressMessage(t, unix.RT_SCOPE_LINK), false, false},
		"an address":                    {addressMessage(t, unix.RT_SCOPE_UNIVERSE), true, true},
		"a neighbour that is forgotten": {message(t, unix.RTM_DELNEIGH, make([]byte, unix.SizeofNdMsg)), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := k.relevant(unix.NETLINK_ROUTE, tc.m); got != tc.keeper {
				t.Errorf("keeper: %v, want %v", got, tc.keeper)
			}
			if got := n.relevant(unix.NETLINK_ROUTE, tc.m); got != tc.neighbours {
				t.Errorf("neighbours: %v, want %v", got, tc.neighbours)
			}
		})
	}
}

// What an interface had survives the agent, and a file that is damaged is an error once.
func TestKeeperRemembers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "uplink.json")
	saved := &memory{
		Boot: BootID(), Link: "br-ext", Node: netip.MustParseAddr("192.0.2.1"), Index: 3,
		Objects: []object{
			addressObject(t, "192.0.2.1/24"),
			{Kind: unix.RTM_NEWROUTE, Data: []byte("short")},
		},
		Settings: map[string]string{"ipv4/rp_filter": "1"}, MTU: 9000,
	}
	if err := saved.save(path); err != nil {
		t.Fatal(err)
	}
	got, err := load(path)
	if err != nil || !got.has(netip.MustParseAddr("192.0.2.1")) || got.has(netip.MustParseAddr("192.0.2.2")) {
		t.Fatalf("read %+v, %v", got, err)
	}
	if len(got.Objects) != 1 || !got.Objects[0].equal(saved.Objects[0]) || got.Settings["ipv4/rp_filter"] != "1" || got.MTU != 9000 {
		t.Errorf("read %+v", got)
	}
	if k := NewKeeper(slog.New(slog.DiscardHandler), path, ""); k.link != "br-ext" {
		t.Errorf("a new keeper is for %q", k.link)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load(path); err == nil {
		t.Error("a damaged file is no error")
	}
	if got, err := load(path); got != nil || err != nil {
		t.Errorf("read again: %+v, %v", got, err)
	}
}

// Clients of UDP are forgotten that the kernel leads where a Service or a host port was before.
func TestStaleConnections(t *testing.T) {
	client, node, pod := netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.244.1.10")
	flow := func(protocol intent.Protocol, to netip.Addr, port uint16, answered netip.Addr, from uint16) *nl.ConntrackFlow {
		f := &nl.ConntrackFlow{}
		f.Forward = nl.IPTuple{Protocol: uint8(protocol), SrcIP: client.AsSlice(), DstIP: to.AsSlice(), DstPort: port}
		f.Reverse = nl.IPTuple{Protocol: uint8(protocol), SrcIP: answered.AsSlice(), SrcPort: from, DstIP: client.AsSlice()}
		return f
	}
	ports := &staleHostPorts{
		gone: []HostPort{{Protocol: intent.TCP, Port: 8080, To: netip.AddrPortFrom(pod, 80)}},
		come: []HostPort{{Protocol: intent.UDP, Port: 5353, Address: node, To: netip.AddrPortFrom(pod, 53)}},
	}
	services := &staleDatagrams{
		own: map[netip.Addr]bool{node: true}, ports: map[string]bool{service(intent.UDP, 30053): true},
		frontends: map[string]bool{frontend(netip.MustParseAddr("203.0.113.5"), intent.UDP, 53): true},
	}
	for name, tc := range map[string]struct {
		f               *nl.ConntrackFlow
		ports, services bool
	}{
		"of a host port that is gone":      {flow(intent.TCP, node, 8080, pod, 80), true, false},
		"of another pod that has the port": {flow(intent.TCP, node, 8080, netip.MustParseAddr("10.244.1.11"), 80), false, false},
		"to where a host port has come":    {flow(intent.UDP, node, 5353, node, 5353), true, false},
		"of a host port that has come":     {flow(intent.UDP, node, 5353, pod, 53), false, false},
		"at another address":               {flow(intent.UDP, netip.MustParseAddr("192.0.2.9"), 5353, node, 5353), false, false},
		"of a node port":                   {flow(intent.UDP, node, 30053, node, 30053), false, true},
		"of that port elsewhere":           {flow(intent.UDP, netip.MustParseAddr("192.0.2.9"), 30053, node, 30053), false, false},
		"of an external address":           {flow(intent.UDP, netip.MustParseAddr("203.0.113.5"), 53, node, 53), false, true},
		"of TCP":                           {flow(intent.TCP, netip.MustParseAddr("203.0.113.5"), 53, node, 53), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ports.MatchConntrackFlow(tc.f); got != tc.ports {
				t.Errorf("host ports: %v, want %v", got, tc.ports)
			}
			if got := services.MatchConntrackFlow(tc.f); got != tc.services {
				t.Errorf("Services: %v, want %v", got, tc.services)
			}
		})
	}
}
