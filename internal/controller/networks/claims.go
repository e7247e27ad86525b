// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/allocate"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/names"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/internal/translate"
)

// claims makes addresses a claimant's alone: each by an AddressBlock of that one address, which the
// API server lets only one create. All that a claimant has is found by these, so nothing is lost
// with the controller's memory. Addresses that are not asked for come from blocks that no node
// hands out: those of the controller.
type claims struct{ *reconcile.Access }

// blocksOf is what is known of a Network's blocks.
type blocksOf struct {
	network *v1alpha1.Network
	pools   []translate.Pool
	byName  map[string]*v1alpha1.AddressBlock
	list    []*v1alpha1.AddressBlock
}

func (c claims) blocks(ctx context.Context, network *v1alpha1.Network) (*blocksOf, error) {
	pools, err := translate.Pools(network)
	if err != nil {
		return nil, err
	}
	list, err := reconcile.All(ctx, c, &v1alpha1.AddressBlockList{},
		client.MatchingFields{reconcile.ByNetwork: network.Name})
	if err != nil {
		return nil, err
	}
	b := &blocksOf{network: network, pools: pools, byName: map[string]*v1alpha1.AddressBlock{},
		list: reconcile.Pointers(list.Items)}
	for _, o := range b.list {
		b.byName[o.Name] = o
	}
	return b, nil
}

// blocksAndPorts are what may have an address of a Network already.
func (c claims) blocksAndPorts(ctx context.Context, network *v1alpha1.Network) (*blocksOf, []*v1alpha1.Port, error) {
	blocks, err := c.blocks(ctx, network)
	if err != nil {
		return nil, nil, err
	}
	list, err := reconcile.All(ctx, c, &v1alpha1.PortList{}, client.MatchingFields{reconcile.ByNetwork: network.Name})
	if err != nil {
		return nil, nil, err
	}
	return blocks, reconcile.Pointers(list.Items), nil
}

// held are the addresses of nodes and LoadBalancerPools, which no claimant can have, and the nodes.
func (c claims) held(ctx context.Context) ([]*corev1.Node, []allocate.Held, error) {
	list, err := reconcile.All(ctx, c, &corev1.NodeList{})
	if err != nil {
		return nil, nil, err
	}
	pools, err := reconcile.All(ctx, c, &v1alpha1.LoadBalancerPoolList{})
	if err != nil {
		return nil, nil, err
	}
	nodes := reconcile.Pointers(list.Items)
	return nodes, allocate.HeldAddresses(nodes, reconcile.Pointers(pools.Items)), nil
}

// settle claims what the verdict wants and says how far that is. What it has claimed, the Port
// keeps, also if the rest cannot be had.
func (c claims) settle(ctx context.Context, port *v1alpha1.Port, network *v1alpha1.Network, v allocate.PortVerdict,
	others []*v1alpha1.Port,
) (outcome, error) {
	blocks, err := c.blocks(ctx, network)
	if err != nil {
		return outcome{}, err
	}
	by, addresses := claimantPort(port), v.Fixed
	if refusal, err := c.fixed(ctx, by, blocks, v.Fixed, others); err != nil || refusal != nil {
		return deref(refusal), err
	}
	for _, p := range v.Pools {
		a, refusal, err := c.any(ctx, by, blocks, []translate.Pool{p}, others)
		if err != nil || refusal != nil {
			return deref(refusal), err
		}
		addresses = append(addresses, a)
	}
	o := withMAC(port, v, addresses, others)
	if network.Spec.IPAM == v1alpha1.DHCPServers {
		o.addresses = port.Status.Addresses // its node's agent writes them
	}
	return o, nil
}

func deref(o *outcome) outcome {
	if o == nil {
		return outcome{}
	}
	return *o
}

// withMAC is the outcome with the MAC as asked for, or made from the first address, or from the
// Port's UID where there are none.
func withMAC(port *v1alpha1.Port, v allocate.PortVerdict, addresses []netip.Addr, others []*v1alpha1.Port) outcome {
	o := outcome{state: settled}
	for _, a := range addresses {
		o.addresses = append(o.addresses, a.String())
	}
	if v.MAC != nil {
		o.mac = v.MAC.String()
		return o
	}
	mac := allocate.MACOfUID(string(port.UID))
	if len(addresses) > 0 {
		mac = reserved.PodMAC(addresses[0])
	}
	if owner := allocate.MACOwner(port, mac, others); owner != "" {
		return refused(v1alpha1.ReasonMACTaken,
			fmt.Sprintf("MAC %s, which follows from the address, is that of %s: set spec.mac", mac, owner))
	}
	o.mac = mac.String()
	return o
}

// fixed claims addresses that were asked for, unless one of them is known to be taken. A node that
// hands out the block that one is in says whether it is free.
func (c claims) fixed(ctx context.Context, by claimant, b *blocksOf, addresses []netip.Addr,
	others []*v1alpha1.Port,
) (*outcome, error) {
	for _, a := range addresses {
		if owner := b.owner(by, a); owner != "" {
			return refusal(v1alpha1.ReasonAddressTaken, "%s is that of %s", a, owner), nil
		}
	}
	for _, a := range addresses {
		claim, owner, err := c.claim(ctx, by, b, a)
		if err != nil {
			return nil, err
		}
		if owner != "" {
			return refusal(v1alpha1.ReasonAddressTaken, "%s is that of %s", a, owner), nil
		}
		if o, err := c.granted(ctx, by, b, claim, a, others); o != nil || err != nil {
			return o, err
		}
	}
	return nil, nil
}

// askAgain is how long a node's refusal is believed if no Port shows the owner of the address.
const askAgain = 30 * time.Second

// granted says why an address that was claimed is not the claimant's own yet, nil if it is. Where
// no node hands it out, it is, and stays so when a node takes the block around it. Of the other
// Ports, one may be shown to have it.
func (c claims) granted(ctx context.Context, by claimant, b *blocksOf, claim *v1alpha1.AddressBlock,
	a netip.Addr, others []*v1alpha1.Port,
) (*outcome, error) {
	covering := b.covering(a)
	unanswered := &outcome{state: waiting, reason: reasonWaiting}
	if covering != nil {
		unanswered.message = fmt.Sprintf("node %s, which hands out %s, has not said yet whether %s is free",
			covering.Spec.Node, covering.Spec.CIDR, a)
	}
	node := ""
	if covering != nil {
		node = covering.Spec.Node
	}
	answer := translate.Answer(claim, node)
	switch {
	case answer != nil && answer.Status == metav1.ConditionTrue:
		return nil, nil
	case node == "":
		return nil, c.grant(ctx, claim)
	case answer == nil && unanswerable(claim, node):
		// The node of the block gets another claim to answer.
		return unanswered, c.claimAgain(ctx, by, b, claim, a)
	case answer == nil:
		return unanswered, nil
	}
	o := refusal(v1alpha1.ReasonAddressTaken, "%s is taken, says node %s: %s", a, covering.Spec.Node, answer.Message)
	for _, other := range others {
		if slices.Contains(other.Status.Addresses, a.String()) && key(other) != by.spec.Port {
			o.message = fmt.Sprintf("%s is that of port %s", a, key(other))
			return o, nil
		}
	}
	if wait := askAgain - time.Since(answer.LastTransitionTime.Time); wait > 0 {
		o.again = wait
		return o, nil
	}
	return o, c.claimAgain(ctx, by, b, claim, a)
}

// unanswerable reports whether a node cannot answer a claim without an answer that counts: another
// node has answered, and an answer is final, or another node is the one that may.
func unanswerable(claim *v1alpha1.AddressBlock, node string) bool {
	return meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionGranted) != nil ||
		claim.Spec.Grantor != "" && claim.Spec.Grantor != node
}

// claimAgain replaces a claim that has an answer by one that has none.
func (c claims) claimAgain(ctx context.Context, by claimant, b *blocksOf,
	claim *v1alpha1.AddressBlock, a netip.Addr,
) error {
	if err := c.Remove(ctx, claim); err != nil {
		return err
	}
	delete(b.byName, claim.Name)
	_, _, err := c.claim(ctx, by, b, a)
	return err
}

// grant says that an address is its claimant's.
func (c claims) grant(ctx context.Context, claim *v1alpha1.AddressBlock) error {
	now := claim.DeepCopy()
	reconcile.SetCondition(&now.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionGranted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonGranted,
		Message: translate.GrantMessage(""), ObservedGeneration: claim.Generation,
	})
	if err := c.Status().Patch(ctx, now, client.MergeFrom(claim)); err != nil {
		return fmt.Errorf("status of addressblock %s: %w", claim.Name, err)
	}
	return nil
}

func refusal(reason, format string, args ...any) *outcome {
	o := refused(reason, fmt.Sprintf(format, args...))
	return &o
}

// owner names what else has claimed an address, as far as is known; "" if nothing has.
func (b *blocksOf) owner(by claimant, a netip.Addr) string {
	claim := b.claimOf(a)
	switch {
	case claim == nil || by.claimed(claim):
		return ""
	case translate.ClaimedOutside(claim):
		return translate.ClaimedFor(claim)
	case claim.Spec.Port == "" || claim.Spec.Port == by.spec.Port: // of a node that names the Port
		return "addressblock " + claim.Name
	}
	return "port " + claim.Spec.Port
}

// claim creates the block of one address for the claimant, or finds that it has it. Otherwise owner
// names the one that has it.
func (c claims) claim(ctx context.Context, by claimant, b *blocksOf,
	a netip.Addr,
) (claim *v1alpha1.AddressBlock, owner string, err error) {
	prefix := netip.PrefixFrom(a, a.BitLen())
	claim = b.byName[names.BlockName(b.network.Name, prefix)]
	if claim == nil {
		if claim, err = c.create(ctx, b, prefix, by.spec); err != nil {
			return nil, "", err
		}
	}
	return claim, b.owner(by, a), nil
}

// create makes a block of the Network, which names what it is for, or returns the one that is
// there.
func (c claims) create(ctx context.Context, b *blocksOf, prefix netip.Prefix,
	spec v1alpha1.AddressBlockSpec,
) (*v1alpha1.AddressBlock, error) {
	spec.Network, spec.CIDR = b.network.Name, prefix.String()
	block := &v1alpha1.AddressBlock{
		ObjectMeta: metav1.ObjectMeta{
			Name: names.BlockName(b.network.Name, prefix),
			Labels: map[string]string{
				v1alpha1.LabelManagedBy: v1alpha1.ManagedByController,
				v1alpha1.LabelNetwork:   names.LabelValue(b.network.Name),
			},
		},
		Spec: spec,
	}
	if covering := b.covering(prefix.Addr()); prefix.IsSingleIP() && covering != nil {
		block.Spec.Grantor = covering.Spec.Node
	}
	err := c.Create(ctx, block)
	if apierrors.IsAlreadyExists(err) {
		err = c.Live.Get(ctx, client.ObjectKeyFromObject(block), block)
	}
	if err != nil {
		return nil, fmt.Errorf("addressblock %s: %w", block.Name, err)
	}
	b.byName[block.Name] = block
	b.list = append(b.list, block)
	return block, nil
}

// covering is the block of several addresses that one of them is in, or nil.
func (b *blocksOf) covering(a netip.Addr) *v1alpha1.AddressBlock {
	for _, p := range b.pools {
		if p.Prefix.Contains(a) {
			return b.byName[names.BlockName(b.network.Name, netip.PrefixFrom(a, p.BlockBits))]
		}
	}
	return nil
}

// address is that of a block of a single one.
func address(b *v1alpha1.AddressBlock) (netip.Addr, bool) {
	prefix, err := netip.ParsePrefix(b.Spec.CIDR)
	return prefix.Addr(), err == nil && prefix.IsSingleIP()
}

// release gives back what was claimed, but for these addresses of a Network.
func (c claims) release(ctx context.Context, by claimant, network string, kept ...netip.Addr) error {
	list, err := reconcile.All(ctx, c, &v1alpha1.AddressBlockList{}, client.MatchingFields{by.index: by.key()})
	if err != nil {
		return err
	}
	for _, b := range reconcile.Pointers(list.Items) {
		if a, single := address(b); single && b.Spec.Network == network && slices.Contains(kept, a) {
			continue
		}
		if err := c.Remove(ctx, b); err != nil {
			return fmt.Errorf("delete addressblock %s: %w", b.Name, err)
		}
	}
	return nil
}
