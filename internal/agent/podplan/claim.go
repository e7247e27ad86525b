// SPDX-License-Identifier: Apache-2.0

package podplan

import (
	"context"
	"errors"
	"net/netip"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/blockipam"
	"coelan.io/coelan/internal/allocate"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/names"
	"coelan.io/coelan/internal/translate"
)

// Claim implements cni.Planner. Addresses of the node's podCIDRs are its own anyway.
func (p *Planner) Claim(ctx context.Context, at attachment.Attachment) error {
	if !at.BlockSpace {
		return nil
	}
	s := p.View.State()
	if p.claimed(s, at) {
		return nil
	}
	if s.Networks.Get(at.NetworkName) == nil {
		return early(v1alpha1.ReasonNetworkNotFound, "network %s is not known any more", at.NetworkName)
	}
	if other := sameMAC(s, at); other != "" {
		return refused(v1alpha1.ReasonMACTaken, "MAC %s of network %s belongs to port %s", at.MAC, at.NetworkName,
			other)
	}
	if at.FixedAddresses {
		n, err := p.awaitNetwork(ctx, named(at.NetworkName))
		if err != nil {
			return err
		}
		for _, a := range at.Addresses {
			err := p.Blocks.ClaimSingle(ctx, n.Network, a.Addr(), at.PortKey())
			var taken *blockipam.TakenError
			switch {
			case errors.As(err, &taken):
				return refused(v1alpha1.ReasonAddressTaken, "%v", err)
			case err != nil:
				return early(v1alpha1.ReasonNetworkNotReady, "%v", err)
			}
		}
	}
	if err := p.Ports.Write(ctx, at); err != nil {
		return early(v1alpha1.ReasonNetworkNotReady, "port %s: %v", at.PortKey(), err)
	}
	return nil
}

// claimed says that the view shows everything that Claim makes.
func (p *Planner) claimed(s apicache.State, at attachment.Attachment) bool {
	port := s.Ports.Get(at.PortKey())
	if port == nil || port.Spec.Pod == nil || port.Spec.Pod.UID != at.PodUID || port.Status.Node != p.Node {
		return false
	}
	if !at.FixedAddresses {
		return true
	}
	for _, a := range at.Addresses {
		single := s.Blocks.Get(names.BlockName(at.NetworkName, netip.PrefixFrom(a.Addr(), a.Addr().BitLen())))
		if single == nil || single.Spec.Node != p.Node || single.Spec.Port != at.PortKey() {
			return false
		}
	}
	return true
}

// sameMAC is the Port on the same Network that has, or asks for, the MAC of an attachment; "" if
// none has. A Port that the Network does not take asks in vain, also before the controller says so.
func sameMAC(s apicache.State, at attachment.Attachment) string {
	n := s.Networks.Get(at.NetworkName)
	for key, o := range s.Ports.All() {
		if key == at.PortKey() || o.Spec.Network != at.NetworkName {
			continue
		}
		asks := allocate.AsksForMAC(o, at.MAC) && translate.MayAttach(n, s.Namespaces.Get(o.Namespace), o.Spec.Node)
		if asks || translate.SameMAC(o.Status.MAC, at.MAC) {
			return key
		}
	}
	return ""
}

// Unclaim implements cni.Planner.
func (p *Planner) Unclaim(_ context.Context, at attachment.Attachment) error {
	if at.BlockSpace {
		p.Ports.Remove(at)
	}
	return nil
}
