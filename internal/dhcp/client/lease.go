// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// Lease is what a server has given, and until when. Its JSON is what an agent stores.
type Lease struct {
	// Address carries the length of the subnet's prefix.
	Address netip.Prefix `json:"address"`
	// Gateway is the first router in the subnet; not valid: there is none.
	Gateway netip.Addr `json:"gateway,omitzero"`
	// Routes are the others (RFC 3442).
	Routes  []Route      `json:"routes,omitempty"`
	DNS     []netip.Addr `json:"dns,omitempty"`
	Domains []string     `json:"domains,omitempty"`
	MTU     int          `json:"mtu,omitempty"` // 0: the server says none

	// Server is the server's identifier, and ServerMAC where its answer came from: the server, or
	// the relay that leads to it.
	Server    netip.Addr       `json:"server"`
	ServerMAC net.HardwareAddr `json:"serverMAC"`
	// From is when the lease was asked for. Renew, Rebind and Expire count from then.
	From   time.Time     `json:"from"`
	Renew  time.Duration `json:"renew"`
	Rebind time.Duration `json:"rebind"`
	Expire time.Duration `json:"expire"`
}

// Route leads to a prefix by way of a router; one that is not valid: the prefix is on link.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	Router      netip.Addr   `json:"router,omitzero"`
}

// Expires is when the address may not be used any more.
func (l Lease) Expires() time.Time { return l.From.Add(l.Expire) }

// shortest is the least lease: one that is shorter would be renewed without end.
const shortest = 2 * time.Second

// readLease reads what a server offers or acknowledges.
func readLease(m *dhcpv4.DHCPv4, from net.HardwareAddr, asked time.Time) (Lease, error) {
	l := Lease{ServerMAC: from, From: asked}
	address, ok := netip.AddrFromSlice(m.YourIPAddr.To4())
	if !ok || !address.IsGlobalUnicast() {
		return l, fmt.Errorf("%s is not an address of an interface", m.YourIPAddr)
	}
	ones, bits := m.SubnetMask().Size()
	if bits != 32 || ones == 0 {
		return l, errors.New("it has no subnet mask")
	}
	l.Address = netip.PrefixFrom(address, ones)
	if l.Server, ok = netip.AddrFromSlice(m.ServerIdentifier().To4()); !ok {
		return l, errors.New("it has no server identifier")
	}
	l.Expire = m.IPAddressLeaseTime(0)
	if l.Expire < shortest {
		return l, fmt.Errorf("a lease of %v is too short", l.Expire)
	}
	l.times(m)
	l.readRoutes(m)
	for _, ip := range m.DNS() {
		if a, ok := netip.AddrFromSlice(ip.To4()); ok {
			l.DNS = append(l.DNS, a)
		}
	}
	if search := m.DomainSearch(); search != nil {
		l.Domains = search.Labels
	} else if name := m.DomainName(); name != "" {
		l.Domains = []string{name}
	}
	if mtu, err := dhcpv4.GetUint16(dhcpv4.OptionInterfaceMTU, m.Options); err == nil && mtu >= minMTU {
		l.MTU = int(mtu)
	}
	return l, nil
}

// minMTU is the least that an interface with IPv4 may have (RFC 2132, section 5.1).
const minMTU = 68

// times are T1 and T2, which are the server's if they make sense (RFC 2131, section 4.4.5).
func (l *Lease) times(m *dhcpv4.DHCPv4) {
	l.Rebind = m.IPAddressRebindingTime(0)
	if l.Rebind <= 0 || l.Rebind >= l.Expire {
		l.Rebind = l.Expire / 8 * 7
	}
	l.Renew = m.IPAddressRenewalTime(0)
	if l.Renew <= 0 || l.Renew >= l.Rebind {
		l.Renew = min(l.Expire/2, l.Rebind)
	}
}

// readRoutes reads the default route and others. Classless routes take the place of the router (RFC
// 3442).
func (l *Lease) readRoutes(m *dhcpv4.DHCPv4) {
	routes := m.ClasslessStaticRoute()
	if len(routes) == 0 {
		for _, ip := range m.Router() {
			if a, ok := netip.AddrFromSlice(ip.To4()); ok && l.onLink(a) {
				l.Gateway = a
				return
			}
		}
		return
	}
	for _, r := range routes {
		to, ok := netip.AddrFromSlice(r.Dest.IP.To4())
		ones, _ := r.Dest.Mask.Size()
		hop, hopOK := netip.AddrFromSlice(r.Router.To4())
		if !ok || !hopOK {
			continue
		}
		if hop.IsUnspecified() {
			hop = netip.Addr{}
		} else if !l.onLink(hop) {
			continue // the interface could not reach it
		}
		if destination := netip.PrefixFrom(to, ones).Masked(); ones > 0 {
			l.Routes = append(l.Routes, Route{Destination: destination, Router: hop})
		} else if hop.IsValid() && !l.Gateway.IsValid() {
			l.Gateway = hop
		}
	}
}

// onLink says whether a router is another address of the subnet.
func (l *Lease) onLink(a netip.Addr) bool {
	return l.Address.Masked().Contains(a) && a != l.Address.Addr()
}
