// SPDX-License-Identifier: Apache-2.0

package blockipam

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/names"
)

// blocksOf are the blocks of several addresses of a Network that are known, with those that were
// just made. The caller holds claiming.
func (b *Blocks) blocksOf(network string, s *state) map[string]*v1alpha1.AddressBlock {
	all := map[string]*v1alpha1.AddressBlock{}
	b.mu.Lock()
	b.index.follow(b.view.State().Blocks, b.node)
	maps.Copy(all, b.index.blocks[network])
	b.mu.Unlock()
	for name := range all {
		delete(s.made, name)
	}
	for name, o := range s.made {
		all[name] = o.AddressBlock
	}
	return all
}

// usable are the prefixes of the node's own blocks of a subnet, in order. What is not known of one
// is asked for.
func (b *Blocks) usable(ctx context.Context, network intent.Network, s *state, sp spec) ([]netip.Prefix, error) {
	var own []netip.Prefix
	for name, o := range b.blocksOf(network.Name, s) {
		p, err := netip.ParsePrefix(o.Spec.CIDR)
		if err != nil || p.IsSingleIP() || o.Spec.Node != b.node || !sp.Subnet.Contains(p.Addr()) {
			continue
		}
		if s.unsure[name] {
			now, err := b.api.Block(ctx, name)
			if apierrors.IsNotFound(err) || err == nil && now.UID != o.UID {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("addressblock %s: %w", name, err)
			}
			delete(s.unsure, name)
		}
		if s.unlisted[name] {
			if err := b.relist(ctx, network.Name, s, name); err != nil {
				return nil, err
			}
		}
		own = append(own, p.Masked())
	}
	slices.SortFunc(own, func(x, y netip.Prefix) int { return x.Addr().Compare(y.Addr()) })
	return own, nil
}

// claim makes a block of the subnet this node's own. It begins somewhere that depends on the node's
// name, so that nodes that start at the same time seldom want the same one.
func (b *Blocks) claim(ctx context.Context, network intent.Network, s *state, sp spec) (netip.Prefix, error) {
	sp = sp.of(b.Subnets[network.Name])
	taken := b.taken(network.Name, s, sp)
	for p := range sp.candidates(b.node) {
		if slices.ContainsFunc(taken, p.Overlaps) {
			continue
		}
		name := names.BlockName(network.Name, p)
		o, err := b.api.CreateBlock(ctx, b.object(network, p, ""))
		if apierrors.IsAlreadyExists(err) {
			if o, err = b.api.Block(ctx, name); apierrors.IsNotFound(err) || err == nil && o.Spec.Node != b.node {
				continue
			}
		}
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("claim block %s of network %s: %w", p, network.Name, err)
		}
		s.made[name], s.unlisted[name] = made{o, time.Now()}, true
		delete(s.unsure, name)
		b.log.Info("address block claimed", "network", network.Name, "block", p)
		return p, b.relist(ctx, network.Name, s, name)
	}
	return netip.Prefix{}, &ExhaustedError{network.Name, sp.Subnet, sp.parts}
}

// taken are the known blocks of a subnet, of all owners.
func (b *Blocks) taken(network string, s *state, sp spec) []netip.Prefix {
	var list []netip.Prefix
	for _, o := range b.blocksOf(network, s) {
		if p, err := netip.ParsePrefix(o.Spec.CIDR); err == nil && !p.IsSingleIP() && sp.Subnet.Overlaps(p) {
			list = append(list, p.Masked())
		}
	}
	return list
}

// relist honors the single addresses that were claimed before a new block.
func (b *Blocks) relist(ctx context.Context, network string, s *state, name string) error {
	all, err := b.api.Blocks(ctx, network)
	if err != nil {
		return fmt.Errorf("list the blocks of network %s: %w", network, err)
	}
	b.honor(all)
	delete(s.unlisted, name)
	return nil
}

// object is a block as it is created.
func (b *Blocks) object(network intent.Network, p netip.Prefix, port string) *v1alpha1.AddressBlock {
	o := &v1alpha1.AddressBlock{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "AddressBlock"},
		ObjectMeta: metav1.ObjectMeta{
			Name: names.BlockName(network.Name, p),
			Labels: map[string]string{
				v1alpha1.LabelManagedBy: v1alpha1.ManagedByAgent,
				v1alpha1.LabelNetwork:   names.LabelValue(network.Name),
				v1alpha1.LabelNode:      names.LabelValue(b.node),
			},
		},
		Spec: v1alpha1.AddressBlockSpec{Network: network.Name, CIDR: p.String(), Node: b.node, Port: port},
	}
	if network.UID != "" {
		o.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "Network", Name: network.Name,
			UID: types.UID(network.UID),
		}}
	}
	return o
}
