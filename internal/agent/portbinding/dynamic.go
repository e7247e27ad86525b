// SPDX-License-Identifier: Apache-2.0

package portbinding

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/blockipam"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
	"coelan.io/coelan/internal/names"
)

// machine is a guest that names no Port, with what its own is made of.
type machine struct {
	namespace, name string
	mac             intent.MAC
	guest           backend.Guest
}

func (m machine) key() string { return m.namespace + "/" + m.name }

// dynamicName is the name of the Port that is made for a machine. It is the same after every
// restart, and only one node can make it.
func dynamicName(mac intent.MAC) string { return "guest-" + strings.ReplaceAll(mac.String(), ":", "-") }

// place adds guests that name no Port to those that are plugged: for the user's Port of their
// namespace that asks for their MAC, else for their own. It returns those of which that has to be
// made.
func (b *Binder) place(s apicache.State, unnamed []backend.Guest, plugged map[string][]backend.Guest,
) (missing []machine) {
	for _, g := range unnamed {
		m := machine{namespace: strings.TrimSuffix(g.ID, "/"+anyPort), guest: g}
		var err error
		if m.mac, err = intent.ParseMAC(g.MAC); err != nil || m.mac[0]&1 != 0 || m.mac == (intent.MAC{}) {
			m.name = "guest"
			b.refuse(m, v1alpha1.ReasonInvalid,
				fmt.Sprintf("external_ids:attached-mac is %q, and not the MAC of a machine", g.MAC))
			continue
		}
		m.name = dynamicName(m.mac)
		key := m.key()
		if o := b.ports.asked(macOf{m.namespace, m.mac}); o != nil {
			key = o.Namespace + "/" + o.Name
		} else if o := s.Ports.Get(key); o == nil {
			missing = append(missing, m)
		} else if !o.Spec.Dynamic {
			b.refuse(m, v1alpha1.ReasonNameTaken,
				"a Port of a user has the name "+m.name+": rename it, or give it the MAC")
			continue
		}
		plugged[key] = append(plugged[key], g)
	}
	return missing
}

// refuse tells once of each reason why a machine has no Port.
func (b *Binder) refuse(m machine, reason, message string) {
	message = fmt.Sprintf("interface %s of node %s: %s", m.guest.Name, b.Node, message)
	b.mu.Lock()
	again := b.told["guest "+m.guest.Name] == message
	b.told["guest "+m.guest.Name] = message
	b.mu.Unlock()
	if !again {
		b.Log.Warn("no Port for a machine that names none", "port", m.key(), "why", message)
		b.Events.ObjectWarning(v1alpha1.GroupVersion.String(), "Port", m.namespace, m.name, reason, message)
	}
}

// make creates the Port of a machine, which is bound when the view shows it.
func (b *Binder) make(ctx context.Context, s apicache.State, m machine) error {
	if !s.Listed(kube.Ports) || !s.Listed(kube.Networks) || !s.Listed(apicache.Namespaces) {
		return nil
	}
	network, reason, refusal := b.admit(s, m)
	if refusal != "" {
		b.refuse(m, reason, refusal)
		return nil
	}
	_, err := b.API.CreatePort(ctx, &v1alpha1.Port{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Port"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.namespace, Name: m.name,
			Labels: map[string]string{
				v1alpha1.LabelManagedBy: v1alpha1.ManagedByAgent,
				v1alpha1.LabelNode:      names.LabelValue(b.Node),
				v1alpha1.LabelNetwork:   names.LabelValue(network),
			},
		},
		Spec: v1alpha1.PortSpec{
			Network: network, MAC: m.mac.String(), Node: b.Node, Dynamic: true,
		},
	})
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil // the view is about to show it
	case err != nil:
		var answer apierrors.APIStatus
		if errors.As(err, &answer) {
			b.refuse(m, v1alpha1.ReasonInvalid, err.Error())
		}
		return fmt.Errorf("port %s: %w", m.key(), err)
	}
	b.Log.Info("Port made for a machine that names none",
		"port", m.key(), "interface", m.guest.Name, "network", network)
	return nil
}

// considerDynamic binds the Port of a machine that names none to its interface.
func (b *Binder) considerDynamic(ctx context.Context, s apicache.State, o *v1alpha1.Port,
	list []backend.Guest,
) error {
	if o.Spec.Node != b.Node {
		b.warn(o, v1alpha1.ReasonBoundElsewhere, fmt.Sprintf(
			"it is of a machine on node %s, and interface %s of node %s is for a machine with the same MAC",
			o.Spec.Node, list[0].Name, b.Node))
		return nil
	}
	network, ok := b.Flows.Network(o.Spec.Network)
	n := s.Networks.Get(o.Spec.Network)
	if !ok || n == nil || o.DeletionTimestamp != nil {
		return nil // what changes is told
	}
	mac, err := intent.ParseMAC(o.Spec.MAC)
	if err != nil {
		return fmt.Errorf("port %s/%s: spec.mac: %w", o.Namespace, o.Name, err)
	}
	if _, bound := b.Store.Get(attachment.PortKey(o.Namespace, o.Name)); !bound {
		m := machine{namespace: o.Namespace, name: o.Name, mac: mac, guest: list[0]}
		if reason, refusal := b.mayBeOn(s, n, m); refusal != "" {
			b.warn(o, reason, refusal)
			return b.tell(ctx, o, map[string]any{"lastError": reason + ": " + refusal})
		}
	}
	at, err := b.dynamicAttachment(ctx, o, network, list)
	if err != nil {
		return b.unallocated(ctx, o, err)
	}
	status := map[string]any{"mac": at.MAC.String(), "addresses": texts(at)}
	return b.connect(ctx, o, at, status)
}

// maxClaims bounds how many blocks are claimed for one machine.
const maxClaims = 4

// dynamicAttachment is what the store has for a machine, or gets: the addresses that it has had, if
// they are free, or else new ones of this node's blocks.
func (b *Binder) dynamicAttachment(ctx context.Context, o *v1alpha1.Port, network intent.Network,
	list []backend.Guest,
) (attachment.Attachment, error) {
	at, ok := b.Store.Get(attachment.PortKey(o.Namespace, o.Name))
	if ok && at.HostInterface == list[0].Name {
		return at, nil
	}
	asking, done := context.WithCancel(ctx) // the blocks stay meanwhile
	defer done()
	ranges, err := b.Blocks.Ranges(asking, network, nil)
	if err != nil {
		return at, err
	}
	if ok { // the machine has another interface now
		if err := b.release(ctx, at, "it has another interface"); err != nil {
			return at, err
		}
	}
	plan, err := b.plan(o, network, list, o.Spec.MAC)
	if err != nil {
		return at, err
	}
	plan.Dynamic = true
	if plan.Addresses = within(ranges, o.Status.Addresses); len(plan.Addresses) > 0 {
		if at, err = b.allocate(ctx, plan); err == nil {
			return at, nil
		}
		var taken *attachment.TakenError
		if !errors.As(err, &taken) || taken.MAC {
			return at, err
		}
		plan.Addresses = nil
	}
	for claimed := 0; ; claimed++ {
		plan.Ranges = ranges
		at, err = b.allocate(ctx, plan)
		var exhausted *ipam.ExhaustedError
		if !errors.As(err, &exhausted) || !exhausted.Blocks || claimed == maxClaims {
			return at, err
		}
		if ranges, err = b.Blocks.Ranges(asking, network, exhausted.CIDRs); err != nil {
			return at, err
		}
	}
}

// within are the addresses of a status that are of the ranges of this node; none unless all are.
func within(ranges []ipam.Range, status []string) (list []netip.Addr) {
	for _, text := range status {
		a, err := netip.ParseAddr(text)
		if err != nil || !slices.ContainsFunc(ranges, func(r ipam.Range) bool { return r.Contains(a) }) {
			return nil
		}
		list = append(list, a)
	}
	return list
}

// unallocated tells why a machine has no address.
func (b *Binder) unallocated(ctx context.Context, o *v1alpha1.Port, err error) error {
	wrapped := fmt.Errorf("port %s/%s: %w", o.Namespace, o.Name, err)
	var full *blockipam.ExhaustedError
	var exhausted *ipam.ExhaustedError
	var taken *attachment.TakenError
	reason := ""
	switch {
	case errors.As(err, &full) || errors.As(err, &exhausted):
		reason = v1alpha1.ReasonExhausted
	case errors.As(err, &taken):
		reason = v1alpha1.ReasonMACTaken
	default:
		return wrapped
	}
	b.warn(o, reason, err.Error())
	return errors.Join(wrapped, b.tell(ctx, o, map[string]any{"lastError": reason + ": " + err.Error()}))
}

// leave is for the Port of a machine of this node without an interface.
func (b *Binder) leave(ctx context.Context, o *v1alpha1.Port) (time.Time, error) {
	mac, err := intent.ParseMAC(o.Spec.MAC)
	return b.idle(ctx, o, err == nil && b.ports.asked(macOf{o.Namespace, mac}) != nil)
}

// idle has a machine's Port wait for its interface until its lease has expired, and deletes it then
// or if there is a user's Port for the machine. It returns when to look again.
func (b *Binder) idle(ctx context.Context, o *v1alpha1.Port, superseded bool) (again time.Time, err error) {
	at, has := b.Store.Get(attachment.PortKey(o.Namespace, o.Name))
	if has && !superseded {
		until, err := b.until(ctx, o, at)
		if err != nil {
			return again, fmt.Errorf("port %s: %w", at.PortKey(), err)
		}
		if time.Now().Before(until) {
			return until, b.tell(ctx, o, unbound())
		}
	}
	// Others get the address only when no Port shows it any more.
	if err := b.API.DeletePort(ctx, o.Namespace, o.Name, o.UID); err != nil {
		return again, fmt.Errorf("port %s/%s: %w", o.Namespace, o.Name, err)
	}
	if has {
		return again, b.release(ctx, at, "its machine does not use it any more")
	}
	return again, nil
}

// until is when the lease of a machine without an interface expires, in the past if it has none. It
// ends the flows first. The view has no leases.
func (b *Binder) until(ctx context.Context, o *v1alpha1.Port, at attachment.Attachment) (time.Time, error) {
	until, waits := b.waiting[at.Key]
	if !waits {
		if err := b.Flows.Disconnect(ctx, at); err != nil {
			return until, err
		}
		b.waiting[at.Key] = until
		b.Log.Info("a machine's interface is gone", "port", at.PortKey(), "interface", at.HostInterface)
	}
	if time.Now().Before(until) {
		return until, nil
	}
	now, err := b.API.Port(ctx, o.Namespace, o.Name)
	if err != nil {
		return until, ignoreNotFound(err)
	}
	if l := now.Status.Lease; now.UID == o.UID && l != nil && l.ExpireTime != nil {
		until = l.ExpireTime.Time
		b.waiting[at.Key] = until
	}
	return until, nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func texts(at attachment.Attachment) []string {
	var list []string
	for _, a := range at.Addresses {
		list = append(list, a.Addr().String())
	}
	return list
}
