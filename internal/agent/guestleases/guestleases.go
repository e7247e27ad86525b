// SPDX-License-Identifier: Apache-2.0

package guestleases

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/dhcp/client"
	"coelan.io/coelan/internal/dhcp/snoop"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/timers"
	"coelan.io/coelan/internal/trigger"
)

const (
	// maxWaiting is how many messages may wait. What is too much is dropped; its sender repeats it.
	maxWaiting = 1024
	// stepTimeout bounds what is done for one message.
	stepTimeout = 5 * time.Second
	// silence is how long servers may say nothing to a machine that asks before an Event says so.
	silence = 10 * time.Second
)

// Options are what Leases work with. All are needed but Ask and Deliver, without which a backend
// passes nothing on.
type Options struct {
	Log *slog.Logger
	// Store has the attachments with their addresses, and the leases between two runs.
	Store *attachment.Store
	// Ask passes what the machine of a Port, which is NAMESPACE/NAME, asks on to the servers of a
	// Network.
	Ask func(ctx context.Context, network, port string, frame []byte) error
	// Servers names these servers, for messages, and what is wrong with what the Port has asked
	// them.
	Servers func(network, port string) (which, problem string)
	// Deliver passes a frame on to the machine of the Port with that ID.
	Deliver func(ctx context.Context, port string, frame []byte) error
	// Connect has a Port send from the addresses of its attachment, and returns when it may.
	Connect func(ctx context.Context, at attachment.Attachment) error
	// Changed is called when a machine has another address than before.
	Changed func()
	// Leased takes what a machine has got, or has lost. It does not block.
	Leased func(backend.Lease)
	Events Recorder
}

// Recorder tells users of Ports that a machine has no address.
type Recorder interface {
	PortWarning(namespace, name, uid, reason, message string)
}

// Leases are those of one node. They are safe for concurrent use.
type Leases struct {
	Options
	waiting chan message
	wake    trigger.Trigger // something is due at another time

	mu       sync.Mutex
	machines map[attachment.Key]*machine
}

// machine is the one of an attachment. It is changed by Run alone once that works.
type machine struct {
	at      attachment.Attachment // without its addresses, which change
	binding snoop.Binding
	// unanswered is when it has asked for an address without an answer since; the zero time: it has
	// its answer. silent says that there is an Event of that.
	unanswered time.Time
	silent     bool
}

// message is what a machine asks, or a server answers.
type message struct {
	port    intent.Port // of the machine that asks
	network string      // of the server that answers; empty: a machine asks
	frame   []byte
}

// New makes Leases that go on with those of the last run. What has expired meanwhile is withdrawn.
func New(o Options) (*Leases, error) {
	l := &Leases{
		Options: o, waiting: make(chan message, maxWaiting), wake: trigger.New(),
		machines: map[attachment.Key]*machine{},
	}
	return l, l.load(time.Now())
}

// Serves says whether the backend passes on what machines ask.
func (l *Leases) Serves() bool { return l.Ask != nil }

// Asked takes a message of the machine of a Port.
func (l *Leases) Asked(p intent.Port, frame []byte) { l.enqueue(message{port: p, frame: frame}) }

// Answered takes a message of a server of a Network.
func (l *Leases) Answered(network string, frame []byte) {
	l.enqueue(message{network: network, frame: frame})
}

func (l *Leases) enqueue(m message) {
	select {
	case l.waiting <- m:
	default:
		l.Log.Debug("a message of DHCP is dropped: too many wait; its sender repeats it", "network", m.network)
	}
}

// Adopt has the machine of an attachment, which has come to this node, go on with the lease that it
// has. Call it before the machine may send.
func (l *Leases) Adopt(at attachment.Attachment, lease snoop.Lease) {
	m := newMachine(at)
	m.binding.Lease = lease
	l.save(m)
	l.mu.Lock()
	l.machines[at.Key] = m
	l.mu.Unlock()
	l.wake.Fire()
}

// Forget drops what is known of the machine of an attachment that is gone.
func (l *Leases) Forget(k attachment.Key) {
	l.mu.Lock()
	delete(l.machines, k)
	l.mu.Unlock()
	if err := l.forget(k); err != nil {
		l.Log.Warn("cannot forget a machine's lease; the next start does", "port", k, "err", err)
	}
}

// Run passes messages on until ctx ends. Leases stay as they are then.
func (l *Leases) Run(ctx context.Context) error {
	for {
		now := time.Now()
		next := earlier(l.expire(ctx, now), l.watchSilence(now))
		select {
		case <-ctx.Done():
			return nil
		case <-timers.At(next):
		case <-l.wake:
		case m := <-l.waiting:
			l.handle(ctx, m)
		}
	}
}

func (l *Leases) handle(ctx context.Context, m message) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if m.network == "" {
		l.ask(ctx, m.port, m.frame)
		return
	}
	l.answer(ctx, m.network, m.frame)
}

// ask passes on what the machine of a Port asks, if it may.
func (l *Leases) ask(ctx context.Context, p intent.Port, frame []byte) {
	m, ok := l.machine(p)
	from, question, valid := snoop.Question(frame)
	if !ok || !valid {
		return
	}
	pass, givesUp := m.binding.Ask(time.Now(), from, question)
	if !pass {
		l.Log.Debug("a machine's message to DHCP servers is dropped",
			"port", m.at.PortKey(), "message", question.MessageType())
		return
	}
	switch question.MessageType() {
	case dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest:
		if m.unanswered.IsZero() {
			m.unanswered = time.Now()
		}
	}
	if err := l.Ask(ctx, p.Network, m.at.PortKey(), frame); err != nil {
		l.Log.Debug("cannot pass a machine's question on; it repeats it", "port", m.at.PortKey(), "err", err)
	}
	if givesUp {
		l.change(ctx, m, snoop.Lease{})
	}
}

// machine is the one of a Port of this node that asks servers by itself.
func (l *Leases) machine(p intent.Port) (*machine, bool) {
	k := attachment.PortKey(p.Namespace, p.Object)
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := l.machines[k]; m != nil {
		return m, true
	}
	at, ok := l.Store.Get(k)
	if !ok || !at.Leased || k.String() != p.ID {
		return nil, false
	}
	m := newMachine(at)
	l.machines[k] = m
	return m, true
}

func newMachine(at attachment.Attachment) *machine {
	return &machine{at: at, binding: snoop.Binding{MAC: at.MAC}}
}

// answer passes on what a server answers, if a machine of this node has asked. The machine may send
// from the address before it learns that it has it.
func (l *Leases) answer(ctx context.Context, network string, frame []byte) {
	_, reply, ok := client.Reply(frame)
	if !ok {
		return
	}
	m := l.asking(network, reply.ClientHWAddr)
	if m == nil {
		return
	}
	pass, lease := m.binding.Answer(time.Now(), reply)
	if pass {
		m.unanswered, m.silent = time.Time{}, false
	}
	if !pass || lease != nil && !l.change(ctx, m, *lease) {
		return
	}
	if err := l.Deliver(ctx, m.at.Key.String(), frame); err != nil {
		l.Log.Debug("cannot pass an answer on to a machine; it asks again", "port", m.at.PortKey(), "err", err)
	}
}

// asking is the machine with a MAC on a Network that has asked; nil: none has.
func (l *Leases) asking(network string, mac []byte) *machine {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.machines {
		if m.at.NetworkName == network && string(m.binding.MAC[:]) == string(mac) {
			return m
		}
	}
	return nil
}
