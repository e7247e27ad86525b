// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
)

// answer6 answers a message of DHCPv6 that has come from an address (RFC 8415, section 18.3).
func answer6(payload []byte, from netip.Addr, l Lease) Answer {
	ignored := Answer{Protocol: DHCPv6, Outcome: Ignored}
	if l.IPv6 == intent.NoIPv6 || !from.IsLinkLocalUnicast() {
		return ignored
	}
	q, err := dhcpv6.MessageFromBytes(payload)
	if err != nil {
		return ignored
	}
	r := reply6{Lease: l, request: q, own: of(l.Addresses, true)}
	if !r.forUs() {
		return ignored
	}
	reply, outcome := r.reply()
	if reply == nil {
		return Answer{Protocol: DHCPv6, Outcome: outcome}
	}
	frame := l.send(netip.AddrPortFrom(l.Router.LinkLocal(), serverPort6), netip.AddrPortFrom(from, clientPort6),
		reply.ToBytes())
	a := Answer{Protocol: DHCPv6, Outcome: outcome, Frame: frame}
	if r.acknowledged(reply) {
		a.Given, a.HostName = r.own, r.hostName()
	}
	return a
}

// reply6 is an answer that is being made.
type reply6 struct {
	Lease
	request *dhcpv6.Message
	own     []netip.Addr
}

// serverID is the same on all nodes, so that machines that move renew with the next one.
func (l Lease) serverID() dhcpv6.DUID {
	return &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: l.Router.HardwareAddr()}
}

// forUs says whether the message has the identifiers that it must have, and no others (RFC 8415,
// section 16).
func (r reply6) forUs() bool {
	q := r.request
	server, client := q.GetOneOption(dhcpv6.OptionServerID), q.GetOneOption(dhcpv6.OptionClientID)
	ours := server != nil && bytes.Equal(server.ToBytes(), r.serverID().ToBytes())
	switch q.MessageType {
	case dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeConfirm, dhcpv6.MessageTypeRebind:
		return server == nil && client != nil
	case dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRelease, dhcpv6.MessageTypeDecline:
		return ours && client != nil
	case dhcpv6.MessageTypeInformationRequest:
		return (server == nil || ours) && q.GetOneOption(dhcpv6.OptionIANA) == nil
	}
	return false
}

// reply is the answer; nil: none.
func (r reply6) reply() (*dhcpv6.Message, Outcome) {
	q := r.request
	m := &dhcpv6.Message{MessageType: dhcpv6.MessageTypeReply, TransactionID: q.TransactionID}
	if client := q.GetOneOption(dhcpv6.OptionClientID); client != nil {
		m.AddOption(client)
	}
	m.AddOption(dhcpv6.OptServerID(r.serverID()))
	outcome := Answered
	switch q.MessageType {
	case dhcpv6.MessageTypeSolicit:
		if q.GetOneOption(dhcpv6.OptionRapidCommit) != nil {
			m.AddOption(&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionRapidCommit})
		} else {
			m.MessageType = dhcpv6.MessageTypeAdvertise
			m.AddOption(preferred())
		}
		outcome = r.addAddresses(m)
	case dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRebind:
		outcome = r.addAddresses(m)
	case dhcpv6.MessageTypeConfirm:
		return r.confirm(m)
	case dhcpv6.MessageTypeRelease:
		m.AddOption(status(iana.StatusSuccess, ""))
		return m, Released
	case dhcpv6.MessageTypeDecline:
		m.AddOption(status(iana.StatusSuccess, ""))
		return m, Declined
	case dhcpv6.MessageTypeInformationRequest:
	}
	r.addOptions(m)
	return m, outcome
}

// acknowledged says whether the machine has its addresses by an answer, if there are any.
func (r reply6) acknowledged(answer *dhcpv6.Message) bool {
	switch r.request.MessageType {
	case dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRebind:
		return answer.MessageType == dhcpv6.MessageTypeReply && r.request.Options.OneIANA() != nil
	}
	return false
}

// hostName is what the machine calls itself (RFC 4704, section 4).
func (r reply6) hostName() string {
	fqdn := r.request.Options.FQDN()
	if fqdn == nil || len(fqdn.DomainName.Labels) != 1 {
		return ""
	}
	return MachineName(fqdn.DomainName.Labels[0])
}

// preferred has the machine take this answer without waiting for others (RFC 8415, section 18.2.1).
func preferred() dhcpv6.Option {
	return &dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionPreference, OptionData: []byte{255}}
}

func status(code iana.StatusCode, text string) dhcpv6.Option {
	return &dhcpv6.OptStatusCode{StatusCode: code, StatusMessage: text}
}

// addAddresses gives all addresses to the first association, and none to others; those that the
// machine names and that are not its own have ended.
func (r reply6) addAddresses(m *dhcpv6.Message) Outcome {
	outcome := Answered
	for i, asked := range r.request.Options.IANA() {
		reply := &dhcpv6.OptIANA{IaId: asked.IaId}
		given := r.own
		if i > 0 {
			given = nil
		}
		for _, a := range given {
			reply.Options.Add(&dhcpv6.OptIAAddress{
				IPv6Addr: a.AsSlice(), PreferredLifetime: r.DHCP.Lease, ValidLifetime: r.DHCP.Lease,
			})
		}
		for _, a := range asked.Options.Addresses() {
			if named, ok := netip.AddrFromSlice(a.IPv6Addr.To16()); !ok || slices.Contains(given, named) {
				continue
			}
			if r.request.MessageType != dhcpv6.MessageTypeSolicit {
				outcome = Refused
				reply.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: a.IPv6Addr})
			}
		}
		if len(given) > 0 {
			reply.T1, reply.T2 = r.DHCP.Lease/2, r.DHCP.Lease/5*4
		} else {
			reply.Options.Add(status(iana.StatusNoAddrsAvail, "all addresses of the port are in another association"))
		}
		m.AddOption(reply)
	}
	for _, asked := range r.request.Options.IATA() {
		reply := &dhcpv6.OptIATA{IaId: asked.IaId}
		reply.Options.Add(status(iana.StatusNoAddrsAvail, "there are no temporary addresses"))
		m.AddOption(reply)
	}
	for _, asked := range r.request.Options.IAPD() {
		reply := &dhcpv6.OptIAPD{IaId: asked.IaId}
		reply.Options.Add(status(iana.StatusNoPrefixAvail, "there are no prefixes"))
		m.AddOption(reply)
	}
	return outcome
}

// confirm says whether all addresses that the machine has are its own (RFC 8415, section 18.3.3);
// without any there is no answer.
func (r reply6) confirm(m *dhcpv6.Message) (*dhcpv6.Message, Outcome) {
	code, outcome, some := iana.StatusSuccess, Answered, false
	for _, asked := range r.request.Options.IANA() {
		for _, a := range asked.Options.Addresses() {
			some = true
			if named, ok := netip.AddrFromSlice(a.IPv6Addr.To16()); !ok || !slices.Contains(r.own, named) {
				code, outcome = iana.StatusNotOnLink, Refused
			}
		}
	}
	if !some {
		return nil, Ignored
	}
	m.AddOption(status(code, ""))
	return m, outcome
}

// addOptions adds what the machine asks for, or all if it does not say, as far as that fits into
// one packet on every link.
func (r reply6) addOptions(m *dhcpv6.Message) {
	asked := r.request.Options.RequestedOptions()
	add := func(o dhcpv6.Option) {
		const header = 4
		size := len(m.ToBytes()) + header + len(o.ToBytes()) + udpLen + packet.IPv6Len
		if (len(asked) == 0 || asked.Contains(o.Code())) && size <= minMTU {
			m.AddOption(o)
		}
	}
	if servers := of(r.DNS.Servers, true); len(servers) > 0 {
		add(dhcpv6.OptDNS(ips(servers)...))
	}
	if search := domains(r.DNS.Searches); search != nil {
		add(dhcpv6.OptDomainSearchList(search))
	}
	if servers := of(r.NTP, true); len(servers) > 0 {
		o := &dhcpv6.OptNTPServer{}
		for _, a := range servers {
			address := dhcpv6.NTPSuboptionSrvAddr(net.IP(a.AsSlice()))
			o.Suboptions.Add(&address)
		}
		add(o)
	}
	if strings.Contains(r.BootFile, "://") {
		add(dhcpv6.OptBootFileURL(r.BootFile))
	}
}
