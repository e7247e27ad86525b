// SPDX-License-Identifier: Apache-2.0

package blockipam

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/names"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/translate"
)

// Run answers for this node's blocks, says how much of them is used, and gives back those of
// Networks that no attachment is on, until ctx ends.
func (b *Blocks) Run(ctx context.Context) error {
	backoff := retry.New(minRetry, maxRetry)
	for {
		changed := b.view.Changes()
		soon, err := b.tend(ctx)
		again := backoff.After(err)
		switch {
		case err != nil && ctx.Err() == nil:
			b.log.Warn("cannot update this node's address blocks, retrying", "err", err)
		case soon > 0:
			again = time.After(soon)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-b.wake:
		case <-again:
			continue
		}
		retry.Sleep(ctx, settle)
	}
}

// tend does all that is due, and says how soon to look again; 0: when something changes. It goes on
// after an error.
func (b *Blocks) tend(ctx context.Context) (soon time.Duration, err error) {
	state := b.view.State()
	own := b.follow(state)
	waiting, err := b.shown(ctx, state)
	if waiting {
		soon = 2 * showTimeout
	}
	errs := []error{err, b.answer(ctx, b.honorUnsettled()), b.reclaim(ctx, state)}
	b.letGo()
	attached := map[string]bool{} // Networks
	for _, at := range b.store.List() {
		attached[at.NetworkName] = true
	}
	idle := map[string]time.Time{}
	for _, o := range own {
		p, err := netip.ParsePrefix(o.Spec.CIDR)
		switch {
		case err != nil:
			continue
		case attached[o.Spec.Network]:
			errs = append(errs, b.tellUsed(ctx, o.Name, o.Spec.Network, p))
			continue
		}
		kept, since := b.keptFor(state, o.Spec.Network)
		idle[o.Spec.Network] = since
		if kept <= 0 {
			errs = append(errs, b.giveBack(ctx, o))
			continue
		}
		errs = append(errs, b.tellUsed(ctx, o.Name, o.Spec.Network, p))
		if soon == 0 || kept < soon {
			soon = kept
		}
	}
	b.idle = idle
	return soon, errors.Join(errs...)
}

// keptFor says how long the blocks are still kept of a Network that no attachment is on, and since
// when none is.
func (b *Blocks) keptFor(state apicache.State, network string) (time.Duration, time.Time) {
	since, known := b.idle[network]
	if !known {
		since = time.Now()
	}
	if n := state.Networks.Get(network); n == nil || n.DeletionTimestamp != nil {
		return 0, since
	}
	return b.Keep - time.Since(since), since
}

// follow brings the index to a State, and returns this node's blocks of several addresses.
func (b *Blocks) follow(state apicache.State) (own []*v1alpha1.AddressBlock) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.index.follow(state.Blocks, b.node)
	for _, blocks := range b.index.own {
		own = slices.AppendSeq(own, maps.Values(blocks))
	}
	return own
}

// shown leaves to the view what it shows. It says whether there is something that it
// does not show yet.
func (b *Blocks) shown(ctx context.Context, state apicache.State) (waiting bool, err error) {
	b.mu.Lock()
	networks := maps.Clone(b.networks)
	b.mu.Unlock()
	for _, s := range networks {
		s.claiming.Lock()
		for name, o := range s.made {
			if state.Blocks.Get(name) == nil && time.Since(o.at) > showTimeout {
				now, getErr := b.api.Block(ctx, name)
				if getErr != nil && !apierrors.IsNotFound(getErr) {
					err = fmt.Errorf("addressblock %s: %w", name, getErr)
				} else if getErr != nil || now.UID != o.UID {
					delete(s.made, name)
					continue
				}
			}
			if state.Blocks.Get(name) != nil {
				delete(s.made, name)
			}
		}
		waiting = waiting || len(s.made) > 0
		s.claiming.Unlock()
	}
	return waiting, err
}

// answers are single addresses inside of this node's blocks that others have claimed, and whether
// they are free.
type answers map[*v1alpha1.AddressBlock]error

// honor keeps the single addresses of this node's blocks from being handed out, of the blocks that
// the API has listed.
func (b *Blocks) honor(listed []*v1alpha1.AddressBlock) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.ownPrefixes(listed)
	for _, o := range listed {
		if a, single := singleAddress(o); single && within(own[o.Spec.Network], a) {
			_ = b.keep(o, a) // an address that is taken is answered when the view shows the claim
		}
	}
}

// honorUnsettled does so with those that the view shows, and returns the claims that wait for an
// answer. What is taken or waits is looked at again the next time.
func (b *Blocks) honorUnsettled() answers {
	b.mu.Lock()
	defer b.mu.Unlock()
	own, waiting := b.index.prefixes(), answers{}
	for name, o := range b.index.unsettled {
		a, _ := singleAddress(o)
		if !within(own[o.Spec.Network], a) {
			delete(b.index.unsettled, name)
			continue
		}
		err := b.keep(o, a)
		mayAnswer := o.Spec.Node != b.node && (o.Spec.Grantor == "" || o.Spec.Grantor == b.node) &&
			meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionGranted) == nil
		switch {
		case mayAnswer && !b.granted[o.Name+" "+string(o.UID)]:
			waiting[o] = err
		case err == nil:
			delete(b.index.unsettled, name)
		}
	}
	return waiting
}

// keep keeps a single address from being handed out, unless its claim was refused. The caller holds
// mu.
func (b *Blocks) keep(o *v1alpha1.AddressBlock, a netip.Addr) error {
	if answer := translate.Answer(o, b.node); answer != nil && answer.Status == metav1.ConditionFalse {
		return nil
	}
	h := hold{o.Spec.Network, a, o.Spec.Port}
	err := b.store.Hold(h.network, h.addr, h.port)
	if err == nil && !b.held[h] {
		b.held[h] = false
	}
	return err
}

// ownPrefixes are this node's blocks, of those that the API has listed, by Network.
func (b *Blocks) ownPrefixes(all []*v1alpha1.AddressBlock) map[string][]netip.Prefix {
	own := map[string][]netip.Prefix{}
	for _, o := range all {
		if p, err := netip.ParsePrefix(o.Spec.CIDR); err == nil && !p.IsSingleIP() && o.Spec.Node == b.node {
			own[o.Spec.Network] = append(own[o.Spec.Network], p)
		}
	}
	return own
}

// letGo lets addresses be handed out again after the cache has shown that their claims are gone.
func (b *Blocks) letGo() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for h, before := range b.held {
		switch {
		case b.index.claims(h):
			b.held[h] = true
		case before:
			b.store.Unhold(h.network, h.addr, h.port)
			delete(b.held, h)
		}
	}
}

func within(prefixes []netip.Prefix, a netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// answer writes the condition Granted.
func (b *Blocks) answer(ctx context.Context, waiting answers) error {
	var errs []error
	for o, refusal := range waiting {
		c := metav1.Condition{
			Type: v1alpha1.ConditionGranted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonGranted,
			Message: translate.GrantMessage(b.node), LastTransitionTime: metav1.Now(),
			ObservedGeneration: o.Generation,
		}
		if refusal != nil {
			c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonAddressTaken,
				translate.RefusalMessage(b.node, refusal.Error())
		}
		err := b.api.PatchBlockStatus(ctx, o.Name, map[string]any{"conditions": []metav1.Condition{c}})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			errs = append(errs,
				fmt.Errorf("answer to the claim of address %s by %s: %w", o.Spec.CIDR, translate.ClaimedFor(o), err))
			continue
		}
		b.mu.Lock()
		b.granted[o.Name+" "+string(o.UID)] = true
		b.mu.Unlock()
		b.log.Info("claim of a single address in a block answered", "block", o.Name, "by", translate.ClaimedFor(o),
			"granted", refusal == nil)
	}
	return errors.Join(errs...)
}

// tellUsed writes how much of a block is used when that has changed.
func (b *Blocks) tellUsed(ctx context.Context, name, network string, p netip.Prefix) error {
	used := b.store.Used(network, p)
	b.mu.Lock()
	last, known := b.used[name]
	b.mu.Unlock()
	if known && last == used {
		return nil
	}
	err := b.api.PatchBlockStatus(ctx, name, map[string]any{"used": used})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("status of addressblock %s: %w", name, err)
	}
	b.mu.Lock()
	b.used[name] = used
	b.mu.Unlock()
	return nil
}

// giveBack deletes a block of a Network that no attachment is on, unless one is about to be made.
func (b *Blocks) giveBack(ctx context.Context, o *v1alpha1.AddressBlock) error {
	s := b.of(o.Spec.Network)
	s.claiming.Lock()
	defer s.claiming.Unlock()
	b.mu.Lock()
	asking := s.asking
	b.mu.Unlock()
	if asking > 0 || len(b.store.On(o.Spec.Network)) > 0 {
		return nil // the request fires the trigger when it has its address
	}
	// From now on its owner is not known, until the cache shows that it is gone.
	s.unsure[o.Name] = true
	if err := b.api.DeleteBlock(ctx, o.Name, o.UID); err != nil {
		return fmt.Errorf("give back addressblock %s: %w", o.Name, err)
	}
	delete(s.made, o.Name)
	b.mu.Lock()
	delete(b.used, o.Name)
	b.mu.Unlock()
	b.log.Info("unused address block released", "network", o.Spec.Network, "block", o.Spec.CIDR)
	return nil
}

// reclaim makes blocks again that were deleted while this node has addresses of them: without one,
// other nodes do not find the way, and may hand out the same addresses. The claims of users' Ports
// are the controller's.
func (b *Blocks) reclaim(ctx context.Context, state apicache.State) error {
	if !state.Listed(kube.Blocks) {
		return nil
	}
	b.mu.Lock()
	own := b.index.prefixes()
	b.mu.Unlock()
	var errs []error
	for _, at := range b.store.List() {
		object := state.Networks.Get(at.NetworkName)
		if object == nil || !at.BlockSpace || at.FixedAddresses && at.IsPort() {
			continue
		}
		// Addresses are in use also while their Network has no effect here, and is not intent.
		network := translate.Network(object)
		for _, a := range at.Addresses {
			if at.FixedAddresses {
				errs = append(errs, b.reclaimSingle(ctx, state, network, a.Addr(), at.PortKey()))
				continue
			}
			if within(own[network.Name], a.Addr()) {
				continue
			}
			if err := b.reclaimFor(ctx, network, a.Addr()); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", at.PodRef(), err))
			}
		}
	}
	return errors.Join(errs...)
}

func (b *Blocks) reclaimSingle(ctx context.Context, state apicache.State, network intent.Network, a netip.Addr,
	port string,
) error {
	p := netip.PrefixFrom(a, a.BitLen())
	if state.Blocks.Get(names.BlockName(network.Name, p)) != nil {
		return nil
	}
	_, err := b.api.CreateBlock(ctx, b.single(network, p, port, around(network, a, state.Blocks.Get)))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("claim address %s of network %s for port %s again: %w", a, network.Name, port, err)
	}
	return nil
}

func (b *Blocks) reclaimFor(ctx context.Context, network intent.Network, a netip.Addr) error {
	s := b.of(network.Name)
	s.claiming.Lock()
	defer s.claiming.Unlock()
	for _, o := range b.blocksOf(network.Name, s) {
		if p, err := netip.ParsePrefix(o.Spec.CIDR); err == nil && !p.IsSingleIP() && p.Contains(a) {
			if o.Spec.Node != b.node {
				return fmt.Errorf("address %s of network %s is in a block of node %s", a, network.Name, o.Spec.Node)
			}
			return nil
		}
	}
	for _, sp := range specs(network) {
		if !sp.Subnet.Contains(a) {
			continue
		}
		p := netip.PrefixFrom(a, sp.BlockBits).Masked()
		o, err := b.api.CreateBlock(ctx, b.object(network, p, ""))
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("claim block %s of network %s again: %w", p, network.Name, err)
		}
		if err == nil {
			b.log.Warn("an AddressBlock with addresses in use was deleted; claimed it again", "network", network.Name,
				"block", p)
			s.made[o.Name] = made{o, time.Now()}
		}
		return nil
	}
	if network.Withheld != "" {
		return errors.New(network.Withheld)
	}
	return nil
}
