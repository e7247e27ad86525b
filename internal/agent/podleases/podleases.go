// SPDX-License-Identifier: Apache-2.0

package podleases

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/cni"
	"coelan.io/coelan/internal/dhcp"
	"coelan.io/coelan/internal/dhcp/client"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/timers"
	"coelan.io/coelan/internal/trigger"
)

const (
	// obtainTimeout bounds how long a pod waits for its address.
	obtainTimeout = 10 * time.Second
	// sendTimeout bounds the sending of one frame.
	sendTimeout = 5 * time.Second
)

// errCannotAsk is what some backends' nodes have in place of leases.
var errCannotAsk = errors.New("this node's backend cannot ask DHCP servers: that takes ovs")

// Recorder tells users of pods that an address is lost.
type Recorder interface {
	PodWarning(namespace, name, uid, reason, message string)
}

// Options are what Leases work with. All but Send are needed.
type Options struct {
	Log *slog.Logger
	// Store has the leases between two runs.
	Store *attachment.Store
	// Send sends a frame without a VLAN tag to the servers of a Network, in the name of a Port,
	// which is NAMESPACE/NAME; nil: the node's backend cannot, and no interface gets a lease.
	Send func(ctx context.Context, network, port string, frame []byte) error
	// Servers names these servers, for messages, and what is wrong with what the Port has asked
	// them.
	Servers func(network, port string) (which, problem string)
	// Withheld is called when an attachment may not use its address any more, or may again.
	Withheld func(attachment.Key)
	// Leased takes what an interface has got, or has lost. It does not block.
	Leased func(backend.Lease)
	Events Recorder
}

// Leases are those of one node. They are safe for concurrent use.
type Leases struct {
	Options
	wake trigger.Trigger // something is due at another time

	mu         sync.Mutex
	interfaces map[attachment.Key]*leased
}

// leased is an interface that asks for its address.
type leased struct {
	record
	client *client.Client
	// acquired is closed when there is the first lease, or failed says why it is not on disk.
	acquired chan struct{}
	failed   error
	withheld bool
}

var _ cni.Leases = (*Leases)(nil)

// New makes Leases that go on with those of the last run. Those of attachments that are gone are
// forgotten: their servers give the addresses to others when they expire.
func New(o Options) (*Leases, error) {
	l := &Leases{Options: o, wake: trigger.New(), interfaces: map[attachment.Key]*leased{}}
	return l, l.load(time.Now())
}

// Withholds says that an attachment may not use its address now.
func (l *Leases) Withholds(at attachment.Attachment) bool {
	if !at.Leased || at.IsPort() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.interfaces[at.Key]
	return i == nil || i.withheld
}

// Obtain implements cni.Leases.
func (l *Leases) Obtain(ctx context.Context, p attachment.Plan) (client.Lease, error) {
	if l.Send == nil {
		return client.Lease{}, &cni.PlanError{
			Reason: v1alpha1.ReasonNetworkNotReady,
			Message: fmt.Sprintf("interface %s: Network %s has ipam DHCP, and %v", p.IfName, p.NetworkName,
				errCannotAsk),
		}
	}
	ctx, cancel := context.WithTimeout(ctx, obtainTimeout)
	defer cancel()
	i := l.add(p)
	select {
	case <-i.acquired:
		l.mu.Lock()
		defer l.mu.Unlock()
		lease, _ := i.client.Had()
		return lease, i.failed
	case <-ctx.Done():
	}
	which, problem := l.Servers(p.NetworkName, i.portName())
	l.Release(context.WithoutCancel(ctx), p.Key) // an answer may have come at this moment
	message := fmt.Sprintf("interface %s on Network %s: no %s answered within %v", p.IfName, p.NetworkName, which,
		obtainTimeout)
	if problem != "" {
		message += ": " + problem
	}
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		message = fmt.Sprintf("interface %s on Network %s: no DHCP server has answered yet: %v", p.IfName,
			p.NetworkName, ctx.Err())
	}
	return client.Lease{}, &cni.PlanError{Reason: v1alpha1.ReasonNoLease, Message: message, Retry: true}
}

// add begins to ask for an interface of a pod that is being attached.
func (l *Leases) add(p attachment.Plan) *leased {
	mac := attachment.MACOf(p.Key)
	if p.MAC != nil {
		mac = *p.MAC
	}
	r := record{
		Key: p.Key, Namespace: p.PodNamespace, Pod: p.PodName, UID: p.PodUID, Network: p.NetworkName,
		Port: attachment.PortName(p.PodName, p.IfName), MAC: mac,
	}
	i := &leased{record: r, client: client.New(r.config()), acquired: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.interfaces[p.Key] = i
	l.wake.Fire()
	return i
}

// Release implements cni.Leases.
func (l *Leases) Release(ctx context.Context, k attachment.Key) {
	i := l.remove(k)
	if i == nil {
		return
	}
	l.mu.Lock()
	frame := i.client.Release()
	l.mu.Unlock()
	if frame == nil {
		return
	}
	if err := l.send(ctx, outgoing{i.Network, i.portName(), frame}); err != nil {
		l.Log.Warn("cannot give back a pod's address; it is free when its lease expires", "pod", i.ref(), "err", err)
	}
}

// remove ends the asking for an interface; nil if nothing asks for it.
func (l *Leases) remove(k attachment.Key) *leased {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.interfaces[k]
	delete(l.interfaces, k)
	if i != nil {
		if err := l.forget(k); err != nil {
			l.Log.Warn("cannot forget the lease of a pod that is gone; the next start does", "pod", i.ref(), "err", err)
		}
	}
	return i
}

// Received takes an answer of a DHCP server of the physical network of a Network.
func (l *Leases) Received(network string, frame []byte) {
	from, m, ok := client.Reply(frame)
	if !ok {
		return
	}
	var after effects
	l.mu.Lock()
	for _, i := range l.interfaces {
		if i.Network == network && string(m.ClientHWAddr) == string(i.MAC[:]) {
			l.apply(i, i.client.Handle(time.Now(), from, m), &after)
		}
	}
	l.mu.Unlock()
	l.wake.Fire()
	l.run(context.Background(), after)
}

// Run asks for leases and renews them until ctx ends. Leases stay as they are then.
func (l *Leases) Run(ctx context.Context) error {
	for {
		after, next := l.tick(time.Now())
		l.run(ctx, after)
		select {
		case <-ctx.Done():
			return nil
		case <-timers.At(next):
		case <-l.wake:
		}
	}
}

// tick does what is due, and says when something is due next; the zero time: nothing is.
func (l *Leases) tick(now time.Time) (after effects, next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, i := range l.interfaces {
		l.apply(i, i.client.Tick(now), &after)
		if at := i.client.Next(); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return after, next
}

// effects are what is done when the lock is not held any more.
type effects struct {
	frames []outgoing
	calls  []func()
}

type outgoing struct {
	network, port string
	frame         []byte
}

func (l *Leases) run(ctx context.Context, e effects) {
	for _, call := range e.calls {
		call()
	}
	for _, o := range e.frames {
		if err := l.send(ctx, o); err != nil {
			l.Log.Debug("cannot ask a DHCP server; it is asked again", "network", o.network, "err", err)
		}
	}
}

func (l *Leases) send(ctx context.Context, o outgoing) error {
	if l.Send == nil {
		return errCannotAsk
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	return l.Send(ctx, o.network, o.port, o.frame)
}

// apply follows a step of an interface's client.
func (l *Leases) apply(i *leased, s client.Step, after *effects) {
	if s.Frame != nil {
		after.frames = append(after.frames, outgoing{i.Network, i.portName(), s.Frame})
	}
	switch s.Event {
	case client.Nothing:
	case client.Acquired, client.Renewed:
		l.granted(i, after)
	case client.Refused:
		l.lost(i, "its DHCP server refuses to renew it", after)
	case client.Expired:
		l.lost(i, "its lease has expired, and no DHCP server has renewed it", after)
	}
}

// granted follows a lease that is new, or valid for longer.
func (l *Leases) granted(i *leased, after *effects) {
	lease, _ := i.client.Lease()
	if err := l.save(i); err != nil {
		l.Log.Error("cannot save the lease of a pod", "pod", i.ref(), "err", err)
		i.failed = err
	}
	select {
	case <-i.acquired:
	default:
		close(i.acquired)
	}
	l.Log.Debug("a DHCP server has given a lease", "pod", i.ref(), "address", lease.Address, "until", lease.Expires())
	r := i.record
	after.calls = append(after.calls, func() { l.Leased(r.lease(lease)) })
	if i.withheld {
		i.withheld = false
		l.Log.Info("a pod has its address of a DHCP server again", "pod", i.ref(), "address", lease.Address)
		after.calls = append(after.calls, func() { l.Withheld(r.Key) })
	}
}

// lost keeps an interface from using its address.
func (l *Leases) lost(i *leased, why string, after *effects) {
	lease, _ := i.client.Had()
	i.withheld = true
	message := fmt.Sprintf("interface %s on Network %s may not use its address %s any more: %s. The node asks for it "+
		"again; to have another one, delete the pod", i.IfName, i.Network, lease.Address.Addr(), why)
	l.Log.Warn("a pod has lost its address of a DHCP server", "pod", i.ref(), "address", lease.Address, "why", why)
	r := i.record
	after.calls = append(after.calls, func() {
		l.Withheld(r.Key)
		l.Leased(r.lease(client.Lease{}))
		l.Events.PodWarning(r.Namespace, r.Pod, r.UID, v1alpha1.ReasonNoLease, message)
	})
}

// xid is a random transaction id.
func xid() (id dhcpv4.TransactionID) {
	_, _ = rand.Read(id[:]) // it does not fail
	return id
}

func (r record) config() client.Config {
	return client.Config{MAC: net.HardwareAddr(r.MAC[:]), HostName: dhcp.HostName(r.Pod), XID: xid}
}

// portName is that of its Port.
func (r record) portName() string { return r.Namespace + "/" + r.Port }

func (r record) ref() string { return r.Namespace + "/" + r.Pod + "/" + r.IfName }

// lease is what the interface has; without an address: nothing.
func (r record) lease(l client.Lease) backend.Lease {
	have := backend.Lease{
		Port: intent.Port{
			ID: r.Key.String(), Namespace: r.Namespace, Pod: r.Pod, Interface: r.IfName, UID: r.UID, Object: r.Port,
			Network: r.Network, MAC: r.MAC,
		},
		Duration: time.Until(l.Expires()),
	}
	if l.Address.IsValid() {
		have.HostName, have.Addresses = dhcp.HostName(r.Pod), append(have.Addresses, l.Address.Addr())
	}
	return have
}
