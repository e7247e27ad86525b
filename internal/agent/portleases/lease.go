// SPDX-License-Identifier: Apache-2.0

package portleases

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend"
)

// grant is what a machine has by one protocol.
type grant struct {
	known            bool // the machine has asked, or it was read from the API
	hostName         string
	addresses        []string // none: it has given them back
	renewed, expires time.Time
}

// grants are what a machine has by both protocols.
type grants struct{ v4, v6 grant }

// of is the grant of one of the protocols.
func (g *grants) of(ipv6 bool) *grant {
	if ipv6 {
		return &g.v6
	}
	return &g.v4
}

// add takes what a machine has got, or given back, at a time.
func (g *grants) add(l backend.Lease, now time.Time) {
	n := grant{known: true, hostName: l.HostName, renewed: now, expires: now.Add(l.Duration)}
	for _, a := range l.Addresses {
		n.addresses = append(n.addresses, a.String())
	}
	*g.of(l.IPv6) = n
}

// restore takes what the API has of the protocols that this agent has not seen the machine ask by:
// another agent has written it, or this one before it was started anew.
func (g *grants) restore(have *v1alpha1.PortLease) {
	for _, ipv6 := range []bool{false, true} {
		to := g.of(ipv6)
		if to.known {
			continue
		}
		to.known = true
		if have == nil || have.RenewTime == nil || have.ExpireTime == nil {
			continue
		}
		to.renewed, to.expires, to.hostName = have.RenewTime.Time, have.ExpireTime.Time, have.HostName
		for _, text := range have.Addresses {
			if a, err := netip.ParseAddr(text); err == nil && a.Is6() == ipv6 {
				to.addresses = append(to.addresses, text)
			}
		}
	}
}

// lease is what the status of the Port is to say, with the times of the newest request; nil: the
// machine has nothing. The host name is that of DHCP if the machine says one there: it may say
// another one by DHCPv6, and would have two in turn.
func (g *grants) lease(now time.Time) *v1alpha1.PortLease {
	var l *v1alpha1.PortLease
	for _, n := range []grant{g.v4, g.v6} {
		if len(n.addresses) == 0 || !n.expires.After(now) {
			continue
		}
		if l == nil {
			l = &v1alpha1.PortLease{}
		}
		l.HostName = cmp.Or(l.HostName, n.hostName)
		l.Addresses = append(l.Addresses, n.addresses...)
		if l.RenewTime == nil || n.renewed.After(l.RenewTime.Time) {
			l.RenewTime, l.ExpireTime = apiTime(n.renewed), apiTime(n.expires)
		}
	}
	return l
}

// expires is when the last of the addresses expire.
func (g *grants) expires() time.Time { return latest(g.v4.expires, g.v6.expires) }

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// apiTime is a time as the API has it, in whole seconds.
func apiTime(t time.Time) *metav1.Time { return &metav1.Time{Time: t.Truncate(time.Second)} }

// renewal says whether two leases differ in their times at most.
func renewal(a, b *v1alpha1.PortLease) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.HostName == b.HostName && slices.Equal(a.Addresses, b.Addresses)
}

// same says whether two leases are the same to the API.
func same(a, b *v1alpha1.PortLease) bool {
	return renewal(a, b) && (a == nil || a.RenewTime.Equal(b.RenewTime) && a.ExpireTime.Equal(b.ExpireTime))
}

// patch is the part of a Port's status that has the lease. It names all fields, since what a merge
// patch does not name stays.
func patch(l *v1alpha1.PortLease) map[string]any {
	if l == nil {
		return map[string]any{"lease": nil}
	}
	fields := map[string]any{
		"hostName": nil, "addresses": l.Addresses, "renewTime": l.RenewTime, "expireTime": l.ExpireTime,
	}
	if l.HostName != "" {
		fields["hostName"] = l.HostName
	}
	return map[string]any{"lease": fields}
}
