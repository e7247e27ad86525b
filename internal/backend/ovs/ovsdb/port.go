// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"coelan.io/coelan/internal/backend/ovs/rows"
)

// Port says how a port of a bridge should be. A Port has one interface of the
// same name.
type Port struct {
	Name string
	// Type is empty for a network device of the host (a veth, a tap), or
	// "internal", "vxlan", "geneve", "patch".
	Type string
	// OFPort is the OpenFlow port number, 1 to 65279; 0 lets Open vSwitch choose, for patch ports
	// on bridges of others.
	OFPort int
	// AnyNumber lets Open vSwitch choose the number of another port, for bridges that other
	// programs write the flows of.
	AnyNumber bool
	// VLAN is the one of which the port has frames, without a tag (vlan_mode access); 0: it has
	// those of all VLANs, or whichever an administrator has set. Only bridges that forward by MACs
	// go by it.
	VLAN int
	// MAC is the address of an internal port; nil: chosen by Open vSwitch.
	MAC net.HardwareAddr
	// MTU of an internal port; 0: chosen by Open vSwitch.
	MTU int
	// Options depend on the type.
	Options map[string]string
	// ExternalIDs are set beside the owner's mark.
	ExternalIDs map[string]string
	// BFD configures the detection of whether the other end is in reach (RFC 5880); nil: there is
	// none. Without an OpenFlow port number, which Open vSwitch then chooses.
	BFD map[string]string
}

// PortState is a port of the database that is Coelan's.
type PortState struct {
	Port
	Bridge string
	// Actual is the OpenFlow port number that ovs-vswitchd gave, -1 if it could
	// not open the port, 0 if it has not come to it yet.
	Actual int
	// Error is what ovs-vswitchd says about a port that it could not open.
	Error     string
	ActualMAC string
	ActualMTU int
	LinkUp    bool
	// BFDState is that of the session: "up", "down", "init" or "admin_down"; empty: none is known.
	BFDState string
}

// Ready reports whether packets can pass.
func (p PortState) Ready() bool {
	return p.Error == "" && p.Actual > 0 && (p.Actual == p.OFPort || p.OFPort == 0)
}

// Tunnel is a port of a type ("vxlan" or "geneve"); flows choose the remote address and the key.
// Packets that leave by it have mark (fwmark) in the kernel; 0: none.
func Tunnel(name, typ string, ofport int, mark uint32) Port {
	o := map[string]string{"remote_ip": "flow", "key": "flow"}
	if mark != 0 {
		o["egress_pkt_mark"] = strconv.FormatUint(uint64(mark), 10)
	}
	return Port{Name: name, Type: typ, OFPort: ofport, Options: o}
}

// Session is a tunnel to one node that carries nothing but BFD, with packets each interval
// milliseconds: after three intervals without one the other end is down.
func Session(name, typ string, remote netip.Addr, key uint32, interval int) Port {
	every := strconv.Itoa(interval)
	return Port{
		Name: name, Type: typ,
		Options: map[string]string{"remote_ip": remote.String(), "key": strconv.FormatUint(uint64(key), 10)},
		BFD:     map[string]string{"enable": "true", "min_tx": every, "min_rx": every},
	}
}

// Internal is a port that is a network device of the host, made by Open vSwitch.
func Internal(name string, ofport int, mac net.HardwareAddr, mtu int) Port {
	return Port{Name: name, Type: "internal", OFPort: ofport, MAC: mac, MTU: mtu}
}

// Patch is one end of a wire to another bridge. The end there is called peer.
func Patch(name, peer string, ofport int) Port {
	return Port{Name: name, Type: "patch", OFPort: ofport, Options: map[string]string{"peer": peer}}
}

// validate finds what the database or ovs-vswitchd would refuse, or worse,
// accept.
func (p Port) validate() error {
	switch {
	case p.Name == "" || len(p.Name) > 15 || strings.ContainsAny(p.Name, "/ "):
		return fmt.Errorf("not the name of a network device (1 to 15 bytes, no '/', no space)")
	case p.VLAN < 0 || p.VLAN > maxVLAN:
		return fmt.Errorf("VLAN %d is not in 1 to %d", p.VLAN, maxVLAN)
	case p.OFPort == 0 && (p.AnyNumber || p.Type == "patch" || p.BFD != nil):
	case p.OFPort < 1 || p.OFPort > 65279:
		return fmt.Errorf("OpenFlow port %d is not in 1 to 65279", p.OFPort)
	case p.Type != "internal" && (p.MAC != nil || p.MTU != 0):
		return fmt.Errorf("MAC and MTU can be set on ports of type internal only, not %q", p.Type)
	}
	return nil
}

// maxVLAN is that of the database. 4095 is no VLAN of frames (IEEE 802.1Q, table 9-2): a port that
// has it gets none.
const maxVLAN = 4095

// vlan is the column tag.
func (p Port) vlan() *int {
	if p.VLAN == 0 {
		return nil
	}
	return &p.VLAN
}

func (p Port) row() *rows.Interface {
	row := &rows.Interface{
		Name: p.Name, Type: p.Type, Options: p.Options, ExternalIDs: owned(p.ExternalIDs), BFD: p.BFD,
	}
	if p.OFPort != 0 {
		row.OFPortRequest = &p.OFPort
	}
	if p.MAC != nil {
		mac := p.MAC.String()
		row.MAC = &mac
	}
	if p.MTU != 0 {
		row.MTURequest = &p.MTU
	}
	return row
}

// same reports whether row already says what p does.
func (p Port) same(row *rows.Interface) bool {
	want := p.row()
	return want.Type == row.Type && equal(want.OFPortRequest, row.OFPortRequest) &&
		equal(want.MAC, row.MAC) && equal(want.MTURequest, row.MTURequest) &&
		maps.Equal(want.Options, row.Options) && maps.Equal(want.ExternalIDs, row.ExternalIDs) &&
		maps.Equal(want.BFD, row.BFD)
}

func portState(bridge string, row *rows.Interface) PortState {
	st := PortState{
		Port: Port{
			Name: row.Name, Type: row.Type, OFPort: value(row.OFPortRequest), MTU: value(row.MTURequest),
			Options: row.Options, ExternalIDs: row.ExternalIDs, BFD: row.BFD,
		},
		Bridge: bridge, Actual: value(row.OFPort), Error: value(row.Error),
		ActualMAC: value(row.MACInUse), ActualMTU: value(row.MTU), LinkUp: value(row.LinkState) == "up",
		BFDState: row.BFDStatus["state"],
	}
	if mac, err := net.ParseMAC(value(row.MAC)); err == nil {
		st.MAC = mac
	}
	return st
}

func equal[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// value is *p, or the zero value if the column is empty.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
