// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ErrDisconnected is wrapped by the error of everything that was under way, or
// came later, when a connection was lost or closed.
var ErrDisconnected = errors.New("openflow: disconnected")

// ConnOptions are options of a connection. The zero value is good for a client
// that only sends and asks.
type ConnOptions struct {
	// Handler is called with each message that answers no request: PacketIn2,
	// PortStatus, FlowRemoved, FlowUpdates, and the Error of a message that was
	// sent with Send. Calls come one at a time, in order, on a goroutine of
	// their own. While it is slow, up to QueueLen messages wait; what comes then
	// is dropped and counted.
	Handler  func(Message)
	QueueLen int // 0: 1024
	// Async asks the switch for packet-ins, port and flow notices, which it
	// does not send to a management connection by itself.
	Async bool
	// FragmentPorts has the first fragment of a packet match by its ports (ovs-ofctl(8),
	// set-frags nx-match): by default no fragment has any. It is a property of the bridge,
	// until the switch ends.
	FragmentPorts bool
	// ControllerID is what a Controller action names to reach this connection.
	ControllerID uint16
	// EchoInterval is how long the connection may be silent before the switch
	// is asked for a sign of life; after six times that it is given up. 0: 5 s.
	EchoInterval time.Duration
	// Pack makes the flows and groups that the switch sends come with packed actions, to save
	// memory where very many are kept.
	Pack bool
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

const (
	defaultQueueLen     = 1024
	defaultEchoInterval = 5 * time.Second
	echoMisses          = 6
	handshakeTimeout    = 5 * time.Second
)

// Conn is a connection to a switch, from the handshake until it is lost. It is
// safe for concurrent use: messages of one call stay in order, those of
// different calls mix.
type Conn struct {
	opts ConnOptions
	log  *slog.Logger
	nc   net.Conn

	writing chan struct{} // holds a token during a write
	echoes  chan []byte   // data of echo requests to answer
	unasked chan Message  // for the Handler
	dropped atomic.Uint64
	read    atomic.Int64 // when something was read last, in Unix nanoseconds

	mu    sync.Mutex
	xid   uint32
	calls map[uint32]*call // by the transaction id that ends them

	failOnce sync.Once
	err      error
	done     chan struct{}
	running  sync.WaitGroup
}

// Dial connects to the switch at address, "unix:PATH" or "tcp:HOST:PORT", and
// shakes hands. The management socket of an Open vSwitch bridge is
// unix:/run/openvswitch/BRIDGE.mgmt.
func Dial(ctx context.Context, address string, opts ConnOptions) (*Conn, error) {
	network, addr, ok := strings.Cut(address, ":")
	if !ok || network != "unix" && network != "tcp" {
		return nil, fmt.Errorf("openflow: address %q: want unix:PATH or tcp:HOST:PORT", address)
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, fmt.Errorf("openflow: %w", err)
	}
	c, err := NewConn(ctx, nc, opts)
	if err != nil {
		return nil, fmt.Errorf("openflow: %s: %w", address, err)
	}
	return c, nil
}

// NewConn shakes hands over nc, which it owns from then on.
func NewConn(ctx context.Context, nc net.Conn, opts ConnOptions) (*Conn, error) {
	if opts.QueueLen == 0 {
		opts.QueueLen = defaultQueueLen
	}
	if opts.EchoInterval == 0 {
		opts.EchoInterval = defaultEchoInterval
	}
	c := &Conn{
		opts: opts, log: opts.Logger, nc: nc,
		writing: make(chan struct{}, 1),
		echoes:  make(chan []byte, 16),
		unasked: make(chan Message, opts.QueueLen),
		calls:   map[uint32]*call{},
		done:    make(chan struct{}),
	}
	if c.log == nil {
		c.log = slog.Default()
	}
	if err := handshake(ctx, nc); err != nil {
		nc.Close()
		return nil, err
	}
	c.read.Store(time.Now().UnixNano())
	c.running.Go(c.readAll)
	c.running.Go(c.keepAlive)
	if opts.Handler != nil {
		c.running.Go(c.handleAll)
	}
	if err := c.prepare(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// configFragmentPorts is OFPC_FRAG_NX_MATCH (openflow/nicira-ext.h).
const configFragmentPorts = 3

// prepare makes the switch send what the options ask for.
func (c *Conn) prepare(ctx context.Context) error {
	var config SwitchConfig
	var msgs []Message
	if c.opts.FragmentPorts {
		config.Flags = configFragmentPorts
	}
	if c.opts.Async {
		config.MissSendLen = 0xffff // a management connection gets nothing unasked while this is 0
		msgs = append(msgs, &SetPacketInFormat{Format: PacketInNXT2})
	}
	if config == (SwitchConfig{}) {
		return nil
	}
	msgs = append(msgs, &SetConfig{config})
	if c.opts.Async && c.opts.ControllerID != 0 {
		msgs = append(msgs, &SetControllerID{ID: c.opts.ControllerID})
	}
	return c.Do(ctx, msgs)
}

// Close ends the connection and waits until nothing of it runs. It must not be
// called by the Handler.
func (c *Conn) Close() error {
	c.fail(errors.New("closed"))
	c.running.Wait()
	return nil
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says why the connection has ended, nil if it has not.
func (c *Conn) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Dropped is how many messages the Handler was too slow for.
func (c *Conn) Dropped() uint64 { return c.dropped.Load() }

// fail ends the connection for the given reason, if it has not ended yet.
func (c *Conn) fail(err error) {
	c.failOnce.Do(func() {
		c.err = fmt.Errorf("%w: %w", ErrDisconnected, err)
		c.nc.Close()
		close(c.done)
	})
}

// keepAlive answers the switch's echo requests and sends our own. It, not the
// reader, answers: a reader that waits for a write could wait forever, because
// a switch with many unread replies stops to read.
func (c *Conn) keepAlive() {
	tick := time.NewTicker(c.opts.EchoInterval)
	defer tick.Stop()
	patience := echoMisses * c.opts.EchoInterval
	send := func(m Message) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = c.Send(ctx, m) // what fails is seen below
	}
	for {
		select {
		case data := <-c.echoes:
			send(&EchoReply{Data: data})
		case now := <-tick.C:
			silence := now.Sub(time.Unix(0, c.read.Load()))
			if silence > patience {
				c.fail(fmt.Errorf("the switch has been silent for %v", silence.Round(time.Millisecond)))
			}
			if silence > c.opts.EchoInterval/2 && len(c.writing) == 0 {
				send(&EchoRequest{})
			}
		case <-c.done:
			return
		}
	}
}

func (c *Conn) handleAll() {
	for {
		select {
		case m := <-c.unasked:
			c.opts.Handler(m)
		case <-c.done:
			return
		}
	}
}
