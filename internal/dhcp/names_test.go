// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/rfc1035label"
)

// The longest name of DNS, and one that is too long.
var (
	longest = strings.Repeat("a.", 126) + "b"
	tooLong = strings.Repeat("a.", 126) + "bc"
)

func TestHostNames(t *testing.T) {
	for _, tc := range []struct{ name, said, want string }{
		{"one label", "db", "db"},
		{"several labels", "db.red.example", "db.red.example"},
		{"a dot at the end", "db.red.example.", "db.red.example"},
		{"capitals and digits", "DESKTOP-7F", "DESKTOP-7F"},
		{"digits alone", "42", "42"},
		{"a long label", strings.Repeat("a", 63), strings.Repeat("a", 63)},
		{"as long as a name is", longest, longest},

		{"none", "", ""},
		{"longer", tooLong, ""},
		{"a label that is too long", strings.Repeat("a", 64), ""},
		{"a dot alone", ".", ""},
		{"an empty label", "db..example", ""},
		{"two dots at the end", "db..", ""},
		{"a dash first", "-db", ""},
		{"a dash last", "db-.example", ""},
		{"an underscore", "my_db", ""},
		{"a space", "my db", ""},
		{"a line", "db\nrogue", ""},
		{"an escape sequence", "\x1b[2Jdb", ""},
		{"a zero within", "db\x00rogue", ""},
		{"markup", "<script>", ""},
		{"a path", "../../etc", ""},
		{"a template", "$(reboot)", ""},
		{"another alphabet", "datenbänke", ""},
		{"not UTF-8", "db\xff", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := MachineName(tc.said); got != tc.want {
				t.Errorf("%q is %q, want %q", tc.said, got, tc.want)
			}
		})
	}
}

// lease is what a test looks at of an Answer.
type lease struct {
	Outcome  Outcome
	Given    []string
	HostName string
}

func leaseIn(a Answer) lease {
	l := lease{Outcome: a.Outcome, HostName: a.HostName}
	for _, g := range a.Given {
		l.Given = append(l.Given, g.String())
	}
	return l
}

func named(name string) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptHostName(name)) }

// A machine has its address once that is acknowledged, and what it says of itself counts then.
func TestGivenByDHCPv4(t *testing.T) {
	const discover, request = dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest
	has := dhcpv4.WithClientIP(netip.MustParseAddr("10.70.0.50").AsSlice())
	for _, tc := range []struct {
		name    string
		message *dhcpv4.DHCPv4
		want    lease
	}{
		{"an offer", message4(t, discover, named("db")), lease{Outcome: Answered}},
		{"it takes the offer", message4(t, request, requested("10.70.0.50"), server("10.70.0.1"), named("db")), lease{Answered, []string{"10.70.0.50"}, "db"}},
		{"its other address", message4(t, request, requested("10.71.0.50"), named("db.red.example.")), lease{Answered, []string{"10.71.0.50"}, "db.red.example"}},
		{"it renews", message4(t, request, has), lease{Answered, []string{"10.70.0.50"}, ""}},
		{"a zero at the end", message4(t, request, has, named("db\x00")), lease{Answered, []string{"10.70.0.50"}, "db"}},
		{"not a name", message4(t, request, has, named("db\x1b[2J")), lease{Answered, []string{"10.70.0.50"}, ""}},
		{"a name that is too long", message4(t, request, has, named(tooLong)), lease{Answered, []string{"10.70.0.50"}, ""}},
		{"another's address", message4(t, request, requested("10.70.0.51"), named("db")), lease{Outcome: Refused}},
		{"settings alone", message4(t, dhcpv4.MessageTypeInform, has, named("db")), lease{Outcome: Answered}},
		{"it goes", message4(t, dhcpv4.MessageTypeRelease, has, named("db")), lease{Outcome: Released}},
		{"its address is taken", message4(t, dhcpv4.MessageTypeDecline, requested("10.70.0.50"), named("db")), lease{Outcome: Declined}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := ask4(t, leaseOf(t, network(), "10.70.0.50", "10.71.0.50", "fd00:70::50"), tc.message)
			if diff := cmp.Diff(tc.want, leaseIn(a), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func fqdn(names ...string) dhcpv6.Option {
	return &dhcpv6.OptFQDN{DomainName: &rfc1035label.Labels{Labels: names}}
}

// wireName is a name as it is on the wire, however malformed.
func wireName(b ...byte) dhcpv6.Option {
	return &dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionFQDN, OptionData: append([]byte{0}, b...)}
}

func TestGivenByDHCPv6(t *testing.T) {
	ours := dhcpv6.OptServerID(Lease{Router: routerMAC}.serverID())
	rapid := &dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionRapidCommit}
	both := []string{"fd00:70::50", "fd00:70::51"}
	request := func(options ...dhcpv6.Option) *dhcpv6.Message {
		return message6(t, dhcpv6.MessageTypeRequest, append([]dhcpv6.Option{ours, association()}, options...)...)
	}
	for _, tc := range []struct {
		name    string
		message *dhcpv6.Message
		want    lease
	}{
		{"an offer", solicit(t, fqdn("db")), lease{Outcome: Answered}},
		{"at once", solicit(t, rapid, fqdn("db")), lease{Answered, both, "db"}},
		{"it takes the offer", request(fqdn("db.red.example")), lease{Answered, both, "db.red.example"}},
		{"it renews", message6(t, dhcpv6.MessageTypeRenew, ours, association("fd00:70::50")), lease{Answered, both, ""}},
		{"it renews another's", message6(t, dhcpv6.MessageTypeRenew, ours, association("fd00:70::99")), lease{Refused, both, ""}},
		{"it renews with any", message6(t, dhcpv6.MessageTypeRebind, association("fd00:70::50"), fqdn("db")), lease{Answered, both, "db"}},
		{"it wants nothing", message6(t, dhcpv6.MessageTypeRequest, ours, fqdn("db")), lease{Outcome: Answered}},
		{"it is where it was", message6(t, dhcpv6.MessageTypeConfirm, association("fd00:70::50"), fqdn("db")), lease{Outcome: Answered}},
		{"settings alone", message6(t, dhcpv6.MessageTypeInformationRequest, fqdn("db")), lease{Outcome: Answered}},
		{"it goes", message6(t, dhcpv6.MessageTypeRelease, ours, association("fd00:70::50"), fqdn("db")), lease{Outcome: Released}},
		{"its address is taken", message6(t, dhcpv6.MessageTypeDecline, ours, association("fd00:70::50")), lease{Outcome: Declined}},

		{"a part of a name", request(wireName(2, 'd', 'b')), lease{Answered, both, "db"}},
		{"an empty name", request(wireName(0)), lease{Answered, both, ""}},
		{"no name", request(wireName()), lease{Answered, both, ""}},
		{"several names", request(fqdn("db", "web")), lease{Answered, both, ""}},
		{"not a name", request(fqdn("db;reboot")), lease{Answered, both, ""}},
		{"a zero within", request(wireName(3, 'd', 0, 'b', 0)), lease{Answered, both, ""}},
		{"a name that is too long", request(fqdn(tooLong)), lease{Answered, both, ""}},
		{"a name that ends too early", request(wireName(9, 'd', 'b')), lease{Outcome: Ignored}},
		{"a name that refers to itself", request(wireName(0xc0, 0)), lease{Outcome: Ignored}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := Handle(ask6(tc.message), leaseOf(t, network(), "10.70.0.50", "fd00:70::50", "fd00:70::51"))
			if diff := cmp.Diff(tc.want, leaseIn(a), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A machine without an IPv6 address is given none.
func TestNothingGiven(t *testing.T) {
	rapid := &dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionRapidCommit}
	if a := Handle(ask6(solicit(t, rapid, fqdn("db"))), leaseOf(t, network(), "10.70.0.50")); len(a.Given) > 0 {
		t.Errorf("given %s", fmt.Sprint(a.Given))
	}
}
