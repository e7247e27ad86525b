// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/allocate"
	"coelan.io/coelan/internal/names"
)

// egressAddresses are those that fail over which a Router's gateway or an Egress has.
type egressAddresses struct {
	has     []netip.Addr    // in effect, sorted
	blocks  map[string]bool // by name: all that are kept
	refused []allocate.EgressRefusal
	again   time.Duration // until it is worth another look if nothing happens; 0: never
}

// texts are the addresses in effect, as a status has them.
func (s *egressAddresses) texts() (list []string) {
	for _, a := range s.has {
		list = append(list, a.String())
	}
	return list
}

func (s *egressAddresses) keeps(b *v1alpha1.AddressBlock) bool { return s.blocks[b.Name] }

// egress claims what a verdict on addresses of the named Network that fail over wants. Of the
// blocks that the claimant had before it also keeps those that others have not taken the place of
// yet. The Network may be nil with a reason.
func (c claims) egress(ctx context.Context, by claimant, name string, network *v1alpha1.Network,
	v allocate.EgressVerdict, before []*v1alpha1.AddressBlock,
) (s egressAddresses, err error) {
	s.blocks = map[string]bool{}
	before = slices.DeleteFunc(slices.Clone(before), func(b *v1alpha1.AddressBlock) bool {
		return b.Spec.Network != name
	})
	switch {
	case v.Keep:
		s.keep(by, before, func(netip.Addr) bool { return true })
	case v.Reason == "":
		if err := s.claim(ctx, c, by, network, v); err != nil {
			return s, err
		}
		s.keep(by, before, s.lacks(v))
	}
	slices.SortFunc(s.has, netip.Addr.Compare)
	return s, nil
}

// claim is egress for what is new.
func (s *egressAddresses) claim(ctx context.Context, c claims, by claimant, network *v1alpha1.Network,
	v allocate.EgressVerdict,
) error {
	blocks, ports, err := c.blocksAndPorts(ctx, network)
	if err != nil {
		return err
	}
	for _, a := range v.Fixed {
		refusal, err := c.fixed(ctx, by, blocks, []netip.Addr{a}, ports)
		if err != nil {
			return err
		}
		s.add(network.Name, []netip.Addr{a}, refusal, a.Is4())
	}
	for _, pools := range v.Pools {
		addresses, refusal, err := c.several(ctx, by, blocks, pools, ports, v.Count)
		if err != nil {
			return err
		}
		s.add(network.Name, addresses, refusal, pools[0].Prefix.Addr().Is4())
	}
	return nil
}

// keep keeps blocks of addresses of which stays is true.
func (s *egressAddresses) keep(by claimant, before []*v1alpha1.AddressBlock, stays func(netip.Addr) bool) {
	for _, b := range before {
		a, single := address(b)
		if !single || !by.claimed(b) || s.blocks[b.Name] || !stays(a) {
			continue
		}
		s.blocks[b.Name] = true
		if slices.Contains(by.had, a) {
			s.has = append(s.has, a)
		}
	}
}

// lacks says of addresses whether none of their family is had although some were wanted: what has
// addresses of a family keeps them until it has others.
func (s *egressAddresses) lacks(v allocate.EgressVerdict) func(netip.Addr) bool {
	has, refused := slices.Clone(s.has), slices.Concat(v.Refused, s.refused)
	return func(a netip.Addr) bool {
		return !slices.ContainsFunc(has, func(o netip.Addr) bool { return o.Is4() == a.Is4() }) &&
			slices.ContainsFunc(refused, func(r allocate.EgressRefusal) bool { return r.IPv4 == a.Is4() })
	}
}

// add notes the addresses of a family that were claimed. With a refusal the last of them is not the
// claimant's, or not yet.
func (s *egressAddresses) add(network string, addresses []netip.Addr, refusal *outcome, is4 bool) {
	for _, a := range addresses {
		s.blocks[names.BlockName(network, netip.PrefixFrom(a, a.BitLen()))] = true
	}
	if refusal == nil {
		s.has = append(s.has, addresses...)
		return
	}
	if n := len(addresses); refusal.reason != v1alpha1.ReasonExhausted && n > 0 {
		addresses = addresses[:n-1]
	}
	s.has = append(s.has, addresses...)
	s.refused = append(s.refused, allocate.EgressRefusal{
		Reason: refusal.reason, Message: refusal.message + egressFixes[refusal.reason], IPv4: is4,
	})
	s.again = max(s.again, refusal.again)
}

// egressFixes are what can be done about a refusal.
var egressFixes = map[string]string{
	v1alpha1.ReasonAddressTaken: ": ask for another one, or for none",
	v1alpha1.ReasonExhausted:    ": add a subnet to the Network, or give back addresses that are not needed",
	reasonWaiting:               ": is that node's agent running?",
}

// releaseOf gives back an owner's blocks but those that are kept, if the owner is as it was judged:
// a new leader may know an older one than that which the blocks were claimed for. Live is an object
// of the owner's kind.
func (c claims) releaseOf(ctx context.Context, owner, live client.Object, blocks []*v1alpha1.AddressBlock,
	kept func(*v1alpha1.AddressBlock) bool,
) error {
	blocks = slices.DeleteFunc(slices.Clone(blocks), kept)
	if len(blocks) == 0 {
		return nil
	}
	if err := c.Live.Get(ctx, client.ObjectKeyFromObject(owner), live); err != nil {
		return fmt.Errorf("%T %s: %w", owner, owner.GetName(), err)
	}
	if live.GetUID() != owner.GetUID() || live.GetGeneration() != owner.GetGeneration() {
		return apierrors.NewConflict(schema.GroupResource{Group: v1alpha1.GroupVersion.Group}, owner.GetName(),
			errors.New("it has changed since it was judged"))
	}
	for _, b := range blocks {
		if err := c.Remove(ctx, b); err != nil {
			return fmt.Errorf("delete addressblock %s: %w", b.Name, err)
		}
	}
	return nil
}
