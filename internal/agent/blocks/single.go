// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/view"
	"coelan.io/coelan/internal/translate"
)

// TakenError says that somebody else has an address.
type TakenError struct {
	Network string
	Addr    netip.Addr
	By      string // who has it, or what its node says
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("address %s of network %s is taken: %s", e.Addr, e.Network, e.By)
}

// grantTimeout is how long the node of a block has for its answer.
const grantTimeout = 10 * time.Second

// ClaimSingle makes an address this node's for a Port, namespace/name. Where it is in another node's block it waits for
// that node. Errors: *TakenError, those of the API, and that there was no answer.
func (b *Blocks) ClaimSingle(ctx context.Context, network *v1alpha1.Network, addr netip.Addr, port string) error {
	p := netip.PrefixFrom(addr, addr.BitLen())
	single, err := b.api.CreateBlock(ctx, b.object(network, p, port))
	if apierrors.IsAlreadyExists(err) {
		single, err = b.api.Block(ctx, translate.BlockName(network.Name, p))
		if err == nil && (single.Spec.Node != b.node || single.Spec.Port != port) {
			return &TakenError{network.Name, addr, fmt.Sprintf("port %s on node %s has it", single.Spec.Port, single.Spec.Node)}
		}
	}
	if err != nil {
		return fmt.Errorf("claim address %s of network %s: %w", addr, network.Name, err)
	}
	all, err := b.api.Blocks(ctx, network.Name)
	if err != nil {
		return fmt.Errorf("list the blocks of network %s: %w", network.Name, err)
	}
	b.honour(all)
	for _, o := range all {
		cover, err := netip.ParsePrefix(o.Spec.CIDR)
		if err == nil && !cover.IsSingleIP() && cover.Contains(addr) && o.Spec.Node != b.node {
			return b.awaitGrant(ctx, single, addr, o.Spec.Node)
		}
	}
	return nil
}

// awaitGrant waits for the answer of the node whose block an address is in.
func (b *Blocks) awaitGrant(ctx context.Context, single *v1alpha1.AddressBlock, addr netip.Addr, node string) error {
	ctx, cancel := context.WithTimeout(ctx, grantTimeout)
	defer cancel()
	answered := func(s view.State) bool {
		o, ok := s.Blocks[single.Name]
		return ok && o.UID == single.UID && meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionGranted) != nil
	}
	s, ok := b.view.Await(ctx, answered)
	if !ok {
		return fmt.Errorf("address %s of network %s: node %s, which has its block, has not answered", addr, single.Spec.Network, node)
	}
	c := meta.FindStatusCondition(s.Blocks[single.Name].Status.Conditions, v1alpha1.ConditionGranted)
	if c.Status == "False" {
		return &TakenError{single.Spec.Network, addr, "node " + node + " says: " + c.Message}
	}
	return nil
}

// UnclaimSingle undoes ClaimSingle; another Port's claim stays.
func (b *Blocks) UnclaimSingle(ctx context.Context, network string, addr netip.Addr, port string) error {
	name := translate.BlockName(network, netip.PrefixFrom(addr, addr.BitLen()))
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
	for _, o := range b.view.State().BlockList() {
		if p, err := netip.ParsePrefix(o.Spec.CIDR); err == nil && p.IsSingleIP() && o.Spec.Node == b.node {
			list = append(list, o)
		}
	}
	return list
}
