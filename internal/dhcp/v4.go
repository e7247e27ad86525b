// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"net"
	"net/netip"
	"slices"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"coelan.io/coelan/internal/intent"
)

// answer4 answers a message of DHCP (RFC 2131, section 4.3).
func answer4(payload []byte, l Lease) Answer {
	ignored := Answer{Protocol: DHCPv4, Outcome: Ignored}
	q, err := dhcpv4.FromBytes(payload)
	if err != nil || q.OpCode != dhcpv4.OpcodeBootRequest || q.HWType != iana.HWTypeEthernet ||
		!bytes.Equal(q.ClientHWAddr, l.MAC[:]) || !q.GatewayIPAddr.IsUnspecified() {
		return ignored
	}
	own := of(l.Addresses, false)
	if len(own) == 0 {
		return ignored
	}
	address := own[0]
	if a := wanted4(q); slices.Contains(own, a) {
		address = a
	}
	s, ok := l.subnetOf(address)
	if !ok {
		return ignored
	}
	r := reply4{Lease: l, request: q, address: address, subnet: s}
	if id := q.ServerIdentifier(); id != nil && !id.Equal(s.Gateway.AsSlice()) {
		return ignored // it has chosen another server
	}
	switch q.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		return r.answer(dhcpv4.MessageTypeOffer)
	case dhcpv4.MessageTypeRequest:
		switch a := wanted4(q); {
		case !a.IsValid():
			return ignored
		case a != address:
			return r.refuse()
		}
		return r.acknowledge()
	case dhcpv4.MessageTypeInform:
		return r.answer(dhcpv4.MessageTypeAck)
	case dhcpv4.MessageTypeRelease:
		return Answer{Protocol: DHCPv4, Outcome: Released}
	case dhcpv4.MessageTypeDecline:
		return Answer{Protocol: DHCPv4, Outcome: Declined}
	}
	return ignored
}

// wanted4 is the address that a machine asks for, or has already; not valid: it says none.
func wanted4(q *dhcpv4.DHCPv4) netip.Addr {
	for _, ip := range []net.IP{q.RequestedIPAddress(), q.ClientIPAddr} {
		if a, ok := netip.AddrFromSlice(ip.To4()); ok && !a.IsUnspecified() {
			return a
		}
	}
	return netip.Addr{}
}

// reply4 is an answer that is being made.
type reply4 struct {
	Lease
	request *dhcpv4.DHCPv4
	address netip.Addr // what the machine gets
	subnet  intent.NetworkSubnet
}

// message is an answer with what all have.
func (r reply4) message(t dhcpv4.MessageType) *dhcpv4.DHCPv4 {
	q := r.request
	m := &dhcpv4.DHCPv4{
		OpCode: dhcpv4.OpcodeBootReply, HWType: q.HWType, TransactionID: q.TransactionID, Flags: q.Flags,
		ClientHWAddr: q.ClientHWAddr, GatewayIPAddr: net.IPv4zero, ClientIPAddr: net.IPv4zero,
		YourIPAddr: net.IPv4zero, ServerIPAddr: net.IPv4zero, Options: dhcpv4.Options{},
	}
	m.UpdateOption(dhcpv4.OptMessageType(t))
	m.UpdateOption(dhcpv4.OptServerIdentifier(r.subnet.Gateway.AsSlice()))
	if id := q.GetOneOption(dhcpv4.OptionClientIdentifier); id != nil { // RFC 6842, section 3
		m.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionClientIdentifier, id))
	}
	return m
}

// refuse tells the machine that the address which it asks for, or has, is not its own. That is
// broadcast: the machine may have no address (RFC 2131, section 4.1).
func (r reply4) refuse() Answer {
	m := r.message(dhcpv4.MessageTypeNak)
	m.SetBroadcast()
	return Answer{Protocol: DHCPv4, Outcome: Refused, Frame: r.to(broadcast, m)}
}

// answer gives the machine its address, or with INFORM all but that.
func (r reply4) answer(t dhcpv4.MessageType) Answer {
	m, q := r.message(t), r.request
	inform := q.MessageType() == dhcpv4.MessageTypeInform
	client, _ := netip.AddrFromSlice(q.ClientIPAddr.To4())
	if t == dhcpv4.MessageTypeAck {
		m.ClientIPAddr = q.ClientIPAddr
	}
	if inform && client.IsUnspecified() {
		return Answer{Protocol: DHCPv4, Outcome: Ignored}
	}
	if r.NextServer.IsValid() {
		m.ServerIPAddr = r.NextServer.AsSlice()
	}
	m.BootFileName = r.BootFile
	if !inform {
		m.YourIPAddr = r.address.AsSlice()
		m.UpdateOption(dhcpv4.OptIPAddressLeaseTime(r.DHCP.Lease))
		m.UpdateOption(dhcpv4.OptRenewTimeValue(r.DHCP.Lease / 2))
		m.UpdateOption(dhcpv4.OptRebindingTimeValue(r.DHCP.Lease / 8 * 7))
	}
	r.addOptions(m)
	to := r.address
	switch {
	case q.IsBroadcast() && client.IsUnspecified():
		to = broadcast
	case !client.IsUnspecified():
		to = client
	}
	return Answer{Protocol: DHCPv4, Outcome: Answered, Frame: r.to(to, m)}
}

// acknowledge is the answer by which the machine has its address.
func (r reply4) acknowledge() Answer {
	a := r.answer(dhcpv4.MessageTypeAck)
	a.Given, a.HostName = []netip.Addr{r.address}, MachineName(r.request.HostName())
	return a
}

func (r reply4) to(a netip.Addr, m *dhcpv4.DHCPv4) []byte {
	return r.send(netip.AddrPortFrom(r.subnet.Gateway, serverPort), netip.AddrPortFrom(a, clientPort), m.ToBytes())
}

// minMessage is the datagram that every machine takes (RFC 2131, section 2), with its headers.
const (
	minMessage = 576
	headersLen = 28
)

// addOptions adds the options that the machine asks for, or all if it does not say. What does not
// fit into the message that it takes is left out from the first option on that does not.
func (r reply4) addOptions(m *dhcpv4.DHCPv4) {
	most := minMessage
	if size, err := r.request.MaxMessageSize(); err == nil {
		most = min(max(most, int(size)), r.MTU)
	}
	list := r.request.ParameterRequestList()
	for _, o := range r.options() {
		if list != nil && !list.Has(o.Code) {
			continue
		}
		m.UpdateOption(o)
		if len(m.ToBytes())+headersLen > most {
			m.Options.Del(o.Code)
			return
		}
	}
}

// options are all that there are for the machine, the most important ones first.
func (r reply4) options() []dhcpv4.Option {
	list := []dhcpv4.Option{
		dhcpv4.OptSubnetMask(net.CIDRMask(r.subnet.Prefix.Bits(), 32)),
		dhcpv4.OptRouter(r.subnet.Gateway.AsSlice()),
		dhcpv4.OptGeneric(dhcpv4.OptionInterfaceMTU, []byte{byte(r.MTU >> 8), byte(r.MTU)}),
	}
	if routes := r.routesOf(r.subnet); len(routes) > 0 {
		// A machine that takes this option takes no other router (RFC 3442).
		classless := dhcpv4.OptClasslessStaticRoute(append(routesOf4(routes), &dhcpv4.Route{
			Dest: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}, Router: r.subnet.Gateway.AsSlice(),
		})...)
		list = append(list, classless)
	}
	if servers := of(r.DNS.Servers, false); len(servers) > 0 {
		list = append(list, dhcpv4.OptDNS(ips(servers)...))
	}
	search := domains(r.DNS.Searches)
	if search != nil {
		list = append(list, dhcpv4.OptDomainName(search.Labels[0]))
	}
	if r.Host != "" {
		list = append(list, dhcpv4.OptHostName(r.Host))
	}
	if r.NextServer.IsValid() {
		list = append(list, dhcpv4.OptTFTPServerName(r.NextServer.String()))
	}
	if r.BootFile != "" {
		list = append(list, dhcpv4.OptBootFileName(r.BootFile))
	}
	if servers := of(r.NTP, false); len(servers) > 0 {
		list = append(list, dhcpv4.OptNTPServers(ips(servers)...))
	}
	if search != nil {
		list = append(list, dhcpv4.OptDomainSearch(search))
	}
	return list
}

func routesOf4(routes []intent.Route) (list []*dhcpv4.Route) {
	for _, r := range routes {
		list = append(list, &dhcpv4.Route{
			Dest:   &net.IPNet{IP: r.Destination.Addr().AsSlice(), Mask: net.CIDRMask(r.Destination.Bits(), 32)},
			Router: r.NextHop.AsSlice(),
		})
	}
	return list
}

func ips(list []netip.Addr) []net.IP {
	all := make([]net.IP, len(list))
	for i, a := range list {
		all[i] = a.AsSlice()
	}
	return all
}
