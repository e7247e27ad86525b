// SPDX-License-Identifier: Apache-2.0

package portbinding

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/dhcp/snoop"
)

// leased is the attachment of a machine that asks DHCP servers of others: with the address of the
// lease that it has already, since it has moved here, or none.
func (b *Binder) leased(ctx context.Context, o *v1alpha1.Port, plan attachment.Plan) (attachment.Attachment, error) {
	plan.Leased = true
	// The view has no leases.
	now, err := b.API.Port(ctx, o.Namespace, o.Name)
	if err != nil {
		return attachment.Attachment{}, fmt.Errorf("its lease: %w", err)
	}
	at, err := b.allocate(ctx, plan)
	lease, valid := leaseOf(now, time.Now())
	if err != nil || !valid {
		return at, err
	}
	moved, err := b.Store.Readdress(at.Key, []netip.Prefix{lease.Address})
	if err != nil {
		b.Log.Warn("a machine has a lease of an address that it cannot have here; it may ask for another one",
			"port", at.PortKey(), "address", lease.Address, "err", err)
		return at, nil
	}
	b.Leases.Adopt(moved, lease)
	return moved, nil
}

// leaseOf is the lease that a Port's status shows; false if it is none that is valid.
func leaseOf(o *v1alpha1.Port, now time.Time) (snoop.Lease, bool) {
	l := o.Status.Lease
	if l == nil || l.ExpireTime == nil || !now.Before(l.ExpireTime.Time) {
		return snoop.Lease{}, false
	}
	for _, text := range l.Addresses {
		if a, err := netip.ParseAddr(text); err == nil && a.Is4() {
			return snoop.Lease{
				Address: netip.PrefixFrom(a, a.BitLen()), Expires: l.ExpireTime.Time, HostName: l.HostName,
			}, true
		}
	}
	return snoop.Lease{}, false
}
