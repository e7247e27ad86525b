// SPDX-License-Identifier: Apache-2.0

package blockipam

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/names"
	"coelan.io/coelan/internal/translate"
)

// TakenError says that an address has another owner.
type TakenError struct {
	Network string
	Addr    netip.Addr
	By      string // its owner, or what its node says
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("address %s of network %s is taken: %s", e.Addr, e.Network, e.By)
}

// grantTimeout is how long the node of a block has for its answer.
const grantTimeout = 10 * time.Second

// ClaimSingle makes an address this node's for a Port, namespace/name. Where it is in
// another node's block it waits for that node. Errors: *TakenError, those of the API, and
// that there was no answer.
func (b *Blocks) ClaimSingle(ctx context.Context, network intent.Network, addr netip.Addr, port string) error {
	p := netip.PrefixFrom(addr, addr.BitLen())
	single, err := b.api.CreateBlock(ctx, b.single(network, p, port, around(network, addr, b.view.State().Blocks.Get)))
	if apierrors.IsAlreadyExists(err) {
		single, err = b.api.Block(ctx, names.BlockName(network.Name, p))
		if err == nil && (single.Spec.Node != b.node || single.Spec.Port != port) {
			return &TakenError{network.Name, addr, translate.ClaimedFor(single) + " has it"}
		}
	}
	if err != nil {
		return fmt.Errorf("claim address %s of network %s: %w", addr, network.Name, err)
	}
	all, err := b.api.Blocks(ctx, network.Name)
	if err != nil {
		return fmt.Errorf("list the blocks of network %s: %w", network.Name, err)
	}
	b.honor(all)
	around := around(network, addr, func(name string) *v1alpha1.AddressBlock {
		if i := slices.IndexFunc(all, func(o *v1alpha1.AddressBlock) bool { return o.Name == name }); i >= 0 {
			return all[i]
		}
		return nil
	})
	if around == nil || around.Spec.Node == b.node {
		return nil
	}
	if !answerable(single, around) {
		if single, err = b.claimAgain(ctx, single, b.single(network, p, port, around)); err != nil {
			return fmt.Errorf("claim address %s of network %s: %w", addr, network.Name, err)
		}
	}
	return b.awaitGrant(ctx, single, addr, around)
}

// single is a claim of an address, which names the node that may answer.
func (b *Blocks) single(network intent.Network, p netip.Prefix, port string,
	around *v1alpha1.AddressBlock,
) *v1alpha1.AddressBlock {
	o := b.object(network, p, port)
	if around != nil && around.Spec.Node != b.node {
		o.Spec.Grantor = around.Spec.Node
	}
	return o
}

// answerable reports whether a claim has an answer that counts, or can get one from the node of the
// block: others may have answered a claim that names no node, as when the block was not known yet,
// and an answer is final.
func answerable(claim, around *v1alpha1.AddressBlock) bool {
	if translate.Answer(claim, around.Spec.Node) != nil {
		return true
	}
	return meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionGranted) == nil &&
		claim.Spec.Grantor == around.Spec.Node
}

// claimAgain replaces a claim of this node.
func (b *Blocks) claimAgain(ctx context.Context, before, now *v1alpha1.AddressBlock) (*v1alpha1.AddressBlock, error) {
	if err := b.api.DeleteBlock(ctx, before.Name, before.UID); err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	return b.api.CreateBlock(ctx, now)
}

// around is the block that is handed out with an address in it, nil if there is none. One of
// another length, or of another name, is none: its node could take addresses from others' blocks.
func around(network intent.Network, addr netip.Addr, block func(name string) *v1alpha1.AddressBlock,
) *v1alpha1.AddressBlock {
	for _, sp := range specs(network) {
		if !sp.Subnet.Contains(addr) {
			continue
		}
		p := netip.PrefixFrom(addr, sp.BlockBits).Masked()
		if o := block(names.BlockName(network.Name, p)); o != nil && o.Spec.CIDR == p.String() {
			return o
		}
	}
	return nil
}

// awaitGrant waits for the answer of the node that owns the block around an address; the
// controller's blocks are of no node.
func (b *Blocks) awaitGrant(ctx context.Context, single *v1alpha1.AddressBlock, addr netip.Addr,
	around *v1alpha1.AddressBlock,
) error {
	node := around.Spec.Node
	ctx, cancel := context.WithTimeout(ctx, grantTimeout)
	defer cancel()
	answered := func(s apicache.State) bool {
		o := s.Blocks.Get(single.Name)
		return o != nil && o.UID == single.UID && translate.Answer(o, node) != nil
	}
	s, ok := b.view.Await(ctx, answered)
	if !ok {
		return fmt.Errorf("address %s of network %s: node %s, which has its block, has not answered", addr,
			single.Spec.Network, node)
	}
	if c := translate.Answer(s.Blocks.Get(single.Name), node); c.Status == "False" {
		return &TakenError{single.Spec.Network, addr, c.Message}
	}
	return nil
}

// UnclaimSingle undoes ClaimSingle; another Port's claim stays.
func (b *Blocks) UnclaimSingle(ctx context.Context, network string, addr netip.Addr, port string) error {
	name := names.BlockName(network, netip.PrefixFrom(addr, addr.BitLen()))
	o, err := b.api.Block(ctx, name)
	if apierrors.IsNotFound(err) || err == nil && (o.Spec.Node != b.node || o.Spec.Port != port) {
		return nil
	}
	if err == nil {
		err = b.api.DeleteBlock(ctx, name, o.UID)
	}
	if err != nil {
		return fmt.Errorf("give back address %s of network %s: %w", addr, network, err)
	}
	return nil
}

// Singles are the single addresses that this node has claimed, as far as the view shows.
func (b *Blocks) Singles() []*v1alpha1.AddressBlock {
	var list []*v1alpha1.AddressBlock
	for o := range b.view.State().Blocks.Values() {
		if p, err := netip.ParsePrefix(o.Spec.CIDR); err == nil && p.IsSingleIP() && o.Spec.Node == b.node {
			list = append(list, o)
		}
	}
	return list
}
