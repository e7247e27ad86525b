// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"coelan.io/coelan/internal/intent"
)

var iaid = [4]byte{1, 2, 3, 4}

// message6 is a message of the machine with its identifier.
func message6(t testing.TB, kind dhcpv6.MessageType, options ...dhcpv6.Option) *dhcpv6.Message {
	t.Helper()
	m, err := dhcpv6.NewMessage()
	if err != nil {
		t.Fatal(err)
	}
	m.MessageType = kind
	m.AddOption(dhcpv6.OptClientID(&dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: machineMAC.HardwareAddr()}))
	for _, o := range options {
		m.AddOption(o)
	}
	return m
}

func solicit(t testing.TB, options ...dhcpv6.Option) *dhcpv6.Message {
	return message6(t, dhcpv6.MessageTypeSolicit, append([]dhcpv6.Option{association()}, options...)...)
}

// association is what the machine wants addresses for, with those that it has.
func association(addresses ...string) *dhcpv6.OptIANA {
	o := &dhcpv6.OptIANA{IaId: iaid}
	for _, a := range addresses {
		o.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: net.ParseIP(a)})
	}
	return o
}

func ask6(m *dhcpv6.Message) []byte {
	return udp("["+linkLocal.String()+"]:546", "[ff02::1:2]:547", m.ToBytes())
}

// given are the addresses of the first association, each with whether it is valid; or its status.
func given(m *dhcpv6.Message) string {
	var list []string
	for _, ia := range m.Options.IANA() {
		for _, a := range ia.Options.Addresses() {
			list = append(list, a.IPv6Addr.String()+" "+a.ValidLifetime.String())
		}
		if s := ia.Options.Status(); s != nil {
			list = append(list, s.StatusCode.String())
		}
	}
	if s := m.Options.Status(); s != nil {
		list = append(list, s.StatusCode.String())
	}
	return strings.Join(list, ", ")
}

func TestDHCPv6(t *testing.T) {
	ours := dhcpv6.OptServerID(Lease{Router: routerMAC}.serverID())
	other := dhcpv6.OptServerID(&dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: machineMAC.HardwareAddr()})
	rapid := &dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionRapidCommit}
	const both, advertise, reply = "fd00:70::50 1h0m0s, fd00:70::51 1h0m0s", dhcpv6.MessageTypeAdvertise, dhcpv6.MessageTypeReply
	for _, tc := range []struct {
		name    string
		message *dhcpv6.Message
		want    Outcome
		kind    dhcpv6.MessageType // of the answer
		given   string
	}{
		{"first question", solicit(t), Answered, advertise, both},
		{"at once", solicit(t, rapid), Answered, reply, both},
		{"it would like another's", message6(t, dhcpv6.MessageTypeSolicit, association("fd00:70::99")), Answered, advertise, both},
		{"it takes the offer", message6(t, dhcpv6.MessageTypeRequest, ours, association("fd00:70::50")), Answered, reply, both},
		{"it renews", message6(t, dhcpv6.MessageTypeRenew, ours, association("fd00:70::50")), Answered, reply, both},
		{"it renews another's", message6(t, dhcpv6.MessageTypeRenew, ours, association("fd00:70::99")), Refused, reply, both + ", fd00:70::99 0s"},
		{"it renews with any", message6(t, dhcpv6.MessageTypeRebind, association("fd00:70::50")), Answered, reply, both},
		{"two associations", message6(t, dhcpv6.MessageTypeRequest, ours, association(), &dhcpv6.OptIANA{IaId: [4]byte{9}}), Answered, reply, both + ", NoAddrsAvail"},
		{"it is where it was", message6(t, dhcpv6.MessageTypeConfirm, association("fd00:70::51")), Answered, reply, "Success"},
		{"it is elsewhere", message6(t, dhcpv6.MessageTypeConfirm, association("fd00:99::51")), Refused, reply, "NotOnLink"},
		{"it goes", message6(t, dhcpv6.MessageTypeRelease, ours, association("fd00:70::50")), Released, reply, "Success"},
		{"its address is taken", message6(t, dhcpv6.MessageTypeDecline, ours, association("fd00:70::50")), Declined, reply, "Success"},
		{"it wants settings alone", message6(t, dhcpv6.MessageTypeInformationRequest), Answered, reply, ""},

		{"it confirms nothing", message6(t, dhcpv6.MessageTypeConfirm, association()), Ignored, 0, ""},
		{"it has chosen another server", message6(t, dhcpv6.MessageTypeRequest, other, association()), Ignored, 0, ""},
		{"it has chosen no server", message6(t, dhcpv6.MessageTypeRequest, association()), Ignored, 0, ""},
		{"a first question to one server", solicit(t, ours), Ignored, 0, ""},
		{"settings and an association", message6(t, dhcpv6.MessageTypeInformationRequest, association()), Ignored, 0, ""},
		{"an answer", message6(t, reply, ours), Ignored, 0, ""},
		{"relayed", message6(t, dhcpv6.MessageTypeRelayForward), Ignored, 0, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := Handle(ask6(tc.message), leaseOf(t, network(), "10.70.0.50", "fd00:70::50", "fd00:70::51"))
			if a.Outcome != tc.want || a.Protocol != DHCPv6 || (a.Frame != nil) != (tc.kind != 0) {
				t.Fatalf("%s %s, %d bytes; want %s", a.Protocol, a.Outcome, len(a.Frame), tc.want)
			}
			if a.Frame == nil {
				return
			}
			mac, p, payload := opened(t, a.Frame)
			m, err := dhcpv6.MessageFromBytes(payload)
			if err != nil || m.MessageType != tc.kind || m.TransactionID != tc.message.TransactionID {
				t.Fatalf("%v: %v", err, m)
			}
			if got := given(m); got != tc.given {
				t.Errorf("given %q, want %q", got, tc.given)
			}
			if source, port, _ := p.Ports(); source != 547 || port != 546 || mac != machineMAC || p.Destination() != linkLocal || p.Source() != routerMAC.LinkLocal() {
				t.Errorf("from %s port %d to %s port %d", p.Source(), source, p.Destination(), port)
			}
			if m.Options.ClientID() == nil || m.Options.ServerID() == nil {
				t.Error("an identifier is missing")
			}
		})
	}
}

func TestDHCPv6Options(t *testing.T) {
	l := leaseOf(t, network(), "fd00:70::50")
	told := func(options ...dhcpv6.Option) *dhcpv6.Message {
		_, _, payload := opened(t, Handle(ask6(solicit(t, options...)), l).Frame)
		m, err := dhcpv6.MessageFromBytes(payload)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := told()
	if got := joined(m.Options.DNS()); got != "2001:db8::53" {
		t.Errorf("DNS: %s", got)
	}
	if got := strings.Join(m.Options.DomainSearchList().Labels, " "); got != "red.example example" {
		t.Errorf("search: %s", got)
	}
	if got := joined(m.Options.NTPServers()); got != "2001:db8::123" || m.Options.BootFileURL() != "tftp://192.0.2.69/boot" {
		t.Errorf("NTP %s, boot file %s", got, m.Options.BootFileURL())
	}
	if ia := m.Options.OneIANA(); ia.IaId != iaid || ia.T1 != 30*time.Minute || ia.T2 != 48*time.Minute {
		t.Errorf("association: %v", ia)
	}
	m = told(dhcpv6.OptRequestedOption(dhcpv6.OptionDNSRecursiveNameServer), &dhcpv6.OptIATA{IaId: iaid}, &dhcpv6.OptIAPD{IaId: iaid})
	if m.Options.DNS() == nil || m.Options.DomainSearchList() != nil || m.Options.NTPServers() != nil {
		t.Errorf("more or less than asked for: %v", m)
	}
	if ta, pd := m.Options.OneIATA(), m.Options.OneIAPD(); ta == nil || pd == nil || ta.Options.Status().StatusCode != iana.StatusNoAddrsAvail || pd.Options.Status().StatusCode != iana.StatusNoPrefixAvail {
		t.Errorf("temporary %v, prefix %v", ta, pd)
	}
}

// A Network that leaves IPv6 alone, a Port without an IPv6 address, and a message from elsewhere
// than the machine's link.
func TestNoAnswer6(t *testing.T) {
	n := network()
	n.DHCP.IPv6 = intent.NoIPv6
	if a := Handle(ask6(solicit(t)), leaseOf(t, n, "fd00:70::50")); a.Outcome != Ignored || a.Frame != nil {
		t.Errorf("IPv6 is left alone: %s", a.Outcome)
	}
	far := udp("[fd00:70::50]:546", "[ff02::1:2]:547", solicit(t).ToBytes())
	if a := Handle(far, leaseOf(t, network(), "fd00:70::50")); a.Outcome != Ignored {
		t.Errorf("not from a link-local address: %s", a.Outcome)
	}
	a := Handle(ask6(solicit(t)), leaseOf(t, network(), "10.70.0.50"))
	_, _, payload := opened(t, a.Frame)
	if m, err := dhcpv6.MessageFromBytes(payload); err != nil || given(m) != "NoAddrsAvail" {
		t.Errorf("no address to give: %v, %v", err, m)
	}
	broken := slices.Clone(ask6(solicit(t)))
	broken[len(broken)-20] ^= 0xff
	if a := Handle(broken[:len(broken)-1], leaseOf(t, network(), "fd00:70::50")); a.Frame != nil {
		t.Errorf("a broken message: %s", a.Outcome)
	}
}
